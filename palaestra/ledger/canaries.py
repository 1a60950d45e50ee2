"""Canaries: two small steps of every arm, whose record shows that behaviour has changed.

A canary runs an arm through the real driver: seed 0, its smallest size, two steps. It records the
sampled token ids of the first step exactly, and all other numbers (loss, gradient norm, reward,
length, entropy, advantages, ratios) so that they can be compared to `TOLERANCE`. One that has moved
is a fault to repair, or a behaviour to declare: see `ledger.versions`.

Some arms magnify rounding: an update that divides by a gradient near 0, a target that is a
difference of nearly equal numbers. Of a canary that moved the same steps are run again from weights
with noise as small as rounding (`spread`); a number that this moves as far has not moved. Where a
draw lies within rounding of another token, other tokens are excused only if such noise draws those
that are recorded (`is_rounding`). An update whose gradient is rounding is made of none
(`observing_updates`). Learners of nets, in which rounding grows from one update to the next, say how
few they may make and still do all that they do (`schedule.HasSmallest`).

A part that acts after some steps names the field that says when (`schedule.HasClock`): a canary sets
it so that the part acts at its second step. What two small steps cannot see all the same (late replay,
resume, long contexts) stays with its own tests and with `palaestra reproduce --again`.
"""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from palaestra import catalogue, values
from palaestra.card import Card
from palaestra.context import Runnable
from palaestra.engines.sampling import observers
from palaestra.errors import Fault
from palaestra.ledger import digests
from palaestra.ledger.canary_numbers import (
    ROUNDED,
    STEPS,
    numeric,
    observing_updates,
    read_run,
)
from palaestra.ledger.experiment import experiment_of
from palaestra.ledger.files import canaries as folder_of_canaries
from palaestra.ledger.results import settings as settings_of
from palaestra.ledger.watchers import pool
from palaestra.method import Recipe
from palaestra.needs.declared import is_required
from palaestra.needs.rows import columns_of
from palaestra.run import setup
from palaestra.run.plan import Plan
from palaestra.run.study import study_of
from palaestra.run.unmet import needs_under
from palaestra.scale.placement import OnCluster
from palaestra.schedule import FAR, HasClock, change_inside
from palaestra.settings import overrides
from palaestra.settings.fields import Settings
from palaestra.store.checkpoint import write_atomic
from palaestra.terminal.progress import Headway
from palaestra.types import value_class

ROUNDS = 4  # of draws for a step, where a gate drops groups
SHOWN = 16  # characters of digests
EVALUATED = 4  # held-out problems
SIZES = (
    (2, 2),
    (2, 4),
    (4, 4),
)  # problems a step, answers a problem; the first that learns is taken
TOLERANCE = 1e-3  # relative; another processor rounds otherwise, and two updates magnify that
LEAST = 1e-5  # differences below it are rounding, whatever the number
NOISE = 1e-7  # relative, of weights: float32 rounds to 6e-8
SEEDS = (1, 2, 3)  # of noise
# of noise that is to draw the recorded tokens where a draw lies near another token: seed and size
NEAR = tuple((seed, NOISE if seed % 2 else 10 * NOISE) for seed in range(11, 19))
MAGNIFIED = 3.0  # times the farthest that noise moved a number, within which it has not moved
DROWNED = 0.1  # of a number: one that noise moves so far says nothing
BOUNDARY = 1e-5  # of probability: a draw nearer to a token's edge may fall on either side


@value_class
class Canary:
    """What two steps of an arm did.

    Args:
        configuration: digest of what was run; another one is another canary.
        size: problems a step and answers a problem.
        ids: digest of the token ids of the first step's rollouts.
        numbers: by name, such as "rl/step 2/loss".
        nearest: the smallest distance of a draw to the edge of its token, in probability.
        ended: the fault that ended the run, as where so few answers leave a gate without a batch.
        rounding: whether an update had a gradient that is rounding, see `ROUNDED`, and so was not
            made of it.
        updates: steps that optimisers made.
    """

    configuration: str
    size: Sequence[int]
    ids: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    nearest: float = 1.0
    ended: str = ""
    rounding: bool = False
    updates: int = 0


@value_class
class Movement:
    """How the canary of an arm differs from the recorded one.

    Args:
        undecided: another processor may do this: other tokens were drawn, and a draw lies near to a
            boundary; or noise moves the first update.
    """

    what: str
    undecided: bool = False


@value_class
class CanaryCase:
    """What a canary runs: an arm of an experiment, or a method as it is built by default.

    Args:
        budget: of a program, by meter.
    """

    runnable: Runnable
    settings: Settings
    budget: Mapping[str, float] = field(default_factory=dict)

    @property
    def parts(self) -> set[str]:
        """The names of the package's classes that it is made of."""
        return digests.classes(self.runnable, self.settings)


def watch(
    case: CanaryCase,
    size: Sequence[int],
    out: Path | None = None,
    noise: int = 0,
    scale: float = NOISE,
) -> Canary:
    """Runs the canary of a case with seed 0.

    Args:
        size: problems a step and answers a problem.
        out: where its run folder stays; None = nowhere.
        noise: seed of `perturb` on the policy's first weights and on the gradients of all updates,
            those of nets that are no language model included; 0 = none.
        scale: of that noise.
    """
    if out is None:
        with tempfile.TemporaryDirectory(prefix="canary-") as place:
            return watch(case, size, Path(place) / "run", noise, scale)
    small, settings = made_small(case, size)
    metrics, ended = {}, ""
    with observing() as nearest, observing_updates(noise, scale) as norms:
        ctx = setup.context(settings, out=out, talk=False)
        ctx.plan = Plan(evaluate=settings.evaluate, budget=case.budget)
        if noise:
            perturb(ctx.models["policy"].module, noise, scale)
        try:
            metrics = asyncio.run(small.run(ctx)).metrics
        except Fault as fault:
            ended = str(fault)
        finally:
            ctx.close()
    ids, numbers = read_run(out)
    numbers |= {f"summary/{n}": x for n, x in numeric(metrics)}
    return Canary(
        configuration=configuration_of(case, size),
        size=list(size),
        ids=ids[:SHOWN],
        numbers={n: float(f"{x:.5g}") for n, x in sorted(numbers.items())},
        nearest=float(f"{nearest[0]:.2g}"),
        ended=ended,
        rounding=any(0.0 < x < ROUNDED for x in norms),
        updates=len(norms),
    )


def made_small(case: CanaryCase, size: Sequence[int]) -> tuple[Runnable, Settings]:
    """What `watch` runs of a case, and on what."""
    settings = replace(case.settings, seed=0, evaluate=min(case.settings.evaluate, EVALUATED))
    small = overrides.make_smallest(case.runnable)
    return overrides.change_parts(small, lambda part: resize(part, size)), settings


def configuration_of(case: CanaryCase, size: Sequence[int]) -> str:
    """The digest of what `watch` runs."""
    ran = digests.configuration(*made_small(case, size), 0, 0, case.budget)
    return digests.sha256(ran)[:SHOWN]


@torch.no_grad()
def perturb(module: torch.nn.Module, seed: int, scale: float = NOISE) -> None:
    """Multiplies every weight by 1 + `scale` times a normal draw."""
    generator = torch.Generator().manual_seed(seed)
    for p in module.parameters():
        p *= 1 + scale * torch.randn(p.shape, generator=generator)


def spread(case: CanaryCase, today: Canary) -> dict[str, float]:
    """How far noise as small as rounding moves each number of a canary; nothing where it draws other
    tokens.
    """
    farthest: dict[str, float] = {}
    for seed in SEEDS:
        noisy = watch(case, today.size, noise=seed)
        if noisy.ids == today.ids:
            for n in noisy.numbers.keys() & today.numbers.keys():
                moved = abs(noisy.numbers[n] - today.numbers[n])
                farthest[n] = max(moved, farthest.get(n, 0.0))
    return farthest


def judge(case: CanaryCase, recorded: Canary, today: Canary) -> Movement | None:
    """`compare`, where numbers that rounding alone moves as far have not moved. Where it moves numbers
    of the first update, what the second step draws is not decided.
    """
    moved = compare(recorded, today)
    same = recorded.ids == today.ids and recorded.ended == today.ended
    if moved and moved.undecided:
        return replace(moved, undecided=is_rounding(case, recorded))
    if moved is None or not same:
        return moved
    noise = spread(case, today)
    moved = compare(recorded, today, noise)
    first, first_today = first_update(recorded), first_update(today)
    magnified = not all(alike(x, x + noise.get(n, 0.0)) for n, x in first_today.numbers.items())
    if moved and magnified and compare(first, first_today, noise) is None:
        return replace(moved, undecided=True)
    return moved


def is_rounding(case: CanaryCase, recorded: Canary) -> bool:
    """Whether noise as small as rounding draws what is recorded, so that another processor may have.
    Numbers of the same tokens may differ as far as noise moves them.
    """
    same = list[Canary]()
    for seed, scale in NEAR:
        noisy = watch(case, recorded.size, noise=seed, scale=scale)
        if compare(recorded, noisy) is None:
            return True
        same += [noisy] if noisy.ids == recorded.ids else []
    return bool(same) and compare(recorded, same[0], spread(case, same[0])) is None


def first_update(canary: Canary) -> Canary:
    """A canary with the numbers of the first steps alone."""
    early = {n: x for n, x in canary.numbers.items() if "step 1/" in n or "rollouts 1/" in n}
    return replace(canary, numbers=early)


def resize(part: Any, size: Sequence[int]) -> Any:
    """A recipe or a program of at most two steps, with so many problems a step and answers a
    problem, where it has such fields, whose clocks strike at the second step.
    """
    part = change_inside(part, hasten)
    known = values.flatten(part)
    for path, given in known.items():
        if path.endswith("schedule.prompts"):
            part = values.override(part, path, size[0])
        elif path.endswith("collect.links.0.n"):
            part = values.override(part, path, size[1])
        elif path.endswith("schedule.steps") or path == "steps":
            part = values.override(part, path, min(STEPS, given))
        elif path.endswith(".rounds"):
            part = values.override(part, path, min(ROUNDS, given))
        elif path == "draw.candidates" and given is None:  # else all of a source are asked
            part = values.override(part, path, EVALUATED)
        elif path in ("tasks", "problems") or (
            path.startswith("evaluate.") and path.endswith((".n", ".tasks"))
        ):
            part = values.override(part, path, min(EVALUATED, given))
    return part


def hasten(part: Any) -> Any:
    """A part whose clock strikes at the second step, where it would strike later."""
    if not isinstance(part, HasClock):
        return part
    strikes: Any = getattr(part, part.clock)
    is_later = isinstance(strikes, int | float) and 1 < strikes <= FAR  # beyond that it never does
    return values.override(part, part.clock, 1) if is_later else part


@contextmanager
def observing() -> Generator[list[float]]:
    """Collects how near draws come to the edges of their tokens."""
    nearest = [1.0]

    def observe(distance: float) -> None:
        nearest[0] = min(nearest[0], distance)

    observers.append(observe)
    try:
        yield nearest
    finally:
        observers.remove(observe)


# ---- comparing


def compare(
    recorded: Canary, today: Canary, noise: Mapping[str, float] = MappingProxyType({})
) -> Movement | None:
    """How today's canary differs from the recorded one; None = it does not.

    Args:
        noise: how far rounding moves each number, see `spread`.

    A number that is recorded and gone counts; one that is new does not.
    """
    gone = [f"no {n}" for n in recorded.numbers if n not in today.numbers]
    others = {
        n: f"{n} {x:.5g}, it was {recorded.numbers[n]:.5g}"
        for n, x in today.numbers.items()
        if n in recorded.numbers and not alike(x, recorded.numbers[n], noise.get(n, 0.0))
    }
    ids = [] if recorded.ids == today.ids else ["other tokens in the first step"]
    ended = (recorded.ended or "whole", today.ended or "whole")
    ends = [] if ended[0] == ended[1] else [f"its run is {ended[1]}, it was {ended[0]}"]
    differences = [*ids, *ends, *others.values(), *gone]
    if not differences:
        return None
    more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
    near = min(recorded.nearest, today.nearest) < BOUNDARY
    same_tokens = not ids and any("step 1/" in n for n in others)
    return Movement(what="; ".join(differences[:3]) + more, undecided=near and not same_tokens)


def alike(a: float, b: float, noise: float = 0.0) -> bool:
    if noise > DROWNED * max(abs(a), abs(b)):
        return True
    return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=max(LEAST, MAGNIFIED * noise))


# ---- of methods


@cache
def cases_of(name: str) -> Mapping[str, CanaryCase]:
    """The canaries of a method, by arm of its claim: "" is the method's default.

    Claims on a real model have none: their arms are the same recipes, and would take minutes.
    """
    entry = catalogue.entry_of(name)
    cases: dict[str, CanaryCase] = {}
    if entry.built and (entry.shape == "recipe" or not entry.claim):
        module = catalogue.find(name)
        card = module.CARD
        model = card.model or Settings().model
        given = Settings(recipe=name, task=problem_of(card), model=model, evaluate=EVALUATED)
        cases[""] = CanaryCase(runnable=default_of(name), settings=given)
    if entry.claim and not (experiment := experiment_of(name)).not_testable:
        given = settings_of(experiment, experiment.tasks[0])
        for arm, runnable in experiment.every_arm.items():
            alone = overrides.change_parts(runnable, without_cluster)
            cases[arm] = CanaryCase(runnable=alone, settings=given, budget=experiment.budget)
    return cases


def problem_of(card: Card) -> str:
    """What a default is watched on: the problem of its conformance test where that has one, else its
    own, but sums in place of a search in pages, where the tiny model finds nothing in 20 seconds.
    """
    if tested := card.needs.own.get("task"):
        return str(tested)
    searches = card.task.startswith("wiki") and not card.model
    return "chain" if searches else card.task or "chain"


def default_of(name: str) -> Any:
    """What a method trains where nothing is given: its recipe for the embedded problem where it has
    one, else its default. A pipeline for the embedded problem is too much to watch, unless nothing
    built in has the columns that the default needs. A study has the arguments of its conformance test,
    as it compares with a model that only a user can name.
    """
    module = catalogue.find(name)
    made = module.embedded() if hasattr(module, "embedded") else None
    if study_of(made) is not None:
        own = {k: x for k, x in module.CARD.needs.own.items() if k in overrides.arguments(name)}
        return overrides.build(name, own)
    own = isinstance(made, Recipe) or needs_records(name) or needs_model(name, made)
    return made if own else module.build()


def needs_model(name: str, made: Any) -> bool:
    """Whether a program that has a problem of its own cannot run without a model that a user names."""
    if made is None or catalogue.shape_of(made) != "program":
        return False
    needs, _, given = needs_under(name, {})
    return any(is_required(model, given) for model in needs.models)


def needs_records(name: str) -> bool:
    """Whether a method without a problem of its own needs columns beside a prompt and an answer."""
    if catalogue.entry_of(name).claim or catalogue.find(name).CARD.task:
        return False
    needs, _, given = needs_under(name, {})
    needed = [c.name for c in columns_of(needs, given) if not c.otherwise]
    return hasattr(catalogue.find(name), "embedded") and not {"prompt", "answer"}.issuperset(needed)


def without_cluster(part: Any) -> Any:
    """A part of an arm in one process, where the same tokens are sampled."""
    return part.runnable if isinstance(part, OnCluster) else part


def record(case: CanaryCase) -> Canary:
    """The canary of a case at the first size at which it learns, or at the smallest where it learns
    at none, with the numbers that a second run gives again.

    Raises:
        Fault: two runs of one case sample other tokens.
    """
    canary = smallest = watch(case, SIZES[0])
    for size in SIZES[1:]:
        if learns(canary):
            break
        canary = watch(case, size)
    canary = canary if learns(canary) else smallest
    again = watch(case, canary.size)
    if again.ids != canary.ids:
        raise Fault("canaries", "the same seed sampled other tokens in a second run")
    kept = canary.numbers.keys() & again.numbers.keys()
    same = {n: x for n, x in canary.numbers.items() if n in kept and alike(x, again.numbers[n])}
    return replace(canary, numbers=same)


def learns(canary: Canary) -> bool:
    """Whether its run is whole, its first step had a gradient or nothing was to update, and no
    gradient was rounding.
    """
    norms = [x for n, x in canary.numbers.items() if n.endswith("grad_norm") and "step 1/" in n]
    return not canary.ended and not canary.rounding and all(x > ROUNDED for x in norms)


def path_of(name: str) -> Path:
    """Where the canaries of a method lie."""
    return folder_of_canaries() / f"{name}.json"


def read(name: str) -> dict[str, Canary]:
    """The recorded canaries by arm; nothing where there are none."""
    path = path_of(name)
    if not path.is_file():
        return {}
    arms = json.loads(path.read_text(encoding="utf-8"))
    return {arm: Canary(**stored) for arm, stored in arms.items()}


def write(name: str) -> dict[str, Canary]:
    """Records the canaries of a method anew."""
    canaries = {arm: record(case) for arm, case in cases_of(name).items()}
    path_of(name).parent.mkdir(parents=True, exist_ok=True)
    lines = (f"{json.dumps(arm)}: {json.dumps(asdict(c))}" for arm, c in canaries.items())
    write_atomic(path_of(name), "{\n" + ",\n".join(lines) + "\n}\n")
    return canaries


# ---- all of them


@value_class
class Report:
    """What became of the canaries that were run.

    Args:
        moved: by "method: arm", how they differ.
        unknown: those that are not recorded, or whose configuration is another one by now.
        suspects: classes of the package that all that moved have, and none that held.
    """

    ran: int
    moved: Mapping[str, Movement]
    unknown: Sequence[str]
    suspects: Sequence[str]


def names() -> list[str]:
    """Methods that have canaries or should have."""
    return sorted(e.id for e in catalogue.all_entries() if e.built)


def pick(methods: Sequence[str], share: tuple[int, int]) -> list[tuple[str, str]]:
    """The methods and arms of a share: every `n`-th one, from the `k`-th, of (k, n)."""
    every = [(name, arm) for name in methods for arm in cases_of(name)]
    k, n = share
    return every[k - 1 :: n]


def check(
    methods: Sequence[str], share: tuple[int, int], headway: Headway, jobs: int = 0
) -> Report:
    """Runs canaries and compares them with what is recorded.

    Args:
        share: (k, n): the k-th of n equal shares of all arms; (1, 1) is all of them.
        jobs: processes; 0 = one a core.
    """
    asked = pick(methods, share)
    headway.expect(len(asked))
    results: dict[tuple[str, str], Movement | str | None] = {}
    with pool(jobs) as workers:
        for case, outcome in zip(asked, workers.map(check_one, asked), strict=True):
            results[case] = outcome
            headway.advance(1, describe(case))
    moved = {c: r for c, r in results.items() if isinstance(r, Movement)}
    held = [c for c, r in results.items() if r is None]
    firm = [c for c, r in moved.items() if not r.undecided]
    return Report(
        ran=len(results),
        moved={describe(c): r for c, r in moved.items()},
        unknown=[describe(c) for c, r in results.items() if isinstance(r, str)],
        suspects=suspects(firm, held),
    )


def describe(case: tuple[str, str]) -> str:
    return ": ".join(filter(None, case))


def check_one(case: tuple[str, str]) -> Movement | str | None:
    """How a canary moved; None = it did not; text = there is nothing to compare it with."""
    name, arm = case
    if (recorded := read(name).get(arm)) is None:
        return "not recorded"
    try:
        today = watch(cases_of(name)[arm], recorded.size)
        if today.configuration != recorded.configuration:
            return "another configuration"
        return judge(cases_of(name)[arm], recorded, today)
    except Exception as error:  # whatever a change of the code may raise
        return Movement(what=f"{type(error).__name__}: {error}")


def suspects(moved: Sequence[tuple[str, str]], held: Sequence[tuple[str, str]]) -> list[str]:
    """The classes that each canary that moved has, and none that held."""
    if not moved:
        return []
    parts = [cases_of(name)[arm].parts for name, arm in moved]
    innocent = {part for name, arm in held for part in cases_of(name)[arm].parts}
    return sorted(set.intersection(*parts) - innocent)


def record_all(methods: Sequence[str], headway: Headway, jobs: int = 0) -> dict[str, str]:
    """Records the canaries of methods; why that was not possible, by name."""
    headway.expect(len(methods))
    failed: dict[str, str] = {}
    with pool(jobs) as workers:
        for name, error in zip(methods, workers.map(record_one, methods), strict=True):
            failed |= {name: error} if error else {}
            headway.advance(1, name)
    return failed


def record_one(name: str) -> str:
    try:
        write(name)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
