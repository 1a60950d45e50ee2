"""The reference pages: commands from their parsers, settings and columns from their schemas, the
public interface from its docstrings.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import fields
from html import escape
from importlib import resources
from operator import attrgetter
from typing import Any, get_type_hints

import palaestra as pl
from palaestra.markdown import render, table
from palaestra.names import namespaces, public_names
from palaestra.settings.fields import Settings, flag_of
from palaestra.site.formulas import article, mixed
from palaestra.store.columns import ROW, SCHEMA, VERDICT

PARTS = re.compile(r"^(Args|Returns|Raises|Yields|Attributes):\s*$")
ENTRY = re.compile(r"^([*\w.`]+(?:, [*\w.`]+)*): (.*)$")


def pages(parsers: Mapping[str, argparse.ArgumentParser]) -> dict[str, str]:
    """All of them by their paths in the tree."""
    sections = sections_of_names()
    made = {
        "reference/commands.md": commands_page(parsers),
        "reference/settings.md": settings_page(),
        "reference/rollouts.md": rollouts_page(),
        "reference/python/index.md": render(
            "python_index.md",
            sections=[(slug(s), s, names) for s, names in sections.items()],
        ),
    }
    for section, names in sections.items():
        made[f"reference/python/{slug(section)}.md"] = python_page(section, names)
    return made


# ---- commands


def commands_page(parsers: Mapping[str, argparse.ArgumentParser]) -> str:
    """Every verb with its usage and its arguments."""
    verbs = [
        (verb, p.description or "", usage_of(p), table(arguments_of(p), "argument", "what it does"))
        for verb, p in parsers.items()
    ]
    return render("commands.md", verbs=verbs)


def usage_of(parser: argparse.ArgumentParser) -> str:
    text = " ".join(parser.format_usage().removeprefix("usage: ").split())
    return textwrap.fill(text, 84, subsequent_indent="    ", break_on_hyphens=False)


def arguments_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """Each argument as it is written, and its help."""
    for action in parser._actions:
        if "--help" in action.option_strings:
            continue
        value = action.metavar or (
            f"{{{','.join(map(str, action.choices))}}}" if action.choices else ""
        )
        value = value if isinstance(value, str) else " ".join(value)
        takes = action.nargs != 0 and not value and action.option_strings
        value = value or (action.dest.upper() if takes else "")
        names = ", ".join(action.option_strings) or value or action.dest.upper()
        written = f"{names} {value}" if action.option_strings and value else names
        help_text = (action.help or "").replace("%%", "%")
        yield f"`{written}`", escape(help_text, quote=False)


def settings_page() -> str:
    """Every setting of a run."""
    hints = get_type_hints(Settings)
    rows = [
        (
            f"`{f.name}`",
            f"`{flag_of(f.name)}`" if f.metadata.get("flag") != "none" else "",
            f"`{type_name(hints[f.name])}`",
            "" if f.default in ("", None, ()) else f"`{f.default!r}`",
            escape(f.metadata["text"], quote=False),
        )
        for f in fields(Settings)
        if f.metadata.get("text")
    ]
    return render("settings.md", rows=rows)


def type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")


def rollouts_page() -> str:
    """The columns of the rollouts that a run writes."""
    return render(
        "rollouts.md",
        columns=[(f"`{f.name}`", f"`{f.type}`" if f.name not in ("rows", "verdicts") else "list")
                 for f in SCHEMA],
        rows=[(f"`{f.name}`", f"`{f.type}`") for f in ROW],
        verdicts=[(f"`{f.name}`", f"`{f.type}`") for f in VERDICT],
    )  # fmt: skip


# ---- Python


def sections_of_names() -> dict[str, list[str]]:
    """The public names: those on top by the headings of palaestra/__init__.pyi, the others by their
    namespaces.
    """
    text = resources.files("palaestra").joinpath("__init__.pyi").read_text(encoding="utf-8")
    heads = {
        n: line[2:].strip()
        for n, line in enumerate(text.splitlines(), 1)
        if line.startswith("# ") and not line.startswith(("# ruff", "# fmt"))
    }
    sections: dict[str, list[str]] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            section = heads[max(n for n in heads if n < node.lineno)]
            sections.setdefault(section, []).extend(a.asname or a.name for a in node.names)
    for space in namespaces():
        sections[f"pl.{space}"] = [n for n in public_names() if n.startswith(f"{space}.")]
    return sections


def slug(section: str) -> str:
    return re.sub(r"[^a-z]+", "-", section.lower()).strip("-")


def python_page(section: str, names: list[str]) -> str:
    """A section of the public interface, every name with its signature and its docstring."""
    return render(
        "python.md",
        section=section,
        things=[(name, signature_of(name), docstring_of(attrgetter(name)(pl))) for name in names],
    )


def signature_of(name: str) -> str:
    thing = attrgetter(name)(pl)
    if not callable(thing):
        return f"pl.{name}: {type(thing).__name__}"
    try:
        signature = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return f"pl.{name}"
    signature = re.sub(
        r"<function ([\w.]+) at 0x\w+>|<([\w.]+) object at 0x\w+>", r"\1\2", signature
    )
    signature = re.sub(r"<factory>", "...", signature).replace("palaestra.", "")
    signature = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", signature.replace("'", ""))
    whole = f"pl.{name}{signature}"
    if len(whole) <= 90 or "(" not in signature:
        return whole
    inner, _, back = signature[1:].rpartition(")")
    return f"pl.{name}(\n    " + ",\n    ".join(split_arguments(inner)) + f",\n){back}"


def split_arguments(text: str) -> Iterator[str]:
    """Arguments at their commas, those inside brackets apart."""
    depth, start = 0, 0
    for at, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()


def docstring_of(thing: Any) -> str:
    """The HTML of a docstring, its lists of arguments as lists."""
    own = vars(thing).get("__doc__") if isinstance(thing, type) else getattr(thing, "__doc__", None)
    text = inspect.cleandoc(own or "") if callable(thing) or isinstance(thing, type) else ""
    if text.startswith(f"{getattr(thing, '__name__', '')}("):  # what dataclasses write themselves
        text = ""
    made: list[str] = []
    prose: list[str] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        head = PARTS.match(lines[at])
        if head is None:
            prose.append(lines[at])
            at += 1
            continue
        at += 1
        block: list[str] = []
        while at < len(lines) and (not lines[at].strip() or lines[at].startswith("    ")):
            block.append(lines[at][4:])
            at += 1
        made.append(f"<p><strong>{head[1]}</strong></p>{listed(block)}")
    first = article("\n".join(prose)) if any(x.strip() for x in prose) else ""
    return "\n".join([first, *made])


def listed(block: list[str]) -> str:
    """Named entries as a list, other text as a paragraph."""
    entries: list[tuple[str, str]] = []
    loose: list[str] = []
    for line in block:
        match = ENTRY.match(line)
        if match:
            entries.append((match[1], match[2]))
        elif entries:
            entries[-1] = (entries[-1][0], f"{entries[-1][1]} {line.strip()}")
        else:
            loose.append(line.strip())
    text = f"<p>{mixed(' '.join(loose).strip())}</p>" if any(loose) else ""
    items = "".join(f"<dt><code>{escape(n)}</code></dt><dd>{mixed(t)}</dd>" for n, t in entries)
    return text + (f"<dl>{items}</dl>" if items else "")
