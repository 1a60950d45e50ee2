"""The atlas for people: a picture of each batch, and a page in plain words, both from the numbers alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestra.ledger.atlas import NEAR, SAME, alike
from palaestra.markdown import table
from palaestra.runtime.drawing import INK, LINE, MUTED, PALETTE, save, styled
from palaestra.runtime.plots import diverging

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Data = Mapping[str, Any]
BOX, ASPECT = (
    (0.4, 0.9),
    1.45,
)  # of the map: the part of its panel that holds points, and the panel's width by its height
SHOWN = 3  # methods that a picture needs

INTRO = """# Atlas of methods

Each method was given the same rollouts of the same model. What is compared is the direction in which it would move the
weights: minus the gradient of its objective, before the optimiser. A cosine of 1 means that two methods do the same here, 0
that they have nothing in common, -1 that one undoes what the other does. Sizes are no part of a direction; an optimiser such
as Adam mostly removes them. The maps place methods so that distances come close to those of their directions.

Written by `palaestra atlas --out docs` from [atlas.json](atlas.json): model `{model}`, {samples} answers a group, seed {seed}.
{note}"""


def page(data: Data) -> str:
    """docs/atlas.md."""
    measured = {m for c in data["batches"].values() for m in (*c["methods"], *c["still"])}
    note = f"{len(measured)} methods ran on at least one of {len(data['batches'])} batches."
    blocks = [INTRO.format(**data, note=note), *between(data)]
    for name, c in data["batches"].items():
        blocks += [f"## {name.capitalize()}", f"{c['groups']} groups of `{c['task']}`: {c['about']}."]
        blocks += [f"![Cosines and map of the batch {name}](atlas-{name}.png)"] if len(c["methods"]) >= SHOWN else []
        blocks += ["\n".join(f"- {line}" for line in findings(c)), *sizes(c)]
    return "\n\n".join([*blocks, *refused(data)]) + "\n"


# ---- in words


def findings(c: Data) -> list[str]:
    """What one batch shows."""
    methods, cosine = c["methods"], np.array(c["cosine"])
    groups = alike(methods, cosine)
    lines = [f"The same direction (cosine at least {SAME}): {joined(g, ' = ')}." for g in groups if len(g) > 1]
    if c["still"]:
        lines.append(f"Nothing to learn here, so nothing would move: {joined(c['still'])}.")
    heads = [methods.index(g[0]) for g in groups]
    pairs = sorted(((cosine[i, j], i, j) for i, j in combinations(heads, 2)), reverse=True)
    near = [f"{methods[i]} and {methods[j]} ({x:.2f})" for x, i, j in pairs if x >= NEAR]
    if near:
        lines.append(f"Nearly the same (at least {NEAR}): {joined(near[:12])}" + (" and more." if near[12:] else "."))
    against = [f"{methods[i]} and {methods[j]} ({x:.2f})" for x, i, j in reversed(pairs) if x < -0.05]
    if against:
        lines.append(f"Against one another: {joined(against[:8])}" + (" and more." if against[8:] else "."))
    if len(heads) > 2:
        best = {i: max(cosine[i, j] for j in heads if j != i) for i in heads}
        alone = min(best, key=lambda i: best[i])
        lines.append(
            f"The most on its own: {methods[alone]}, whose nearest neighbour has a cosine of {best[alone]:.2f}."
        )
    return lines or ["Only one method moves."]


def between(data: Data) -> list[str]:
    """What holds on all batches, and what parts methods that are the same on fresh mixed groups."""
    batches = data["batches"]
    if "mixed" not in batches:
        return []
    lines: list[str] = []
    for group in alike(batches["mixed"]["methods"], np.array(batches["mixed"]["cosine"])):
        apart: list[str] = []
        for name, c in batches.items():
            here = [m for m in group if m in c["methods"]]
            places = [c["methods"].index(m) for m in here]
            parts = alike(here, np.array(c["cosine"])[np.ix_(places, places)]) if here else []
            still = [m for m in group if m in c["still"]]
            if len(parts) > 1 or (here and still):
                told = [" = ".join(p) for p in parts] + ([f"{joined(still)} move nothing"] if still else [])
                apart.append(f"{name}: {' | '.join(told)}")
        if len(group) > 1:
            rest = f"They part on {'; '.join(apart)}." if apart else "No batch parts them."
            lines.append(f"- {joined(group, ' = ')} on fresh mixed groups. {rest}")
    moving = {n: c["methods"] for n, c in batches.items() if n in ("solved", "failed") and c["methods"]}
    lines += [f"- Groups that are all {n}: only {joined(ms)} learn from them." for n, ms in moving.items()]
    return ["## What is the same, and where it parts", "\n".join(lines)] if lines else []


def sizes(c: Data) -> list[str]:
    """Of each method its neighbours and the length of its direction."""
    methods, cosine = c["methods"], np.array(c["cosine"])
    if len(methods) < 2:
        return []
    unit = c["norms"][methods.index("grpo")] if "grpo" in methods else float(np.median(c["norms"]))
    rows = []
    for i, m in enumerate(methods):
        others = [j for j in range(len(methods)) if j != i]
        near, far = max(others, key=lambda j: cosine[i, j]), min(others, key=lambda j: cosine[i, j])
        told = [f"{methods[j]} ({cosine[i, j]:.2f})" for j in (near, far)]
        rows.append((m, *told, f"{c['norms'][i] / unit:.2g}"))
    base = "grpo" if "grpo" in methods else "the median"
    return ["\n".join(table(("method", "nearest (cosine)", "farthest (cosine)", f"length against {base}"), rows))]


def refused(data: Data) -> list[str]:
    why: dict[tuple[str, str], list[str]] = {}
    for name, c in data["batches"].items():
        for method, reason in c["refused"].items():
            why.setdefault((method, reason), []).append(name)
    if not why:
        return []
    every = len(data["batches"])
    rows = [(m, "all" if len(on) == every else ", ".join(on), reason) for (m, reason), on in sorted(why.items())]
    return ["## Not on the map", "\n".join(table(("method", "batches", "why"), rows))]


def joined(names: Sequence[str], by: str = ", ") -> str:
    return by.join(names)


# ---- in pictures


def picture(name: str, c: Data, path: Path) -> None:
    """Left the cosines, right the map; methods with the same direction are one row and one point."""
    from matplotlib.figure import Figure

    methods, cosine, places = c["methods"], np.array(c["cosine"]), np.array(c["places"])
    groups = sorted(alike(methods, cosine), key=lambda g: places[methods.index(g[0])][0])
    heads = [methods.index(g[0]) for g in groups]
    with styled():
        side = max(4.2, 0.27 * len(groups) + 1.7)
        figure = Figure(figsize=(2.25 * side, side), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.2))
        _matrix(left, [_short(g) for g in groups], cosine[np.ix_(heads, heads)])
        _map(right, groups, places[heads])
        right.set_title(f"the map holds {100 * c['kept']:.0f}% of the squared distances", color=MUTED)
        figure.suptitle(f"{name}: update directions", x=0.012, ha="left", fontsize=13, fontweight="bold")
        save(figure, path)


def _short(group: Sequence[str]) -> str:
    return group[0] + (f" +{len(group) - 1}" if group[1:] else "")


def _matrix(axes: Axes, names: Sequence[str], cosine: np.ndarray) -> None:
    n = len(names)
    axes.imshow(np.array([[diverging(x) for x in row] for row in cosine]), aspect="equal")
    axes.set_xticks(range(n), names, rotation=90)
    axes.set_yticks(range(n), names)
    axes.tick_params(length=0, labelcolor=INK)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_title("cosine of the directions", color=MUTED)
    if n <= 16:
        for i, j in np.ndindex(n, n):
            told = f"{cosine[i, j]:.2f}".replace("-", "−").replace("0.", ".", 1) if i != j else ""
            colour = "white" if abs(cosine[i, j]) > 0.6 else INK
            axes.text(j, i, told, ha="center", va="center", fontsize=7, color=colour)


def _map(axes: Axes, groups: Sequence[Sequence[str]], places: np.ndarray) -> None:
    """Points with their names in a column on their side, joined by thin lines: names never cover one another."""
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
        for slot, i in enumerate(map(int, members)):
            y = (slot + 0.5) / len(members)
            x, colour = (0.74, 0.26)[1 - side], PALETTE[i % len(PALETTE)]
            axes.plot([at[i, 0], x], [at[i, 1], y], color=LINE, linewidth=1, zorder=1)
            axes.plot(*at[i], "o", color=colour, markersize=8, zorder=3)
            names = list(groups[i])
            pairs = [" = ".join(names[k : k + 2]) for k in range(0, len(names), 2)]
            label = "\n= ".join(pairs)
            offset = 4 if side else -4
            axes.annotate(
                label, (x, y), (offset, 0), textcoords="offset points", ha="left" if side else "right", va="center",
                color=colour, fontsize=8.5, fontweight="bold",
            )  # fmt: skip
