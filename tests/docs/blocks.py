"""What stands between fences on the pages of the documentation: commands, and Python."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
HAND = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "surveys").glob("*.md")),
]
METHODS = sorted((ROOT / "docs" / "methods").glob("*.md"))
SHELL = ("", "bash", "sh", "console")


FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


def fenced(page):
    """(kind, code) of each block of a page, those inside a list too."""
    found = FENCE.findall(page.read_text())
    return [(kind, re.sub(rf"^{indent}", "", code, flags=re.MULTILINE)) for indent, kind, code in found]


def commands(page):
    """The commands of a page, each without its comment; several on a line are several."""
    lines = [
        line.split(" #")[0]
        for kind, code in fenced(page)
        if kind in SHELL
        for line in code.replace("\\\n", " ").splitlines()
    ]
    return [c.strip() for line in lines for c in re.split(r";|&&", line) if c.strip() and not c.strip().startswith("#")]


def indented(page):
    """The commands of blocks that are indented in place of fences, each without its comment."""
    outside = FENCE.sub("", page.read_text()).replace("\\\n", " ")
    return [c.split(" #")[0].strip() for c in re.findall(r"^ {4}(palaestra .*)$", outside, re.MULTILINE)]


def programs(page):
    """The Python of a page."""
    return [code for kind, code in fenced(page) if kind == "python"]


def files(page):
    """Files that blocks of a page are, by the name in their first line."""
    found = [(re.match(r"# (\S+\.(?:py|toml))\n", code), code) for _, code in fenced(page)]
    return {m[1]: code for m, code in found if m}
