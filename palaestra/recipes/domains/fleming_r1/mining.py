"""Which problems are trained on: the policy tries its pool, and what it fails at is mixed with what it
solves."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

import palaestra as pl
from palaestra.recipes.domains.fleming_r1.form import ASK

CHECKS = 5  # answers of the checker, none of which is right where a label is doubted
CHECK = "{prompt}\n\n" + ASK


def mixture(
    wrong: Sequence[int],
    right: Sequence[int],
    ratio: tuple[int, int],
    base: bool,
    rng: np.random.Generator,
) -> tuple[list[int], list[int]]:
    """Failed and solved problems in the ratio wrong : right, all of the failed ones.

    Args:
        base: all of the solved ones instead, and failed ones up to the ratio.
    """
    n_wrong, n_right = len(wrong), len(right)
    if base and right:
        n_wrong = min(n_wrong, max(1, n_right * ratio[0] // ratio[1]))
    elif not base:
        n_right = min(n_right, n_wrong * ratio[1] // ratio[0])
    chosen = [
        [int(x[i]) for i in sorted(rng.permutation(len(x))[:n])]
        for x, n in ((wrong, n_wrong), (right, n_right))
    ]
    return chosen[0], chosen[1]


@pl.declare(
    columns=(
        ("mined", float, "1 for a problem that the policy failed at when it was tried"),
        ("checked", str, "an answer of the checker that the label says is right"),
    )
)
@pl.stage
class FailureMix:
    """Draws from problems that the policy of today fails at and solves, `ratio` = (failed, solved).

    Before the first draw, and before every `every`-th one, the first `problems` of the training tasks are
    tried `samples` times each; at most `failed` right answers are a failure. The state holds the mixture,
    so a resumed run goes on with it.

    Where there is a `checker`, each failed problem is put to it, and one that it fails at in all of 5 answers is set
    aside, as its label may be wrong: it is listed in written/checked.failed.jsonl for a person to read.

    Args:
        base: all that is solved is kept, and failures up to the ratio; else the other way round.
        every: draws; 0 = the pool is tried once.
        problems: None = all, 512 of a source without an end.
        mine: False = as many problems of the pool at random: the control.
        checker: a strong model, which is not told the answer; None = labels are believed.
    """

    ratio: tuple[int, int] = (2, 1)
    every: int = 200
    samples: int = 4
    failed: int = 1
    problems: int | None = None
    base: bool = False
    mine: bool = True
    checker: pl.Source | None = None
    clock: ClassVar[str] = "every"

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        draws = state.get("draws", 0)
        if not draws or (self.every and draws % self.every == 0):
            state = await self.try_pool(ctx, key, state)
        mixed, at = state["mixed"], state["cursor"]
        order = {
            e: pl.rng_of((ctx.seed, "mixed", state["tried"], e)).permutation(len(mixed))
            for e in {(at + i) // len(mixed) for i in range(n)}
        }
        drawn = list[pl.Task]()
        for i in range(at, at + n):
            number, mined = mixed[int(order[i // len(mixed)][i % len(mixed)])]
            task = ctx.bench.tasks.task("train", number)
            drawn.append(replace(task, meta={**task.meta, "mined": float(mined)}))
        return drawn, {**state, "cursor": at + n, "draws": draws + 1}

    async def try_pool(self, ctx: pl.Context, key: pl.Key, state: pl.State) -> pl.State:
        """The state with a new mixture."""
        first = pl.curriculum.first_number(ctx)
        numbers = [
            first + i
            for i in range(pl.curriculum.count_tasks(self.problems, ctx.bench.tasks.size, 512))
        ]
        tasks = [ctx.bench.tasks.task("train", i) for i in numbers]
        rate_N = await pl.pass_rates(ctx, key, tasks, pl.Sample(n=self.samples))
        known = [(i, r) for i, r in zip(numbers, rate_N.tolist(), strict=True) if np.isfinite(r)]
        limit = self.failed / self.samples + 1e-9
        wrong, right = [i for i, r in known if r <= limit], [i for i, r in known if r > limit]
        state, doubted = await self.check(ctx, key, wrong, state)
        numbers = [i for i in numbers if i not in doubted]
        if not numbers:
            raise pl.UserError(
                "fleming-r1: the policy fails at every problem of the pool, and so does the checker: name a stronger "
                "one, or leave checker= out"
            )
        wrong = [i for i in wrong if i not in doubted]
        rng = pl.rng_of((*key, "mixture"))
        hard, easy = mixture(wrong, right, self.ratio, self.base, rng)
        never = sum(r == 0 for _, r in known)
        outcome = f"{len(hard)} of the failed and {len(easy)} of the others are trained on"
        if not hard:
            hard, easy = [], right or numbers
            outcome = f"nothing of them is mined, and {len(easy)} are trained on"
        if not self.mine:
            pool = sorted(rng.permutation(len(numbers))[: len(hard) + len(easy)].tolist())
            hard, easy = [], [numbers[i] for i in pool]
            outcome = f"{len(easy)} are drawn at random"
        ctx.say(
            f"fleming-r1: of {len(known)} problems tried {self.samples} times, {len(wrong) + len(doubted)} fail and "
            f"{never} are never solved; {outcome}"
        )
        mixed = [*((i, 1) for i in hard), *((i, 0) for i in easy)]
        return {**state, "mixed": mixed, "cursor": 0, "tried": state.get("tried", 0) + 1}

    async def check(
        self, ctx: pl.Context, key: pl.Key, wrong: Sequence[int], state: pl.State
    ) -> tuple[pl.State, set[int]]:
        """The state with what the checker answered, and the failed problems whose label it doubts."""
        if self.checker is None or not wrong:
            return state, set()
        tasks = [ctx.bench.tasks.task("train", i) for i in wrong]
        ask = pl.curriculum.WrittenColumn(
            "checked", CHECK, (self.checker,), solved=True, tries=CHECKS, keep=True,
            source=lambda ctx, key, n, state: (tasks, state),
        )  # fmt: skip
        checked, checks = await ask(ctx, (*key, "check"), len(tasks), state.get("checks", {}))
        doubted = {i for i, t in zip(wrong, checked, strict=True) if not t.meta.get("checked")}
        if doubted:
            ctx.say(
                f"fleming-r1: {len(doubted)} of {len(wrong)} failed problems are set aside, as the checker was never "
                f"right in {CHECKS} answers either; see written/checked.failed.jsonl, and read their labels"
            )
        return {**state, "checks": checks}, doubted
