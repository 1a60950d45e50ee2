"""The generated pages: CATALOGUE.md, CITATION.cff, for each built method its card, formula,
difference and measured result, and the pages of the surveys (`tools.pages.surveys`).

`python -m tools.pages` writes them; with --check it only compares.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from palaestra import catalogue
from palaestra.card import UNKNOWN, Card, Size
from palaestra.cli.show import parts
from palaestra.ledger.experiment import START, Experiment, experiment_of, tiers_of
from palaestra.ledger.files import parted, read_result
from palaestra.ledger.judging import LEAST_SEEDS
from palaestra.ledger.listed import FILE, result_digest
from palaestra.ledger.needs import costs_lines, costs_of
from palaestra.ledger.rerun import describe_code
from palaestra.ledger.results import is_older
from palaestra.ledger.standing import (
    above_start_line,
    expectation_of,
    stale_reason,
    standing,
)
from palaestra.ledger.wording import (
    budget_of,
    controls_line,
    does_not_show,
    edges,
    ends,
    interval,
    mean,
    time_of,
)
from palaestra.markdown import code, line_by_name, paper_link
from palaestra.needs.describe import (
    column_rows,
    needs_in_short,
    other_rows,
    own_command,
    shown_words,
)
from palaestra.pipeline import Pipeline
from palaestra.run.study import verb_of
from palaestra.run.unmet import arguments_of_run
from palaestra.settings.overrides import arguments
from palaestra.stats import Interval, interval_at_n
from palaestra.values import brief, difference
from tools.pages.arm_commands import commands_of
from tools.pages.citation import CITATION, citation_file
from tools.pages.figure import curves_svg, effect_svg
from tools.pages.holding import holding_page
from tools.pages.matrix import parts_page
from tools.pages.rendering import render
from tools.pages.studies import curricula_files
from tools.pages.surveys import SURVEYS, survey_pages

METHODS = Path("docs/methods")
RESULTS = Path("ledger/results")
MOST_SEEDS = 200  # that anybody would run
AREA = "`area`: the training reward at which an average sampled token of the run was drawn"
VERDICT_WORDS = {
    "reproduced": "Reproduced.",
    "smaller": "Smaller than claimed.",
    "not-reproduced": "Not reproduced",
    "reversed": "Reversed.",
    "inconclusive": "Inconclusive",
    "not-testable": "Not testable here",
    "illustration": "An illustration, no evidence",
}


def files() -> dict[Path, str]:
    """Every generated file by its path in the repository."""
    found = {
        Path("CATALOGUE.md"): catalogue_page(),
        Path("docs/parts.md"): parts_page(),
        Path("docs/what-holds.md"): holding_page(),
        Path("palaestra/ledger") / FILE: standings(),
        **curricula_files(),
        **survey_pages(),
        CITATION: citation_file(),
    }
    for entry in catalogue.all_entries():
        if entry.built:
            each = {n: read_result(n) for n in (entry.id, *tiers_of(entry.id))}
            drawn = {n: pictures(n, r) if r else {} for n, r in each.items()}
            page = method_page(entry, {n: (r, list(drawn[n])) for n, r in each.items()})
            found[METHODS / f"{entry.id}.md"] = page
            found |= {METHODS / n: p for pair in drawn.values() for n, p in pair.items()}
    return found


def standings() -> str:
    """Where the methods with a result stand, for listings (`ledger.listed`)."""
    found = {}
    for entry in catalogue.all_entries():
        if entry.built and (digest := result_digest(entry)):
            now = standing(entry)
            found[entry.id] = {"result": digest, "status": now.status, "note": now.note}
    return line_by_name(found)


def pictures(method: str, result: Mapping[str, Any]) -> dict[str, str]:
    """The pictures of a result by the names of their files."""
    effect = effect_svg(result, expectation_of(result)) if result["arms"] else ""
    drawn = {f"{method}-effect.svg": effect, f"{method}.svg": curves_svg(result["arms"])}
    return {name: picture for name, picture in drawn.items() if picture}


def leftover_pages(made: Iterable[Path]) -> list[Path]:
    """Pages of methods and surveys that are not there any more."""
    there = (p for folder in (METHODS, SURVEYS) for p in folder.glob("*"))
    return sorted({p for p in there if p.suffix in (".md", ".svg")} - set(made))


# ---- CATALOGUE.md


def catalogue_page() -> str:
    """Every method with its status, linked to its page and its result."""
    everything = catalogue.all_entries()
    families: list[tuple[str, int, list[tuple[str, ...]]]] = []
    for family in dict.fromkeys(e.family for e in everything):
        mine = [e for e in everything if e.family == family]
        rows = [(entry_link(e), e.title, *usage(e), grade(e), status(e)) for e in mine]
        families.append((family, sum(e.built or bool(e.page) for e in mine), rows))
    return render("catalogue.md", families=families)


def entry_link(entry: catalogue.Entry) -> str:
    page = f"{METHODS}/{entry.id}.md" if entry.built else entry.page
    return f"[{entry.id}]({page})" if page else entry.id


def usage(entry: catalogue.Entry) -> tuple[str, str]:
    """What a row needs of its user, and the command on one's own data; of a text, what it is."""
    if not entry.built:
        what = "a text about methods" if entry.kind == "survey" else "a text"
        return f"nothing: {what}, to be read", ""
    module = catalogue.find(entry.id)
    card: Card = module.CARD
    given = arguments_of_run(arguments(entry.id), {})
    command = own_command(entry.id, card.needs, given, verb_of(module.build()))
    return needs_in_short(card.needs, given) or "nothing", code(command)


def grade(entry: catalogue.Entry) -> str:
    if entry.page:
        return entry.kind
    card: Card | None = catalogue.find(entry.id).CARD if entry.built else None
    return card.grade if card else ""


def status(entry: catalogue.Entry) -> str:
    found = standing(entry)
    where = f"{RESULTS}/{entry.id}.json"
    if found.note.startswith("stale"):
        return f"{found.status} ([stale result]({where}))"
    if found.note:
        return f"[{found.status}]({where}) ({found.note})"
    if found.status in ("planned", "built"):
        return found.status
    said = controls_line(read_result(entry.id) or {})
    return f"[{found.status}]({where})" + (f": {said}" if said else "")


# ---- a method


Drawn: TypeAlias = tuple[Mapping[str, Any] | None, Sequence[str]]


def method_page(entry: catalogue.Entry, found: Mapping[str, Drawn]) -> str:
    """A method's page.

    Args:
        found: by experiment, the result, None where there is none, and the names of its pictures.
    """
    module = importlib.import_module(entry.module)
    card: Card = module.CARD
    size, parent = card.size or Size(), catalogue.parent_of(entry.id)
    given = arguments_of_run(arguments(entry.id), {})
    texts = {n: measured(entry, n, result, drawn) for n, (result, drawn) in found.items()}
    return render(
        "method.md",
        entry=entry,
        card=card,
        size=size,
        parent=parent,
        paper=paper_link(card.paper),
        needs=card.needs,
        verb=verb_of(module.build()),
        command=own_command(entry.id, card.needs, given, verb_of(module.build())),
        columns=[
            (code(name), kind, code(example), meaning, without)
            for name, kind, example, meaning, without in column_rows(card.needs, given)
        ],
        others=[
            (what, code(how), meaning, without)
            for what, how, meaning, without in other_rows(card.needs, given)
        ],
        costs="; ".join(costs_lines(costs_of(module.build()), costs_of(catalogue.recipe("grpo")))),
        unknown=[UNKNOWN[name] for name in size.unknown],
        shown=shown_words(card.needs).rstrip("."),
        checks=tests_of(entry.module),
        standing=standing(entry),
        text=(module.__doc__ or "").strip(),
        rows=recipe_rows(parent, module.build()),
        measured=texts.pop(entry.id),
        tiers={parted(n)[1]: text for n, text in texts.items()},
    )


def tests_of(module: str) -> str:
    """The file, or folder, of the tests of a recipe's module; "" where it has none of its own."""
    *folders, name = module.removeprefix("palaestra.").split(".")
    here = Path("tests", *folders)
    known = [p for p in (here / f"test_{name}.py", here / name) if p.exists()]
    return known[0].as_posix() if known else ""


def measured(
    entry: catalogue.Entry, name: str, result: Mapping[str, Any] | None, drawn: Sequence[str]
) -> str:
    """What a method's page says of one of its experiments."""
    experiment = experiment_of(name) if entry.claim else None
    return render(
        "measured.md",
        entry=entry,
        name=name,
        tier=parted(name)[1],
        experiment=experiment,
        result=result,
        results=RESULTS,
        drawn=drawn,
        stale=stale_reason(result) if result else "",
        **(result_facts(name, experiment, result) if experiment and result else {}),
    ).rstrip()


def recipe_rows(parent: str, built: Any) -> list[tuple[str, ...]]:
    """The fields that differ from the parent's, or, of a method without one, its parts."""
    if not parent:
        return [(code(name), code(brief(part))) for name, part in parts(built)]
    changes = difference(catalogue.recipe(parent), built)
    return [
        (code(path), code(brief(before)), code(brief(after))) for path, before, after in changes
    ]


def result_facts(name: str, experiment: Experiment, result: Mapping[str, Any]) -> dict[str, Any]:
    """What the page says of a result beside its own fields."""
    undecided = result["verdict"] == "inconclusive" and "taken_back" not in result
    why = inconclusive_reason(experiment, result) if undecided else result["reason"]
    verdict = VERDICT_WORDS[result["verdict"]]
    several = len(result.get("blocks", [])) > 1
    return {
        "verdict": verdict if verdict.endswith(".") else f"{verdict}: {why}".rstrip(": .") + ".",
        "effect": ends(result),
        "permutation": permutation(result),
        "cannot_show": does_not_show(result["id"], result["note"]),
        "blocks": [ends(b) for b in result.get("by_block", [])] if several else [],
        "budget": budget_of(result),
        "arms": arms(result),
        "arm_commands": commands_of(name, experiment, result),
        "by_seed": by_seed(result),
        "above_start": above_start_line(result),
        "start": name_of_start(experiment),
        "fallen": fallen(result, swept=experiment.chooses == experiment.measure),
        "edges": [f"{arm} ({which})" for arm, which in edges(result).items()],
        "numbers": [*columns(result), "sampled tokens"],
        "settings": settings(result),
        "untuned": untuned(result),
        "legend": AREA if "area" in columns(result) else "",
        "said": [
            (n, ends(c) if "ci95" in c else "", c["said"])
            for n, c in result["controls"].items()
            if "said" in c
        ],
        "left": [name for name in experiment.every_arm if name not in result["arms"]],
        "cost": sum_of(result) if result["arms"] else "",
        "measured_with": describe_code(result, experiment),
        "older_rules": is_older(result),
        "chosen_by": code(brief(experiment.chooses)),
        "fresh_before": [
            f"{look['verdict']} ({ends(look)})"
            for look in result.get("fresh", {}).get("earlier", [])
        ],
        "earlier": [
            f"{look['verdict']} ({ends(look)}; {look['why']})" for look in result.get("earlier", [])
        ],
    }


def name_of_start(experiment: Experiment) -> str:
    """What arms began as: an arm of its own, a model that other parts made, or one as it is."""
    if experiment.start is None:
        return code(START)
    made = isinstance(experiment.start, Pipeline)
    return "the start that all arms share" if made else "the untrained start"


def permutation(result: Mapping[str, Any]) -> str:
    """The interval of permuted signs; "" where there is none."""
    found = result.get("ci95_permutation")
    return f"; permutation interval: [{found[0]:.3g}, {found[1]:.3g}]" if found else ""


def columns(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The numbers that stand beside the measure, by arm."""
    if is_older(result):
        return dict(result["controls"])
    return {n: c["values"] for n, c in result["controls"].items() if c["kind"] == "number"}


def settings(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """What was tried for each arm, on the tuning seeds, and what was chosen."""
    return [
        (
            name,
            ", ".join(f"{k}={v}" for k, v in row["setting"].items()),
            mean(row["values"]),
            "chosen" if row["setting"] == result["arms"][name]["setting"] else "",
        )
        for name, tried in result.get("tuning", {}).get("arms", {}).items()
        for row in tried
    ]


def untuned(result: Mapping[str, Any]) -> list[str]:
    """Settings that arms were given without a sweep, each with its arms."""
    swept = result.get("tuning", {}).get("arms", {})
    found: dict[str, list[str]] = {}
    for name, arm in result["arms"].items():
        if name not in swept and arm.get("setting"):
            told = ", ".join(f"{k}={v}" for k, v in arm["setting"].items())
            found.setdefault(told, []).append(name)
    every = {n for n in result["arms"] if n != START}
    return [
        f"{told} ({'every arm' if set(names) == every else ', '.join(names)})"
        for told, names in found.items()
    ]


def inconclusive_reason(experiment: Experiment, result: Mapping[str, Any]) -> str:
    """Why there is no verdict, and how many seeds would give one if mean and spread stayed as they
    are.
    """
    low, high = result["ci95"]
    if low is None or result["seeds"] < LEAST_SEEDS or len(experiment.tasks) > 1:
        return result["reason"]
    effect = Interval(mean=result["effect"], low=low, high=high, n=result["seeds"])
    expect = expectation_of(result)
    blocks = lambda n: [] if is_older(result) else [interval_at_n(effect, n // 2)] * 2
    more = (
        n
        for n in range(effect.n + 1, MOST_SEEDS)
        if expect.judge(interval_at_n(effect, n), blocks(n)).verdict != "inconclusive"
    )
    seeds = next(more, None)
    told = (
        f"about {seeds} seeds would, about every second time"
        if seeds
        else f"{MOST_SEEDS} seeds would not either"
    )
    return f"{result['reason']}; with this mean and spread {told}"


def arms(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Each arm with its interval, and what else was measured."""
    rows: list[tuple[str, ...]] = []
    for name, arm in result["arms"].items():
        others = [mean(values[name]) for values in columns(result).values()]
        tokens = mean(arm["sampled_tokens"], ",.0f")
        rows.append((name, interval(arm["interval"]), *others, tokens))
    return rows


def by_seed(result: Mapping[str, Any]) -> list[str]:
    """The single runs of each arm, in the order of the seeds."""
    told: list[str] = []
    for name, arm in result["arms"].items():
        lacks = "failed" if arm.get("failed") else "not measured"
        runs = ", ".join(lacks if x is None else f"{x:.3g}" for x in arm["values"])
        told.append(f"{name}: {runs}")
    return told


def fallen(result: Mapping[str, Any], *, swept: bool) -> list[str]:
    """Of each arm that has seeds below half of its median, how many, and what its setting had on the
    seeds of the sweep, where that was `swept` by the same measure. Nothing of measures that may be
    negative.
    """
    told: list[str] = []
    for name, arm in result["arms"].items():
        known = [x for x in arm["values"] if x is not None]
        if name == START or len(known) < LEAST_SEEDS or min(known) < 0:
            continue
        middle = median(known)
        if not (low := sum(x < middle / 2 for x in known)):
            continue
        tried = result.get("tuning", {}).get("arms", {}).get(name, [])
        had = [mean(t["values"]) for t in tried if t["setting"] == arm["setting"]]
        before = f" ({had[0]} in the sweep)" if swept and had else ""
        told.append(f"{low} of {len(known)} of {name}, median {middle:.3g}{before}")
    return told


def sum_of(result: Mapping[str, Any]) -> str:
    runs = sum(t is not None for arm in result["arms"].values() for t in arm["sampled_tokens"])
    sampled = f"{result['sampled_tokens']:,} sampled tokens in {result.get('runs', runs)} runs"
    return f"{sampled}, {time_of(result)} ({result['machine']}),"


def main() -> int:
    made = files()
    gone, other = (
        leftover_pages(made),
        [p for p, text in made.items() if not p.is_file() or p.read_text() != text],
    )
    if "--check" in sys.argv[1:]:
        for path in (*other, *gone):
            print(f"{path} is out of date: run python -m tools.pages", file=sys.stderr)
        return 1 if other or gone else 0
    for path in gone:
        path.unlink()
    for path in other:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
