"""Cogito, Ergo Ludo: what is written after an episode and shown before the next one."""

import asyncio
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.curriculum.memory import Note, notes_of
from palaestra.recipes.agents import cel
from palaestra.recipes.agents.cel import TextAbove
from palaestra.recipes.agents.cel.lake import WriteMoves, rule_quality
from palaestra.recipes.agents.cel.writing import WorldTexts, WriteByModel
from palaestra.services.chat.scripted import Scripted
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Episode, Group, Message, Reward, Row, Segment, Task

from tests.recipes.objectives.helpers import advantages, near, scored

BOARD = Task(id="t", prompt=(Message(role="user", content="use 4 5 6 7\nb2 8c3 9a1"),), meta={"world": "w"})


def write(*steps, known=WorldTexts(), result="", thing=""):
    facts = {"steps": steps, "result": result, "thing": thing}
    return asyncio.run(WriteMoves()(None, ("k",), BOARD, Episode(facts=facts), known))


def test_advantages_of_the_catalogue():
    assert advantages(cel.embedded(), *scored(1, 0, 0, 1)) == near([0.866024, -0.866024, -0.866024, 0.866024])
    assert advantages(cel.embedded(), *scored(1, 0, 0, 0)) == near([1.499997, -0.499999, -0.499999, -0.499999])


def test_rule_quality_of_the_catalogue():
    right, wrong = ("b2", "4", "b1"), ("b1", "4", "b2")
    assert rule_quality("u4 l6", [right] * 8 + [wrong, ("b2", "5", "c2")]) == 0.8
    assert rule_quality("", [right]) == 0
    assert rule_quality("u4", []) is None is rule_quality("u4", [("b1", "4", "b1")])  # a wall tells nothing


def test_the_first_episode_of_a_world_sees_no_rules_and_the_next_one_does():
    put = cel.PutKnowledge()
    bare = put(BOARD, [])
    assert bare.prompt == BOARD.prompt and bare.meta["known"] == WorldTexts()
    facts = {"rules": "u4", "playbook": "t9", "episodes": 1}
    (shown,) = put(BOARD, [Note(text="", about="w", facts=facts)]).prompt
    assert shown.content == "rules: u4\nplaybook: t9\nuse 4 5 6 7\nb2 8c3 9a1"
    facts["rules"] = ""
    assert put(BOARD, [Note(text="", facts=facts)]).prompt[0].content.startswith("playbook: t9\nuse")


def test_the_program_reads_moves_off_an_episode():
    assert write(("b2", "4", "b1"), ("b1", "4", "b1"), ("b1", "", "b1"), ("b1", "6", "a1")).rules == "u4 l6"
    known = WorldTexts(rules="u4 d6", playbook="t9")
    corrected = write(("b2", "4", "b3"), ("b2", "7", "c2"), known=known)
    assert corrected == WorldTexts(rules="d4 r7", playbook="t9")
    assert write(result="won", thing="9").playbook == "t9"
    assert write(result="lost", thing="8").playbook == "t9", "of two things, the other one"
    assert write(result="lost", thing="9").playbook == "t8"
    assert write() == WorldTexts()


def test_a_model_writes_rules_and_then_the_playbook():
    asked = []

    def reply(request):
        asked.append(request.messages[0].content)
        return "old\n" + "r" * 6 if len(asked) == 1 else "t9"

    e = Episode(rows=(Row(segments=(Segment(ids=(1,), text="at b2"),)),), reward=Reward(total=1.0))
    run = type("Run", (), {"client": lambda self, source: source.open()})()
    write = WriteByModel(Scripted(reply), limit=8)
    found = asyncio.run(write(run, ("k",), BOARD, e, WorldTexts(rules="u4", playbook="t8", episodes=2)))
    assert found == WorldTexts(rules="d rrrrrr", playbook="t9", episodes=2, cut=True), "the front is cut"
    assert all("at most 8 characters" in text for text in asked)
    assert "u4" in asked[0] and "at b2" in asked[0] and "won" not in asked[0]
    assert "d rrrrrr" in asked[1] and "t8" in asked[1] and "that was won" in asked[1]


@pytest.mark.parametrize(("facts", "toy"), [({"thing": "9"}, True), ({"score": 3}, False)])
def test_the_grammar_of_the_toy_is_asked_for_on_the_toy_alone(facts, toy):
    asked = []
    e = Episode(rows=(Row(segments=(Segment(ids=(1,), text="a board"),)),), reward=Reward(total=1.0), facts=facts)
    run = type("Run", (), {"client": lambda self, source: source.open()})()
    write = WriteByModel(Scripted(lambda r: asked.append(r.messages[0].content) or "right wins"))
    found = asyncio.run(write(run, ("k",), Task(id="t"), e, WorldTexts()))
    assert found.cut is False and [g in text for g, text in zip(('"u4 l7"', '"t9"'), asked, strict=True)] == [toy, toy]


def test_the_policy_is_told_to_predict_value_and_choose_and_the_game_sees_the_move_alone(context):
    heard, frames = [], []

    class Door:
        seats = ("policy",)

        def reset(self, task, key):
            say = (Message(role="user", content="You are at 2."),)
            return pl.Frame(state=0, asks=(pl.Ask(seat="policy", say=say),))

        def step(self, state, acts, key):
            heard.append(acts[0].text)
            return pl.Frame(state=1)

    async def collect(ctx, key, group):
        frames.append(await ctx.bench.world.reset(group.task, key))
        act = pl.Act(ask=frames[0].asks[0], text="<think>left: 0, right: 1</think>\nright", call=None, finish="eos",
                     n_tokens=3)  # fmt: skip
        await ctx.bench.world.step(0, (act,), key)
        return group

    ctx = context("lake")
    ctx = ctx.with_bench(replace(ctx.bench, world=Door()))
    asyncio.run(replace(cel.build().collect.links[0], link=collect)(ctx, ("k",), Group(task=Task(id="t"))))
    told = frames[0].asks[0].say[0].content
    assert all(word in told for word in ("predict", "how good", "choose")) and told.endswith("You are at 2.")
    assert heard == ["right"]
    assert cel.build(plans=False).collect.links[0].acting == "" == cel.embedded().collect.links[0].acting


def test_a_text_that_was_cut_is_said(context):
    writer = replace(cel.build(limit=5).collect.links[2], writer=write_cut)
    group = asyncio.run(writer(None, ("k",), Group(task=BOARD, episodes=(Episode(reward=Reward(total=1.0)),))))
    assert group.episodes[0].reward.parts["cut"] == 1.0 and cel.build(limit=5).collect.links[2].writer.limit == 5


async def write_cut(ctx, key, task, episode, known):
    return replace(known, rules="long", cut=True)


@pytest.mark.parametrize(("updates", "episodes", "rules"), [(0, 5, "u4"), (1, 0, "u4"), (1, 1, ""), (2, 1, "u4")])
def test_frozen_texts_stay_as_they_are(updates, episodes, rules):
    told = Episode(facts={"steps": (("b2", "4", "b1"),)}, reward=Reward(total=0.0))
    task = Task(id="t", prompt=BOARD.prompt, meta={"known": WorldTexts(episodes=episodes)})
    link = cel.WriteDown(WriteMoves(), updates)
    after = asyncio.run(link(None, ("k",), Group(task=task, episodes=(told,))))
    assert after.task.meta["learned"] == WorldTexts(rules=rules, episodes=episodes + 1)
    assert after.episodes[0].reward.parts == {"rules": 0.0, "known": 0.0}, "of the rules before, which were none"
    (note,) = cel.learned_note(after)
    assert note.about == "" and note.facts["rules"] == rules


def test_a_writer_that_fails_leaves_the_texts_as_they_were():
    async def fails(ctx, key, task, episode, known):
        raise pl.Fault("chat", "nobody answers")

    known = WorldTexts(rules="u4", episodes=2)
    group = Group(task=Task(id="t", prompt=BOARD.prompt, meta={"known": known}), episodes=(Episode(),))
    after = asyncio.run(cel.WriteDown(fails)(None, ("k",), group))
    assert after.task.meta["learned"] == WorldTexts(rules="u4", episodes=3)


def test_what_a_step_wrote_is_read_in_the_next_one(context, small):
    ctx = context("lake")
    recipe, state = small(cel.embedded()), start(0)
    state, _ = asyncio.run(step(recipe, ctx, state))
    notes = notes_of(state["draw"])
    assert [n.about for n in notes] == ["lake/train/world 0", "lake/train/world 1"]
    assert [n.facts["episodes"] for n in notes] == [1, 1]
    tasks, _ = recipe.draw(ctx, ("k",), 2, state["draw"])
    assert [t.meta["world"] for t in tasks] == [n.about for n in notes]
    for task, note in zip(tasks, notes, strict=True):
        assert task.meta["known"].rules == note.facts["rules"]
        assert task.prompt[0].content.startswith(note.text) and task.meta["known"].episodes == 1


def test_new_worlds_are_measured_with_a_memory_that_begins_empty(context):
    exam = cel.embedded(length=3, worlds=2).evaluate["new worlds"]
    found = asyncio.run(exam(context("lake", evaluate=2)))
    assert list(found) == ["round 1", "round 2", "round 3"]
    assert all(r["n"] == 2 and 0 <= r["mean"] <= 1 for r in found.values())
    assert found == asyncio.run(exam(context("lake", evaluate=2))), "it repeats"
    assert cel.embedded(worlds=0).evaluate == {}


def test_it_runs_where_worlds_have_no_rules(context, small):
    state, _ = asyncio.run(step(small(cel.embedded()), context("chain"), start(0)))
    assert [n.about for n in notes_of(state["draw"])] == ["chain"] and pl.curriculum.notes_of(state["draw"])[
        0
    ].text == ""


def test_a_world_without_prompts_says_what_is_known(context):
    """An environment of one's own says its first words itself: the texts stand above them."""
    seen = []

    class Door:
        seats = ("policy",)

        def reset(self, task, key):
            say = (Message(role="user", content="You are at 2."),)
            return pl.Frame(state=0, asks=(pl.Ask(seat="policy", say=say),))

    async def collect(ctx, key, group):
        seen.append((await ctx.bench.world.reset(group.task, key)).asks[0].say[0].content)
        return group

    ctx = context("lake")
    ctx = ctx.with_bench(replace(ctx.bench, world=TextAbove(Door(), "rules: right")))
    frame = asyncio.run(ctx.bench.world.reset(Task(id="t"), ("k",)))
    assert frame.asks[0].say[0].content == "rules: right\nYou are at 2."
    ctx = ctx.with_bench(replace(ctx.bench, world=TextAbove(Door(), "")))
    task = Task(id="t", meta={"known": WorldTexts(rules="go right")})
    asyncio.run(cel.Informed(collect)(ctx, ("k",), Group(task=task)))
    assert seen == ["rules: go right\n\nYou are at 2."]


def test_the_policy_writes_unless_another_model_is_named():
    assert cel.build().collect.links[2].writer == WriteByModel(pl.LocalModel())
    assert cel.build(pl.LocalModel("writer")).collect.links[2].writer.source.model == "writer"


def test_smoke_measures_little():
    """`train cel --smoke` took 76 s, all of it in measuring 64 worlds ten times."""
    assert make_smallest(cel.embedded()).evaluate["new worlds"].rounds == 2


def test_the_exam_is_no_larger_than_what_the_run_measures(context):
    exam = cel.embedded(length=1, worlds=8).evaluate["new worlds"]
    assert asyncio.run(exam(context("lake", evaluate=2)))["round 1"]["n"] == 2
