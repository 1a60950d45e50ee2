"""A coefficient of 0 turns its term off: every such argument of every objectives recipe, through one step of training."""

import asyncio
import math

import pytest
from palaestra import catalogue
from palaestra.errors import UserError
from palaestra.run.driver import prepare
from palaestra.settings.overrides import arguments, build, make_smallest
from palaestra.step import start, step

OBJECTIVES = [e.id for e in catalogue.all_entries() if e.built and e.family == "objectives"]
TIMES = ("lag", "warmup", "construct", "length_from", "partial")  # whole numbers that may be 0; others are counts
REFUSED = {  # divisors, and what gives no gradient at all
    ("agro", "beta"),
    ("apo", "base"),
    ("confucius3", "length"),
    ("dr-grpo", "length"),
    ("egsw", "temperature"),
    ("incorrect-synthetic-data", "beta"),
    ("kimi-k1.5", "tau"),
    ("tba", "beta"),
    ("tba", "beta_end"),
}
WORLDS = {"gigpo": "grid", "igpo": "hop", "spa-rl": "grid", "srpo-gream": "rec"}  # where the parts have something to do
CASES = [
    (method, name)
    for method in OBJECTIVES
    for name, p in arguments(method).items()
    if p.annotation in (float, "float", float | None) or name in TIMES
]


def one_step(method, given, context):
    recipe = make_smallest(build(method, given))
    ctx, state = context(WORLDS.get(method, "chain")), start(0)
    prepare(recipe, ctx)
    return asyncio.run(step(recipe, ctx, state))[1]


@pytest.mark.by_row
@pytest.mark.parametrize(("method", "name"), [c for c in CASES if c not in REFUSED])
def test_zero_is_off(method, name, context):
    metrics = one_step(method, {name: "0"}, context)
    assert all(math.isfinite(v) for k, v in metrics.items() if k.endswith(("loss", "grad_norm")))


@pytest.mark.parametrize(("method", "name"), sorted(REFUSED))
def test_a_zero_that_is_no_coefficient_is_refused(method, name, context):
    assert (method, name) in CASES
    with pytest.raises(UserError, match=r"above [01]|at least 1"):
        one_step(method, {name: "0"}, context)


def test_a_term_of_weight_zero_needs_no_reference():
    """No frozen model is loaded for a KL that nobody adds."""
    for method, given in {
        "apo": {"kl": "0"},
        "embodied-planner-r1": {"kl": "0"},
        "carft": {"kl": "0"},
        "rapo": {"alpha": "0"},
    }.items():
        recipe = build(method, given)
        assert not recipe.references and "ref" not in {m for m, _ in recipe.learners["policy"].needs}, method
