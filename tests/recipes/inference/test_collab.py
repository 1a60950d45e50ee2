"""Collab: searches that find what no agent says alone, budgets that hold, and its arms."""

import asyncio
import copy
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import palaestra
import pytest
import torch
from palaestra.claims.inference.collab import EXPERIMENT
from palaestra.errors import UserError
from palaestra.models.load import trainable_copy
from palaestra.models.score import score_pairs
from palaestra.recipes.inference.collab import build, program, search, toy
from palaestra.rollout.recorded import recorded_episode
from palaestra.types import Reward


@pytest.fixture
def agents(context):
    """A context whose agents are the policy under three names, the polite one after a little imitation."""
    ctx = context("add(d=1)")
    for name in toy.AGENTS:
        ctx.models[name] = trainable_copy(ctx.model("policy"))
    return ctx


def run(ctx, **settings):
    return asyncio.run(
        program.ControlledDecoding(**{"tasks": 3, "agents": toy.AGENTS, "target": toy.ThreeVirtues(), **settings}).run(
            ctx
        )
    ).metrics


def worth(ctx, text, ended=True):
    dialect, task = ctx.engine("policy").dialect, ctx.bench.tasks.task("test", 0)
    ids = [*dialect.encode_text(text), *([dialect.end] if ended else [])]
    how = program.ControlledDecoding(target=toy.ThreeVirtues())
    place = search.ProblemInRun(ctx, task, task, search.Spending(0), how)
    return asyncio.run(place.reward(ids, task)), len(ids)


def test_the_target_by_hand(agents):
    answer = agents.bench.tasks.task("test", 0).answer
    both, n = worth(agents, f"= {answer}{toy.THANKS}")
    assert both.parts == {"right": 1.0, "polite": 1.0, "brief": 1 - n / 64}
    assert both.total == pytest.approx(2 - n / 128)
    assert worth(agents, "= 77\nThanks")[0].parts["right"] == 0.0
    assert worth(agents, "", ended=False)[0].parts == {"right": 0.0, "polite": 0.0, "brief": 1.0}


def test_agents_and_target_of_ones_own(agents):
    """Any reward is the target, here the length; a search is at no time worse than the agent alone."""

    async def long(ctx, group):
        return [Reward(total=len(e.rows[-1].segments[-1].ids) / 64, parts={}) for e in group.episodes]

    found = run(agents, agents=("right",), target=long, alpha=0.0, forwards=500, tasks=1)
    plain = run(agents, agents=("right",), target=long, method="best of n", forwards=0, tasks=1)
    assert found["target"] == pytest.approx(found["tokens"] / 64) and found["searches"] > 0 == plain["searches"]
    assert found["target"] >= plain["target"]
    parts = build("here/a, there/b").parts
    assert parts["exam"].models == {"agent 1": "here/a", "agent 2": "there/b"}
    assert parts["exam"].runnable.agents == ("agent 1", "agent 2")


def test_agents_of_another_vocabulary_are_refused(agents):
    other = copy.copy(agents.models["short"])
    other.tokenizer = SimpleNamespace(get_vocab=lambda: {"a": 0})
    agents.models["short"] = other
    with pytest.raises(UserError, match="another vocabulary"):
        run(agents)


def test_data_need_agents(tmp_path):
    """`train collab --data F` was a traceback."""
    (tmp_path / "f.jsonl").write_text("".join(f'{{"prompt": "1 + {i}", "answer": "{i + 1}"}}\n' for i in range(12)))
    with pytest.raises(UserError, match="agents=DIR,DIR"):
        palaestra.train("collab", data=str(tmp_path / "f.jsonl"), out=tmp_path / "run", quiet=True)


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
    place = search.ProblemInRun(agents, task, task, search.Spending(1e9), program.ControlledDecoding(agents=toy.AGENTS))
    law = place.cursor("policy").logits()[0].softmax(-1)
    for average in (False, True):
        said = search.joint_answers(place, 100, 0, average)
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
        row = recorded_episode(agents, "polite", task.prompt, f"= {(int(task.answer) + 3) % 10}{toy.THANKS}", 1.0).rows[
            0
        ]
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
    answers = [
        palaestra.engines.SignedAnswer(list(b"= 7"), [0] * 3),
        palaestra.engines.SignedAnswer(list(b"= 12"), [0] * 4),
    ]
    place = [search.ProblemInRun(agents, t, t, search.Spending(0), program.ControlledDecoding()) for t in tasks]
    found = score_pairs(agents.model("policy"), [(p.prompt, a.ids) for p, a in zip(place, answers, strict=True)])
    assert program.reference_nats(agents, tasks, answers) == pytest.approx(-sum(x.sum() for x in found) / 7)


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


def test_answers_are_kept_beside_those_of_each_agent_alone(agents, tmp_path):
    """The agents have the same weights here, so alone they say the same."""
    agents.out, lines = tmp_path, []
    agents.say = lines.append
    found = run(agents, tasks=2, forwards=300)
    kept = [json.loads(x) for x in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert len(kept) == 2 and np.mean([x["target"] for x in kept]) == pytest.approx(found["target"])
    for x in kept:
        assert list(x["alone"]) == list(toy.AGENTS) and len({a["text"] for a in x["alone"].values()}) == 1
        assert sum(x["chosen_by"].values()) == pytest.approx(1.0)
    assert f"target {found['target']:.3g}; each agent alone" in lines[-1]
