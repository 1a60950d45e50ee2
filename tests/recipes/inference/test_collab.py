"""Collab: its objective by hand, searches that find what no agent says alone, budgets that hold, and its arms."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch
from palaestra.claims.inference.collab import EXPERIMENT
from palaestra.models.load import trainable_copy
from palaestra.models.score import score_pairs
from palaestra.recipes.inference import collab as c
from palaestra.rollout.recorded import recorded_episode


def test_reference_values():
    """pi_ref = (.5, .5), pi_1 = (.9, .1), pi_2 = (.6, .4), Q = .9, .7: alpha 1 takes agent 2, alpha 0 agent 1."""
    law = lambda *p: torch.tensor(p, dtype=torch.float64).log()
    kl = [c.kl_nats(law(*p), law(0.5, 0.5)) for p in ((0.9, 0.1), (0.6, 0.4))]
    assert kl == pytest.approx([0.368064, 0.020136], abs=1e-6)
    j = [c.regularised_value(q, k, 1.0) for q, k in zip((0.9, 0.7), kl, strict=True)]
    assert j == pytest.approx([0.531936, 0.679864], abs=1e-6)
    assert c.regularised_value(0.9, kl[0], 0.0) > c.regularised_value(0.7, kl[1], 0.0)
    assert c.kl_nats(law(1.0, 0.0), law(0.5, 0.5)) == pytest.approx(np.log(2)), "what has no mass costs nothing"


def test_candidates_are_the_nucleus():
    law = torch.tensor([0.05, 0.6, 0.05, 0.3]).log()
    assert c.candidates(law) == [1, 3, 0] or c.candidates(law) == [1, 3, 2]
    assert c.candidates(law, p=0.5) == [1] and c.candidates(law, p=0.99, k=2) == [1, 3]


@pytest.fixture
def agents(context):
    """A context whose agents are the policy under three names, the polite one after a little imitation."""
    ctx = context("add(d=1)")
    for name in c.AGENTS:
        ctx.models[name] = trainable_copy(ctx.model("policy"))
    return ctx


def run(ctx, **settings):
    return asyncio.run(c.ControlledDecoding(**{"tasks": 3, **settings}).run(ctx)).metrics


def test_the_target_by_hand(agents):
    task, dialect = agents.bench.tasks.task("test", 0), agents.engine("policy").dialect
    ids = lambda text: [*dialect.encode_text(text), dialect.end]
    both = c.target_parts(agents, task, ids(f"= {task.answer}{c.THANKS}"))
    n = len(ids(f"= {task.answer}{c.THANKS}"))
    assert both == {"right": 1.0, "polite": 1.0, "brief": 1 - n / 64}
    assert c.target(both) == pytest.approx(2 - n / 128)
    assert c.target_parts(agents, task, ids("= 77\nThanks"))["right"] == 0.0
    assert c.target_parts(agents, task, []) == {"right": 0.0, "polite": 0.0, "brief": 1.0}


@pytest.mark.parametrize("settings", [{}, {"agents": ("right",)}, {"horizon": 3}, {"misjudged": True}, {"alpha": 1.0}])
def test_alike_agents_say_what_one_says_and_keep_the_budget(agents, settings):
    """Where the one answer is right and as brief as can be, no search finds another, unless it is judged by another's."""
    greedy = run(agents, method="best of n", agents=("policy",), forwards=0)
    found = run(agents, forwards=500, **settings)
    assert found["forwards"] <= 500 and agents.spent["forwards"] == pytest.approx(
        3 * (greedy["forwards"] + found["forwards"])
    )
    if settings in ({}, {"agents": ("right",)}):
        assert found["target"] >= greedy["target"]
    assert sum(found["chosen_by"].values()) == pytest.approx(1)


@pytest.mark.parametrize("method", ["best of n", "switch", "average"])
def test_the_best_of_several_is_no_worse_and_keeps_the_budget(agents, method):
    one, many = (run(agents, method=method, forwards=n, tasks=2) for n in (200, 400))
    assert many["target"] >= one["target"] and one["forwards"] <= 200 < many["forwards"] <= 400


def test_switching_between_equals_is_sampling_and_the_mean_of_equals_too(agents):
    """One law under three names: an answer's tokens are drawn from it, by whatever name."""
    task = agents.bench.tasks.task("test", 0)
    place = c.ProblemInRun(agents, task, task, c.Spending(1e9), c.ControlledDecoding())
    law = place.cursor("policy").logits()[0].softmax(-1)
    for average in (False, True):
        said = c.joint_answers(place, 100, 0, average)
        share = np.mean([a.ids[0] == int(law.argmax()) for a in said])
        assert share == pytest.approx(float(law.max()), abs=0.15)
        assert all(a.ids[-1] in place.ctx.model("policy").eos or len(a.ids) == 64 for a in said)
        assert {j for a in said for j in a.by} == ({-1} if average else {0, 1, 2})


def test_a_search_finds_what_no_agent_says_alone(agents):
    """An agent that thanks wrong answers, and one that is right: both is what neither samples."""
    polite = agents.models["polite"]
    optimiser = torch.optim.AdamW(polite.trainable(), lr=1e-3)
    shown = []
    for i in range(24):
        task = agents.bench.tasks.task("train", i)
        row = recorded_episode(agents, "polite", task.prompt, f"= {(int(task.answer) + 3) % 10}{c.THANKS}", 1.0).rows[0]
        shown.append(row.view())
    for _ in range(12):
        loss = torch.zeros(())
        for view in shown:
            ids = torch.as_tensor(np.array(view.ids_T))
            logp = polite.logits(polite.hidden(ids[None])[0, :-1]).log_softmax(-1)
            on = torch.as_tensor(np.array(view.trained_T))[1:].bool()
            loss = loss - logp.gather(1, ids[1:, None])[:, 0][on].mean() / len(shown)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    agents.moving("polite")
    both = ("right", "polite")
    alone = [run(agents, method="best of n", agents=(a,), forwards=0) for a in both]
    found = run(agents, agents=both, alpha=0.0, forwards=1500)
    assert alone[0]["polite"] == 0 and alone[1]["polite"] > 0.5 and alone[1]["right"] < 0.5
    assert found["right"] == 1 and found["polite"] > 0.5
    assert found["target"] > max(a["target"] for a in alone) + 0.2 and all(s > 0 for s in found["chosen_by"].values())
    regularised = run(agents, agents=both, alpha=10.0, forwards=1500)
    assert regularised["nats"] < found["nats"], "what the reference does not say costs too much"


def test_nats_are_those_of_the_reference(agents):
    tasks = [agents.bench.tasks.task("test", i) for i in range(2)]
    answers = [c.SignedAnswer(list(b"= 7"), [0] * 3), c.SignedAnswer(list(b"= 12"), [0] * 4)]
    place = [c.ProblemInRun(agents, t, t, c.Spending(0), c.ControlledDecoding()) for t in tasks]
    found = score_pairs(agents.model("policy"), [(p.prompt, a.ids) for p, a in zip(place, answers, strict=True)])
    assert c.reference_nats(agents, tasks, answers) == pytest.approx(-sum(x.sum() for x in found) / 7)


def test_arms_differ_in_the_exam_alone():
    assert not EXPERIMENT.lacks()
    arms = EXPERIMENT.every_arm
    whole = arms["collab"].parts
    for arm in arms.values():
        assert {n: p for n, p in arm.parts.items() if n != "exam"} == {n: p for n, p in whole.items() if n != "exam"}
    exam = whole["exam"].runnable
    assert arms["short sight"].parts["exam"].runnable == replace(exam, horizon=8)
    assert arms["misjudged"].parts["exam"].runnable == replace(exam, misjudged=True)
    assert EXPERIMENT.budget["forwards"] == exam.tasks * exam.forwards
    for arm, constants in EXPERIMENT.constants.items():
        assert len(EXPERIMENT.settings_of(arm)) == len(next(iter(constants.values())))
