"""Warm starts that several cells begin with are run once, and nothing else is shared."""

import json
import shutil

import palaestra as pl
import pytest
from palaestra.ledger.cells import REQUEST, CellRequest, run_requested
from palaestra.settings.fields import Settings


def arm(lr=1e-4, *, seed=None, steps=2, task=""):
    sft = pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=4, steps=steps))
    rl = pl.override(pl.vary(pl.recipe("grpo"), schedule=pl.Schedule(prompts=2)), "collect.links.0.n", 2)
    rl = pl.override(rl, "optimiser.lr", lr)
    return pl.Pipeline(parts={"warm": pl.warm(sft, task, seed=seed), "rl": pl.Part(rl, model=pl.Output("warm"))})


def cell(folder, recipe, seed=0, **settings):
    """Runs a cell here, as its own process would."""
    asked = Settings(recipe="python", task="add(d=3)", seed=seed, evaluate=2, device="cpu", **settings)
    request = CellRequest(label="", settings=asked, tokens=60, recipe=recipe, own_tasks=True)
    place = folder / "cells" / request.digest()[:20]
    place.mkdir(parents=True)
    plain = {k: getattr(request, k) for k in ("label", "tokens", "samples", "arm", "own_tasks", "budget")}
    given = {k: getattr(asked, k) for k in ("recipe", "task", "seed", "evaluate", "device")}
    (place / REQUEST).write_text(json.dumps({**plain, "settings": given, "recipe": None}))
    run_requested(place, recipe)
    return json.loads((place / "cell.json").read_text()), place


def starts(folder):
    return sorted(p.name for p in (folder / "parts").iterdir()) if (folder / "parts").is_dir() else []


def test_arms_share_a_start_and_seeds_do_not(tmp_path):
    one, place = cell(tmp_path, arm(1e-4))
    assert len(starts(tmp_path)) == 1
    made = (tmp_path / "parts" / starts(tmp_path)[0] / "summary.json").stat().st_mtime_ns
    two, _ = cell(tmp_path, arm(3e-4))
    assert len(starts(tmp_path)) == 1
    assert (tmp_path / "parts" / starts(tmp_path)[0] / "summary.json").stat().st_mtime_ns == made
    assert one["parts"]["warm"]["weights_sha256"] == two["parts"]["warm"]["weights_sha256"]
    assert one["weights_sha256"] != two["weights_sha256"]
    # the numbers of the start are the cell's own
    assert (place / "warm" / "metrics.jsonl").is_file()
    cell(tmp_path, arm(1e-4), seed=1)
    assert len(starts(tmp_path)) == 2


def test_a_shared_start_changes_no_number(tmp_path):
    shared, _ = cell(tmp_path / "a", arm())
    apart = pl.Pipeline(parts={n: pl.Part(p.runnable, model=p.model) for n, p in arm().parts.items()})
    own, _ = cell(tmp_path / "b", apart)
    assert starts(tmp_path / "b") == []
    assert shared["weights_sha256"] == own["weights_sha256"]
    assert shared["accuracy_after"] == own["accuracy_after"]
    assert shared["sampled_tokens"] == own["sampled_tokens"]


def test_a_start_with_a_seed_of_its_own_serves_all_seeds(tmp_path):
    found = [cell(tmp_path, arm(seed=7), seed=s)[0] for s in (0, 1)]
    assert len(starts(tmp_path)) == 1
    assert len({x["parts"]["warm"]["weights_sha256"] for x in found}) == 1
    assert len({x["weights_sha256"] for x in found}) == 2


@pytest.mark.parametrize("other", [{"steps": 3}, {"task": "add(d=2)"}])
def test_another_start_lies_elsewhere(tmp_path, other):
    cell(tmp_path, arm())
    cell(tmp_path, arm(**other))
    assert len(starts(tmp_path)) == 2


def test_a_killed_start_is_gone_on_with_and_not_taken_for_whole(tmp_path):
    cell(tmp_path, arm())
    (tmp_path / "parts" / starts(tmp_path)[0] / "summary.json").unlink()
    again, _ = cell(tmp_path, arm(2e-4))
    assert (tmp_path / "parts" / starts(tmp_path)[0] / "summary.json").is_file()
    assert again["parts"]["warm"]["steps"] == 2


@pytest.mark.parametrize("gone", [True, False], ids=["removed", "moved along"])
def test_an_unfinished_cell_goes_on_elsewhere(tmp_path, gone):
    """Its start may have been left behind, and then it is made again; or it lies beside the cell as it did before."""
    first, place = cell(tmp_path / "a", arm())
    (place / "cell.json").unlink()
    shutil.rmtree(place / "rl")
    if gone:
        shutil.rmtree(tmp_path / "a" / "parts")
    (tmp_path / "a").rename(tmp_path / "b")
    place = tmp_path / "b" / place.relative_to(tmp_path / "a")
    there = [p.stat().st_mtime_ns for p in (tmp_path / "b").glob("parts/*/summary.json")]
    run_requested(place, arm())
    after = [p.stat().st_mtime_ns for p in (tmp_path / "b").glob("parts/*/summary.json")]
    assert len(after) == 1 and (gone or after == there)
    again = json.loads((place / "cell.json").read_text())
    assert again["weights_sha256"] == first["weights_sha256"]
    assert again["sampled_tokens"] == first["sampled_tokens"]
