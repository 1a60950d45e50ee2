"""MulDimIF: the number of constraints kept, and end tokens cut as a whole."""

import asyncio

import numpy as np
import pytest
from palaestra.claims.rewards.muldimif import all_kept, count, first_alone
from palaestra.credit.links import Center, chain
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.recipes.rewards import muldimif
from palaestra.services.chat.scripted import Scripted
from palaestra.types import Message, Task
from palaestra.values import vary
from palaestra.verifiers.text.constraints import CHECKERS, constraint_level, constraint_wording, has_conflict, kind_of

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


def test_constraints_are_added_up_to_a_level_and_contradict_nothing():
    assert {kind_of(c) for c in muldimif.ADDED} <= set(CHECKERS)
    for seed in range(40):
        rng, most = np.random.default_rng(seed), seed % 4 + 1
        own = [["language", "uppercase"]] if seed % 2 else []
        whole = [*own, *muldimif.add_constraints(own, most, rng)]
        assert constraint_level(whole) == most == len({kind_of(c) for c in whole}) == len(whole) and not has_conflict(
            whole
        )


def plain_prompts(context):
    """A context whose draw gives plain prompts."""

    def shuffled(ctx, key, n, state):
        at = state.get("at", 0)
        asked = lambda i: (Message(role="user", content=f"Tell me of thing {i}."),)
        return [Task(id=f"t{i}", prompt=asked(i)) for i in range(at, at + n)], {"at": at + n}

    return context(), shuffled


def test_plain_prompts_get_constraints_of_levels_and_patterns_in_turn(context):
    ctx, shuffled = plain_prompts(context)
    assert muldimif.build(expand=4).draw == muldimif.Expanded(4)
    first, state = asyncio.run(muldimif.Expanded(4, shuffled)(ctx, ("k",), 5, {}))
    second, _ = asyncio.run(muldimif.Expanded(4, shuffled)(ctx, ("k",), 4, state))
    assert [t.meta["level"] for t in (*first, *second)] == [1, 2, 3, 4, 1, 2, 3, 4, 1]
    for at, t in enumerate((*first, *second)):
        pattern = ("listing", "prose", "example")[at // 4]
        worded = constraint_wording(t.meta["constraints"], pattern)
        assert t.prompt[0].text == f"Tell me of thing {at}.\n\n{worded}"
    reward = reward_of(muldimif.build(expand=4))
    assert totals(reward, first[3], "") == [0.0]


def test_a_model_words_the_prompt_where_it_loses_no_constraint(context):
    ctx, shuffled = plain_prompts(context)

    def reword(request):
        text = request.messages[-1].content
        return "Tell me of it." if "thing 1." in text else f"Kindly: {text.partition('Write the request alone.')[2]}"

    draws = muldimif.build(expand=4, writer=Scripted(reword)).draw
    draws = vary(draws, source=vary(draws.source, source=muldimif.Expanded(4, shuffled)))
    tasks, state = asyncio.run(draws(ctx, ("k",), 4, {}))
    assert [t.prompt[0].text.startswith("Kindly:") for t in tasks] == [True, False, True, True]
    assert "thing 1.\n\n" in tasks[1].prompt[0].text and (state["asked"], state["failed"]) == (4, 1)
    with pytest.raises(UserError, match="say expand=4 too"):
        muldimif.build(writer=Scripted(reword))
    with pytest.raises(UserError, match="expand=5 is no level"):
        muldimif.build(expand=5)
