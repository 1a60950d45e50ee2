"""reasoning-gym as a source: every generator on offer pays its gold in full, nothing empty, and reads no code."""

# ruff: noqa: E501  lists

import inspect
import os
import random
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from palaestra.errors import UserError
from palaestra.tasks.gym import (
    CHUNK,
    HASH_ORDERED,
    READABLE_ANSWERS,
    REFUSALS,
    Gym,
    extract_gym_answer,
    isolate_randomness,
    levels,
    refuse,
    registry,
    usable_generators,
)

try:
    registry()
except UserError as missing:
    pytest.skip(str(missing), allow_module_level=True)

HOSTILE = [
    "__import__('os').system('touch {mark}')", "[open('{mark}', 'w') for _ in [0]]", "(lambda: open('{mark}','w'))()",
    "9**9**9**9", "(9)**(9)**(9)**9", "10**10**10", "1e999999999", "[0 for a in 'x' * 10**9]", "1/0", "nan", "inf", "NaN",
    "banana", "None", "null", "[]", "{{}}", "[[]]", "(" * 300, "[" * 300, "9" * 5000, "1 " * 500, "٣²", "\\boxed{{}}", "-", "+", "//", ",",
]  # fmt: skip


def sample(generator):
    n = 1 if generator in ("sokoban", "knight_swap", "futoshiki") else 2
    gym = Gym(generator)
    return gym, [gym.task("train", i) for i in range(n)] + [gym.task("test", 0)]


def check_generator(generator, folder):
    """Law 5, and that what is drawn is drawn again."""
    states = random.getstate(), np.random.get_state()[1].copy()
    gym, tasks = sample(generator)
    assert len({t.id for t in tasks}) == len(tasks) and tasks[-1].prompt[0].content not in {
        t.prompt[0].content for t in tasks[:-1]
    }
    mark = folder / "mark"
    for task in tasks:
        gold = str(task.answer)
        assert gym.check(gold, task) >= 0.99 and gym.check(f"I think\n<answer>{gold}</answer> so", task) >= 0.99
        assert gym.check("", task) == gym.check(" \n", task) == gym.check("<answer></answer>", task) == 0.0
        for text in HOSTILE:
            started, text = time.process_time(), text.format(mark=mark)
            score = gym.check(text, task)
            assert 0.0 <= score < 0.99 or text.casefold() == gold.casefold(), (generator, text, score)
            assert time.process_time() - started < 1.0, (generator, text)
    assert not mark.exists(), f"{generator} ran the response"
    assert random.getstate() == states[0] and np.array_equal(np.random.get_state()[1], states[1])


def cases(names):
    return [n for n in names if n not in HASH_ORDERED]


@pytest.mark.parametrize("generator", cases(usable_generators()))
def test_every_generator(generator, tmp_path):
    check_generator(generator, tmp_path)


def test_every_generator_is_offered_or_refused():
    assert (
        set(REFUSALS) <= set(registry())
        and set(HASH_ORDERED) <= set(usable_generators())
        and set(READABLE_ANSWERS) <= set(usable_generators())
    )
    assert len(registry()) == 106 and len(usable_generators()) == 94


def test_scorers_that_parse_the_response_are_guarded_or_refused():
    """A scorer that hands text to Python or sympy is either refused or sees only text in READS."""
    parses = re.compile(r"\beval\(answer|parse_expr\(answer|exec\(|literal_eval\(answer")
    for name, (made, _) in registry().items():
        if parses.search(inspect.getsource(made.score_answer)):
            assert name in READABLE_ANSWERS or name in REFUSALS, name


@pytest.mark.parametrize("name", [n for n, why in REFUSALS.items() if "no reference answer" in why])
def test_refused_for_having_no_answer(name):
    made, config = registry()[name]
    assert made(config(seed=1, size=2))[0]["answer"] is None


def test_refused_for_paying_what_is_wrong():
    made, config = registry()["game_of_life_halting"]
    entry = (halting := made(config(seed=1, size=2)))[0]
    assert halting.score_answer("banana", entry) == 1.0
    made, config = registry()["puzzle24"]
    entry = (puzzle := made(config(seed=1, size=2)))[0]
    assert puzzle.score_answer("1 * 2 * 3 * 4", entry) == 1.0 and sorted(entry["metadata"]["numbers"]) != [1, 2, 3, 4]
    made, config = registry()["coin_flip"]
    coins = made(config(seed=5, size=99))
    assert any(coins.score_answer("0", coins[i]) == 1.0 for i in range(99))


def test_items_are_the_same_in_every_process(tmp_path):
    """What HASH_ORDERED names is all that differs with Python's hash seed."""
    code = (
        "import hashlib, sys\nfrom palaestra.tasks import gym\ngym.HASH_ORDERED = ()\n"
        "for n in sys.argv[1:]:\n    g = gym.Gym(n)\n"
        "    t = [g.task('train', i) for i in range(8)]\n"
        "    print(n, hashlib.md5(repr([(x.prompt, x.answer) for x in t]).encode()).hexdigest())\n"
    )
    names = [n for n in usable_generators() if n not in ("sokoban", "futoshiki", "knight_swap", "zebra_puzzles")]
    out = [
        subprocess.Popen(
            [sys.executable, "-c", code, *names],
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    a, b = (p.communicate()[0].splitlines() for p in out)
    assert len(a) == len(names) == len(b)
    assert {x.split()[0] for x, y in zip(a, b, strict=True) if x != y} == set(HASH_ORDERED) - {"knight_swap"}


def test_splits_share_no_problem():
    gym = Gym("chain_sum", params=(("max_digits", 1), ("max_terms", 2)))  # 200 different problems
    train = {gym.task("train", i).prompt[0].content for i in range(400)}
    test = {gym.task("test", i).prompt[0].content for i in range(100)}
    assert len(train) > 100 and len(test) > 20 and not train & test
    with pytest.raises(UserError, match=r"too few different problems for a (train|test) split"):
        one = Gym("count_primes", params=(("min_n", 3), ("max_n", 3)))
        (one.task("test", 0), one.task("train", 0))


def test_an_index_is_one_item():
    gym = Gym("gsm_symbolic")  # its datasets prepare a list of their length
    far = gym.task("train", 123_456)
    assert (
        far == Gym("gsm_symbolic").task("train", 123_456) != gym.task("train", 0)
        and far.id == "rg:gsm_symbolic/train/123456"
    )
    with pytest.raises(UserError, match="no split 'valid'"):
        gym.task("valid", 0)
    sums = Gym("chain_sum", params=(("min_digits", 4), ("min_terms", 4)))
    assert len({sums.task("train", i).prompt[0].content for i in (*range(40), *range(CHUNK, CHUNK + 40))}) == 80


def test_settings_and_difficulty():
    easy, hard = Gym("chain_sum", difficulty=0), Gym("chain_sum", difficulty=10)
    assert levels("chain_sum") == 11 and levels("gsm_symbolic") == 0
    lengths = [len(g.task("train", 3).prompt[0].content) for g in (easy, hard)]
    assert lengths[0] < lengths[1] and easy.name == "rg:chain_sum(difficulty=0)"
    fixed = Gym("chain_sum", params=(("min_terms", 3),), difficulty=1)
    assert all(
        fixed.task("train", i).prompt[0].content.count(" + ") + fixed.task("train", i).prompt[0].content.count(" - ")
        == 2
        for i in range(9)
    )
    listed = Gym("calendar_arithmetic", params=(("tasks", ("is_leap_year",)),))
    assert "leap year" in listed.task("train", 0).prompt[0].content and hash(listed)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"generator": "chainsum"}, "no generator 'chainsum'; did you mean chain_sum"),
        ({"generator": "zzz"}, "no generator 'zzz'; there are 94"),
        ({"generator": "boxnet"}, "rg:boxnet is not offered: its items have no reference answer"),
        ({"generator": "simple_integration"}, "its scorer runs the response as Python code"),
        ({"generator": "composite"}, "join them with"),
        (
            {"generator": "chain_sum", "params": (("min_term", 1),)},
            "has no setting 'min_term'; did you mean min_terms",
        ),
        ({"generator": "chain_sum", "params": (("seed", 1),)}, "has no setting 'seed'; there are min_terms"),
        (
            {"generator": "chain_sum", "params": (("min_terms", 9),)},
            "max_terms must be >= min_terms; change this setting",
        ),
        (
            {"generator": "chain_sum", "params": (("min_terms", "a"),)},
            r"rg:chain_sum\(min_terms='a'\): .*; change this",
        ),
        ({"generator": "chain_sum", "difficulty": 11}, "has the difficulties 0 to 10, not 11"),
        ({"generator": "chain_sum", "difficulty": "hard"}, "has the difficulties 0 to 10, not 'hard'"),
        ({"generator": "gsm_symbolic", "difficulty": 1}, "has no difficulties; set its ranges instead"),
        ({"generator": "survo", "difficulty": 3}, "max_empty must be <= 9"),
    ],
)
def test_errors(settings, message):
    with pytest.raises(UserError, match=message):
        Gym(**settings)


@pytest.mark.parametrize("name", HASH_ORDERED)
def test_what_differs_between_processes_needs_a_fixed_hash(name):
    if sys.flags.hash_randomization:
        with pytest.raises(UserError, match="set PYTHONHASHSEED=0"):
            refuse(name)
    else:
        refuse(name)


def test_what_is_judged_side_by_side_leaves_the_process_as_it_was():
    """Two threads that put standard output aside, the first leaving before the second."""
    inside, left = threading.Event(), threading.Event()
    output, before = sys.stdout, random.getstate()

    def second():
        with isolate_randomness(1):
            inside.set()
            left.wait(1)

    with isolate_randomness(2):
        thread = threading.Thread(target=second)
        thread.start()
        inside.wait(0.3)
    left.set()
    thread.join()
    assert sys.stdout is output and random.getstate() == before


def test_final():
    assert (
        extract_gym_answer("a\n b \n\n", "7") == "b"
        and extract_gym_answer("a\n b ", "x\ny") == "a\n b"
        and extract_gym_answer("", "7") == ""
    )
    assert (
        extract_gym_answer("<answer>1</answer> <answer> 2\n</answer> 3", "7") == "2"
        and extract_gym_answer("</answer><answer>5", "7") == "</answer><answer>5"
    )
