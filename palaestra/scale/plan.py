"""Which devices every call of a model runs on, and in which layout: the search over execution plans
of ReaLHF.

An iteration is a graph of calls (generate, inference, train) with data edges; several iterations
are unrolled, and a call of a model follows the training of the iteration before (version edge).
Each call has options: a mesh of devices, a layout on it, seconds, memory. Calls on meshes that
share a device follow one another, others overlap. Source: ReaLHF, `csrc/search/simulate.cpp`,
`search.cpp` and `realhf/search_engine/{enumerate,estimate,search}.py`.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from palaestra.errors import UserError
from palaestra.scale.trace import Span
from palaestra.types import rng_of, value_class

Mesh = frozenset[int]  # numbers of devices
CallKind = Literal["generate", "inference", "train"]
OVER_MEMORY = 3.0  # times the makespan of a plan that does not fit
LARGEST_TENSOR = 8  # devices of a tensor-parallel group
EXHAUSTIVE = 4096  # plans that are tried one by one


@value_class
class Parallelism:
    """A layout: replicas, devices of a tensor-parallel group, stages of a pipeline."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1


@value_class
class CallOption:
    """Where and how a call may run."""

    mesh: Mesh
    layout: Parallelism
    seconds: float
    static_gb: float = 0.0  # of each device, whether the call runs or not
    active_gb: float = 0.0  # of each device while it runs


@value_class
class ModelCall:
    """One call of a dataflow graph."""

    name: str
    model: str
    kind: CallKind
    after: tuple[str, ...] = ()  # calls of the same iteration whose results it takes
    options: tuple[CallOption, ...]


Choice = Mapping[str, CallOption]  # by the name of a call
# of a model's parameters, from one option's mesh and layout to another's
Reallocation = Callable[[str, CallOption, CallOption], float]


class CallRun(NamedTuple):
    """One run of a call, in seconds since the beginning of the first iteration."""

    iteration: int
    name: str
    begin: float
    end: float


@value_class
class ExecutionPlan:
    """An option for every call, and what it comes to."""

    choice: Choice
    makespan: float  # seconds of all iterations
    fits: bool  # no device needs more memory than there is
    runs: tuple[CallRun, ...]  # in the order in which they begin to wait for devices

    @property
    def spans(self) -> list[Span]:
        """Who works when: role "device"; the version is the iteration."""
        return [
            Span("device", d, r.name, r.begin, r.end, r.iteration)
            for r in self.runs
            for d in sorted(self.choice[r.name].mesh)
        ]

    @property
    def score(self) -> float:
        """What a search makes small: the makespan, three times as long where memory is short."""
        return self.makespan * (1.0 if self.fits else OVER_MEMORY)


def no_reallocation(model: str, source: CallOption, target: CallOption) -> float:
    return 0.0


def plan_of(
    calls: Sequence[ModelCall],
    choice: Choice,
    *,
    reallocation: Reallocation = no_reallocation,
    cap_gb: float = math.inf,
    iterations: int = 1,
) -> ExecutionPlan:
    """Simulates a plan: of the calls that are ready the one that was ready first begins when every
    call before it on a device of its mesh has ended.

    A model lives where it is trained, else where its first call is. A call elsewhere waits for its
    parameters: reallocation delays the version edge and occupies no device.

    Args:
        calls: one iteration, in an order in which results are there before they are taken.
        choice: an option for each.
        reallocation: seconds of moving a model's parameters.
        cap_gb: memory of a device.
        iterations: how many are unrolled.

    Raises:
        UserError: where a call waits for one that is not before it.
    """
    check_graph(calls)
    home = {c.model: choice[c.name] for c in reversed(calls)}
    home |= {c.model: choice[c.name] for c in calls if c.kind == "train"}
    trains = {c.model: c.name for c in calls if c.kind == "train"}
    moves = {
        c.name: move_seconds(c.model, home[c.model], choice[c.name], reallocation) for c in calls
    }
    ends: dict[tuple[int, str], float] = {}
    free: dict[int, float] = {}
    runs: list[CallRun] = []
    left = [(k, i) for k in range(iterations) for i in range(len(calls))]
    ready: list[tuple[float, int, int]] = []
    while left or ready:
        still: list[tuple[int, int]] = []
        for k, i in left:
            call = calls[i]
            before = [(k, name) for name in call.after]
            version = [(k - 1, trains[call.model])] if k and call.model in trains else []
            if all(edge in ends for edge in (*before, *version)):
                moved = max((ends[e] for e in version), default=0.0) + moves[call.name]
                heapq.heappush(ready, (max([moved, *(ends[e] for e in before)]), k, i))
            else:
                still.append((k, i))
        left = still
        at, k, i = heapq.heappop(ready)
        option = choice[calls[i].name]
        begin = max(at, *(free.get(d, 0.0) for d in option.mesh))
        end = ends[k, calls[i].name] = begin + option.seconds
        free |= dict.fromkeys(option.mesh, end)
        runs.append(CallRun(k, calls[i].name, begin, end))
    fits = max(memory_gb(calls, choice).values()) <= cap_gb
    return ExecutionPlan(choice=choice, makespan=max(ends.values()), fits=fits, runs=tuple(runs))


def check_graph(calls: Sequence[ModelCall]) -> None:
    seen: set[str] = set()
    for call in calls:
        if missing := set(call.after) - seen:
            raise UserError(
                f"call {call.name!r} waits for {min(missing)!r}, which is not before it"
            )
        seen.add(call.name)


def move_seconds(
    model: str, home: CallOption, target: CallOption, reallocation: Reallocation
) -> float:
    same = (home.mesh, home.layout) == (target.mesh, target.layout)
    return 0.0 if same else reallocation(model, home, target)


def memory_gb(calls: Sequence[ModelCall], choice: Choice) -> dict[int, float]:
    """The most that each device needs: the sum of what stays and the largest of what calls take
    while they run. What two calls of a model in one place and layout keep is counted once.

    ReaLHF sums over maximal sets of overlapping meshes; as meshes are nested or intervals, such a
    set shares a device, so devices are enough.
    """
    static: dict[tuple[str, Parallelism, Mesh], float] = {}
    needed: dict[int, float] = {}
    for call in calls:
        option = choice[call.name]
        key = (call.model, option.layout, option.mesh)
        static[key] = max(static.get(key, 0.0), option.static_gb)
        for d in option.mesh:
            needed[d] = max(needed.get(d, 0.0), option.active_gb)
    for (_, _, mesh), gb in static.items():
        for d in mesh:
            needed[d] += gb
    return needed


# ---- the search


def best_plan(
    calls: Sequence[ModelCall],
    *,
    reallocation: Reallocation = no_reallocation,
    cap_gb: float = math.inf,
    iterations: int = 5,
    tries: int = 3_000,
    temperature: float = 0.02,
    seed: int = 0,
) -> ExecutionPlan:
    """The best plan: of all where there are at most `EXHAUSTIVE`, else the best that a Metropolis
    search meets.

    Args:
        calls: as for `plan_of`.
        reallocation: as for `plan_of`.
        cap_gb: memory of a device.
        iterations: how many are unrolled, 5 in ReaLHF.
        tries: changes that the search proposes.
        temperature: by how much worse, as a share of the first plan's score, a plan is taken with
            probability 1 / e.
        seed: of the search.

    Returns:
        The plan with the smallest score; `fits` says whether any device lacks memory.
    """
    judge = lambda choice: plan_of(
        calls, choice, reallocation=reallocation, cap_gb=cap_gb, iterations=iterations
    )
    if math.prod(len(c.options) for c in calls) <= EXHAUSTIVE:
        return min((judge(choice) for choice in every_choice(calls)), key=lambda p: p.score)
    return metropolis(calls, judge, tries=tries, temperature=temperature, seed=seed)


def every_choice(calls: Sequence[ModelCall]) -> Iterable[Choice]:
    for options in itertools.product(*(c.options for c in calls)):
        yield {c.name: option for c, option in zip(calls, options, strict=True)}


def metropolis(
    calls: Sequence[ModelCall],
    judge: Callable[[Choice], ExecutionPlan],
    *,
    tries: int,
    temperature: float,
    seed: int,
) -> ExecutionPlan:
    """The best plan of a random walk that starts from every call's fastest option, changes one call
    to an option drawn uniformly, and keeps what is worse with the probability `acceptance`.
    """
    rng = rng_of((seed, "plan"))
    at = best = judge({c.name: min(c.options, key=lambda o: o.seconds) for c in calls})
    beta = 1 / (temperature * at.score)
    for _ in range(tries):
        call = calls[int(rng.integers(len(calls)))]
        option = call.options[int(rng.integers(len(call.options)))]
        tried = judge({**at.choice, call.name: option})
        if rng.random() < acceptance(tried.score - at.score, beta):
            at = tried
        if at.score < best.score:
            best = at
    return best


def acceptance(worse: float, beta: float) -> float:
    """The probability with which a plan that is worse by so many seconds is taken:
    min(1, exp(-beta worse)).
    """
    return min(1.0, math.exp(-beta * max(0.0, worse)))


# ---- plans without a search


def symmetric_choice(calls: Sequence[ModelCall]) -> Choice:
    """All calls on all devices in one layout, the one with the smallest sum of seconds.

    Raises:
        UserError: where no layout is an option of every call on the largest mesh.
    """
    largest = [{o.layout: o for o in on_largest(calls, c)} for c in calls]
    shared = [layout for layout in largest[0] if all(layout in found for found in largest)]
    if not shared:
        raise UserError("no layout is an option of every call on all devices")
    layout = min(shared, key=lambda x: sum(found[x].seconds for found in largest))
    return {c.name: found[layout] for c, found in zip(calls, largest, strict=True)}


def colocated_choice(calls: Sequence[ModelCall]) -> Choice:
    """All calls on all devices, each in the layout that is its fastest: ReaLHF's heuristic plan.

    Raises:
        UserError: where a call has no option on the largest mesh.
    """
    return {c.name: min(on_largest(calls, c), key=lambda o: o.seconds) for c in calls}


def on_largest(calls: Sequence[ModelCall], call: ModelCall) -> list[CallOption]:
    devices = frozenset(d for c in calls for o in c.options for d in o.mesh)
    found = [o for o in call.options if o.mesh == devices]
    if not found:
        raise UserError(f"call {call.name!r} has no option on all devices")
    return found


# ---- what there is to choose from


def meshes(nodes: int, per_node: int) -> list[Mesh]:
    """The meshes that ReaLHF considers: runs of whole nodes, and aligned slices of one node whose
    size is a power of two.
    """
    runs = [
        frozenset(range(first * per_node, last * per_node))
        for first in range(nodes)
        for last in range(first + 1, nodes + 1)
    ]
    sizes = (2**k for k in range(per_node.bit_length()) if 2**k < per_node)
    slices = [
        frozenset(range(at, at + size))
        for size in sizes
        for node in range(nodes)
        for at in range(node * per_node, (node + 1) * per_node - size + 1, size)
    ]
    return [*runs, *slices]


def layouts(devices: int, nodes: int, *, batch: int = 0, minibatches: int = 1) -> list[Parallelism]:
    """The layouts of so many devices that ReaLHF keeps: tensor groups of at most 8, at most
    max(nodes, 8) stages, and for training (`batch` > 0 sequences) at least two sequences for every
    replica, stage and minibatch: batch >= 2 dp pp minibatches.
    """
    found = [
        Parallelism(data=devices // (tensor * pipeline), tensor=tensor, pipeline=pipeline)
        for tensor in range(1, min(devices, LARGEST_TENSOR) + 1)
        for pipeline in range(1, min(devices, max(nodes, 8)) + 1)
        if devices % (tensor * pipeline) == 0
    ]
    return [x for x in found if not batch or batch >= 2 * x.data * x.pipeline * minibatches]
