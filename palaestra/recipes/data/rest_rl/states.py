"""Stage 1 of ReST-RL: start states on the way of good answers, and attempts that go on from them."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

import palaestra as pl

SAID = "said_so_far"  # the column of a task that begins in the midst of an answer
MARK = "begun"
TRIES = 16  # rounds in a row that may give nothing

Starts = Literal["best", "worst", "none"]


def is_varied(rewards: Sequence[float], spread: float = 0.05) -> bool:
    """Whether the rewards of a problem's answers differ enough to keep it."""
    return float(np.std(rewards)) >= spread


def prefix_odds(lines: int, decay: float = 0.95) -> np.ndarray:
    """[L] p(s_k)."""
    weight_L = decay ** np.arange(lines)
    return weight_L / weight_L.sum()


def states_of(text: str, share: float, decay: float, rng: np.random.Generator) -> list[str]:
    """States drawn from an answer, each its first lines."""
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
        drawn: list[pl.Task] = []
        while len(drawn) < n:
            for i in range(TRIES):
                if now.get("waiting"):
                    break
                now |= await self._round(ctx, (*key, "round", len(drawn), i), now)
            else:
                raise pl.Fault(
                    "starved",
                    f"the answers to {TRIES * self.tasks} problems have equal rewards, problem by "
                    "problem; start from a model that solves some, or give it easier ones",
                )
            waiting = now["waiting"]
            some = n - len(drawn)
            drawn += waiting[:some]
            now["waiting"] = waiting[some:]
        return drawn, now

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
        counts = {"problems": len(tasks), "varied": sum(map(bool, made)), "starts": len(flat)}
        ctx.say(
            f"{counts['varied']} of {counts['problems']} problems have answers of unequal reward; "
            f"{counts['starts']} start states"
        )
        order = rng.permutation(len(flat)).tolist()
        return {"waiting": [flat[i] for i in order], "inner": inner, "found": counts}

    def draw_numbers(self, state: pl.State) -> dict[str, float]:
        """The problems of the newest round whose rewards differ, as a share, and the start states
        on the way of their answers.
        """
        counts = state.get("found", {"problems": 1, "varied": 0, "starts": 0})
        return {
            "varied": counts["varied"] / max(1, counts["problems"]),
            "states": float(counts["starts"] - counts["varied"]),
        }

    def _starts(self, group: pl.Group, rng: np.random.Generator) -> list[pl.Task]:
        """The problem and its states; nothing where its rewards are alike."""
        scored = [e for e in group.valid if e.reward is not None]
        if not scored or not is_varied([e.total for e in scored], self.spread):
            return []
        best = max(scored, key=lambda e: e.total)
        if self.of == "none" or best.total < self.good:
            return [group.task]
        source = best if self.of == "best" else min(scored, key=lambda e: e.total)
        texts = states_of(first_reply(source), self.share, self.decay, rng)
        return [
            group.task,
            *(replace(group.task, meta={**group.task.meta, SAID: t}) for t in texts),
        ]


def first_reply(e: pl.Episode) -> str:
    """The text of the first turn."""
    return next((s.text for row in e.rows for s in row.segments if s.logp is not None), "")


def said_so_far(ctx: pl.Context, group: pl.Group, rng: np.random.Generator) -> str:
    """The task's column of that name, as guidance."""
    return str(group.task.meta.get(SAID, ""))


@pl.stage
class FromState:
    """Attempts that continue the task's column `said_so_far`; whole answers where it has none."""

    sample: pl.Sample = pl.Sample(n=8, temperature=0.7)

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        begun = pl.rollout.Begin(said_so_far, self.sample, MARK)
        return await (begun if group.task.meta.get(SAID) else self.sample)(ctx, key, group)


@pl.stage
class EndsByItself:
    """The problem's reward, and `bonus` for an answer that was not cut off. Where a world gives the
    reward, it stays as it is.
    """

    bonus: float = 1e-3

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward | pl.Fault]:
        if ctx.bench.reward is None:
            return [pl.Reward(total=0.0)] * len(group.episodes)
        rewards = await pl.judge_group(ctx, ctx.bench.reward, group)
        return [
            self._add(r, e) if isinstance(r, pl.Reward) else r
            for r, e in zip(rewards, group.episodes, strict=True)
        ]

    def _add(self, reward: pl.Reward, e: pl.Episode) -> pl.Reward:
        last = next((s for r in e.rows[::-1] for s in r.segments[::-1] if s.logp is not None), None)
        ended = last is not None and last.finish in ("eos", "stop")
        return replace(reward, total=reward.total + self.bonus * ended)
