"""JoyAgents-R1: nodes and their choice, the team's turns, the memory's scores, and who learns."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.models.load import load
from palaestra.recipes.games import joyagents_r1 as joy
from palaestra.recipes.games.joyagents_r1 import memory, team
from palaestra.run.benches import bench_by_name
from palaestra.run.driver import prepare
from palaestra.step import start, step

from tests.rewards.texts import asked, spoken

KEY = ("k",)
RNG = np.random.default_rng(0)


def wait(frame):
    return asyncio.run(frame) if asyncio.iscoroutine(frame) else frame


def said(ask, text, calls=(), finish="eos"):
    return pl.Act(ask=ask, text=text, call=calls[0] if calls else None, calls=calls, finish=finish, n_tokens=1)


def store_team(**options):
    world = bench_by_name("store")[0].world
    return team.Team(specialists={"shop": ("get",), "solver": ()}, tools=world, **options)


def test_the_nodes_of_the_largest_variance_are_kept():
    """The catalogue's: [1,1,1,0] has .1875, [1,0,1,0] .25 and [1,1,1,1] none; of equals the first."""
    groups = ([1, 1, 1, 0], [1, 0, 1, 0], [1, 1, 1, 1])
    variance = np.array([np.var(g) for g in groups])
    assert variance.tolist() == [0.1875, 0.25, 0.0]
    chosen = {k: joy.choose_nodes(variance, k, "variance", RNG) for k in (1, 2, 5)}
    assert chosen == {1: [1], 2: [1, 0], 5: [1, 0]}
    assert joy.choose_nodes(variance, 1, "all", RNG) == [0, 1]
    assert joy.choose_nodes(np.array([0.2, 0.2]), 1, "variance", RNG) == [0]
    drawn = {joy.choose_nodes(variance, 1, "random", np.random.default_rng(s))[0] for s in range(20)}
    assert drawn == {0, 1}
    assert joy.choose_nodes(np.zeros(3), 2, "variance", RNG) == []


def node(name, rewards, kept=True, agent="policy", texts="abcdefgh"):
    return tuple(
        replace(
            spoken(t, r, policy=agent), muted=not kept, facts={"node": name, "agent": agent, "node_text": f"say {t}"}
        )
        for t, r in zip(texts, rewards, strict=False)
    )


def test_a_message_is_compared_with_others_of_its_node():
    """Two nodes of one agent: [1,0,1,0] gives +1, -1, +1, -1, and [1,1,1,0] is muted; another agent's is not seen."""
    learner = joy.build(exam=0).learners["policy"]
    episodes = (
        *node("0", (1, 0, 1, 0)),
        *node("1", (1, 1, 1, 0), kept=False),
        *node("2", (0, 0, 0, 9), agent="caller"),
    )
    examples, _ = learner.credit([pl.Group(task=asked("q"), episodes=episodes)], [], {})
    assert [x.columns["advantage"][-1] for x in examples] == pytest.approx([1, -1, 1, -1], abs=1e-4)


def test_only_the_message_of_the_node_is_learned_from():
    """Parts: kept or not, and what the choice gained: .25 beside the mean of .25 and .1875."""
    first, second = spoken("a", 1.0), spoken("b", 0.0)
    nodes = [replace(first.rows[0].segments[1], turn=t) for t in (0, 1)]
    sampler = joy.SampleNodes(team=store_team(), n=4, keep=1)
    rows = [[spoken("a", float(r)) for r in rewards] for rewards in ([1, 0, 1, 0], [1, 1, 1, 0])]
    made = sampler._chosen(rows, nodes, RNG)
    assert [e.muted for e in made] == [False] * 4 + [True] * 4
    assert {e.reward.parts["marginal"] for e in made} == {0.25 - (0.25 + 0.1875) / 2}
    trained = [[s.trained for r in e.rows for s in r.segments] for e in (made[0], made[4])]
    assert trained == [[False, True], [False, False]]
    failed = replace(second, status="error:timeout", reward=None)
    made = sampler._chosen([[first, failed, second], [first, first, first]], nodes, RNG)
    assert made[1] == failed and [e.muted for e in made] == [False, False, False, True, True, True]
    none = sampler._chosen([[first, first]], nodes, RNG)
    assert all(e.muted and e.reward.parts["marginal"] == 0 for e in none)


def test_a_team_is_read_or_refused():
    assert team.read_team("shop: get, add; solver:") == {"shop": ("get", "add"), "solver": ()}
    for wrong in ("", "shop: get", "a: x; a: y", "policy: x; b:", "answer:; b:", "Shop: x; b:", "shop get; b:"):
        with pytest.raises(pl.UserError, match='write team="shop'):
            team.read_team(wrong)
    for options in ({"n": 1}, {"keep": 0}, {"rounds": 0}, {"memory": -1}):
        with pytest.raises(pl.UserError, match="joyagents-r1"):
            joy.build(**options)


def test_tools_that_are_not_there_and_other_environments_are_refused(context):
    with pytest.raises(pl.UserError, match="no tool fly for the team; the tools are add, get, multiply"):
        wait(replace(store_team(), specialists={"shop": ("fly",), "solver": ()}).check())
    with pytest.raises(pl.UserError, match=r"no tool \* .*give --tools"):
        wait(team.Team(specialists={"shop": ("*",), "solver": ()}).check())
    with pytest.raises(pl.UserError, match="another environment"):
        joy.team_in(context(task="tictactoe"), store_team())
    with pytest.raises(pl.UserError, match="needs questions"):
        wait(store_team().reset(pl.Task(id="t"), KEY))


def test_the_turns_of_a_team():
    """The master chooses, the shop calls its own tool alone and answers, the master reads that and concludes."""
    system = pl.Message(role="system", content="be brief")
    question = replace(asked("a1?", "secret"), prompt=(system, *asked("a1?").prompt))
    world = store_team()
    frame = wait(world.reset(question, KEY))
    (ask,) = frame.asks
    assert ask.seat == "policy" and ask.choices == ("shop", "solver") and ask.say[0] == system
    assert ask.say[1].content.startswith("a1?\n\nAgents:\n- shop: get\n- solver: no tools\n")
    frame = wait(world.step(frame.state, (said(ask, "shop"),), KEY))
    (ask,) = frame.asks
    assert ask.seat == "shop" and ask.say == question.prompt and [t.name for t in ask.tools] == ["get"]
    calls = (pl.Call(name="get", args={"key": "a1"}), pl.Call(name="add", args={"a": 1, "b": 2}))
    frame = wait(world.step(frame.state, (said(ask, "call", calls),), KEY))
    (ask,) = frame.asks
    results = [m.content for m in ask.say]
    assert results[0].isdigit() and "none of your tools: add" in results[1] and frame.facts["tool_malformed"] == 1
    frame = wait(world.step(frame.state, (said(ask, "<think>x</think>it is [[7]] </s>"),), KEY))
    (ask,) = frame.asks
    assert (
        ask.seat == "policy" and ask.choices == ("answer", "shop", "solver") and frame.facts["consulted"] == ("shop",)
    )
    assert "shop answered:\nit is [ [7] ]" in ask.say[0].content and "</s>" not in ask.say[0].content
    again = wait(world.step(frame.state, (said(ask, "solver"),), KEY)).asks[0]
    assert again.seat == "solver" and again.thread == "1" and "shop answered" in again.say[-1].content
    last = wait(world.step(frame.state, (said(ask, "answer"),), KEY))
    assert last.asks[0].choices is None and team.FINAL in last.asks[0].say[0].content
    ended = wait(world.step(last.state, (said(last.asks[0], "= 7"),), KEY))
    assert not ended.asks and ended.facts == {"answered": True}
    assert "secret" not in str([x.asks for x in (frame, last)] + [again])


def test_the_one_specialists_answer_may_be_the_teams():
    world = store_team(final="specialist", rounds=2)
    frame = wait(world.reset(asked("a1?"), KEY))
    frame = wait(world.step(frame.state, (said(frame.asks[0], "solver"),), KEY))
    cut = wait(world.step(frame.state, (said(frame.asks[0], "= ", finish="length"),), KEY))
    assert not cut.asks and cut.status == "truncated:length" and cut.facts["consulted"] == ("solver",)


def note(text, about, score=1):
    return pl.curriculum.Note(text=text, about=about, facts={"score": score})


def test_notes_of_near_questions_are_shown_and_never_of_the_same():
    notes = [note("A", "price of tea"), note("B", "price of a cup"), note("C", "age of bako", 9), note("D", "sum")]
    assert memory.overlap("price of tea", "price of milk") == 0.5 and memory.overlap("", "?") == 0.0
    near = memory.nearest_notes(notes, "price of milk", 2)
    assert [n.text for n in near] == ["A", "B"]
    assert [n.text for n in memory.nearest_notes(notes, "price of tea ", 2)] == ["B", "C"]
    task = replace(asked("q"), meta={"team_notes": {"policy": ("A", "B")}})
    first = wait(store_team().reset(task, KEY)).asks[0].say[0].content
    assert first.startswith(f"q\n\n{team.NOTES}\n\nA\n\nB\n\nAgents:")


def test_rewards_of_nodes_move_the_scores_of_notes():
    """m = .5 at both nodes of one agent, so a shown note keeps its score there; what was written above m gains
    or is new, below m it loses; below 0 it is forgotten.
    """
    old = {
        "policy": [note("q\nsay a", "q", 3), note("q\nsay b", "q", 0), note("seen", "z", 2)],
        "caller": [note("low", "z", 0)],
    }
    shown = {"policy": ("seen",), "caller": ("low",)}
    task = replace(asked("q"), meta={"team_notes": shown})
    episodes = (*node("0 policy", (1, 0)), *node("1 caller", (0, 0), agent="caller"))
    better = (*node("0 policy", (1, 1), texts="xy"), *node("1 caller", (1, 0), agent="caller", texts="uv"))
    groups = [pl.Group(task=task, episodes=episodes), pl.Group(task=asked("other"), episodes=better)]
    kept = memory.EvolveMemory()(groups, {}, {memory.STATE: old})[memory.STATE]
    scores = {a: {n.text: n.facts["score"] for n in notes} for a, notes in kept.items()}
    assert scores["policy"] == {"q\nsay a": 4, "seen": 1}  # m = .5 is below the agent's mean of .75
    assert scores["caller"] == {"other\nsay u": 1}
    few = memory.EvolveMemory(most=1)(groups, {}, {memory.STATE: old})[memory.STATE]
    assert [n.text for n in few["policy"]] == ["q\nsay a"]


def agents(context, **options):
    ctx = context(task="store")
    ctx.models["policy"] = load("tiny-agent")
    recipe = pl.vary(joy.embedded(exam=0, n=3, keep=9, **options), schedule=pl.Schedule(prompts=4))
    prepare(recipe, ctx)
    return ctx, recipe


def test_alternatives_share_what_came_before_and_others_stay(context):
    ctx, recipe = agents(context, team="shop: *; clerk: *")
    before = {n: ctx.model(n).module.lm_head.weight.detach().clone() for n in recipe.learners}
    asyncio.run(step(recipe, ctx, start(0)))
    group, nodes = max(ctx.seen[-4:], key=lambda g: len(g.episodes)), {}
    for e in group.episodes:
        nodes.setdefault(e.facts["node"], []).append(joy.messages_of(e))
    assert len(nodes) > 3 and all(len(x) == 3 for x in nodes.values())
    for name, each in nodes.items():
        turn = int(name.split()[0])
        assert len({tuple(s.ids for s in said[:turn]) for said in each}) == 1
        assert {said[turn].policy for said in each} == {name.split()[1]}
    trained = {(s.turn, s.policy) for e in group.episodes for s in joy.messages_of(e) if s.trained}
    assert trained <= {(int(n.split()[0]), n.split()[1]) for n in nodes}
    owners = {e.facts["agent"] for g in ctx.seen[-4:] for e in g.episodes if not e.muted}
    moved = {n for n, w in before.items() if (ctx.model(n).module.lm_head.weight != w).any()}
    assert moved and moved <= owners < set(recipe.learners)


def test_agents_with_adapters_hold_the_base_once(context):
    pytest.importorskip("peft")
    from palaestra.models.lora import LoRA

    ctx = context(task="store")
    ctx.models["policy"] = load("tiny-agent", lora=LoRA(rank=2))
    base = sum(p.numel() for p in load("tiny-agent").module.parameters())
    prepare(joy.build(exam=0), ctx)
    models = [ctx.model(n).module for n in ("policy", "caller", "solver")]
    held = {p.data_ptr(): p.numel() for m in models for p in m.parameters()}
    adapters = sum(p.numel() for m in models for p in m.parameters() if p.requires_grad)
    assert sum(held.values()) == base + adapters and 0 < adapters < base / 5


def test_the_exam_is_the_teams(context):
    ctx, _ = agents(context)
    numbers = asyncio.run(joy.TeamExam(store_team(final="specialist"), tasks=2)(replace_models(ctx)))
    assert numbers["team"]["n"] == 2 and numbers["asked shop"] + numbers["asked solver"] == 1


def replace_models(ctx):
    ctx.models["shop"] = ctx.model("policy")
    return ctx


@pytest.mark.slow
def test_a_run_that_was_stopped_keeps_its_memory(tmp_path):
    chosen = {"schedule.prompts": 1, "n": 3, "memory": 1, "exam": 0}
    options = {"evaluate": 0, "quiet": True, "set": chosen, "max_tokens": 24}
    pl.train("joyagents-r1", out=tmp_path / "whole", steps=3, **options)
    pl.train("joyagents-r1", out=tmp_path / "stopped", steps=2, **options)
    pl.train(resume=tmp_path / "stopped", steps=3, quiet=True)
    read = lambda name: json.loads((tmp_path / name / "metrics.jsonl").read_text().splitlines()[-1])
    whole, stopped = read("whole"), read("stopped")
    assert [whole[k] for k in ("reward", "part/marginal")] == [stopped[k] for k in ("reward", "part/marginal")]
    kept = [json.loads((p / "checkpoints/step-3/state.json").read_text()) for p in tmp_path.iterdir()]
    draws = [str(x["tree"]["state"]["draw"]) for x in kept]
    assert "team memory" in draws[0] and draws[0] == draws[1]
