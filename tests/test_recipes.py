"""One conformance row per recipe: it builds, its card is complete, two steps run, the same seed gives the same weights,
its state survives the codec, and the smoke run takes seconds on a CPU (law 9)."""

import asyncio
import importlib
import time

import pytest

from palaestra import catalogue
from palaestra.bench import paper
from palaestra.commands.train import smoke
from palaestra.models.load import weights_sha256
from palaestra.runtime.codec import decode, encode
from palaestra.runtime.config import describe, digest
from palaestra.runtime.train import prepare
from palaestra.step import Recipe, start, step
from palaestra.types import UserError

BUILT = [e for e in catalogue.everything() if e.built]
RECIPES = [e for e in BUILT if e.shape == "recipe"]


def build(entry):
    return smoke(importlib.import_module(entry.module).build())


@pytest.mark.parametrize("entry", BUILT, ids=lambda e: e.id)
def test_card_is_complete(entry):
    module = importlib.import_module(entry.module)
    card = module.CARD
    assert (card.id, card.family, card.title, card.shape) == (entry.id, entry.family, entry.title, entry.shape)
    assert card.claim.endswith(".") and card.source and module.__doc__
    assert bool(card.parent) == bool(card.changes)
    if card.parent:
        assert catalogue.find(card.parent)
    built = module.build()
    assert describe(built) and digest(built) == digest(module.build())
    assert type(built).__name__ in {"Recipe", "Pipeline"} or hasattr(built, "run")


@pytest.mark.parametrize("entry", RECIPES, ids=lambda e: e.id)
def test_law_09_two_steps(entry, context):
    recipe, found = build(entry), []
    begin = time.perf_counter()
    for _ in range(2):
        ctx, state = context(), start(0)
        prepare(recipe, ctx)
        untouched = weights_sha256(ctx.model("policy"))
        for _ in range(2):
            state, metrics = asyncio.run(step(recipe, ctx, state))
        found.append(weights_sha256(ctx.model("policy")))
        assert state["step"] == 2 and metrics["episodes"] > 0
    assert found[0] == found[1], "the same seed gave different weights"
    if metrics.get("updates"):
        assert found[0] != untouched, "an update moved nothing"
    assert time.perf_counter() - begin < 20  # two runs: the law allows ten seconds each
    again = decode(*encode(state))
    assert encode(again)[0] == encode(state)[0]


@pytest.mark.parametrize("entry", [e for e in BUILT if e.shape != "recipe"], ids=lambda e: e.id)
def test_other_shapes_run(entry, context, tmp_path):
    built, ctx = build(entry), context(out=tmp_path, evaluate=4, steps=1)
    result = asyncio.run(built.run(ctx))
    assert 0 <= result.metrics["accuracy_after"]["mean"] <= 1


def test_every_recipe_file_is_in_the_catalogue():
    from pathlib import Path

    import palaestra.recipes

    files = Path(palaestra.recipes.__file__).parent.rglob("*.py")
    found = {p for p in files if p.name != "__init__.py"}
    assert len(found) == len(BUILT)


def test_a_recipe_is_a_value():
    a, b = (build(e) for e in (RECIPES[0], RECIPES[0]))
    assert isinstance(a, Recipe) and a == b and hash(a.collect) == hash(b.collect)


def test_the_report_of_a_pipeline_shows_its_parts(tmp_path):
    from palaestra.cli import main

    out = tmp_path / "run"
    assert main(["train", "sft-grpo", "--smoke", "--out", str(out), "--json"]) == 0
    page = (out / "report.html").read_text()
    assert 'href="sft/report.html"' in page and 'href="rl/report.html"' in page
    assert (out / "rl" / "report.html").is_file() and (out / "sft" / "curve.png").is_file()


@pytest.mark.parametrize("entry", [e for e in BUILT if importlib.import_module(e.module).CARD.size], ids=lambda e: e.id)
def test_it_builds_at_the_size_of_its_paper(entry):
    """Models, heads and references on no memory; what is only said for other sizes is refused here."""
    found = paper.dry_run(entry.id)
    assert found["training_state_gb"] > 10 and found["pflop_per_step"] > 0
    size = importlib.import_module(entry.module).CARD.size
    assert not size.prompts or found["prompts"] == size.prompts


def test_a_dry_run_counts():
    """DeepSeekMath: 30 layers of 4 x 4096^2 + 3 x 4096 x 11008, 2 x 102400 x 4096 for the vocabulary, 61 norms."""
    found = paper.dry_run("grpo")
    weights = 30 * (4 * 4096**2 + 3 * 4096 * 11008) + 2 * 102400 * 4096 + 61 * 4096
    assert found["parameters"] == {"policy": weights}
    assert found["tokens_per_step"] == 16 * 64 * 1024
    assert found["pflop_per_step"] == round(8 * weights * 2**20 / 1e15, 1)
    fewer = paper.dry_run("grpo", {"kl": "0.04", "schedule.prompts": "4", "collect.links.0.n": "2"})
    assert (fewer["prompts"], fewer["samples"]) == (4, 2)
    assert fewer["parameters"] == {"policy": weights, "ref": weights} and fewer["frozen_gb"] == round(
        2 * weights / 1e9, 1
    )


def test_a_method_without_a_size_says_so():
    with pytest.raises(UserError, match="salu: a Chinese set"):
        paper.dry_run("salu")
