"""Law 5: for every verifier gold scores 1, empty 0, ten adversarial wrong answers 0; it never raises, never hangs."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from palaestra.rewards.verify import check_for
from palaestra.run.built_in import QUESTIONS
from palaestra.tasks.procedural import demonstration
from palaestra.types import rng_of

HABITS = ("guess", "work")


def golds(source, task):
    return [demonstration(source, task, rng_of((task.id, h)), h) for h in HABITS]


def wrongs(source, task):
    """Answers of other tasks, several answers at once, the prompt, praise, and texts around the gold."""
    gold = golds(source, task)[0]
    others = {golds(source, source.task("train", i))[0] for i in range(100, 130)}
    other = sorted(o for o in others if check_for(source)(o, task) == 0)[:8]
    assert len(other) >= 5
    echo = task.prompt[0].content
    return [
        *other,
        echo,
        f"{echo}\n{echo}",
        "correct",
        "= ",
        "=",
        f"{gold}\n{other[0]}",
        f"{gold}\nno, wait\n{other[0]}",
        "\n".join(f"= {i}" for i in range(100, -1, -1)) + "\n= none of these",
        f"I will not answer. {gold} or {other[0]}?",
        "null",
        "[]",
        "0" * 1000,
    ]


@pytest.mark.parametrize("name", QUESTIONS)
def test_table(name):
    source = QUESTIONS[name]()
    check = check_for(source)
    for index in range(8):
        task = source.task("test", index)
        for gold in golds(source, task):
            assert check(gold, task) == 1.0, gold
        assert check("", task) == 0.0 and check("   \n", task) == 0.0
        for wrong in wrongs(source, task):
            assert check(wrong, task) == 0.0, wrong


@pytest.mark.parametrize("name", QUESTIONS)
@settings(max_examples=60)
@given(text=st.text(max_size=200))
def test_fuzz(name, text):
    source = QUESTIONS[name]()
    task = source.task("test", 0)
    assert 0.0 <= check_for(source)(text, task) <= 1.0


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_megabyte_takes_less_than_a_second(name):
    source = QUESTIONS[name]()
    task, begin = source.task("test", 0), time.perf_counter()
    for text in ("= 1\n" * 250_000, "9" * 1_000_000, "(" * 1_000_000, "a b " * 250_000):
        check_for(source)(text, task)
    assert time.perf_counter() - begin < 8  # four texts; a limit against hanging, not a measurement
