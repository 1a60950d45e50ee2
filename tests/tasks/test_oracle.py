"""The check before the first step finds rewards that cannot teach."""

import asyncio
import json

import pytest
from palaestra.context import Bench
from palaestra.errors import UserError
from palaestra.rewards.user import UserReward
from palaestra.rewards.verified import Verified
from palaestra.rewards.verify import Exact, Verify, check_for
from palaestra.rewards.weighted import Weighted
from palaestra.rewards.where import Where
from palaestra.run.checks import check_bench
from palaestra.tasks.files import FileTasks
from palaestra.tasks.mixture import parse_tasks
from palaestra.tasks.oracle import demonstrations_paid_less, find_problems, merge_alike, says_its_form
from palaestra.toys.chain import ArithmeticChain
from palaestra.toys.grid import Grid, GridTasks
from palaestra.toys.hop import Hop, HopTasks
from palaestra.types import Ask, Call, Frame, Task, stage
from palaestra.worlds.question import Question

from tests.oracle import check_oracle


@pytest.fixture
def tasks(tmp_path):
    (tmp_path / "d.jsonl").write_text("\n".join(f'{{"prompt": "p{i}", "answer": "a{i}"}}' for i in range(9)))
    return FileTasks(str(tmp_path / "d.jsonl"))


def user(tmp_path, body):
    path = tmp_path / f"reward{abs(hash(body))}.py"
    path.write_text(body)
    return UserReward(f"{path}:score")


def test_good_sources_have_no_problems(tasks):
    assert check_oracle(tasks, Verify(check_for(tasks))) == []
    assert check_oracle(GridTasks(), Grid()) == check_oracle(HopTasks(), Hop()) == []


@pytest.mark.parametrize(
    "spec", ["chain", pytest.param("chain(modulo=7)*2+rg:chain_sum+rg:n_queens", marks=pytest.mark.gym)]
)
def test_good_generators_have_no_problems(spec):
    source = parse_tasks(spec, {"chain": ArithmeticChain})
    assert check_oracle(source, Verify(check_for(source)), n=6) == []


def test_a_verifier_that_refuses_its_gold(tasks):
    found = check_oracle(tasks, Verify(lambda text, task: float(text == task.answer and task.answer != "a3")), n=8)
    assert found == ["task 'd.jsonl:4': the gold answer 'a3' scores 0, not 1"]
    found = check_oracle(tasks, Verify(lambda text, task: 0.5 * (text == task.answer)), n=2)
    assert len(found) == 2 and "scores 0.5, not 1" in found[0]


def test_a_verifier_that_pays_for_nothing(tasks):
    found = check_oracle(tasks, Verify(lambda text, task: float(text in ("", task.answer))), n=2)
    assert len(found) == 2 and found[0].endswith("scores 1, no more than an empty answer with 1")


@pytest.mark.parametrize("worth", [0, 1])
def test_a_constant_reward_is_one_line(tasks, tmp_path, worth):
    constant = user(tmp_path, f"def score(responses, answers): return [{worth}] * len(responses)")
    for judge in (Verify(lambda text, task: worth), constant):
        (line,) = check_oracle(tasks, judge)
        assert line == f"each gold, wrong or empty answer to 8 tasks scores {worth}"


def test_a_users_reward_must_like_the_gold_best(tasks, tmp_path):
    good = "def score(responses, answers): return [10 * (r == a) - 5 for r, a in zip(responses, answers)]"
    assert check_oracle(tasks, user(tmp_path, good)) == []
    (first, *_) = check_oracle(
        tasks, user(tmp_path, "def score(responses, answers): return [-len(r) for r in responses]")
    )
    assert first.endswith("scores -2, less than '' with 0")


BOXED = """
import re
def score(completions, {parameter}, **kwargs):
    found = [re.findall(r"boxed{{(.*?)}}", text) for text in completions]
    return [{pay} for f, a in zip(found, {parameter})]
"""


@pytest.mark.parametrize(
    ("pay", "fine"), [("float(f[-1:] == [a])", True), ("float(bool(f))", True), ("0.5 * (f[-1:] == [a + '.'])", False)]
)
def test_a_users_reward_may_want_a_common_form(tasks, tmp_path, pay, fine):
    """As that of TRL's page on GRPO does; one that pays no form of the gold is found out."""
    found = check_oracle(tasks, user(tmp_path, BOXED.format(parameter="answer", pay=pay)))
    assert (found == []) == fine
    if not fine:
        assert found == ["each gold, wrong or empty answer to 8 tasks scores 0"]


VERL = """
import re
def score(data_source, solution_str, ground_truth, extra_info=None):
    found = re.findall(r"#### (\\-?[0-9\\.\\,]+)", solution_str[-300:])
    return float(bool(found) and found[-1].replace(",", "").replace("$", "") == ground_truth)
"""
TAGS = """
import re
def score(completions, answer, **kwargs):
    return [float(re.findall(r"<answer>(.*?)</answer>", c)[-1:] == [a]) for c, a in zip(completions, answer)]
"""
SHOUT = """
def score(completions, answer, **kwargs):
    return [float(c == f"RESULT: {a}!") for c, a in zip(completions, answer)]
"""


def sums(tmp_path, **more):
    path = tmp_path / f"sums{len(more)}.jsonl"
    rows = [{"prompt": f"{i}+{i}", "answer": str(2 * i), **{k: f(2 * i) for k, f in more.items()}} for i in range(8)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return FileTasks(str(path))


@pytest.mark.parametrize("body", [VERL, TAGS])
def test_verls_score_of_gsm8k_and_tags_are_common_forms(tmp_path, body):
    assert check_oracle(sums(tmp_path), user(tmp_path, body)) == []


def test_a_recorded_demonstration_says_how_a_response_looks(tmp_path):
    shown = sums(tmp_path, demonstration=lambda n: f"RESULT: {n}!")
    assert check_oracle(sums(tmp_path), user(tmp_path, SHOUT)) and check_oracle(shown, user(tmp_path, SHOUT)) == []


def test_demonstrations_that_are_paid_less_than_their_answer_are_told(tmp_path):
    """Of two numbers the last is compared: such a demonstration teaches what pays nothing."""

    def told(name, **more):
        (tmp_path / name).mkdir()
        return asyncio.run(demonstrations_paid_less(sums(tmp_path / name, **more), Verify(Exact())))

    assert told("none") == told("right", demonstration=lambda n: f"I add.\n{n}") == ""
    line = told("other", demonstration=lambda n: f"{n}\nor {n + 1}")
    assert line.startswith(
        "7 of 7 demonstrations that were tried are paid less than their answer alone, e.g. task 'sums1.jsonl:"
    )
    assert ": 0, and 1 for '" in line


def test_a_run_says_what_its_demonstrations_are_paid_and_goes_on(context, tmp_path):
    told = sums(tmp_path, demonstration=lambda n: f"{n}\nor {n + 1}")
    ctx = context(bench=Bench(name="d", tasks=told, world=Question(), reward=Verify(Exact())))
    said = []
    ctx.say = said.append
    asyncio.run(check_bench(ctx))
    assert [line for line in said if "demonstrations that were tried are paid less" in line]


NONE = """
def some(completions, answer, **kwargs):
    return [None if int(a) % 4 else float(c == a) for c, a in zip(completions, answer)]
def none(completions, answer, **kwargs):
    return [None for c in completions]
def odd(completions, answer, **kwargs):
    return [float(c == a) if c else None for c, a in zip(completions, answer)]
def length(completions, answer, **kwargs):
    return [0.0 for c in completions]
"""


@pytest.mark.parametrize("name", ["some", "none", "odd"])
def test_where_a_reward_says_nothing_nothing_is_wrong(tmp_path, name):
    """Alone, and beside a part that pays every answer the same."""
    (tmp_path / "none.py").write_text(NONE)
    alone, flat = (UserReward(f"{tmp_path / 'none.py'}:{n}") for n in (name, "length"))
    tasks = sums(tmp_path)
    assert check_oracle(tasks, alone) == []
    if name != "none":
        assert check_oracle(tasks, Weighted(((name, alone, 1.0), ("length", flat, 1.0)))) == []


def test_who_knows_how_gold_is_written_is_held_to_it(tasks, tmp_path):
    mine = user(tmp_path, TAGS)
    strict = [Verify(check_for(tasks)), Verified("exact"), Grid(), Where("options", mine, Verify(Exact()))]
    assert [says_its_form(j) for j in (*strict, mine, Weighted((("a", mine, 1.0),)))] == [True] * 4 + [False] * 2


def test_alike_findings_are_one_line(tasks):
    found = asyncio.run(find_problems(tasks, Verify(lambda text, task: 0.5 * (text == task.answer)), 3))
    assert merge_alike(found) == ["task 'd.jsonl:1': the gold answer 'a0' scores 0.5, not 1 (and 2 more alike)"]


def test_a_verifier_that_pays_no_gold_stops_the_run(context, tasks):
    blind = Bench(name="d", tasks=tasks, world=Question(), reward=Verify(lambda text, task: 0.0))
    with pytest.raises(UserError, match=r"the oracle check failed: each gold.* 8 tasks scores 0: nothing can be"):
        asyncio.run(check_bench(context(bench=blind)))


def test_what_is_wrong_is_said_in_the_form_that_is_paid(tasks, tmp_path):
    pay = "float(f[-1:] == [a] and a != 'a3')"
    (line,) = check_oracle(tasks, user(tmp_path, BOXED.format(parameter="answer", pay=pay)), n=8)
    assert line == r"task 'd.jsonl:4': the gold answer '\\boxed{a3}' scores 0, no more than an empty answer with 0"


def test_tasks_without_answers_are_only_run(tmp_path):
    (tmp_path / "d.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}')
    source = FileTasks(str(tmp_path / "d.jsonl"), answers=False)
    assert (
        check_oracle(source, user(tmp_path, "def score(responses, answers): return [1 for a in answers if a is None]"))
        == []
    )


@stage
class World:
    """Asks once and pays what it is told to."""

    right: float = 1.0
    wrong: float = 0.0
    endless: bool = False
    seats: tuple[str, ...] = ("policy",)

    def reset(self, task, key):
        return Frame(state=task.id, asks=(Ask(seat="policy"),))

    def step(self, state, acts, key):
        right = acts[0].call is not None and acts[0].call.name == state
        asks = (Ask(seat="policy"),) if self.endless else ()
        return Frame(state=state, asks=asks, pay={("policy", ""): self.right if right else self.wrong})

    def oracle(self, state):
        return Call(name=state)


@stage
class Two:
    name: str = "two"
    size: int | None = 2

    def task(self, split, index):
        return Task(id=f"{split}{index}")


def test_worlds():
    assert check_oracle(Two(), World()) == [] == check_oracle(Two(), World(right=2.0))
    low = check_oracle(Two(), World(right=0.5))
    assert low == [f"task 'train{i}': the oracle is paid 0.5; a solved task pays 1" for i in range(2)]
    idle = check_oracle(Two(), World(wrong=1.0))
    assert idle[0] == "task 'train0': saying nothing is paid 1, the oracle 1; it must be paid less"
    assert "not over after 256 turns; it must come to an end" in check_oracle(Two(), World(endless=True))[0]
    assert check_oracle(Two(), World(right=0.5, seats=("policy", "other"))) == []


@stage
class Guess(World):
    """Its oracle is a guess in tasks without a demonstration."""

    def is_solution(self, task):
        return "demonstration" in task.meta


@stage
class Shown(Two):
    """The second task is demonstrated."""

    def task(self, split, index):
        return Task(id=f"{split}{index}", meta={"demonstration": "host"} if index else {})


def test_a_guess_may_fail_but_silence_is_paid_no_more():
    lines = lambda right, wrong: check_oracle(Shown(), Guess(right=right, wrong=wrong))
    assert lines(0.0, 0.0) == ["task 'train1': the oracle is paid 0; a solved task pays 1"]
    assert lines(1.0, 0.0) == [] and len(lines(1.0, 1.0)) == 2
    assert lines(0.0, 0.5)[0].startswith("task 'train0': saying nothing is paid 0.5, the oracle 0")


def test_an_exact_reward_is_a_strict_one():
    assert Verify(Exact()).gold == 1.0
