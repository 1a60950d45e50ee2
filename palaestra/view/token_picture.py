"""A real group of answers, each token coloured by the weight that a method gives it.

The weight multiplies the gradient of the token's log-prob: blue makes it likelier, orange less likely.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.explanation.recorded import Answer, Explained
from palaestra.markdown import render, visible
from palaestra.store.checkpoint import write_atomic
from palaestra.view.drawing import INK, MUTED, PAPER, save, short, styled
from palaestra.view.plots import diverging

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 96  # characters of a line
SIZE, LEADING = 0.088, 0.24  # inches of a character and of a line
MOST = 400  # tokens drawn of an answer
LEGEND = 21  # steps of the scale of colours


# ---- drawing


def write(found: Explained, path: Path) -> None:
    """As a page where the name ends with .html, else as a picture."""
    if path.suffix == ".html":
        write_atomic(path, page(found))
    else:
        with styled():
            save(figure(found), path)


def largest(found: Explained) -> float:
    return max((abs(w) for a in found.answers for w in a.weights), default=0.0) or 1.0


def told(a: Answer) -> str:
    return f"reward {short(a.reward)}   advantage {short(a.advantage)}   weight of a token {short(a.weights)}"


def shown(token: str) -> str:
    """A token for the eye: white space must be seen, and must not break the line."""
    return visible(token).replace("\n", "⏎").replace("\t", "⇥").replace(" ", "·") or "·"


def lines_of(a: Answer) -> list[list[tuple[str, float]]]:
    """Tokens in lines; a line ends where the text does, or where it is full."""
    lines: list[list[tuple[str, float]]] = [[]]
    used = 0
    for token, weight in list(zip(a.tokens, a.weights, strict=True))[:MOST]:
        text = shown(token)
        if used and used + len(text) > WIDTH:
            lines.append([])
            used = 0
        lines[-1].append((text, weight))
        used += len(text) + 1
        if token.endswith("\n"):
            lines.append([])
            used = 0
    return [line for line in lines if line]


def figure(found: Explained) -> Figure:
    """Answers below one another, best first, in a fixed-width face; a scale of colours on top."""
    from matplotlib.figure import Figure

    scale, answers = largest(found), [(told(a), lines_of(a)) for a in found.answers]
    rows = 5.8 + sum(len(lines) + 1.7 for _, lines in answers)
    longest = max((sum(len(text) + 0.25 for text, _ in line) for _, lines in answers for line in lines), default=0)
    width = max(longest, len(found.method) + 3.5 * LEGEND)
    figure = Figure(figsize=(width * SIZE + 0.6, rows * LEADING))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    axes.set_xlim(-0.3 / SIZE, width + 0.3 / SIZE)
    axes.set_ylim(rows, 0)
    write_at: dict[str, Any] = {"va": "center", "ha": "left"}
    axes.text(0, 1.0, f"{found.method}: weight of each token", fontsize=13, fontweight="bold", **write_at)
    prompt = " ".join(visible(found.prompt).split())
    axes.text(0, 2.3, prompt if len(prompt) <= width else f"{prompt[: int(width) - 1]}…", color=MUTED, **write_at)
    _legend(axes, scale)
    y = 5.2
    for head, lines in answers:
        axes.text(0, y, head, fontsize=9, color=INK, **write_at)
        for line in lines:
            y, x = y + 1, 0.0
            for text, weight in line:
                _token(axes, x, y, text, weight / scale)
                x += len(text) + 0.25
        y += 1.7
    return figure


def _token(axes: Any, x: float, y: float, text: str, share: float) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x, y - 0.42), len(text) + 0.1, 0.84, facecolor=diverging(share), linewidth=0))
    style: dict[str, Any] = {"family": "DejaVu Sans Mono", "fontsize": 9, "va": "center", "ha": "left"}
    axes.text(x + 0.05, y, text, color="white" if abs(share) > 0.62 else INK, **style)


def _legend(axes: Any, scale: float) -> None:
    from matplotlib.patches import Rectangle

    left, y = 16.0, 3.6
    for i in range(LEGEND):
        colour = diverging(2 * i / (LEGEND - 1) - 1)
        axes.add_patch(Rectangle((left + i, y - 0.3), 1, 0.6, facecolor=colour, linewidth=0))
    style: dict[str, Any] = {"fontsize": 8.5, "color": MUTED, "va": "center"}
    axes.text(left - 1, y, f"{short(-scale)} less likely", ha="right", **style)
    axes.text(left + LEGEND + 1, y, f"likelier {short(scale)}", ha="left", **style)


def page(found: Explained) -> str:
    """One file, no script; pointing at a token tells its weight."""
    scale = largest(found)
    return render(
        "tokens.html",
        method=found.method,
        prompt=found.prompt,
        answers=[(told(a), list(zip(a.tokens, a.weights, strict=True))) for a in found.answers],
        ends=(short(-scale), short(scale)),
        legend=[2 * i / (LEGEND - 1) - 1 for i in range(LEGEND)],
        scale=scale,
        shown=shown,
        css=css,
        colours={"ink": INK, "muted": MUTED, "paper": PAPER},
    )


def css(share: float) -> str:
    r, g, b = (round(255 * x) for x in diverging(share))
    return f"background:rgb({r},{g},{b});" + ("color:#fff" if abs(share) > 0.62 else "")
