"""Fills the tables and the conclusions of docs/selfplay.md: python -m benchmarks.selfplay.page"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cells import fill_page
from benchmarks.paired import gains_over, of_values, summed_up, verdicts
from benchmarks.selfplay.study import ARMS, DECLARED
from palaestra.markdown import table

HERE = Path(__file__).parent
PAGE = Path("docs/selfplay.md")
BASE = "self"
TITLES = {"kuhn": "Kuhn poker", "negotiation": "Negotiation"}
PLAYED = ("against uniform", "illegal", "tokens", "steps", "seconds")
UNITS = {"kuhn": "chips a hand", "negotiation": "points a game"}


def column(results: Mapping[str, Any], game: str, arm: str, of: str = "late") -> dict[int, Any]:
    """A measure of an arm by declared seed; "start" is the exploitability before training."""
    cells = {tuple(at.split("/")): c for at, c in results["cells"].items()}
    return {
        int(n): c["course"][0] if of == "start" else c[of]
        for (a, b, n), c in sorted(cells.items())
        if (a, b) == (game, arm) and int(n) in DECLARED["seeds"]
    }


def starts(results: Mapping[str, Any], game: str) -> dict[int, float]:
    """Exploitability of the starts by seed."""
    return {n: x for arm in ARMS for n, x in column(results, game, arm, "start").items()}


def to_base(results: Mapping[str, Any], game: str) -> dict[str, list[float]]:
    base = column(results, game, BASE)
    return {arm: gains_over(column(results, game, arm), base) for arm in ARMS if arm != BASE}


def to_start(results: Mapping[str, Any], game: str) -> dict[str, list[float]]:
    begun = starts(results, game)
    return {arm: gains_over(column(results, game, arm), begun) for arm in ARMS}


def said_of(gains: Mapping[str, Sequence[float]], game: str) -> dict[str, str]:
    return verdicts(
        gains, len(DECLARED["seeds"]), "more exploitable", "less exploitable", DECLARED["matters"][game], "seeds"
    )  # fmt: skip


def arms_table(results: Mapping[str, Any], game: str) -> str:
    """Exploitability of the arms, and the differences that decide."""
    base, begun = to_base(results, game), to_start(results, game)
    beside, since = said_of(base, game), said_of(begun, game)
    first = list(starts(results, game).values())
    rows: list[Sequence[str]] = [("start", of_values(first), "", "", "", "")]
    for arm in ARMS:
        each = [list(column(results, game, arm, of).values()) for of in ("late", "last", "average")]
        if not each[0]:
            rows.append((arm, *["not run"] * 5))
            continue
        rows.append((
            arm, *map(of_values, each), f"{of_values(begun[arm], '+')}, {since[arm]}",
            f"{of_values(base[arm], '+')}, {beside[arm]}" if arm != BASE else "",
        ))  # fmt: skip
    return table(
        rows, "arm", "second half (decides)", "last policy", "average of the second half", "second half less the start",
        "second half less self",
    )  # fmt: skip


def played_table(results: Mapping[str, Any], game: str) -> str:
    """What the policies earn, and what they cost."""
    rows = list[Sequence[str]]()
    for arm in ARMS:
        of = {key: list(column(results, game, arm, key).values()) for key in PLAYED}
        if of["tokens"]:
            mean = {k: sum(v) / len(v) for k, v in of.items()}
            rows.append((
                arm, of_values(of["against uniform"], "+"), f"{mean['illegal']:.1%}", f"{mean['tokens']:,.0f}",
                f"{mean['steps']:.0f}", f"{mean['seconds']:.0f}",
            ))  # fmt: skip
    return table(
        rows, "arm", f"{UNITS[game]} from uniform play", "illegal replies", "tokens", "steps", "processor seconds"
    )  # fmt: skip


def steps_table(results: Mapping[str, Any]) -> str:
    """Arms less self after equally many steps: at the last reading that all runs of a game have. Without a verdict."""
    rows = list[Sequence[str]]()
    for game, title in TITLES.items():
        steps = [n for arm in ARMS for n in column(results, game, arm, "steps").values()]
        if not steps:
            continue
        at = min(steps) // DECLARED["read every"]
        each = {
            arm: {n: course[at] for n, course in column(results, game, arm, "course").items()}
            for arm in ARMS
        }
        told = (of_values(gains_over(each[arm], each[BASE]), "+") for arm in ARMS if arm != BASE)
        rows.append((title, f"{at * DECLARED['read every']}", *told))
    return table(rows, "game", "step", *(f"{arm} less self" for arm in ARMS if arm != BASE))


def references_table(results: Mapping[str, Any]) -> str:
    """Tables without a model."""
    rows = [
        (TITLES[game], name, f"{x['exploitability']:.4f}", f"{x['value']:+.4f}", f"{x['against_uniform']:+.3f}")
        for game, each in results["references"].items()
        for name, x in each.items()
    ]  # fmt: skip
    return table(
        rows, "game", "reference", "exploitability", "value of the first seat", "from uniform play"
    )


def conclusions(results: Mapping[str, Any]) -> str:
    """Sentences that follow from the numbers."""
    lines, needed = list[str](), len(DECLARED["seeds"])
    whole = len(TITLES) * len(ARMS) * needed
    reported = sum(len(column(results, game, arm)) for game in TITLES for arm in ARMS)
    if reported < whole:
        lines.append(
            f"- **Not complete:** {whole - reported} of the {whole} declared cells are not run yet. A game with a "
            "missing cell has no verdict."
        )
    for game, title in TITLES.items():
        begun = starts(results, game)
        if not begun:
            lines.append(f"- **{title}**: not run.")
            continue
        base, since = to_base(results, game), to_start(results, game)
        lines.append(
            f"- **{title}**, exploitability of the second half of training, {UNITS[game]}; the starts have "
            f"{sum(begun.values()) / len(begun):.3f}. "
            f"{summed_up('the start', since, said_of(since, game), needed, 'seeds')} "
            f"{summed_up(BASE, base, said_of(base, game), needed, 'seeds')}"
        )
    return "\n".join(lines)


def made_parts(results: Mapping[str, Any]) -> dict[str, str]:
    tables = [
        f"### {title}\n\n{arms_table(results, game)}\n\n{played_table(results, game)}"
        for game, title in TITLES.items()
    ]
    return {
        "conclusions": conclusions(results),
        "arms": "\n\n".join(tables),
        "steps": steps_table(results),
        "references": references_table(results),
    }


def main() -> None:
    fill_page(HERE, PAGE, made_parts)


if __name__ == "__main__":
    main()
