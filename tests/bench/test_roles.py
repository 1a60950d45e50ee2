"""Memory of roles that learn together: what is shared is counted once, and adapters train in each."""

import json
from pathlib import Path

import pytest
from benchmarks import roles
from palaestra.cli.main import main

pytest.importorskip("peft")
STORED = json.loads((Path(roles.__file__).parent / "roles.json").read_text())


@pytest.mark.parametrize("row", ["cory", "multi-agent-evolve"])
def test_bytes_by_hand(row):
    """Float32 is 4 bytes a number. With adapters everything beside the base is trained; without, each model is whole."""
    base, full, small = STORED["base"], roles.held(row, 0), roles.held(row, roles.RANK)
    assert full == STORED["rows"][row]["full"] and small == STORED["rows"][row]["adapters"]
    assert full["weights"] >= len(full["models"]) * base > 0.99 * full["weights"], "buffers are small"
    assert small["weights"] - 4 * small["trained"] == pytest.approx(base, rel=0.01)
    assert full["trained"] >= len(full["learners"]) * base // 4
    assert small["update"] == 12 * small["trained"] < full["update"] / 5


def test_the_table_is_of_the_file():
    lines = roles.memory_table(STORED).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == list(roles.ROWS)
    page = (Path(roles.__file__).parents[1] / "docs" / "games.md").read_text()
    assert all(line in page for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("row", ["multi-agent-evolve", "duoguard", "agentstealth"])
def test_roles_learn_with_adapters(row, tmp_path):
    assert main(["train", row, "--lora", "2", "--smoke", "--out", str(tmp_path / "run")]) == 0
    kept = list((tmp_path / "run").rglob("checkpoints/*/**/adapter_config.json"))
    assert kept and all(json.loads(p.read_text())["r"] == 2 for p in kept)
