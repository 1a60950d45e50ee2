"""The check before the first step finds rewards that cannot teach."""

import pytest
from palaestra.rewards.user import UserReward
from palaestra.rewards.verify import Exact, Verify, check_for
from palaestra.tasks.files import FileTasks
from palaestra.tasks.mixture import parse_tasks
from palaestra.toys.chain import ArithmeticChain
from palaestra.toys.grid import Grid, GridTasks
from palaestra.toys.hop import Hop, HopTasks
from palaestra.types import Ask, Call, Frame, Task, stage

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
    assert len(found) == 2 and found[0].endswith("scores 1, an empty answer 1; it must score less")


@pytest.mark.parametrize("worth", [0, 1])
def test_a_constant_reward_is_one_line(tasks, tmp_path, worth):
    constant = user(tmp_path, f"def score(responses, answers): return [{worth}] * len(responses)")
    for judge in (Verify(lambda text, task: worth), constant):
        (line,) = check_oracle(tasks, judge)
        assert line == f"each gold, wrong or empty answer to 8 tasks scores {worth}: nothing can be learned"


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
    """As that of TRL's page on GRPO does; one that pays no form of the gold is refused."""
    found = check_oracle(tasks, user(tmp_path, BOXED.format(parameter="answer", pay=pay)))
    assert (found == []) == fine
    if not fine:
        assert found == ["each gold, wrong or empty answer to 8 tasks scores 0: nothing can be learned"]


def test_what_is_wrong_is_said_in_the_form_that_is_paid(tasks, tmp_path):
    pay = "float(f[-1:] == [a] and a != 'a3')"
    (line,) = check_oracle(tasks, user(tmp_path, BOXED.format(parameter="answer", pay=pay)), n=8)
    assert line == r"task 'd.jsonl:4': the gold answer '\\boxed{a3}' scores 0, an empty answer 0; it must score less"


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


def test_an_exact_reward_is_a_strict_one():
    assert Verify(Exact()).gold == 1.0
