"""`import palaestra as pl` is the whole public interface: light, typed, complete, and all that recipes and pages use."""

import ast
import importlib
import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import nbclient
import nbformat
import palaestra as pl
import pytest
from palaestra.names import namespaces, public_names

from tests.rows import every

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "palaestra"
PLACES = public_names()
TOP = [name for name in PLACES if "." not in name]
MODULES = {"palaestra", *(f"palaestra.{space}" for space in namespaces())}
STAGE_ROOMS = (
    "tasks",
    "toys",
    "worlds",
    "curriculum",
    "rollout",
    "rewards",
    "judges",
    "verifiers",
    "credit",
    "objective",
)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
BLOCKS = [(p.name, code) for p in PAGES for code in re.findall(r"```python\n(.*?)```", p.read_text(), re.DOTALL)]
WRITTEN = [
    (str(p.relative_to(ROOT)), p.read_text())
    for folder in ("palaestra/recipes", "palaestra/claims", "examples")
    for p in sorted((ROOT / folder).rglob("*.py"))
]
SCRIPT = next(code for _, code in BLOCKS if code.startswith("# script.py"))


def test_each_name_leads_to_what_its_module_calls_so():
    assert sorted(pl.__all__) == sorted([*TOP, *namespaces()])
    for name, module in PLACES.items():
        space, _, bare = name.rpartition(".")
        assert attrgetter(name)(pl) is getattr(importlib.import_module(module), bare)
        assert not space or bare in importlib.import_module(f"palaestra.{space}").__all__


def test_the_top_is_short():
    assert len(TOP) <= 160


def test_no_module_is_called_as_a_public_name_beside_it():
    """It would stand in the name's place once it is imported."""
    modules = {p.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".") for p in PACKAGE.rglob("*")}
    assert not modules & set(PLACES)


def test_a_name_that_is_not_on_top_says_where_it_is():
    with pytest.raises(AttributeError, match=r"^pl\.Ema is pl\.credit\.Ema$"):
        pl.Ema  # noqa: B018
    with pytest.raises(AttributeError, match=r"^pl has no 'Nothing'$"):
        pl.Nothing  # noqa: B018
    with pytest.raises(AttributeError, match=r"^pl\.scale\.best_plan is pl\.planning\.best_plan$"):
        pl.scale.best_plan  # noqa: B018
    with pytest.raises(AttributeError, match=r"^pl\.scale has no 'Nothing'$"):
        pl.scale.Nothing  # noqa: B018


def test_the_import_waits_for_no_library():
    code = "import sys, palaestra as pl; print(pl.__version__, [m for m in ('torch', 'numpy', 'pyarrow') if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert said == f"{pl.__version__} []\n"


@every("room", STAGE_ROOMS)
def test_every_stage_is_public(room):
    files = (PACKAGE / room).rglob("*.py")
    stages = {
        node.name
        for file in files
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef) and any(ast.unparse(d) == "stage" for d in node.decorator_list)
    }
    assert stages
    assert not stages - {name.rpartition(".")[2] for name in PLACES}


def used_names(tree):
    """X of every `from palaestra import X`, and of every `pl.X` where `pl` is the package; SPACE.X of a namespace."""
    found = set()
    packages = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in MODULES:
            space = node.module.removeprefix("palaestra").lstrip(".")
            found |= {f"{space}.{alias.name}" if space else alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            packages |= {a.asname or a.name for a in node.names if a.name == "palaestra"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in packages:
            found.add(node.attr)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            package, _, space = ast.unparse(node.value).partition(".")
            if package in packages and space in namespaces():
                found.add(f"{space}.{node.attr}")
    return found - set(namespaces())


def imported(code):
    """Modules of the package that code imports from, and public names that it uses."""
    tree = ast.parse(code)
    modules = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
    modules |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    return {m for m in modules if m.split(".")[0] == "palaestra"}, used_names(tree)


@every(("name", "code"), [*BLOCKS, *WRITTEN])
def test_recipes_claims_examples_and_pages_use_nothing_else(name, code):
    modules, names = imported(code)
    others = modules - MODULES
    if name.startswith(("palaestra/claims/", "palaestra/recipes/")):
        # A method may use the files of its folder, and a claim the parts of the method that it is about.
        own = ".".join(name.removesuffix(".py").replace("/", ".").replace(".claims.", ".recipes.").split(".")[:4])
        others = {m for m in others if not f"{m}.".startswith((f"{own}.", "palaestra.claims."))}
    assert not others
    assert not names - set(PLACES)


def test_no_recipe_runs_anything():
    above = {name for name, place in PLACES.items() if place.split(".")[1] in ("api", "ledger")}
    assert {"train", "ledger.Experiment"} <= above
    for name, code in WRITTEN:
        if name.startswith("palaestra/recipes/"):
            assert not imported(code)[1] & above


def test_names_of_the_package_are_seen_under_whatever_name_it_has():
    tree = ast.parse("import palaestra\nimport palaestra as p\npalaestra.vary; p.stage; q.Fault; p.credit.Ema.state")
    assert used_names(tree) == {"vary", "stage", "credit.Ema"}
    tree = ast.parse("from palaestra import vary\nfrom palaestra.credit import Ema\nfrom palaestra.step import start")
    assert used_names(tree) == {"vary", "credit.Ema"}


@pytest.fixture
def smaller(tmp_path, monkeypatch):
    """The README's script at smoke size."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    tiny = 'steps=2, evaluate=4, set={"schedule.prompts": 2, "collect.links.0.n": 2}, out='
    code = SCRIPT
    for before, now in (
        ("steps=30, out=", tiny), ("step=30", "step=2"), ("k=8", "k=2, n=4"),
        ("seeds=3, tokens=30_000", "seeds=2, tokens=400, evaluate=4"),
    ):  # fmt: skip
        assert before in code
        code = code.replace(before, now)
    return code


def test_the_script_of_the_readme_runs_at_smoke_size(smaller):
    assert len([x for x in smaller.splitlines() if x.strip()]) <= 11  # the first line is the file's name
    Path("script.py").write_text(smaller)
    ran = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "mine - grpo" in ran.stdout and "fate" in ran.stdout


def test_the_script_of_the_readme_runs_in_a_notebook(smaller):
    cells = [nbformat.v4.new_code_cell(smaller), nbformat.v4.new_code_cell("run")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
    said = "".join(o.get("text", "") for o in notebook.cells[0].outputs)
    assert "mine - grpo" in said
    assert "<svg" in notebook.cells[1].outputs[0].data["text/html"]
