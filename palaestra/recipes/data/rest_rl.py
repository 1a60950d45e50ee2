"""ReST-RL: training from states that earlier answers passed, then decoding by a search that a value
model leads.

Stage 1, ReST-GRPO. In each round every problem is answered `attempts` = 5 times. It stays where the
rewards differ, std r >= 0.05 (ddof 0). Where the best answer has 0.9 or more, its lines give further
start states, s_k = its first k lines, of which ceil(L / 2) are drawn with replacement:

    p(s_k) = 0.95^(k-1) / sum_j 0.95^(j-1),    k = 1..L

Each state is a group of its own of GRPO: all its answers begin with s_k, which carries no gradient,
and are judged as a whole. Then the next round, by the policy of then. The released code trains by
the mean over the batch's tokens, without a KL, and pays 0.001 to an answer that ends by itself.

Stage 2, VM-MCTS. Trees over lines (`pl.rollout.TreeSearch`) are grown by true rewards: V(s) = the mean reward
of all answers from s and from below it, and a node's score is

    V + c sqrt((1 + ln N) / (eps + n)),    c = 0.2 to train, 0.1 to decode, eps = 0.1

A scalar head on a second copy of the policy learns V of all opened states, and the rewards of whole
answers, by squared error. To decode, the same tree is led by the head: it values every child, and of
all answers the one that it values most is given (arXiv:2508.19576; THUDM/ReST-RL, process_gen_data.py,
mcts.py, task.py, grpo_utils.py).

s_L is the whole answer, of which only the end is left to say. A round whose problems all have equal
rewards gives nothing, and the next problems are tried. In a world of several turns the states are
those of the first turn. Here an end of text ends an answer, so nothing can trail behind it, which the
released code fines by 1e-6 a character. What answering the problems of a round takes is in the budget.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="ReST-RL: ReST-GRPO + VM-MCTS",
    paper="arXiv:2508.19576",
    claim="GRPO from states on the way of good answers, then a search that a value model leads, beats "
    "GRPO and best-of-n by reward models on code.",
    source="released code (THUDM/ReST-RL: process_gen_data.py, sample_utils.py, grpo_utils.py, mcts.py, "
    "tasks/MCTS/task.py, reward_models.py) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-Coder-7B-Instruct, Qwen3-8B and others on BigCodeBench, DS-1000 and APPS; 5 "
        "answers a problem, G = 8 of 1,024 tokens, temperature 0.7, lr 1e-7, 1 epoch; trees of 100 "
        "openings to train, 15 to decode",
        model="qwen2.5-7b",
        samples=8,
        tokens=1024,
        lr=1e-7,
        arguments={"openings": 100},
    ),
)
SAID = "said_so_far"  # the column of a task that begins in the midst of an answer
MARK = "begun"
TRIES = 16  # rounds in a row that may give nothing
VALUE = pl.Learned("value", ("value",))

Starts = Literal["best", "worst", "none"]
Method = Literal["vm-mcts", "outcome search", "mixed values", "oracle", "best of n", "greedy"]


# ---- stage 1


def is_varied(rewards: Sequence[float], spread: float = 0.05) -> bool:
    """Whether a problem is kept."""
    return float(np.std(rewards)) >= spread


def prefix_odds(lines: int, decay: float = 0.95) -> np.ndarray:
    """[L] p(s_k)."""
    weight_L = decay ** np.arange(lines)
    return weight_L / weight_L.sum()


def states_of(text: str, share: float, decay: float, rng: np.random.Generator) -> list[str]:
    """What is drawn of an answer's states, each a whole number of lines."""
    lines = text.rstrip().split("\n")
    n = math.ceil(share * len(lines))
    chosen = rng.choice(len(lines), n, p=prefix_odds(len(lines), decay)) if n else []
    return ["".join(f"{line}\n" for line in lines[: k + 1]) for k in chosen]


@pl.declare(columns=(("said_so_far", str, "the answer so far, which is gone on with"),))
@pl.stage
class StartStates:
    """Draws the problems of a round whose rewards differ, as they are and with the column
    `said_so_far`: states on the way of an answer, in mixed order; then comes the next round.

    The state's `found` counts the problems, those that vary, and the start states of the last round.

    Args:
        tasks: of a round.
        sample: how they are answered.
        spread: the least standard deviation of a problem's rewards.
        good: the least reward of an answer that gives states.
        share: of its lines, how many states are drawn, rounded up.
        decay: of the odds of a state with each line.
        of: whose states: of the "best" answer; of the "worst" to the same problems, a placebo; of
            "none", so that rewards are only filtered.
        draw: where problems come from.
    """

    tasks: int = 64
    sample: pl.Sample = pl.Sample(n=5, temperature=0.7)
    spread: float = 0.05
    good: float = 0.9
    share: float = 0.5
    decay: float = 0.95
    of: Starts = "best"
    draw: pl.Draw = pl.Shuffled()

    def __post_init__(self) -> None:
        pl.check_bounds("StartStates.share", self.share, least=0, most=1)
        pl.check_bounds("StartStates.decay", self.decay, least=0, most=1)

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        now: dict[str, Any] = dict(state)
        found: list[pl.Task] = []
        while len(found) < n:
            for i in range(TRIES):
                if now.get("waiting"):
                    break
                now |= await self._round(ctx, (*key, "round", len(found), i), now)
            else:
                raise pl.Fault(
                    "starved",
                    f"the answers to {TRIES * self.tasks} problems have equal rewards, problem by "
                    "problem; start from a model that solves some, or give it easier ones",
                )
            waiting = now["waiting"]
            some = n - len(found)
            found += waiting[:some]
            now["waiting"] = waiting[some:]
        return found, now

    async def _round(self, ctx: pl.Context, key: pl.Key, state: pl.State) -> dict[str, Any]:
        tasks, inner = self.draw(ctx, key, self.tasks, state.get("inner", {}))
        score = pl.Score()

        async def attempted(i: int, task: pl.Task) -> pl.Group:
            here = (*key, i)
            return await score(ctx, here, await self.sample(ctx, here, pl.Group(task=task)))

        groups = await asyncio.gather(*(attempted(i, t) for i, t in enumerate(tasks)))
        rng = pl.rng_of((*key, "states"))
        made = [self._starts(g, rng) for g in groups]
        flat = [t for each in made for t in each]
        found = {"problems": len(tasks), "varied": sum(map(bool, made)), "starts": len(flat)}
        ctx.say(
            f"{found['varied']} of {found['problems']} problems have answers of unequal reward; "
            f"{found['starts']} start states"
        )
        order = rng.permutation(len(flat)).tolist()
        return {"waiting": [flat[i] for i in order], "inner": inner, "found": found}

    def _starts(self, group: pl.Group, rng: np.random.Generator) -> list[pl.Task]:
        """The problem and its states; nothing where its rewards are alike."""
        judged = [e for e in group.valid if e.reward is not None]
        if not judged or not is_varied([e.total for e in judged], self.spread):
            return []
        best = max(judged, key=lambda e: e.total)
        if self.of == "none" or best.total < self.good:
            return [group.task]
        shown = best if self.of == "best" else min(judged, key=lambda e: e.total)
        texts = states_of(first_reply(shown), self.share, self.decay, rng)
        return [
            group.task,
            *(replace(group.task, meta={**group.task.meta, SAID: t}) for t in texts),
        ]


def first_reply(e: pl.Episode) -> str:
    """What was said in the first turn."""
    return next((s.text for row in e.rows for s in row.segments if s.logp is not None), "")


def said_so_far(ctx: pl.Context, group: pl.Group, rng: np.random.Generator) -> str:
    """A guidance: the column of that name."""
    return str(group.task.meta.get(SAID, ""))


@pl.stage
class FromState:
    """Attempts that go on from what the task says was said so far; where it says nothing, whole
    ones.
    """

    sample: pl.Sample = pl.Sample(n=8, temperature=0.7)

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        begun = pl.rollout.Begin(said_so_far, self.sample, MARK)
        return await (begun if group.task.meta.get(SAID) else self.sample)(ctx, key, group)


@pl.stage
class EndsByItself:
    """What the bench pays, and `bonus` for an answer that was not cut. Where a world pays, its pay
    stands.
    """

    bonus: float = 1e-3

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward | pl.Fault]:
        if ctx.bench.reward is None:
            return [pl.Reward(total=0.0)] * len(group.episodes)
        found = await pl.judge_group(ctx, ctx.bench.reward, group)
        return [
            self._add(r, e) if isinstance(r, pl.Reward) else r
            for r, e in zip(found, group.episodes, strict=True)
        ]

    def _add(self, reward: pl.Reward, e: pl.Episode) -> pl.Reward:
        last = next((s for r in e.rows[::-1] for s in r.segments[::-1] if s.logp is not None), None)
        ended = last is not None and last.finish in ("eos", "stop")
        return replace(reward, total=reward.total + self.bonus * ended)


def rest_grpo(
    of: Starts = "best",
    problems: int = 64,
    spread: float = 0.05,
    share: float = 0.5,
    decay: float = 0.95,
    bonus: float = 1e-3,
) -> pl.Recipe:
    """Stage 1."""
    return pl.vary(
        pl.recipe("grpo"),
        draw=StartStates(tasks=problems, spread=spread, share=share, decay=decay, of=of),
        collect=pl.links(FromState(), pl.Score(reward=EndsByItself(bonus) if bonus else None)),
        credit=pl.chain(pl.Center("group"), pl.Scale("group", ddof=1, eps=1e-4)),
        objective=pl.Clipped(reduce="tokens"),
    )


# ---- stage 2


@pl.stage
class RateStates:
    """Training rows of a value model from the answers of a tree: every whole answer with its reward,
    and every opened state with the mean reward of the answers that were opened at it and below.
    """

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        rated = [replace(g, episodes=(*g.episodes, *valued_states(g))) for g in groups]
        return pl.Rate()(rated, signals, state)


def valued_states(group: pl.Group) -> list[pl.Episode]:
    """The opened states of a tree as episodes that break off, V their reward."""
    opened: dict[tuple[int, ...], pl.Episode] = {}
    worth: dict[tuple[int, ...], list[float]] = {}
    for e in group.valid:
        if e.reward is None or "shared" not in e.facts:
            continue
        cut = pl.rollout.cut_episode(e, int(e.facts["shared"]))
        path = tuple(i for row in cut.rows for i in row.context())
        opened.setdefault(path, cut)
        worth.setdefault(path, []).append(e.total)
    below = {
        path: [r for other, found in worth.items() if other[: len(path)] == path for r in found]
        for path in opened
    }
    return [
        replace(cut, reward=pl.Reward(total=float(np.mean(below[path]))))
        for path, cut in opened.items()
    ]


def value_model(openings: int = 20, n: int = 5, c: float = 0.2, lr: float = 1e-3) -> pl.Recipe:
    """The first half of stage 2: the model "value" learns from trees of the policy, which stays as it
    is.
    """
    search = pl.rollout.TreeSearch(
        openings=openings, n=n, children=n, select=pl.rollout.Uct(c, 0.1), temperature=0.7
    )
    return pl.Recipe(
        draw=pl.Shuffled(),
        collect=pl.links(search),
        learners={
            "value": pl.Learner(
                credit=RateStates(),
                objective=pl.Regression(heads=("value",)),
                heads=("value",),
                optimiser=pl.AdamW(lr=lr),
            )
        },
        schedule=pl.Schedule(prompts=8, steps=40),
    )


@pl.stage
class MixedValues:
    """The values of states that are judged together, in another order: a placebo."""

    value: pl.RewardFn = VALUE

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        found = await self.value(ctx, group)
        lengths = [len(r.context()) for e in group.episodes for r in e.rows[-1:]]
        rng = pl.rng_of(("mixed values", ctx.seed, group.task.id, *lengths))
        return [found[i] for i in rng.permutation(len(found))]


@pl.stage
class ValueDecoding:
    """A program: answers held-out problems within `tokens` sampled tokens each, and gives of each the
    answer that the model "value" likes best. Where a tree has no node left to open, the rest goes to
    whole answers.

    Its summary has the accuracy of these beside that of greedy answers, and

        found      share of problems of which some answer was right: a ceiling for who chooses
        majority   accuracy of the commonest answer
        ranked     how often the value of a right answer is above that of a wrong one to the same
                   problem, a tie one half
        tokens     sampled a problem; the budget ends with the wave of answers that goes beyond it

    Args:
        method: "vm-mcts" as above; "outcome search" is led by the values of whole answers alone;
            "mixed values" is led by the value of any sibling, a placebo; "oracle" is led and chosen
            by the true reward; "best of n" searches nothing; "greedy" is one greedy answer.
        tokens: of a problem.
        n: answers at a time.
        c, eps: of `pl.rollout.Uct`.
        temperature: of answers.
        tasks: held-out problems.
    """

    method: Method = "vm-mcts"
    tokens: int = 600
    n: int = 5
    c: float = 0.1
    eps: float = 0.1
    temperature: float = 0.7
    tasks: int = 128

    async def run(self, ctx: pl.Context) -> pl.Result:
        before, greedy = await pl.run.greedy_held_out(ctx, self.tasks)
        if self.method == "greedy":
            answers = [
                ValuedAnswers(group=g, values=(0.0,) * len(g.valid), tokens=sampled_in(g))
                for g in greedy
            ]
            return result(ctx, before, before, answers)
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        tasks = [ctx.bench.tasks.task("test", i) for i in numbers]
        answers = await asyncio.gather(*(self._answers(ctx, t) for t in tasks))
        chosen = [replace(a.group, episodes=(a.best(),)) for a in answers if a.group.episodes]
        return result(ctx, before, pl.run.judge_held_out(chosen), answers)

    async def _answers(self, ctx: pl.Context, task: pl.Task) -> "ValuedAnswers":
        key = ctx.key("decode", task.id)
        group = await self._link()(ctx, key, pl.Group(task=task))
        valued = [e for e in group.valid if e.reward is not None]
        bare = replace(group, episodes=tuple(replace(e, reward=None) for e in valued))
        judged = await pl.Score()(ctx, (*key, "true"), bare)
        both = [
            (e, v.total) for e, v in zip(judged.episodes, valued, strict=True) if e.ok and e.reward
        ]
        return ValuedAnswers(
            group=replace(group, episodes=tuple(e for e, _ in both)),
            values=tuple(v for _, v in both),
            tokens=sampled_in(group),
        )

    def _link(self) -> pl.Collect:
        """How a problem is answered; answers come with what the value model, or the oracle, says."""
        score = pl.Score() if self.method == "oracle" else pl.Score(reward=VALUE)
        sample = pl.Sample(n=self.n, temperature=self.temperature)
        whole = pl.links(SampleTokens(sample, self.tokens), score)
        # of a tree whose every node was opened there may be something left
        return whole if self.method == "best of n" else pl.links(self.search(score), whole)

    def search(self, score: pl.Collect) -> pl.rollout.TreeSearch:
        """The tree of a problem."""
        leads = {"vm-mcts": VALUE, "mixed values": MixedValues(VALUE)}
        return pl.rollout.TreeSearch(
            openings=1 << 20,
            n=self.n,
            children=self.n,
            select=pl.rollout.Uct(self.c, self.eps),
            score=score,
            value=leads.get(self.method),
            tokens=self.tokens,
            temperature=self.temperature,
        )


@pl.stage
class SampleTokens:
    """Runs `sample` again and again until `tokens` were sampled, those that are there included."""

    sample: pl.Sample
    tokens: int

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        before = -1
        # where nothing is sampled any more, more of the same would not help
        while before < (spent := sampled_in(group)) < self.tokens:
            group, before = await self.sample(ctx, key, group), spent
        return group


def sampled_in(group: pl.Group) -> int:
    """Tokens that were sampled for it: what answers of a tree share was sampled once."""
    return sum(e.n_sampled - int(e.facts.get("shared", 0)) for e in group.episodes)


@pl.value_class
class ValuedAnswers:
    """Answers to a problem with their true rewards, and what was said of them while decoding."""

    group: pl.Group
    values: tuple[float, ...]
    tokens: int

    def best(self) -> pl.Episode:
        """The first of the highest value."""
        return self.group.episodes[int(np.argmax(self.values))]

    def ranked(self) -> float:
        """The share of pairs of a right and a wrong answer in which the right one is worth more; NaN
        where there is no such pair.
        """
        right_N = np.array([e.solved for e in self.group.episodes], bool)
        value_N = np.array(self.values)
        margin = np.subtract.outer(value_N[right_N], value_N[~right_N])
        return float(((np.sign(margin) + 1) / 2).mean()) if margin.size else float("nan")


def result(
    ctx: pl.Context,
    before: pl.ends.HeldOut,
    after: pl.ends.HeldOut,
    answers: Sequence[ValuedAnswers],
) -> pl.Result:
    ends = pl.ends.at_ends(before.json(), after.json())
    return pl.Result(metrics={**ends, **tell(answers), "sampled_tokens": ctx.sampled_tokens})


def tell(answers: Sequence[ValuedAnswers]) -> dict[str, float]:
    """What a run of a decoding says beside the accuracy."""
    some = [a for a in answers if a.group.episodes]
    ranked = [x for a in some if not math.isnan(x := a.ranked())]
    return {
        "found": float(np.mean([any(e.solved for e in a.group.episodes) for a in some])),
        "majority": float(np.mean([majority(a.group) for a in some])),
        "ranked": float(np.mean(ranked)) if ranked else float("nan"),
        "tokens": float(np.mean([a.tokens for a in answers])),
        "answers": float(np.mean([len(a.values) for a in answers])),
    }


def majority(group: pl.Group) -> bool:
    """Whether the commonest answer is right, the first of equals."""
    keys = [pl.run.vote_key(e.text) for e in group.episodes]
    most = max(keys, key=keys.count)
    return group.episodes[keys.index(most)].solved


def build(
    of: Starts = "best",
    method: Method = "vm-mcts",
    problems: int = 64,
    openings: int = 20,
    tokens: int = 600,
) -> pl.Pipeline:
    """`problems` of a round of the first stage, `openings` of a tree that the value model learns from,
    `tokens` of a held-out problem.
    """
    taught = pl.Output("rl")
    return pl.Pipeline(
        parts={
            "rl": pl.Part(rest_grpo(of, problems)),
            "values": pl.Part(value_model(openings), model=taught),
            "decode": pl.Part(
                ValueDecoding(method, tokens),
                model=taught,
                models={"value": pl.Output("values", "value")},
            ),
        }
    )
