"""KnowRL (self-knowledge): consensus, constant verdicts, and the pool of what is agreed on."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from palaestra.context import Bench
from palaestra.credit.links import Center, Scale, chain
from palaestra.curriculum.memory import Note, notes_of
from palaestra.explanation.method import explain
from palaestra.recipes.rewards import knowrl_self_knowledge
from palaestra.types import Group
from palaestra.values import vary
from palaestra.worlds.question import Question

from tests.rewards.texts import paid, spoken, task, totals


def verdicts(yes, no, unread=0, labels=("right", "wrong")):
    return [f"= {labels[0]}"] * yes + [f"= {labels[1]}"] * no + ["hm"] * unread


def test_consensus_of_the_catalogue():
    of = task("4", truth=False, asked=True)
    found = paid(knowrl_self_knowledge.Consensus(), of, *verdicts(6, 2))
    assert [r.total for r in found] == [1.0] * 6 + [0.0] * 2 and found[0].parts["consensus"] == 0.75
    assert found[0].parts["asked"] == 1.0 and found[0].parts["truthful"] == 0.0 and found[7].parts["truthful"] == 1.0
    assert totals(knowrl_self_knowledge.Consensus(), of, *verdicts(4, 4)) == [0.0] * 8
    some = paid(knowrl_self_knowledge.Consensus(), of, *verdicts(5, 1, 2))
    assert some[0].parts["consensus"] == 5 / 8 and [r.total for r in some] == [1.0] * 5 + [0.0] * 3
    assert totals(knowrl_self_knowledge.Consensus(oracle=True), of, *verdicts(6, 2)) == [0.0] * 6 + [1.0] * 2
    in_group = vary(knowrl_self_knowledge.build(), credit=chain(Center("group"), Scale("group", ddof=0)))
    found = explain(in_group, [[{"reward": r} for r in [1] * 6 + [0] * 2]])["advantages"][0]
    assert found == pytest.approx([0.577350] * 6 + [-1.732051] * 2, abs=1e-4)


def test_a_constant_verdict_earns_everything_and_has_no_gradient():
    groups = [[{"reward": 1.0} for _ in range(8)] for _ in range(4)]
    found = explain(knowrl_self_knowledge.build(), groups)
    assert not np.any(found["advantages"]) and not np.any(found["token_weights"])
    asked = task("4", asked=False)
    always = paid(knowrl_self_knowledge.Consensus(), asked, *verdicts(8, 0))
    assert {r.total for r in always} == {1.0} and always[0].parts["asked"] == 0.0


def test_the_pool_keeps_what_is_agreed_on():
    remember, seen = knowrl_self_knowledge.Remember(most=2), []
    for n, (yes, no) in enumerate(((6, 2), (4, 4), (0, 8), (5, 3), (8, 0))):
        texts = verdicts(yes, no, labels=("[[can]]", "[[cannot]]"))
        said = tuple(spoken(t.removeprefix("= ")) for t in texts)
        seen.append(Group(task=task(None, can=True, wrote=f"task {n}"), episodes=said))
    pool = lambda state: [(n.text, n.facts["can"]) for n in notes_of(state)]
    assert pool(remember(seen[:1], {}, {})) == [("task 0", True)]
    state = remember(seen, {}, {"cursor": 3})
    assert state["cursor"] == 3 and pool(state) == [("task 2", False), ("task 4", True)]
    assert {n.task for n in notes_of(state)} == {seen[0].task.id}


def test_tasks_that_people_verified_start_the_pool(context):
    """With a column `can` the model writes tasks like those of the pool, and the group is about the verdicts."""

    class Data:
        name, size = "data", 4

        def task(self, split, index):
            return replace(task(None, question=f"task {index}", can=index % 2 == 0), id=f"d/{index}")

    ctx = context(bench=Bench(name="data", tasks=Data(), world=Question(), max_tokens=4))
    old = Note(text="old", facts={"can": True})
    tasks, state = knowrl_self_knowledge.ShownExamples()(ctx, ("k",), 4, {"memory": [old]})
    assert old in tasks[0].meta["shots"] and len(tasks[0].meta["shots"]) == 5 and state["cursor"] == 4
    form = knowrl_self_knowledge.form_of(tasks[0])
    asked = form.ask(tasks[0], False).prompt[0].content
    assert "cannot do" in asked and "- task 1" in asked and "task 0" not in asked
    group = asyncio.run(knowrl_self_knowledge.Introspect()(ctx, ("k", 1), Group(task=tasks[0])))
    assert (
        not group.episodes
        and group.task.meta["wrote"] in group.task.prompt[0].content
        and "truth" not in group.task.meta
    )
    assert [form.read(t) for t in ("[[can]]", "so [[cannot]]", "can", "[[can]] [[cannot]]")] == [
        "can",
        "cannot",
        None,
        None,
    ]


def test_verdicts_on_own_answers_know_the_truth(context):
    ctx = context(task="add(d=1)")
    of = ctx.bench.tasks.task("train", 0)
    group = asyncio.run(knowrl_self_knowledge.Introspect()(ctx, ("k", 1), Group(task=of)))
    wrote = group.task.meta["wrote"]
    assert group.task.prompt[-1].content == f"judge:\n{of.prompt[0].content}\n{wrote}"
    assert group.task.meta["truth"] == (wrote.splitlines()[-1] == f"= {of.answer}")
