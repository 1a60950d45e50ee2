"""`import palaestra as pl` is the whole public interface: light, typed, complete, and all that recipes and pages use."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import palaestra as pl
import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "palaestra"
STUB = ast.parse((PACKAGE / "__init__.pyi").read_text())
PLACES = {a.name: f"palaestra.{n.module}" for n in STUB.body if isinstance(n, ast.ImportFrom) for a in n.names}
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
    assert sorted(pl.__all__) == sorted(PLACES)
    for name, module in PLACES.items():
        assert getattr(pl, name) is getattr(importlib.import_module(module), name)


def test_no_room_is_called_as_a_public_name():
    rooms = {p.stem for p in PACKAGE.iterdir() if p.is_dir() or p.suffix == ".py"}
    assert not rooms & set(PLACES)


def test_the_import_waits_for_no_library():
    code = "import sys, palaestra as pl; print(pl.__version__, [m for m in ('torch', 'numpy', 'pyarrow') if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert said == f"{pl.__version__} []\n"


@pytest.mark.parametrize("room", STAGE_ROOMS)
def test_every_stage_is_public(room):
    files = (PACKAGE / room).rglob("*.py")
    stages = {
        node.name
        for file in files
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef) and any(ast.unparse(d) == "stage" for d in node.decorator_list)
    }
    assert stages
    assert not stages - set(PLACES)


def public_names(tree):
    """X of every `from palaestra import X`, and of every `pl.X` where `pl` is the package."""
    found = set()
    packages = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "palaestra":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            packages |= {a.asname or a.name for a in node.names if a.name == "palaestra"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in packages:
            found.add(node.attr)
    return found


def imported(code):
    """Modules of the package that code imports from, and public names that it uses."""
    tree = ast.parse(code)
    modules = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
    modules |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    return {m for m in modules if m.split(".")[0] == "palaestra"}, public_names(tree)


@pytest.mark.parametrize(("name", "code"), [*BLOCKS, *WRITTEN])
def test_recipes_claims_examples_and_pages_use_nothing_else(name, code):
    modules, names = imported(code)
    others = modules - {"palaestra"}
    if name.startswith("palaestra/claims/"):  # a claim may use the parts of the recipe that it is about
        own = name.removesuffix(".py").replace("/", ".").replace(".claims.", ".recipes.")
        others = {m for m in others if m != own and not m.startswith("palaestra.claims.")}
    assert not others
    assert not names - set(PLACES)


def test_no_recipe_runs_anything():
    above = {name for name, place in PLACES.items() if place.split(".")[1] in ("api", "ledger")}
    for name, code in WRITTEN:
        if name.startswith("palaestra/recipes/"):
            assert not imported(code)[1] & above


def test_names_of_the_package_are_seen_under_whatever_name_it_has():
    tree = ast.parse("import palaestra\nimport palaestra as p\npalaestra.vary; p.stage; q.Fault")
    assert public_names(tree) == {"vary", "stage"}


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


def test_the_script_of_the_readme_runs(smaller):
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
