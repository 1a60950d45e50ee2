"""Bandits: what is drawn, what a player sees, and whose rewards are whose."""

import asyncio

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.run.benches import bench_by_name
from palaestra.types import Act, Ask, Frame, Message, Task
from palaestra.worlds.bandit import BanditTasks, DrawnBandit
from palaestra.worlds.explore import ExploreBandit, read_arm
from palaestra.worlds.user import UserWorld

PLAIN = Task(
    id="two", prompt=(Message(role="user", content="two arms"),),
    meta={"names": ("X", "Y"), "means": (1.0, 0.0), "weights": (), "noise": 0.0},
)  # fmt: skip


def played(world, task, replies, key=("k",)):
    async def go():
        frames = [await world.reset(task, key)]
        for i, text in enumerate(replies):
            act = Act(ask=frames[-1].asks[0], text=text, call=None, finish="eos", n_tokens=1)
            frames.append(await world.step(frames[-1].state, (act,), (*key, i)))
        return frames

    return asyncio.run(go())


def test_means_of_the_papers_bandits():
    """K = 5, gap 0.2: one arm 0.6, four 0.4, and the regret of uniform play over 300 turns is 300 x 0.8 x 0.2 = 48;
    gap 0.5: 120; K = 20, gap 0.2, 1,000 turns: 190.
    """
    for arms, gap, turns, regret in ((5, 0.2, 300, 48), (5, 0.5, 300, 120), (20, 0.2, 1000, 190)):
        means = BanditTasks(arms=arms, gap=gap).task("train", 0).meta["means"]
        assert sorted(means) == pytest.approx([0.5 - gap / 2] * (arms - 1) + [0.5 + gap / 2])
        assert turns * (max(means) - np.mean(means)) == pytest.approx(regret)


def test_the_spread_of_drawn_means_rewards_and_names():
    drawn = BanditTasks(arms=30, kind="gaussian", variance=4.0)
    means = np.concatenate([drawn.task("train", i).meta["means"] for i in range(40)])
    assert means.std() == pytest.approx(2, rel=0.1) and drawn.task("train", 0).meta["noise"] == 2.0
    tasks = [BanditTasks().task(split, i) for split in ("train", "test") for i in range(8)]
    assert len({t.meta["names"] for t in tasks}) == 16 and len(set(drawn.task("test", 3).meta["names"])) == 30
    task = Task(id="t", prompt=PLAIN.prompt, meta={**PLAIN.meta, "means": (0.5, -1.0), "noise": 2.0})
    rewards = [played(Bandit_(), task, ["X"], ("k", i))[-1].pay["policy", ""] for i in range(400)]
    assert np.mean(rewards) == pytest.approx(0.5, abs=0.3) and np.std(rewards) == pytest.approx(2, rel=0.1)


def Bandit_():
    return ExploreBandit(DrawnBandit(), horizon=1, told=False)


def test_the_table_and_the_facts_by_hand():
    frames = played(ExploreBandit(DrawnBandit(), horizon=4, told=False), PLAIN, ["X", "I take Y.", "X", "x"])
    said = frames[3].asks[0].say[-1].content
    assert said == "two arms\nTurn 4 of 4.\narm pulls mean\nX 2 1\nY 1 0"
    assert frames[0].asks[0].say[-1].content.endswith("Turn 1 of 4.\narm pulls mean\nX 0 none\nY 0 none")
    last = frames[-1]
    assert not last.asks and last.status == "finished" and last.pay == {("policy", ""): 1.0}
    assert last.facts["arms"] == (0, 1, 0, 0) and last.facts["rewards"] == (1.0, 0.0, 1.0, 1.0)
    assert last.facts["regrets"] == (0.0, 1.0, 0.0, 0.0) and last.facts["best_arms"] == (True, False, True, True)
    assert last.facts["unread_arms"] == 0 and all(f.asks[0].new_row for f in frames[:-1])


def test_views():
    replies = ["X", "Y", "X"]
    see = lambda **more: (
        played(ExploreBandit(DrawnBandit(), told=False, **more), PLAIN, replies)[-1].asks[0].say[-1].content
    )
    assert see(view="history").splitlines()[1:] == ["Turn 4 of 50.", "X 1", "Y 0", "X 1"]
    # sqrt(0.5 ln 3 / 2) = 0.52, sqrt(0.5 ln 3) = 0.74
    assert see(view="guide").splitlines()[2:] == ["arm pulls value bonus", "X 2 1 0.52", "Y 1 0 0.74"]
    assert "Turn 4.\n" in see(horizon=0)
    told = played(ExploreBandit(DrawnBandit()), PLAIN, [])[0].asks[0].say[-1].content
    assert told.endswith("Reply with the name of one arm.")
    shown = played(ExploreBandit(DrawnBandit(), examples=(("q", "Y"),)), PLAIN, [])[0].asks[0].say
    assert [(m.role, m.content) for m in shown[:2]] == [("user", "q"), ("assistant", "Y")] and len(shown) == 3


def test_a_context_is_shown_and_gives_the_linear_guide():
    task = BanditTasks(arms=3, features=2).task("train", 0)
    frames = played(ExploreBandit(DrawnBandit(), view="guide", told=False), task, [task.meta["names"][0]] * 3)
    state = frames[-1].state
    theta_KD, x_D = np.array(task.meta["weights"]), np.array(state.seen.context)
    assert state.means == pytest.approx((theta_KD @ x_D).tolist()) and len(set(state.seen.contexts)) == 3
    lines = frames[-1].asks[0].say[-1].content.splitlines()
    assert lines[1] == "context: " + " ".join(f"{x:g}" for x in x_D) and lines[3] == "arm pulls mean value bonus"
    assert lines[5].split()[1:4] == ["0", "none", "0"]
    regret = max(theta_KD @ state.seen.contexts[0]) - theta_KD[0] @ state.seen.contexts[0]
    assert frames[1].facts["regrets"][0] == pytest.approx(regret)


def test_players_of_one_bandit_meet_the_same_rewards():
    task = BanditTasks(gap=0.0).task("train", 0)
    a, b = task.meta["names"][:2]
    paid = lambda replies, key, **more: [
        f.pay["policy", ""] for f in played(ExploreBandit(DrawnBandit(), **more), task, replies, key)[1:]
    ]
    one, other = paid([a] * 30, ("k",)), paid([b, a] * 15, ("k",))
    assert one[1::2] == other[1::2] and one != paid([a] * 30, ("l",))
    assert paid([a] * 30, ("k",), common=True) == paid([a] * 30, ("l",), common=True)


def test_a_reply_without_an_arm_pulls_one_at_random_and_is_counted():
    task = BanditTasks().task("train", 0)
    frames = played(ExploreBandit(DrawnBandit(), horizon=40), task, ["hello"] * 40)
    assert frames[-1].facts["unread_arms"] == 40 and len(set(frames[-1].facts["arms"])) == 5


@pytest.mark.parametrize(
    "text,arm",
    [
        ("Q", "Q"), ("q.", "Q"), ("**R**", "R"), ("Q looks good.\n\nR", "R"), ("\\boxed{Q}", "Q"),
        ("<answer>R</answer> since Q is worse", "R"), ("Answer: Q", "Q"), ("<think>R? R!</think>Q", "Q"),
        ("I pull R, not", "R"), ("Quark", None), ("", None), ("Answer: S\n", None),
    ],
)  # fmt: skip
def test_how_an_arm_is_read(text, arm):
    assert read_arm(text, ("Q", "R")) == arm


def test_names_of_one_letter_case_or_within_another():
    assert read_arm("b", ("B", "b")) == "b" and read_arm("show mail 2", ("mail", "mail 2")) == "mail 2"


USER = """
from palaestra.types import Ask, Frame, Message

class Mine:
    seats = ("policy",)
    def reset(self, task, key):
        return self.ask(0)
    def step(self, state, acts, key):
        return self.ask(state + 1, {("policy", ""): float(acts[0].text == "b")})
    def ask(self, state, pay=None):
        say = (Message(role="system", content="be brief"), Message(role="user", content=f"day {state}"))
        return Frame(state=state, asks=(Ask(seat="policy", say=say, choices=CHOICES),), pay=pay or {})
"""
MORE = """
    def expected(self, state):
        return {"a": 0.0, "b": 1.0}
    def features(self, state):
        return FEATURES
"""


def user_world(tmp_path, choices='("a", "b")', more="", name="mine"):
    file = tmp_path / f"{name}.py"
    file.write_text(USER.replace("CHOICES", choices) + more)
    return UserWorld(f"{file}:Mine")


def test_a_users_class_is_a_bandit(tmp_path):
    world = user_world(tmp_path, more=MORE.replace("FEATURES", "[float(state), 1.0]"))
    frames = played(ExploreBandit(world, horizon=3, told=False), Task(id="t"), ["a", "b", "b"])
    assert frames[-1].facts["regrets"] == (1.0, 0.0, 0.0) and frames[-1].state.seen.contexts[2] == (2.0, 1.0)
    say = frames[1].asks[0].say
    assert [m.role for m in say] == ["system", "user"]
    assert say[-1].content == "day 0\nday 1\nTurn 2 of 3.\narm pulls mean\na 1 0\nb 0 none"
    assert frames[1].asks[0].choices == ("a", "b")
    bare = played(ExploreBandit(user_world(tmp_path, name="bare"), horizon=2), Task(id="t"), ["a", "b"])[-1].facts
    assert bare["regrets"] == () and bare["rewards"] == (0.0, 1.0)


@pytest.mark.parametrize(
    "choices,more,match",
    [
        ("None", "", "a method legal"), ('("a",)', "", "lists 1 arms"),
        ('("a", "c")', MORE.replace("FEATURES", "()"), "nothing of the arm 'c'"),
        ('("a", "b")', MORE.replace("FEATURES", '[float("nan")]'), "finite numbers"),
        ('("a", "b")', MORE.replace("FEATURES", "[1.0] * (1 + state)"), "as many in each turn"),
    ],
)  # fmt: skip
def test_what_is_no_bandit_is_told(tmp_path, choices, more, match):
    world = user_world(tmp_path, choices, more, name=f"n{abs(hash((choices, more)))}")
    with pytest.raises(UserError, match=match):
        played(ExploreBandit(world), Task(id="t"), ["a", "a"])


def test_two_seats_are_no_bandit():
    class Two:
        seats = ("x", "y")

        def reset(self, task, key):
            say = (Message(role="user", content="?"),)
            return Frame(state=0, asks=(Ask(seat="x", say=say), Ask(seat="y", say=say)))

    with pytest.raises(UserError, match="asks 2 seats"):
        played(ExploreBandit(Two()), Task(id="t"), [])


def test_settings():
    bench, _ = bench_by_name("bandit(arms=3,gap=0.2,horizon=7,view=guide,scenario=ads)")
    assert bench.world.horizon == bench.max_turns == 7 and bench.world.view == "guide"
    assert "3 ads" in bench.tasks.task("test", 0).prompt[0].content and bench.tasks.test_size == 16
    for spec, match in (
        ("bandit(arm=3)", "arms"), ("bandit(arms=1)", "at least 2"), ("bandit(gap=2)", "gap"), ("bandit(arms=x)", "such as 5"),
        ("bandit(kind=poisson)", "bernoulli or gaussian"), ("bandit(scenario=zoo)", "buttons"), ("bandit(view=all)", "history"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=match):
            bench_by_name(spec)
    assert pl.worlds.ExploreBandit(DrawnBandit()).shorter == "take fewer arms"
