"""What a release consists of beside the code: changelog, citation, workflow, containers, templates."""

from __future__ import annotations

import fnmatch
import re
import shutil
import tomllib
from pathlib import Path

import palaestra
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from palaestra import catalogue
from palaestra.card import Card
from palaestra.cli.main import main
from tools.package.contents import build, wheel_contents
from tools.pages import citation

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GITHUB = ROOT / ".github"


def test_the_version_is_said(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"palaestra {palaestra.__version__}\n"


def test_the_changelog_knows_the_version_and_its_headings():
    text = (ROOT / "CHANGELOG.md").read_text()
    heads = re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)
    assert heads and (palaestra.__version__ in heads or (heads[0] == "Unreleased" and palaestra.__version__ in text))
    known = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)", text, re.MULTILINE)) <= known


def test_the_citation_names_each_paper_once():
    found = yaml.safe_load(citation.citation_file())
    assert found["cff-version"] == "1.2.0" and found["version"] == palaestra.__version__
    dois = [r["doi"] for r in found["references"]]
    assert len(dois) == len(set(dois)) and all(re.fullmatch(r"10\.\d{4,9}/\S+", d) for d in dois)
    named = {m for r in found["references"] for m in r["notes"].removeprefix("palaestra train ").split(", ")}
    with_paper = {m for m, card in citation.cards().items() if card.paper}
    assert named == with_paper <= {e.id for e in catalogue.all_entries() if e.built}
    assert all(r["title"] and r["authors"] for r in found["references"])


def test_two_methods_of_a_paper_are_one_reference():
    told = {
        "a": Card(title='one: "quoted"', paper="arXiv:2402.03300"),
        "b": Card(title="two", paper="arXiv:2402.03300"),
        "c": Card(title="none"),
        "d": Card(title="three", paper="doi:10.1007/BF00992696"),
    }
    assert citation.papers(told) == [
        {"doi": "10.48550/arXiv.2402.03300", "title": 'one: "quoted"; two', "methods": "a, b"},
        {"doi": "10.1007/BF00992696", "title": "three", "methods": "d"},
    ]
    text = citation.render("citation.cff", version="1", papers=citation.papers(told))
    assert yaml.safe_load(text)["references"][0]["title"] == 'one: "quoted"; two'


@pytest.mark.parametrize("name", ["check", "nightly"])
def test_a_workflow_has_no_rights_of_its_own(name):
    text = (GITHUB / "workflows" / f"{name}.yml").read_text()
    flow = yaml.safe_load(text)
    assert flow["permissions"] == {"contents": "read"} and "secrets." not in text
    assert not any("permissions" in job for job in flow["jobs"].values())
    steps = [step for job in flow["jobs"].values() for step in job["steps"]]
    used = [s["uses"] for s in steps if "uses" in s]
    assert used and all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", u) for u in used)


def test_the_workflow_runs_every_python():
    jobs = yaml.safe_load((GITHUB / "workflows" / "check.yml").read_text())["jobs"]
    least, most = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"]).groups()
    first = [s["with"]["python-version"] for s in jobs["tests"]["steps"] if "python-version" in s.get("with", {})]
    assert [*first, *jobs["pythons"]["strategy"]["matrix"]["python"]] == [
        f"3.{n}" for n in range(int(least), int(most))
    ]
    run = "\n".join(s["run"] for job in jobs.values() for s in job["steps"] if "run" in s)
    assert ".ci/run" in run and "palaestra docs --build" in run and "python -m build" in run


def test_templates_ask_for_what_doctor_prints():
    for path in (GITHUB / "ISSUE_TEMPLATE" / "bug.yml", GITHUB / "PULL_REQUEST_TEMPLATE.md"):
        assert "palaestra doctor --json" in path.read_text()
    for path in (GITHUB / "ISSUE_TEMPLATE").glob("[!c]*.yml"):
        form = yaml.safe_load(path.read_text())
        assert form["name"] and form["description"] and form["body"]
        ids = [part["id"] for part in form["body"]]
        assert len(ids) == len(set(ids)) and all(part["attributes"]["label"] for part in form["body"])


@pytest.mark.parametrize("name", ["cpu", "cuda", "vllm"])
def test_containers_install_extras_that_there_are(name):
    text = (ROOT / "containers" / f"{name}.Dockerfile").read_text()
    (extras,) = re.findall(r'"/source\[(.+?)\]"', text)
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    assert (f"torch=={pinned_torch()}" in text) == (name != "vllm") and ("whl/cpu" in text) == (name == "cpu")
    assert re.search(r"^USER (?!root|0)", text, re.MULTILINE)
    assert len([line for line in text.splitlines() if line and not line.startswith("#")]) <= 12


def test_the_environment_with_vllm_is_one_that_the_project_allows():
    """Each dependency of the project and of the extras that it installs is pinned within its bounds."""
    text = (ROOT / "containers" / "vllm.lock").read_text()
    pinned = dict(line.split("==") for line in text.splitlines() if not line.startswith("#"))
    extras = re.findall(r"--extra (\w+)", text)
    dockerfile = (ROOT / "containers" / "vllm.Dockerfile").read_text()
    assert "/source[" + ",".join(extras) + "]" in dockerfile and "python:3.12" in dockerfile
    asked = PROJECT["dependencies"] + [d for x in extras for d in PROJECT["optional-dependencies"][x]]
    for wanted in map(Requirement, [*asked, "vllm>=0.33"]):
        if wanted.marker is None or wanted.marker.evaluate({"python_version": "3.12"}):
            version = pinned[canonicalize_name(wanted.name)]
            assert wanted.specifier.contains(version, prereleases=True), (wanted, version)


def pinned_torch():
    return re.search(r"pip install -q torch==(\S+)", (ROOT / ".ci" / "run").read_text())[1]


def test_a_container_is_given_what_its_build_needs_and_no_more(tmp_path):
    """`.dockerignore` shuts everything out but what it lets in again."""
    shut, *lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert shut == "*"
    for name in (line[1:] for line in lines if line.startswith("!")):
        source, target = ROOT / name, tmp_path / "context" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            hidden = [x.rpartition("/")[2] for x in lines if not x.startswith("!")]
            leave = lambda _, names, hidden=hidden: [n for n in names if any(fnmatch.fnmatch(n, h) for h in hidden)]
            shutil.copytree(source, target, ignore=leave)
        else:
            shutil.copy(source, target)
    there = {x.name for x in wheel_contents(build(tmp_path / "there", tmp_path / "context"))}
    assert there == {x.name for x in wheel_contents(build(tmp_path / "here"))}
