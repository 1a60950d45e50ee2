"""IGPO: every turn is paid for what it adds to the policy's own probability of the gold answer
(arXiv:2510.14967).

p_n = exp(mean_j log pi(a_j | context before turn n, answer prefix, a_<j)): the gold answer, forced,
without gradient. A turn before the last earns g_n = p_{n+1} - p_n (turns from 0), the last one the
outcome. All rewards of a group are z-scored in one pool and summed:

    A_{i,n} = sum_{k >= n} gamma^{k-n} (r_{i,k} - mean) / std,     for every token of turn n; observations are masked.

Equal outcomes still differ in their gains, so no group is dropped. One turn only: GRPO with ddof 0.
An episode whose p does not match its turns (its context overflowed) keeps its outcome alone. The
gold answer may be a list of aliases: the likeliest counts. It is forced in the form that `template`
gives it, in which the policy's last message has it. `pool="separate"` z-scores gains and
outcomes apart (an option of the released code); "position" takes the returns of gamma 1 minus their
mean at the same token position of the group, without std (an earlier release).

Long because the signal and its use are both the paper's: a batched measurement of how likely the gold answer is
before each turn, and three ways to normalise the gains by turn together with the outcome.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Information Gain-based Policy Optimization",
    paper="arXiv:2510.14967",
    claim="Paying turns for the rise in the policy's own probability of the gold answer beats "
    "rewards for the outcome alone.",
    source="released code (GuoqingWang1/IGPO, core_algos.py: joint and separate normalisation) and "
    "summaries of the paper",
    size=pl.Size(
        setting="search agents (Qwen2.5-7B-Instruct as recalled; the released script leaves the "
        "model open), 32 prompts x 16, at most 10 turns of 2,000 tokens, lr 1e-6, KL 0.001",
        model="qwen2.5-7b",
        prompts=32,
        samples=16,
        tokens=20000,
        lr=1e-6,
        arguments={"kl": 1e-3, "collect.sample.max_tokens": 2000},
    ),
    task="hop",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            replace(
                pl.needs.ANSWER, meaning="the gold answer, or a list of its aliases", otherwise=""
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "tools",
                "whose results bring the policy nearer to the answer, turn by turn",
                built_in=("hop",),
            ),
        ),
        shows="gain",
        off={"collect.links.0.turns": 1},
        own={"model": "tiny-agent", "collect.links.0.n": 2, "schedule.prompts": 2},
    ),
    use="It helps where an answer takes several turns, most attempts of a group fail alike, and a short "
    "answer is known; it forces the answer once a turn, and where one turn suffices it is GRPO.",
    lacks=(
        "The search engine and the benchmarks of the paper are not there.",
        "The outcome is what the task's reward pays; the paper's word F1 with a penalty on "
        "the format has to be brought.",
        "A model that thinks before it answers needs a `template` that ends the thought.",
    ),
    grade="A",
)


@pl.declare(
    facts=(("gold_prob", tuple, "by turn, how likely the policy finds the gold answer after it"),)
)
@pl.stage
class GoldProbability:
    """Leaves the fact "gold_prob": the probability of the gold answer before each turn, per token
    (geometric mean).
    """

    template: str = "{}"
    model: str = "policy"

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        if group.task.answer is None:
            raise pl.UserError(
                f"task {group.task.id!r} has no answer, and igpo pays for the probability of the "
                "gold answer"
            )
        gold = (
            group.task.answer
            if isinstance(group.task.answer, list | tuple)
            else (group.task.answer,)
        )
        read = ctx.engine(self.model).dialect.encode_text
        before, answers = read(self.template.partition("{}")[0]), [read(str(a)) for a in gold]
        asked = {i: [c + before for c in contexts(e)] for i, e in enumerate(group.episodes) if e.ok}
        asked = {
            i: contexts_of_turn
            for i, contexts_of_turn in asked.items()
            if len(contexts_of_turn) > 1
        }
        rows = {
            (c, a): pl.Row(segments=(pl.Segment(ids=c), pl.Segment(ids=a, trained=True)))
            for f in asked.values()
            for c in f
            for a in answers
        }
        room = ctx.model(self.model).context
        rows = {k: row for k, row in rows.items() if len(row.context()) <= room and k[1]}
        forced = pl.Group(task=group.task, episodes=(pl.Episode(rows=tuple(rows.values())),))
        logps = ctx.measure([forced], ((self.model, "logp"),))[0][0]
        p: dict[tuple[int, ...], float] = {}
        for (context, answer), row_signals in zip(rows, logps, strict=True):
            mean = float(np.mean(row_signals[f"{self.model}_logp"][-len(answer) :]))
            p[context] = max(p.get(context, 0.0), float(np.exp(mean)))
        facts = {i: tuple(p[c] for c in turns if c in p) for i, turns in asked.items()}
        episodes = (
            replace(e, facts={**e.facts, "gold_prob": facts[i]}) if i in facts else e
            for i, e in enumerate(group.episodes)
        )
        return replace(group, episodes=tuple(episodes))


def contexts(episode: pl.Episode) -> list[tuple[int, ...]]:
    """What was seen before each turn of the policy."""
    return [
        tuple(i for s in row.segments[:at] for i in s.ids)
        for row in episode.rows
        for at, segment in enumerate(row.segments)
        if segment.trained
    ]


@pl.declare(reads=("gold_prob",))
@pl.stage
class TurnInformationGain:
    """Turn rewards and gains to advantages; see the module. `shuffle` deals a group's gains out at
    random (a placebo).
    """

    pool: Literal["joint", "separate", "position"] = "joint"
    gamma: float = 1.0
    shuffle: bool = False
    spreads: ClassVar[bool] = True

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        group_N = table.group_E[table.turns.episode_N]
        last_N, paid_N, gain_N = gains(table)
        if self.shuffle:
            for g in np.unique(group_N):
                at = np.flatnonzero((group_N == g) & paid_N & ~last_N)
                gain_N[at] = gain_N[
                    pl.rng_of(("shuffled gains", table.groups[int(g)].task.id)).permutation(at)
                ]
        table.add_column("gain", pl.Values(level="turn", x_N=gain_N))
        reward_N = pl.credit.turn_rewards(table) + gain_N
        if self.pool == "position":
            return centred_by_position(
                pl.Values(level="turn", x_N=pl.credit.discounted_turn_sums(table, reward_N, 1.0)),
                table,
            )
        apart_N = last_N if self.pool == "separate" else np.zeros_like(last_N)
        key_N = pl.credit.number_keys(
            list(zip(group_N.tolist(), apart_N.tolist(), paid_N.tolist(), strict=True))
        )
        std_N = pl.credit.group_std(reward_N, key_N)
        z_N = np.where(
            paid_N & (std_N > 0), (reward_N - pl.group_mean(reward_N, key_N)) / (std_N + 1e-6), 0.0
        )
        return pl.Values(level="turn", x_N=pl.credit.discounted_turn_sums(table, z_N, self.gamma))


def gains(table: pl.Table) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By turn: whether it is its episode's last, whether it has a reward (a gain or the outcome),
    and its gain.
    """
    n = len(table.turns.episode_N)
    last_N, paid_N, gain_N = np.zeros(n, bool), np.zeros(n, bool), np.zeros(n)
    for e, episode in enumerate(table.episodes):
        mine = np.flatnonzero(table.turns.episode_N == e)
        p = episode.facts.get("gold_prob")
        if len(mine) > 1 and p is None:
            g, i = table.where[e]
            raise pl.UserError(
                f"trajectory {i} of group {g} has {len(mine)} turns and no 'gold_prob': give the "
                "probability of the gold answer before each turn"
            )
        if len(mine):
            last_N[mine[-1]] = paid_N[mine[-1]] = True
        if p is not None and len(p) == len(mine):
            paid_N[mine], gain_N[mine[:-1]] = True, np.diff(p)
    return last_N, paid_N, gain_N


def centred_by_position(x: pl.Values, table: pl.Table) -> pl.Values:
    """x of a token minus the mean over the group's tokens that stand as far behind the start of
    their row's answer.
    """
    at = table.tokens
    row_N = pl.credit.number_keys(list(zip(at.episode_N.tolist(), at.row_N.tolist(), strict=True)))
    start = np.full(row_N.max(initial=-1) + 1, np.iinfo(np.int64).max)
    np.minimum.at(start, row_N, at.position_N)
    place = zip(
        table.group_E[at.episode_N].tolist(), (at.position_N - start[row_N]).tolist(), strict=True
    )
    x_N = table.lift(x, "token").x_N
    return pl.Values(
        level="token", x_N=x_N - pl.group_mean(x_N, pl.credit.number_keys(list(place)))
    )


def build(
    pool: Literal["joint", "separate", "position"] = "joint",
    gamma: float = 1.0,
    template: str = "{}",
    shuffle: bool = False,
    kl: float = 0.0,
) -> pl.Recipe:
    """`template` is how the last message has the answer: "{}" the answer alone, "ANSWER({})" in the
    built-in `hop`. `kl`: the released script uses 0.001.
    """
    loss = pl.Clipped(reduce="sequences") + pl.Track(("gain",))
    return pl.vary(
        pl.recipe("grpo", kl=kl),
        collect=pl.links(pl.Sample(n=8), pl.Score(), GoldProbability(template)),
        credit=pl.chain(TurnInformationGain(pool, gamma, shuffle)),
        objective=loss + kl * pl.KL("k3") if kl else loss,
    )


def embedded(template: str = "ANSWER({})", **options: Any) -> pl.Recipe:
    """On the embedded problem, where answers are written so."""
    return build(template=template, **options)
