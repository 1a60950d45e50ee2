"""CORY: the shared pay, the exchange of roles, what the observer reads, and two learners on one base."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.models.load import load
from palaestra.recipes.games import cory
from palaestra.run.benches import bench_by_name
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.values import override
from palaestra.worlds.question import Question

from tests.fake import episode, task
from tests.rewards.texts import asked, spoken


def test_pay_of_each_way_to_share():
    """The catalogue's: r1 = 0.2 and r2 = 0.9."""
    assert cory.shared_pay(0.2, 0.9, "cooperative") == pytest.approx((1.1, 1.1))
    assert cory.shared_pay(0.2, 0.9, "independent") == (0.2, 0.9)
    assert cory.shared_pay(0.2, 0.9, "competitive") == pytest.approx((-0.7, 0.7))


def test_a_shared_pair_keeps_what_each_earned():
    first, second = cory.Observe().share(spoken("a", 0.0), spoken("b", 1.0))
    assert (first.total, second.total) == (1.0, 1.0) and (first.solved, second.solved) == (False, True)
    assert [e.reward.parts for e in (first, second)] == [
        {"pioneer": 0.0, "observer": 1.0, "shared": 1.0},
        {"pioneer": 0.0, "observer": 1.0, "shared": 0.0},
    ]
    alone = cory.Observe(team="independent").share(spoken("a", 0.25), spoken("b", 1.0))
    assert [e.total for e in alone] == [0.25, 1.0] and all(e.reward.parts["shared"] == 0 for e in alone)


def test_without_the_observers_reward_the_pair_trains_nothing():
    failed = replace(spoken("b"), status="error:timeout", facts={"error": "no answer"})
    first, second = cory.Observe().share(spoken("a", 1.0), failed)
    assert first.status == "error:observer" and first.reward is None and first.facts["error"].endswith("no answer")
    assert second == failed


def test_roles_are_exchanged_every_five_steps():
    """The catalogue's: batches 0 to 4 one agent pioneers, 5 to 9 the other, 10 to 14 the first again."""
    turns = [cory.TakesTurns(5).at(s) for s in range(15)]
    assert turns == [0.0] * 5 + [1.0] * 5 + [0.0] * 5
    assert [cory.TakesTurns(0).at(s) for s in range(3)] == [0.0] * 3
    assert cory.build(swap=2).collect.links[2].turn == cory.TakesTurns(2)


def test_what_the_observer_reads():
    """Braces and marks in what others wrote stay text; earlier messages stay; nothing of the gold answer is shown."""
    system = pl.Message(role="system", content="be brief")
    question = replace(asked("1+{answer}?", "secret"), prompt=(system, *asked("1+{answer}?").prompt))
    shown = cory.observer_task(question, "<think>long</think>it is {query}\n", "{query} / {answer}")
    assert shown.prompt == (system, replace(question.prompt[1], content="1+{answer}? / it is {query}"))
    assert shown.answer == "secret" and "secret" not in str(shown.prompt)
    for empty in ("", " \n", "<think>never closed"):
        assert cory.observer_task(question, empty, "{query} / {answer}") is question
    with pytest.raises(pl.UserError, match="template needs"):
        cory.build(template="only {answer}")


def test_kl_in_the_reward_of_a_partner():
    """The catalogue's: log-ratios .1, .2, -.05 and eta .4 are -.04, -.08 and +.02, here with a pay of 1.1 at the end
    and values of 0; what the policy's own model says of the partner's answer counts nothing.
    """
    own = pl.credit.Own("partner", pl.chain(pl.Gae(gamma=1.0, lam=1.0, kl=0.4)))
    said = episode((1,), (2, 3, 4), 1.1)
    (row,) = said.rows
    row = replace(row, segments=(row.segments[0], replace(row.segments[1], policy="partner")))
    other = episode((1,), (2, 3), 7.0)
    signals = {
        "partner_value": np.zeros(4),
        "policy_value": np.full(4, 9.0),
        "ref_logp": np.array([0.0, -0.1, -0.2, 0.05]),
    }
    group = pl.Group(task=task("t", (1,), ()), episodes=(other, replace(said, rows=(row,))))
    examples, _ = own([group], [[[{}], [signals]]], {})
    (example,) = examples
    at = [1.1 - 0.04 - 0.08 + 0.02, 1.1 - 0.08 + 0.02, 1.1 + 0.02]
    assert example.columns["advantage"][1:] == pytest.approx(at) and example.row == row


def test_each_learns_from_its_own_answers_in_both_roles(context, small):
    recipe = small(cory.embedded(swap=1), **{"schedule.prompts": 1, "collect.links.0.n": 2})
    ctx = context(task="chain")
    prepare(recipe, ctx)
    state, pioneers = start(0), []
    for _ in range(2):
        before = {n: ctx.model(n).module.lm_head.weight.detach().clone() for n in ("policy", "partner")}
        state, _ = asyncio.run(step(recipe, ctx, state))
        assert all((ctx.model(n).module.lm_head.weight != w).any() for n, w in before.items())
        (group,) = ctx.seen[-1:]
        authors = [e.rows[0].segments[-1].policy for e in group.episodes]
        shown = [ctx.decode(e.rows[0].segments[0].ids) for e in group.episodes]
        assert len(set(shown[:2])) == 1 and all("hint:" not in x for x in shown[:2])
        assert any("hint:" in x for x in shown[2:]) and len(set(authors[:2])) == len(set(authors[2:])) == 1
        pioneers.append((authors[0], authors[2]))
    assert pioneers == [("policy", "partner"), ("partner", "policy")]


def test_an_environment_of_other_beginnings_is_refused(context):
    """One whose tasks have no question, and one that says something else than the question."""
    with pytest.raises(pl.UserError, match="the observer cannot read"):
        cory.observer_task(pl.Task(id="t"), "left", cory.TEMPLATE)

    class Silent(Question):
        def reset(self, task, key):
            return super().reset(replace(task, prompt=asked("always this").prompt), key)

    ctx = context(bench=replace(bench_by_name("chain")[0], world=Silent()))
    recipe = override(cory.embedded(), "collect.links.0.max_tokens", 4)
    prepare(recipe, ctx)
    group = pl.Group(task=ctx.bench.tasks.task("train", 0))
    with pytest.raises(pl.UserError, match="the observer cannot read"):
        asyncio.run(ctx.at(recipe, 0).collect(ctx, ("k",), group))


def test_partners_with_adapters_share_one_base(context):
    """Two learners and their reference hold the base once, and learning of one moves nothing of the other."""
    pytest.importorskip("peft")
    from palaestra.models.lora import LoRA

    ctx = context(task="chain")
    ctx.models["policy"] = load("tiny", lora=LoRA(rank=2))
    base = sum(p.numel() for p in load("tiny").module.parameters())
    prepare(cory.build(), ctx)
    models = [ctx.model(n).module for n in ("policy", "partner", "ref")]
    held = {p.data_ptr(): p.numel() for m in models for p in m.parameters()}
    adapters = sum(p.numel() for m in models[:2] for p in m.parameters() if p.requires_grad)
    assert sum(held.values()) == base + adapters and 0 < adapters < base / 10
    moved = ctx.model("policy").named_trainable()
    still = {n: p.detach().clone() for n, p in ctx.model("partner").named_trainable().items()}
    for p in moved.values():
        p.data += 1
    assert all((p == still[n]).all() for n, p in ctx.model("partner").named_trainable().items())


@pytest.mark.slow
def test_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path):
    small = {"schedule.prompts": 1, "collect.links.0.n": 1, "swap": 1}
    options = {"max_tokens": 6, "evaluate": 0, "quiet": True, "set": small}
    pl.train("cory", out=tmp_path / "whole", steps=2, **options)
    pl.train("cory", out=tmp_path / "stopped", steps=1, **options)
    pl.train(resume=tmp_path / "stopped", steps=2, quiet=True)
    read = lambda name: json.loads((tmp_path / name / "metrics.jsonl").read_text().splitlines()[-1])
    last = {name: read(name) for name in ("whole", "stopped")}
    for of in ("policy/loss", "partner/loss", "part/shared", "partner/grad_norm"):
        assert last["whole"][of] == last["stopped"][of]
