"""The tables of docs/beside.md: python -m tools.beside.page docs/beside.md FOLDER

FOLDER holds git repositories of TRL, verifiers and prime-rl, called `trl`, `verifiers` and
`prime-rl`, that have the commits of `programs.toml`. Lines are counted as the page says.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from palaestra.markdown import fill_marks, table

WIDTH = 100  # columns
LAYOUT = ["ruff", "format", "--isolated", f"--line-length={WIDTH}"]
LAYOUT += ["--config", "format.skip-magic-trailing-comma=true", "-"]
SOURCES: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("programs.toml").read_text())
LIBRARIES = {"trl": "TRL", "verifiers": "verifiers", "prime-rl": "prime-rl"}
BESIDE = ("trl", "verifiers")
KINDS = ("python", "docstrings", "configuration", "commands")
LANGUAGES = {"python": "python", "toml": "configuration", "": "commands"}
SPACE = {tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT, tokenize.ENDMARKER}
Counts: TypeAlias = Mapping[tuple[int, str], Counter[str]]  # by task, and whose document it is


def count_python(text: str) -> Counter[str]:
    """Lines that hold code once ruff has laid them out; those of docstrings apart."""
    laid = subprocess.run(LAYOUT, input=text, capture_output=True, text=True, check=True).stdout
    filled = [bool(line.strip()) for line in laid.splitlines()]
    lines: dict[str, set[int]] = {"python": set(), "docstrings": set()}
    first = True  # on a logical line
    for token in tokenize.generate_tokens(io.StringIO(laid).readline):
        if token.type == tokenize.NEWLINE:
            first = True
        elif token.type not in SPACE:
            kind = "docstrings" if first and token.type == tokenize.STRING else "python"
            spanned = range(token.start[0], token.end[0] + 1)
            lines[kind] |= {n for n in spanned if filled[n - 1]}
            first = False
    return Counter({kind: len(found) for kind, found in lines.items()})


def count_lines(text: str, kind: str) -> Counter[str]:
    """The lines of a text that is python, configuration or commands."""
    if kind == "python":
        return count_python(text)
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    return Counter({kind: sum(bool(line) and line[0] != "#" for line in lines)})


def count_page(page: str) -> Counts:
    """Our programs: the blocks of `### Beside NAME` in `## N. TITLE`."""
    found: dict[tuple[int, str], Counter[str]] = {}
    for part in re.split(r"^## ", page, flags=re.MULTILINE):
        for section in re.split(r"^### Beside ", part, flags=re.MULTILINE)[1:]:
            blocks = re.findall(r"^```(\w*)\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
            counts = (count_lines(text, LANGUAGES[language]) for language, text in blocks)
            found[int(part[0]), section.splitlines()[0].lower()] = sum(counts, Counter[str]())
    return found


def count_theirs(folder: Path) -> Counts:
    """The programs of the other libraries' documents."""
    return {
        (program["task"], program["of"]): sum(
            (count_lines(cut(folder, program["of"], p), p["kind"]) for p in program["pieces"]),
            Counter[str](),
        )
        for program in SOURCES["program"]
    }


def cut(folder: Path, of: str, piece: Mapping[str, Any]) -> str:
    """The lines of a piece at its commit, one range after the other."""
    where = f"{SOURCES[of]['commit']}:{piece['path']}"
    shown = ["git", "-C", str(folder / of), "show", where]
    lines = subprocess.run(shown, capture_output=True, text=True, check=True).stdout.splitlines()
    ranges = piece.get("lines", [[1, len(lines)]])
    return "\n".join(line for a, b in ranges for line in lines[a - 1 : b]) + "\n"


def link(of: str, piece: Mapping[str, Any]) -> str:
    """A piece at its commit, its lines marked."""
    path, source = piece["path"], SOURCES[of]
    url = f"https://github.com/{source['repository']}/blob/{source['commit']}/{path}"
    name = f"{Path(path).parent.name}/{Path(path).name}"
    if "lines" not in piece:
        return f"[{name}]({url})"
    ranges = (
        f"[{a if a == b else f'{a}-{b}'}]({url}?plain=1#L{a}-L{b})" for a, b in piece["lines"]
    )
    return f"{name} {', '.join(ranges)}"


def overview(page: str, ours: Counts, theirs: Counts) -> str:
    """A row a task: lines of each document's program, and of ours for the same."""
    titles = re.findall(r"^## (\d)\. (.*)$", page, re.MULTILINE)
    rows = [
        [f"{n}. {title}"]
        + [
            total(side[int(n), of]) if (int(n), of) in side else " "
            for of in BESIDE
            for side in (theirs, ours)
        ]
        for n, title in titles
    ]
    return table(rows, "task", *(x for of in BESIDE for x in (LIBRARIES[of], "Palaestra")))


def details(ours: Counts, theirs: Counts) -> str:
    """A row a program: where it stands, and its lines by what they are."""
    rows: list[list[str]] = []
    for program in SOURCES["program"]:
        at = program["task"], program["of"]
        where = "; ".join(link(program["of"], piece) for piece in program["pieces"])
        task = str(program["task"] or "training")
        rows.append([task, LIBRARIES[program["of"]], where, *numbers(theirs[at])])
        if at in ours:
            rows.append([task, "Palaestra", "below", *numbers(ours[at])])
    return table(rows, "task", "whose", "where", *KINDS, "all")


def total(counts: Counter[str]) -> str:
    """All lines, and in brackets how many of them are docstrings."""
    documented = f" ({counts['docstrings']})" if counts["docstrings"] else ""
    return f"{counts.total()}{documented}"


def numbers(counts: Counter[str]) -> list[str]:
    return [str(counts[kind]) for kind in KINDS] + [str(counts.total())]


if __name__ == "__main__":
    place, repositories = map(Path, sys.argv[1:])
    written = place.read_text()
    counted = count_page(written), count_theirs(repositories)
    made = {"lines": overview(written, *counted), "programs": details(*counted)}
    place.write_text(fill_marks(written, made))
