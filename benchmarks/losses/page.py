"""Fills the tables and the conclusions of docs/losses.md: python -m benchmarks.losses.page"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.losses.study import DECLARED, LENGTHS, LOSSES, best_rates
from palaestra.markdown import fill_marks, table
from palaestra.stats import Interval, mean_interval, standard_error, t_cdf

HERE = Path(__file__).parent
PAGE = Path("docs/losses.md")
BASE, CONTROL = "dpo", "imitation"
LEVEL = 0.05
Values = Mapping[tuple[str, int], float]  # by length and seed


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


def p_of(gains: Sequence[float]) -> float:
    """Two-sided p of the paired t test; 1 where there are fewer than two pairs, or all are equal to 0."""
    if len(gains) < 2:
        return 1.0
    mean = sum(gains) / len(gains)
    error = standard_error(np.asarray(gains))
    if error == 0:
        return 1.0 if mean == 0 else 0.0
    return 2 * (1 - t_cdf(abs(mean) / error, len(gains) - 1))


def holm(p_by: Mapping[str, float], level: float = LEVEL) -> dict[str, bool]:
    """Which hypotheses Holm's step-down procedure rejects."""
    rejected, going = dict[str, bool](), True
    for i, (name, p) in enumerate(sorted(p_by.items(), key=lambda x: x[1])):
        going = going and p <= level / (len(p_by) - i)
        rejected[name] = going
    return rejected


def gains_over(one: Values, other: Values) -> list[float]:
    """`one` less `other`, block by block."""
    return [one[at] - other[at] for at in sorted(one.keys() & other.keys())]


def verdicts(each: Mapping[str, Sequence[float]], blocks: int, up: str, down: str) -> dict[str, str]:  # fmt: skip
    """What the declared rule says of arms, by their differences."""
    complete = {arm: gains for arm, gains in each.items() if len(gains) >= blocks}
    # a partial family has no verdict: Holm's correction is over all of it
    sure = holm({arm: p_of(gains) for arm, gains in complete.items()}) if len(complete) == len(each) else {}  # fmt: skip
    said = dict[str, str]()
    for arm, gains in each.items():
        if len(complete) < len(each):
            said[arm] = f"trial: {len(gains)} of {blocks} blocks"
            continue
        x = mean_interval(gains)
        if sure[arm]:
            said[arm] = up if x.mean > 0 else down
        elif max(-x.low, x.high) < DECLARED["matters"]:
            said[arm] = "no difference that matters"
        else:
            said[arm] = "not decided"
    return said


def written(x: Interval, sign: str = "") -> str:
    whole = f"{x.mean:{sign}.3f}"
    return f"{whole} [{x.low:{sign}.3f}, {x.high:{sign}.3f}]" if x.n > 1 else whole


def of_values(values: Sequence[float], sign: str = "") -> str:
    return written(mean_interval(list(values)), sign) if values else "not run"


def blocks_declared() -> int:
    return len(DECLARED["seeds"]) * len(LENGTHS)


def arms_table(results: Mapping[str, Any], flips: float) -> str:
    """Arms at a share of flipped labels: both rates, and the differences that decide."""
    base, begun, blocks = column(results, BASE, flips), starts(results), blocks_declared()
    each = {arm: column(results, arm, flips) for arm in LOSSES}
    to_base = {arm: gains_over(x, base) for arm, x in each.items() if arm != BASE}
    to_start = {arm: gains_over(x, begun) for arm, x in each.items()}
    beside, above = (
        verdicts(to_base, blocks, "better", "worse"),
        verdicts(to_start, blocks, "above", "below"),
    )
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
        lines.append(
            f"- **{flips:.0%} flipped labels.** "
            f"{against('the start', to_start, verdicts(to_start, blocks, 'above', 'below'))} "
            f"{against(BASE, to_base, verdicts(to_base, blocks, 'better', 'worse'))}"
        )
    return "\n".join(lines)


def against(name: str, gains: Mapping[str, Sequence[float]], said: Mapping[str, str]) -> str:
    """One sentence on the arms beside one of them, or the start."""
    means = {arm: sum(g) / len(g) for arm, g in gains.items() if g}
    ordered = sorted(means, key=lambda arm: -means[arm])
    if any(x.startswith("trial") for x in said.values()):
        n = min(len(gains[arm]) for arm in ordered)
        told = ", ".join(f"{arm} {means[arm]:+.3f}" for arm in ordered)
        return f"Less {name}, a trial of {n} of {blocks_declared()} blocks: {told}."
    groups = dict[str, list[str]]()
    for arm in ordered:
        groups.setdefault(said[arm], []).append(f"{arm} {means[arm]:+.3f}")
    return f"Less {name}: " + "; ".join(f"{v}: {', '.join(a)}" for v, a in groups.items()) + "."


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
    results = json.loads((HERE / "results.json").read_text())
    PAGE.write_text(fill_marks(PAGE.read_text(), made_parts(results)))


if __name__ == "__main__":
    main()
