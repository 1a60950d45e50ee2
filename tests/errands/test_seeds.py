"""Is the one method better than the other, or did I see luck?"""

import json
from pathlib import Path

import pytest

from tests.errands.shell import palaestra, write_rows

TOKENS = 150


def test_two_methods_over_seeds(folder):
    """Each with the same budget of sampled tokens and the same seeds; the difference comes with an interval."""
    write_rows(
        "sums.jsonl", [{"prompt": f"{a}+{b} mod 10", "answer": (a + b) % 10} for a in range(8) for b in range(8)]
    )
    small = "--evaluate 6 schedule.prompts=2 sample.n=2 optimiser.lr=1e-3"
    words = f"compare grpo rloo --data sums.jsonl --seeds 2 --tokens {TOKENS} {small} --out compared"
    said = palaestra(words)
    assert said.status == 0, said.err
    result = json.loads(Path("compared/compare.json").read_text())
    assert result["seeds"] == 2 and result["budget_tokens"] == TOKENS and list(result["methods"]) == ["grpo", "rloo"]
    folders = [f for m in result["methods"].values() for f in m["folders"]]
    assert len(set(folders)) == 4
    for name, method in result["methods"].items():
        cells = [json.loads(Path(f, "cell.json").read_text()) for f in method["folders"]]
        asked = [json.loads(Path(f, "request.json").read_text()) for f in method["folders"]]
        assert [c["seed"] for c in cells] == [0, 1]
        assert [a["label"] for a in asked] == [f"{name}, seed 0", f"{name}, seed 1"]
        assert method["values"] == [c["accuracy_after"]["mean"] for c in cells]
        assert (
            method["sampled_tokens"] == [c["sampled_tokens"] for c in cells] and min(method["sampled_tokens"]) >= TOKENS
        )
        after = method["after"]
        assert after["of"] == "accuracy" and after["mean"] == pytest.approx(sum(method["values"]) / 2)
        assert 0 <= after["low"] <= after["mean"] <= after["high"] <= 1 and after["low"] < after["high"]
    grpo, rloo = (result["methods"][m]["after"]["mean"] for m in ("grpo", "rloo"))
    difference = result["differences"]["rloo - grpo"]
    assert difference["mean"] == pytest.approx(rloo - grpo) and difference["low"] < 0 < difference["high"]  # no verdict
    assert said.line("grpo").endswith("tokens a run") and "paired by seed" in said.line("rloo - grpo")
    assert said.line("picture") == "compared/compare.png" and Path("compared/compare.png").stat().st_size > 1000
    # typed again, it answers from what is there
    times = {p: p.stat().st_mtime_ns for p in Path("compared/cells").rglob("metrics.jsonl")}
    again = palaestra(f"{words} --json")
    assert again.status == 0 and json.loads(again.out.splitlines()[-1]) == result
    assert times == {p: p.stat().st_mtime_ns for p in Path("compared/cells").rglob("metrics.jsonl")}
    assert len(times) == 4
