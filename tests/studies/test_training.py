"""What a study says of the run that made its model: rows that it was trained on, its problem, and one page of all."""

import json

import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.studies.training import run_of

WORDS = ["problems=6", "samples=2", "temperatures=[0.5]"]


def trained(tmp_path, **problem):
    run = pl.train("grpo", out=tmp_path / "run", model="tiny", steps=1, evaluate=0, quiet=True, max_tokens=8, **problem)
    return next((run.folder / "checkpoints").glob("step-*"))


@pytest.fixture
def rows(tmp_path):
    file = tmp_path / "own.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"{a} + 1 = ?", "answer": str(a + 1)}) + "\n" for a in range(6)))
    return file


@pytest.mark.slow
def test_rows_of_the_training_run_are_counted(tmp_path, rows, capsys):
    """Of six rows the run holds one out, and trains on five; all six are measured."""
    model, out = trained(tmp_path, data=str(rows)), tmp_path / "all"
    assert main(["study", "all", "--model", str(model), "--data", str(rows), "--out", str(out), *WORDS]) == 0
    assert "note: 5 of 6 rows are among the 5 that the run of the model was trained on" in capsys.readouterr().err
    for name in ("math-beyond", "rlhf-diversity"):
        protocol = json.loads((out / name / "study.json").read_text())["protocol"]
        assert protocol["training"].startswith("5 of 6 rows") and "held-out" not in json.dumps(protocol)
    whole = json.loads((out / "study.json").read_text())
    assert whole["protocol"] | {"model": str(model), "start": "tiny", "measured on": str(rows)} == whole["protocol"]
    assert "How long the answers are (math-beyond)" in {t["title"] for t in whole["tables"]}


@pytest.mark.slow
def test_without_a_problem_it_is_that_of_the_run(tmp_path, capsys):
    model, out = trained(tmp_path, task="chain"), tmp_path / "all"
    assert main(["study", "all", "--model", str(model), "--out", str(out), *WORDS]) == 0
    assert json.loads((out / "study.json").read_text())["protocol"]["measured on"] == "chain"
    assert "the run of the model was trained on chain" in capsys.readouterr().err
    other = tmp_path / "other"
    ask = ["study", "math-beyond", "--model", str(model), "--task", "add", "--out", str(other), *WORDS[:2]]
    assert main(ask) == 0
    protocol = json.loads((other / "study.json").read_text())["protocol"]
    assert protocol["measured on"] == "add" and protocol["training"] == "the run of the model was trained on chain"


@pytest.mark.slow
def test_what_the_run_held_out_is_measured_where_nothing_is_named(tmp_path, rows):
    model, out = trained(tmp_path, data=str(rows)), tmp_path / "a"
    assert main(["study", "math-beyond", "--model", str(model), "--out", str(out), *WORDS[:2]]) == 0
    assert json.loads((out / "study.json").read_text())["protocol"]["training"].startswith("0 of 1 rows")


def test_a_model_without_a_run_has_none(tmp_path):
    assert run_of("tiny") is run_of(str(tmp_path)) is None
