"""Clip and Delta: a process reward model (PRM) scores the steps of a solution, and these scores are
turned into rewards that repeating a step cannot raise.

A solution has steps 1..K, q_k in [0, 1] is the PRM's score of the prefix up to step k. PPO is paid,
undiscounted,

    r = Correct(x, y) + alpha * sum_k r_k - beta * log(pi / pi_ref),      r_k at the last token of step k,

    plain       r_k = q_k: grows with K, so repeating a trivial right step pays
    clip        r_k = min(q_k - eta, 0): most steps earn 0, bad ones cost
    delta       r_k = q_k - q_{k+1} for k < K-1, r_{K-1} = q_{K-1}, r_K = 0: the return from step k is q_k, whatever follows
    clip-delta  Delta of Clip: no step can raise the return above 0             (arXiv:2410.15115, section 4)

Delta credits step k when step k+1 is worse: it telescopes, it is no potential on the next state. A
solution of one step earns nothing by Delta. `eta` should leave most steps at 0: `eta_of` of the
start policy's scores gives such a one. A step without a score gets eta, which is neutral. alpha and
eta of the paper are unknown.

The PRM is the user's: a model that says of each prefix whether its last step is right, q_k being its
probability of Yes (`asked="words"` reads the word alone, for endpoints without log-probabilities):

    palaestra train clip-delta --data F prm=DIR

On the embedded problem a program checks the arithmetic of each line and nothing else (`TrueLines`),
so that it can be farmed, as learned ones can.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Protocol

import palaestra as pl

CARD = pl.Card(
    title="Designing RL rewards at training time: Clipping and Delta for PRMs",
    paper="arXiv:2410.15115",
    claim="Step scores paid as they are get farmed by repetition; clipped and differenced they are "
    "bounded and help.",
    source="public notes and reviews of the paper that agree; alpha and eta are choices",
    size=pl.Size(
        setting="Qwen2 and Qwen2.5-Math, PPO, MATH, batch 1,024 x 8 at 1.5B and 4,096 x 8 at 7B; "
        "alpha, eta and the KL are not known",
        model="qwen2.5-7b",
        prompts=4096,
        samples=8,
    ),
    needs=pl.needs.Requirements(
        models=(
            pl.needs.NeededModel(
                "process reward model",
                "prm",
                "says of each prefix of a solution whether its last step is right",
                inert=None,
            ),
        ),
        shows="part/steps",
        off={"alpha": 0.0},
        own={"shape": "clip", "collect.links.0.n": 2, "schedule.prompts": 4},
    ),
    use="It helps where a process reward model is at hand and answers have many steps; its gains over "
    "the outcome alone are small. It costs a call of the model for every step.",
    lacks=(
        "A classifier with a score for each step in one pass; a model is asked for each prefix.",
        "The outcome reward model of the paper, which gave no gain.",
        "The run does not choose eta: 0.7, and alpha of 0.02, are values of the built-in problem, "
        "and another model of steps needs its own.",
    ),
    grade="B",
)
Shape = Literal["plain", "clip", "delta", "clip-delta"]
LINE = re.compile(r"(\d+)([-+*])(\d+)(?:\+(\d+))?=(\d+)")


class StepModel(Protocol):
    """A score in [0, 1] for every step of a solution, None where there is none."""

    async def __call__(
        self, ctx: pl.Context, task: pl.Task, lines: Sequence[str], /
    ) -> Sequence[float | None]: ...


STEP_PROMPT = f"""A solution is written step by step, and stops here. Is its last step right? {pl.judges.CAUTION}

<question>{{question}}</question>
<response>{{response}}</response>

{{instruction}}"""


@pl.stage
class StepJudge:
    """Asks a model about every prefix of a solution: its probability of Yes, or with
    asked="words" the word that it says. A reply that is neither gives no score.
    """

    client: pl.Source
    asked: Literal["odds", "words"] = "odds"

    async def __call__(
        self, ctx: pl.Context, task: pl.Task, lines: Sequence[str]
    ) -> Sequence[float | None]:
        read = pl.judges.MarkedLabel((("Yes", 1.0), ("No", 0.0)))
        judge = pl.Judge(
            self.client, STEP_PROMPT, pl.judges.Odds() if self.asked == "odds" else read, name="prm"
        )

        async def one(prefix: str) -> float | None:
            try:
                return (await judge.judge_one(ctx, task, prefix)).score
            except pl.Fault as fault:
                if fault.cause != "judge-unparsed":
                    raise
                return None

        prefixes = ("\n".join(lines[: k + 1]) for k in range(len(lines)))
        return list(await asyncio.gather(*map(one, prefixes)))


@pl.stage
class TrueLines:
    """1 for a line of true arithmetic (modulo the task's modulus) or an idle remark, 0 for another;
    the answer has no score.
    """

    idle: str = "ok"

    async def __call__(
        self, ctx: pl.Context, task: pl.Task, lines: Sequence[str]
    ) -> list[float | None]:
        return self.scores(task, lines)

    def scores(self, task: pl.Task, lines: Sequence[str]) -> list[float | None]:
        return [
            None if line.startswith("=") else float(line == self.idle or self.holds(line, task))
            for line in lines
        ]

    def holds(self, line: str, task: pl.Task) -> bool:
        match = LINE.fullmatch(line)
        if match is None or len(line) > 40:
            return False
        a, b, c, result = int(match[1]), int(match[3]), int(match[4] or 0), int(match[5])
        value, modulo = {"+": a + b, "-": a - b, "*": a * b}[match[2]] + c, task.meta.get("modulo")
        return result == (value % modulo if modulo else value)


def shape_rewards(
    q: Sequence[float], shape: Shape, eta: float, keep_last: bool = True
) -> list[float]:
    """Rewards of the steps. Without `keep_last` Clip leaves the last step to the outcome, as Delta
    always does.
    """
    if shape == "clip":
        clipped = pl.verifiers.clip_steps(q, eta)
        return clipped if keep_last else clipped[:-1] + [0.0] * bool(q)
    return {
        "plain": list,
        "delta": pl.verifiers.delta_steps,
        "clip-delta": lambda x: pl.verifiers.clip_delta_steps(x, eta),
    }[shape](q)


@pl.stage
class BoundedStepRewards:
    """Adds alpha * r_k at the last token of every step of a scored episode; the outcome stays at
    the end, as the part "right".
    """

    shape: Shape = "clip-delta"
    alpha: float = 0.02
    eta: float = 0.7
    keep_last: bool = True
    prm: StepModel | None = None

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        paid = (self._paid(ctx, group.task, e) for e in group.episodes)
        return replace(group, episodes=tuple(await asyncio.gather(*paid)))

    async def _paid(self, ctx: pl.Context, task: pl.Task, e: pl.Episode) -> pl.Episode:
        if e.reward is None:
            return e
        if self.prm is None:
            raise pl.UserError("clip-delta needs a process reward model: prm=DIR or an endpoint")
        steps = pl.rollout.answer_steps(e, ctx.decode)
        scores = await self.prm(ctx, task, [s.text for s in steps])
        q = [self.eta if x is None else x for x in scores]
        paid = [self.alpha * r for r in shape_rewards(q, self.shape, self.eta, self.keep_last)]
        events = tuple(
            pl.Event(row=s.row, token=s.token, value=r, part="steps")
            for s, r in zip(steps, paid, strict=True)
        )
        parts = {**e.reward.parts, "right": e.total, "steps": sum(paid)}
        return replace(
            e,
            reward=replace(
                e.reward, total=e.total + sum(paid), parts=parts, events=(*e.reward.events, *events)
            ),
        )


def build(
    shape: Shape = "clip-delta",
    alpha: float = 0.02,
    eta: float = 0.7,
    kl: float = 0.0,
    prm: pl.Source | None = None,
    asked: Literal["odds", "words"] = "odds",
) -> pl.Recipe:
    return scored(None if prm is None else StepJudge(prm, asked), shape, alpha, eta, kl)


def scored(prm: StepModel | None, shape: Shape, alpha: float, eta: float, kl: float) -> pl.Recipe:
    """The method's learner with a model of steps."""
    steps = BoundedStepRewards(shape, alpha, eta, prm=prm)
    return pl.vary(pl.recipe("ppo", kl=kl), collect=pl.links(pl.Sample(n=8), pl.Score(), steps))


def embedded(
    shape: Shape = "clip-delta", alpha: float = 0.02, eta: float = 0.7, kl: float = 0.0
) -> pl.Recipe:
    """On the embedded problem, whose lines a program checks."""
    return scored(TrueLines(), shape, alpha, eta, kl)
