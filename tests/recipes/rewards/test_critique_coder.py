"""Critique-Coder: the share of tests, labels of critiques, and how both are mixed."""

import asyncio
from dataclasses import replace

import pytest
from palaestra.errors import Fault
from palaestra.explanation.method import explain
from palaestra.recipes.rewards import critique_coder
from palaestra.rewards.where import Where
from palaestra.run.driver import prepare
from palaestra.schedule import resolve
from palaestra.types import Group

from tests.rewards.texts import asked, totals

FENCED = "```python\n{}\n```"


def of_tests(code, *tests, variant="paper"):
    reward = critique_coder.build(variant=variant).collect.links[1].reward
    return totals(reward, asked("write f", tests=list(tests)), FENCED.format(code), "no code")


@pytest.mark.parametrize("passed, n, first, paper, released", [(3, 4, 0, 0.75, 0.75), (4, 4, 0, 1, 1)])
def test_critique_coder_pays_the_share_of_tests(passed, n, first, paper, released):
    tests = ["assert f() == 1" if i < passed else "assert f() == 2" for i in range(n)]
    assert of_tests("def f(): return 1", *tests) == [paper, 0]
    assert of_tests("def f(): return 1", *tests, variant="released") == [released, 0]


def test_critique_coder_18_of_24_and_9_of_the_first_10(monkeypatch):
    passed = (*[True] * 9, False, *[True] * 9, *[False] * 5)
    monkeypatch.setattr("palaestra.verifiers.code.programs.run_tests", lambda *a, **k: (passed, "failed"))
    assert of_tests("x = 1", *["pass"] * 24) == [0.75, 0]
    assert of_tests("x = 1", *["pass"] * 24, variant="released") == [0.9, 0]


@pytest.mark.parametrize(
    "label, old, new",
    [
        ("T", True, True),
        ("True", True, None),
        ("true", None, None),
        ("NOT SURE", True, None),
        ("T or F", True, None),
        ("F", False, False),
    ],
)
def test_critique_coder_parsers(label, old, new):
    text = f"Hm. \\conclusion{{{label}}}"
    tasks = {right: asked("q", "FT"[right], label=right) for right in (True, False)}
    paid = lambda variant: {
        r: critique_coder.CritiqueLabel(1.0, variant).judge(text, t).total for r, t in tasks.items()
    }
    assert paid("released") == {True: float(old is True), False: float(old is False)}
    assert paid("paper") == {True: float(new is True), False: float(new is False)}


def test_critique_coder_labels_that_differ_are_none():
    task, both = asked("q", "F", label=False), "\\conclusion{T} no, \\conclusion{F}"
    assert critique_coder.CritiqueLabel().judge(both, task).total == 0
    assert critique_coder.CritiqueLabel(variant="released").judge(both, task).total == 1
    assert critique_coder.CritiqueLabel().judge("<think>\\conclusion{T}</think>\\conclusion{F}", task).total == 1
    assert critique_coder.CritiqueLabel().judge("", task).total == 0


def test_critique_coder_weight_leaves_advantages_alone():
    recipe = critique_coder.build(stage_one=10)
    early, late = (resolve(recipe, s).collect.links[1].reward.reward.weight for s in (9, 10))
    assert (early, late) == (0.8, 1.0)
    assert critique_coder.CritiqueLabel(0.8).judge("\\conclusion{T}", asked("q", "T", label=True)).total == 0.8
    found = [explain(recipe, [[{"reward": r * w} for r in (1, 0, 0, 1)]])["advantages"][0] for w in (0.8, 1.0)]
    assert found[0] == pytest.approx(found[1], abs=1e-4)


def test_critique_coder_candidates_become_questions():
    task = asked("add", "3", tests=["assert True"])
    assert [share > critique_coder.LEAST for share in (20 / 24, 19 / 24, 24 / 30)] == [True, False, False]
    made = critique_coder.critique(task, FENCED.format("x = 1  # \\conclusion{T}"), False)
    assert made.answer == "F" and made.meta == {"label": False} and "conclusion{F}" in made.prompt[-1].content
    assert not critique_coder.is_usable("```python\n```", task) and critique_coder.is_usable(FENCED.format("x"), task)
    plain = critique_coder.critique(asked(), "= 4", False)
    assert plain.answer == "wrong" and critique_coder.CritiqueLabel().judge("= wrong", plain).total == 1


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_critique_coder_mixes_balanced_critiques(context, share):
    ctx = context(task="add(d=2)")
    prepare(critique_coder.build(), ctx)
    link = critique_coder.Criticise(share=share, candidates=4)
    tasks = [ctx.bench.tasks.task("train", i) for i in range(40)]

    async def all_of():
        return await asyncio.gather(*(link.ask_critique(ctx, ("k", i), Group(task=t)) for i, t in enumerate(tasks)))

    found = [g.task for g in asyncio.run(all_of()) if "label" in g.task.meta]
    assert share * 40 - 10 <= len(found) <= share * 40 + 10
    if share == 1:
        assert 10 <= sum(t.meta["label"] for t in found) <= 30


def test_critique_coder_an_error_is_no_zero():
    async def dead(ctx, group):
        raise Fault("sandbox", "gone")

    found = totals(Where("tests", dead), asked(tests=[]), "a")
    assert isinstance(found[0], Fault)


def test_critique_coder_takes_candidates_from_the_data(context):
    """Of the solutions of a task the one is asked about that has the label which a coin asks for."""
    ctx = context(task="add(d=2)")
    prepare(critique_coder.build(), ctx)
    link, texts = critique_coder.Criticise(share=1.0), ["= 3", "= 4"]
    groups = [Group(task=replace(asked(solutions=texts), id=f"t/{i}")) for i in range(12)]

    async def ask():
        return [await link.ask_critique(ctx, ("k",), g) for g in groups]

    tasks = [g.task for g in asyncio.run(ask())]
    labels = [t.meta["label"] for t in tasks]
    assert all(("= 3" in t.prompt[-1].content) is t.meta["label"] for t in tasks) and {*labels} == {True, False}
    assert critique_coder.build(writer="other").references == {"start": "other"}
