"""Options: when they begin and end, plans of them, what a decision is worth, and goals in the observation."""

import asyncio
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.control.options import resting_actions
from palaestra.control.q import q_targets
from palaestra.errors import Fault, UserError

KEY = ("options",)
LEFT, RIGHT = 0, 1


@pl.stage
class Line:
    """Places 0 to 6 on a line, start at 3: a step pays the place that it leads to, and place 6 ends the game."""

    horizon: int = 12
    agents: int = 1
    observation: int = 1
    actions: int = 2
    masked: bool = False

    def reset(self, rng, n):
        return np.full(n, 3.0)

    def observe(self, state):
        return state[:, None, None]

    def legal(self, state):
        return np.ones((len(state), 1, 2), bool) & (np.arange(2) == 1) if self.masked else None

    def step(self, state, act, rng):
        after = np.clip(state + 2 * act[:, 0] - 1, 0, 6)
        return after, after[:, None].astype(float), after == 6


def go(way):
    return lambda obs, legal, rng: {"act": np.full(obs.shape[:-1], way)}


def at(place):
    return lambda obs: obs[:, 0, 0] == place


def to_goal(obs, legal, rng):
    """One policy for every place: it sees the place and, behind it, the goal."""
    return {"act": (obs[..., 1] > obs[..., 0]).astype(int)}


def to(place, timeout=9, **more):
    return pl.control.Option(
        name=f"to {place}", act=to_goal, timeout=timeout, reached=at(place), goal=(float(place),), **more
    )


def play(options, plans, sim=None, **more):
    follower = pl.control.PlanFollower(plans, **more)
    games = asyncio.run(pl.control.play_options(sim or Line(), options, follower, len(plans), KEY))
    return games, follower


def calls_of(games, game):
    return [
        (games.options[c.option].name, c.start, c.steps, pl.control.ENDS[c.end]) for c in games.calls if c.game == game
    ]


def test_games_follow_plans_of_their_own():
    """From 3: to 5 in two steps, to 4 in one; and to 1 in two steps, then 5 in four. They end after the plan."""
    games, follower = play([to(5), to(4), to(1)], [[0, 1], [2, 0], []])
    assert calls_of(games, 0) == [("to 5", 0, 2, "reached"), ("to 4", 2, 1, "reached")]
    assert calls_of(games, 1) == [("to 1", 0, 2, "reached"), ("to 5", 2, 4, "reached")]
    assert calls_of(games, 2) == [] and follower.done_n.all() and not follower.failed_n.any()
    paths = games.paths()
    assert paths["obs"][1, 0, :, 0].tolist() == [3, 2, 1, 2, 3, 4]
    assert paths["alive"].sum(1).tolist() == [3, 6, 0] and games.env_steps == 9
    assert paths["option"][0].tolist() == [0, 0, 1, -1, -1, -1]
    assert pl.control.returns_of(paths).tolist() == [4 + 5 + 4, 2 + 1 + 2 + 3 + 4 + 5, 0]


def test_an_option_ends_at_its_goal_its_timeout_the_end_of_the_game_or_the_horizon():
    games, _ = play([to(5, timeout=2), to(1, timeout=1), to(6), to(7)], [[0], [1], [2], [3]])
    assert [calls_of(games, i)[0][2:] for i in range(4)] == [
        (2, "reached"),  # at the step of its timeout
        (1, "timeout"),
        (3, "reached"),  # where the game is over, too
        (3, "cut"),  # place 6 is the end
    ]
    games, follower = play([to(0.5, timeout=99)], [[0]])
    assert calls_of(games, 0) == [("to 0.5", 0, 12, "cut")] and games.steps == 12
    assert not follower.done_n.any()


def test_an_option_that_is_at_its_end_or_cannot_begin_takes_no_step():
    games, follower = play([to(3), to(5, can_begin=at(0)), to(4)], [[0, 2], [1, 2]])
    assert calls_of(games, 0) == [("to 3", 0, 0, "reached"), ("to 4", 0, 1, "reached")]
    assert calls_of(games, 1) == [("to 5", 0, 0, "refused")]
    assert follower.failed_n.tolist() == [False, True] and follower.done_n.tolist() == [True, False]
    assert games.numbers()["to 5"] == {
        "calls": 1, "steps": 0, "reached": 0, "timeout": 0, "cut": 0, "interrupted": 0, "refused": 1,
    }  # fmt: skip


def test_the_last_option_of_a_plan_counts_where_it_ends_the_game():
    """Place 6 ends the game, and so do two steps of the second simulator, in which 5 is reached."""
    options = [to(6), to(5), to(7)]
    _, follower = play(options, [[0], [1, 0], [0, 1], [2]])
    assert follower.done_n.tolist() == [True, True, False, False] and not follower.failed_n.any()
    _, follower = play(options, [[1], [1, 1], [0]], sim=Line(horizon=2))
    assert follower.done_n.tolist() == [True, False, False]
    _, follower = play([to(3), to(4)], [[0], [0, 1], []])
    assert follower.done_n.all()


def test_a_new_plan_that_is_empty_has_failed():
    async def nothing(games, rows):
        return [[] for _ in rows]

    _, follower = play([to(0, timeout=1)], [[0]], replan=nothing)
    assert follower.failed_n.tolist() == [True] and follower.done_n.tolist() == [False]


def test_what_failed_is_tried_again_then_planned_anew_then_left_to_another_option():
    """To 1 within one step: reached by the second try. To 0 within one step: three tries, then a new plan."""
    asked = []

    async def replan(games, rows):
        asked.append((rows.tolist(), games.obs[rows, 0, 0].tolist()))
        return [[2] for _ in rows]

    stay = pl.control.Option(name="right", act=go(RIGHT), timeout=2)
    options = [to(1, timeout=1), to(0, timeout=1), to(5, timeout=1), stay]
    games, follower = play(options, [[0], [1]], retries=1, replan=replan, then=3)
    assert calls_of(games, 0)[:2] == [("to 1", 0, 1, "timeout"), ("to 1", 1, 1, "reached")]
    assert asked == [([1], [1.0])]  # after two tries, at place 1
    assert [c[0] for c in calls_of(games, 1)] == ["to 0", "to 0", "to 5", "to 5", "right", "right"]
    assert follower.done_n.tolist() == [True, False] and follower.replanned_n.tolist() == [0, 1]
    assert not games.alive_n.any() and calls_of(games, 0)[-1][3] == "cut"


def test_games_can_be_interrupted_and_options_added_while_they_are_played():
    games = pl.control.OptionGames(Line(), [to(6)], 2, KEY)
    games.begin(games.idle, np.array([0, 0]))
    games.advance()
    games.interrupt(np.array([True, False]))
    assert games.idle.tolist() == [0] and games.end_n.tolist() == [pl.control.INTERRUPTED, 0]
    games.options.append(to(1))
    games.begin(games.idle, np.array([1]))
    with pytest.raises(Fault, match="no option"):
        games.interrupt(np.array([True, True]))
        games.advance()
    games.begin(games.idle, np.array([1, pl.control.STOP]))
    games.advance()
    assert games.obs[0, 0, 0] == 3 and games.alive_n.tolist() == [True, False]
    interrupting = lambda g: g.obs[:, 0, 0] == 5
    follower = pl.control.PlanFollower([[0]])
    played = asyncio.run(pl.control.play_options(Line(), [to(6)], follower, 1, KEY, interrupting))
    assert calls_of(played, 0) == [("to 6", 0, 2, "interrupted")] and follower.failed_n.all()


def test_choices_that_take_no_step_end_in_a_fault():
    async def refused(games, rows):
        return np.zeros(len(rows), int)

    with pytest.raises(Fault, match="took no step"):
        asyncio.run(pl.control.play_options(Line(), [to(5, can_begin=at(0))], refused, 1, KEY))
    with pytest.raises(Fault, match="no game took a step"):
        play([to(5)], [[]])[0].paths()
    with pytest.raises(UserError, match="timeout is 1"):
        to(5, timeout=0)


def test_options_that_share_a_policy_act_in_one_call():
    seen = []

    class Policy:
        def act(self, obs, legal, rng):
            seen.append(obs[:, 0].tolist())
            return to_goal(obs, legal, rng)

    policy = Policy()
    options = [
        pl.control.Option(name=str(p), act=policy.act, timeout=1, goal=(float(p),), reached=at(p)) for p in (5, 1)
    ]
    play(options, [[0], [1]])
    assert seen == [[[3.0, 5.0], [3.0, 1.0]]]


def test_a_decision_is_worth_its_discounted_rewards_and_gamma_to_the_power_of_its_steps():
    """Rewards (0, 0, 1), gamma 0.9: 0.81; with 2 for the best option after it 0.81 + 0.729 * 2 = 2.268."""

    class Late(Line):
        def step(self, state, act, rng):
            after, _, over = Line.step(self, state, act, rng)
            return after, (after == 6)[:, None].astype(float), over & False

    options = [to(6), to(5), to(1, can_begin=at(3))]
    games, _ = play(options, [[0, 1]], sim=Late())
    paths = pl.control.decision_paths(games, 0.9)
    assert paths["reward"][0, 0] == pytest.approx([0.81, 0.0])
    assert paths["discount"][0, 0] == pytest.approx([0.729, 0.9]) and paths["steps"].tolist() == [[3, 1]]
    assert paths["act"][0, 0].tolist() == [0, 1] and paths["next_obs"][0, 0, :, 0].tolist() == [6, 5]
    assert paths["legal"][0, 0].tolist() == [[True, True, True], [False, True, False]]
    assert paths["next_legal"][0, 0].tolist() == [[False, True, False], [True, False, False]]
    tensor = lambda name: torch.tensor(paths[name][:, 0, 0]).float()
    best = torch.tensor([[9.0, 2.0, 9.0]])  # of those that can begin
    target = q_targets(
        tensor("reward"), torch.zeros(1), best, best, tensor("discount"), torch.tensor(paths["next_legal"][:, 0, 0])
    )
    assert target.item() == pytest.approx(2.268, abs=1e-5)


def test_a_decision_after_which_nothing_can_begin_is_the_last():
    """From 3 to 5, where no option can begin: its value is 4 + 0.9 * 5 alone, whatever the values there are."""
    games, _ = play([to(5, can_begin=at(3)), to(4, can_begin=at(3))], [[0]])
    paths = pl.control.decision_paths(games, 0.9)
    assert paths["over"].tolist() == [[True]] and paths["reward"][0, 0] == pytest.approx([8.5])
    tensor = lambda name: torch.tensor(paths[name][:, 0, 0]).float()
    over, high = torch.tensor(paths["over"][:, 0]).float(), torch.tensor([[9.0, 9.0]])
    legal = torch.tensor(paths["next_legal"][:, 0, 0])
    assert q_targets(tensor("reward"), over, high, high, tensor("discount"), legal).item() == pytest.approx(8.5)


def test_values_over_options_learn_from_decisions():
    """From 3, right ends in 6 after three steps and pays 4, 5, 6; left pays 2, 1, 0: values 15 less discounts."""
    options = [to(0, timeout=3), to(6)]
    learner = pl.control.DoubleQ(gamma=0.9, updates=60, lr=3e-3, follow=0.05, width=16)
    state = learner.learner(pl.control.OptionSpaces(observation=1, actions=2), KEY)
    for i in range(4):
        chooser = pl.control.choose_by(learner.acting(state.values, 0.5 if i else 1.0))
        games = asyncio.run(pl.control.play_options(Line(), options, chooser, 8, (*KEY, i)))
        paths = pl.control.decision_paths(games, 0.9)
        state.update(paths, paths["reward"], (*KEY, i))
    left, right = state.values(torch.tensor([[[3.0]]]))[0, 0].tolist()
    assert right == pytest.approx(4 + 0.9 * 5 + 0.81 * 6, abs=1.0) and right > left


def test_the_steps_of_an_option_are_paths_of_its_own():
    games, _ = play([to(5), to(4), to(2)], [[0, 1], [2, 0]])
    own = pl.control.option_paths(games, 0)
    assert own["alive"].tolist() == [[True, True, False, False], [False, True, True, True]]
    assert own["over"].tolist() == [[False, True, False, False], [False, False, False, True]]
    assert own["obs"][0, 0, :2].tolist() == [[3, 5], [4, 5]]  # the goal behind the place
    every = pl.control.option_paths(games, 0, own=False)
    assert every["alive"].tolist() == [[True, True, False, False], [True] * 4]  # but what begins at place 5
    assert games.paths()["over"].sum() == 0


def test_what_cannot_act_rests_legally():
    masked = Line(masked=True)
    assert resting_actions(masked, masked.legal(np.zeros(2)), 2).tolist() == [[1], [1]]

    push = Line(actions=pl.control.Box(low=(0.5, -1.0), high=(1.0, 1.0)))
    assert resting_actions(push, None, 1).tolist() == [[[0.5, 0.0]]]


def test_the_same_key_plays_the_same_bits():
    chooser = pl.control.choose_by(lambda obs, legal, rng: {"act": rng.integers(2, size=obs.shape[:-1])})
    options = [pl.control.primitive_option("left", LEFT), pl.control.primitive_option("right", RIGHT)]
    run = lambda key: asyncio.run(pl.control.play_options(Line(), options, chooser, 8, key)).paths()["obs"]
    assert (run(KEY) == run(KEY)).all() and run(KEY).shape[2] > 3
    assert run(KEY).shape != run(("other",)).shape or (run(KEY) != run(("other",))).any()


def test_plans_of_a_model_name_options_that_exist():
    form = pl.control.plan_form(["red key", "blue_door", "goal"], most=4)
    assert form.model_validate({"plan": [" Red_Key", "BLUE door", "goal"]}).plan == ["red key", "blue_door", "goal"]
    for plan, why in (
        ([], "at least 1"),
        (["goal"] * 3, "write it once"),
        (["red key", "goal"] * 3, "at most 4"),
        (["green key"], "there is no 'green key'; there are red key, blue_door, goal"),
    ):
        with pytest.raises(ValueError, match=why):
            form.model_validate({"plan": plan})
    with pytest.raises(UserError, match="differ"):
        pl.control.plan_form(["a b", "A_b"])


def goals(sim=None, **more):
    draw = lambda rng, obs: np.where(obs[:, 0] >= 4, 2.0, 5.0)
    reached = lambda obs, goal: obs[:, 0, 0] == goal[:, 0]
    return pl.control.GoalSimulator(sim or Line(), draw, reached, 1, 3, **more)


def test_goals_stand_in_the_observation_and_are_paid_alone():
    """3 to 5 in two steps (paid 1 less the cost), then the goal is 2: two of three steps, and at 3 time is up."""
    sim = goals(cost=0.1)
    state, rng = sim.reset(pl.rng_of(KEY), 1), pl.rng_of(KEY)
    assert sim.observation == 2 and sim.observe(state).tolist() == [[[3.0, 5.0]]] and sim.horizon == 12
    paid, seen = [], []
    for way in (RIGHT, RIGHT, LEFT, RIGHT, LEFT):
        state, reward, over = sim.step(state, np.array([[way]]), rng)
        paid.append(float(reward[0, 0]))
        seen.append(sim.observe(state)[0, 0].tolist())
        assert not over.any()
    assert paid == pytest.approx([-0.1, 0.9, -0.1, -0.1, -0.1])
    assert seen == [[4, 5], [5, 2], [4, 2], [5, 2], [4, 2]]
    assert state.spent_n.tolist() == [0]  # drawn anew
    single = goals(single=True)
    state = single.reset(rng, 1)
    for way, ends in ((RIGHT, False), (RIGHT, True)):
        state, reward, over = single.step(state, np.array([[way]]), rng)
        assert over.tolist() == [ends] and reward[0, 0] == ends
    assert single.horizon == 3


def test_a_game_that_is_over_away_from_its_goal_is_no_cheaper_than_the_way():
    """Place 6 ends the game in step 3 of 12, with the goal at 2 missed: 0.1 for each of the 10 steps from it on."""
    far = lambda rng, obs: np.full((len(obs), 1), 2.0)
    for single, last in ((False, -0.1 * 10), (True, -0.1)):  # with single a game has 3 steps
        sim, rng = replace(goals(cost=0.1, single=single), goals=far), pl.rng_of(KEY)
        state, paid = sim.reset(rng, 1), []
        for _ in range(3):
            state, reward, over = sim.step(state, np.array([[RIGHT]]), rng)
            paid.append(float(reward[0, 0]))
        assert over.all() and paid == pytest.approx([-0.1, -0.1, last])


def test_a_policy_for_goals_is_learned_and_acts_in_options():
    learner = pl.control.PPO(games=32, lr=5e-3, width=16)
    policy = asyncio.run(learner.learn(goals(), 6000, KEY))
    act = lambda obs, legal, rng: policy.act(obs, legal, rng, greedy=True)
    options = [pl.control.Option(name=str(p), act=act, timeout=3, goal=(p,), reached=at(p)) for p in (5.0, 2.0)]
    games, follower = play(options, [[0, 1]])
    assert follower.done_n.all() and games.env_steps == 5
