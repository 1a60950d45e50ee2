"""`palaestra compare`: compares recipes with the same task, seeds and budget of sampled tokens; or
finished runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from palaestra.api.asking import compare_cells, repeated, run_of
from palaestra.api.ended import compare_runs
from palaestra.cli.train import describe_score, read_settings
from palaestra.ends import HELD_OUT, SHARES, end_of
from palaestra.errors import UserError
from palaestra.ledger.measures import Cell
from palaestra.run.parts import go_on, stoppable
from palaestra.store.checkpoint import make_folder, write_atomic
from palaestra.tasks.spec import split_outside
from palaestra.terminal.progress import Headway

EXAMPLE = "'grpo objective.high=0.28'"
CEILING = 0.99  # a share from which on there is nothing left to differ in
CHOICE_OF_PROBLEMS = (
    "note: an interval that is paired by problem covers the choice of the held-out problems and not "
    "that of seeds: the same method with another seed may end elsewhere"
)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    methods = [w for w in arguments.words if is_method(w)]
    if len(methods) < 2:
        raise UserError(
            "compare needs at least two recipes: palaestra compare grpo rloo; one with settings of "
            f"its own stands in quotes: palaestra compare grpo {EXAMPLE}"
        )
    shared = [w for w in arguments.words if w not in methods]
    if runs := [r for m in methods if (r := run_of(m)) is not None]:
        if shared:
            raise UserError(f"{shared[0]}: runs that are over are compared as they are")
        result = compare_runs(runs, whole=len(runs) == len(methods))
        if not arguments.json:
            table_of_runs(result)
        return result
    if twice := repeated(methods):
        raise UserError(
            f"{twice} stands there twice, and settings outside quotes are for all; give one of them "
            f"its own: palaestra compare grpo {EXAMPLE}"
        )
    out = make_folder(Path(arguments.out))
    read = {
        m: read_settings(argparse.Namespace(**vars(arguments) | {"words": [*shared, *parts_of(m)]}))
        for m in methods
    }
    with stoppable(lambda: go_on(arguments.command)), Headway("compare") as headway:
        result, cells = compare_cells(
            read,
            seeds=arguments.seeds,
            tokens=arguments.tokens,
            out=out,
            jobs=arguments.jobs,
            headway=headway,
        )
    write_atomic(out / "compare.json", json.dumps(result, indent=1))
    draw(cells, out)
    if not arguments.json:
        table(result, out)
        for pair in identical(cells):
            print(f"note: {' and '.join(pair)} ended in the same weights with every seed")
    return result


def identical(cells: Mapping[str, Sequence[Cell]]) -> list[tuple[str, str]]:
    """Pairs of methods whose runs ended with the same weights for each seed."""
    ends = {
        method: {c.summary.get("seed"): c.summary.get("weights_sha256") for c in runs}
        for method, runs in cells.items()
    }
    return [
        (a, b)
        for a, b in combinations(ends, 2)
        if ends[a] == ends[b] and ends[a] and all(ends[a].values())
    ]


def parts_of(word: str) -> list[str]:
    """A method and the settings that stand in its quotes. A blank within brackets is of a value, and
    a name may hold blanks where no setting follows.
    """
    pieces = [piece for piece in split_outside(word, " ") if piece]
    return pieces if len(pieces) > 1 and all("=" in s for s in pieces[1:]) else [word]


def is_method(word: str) -> bool:
    """Whether a word names a method, and not a file of settings or a setting for all."""
    return not word.startswith("@") and "=" not in parts_of(word)[0]


def table_of_runs(result: dict[str, Any]) -> None:
    ends, differences = result["methods"], result["differences"]
    names = {folder: f"{end['method']} {folder}".strip() for folder, end in ends.items()}
    of = min(end["after"]["of"] for end in ends.values())
    print(f"{HELD_OUT[of]} of runs that are over (95% intervals)")
    for folder, name in names.items():
        print(f"  {name}  {from_to(ends[folder])}, n = {ends[folder]['after']['n']}")
    for what, values in {"": differences, **result["sampled"]}.items():
        for a, b in combinations(names, 2):
            if (d := values.get(f"{b} - {a}")) is not None:
                paired = f"paired {d['paired']}" if d["paired"] else f"not paired: {d['why']}"
                print(
                    f"  {names[b]} - {names[a]}{what and ', '}{what}  {describe_score(d)}, {paired}"
                )
    every = [
        *differences.values(),
        *(d for value in result["sampled"].values() for d in value.values()),
    ]
    if any(d["paired"] for d in every):
        print(CHOICE_OF_PROBLEMS)
    for note in result["notes"]:
        print(f"note: {note}")
    remark_ceiling(end["after"] for end in ends.values())


def from_to(ends: dict[str, Any]) -> str:
    """What was measured before, where it was, and after."""
    before = f"{describe_score(ends['before'] | {'low': None})} -> " if ends["before"] else ""
    return f"{before}{describe_score(ends['after'])}"


def remark_ceiling(ends: Iterable[Mapping[str, Any]]) -> None:
    """Says where all solve so nearly everything that their difference tells nothing."""
    means = [e["mean"] for e in ends if e and e.get("of") in SHARES]
    if len(means) > 1 and min(means) >= CEILING:
        print("note: all of them end at the ceiling of this problem, which cannot tell them apart")


def draw(cells: dict[str, list[Cell]], out: Path) -> None:
    from palaestra.view.plots import compare

    # the picture shows where runs ended, which a cell's summary holds whatever its shape
    evaluations = lambda c: [
        *c.steps,
        {"step": c.summary.get("steps", 0), "evaluation": end_of(c.summary, "after")},
    ]
    of = {end_of(c.summary, "after").get("of") for value in cells.values() for c in value}
    records = {m: [evaluations(c) for c in value] for m, value in cells.items()}
    compare(records, out / "compare.png", of=min(filter(None, of), default="accuracy"))


def table(result: dict[str, Any], out: Path) -> None:
    methods, differences = result["methods"], result["differences"]
    of = {s["after"].get("of") for s in methods.values()}
    what = " and ".join(HELD_OUT[kind] for kind in HELD_OUT if kind in of)
    fewest = min(s["problems"] for s in methods.values())
    print(
        f"{result['model']} on {result['task']}, {what} of {fewest} problems (95% intervals), "
        f"{result['seeds']} seeds, a budget of {result['budget_tokens']:,} sampled tokens a run, to the "
        "end of a step"
    )
    width = max(map(len, [*methods, *differences]))
    for m, s in methods.items():
        spent = sum(s["sampled_tokens"]) / len(s["sampled_tokens"])
        print(f"  {m:<{width}} {from_to(s)}  {spent:,.0f} tokens a run")
    for name, d in differences.items():
        print(f"  {name:<{width}} {describe_score(d)}, paired by seed")
    if of & {*SHARES} and differences:
        print(
            f"note: runs are taken to differ by no less than drawing {fewest} problems makes them, so an "
            "interval may be wider than the seeds alone make it"
        )
    remark_ceiling(s["after"] for s in methods.values())
    print(f"picture  {out / 'compare.png'}")
