"""On-policy distillation: the divergences by hand, their gradients, the share of the data's answers, and refusals."""

import asyncio
import json
import math
from dataclasses import replace

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
        ({"mix": 1.5}, r"mix is 1\.5; it must be at least 0"),
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


# Q = (.5, .3, .2), P = (.7, .2, .1). One token and the rest: .5 log(.5/.7) + .5 log(.5/.3), reverse;
# .7 log(.7/.5) + .3 log(.3/.5), forward. All three: .5 log(.5/.7) + .3 log(.3/.2) + .2 log(.2/.1)
@pytest.mark.parametrize(
    ("top", "beta", "value"), [(1, 1.0, 0.0871770), (1, 0.0, 0.0822829), (3, 1.0, 0.0920333), (2, 1.0, 0.0920333)]
)
def test_top_joins_the_rest_to_one_outcome(top, beta, value):
    student, teacher = (torch.tensor(x, dtype=torch.float64).log() for x in ((0.5, 0.3, 0.2), (0.7, 0.2, 0.1)))
    known = torch.cat([teacher[:top], torch.arange(top)]).expand(1, 2, -1)
    said = Segment(ids=(1,), trained=True, logp=(math.log(0.3),))
    columns = {f"teacher_top_logp:{top}": known[0].numpy()}
    row = Row(segments=(Segment(ids=(0,)), said))
    batch = pack([Example(row=row, columns=columns)], dtype=torch.float64)
    loss, _ = pl.objective.TopJSD(top, beta)({"asked_logp": student[:top].expand(1, 2, -1)}, batch)
    assert loss.item() == pytest.approx(value, abs=3e-6)


def test_the_top_of_all_is_the_whole_vocabulary(context):
    """Two steps with the whole vocabulary and with its top V move the weights alike."""
    losses = []
    for top in (0, 4096):
        recipe, ctx, state = make_smallest(distil.build(top=top, samples=2)), context("chain"), start(0)
        prepare(recipe, ctx)
        with torch.no_grad():
            for p in ctx.model("teacher").module.parameters():
                p.mul_(1.01)
        state, metrics = asyncio.run(step(recipe, ctx, state))
        losses.append(metrics["divergence_teacher"])
    assert losses[0] > 1e-4 and losses[1] == pytest.approx(losses[0], rel=1e-3)


def told(ctx, recipe, n=2):
    """A group of the recipe, its learner, and what the teacher says of it."""
    prepare(recipe, ctx)
    task = ctx.bench.tasks.task("train", 3)
    group = asyncio.run(pl.links(pl.Sample(n=n), pl.Score())(ctx, (0, 0), Group(task=task)))
    learner = recipe.learners["policy"]
    return group, ctx.measure([group], learner.needs, learner.privileged)[0]


def test_a_privileged_teacher_reads_the_answer_behind_the_question(context):
    """Its log-probs are those of the answer behind a prompt that a person wrote out."""
    ctx = context("chain")
    group, signals = told(ctx, distil.build(over="tokens", teacher="policy", privileged="answer"))
    (row,), task = group.episodes[0].rows, group.task
    shown = pl.Message(role="user", content=f"{task.prompt[-1].content}\nanswer:\n{task.answer}")
    pieces = ctx.engine().dialect.extend((shown,), first=True, closed=False)
    prompt, said = [i for p in pieces for i in p.ids], [i for s in row.segments if s.trained for i in s.ids]
    with torch.no_grad():
        logits = ctx.model("teacher").causal(torch.tensor([prompt + said])).logits[0]
    expected = logits.log_softmax(-1)[range(len(prompt) - 1, len(prompt) + len(said) - 1), said]
    found = signals[0][0]["teacher_logp"]
    assert found[-len(said) :] == pytest.approx(expected.double().numpy(), abs=1e-4)
    assert not found[: -len(said)].any() and len(found) == len(row.view().ids_T)
    plain = ctx.measure([group], (("teacher", "logp"),))[0][0][0]["teacher_logp"]
    assert abs(found - plain).max() > 1e-3
    assert signals[0][0]["track:privileged"].all()


def test_peers_teach_and_nobody_teaches_himself(context):
    ctx = context("chain")
    recipe = distil.build(over="tokens", privileged="peer")
    group, _ = told(ctx, recipe, n=3)
    right = pl.Reward(total=1.0, parts={}, solved=True)
    wrong = pl.Reward(total=0.0, parts={}, solved=False)
    rewards = (right, wrong, wrong)
    episodes = tuple(replace(e, reward=r) for e, r in zip(group.episodes, rewards, strict=True))
    learner, group = recipe.learners["policy"], replace(group, episodes=episodes)
    shown = [e[0]["track:privileged"].any() for e in ctx.measure([group], learner.needs, learner.privileged)[0]]
    assert shown == [False, True, True]


def test_rows_that_begin_otherwise_are_refused(context):
    ctx = context("chain")
    recipe = distil.build(over="tokens", privileged="answer")
    group, _ = told(ctx, recipe)
    strange = replace(
        group.episodes[0], rows=(Row(segments=(Segment(ids=(5, 6)), *group.episodes[0].rows[0].segments)),)
    )
    learner = recipe.learners["policy"]
    silent = replace(strange, rows=(Row(segments=strange.rows[0].segments[:1]),))  # nobody answered
    ctx.measure([replace(group, episodes=(silent,))], learner.needs, learner.privileged)
    with pytest.raises(pl.UserError, match="does not begin with its prompt"):
        ctx.measure([replace(group, episodes=(strange,))], learner.needs, learner.privileged)


def test_a_student_that_teaches_itself(tmp_path):
    """With nothing to show it says what it says: the divergence is 0. With solutions it is not."""
    shown = []
    for n, hint in enumerate(("", "Add the tens.")):
        file = tmp_path / f"{n}.jsonl"
        rows = [{"prompt": f"What is 1{i} + 2{i}?", "answer": str(30 + 2 * i), "hint": hint} for i in range(4)]
        file.write_text("".join(json.dumps(r) + "\n" for r in rows))
        out = tmp_path / str(n)
        recipe = distil.build(samples=2, teacher="self", privileged="hint", every=1)
        pl.train(make_smallest(recipe), data=str(file), out=out, quiet=True, max_tokens=8, evaluate=1)
        lines = [json.loads(x) for x in (out / "metrics.jsonl").read_text().splitlines()]
        shown.append([(x["privileged"], x["divergence_teacher"]) for x in lines if "loss" in x])
    assert all(share == 0 and abs(divergence) < 1e-6 for share, divergence in shown[0])
    assert all(share == 1 and divergence > 1e-4 for share, divergence in shown[1])


def test_a_student_alone_that_reads_no_more_is_refused():
    with pytest.raises(pl.UserError, match=r"privileged=answer\|solution"):
        distil.build(teacher="self")


def test_a_solution_is_shown_whole_and_not_beyond_the_context(context):
    ctx = context("chain")
    recipe = distil.build(over="tokens", teacher="policy", privileged="solution")
    group, signals = told(ctx, recipe)
    task = replace(group.task, meta={**group.task.meta, "demonstration": "17 + 25 = 42"})
    shown = pl.rollout.Demonstrated()(ctx, replace(group, task=task), pl.rng_of((0,)))
    assert "17 + 25 = 42" in shown.prompt[-1].content
    assert signals[0][0]["track:privileged"].all()
    long = replace(task, meta={**task.meta, "demonstration": "1 + " * 4000 + "1"})
    learner = recipe.learners["policy"]
    (rows,) = ctx.measure([replace(group, task=long)], learner.needs, learner.privileged)
    assert not any(e[0]["track:privileged"].any() for e in rows)
