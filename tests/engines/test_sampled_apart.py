"""Runs whose engine samples from rounded weights: corrected unless the method is, resumed, and the same on a worker."""

import json
from dataclasses import replace

import numpy as np
import pytest
from palaestra.cli.main import main
from palaestra.engines.formats import formats_here
from palaestra.engines.select import samples_apart
from palaestra.errors import UserError
from palaestra.objective.mismatch import TIS
from palaestra.recipes.base import grpo
from palaestra.rollout.collect import Sample, links
from palaestra.rollout.tickets import cut
from palaestra.run import setup
from palaestra.run.driver import prepare
from palaestra.scale.weights import publish
from palaestra.scale.worker import Worker, WorkerParts
from palaestra.settings.fields import Settings
from palaestra.settings.overrides import APART, adjust_recipe, correct, recipe_of
from palaestra.types import Group

from tests.published import arrays_of, published

INT8 = "own(dtype=int8)"
needs_int8 = pytest.mark.skipif(not any("int8" in x for x in formats_here()), reason="needs FBGEMM")


@pytest.mark.parametrize(
    ("engine", "tis", "cap"),
    [("own", 0.0, None), (INT8, 0.0, APART), (INT8, 3.0, 3.0), ("own", 3.0, 3.0), ("vllm", 0.0, None)],
)
def test_rounded_weights_are_corrected_for(engine, tis, cap):
    """With a cap of 2 where none is given; the run says so."""
    settings = Settings(recipe="grpo", engine=engine, tis=tis)
    for recipe in (recipe_of(settings), adjust_recipe(grpo.build(), settings)):
        learner = recipe.learners["policy"]
        assert getattr(learner.objective, "cap", None) == cap
        assert (("policy", "logp") in learner.needs) == (cap is not None)
    line = setup.describe_sampler(settings)
    assert bool(line) == samples_apart(engine) == (engine == INT8)
    assert not line or f"at most {cap:g}" in line


def test_a_method_keeps_the_correction_that_it_has():
    plain = grpo.build()
    own = TIS(plain.learners["policy"].objective, cap=5.0, floor=0.5, drop=True)
    recipe = replace(plain, learners={"policy": replace(plain.learners["policy"], objective=own)})
    assert correct(recipe, INT8).learners["policy"].objective == own
    assert correct(plain, INT8).learners["policy"].objective == TIS(plain.learners["policy"].objective, cap=APART)


def test_a_program_is_refused_as_nothing_would_correct_it():
    with pytest.raises(UserError, match="importance weights do not reach; use --engine own"):
        correct(object(), INT8)


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def records(folder):
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    clock = ("tokens_per_second", "seconds")
    return [{k: v for k, v in r.items() if not k.startswith(clock)} for r in lines if "reward" in r]


@needs_int8
def test_a_run_goes_on_where_it_stopped(tmp_path):
    """To the same weights, and its log has the mismatch and the share of weights that were cut."""
    words = [
        "grpo",
        "schedule.prompts=2",
        "collect.links.0.n=4",
        "--evaluate",
        "2",
        "--max-tokens",
        "16",
        "--engine",
        INT8,
    ]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["train", *words, "--steps", "3", "--out", str(whole)]) == 0
    assert main(["train", *words, "--steps", "2", "--out", str(parts)]) == 0
    assert main(["train", "--resume", str(parts), "--steps", "3"]) == 0
    assert records(parts) == records(whole) and len(records(whole)) == 3
    assert summary(parts)["weights_sha256"] == summary(whole)["weights_sha256"]
    for record in records(whole):
        assert 0 < record["mismatch_kl"] < 0.01 and 0 <= record["tis_capped"] < 0.2
        assert 0.8 < record["tis_weight"] < 1.2 and record["tis_weight"] != 1.0


@needs_int8
def test_rollout_processes_sample_the_same(context):
    """Whether they met other weights before or not: copies are of the weights that were published last."""

    def worker():
        ctx = context(seed=3)
        ctx.engine_name = INT8
        recipe = replace(grpo.build(), collect=links(Sample(2)))
        prepare(recipe, ctx)
        return Worker(WorkerParts.of(recipe, ctx))

    def collect(worker, version, weights):
        tasks, _ = worker.recipe.draw(worker.ctx, (3, "t"), 2, {})
        ticket = replace(cut((3, "t"), [Group(task=t) for t in tasks], 1, 5)[0], renew=True)
        brought = worker.collect(ticket, version, published(version, weights))
        rows = [r for g in brought.groups for e in g.episodes for r in e.rows]
        return [(s.ids, s.logp) for r in rows for s in r.segments if s.trained]

    first, second = worker(), worker()
    old = arrays_of(publish(first.ctx, ["policy"], 0))
    new = {n: {k: v * 1.05 if v.dtype == np.float32 else v for k, v in of.items()} for n, of in old.items()}
    before, after = collect(first, 5, old), collect(first, 6, new)
    assert not first.ctx.engine().exact
    assert collect(second, 6, new) == after != before
