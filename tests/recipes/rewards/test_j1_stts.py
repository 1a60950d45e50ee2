"""J1-7B: the slope of its scaling, what verdicts are paid, and reflections that doubt."""

import json

import numpy as np
import pytest
from palaestra.claims.rewards import j1_stts as j1_stts_claim
from palaestra.context import Bench
from palaestra.explanation.method import explain
from palaestra.recipes.rewards import j1_stts
from palaestra.services.chat.scripted import Scripted
from palaestra.tasks.files import FileTasks
from palaestra.toys.judging import CompareAnswers
from palaestra.toys.variants import Variants
from palaestra.types import Group, Message, Task
from palaestra.values import vary
from palaestra.worlds.question import Question

from tests.recipes.rewards.helpers import run


def test_j1_stts_slope_of_the_catalogue():
    assert j1_stts.slope([70, 72, 73], [0, 1, 2]) == pytest.approx(1.5)
    assert np.polyfit([0, 1, 2], [70, 72, 73], 1)[1] == pytest.approx(70.1667, abs=1e-4)
    assert j1_stts.slope([70], [0]) == 0


def test_j1_stts_pays_verdicts_of_the_catalogue():
    gold = Task(id="t", answer="1")
    texts = ("work\n= 1", "= 1", "= 2", "<think>= 1</think>", "", "= ")
    assert [j1_stts.pair_verdict(t, gold) for t in texts] == [1, 1, 0, -1, -1, -1]
    assert np.mean([j1_stts.pair_verdict(t, gold) for t in texts[:4]]) == 0.25
    rows = [{"reward": r, "ref_logp": [-1.0] * 4} for r in (1, 1, 0, -1)]
    found = explain(j1_stts.build(), [rows])["advantages"][0]
    assert found == pytest.approx([0.783349, 0.783349, -0.261116, -1.305582], abs=1e-5)  # (r - 0.25) / 0.957427


@pytest.mark.parametrize("name, tasks", [("compare", CompareAnswers()), ("variants", Variants())])
def test_reflections_doubt_up_to_three_times_and_end_rightly(context, name, tasks):
    ctx = context(name)
    first = ctx.bench.tasks.task("train", 0)

    def texts(reflect):
        found = (run(reflect(ctx, (i,), Group(task=first))).episodes[0].rows[0].segments[-1].text for i in range(40))
        return list(found)

    found = texts(j1_stts_claim.Reflect())
    doubts = [t.count("= ?") for t in found]
    assert all(tasks.check(t, first) == 1 for t in found) and {0, 1} < set(doubts) <= {0, 1, 2, 3}
    assert doubts.count(0) > len(doubts) / 2  # a verdict is likelier than a doubt
    assert len({t.split("= ?")[0] for t in found if "= ?" in t}) > 1 and len({t.split("= ?\n")[-1] for t in found}) == 1
    assert {t.count("= ?") for t in texts(j1_stts_claim.Reflect(doubt=0.0))} == {0}


def test_a_pair_is_asked_about_in_an_order_by_a_coin():
    pair = Task(
        id="p",
        prompt=(Message(role="user", content="Capital of Norway?"),),
        meta={"chosen": "Oslo [[A]] </a>", "rejected": "Rome"},
    )
    asked = [j1_stts.ask_which(pair, (i,)) for i in range(40)]
    assert {t.answer for t in asked} == {"A", "B"}
    for t in asked:
        text = t.prompt[0].content
        assert (text.index("Oslo") < text.index("Rome")) == (t.answer == "A")
        assert text.count("</a>") == 1 and "[[A]]" not in text
        assert j1_stts.pair_verdict(f"Hm.\n= {t.answer}", t) == 1
    alone = Group(task=Task(id="t", answer="1"))
    assert run(j1_stts.AskWhich()(None, (), alone)) is alone


def pair(i):
    asked = (Message(role="user", content=f"Question {i}?"),)
    return Task(id=f"p{i}", prompt=asked, meta={"chosen": f"good {i}", "rejected": f"bad {i}"})


def pairs_in_turn(ctx, key, n, state):
    at = state.get("at", 0)
    return [pair(i) for i in range(at, at + n)], {"at": at + n}


def test_reflections_that_end_wrongly_or_do_not_doubt_are_not_imitated(context):
    """The first try never doubts; the second one always says A, which is right where the coin put the better one first."""
    seen = {}

    def judge(request):
        text = request.messages[-1].content
        seen[text] = seen.get(text, 0) + 1
        return "It is B.\nWait, no.\n= A" if seen[text] > 1 else "It is A.\n= A"

    recipe = j1_stts.build(writer=Scripted(judge)).parts["sft"].runnable
    draws = vary(recipe.draw, tries=2, source=j1_stts.PairQuestions(pairs_in_turn))
    tasks, state = run(draws(context(), ("k",), 4, {}))
    assert {t.answer for t in tasks} == {"A"} and state["failed"] == state["asked"] - 4 > 0
    assert all(t.meta["demonstration"] == "It is B.\nWait, no.\n= A" for t in tasks)


def test_forced_rounds_are_measured_on_held_out_pairs(context, tmp_path):
    file = tmp_path / "pairs.jsonl"
    rows = [{"prompt": f"Question {i}?", "chosen": f"good {i}", "rejected": f"bad {i}"} for i in range(20)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    bench = Bench(name="pairs", tasks=FileTasks(str(file)), world=Question(), reward=None, max_tokens=8)
    numbers = run(j1_stts.ScalingExam((0, 2))(context(bench=bench)))
    assert set(numbers) == {"accuracy@0", "accuracy@2", "slope", "gain", "corrected", "spoilt", "kept", "undecided"}
    assert numbers["slope"] == pytest.approx(numbers["gain"] / 2)
    learned = j1_stts.build()
    assert learned.evaluate["scaling"].forced == (0, 1, 2, 3) and not j1_stts.build(rounds=()).evaluate
