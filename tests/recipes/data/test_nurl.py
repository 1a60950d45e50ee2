"""NuRL: the catalogue's values, who is in a new group, what a hint may say, and who writes it."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra import schedule
from palaestra.claims.data.nurl import EXPERIMENT, StepCount
from palaestra.recipes.data import nurl
from palaestra.recipes.data.nurl import hints
from palaestra.values import flatten

from tests.recipes.data.guided import Pays, bare_ids, collected, credited, prompt_seen, steps_of, trained


def paid(make, own, behind, /, at=0, **options):
    """Without a kind half of the working is shown, which every task of chains has."""
    options = {"kind": "steps", **options}
    ctx = make("chain")
    ctx = ctx.with_bench(replace(ctx.bench, reward=Pays("guided", bare=own, guided=behind)))
    return ctx, collected(ctx, schedule.resolve(nurl.build(**options), at))


def test_advantages_of_the_catalogue(context):
    """7 hinted right and the bare one wrong: .3536 and -2.4749 with ddof 1; without the bare one all are equal."""
    _, group = paid(context, [0] * 9, [1] * 7)
    assert [e.facts.get("guided", 0) for e in trained(group)] == [1] * 7 + [0]
    assert credited(nurl.build(), [group]) == pytest.approx([0.353552] * 7 + [-2.474867], abs=1e-5)
    assert credited(nurl.build(scaled=False), [group]) == pytest.approx([0.125] * 7 + [-0.875])
    _, group = paid(context, [0] * 8, [1] * 8, bare=0)
    assert credited(nurl.build(bare=0), [group]) == [0] * 8
    _, group = paid(context, [0] * 9, [0] * 7)
    assert credited(nurl.build(), [group]) == [0] * 8  # the new group may be all wrong too


def test_a_group_of_two_has_one_of_each(context):
    _, group = paid(context, [0, 0, 0], [1], n=2)
    assert [e.facts.get("guided", 0) for e in trained(group)] == [1, 0] and len(group.episodes) == 4


def test_one_right_answer_is_enough_unless_every_prompt_is_hinted(context):
    _, group = paid(context, [1] + [0] * 7, [])
    assert len(group.episodes) == len(trained(group)) == 8
    _, group = paid(context, [0], [1] * 7, every=True)
    assert len(trained(group)) == len(group.episodes) == 8, "no answer is sampled in vain"
    assert [e.facts.get("guided", 0) for e in group.episodes] == [1] * 7 + [0]
    _, group = paid(context, [], [1] * 8, every=True, bare=0)
    assert {e.facts["guided"] for e in group.episodes} == {1} and len(group.episodes) == 8


def test_a_prompt_without_a_hint_keeps_its_answers(context):
    """No bare answer alone takes the place of a group."""
    ctx = context("chain")
    task = replace(ctx.bench.tasks.task("train", 0), meta={"hint": "so it is 7", "demonstration": "= 7"}, answer="7")
    for every in (False, True):
        ctx = ctx.with_bench(replace(ctx.bench, reward=Pays("guided", bare=[0] * 8, guided=[])))
        group = asyncio.run(nurl.build("cue", every=every).collect(ctx, ("k", 1), pl.Group(task=task)))
        assert len(group.episodes) == len(trained(group)) == 8


def test_hints_begin_later(context):
    for at, n in ((2, 8), (3, 16), (9, 16)):
        _, group = paid(context, [0] * 9, [1] * 7, at=at, warm=3)
        assert len(group.episodes) == n
        _, group = paid(context, [0] * 8, [1] * 7, at=at, warm=3, every=True)
        assert [e.facts.get("guided", 0) for e in group.episodes] == ([0] * 8 if at < 3 else [1] * 7 + [0])


def test_what_is_shown(context):
    ctx, group = context("chain"), None
    task = ctx.bench.tasks.task("train", 0)
    steps = ctx.bench.tasks.steps(task)
    group, rng = pl.Group(task=task), np.random.default_rng(0)
    shown = {k: nurl.guidance(k)(ctx, group, rng) for k in ("written", "cue", "steps", "explanation", "answer")}
    assert shown["cue"] == shown["written"] == "" and shown["answer"] == f"the answer is {task.answer}"
    assert shown["explanation"].splitlines() == steps and shown["steps"].splitlines() == steps[: round(len(steps) / 2)]
    assert StepCount()(ctx, group, rng) == f"in {len(steps)} steps"
    written = replace(group, task=replace(task, meta={**task.meta, "hint": "go from left to right"}))
    assert nurl.guidance("cue")(ctx, written, rng) == "go from left to right"
    told = replace(group, task=replace(task, meta={**task.meta, "hint": f"it is {task.answer}."}))
    assert nurl.guidance("cue")(ctx, told, rng) == ""


@pytest.mark.parametrize(
    "options", [{}, {"context": "bare"}, {"place": "start", "kind": "steps"}], ids=["hinted", "bare", "start"]
)
def test_which_prompt_hinted_answers_are_trained_behind(context, options):
    ctx, group = paid(context, [0] * 9, [1] * 7, **options)
    *hinted, bare = trained(group)
    plain = bare_ids(ctx, group.task)
    for e in hinted:
        own = sum((s.ids for s in e.rows[0].segments if s.replies), ())
        sees = tuple(e.rows[0].view().ids_T[: -len(own)])
        assert ("hint:" in prompt_seen(ctx, e)) == ("place" not in options)
        assert (sees == plain) == bool(options)
    assert "hint" not in prompt_seen(ctx, bare)


def test_hints_are_written_beforehand_and_give_nothing_away():
    """Two questions a hint; one that holds the answer is asked for again, with another seed."""
    asked = []

    def model(request):
        text = request.messages[-1].content
        asked.append((text, request.seed))
        if "Explain" in text:
            assert text.startswith("2+3 ?") and "The answer is 5." in text
            return "two and three are five, so 5"
        assert "so 5" in text
        return "The answer is 5." if len(asked) <= 2 else "Think of addition, 15 is too much."

    tasks = [pl.Task(id="a", prompt=(pl.Message(role="user", content="2+3 ?"),), answer="5")]
    write = lambda **more: asyncio.run(hints.write_hints(pl.Scripted(model), tasks, **more))
    assert write() == ["Think of addition, 15 is too much."]
    assert len(asked) == 4 and len({seed for _, seed in asked}) == 4
    asked.clear()
    assert write(attempts=1) == [""]


def test_settings():
    found = flatten(nurl.build())
    for end, value in {"links.0.n": 8, ".ddof": 1, ".low": 0.2, ".high": 0.2}.items():
        assert value in {v for k, v in found.items() if k.endswith(end)}, end
    assert {7, 1} <= {v for k, v in found.items() if k.endswith(".n")}


@pytest.mark.parametrize("arm", EXPERIMENT.arms)
def test_steps_of_every_arm(arm, context):
    seen = steps_of(EXPERIMENT.arms[arm].parts["rl"].runnable, context("chain(modulo=9)"))
    assert all(m["skipped"] == 0 and math.isfinite(m["loss"]) for m in seen)
    assert not EXPERIMENT.lacks()


def test_the_start_writes_its_own_hints(context):
    """Each task drawn has one, the same when it is drawn again; the state tells how many have none."""

    def model(request):
        text = request.messages[-1].content
        return f"About {len(text)} letters."

    ctx = context("chain")
    draw = hints.WithHints(writer=pl.Scripted(model), attempts=1)
    tasks, state = asyncio.run(draw(ctx, ("k",), 3, {}))
    assert [t.prompt for t in tasks] == [t.prompt for t in pl.Shuffled()(ctx, ("k",), 3, {})[0]]
    assert all(t.meta["hint"].startswith("About") for t in tasks) and (state["asked"], state["without"]) == (3, 0)
    again, state = asyncio.run(draw(ctx, ("k",), 2, state))
    assert [t.id for t in again] == [t.id for t in pl.Shuffled()(ctx, ("k",), 5, {})[0]][3:] and state["asked"] == 5
    assert asyncio.run(draw(ctx, ("other",), 3, {}))[0] == tasks
    silent = hints.WithHints(writer=pl.Scripted(lambda request: ""), attempts=2)
    bare, state = asyncio.run(silent(ctx, ("k",), 2, {}))
    assert all("hint" not in t.meta for t in bare) and state["without"] == 2


def test_a_hint_of_the_users_file_stays(context):
    """Only tasks without one are written for; a task without an answer has nothing to explain."""
    asked = []

    def model(request):
        asked.append(request)
        return "in its own words"

    ctx = context("chain")
    task = ctx.bench.tasks.task("train", 0)
    rows = [
        replace(task, id="own", meta={**task.meta, "hint": "mine"}),
        replace(task, id="none", meta={}),
        replace(task, id="open", meta={}, answer=None),
    ]
    draw = hints.WithHints(source=lambda ctx, key, n, state: (rows, state), writer=pl.Scripted(model), attempts=1)
    tasks, state = asyncio.run(draw(ctx, ("k",), 3, {}))
    assert [t.meta.get("hint") for t in tasks] == ["mine", "in its own words", None]
    assert (len(asked), state["asked"], state["without"]) == (2, 1, 0)


def test_a_writer_that_fails_leaves_a_task_without_a_hint(context):
    def refuse(request):
        raise pl.Fault("chat-refused", "too long")

    task = context("chain").bench.tasks.task("train", 0)
    assert asyncio.run(hints.write_hints(pl.Scripted(refuse), [task], attempts=2)) == [""]


def test_the_start_writes_hints_unless_another_model_does(context):
    recipe = nurl.build()
    assert recipe.references == {"writer": "policy"} and recipe.draw == hints.WithHints()
    other = nurl.build(writer=pl.Scripted(len, "other"))
    assert other.references == {} and other.draw.writer == pl.Scripted(len, "other")
    assert nurl.build("cue").references == {} and nurl.build("cue").draw == pl.Shuffled()
