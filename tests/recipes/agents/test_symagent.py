"""SymAgent: which trajectory is kept, what of it is trained, and facts that the graph lacks."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.agents import symagent
from palaestra.run.checks import check_starts
from palaestra.services.triples import TripleGraph
from palaestra.types import Act, Episode, Group, Message, Reward, Row, Segment, Task
from palaestra.worlds.graph import GraphQuestions
from palaestra.worlds.rules import RulePlanner

TASK = Task(id="t", prompt=(Message(role="user", content="boss of bako?"),), answer="tiru")
WORLD = GraphQuestions(RulePlanner(TripleGraph((("bako", "boss", "tiru"),))), plan="nobody")


def said(text, thread="", **more):
    heard = Segment(ids=(7,), text="question")
    return Row(segments=(heard, Segment(ids=(1,), logp=(-1.0,), trained=True, text=text, **more)), thread=thread)


def episode(total, turns, **facts):
    told = {"turns": turns, "reach": 0.5, "written": 1, "precision": 0.25, "added": (("a", "b", "c"),), **facts}
    rows = (said("boss", thread="planner"), said("finish(tiru)"))
    return Episode(rows=rows, reward=Reward(total=total), facts=told, status="finished")


def merge(*episodes):
    return asyncio.run(symagent.MergeTrajectories()(None, ("k",), Group(task=TASK, episodes=episodes))).episodes


@pytest.mark.parametrize(
    ("rewards", "lengths", "kept"),
    [
        ((0.5, 1), (3, 9), 1),
        ((1, 0.5), (9, 3), 0),
        ((1, 1), (7, 5), 1),
        ((0.5, 0.5), (5, 7), 0),
        ((1, 1), (5, 5), 0),
        ((0, 0), (7, 5), None),
    ],
)
def test_the_trajectory_that_is_kept_of_the_catalogue(rewards, lengths, kept):
    assert symagent.kept_of(*rewards, *lengths) == kept
    first, refined = merge(episode(rewards[0], lengths[0]), episode(rewards[1], lengths[1], reattempted=1.0))
    assert [first.muted, refined.muted] == [kept != 0, kept != 1]
    assert refined.reward.parts["kept refined"] == (kept == 1) and first.reward.parts["kept refined"] == 0


def test_a_trajectory_alone_is_kept_where_it_earned_something():
    assert [merge(episode(r, 3))[0].muted for r in (0.2, 0)] == [False, True]
    broken = Episode(status="error:context")
    assert [e.muted for e in merge(broken, episode(1, 3))] == [False, False] and merge(broken) == (broken,)


def test_thoughts_and_actions_alone_are_trained():
    (e,) = merge(episode(1, 2))
    assert [[s.trained for s in r.segments] for r in e.rows] == [[False, False], [False, True]]
    assert e.reward.parts["reach"] == 0.5 and e.reward.parts["missing"] == 1


def test_an_attempt_is_shown_once_and_is_hidden_from_training():
    e = Episode(rows=(Row(segments=(*said("searchNeighbor(bako, boss)").segments, Segment(ids=(3,), text="tiru"))),))
    text = symagent.attempt_text(e)
    assert text == "searchNeighbor(bako, boss)\n(tiru)"
    world = symagent.ShownAttempt(WORLD, text)
    frame = world.reset(TASK, ("k",))
    shown, question = frame.asks[0].say
    assert shown.hidden and shown.content == text and question.content == "boss of bako?"
    act = Act(ask=frame.asks[0], text="searchNeighbor(bako, boss)", call=None, finish="eos", n_tokens=1)
    after = world.step(frame.state, (act,), ("k", 0))
    assert [m.content for m in after.asks[0].say] == ["tiru"]
    assert world.oracle(after.state) == "finish(tiru)"


def test_a_question_is_played_and_refined_with_what_it_earned(context):
    heard = []

    async def sample(ctx, key, group):
        frame = ctx.bench.world.reset(group.task, key)
        heard.append([m.content for m in frame.asks[0].say])
        return replace(group, episodes=(*group.episodes, replace(episode(0.5, 2), facts={})))

    ctx = context("lake")
    ctx = ctx.with_bench(replace(ctx.bench, world=WORLD))
    link = symagent.ExploreGraph(sample, planner="graph")
    made = asyncio.run(link(ctx, ("k",), Group(task=TASK)))
    assert [e.facts for e in made.episodes] == [{}, {"reattempted": 1.0}]
    assert heard[0] == ["boss of bako?"] and heard[1][1:] == heard[0]
    assert "finish(tiru)" in heard[1][0] and "It earned 0.50 of 1" in heard[1][0]
    assert len(asyncio.run(replace(link, refine=False)(ctx, ("k",), Group(task=TASK))).episodes) == 1


def test_rounds_begin_with_the_model_of_the_one_before():
    parts = symagent.build(rounds=3).parts
    assert [p.model and p.model.part for p in parts.values()] == [None, "round1", "round2"]
    assert [p.model and p.model.part for p in symagent.embedded().parts.values()] == [None, "shown", "round1"]
    with pytest.raises(UserError, match="rounds is 1 or more, not 0"):
        symagent.build(rounds=0)


def test_other_problems_than_graphs_are_refused(tmp_path):
    with pytest.raises(UserError, match="symagent needs a graph, whose facts are followed: graph FILE"):
        pl.train("symagent", task="add", out=tmp_path / "run", quiet=True)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "boss of bako?", "answer": "tiru"}\n')
    with pytest.raises(UserError, match="graph and env notebook exclude each other"):
        pl.train("grpo", data=str(rows), env="notebook", graph="x.tsv", out=tmp_path / "run", quiet=True)


def test_what_the_graph_lacks_is_listed_after_a_run_on_own_files(tmp_path):
    rows, graph, docs = tmp_path / "rows.jsonl", tmp_path / "g.tsv", tmp_path / "d.md"
    row = '{"prompt": "boss of bako (%d)?", "answer": ["tiru"], "relations": ["boss"], "path": ["bako", "tiru"]}\n'
    rows.write_text("".join(row % i for i in range(24)))
    graph.write_text("mema\their\tbako\n")
    docs.write_text("bako: boss of bako is tiru.")
    (tmp_path / "shown.py").write_text(
        "import palaestra as pl\n\n\ndef build():\n"
        "    return pl.vary(pl.recipe('sft'), schedule=pl.Schedule(prompts=2, steps=1))\n"
    )
    run = pl.train(
        str(tmp_path / "shown.py"), data=str(rows), graph=str(graph), docs=str(docs), out=tmp_path / "run", quiet=True,
        env="graph(told=0,plan=nobody,extract=use)", model="tiny-agent", evaluate=0, anyway=True,
    )  # fmt: skip
    assert symagent.missing_triples(run.episodes()) == {("bako", "boss", "tiru"): 2}


def test_questions_that_start_nowhere_in_the_graph_are_told():
    """Of four questions one names an unknown entity, and one, with an empty name, none that the graph has."""
    asked = lambda text, **meta: replace(TASK, prompt=(Message(role="user", content=text),), meta=meta)
    rows = [TASK, asked("who?", entity="Bakoo"), asked("his boss?", entity=""), asked("he?", entity=["Bako"])]
    said, tasks = [], SimpleNamespace(size=4, task=lambda split, i: rows[i])
    bench = SimpleNamespace(world=WORLD, tasks=tasks)
    recipe = symagent.build(rounds=1).parts["round1"].runnable
    asyncio.run(check_starts(recipe, SimpleNamespace(bench=bench, say=said.append)))
    unknown, bare = said
    assert "1 of 4 questions name entities that the graph lacks, such as 'Bakoo'" in unknown
    assert "1 of 4 questions have no column entity" in bare and "'his boss?'" in bare
    assert WORLD.reset(rows[2], ("k",)).state.entities == ()
    assert pl.worlds.lost_entities(WORLD.planner, [rows[0], rows[3]]) == []


def test_a_first_step_without_anything_to_imitate_says_so():
    def note(*totals, reach=0.5, rules=("boss",)):
        made = [episode(r, 1, reach=reach, rules=rules, answered=r > 0) for r in totals]
        groups = [Group(task=TASK, episodes=merge(e)) for e in made]
        return symagent.MergeTrajectories().first_step_note(groups)

    assert note(0, 1) == "" and note() == ""
    assert "nothing is imitated: 0 of 2 ended with finish(...)" in note(0, 0)
    assert note(1, reach=0.0).startswith("no chain of the planner led to a right answer")
    assert note(1, reach=0.0, rules=()) == ""
