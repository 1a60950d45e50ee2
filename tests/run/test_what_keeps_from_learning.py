"""The table of lines about runs that cannot learn (docs/howto.md) has those that a run says, in its words."""

import ast
import re
from pathlib import Path

from palaestra.run import first_step

from tests.docs.blocks import ROOT

SOURCES = [*(ROOT / "palaestra" / "run").glob("*.py"), ROOT / "palaestra" / "tasks" / "tool_data.py"]


def texts(tree):
    """Texts of a program, with N where a value comes in."""
    inside = {id(x) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for x in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(x.value if isinstance(x, ast.Constant) else "N" for x in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def shown():
    """The fragments of lines in the table."""
    page = (ROOT / "docs" / "howto.md").read_text()
    table = page.partition("| the line says |")[2].partition("\n\n")[0]
    first = [line.split("|")[1] for line in table.splitlines()[2:]]
    return [fragment for cell in first for fragment in re.findall("`(.+?)`", cell)]


def test_each_line_of_the_table_is_one_that_is_said():
    said = [text for path in SOURCES for text in texts(ast.parse(path.read_text()))]
    missing = [x for x in shown() if not any(x.replace("needs a ...", "needs a N") in text for text in said)]
    assert len(shown()) > 15 and missing == []


def test_each_line_of_a_first_step_is_in_the_table():
    """All functions of `first_step` that give a line."""
    tree = ast.parse(Path(first_step.__file__).read_text())
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Return | ast.Yield) and isinstance(node.value, ast.Constant | ast.JoinedStr):
            lines += [text for text in texts(node) if len(text) > 60]
    assert len(lines) >= 11
    assert [text for text in lines if not any(x in text for x in shown())] == []
