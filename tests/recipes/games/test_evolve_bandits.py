"""evolve-bandits: decisions of a teacher are imitated, and games are measured beside four algorithms."""

import asyncio
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.games.evolve_bandits import (
    ImitateTeacher,
    PlayTeacher,
    RegretExam,
    Sight,
    build,
    embedded,
    mean_curve,
    play_algorithm,
    summarise,
)
from palaestra.types import Example, Group, Task
from palaestra.worlds.bandit import BanditTasks, DrawnBandit
from palaestra.worlds.explore import ExploreBandit

from tests.fake import episode

BANDIT = "bandit(arms=3,horizon=12,scenario=brief)"
TASK = BanditTasks(arms=3).task("train", 0)


def test_ucb_finds_the_best_arm_and_greedy_may_stick():
    """Over 20 bandits of 60 turns and gap 0.5; uniform play has regret 60 x 2/3 x 0.5 = 20, UCB less than the
    bound 8 ln T / gap + (1 + pi^2/3) gap of each of the two arms, and greedy fails in some.
    """
    world = ExploreBandit(DrawnBandit(), horizon=60, common=True)

    def play(name):
        tasks = (BanditTasks(arms=3).task("test", i) for i in range(20))
        return [asyncio.run(play_algorithm(world, t, ("k",), name))[1] for t in tasks]

    regret = {name: [sum(f["regrets"]) for f in play(name)] for name in ("ucb", "thompson", "greedy", "random")}
    means = {name: np.mean(x) for name, x in regret.items()}
    assert means["random"] == pytest.approx(20, abs=2) and means["ucb"] < 10 and means["thompson"] < 12
    assert np.std(regret["greedy"]) > 2 * np.std(regret["ucb"]) and max(regret["greedy"]) > 20


def test_decisions_show_what_was_seen_before_them():
    world = ExploreBandit(DrawnBandit(), horizon=6, told=False)
    decisions, facts = asyncio.run(play_algorithm(world, TASK, ("k",), "ucb"))
    names = TASK.meta["names"]
    assert [d.arm for d in decisions[:3]] == list(names) and not any(d.explored for d in decisions[:3])
    assert [names.index(d.arm) for d in decisions] == list(facts["arms"])
    assert f"{names[0]} 1 " in decisions[1].say[-1].content and f"{names[1]} 0 none" in decisions[1].say[-1].content
    with pytest.raises(UserError, match="horizon=100"):
        asyncio.run(play_algorithm(replace(world, horizon=0), TASK, ("k",), "ucb"))


def collect(ctx, link, i=0):
    return asyncio.run(link(ctx, ("k", i), Group(task=ctx.bench.tasks.task("train", i)))).episodes


def test_the_name_of_the_teachers_arm_is_what_is_learned(context):
    ctx = context(BANDIT)
    made = collect(ctx, PlayTeacher(Sight()))
    assert len(made) == 12
    for e in made:
        (row,) = e.rows
        assert next(s.text for s in row.segments if s.trained) in ("B", "C", "D")
        assert row.segments[-1].ids[-1] == ctx.engine("policy").dialect.end and not e.reward.judged
    few = collect(ctx, PlayTeacher(Sight(), points=4))
    assert len(few) == 4 and {e.rows for e in few} <= {e.rows for e in made}
    greedy = [e for i in range(6) for e in collect(ctx, PlayTeacher(Sight("greedy")), i)]
    ucb = [e for i in range(6) for e in collect(ctx, PlayTeacher(Sight()), i)]
    assert not any(e.facts["not_greedy"] for e in greedy) and any(e.facts["not_greedy"] for e in ucb)
    assert "explores" in PlayTeacher(Sight()).first_step_note([Group(task=TASK, episodes=tuple(greedy))])
    assert PlayTeacher(Sight()).first_step_note([Group(task=TASK, episodes=tuple(ucb))]) == ""


def test_explored_is_a_number_of_the_step():
    told = [replace(episode((0,), (1, 2), 1.0), facts={"not_greedy": x}) for x in (True, False, True)]
    told.append(replace(told[0], muted=True))
    signals = [[[{}] for _ in told]]
    examples, _ = ImitateTeacher()([Group(task=Task(id="t"), episodes=tuple(told))], signals, {})
    assert [x.columns["track:explored"].tolist() for x in examples] == [[1.0] * 3, [0.0] * 3, [1.0] * 3]
    assert all(isinstance(x, Example) for x in examples)


def test_few_shots_are_decisions_3_5_7_of_a_training_bandit(context):
    ctx = context(BANDIT)
    world = asyncio.run(Sight(shots=3).explore(ctx))
    turns = [text.split("\n")[1] for text, _ in world.examples]
    assert turns == ["Turn 3 of 12.", "Turn 5 of 12.", "Turn 7 of 12."]
    assert collect(ctx, PlayTeacher(Sight(shots=1, view="guide", horizon=4)))[0].rows[0].segments


def game(arms, rewards, regrets, unread=0):
    best = tuple(x == 0 for x in regrets)
    return {
        "arms": arms, "rewards": rewards, "regrets": regrets, "best_arms": best, "arm_names": ("a", "b"), "unread_arms": unread,
    }  # fmt: skip


def test_numbers_of_games_by_hand():
    """Two bandits of four turns: regrets 1 and 2 of the policy, 0.5 and 0.5 of ucb."""
    policy = [
        game((0, 1, 0, 0), (1, 0, 1, 1), (0.0, 1.0, 0.0, 0.0)),
        game((1, 0, 1, 1), (0, 1, 0, 0), (0.5, 0.0, 1.0, 0.5)),
    ]
    ucb = [game((0, 1, 0, 1), (1, 1, 1, 1), (0.0, 0.5, 0.0, 0.0))] * 2
    found = summarise({"policy": policy, "ucb": ucb})
    assert found["regret"] == {"policy": 1.5, "ucb": 0.5} and found["reward"] == {"policy": 0.5, "ucb": 1.0}
    assert found["suffix_failure"] == {"policy": 0.5, "ucb": 0.0}
    assert found["least_share"] == {"policy": 0.5, "ucb": 1.0}
    assert mean_curve(policy) == [0.25, 0.75, 1.25, 1.5]
    assert found["regret_halfway"] == {"policy": 0.75, "ucb": 0.5}
    assert found["ahead"] == 0 and found["behind"] == 0  # 0.5 +- 12.7 x 0.25: two bandits say nothing
    many = summarise({"policy": [ucb[0]] * 9 + policy[:1], "ucb": policy[1:] * 10})
    assert many["ahead"] == 1 and many["behind"] == 0
    blind = summarise({"policy": [game((0, 1), (1, 0), ())], "ucb": [game((0, 1), (1, 0), ())]})
    assert not {"regret", "linear", "suffix_failure"} & set(blind) and blind["reward"]["policy"] == 0.5


def test_the_exam_plays_all_players_on_the_same_bandits(context):
    ctx = context(BANDIT)
    found = asyncio.run(RegretExam(Sight(), 3)(ctx))
    assert found["bandits"] == 3 and 0.5 < found["unread"] <= 1 and found["regret"]["policy"] > 0
    assert set(found["reward"]) == {"policy", "ucb", "thompson", "greedy", "random"}
    assert asyncio.run(RegretExam(Sight(), 3)(ctx)) == found
    world = asyncio.run(Sight().explore(ctx, common=True))
    _, facts = asyncio.run(play_algorithm(world, ctx.bench.tasks.task("test", 0), ("other",), "ucb"))
    again = asyncio.run(play_algorithm(world, ctx.bench.tasks.task("test", 0), ("key",), "ucb"))[1]
    assert facts == again


def test_options():
    made = build(teacher="thompson", view="history", horizon=9, alpha=1.0, shots=2, points=3, exam=5)
    assert made.collect.links[0] == PlayTeacher(Sight("thompson", 9, "history", 1.0, 2), 3)
    assert made.evaluate["bandits"] == RegretExam(made.collect.links[0].sight, 5)
    assert not build(exam=0).evaluate and embedded(exam=3).evaluate["bandits"].n == 3
    for words, match in (({"teacher": "exp3"}, "exp3"), ({"points": -1}, "points"), ({"shots": -1}, "shots")):
        with pytest.raises(UserError, match=match):
            build(**words)


def test_a_game_of_two_seats_is_refused(context):
    with pytest.raises(UserError, match="has 2"):
        asyncio.run(Sight().explore(context("mnk")))
    with pytest.raises(UserError, match="view is one of"):
        asyncio.run(Sight(view="all").explore(context(BANDIT)))


CLASS = """
from palaestra.types import Ask, Frame, Message, rng_of

class Prices:
    seats = ("policy",)
    def reset(self, task, key):
        return self.ask(0)
    def step(self, state, acts, key):
        sold = rng_of((*key, state)).random() < {"9": 0.8, "10": 0.2}[acts[0].text]
        return self.ask(state + 1, {("policy", ""): float(sold)})
    def ask(self, state, pay=None):
        say = (Message(role="user", content="a price?"),)
        return Frame(state=state, asks=(Ask(seat="policy", say=say),), pay=pay or {})
    def legal(self, state):
        return ("9", "10")
    def expected(self, state):
        return {"9": 0.8, "10": 0.2}
"""


def test_a_class_of_the_users_is_trained_on_and_examined(tmp_path):
    file = tmp_path / "prices.py"
    file.write_text(CLASS)
    run = pl.train(
        "evolve-bandits", env=f"{file}:Prices", out=tmp_path / "run", steps=1, evaluate=0, quiet=True, max_tokens=4,
        set={"schedule.prompts": 2, "horizon": 8, "exam": 2},
    )  # fmt: skip
    found = run.summary["evaluations"]["bandits"]
    assert found["after"]["regret"]["random"] > 0 and found["before"]["bandits"] == 2
