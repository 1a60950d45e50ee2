"""One conformance row per recipe: it builds, its card is complete, two steps run and do what was recorded, its state
survives the codec, and the smoke run takes seconds on a CPU (law 9)."""

import asyncio
import importlib
import json
import math
import time

import pytest
from palaestra import catalogue
from palaestra.ledger import canaries
from palaestra.method import Recipe
from palaestra.settings.overrides import make_smallest
from palaestra.store.checkpoint import Checkpoint
from palaestra.store.codec import encode
from palaestra.values import describe, difference, digest
from safetensors.torch import load_file

from tests.rows import every

BUILT = [e for e in catalogue.all_entries() if e.built]
RECIPES = [e for e in BUILT if e.shape == "recipe"]
# programs that are measured by a number of their own
BY_EXAM = {  # their rows have no answers: attacks measure them, and a checker of proofs
    "agentstealth": ("profiles", "reward"),
    "leanconjecturer": ("proofs", "pass_1"),
}
NO_POLICY = {
    "galax": "precision",
    "adversarial-influence": "damage",
    "backtracking": "moved",
    "bfs-prover-v2": "proved",
    "chd-thematic": "grounding",
    "compose-skills": "moved",
    "decrypto": "told_apart",
    "gg-bench": "opponent_edge",
    "imagined-dialogue": "loss_after",
    "disagreement": "distance",
    "hierarchical-knowledge": "path_score",
    "egd-attack": "robust_refusal",
    "infinite-sampling": "steps_saved",
    "llm-coordination": "partner_spread",
    "math-beyond": "changed",
    "metacipher": "evasion_adaptive",
    "qpa": "error",
    "qweb": "success",
    "rlhf-diversity": "moved",
    "sap": "answered",
    "pivot": "answered_dpo",
    "sawmil": "accuracy",
    "seed-bench-r1": "removed_start",
    "selftok": "reward_nested",
    "sparkle": "right",
    "systematic-reasoning": "unread",
}


def build(entry):
    """What a method trains where the user gives nothing, at its smallest."""
    module = importlib.import_module(entry.module)
    asks = any(not column.otherwise for column in module.CARD.needs.columns)
    return make_smallest(module.embedded() if asks and hasattr(module, "embedded") else module.build())


@every("entry", BUILT, ids=lambda e: e.id)
def test_card_is_complete(entry):
    module = importlib.import_module(entry.module)
    card = module.CARD
    assert (card.title, catalogue.shape_of(module.build())) == (entry.title, entry.shape)
    assert card.claim.endswith(".") and card.source and module.__doc__
    parent = catalogue.parent_of(entry.id)
    assert not parent or difference(catalogue.recipe(parent), module.build())
    built = module.build()
    assert describe(built) and digest(built) == digest(module.build())
    assert type(built).__name__ in {"Recipe", "Pipeline"} or hasattr(built, "run")


@pytest.mark.by_row
@pytest.mark.parametrize("entry", RECIPES, ids=lambda e: e.id)
def test_law_09_two_steps(entry, tmp_path):
    """They do what they did when they were recorded, which is the same seed giving the same run; and the state at
    their end survives the codec.
    """
    case, recorded = canaries.cases_of(entry.id)[""], canaries.read(entry.id)[""]
    begin = time.process_time()
    today = canaries.watch(case, recorded.size, tmp_path / "run")
    assert time.process_time() - begin < 10  # of a processor: the law
    assert today.configuration == recorded.configuration, f"record it anew: palaestra reproduce --record {entry.id}"
    moved = canaries.judge(case, recorded, today)
    assert moved is None or moved.undecided, moved
    states = [*(tmp_path / "run").rglob("step-2/state.json")]  # of each part that was trained
    assert states
    for state in states:
        plain, tensors = encode(Checkpoint(state.parent, 2).state())
        kept = load_file(state.with_suffix(".safetensors"))
        assert plain == json.loads(state.read_text()) and tensors.keys() == kept.keys()


@pytest.mark.by_row
@pytest.mark.parametrize(
    "entry", [e for e in BUILT if e.shape != "recipe" and e.family not in ("systems", "llm4rl")], ids=lambda e: e.id
)
def test_other_shapes_run(entry, context, tmp_path):
    task = catalogue.find(entry.id).CARD.task or "chain"
    built = make_smallest(canaries.default_of(entry.id)) if entry.family == "analysis" else build(entry)
    ctx = context(task, out=tmp_path, evaluate=4, steps=1)
    result = asyncio.run(built.run(ctx))
    if entry.id == "collab":  # it trains its agents, and is no policy: what decoding reaches is its result
        assert 0 <= result.metrics["right"] <= 1
    elif entry.id in BY_EXAM:
        exam, measure = BY_EXAM[entry.id]
        assert 0 <= result.metrics["evaluations"][exam]["after"][measure] <= 1
    elif entry.id in NO_POLICY:
        number = result.metrics[NO_POLICY[entry.id]]
        assert math.isfinite(number["mean"] if isinstance(number, dict) else number)
    else:
        assert 0 <= result.metrics["accuracy_after"]["mean"] <= 1


def test_every_recipe_file_is_in_the_catalogue():
    from pathlib import Path

    import palaestra.recipes

    methods = Path(palaestra.recipes.__file__).parent.glob("*/*")  # files, and folders of several files
    found = [p.stem for p in methods if not p.name.startswith("__")]
    assert sorted(found) == sorted(e.module.rpartition(".")[2] for e in BUILT)


def test_a_recipe_is_a_value():
    a, b = (build(e) for e in (RECIPES[0], RECIPES[0]))
    assert isinstance(a, Recipe) and a == b and hash(a.collect) == hash(b.collect)


def test_the_report_of_a_pipeline_shows_its_parts(tmp_path):
    from palaestra.cli.main import main

    out = tmp_path / "run"
    assert main(["train", "sft-grpo", "--smoke", "--out", str(out), "--json"]) == 0
    page = (out / "report.html").read_text()
    assert 'href="sft/report.html"' in page and 'href="rl/report.html"' in page
    assert (out / "rl" / "report.html").is_file() and (out / "sft" / "curve.png").is_file()
