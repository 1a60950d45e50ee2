"""Which versions of torch, transformers and vLLM are allowed, tried each night and named on the page."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ASKED = {r.name: r for r in map(Requirement, PROJECT["project"]["dependencies"])}
PAGE = (ROOT / "docs" / "versions.md").read_text()
# The word `error` as the first part of a filter of warnings, in Python, in settings and on a command line.
FAILS = r"""(?:simplefilter|filterwarnings)\(\s*["']error|PYTHONWARNINGS\S*error|\s-W[ =]?error"""


def lowest(name):
    (bound,) = (s for s in ASKED[name].specifier if s.operator == ">=")
    return bound.version


def rows(heading):
    """The cells of the table below a heading of the page, without its head."""
    lines = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0].splitlines()
    return [[c.strip() for c in line.strip("|").split("|")] for line in lines if line.startswith("|")][2:]


def test_the_night_runs_the_lowest_versions_and_the_newest():
    flow = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())
    job = flow["jobs"]["versions"]
    pins = {
        x["name"]: {r.name: r for r in map(Requirement, x["pins"].split())}
        for x in job["strategy"]["matrix"]["include"]
    }
    for name in ("torch", "transformers"):
        (pin,) = pins["lowest"][name].specifier
        assert (
            pin.operator == "==" and pin.version.startswith(lowest(name) + ".") and pin.version in ASKED[name].specifier
        )
        assert not pins["newest"][name].specifier
    ran = " ".join(s.get("run", "") for s in job["steps"])
    assert {"tests/engines", "tests/laws", "tests/models"} <= set(ran.split())


def test_the_page_says_what_is_asked_for_and_what_was_resolved():
    tested = {row[0]: row for row in rows("What was tested")}
    _, torch, transformers, *_ = tested["lowest"]
    assert torch.startswith(lowest("torch") + ".") and transformers.startswith(lowest("transformers") + ".")
    assert f"torch {lowest('torch')} or newer and transformers {lowest('transformers')} or newer" in PAGE
    lock = (ROOT / "containers" / "vllm.lock").read_text()
    pinned = dict(line.split("==") for line in lock.splitlines() if not line.startswith("#"))
    together = {row[0]: row[1:3] for row in rows("Which vLLM goes with which torch")}
    assert together[pinned["vllm"]] == [pinned["torch"], pinned["transformers"]]


@pytest.mark.parametrize("name", ["torch", "transformers"])
def test_no_bound_from_above_without_a_reason_on_the_page(name):
    for bound in ASKED[name].specifier:
        assert bound.operator == ">=" or f"{name} {bound}" in PAGE


def test_no_warning_of_a_library_fails_a_test():
    """A new release of a library may warn; only a deprecation of this project's own may be an error."""
    filters = PROJECT["tool"]["pytest"]["ini_options"].get("filterwarnings", [])
    assert not [f for f in filters if f.startswith("error") and "palaestra." not in f]
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "tools").rglob("*.py"), *(ROOT / ".github").rglob("*.yml")]
    files += [ROOT / ".ci" / "run", ROOT / "pyproject.toml"]
    assert not [str(f.relative_to(ROOT)) for f in files if f != Path(__file__) and re.search(FAILS, f.read_text())]


@pytest.mark.parametrize("kind", ["UserWarning", "FutureWarning", "DeprecationWarning"])
def test_what_a_library_warns_of_is_not_in_the_errors_of_a_command(kind):
    code = f"import warnings; warnings.warn('a name goes', {kind})"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr == ""


@pytest.mark.parametrize(
    "text",
    ['simplefilter("error")', "filterwarnings('error', module='torch')", "pytest -W error", "PYTHONWARNINGS=error"],
)
def test_what_turns_warnings_to_errors_is_recognised(text):
    assert re.search(FAILS, " " + text)
