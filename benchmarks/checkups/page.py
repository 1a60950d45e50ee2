"""Fills the tables, the picture and the conclusions of docs/checkups.md: python -m benchmarks.checkups.page"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cells import fill_page
from benchmarks.checkups.study import ARMS, CONTROL, DECLARED
from benchmarks.paired import of_values, verdicts, written
from palaestra.markdown import table
from palaestra.stats import mean_interval
from palaestra.view.drawing import PALETTE, drawing_style, save

HERE = Path(__file__).parent
PAGE, PICTURE = Path("docs/checkups.md"), Path("docs/checkups.png")
MEASURES: Mapping[str, tuple[str, str]] = {
    "accuracy": ("math-beyond", "sharper"),
    "pass@k": ("math-beyond", "within_n"),
    "diversity": ("rlhf-diversity", "diversity_within"),
    "calibration error": ("calibration", "more_ece"),
    "sureness": ("calibration", "more_sure"),
    "likelihood elsewhere": ("forgetting", "likelihood"),
    "choice elsewhere": ("forgetting", "choice"),
    "probe": ("sawmil", "more"),
}
BESIDE: Mapping[str, tuple[str, str]] = {  # of the control: what a start without training has
    "a guess, one try": ("math-beyond", "guess"),
    "a guess, within all samples": ("math-beyond", "guess_within_n"),
    "calibration error of the start": ("calibration", "ece_of_start"),
    "that of an ideal model": ("calibration", "ece_expected"),
    "choice elsewhere by chance": ("forgetting", "chance"),
    "probe, most frequent label": ("sawmil", "guess"),
    "probe, shuffled labels": ("sawmil", "accuracy_shuffled"),
    "probe of the start": ("sawmil", "accuracy"),
}


def column(results: Mapping[str, Any], arm: str, at: tuple[str, str]) -> dict[int, float]:
    """A number of an arm by declared seed, where it is known."""
    study, number = at
    cells = {tuple(name.split("/")): c for name, c in results["cells"].items()}
    return {
        int(n): c[study][number]
        for (a, n), c in sorted(cells.items())
        if a == arm and int(n) in DECLARED["seeds"] and c[study].get(number) is not None
    }


def said_of(results: Mapping[str, Any], measure: str) -> dict[str, str]:
    """By arm what the changes of a measure say, after Holm's correction over the arms."""
    gains = {arm: [*column(results, arm, MEASURES[measure]).values()] for arm in ARMS}
    matters = DECLARED["matters"][measure]
    return verdicts(gains, len(DECLARED["seeds"]), "up", "down", matters, "seeds")


def arms_table(results: Mapping[str, Any]) -> str:
    rows = list[Sequence[str]]()
    for measure, at in MEASURES.items():
        verdict = said_of(results, measure)
        cells = [
            f"{of_values([*column(results, arm, at).values()], '+')}, {verdict[arm]}"
            for arm in ARMS
        ]
        rows.append((measure, *cells))
    return table(rows, "change of", *ARMS)


def control_table(results: Mapping[str, Any]) -> str:
    """The untrained arm, whose changes are exactly 0, and what needs no training."""
    zeros = [abs(x) for at in MEASURES.values() for x in column(results, CONTROL, at).values()]
    rows = [("largest change of the untrained start", f"{max(zeros):g}" if zeros else "not run")]
    rows += [
        (name, of_values([*column(results, CONTROL, at).values()])) for name, at in BESIDE.items()
    ]
    return table(rows, "beside", "mean over seeds")


def cost_table(results: Mapping[str, Any]) -> str:
    """Processor seconds of a cell."""
    rows = list[Sequence[str]]()
    for arm in (*ARMS, CONTROL):
        own = [c["seconds"] for at, c in results["cells"].items() if at.split("/")[0] == arm]
        each = [[x[k] for x in own] for k in ("training", "check-up")]
        rows.append((arm, *(f"{sum(x) / len(x):.0f}" if x else "not run" for x in each)))
    return table(rows, "arm", "training", "check-up")


def conclusions(results: Mapping[str, Any]) -> str:
    """Sentences that follow from the numbers."""
    whole, run = (
        len(DECLARED["seeds"]) * len(ARMS) + len(DECLARED["control seeds"]),
        len(results["cells"]),
    )
    lines = list[str]()
    if run < whole:
        lines.append(
            f"- **Not complete:** {run} of {whole} declared cells are run. An arm with a missing seed has no verdict."
        )
    for arm in ARMS:
        told = {m: said_of(results, m)[arm] for m in MEASURES}
        sure = [
            f"{m} {written(mean_interval([*column(results, arm, at).values()]), '+')}"
            for m, at in MEASURES.items()
            if told[m] in ("up", "down")
        ]
        open_ = [m for m in MEASURES if told[m] == "not decided"]
        same = [m for m in MEASURES if told[m] == "no difference that matters"]
        parts = [f"changes {', '.join(sure)}"] if sure else []
        parts += [f"does not change {', '.join(same)} by what would matter"] if same else []
        parts += [f"not decided: {', '.join(open_)}"] if open_ else []
        if parts:
            lines.append(f"- **{arm}** {'; '.join(parts)}.")
    return "\n".join(lines)


def draw(results: Mapping[str, Any]) -> None:
    """A panel for each measure: the change by each arm, and its interval over seeds."""
    from matplotlib.figure import Figure

    with drawing_style():
        figure = Figure(figsize=(8.4, 4.2), layout="constrained")
        panels: Any = figure.subplots(2, 4, sharey=True)
        for axes, (measure, at) in zip(panels.flat, MEASURES.items(), strict=True):
            axes.axvline(0, color="#999999", linewidth=0.8)
            for i, arm in enumerate(ARMS):
                values = [*column(results, arm, at).values()]
                axes.plot(values, [-i] * len(values), ".", color=PALETTE[i], alpha=0.35, markersize=4)  # fmt: skip
                if len(values) > 1:
                    x = mean_interval(values)
                    ends = [[x.mean - x.low], [x.high - x.mean]]
                    axes.errorbar(x.mean, -i, xerr=ends, fmt="o", color=PALETTE[i], markersize=4.5)
            axes.set_yticks([-i for i in range(len(ARMS))], ARMS)
            axes.set_title(measure, fontsize=9)
            axes.tick_params(labelsize=7)
        save(figure, PICTURE)


def made_parts(results: Mapping[str, Any]) -> dict[str, str]:
    return {
        "conclusions": conclusions(results),
        "arms": arms_table(results),
        "control": control_table(results),
        "cost": cost_table(results),
    }


def main() -> None:
    draw(fill_page(HERE, PAGE, made_parts))


if __name__ == "__main__":
    main()
