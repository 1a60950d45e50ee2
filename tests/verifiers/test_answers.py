"""Law 5: the gold answer scores 1, an empty one 0, adversarial wrong ones 0; no input hangs or raises."""

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra.rewards.verify import Exact
from palaestra.types import Message, Task
from palaestra.verifiers.answers.boxes import boxed_answer
from palaestra.verifiers.answers.final import extract_answer, is_right_answer, parse_number, same_answer

from tests.rows import every

PROMPT = "Jan has 12 apples and gives away 5. What is 12 mod 5, and how many are left? Answer with a number."
WRONG = [  # for the gold answer 7
    "",
    " \n\t ",
    "6",
    "77",
    "17",
    "70",
    "-7",
    "7.5",
    "0.7",
    "7%",
    "7/2",
    "7e1",
    "6 or 7",
    "7 or 8",
    "6, 7",
    "6,7",
    "6 7",
    "6 and 7",
    "6/7",
    "6-7",
    "6;7",
    "[6, 7]",
    "1.7",
    "6\n7",
    "- 6\n- 7",
    "The answer is 6 or 7",
    "The answer is 6, 7",
    "The answer is not 7",
    "Answer: 7 or 8",
    "The answer is 7 because 12 - 6 is 7",
    "Answer: x = 6 or x = 7",
    "answer: 6\n#### 8",
    "\\boxed{6 \\text{ or } 7}",
    "\\boxed{7, 8}",
    "\\boxed{7} \\boxed{8}",
    "\\boxed{77}",
    "<answer>7</answer> no, <answer>8</answer>",
    "<answer>6 7</answer>",
    "x != 7",
    "x > 7",
    "it is not 7",
    "12 - 7",
    "3 + 7",
    "۷",
    "⁷",
    "Ⅶ",
    "7th",
    "x7",
    "v7.1",
    "7:30",
    "2024-01-7",
    "0x7",
    "7,00",
    ", ".join(map(str, range(101))),
    " ".join(map(str, range(101))),
    "\n".join(map(str, range(101))),
    " ".join(f"\\boxed{{{i}}}" for i in range(101)),
    "\n".join(f"Answer: {i}" for i in range(101)),
    ", ".join(map(str, range(8))),
    "\n".join(map(str, range(8))),
    " or ".join(map(str, range(8))),
    "7" * 5000,
    "NaN",
    "inf",
]
RIGHT = [
    "7",
    " 7 ",
    "7.",
    "7.0",
    "+7",
    "14/2",
    "**7**",
    "$7$",
    "\\(7\\)",
    "(7)",
    "The answer is 7.",
    "the final answer is: $7$. I hope it is correct.",
    "**Answer:** 7",
    "**Answer**: 7 apples",
    "Answer:\n7",
    "12 - 5 = 7",
    "12 - 5 = 7\n#### 7",
    "\\boxed{7}",
    "so \\boxed{\\text{7}}.",
    "$\\boxed{x = 7}$, as 3 < 4",
    "\\boxed{\\frac{14}{2}}",
    "<answer>\n7\n</answer>",
    "He keeps 7",
    "He had 12, so he keeps 7 apples.",
    "first \\boxed{6}, no: \\boxed{7}",
    "Working:\n12 - 5\n7",
    "It was 6 at first. Then x=7",
    "07",
    "007",
    "７",
    "seven",
]


@every("text", WRONG, ids=lambda t: repr(t[:30]))
def test_wrong_numbers(text):
    assert not is_right_answer(text, "7", PROMPT)


@every("text", RIGHT)
def test_right_numbers(text):
    assert is_right_answer(text, "7", PROMPT)


@pytest.mark.parametrize("gold", ["5", "12"])
def test_an_echo_of_the_prompt_is_no_answer(gold):
    for echo in (
        PROMPT,
        PROMPT.lower(),
        PROMPT + "\n",
        "What is 12 mod 5",
        "Jan has 12 apples and gives away 5.",
        "So: what is 12 mod 5?",
    ):
        assert not is_right_answer(echo, gold, PROMPT), echo
    assert is_right_answer("5" if gold == "5" else "12", gold, PROMPT)


TEXTS = [  # gold, right, wrong
    ("Paris", ["paris", "Paris.", "The answer is **Paris**.", "\\boxed{\\text{Paris}}", "<answer> Paris </answer>"],
     ["Paris or Rome", "Not Paris", "Parisian", "I like Paris", "London\nParis", "The answer is Paris, or Rome", "par is"]),
    ("B", ["(B)", "b", "Answer: B", "Answer: (B)."], ["A, B, C, D", "AB", "B or C", "Answer: A or B", "A\nB"]),
    ("007", ["007"], ["7", "07", "0077"]),
    ("50%", ["50%", "50.0 %", "50\\%", "It is 50 %"], ["50", "0.5", "1/2", "5%"]),
    ("0.5", ["1/2", ".5", "0.50", "\\frac{1}{2}", "5e-1"], ["50%", "0.05", "5", "0.5000001", "1/3", "1/0"]),
    ("1,234", ["1234", "1,234.00", "\\boxed{1{,}234}", "The total is $1,234.", "1 234"], ["1.234", "234", "12,34", "12 34"]),
    ("-3", ["-3", "−3", "x = -3"], ["3", "- 3 + 6", "5-3", "--3"]),
    ("12:30", ["12:30", "Answer: 12:30"], ["12", "30", "12.30"]),
    ("True", ["true", "Answer: True"], ["not true", "true or false", "1"]),
    ("(1, 2)", ["(1, 2)", "1, 2"], ["1", "2", "2, 1"]),
    ("two\nlines", ["two\nlines", "Two lines"], ["two", "lines"]),
]  # fmt: skip


@every("gold, good, bad", TEXTS)
def test_texts(gold, good, bad):
    for text in (gold, *good):
        assert is_right_answer(text, gold), text
    for text in ("", *bad):
        assert not is_right_answer(text, gold), text


def test_a_reference_solution_is_read_for_its_answer():
    exact = Exact()
    task = Task(id="t", prompt=(Message(role="user", content="?"),), answer="5 + 2 = 7, so\n#### 7")
    assert exact("it is 7", task) == 1.0 and exact("5", task) == 0.0 and exact(str(task.answer), task) == 1.0
    assert exact("1/2", Task(id="t", answer="thus $\\boxed{\\dfrac{1}{2}}$.")) == 1.0
    assert exact("true", Task(id="t", answer=True)) == 1.0 and exact("2.5", Task(id="t", answer=2.5)) == 1.0


def test_thoughts_are_no_answer():
    task = Task(id="t", answer="7")
    assert Exact()("<think>Perhaps \\boxed{8}.</think> The answer is 7.", task) == 1.0
    for text in ("<think>\\boxed{7}", "<think>7</think>", "<think>\\boxed{7}</think> The answer is 8."):
        assert Exact()(text, task) == 0.0, text


def test_numbers():
    assert (
        parse_number("1e3") == (1000, False)
        and parse_number("5.") == (5, False)
        and parse_number("3/4%") == (Fraction(3, 4), True)
    )
    for text in ("", "1/0", "1e9999", "1,23", "00", "9" * 1001, "1_000", "٣", "1 2", "/2", "2/", "-", "e5", "0x10"):
        assert parse_number(text) is None, text
    half = Fraction(1, 2)
    mixed = {"3\\frac{1}{2}": 3 + half, "-3\\frac{1}{2}": -3 - half, "-\\frac{1}{2}": -half, "\\frac{-1}{2}": -half}
    assert {text: parse_number(text) for text in mixed} == {text: (value, False) for text, value in mixed.items()}
    assert parse_number("3\\frac{-1}{2}") is parse_number("1/2/3") is parse_number("x\\frac{1}{2}") is None
    assert (
        same_answer("1 / 2", "0.5")
        and is_right_answer("\\boxed{12 / 2}", "6")
        and not is_right_answer("12 / 2", "6", "What is 12 / 2?")
    )
    assert same_answer("0.1", "1/10") and not same_answer("0.30000000000000004", "0.3")


def test_boxes_balance():
    assert (
        boxed_answer("\\boxed{a{b}c} d}") == "a{b}c" and boxed_answer("\\boxed{a") is None and boxed_answer("") is None
    )
    assert boxed_answer("\\boxed{1}, no: \\boxed{\\boxed{2}}") == "2"


MEGABYTE = 1_000_000
LONG = {
    "digits": "7" * MEGABYTE,
    "numbers": "7 " * (MEGABYTE // 2),
    "lines": "7\n" * (MEGABYTE // 2),
    "words": "a " * (MEGABYTE // 2),
    "blank": " " * MEGABYTE,
    "newlines": "x" + "\n" * MEGABYTE,
    "marks": "*`." * (MEGABYTE // 3),
    "open brackets": "(" * MEGABYTE,
    "brackets": "(" * (MEGABYTE // 2) + ")" * (MEGABYTE // 2),
    "boxes": "\\boxed{" * (MEGABYTE // 7),
    "closed boxes": "\\boxed{7}" * (MEGABYTE // 9),
    "tags": "<answer>" * (MEGABYTE // 8),
    "closing tags": "</answer>" * (MEGABYTE // 9),
    "markers": "answer is " * (MEGABYTE // 10),
    "hashes": "####\n" * (MEGABYTE // 5),
    "stars": "answer" + "*" * MEGABYTE,
    "commas": "1,111" * (MEGABYTE // 5),
    "points": "1.1" * (MEGABYTE // 3),
    "fractions": "\\frac{1}{" * (MEGABYTE // 9),
    "equals": "=7" * (MEGABYTE // 2),
    "percent": "7 " + " " * MEGABYTE + "%",
    "signs": "+-" * (MEGABYTE // 2) + "7",
    "umlauts": "ß" * (MEGABYTE // 2),
}


@pytest.mark.parametrize("name", LONG)
def test_a_megabyte_takes_under_a_second(name):
    for gold in ("8", "text"):
        started = time.process_time()
        assert not is_right_answer(LONG[name], gold, PROMPT)
        assert time.process_time() - started < 1.0


@given(
    st.text(alphabet="0123456789 .,-+*/=%$()[]{}\\\n<>answerboxdfc#:or?٣", max_size=60),
    st.sampled_from(["7", "x", "50%", "1/2", "a b"]),
)
def test_never_raises(text, gold):
    found = extract_answer(text, gold, "what is 7 or x?")
    assert found is None or isinstance(found, str)
    assert is_right_answer(text, gold) in (True, False)


@given(st.fractions(min_value=-(10**6), max_value=10**6, max_denominator=1000), st.fractions(max_denominator=1000))
def test_values_decide(a, b):
    assert same_answer(str(a), str(b)) == (a == b)
    assert is_right_answer(f"The answer is {a}.", str(a))
