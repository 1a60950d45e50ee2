"""MPO, Mixed Preference Optimization: DPO on the pairs that a reward model finds easy to tell apart, then
PPO on the prompts of the others, held by a KL to what DPO made.

    reward   r by Bradley and Terry on all pairs, unless `reward` is given
    split    gap = r(x, y_w) - r(x, y_l):    easy where gap > gamma, hard else
    dpo      -log sigmoid(beta [h(y_w) - h(y_l)]) on the easy pairs,    h = log pi - log pi_0
    rl       max E[r(x, y)] - kl * KL(pi || pi_DPO) on the prompts of the hard pairs, from pi_DPO on

(arXiv:2403.19443.) Noise in the labels lies mostly in small gaps, which DPO does not see; PPO needs
their prompts alone, and its fresh samples mend what DPO learned of other people's answers. The KL is
taken from the reward of every token, -kl * (log pi_old - log pi_DPO), and r is paid at the end; it is in
units of r, and so is gamma, which is the median of |gap| unless given. A pair that the reward model ranks
against its label (gap < 0) is hard whatever its size; `contradicted=ignored` lets |gap| decide of it as of
any other, `contradicted=dropped` leaves it out. Its label stays. A tie is hard, and so is a prompt of which
one pair is.

    palaestra train mpo --data pairs.jsonl --model DIR [reward=DIR] [gamma=0.5]

RUN/split has the easy pairs in pairs.jsonl and the hard ones, once for each prompt, in prompts.jsonl,
with the gap that the reward model gives. Held-out rows are in both. With an `answer` column the held-out answers are judged.

Controls: `split=reversed` trains DPO on the hard and PPO on the easy ones, `split=random` on halves of
the same sizes, `split=all` each on all; `rl.references.ref=DIR` holds PPO to the model of that folder
instead, such as pi_0. The reward model splits the data and pays the second stage, so that its errors
count twice.

Long because the split between the two stages is a program: it checks the reward model on held-out pairs, scores
all pairs, applies one of several splits, and writes the data files that DPO and PPO then read.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Mixed Preference Optimization (easy DPO then hard RLHF)",
    paper="arXiv:2403.19443",
    claim="DPO on pairs with a large gap of reward, then RLHF on the others with the DPO model as the "
    "reference, is better than either on all pairs.",
    source="abstract; gamma, the place of contradicted pairs and the constants of PPO are ours",
    size=pl.Size(
        setting="HH-RLHF and TLDR, judged by a reward model, GPT-4 and people; sizes not known"
    ),
    task="preferences",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.CHOSEN,
            pl.needs.REJECTED,
            replace(
                pl.needs.ANSWER,
                meaning="the right answer, by which held-out replies are judged",
                otherwise="held-out replies are not judged",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "reward model",
                "reward",
                "splits the pairs, and scores the policy's replies to the hard prompts",
                inert=None,
                otherwise="one is trained on the pairs first",
            ),
        ),
        shows="gap_apart",
        off={"split": "all"},
        own={
            "contradicted": "ignored",
            "reward.schedule.prompts": 4,
            "dpo.schedule.prompts": 4,
            "rl.schedule.prompts": 4,
            "rl.collect.links.0.n": 2,
        },
    ),
    use="It helps where some pairs are nearly equal or wrongly labelled, and the reward model ranks "
    "held-out pairs well; a reward model that is wrong splits and pays wrongly.",
    lacks=(
        "The built-in run ends worse than it began: its reward model ranks little better than chance, so the "
        "second stage takes away what DPO had brought.",
        "HH-RLHF and TLDR, and the judgements of GPT-4 and of people, are not measured.",
        "The stability and robustness of DPO and of RLHF, which the paper analyses, are not measured.",
        "The reward model is trained on the pairs that it then splits, for a fixed number of steps, and "
        "a run only says how it ranks held-out pairs, and stops where that is worse than chance.",
    ),
    grade="B",
)
Split = Literal["gap", "reversed", "random", "all"]
Contradicted = Literal["hard", "ignored", "dropped"]
CHUNK = 64  # pairs that are scored at once
CHECKED = 256  # held-out pairs, at most, on which the reward is checked before it splits


def easy_and_hard(
    gap_P: np.ndarray, gamma: float | None = None, contradicted: Contradicted = "hard"
) -> tuple[np.ndarray, np.ndarray, float]:
    """[P] which pairs are easy, which are hard, and gamma; None = the median of |gap|.

    Args:
        gap_P: score of the chosen answer minus that of the rejected one.
        contradicted: what becomes of pairs with a gap below 0; "ignored" = their |gap| decides.
    """
    size_P = np.abs(gap_P)
    gamma = float(np.median(size_P)) if gamma is None else gamma
    easy_P, wrong_P = size_P > gamma, gap_P < 0
    if contradicted == "ignored":
        return easy_P, ~easy_P, gamma
    hard_P = ~(easy_P & ~wrong_P)
    return easy_P & ~wrong_P, hard_P & ~wrong_P if contradicted == "dropped" else hard_P, gamma


@pl.stage
class SplitByGap:
    """A program: scores all pairs of the training split, and writes them as two files, its artifacts
    "pairs", for the first stage, and "prompts", each once, for the second.

    Metrics: "gap_apart", by how much |gap| is larger in the first stage's pairs than in the second's, in
    units of the reward; "gamma"; "pairs" and "prompts", rows; "contradicted", the share of pairs that the
    reward ranks against their label; "ranked_held_out", the share of held-out pairs that it ranks right, a
    tie one half. Where that may be chance the run says so, and raises UserError where it is worse.

    Args:
        tasks: pairs, of a source without an end.
        held_out: rows of the held-out split, at most.
    """

    reward: pl.RewardFn
    gamma: float | None = None
    contradicted: Contradicted = "hard"
    split: Split = "gap"
    tasks: int = 256
    held_out: int = 512

    async def run(self, ctx: pl.Context) -> pl.Result:
        held_out = [
            ctx.bench.tasks.task("test", i) for i in pl.run.chosen_tasks(ctx.bench, self.held_out)
        ]
        ranked = check_reward(ctx, await pair_gaps(ctx, self.reward, held_out[:CHECKED]))
        tasks = training_tasks(ctx, self.tasks)
        gap_P = await pair_gaps(ctx, self.reward, tasks)
        first_P, second_P, gamma = self._parts(ctx, gap_P)
        if not (first_P.any() and second_P.any()):
            raise pl.UserError(
                f"mpo: all or none of {len(gap_P)} pairs are easy at gamma = {gamma:g}: |gap| goes from "
                f"{np.abs(gap_P).min():.3g} to {np.abs(gap_P).max():.3g}, and {(gap_P < 0).sum()} are "
                "ranked against their label; set gamma= or contradicted=ignored, or train the reward "
                "model for longer"
            )
        kept = {"pairs": np.flatnonzero(first_P), "prompts": one_of_each(tasks, second_P, gap_P)}
        metrics = {
            "gap_apart": float(np.abs(gap_P[first_P]).mean() - np.abs(gap_P[second_P]).mean()),
            "gamma": gamma,
            **{name: len(at) for name, at in kept.items()},
            "contradicted": float((gap_P < 0).mean()),
            "ranked_held_out": ranked,
        }
        ctx.log(metrics)
        files = {name: ctx.folder / f"{name}.jsonl" for name in kept}
        for name, at in kept.items():
            rows = [pair_row(tasks[i], "train") | {"model_gap": float(gap_P[i])} for i in at]
            pl.tasks.write_records(files[name], [*rows, *(pair_row(t, "test") for t in held_out)])
        return pl.Result(
            metrics={**metrics, "sampled_tokens": ctx.sampled_tokens},
            artifacts={name: str(file) for name, file in files.items()},
        )

    def _parts(self, ctx: pl.Context, gap_P: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """[P] the pairs of the first stage and of the second, and gamma."""
        easy_P, hard_P, gamma = easy_and_hard(gap_P, self.gamma, self.contradicted)
        if self.split == "all":
            return easy_P | hard_P, easy_P | hard_P, gamma
        if self.split == "reversed":
            return hard_P, easy_P, gamma
        if self.split == "random":
            order = pl.rng_of((ctx.seed, "mpo split")).permutation(len(gap_P))
            return easy_P[order], hard_P[order], gamma
        return easy_P, hard_P, gamma


def check_reward(ctx: pl.Context, gap_P: np.ndarray) -> float:
    """The share of held-out pairs that a reward ranks right, which the run says. Raises UserError
    where the 95% interval lies below one half.
    """
    right = float((gap_P > 0).sum() + (gap_P == 0).sum() / 2)
    share = pl.stats.proportion(right, len(gap_P))
    text = (
        f"the reward ranks {share.mean:.0%} of {len(gap_P)} held-out pairs right (95%: {share.low:.0%} to "
        f"{share.high:.0%})"
    )
    remedy = "train it for longer (reward.schedule.steps=), or give a better one, reward=DIR"
    if share.high < 0.5:
        raise pl.UserError(f"mpo: {text}, which is worse than chance; {remedy}")
    unsure = f", which may be chance, so that pairs are split and answers paid as good as at random; {remedy}"
    ctx.say(text + (unsure if share.low <= 0.5 else ""))
    return share.mean


def training_tasks(ctx: pl.Context, endless: int) -> list[pl.Task]:
    """All training tasks, and of a source without an end the first `endless` that a run draws."""
    tasks, first = ctx.bench.tasks, pl.curriculum.first_number(ctx)
    n = pl.curriculum.count_tasks(None, tasks.size, endless)
    return [tasks.task("train", i) for i in range(first, first + n)]


async def pair_gaps(ctx: pl.Context, reward: pl.RewardFn, tasks: Sequence[pl.Task]) -> np.ndarray:
    """[P] the reward of each task's chosen answer minus that of its rejected one. Raises the Fault of
    a reward that cannot be computed, and UserError where a task is no pair.
    """
    gaps: list[float] = []
    for begin in range(0, len(tasks), CHUNK):
        starts = [pl.Group(task=t) for t in tasks[begin : begin + CHUNK]]
        keys = [(ctx.seed, "gap", begin + i) for i in range(len(starts))]
        pairs = await asyncio.gather(
            *(pl.Recorded()(ctx, key, group) for key, group in zip(keys, starts, strict=True))
        )
        scored = await asyncio.gather(*(pl.judge_group(ctx, reward, pair) for pair in pairs))
        gaps += [difference(pair, scores) for pair, scores in zip(pairs, scored, strict=True)]
    return np.array(gaps)


def difference(pair: pl.Group, scores: Sequence[pl.Reward | pl.Fault]) -> float:
    """The reward of the chosen answer minus that of the rejected one."""
    for score in scores:
        if isinstance(score, pl.Fault):
            raise score
    totals = [score.total for score in scores if isinstance(score, pl.Reward)]
    if len(totals) != 2:
        raise pl.UserError(f"task {pair.task.id!r} is no pair; give it columns chosen and rejected")
    return totals[0] - totals[1]


def one_of_each(tasks: Sequence[pl.Task], part_P: np.ndarray, gap_P: np.ndarray) -> np.ndarray:
    """The numbers of a part's pairs, one for each prompt: that with the smallest |gap|."""
    smallest: dict[str, int] = {}
    for i in np.flatnonzero(part_P).tolist():
        prompt = pl.curriculum.prompt_text(tasks[i])
        held = smallest.setdefault(prompt, i)
        if abs(gap_P[i]) < abs(gap_P[held]):
            smallest[prompt] = i
    return np.array(sorted(smallest.values()), dtype=int)


def pair_row(task: pl.Task, split: Literal["train", "test"]) -> dict[str, Any]:
    """A task as a record of a data file, of a split."""
    return pl.curriculum.record_of(task) | {"split": split}


def build(
    reward: pl.RewardFn | None = None,
    gamma: float | None = None,
    contradicted: Contradicted = "hard",
    split: Split = "gap",
    beta: float = 0.1,
    kl: float = 0.1,
    n: int = 8,
    tasks: int = 256,
    algorithm: Literal["ppo", "grpo"] = "ppo",
) -> pl.Pipeline:
    """`n` answers of each hard prompt are sampled. `tasks` pairs are split where the problem has no end.
    `algorithm` is that of the second stage; GRPO has the KL as a loss.
    """
    score = reward or pl.Learned("reward")
    learned = {} if reward else {"reward": pl.Output("reward", "reward")}
    by_gap = SplitByGap(score, gamma, contradicted, split, tasks)
    first = pl.recipe("dpo", pairs="data", beta=beta)
    second = pl.vary(
        pl.recipe(algorithm, kl=kl), collect=pl.links(pl.Sample(n=n), pl.Score(reward=score))
    )
    stages = {
        "split": pl.Part(by_gap, models=learned),
        "dpo": pl.Part(first, data=pl.Output("split", "pairs")),
        "rl": pl.Part(
            second, model=pl.Output("dpo"), models=learned, data=pl.Output("split", "prompts")
        ),
    }
    if reward:
        return pl.Pipeline(parts=stages)
    return pl.Pipeline(parts={"reward": pl.Part(pl.recipe("reward-model")), **stages})


def embedded(
    reward: pl.RewardFn | None = None,
    algorithm: Literal["ppo", "grpo"] = "grpo",
    **options: Any,
) -> pl.Pipeline:
    """On pairs that differ in a letter or two, of which some are labelled wrongly. The reward model of
    the small start ranks some three fifths of the held-out ones rightly, and the second stage finds what
    it overrates: its held-out accuracy falls. So it is short, and `reward=DIR` takes a better one.
    """
    made: pl.Pipeline = build(reward=reward, algorithm=algorithm, **options)
    if reward is None:
        made = pl.override(
            pl.override(made, "reward.optimiser.lr", 1e-3), "reward.schedule.prompts", 32
        )
    return pl.override(made, "rl.schedule.steps", 15)
