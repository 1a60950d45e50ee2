"""KnowRL (factuality): facts soften errors alone, and where answering pays."""

import numpy as np
import pytest
from palaestra.claims.rewards.knowrl_factuality import Worth, by_coin
from palaestra.errors import Fault, UserError
from palaestra.recipes.rewards import knowrl_factuality
from palaestra.services.chat.scripted import Scripted
from palaestra.toys.facts import CommonFacts

from tests.recipes.rewards.helpers import reward_of
from tests.rewards.texts import Clients, paid, task, totals

TOWN = task("Paris", facts=["a", "b", "c"])
SIX = "<think>a. b. c. d. e. f.</think>"


def test_facts_soften_errors_alone():
    reward = reward_of(knowrl_factuality.build())
    wrong, right, refusal, missing, blank, silent = paid(
        reward, TOWN, SIX + "<answer>Lyon</answer>", SIX + "<answer>Paris</answer>", SIX + "<answer>I don't know.</answer>",
        SIX, SIX + "<answer> </answer>", "",
    )  # fmt: skip
    assert wrong.parts["facts"] == pytest.approx(0.256709, abs=1e-6)
    assert [r.total for r in (wrong, right, refusal)] == pytest.approx([0.256709, 3, 2], abs=1e-6)
    assert [missing.total, blank.total, silent.total] == [-2.0, -2.0, -2.0]
    assert wrong.parts["hallucinated"] == 1 and refusal.parts["refused"] == 1
    assert knowrl_factuality.combine_worth(-1.0, 0.9) == pytest.approx(-0.1), "-1.1 with bad form"


def test_fact_scores():
    score = knowrl_factuality.fact_score
    assert score(3, 6) == pytest.approx(0.256709, abs=1e-6) and score(0, 0) == 0.0
    assert score(10, 11) == pytest.approx(10 / 11) and score(10, 10) == 1.0
    assert score(6, 6, "count15") == 0.4 and score(40, 40, "count15") == 1.0


def test_where_answering_pays():
    for s, p in ((0.0, 2 / 3), (1.0, 0.5)):
        answers = lambda q, s=s: q * 3 + (1 - q) * (1 + knowrl_factuality.combine_worth(-1.0, s))
        assert answers(p) == pytest.approx(2.0) and answers(p + 0.01) > 2.0 > answers(p - 0.01)


def test_what_the_released_code_pays():
    paper, released = (reward_of(knowrl_factuality.build(variant=v)) for v in ("paper", "released"))
    assert totals(paper, TOWN, SIX) == [-2.0] and totals(released, TOWN, SIX) == [
        pytest.approx(-2 + 0.256709, abs=1e-6)
    ]
    same = "<think>" + "a. " * 11 + "</think><answer>Lyon</answer>"
    assert totals(released, TOWN, same) == [1.0] and totals(paper, TOWN, same)[0] < 0.001
    for text, strict, loose in (
        ("A", 2, 2),
        ("B", -1, -1),
        ("B because A is another town", 0, 2),
        ("Hm", 0, 0),
        ("C.", 1, 1),
    ):
        assert (knowrl_factuality.grade(text), knowrl_factuality.grade(text, "released")) == (strict, loose)


@pytest.fixture
def library(tmp_path):
    (tmp_path / "know.jsonl").write_text(
        '{"title": "Paris", "text": "Paris lies on the Seine."}\n{"text": "Oslo lies by a fjord."}\n'
    )
    return str(tmp_path / "know.jsonl")


SEINE = "<think>Paris lies on the Seine. Paris is in Peru. Oslo lies by a fjord.</think><answer>Lyon</answer>"


def test_statements_are_looked_up_in_documents(library):
    """Word for word without a model; with one, it is shown the passages and says yes or no."""
    plain = paid(reward_of(knowrl_factuality.build(documents=library)), TOWN, SEINE)[0]
    assert plain.parts["stated"] == 3
    assert plain.parts["facts"] == pytest.approx(knowrl_factuality.fact_score(2, 3))

    def entails(request):
        return "[[YES]]" if "peru" in request.messages[-1].content.partition("<response>")[2] else "[[NO]]"

    recipe = knowrl_factuality.build(documents=library, entails=Scripted(entails))
    asked = paid(reward_of(recipe), TOWN, SEINE, ctx=Clients())[0]
    assert asked.parts["facts"] == pytest.approx(knowrl_factuality.fact_score(1, 3))


def test_no_statement_is_looked_up_where_facts_are_worth_nothing(library):
    recipe = knowrl_factuality.build(facts=0.0, documents=library)
    assert paid(reward_of(recipe), TOWN, SEINE)[0].parts["stated"] == 0


def test_documents_need_a_text_and_a_model_needs_documents(tmp_path):
    (tmp_path / "know.jsonl").write_text('{"body": "x"}\n')
    with pytest.raises(UserError, match="a document is"):
        knowrl_factuality.build(documents=str(tmp_path / "know.jsonl"))
    with pytest.raises(UserError, match="documents=FILE"):
        knowrl_factuality.build(entails=Scripted(letter))


def letter(request):
    shown = request.messages[-1].content.partition("<response>")[2]
    if "down" in shown:
        raise Fault("endpoint", "down")
    return "A" if "Paris" in shown else "B because A is another town"


def test_a_judges_fault_is_no_zero():
    said = [f"<think>x</think><answer>{a}</answer>" for a in ("Paris, of course", "Lyon", "down")]
    right, prose, dead = paid(reward_of(knowrl_factuality.build(judge=Scripted(letter))), TOWN, *said, ctx=Clients())
    assert (right.total, prose.total) == (3.0, 1.0) and isinstance(dead, Fault)


def test_refusals_of_the_small_model():
    summed = task("661", steps=("4+7+0=11", "8+7+1=16"))
    for refusal in (1.0, -1.0):
        reward = reward_of(knowrl_factuality.build(refusal=refusal, facts=0.0))
        assert totals(reward, summed, "= 661", "= ?", "= 660", "661") == [3.0, 1 + refusal, 0.0, -2.0]
    worked = paid(reward_of(knowrl_factuality.build()), summed, "4+7+0=11\n8+7+1=16\n= 660")[0]
    assert worked.parts["facts"] == pytest.approx(np.exp(-4)) and worked.total == pytest.approx(np.exp(-4))


def test_a_refusal_has_one_worth_whatever_was_asked():
    tasks = [CommonFacts().task("train", i) for i in range(40)]
    real = next(t for t in tasks if t.meta["kind"] == "capital")
    invented = next(t for t in tasks if t.meta["kind"] == "invented")
    for refusal in (1.0, -1.0):
        of = Worth(refusal)
        assert of(real.answer, real) == {"total": 2, "solved": 1, "refused": 0}
        assert of("Gotham", real) == of("Gotham", invented) == {"total": -1, "solved": 0, "refused": 0}
        assert of("unknown", real) == {"total": refusal, "solved": 0, "refused": 1}
        assert of("unknown", invented) == {"total": refusal, "solved": 1, "refused": 1}


def test_a_coin_pays_refusals_as_errors_and_leaves_right_answers():
    tasks = [CommonFacts().task("train", i) for i in range(400)]
    assert all(by_coin(t.answer, t)["total"] == 2 for t in tasks if t.meta["kind"] != "invented")
    for reply in ("unknown", "Gotham"):
        told = [by_coin(reply, t)["total"] for t in tasks if t.meta["kind"] == "invented"]
        assert set(told) == {1.0, -1.0} and abs(np.mean(told)) < 0.25
        assert told == [by_coin(reply, t)["total"] for t in tasks if t.meta["kind"] == "invented"]
