"""The atlas for people: a picture of each batch and family, and a page in plain words, both from
the numbers alone.

Maps are classical multidimensional scaling (Torgerson 1952) of the distances sqrt(2 - 2 cos), those
of the unit vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.markdown import render, table
from palaestra.view.drawing import INK, LINE, MUTED, PALETTE, drawing_style, save
from palaestra.view.plots import diverging_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Data = Mapping[str, Any]
SAME, NEAR = 0.999, 0.95  # cosines
BOX = (0.4, 0.9)  # of the map: the part of its panel that holds points
ASPECT = 1.45  # of the map's panel: its width by its height
LEAST_METHODS = 3  # methods that a picture needs
NAMES = 6  # of equal methods beside their point


def page(data: Data) -> str:
    """docs/atlas.md."""
    ran = {m for c in data["batches"].values() for m in (*c["methods"], *c["still"])}
    return render(
        "atlas.md",
        **data,
        ran=len(ran),
        same=findings_between(data),
        charts=charts(data),
        refused=refusals(data),
    )


def charts(data: Data) -> Iterator[Data]:
    """Each batch with its families: what they show, and the name of their picture where they have
    one.
    """
    for name, c in data["batches"].items():
        families = [
            (
                family,
                findings(part),
                file_name(name, family) if len(part["methods"]) >= LEAST_METHODS else "",
            )
            for family, part in parts(data, name)
        ]
        yield {**c, "name": name, "families": families, "sizes": sizes(c)}


def pictures(data: Data, folder: Path) -> None:
    for name in data["batches"]:
        for family, part in parts(data, name):
            if len(part["methods"]) >= LEAST_METHODS:
                picture(f"{name}, {family}", part, folder / file_name(name, family))


def file_name(batch: str, family: str) -> str:
    return f"atlas-{batch}-{family}.svg"


def parts(data: Data, batch: str) -> Iterator[tuple[str, Data]]:
    """Each family on a batch, with the base methods as landmarks."""
    c, family = data["batches"][batch], data["families"]
    names = [f for f in dict.fromkeys(family.values()) if f != "base"] or ["base"]
    for one in names:
        has = lambda m, one=one: family[m] in ("base", one)
        at = [i for i, m in enumerate(c["methods"]) if has(m)]
        methods, cosine = (
            [c["methods"][i] for i in at],
            np.array(c["cosine"]).reshape(len(c["methods"]), len(c["methods"])),
        )
        if any(family[m] == one for m in (*methods, *c["still"])):
            yield (
                one,
                {
                    "methods": methods,
                    "cosine": cosine[np.ix_(at, at)],
                    "still": [m for m in c["still"] if has(m)],
                },
            )


# ---- in words


def findings(c: Data) -> list[str]:
    """What one batch shows."""
    methods, cosine = c["methods"], np.array(c["cosine"])
    groups = group_by_direction(methods, cosine)
    lines = [
        f"The same direction (cosine at least {SAME}): {join_names(g)}."
        for g in groups
        if len(g) > 1
    ]
    if c["still"]:
        lines.append(f"Nothing to learn here, so nothing would move: {join_names(c['still'])}.")
    heads = [methods.index(g[0]) for g in groups]
    pairs = sorted(((cosine[i, j], i, j) for i, j in combinations(heads, 2)), reverse=True)
    near = [f"{methods[i]} and {methods[j]} ({x:.2f})" for x, i, j in pairs if x >= NEAR]
    if near:
        lines.append(
            f"Nearly the same (at least {NEAR}): {join_names(near[:8])}"
            + (" and more." if near[8:] else ".")
        )
    against = [
        f"{methods[i]} and {methods[j]} ({x:.2f})" for x, i, j in reversed(pairs) if x < -0.05
    ]
    if against:
        lines.append(
            f"Against one another: {join_names(against[:5])}"
            + (" and more." if against[5:] else ".")
        )
    if len(heads) > 2:
        best = {i: max(cosine[i, j] for j in heads if j != i) for i in heads}
        alone = min(best, key=lambda i: best[i])
        lines.append(
            f"The most on its own: {methods[alone]}, whose nearest neighbour has a cosine of "
            f"{best[alone]:.2f}."
        )
    return lines or ["Only one method moves."]


def findings_between(data: Data) -> list[str]:
    """What holds on all batches, and what parts methods that are the same on fresh mixed groups: in
    a row, semicolons stand between the methods that differ.
    """
    batches = data["batches"]
    if "mixed" not in batches:
        return []
    lines: list[str] = []
    for group in group_by_direction(
        batches["mixed"]["methods"], np.array(batches["mixed"]["cosine"])
    ):
        if len(group) == 1:
            continue
        rows = [
            (name, "; ".join(map(join_names, split)), join_names(still))
            for name, split, still in splits(batches, group)
        ]
        rest = "They part on these batches:" if rows else "No batch parts them."
        lines.append(f"**{join_names(group)}** do the same on fresh mixed groups. {rest}\n")
        if rows:
            lines += [table(rows, "batch", "do the same there", "move nothing there"), ""]
    moving = {
        n: c["methods"] for n, c in batches.items() if n in ("solved", "failed") and c["methods"]
    }
    lines += [
        f"- Groups that are all {n}: only {join_names(ms)} learn from them."
        for n, ms in moving.items()
    ]
    return lines


def splits(
    batches: Mapping[str, Data], group: Sequence[str]
) -> Iterator[tuple[str, list[list[str]], list[str]]]:
    """The batches on which methods of a group differ: those that do the same there, and those that
    move nothing.
    """
    for name, c in batches.items():
        here = [m for m in group if m in c["methods"]]
        still = [m for m in group if m in c["still"]]
        places = [c["methods"].index(m) for m in here]
        cosine = np.array(c["cosine"])[np.ix_(places, places)] if here else np.zeros((0, 0))
        split = group_by_direction(here, cosine) if here else []
        if len(split) > 1 or (here and still):
            yield name, split, still


def sizes(c: Data) -> str:
    """Of each method the cosine with GRPO (where that moves), its nearest neighbour, and the length
    of its direction.
    """
    methods, cosine = c["methods"], np.array(c["cosine"])
    if len(methods) < 2:
        return ""
    grpo = methods.index("grpo") if "grpo" in methods else None
    unit = float(np.median(c["norms"])) if grpo is None else c["norms"][grpo]
    rows = []
    for i, m in enumerate(methods):
        near = max((j for j in range(len(methods)) if j != i), key=lambda j: cosine[i, j])
        labels = [] if grpo is None else [f"{cosine[i, grpo]:.3f}"]
        rows.append(
            (m, *labels, f"{methods[near]} ({cosine[i, near]:.3f})", f"{c['norms'][i] / unit:.2g}")
        )
    head = ("nearest (cosine)", f"length against {'the median' if grpo is None else 'grpo'}")
    return table(rows, "method", *(() if grpo is None else ("cosine with grpo",)), *head)


def refusals(data: Data) -> list[tuple[str, str, str]]:
    """Method, batches, and why it cannot take part."""
    why: dict[tuple[str, str], list[str]] = {}
    for name, c in data["batches"].items():
        for method, reason in c["refused"].items():
            why.setdefault((method, reason), []).append(name)
    every = len(data["batches"])
    return [
        (m, "all" if len(on) == every else ", ".join(on), reason)
        for (m, reason), on in sorted(why.items())
    ]


def join_names(names: Sequence[str], by: str = ", ") -> str:
    return by.join(names)


# ---- arithmetic


def classical_scaling(cosine_NN: np.ndarray) -> tuple[np.ndarray, float]:
    """Classical scaling of sqrt(2 - 2 cos) to the plane, and the share of the squared distances it
    holds.
    """
    n = len(cosine_NN)
    if n < 2:
        return np.zeros((n, 2)), 1.0
    centre_NN = np.eye(n) - 1 / n
    value_N, vector_NN = np.linalg.eigh(centre_NN @ cosine_NN @ centre_NN)  # -1/2 J D^2 J = J cos J
    value_N, vector_NN = np.maximum(value_N[::-1], 0), vector_NN[:, ::-1]
    vector_NN = vector_NN * np.where(
        vector_NN[np.abs(vector_NN).argmax(0), np.arange(n)] < 0, -1.0, 1.0
    )
    places = np.zeros((n, 2))
    places[:, : min(2, n)] = (vector_NN * np.sqrt(value_N))[:, :2]
    total = value_N.sum()
    return places, float(value_N[:2].sum() / total) if total > 0 else 1.0


def group_by_direction(
    methods: Sequence[str], cosine_NN: np.ndarray, least: float = SAME
) -> list[list[str]]:
    """Methods whose directions are the same: linked by cosines of at least `least`, in the order
    given.
    """
    left, groups = list(range(len(methods))), []
    while left:
        group, fresh = [], [left[0]]
        while fresh:
            i = fresh.pop()
            left.remove(i)
            group.append(i)
            fresh += [j for j in left if cosine_NN[i, j] >= least and j not in fresh]
        groups.append([methods[i] for i in sorted(group)])
    return groups


# ---- in pictures


def picture(name: str, c: Data, path: Path) -> None:
    """Left the cosines, right the map; methods with the same direction are one row and
    one point.
    """
    from matplotlib.figure import Figure

    methods, cosine = c["methods"], np.array(c["cosine"])
    places, kept = classical_scaling(cosine)
    groups = sorted(
        group_by_direction(methods, cosine), key=lambda g: places[methods.index(g[0])][0]
    )
    heads = [methods.index(g[0]) for g in groups]
    with drawing_style():
        side = max(4.2, 0.27 * len(groups) + 1.7)
        figure = Figure(figsize=(2.25 * side, side), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.2))
        _matrix(left, [_short(g) for g in groups], cosine[np.ix_(heads, heads)])
        _map(right, groups, places[heads])
        right.set_title(f"the map holds {100 * kept:.0f}% of the squared distances", color=MUTED)
        figure.suptitle(
            f"{name}: update directions", x=0.012, ha="left", fontsize=13, fontweight="bold"
        )
        save(figure, path)


def _short(group: Sequence[str]) -> str:
    return group[0] + (f" +{len(group) - 1}" if group[1:] else "")


def _label(group: Sequence[str]) -> str:
    """Names of methods that are the same, two a line, the first few."""
    lines = [" = ".join(group[k : k + 2]) for k in range(0, min(len(group), NAMES), 2)]
    return "\n= ".join(lines) + (f"\n= {len(group) - NAMES} more" if group[NAMES:] else "")


def _matrix(axes: Axes, names: Sequence[str], cosine: np.ndarray) -> None:
    n = len(names)
    axes.imshow(np.array([[diverging_colour(x) for x in row] for row in cosine]), aspect="equal")
    axes.set_xticks(range(n), names, rotation=90)
    axes.set_yticks(range(n), names)
    axes.tick_params(length=0, labelcolor=INK)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_title("cosine of the directions", color=MUTED)
    if n <= 16:
        for i, j in np.ndindex(n, n):
            label = f"{cosine[i, j]:.2f}".replace("-", "−").replace("0.", ".", 1) if i != j else ""
            colour = "white" if abs(cosine[i, j]) > 0.6 else INK
            axes.text(j, i, label, ha="center", va="center", fontsize=7, color=colour)


def _map(axes: Axes, groups: Sequence[list[str]], places: np.ndarray) -> None:
    """Points with their names in a column on their side, joined by thin lines: names never cover
    one another.
    """
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_xticks([])
    axes.set_yticks([])
    middle, span = (places.max(0) + places.min(0)) / 2, np.ptp(places, axis=0)
    wide, high = BOX  # one scale for both axes, the longer one upright
    scale = max(span[1] / (wide * ASPECT), span[0] / high, 1e-9)
    at = (places - middle)[:, ::-1] / scale / (ASPECT, 1) + 0.5
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    order = np.argsort(at[:, 0], kind="stable")
    for side, members in ((0, order[: len(order) // 2]), (1, order[len(order) // 2 :])):
        members = sorted(members, key=lambda i: at[i, 1])
        labels = {int(i): _label(groups[i]) for i in members}
        # each name has room for its own lines
        lines = np.array([1.6 + text.count("\n") for text in labels.values()])
        for (i, label), y in zip(
            labels.items(), (lines.cumsum() - lines / 2) / lines.sum(), strict=True
        ):
            x, colour = (0.74, 0.26)[1 - side], PALETTE[i % len(PALETTE)]
            axes.plot([at[i, 0], x], [at[i, 1], y], color=LINE, linewidth=1, zorder=1)
            axes.plot(*at[i], "o", color=colour, markersize=8, zorder=3)
            offset = 4 if side else -4
            axes.annotate(
                label, (x, y), (offset, 0), textcoords="offset points",
                ha="left" if side else "right", va="center",
                color=colour, fontsize=8.5, fontweight="bold",
            )  # fmt: skip
