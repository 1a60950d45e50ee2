"""Fills the tables and the conclusions of docs/losses.md: python -m benchmarks.losses.page"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cells import fill_page
from benchmarks.losses.study import DECLARED, LENGTHS, LOSSES, best_rates
from benchmarks.paired import gains_over, of_values, summed_up, verdicts
from palaestra.markdown import table

HERE = Path(__file__).parent
PAGE = Path("docs/losses.md")
BASE, CONTROL = "dpo", "imitation"
UNIT = "blocks"  # a seed at a length


def column(results: Mapping[str, Any], arm: str, flips: float, of: str = "greedy") -> dict[tuple[str, int], float]:  # fmt: skip
    """A measure of an arm at a share of flipped labels, by block."""
    cells = {tuple(at.split("/")): c for at, c in results["cells"].items()}
    return {
        (a, int(n)): c[of]
        for (a, b, f, n), c in sorted(cells.items())
        if b == arm and float(f) == flips and int(n) in DECLARED["seeds"]
    }


def starts(results: Mapping[str, Any], of: str = "greedy") -> dict[tuple[str, int], float]:
    """A measure of the starts that are reported, by block."""
    each = {tuple(at.split("/")): x[of] for at, x in results["starts"].items()}
    return {(a, int(n)): x for (a, n), x in each.items() if int(n) in DECLARED["seeds"]}


def blocks_declared() -> int:
    return len(DECLARED["seeds"]) * len(LENGTHS)


def of_arms(gains: Mapping[str, Sequence[float]], up: str, down: str) -> dict[str, str]:
    return verdicts(gains, blocks_declared(), up, down, DECLARED["matters"], UNIT)


def arms_table(results: Mapping[str, Any], flips: float) -> str:
    """Arms at a share of flipped labels: both rates, and the differences that decide."""
    base, begun = column(results, BASE, flips), starts(results)
    each = {arm: column(results, arm, flips) for arm in LOSSES}
    to_base = {arm: gains_over(x, base) for arm, x in each.items() if arm != BASE}
    to_start = {arm: gains_over(x, begun) for arm, x in each.items()}
    beside, above = of_arms(to_base, "better", "worse"), of_arms(to_start, "above", "below")
    rows = list[Sequence[str]]()
    for arm, values in each.items():
        if not values:
            rows.append((arm, *["not run"] * 4))
            continue
        sampled = column(results, arm, flips, "sampled")
        rows.append((
            arm, of_values(list(values.values())), of_values(list(sampled.values())),
            f"{of_values(to_start[arm], '+')}, {above[arm]}",
            f"{of_values(to_base[arm], '+')}, {beside[arm]}" if arm != BASE else "",
        ))  # fmt: skip
    return table(rows, "arm", "greedy", "sampled", "greedy less the start", "greedy less dpo")


def lengths_table(results: Mapping[str, Any]) -> str:
    """Greedy rates of each length less the start, without a verdict."""
    rows = list[Sequence[str]]()
    for arm in LOSSES:
        told = list[str]()
        for length in LENGTHS:
            begun = {at: x for at, x in starts(results).items() if at[0] == length}
            for flips in DECLARED["flips"]:
                told.append(of_values(gains_over(column(results, arm, flips), begun), "+"))
        rows.append((arm, *told))
    names = (f"{length}, {flips:.0%}" for length in LENGTHS for flips in DECLARED["flips"])
    return table(rows, "greedy less the start", *names)


def starts_table(results: Mapping[str, Any]) -> str:
    """What the losses start from, and what a rule that reads no problem gets right of the pairs."""
    rows = list[Sequence[str]]()
    for length, n in LENGTHS.items():
        own = [
            x for at, x in results["starts"].items()
            if at.split("/")[0] == length and int(at.split("/")[1]) in DECLARED["seeds"]
        ]  # fmt: skip
        if own:
            rows.append((
                f"{length} ({n} numbers)", f"{len(own)}",
                of_values([x["greedy"] for x in own]), of_values([x["sampled"] for x in own]),
                f"{min(x['pairs'] for x in own)} to {max(x['pairs'] for x in own)}",
                f"{sum(x['blind']['length'] for x in own) / len(own):.0%}",
                f"{sum(x['blind']['answer line'] for x in own) / len(own):.0%}",
            ))  # fmt: skip
    return table(
        rows, "answers", "starts", "greedy", "sampled", "pairs", "right by length alone", "right by the answer line alone",
    )  # fmt: skip


def rates_table(results: Mapping[str, Any]) -> str:
    """Right greedy answers by rate on the tuning seed, the mean over lengths; the chosen rate is bold."""
    chosen, rows = best_rates(results), list[Sequence[str]]()
    for arm in LOSSES:
        told = list[str]()
        for rate in DECLARED["rates"]:
            own = [
                c["greedy"] for at, c in results["tuning"].items()
                if at.split("/")[1] == arm and c["rate"] == rate
            ]  # fmt: skip
            value = f"{sum(own) / len(own):.3f}" if own else "not run"
            told.append(f"**{value}**" if own and chosen.get(arm) == rate else value)
        rows.append((arm, *told))
    return table(rows, "arm", *(f"{rate:g}" for rate in DECLARED["rates"]))


def conclusions(results: Mapping[str, Any]) -> str:
    """Sentences that follow from the numbers."""
    lines, blocks, begun = list[str](), blocks_declared(), starts(results)
    whole = len(LOSSES) * len(DECLARED["flips"]) * blocks
    reported = sum(len(column(results, arm, f)) for arm in LOSSES for f in DECLARED["flips"])
    if reported < whole:
        lines.append(
            f"- **Not complete:** {whole - reported} of the {whole} declared cells are not run yet. A share of flipped "
            "labels with a missing block has no verdict."
        )
    for flips in DECLARED["flips"]:
        base = column(results, BASE, flips)
        each = {arm: column(results, arm, flips) for arm in LOSSES}
        if not base:
            lines.append(f"- **{flips:.0%} flipped labels**: not run.")
            continue
        to_base = {arm: gains_over(x, base) for arm, x in each.items() if arm != BASE}
        to_start = {arm: gains_over(x, begun) for arm, x in each.items()}
        above, beside = of_arms(to_start, "above", "below"), of_arms(to_base, "better", "worse")
        lines.append(
            f"- **{flips:.0%} flipped labels.** {summed_up('the start', to_start, above, blocks, UNIT)} "
            f"{summed_up(BASE, to_base, beside, blocks, UNIT)}"
        )
    return "\n".join(lines)


def made_parts(results: Mapping[str, Any]) -> dict[str, str]:
    tables = [
        f"### {flips:.0%} flipped labels\n\n{arms_table(results, flips)}"
        for flips in DECLARED["flips"]
    ]
    return {
        "conclusions": conclusions(results),
        "arms": "\n\n".join(tables),
        "lengths": lengths_table(results),
        "starts": starts_table(results),
        "rates": rates_table(results),
    }


def main() -> None:
    fill_page(HERE, PAGE, made_parts)


if __name__ == "__main__":
    main()
