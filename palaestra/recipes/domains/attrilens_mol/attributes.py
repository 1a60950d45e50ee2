"""The attributes that an answer names, and what they are worth."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl

Intervals = Mapping[str, tuple[float, float]]  # of descriptors, by their RDKit names
# of crossing the blood-brain barrier, as the authors' language model drafted them
BBBP: Intervals = {
    "MolWt": (100, 450),
    "MolLogP": (1, 4),
    "TPSA": (0, 70),
    "NumHDonors": (0, 2),
    "NumHAcceptors": (0, 4),
    "NumRotatableBonds": (0, 6),
    "RingCount": (1, 4),
    "NumAromaticRings": (0, 3),
    "FractionCSP3": (0.2, 0.6),
}
KEPT = (0.05, 0.95)  # quantiles between which an attribute of favourable molecules lies
READ = 4000  # molecules at most that intervals are drawn from
NAME = re.compile(r"<name>(.*?)</name>", re.DOTALL | re.IGNORECASE)
FORM = re.compile(
    r"<name>.*?</name>\s*<answer>(?!\s*</answer>).*?</answer>", re.DOTALL | re.IGNORECASE
)
NOT = re.compile(r"\b(?:not|no|never)\b|n['\u2019]t\b", re.IGNORECASE)
AGAINST = re.compile(r"\b(?:worsens?|reduces?|hurts?|against)\b", re.IGNORECASE)
FOR = re.compile(r"\bimprov|\bhelps?\b|\bfavou?r", re.IGNORECASE)
LOWS = ("min", "minimum", "low", "lower", "from", "smallest")
HIGHS = ("max", "maximum", "high", "upper", "to", "largest")
RANGE = re.compile(r"\[?\s*(-?[\d.]+)\s*(?:-|\u2013|,|to)\s*(-?[\d.]+)\s*\]?")
DRAFT = (
    "For which values of each descriptor of RDKit is {asked} of a molecule likely to be {positive}? The other "
    "answer is {others}. Reply with one JSON object of these names, each with the smallest and the largest "
    'favourable value, such as {{"MolWt": [100, 450]}}: {names}'
)


def named_items(text: str) -> list[tuple[str, str]] | None:
    """The items "attribute: status" of the last name block behind the thinking, each attribute once;
    None = there is no block.
    """
    blocks = NAME.findall(pl.verifiers.strip_thinking(text))
    if not blocks:
        return None
    items: dict[str, tuple[str, str]] = {}
    for part in filter(None, map(str.strip, re.split(r"[,;\n]", blocks[-1]))):
        name, colon, status = (x.strip() for x in part.partition(":"))
        known = pl.verifiers.descriptor_named(name)
        if items and not colon and not known and status_of(name):  # "MolWt: 180, improve"
            key, (before, value) = items.popitem()
            items[key] = before, f"{value}, {name}"
            continue
        items.setdefault(known or name.casefold(), (name, status))
    return list(items.values())


def status_of(text: str) -> int:
    """+1 for "improve" and "does not worsen", -1 for "not improve", "worsens" and "no", 0 for none of them."""
    better, worse, negated = (bool(x.search(text)) for x in (FOR, AGAINST, NOT))
    if worse and not better:
        return 1 if negated else -1
    return 0 if not better and not negated else -1 if worse or negated else 1


def is_inside(smiles: str, name: str, intervals: Intervals) -> bool | None:
    """Whether a molecule's descriptor lies in its interval; None = there is no interval, or no
    molecule.
    """
    value = pl.tasks.descriptor_value(smiles, name) if name in intervals else None
    if value is None:
        return None
    low, high = intervals[name]
    return low <= value <= high


def agreements(text: str, smiles: str, intervals: Intervals) -> list[bool | None]:
    """For each item whether RDKit confirms its status; None where nothing is known of it."""
    verdicts = list[bool | None]()
    for name, status in named_items(text) or []:
        inside = is_inside(smiles, pl.verifiers.descriptor_named(name) or "", intervals)
        sign = status_of(status)
        verdicts.append(None if inside is None or not sign else inside == (sign > 0))
    return verdicts


def attribute_parts(
    text: str, smiles: str, intervals: Intervals, least: int, most: int, *, whole: bool = False
) -> dict[str, float]:
    """The rewards of an answer beside its correctness: "format" +1 or -2; "count" 0 for `least` to
    `most` attributes, -1 for others, -1.5 without a block; "rationality", the share of attributes whose
    status RDKit confirms, of those that it knows, or of all where `whole`.
    """
    items, verdicts = named_items(text), agreements(text, smiles, intervals)
    known = [v for v in verdicts if v is not None]
    of = len(verdicts) if whole else len(known)
    return {
        "format": 1.0 if FORM.search(pl.verifiers.strip_thinking(text)) else -2.0,
        "count": -1.5 if items is None else 0.0 if least <= len(items) <= most else -1.0,
        "rationality": sum(known) / of if of else 0.0,
    }


@pl.declare(
    columns=(("intervals", dict, "favourable values of descriptors, by their RDKit names"),),
    facts=(("named", tuple, "descriptors that the answer names"),),
)
@pl.stage
class AttributeRewards:
    """Adds the rewards of the attributes to `answer` times whether the answer is right.

    Reads the task's columns `smiles` and `intervals`. Parts: "format", "answer", "count", "rationality";
    one that is off is 0. What is right stays what the bench calls so.
    """

    answer: float = 2.0
    count: bool = True
    rationality: bool = True
    least: int = 3
    most: int = 10
    whole: bool = False

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        episodes = (self._judge(e, group.task) if e.ok else e for e in group.episodes)
        return replace(group, episodes=tuple(episodes))

    def _judge(self, e: pl.Episode, task: pl.Task) -> pl.Episode:
        text, right = pl.response_text(e), e.is_right()
        parts = attribute_parts(
            text,
            pl.tasks.molecule_of(task),
            task.meta.get("intervals", {}),
            self.least,
            self.most,
            whole=self.whole,
        )
        parts["answer"] = self.answer * right
        parts["count"] *= self.count
        parts["rationality"] *= self.rationality
        names = (pl.verifiers.descriptor_named(n) for n, _ in named_items(text) or [])
        reward = pl.Reward(total=sum(parts.values()), parts=parts, solved=right)
        return replace(e, reward=reward, facts={**e.facts, "named": tuple(filter(None, names))})


# ---- favourable intervals


@pl.stage
class AttributeIntervals:
    """Draws as `source` does, each task with the column `intervals`.

    Args:
        given: intervals by descriptor; none = `guide` drafts them once, and without a guide they hold
            nine tenths of the training molecules with the favourable answer.
        positive: the favourable answer; "" = 1, yes, true, high, active, positive or good, else the last.
        guide: a language model that is asked once; what it said is kept with the draw's state.
    """

    given: tuple[tuple[str, float, float], ...] = ()
    positive: str = ""
    guide: pl.Source | None = None
    source: pl.Draw = pl.Shuffled()

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        tasks, inner = self.source(ctx, key, n, state.get("inner", {}))
        known = state.get("intervals") or await self._find(ctx)
        have = [t if "intervals" in t.meta else with_intervals(t, known) for t in tasks]
        return have, {"inner": inner, "intervals": known}

    async def check_start(self, ctx: pl.Context) -> None:
        """Raises UserError where RDKit cannot read the molecule of a row."""
        pl.tasks.check_molecules(ctx.bench.tasks)

    async def _find(self, ctx: pl.Context) -> dict[str, list[float]]:
        if self.given:
            return {name: [low, high] for name, low, high in self.given}
        labels = answers_of(ctx.bench.tasks)
        positive = self.positive or pl.tasks.favourable_answer(labels)
        if positive not in labels:
            raise pl.UserError(
                f"attrilens-mol: positive={positive!r} is the answer of no training molecule; they have "
                f"{', '.join(sorted(set(labels))[:8])}"
            )
        if self.guide is not None:
            return await self._ask(ctx, self.guide, positive, sorted({*labels} - {positive}))
        ctx.say(f"favourable intervals are those of training molecules whose answer is {positive}")
        return drawn_intervals(ctx.bench.tasks, positive)

    async def _ask(
        self, ctx: pl.Context, guide: pl.Source, positive: str, others: Sequence[str]
    ) -> dict[str, list[float]]:
        asked = str(ctx.bench.tasks.task("train", 0).meta.get("property", "the property"))
        names = ", ".join(pl.verifiers.DESCRIPTORS)
        question = DRAFT.format(
            asked=asked, positive=positive, others=" or ".join(others), names=names
        )
        for attempt in range(3):
            read, unread = parse_intervals(await ctx.ask(guide, question, seed=attempt))
            if read:
                spans = ", ".join(f"{n} {low:g} to {high:g}" for n, (low, high) in read.items())
                left = f"; not read: {', '.join(unread[:8])}" if unread else ""
                ctx.say(f"favourable intervals of the guide: {spans}{left}")
                return read
        raise pl.UserError(
            "the guide gave no JSON object of intervals in three replies; ask another one, or write them into "
            'a file, intervals=FILE.json: {"MolWt": [100, 450]}'
        )


def with_intervals(task: pl.Task, known: Mapping[str, Any]) -> pl.Task:
    return replace(task, meta={**task.meta, "intervals": dict(known)})


def read_intervals(text: str) -> dict[str, list[float]]:
    """The intervals of a reply; {} = none. See `parse_intervals`."""
    return parse_intervals(text)[0]


def parse_intervals(text: str) -> tuple[dict[str, list[float]], list[str]]:
    """The intervals of a reply behind its thoughts, and the names that none was read for. Of its JSON objects,
    and those inside them, it is the last one with the most descriptors that are known, each with two finite
    numbers in order: a list, "100 to 450", or an object such as {"min": 100, "max": 450}.
    """
    best = dict[str, list[float]](), list[str]()
    for made in _objects(pl.verifiers.strip_thinking(text)):
        ends = {key: _ends(value) for key, value in made.items()}
        named = {key: pl.verifiers.descriptor_named(key) for key in ends}
        known = {name: list(e) for key, e in ends.items() if e and (name := named[key])}
        if known and len(known) >= len(best[0]):
            best = known, [key for key, e in ends.items() if not (e and named[key])]
    return best


def _objects(text: str) -> list[dict[str, Any]]:
    """The JSON objects of a text, and those inside them."""
    objects, decoder, at = list[dict[str, Any]](), json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
        else:
            waiting = [value]
            while waiting:
                objects.append(waiting.pop())
                waiting += [x for x in objects[-1].values() if isinstance(x, dict)]
        at = text.find("{", end)
    return objects


def _ends(value: Any) -> tuple[float, float] | None:
    """The two ends of an interval; None = it is none."""
    if isinstance(value, dict):
        lower = {str(k).strip().casefold(): x for k, x in value.items()}
        value = [next((lower[n] for n in names if n in lower), None) for names in (LOWS, HIGHS)]
    elif isinstance(value, str):
        match = RANGE.fullmatch(value.strip())
        value = list(match.groups()) if match else ()
    if not isinstance(value, list) or len(value) != 2 or any(isinstance(x, bool) for x in value):
        return None
    try:
        low, high = float(value[0]), float(value[1])
    except (TypeError, ValueError):
        return None
    return (low, high) if -np.inf < low <= high < np.inf else None


def intervals_named(intervals: str) -> tuple[tuple[str, float, float], ...]:
    """Those of an argument: "bbbp", a JSON file, or none for "". Raises UserError for another one."""
    if not intervals:
        return ()
    if intervals == "bbbp":
        return tuple((name, *ends) for name, ends in BBBP.items())
    path = Path(intervals).expanduser()
    read = read_intervals(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if not read:
        raise pl.UserError(
            f"attrilens-mol: intervals={intervals} is no file of intervals; write a JSON object such as "
            '{"MolWt": [100, 450], "TPSA": [0, 70]}, names as RDKit has them, or intervals=bbbp'
        )
    return tuple((name, low, high) for name, (low, high) in read.items())


def training_tasks(tasks: pl.Tasks) -> list[pl.Task]:
    """The training tasks, up to `READ`; 256 where there is no last one."""
    size = tasks.size if tasks.size is not None else 256
    return [tasks.task("train", i) for i in range(min(size, READ))]


@lru_cache(maxsize=4)
def answers_of(tasks: pl.Tasks) -> tuple[str, ...]:
    """The answers of the training tasks."""
    return tuple(str(t.answer) for t in training_tasks(tasks))


@lru_cache(maxsize=4)
def drawn_intervals(tasks: pl.Tasks, positive: str) -> dict[str, list[float]]:
    """For each descriptor the values between which nine tenths of the favourable training molecules
    lie.
    """
    molecules = [
        pl.tasks.molecule_of(t) for t in training_tasks(tasks) if str(t.answer) == positive
    ]
    made: dict[str, list[float]] = {}
    for name in pl.verifiers.DESCRIPTORS:
        values = [pl.tasks.descriptor_value(s, name) for s in molecules]
        low, high = np.quantile([v for v in values if v is not None], KEPT)
        made[name] = [float(low), float(high)]
    return made


# ---- worked examples


@pl.stage
class ShowAttributes:
    """Adds a demonstration of the form: some attributes with a status, and the answer. The status of a
    share `right` of them is RDKit's, that of the others the opposite.
    """

    right: float = 0.6
    least: int = 2
    most: int = 4

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        rng = pl.rng_of((*key, "attributes"))
        reply = example_text(group.task, rng, self.right, self.least, self.most)
        made = pl.Demonstrate().episode(ctx, group.task, reply, ())
        return replace(group, episodes=(*group.episodes, made))


def example_text(
    task: pl.Task, rng: np.random.Generator, right: float, least: int, most: int
) -> str:
    """An answer in the form, with `least` to `most` attributes."""
    intervals = task.meta["intervals"]
    names = list(intervals)
    items = list[str]()
    n = int(rng.integers(least, most + 1))
    for i in rng.permutation(len(names))[:n]:
        inside = is_inside(pl.tasks.molecule_of(task), names[int(i)], intervals)
        improves = inside == (rng.random() < right)
        short = min(pl.verifiers.DESCRIPTORS.get(names[int(i)], (names[int(i)],)), key=len)
        items.append(f"{short}: {'improve' if improves else 'not improve'}")
    return f"<name>{', '.join(items)}</name> <answer>{task.answer}</answer>"
