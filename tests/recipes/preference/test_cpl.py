"""CPL: the tree's budget and values, which steps make a pair, and the margin that a pair has to reach."""

import asyncio
import json
import math

import numpy as np
import palaestra as pl
import pytest
from palaestra.recipes.preference import cpl
from palaestra.rollout.tree import TreeNode
from palaestra.types import Episode, Group, Reward, Row, Segment, Task

from tests.objective.helpers import column_batch, out_of
from tests.rollout.helpers import answer as said

REWARD = "def even(responses, answers, **_):\n    return [0.5 * (r.strip()[-1:] in set('02468')) for r in responses]\n"


@pytest.mark.parametrize(
    ("alpha", "gap", "expected"), [(1.0, 1.0, 0.913015), (1.0, 0.3, 0.554355), (0.0, 1.0, 0.437488)]
)
def test_loss_reference_values(alpha, gap, expected):
    """h(chosen) - h(rejected) = 2, beta .3, Q .6 and -.4; between solutions the gap counts .3 of it."""
    batch = column_batch(
        1, 1, sign=[1.0, -1.0], gap=[gap, gap], plan=[1.0, 1.0], ref_logp=[[-2.0], [-1.0]], units=["a", "a"]
    )
    loss, logged = cpl.build(alpha=alpha).learners["policy"].objective(out_of(batch, logp=[[-1.0], [-2.0]]), batch)
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    assert logged["advantage_gap"].item() == pytest.approx(alpha * gap)


def test_selection_reference_value():
    """Q .5, mean log-prob -.5, N 9 and 2."""
    parent, child = TreeNode((), -1, visits=9), TreeNode((), 0, visits=2, total=1.0, prior=math.exp(-0.5))
    assert cpl.PlanTree().select.score(parent, child) == pytest.approx(1.409796, abs=1e-6)


def grown(ctx, **given):
    tree = cpl.PlanTree(**{"solution": "", "temperature": 1.3, "root": 4, "children": 2, **given})
    return asyncio.run(tree(ctx, (0, "s"), Group(task=ctx.bench.tasks.task("train", 1)))).episodes


def test_a_tree_has_exactly_its_budget(context):
    ctx = context()
    before = ctx.engine("policy").sampled_tokens
    answers = grown(ctx, openings=4)
    assert len(answers) == 4 + 3 * 2
    assert [e.facts["opened"] for e in answers] == [0] * 4 + [1, 1, 2, 2, 3, 3]
    spent = sum(e.n_sampled - e.facts["shared"] for e in answers)
    assert ctx.engine("policy").sampled_tokens - before == spent


def nodes_of(e):
    return [e.rows[0].view().ids_T[: token + 1].tolist() for _, token in e.facts["step_ends"]]


def test_values_are_backed_up_from_the_verified_answers(context):
    """The share of right answers among all that went through a node, counted from their tokens."""
    answers = grown(context(), openings=6)
    right = np.array([e.solved for e in answers])
    assert 0 < right.mean() < 1
    deep = 0
    for e in answers:
        values, ends = e.facts["prefix_values"], e.facts["step_ends"]
        assert len(values) == len(ends) + 1 and values[0] == pytest.approx(right.mean())
        view = e.rows[0].view()
        for value, (_, token) in zip(values[1:], ends, strict=True):
            begun = view.ids_T[: token + 1].tolist()
            below = [begun in nodes_of(o) for o in answers]
            assert value == pytest.approx(right[below].mean())
        deep += len(ends) > 1
    assert deep


def answer(*steps, values, right, complete=True):
    """An answer of steps of given token ids behind one prompt token."""
    ids = tuple(i for step in steps for i in step)
    ends = np.cumsum([len(step) for step in steps]).tolist()
    reply = Segment(ids=ids, trained=True, policy="policy", logp=(0.0,) * len(ids))
    facts = {"prefix_values": values, "step_ends": tuple((0, t) for t in ends), "plan_complete": complete}
    row = Row(segments=(Segment(ids=(0,)), reply))
    return Episode(rows=(row,), reward=Reward(total=float(right)), status="finished", facts=facts)


def pairs_of(*answers):
    group = Group(task=Task(id="t"), episodes=answers)
    signals = [[[{} for _ in e.rows] for e in answers]]
    examples, _ = cpl.SiblingPairs()((group,), signals, {})
    return [(a, b) for a, b in zip(examples[::2], examples[1::2], strict=True)]


def test_pairs_of_siblings():
    """Below the first step, V .75, stand the plan steps (3, 4), V .75, and (5), V .25; the step (6), V .5, has
    Q = 0. Of two solutions below (3, 4) one is right: its advantage counts .3. Only the step's tokens are trained.
    """
    good = answer((1,), (3, 4), (7, 8), values=(0.6, 0.75, 0.75, 1.0), right=1)
    bad = answer((1,), (3, 4), (9,), values=(0.6, 0.75, 0.75, 0.0), right=0)
    other = answer((1,), (5,), values=(0.6, 0.75, 0.25), right=0, complete=False)
    even = answer((1,), (6,), values=(0.6, 0.75, 0.5), right=1, complete=False)
    alone = answer((2,), values=(0.6, 0.0), right=0)  # a solution beside a plan step makes no pair
    plans, solutions = pairs_of(good, bad, other, even, alone)
    masks = [[x.columns["trained"].tolist() for x in pair] for pair in (plans, solutions)]
    assert masks[0] == [[False, False, True, True, False, False], [False, False, True]]
    assert masks[1] == [[False] * 4 + [True, True], [False] * 4 + [True]]
    assert [x.columns["sign"] for x in plans] == [1.0, -1.0]
    assert [p[0].columns["gap"] for p in (plans, solutions)] == pytest.approx([0.5 - -0.5, 0.3 * 2])
    assert [p[0].columns["plan"] for p in (plans, solutions)] == [1.0, 0.0]


def test_no_pair_where_all_answers_end_alike():
    for right in (0.0, 1.0):
        assert not pairs_of(*(answer((i,), values=(right, right), right=right) for i in (1, 2)))
    assert not pairs_of(answer((1,), values=(1.0, 1.0), right=1)) and not pairs_of()


def test_all_is_the_solution_from_its_mark_on(context):
    ctx = context()
    text = "first\nthen\nSolution:\n1+2=3\n= 3"
    e = said(ctx, text)
    words = [s.text for s in cpl.PlanTree().steps(ctx, e)]
    assert words == ["first", "then", "Solution:\n1+2=3\n= 3"]
    assert len(cpl.PlanTree(solution="").steps(ctx, e)) == 5
    assert [s.text for s in cpl.PlanTree(depth=2).steps(ctx, e)] == ["first", "then\nSolution:\n1+2=3\n= 3"]
    assert [s.text for s in cpl.PlanTree(marker=":", solution="").steps(ctx, e)] == [
        "first\nthen\nSolution:",
        "1+2=3\n= 3",
    ]


def test_the_model_is_told_of_the_form():
    assert "Solution:" in cpl.build().instruction and "own line" not in cpl.build(marker="##").instruction
    assert "end it with ##" in cpl.build(marker="##").instruction and not cpl.build(solution="").instruction


def test_a_reward_of_the_users_own(tmp_path):
    """It judges the whole answers; from 0.5 on one is right."""
    (tmp_path / "even.py").write_text(REWARD)
    rows = tmp_path / "questions.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"{i}+3*2 mod 10"}) + "\n" for i in range(12)))
    words = {"schedule.prompts": 6, "openings": 3, "right": 0.5, "solution": "", "temperature": 1.3}
    settings = {"steps": 1, "evaluate": 0, "quiet": True, "max_tokens": 24, "reward": f"{tmp_path}/even.py:even"}
    run = pl.train("cpl", data=str(rows), set=words, out=tmp_path / "run", **settings)
    step = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[0])
    assert step["advantage_gap"] > 0 and 6 * 5 < step["episodes"] <= 6 * (5 + 2 * 3)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"marker": ""}, "marker is empty"),
        ({"alpha": -1.0}, "alpha"),
        ({"root": 1}, "root"),
        ({"openings": 0}, "openings"),
    ],
)
def test_bad_arguments_say_what_to_do(given, words):
    with pytest.raises(pl.UserError, match=words):
        cpl.build(**given)
