"""Commands as people type them: methods of games, searches and agents without a task, and pipelines on a model of one's
own.
"""

import json

import palaestra
import pytest
from palaestra import catalogue
from palaestra.cli.main import main

from tests.own.files import rows_of, write_rows
from tests.test_own import cousin, needs_of, watched_models

ACTING = ("spiral", "research", "asearcher", "l0", "cel")
PIPELINES = ("sft-grpo", "multilabel-grpo", "rlbff")


@pytest.mark.timeout(900)  # cel plays whole games at the end, too
@pytest.mark.parametrize("method", ACTING)
def test_without_a_task_it_runs_where_it_acts(method, tmp_path, capsys):
    """On its embedded problem, to the end, and at the size that --smoke says."""
    out = tmp_path / "run"
    assert main(["train", method, "--smoke", "--out", str(out)]) == 0, capsys.readouterr().err
    steps = [json.loads(line) for log in out.rglob("metrics.jsonl") for line in log.read_text().splitlines()]
    assert all(step["step"] <= 2 for step in steps) and any("episodes" in step for step in steps)
    problem = palaestra.open(out).config["task"]
    assert problem and not problem.startswith(("chain", "add"))


@pytest.mark.parametrize("method", PIPELINES)
def test_a_pipeline_trains_a_model_of_ones_own(method, tmp_path, monkeypatch, capsys):
    """Every part begins with the weights of the folder, and none with the built-in model."""
    (entry,) = (e for e in catalogue.all_entries() if e.id == method)
    assert entry.shape == "pipeline"
    needs, folder, read = needs_of(entry), cousin(tmp_path / "mine"), watched_models(monkeypatch)
    data = write_rows(tmp_path / "rows.jsonl", rows_of(needs, dict(needs.own)))
    words = [f"{name}={value}" for name, value in needs.own.items() if name != "max_tokens"]
    command = ["train", method, "--data", str(data), "--model", folder, "--smoke", "--max-tokens", "8"]
    assert main([*command, "--out", str(tmp_path / "run"), *words]) == 0, capsys.readouterr().err
    assert folder in read and "tiny" not in read
