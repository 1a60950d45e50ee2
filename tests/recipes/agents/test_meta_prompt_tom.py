"""Meta-prompts: the loss, the expectation and the rules by hand, and a judge that is an endpoint."""

import json
import re
from pathlib import Path

import palaestra as pl
import pytest
from palaestra.recipes.agents.meta_prompt_tom import build
from palaestra.recipes.agents.meta_prompt_tom.program import TraitDraft, best_of, edited_text, with_advice
from palaestra.recipes.agents.meta_prompt_tom.traits import (
    WORDING,
    expected_traits,
    rule_advice,
    rule_traits,
    trait_loss,
    traits_off,
    volume,
)
from palaestra.types import Message, Task

from tests.chat_server import serving

NAMES = ("factualness", "novelty", "non-repetition", "relevance")
EXPECTED = (0.9, 0.7, 0.8, 0.8)


def test_the_loss_joins_volume_and_vertices():
    """Volumes .4032 and .3888: .0144 / .4032 = .035714; vertices (.1 + .1) / 4 = .05. Then .324: .196429, .075."""
    assert (volume(EXPECTED), volume((0.9, 0.6, 0.9, 0.8))) == pytest.approx((0.4032, 0.3888))
    assert trait_loss((0.9, 0.6, 0.9, 0.8), EXPECTED) == pytest.approx(0.042857, abs=1e-6)
    assert trait_loss((0.9, 0.5, 0.9, 0.8), EXPECTED) == pytest.approx(0.135714, abs=1e-6)
    # traits that are exchanged have the same volume, and only the vertices see it: (.2 + .2) / 4 / 2
    assert trait_loss((0.7, 0.9, 0.8, 0.8), EXPECTED) == pytest.approx(0.05)
    # nothing is divided by a volume of 0: .25 / 2 + .125 / 2
    assert trait_loss((0.5, 0.5), (0.5, 0.0)) == pytest.approx(0.25 / 2 + 0.25 / 2)


def test_the_expectation_is_a_mean_or_follows_the_edits():
    edits = [(0.0, 1.0), (1.0, 1.0), (0.5, 0.0)]
    assert expected_traits(edits, 0.0) == pytest.approx((0.5, 2 / 3))
    # 0 -> .5 -> .5, and 1 -> 1 -> .5
    assert expected_traits(edits, 0.5) == pytest.approx((0.5, 0.5))
    assert expected_traits(edits, 1.0) == (0.5, 0.0)


def test_rules_measure_a_text():
    """Each share is counted in the comments."""
    asked = "Write about Ann: won 6 sets"
    # words: she, beat, Bob, 6, 9. Slots Bob, 6, 9; pairs she-beat, beat-bob, bob-6, 6-9; key words ann (3 letters)
    # and won are too short, "write" and "about" are common: 6 and sets are left
    assert rule_traits(asked, "She beat Bob 6 9") == pytest.approx((1 / 3, 1.0, 1.0, 0.5))
    # pairs: won-6, 6-sets, sets-won, won-6, 6-sets: 3 distinct of 5, 2 of these in the request
    assert rule_traits(asked, "won 6 sets won 6 sets") == pytest.approx((1.0, 1 / 3, 3 / 5, 1.0))
    assert rule_traits(asked, " ... ") == (0.0, 0.0, 0.0, 0.0)
    assert rule_traits("hi", "yes") == (1.0, 1.0, 1.0, 1.0) and rule_traits("hi", "hi")[1] == 0.0


def test_advice_names_what_is_off_and_in_which_direction():
    off = traits_off((0.9, 0.5, 0.9, 0.8), EXPECTED, NAMES)
    assert [x[0] for x in off] == ["novelty", "non-repetition"]
    text = rule_advice(off, WORDING)
    assert "novelty was 0.50 and should be 0.70: use words of your own." in text
    assert "take up again" in text and rule_advice(off, "{sign}{trait}") == "+novelty\n-non-repetition"
    # none is off by more than .05: the furthest alone
    assert [x[0] for x in traits_off((0.9, 0.7, 0.84, 0.8), EXPECTED, NAMES)] == ["non-repetition"]
    assert rule_advice([("tone", 0.1, 0.6)], "{remedy}") == "show more tone"


def test_advice_stands_behind_the_users_own_prompt():
    prompt = (Message(role="system", content="Be brief."), Message(role="user", content="Write."))
    assert with_advice(prompt, (), "Advice:") == prompt
    system, user = with_advice(prompt, ("say less", "say it once"), "Advice:")
    assert system == prompt[0] and user.content == "Write.\n\nAdvice:\nsay less\nsay it once"
    assert with_advice(prompt, ("+novelty",), "")[1].content == "Write.\n+novelty"


def test_of_equal_texts_the_earlier_is_kept():
    drafts = [TraitDraft(None, t, (), loss, ()) for t, loss in (("a", 0.4), ("b", 0.2), ("c", 0.2))]
    assert best_of(drafts).text == "b"


@pytest.fixture
def edits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"{a}+{a} mod 10", "edited": f"The sum is {2 * a % 10}."} for a in range(10)]
    rows[3] |= {"accepted": False, "edited": "NEVER PUBLISHED"}
    Path("edits.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    Path("requests.jsonl").write_text(json.dumps({"prompt": "7+1 mod 10", "edited": "It is 8."}) + "\n")
    return {"data": "edits.jsonl", "test_data": "requests.jsonl", "out": "run", "quiet": True, "max_tokens": 16}


def train(edits, judge="", **given):
    set_ = {"tasks": 1, "rounds": 3, "edits": 20, **given}
    return pl.train("meta-prompt-tom", set={**set_, **({"judge": judge} if judge else {})}, **edits)


def test_a_model_judges_advises_and_is_audited(edits):
    """It rates what people edited 10 of 10, anything else 1; its advice reaches the writer's next prompt."""
    asked = []

    def answer(body):
        text = body["messages"][-1]["content"]
        asked.append(text)
        if "Tell the writer" in text:
            return "Say 'The sum is', then <answer>the sum</answer>."
        return f"[[{10 if 'The sum is' in text.split('<response>')[1] else 1}]]"

    with serving(answer) as (_, url):
        run = train(edits, f"endpoint(url='{url}',model='m')")
    rows = [json.loads(x) for x in Path("run/meta_prompts.jsonl").read_text().splitlines()]
    advised = [r for r in rows if r["arm"] == "advised"]
    assert [len(r["advice"]) for r in advised] == [0, 1, 1] and "Say 'The sum is'" in advised[1]["advice"][0]
    assert all(not r["advice"] for r in rows if r["arm"] == "plain")
    # h is (1, 1, 1, 1), and a text that is rated 1 has 0 of each
    assert run.summary["expected"] == dict.fromkeys(NAMES, 1.0) and run.summary["loss"]["first"] == 1.0
    assert not any("NEVER PUBLISHED" in text for text in asked)
    assert run.summary["audit"]["first"] > 0  # by the rules
    assert run.summary["aligned"]["advised"]["mean"] == 0 and run.summary["unread"] == 0


def test_a_rating_that_cannot_be_read_is_asked_for_once_more(edits):
    """Every first try is unreadable; a second one at another temperature is read."""

    def answer(body):
        return "[[10]]" if body.get("temperature") else "I like it."

    with serving(answer) as (_, url):
        run = train(edits, f"endpoint(url='{url}',model='m')", rounds=1)
    assert run.summary["loss"]["first"] == 0 and run.summary["unread"] == 0


def test_a_judge_that_never_rates_is_told(edits):
    with serving(lambda body: "no idea") as (_, url), pytest.raises(pl.UserError, match="read=odds"):
        train(edits, f"endpoint(url='{url}',model='m')")


def test_own_traits_are_asked_for(edits):
    asked = []

    def answer(body):
        asked.append(body["messages"][-1]["content"])
        return "[[10]]"

    with serving(answer) as (_, url):
        run = train(edits, f"endpoint(url='{url}',model='m')", rounds=1, traits="['tone: Is the tone warm?']")
    assert set(run.summary["expected"]) == {"tone"} and run.summary["audit"] is None
    assert all("Is the tone warm?" in text for text in asked)


def test_only_an_edited_text_that_was_accepted_is_one():
    task = lambda **meta: Task(id="t", meta=meta)
    for accepted in (True, 1, "True", "yes", None):
        assert edited_text(task(edited="a", accepted=accepted)) == "a", accepted
    assert edited_text(task(edited="a")) == "a"
    for accepted in (False, 0, "false", "No"):
        assert not edited_text(task(edited="a", accepted=accepted)), accepted
    assert not any(edited_text(task(edited=x)) for x in (["a"], None, " ", 3))


def test_tables_say_what_was_accepted_and_held_out_rows_are_read_alike(edits):
    """Held-out texts that are a list or were rejected have no `edit_loss`."""
    lines = [f"{a}+{a} mod 10,Text {a}.,{['true', 'False', ''][a % 3]}" for a in range(9)]
    Path("edits.csv").write_text("\n".join(["prompt,edited,accepted", *lines]) + "\n")
    asked = []

    def answer(body):
        asked.append(body["messages"][-1]["content"])
        return "[[10]]"

    rows = [{"edited": ["It is 8."]}, {"edited": "It is 8.", "accepted": False}]
    Path("requests.jsonl").write_text(
        "".join(json.dumps({"prompt": f"7+{i} mod 10", **r}) + "\n" for i, r in enumerate(rows))
    )
    with serving(answer) as (_, url):
        run = train({**edits, "data": "edits.csv"}, f"endpoint(url='{url}',model='m')", rounds=1, tasks=2)
    assert run.summary["edit_loss"] is None
    assert [a for a in range(9) if any(f"Text {a}." in text for text in asked)] == [0, 2, 3, 5, 6, 8]


def test_edited_texts_are_asked_for(edits):
    rows = [json.loads(x) for x in Path("edits.jsonl").read_text().splitlines()]
    lines = (json.dumps({**r, "accepted": False}) + "\n" for r in rows)
    Path("edits.jsonl").write_text("".join(lines))
    with pytest.raises(pl.UserError, match="no training row has an edited text that was accepted"):
        train(edits)


@pytest.mark.parametrize(
    "given, said",
    [
        ({"rounds": 0}, "1 or more"), ({"smoothing": 2.0}, "smoothing 0 to 1"), ({"traits": ("tone: warm?",)}, "judge=DIR"),
        ({"traits": ("tone",), "judge": "x"}, "NAME: QUESTION"),
    ],
)  # fmt: skip
def test_arguments_are_checked(given, said):
    with pytest.raises(pl.UserError, match=re.escape(said)):
        build(**given)
