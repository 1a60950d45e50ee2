"""On-policy distillation: the divergences by hand, their gradients, the share of the data's answers, and refusals."""

import asyncio
import json
import math

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.models.model import Model
from palaestra.recipes.losses import distil
from palaestra.run.driver import prepare
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Example, Group, Row, Segment
from palaestra.update import pack

Q, P = (0.6, 0.4), (0.9, 0.1)  # the student, the teacher
near = lambda x: pytest.approx(x, abs=1e-6)


def loss_of(logits, objective, teacher=P):
    """The loss on one trained token behind a prompt of one, and its gradient on the student's logits."""
    said = Segment(ids=(1,), trained=True, logp=(math.log(Q[1]),))
    known = np.stack([np.zeros(2), np.log(teacher)])
    columns = {"teacher_vocab_logp": known, "teacher_logp": known[:, 1]}
    batch = pack([Example(row=Row(segments=(Segment(ids=(0,)), said)), columns=columns)], dtype=torch.float64)
    leaf = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    log = torch.log_softmax(leaf, -1)
    whole = torch.stack([torch.zeros_like(log), log])[None]
    loss, metrics = objective({"vocab_logp": whole, "logp": whole[..., 1]}, batch)
    (grad,) = torch.autograd.grad(loss, leaf)
    return loss.item(), grad.tolist(), metrics


def objective_of(**options):
    return distil.build(**options).learners["policy"].objective


# .6 log(.6/.9) + .4 log(.4/.1); .9 log(.9/.6) + .1 log(.1/.4); M = (.75, .25): half of .9 log(.9/.75) +
# .1 log(.1/.25) + .6 log(.6/.75) + .4 log(.4/.25); M = (.675, .325): .25 KL(P | M) + .75 KL(Q | M)
@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({}, 0.311238680),
        ({"divergence": "forward"}, 0.226289161),
        ({"divergence": "jsd"}, 0.063287824),
        ({"divergence": "jsd", "beta": 0.25}, 0.044551535),
    ],
)
def test_divergences_by_hand(options, value):
    loss, _, metrics = loss_of(np.log(Q), objective_of(**options))
    assert loss == near(value) and float(metrics["divergence_teacher"]) == near(value)


def test_the_gradients_of_both_kl():
    """Reverse: q_k (log q_k / p_k - KL), for the first .6 (-.405465 - .311239); forward: q - p."""
    assert loss_of(np.log(Q), objective_of())[1] == near([-0.430022, 0.430022])
    assert loss_of(np.log(Q), objective_of(divergence="forward"))[1] == near([-0.3, 0.3])


def test_the_gradient_of_jsd_by_differences():
    objective, e = objective_of(divergence="jsd", beta=0.3), 1e-6
    at = lambda x: loss_of([math.log(0.6) + x, math.log(0.4)], objective)[0]
    assert loss_of(np.log(Q), objective)[1][0] == pytest.approx((at(e) - at(-e)) / (2 * e), abs=1e-7)


@pytest.mark.parametrize("divergence", ["reverse", "forward", "jsd"])
def test_a_student_that_is_the_teacher_learns_nothing(divergence):
    loss, grad, _ = loss_of(np.log(P), objective_of(divergence=divergence))
    assert loss == near(0) and grad == near([0, 0])


def test_sampled_tokens_have_the_gradients_of_the_whole_in_the_mean():
    assert objective_of(over="tokens") == pl.KL("k2", model="teacher", reduce="tokens")
    assert objective_of(over="tokens", divergence="forward") == pl.KL("k3", model="teacher", reduce="tokens")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mix": 1.5}, r"mix is 1\.5; it is a share"),
        ({"divergence": "jsd", "beta": 1.0}, "divergence=forward and divergence=reverse"),
        ({"over": "tokens", "divergence": "jsd"}, "take over=vocabulary"),
        ({"over": "tokens", "mix": 0.5}, "need the student's own answers"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    with pytest.raises(pl.UserError, match=message):
        distil.build(**options)


def test_mix_is_the_share_of_prompts_with_the_answer_of_the_data(context):
    ctx = context("chain")
    task = ctx.bench.tasks.task("train", 0)

    def of_data(mix, keys):
        link = distil.StudentOrData(pl.Sample(n=1, max_tokens=2), mix)
        groups = [asyncio.run(link(ctx, (k,), Group(task=task))) for k in range(keys)]
        authors = [{s.author for r in g.episodes[0].rows for s in r.segments if s.trained} for g in groups]
        return [found == {"demonstration"} for found in authors]

    assert of_data(1.0, 2) == [True] * 2 and of_data(0.0, 2) == [False] * 2
    some = of_data(0.5, 16)
    assert 3 <= sum(some) <= 13 and some == of_data(0.5, 16)


def test_the_policy_as_its_own_teacher_is_refused(tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"1+{i}"}) + "\n" for i in range(4)))
    with pytest.raises(pl.UserError, match=r"distil needs a teacher, which says how likely .*: teacher=DIR"):
        pl.train("distil", data=str(file), out=tmp_path / "run", quiet=True)


def test_a_teacher_of_another_vocabulary_is_refused(context, monkeypatch):
    ctx = context()
    own = ctx.model("policy")
    other = own.tokenizer.train_new_from_iterator(["other words"] * 9, 300)
    monkeypatch.setattr(ctx, "load", lambda name, lora=None: Model("other", own.module, other, "elsewhere"))
    with pytest.raises(pl.UserError, match="elsewhere has another vocabulary"):
        prepare(distil.build(teacher="elsewhere"), ctx)


@pytest.mark.parametrize("options", [{"divergence": "jsd", "mix": 0.5}, {"over": "tokens"}])
def test_two_steps_of_every_form(context, options):
    recipe, ctx, state = make_smallest(distil.build(**options)), context("chain"), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        assert metrics["skipped"] == 0 and math.isfinite(metrics["loss"])
