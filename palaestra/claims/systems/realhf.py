"""The claim of realhf: ReaLHF: parameter reallocation, execution-plan search.

`PlanSearch` estimates, for random graphs of PPO, GRPO and ReMax on nodes of eight assumed devices, how
fast the plan of one rule is beside all calls on all devices, each in its fastest layout.
`Rehearsal` measures the calls of the run's model, plans them for two devices, and has threads that
wait for what was measured run the plans.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Literal

import numpy as np

import palaestra as pl

Rule = Literal[
    "symmetric", "megatron", "colocated", "searched", "searched on all devices", "random plans"
]
ITERATIONS = 5  # that are unrolled, as in ReaLHF
FEW = 6  # options of a call of a small graph
DECODERS = tuple(pl.planning.DECODERS.values())


@pl.stage
class PlanSearch:
    """A program: how many times as fast as `colocated` a rule's plans are, on a graph of each
    algorithm for each number of `nodes`, and by how much they are slower than the best of all plans
    on `small` graphs of three calls with six options each.

    A seed draws the graphs, the same for every rule: sizes of models, sequences, lengths. Those
    where `colocated` lacks memory are drawn again. `tries` are the proposals of a search,
    `tries_small` those on a small graph, which has 216 plans.
    """

    rule: Rule
    nodes: tuple[int, ...] = (2, 4, 8)
    tries: int = 1_500
    small: int = 10
    tries_small: int = 60
    rehearsal: "Rehearsal | None" = None  # whose measurements stand beside

    async def run(self, ctx: pl.Context) -> pl.Result:
        rng = pl.rng_of(("realhf", ctx.seed))
        graphs = [Graph.draw(rng, name, n) for n in self.nodes for name in pl.planning.DATAFLOWS]
        plans = [(g.plan("colocated"), g.plan(self.rule, self.tries)) for g in graphs]
        smalls = [Graph.draw(rng, "grpo", 2).cut(rng) for _ in range(self.small)]
        gaps = [g.plan(self.rule, self.tries_small).score / g.best().score - 1 for g in smalls]
        return pl.Result(
            metrics={
                "speed": float(np.mean([one.score / own.score for one, own in plans])),
                "fits": float(np.mean([own.fits for _, own in plans])),
                "gap": {"mean": float(np.mean(gaps)), "largest": max(gaps)},
                "rehearsal": await self.rehearsal.measure(ctx) if self.rehearsal else {},
                "sampled_tokens": 0,
            }
        )


@pl.value_class
class Graph:
    """Calls with options, and what moving a model costs."""

    calls: tuple[pl.planning.ModelCall, ...]
    moves: pl.planning.Reallocation
    cap_gb: float

    @classmethod
    def draw(
        cls, rng: np.random.Generator, algorithm: pl.planning.Algorithm, nodes: int
    ) -> "Graph":
        """Until all calls in their fastest layouts fit all devices."""
        pick = lambda *given: given[int(rng.integers(len(given)))]
        device = pl.planning.Device()
        while True:
            actor, judge = pick(*DECODERS), pick(*DECODERS)
            sizes = {"actor": actor, "reference": actor, "reward": judge, "critic": judge}
            lengths = (256, 512, 1024)
            work = pl.planning.Workload(
                sequences=pick(64, 128, 256, 512), prompt=pick(*lengths), answer=pick(*lengths)
            )
            calls = tuple(pl.planning.calls_of(algorithm, sizes, work, device, nodes))
            graph = cls(
                calls=calls, moves=pl.planning.moves_of(sizes, device), cap_gb=device.capacity_gb
            )
            try:
                if graph.plan("colocated").fits and graph.plan("megatron"):
                    return graph
            except pl.UserError:  # a call, or a layout for all, has no room on all devices
                continue

    def judge(self, choice: pl.planning.Choice) -> pl.planning.ExecutionPlan:
        return pl.planning.plan_of(
            self.calls, choice, reallocation=self.moves, cap_gb=self.cap_gb, iterations=ITERATIONS
        )

    def plan(self, rule: Rule, tries: int = 0) -> pl.planning.ExecutionPlan:
        """What a rule chooses."""
        calls, cap = self.calls, self.cap_gb
        if rule == "symmetric":
            return self.judge(pl.planning.symmetric_choice(calls, cap))
        if rule == "megatron":
            return self.judge(
                pl.planning.megatron_choice(calls, pl.planning.Device().per_node, cap)
            )
        colocated = self.judge(pl.planning.colocated_choice(calls, cap))
        if rule == "colocated":
            return colocated
        if rule == "searched on all devices":
            largest = {c.name: tuple(pl.planning.on_largest(calls, c)) for c in calls}
            kept = tuple(replace(c, options=largest[c.name]) for c in calls)
            return replace(self, calls=kept).walk(tries)
        return self.walk(tries, at_random=rule == "random plans")

    def walk(self, tries: int, at_random: bool = False) -> pl.planning.ExecutionPlan:
        every = {c.name: c.options for c in self.calls}
        begin = self.judge(pl.planning.fast_choice(self.calls, every, self.cap_gb))
        search = pl.planning.random_plan if at_random else pl.planning.metropolis
        return search(self.calls, self.judge, begin, tries=tries, seed=0)

    def best(self) -> pl.planning.ExecutionPlan:
        """Of all plans, one by one."""
        return min(map(self.judge, pl.planning.every_choice(self.calls)), key=lambda p: p.score)

    def cut(self, rng: np.random.Generator) -> "Graph":
        """Without the reference model, each call with what `colocated` and `megatron` give it, and
        with options drawn from the others.
        """
        kept: list[pl.planning.ModelCall] = []
        given = [self.plan(rule).choice for rule in ("colocated", "megatron", "symmetric")]
        for call in self.calls:
            if call.model == "reference":
                continue
            own = list(dict.fromkeys(choice[call.name] for choice in given))
            rest = [o for o in call.options if o not in own]
            drawn = [rest[i] for i in rng.permutation(len(rest))[: FEW - len(own)].tolist()]
            after = tuple(name for name in call.after if name != "reference")
            kept.append(replace(call, after=after, options=(*own, *drawn)))
        return replace(self, calls=tuple(kept))


# ---- on this machine

ROWS = 8  # that an iteration's calls work on
HALVES = (frozenset({0}), frozenset({1}), frozenset({0, 1}))


@pl.stage
class Rehearsal:
    """A program: predicted and rehearsed seconds of three plans of each algorithm on two devices,
    where a call on both works on half of the rows.

    Plans are made with medians of `repeats` measurements and rehearsed with the others, of which
    there are as many. All models have the size of the run's; moving weights costs nothing, as on
    one machine.
    """

    repeats: int = 3
    iterations: int = 3

    async def run(self, ctx: pl.Context) -> pl.Result:
        return pl.Result(metrics={**await self.measure(ctx), "sampled_tokens": 0})

    async def measure(self, ctx: pl.Context) -> dict[str, object]:
        if self.repeats < self.iterations:
            raise pl.UserError(f"{self.iterations} iterations need as many repeats")
        rows = (ROWS, ROWS // 2)
        known, other = [
            [await pl.planning.measure_calls(ctx, n, self.repeats) for n in rows] for _ in "ab"
        ]
        makespans: dict[str, dict[str, float]] = {}
        for name, graph in pl.planning.DATAFLOWS.items():
            calls = [replace(c, options=options_of(c, known)) for c in graph]
            for kind, choice in choices_of(calls, self.iterations).items():
                plan = pl.planning.plan_of(calls, choice, iterations=self.iterations)
                seconds = {c.name: other[len(choice[c.name].mesh) - 1][c.kind] for c in calls}
                took = pl.planning.rehearse(calls, choice, seconds, self.iterations)
                makespans[f"{name}, {kind}"] = {"predicted": plan.makespan, "rehearsed": took}
                ctx.say(f"{name}, {kind}: predicted {plan.makespan:.2f} s, rehearsed {took:.2f} s")
        return {"plans": makespans, **agreement(list(makespans.values()))}


def options_of(
    call: pl.planning.ModelCall, measured: Sequence[pl.planning.CallSeconds]
) -> tuple[pl.planning.CallOption, ...]:
    """A call on either device or on both, by the median of what was measured of as many rows."""
    return tuple(
        pl.planning.CallOption(
            mesh=mesh,
            layout=pl.planning.Parallelism(data=len(mesh)),
            seconds=median(measured[len(mesh) - 1][call.kind]),
        )
        for mesh in HALVES
    )


def choices_of(
    calls: Sequence[pl.planning.ModelCall], iterations: int
) -> dict[str, pl.planning.Choice]:
    """All calls on both devices; the actor on one, other models on the other; the best plan."""
    apart = {c.name: c.options[c.model != "actor"] for c in calls}
    best = pl.planning.best_plan(calls, iterations=iterations).choice
    return {
        "all on both": pl.planning.symmetric_choice(calls),
        "actor apart": apart,
        "searched": best,
    }


def agreement(plans: Sequence[dict[str, float]]) -> dict[str, float]:
    """Spearman's rank correlation of predicted and rehearsed seconds, and the largest error as a
    share of what was rehearsed.
    """
    predicted_N, rehearsed_N = (np.array([p[k] for p in plans]) for k in ("predicted", "rehearsed"))
    ranks = [
        [np.mean(x_N < x) + np.mean(x_N <= x) for x in x_N] for x_N in (predicted_N, rehearsed_N)
    ]
    return {
        "rank_correlation": float(np.corrcoef(ranks)[0, 1]),
        "largest_error": float(np.abs(predicted_N / rehearsed_N - 1).max()),
    }


@pl.stage
class Rehearsed:
    """A number of the rehearsal; NaN of an arm that has none."""

    name: str

    def __call__(self, cell: pl.ledger.Cell) -> float:
        return float(cell.summary["rehearsal"].get(self.name, math.nan))


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "symmetric": PlanSearch("symmetric"),
        "megatron rule": PlanSearch("megatron"),
        "colocated": PlanSearch("colocated"),
        "searched": PlanSearch("searched", rehearsal=Rehearsal()),
        "searched on all devices": PlanSearch("searched on all devices"),
        "as many random plans": PlanSearch("random plans"),
    },
    start=None,
    illustration=True,
    expect=pl.ledger.Greater(
        "searched", "colocated", by=0.1, why="a tenth of the heuristic's speed"
    ),
    reasons=(
        pl.ledger.Needs("searched on all devices", "devices of their own for calls"),
        pl.ledger.Needs("as many random plans", "a walk instead of as many random plans"),
    ),
    measure=pl.ledger.Final("speed"),
    metric="speed as a multiple of that of colocated calls, by the simulator",
    tokens=1,
    evaluate=0,
    seconds=30,
    controls={
        "gap to the best of all plans on small graphs": pl.ledger.Final("gap.mean"),
        "largest gap": pl.ledger.Final("gap.largest"),
        "share of plans that fit": pl.ledger.Final("fits"),
        "rank correlation of predicted and rehearsed": Rehearsed("rank_correlation"),
        "largest error of a prediction": Rehearsed("largest_error"),
    },
)
