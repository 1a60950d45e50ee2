"""No circle of files, one name a class, a recipe varies one parent, files stay readable, forbidden calls (law 10)."""

import ast
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from palaestra import identity
from palaestra.names import public_names

from tests.rows import every

ROOT = Path(__file__).parent.parent / "palaestra"
# their argument says which of several base methods they train; arms of a comparison each have one of their own
TWO_PARENTS = {"online_semi_online", "dp_alignment", "arms"}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path) -> list[str]:
    """Modules of the package that a file imports, also for type checkers alone or inside a function."""
    found = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("palaestra"):
            base = (node.module or "").removeprefix("palaestra").lstrip(".")
            for alias in node.names:
                child = f"{base}.{alias.name}".lstrip(".")
                place = ROOT / child.replace(".", "/")
                found.append(child if place.with_suffix(".py").exists() or place.is_dir() else base)
    return [f for f in found if f]


def is_method_folder(path: Path) -> bool:
    """A method whose other files lie beside it: recipes/FAMILY/NAME/__init__.py."""
    return path.name == "__init__.py" and path.parents[2].name == "recipes"


def modules():
    passed = ("__init__.py", "__main__.py")
    return sorted(p for p in ROOT.rglob("*.py") if p.name not in passed or is_method_folder(p))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_circle_of_files():
    """Which room may import which is in pyproject.toml, kept by import-linter; here files, inside a room as well."""
    TopologicalSorter({name_of(p): set(imports(p)) for p in modules()}).prepare()  # raises CycleError with the circle


def test_names_of_classes_are_unique():
    assert identity.places()["Clipped"] == "palaestra.objective.policy"  # raises ValueError where two share a name


def faces(tree: ast.Module) -> set[str]:
    """What the package itself is called in a file: "pl" after `import palaestra as pl`."""
    names = (a for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names)
    return {a.asname or a.name for a in names if a.name == "palaestra"}


def lazy_imports(source: str) -> dict[str, str]:
    """Modules of the public names that code reads from the package, which loads them lazily: `pl.Ema`, `pl.credit.Ema`
    and `from palaestra import Ema`. Import-linter sees none of them.
    """
    tree, public = ast.parse(source), public_names()
    heads = faces(tree)
    chains = [ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
    used = {rest for head, _, rest in (c.partition(".") for c in chains) if head in heads}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "palaestra":
            used |= {a.name for a in node.names}
    return {name: public[name] for name in sorted(used & public.keys())}


def layers() -> dict[str, int]:
    """The layer of each room in pyproject.toml; 0 is on top."""
    settings = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    return {room.strip(): i for i, row in enumerate(contract["layers"]) for room in row.split("|")}


def upward_uses(room: str, source: str) -> list[str]:
    """Public names that code in a room reads from a room that is not below it."""
    layer = layers()
    homes = {name: module.split(".")[1] for name, module in lazy_imports(source).items()}
    return [f"pl.{n} of {home}" for n, home in homes.items() if home != room and layer[home] <= layer[room]]


def test_public_names_are_read_from_below():
    """The rule of import-linter for what `import palaestra as pl` loads lazily."""
    uses = {name_of(p): upward_uses(name_of(p).split(".")[0], p.read_text()) for p in modules()}
    assert not {name: up for name, up in uses.items() if up}
    assert sum(len(lazy_imports(p.read_text())) for p in modules() if "recipes" in p.parts) > 500


@pytest.mark.parametrize(
    "room, source, up",
    [
        ("credit", "import palaestra as pl\npl.recipe('grpo')", ["pl.recipe"]),
        ("objective", "import palaestra\nx = palaestra.credit.Ema", ["pl.credit.Ema"]),
        ("verifiers", "def f():\n    from palaestra import train", ["pl.train"]),
        ("recipes", "import palaestra as pl\npl.recipe, pl.credit.Ema", []),
        ("credit", "import palaestra as pl\npl.credit.Ema", []),
        ("credit", "import numpy as pl\npl.recipe", []),
    ],
)
def test_a_public_name_from_above_is_seen(room, source, up):
    assert [use.split(" of ")[0] for use in upward_uses(room, source)] == up


def parents_of(source: str) -> set[str]:
    """What a recipe varies: the first argument of each `pl.recipe`, `catalogue.recipe` or bare `recipe`."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and node.args)
    return {ast.unparse(c.args[0]) for c in calls if ast.unparse(c.func).rpartition(".")[2] == "recipe"}


def test_parents_are_seen():
    assert parents_of("pl.vary(pl.recipe('grpo'), a=catalogue.recipe('rloo'), b=recipe('sft'))") == {
        "'grpo'", "'rloo'", "'sft'"}  # fmt: skip
    assert parents_of("pl.reinforce('grpo')") == set()


def test_most_recipes_have_a_parent():
    """Else the test below looks at nothing."""
    assert sum(bool(parents_of(p.read_text())) for p in modules() if "recipes" in p.parts) > 60


@every("path", [p for p in modules() if "recipes" in p.parts], ids=name_of)
def test_a_recipe_varies_one_parent(path):
    text = path.read_text()
    parents = parents_of(text)
    assert "Pipeline(" in text or len(parents) <= 1 or path.stem in TWO_PARENTS, parents
    beside = ".".join(name_of(path).split(".")[:3])  # recipes.FAMILY.NAME, also of a folder
    above = [t for t in imports(path) if t.startswith(("recipes.", "claims", "ledger"))]
    assert not [t for t in above if not f"{t}.".startswith(f"{beside}.")], "a method knows no other and no claim"


@every("path", modules(), ids=name_of)
def test_files_stay_readable(path):
    text = path.read_text()
    assert text.startswith('"""'), "a module says what it is in its first line"
    if "longer than" in text.split('"""')[1]:
        return  # the header gives the reason
    assert text.count("\n") <= 600
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno - node.lineno <= 60, node.name


# a participle says nothing of what a variable holds; those left are fields that others read or write by name
NO_NAMES = ("found", "said", "told", "shown", "judged")
MOST_NO_NAMES = 50


def assigned_names(tree: ast.Module) -> list[str]:
    """Variables, fields and attributes that are assigned somewhere; not arguments, which callers name."""
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, ast.Store)]
    return [n.id if isinstance(n, ast.Name) else n.attr for n in nodes]


def test_variables_are_named_for_what_they_hold():
    paths = sorted(ROOT.rglob("*.py"))
    left = [f"{p.relative_to(ROOT)}: {n}" for p in paths for n in assigned_names(tree_of(p)) if n in NO_NAMES]
    assert len(left) <= MOST_NO_NAMES, "\n".join(left)


def test_a_name_is_seen_wherever_it_is_assigned():
    source = (
        "for found in x: pass\nwith f() as told: y = [said for said in z]\nclass C:\n    shown: int\nself.judged = 1"
    )
    assert sorted(n for n in assigned_names(ast.parse(source)) if n in NO_NAMES) == sorted(NO_NAMES)


@every("path", modules(), ids=name_of)
def test_law_10_forbidden_calls(path):
    """Law 10: no pickle, no remote code, no evaluation of text in this process."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {"eval", "exec", "torch.load", "pickle.load", "pickle.loads", "joblib.load"}
            assert not any(k.arg == "trust_remote_code" for k in node.keywords)
        if isinstance(node, ast.Import):
            assert not any(a.name in {"pickle", "cloudpickle", "dill", "joblib"} for a in node.names)
