"""The house before and after: `python -m tools.house BEFORE --page docs/code.md --drawing docs/house.svg`.

BEFORE is a commit. Rooms are the folders and files of `palaestra/`; lines are non-blank lines of Python. The drawing has the
layers of import-linter's contract in `pyproject.toml` at both commits: each room imports from lower rows alone.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import tarfile
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from palaestra.markdown import fill_marks, table

ROOT = Path(__file__).parents[1]
# rooms that the run of a user goes through, whatever the method
CORE = (
    "chat", "credit", "curriculum", "engines", "judges", "models", "objective", "rewards", "rollout", "run", "scale",
    "services", "settings", "store", "tasks", "terminal", "trackers",
)  # fmt: skip
METHODS = ("recipes", "claims", "worlds", "toys", "verifiers", "control", "games", "search")
ROW, BOX, GAP, TOP = (
    22,
    440,
    40,
    34,
)  # pixels: of a layer, of a house, between the two, of the titles
COLOURS = {"core": "#cfe3f7", "methods": "#f7e3c6", "rest": "#e8e8e8"}

Layers = Sequence[Sequence[str]]


def snapshot(commit: str) -> Mapping[str, str]:
    """The Python files of the package, and `pyproject.toml`, at a commit; "" = as they lie here."""
    if not commit:
        files = [*(ROOT / "palaestra").rglob("*.py"), ROOT / "pyproject.toml"]
        return {str(f.relative_to(ROOT)): f.read_text(encoding="utf-8") for f in files}
    order = ["git", "archive", commit, "palaestra", "pyproject.toml"]
    packed = subprocess.run(order, cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        files = {m.name: tar.extractfile(m) for m in tar if m.name.endswith((".py", ".toml"))}
        return {name: f.read().decode() for name, f in files.items() if f is not None}


def lines_by_room(files: Mapping[str, str]) -> Counter[str]:
    """Non-blank lines of Python."""
    lines = Counter[str]()
    for name, text in files.items():
        package, _, inside = name.partition("/")
        if package == "palaestra" and name.endswith(".py"):
            room = inside.partition("/")[0].removesuffix(".py")
            lines[room] += sum(bool(line.strip()) for line in text.splitlines())
    return lines


def layers_of(files: Mapping[str, str]) -> Layers:
    """The rooms of each layer, the highest first."""
    contracts = tomllib.loads(files["pyproject.toml"])["tool"]["importlinter"]["contracts"]
    return [row.split(" | ") for row in contracts[0]["layers"]]


def draw(before: Layers, after: Layers, lines: Sequence[Mapping[str, int]], commit: str) -> str:
    """Both houses as a picture, their ground on one line."""
    rows = max(len(before), len(after))
    width, height = 2 * BOX + GAP, TOP + rows * ROW + 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="10" text-anchor="middle">',
        f"<title>The layers of the package at {commit} and today</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    titles = (f"at {commit}", "today")
    for x, layers, counts, title in zip(
        (0, BOX + GAP), (before, after), lines, titles, strict=True
    ):
        total = f"{sum(counts.values()):,} lines"
        parts.append(f'<text x="{x + BOX / 2}" y="20" font-size="14">{title}: {total}</text>')
        for i, layer in enumerate(layers, rows - len(layers)):
            wide = BOX / len(layer)
            for j, room in enumerate(layer):
                kind = "core" if room in CORE else "methods" if room in METHODS else "rest"
                left, top = x + j * wide, TOP + i * ROW
                said = f"{room} {counts[room]:,}" if counts[room] >= 1000 else room
                parts.append(
                    f'<rect x="{left + 1:.1f}" y="{top}" width="{wide - 2:.1f}" height="{ROW - 2}" '
                    f'fill="{COLOURS[kind]}"/><text x="{left + wide / 2:.1f}" y="{top + 14}">'
                    f"{escape(said)}</text>"
                )
    return "\n".join([*parts, "</svg>", ""])


def rooms_table(before: Counter[str], after: Counter[str]) -> str:
    """Lines by room: the core's rooms, the methods' and the others."""
    least = 1000  # lines at either time, of a room with a row of its own

    def row(name: str, rooms: Sequence[str]) -> tuple[str, ...]:
        n, m = sum(before[r] for r in rooms), sum(after[r] for r in rooms)
        return name, f"{n:,}", f"{m:,}", f"{m / n - 1:+.0%}" if n else "new"

    others = [r for r in before | after if r not in (*CORE, *METHODS)]
    rows: list[tuple[str, ...]] = []
    for title, rooms in (("the core", CORE), ("methods", METHODS), ("the rest", others)):
        rows.append(row(f"**{title}**", rooms))
        large = sorted(
            (r for r in rooms if max(before[r], after[r]) >= least), key=lambda r: -after[r]
        )
        rows += [row(f"`{r}`", [r]) for r in large]
        small = [r for r in rooms if r not in large]
        rows += [row(f"{len(small)} smaller ones", small)] if small else []
    return table([*rows, row("**all**", [*(before | after)])], "room", "before", "today", "change")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("before")
    parser.add_argument("--page", type=Path, required=True)
    parser.add_argument("--drawing", type=Path, required=True)
    given = parser.parse_args()
    files = snapshot(given.before), snapshot("")
    lines = [lines_by_room(f) for f in files]
    picture = draw(layers_of(files[0]), layers_of(files[1]), lines, given.before)
    given.drawing.write_text(picture, encoding="utf-8")
    page = given.page.read_text(encoding="utf-8")
    given.page.write_text(fill_marks(page, {"rooms": rooms_table(*lines)}), encoding="utf-8")


if __name__ == "__main__":
    main()
