"""Mixtures: exact shares, no task twice before its part is exhausted, and a string form with good errors."""

import sys
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.rewards.verify import check_for
from palaestra.tasks.files import FileTasks
from palaestra.tasks.gym import Gym, registry
from palaestra.tasks.mixture import Mixture, counts, parse_tasks
from palaestra.tasks.spec import split_outside
from palaestra.types import Message, Task, stage


@stage
class Numbers:
    """`n` problems of a split; None = endless."""

    name: str = "numbers"
    size: int | None = None
    test_size: int | None = None
    base: tuple[int, int] = (1, 2)

    def task(self, split, index):
        assert self.size is None or index < (self.test_size if split == "test" else self.size)
        return Task(id=f"{split}{index}", prompt=(Message(role="user", content="?"),), answer=str(index))

    def check(self, text, task):
        return float(text == f"{self.name} {task.answer}")


REGISTRY = {"numbers": Numbers, "other": lambda base=1: Numbers(name="other")}


@given(st.lists(st.sampled_from([0.5, 1, 2, 3, 0.25]), min_size=1, max_size=4), st.integers(0, 5))
def test_every_block_holds_the_exact_shares(weights, number):
    mixture = Mixture(tuple((Numbers(name=f"n{i}"), w) for i, w in enumerate(weights)))
    share = counts(tuple(weights))
    length = sum(share)
    tasks = [mixture.task("train", i) for i in range(number * length, (number + 1) * length)]
    assert Counter(t.domain for t in tasks) == {f"n{i}": n for i, n in enumerate(share)}
    for i, n in enumerate(share):
        given = [int(t.answer) for t in tasks if t.domain == f"n{i}"]
        assert given == list(range(number * n, (number + 1) * n))
    assert [w / weights[0] for w in weights] == [n / share[0] for n in share]


def test_deterministic_and_differently_ordered_splits():
    mixture = Mixture(((Numbers(name="a"), 1), (Numbers(name="b"), 1.5)))
    again = Mixture(((Numbers(name="a"), 1), (Numbers(name="b"), 1.5)))
    train = [mixture.task("train", i) for i in range(50)]
    assert train == [again.task("train", i) for i in range(50)] and hash(mixture) == hash(again)
    assert [t.domain for t in train] != [mixture.task("test", i).domain for i in range(50)]
    assert train[0].id == f"{train[0].domain}/train0" and len({t.id for t in train}) == 50
    assert mixture.name == "a+b*1.5" and mixture.size is None and mixture.test_size is None


def test_a_finite_part_starts_over_in_a_fresh_order():
    mixture = Mixture(((Numbers(name="few", size=7, test_size=3), 1), (Numbers(name="many"), 2)))
    few = [t.answer for i in range(42) if (t := mixture.task("train", i)).domain == "few"]
    assert len(few) == 14 and set(few[:7]) == set(few[7:]) and few[:7] != few[7:]
    n = mixture.test_size
    assert sum(mixture.task("test", i).domain == "few" for i in range(n)) == 3
    assert mixture.task("test", n).domain == "few" and len({mixture.task("test", i).id for i in range(n)}) == n


def test_the_first_part_that_would_repeat_ends_the_test():
    mixture = Mixture(((Numbers(name="few", size=9, test_size=3), 1), (Numbers(name="more", size=9, test_size=8), 2)))
    ids = [mixture.task("test", i).id for i in range(mixture.test_size + 1)]
    assert len(set(ids)) == len(ids) - 1 and ids[-1].startswith("few/") and ids[-1] in ids[:-1]


def test_blocks_have_orders_of_their_own():
    mixture = Mixture(((Numbers(name="a"), 4), (Numbers(name="b"), 5)))
    orders = {tuple(mixture.task("train", 9 * block + i).domain for i in range(9)) for block in range(20)}
    assert len(orders) > 10


@pytest.mark.gym
def test_each_part_is_checked_its_own_way(tmp_path):
    (tmp_path / "d.jsonl").write_text(
        "\n".join(f'{{"prompt": "p{i}", "answer": {i}, "domain": "mine"}}' for i in range(9))
    )
    mixture = Mixture(((Numbers(), 1), (FileTasks(str(tmp_path / "d.jsonl")), 1), (Gym("chain_sum"), 1)))
    check = check_for(mixture)
    assert hash(check)
    for i in range(9):
        task = mixture.task("train", i)
        right = {
            "numbers": f"numbers {task.answer}",
            "d": f"It is {task.answer}.",
            "rg:chain_sum": f"so\n{task.answer}",
        }
        assert {d: check(text, task) == 1.0 for d, text in right.items() if d == task.domain} == {task.domain: True}
        assert check("", task) == 0.0
    assert {mixture.task("train", i).domain for i in range(9)} == {"numbers", "d", "rg:chain_sum"}


def test_parse():
    one = parse_tasks("numbers", REGISTRY)
    assert one == Numbers()
    assert parse_tasks("numbers(base=(3, 4))", REGISTRY) == replace(Numbers(base=(3, 4)), name="numbers(base=(3, 4))")
    assert parse_tasks("numbers(base=[3,4])", REGISTRY).base == (3, 4)
    assert parse_tasks(" numbers * 2 + other ", REGISTRY) == Mixture(((Numbers(), 2.0), (Numbers(name="other"), 1.0)))
    assert split_outside("a('+')+b([1+2])+c", "+") == ["a('+')", "b([1+2])", "c"]


@pytest.mark.gym
def test_parse_a_generator():
    gym = parse_tasks("rg:chain_sum(min_terms=2,max_terms=3,difficulty=1)", {})
    assert gym == Gym("chain_sum", params=(("max_terms", 3), ("min_terms", 2)), difficulty=1)
    assert parse_tasks("rg:chain_sum(allow_negation=True)*0.5+numbers", REGISTRY).parts[0][0].params == (
        ("allow_negation", True),
    )
    assert parse_tasks(gym.name, {}) == gym


def test_a_generator_without_reasoning_gym_is_one_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    registry.cache_clear()
    assert main(["train", "--task", "chain+rg:chain_sum"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "pip install 'palaestra[gym]'" in line and "C compiler" in line


@pytest.mark.parametrize(
    "spec, message",
    [
        ("number", "no task 'number'; did you mean numbers?"),
        ("zzz", "no task 'zzz'; there are numbers, other, grid, and rg:NAME for reasoning-gym"),
        ("grid+numbers", "'grid' is an environment, which stands alone: it cannot be part of 'grid\\+numbers'"),
        ("gird", "no task 'gird'; did you mean grid"),
        ("", "an empty part in ''"),
        ("numbers+", "an empty part in 'numbers\\+'"),
        ("numbers*", "'numbers\\*' in .* cannot be read; write NAME, NAME\\(setting=value\\) or NAME\\*2"),
        ("numbers*x", "the weight in 'numbers\\*x' is no number"),
        ("numbers*0", "the weight in 'numbers\\*0' must be at least 0.001"),
        ("numbers*-1", "must be at least 0.001"),
        ("numbers*nan", "must be at least 0.001"),
        ("numbers*inf", "must be at least 0.001"),
        ("numbers*2*3", "cannot be read"),
        ("numbers(", "cannot be read"),
        ("numbers(1)", "write settings as numbers\\(name=value\\)"),
        ("numbers(a b)", "write settings as"),
        ("numbers(**x)", "write settings as"),
        ("numbers(base=open('x'))", "write settings as"),
        ("numbers(base={})", "write settings as"),
        ("numbers(bas=3)", "task 'numbers' has no setting 'bas'; did you mean base"),
        ("numbers(zzz=3)", "task 'numbers' has no setting 'zzz'; there are"),
        ("numbers+numbers", "the mixture has 'numbers' twice; give it once, with the sum of the weights"),
        pytest.param(
            "rg:chain_sum(min_term=2)",
            "rg:chain_sum has no setting 'min_term'; did you mean min_terms",
            marks=pytest.mark.gym,
        ),
        ("rg:", "cannot be read"),
        pytest.param("rg:chainsum", "did you mean chain_sum", marks=pytest.mark.gym),
        ("numbers*1000+other*0.0017", "have no common measure; use simpler numbers"),
    ],
)
def test_errors(spec, message):
    with pytest.raises(UserError, match=message) as error:
        parse_tasks(spec, REGISTRY, known=("grid",))
    assert "\n" not in str(error.value)


def test_an_empty_mixture():
    with pytest.raises(UserError, match="at least one part"):
        Mixture(())
    with pytest.raises(UserError, match="a part's weight is -1"):
        Mixture(((Numbers(), -1),))
