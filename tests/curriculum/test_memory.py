"""Memory between episodes: texts with where they come from, in the state of the draw."""

import asyncio
from dataclasses import dataclass, replace

from palaestra.curriculum.memory import Memorise, Note, Recalled, forget_notes, notes_of
from palaestra.rollout.collect import Sample
from palaestra.run.evaluation import attempt_tasks
from palaestra.step import start, step
from palaestra.store.codec import decode, encode
from palaestra.types import Group, Task

from tests.fake import episode


def group(name, *texts):
    return Group(task=Task(id=name, meta={"texts": texts}), episodes=(episode((0,), (1,), 1.0),))


def texts(group):
    return [Note(text=t) for t in group.task.meta["texts"]]


def test_a_note_knows_where_it_comes_from():
    state = Memorise(texts)([group("a", "x", "y")], {}, {"cursor": 3})
    assert state["cursor"] == 3
    assert notes_of(state) == [Note(text="x", task="a", version=0), Note(text="y", task="a", version=0)]
    told = Memorise(lambda g: [Note(text="z", task="other", version=7, facts={"can": True})])([group("a")], {}, {})
    assert notes_of(told) == [Note(text="z", task="other", version=7, facts={"can": True})]
    assert decode(*encode(state)) == state and notes_of({}) == []


def test_the_newest_different_texts_are_kept():
    keep, state = Memorise(texts, most=2), {}
    state = keep([group("a", "x"), group("b", "y"), group("c", "x")], {}, state)
    assert [(n.text, n.task) for n in notes_of(state)] == [("x", "c"), ("y", "b")], "a text once, as last seen"
    state = keep([group("d", "z")], {}, state)
    assert [n.text for n in notes_of(state)] == ["y", "z"]
    assert [n.text for n in notes_of(forget_notes(state, {"b"}))] == ["z"] and len(notes_of(state)) == 2


@dataclass(frozen=True)
class Numbered:
    def __call__(self, ctx, key, n, state):
        return [Task(id=str(i)) for i in range(n)], {**state, "cursor": n}


def test_what_is_recalled_is_put_into_tasks():
    put = lambda task, notes: replace(task, meta={"notes": tuple(n.text for n in notes)})
    state = {"memory": [Note(text=t) for t in "abcdef"]}
    tasks, after = Recalled(put, most=3, draw=Numbered())(None, (0,), 2, state)
    assert len(tasks[0].meta["notes"]) == 3 and tasks[0].meta == tasks[1].meta
    assert after == {**state, "cursor": 2}
    others, _ = Recalled(put, most=3, draw=Numbered())(None, (1,), 2, state)
    assert others[0].meta != tasks[0].meta
    brought = Recalled(put, 3, Numbered(), also=lambda t: [Note(text=f"own {t.id}")])
    tasks, after = brought(None, (0,), 2, {})
    assert sorted(tasks[0].meta["notes"]) == ["own 0", "own 1"] and notes_of(after) == []


def test_of_each_subject_there_is_one_note_and_it_is_found_by_it():
    told = lambda g: [Note(text=t, about=g.task.meta["subject"]) for t in g.task.meta["texts"]]
    of = lambda subject, *texts: Group(task=Task(id=subject, meta={"subject": subject, "texts": texts}))
    state = Memorise(told, most=2)([of("a", "x"), of("b", "x"), of("a", "y")], {}, {})
    assert [(n.about, n.text) for n in notes_of(state)] == [("b", "x"), ("a", "y")], "the newest about it, as newest"
    state = Memorise(told, most=2)([of("c", "")], {}, state)
    assert [n.about for n in notes_of(state)] == ["a", "c"] and decode(*encode(state)) == state
    put = lambda task, notes: replace(task, meta={"notes": tuple(n.about for n in notes)})
    tasks, _ = Recalled(put, draw=Numbered(), about=lambda t: "ac"[int(t.id)])(None, (0,), 2, state)
    assert [t.meta["notes"] for t in tasks] == [("a",), ("c",)]
    (nobody,), _ = Recalled(put, draw=Numbered(), about=lambda t: "b")(None, (0,), 1, state)
    assert nobody.meta["notes"] == ()


def test_nothing_of_the_held_out_split_is_remembered(context, small):
    import palaestra as pl

    ctx = context()
    recipe = small(pl.vary(pl.recipe("grpo"), observe=Memorise(lambda g: [Note(text=g.task.id)])))
    state, _ = asyncio.run(step(recipe, ctx, start(0)))
    asyncio.run(attempt_tasks(ctx, 4, Sample(n=1)))
    state, _ = asyncio.run(step(recipe, ctx, state))
    held_out = {ctx.bench.tasks.task("test", i).id for i in range(4)}
    assert len(notes_of(state["draw"])) == 4 and not held_out & {n.task for n in notes_of(state["draw"])}
    assert [n.version for n in notes_of(state["draw"])] == [0, 0, 1, 1]
