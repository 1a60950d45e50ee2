"""MulDimIF: the number of constraints kept, and end tokens cut as a whole."""

import pytest
from palaestra.claims.rewards.muldimif import all_kept, count, first_alone
from palaestra.credit.links import Center, chain
from palaestra.explanation.method import explain
from palaestra.recipes.rewards import muldimif
from palaestra.types import Task
from palaestra.values import vary

from tests.recipes.rewards.helpers import reward_of
from tests.rewards.texts import task, totals

KEPT = [["content", "keyword", "rain"], ["content", "end", "."], ["language", "lowercase"], ["length", "words", "at most", 5],
        ["length", "sentences", "exactly", 1]]  # fmt: skip


def test_the_reward_is_the_number_of_constraints_kept():
    count, every = (reward_of(muldimif.build(every=e)) for e in (False, True))
    wet = task(None, constraints=KEPT)
    said = (
        "the rain falls.",
        "The rain falls on and on",
        "<think>the rain.",
        "",
        "<think>Hm.</think>the rain falls.<|im_end|>",
    )
    assert totals(count, wet, *said) == [5.0, 2.0, 0.0, 0.0, 5.0]
    assert totals(every, wet, *said) == [1.0, 0.0, 0.0, 0.0, 1.0]


def test_end_tokens_are_cut_as_a_whole():
    """As released, a strip of their characters makes "please s" of "please send"."""
    asked = task(None, constraints=[["content", "end", "please send"]])
    assert totals(reward_of(muldimif.build()), asked, "you may please send<|im_end|>", "please s") == [1.0, 0.0]
    paper, released = (reward_of(muldimif.build(variant=v)) for v in ("paper", "released"))
    said = (
        "you may please send<|im_end|>",
        "please send",
        "you may please s",
        "please send.<|im_end|>",
        "<|endoftext|>",
    )
    eaten = task(None, constraints=[["content", "end", "please s"]])
    assert totals(paper, eaten, *said) == [0.0, 0.0, 1.0, 0.0, 0.0]
    assert totals(released, eaten, *said) == [1.0, 1.0, 1.0, 0.0, 0.0]
    assert totals(released, asked, *said) == [0.0] * 5


def test_counts_and_shares_have_the_same_advantages_in_a_group():
    found = [explain(muldimif.build(kl=0.0), [[{"reward": r} for r in g]])["advantages"][0] for g in
             ([3, 5, 1, 3], [0.6, 1.0, 0.2, 0.6])]  # fmt: skip
    assert found[0] == pytest.approx([0, 1.224745, -1.224745, 0], abs=1e-5)
    assert found[1] == pytest.approx(found[0], abs=1e-4)
    over_the_batch = vary(muldimif.build(kl=0.0), credit=chain(Center("batch")))
    many, few = explain(over_the_batch, [[{"reward": 3}, {"reward": 5}], [{"reward": 0}, {"reward": 1}]])["advantages"]
    assert many[1] - many[0] > few[1] - few[0]


def test_an_answer_line_as_constraints():
    reward = reward_of(muldimif.embedded())
    assert totals(reward, task("TFTT"), "= TFTT", "= TFFT", "= T", "TFTT", "= TFTTTTTTTT") == [4.0, 3.0, 1.0, 0.0, 4.0]


@pytest.mark.parametrize(
    ("text", "counted", "first", "kept"),
    [
        ("the rain falls all day!", 3, 3, 1),
        ("The rain falls all day!", 2, 1, 0),
        ("the rain falls all day.", 2, 3, 0),
        ("snow falls all day!", 0, 0, 0),  # another topic
        ("ok!", 0, 0, 0),
        ("", 0, 0, 0),
    ],
)
def test_what_a_sentence_is_paid_on_a_real_model(text, counted, first, kept):
    asked_for = (("lowercase", ""), ("end", "!"))
    task = Task(id="a/0", domain="a", meta={"topic": "rain", "constraints": asked_for})
    assert count(text, task) == {"total": counted, "solved": kept}
    assert first_alone(text, task) == {"total": first, "solved": kept} and all_kept(text, task) == kept
