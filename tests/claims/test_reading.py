"""Demonstrations of reading rules, and the placebos of the claim about writing them."""

import asyncio

import pytest
from palaestra.claims.agents.cel import EXPERIMENT, DemonstrateReading, show_nothing, show_shuffled
from palaestra.errors import UserError
from palaestra.recipes.agents.cel.lake import read_rules, things_in
from palaestra.recipes.agents.cel.writing import WorldTexts
from palaestra.types import Group


def shown(ctx, index, written):
    task = ctx.bench.tasks.task("train", index)
    (e,) = asyncio.run(DemonstrateReading(written)(ctx, ("k", index), Group(task=task))).episodes
    segments = e.rows[0].segments
    return task, "".join(s.text for s in segments if not s.trained), [s.text for s in segments if s.trained]


def test_who_reads_everything_wins_by_a_shortest_way(context):
    ctx = context("lake")
    for i in range(20):
        task, read, said = shown(ctx, i, 1.0)
        start = task.meta["start"]
        assert read_rules(read) == {m[0]: start.names[m] for m in ("up", "down", "left", "right")}
        assert f"playbook: t{start.names['goal']}" in read and len(said) <= 4
        frame = ctx.bench.world.reset(task, ("k",))
        for text in said:
            assert text.startswith(f"t{start.names['goal']}")
            assert text.removesuffix("<|end|>")[-1] == ctx.bench.world.oracle(frame.state)
            act = type("Said", (), {"text": text.removesuffix("<|end|>")})()
            frame = ctx.bench.world.step(frame.state, (act,), ("k",))
        assert frame.facts["result"] == "won"


def test_who_has_nothing_to_read_guesses(context):
    ctx, aims, right = context("lake"), [], []
    for i in range(40):
        task, read, said = shown(ctx, i, 0.0)
        names = task.meta["start"].names
        assert "rules" not in read and "playbook" not in read
        assert {x[:2] for x in said} == {said[0][:2]}, "one aim for the episode"
        aims.append(said[0][1] == names["goal"])
        moves = {m[0]: m for m in ("up", "down", "left", "right")}
        right += [x[6] == names[moves[x[5]]] for x in said]
    assert 0.25 < sum(aims) / 40 < 0.75 and 0.1 < sum(right) / len(right) < 0.4
    with pytest.raises(UserError, match="T-lake"):
        shown(context("hop"), 0, 0.0)


def test_shuffled_texts_have_the_same_words_and_say_nothing(context):
    tasks = context("lake").bench.tasks
    same, aims = [], []
    for i in range(200):
        task = tasks.task("train", i)
        names = task.meta["start"].names
        known = WorldTexts(rules=f"u{names['up']} l{names['left']}", playbook=f"t{names['goal']}")
        rules, playbook, *rest = show_shuffled(task, known).prompt[0].content.splitlines()
        found = read_rules(rules)
        assert list(found) == ["u", "l"] and "\n".join(rest) == task.prompt[0].content
        assert {*found.values()} <= {names[m] for m in ("up", "down", "left", "right")}
        same.append(found["u"] == names["up"])
        aims.append(playbook.endswith(names["goal"]))
        assert playbook[-1] in things_in(task)
    assert 0.15 < sum(same) / 200 < 0.35 and 0.4 < sum(aims) / 200 < 0.6
    assert show_shuffled(task, WorldTexts()) == task == show_nothing(task, known)


def test_arms_differ_in_what_is_written_or_shown_alone():
    arms = {name: arm.parts["rl"].runnable for name, arm in EXPERIMENT.arms.items()}
    cel = arms["cel"]
    assert arms["frozen"].draw == cel.draw and arms["frozen"].collect != cel.collect
    for name in ("shuffled", "no memory"):
        assert arms[name].collect == cel.collect and arms[name].draw != cel.draw
    for arm in arms.values():
        assert (arm.learners, arm.schedule, arm.observe) == (cel.learners, cel.schedule, cel.observe)
        exam = arm.evaluate["new worlds"]
        assert exam.collect.links[2] == arm.collect.links[2] and exam.draw.put == arm.draw.put
    assert len({str(p.parts["shown"]) for p in (*EXPERIMENT.arms.values(), EXPERIMENT.start)}) == 1
