"""Fast-slow driving: the road and its mask, guidance, and the arms."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.llm4rl import fast_slow_driving
from palaestra.recipes.llm4rl.fast_slow_driving import guidance as g
from palaestra.recipes.llm4rl.fast_slow_driving.guidance import (
    DrivingGuidance,
    GuidedDriving,
    checked_guidance,
    match,
    random_guidance,
)
from palaestra.recipes.llm4rl.fast_slow_driving.lanes import (
    FASTER,
    IDLE,
    LEFT,
    RIGHT,
    SLOWER,
    Lanes,
    LanesState,
    base_reward,
    time_to_collision,
)
from palaestra.recipes.llm4rl.fast_slow_driving.program import Trips, right_intent
from palaestra.recipes.llm4rl.fast_slow_driving.sentences import meant_guidance, read_sentences
from palaestra.recipes.llm4rl.fast_slow_driving.written import written_parse

LEARNER = pl.control.PPO(games=4, epochs=1, bootstrap=True)
SPEEDS = (20.0, 30.0)


def program(**settings):
    return replace(fast_slow_driving.embedded(), **{"learner": LEARNER, "steps": 100, "games": 6, **settings})


def road(lane, speed, cars, mask=True):
    """Three cars at most, (x, lane, speed) each; the others are far away."""
    cars = [*cars, *[(-90.0, 3, 20.0)] * (3 - len(cars))]
    x, lanes, speeds = (np.array([column]) for column in zip(*cars, strict=True))
    state = LanesState(
        lane_n=np.array([lane]),
        speed_n=np.array([float(speed)]),
        goal_n=np.array([[20, 25, 30].index(speed)]),
        x_nV=x.astype(float),
        lane_nV=lanes,
        speed_nV=speeds.astype(float),
        wish_nV=speeds.astype(float),
        crash_n=np.zeros(1, bool),
    )
    return Lanes(cars=3, mask=mask), state


def test_the_reward_by_hand():
    """The reference values of highway-env's reward."""
    paid = base_reward(np.array([0.0, 1.0, 0.0]), np.array([1.0, 0.0, 1 / 3]), np.array([25.0, 20.0, 30.0]))
    assert paid == pytest.approx([0.866667, 0.0, 0.955556], abs=1e-6)


def test_the_time_to_a_collision_and_what_it_masks():
    """A gap of 20 m closes in 4 s at 30 against 25 m/s, one of 14 m in 2.8 s; gaps are less the length of 5 m."""
    assert time_to_collision(np.array([20.0, 14.0, 9.0]), np.array([30.0] * 3), np.array([25.0, 25.0, 31.0])) == (
        pytest.approx([4.0, 2.8, np.inf])
    )
    for x, least, allowed in ((25.0, 3.0, True), (19.0, 3.0, False), (25.0, 5.0, False)):
        sim, state = road(1, 25, [(x, 1, 25.0)])
        assert sim.safe(state, np.array([least]))[0, FASTER] == allowed
    sim, state = road(1, 25, [(19.0, 1, 25.0)], mask=False)
    assert sim.legal(state).all()


def test_a_change_into_an_occupied_lane_is_masked_and_the_road_ends():
    sim, state = road(0, 25, [(8.0, 1, 25.0)])  # 3 m beside
    assert sim.legal(state)[0, 0].tolist() == [False, True, False, True, True]
    sim, state = road(3, 25, [(-30.0, 2, 35.0)])  # from behind, 25 m at 10 m/s more: 2.5 s
    assert not sim.legal(state)[0, 0, LEFT] and not sim.legal(state)[0, 0, RIGHT]
    sim, state = road(1, 25, [])
    assert sim.legal(state).all()


def test_a_step_by_hand():
    """From 25 to 30 m/s at 5 m/s^2 takes the whole second; a car at 40 m in the lane to the right is reached by
    the sum of (1.25 + 2.5 + 3.75 + 5) / 4 = 3.125 m."""
    sim, state = road(1, 25, [(40.0, 2, 25.0)])

    class Still(np.random.Generator):
        def random(self, shape):
            return np.ones(shape)

    rng = Still(np.random.PCG64(0))
    after, paid, over = sim.step(state, np.array([[FASTER]]), rng)
    assert after.speed_n[0] == 30 and after.x_nV[0, 0] == pytest.approx(36.875) and not over[0]
    assert paid[0, 0] == pytest.approx((0.1 / 3 + 0.4 + 1) / 1.5)
    moved = sim.step(state, np.array([[RIGHT]]), rng)[0]
    assert moved.lane_n[0] == 2 and sim.lane_and_speed(sim.observe(moved)[0, 0]) == (2, 25)
    beside = road(1, 25, [(3.0, 2, 25.0)])[1]
    after, paid, over = sim.step(beside, np.array([[RIGHT]]), rng)
    assert over[0] and paid[0, 0] == pytest.approx((-1 + 0.2 / 3 + 0.2 + 1) / 1.5)
    assert sim.facts(after)["crash"][0, 0] == 1
    slow = road(1, 20, [(30.0, 1, 10.0)])[1]
    assert sim.step(slow, np.array([[SLOWER]]), rng)[0].speed_n[0] == 15  # it brakes below the lowest goal
    assert "lane 2 of 4" in sim.scene(slow)[0] and "25 m away, at 10 m/s" in sim.scene(slow)[0]


def test_cars_keep_their_distance_and_games_last():
    sim = Lanes()
    idle = lambda obs, legal, rng: {"act": np.where(legal[..., IDLE], IDLE, SLOWER)}
    played = pl.control.play_games(sim, idle, 32, ("road",))
    assert played["over"].any(1).mean() < 0.2 and np.isfinite(played["obs"]).all()
    wild = lambda obs, legal, rng: {"act": rng.integers(5, size=obs.shape[:-1])}
    crashes = pl.control.play_games(sim.unmasked, wild, 32, ("road",))["over"].any(1).mean()
    assert crashes > 0.5


def row(**said):
    return np.array(checked_guidance(DrivingGuidance(**said), 4, SPEEDS))


def test_the_match_by_hand():
    """27 m/s for 30 is 0.7; with the right lane (0.7 + 1) / 2, with a wrong one 0.35; 15 m/s matches nothing."""
    both, speed = row(goal_lane=2, target_speed=30), row(target_speed=30)
    assert match(both, np.array([1, 0]), np.array([27.0, 27.0])) == pytest.approx([0.85, 0.35])
    assert match(speed, np.array([1, 0]), np.array([27.0, 15.0])) == pytest.approx([0.7, 0.0])
    assert match(row(), np.array([1]), np.array([25.0])) == [0]


def test_guidance_beyond_the_limits_is_mended_and_counted():
    wild = row(goal_lane=7, target_speed=60, style="cautious", avoid=["lane_change"], valid_for_s=9)
    assert (wild[g.HAS_LANE], wild[g.SPEED], wild[g.MENDED]) == (0, 30, 2)
    assert (wild[g.STYLE], wild[g.NO_CHANGE], wild[g.NO_FASTER], wild[g.VALID]) == (-1, 1, 0, 9)
    assert row(goal_lane=4, target_speed=25)[g.MENDED] == 0


def test_guidance_arrives_late_goes_stale_and_only_takes_actions_away():
    sim, state = road(1, 25, [(19.0, 1, 25.0)])
    given = row(goal_lane=1, target_speed=30, avoid=["lane_change"], valid_for_s=2)[None]
    guided = GuidedDriving(sim, given=given, arrives=np.array([1]))
    inner = g.GuidedState(inner=state, guidance_nG=given, arrives_n=np.array([1]), step=0)
    seen = [guided.observe(replace(inner, step=t))[0, 0, -g.SEEN :] for t in range(4)]
    assert not seen[0].any() and not seen[3].any() and (seen[1] == seen[2]).all()
    assert seen[1].tolist() == [1, 0, 1, 1, 0, 1, 0]
    assert guided.legal(inner)[0, 0].tolist() == [True, True, True, False, True]
    assert guided.legal(replace(inner, step=1))[0, 0].tolist() == [False, True, False, False, True]
    near = road(1, 25, [(7.0, 1, 15.0)])[1]
    blocked = replace(inner, inner=near, step=1)
    assert guided.legal(blocked)[0, 0].tolist() == [False] * 4 + [True]
    assert guided.facts(replace(inner, step=1))["guidance_match"][0, 0] == pytest.approx(0.25)


def test_a_cautious_passenger_has_a_longer_gap():
    sim, state = road(1, 25, [(25.0, 1, 25.0)])  # 4 s at 30 m/s
    for style, allowed in (("normal", True), ("aggressive", True), ("cautious", False)):
        guided = GuidedDriving(sim, given=row(style=style)[None])
        at = g.GuidedState(inner=state, guidance_nG=guided.given, arrives_n=np.zeros(1, int), step=0)
        assert guided.legal(at)[0, 0, FASTER] == allowed


def test_training_sees_every_wish_and_none():
    rows = random_guidance(np.random.default_rng(0), 4000, 4, SPEEDS, 40)
    assert rows[:, g.HAS_LANE].mean() == pytest.approx(0.7, abs=0.03)
    assert set(rows[rows[:, g.HAS_LANE] > 0, g.LANE]) == {0, 1, 2, 3} and (rows[:, g.VALID] == 40).all()
    wanted = rows[rows[:, g.HAS_SPEED] > 0, g.SPEED]
    assert wanted.min() >= 20 and wanted.max() <= 30 and not rows[rows[:, g.HAS_SPEED] == 0, g.SPEED].any()
    # what the policy sees is drawn, each way
    assert rows[:, [g.NO_CHANGE, g.NO_FASTER]].mean(0) == pytest.approx([0.15, 0.15], abs=0.03)
    assert all(len(np.unique(rows[:, i])) > 1 for i in range(g.SEEN))


def test_intents_that_depend_on_the_scene():
    mean = lambda intent, lane=1, speed=25.0: meant_guidance(intent, lane, speed, 4, SPEEDS)
    assert mean({"lane": "left"})[g.LANE] == 0 and mean({"lane": "left"}, lane=0)[g.LANE] == 0
    assert mean({"lane": "rightmost"})[g.LANE] == 3 and mean({"lane": "stay"})[g.LANE] == 1
    assert mean({"lane": 3})[g.LANE] == 2 and mean({"faster_by": 5}, speed=30.0)[g.SPEED] == 30
    assert not mean({})[: g.STYLE].any()


def test_the_sentences_have_intents_and_the_rule_reads_most_of_them(context):
    sentences = read_sentences()
    assert len(sentences) == 60 and all(s.intent is not None for s in sentences)
    trips = Trips.of(program(games=60), context())
    said = []
    for i in range(60):
        question = trips.question(np.array([i]))
        assert trips.sentences[i].text in question and 'rightmost"' not in question
        request = pl.ChatRequest(messages=pl.services.question_messages(question))
        said.append(checked_guidance(DrivingGuidance(**written_parse(request)), 4, SPEEDS))
    right = right_intent(np.array(said), trips.meant_nG)
    assert 0.7 < right.mean() < 1.0  # it is good, and no oracle


def test_instructions_of_ones_own(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text('{"instruction": "Zügig!"}\n\n{"instruction": "x", "intent": {"lane": 2, "speed": 22.5}}\n')
    assert [s.intent for s in read_sentences(str(file))] == [None, {"lane": 2, "speed": 22.5}]
    for text, why in (
        ("", "has no instruction"),
        ('{"text": "a"}', r"mine\.jsonl:1: a line is"),
        ('{"instruction": " "}', "is a text"),
        ('{"instruction": "a", "intent": {"lane": "middle"}}', "an intent has lane"),
        ('{"instruction": "a", "intent": {"velocity": 3}}', "an intent has lane"),
        ('{"instruction": "a", "intent": 3}', "an intent has lane"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=why):
            read_sentences(str(file))
    with pytest.raises(UserError, match="nowhere"):
        read_sentences("nowhere.jsonl")


def test_arms_take_equal_steps_and_a_killed_run_ends_with_the_same(context, tmp_path, monkeypatch):
    asked = []

    def answer(request):
        asked.append(request.messages[0].content)
        return "no idea" if len(asked) <= 3 else written_parse(request)

    run = lambda: asyncio.run(replace(program(), asked=pl.Scripted(answer)).run(context(out=tmp_path, seed=2))).metrics
    first, calls = run(), len(asked)
    (tmp_path / "kept" / "arm-guide.json").unlink()
    with monkeypatch.context() as patch:  # the policies of the folder drive
        patch.setattr(pl.control.PPO, "learn", None)
        assert run() == first and len(asked) == calls and json.dumps(first)
    arms = first["arms"]
    assert list(arms) == ["none", "guide", "shuffled", "oracle", "unmasked"]
    steps = [arm["env_steps"] for arm in arms.values()]
    assert min(steps) >= 100 and max(steps) - min(steps) <= 4 * 40
    assert arms["none"]["guided"] == 0 < first["guided"] and arms["none"]["asked"] == 0
    assert arms["oracle"]["intent_accuracy"] == 1.0 >= arms["guide"]["intent_accuracy"] > 0.3
    assert "intent_accuracy" not in arms["none"] and 0 < arms["guide"]["without_guidance"] <= 1
    assert all('The passenger says: "' in q and "intent" not in q for q in asked)
    policy = pl.control.load_policy(tmp_path / "policy")
    assert policy.observation == Lanes().observation + g.SEEN


def test_an_endpoint_that_fails_ends_the_run_and_an_unreadable_answer_is_neutral(context, monkeypatch):
    def answer(request):
        raise pl.Fault("chat-500", "down")

    with monkeypatch.context() as patch:  # before anything is learned
        patch.setattr(pl.control.PPO, "learn", None)
        with pytest.raises(Fault, match="down"):
            asyncio.run(program(asked=pl.Scripted(answer)).run(context()))
    with pytest.raises(UserError, match="--llm endpoint"):
        asyncio.run(replace(program(), asked=None).run(context()))
    made = program(asked=pl.Scripted(lambda request: "to the left"))
    guide = asyncio.run(made.run(context())).metrics["arms"]["guide"]
    assert guide["fallbacks"] == 6 and guide["guided"] == 0


OWN = """
import numpy as np
class Road:
    agents, horizon, observation, actions, lanes, speeds = 1, 5, 2, 5, 2, (0.0, 10.0)
    def reset(self, rng, n):
        return np.stack([rng.integers(2, size=n), np.full(n, 5.0)], 1).astype(float)
    def observe(self, state):
        return state[:, None]
    def legal(self, state):
        return None
    def step(self, state, act, rng):
        a, s = act[:, 0], state.copy()
        s[:, 0] = np.clip(s[:, 0] + (a == 2) - (a == 0), 0, 1)
        s[:, 1] = np.clip(s[:, 1] + (a == 3) - (a == 4), 0, 10)
        return s, s[:, 1:] / 10, np.zeros(len(s), bool)
    def lane_and_speed(self, obs):
        return obs[..., 0], obs[..., 1]
    def scene(self, state):
        return [f"Lane {int(l) + 1}, {v:.0f} m/s." for l, v in state]
"""


def test_a_road_and_instructions_of_ones_own(context, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "say.jsonl").write_text('{"instruction": "Schnell, bitte."}\n')
    seen = []

    def answer(request):
        seen.append(request.messages[0].content)
        return {"target_speed": 99}

    made = fast_slow_driving.build(
        pl.Scripted(answer), f"{tmp_path}/own.py:Road", str(tmp_path / "say.jsonl"), steps=20, games=4, latency=0
    )
    found = asyncio.run(replace(made, learner=LEARNER).run(context())).metrics
    # one instruction is no control of itself, and a drive that ends is no collision
    assert list(found["arms"]) == ["none", "guide"] and found["arms"]["guide"]["mended"] == 4
    assert found["arms"]["guide"]["ended"] == 0 and "collisions" not in found["arms"]["guide"]
    assert 'm/s.\nThe passenger says: "Schnell, bitte."' in seen[0] and "from 0 to 10 m/s" in seen[0]
    assert found["arms"]["guide"]["without_guidance"] == 0 and "match" not in found["arms"]["guide"]
    with pytest.raises(UserError, match="lane_and_speed"):
        asyncio.run(replace(made, sim=pl.control.Rooms()).run(context()))


def test_policies_are_trained_once_and_shared(context, tmp_path, monkeypatch):
    learn, kinds = pl.control.PPO.learn, []

    async def counted(self, sim, *args, **more):
        kinds.append((sim.neutral, sim.sim.mask))
        return await learn(self, sim, *args, **more)

    monkeypatch.setattr(pl.control.PPO, "learn", counted)
    ctx = context(out=tmp_path)
    found = asyncio.run(program().run(ctx)).metrics["arms"]
    assert kinds == [(True, True), (False, True), (False, False)] and len(found) == 5
    steps = [found[name]["env_steps"] for name in ("none", "guide", "unmasked")]
    assert ctx.spent["env_steps"] == sum(steps)


def test_guidance_holds_for_seconds_not_for_steps(context):
    """3 s are 6 steps of half a second; of the 40 steps of a drive 34 are stale."""

    class Halved(Lanes):
        step_seconds = 0.5

    assert checked_guidance(DrivingGuidance(valid_for_s=3), 4, SPEEDS, 0.5)[g.VALID] == 6
    reply = lambda request: {"target_speed": 20, "valid_for_s": 3}
    made = program(asked=pl.Scripted(reply), sim=Halved(), latency=0)
    trips = Trips.of(made, context())
    given = np.array(asyncio.run(trips.ask())["given"])
    assert (given[:, g.VALID] == 6).all() and (trips.meant_nG[:, g.VALID] == g.FOREVER).all()
    driving = GuidedDriving(made.sim, given=given, arrives=trips.arrives_n)
    slow = lambda obs, legal, rng: {"act": np.full(obs.shape[:-1], SLOWER)}
    played = pl.control.play_games(driving, slow, 6, ("slow",))
    assert played["alive"].all() and trips.numbers(driving, played, given)["stale"] == pytest.approx(34 / 40)
    with pytest.raises(UserError, match="step_seconds is 0"):
        g.seconds_of_step(type("Stopped", (), {"step_seconds": 0}))


def test_a_drive_that_arrives_is_no_collision(context):
    class Arrives(Lanes):
        def step(self, state, act_nA, rng):
            after, paid, _ = super().step(state, act_nA, rng)
            return after, paid, np.ones(len(paid), bool)

    trips = Trips.of(program(sim=Arrives()), context())
    driving = GuidedDriving(Arrives(), given=trips.meant_nG, arrives=trips.arrives_n)
    idle = lambda obs, legal, rng: {"act": np.full(obs.shape[:-1], IDLE)}
    played = pl.control.play_games(driving, idle, 6, ("short",))
    numbers = trips.numbers(driving, played, trips.meant_nG)
    assert played["over"].all() and numbers["collisions"] == 0 and "ended" not in numbers


def test_shuffled_guidance_is_that_of_another_sentence(context, tmp_path):
    file = tmp_path / "two.jsonl"
    file.write_text('{"instruction": "a"}\n{"instruction": "b"}\n{"instruction": "a"}\n')
    trips = Trips.of(program(instructions=str(file), games=9), context())
    texts = [s.text for s in trips.sentences]
    other = trips.exchanged({"given": texts, "asked": 9, "fallbacks": 0})
    assert set(texts) == {"a", "b"} and all(x != y for x, y in zip(other["given"], texts, strict=True))
