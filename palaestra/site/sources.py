"""Where the documentation lies, and the tree of files that the site is built from.

The tree has the paths of the repository, so that a link between two pages is the same link in a
checkout, on a code host and on the site. What is generated is written into the tree alone.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

import palaestra
from palaestra.errors import UserError
from palaestra.ledger.files import declarations, folder

PACKAGE = Path(palaestra.__file__).parent
PAGES = ("README.md", "CATALOGUE.md", "CONTRIBUTING.md", "CHANGELOG.md")
INSIDE = ("models/tiny/README.md", "models/tiny_agent/README.md", "view/page/vendor/README.md")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"(```.*?```)", re.DOTALL)


def root() -> Path:
    """The folder with README.md and docs/: the checkout that this package is of, or this folder.

    Raises:
        UserError: neither holds the pages, which are no part of an installed package.
    """
    for place in (PACKAGE.parent, Path.cwd()):
        if (place / "docs" / "howto.md").is_file() and (place / "CATALOGUE.md").is_file():
            return place
    raise UserError(
        "the pages of the documentation are not here: run `palaestra docs` in a copy of the "
        "repository, which has README.md and docs/"
    )


def copy_sources(tree: Path, generated: Iterable[str]) -> None:
    """Writes the pages, pictures and results into a folder that is empty or not there.

    Args:
        generated: paths of pages that will also be in the tree, which others may link to.
    """
    here = root()
    shutil.copytree(here / "docs", tree / "docs")
    for name in PAGES:
        if (here / name).is_file():
            shutil.copy(here / name, tree / name)
    for name in INSIDE:
        target = tree / "palaestra" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE / name, target)
    for source, name in ((folder(), "results"), (declarations(), "declared")):
        shutil.copytree(source, tree / "ledger" / name)
    if (here / "benchmarks").is_dir():
        shutil.copytree(here / "benchmarks", tree / "benchmarks")
    known = {p.relative_to(tree).as_posix() for p in tree.rglob("*") if p.is_file()}
    known |= set(generated)
    for page in tree.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        text = without_dead_links(text, page.relative_to(tree), known)
        page.write_text(with_bars(text), encoding="utf-8")


def without_dead_links(text: str, page: Path, known: set[str]) -> str:
    """The page with the links that leave the tree as text: to folders and files of the code."""

    def mend(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        path = target.partition("#")[0]
        if not path or ":" in path or inside(page.parent / path) in known:
            return match[0]
        return match[0] if picture else f"{label} (`{inside(page.parent / path)}`)"

    parts = FENCE.split(text)
    return "".join(p if p.startswith("```") else LINK.sub(mend, p) for p in parts)


def with_bars(text: str) -> str:
    """The page with the bars of code inside tables as characters of HTML: code hosts take the
    backslash before them away, Python-Markdown does not.
    """
    bar = re.compile(r"`([^`\n]*\\\|[^`\n]*)`")
    as_html = lambda m: (
        f"<code>{escape(m[1].replace(chr(92) + '|', '|')).replace('|', '&#124;')}</code>"
    )
    lines = text.split("\n")
    return "\n".join(bar.sub(as_html, x) if x.startswith("| ") else x for x in lines)


def inside(path: Path) -> str:
    """A path without its `..`."""
    made: list[str] = []
    for part in path.as_posix().split("/"):
        if part == ".." and made:
            made.pop()
        elif part not in (".", ""):
            made.append(part)
    return "/".join(made)


def write_pages(tree: Path, pages: Mapping[str, str]) -> None:
    """Writes generated pages by their paths in the tree."""
    for name, text in pages.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(with_bars(text), encoding="utf-8")
