"""GREAM's SRPO: advantages by hand, and partial credit for the codes of an item."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from palaestra.errors import UserError
from palaestra.recipes.objectives import srpo_gream
from palaestra.run.benches import from_data
from palaestra.types import Episode, Group, Reward, Row, Segment, Task

from tests.recipes.objectives.helpers import advantages, groups_of, near, scored


def test_srpo():
    assert advantages(srpo_gream.build(k=2), *scored(1, 0, 0, 0, 0)) == near([3.013593] + [-0.753398] * 4)
    graded = scored(1, 0.707, 0.5, 0, 0)
    assert advantages(srpo_gream.build(k=2), *graded) == near([2.493238, 0.296951, -0.173114, -1.308538, -1.308538])
    assert advantages(srpo_gream.build(bonus=0.0), *graded) == near(
        [1.268495, 0.603137, 0.133072, -1.002352, -1.002352]
    )
    assert advantages(srpo_gream.build(), *scored(1, 1)) == [0.0, 0.0]
    assert advantages(srpo_gream.build(), *scored(1)) == [0.0]


def test_partial_credit():
    worth = srpo_gream.worth
    assert [worth(x, "aeim") for x in ("aeim", "aeip", "aejm", "afim", "beim")] == [1.0, 0.866, 0.707, 0.5, 0.0]
    assert worth(None, "aeim") == worth("aei", "aeim") == 0.0 and worth("aeimx", "aeimy") == 0.95


def test_codes_are_marks_words_or_letters():
    """A code of several characters matches as a whole: <a_12> is not half of <a_13>."""
    worth, gold = srpo_gream.worth, "<a_12><b_3><c_0><d_7>"
    said = (gold, "<a_12><b_3><c_0><d_1>", "<a_12> <b_3> <c_9> <d_7>", "<a_13><b_3><c_0><d_7>", "<a_12><b_3>")
    assert [worth(x, gold) for x in said] == [1.0, 0.866, 0.707, 0.0, 0.0]
    assert [worth(x, "toys wood 12") for x in ("toys wood 12", "toys wood 1", "toys tin 12")] == [1.0, 0.707, 0.5]
    assert worth("aeip", "aeim") == 0.866 and worth("", "aeim") == 0.0


def test_what_partial_credit_adds_is_a_part_of_the_reward():
    task = Task(id="t", answer="<a_1><b_2>")
    said = [Segment(ids=(1,), trained=True, logp=(-1.0,), text=f"= {x}") for x in ("<a_1><b_2>", "<a_1><b_3>", "<a_4>")]
    rewards = (1.0, 0.0, 0.0)
    episodes = tuple(
        Episode(rows=(Row(segments=(s,)),), reward=Reward(total=r), status="finished")
        for s, r in zip(said, rewards, strict=True)
    )
    found = asyncio.run(srpo_gream.PartialCredit()(None, ("k",), Group(task=task, episodes=episodes)))
    assert [(e.total, dict(e.reward.parts)) for e in found.episodes] == [
        (1.0, {"exact": 1.0, "partial": 0.0}), (0.5, {"exact": 0.0, "partial": 0.5}), (0.0, {"exact": 0.0, "partial": 0.0}),
    ]  # fmt: skip


@pytest.mark.parametrize("bonus", [1.0, 0.5, 0.0])
def test_the_size_of_the_bonus_is_logged(bonus):
    """One hit of five, k = 2: rho .4, sigma .489898; a hit has .6 / sigma, a miss (.6 - .75) / sigma."""
    made, _ = srpo_gream.build(bonus=bonus, k=2).learners["policy"].credit(groups_of([1, 0, 0, 0, 0]), [[[{}]] * 5], {})
    assert [x.columns["track:bonus"][1] for x in made[:2]] == near([1.224745 * bonus, 0.306186 * bonus])


def test_clusters_of_a_line():
    """0 1 10 11 in two: means .5 and 10.5, from whichever two it begins; three rows that differ have three clusters at most."""
    x = np.array([[0.0], [1.0], [10.0], [11.0]])
    for seed in range(5):
        of, means = srpo_gream.k_means(x, 2, np.random.default_rng(seed))
        assert of[0] == of[1] != of[2] == of[3] and sorted(means.ravel().tolist()) == [0.5, 10.5]
    assert len(srpo_gream.k_means(x[[0, 0, 1, 1]], 5, np.random.default_rng(0))[1]) == 2


def test_codes_are_coarse_to_fine_and_no_two_are_alike():
    """100 a + b for a, b in 0 1: the first level is a, the second b, the same for both a, as it is what is left."""
    x = np.array([[100.0 * a + b] for a in (0, 1) for b in (0, 1)])
    rows = srpo_gream.residual_codes(x, 2, 2, np.random.default_rng(0))
    assert [r[0] == rows[0][0] for r in rows] == [True, True, False, False]
    assert [r[1] == rows[0][1] for r in rows] == [True, False, True, False] and len({len(r) for r in rows}) == 1
    twice = srpo_gream.residual_codes(x[[0, 0, 2]], 2, 2, np.random.default_rng(0))
    assert [r[2] for r in twice] == [0, 1, 0] and twice[0][:2] == twice[1][:2] != twice[2][:2]
    assert srpo_gream.spell((3, 1, 12)) == "<a_3><b_1><c_12>"


def write(path, records):
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return str(path)


def test_items_and_histories_of_a_user_become_codes_and_records(context, tmp_path):
    names = [f"B{i}" for i in range(6)]
    items = write(tmp_path / "items.jsonl", [{"id": n, "text": f"thing {i // 2}"} for i, n in enumerate(names)])
    some = [{"history": [a, b], "item": c} for a in names[:3] for b in names[:4] for c in (names[4],)]
    histories = write(tmp_path / "histories.jsonl", [*some, some[9]])  # of which one comes again
    ctx = context("chain", out=tmp_path / "run")
    found = asyncio.run(srpo_gream.MakeCodes(items, histories, levels=2, k=3).run(ctx))
    read = {n: [json.loads(line) for line in Path(f).read_text().splitlines()] for n, f in found.artifacts.items()}
    code = {x["id"]: x["code"] for x in read["codes"]}
    assert found.metrics == {"items": 6, "codes": 3, "told_apart": 0.0} and len(set(code.values())) == 6
    assert code["B0"][:10] == code["B1"][:10] and code["B0"][-5:] == "<c_0>" and code["B1"][-5:] == "<c_1>"
    held = [x for x in read["histories"] if x["split"] == "test"]
    asked = f"After {code[some[9]['history'][0]]} {code[some[9]['history'][1]]} comes"
    assert held == [{"prompt": asked, "answer": code["B4"], "split": "test"}] * 2
    shown = {(x["prompt"], x["demonstration"]) for x in read["alignment"]}
    assert ("Code of: thing 0", code["B0"]) in shown and (f"Text of: {code['B5']}", "thing 2") in shown
    assert asked not in {a for a, _ in shown} and len(read["alignment"]) == 6 * 2 + 11


@pytest.mark.parametrize(
    ("items", "histories", "why"),
    [
        ([{"id": 1}], [], "an item has the columns `id` and `text`"),
        ([{"id": 1, "text": "a"}, {"id": "1", "text": "b"}], [], "the id '1' stands twice"),
        ([{"id": 1, "text": "a"}], [], "has 1 items"),
        ([{"id": i, "text": "a"} for i in "ab"], [{"history": [], "item": "a"}], "a list of ids"),
        ([{"id": i, "text": "a"} for i in "ab"], [{"history": ["a"], "item": "c"}], "no item has the id 'c'"),
    ],
)
def test_items_and_histories_at_fault_are_refused(tmp_path, items, histories, why):
    file = write(tmp_path / "items.jsonl", items)
    with pytest.raises(UserError, match=why):
        srpo_gream.read_histories(write(tmp_path / "h.jsonl", histories), srpo_gream.read_items(file))


def test_a_run_makes_codes_and_aligns_them_first():
    pipeline = srpo_gream.build(items="i", histories="h", align_steps=7)
    assert list(pipeline.parts) == ["codes", "aligned", "rl"] and pipeline.parts["aligned"].runnable.schedule.steps == 7
    assert pipeline.parts["rl"].runnable == srpo_gream.build()
    for wrong in ({"items": "i"}, {"items": "i", "histories": "h", "levels": 8}, {"thinking": True, "partial": False}):
        with pytest.raises(UserError):
            srpo_gream.build(**wrong)


@pytest.mark.parametrize(
    ("text", "direct", "reasoning"),
    [
        ("<a_1><b_2>", 1.0, 0.0),
        ("<think>near</think><a_1><b_2>", 1.0, 1.0),
        ("<think>near</think><a_1><b_3>", 0.5, 0.5),
        ("<a_1><b_2><think>near</think>", None, 0.0),
        ("<think>one</think><think>two</think><a_1><b_2>", None, 0.0),
    ],
)
def test_in_the_reasoning_mode_a_thought_comes_first(text, direct, reasoning):
    task = Task(id="t", answer="<a_1><b_2>")
    said = Segment(ids=(1,), author="policy", trained=True, text=text, logp=(0.0,), finish="eos")
    exact = float(text.endswith("<a_1><b_2>"))
    episode = Episode(rows=(Row(segments=(said,)),), reward=Reward(total=exact))
    for thinking, expected in ((False, direct), (True, reasoning)):
        link = srpo_gream.PartialCredit(thinking)
        (e,) = asyncio.run(link(None, ("k",), Group(task=task, episodes=(episode,)))).episodes
        assert expected is None or e.total == expected


@pytest.mark.parametrize(
    ("text", "item"),
    [
        ("<a_1><b_2>", "<a_1><b_2>"),
        ("= <a_1><b_2>", "<a_1><b_2>"),
        ("<think>like <a_0><b_0></think>\n<a_1><b_2>", "<a_1><b_2>"),
        ("They liked tea.\nNext comes <a_1> <b_2>.", "<a_1><b_2>"),
        ("<answer><a_1><b_2></answer>", "<a_1><b_2>"),
        ("Answer: <a_1><b_2>", "<a_1><b_2>"),
        ("red wool scarf", "red wool scarf"),
        ("", ""),
    ],
)
def test_an_item_is_read_as_people_have_replies(text, item):
    """Partial credit once read lines that begin with `=` alone, so replies to a user's data never had any."""
    assert srpo_gream.said_item(text) == item


def test_a_built_in_problem_keeps_its_form_and_records_do_not_need_it(context, tmp_path):
    rows = [{"prompt": f"After {i} comes", "answer": "red wool scarf"} for i in range(6)]
    ctx = context("rec")
    of_file = ctx.with_bench(from_data(write(tmp_path / "rows.jsonl", rows), "", ""))
    said = Segment(ids=(1,), author="policy", trained=True, text="red wool hat", logp=(0.0,), finish="eos")
    group = Group(
        task=Task(id="t", answer="red wool scarf"),
        episodes=(Episode(rows=(Row(segments=(said,)),), reward=Reward(total=0.0)),),
    )
    for where, expected in ((ctx, 0.0), (of_file, 0.707)):
        (e,) = asyncio.run(srpo_gream.PartialCredit()(where, ("k",), group)).episodes
        assert e.total == expected
