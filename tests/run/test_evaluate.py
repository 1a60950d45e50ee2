"""Evaluation: which problems, how they are attempted, and the numbers of attempts, counted in another way."""

import asyncio
import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from palaestra.context import Bench
from palaestra.errors import Fault, UserError
from palaestra.rewards.user import UserReward
from palaestra.rollout.collect import Sample
from palaestra.run.benches import bench_by_name
from palaestra.run.evaluation import (
    attempt_tasks,
    bounds_of_pay,
    evaluate,
    greedy_held_out,
    judge_held_out,
    sampled_scores,
    summarise_records,
    vote_key,
)
from palaestra.types import Episode, Group, Message, Reward, Row, Segment, Task, stage
from palaestra.worlds.blind import Blind
from palaestra.worlds.question import Question
from palaestra.worlds.user import UserWorld

from tests.rows import every


def test_greedy_answers_to_held_out_problems(context):
    """The tasks of the split "test" in their order, whatever the seed; the likeliest tokens, so no chance is left."""
    tasks, found = bench_by_name("chain")[0].tasks, []
    for seed in (0, 1):
        _, groups = asyncio.run(greedy_held_out(context(seed=seed), 4))
        assert [g.task for g in groups] == [tasks.task("test", i) for i in range(4)]
        assert not {g.task.prompt for g in groups} & {tasks.task("train", i).prompt for i in range(4)}
        found.append([e.text for g in groups for e in g.episodes])
    assert found[0] == found[1] and len(found[0]) == 4


def test_another_model_may_be_asked(context):
    """One whose logits are all alike, of which the first token is taken."""
    ctx = context()
    ctx.reference("flat", "policy")
    for p in ctx.model("flat").module.parameters():
        p.zero_()
    _, groups = asyncio.run(greedy_held_out(ctx, 1, model="flat"))
    assert {i for s in groups[0].episodes[0].rows[0].segments if s.logp is not None for i in s.ids} == {0}


@stage
class Alike:
    """Five held-out problems that are asked in the same words."""

    name: str = "alike"
    size: int | None = None
    test_size: int = 5

    def task(self, split, index):
        domain = ("odd", "even")[index % 2 == 0]
        return Task(id=f"{split}/{index}", prompt=(Message(role="user", content="say"),), domain=domain)


async def paid(ctx, group):
    """The even problems are solved, the odd ones are not; the judge of the first is down."""
    if group.task.id == "test/0":
        raise Fault("judge", "down")
    even = group.task.domain == "even"
    return [Reward(total=float(even), solved=even)] * len(group.episodes)


def test_an_evaluation_by_domain_leaves_errors_out(context):
    bench = Bench(name="alike", tasks=Alike(), world=Question(), reward=paid, max_tokens=8)
    found = asyncio.run(evaluate(context(bench=bench), 100, k=4))
    assert found["errors"] == 1 and (found["greedy"]["mean"], found["greedy"]["n"]) == (0.5, 4)
    assert {d: (x["mean"], x["n"]) for d, x in found["domains"].items()} == {"even": (1.0, 2), "odd": (0.0, 2)}
    assert [k for k in found if "@" in k] == ["pass@1", "pass@2", "pass@4", "maj@4"]
    assert all(found[k]["mean"] == 0.5 and found[k]["n"] == 4 for k in found if "@" in k)


def test_a_domain_of_errors_alone_is_left_out_and_the_others_are_told(context):
    """Without it the evaluation of all would be lost; its errors are counted."""

    async def down(ctx, group):
        if group.task.domain == "odd":
            raise Fault("judge", "down")
        return [Reward(total=1.0, solved=True)]

    bench = Bench(name="alike", tasks=Alike(), world=Question(), reward=down, max_tokens=8)
    found = asyncio.run(evaluate(context(bench=bench), 5))
    assert found["errors"] == 2 and found["greedy"]["n"] == 3
    assert {d: x["n"] for d, x in found["domains"].items()} == {"even": 3}


def test_a_split_ends_where_it_ends_itself(context):
    """Of training problems there are eight, of held-out ones five."""
    bench = Bench(name="alike", tasks=Alike(size=8), world=Question(), reward=paid, max_tokens=4)
    attempt = lambda **split: attempt_tasks(context(bench=bench), 100, Sample(n=1), **split)
    assert [len(asyncio.run(attempt(split=s))) for s in ("train", "test")] == [8, 5]


@pytest.mark.parametrize(("temperature", "alike"), [(1e-4, True), (2.0, False)])
def test_problems_that_read_alike_are_attempted_each_by_itself(context, temperature, alike):
    @stage
    class Watch:
        async def __call__(self, ctx, group):
            texts.append((len(group.episodes), tuple(e.text for e in group.episodes)))
            return [Reward(total=0.0)] * len(group.episodes)

    texts = []
    bench = Bench(name="alike", tasks=Alike(), world=Question(), reward=Watch(), max_tokens=12)
    asyncio.run(evaluate(context(bench=bench), 5, k=3, temperature=temperature))
    assert len({t for n, t in texts if n == 1}) == 1  # greedy
    samples = {t for n, ts in texts if n == 3 for t in ts}
    assert len(texts) == 10 and (len(samples) == 1 if alike else len(samples) > 10)


def answered(*answers):
    """A group of one-line answers: (text, reward), reward None = an error. What earns 1 is right."""
    said = lambda text: (Row(segments=(Segment(ids=(1,), logp=(0.0,), text=text),)),)
    episodes = (
        Episode(status="error:x")
        if r is None
        else Episode(rows=said(t), reward=Reward(total=r, solved=r == 1), status="finished")
        for t, r in answers
    )
    return Group(task=Task(id="t"), episodes=tuple(episodes))


def test_scores_of_samples_are_means_over_subsets():
    """pass@k: whether any of k drawn samples is right, over all subsets; an error is no sample, and 0.99 is not solved."""
    groups = [
        answered(("= 1", 1.0), ("so\n = 2 \n\n", 0.99), ("= 2", 0.0), ("= 1", 1.0)),
        answered(("a\nYes", 1.0), ("no", 0.0), ("b\nyes ", 1.0), ("no", None)),
        answered(("x", 0.0), ("x", 0.0), ("y", 1.0), ("x", 0.0)),
    ]
    right = [[e.total == 1.0 for e in g.valid] for g in groups]
    found = sampled_scores(groups, 4)
    for k, tasks in ((1, right), (2, right), (4, [right[0], right[2]])):
        drawn = [np.mean([any(some) for some in combinations(r, k)]) for r in tasks]
        assert found[f"pass@{k}"]["mean"] == pytest.approx(np.mean(drawn)) and found[f"pass@{k}"]["n"] == len(tasks)
    assert found["maj@4"]["mean"] == pytest.approx(
        (0.5 + 1 + 0) / 3
    )  # two against two, two against one, one against three
    assert list(found) == ["pass@1", "pass@2", "pass@4", "maj@4"]


def test_what_is_voted_on_is_the_last_line():
    assert [vote_key(t) for t in ("a\nB \n\n", "", " \n", "= 4")] == ["b", "", "", "= 4"]


def test_an_accuracy_is_a_share_and_everything_else_a_mean_reward():
    """Wilson's interval of one in three ends at .0615 and .7923. A reward that never says what is right is none,
    though it be 0 or 1; its interval stays between its bounds, and leaves what was seen where they are not known."""
    found = judge_held_out([answered(("", 1.0), ("", 0.0)), answered(("", 0.0), ("", None))])
    share = found.interval
    assert found.of == "accuracy"
    assert (share.mean, share.low, share.high, share.n) == pytest.approx((1 / 3, 0.06149, 0.79235, 3), abs=1e-4)
    for paid in ((1.0, 0.0), (0.05, 0.0), (-1.0, 3.0), (0.0, 0.0)):
        episodes = tuple(Episode(reward=Reward(total=x), status="finished") for x in paid)
        found = judge_held_out([Group(task=Task(id="t"), episodes=episodes)])
        assert (found.of, found.interval.mean) == ("reward", sum(paid) / 2)
        assert found.interval.low < min(0.0, *paid) and max(1.0, *paid) < found.interval.high
        inside = judge_held_out([Group(task=Task(id="t"), episodes=episodes)], (-1.0, 2.0)).interval
        assert -1.0 <= inside.low < inside.high <= max(2.0, *paid) and inside.mean == found.interval.mean
    some = (Reward(total=1.0, solved=True), Reward(total=0.5))  # what is right is known of one alone
    found = judge_held_out(
        [Group(task=Task(id="t"), episodes=tuple(Episode(reward=r, status="finished") for r in some))]
    )
    assert (found.of, found.interval.mean, found.interval.n) == ("reward", 0.75, 2)
    with pytest.raises(UserError, match="every one of 1 episodes failed"):
        judge_held_out([answered(("", None))])


def test_pairs_and_texts_that_were_measured():
    """NaN is no pair; a margin of 0 is a tie and counts one half. A loss is a mean over tokens, (1 + 8) / (1 + 2)."""
    found = summarise_records({"margin": [1.0, -4.0, 0.0, math.nan], "nll": [1.0, 8.0], "tokens": [1.0, 2.0]})
    assert [(h.of, h.interval.mean, h.interval.n) for h in found] == [
        ("ranking", 1 / 2, 3), ("margin", -1.0, 3), ("loss", 3.0, 2),
    ]  # fmt: skip


def test_what_says_its_bounds_is_measured_between_them(context, tmp_path):
    """The game's -1 to 1; a user's class that says them, and one that does not."""
    methods = "def reset(self, task, key): ...\n    def step(self, state, acts, key): ..."
    text = "class {}:\n    {}\n    seats = ('policy',)\n    " + methods
    game = context(task="tictactoe").bench
    assert bounds_of_pay(game) == bounds_of_pay(replace(game, world=Blind(game.world))) == (-1.0, 1.0)
    for name, line, bounds in (("Said", "bounds = (-3.0, 3.0)", (-3.0, 3.0)), ("Silent", "", None)):
        (tmp_path / f"{name}.py").write_text(text.format(name, line or "pass"))
        assert bounds_of_pay(replace(game, world=UserWorld(f"{tmp_path / name}.py:{name}"))) == bounds
    paid = replace(game, reward=UserReward(lambda response, answer: 0.0))
    assert bounds_of_pay(paid) is None


def test_without_right_and_wrong_there_is_no_pass_at_k():
    """The best of j rewards is expected instead: of 0, .2, .4, .8 and two drawn .5333."""
    episodes = tuple(Episode(reward=Reward(total=x), status="finished") for x in (0.4, 0.0, 0.8, 0.2))
    found = sampled_scores([Group(task=Task(id="t"), episodes=episodes)], 4, (0.0, 1.0))
    assert list(found) == ["best@1", "best@2", "best@4"] and {x["of"] for x in found.values()} == {"reward"}
    means = [x["mean"] for x in found.values()]
    assert means == pytest.approx([0.35, (1 * 0.2 + 2 * 0.4 + 3 * 0.8) / 6, 0.8])
    assert all(0 <= x["low"] <= x["mean"] <= x["high"] <= 1 for x in found.values())


@every("n", [1, 2, 3, 4, 8])
@every("right", [0, 1, 2])
def test_few_problems_have_intervals_inside_0_and_1(n, right):
    """Solved by all samples, by none, by every other one."""
    rewards = [[1.0] * 4, [0.0] * 4, [1.0, 0.0] * 2][right]
    found = sampled_scores([answered(*(("= 1", r) for r in rewards)) for _ in range(n)], 4)
    assert all(0 <= x["low"] <= x["mean"] <= x["high"] <= 1 and x["low"] < x["high"] for x in found.values())
