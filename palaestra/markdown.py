"""Text for people and programs: pages from templates, Markdown tables, JSON in readable lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDERS = re.compile(r"(?<![\w.:/])/(?:[^\s/'\"()]+/)+")  # of an absolute path, not of an address


TEMPLATES = Path(__file__).parent / "templates"


@cache
def environment(folder: Path = TEMPLATES) -> Environment:
    """The templates of a folder, by default those of the package. In those of HTML every text is
    escaped.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=select_autoescape(),
        finalize=lambda x: escape_controls(x) if type(x) is str else x,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"table": table, "code": code}
    return made


def render(template: str, **given: Any) -> str:
    """A page from its template. Raises UndefinedError for a name that is not given."""
    return environment().get_template(template).render(given)


# of the control characters but line feed and tab; those of eight bits have none
PICTURES: dict[int, int | str] = {
    **{c: 0x2400 + c for c in range(32) if chr(c) not in "\n\t"},
    0x7F: "␡",
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}


def escape_controls(text: str) -> str:
    """Control characters as their pictures: they are no HTML, a terminal obeys them, and they must
    be seen. Halves of characters as `?`.
    """
    return text.translate(PICTURES).encode("utf-8", "replace").decode()


def hide_folders(text: str, here: Path | None = None) -> str:
    """Text in which absolute paths begin with their last name, so that it can be shown to others:
    folders often name a person. What lies in the folder `here` is told as from there.
    """
    if here is not None:
        text = text.replace(f"{here}/", "")
    return FOLDERS.sub("…/", text.replace(f"{Path.home()}/", "/…/"))


def table(rows: Iterable[Sequence[str]], *head: str) -> str:
    """Rows below their head; a bar inside a cell does not end it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in lines
    )


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def line_by_name(data: Mapping[str, Any]) -> str:
    """JSON with a line for each name, and no space between: files of which a package holds hundreds."""
    compact = lambda value: json.dumps(value, separators=(",", ":"))
    lines = [f"{json.dumps(name)}:{compact(value)}" for name, value in data.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def paper_link(paper: str) -> str:
    """A paper as cards name it, "arXiv:2402.03300" or "doi:...", linked to its place; other text as
    it is.
    """
    kind, _, number = paper.partition(":")
    place = {"arXiv": "https://arxiv.org/abs/", "doi": "https://doi.org/"}.get(kind)
    return f"[{paper}]({place}{number})" if place else paper


def fill_marks(text: str, made: Mapping[str, str]) -> str:
    """A page with these parts between their marks: `<!-- NAME: ... -->` and `<!-- end of NAME -->`,
    each on its line.
    """
    for name, part in made.items():
        marks = re.compile(rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        if not marks.search(text):
            raise ValueError(f"the page has no marks for {name!r}")
        text = marks.sub(lambda match, part=part: f"{match[1]}\n{part}\n\n{match[2]}", text)
    return text
