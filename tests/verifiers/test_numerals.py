"""Ways to write a number, and what may stand in front of one and behind it."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra.verifiers.answers.amounts import sign_before, word_set
from palaestra.verifiers.answers.final import extract_answer, is_right_answer, same_answer
from palaestra.verifiers.answers.numerals import (
    meant_values,
    parse_number,
    read_number,
    shorter_decimals,
    spelled_digits,
    spelled_value,
)
from palaestra.verifiers.answers.script import plain_forms
from palaestra.verifiers.answers.short import SetAnswer
from palaestra.verifiers.answers.withdrawal import is_denied, is_withdrawn
from palaestra.verifiers.registry import get_verifier

from tests.rows import every

WAYS = ["x = {}", "\\boxed{{{}}}", "The answer is {}.", "<answer>{}</answer>", "#### {}", "Answer: {}", "$y = {}$"]
# what makes another number, a relation or nothing of the number behind it
MARKS = ["±", "≠", "≤", "≥", "<", ">", "≈", "*", "/", "×", "·", "÷", "^", "√", "∛", "∑", "∫", "¬", "!", "°", "∝"]
COMMANDS = word_set("""
pm mp ne neq le leq ge geq lt gt ll gg approx sim simeq cong equiv propto in notin not times cdot div ast star circ
oplus sqrt log ln exp sin cos tan arcsin lim max min gcd det dim sum prod int partial nabla binom frac tfrac dfrac bar
hat vec overline underline cancel sout phantom neg lnot forall exists infty pi alpha Phi Delta Re Im angle to mapsto
abs lfloor lceil mod bmod pmod operatorname mathbb mathcal ldots
""")
LAYOUT = ["\\quad", "\\qquad", "\\displaystyle", "\\,", "\\;", "\\!", "\\ ", "\\mathbf", "\\therefore"]


@pytest.mark.parametrize("way", WAYS)
def test_a_sign_apart_is_the_sign(way):
    for sign in ("-", "−", "–"):
        assert is_right_answer(way.format(f"{sign} 12"), "-12"), sign
        assert not is_right_answer(way.format(f"{sign} 12"), "12"), sign
    assert is_right_answer(way.format("+ 12"), "12") and not is_right_answer(way.format("x - 12"), "12")
    assert not is_right_answer(way.format("- \\sqrt 12"), "-12")


@pytest.mark.parametrize("way", WAYS)
def test_a_mark_in_front_of_a_number_is_none_of_it(way):
    assert [m for m in MARKS if is_right_answer(way.format(f"{m} 12"), "12")] == []
    assert [m for m in MARKS if is_right_answer(way.format(f"x {m} 12"), "12")] == []


@pytest.mark.parametrize("way", ["\\boxed{{{}}}", "<answer>{}</answer>", "The answer is ${}$."])
def test_a_command_in_front_of_a_number_is_none_of_it(way):
    named = [c for c in COMMANDS if c != "to"]
    assert [c for c in named if is_right_answer(way.format(f"\\{c} 12"), "12")] == []
    assert [c for c in COMMANDS if is_right_answer(way.format(f"x \\{c} 12"), "12") and c != "to"] == []
    assert [c for c in LAYOUT if not is_right_answer(way.format(f"{c} 12"), "12")] == []


def test_what_stands_before_a_number():
    """By the words before it: its sign, or None."""
    for words, sign in [
        ([], ""), (["x", "="], ""), (["x", "=", "-"], "-"), (["total", "→"], ""), (["**"], ""), (["✅"], ""),
        (["of", "the"], ""), (["-"], "-"), (["is", "minus"], "-"), (["10", "-"], None), (["half", "of"], None),
        (["x"], None), (["successor", "of"], None), (["total", "of"], ""), (["sum:"], ""), (["sum"], None),
        (["up", "to"], None), (["adds", "up", "to"], ""), (["anything", "but"], None), (["nothing", "but"], ""),
        (["\\sqrt"], None), (["答案是负"], "-"), (["答案不是"], None), (["一共有"], ""), (["第"], None), (["!="], None),
    ]:  # fmt: skip
        assert sign_before(words) == sign, words


NUMBERS = [
    ("12\u2009345", 12345), ("1 234 567", 1234567),
    ("12\u202f345", 12345), ("1'234'567", 1234567), ("1\\,234\\,567", 1234567), ("3 1/2", 3.5),
    ("3½", 3.5), ("½", 0.5), ("1.2 \\times 10^{-3}", 0.0012), ("1.5 × 10^6", 1500000), ("5 × 10²", 500),
    ("-2·10^{2}", -200), ("2e3", 2000), ("- 7", -7), ("{3 \\over 4}", 0.75), ("−7", -7),
]  # fmt: skip
NO_NUMBERS = [
    "12 345", "12\u200934", "1'23", "10^6", "3 × 10", "3 × 10^", "1/2/3", "3 4/", "x 10^2", "- - 7", "∛8", "\\sqrt 4", "± 7",
]  # fmt: skip


def test_numbers_as_people_write_them():
    found = {text: parse_number(text) for text, _ in NUMBERS}
    assert found == {text: (Fraction(str(value)), False) for text, value in NUMBERS}
    assert [text for text in NO_NUMBERS if parse_number(text) is not None] == []


@every(("words", "value"), [
    ("seven", 7), ("twenty-one", 21), ("one hundred and five", 105), ("two thousand three hundred", 2300), ("zero", 0),
    ("three million five hundred thousand twelve", 3500012), ("nineteen", 19), ("one", 1),
    ("twenty eleven", None), ("three four", None), ("hundred", None), ("seven twenty", None), ("twenty zero", None),
])  # fmt: skip
def test_numbers_in_words(words, value):
    assert spelled_value(words.replace("-", " ").split()) == value
    assert read_number(words) == (None if value is None else (value, False))
    assert parse_number(words) is None  # as a reference they are a text


def test_words_stand_for_one_number():
    assert spelled_digits("twelve eggs") == "12 eggs" and spelled_digits("one of them") is None
    assert spelled_digits("three or four") is None and spelled_digits("one-half") is None
    for text in (
        "five or six",
        "not five",
        "half of five",
        "five hundred",
        "one fifth",
        "five point two",
        "fifty-five",
    ):
        assert not is_right_answer(f"The answer is {text}.", "5"), text
    assert is_right_answer("<answer>Five apples</answer>", "5") and is_right_answer("There are twelve eggs.", "12")


def test_leading_zeros_are_a_name_in_a_reference_only():
    assert same_answer("007", "7") and not same_answer("7", "007") and not same_answer("0.7", "7")


TAILS = [
    (0.10000000149011612, "0.1"), (0.30000000000000004, "0.3"), (3.299999952316284, "3.3"),
    (2.675, "2.675"), (1.1 + 2.2, "3.3"), (-0.10000000149011612, "-0.1"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "said"), TAILS, ids=repr)
def test_a_reference_with_a_tail_is_the_number_that_was_meant(gold, said):
    assert same_answer(said, repr(gold)) and same_answer(repr(gold), repr(gold))
    assert not same_answer(said + "1", repr(gold))
    assert repr(gold) == said or not same_answer(repr(gold), said)
    assert SetAnswer()(f"{said}, 2", [gold, 2]).score == 1.0


def test_digits_that_were_meant_stay():
    for text in ("100000000000000003", "3.141592653589793", "1.2345678901234567", "9007199254740993", "50%", "1/3"):
        assert len(meant_values(text)) == 1, text
    assert shorter_decimals(1 / 3) == [] and meant_values("x") == []


@given(st.floats(min_value=-1e6, max_value=1e6, width=32))
def test_a_double_of_a_float32_means_its_shortest_decimal(value):
    import numpy as np

    assert same_answer(str(float(np.float32(value))), str(value))
    short = str(np.float32(value))
    if "e" not in short + repr(value) and len(repr(value).replace(".", "").strip("-0")) >= 15:
        assert same_answer(short, repr(value))


def test_other_characters_for_the_same_text():
    assert (
        plain_forms("答案：１２。") == "答案: 12. " and plain_forms("<b>7</b>") == "7" and plain_forms("⁷½٣") == "⁷½٣"
    )
    assert same_answer("cafe\u0301", "café") and same_answer("Ｐａｒｉｓ", "Paris") and not same_answer("1，2", "12")
    for text in ("答案是12。", "所以答案为12。", "答案：12", "一共有12个苹果。", "１２", "12。", "答案是12元"):
        assert is_right_answer(text, "12"), text
    for text in ("答案不是12。", "大于12。", "至少12个。", "12万", "12的一半", "答案是12，不对，是13。", "12和13", "第12",
                 "答案是12或13。", "答案是负12。", "12除以3"):  # fmt: skip
        assert not is_right_answer(text, "12"), text
    assert is_right_answer("答案是负12。", "-12") and is_right_answer("答案是北京。", "北京")


@pytest.mark.parametrize("verifier", ["exact", "number", "math"])
def test_a_reference_with_chinese_punctuation_is_read(verifier):
    for gold in ("12。", "１２", "12．"):
        assert get_verifier(verifier)("so \\boxed{12}", gold).score == 1.0, gold
        assert get_verifier(verifier)("so \\boxed{13}", gold).score == 0.0, gold


BACK = ["Wait, no.", "Actually, it is 9.", "Sorry, I meant 9.", "That is wrong.", "Correction: 9.", "No, it is 9.",
        "I made a mistake.", "Oops. 9.", "It should be 9.", "Definitely not."]  # fmt: skip
ON = ["I hope this helps!", "Note that 8 is no solution.", "This is correct, because 3 + 4 = 7.", "Let me know!",
      "Thus the claim holds."]  # fmt: skip


@pytest.mark.parametrize("stated", ["\\boxed{7}.", "<answer>7</answer>", "The answer is 7.", "#### 7"])
def test_an_answer_taken_back_is_none(stated):
    if not stated.startswith("#"):
        assert [b for b in BACK if is_right_answer(f"{stated} {b}", "7")] == []
        assert [b for b in BACK if is_right_answer(f"{stated}\n\n{b}", "7")] == []
        assert [b for b in ON if not is_right_answer(f"{stated}\n{b}", "7")] == []
    assert is_right_answer(f"{stated}", "7") and not is_right_answer(
        f"I do not think that the answer is 7.\n{BACK[0]}", "7"
    )


def test_a_correction_counts_where_it_is_marked():
    for text in ("\\boxed{7}. Wait, the answer is 9.", "The answer is 7. No. The answer is 9.", "\\boxed{7} no: \\boxed{9}",
                 "<answer>7</answer> Sorry: <answer>9</answer>", "\\boxed{7}. The answer is 9."):  # fmt: skip
        assert is_right_answer(text, "9") and not is_right_answer(text, "7"), text
    assert extract_answer("<answer>7</answer> or <answer>9</answer>", "7") is None


@pytest.mark.parametrize(
    "clause", ["I doubt that ", "It is not true that ", "Nobody thinks ", "If ", "It is false that "]
)
def test_an_answer_denied_by_its_clause_is_none(clause):
    assert not is_right_answer(f"{clause}the answer is 7.", "7") and not is_right_answer(
        f"{clause}the answer is Rome.", "Rome"
    )
    assert is_denied(clause) or clause.startswith("Nobody")
    assert (
        not is_denied("There is no doubt that ")
        and not is_denied("As it is not even, ")
        and not is_withdrawn("So it goes.")
    )


def test_a_name_with_an_article_or_an_apposition():
    for text in ("the Rome", "the city of Rome", "Rome, the capital of Italy", "“Rome”.", "*Rome*", "<b>Rome</b>"):
        assert is_right_answer(f"<answer>{text}</answer>", "Rome"), text
    for text in ("the king of Rome", "Rome, or Milan", "not Rome", "near Rome", "Rome, the wrong city", "Rome, a city unlike it",
                 "Rome, Milan"):  # fmt: skip
        assert not is_right_answer(f"<answer>{text}</answer>", "Rome"), text
