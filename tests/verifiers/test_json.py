"""JSON in replies: what stands around it may deny it or take it back."""

import json

import pytest
from palaestra.verifiers.registry import get_verifier

from tests.rows import every

GOLD = {"a": 1}
TEXT = json.dumps(GOLD)
FENCE = f"```json\n{TEXT}\n```"
TAG = f"<answer>{TEXT}</answer>"
FORMS = [FENCE, TAG, TEXT]


def score(text, gold=GOLD):
    return get_verifier("json")(text, gold).score


@every("form", FORMS)
@every(
    "around",
    [
        "This is NOT the object:\n{}",
        "A wrong answer would be:\n{}",
        "For example:\n{}",
        "Unlike\n{}",
        "It isn't\n{}",
        "{}\nNo wait, that is wrong.",
        "{}\nThe value of a should be 2, ignore this.",
        "{}\nActually a is 2.",
        "{}\nThat is not right.",
        '{}\nor {{"a": 2}}',
        '{}\nbut rather {{"a": 2}}',
        '{}\n{{"a": 2}}',
        "{}\n[2]",
        "{} is not the answer.",
        "{} isn't it.",
    ],
)
def test_what_is_denied_taken_back_or_one_of_several_is_not_paid(form, around):
    assert score(around.format(form)) == 0


@every("around", ["{}", "Here you go:\n{}", "\ufeff{}", "<think>[2]</think>\n{}", "As you asked, the object is\n{}"])
@every("form", FORMS)
def test_prose_before_marks_and_thoughts_cost_nothing(form, around):
    assert score(around.format(form)) == 1


@pytest.mark.parametrize("language", ["", "json", "JSON", "jsonc", "json5"])
def test_each_fence_of_json_is_one(language):
    assert score(f"```{language}\n{TEXT}\n```\nHope this helps! I added no other keys.") == 1
    assert score(f"```python\n{TEXT}\n```") == 0


def test_the_last_fence_counts_and_a_value_in_the_middle_of_prose_does_not():
    other = FENCE.replace("1", "2")
    assert score(f"{other}\nCorrection:\n{FENCE}") == 1
    assert score(f"{FENCE}\n{other}") == score(f"{FENCE}\nCorrection:\n{other}") == 0
    assert score(f"I got {TEXT} from it, which is what you want") == 0
    assert score(f"Given [2], it is {TEXT}") == 0


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 20_000, "x " * 50_000 + "{" * 10_000])
def test_deep_text_is_read_in_no_time(text):
    assert score(text) == 0


@pytest.mark.parametrize(
    "response", ["```json\n```", "```\n\n```", "<answer></answer>", "<answer> </answer>", "``````"]
)
def test_nothing_in_fences_or_tags_is_no_answer(response):
    assert score(response) == 0
