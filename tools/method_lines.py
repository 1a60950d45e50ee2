"""How long the recipes are: `python -m tools.method_lines --page docs/code.md`.

Counted are lines of a recipe's own file that hold code: no blank lines, comments, docstrings and imports, and not the
`CARD`. Of these the *method* is what `build` reaches by name. The rest is *brought along*: worlds, sources of problems and
evaluators, with what they alone reach, what only `embedded` needs, and the other files of a recipe that is a folder.

A recipe whose method is longer than `LONGEST` lines says why in the docstring of its file, in a paragraph that begins with
"Long because". Those that do not stand in `LISTED`; a test keeps others out, and those that are mended.
"""

from __future__ import annotations

import argparse
import ast
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import palaestra
from palaestra.markdown import code, fill_marks, table

RECIPES = Path(palaestra.__file__).parent / "recipes"
LONGEST = 120
REASON = "Long because"
LISTED = Path(__file__).with_suffix(".txt")
# methods that make a class something that a recipe brings along: a world, or a source of problems
BRINGS = ({"reset", "step"}, {"task"})


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Of one recipe. `beside`: lines of the other files of its folder."""

    name: str
    method: int
    brought: int
    beside: int
    reason: bool


def code_lines(source: str) -> set[int]:
    """The numbers of lines that hold code."""
    tree, held = ast.parse(source), set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.stmt):
            held |= set(_own_lines(node))
    text = source.splitlines()
    return {n for n in held if text[n - 1].strip() and not text[n - 1].strip().startswith("#")}


def _own_lines(node: ast.stmt) -> Iterator[int]:
    """Lines of a statement, without those of statements inside it."""
    inner = [x for x in ast.walk(node) if isinstance(x, ast.stmt) and x is not node]
    taken = {n for x in inner for n in range(x.lineno, (x.end_lineno or x.lineno) + 1)}
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    yield from (n for n in range(first, (node.end_lineno or first) + 1) if n not in taken)


def names_in(node: ast.AST) -> set[str]:
    """Names that a definition reads, annotations in quotes aside."""
    return {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}


def is_brought(node: ast.AST) -> bool:
    """Whether a definition is a world, a source of problems or an evaluator."""
    if not isinstance(node, ast.ClassDef):
        return False
    functions = {
        f.name: f for f in node.body if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    call = functions.get("__call__")
    measures = isinstance(call, ast.AsyncFunctionDef) and [a.arg for a in call.args.args[1:]] == [
        "ctx"
    ]
    return measures or any(kind <= functions.keys() for kind in BRINGS)


def definitions(tree: ast.Module) -> dict[str, ast.stmt]:
    """What a file defines on its outer level, by name."""
    known: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            known[node.name] = node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                known |= dict.fromkeys(names_in(target), node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            known[node.target.id] = node
    return known


def reached(known: dict[str, ast.stmt], start: str) -> set[str]:
    """Names of definitions that one of them uses, directly or not, but for what is brought along."""
    seen, todo = set[str](), [start]
    while todo:
        name = todo.pop()
        if name in seen or name not in known or is_brought(known[name]):
            continue
        seen.add(name)
        todo += names_in(known[name])
    return seen


def count(file: Path) -> Lines:
    """The lines of the recipe in a file."""
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source)
    known, lines = definitions(tree), code_lines(source)
    imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    left_out = {n for node in [*imports, *_cards(known)] for n in _span(node)}
    lines -= left_out
    method = {n for name in reached(known, "build") - {"CARD"} for n in _span(known[name])} & lines
    folder = file.name == "__init__.py"
    others = sorted(file.parent.rglob("*.py")) if folder else []
    return Lines(
        name=file.parent.name if folder else file.stem,
        method=len(method),
        brought=len(lines - method),
        beside=sum(len(code_lines(f.read_text(encoding="utf-8"))) for f in others if f != file),
        reason=says_why(ast.get_docstring(tree) or ""),
    )


def _cards(known: dict[str, ast.stmt]) -> list[ast.stmt]:
    return [known["CARD"]] if "CARD" in known else []


def _span(node: ast.stmt) -> range:
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    return range(first, (node.end_lineno or first) + 1)


def says_why(docstring: str) -> bool:
    """Whether a paragraph of a docstring says why a method is long."""
    return any(p.strip().startswith(REASON) for p in docstring.split("\n\n"))


def recipe_files() -> list[Path]:
    """The files that define a `build` and a `CARD`."""
    files = [*RECIPES.glob("*/*.py"), *RECIPES.glob("*/*/__init__.py")]
    known = {f: definitions(ast.parse(f.read_text(encoding="utf-8"))) for f in files}
    return sorted(f for f, names in known.items() if {"build", "CARD"} <= names.keys())


def all_lines() -> list[Lines]:
    """Of every recipe of the package, the longest methods first."""
    return sorted(map(count, recipe_files()), key=lambda x: (-x.method, x.name))


def listed() -> list[str]:
    """Recipes whose methods are too long and that do not yet say why."""
    return LISTED.read_text(encoding="utf-8").split()


def unexplained(lines: Iterable[Lines]) -> list[str]:
    """Recipes with a method that is too long, without a reason."""
    return sorted(x.name for x in lines if x.method > LONGEST and not x.reason)


def lines_table(lines: list[Lines]) -> str:
    """The medians in a sentence, and the methods that are too long, folded."""
    long = [x for x in lines if x.method > LONGEST]
    medians = [
        statistics.median(n)
        for n in zip(*((x.method, x.brought, x.beside) for x in lines), strict=True)
    ]
    rows = [
        (code(x.name), *map(str, (x.method, x.brought, x.beside)), "yes" if x.reason else "no")
        for x in long
    ]
    whys = sum(x.reason for x in long)
    head = (
        f"Of {len(lines)} recipes the median method has {medians[0]:g} lines, and {medians[1]:g} more are brought along in "
        f"the same file. {len(long)} methods have more than {LONGEST} lines; {whys} of them say why."
    )
    listing = table(
        rows, "recipe", "method", "brought along", "other files of its folder", "says why"
    )
    fold = f'<details markdown="1"><summary>The {len(long)} long ones</summary>'
    return f"{head}\n\n{fold}\n\n{listing}\n\n</details>"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--page", type=Path)
    page, lines = parser.parse_args().page, all_lines()
    made = lines_table(lines)
    print(made)
    if page is not None:
        page.write_text(
            fill_marks(page.read_text(encoding="utf-8"), {"methods": made}), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
