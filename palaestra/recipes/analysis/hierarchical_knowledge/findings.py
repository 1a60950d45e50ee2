"""What the answers and hidden states say, as sentences, numbers, tables and lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.analysis.hierarchical_knowledge.questions import HierarchyQuestion

LIGHT, HEAVY = 3, 5  # fewer ancestors than 3, 5 or more
CUT = 0.05  # share of answers without an end that is told
CALLED = {"policy": "model", "base": "start"}
FORMS = {"direct": "directly", "step": "step by step", "levels": "along the levels"}
KEPT = ("texts", "tokens", "cut")


@dataclass(frozen=True, slots=True, eq=False)
class HierarchyAnswers:
    """Of one model: its answers by form and to the question for the path; how often each question is
    answered right, by form; and the score of each path.
    """

    items: Mapping[str, Sequence[pl.studies.Item]]
    right: Mapping[str, Sequence[float]]
    paths: Sequence[float]


@dataclass(frozen=True, slots=True, eq=False)
class AskedHierarchy:
    """Everything that was measured: of each model the answers, and how often it is right on flat problems;
    `states` is what `states_by_layer` gives.
    """

    questions: Sequence[HierarchyQuestion]
    answers: Mapping[str, HierarchyAnswers]
    states: Mapping[str, Any]
    flat: Mapping[str, Sequence[float]]

    @property
    def forms(self) -> list[str]:
        return list(self.answers["policy"].right)

    @property
    def deep(self) -> dict[str, list[int]]:
        """The questions by the number of ancestors."""
        ancestors = [q.ancestors for q in self.questions]
        at = lambda low, high: [i for i, a in enumerate(ancestors) if low <= a < high]
        return {"light": at(0, LIGHT), "heavy": at(HEAVY, max(ancestors) + 1)}

    def share(self, model: str, form: str) -> pl.stats.Interval:
        return pl.stats.bounded_interval(self.answers[model].right[form])

    def path(self, model: str, some: Sequence[int] | None = None) -> pl.stats.Interval:
        scores = self.answers[model].paths
        return pl.stats.bounded_interval([scores[i] for i in (some or range(len(scores)))])

    def gap(self, form: str) -> pl.stats.Interval:
        """How much more often the model is right than the start."""
        before, after = (self.answers[m].right[form] for m in ("base", "policy"))
        return pl.stats.paired_share_difference(before, after)

    @property
    def recovered(self) -> float | None:
        """1 - gap_levels / gap_direct; None where the direct gap is not seen to be above 0."""
        direct = self.gap("direct")
        return 1 - self.gap("levels").mean / direct.mean if direct.low > 0 else None

    @property
    def moved(self) -> float:
        """The share of answers, in any form, that are not word for word those of the start."""
        pairs = [
            a != b
            for form, items in self.answers["policy"].items.items()
            for x, y in zip(self.answers["base"].items[form], items, strict=True)
            for a, b in zip(x["texts"], y["texts"], strict=False)
        ]
        return float(np.mean(pairs)) if pairs else 0.0

    @property
    def cut(self) -> float:
        """The share of the model's answers that reached no end."""
        ends = [
            c for items in self.answers["policy"].items.values() for x in items for c in x["cut"]
        ]
        return float(np.mean(ends)) if ends else 0.0

    def mean_cosine(self, form: str, kind: str = "centred") -> list[float]:
        """Between the start and the model, a mean over the nodes for each place."""
        return [float(np.mean(x)) for x in self.states["between"][form][kind]]


def report(asked: AskedHierarchy) -> pl.studies.StudyReport:
    """What was measured of one model ("policy"), of its start ("base") and of others."""
    return pl.studies.StudyReport(
        study="hierarchical-knowledge",
        question="",
        findings=tell(asked),
        numbers=numbers_of(asked),
        protocol={},
        tables=[prompting_table(asked), *path_tables(asked), *layer_tables(asked)],
        charts=[path_chart(asked), *layer_charts(asked)],
        items=lines_of(asked),
    )


def numbers_of(asked: AskedHierarchy) -> dict[str, float | pl.stats.Interval]:
    numbers = dict[str, float | pl.stats.Interval]()
    for model in asked.answers:
        end = "" if model == "policy" else f"_{CALLED.get(model, model)}"
        numbers |= {f"right_{form}{end}": asked.share(model, form) for form in asked.forms}
        numbers[f"path_score{end}"] = asked.path(model)
        numbers |= {f"path_{k}{end}": asked.path(model, at) for k, at in asked.deep.items() if at}
        if asked.flat:
            numbers[f"flat{end}"] = pl.stats.bounded_interval(asked.flat[model])
    if "base" in asked.answers:
        numbers |= {"moved": asked.moved, **{f"gap_{f}": asked.gap(f) for f in asked.forms}}
        if (recovered := asked.recovered) is not None:
            numbers["recovered"] = recovered
    for form in asked.states["between"]:
        numbers[f"cosine_{form}"] = float(np.mean(asked.mean_cosine(form)))
        numbers[f"cosine_{form}_raw"] = float(np.mean(asked.mean_cosine(form, "raw")))
    return numbers


def points(x: pl.stats.Interval) -> str:
    return pl.studies.tell_interval(x, signed=True)


def tell(asked: AskedHierarchy) -> list[str]:
    """The answer first."""
    lines = [tell_prompting(asked), tell_paths(asked), *tell_layers(asked)]
    for model in asked.answers:
        if model not in CALLED:
            shares = [f"{100 * asked.share(model, f).mean:.0f}% {FORMS[f]}" for f in asked.forms]
            lines.append(
                f"{model}: right {', '.join(shares)}; path score {asked.path(model).mean:.2f}."
            )
    if asked.flat:
        shares = pl.stats.bounded_interval(asked.flat["policy"])
        line = f"On flat problems the model is right {pl.studies.tell_interval(shares)}"
        if "base" in asked.flat:
            more = pl.stats.paired_share_difference(asked.flat["base"], asked.flat["policy"])
            line += f", against the start {points(more)}"
        lines.append(f"{line}.")
    if asked.cut > CUT:
        lines.append(
            f"{100 * asked.cut:.0f}% of the model's answers reached no end: --max-tokens gives them room."
        )
    return lines


def tell_prompting(asked: AskedHierarchy) -> str:
    shares_text = lambda m: ", ".join(
        f"{100 * asked.share(m, f).mean:.0f}% {FORMS[f]}" for f in asked.forms
    )
    right = asked.answers["policy"].right
    if "base" not in asked.answers:
        more = pl.stats.paired_share_difference(right["direct"], right["levels"])
        return f"The model is right {shares_text('policy')}: going through the levels gives {points(more)}."
    gap, left = asked.gap("direct"), asked.gap("levels")
    line = (
        f"The model is right {shares_text('policy')}; the start {shares_text('base')}. Asked directly the gap is {points(gap)}, "
        f"along the levels {points(left)}"
    )
    if asked.recovered is None:
        return f"{line}: there is no gap that a prompt could be seen to recover."
    return f"{line}: the prompt recovers {100 * asked.recovered:.0f}% of it."


def tell_paths(asked: AskedHierarchy) -> str:
    """Path scores, and where the places are deep."""
    parts = [
        f"{CALLED.get(m, m)} {asked.path(m).mean:.2f}"
        for m in ("policy", "base")
        if m in asked.answers
    ]
    line = f"Path score from 0 to 1: {', '.join(parts)}"
    for name, at in asked.deep.items():
        if at:
            each = " and ".join(
                f"{asked.path(m, at).mean:.2f}" for m in ("policy", "base") if m in asked.answers
            )
            few = f"fewer than {LIGHT}" if name == "light" else f"{HEAVY} or more"
            line += f"; with {few} ancestors ({len(at)}) {each}"
    return f"{line}."


def tell_layers(asked: AskedHierarchy) -> list[str]:
    """Where states of questions moved and those of statements did not."""
    if not asked.states["between"]:
        return []
    asks, states = (np.array(asked.mean_cosine(f)) for f in ("question", "statement"))
    place = int(np.argmax(states - asks))
    places = asked.states["places"]["policy"]
    apart = pl.stats.paired_difference(
        *(
            np.mean(asked.states["between"][f]["centred"], axis=0).tolist()
            for f in ("question", "statement")
        )
    )
    verdict = "questions moved more" if apart.low > 0 else "no difference is seen"
    if apart.high < 0:
        verdict = "statements moved more"
    return [
        f"Between the start and the model, hidden states of questions have cosine {asks.mean():.3f}, of statements "
        f"{states.mean():.3f}, over all layers and without the mean: {verdict} (difference "
        f"{pl.studies.tell_interval(apart, share=False, signed=True)}), most at layer {places[place]} of "
        f"{places[-1]}."
    ]


# ---- tables and lines


def prompting_table(asked: AskedHierarchy) -> pl.studies.StudyTable:
    rows = [
        (
            CALLED.get(m, m),
            *(pl.studies.tell_interval(asked.share(m, f)) for f in asked.forms),
            *([f"{100 * float(np.mean(asked.flat[m])):.1f}%"] if asked.flat else []),
        )
        for m in asked.answers
    ]
    columns = ("", *(FORMS[f] for f in asked.forms), *(["flat problems"] if asked.flat else []))
    chance = [1 / len(q.options) for q in asked.questions if q.options]
    note = f"A guess is right {100 * float(np.mean(chance)):.0f}%." if chance else ""
    return pl.studies.StudyTable("Right answers by prompt", columns, rows, note)


def by_ancestors(asked: AskedHierarchy) -> dict[int, list[int]]:
    questions = dict[int, list[int]]()
    for i, q in sorted(enumerate(asked.questions), key=lambda x: x[1].ancestors):
        questions.setdefault(q.ancestors, []).append(i)
    return questions


def path_tables(asked: AskedHierarchy) -> list[pl.studies.StudyTable]:
    """Right answers and path scores by the number of ancestors."""
    rows = [
        (
            str(n),
            str(len(at)),
            *(
                text
                for m, x in asked.answers.items()
                for text in (
                    f"{100 * float(np.mean([x.right['direct'][i] for i in at])):.0f}%",
                    f"{asked.path(m, at).mean:.2f}",
                )
            ),
        )
        for n, at in by_ancestors(asked).items()
    ]
    names = [CALLED.get(m, m) for m in asked.answers]
    columns = [f"{x}, {m}" for m in names for x in ("right directly", "path score")]
    return [pl.studies.StudyTable("By depth", ("ancestors", "questions", *columns), rows)]


def layer_tables(asked: AskedHierarchy) -> list[pl.studies.StudyTable]:
    """Cosines between the start and the model, and within each."""
    places = asked.states["places"]["policy"]
    between, within = asked.states["between"], asked.states["within"]
    mean = lambda x: f"{float(np.mean(x)):.3f}"
    kinds = {"raw": "as it is", "centred": "without the mean", "random": "by chance"}
    tables = list[pl.studies.StudyTable]()
    if between:
        rows = [
            (str(place), *(mean(between[f][k][i]) for f in between for k in kinds))
            for i, place in enumerate(places)
        ]
        columns = ("layer", *(f"{f}s, {k}" for f in between for k in kinds.values()))
        tables.append(pl.studies.StudyTable("Cosine between start and model", columns, rows))
    same = [m for m in within if asked.states["places"][m] == places]
    rows = [
        (str(place), *(mean(within[m][k][i]) for m in same for k in ("centred", "random")))
        for i, place in enumerate(places)
    ]
    columns = ("layer", *(f"{CALLED.get(m, m)}, {x}" for m in same for x in ("pairs", "by chance")))
    note = "Without the mean over all nodes. A question and a statement about one node are a pair."
    title = "Cosine of question and statement within a model"
    return [*tables, pl.studies.StudyTable(title, columns, rows, note)]


def line_of(
    name: str, x: Sequence[float], some: Sequence[pl.stats.Interval]
) -> pl.studies.StudyLine:
    return pl.studies.StudyLine(
        name, x, [p.mean for p in some], [p.low for p in some], [p.high for p in some]
    )


def path_chart(asked: AskedHierarchy) -> pl.studies.StudyChart:
    depths = by_ancestors(asked)
    lines = [
        line_of(CALLED.get(m, m), list(depths), [asked.path(m, at) for at in depths.values()])
        for m in asked.answers
    ]
    return pl.studies.StudyChart("Path score by depth", "ancestors", "path score", lines)


def layer_charts(asked: AskedHierarchy) -> list[pl.studies.StudyChart]:
    between = asked.states["between"]
    if not between:
        return []
    places = asked.states["places"]["policy"]
    lines = [
        line_of(f"{form}s", places, [pl.stats.mean_interval(x) for x in each["centred"]])
        for form, each in between.items()
    ]
    chance = np.mean([[np.mean(x) for x in each["random"]] for each in between.values()], axis=0)
    lines.append(pl.studies.StudyLine("pairs by chance", places, chance.tolist()))
    title = "Start and model alike, by layer, without the mean"
    return [pl.studies.StudyChart(title, "layer", "cosine", lines)]


def lines_of(asked: AskedHierarchy) -> list[dict[str, Any]]:
    """A line for each question."""
    return [
        {
            "id": q.task.id,
            "prompt": "\n".join(m.shown for m in q.task.prompt),
            "path": list(q.path),
            "options": list(q.options),
            "gold": q.answer,
            "answers": {
                model: {
                    "right": {f: x.right[f][i] for f in asked.forms},
                    "path_score": x.paths[i],
                    **{form: {k: items[i][k] for k in KEPT} for form, items in x.items.items()},
                }
                for model, x in asked.answers.items()
            },
        }
        for i, q in enumerate(asked.questions)
    ]
