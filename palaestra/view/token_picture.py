"""A real group of answers, each token coloured by the weight that a method gives it.

The weight multiplies the gradient of the token's log-prob: blue makes it likelier, orange less
likely.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.explanation.recorded import Answer, Explained
from palaestra.markdown import escape_controls, render
from palaestra.store.checkpoint import write_atomic
from palaestra.view.drawing import INK, MUTED, PAPER, drawing_style, save, short_number
from palaestra.view.plots import diverging_colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 96  # characters of a line
SIZE, LEADING = 0.088, 0.24  # inches of a character and of a line
MOST = 400  # tokens drawn of an answer
LEGEND = 21  # steps of the scale of colours


# ---- drawing


def write(explained: Explained, path: Path) -> None:
    """As a page where the name ends with .html, else as a picture."""
    if path.suffix == ".html":
        write_atomic(path, page(explained))
    else:
        with drawing_style():
            save(figure(explained), path)


def largest_weight(explained: Explained) -> float:
    return max((abs(w) for a in explained.answers for w in a.weights), default=0.0) or 1.0


def describe_answer(a: Answer) -> str:
    reward, advantage, weight = (
        short_number(a.reward),
        short_number(a.advantage),
        short_number(a.weights),
    )
    return f"reward {reward}   advantage {advantage}   weight of a token {weight}"


def show_token(token: str) -> str:
    """A token for the eye: white space must be seen, and must not break the line."""
    return escape_controls(token).replace("\n", "⏎").replace("\t", "⇥").replace(" ", "·") or "·"


def lines_of(a: Answer) -> list[list[tuple[str, float]]]:
    """Tokens in lines; a line ends where the text does, or where it is full."""
    lines: list[list[tuple[str, float]]] = [[]]
    used = 0
    for token, weight in list(zip(a.tokens, a.weights, strict=True))[:MOST]:
        text = show_token(token)
        if used and used + len(text) > WIDTH:
            lines.append([])
            used = 0
        lines[-1].append((text, weight))
        used += len(text) + 1
        if token.endswith("\n"):
            lines.append([])
            used = 0
    return [line for line in lines if line]


def figure(explained: Explained) -> Figure:
    """Answers below one another, best first, in a fixed-width face; a scale of colours on top."""
    from matplotlib.figure import Figure

    scale, answers = (
        largest_weight(explained),
        [(describe_answer(a), lines_of(a)) for a in explained.answers],
    )
    rows = 5.8 + sum(len(lines) + 1.7 for _, lines in answers)
    longest = max(
        (sum(len(text) + 0.25 for text, _ in line) for _, lines in answers for line in lines),
        default=0,
    )
    width = max(longest, len(explained.method) + 3.5 * LEGEND)
    figure = Figure(figsize=(width * SIZE + 0.6, rows * LEADING))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")
    axes.set_xlim(-0.3 / SIZE, width + 0.3 / SIZE)
    axes.set_ylim(rows, 0)
    write_at: dict[str, Any] = {"va": "center", "ha": "left"}
    axes.text(
        0,
        1.0,
        f"{explained.method}: weight of each token",
        fontsize=13,
        fontweight="bold",
        **write_at,
    )
    prompt = " ".join(escape_controls(explained.prompt).split())
    axes.text(
        0,
        2.3,
        prompt if len(prompt) <= width else f"{prompt[: int(width) - 1]}…",
        color=MUTED,
        **write_at,
    )
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

    axes.add_patch(
        Rectangle(
            (x, y - 0.42), len(text) + 0.1, 0.84, facecolor=diverging_colour(share), linewidth=0
        )
    )
    style: dict[str, Any] = {
        "family": "DejaVu Sans Mono",
        "fontsize": 9,
        "va": "center",
        "ha": "left",
    }
    axes.text(x + 0.05, y, text, color="white" if abs(share) > 0.62 else INK, **style)


def _legend(axes: Any, scale: float) -> None:
    from matplotlib.patches import Rectangle

    left, y = 16.0, 3.6
    for i in range(LEGEND):
        colour = diverging_colour(2 * i / (LEGEND - 1) - 1)
        axes.add_patch(Rectangle((left + i, y - 0.3), 1, 0.6, facecolor=colour, linewidth=0))
    style: dict[str, Any] = {"fontsize": 8.5, "color": MUTED, "va": "center"}
    axes.text(left - 1, y, f"{short_number(-scale)} less likely", ha="right", **style)
    axes.text(left + LEGEND + 1, y, f"likelier {short_number(scale)}", ha="left", **style)


def page(explained: Explained) -> str:
    """One file, no script; pointing at a token tells its weight."""
    scale = largest_weight(explained)
    return render(
        "tokens.html",
        method=explained.method,
        prompt=explained.prompt,
        answers=[
            (describe_answer(a), list(zip(a.tokens, a.weights, strict=True)))
            for a in explained.answers
        ],
        ends=(short_number(-scale), short_number(scale)),
        legend=[2 * i / (LEGEND - 1) - 1 for i in range(LEGEND)],
        scale=scale,
        shown=show_token,
        css=css,
        colours={"ink": INK, "muted": MUTED, "paper": PAPER},
    )


def css(share: float) -> str:
    r, g, b = (round(255 * x) for x in diverging_colour(share))
    return f"background:rgb({r},{g},{b});" + ("color:#fff" if abs(share) > 0.62 else "")
