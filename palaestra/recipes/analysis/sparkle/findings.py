"""What the answers show on the three axes: numbers, sentences, tables and a chart."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import palaestra as pl

SHOWN = {
    "plan": "its plan",
    "other plan": "the plan of another problem",
    "knowledge": "its knowledge",
    "other knowledge": "the knowledge of another problem",
}
MODELS = {"policy": "model", "base": "start"}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
SCALE = {  # words for how hard a problem is, by rank; those of one line mean the same
    word: rank
    for rank, words in enumerate((
        ("always", "trivial", "very easy"), ("easy", "simple", "basic", "beginner", "low"),
        ("at times", "medium", "moderate", "normal", "intermediate"),
        ("hard", "difficult", "advanced", "challenging", "high"),
        ("never", "very hard", "expert", "extreme", "competition"),
    ))
    for word in words
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AxisAnswers:
    """Problems, what stands beside them, the forms they are asked in, and the answers by model and form."""

    problems: Sequence[pl.Task]
    notes: Sequence[Any]
    forms: Mapping[str, Sequence[tuple[int, pl.Task]]]
    models: Sequence[str]
    items: dict[tuple[str, str], Sequence[pl.studies.Item]] = field(default_factory=dict)

    def shares(self, model: str, form: str) -> dict[int, float]:
        """The share of right answers of each problem that is asked in a form."""
        right = pl.studies.right_shares(self.items[model, form])
        return {i: r for (i, _), r in zip(self.forms[form], right, strict=True)}

    def gain(self, model: str, form: str) -> dict[int, float]:
        """acc(problem in a form) - acc(problem), of each problem."""
        plain, with_it = self.shares(model, "plain"), self.shares(model, form)
        return {i: x - plain[i] for i, x in with_it.items()}

    def parts(self, model: str) -> dict[int, list[float]]:
        """The shares of right answers to the sub-problems of each problem, in order."""
        right_by_problem: dict[int, list[float]] = {}
        right = pl.studies.right_shares(self.items[model, "parts"])
        for (i, _), r in zip(self.forms["parts"], right, strict=True):
            right_by_problem.setdefault(i, []).append(r)
        return right_by_problem


@dataclass(frozen=True, slots=True)
class ChainShares:
    """The chain axis of a model, values of each problem: sub-problems right, all of them right, solved although
    one fails, and not solved although all are right.
    """

    right: dict[int, float]
    every: dict[int, float]
    without: dict[int, float]
    alone: dict[int, float]


def chain_of(parts: Mapping[int, Sequence[float]], plain: Mapping[int, float]) -> ChainShares:
    """With p_k the share of right answers to sub-problem k and s that to the whole, all sampled apart:

    right = mean_k p_k,   every = a = prod_k p_k,   without = s (1 - a),   alone = (1 - s) a
    """
    every = {i: float(np.prod(p)) for i, p in parts.items()}
    return ChainShares(
        {i: float(np.mean(p)) for i, p in parts.items()},
        every,
        {i: plain[i] * (1 - a) for i, a in every.items()},
        {i: (1 - plain[i]) * a for i, a in every.items()},
    )


def over(values: Mapping[int, float]) -> pl.stats.Interval:
    """The mean of differences of shares."""
    return pl.stats.bounded_interval(list(values.values()), -1.0, 1.0)


def share(values: Mapping[int, float]) -> pl.stats.Interval:
    return pl.stats.bounded_interval(list(values.values()))


def change(
    now: Mapping[int, float], before: Mapping[int, float], most: float = 1.0
) -> pl.stats.Interval:
    """The mean of now - before over the problems, of which each is between -most and most."""
    return pl.stats.bounded_interval([now[i] - before[i] for i in now], -most, most)


def report(asked: AxisAnswers, levels: Sequence[str]) -> pl.studies.StudyReport:
    """What the answers of one model ("policy") or of two (and "base") show."""
    chains = {
        m: chain_of(asked.parts(m), asked.shares(m, "plain"))
        for m in asked.models
        if "parts" in asked.forms
    }
    numbers = dict[str, float | pl.stats.Interval]()
    for m in asked.models:
        head = "start_" if m == "base" else ""
        numbers[f"{head}right"] = share(asked.shares(m, "plain"))
        for form in SHOWN:
            if form in asked.forms:
                numbers[f"{head}d_{form.replace(' ', '_')}"] = over(asked.gain(m, form))
        if m in chains:
            kinds = ("right", "every", "without", "alone")
            numbers |= {f"{head}parts_{k}": share(getattr(chains[m], k)) for k in kinds}
    changes = changes_of(asked, chains)
    numbers |= {f"change_{name}": x for name, x in changes.items()}
    if "base" in asked.models:
        numbers["moved"] = moved(asked)
    return pl.studies.StudyReport(
        study="sparkle",
        question="",
        findings=tell(asked, chains, changes, levels),
        numbers=numbers,
        protocol={},
        tables=[
            axes_table(asked, chains),
            split_table(asked, "By difficulty", levels, chains),
            *domains_table(asked, chains),
        ],
        charts=charts(asked, levels),
        items=items_of(asked, levels),
    )


def moved(asked: AxisAnswers) -> float:
    """The share of answers that are not word for word those of the start."""
    pairs = [
        a != b
        for form in asked.forms
        for x, y in zip(asked.items["base", form], asked.items["policy", form], strict=True)
        for a, b in zip(x["texts"], y["texts"], strict=False)
    ]
    return float(np.mean(pairs)) if pairs else 0.0


def changes_of(
    asked: AxisAnswers, chains: Mapping[str, ChainShares]
) -> dict[str, pl.stats.Interval]:
    """What training changed on each axis: of the problems as they are, of what a plan and knowledge add, and of
    sub-problems.
    """
    if "base" not in asked.models:
        return {}
    changes = {"right": change(asked.shares("policy", "plain"), asked.shares("base", "plain"))}
    for form in ("plan", "knowledge"):
        if form in asked.forms:
            changes[form] = change(asked.gain("policy", form), asked.gain("base", form), 2.0)
    if chains:
        changes["parts"] = change(chains["policy"].right, chains["base"].right)
        changes["all_parts"] = change(chains["policy"].every, chains["base"].every)
    return changes


# ---- sentences


AXES = {
    "right": "solving the problems as they are",
    "plan": "what a plan adds",
    "knowledge": "what knowledge adds",
    "parts": "solving sub-problems",
}


def tell(
    asked: AxisAnswers,
    chains: Mapping[str, ChainShares],
    changes: Mapping[str, pl.stats.Interval],
    levels: Sequence[str],
) -> list[str]:
    """The findings as sentences, the answer first."""
    points = lambda x: pl.studies.tell_interval(x, signed=True)
    lines = list[str]()
    if changes:
        labels = {k: f"{AXES[k]} ({points(x)})" for k, x in changes.items() if k in AXES}
        more = [labels[k] for k in labels if changes[k].low > 0]
        less = [labels[k] for k in labels if changes[k].high < 0]
        same = [labels[k] for k in labels if changes[k].low <= 0 <= changes[k].high]
        sentences = [
            f"{head} {'; '.join(some)}"
            for head, some in (
                ("more:", more),
                ("less:", less),
                ("no change is seen in", same),
            )
            if some
        ]
        lines.append(f"After training {'. '.join(sentences)}.")
    for form in ("plan", "knowledge"):
        if form in asked.forms:
            lines.append(tell_gain(asked, form))
    if "plan" in asked.forms and (hardest := hardest_of(asked, levels)):
        lines.append(hardest)
    lines += [tell_chain(chains[m], MODELS[m]) for m in asked.models if m in chains]
    return lines


def tell_gain(asked: AxisAnswers, form: str) -> str:
    """What the form adds to each model, beside that of another problem."""
    parts = list[str]()
    for m in asked.models:
        own = pl.studies.tell_interval(over(asked.gain(m, form)), signed=True)
        other = f"other {form}"
        control = (
            f", {SHOWN[other]} {pl.studies.tell_interval(over(asked.gain(m, other)), signed=True)}"
            if other in asked.forms
            else ""
        )
        parts.append(f"to the {MODELS[m]} {own}{control}")
    return f"{SHOWN[form].capitalize()} in the prompt adds {'; '.join(parts)}."


def hardest_of(asked: AxisAnswers, levels: Sequence[str]) -> str:
    """What a plan adds on the hardest level; "" where there is one level, or nobody knows their order."""
    known = order(levels)
    if len(known) < 2 or not (is_ranked(known) or all(NUMBER.search(x) for x in known)):
        return ""
    name, parts = known[-1], list[str]()
    for m in asked.models:
        some = {i: x for i, x in asked.gain(m, "plan").items() if levels[i] == name}
        if some:
            interval = pl.studies.tell_interval(over(some), signed=True)
            parts.append(f"to the {MODELS[m]} {interval}")
    return f"On the hardest level, {name}, a plan adds {'; '.join(parts)}." if parts else ""


def tell_chain(chain: ChainShares, name: str) -> str:
    interval = lambda values: pl.studies.tell_interval(share(values))
    return (
        f"Sub-problems: the {name} is right in {interval(chain.right)}, in all of a problem's in {interval(chain.every)}; it "
        f"solves a problem although one fails in {interval(chain.without)}, and does not although all are right in "
        f"{interval(chain.alone)}."
    )


# ---- tables and charts


def order(levels: Sequence[str]) -> list[str]:
    """Levels from easy to hard: usual words as they are meant, others by the numbers in them, then by letters;
    "?" is none.
    """
    known = {*levels} - {"?"}
    if is_ranked(known):
        return sorted(known, key=lambda x: SCALE.get(x.casefold(), 0))
    return sorted(known, key=lambda x: ([float(n) for n in NUMBER.findall(x)], x))


def is_ranked(levels: Iterable[str]) -> bool:
    """Whether all levels are words of the usual scale, whose order is known."""
    return all(x.casefold() in SCALE for x in levels)


def axes_table(asked: AxisAnswers, chains: Mapping[str, ChainShares]) -> pl.studies.StudyTable:
    """Right answers in each form."""
    rows = list[tuple[str, ...]]()
    for form in asked.forms:
        if form == "parts":
            continue
        name = f"with {SHOWN[form]}" if form in SHOWN else "as it is"
        intervals = [pl.studies.tell_interval(share(asked.shares(m, form))) for m in asked.models]
        rows.append((name, str(len(asked.forms[form])), *intervals))
    kinds = {
        "right": "a sub-problem",
        "every": "all sub-problems",
        "without": "solved although a sub-problem fails",
        "alone": "not solved although all sub-problems are right",
    }
    for kind, name in kinds.items() if chains else ():
        intervals = [
            pl.studies.tell_interval(share(getattr(chains[m], kind))) for m in asked.models
        ]
        rows.append((name, str(len(chains["policy"].right)), *intervals))
    columns = ("the problem", "problems", *(MODELS[m] for m in asked.models))
    return pl.studies.StudyTable("Right answers by axis", columns, rows)


def split_table(
    asked: AxisAnswers, title: str, groups: Sequence[str], chains: Mapping[str, ChainShares]
) -> pl.studies.StudyTable:
    """Right answers, and what plan and knowledge add, by groups of problems."""
    forms = [f for f in ("plan", "knowledge") if f in asked.forms]
    rows = list[tuple[str, ...]]()
    for name in [*order(groups), *(["?"] if "?" in groups else [])]:
        inside = {i for i, g in enumerate(groups) if g == name}
        cells = list[str]()
        for m in asked.models:
            some = lambda values, inside=inside: {i: x for i, x in values.items() if i in inside}
            cells.append(pl.studies.tell_interval(share(some(asked.shares(m, "plain")))))
            gains = [some(asked.gain(m, f)) for f in forms]
            cells += [pl.studies.tell_interval(over(g), signed=True) if g else "" for g in gains]
            if m in chains:
                right = some(chains[m].right)
                cells.append(pl.studies.tell_interval(share(right)) if right else "")
        rows.append((name, str(len(inside)), *cells))
    of = [
        f"{MODELS[m]}: {what}"
        for m in asked.models
        for what in ("right", *(f"{f} adds" for f in forms), *(["sub-problems"] if chains else []))
    ]
    return pl.studies.StudyTable(title, (title.split()[-1], "problems", *of), rows)


def domains_table(
    asked: AxisAnswers, chains: Mapping[str, ChainShares]
) -> list[pl.studies.StudyTable]:
    """Likewise by domain; nothing for one."""
    domains = [str(t.domain or "?") for t in asked.problems]
    return [split_table(asked, "By domain", domains, chains)] if len({*domains}) > 1 else []


def charts(asked: AxisAnswers, levels: Sequence[str]) -> list[pl.studies.StudyChart]:
    """What plan and knowledge add by level, in points; nothing for one level."""
    known = order(levels)
    lines = list[pl.studies.StudyLine]()
    for form in ("plan", "knowledge"):
        for m in asked.models if form in asked.forms else ():
            gains = asked.gain(m, form)
            points = [
                (k, over(some))
                for k, name in enumerate(known, 1)
                if (some := {i: x for i, x in gains.items() if levels[i] == name})
            ]
            lines.append(
                pl.studies.StudyLine(
                    f"{form}, {MODELS[m]}",
                    [k for k, _ in points],
                    [100 * x.mean for _, x in points],
                    [100 * x.low for _, x in points],
                    [100 * x.high for _, x in points],
                )
            )
    title = "What plan and knowledge add by difficulty"
    label = f"level, from {known[0]} to {known[-1]}" if len(known) > 1 else ""
    return [pl.studies.StudyChart(title, label, "points", lines)] if label and lines else []


def items_of(asked: AxisAnswers, levels: Sequence[str]) -> list[dict[str, Any]]:
    """Every problem with its annotations, and the answers in each form by model."""
    lines = list[dict[str, Any]]()
    for i, task in enumerate(asked.problems):
        first = asked.items["policy", "plain"][i]
        head = {k: first[k] for k in ("problem", "prompt", "gold")}
        notes = asked.notes[i].json()
        answers: dict[str, dict[str, Any]] = {m: {} for m in asked.models}
        lines.append({**head, "id": task.id, "level": levels[i], **notes, "answers": answers})
    for (model, form), items in asked.items.items():
        for (i, _), x in zip(asked.forms[form], items, strict=True):
            answer = {"right": x["right"], "texts": x["texts"]}
            lines[i]["answers"][model].setdefault(form, []).append(answer)
    return lines
