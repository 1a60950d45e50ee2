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
from typing import Any, Literal, NamedTuple

from palaestra.errors import UserError
from palaestra.planning.trace import Span
from palaestra.types import rng_of, value_class

Mesh = frozenset[int]  # numbers of devices
CallKind = Literal["generate", "inference", "train"]
OVER_MEMORY = 3.0  # times the makespan of a plan that does not fit
LARGEST_TENSOR = 8  # devices of a tensor-parallel group
TEMPERATURE = 0.02  # of a search, as a share of its first score
EXHAUSTIVE = 4096  # plans that are tried one by one


@value_class
class Parallelism:
    """A layout: replicas, devices of a tensor-parallel group, stages of a pipeline."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.data} replicas x {self.tensor} tensor-parallel x {self.pipeline} stages"


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

    def table(self) -> list[dict[str, Any]]:
        """Of every call its devices, layout and seconds, as plain data."""
        return [
            {
                "call": name,
                "devices": span_of(option.mesh),
                "layout": option.layout.text,
                "seconds": option.seconds,
            }
            for name, option in self.choice.items()
        ]

    @property
    def score(self) -> float:
        """What a search makes small: the makespan, three times as long where memory is short."""
        return self.makespan * (1.0 if self.fits else OVER_MEMORY)


def span_of(mesh: Mesh) -> str:
    """The numbers of a mesh's devices, which are neighbours, for people."""
    first, last = min(mesh), max(mesh)
    return f"{first}" if first == last else f"{first} to {last}"


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
    followers, waits = edges_of(calls, trains)
    free = {d: 0.0 for option in choice.values() for d in option.mesh}
    runs: list[CallRun] = []
    ready: list[tuple[float, int, int]] = []
    earliest: dict[tuple[int, int], float] = {}
    missing: dict[tuple[int, int], int] = {}
    for k, i in itertools.product(range(iterations), range(len(calls))):
        versioned = k > 0 and calls[i].model in trains
        earliest[k, i] = 0.0 if versioned else moves[calls[i].name]
        missing[k, i] = waits[i] + versioned
        if not missing[k, i]:
            heapq.heappush(ready, (earliest[k, i], k, i))
    while ready:
        at, k, i = heapq.heappop(ready)
        option = choice[calls[i].name]
        begin = max(at, *map(free.__getitem__, option.mesh))
        end = begin + option.seconds
        free |= dict.fromkeys(option.mesh, end)
        runs.append(CallRun(k, calls[i].name, begin, end))
        for later, j in followers[i]:
            if (then := (k + later, j)) in missing:
                there = end + (moves[calls[j].name] if later else 0.0)
                earliest[then] = max(earliest[then], there)
                missing[then] -= 1
                if not missing[then]:
                    heapq.heappush(ready, (earliest[then], *then))
    fits = peak_gb(calls, choice) <= cap_gb
    return ExecutionPlan(
        choice=choice, makespan=max(r.end for r in runs), fits=fits, runs=tuple(runs)
    )


def edges_of(
    calls: Sequence[ModelCall], trains: Mapping[str, str]
) -> tuple[list[list[tuple[int, int]]], list[int]]:
    """What waits for each call, as (iterations later, number of the call): results of the same
    iteration, and weights of the one before; and for how many of the former each call waits.
    """
    number = {c.name: i for i, c in enumerate(calls)}
    followers: list[list[tuple[int, int]]] = [[] for _ in calls]
    for i, call in enumerate(calls):
        for name in call.after:
            followers[number[name]].append((0, i))
        if call.model in trains:
            followers[number[trains[call.model]]].append((1, i))
    return followers, [len(c.after) for c in calls]


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
    temperature: float = TEMPERATURE,
    seed: int = 0,
) -> ExecutionPlan:
    """The best plan: of all where there are at most `EXHAUSTIVE`, else the best that a Metropolis
    search meets, which starts from every call's fastest option, or where devices lack memory for
    these from `fast_choice`.

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
    begin = judge(fast_choice(calls, {c.name: c.options for c in calls}, cap_gb))
    return metropolis(calls, judge, begin, tries=tries, temperature=temperature, seed=seed)


def every_choice(calls: Sequence[ModelCall]) -> Iterable[Choice]:
    for options in itertools.product(*(c.options for c in calls)):
        yield {c.name: option for c, option in zip(calls, options, strict=True)}


def metropolis(
    calls: Sequence[ModelCall],
    judge: Callable[[Choice], ExecutionPlan],
    begin: ExecutionPlan,
    *,
    tries: int,
    temperature: float = TEMPERATURE,
    seed: int = 0,
) -> ExecutionPlan:
    """The best plan of a random walk that starts from `begin`, changes one call to an option drawn
    uniformly, and keeps what is worse with the probability `acceptance`.
    """
    rng = rng_of((seed, "plan"))
    at = best = begin
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


def random_plan(
    calls: Sequence[ModelCall],
    judge: Callable[[Choice], ExecutionPlan],
    begin: ExecutionPlan,
    *,
    tries: int,
    seed: int,
) -> ExecutionPlan:
    """The best of `begin` and of plans drawn uniformly: what a search of as many tries must beat."""
    rng = rng_of((seed, "random plans"))
    draw = lambda: {c.name: c.options[int(rng.integers(len(c.options)))] for c in calls}
    return min((begin, *(judge(draw()) for _ in range(tries))), key=lambda p: p.score)


def acceptance(worse: float, beta: float) -> float:
    """The probability with which a plan that is worse by so many seconds is taken:
    min(1, exp(-beta worse)).
    """
    return min(1.0, math.exp(-beta * max(0.0, worse)))


# ---- plans without a search


def symmetric_choice(calls: Sequence[ModelCall], cap_gb: float = math.inf) -> Choice:
    """All calls on all devices in one layout: of those that fit the one with the smallest sum of
    seconds, of all where none fits.

    Raises:
        UserError: where no layout is an option of every call on the largest mesh.
    """
    largest = [{o.layout: o for o in on_largest(calls, c)} for c in calls]
    shared = [layout for layout in largest[0] if all(layout in option for option in largest)]
    if not shared:
        raise UserError("no layout is an option of every call on all devices")
    choices = [{c.name: o[x] for c, o in zip(calls, largest, strict=True)} for x in shared]
    seconds = lambda choice: sum(o.seconds for o in choice.values())
    return min(choices, key=lambda x: (peak_gb(calls, x) > cap_gb, seconds(x)))


def megatron_choice(calls: Sequence[ModelCall], tensor: int, cap_gb: float = math.inf) -> Choice:
    """All calls on all devices in one layout by the rule of thumb of Megatron-LM: tensor-parallel
    groups as large as a node, as few stages as fit, replicas of that.

    Args:
        calls: as for `plan_of`.
        tensor: devices of a node.
        cap_gb: memory of a device; where nothing fits, the most stages.

    Raises:
        UserError: where no such layout is an option of every call.
    """
    largest = [{o.layout: o for o in on_largest(calls, c)} for c in calls]
    shared = [x for x in largest[0] if x.tensor == tensor and all(x in o for o in largest)]
    if not shared:
        raise UserError(
            f"no layout in tensor-parallel groups of {tensor} is an option of all calls"
        )
    choices = [
        {c.name: o[x] for c, o in zip(calls, largest, strict=True)}
        for x in sorted(shared, key=lambda x: x.pipeline)
    ]
    return next((c for c in choices if peak_gb(calls, c) <= cap_gb), choices[-1])


def colocated_choice(calls: Sequence[ModelCall], cap_gb: float = math.inf) -> Choice:
    """All calls on all devices, each in the layout that is its fastest where that fits: a plan that
    needs no search.

    Raises:
        UserError: where a call has no option on the largest mesh.
    """
    return fast_choice(calls, {c.name: on_largest(calls, c) for c in calls}, cap_gb)


def fast_choice(
    calls: Sequence[ModelCall], options: Mapping[str, Sequence[CallOption]], cap_gb: float
) -> Choice:
    """The fastest option of every call. Where devices lack memory, calls go to slower options, each
    time the exchange that costs the fewest seconds among those that lower what is needed.
    """
    choice = {c.name: min(options[c.name], key=lambda o: o.seconds) for c in calls}
    needed = peak_gb(calls, choice)
    while needed > cap_gb:
        exchanges = sorted(
            ((o.seconds - choice[name].seconds, name, i) for name in choice
             for i, o in enumerate(options[name])),
        )  # fmt: skip
        for _, name, i in exchanges:
            tried = {**choice, name: options[name][i]}
            if (gb := peak_gb(calls, tried)) < needed:
                choice, needed = tried, gb
                break
        else:
            break
    return choice


def peak_gb(calls: Sequence[ModelCall], choice: Choice) -> float:
    """What the device needs that needs most."""
    return max(memory_gb(calls, choice).values())


def on_largest(calls: Sequence[ModelCall], call: ModelCall) -> list[CallOption]:
    devices = frozenset(d for c in calls for o in c.options for d in o.mesh)
    options = [o for o in call.options if o.mesh == devices]
    if not options:
        raise UserError(f"call {call.name!r} has no option on all devices")
    return options


# ---- models in groups that have devices of their own: HybridFlow


@value_class
class Placement:
    """Models in groups, each on devices of its own, and the best plan of that."""

    groups: Mapping[tuple[str, ...], Mesh]  # by the names of models
    plan: ExecutionPlan


def placements(
    calls: Sequence[ModelCall],
    units: Sequence[Mesh],
    *,
    reallocation: Reallocation = no_reallocation,
    cap_gb: float = math.inf,
    iterations: int = 1,
) -> Iterable[Placement]:
    """Every way to put the models into groups and to share the devices out among these: HybridFlow's
    automatic mapping. A call runs in the layout that is its fastest on its group's devices, as in
    `fast_choice`.

    Args:
        calls, reallocation, cap_gb, iterations: as for `plan_of`.
        units: devices that stay together, in order; a group has a run of them.
    """
    models = list(dict.fromkeys(c.model for c in calls))
    for groups in set_partitions(models):
        for order in itertools.permutations(groups):
            for cuts in itertools.combinations(range(1, len(units)), len(groups) - 1):
                ends = itertools.pairwise((0, *cuts, len(units)))
                runs = [frozenset[int]().union(*units[a:b]) for a, b in ends]
                share = dict(zip(order, runs, strict=True))
                where = {model: run for group, run in share.items() for model in group}
                options = {
                    c.name: [o for o in c.options if o.mesh == where[c.model]] for c in calls
                }
                if not all(options.values()):
                    continue
                choice = fast_choice(calls, options, cap_gb)
                plan = plan_of(
                    calls, choice, reallocation=reallocation, cap_gb=cap_gb, iterations=iterations
                )
                yield Placement(groups=share, plan=plan)


def set_partitions(names: Sequence[str]) -> Iterable[list[tuple[str, ...]]]:
    """Every way to put names into groups: 15 ways of four."""
    if not names:
        yield []
        return
    first, *rest = names
    for groups in set_partitions(rest):
        yield [(first,), *groups]
        for i, group in enumerate(groups):
            yield [*groups[:i], (first, *group), *groups[i + 1 :]]


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
    choices = [
        Parallelism(data=devices // (tensor * pipeline), tensor=tensor, pipeline=pipeline)
        for tensor in range(1, min(devices, LARGEST_TENSOR) + 1)
        for pipeline in range(1, min(devices, max(nodes, 8)) + 1)
        if devices % (tensor * pipeline) == 0
    ]
    return [x for x in choices if not batch or batch >= 2 * x.data * x.pipeline * minibatches]
