"""Builds the documentation site: the pages of the repository and those that are generated, in one
folder of plain files that any server can show, and that asks no other server for anything.

Zensical makes the HTML. It is imported in a process of its own, and only here.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w

from palaestra import catalogue
from palaestra.errors import Fault, UserError
from palaestra.site import methods, reference, sources

NAV: Mapping[str, tuple[str, ...]] = {  # files, or folders that end in /
    "Tutorial": ("docs/first-run.md", "docs/questions.md", "docs/examples.md", "docs/one-row.md",
        "docs/beside.md", "docs/errands.md"),
    "How to": (
        "docs/howto.md", "docs/rewards.md", "docs/judges.md", "docs/environments.md",
        "docs/agents.md", "docs/documents.md", "docs/pictures.md", "docs/sounds.md", "docs/fields.md",
        "docs/models.md", "docs/engines.md",
        "docs/search.md", "docs/studies.md",
        "docs/games.md", "docs/sandbox.md",
        "docs/viewer.md",
        "docs/trackers.md", "docs/cluster.md", "docs/gpu-path.md", "docs/plan.md", "docs/control.md", "docs/inside.md",
        "CONTRIBUTING.md",
    ),
    "Reference": (
        "reference/commands.md", "reference/settings.md", "reference/rollouts.md",
        "reference/python/", "docs/parts.md", "docs/versions.md", "CHANGELOG.md",
    ),
    "Explanation": (
        "docs/ledger.md", "docs/grades.md", "docs/what-holds.md", "docs/curricula.md", "docs/atlas.md", "docs/exact.md",
        "docs/runs.md", "docs/speed.md",
        "docs/surveys/",
    ),
    "Methods": ("methods.md", "CATALOGUE.md"),
}  # fmt: skip
METHODS = "Methods"  # the last of them, with a page for each below it
MORE = "Explanation"  # where pages of docs/ stand that are not named above
COLOURS = (
    {"media": "(prefers-color-scheme)", "toggle": {"icon": "lucide/sun-moon", "name": "Light"}},
    {"media": "(prefers-color-scheme: light)", "scheme": "default",
     "toggle": {"icon": "lucide/sun", "name": "Dark"}},
    {"media": "(prefers-color-scheme: dark)", "scheme": "slate",
     "toggle": {"icon": "lucide/moon", "name": "As the system"}},
)  # fmt: skip
FAMILIES = {"llm4rl": "Language models for RL", "base": "Base methods"}
INSTALL = "pip install '.[docs]'"


def build(
    target: Path, parsers: Mapping[str, argparse.ArgumentParser], scratch: Path | None = None
) -> Path:
    """Builds the site into a folder, which is made anew.

    Args:
        parsers: of the verbs of the command line, for their reference.
        scratch: where the pages are gathered first; None = a folder that is removed.

    Raises:
        UserError: Zensical or the pages are not here, or the folder holds something else.
        Fault: Zensical could not build them.
    """
    check_generator()
    check_target(target)
    with tempfile.TemporaryDirectory() as made:
        place = scratch or Path(made)
        gather(place / "pages", parsers)
        (place / "zensical.toml").write_text(tomli_w.dumps(settings(place / "pages")))
        ran = subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--clean"],
            cwd=place, capture_output=True, text=True, check=False,
        )  # fmt: skip
        site = place / "site"
        if ran.returncode or not (site / "index.html").is_file():
            raise Fault(f"docs: zensical failed: {(ran.stderr or ran.stdout).strip()[-300:]}")
        if target.exists():
            shutil.rmtree(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(site, target)
    return target


def check_generator() -> None:
    """A UserError where the generator is not installed."""
    if importlib.util.find_spec("zensical") is None:
        raise UserError(f"the documentation is built by Zensical, which is not here: {INSTALL}")


def check_target(target: Path) -> None:
    """A UserError where the folder would lose something that is no site."""
    if target.exists() and not target.is_dir():
        raise UserError(f"--build {target}: it is a file; name a folder")
    if target.is_dir() and any(target.iterdir()) and not (target / "search.json").is_file():
        raise UserError(f"--build {target}: the folder holds something else; name another one")


def gather(tree: Path, parsers: Mapping[str, argparse.ArgumentParser]) -> None:
    """Writes every page of the site as Markdown."""
    made = methods.pages() | reference.pages(parsers)
    sources.copy_sources(tree, made)
    methods.add_formulas(tree)
    sources.write_pages(tree, made)
    assets = resources.files("palaestra.site") / "assets"
    (tree / "assets").mkdir()
    for name in ("site.css", "methods.js"):
        (tree / "assets" / name).write_text((assets / name).read_text(encoding="utf-8"))


def settings(tree: Path) -> dict[str, Any]:
    """What Zensical reads."""
    return {
        "project": {
            "site_name": "Palaestra",
            "site_description": "Reinforcement learning of language models",
            "docs_dir": "pages",
            "site_dir": "site",
            "extra_css": ["assets/site.css"],
            "extra_javascript": ["assets/methods.js"],
            "nav": navigation(tree),
            "theme": {
                "font": False,  # that of the reader's machine: nothing is fetched
                "features": [
                    "navigation.tabs", "navigation.prune", "navigation.top", "content.code.copy", "search.highlight",
                    "toc.follow",
                ],
                "palette": list(COLOURS),
            },
            "extra": {"generator": False},
            "markdown_extensions": extensions(),
        }
    }  # fmt: skip


def extensions() -> dict[str, Any]:
    """How Markdown is read: as on a code host, so that one page serves both."""
    return {
        "admonition": {},
        "attr_list": {},
        "md_in_html": {},
        "tables": {},
        "toc": {"permalink": True, "slugify": slugify()},
        "pymdownx": {
            "details": {},
            "highlight": {"pygments_lang_class": True},
            "inlinehilite": {},
            "superfences": {},
            "magiclink": {},
        },
    }


def slugify() -> dict[str, Any]:
    """Anchors as code hosts make them."""
    return {"object": "pymdownx.slugs.slugify", "kwds": {"case": "lower"}}


def navigation(tree: Path) -> list[dict[str, Any]]:
    """The pages by their kind, those that nobody placed at the end of the explanations."""
    placed = {name for names in NAV.values() for name in names}
    loose = sorted(
        f"docs/{p.name}" for p in (tree / "docs").glob("*.md") if f"docs/{p.name}" not in placed
    )
    made: list[dict[str, Any]] = [{"Palaestra": "README.md"}]
    for section, names in NAV.items():
        entries = list(entries_of(tree, [*names, *(loose if section == MORE else ())]))
        made.append({section: entries})
    made[-1][METHODS] += methods_of(tree)
    return made


def methods_of(tree: Path) -> list[dict[str, Any]]:
    """The pages of all methods by their family."""
    by_family: dict[str, list[dict[str, str]]] = {}
    for entry in catalogue.all_entries():
        if not entry.page:  # of a text, whose page stands with the explanations
            page = f"{methods.METHODS}/{entry.id}.md"
            by_family.setdefault(entry.family, []).append({entry.id: page})
    return [{FAMILIES.get(f, f.capitalize()): pages} for f, pages in by_family.items()]


def entries_of(tree: Path, names: list[str]) -> Iterator[Any]:
    """Pages that are there; of a folder its pages under its name."""
    for name in names:
        if not name.endswith("/"):
            if (tree / name).is_file():
                yield {title_of(tree / name): name}
        elif inner := sorted(
            (tree / name).glob("*.md"), key=lambda p: (p.name != "index.md", p.name)
        ):
            yield {
                Path(name).name.capitalize(): [
                    {title_of(p): p.relative_to(tree).as_posix()} for p in inner
                ]
            }


def title_of(page: Path) -> str:
    """Its heading, up to the colon."""
    lines = page.read_text(encoding="utf-8").splitlines()
    head = next((line[2:] for line in lines if line.startswith("# ")), page.stem)
    return head.split(":")[0].strip()
