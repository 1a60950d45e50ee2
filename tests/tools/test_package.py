"""What the wheel and the source distribution hold, and that the wheel alone does the main job."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import palaestra
import pytest
from palaestra.catalogue import all_entries
from palaestra.markdown import fill_marks
from tools.package.contents import (
    ROOT,
    build,
    contents_table,
    room_sizes,
    sdist_names,
    wheel_contents,
)

MOST_MB = 10  # of the wheel; 5 are weights of half precision, which do not pack, and 4 the code of 203 methods


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    return build(tmp_path_factory.mktemp("sdist"), target="sdist")


def read(path):
    """The files of a wheel with their bytes."""
    with zipfile.ZipFile(path) as archive:
        return {n: archive.read(n) for n in archive.namelist()}


def of_package(names):
    return {n for n in names if ".dist-info/" not in n}


def wanted():
    """What a wheel is to hold: the package as it lies here."""
    return {
        p.relative_to(ROOT).as_posix()
        for p in (ROOT / "palaestra").rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = {x.name for x in wheel_contents(wheel)}
    assert of_package(names) == wanted()
    assert {n.split("/")[0].split("-")[0] for n in names} == {"palaestra"}
    told = {"py.typed", "__init__.pyi", "catalogue.tsv", "renamed.tsv", "renamed_fields.tsv", "templates/report.html",
            "models/tiny/model.safetensors", "models/tiny_agent/model.safetensors", "view/page/index.html"}  # fmt: skip
    assert {f"palaestra/{n}" for n in told} <= names
    recipes = [e.module.replace(".", "/") for e in all_entries() if e.built]
    assert len(recipes) > 50 and all({f"{r}.py", f"{r}/__init__.py"} & names for r in recipes)
    odd = [n for n in names if {"tests", "cells", "runs", "__pycache__"} & set(n.split("/")) or n.endswith(".pyc")]
    assert not odd
    assert wheel.stat().st_size < MOST_MB * 1e6


def test_version_and_licences(wheel):
    files = read(wheel)
    info = f"palaestra-{palaestra.__version__}.dist-info"
    about = Parser().parsestr(files[f"{info}/METADATA"].decode())
    assert about["Version"] == palaestra.__version__ and about["License-Expression"] == "Apache-2.0"
    assert files[f"{info}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert b"palaestra = palaestra.cli.main:program" in files[f"{info}/entry_points.txt"]
    vendored = {n.rpartition("/")[0] for n in files if n.endswith(".min.js")}
    assert all(any(n.startswith(folder) and "LICENSE" in n for n in files) for folder in vendored)


def test_the_sdist_builds_the_same_wheel_and_leaves_out_what_lies_beside(wheel, sdist, tmp_path):
    names = set(sdist_names(sdist))
    assert {"tests/conftest.py", "docs/howto.md", "CHANGELOG.md", "CITATION.cff", "tools/package/contents.py"} <= names
    assert not [n for n in names if "cells" in n.split("/") or n.startswith("runs/")]
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "tree", filter="data")
    (tree,) = (tmp_path / "tree").iterdir()
    for beside in ("ledger/cells/grpo/0/summary.json", "runs/mine/metrics.jsonl", "problems.jsonl",
                   "palaestra/__pycache__/step.cpython-311.pyc", ".venv/pyvenv.cfg"):  # fmt: skip
        (tree / beside).parent.mkdir(parents=True, exist_ok=True)
        (tree / beside).write_text("{}")
    there = build(tmp_path / "again", tree)
    here, again = read(wheel), read(there)
    assert {n: b for n, b in again.items() if n in of_package(again)} == {
        n: b for n, b in here.items() if n in of_package(here)
    }
    assert set(sdist_names(build(tmp_path / "sdist", tree, "sdist"))) == names


def test_the_page_says_what_takes_the_space(wheel):
    """Thousands of bytes change with every commit: the largest folders, and the sum to a tenth."""
    page = (ROOT / "docs" / "package.md").read_text()
    sizes = room_sizes(wheel_contents(wheel))
    assert fill_marks(page, {"contents": contents_table(sizes)})  # the marks are there
    lines = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| `palaestra/")]
    assert [line[0].strip(" `") for line in lines][:2] == list(sizes)[:2]
    (whole,) = [line for line in page.splitlines() if line.startswith("| all")]
    packed = float(whole.split("|")[2].replace(",", ""))
    assert packed == pytest.approx(sum(x for x, _ in sizes.values()) / 1e3, rel=0.1), "python -m tools.package.contents"


@pytest.mark.timeout(900)  # seven processes that import torch
def test_the_wheel_alone_does_the_main_job(wheel, tmp_path):
    """Installed into a folder of its own, with no checkout beside it, in an empty folder."""
    site, empty = tmp_path / "site", tmp_path / "empty"
    words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*words, "--target", str(site), str(wheel)], check=True, capture_output=True)
    empty.mkdir()
    env = {**os.environ, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")}

    captured = {"capture_output": True, "text": True}

    def run(*words):
        made = subprocess.run([sys.executable, *words], cwd=empty, env=env, **captured)
        assert made.returncode == 0, made.stderr
        return made.stdout

    def refused(words):
        made = subprocess.run([sys.executable, "-m", "palaestra", *words.split()], cwd=empty, env=env, **captured)
        assert made.returncode == 2 and made.stderr.count("\n") == 1, made.stderr
        return made.stderr

    def command(words):
        return run("-m", "palaestra", *words.split())

    assert Path(run("-c", "import palaestra; print(palaestra.__file__)").strip()).is_relative_to(site)
    assert command("--version").strip() == f"palaestra {palaestra.__version__}"
    assert "grpo" in command("list")
    assert "not-reproduced" in command("list --json")  # the verdicts of results that only a checkout has
    assert "ledger/ of a checkout" in refused("reproduce --check")
    command("train --steps 1 --evaluate 8 schedule.prompts=2")
    assert (empty / "runs/grpo-chain-tiny-s0/report.html").is_file()
    assert "Problems" in command("view runs/grpo-chain-tiny-s0 --text")
    assert "needs benchmarks/ of a checkout" in refused("bench step")
