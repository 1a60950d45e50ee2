"""CARFT: the contrastive term, the annotation that is measured and never trained, and its edges."""

import asyncio
from dataclasses import replace

import numpy as np
import palaestra.tasks
import pytest
import torch
from palaestra import catalogue
from palaestra.credit.links import Chain
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.recipes.objectives import carft
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.types import Row, Segment

from tests.objective.helpers import batch_of
from tests.recipes.objectives.helpers import groups_of


def test_info_nce():
    sim = torch.tensor([[0.9, 0.1], [0.2, 0.8]], dtype=torch.float64)
    assert carft.info_nce(sim, torch.ones(2), 0.1).tolist() == pytest.approx([0.000335, 0.002476], abs=1e-6)
    assert carft.info_nce(sim, torch.tensor([1.0, 0.0]), 0.1).tolist() == pytest.approx([0.000335, 0], abs=1e-6)


def contrastive(right, z1, z2):
    batch = batch_of(*[[0.0, 0.0]] * len(right))
    batch = replace(batch, columns={**batch.columns, "annotation": z1[:, None], "right": torch.tensor(right)})
    return carft.InfoNCE(0.1)({"embedding": z2[:, None]}, batch)


def test_contrast_learns_only_from_right_answers():
    z1, z2 = torch.eye(2, dtype=torch.float64), torch.rand(2, 2, dtype=torch.float64).requires_grad_()
    loss, metrics = contrastive([0.0, 0.0], z1, z2)
    assert loss.item() == 0 == float(metrics["contrast"])
    loss, _ = contrastive([1.0, 0.0], z1, 3 * z2)
    loss.backward()
    assert z2.grad.abs().sum() > 0 and torch.isfinite(z2.grad).all()
    again, _ = contrastive([1.0, 0.0], z1, 7 * z2)
    assert again.item() == pytest.approx(loss.item())  # cosines


def test_annotation_is_measured_and_never_trained(context, small):
    recipe, ctx, state = small(carft.build()), context(), start(0)
    prepare(recipe, ctx)
    assert catalogue.parent_of("carft") == "ppo"
    state, metrics = asyncio.run(step(recipe, ctx, state))
    own, noted = ctx.seen[0].episodes[0].rows
    solution = ctx.bench.tasks.steps(ctx.seen[0].task)
    assert (
        noted.segments[-1].text == "\n".join(solution)
        and noted.segments[:-1] == own.segments[: len(noted.segments) - 1]
    )
    assert not noted.view("policy").trained_T.any()
    needs = recipe.learners["policy"].needs
    found, _ = recipe.learners["policy"].credit(ctx.seen, ctx.measure(ctx.seen, needs), {})
    assert all(x.row.segments[-1].author == "policy" for x in found) and len(found) == metrics["episodes"]
    assert {x.columns["annotation"].shape for x in found} == {(1, 64)}
    for x in found:
        reply = x.row.segments[-1]
        marked = x.columns["span"][x.row.view().trained_T].astype(bool)
        text = ctx.decode([i for i, on in zip(reply.ids, marked, strict=True) if on])
        whole = ctx.decode(reply.ids)
        assert text == (whole.rpartition("\n")[0] or whole)


def test_shuffled_annotations_come_from_the_next_group():
    (one,), (two,) = groups_of([1.0]), groups_of([1.0])
    note = Row(segments=(Segment(ids=(5, 6), author=carft.ANNOTATION, trained=True),))
    groups = [replace(g, episodes=(replace(g.episodes[0], rows=(*g.episodes[0].rows, note)),)) for g in (one, two)]
    signals = [
        [[{"policy_embedding": np.full((1, 2), 9.0)}, {"policy_embedding": np.full((1, 2), float(g))}]] for g in (1, 2)
    ]
    for shuffled, expected in ((False, [1, 2]), (True, [2, 1])):
        found, _ = carft.WithAnnotation(Chain(), shuffled)(groups, signals, {})
        assert [x.columns["annotation"][0, 0] for x in found] == expected
        assert [x.columns["right"] for x in found] == [1, 1]


def test_carft_names_what_is_missing():
    group = [{"reward": 1, "value": [0.0], "ref_logp": [-1.0]}, {"reward": 0, "value": [0.0], "ref_logp": [-1.0]}]
    with pytest.raises(UserError, match="embedding"):
        explain(carft.build(), [group])


def test_value_coefficients():
    value = lambda recipe: recipe.learners["policy"].objective.parts[1].weight
    assert value(carft.build()) == 0.1 and value(carft.build(value=5.0)) == 5.0


@pytest.mark.parametrize(
    ("written", "noted"), [("17+25=42", "17+25=42"), ("17+25\n= 42", "17+25"), (" a\nb\nc\n", "a\nb")]
)
def test_a_solution_of_the_users_may_have_one_line(context, written, noted):
    ctx = context()
    task = replace(ctx.bench.tasks.task("train", 0), meta={"demonstration": written})
    (group,) = groups_of([1.0])
    (made,) = asyncio.run(carft.Annotate()(ctx, ("k",), replace(group, task=task))).episodes
    assert made.rows[-1].segments[-1].text == noted


def test_a_problem_without_a_working_is_refused(context, monkeypatch):
    """What a problem writes in one line is its answer; only the user's may be a whole working."""
    monkeypatch.setattr(palaestra.tasks, "demonstration", lambda *given: "= 4", raising=False)
    ctx, (group,) = context(), groups_of([1.0])
    group = replace(group, task=ctx.bench.tasks.task("train", 0))
    with pytest.raises(UserError, match="no worked solution: give it a `demonstration` column, or train grpo"):
        asyncio.run(carft.Annotate()(ctx, ("k",), group))
