"""Runs whose engine drafts are the runs without, also stopped and resumed (on workers: tests/scale/test_carrier.py)."""

import json

from palaestra.cli.main import main

ARGS = ["train", "grpo", "schedule.prompts=2", "collect.links.0.n=4", "--evaluate", "4", "--max-tokens", "24"]
DRAFTS = ["--engine", "own(drafts='all')"]
OF_DRAFTS = ("drafts/drafted", "drafts/accepted", "drafts/tokens_per_pass")


def records(folder):
    """metrics.jsonl without the clock and without what drafts did."""
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {k: v for k, v in r.items() if k != "tokens_per_second" and not k.startswith("seconds") and k not in OF_DRAFTS}
        for r in lines
    ], [[r[k] for k in OF_DRAFTS] for r in lines if OF_DRAFTS[0] in r]


def test_a_run_with_drafts_is_the_run_without(tmp_path):
    """Its metrics and weights; the same where it stops on the way and is resumed, when nothing of earlier visits is known."""
    folders = {name: tmp_path / name for name in ("plain", "drafted", "broken")}
    each = {"plain": [], "drafted": DRAFTS, "broken": DRAFTS}
    for name, folder in folders.items():
        steps = "2" if name == "broken" else "4"
        assert main([*ARGS, *each[name], "--steps", steps, "--out", str(folder)]) == 0
    assert main(["train", "--resume", str(folders["broken"]), "--steps", "4"]) == 0
    (plain, off), (drafted, on), (broken, _) = (records(f) for f in folders.values())
    assert drafted == plain and [r for r in broken if "step" in r][-2:] == [r for r in plain if "step" in r][-2:]
    weights = [(f / "checkpoints" / "step-4" / "model.safetensors").read_bytes() for f in folders.values()]
    assert weights[0] == weights[1] == weights[2]
    assert off == [[0, 0, 0]] * 4 and all(x[2] >= 1 for x in on) and sum(x[0] for x in on) > 0
