"""RMD: plans of relative movements, the rewards made from them, and the arms."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.llm4rl import rmd_hoi
from palaestra.recipes.llm4rl.rmd_hoi.furniture import DT, GOALS, Furniture
from palaestra.recipes.llm4rl.rmd_hoi.goal import (
    HasRounds,
    MovementGoals,
    MovementSimulator,
    edge_reward,
    goal_reward,
    plan_rewards,
    target_reward,
)
from palaestra.recipes.llm4rl.rmd_hoi.parts import MovementParts, spell_distances, spell_places
from palaestra.recipes.llm4rl.rmd_hoi.plan import (
    APPROACH,
    CONTACT,
    FREE,
    SEPARATE,
    MovementPlan,
    MovementScene,
    contacts_alone,
    faults_of,
    shuffle_trends,
    spoil_trends,
    trends_of,
)
from palaestra.recipes.llm4rl.rmd_hoi.program import MovementTraining
from palaestra.recipes.llm4rl.rmd_hoi.pusher import Pusher, PusherState
from palaestra.recipes.llm4rl.rmd_hoi.recorded import PLANS, ROOM, edge, recorded

RNG = np.random.default_rng(0)
SMALL = {"learner": pl.control.PPO(games=4, bootstrap=True, epochs=1), "steps": 40, "games": 4}
SHORT = Pusher(horizon=10)
SCENE = MovementScene(
    body=("left", "right"), objects=("box", "mat", "button"), unit=1.0, speed=1.0, low=(-1.0, -1.0), high=(1.0, 1.0)
)
LINE = MovementScene(body=("hand",), objects=("flag",), unit=2.0, speed=0.5, low=(-3.0,), high=(3.0,))


class Line:
    """A hand on a line that moves by its action, paid where it is beyond 1; a user's simulator, of which nothing is
    said. With `ends` a game is over there.
    """

    agents, horizon, observation, actions = 1, 4, 2, pl.control.Box(low=(-1.0,), high=(1.0,))
    ends = False

    def reset(self, rng, n):
        return np.full((n, 1), -2.0)

    def observe(self, state):
        return np.stack([state, 0 * state], -1)

    def legal(self, state):
        return None

    def step(self, state, act_nA, rng):
        after = state + act_nA[..., 0]
        return after, (after > 1).astype(float), (after > 1)[:, 0] & self.ends


def plan_of(*phases):
    return MovementPlan.model_validate({"phases": phases})


def phase(*edges, **targets):
    return {"edges": [edge(*e) for e in edges], **targets}


def test_rewards_of_edges_and_targets_by_hand():
    """exp(-0.25), exp(-1); c = 0.5: exp(-2 0.5^2), exp(-2 1.5^2); exp(-5 0.1^2 - 5 0.2^2)."""
    assert target_reward(np.array([[0.3, 0.4], [0.6, 0.8]])) == pytest.approx([0.778801, 0.367879], abs=1e-6)
    p, v = np.array([1.0, 0.0, 0.0]), np.array([-0.5, 0.0, 0.0])
    values = [float(edge_reward(p, v, np.array(t))) for t in (APPROACH, SEPARATE, FREE)]
    assert values == pytest.approx([0.606531, 0.011109, 1.0], abs=1e-6)
    touching = edge_reward(np.array([0.1, 0.0]), np.array([0.0, 0.2]), np.array(CONTACT))
    assert float(touching) == pytest.approx(0.778801, abs=1e-6)
    assert float(edge_reward(0 * p, 0 * v, np.array(APPROACH))) == pytest.approx(np.exp(-2))  # at one place


def test_a_goals_reward_by_hand():
    """0.5 0.8 + 0.2 0.9 + 0.3 0.95; without targets the graph alone, without a graph 2/5 and 3/5."""
    one = lambda *x: float(goal_reward(*(None if y is None else np.array(y) for y in x)))
    assert one(0.8, 0.9, 0.95) == pytest.approx(0.865)
    assert one(0.8, None, None) == pytest.approx(0.8) and one(None, 0.5, 1.0) == pytest.approx(0.8)
    with pytest.raises(UserError, match="no reward"):
        goal_reward(None, None, None)


def test_a_phase_ends_above_the_threshold_and_a_switch_never_costs():
    """The unit is 2 and that of speed 0.5: a hand 2 before the flag that moves by 0.5 has c = 1, so r_G = 1."""
    plan = plan_of(phase(("hand", "flag", APPROACH)), phase(("hand", "flag", CONTACT)))
    sim = Line()
    parts = MovementParts.of(sim, "hand=0:1", "flag=0")
    moving = MovementSimulator(sim, MovementGoals(plan=plan, scene=LINE), parts.places, 0.9)
    state = moving.reset(RNG, 3)
    assert moving.observe(state).shape == (3, 1, moving.observation) == (3, 1, 2 + 2 + 4 + 4)
    after, paid, _ = moving.step(state, np.array([[[0.5]], [[0.25]], [[-0.5]]]), RNG)
    facts = moving.facts(after)
    slow = np.exp(-2 * 0.5**2)
    assert facts["plan_reward"][:, 0] == pytest.approx([0.5, slow / 2, np.exp(-2 * 2**2) / 2])
    assert facts["plan_phase"][:, 0].tolist() == [1, 0, 0] and not paid.any()
    seen = moving.observe(after)[:, 0]
    assert seen[0, 2:8] == pytest.approx([0.75, -1.0, 1, 0, 0, 0])  # p = 1.5 / 2, v = -0.5 / 0.5, in contact
    assert seen[1, 4:8].tolist() == [0, 1, 0, 0]
    # the next phase: p = 0.75 and v = 0, of which exp(-5 0.75^2) is less than before, and pays more
    held, _, _ = moving.step(after, np.zeros((3, 1, 1)), RNG)
    assert moving.facts(held)["plan_reward"][0, 0] == pytest.approx(0.5 + np.exp(-5 * 0.75**2) / 2)
    reached = replace(
        after,
        inner=np.full((3, 1), 0.0),
        phase_nA=np.full((3, 1), 1),
        place={"hand": np.zeros((3, 1, 1)), "flag": np.zeros((3, 1, 1))},
    )
    last, _, _ = moving.step(reached, np.zeros((3, 1, 1)), RNG)
    assert moving.facts(last)["plan_phase"].tolist() == [[2]] * 3 and (moving.facts(last)["plan_reward"] == 1).all()
    # the last phase is how things should stay: who leaves by 1 is paid exp(-5 0.5^2 - 5 2^2) of it, and it stays done
    left, _, _ = moving.step(last, np.full((3, 1, 1), 1.0), RNG)
    assert moving.facts(left)["plan_reward"][:, 0] == pytest.approx([0.5 + np.exp(-21.25) / 2] * 3)
    assert moving.facts(left)["plan_phase"].tolist() == [[2]] * 3


def test_a_phase_without_contact_ends_where_its_targets_are():
    """A hand that approaches its target and stands 0.5 from it, a quarter of the unit, has exp(-0.0625) = 0.94 of it and
    exp(-2) of the trend, so r_G stays below 0.9: the phase ends by `arrive` alone. One that asks for contact does not.
    """
    to = {"body_target": {"part": "hand", "place": "flag"}}
    approach, touch = plan_of(phase(("hand", "flag", APPROACH), **to)), plan_of(phase(("hand", "flag", CONTACT), **to))
    parts, still = MovementParts.of(Line(), "hand=0:1", "flag=-1.5"), np.zeros((2, 1, 1))
    for plan, arrive, done in ((approach, False, 0), (approach, True, 1), (touch, True, 0)):
        sim = MovementSimulator(Line(), MovementGoals(plan=plan, scene=LINE), parts.places, 0.9, arrive)
        after, _, _ = sim.step(sim.reset(RNG, 2), still, RNG)  # at -2
        assert sim.facts(after)["plan_phase"][:, 0].tolist() == [done, done]
        assert (sim.facts(after)["plan_reward"] < 0.9).all() or plan is touch
    goals = MovementGoals(plan=plan_of(phase(("hand", "flag", APPROACH))), scene=LINE)
    assert not goals.arrived(np.zeros((1, 1), int), {"hand": still[:1], "flag": still[:1]}, 0.9).any()  # no target


def test_the_scene_in_words():
    places = {"hand": np.array([[0.0, 1.0], [2.0, 1.0]]), "flag": np.array([[3.0, 1.0], [3.0, 1.0]])}
    assert spell_places(places).splitlines() == [
        "- hand: (0.00, 1.00); over games from (0.00, 1.00) to (2.00, 1.00)",
        "- flag: (3.00, 1.00), always",
    ]
    assert spell_distances(places, ["hand"], ["flag"]) == "- from hand: flag 2.00"


def test_targets_are_parts_or_places():
    target = {"part": "hand", "place": [1.0]}
    goals = MovementGoals(plan=plan_of(phase(body_target=target)), scene=LINE)
    place = {"hand": np.array([[[-1.0]]]), "flag": np.array([[[0.0]]])}
    still = {k: 0 * x for k, x in place.items()}
    assert goals.reward(np.zeros((1, 1), int), place, still) == pytest.approx(np.exp(-1))  # 2 away, the unit is 2
    assert goals.state(np.zeros((1, 1), int), place, still)[0, 0, -4:].tolist() == [1.0, 1.0, 0.0, 0.0]


def test_a_game_that_ends_early_is_paid_as_if_it_stayed():
    """gamma 0.5, two steps left: 0.6 (1 + 0.5 + 0.25), beside what is paid; nothing after the end."""
    paths = {
        "reward": np.array([[[0.0, 1.0, 9.0]]]),
        "plan_reward": np.array([[[0.2, 0.6, 0.6]]]),
        "over": np.array([[False, True, False]]),
        "alive": np.array([[True, True, False]]),
    }
    assert plan_rewards(2.0, 0.5, 4)(paths)[0, 0] == pytest.approx([0.2, 2.0 + 0.6 * 1.75, 0.0])
    assert plan_rewards(0.0, 1.0, 4)(paths)[0, 0] == pytest.approx([0.2, 0.6 * 3, 0.0])


def test_plans_with_a_fault_are_refused_with_the_reason():
    near, away = ("left", "box", APPROACH), ("left", "box", SEPARATE)
    at = lambda part, place: {"part": part, "place": place}
    there, left = {"body_target": at("left", "box")}, {"body_target": at("left", [0.9, 0.9])}
    for phases, why in (
        ([phase(("foot", "box", 1))], "no body part 'foot'"),
        ([phase(("left", "left", 1))], "no object part 'left'"),
        ([phase(near, near)], "two edges"),
        ([phase(("left", "box", CONTACT))], "no phase before"),
        ([phase(near, **there), phase(away, **left), phase(("left", "box", CONTACT))], "phase 3"),
        ([phase(near)], "phase 1: a trend is judged on one step"),
        ([phase(near, **there), phase(away, ("left", "mat", FREE))], "phase 2: a trend is judged on one step"),
        ([phase(("left", "box", FREE))], "asks for nothing"),
        ([phase(near, body_target=at("box", "mat"))], "none of"),
        ([phase(near, object_target=at("box", "table"))], "no place 'table'"),
        ([phase(near, object_target=at("box", "box"))], "no place 'box'"),
        ([phase(near, object_target=at("box", [0.0]))], "2 coordinates"),
        ([phase(near, object_target=at("box", [0.0, 1.3]))], "outside"),
        ([], "at least 1"),
        ([phase(("left", "box", 4))], "less than or equal to 3"),
    ):
        with pytest.raises(ValueError, match=why):
            SCENE.form().model_validate({"phases": phases})
    for phases in PLANS.values():
        assert not faults_of(SCENE.form().model_validate({"phases": phases}), SCENE)
    flat = replace(SCENE, unit=0.5, high=(1.0, -1.0))  # nothing was seen to move along the second axis
    placed = lambda y: phase(near, object_target=at("box", [0.0, y]))
    assert not faults_of(plan_of(placed(-1.04)), flat) and not faults_of(plan_of(placed(-0.96)), flat)
    assert "outside" in faults_of(plan_of(placed(-0.9)), flat)[0]
    close = replace(SCENE, close=(("left", "box"),))
    assert not faults_of(plan_of(phase(("left", "box", CONTACT))), close)


def test_controls_of_a_plan():
    plan = plan_of(*PLANS["both"])  # approach 2, contact 2, approach, contact, separate 2
    trends = lambda p: [e.trend for x in p.phases for e in x.edges]
    mixed = shuffle_trends(plan, pl.rng_of(("t",)))
    assert sorted(trends(mixed)) == sorted(trends(plan)) and all(
        a != b for a, b in zip(trends(mixed), trends(plan), strict=True)
    )
    assert mixed.phases[0].body_target == plan.phases[0].body_target
    alone = contacts_alone(plan)
    assert trends(alone) == [CONTACT] * 3 and len(alone.phases) == 6  # where there is no contact, the targets
    assert (trends_of(alone, SCENE)[0] == FREE).all()
    assert trends(spoil_trends(plan, 0.0, RNG)) == trends(plan)
    assert all(a != b for a, b in zip(trends(spoil_trends(plan, 1.0, RNG)), trends(plan), strict=True))


def test_the_pusher_by_hand():
    """A finger 0.05 before the centre of a box of radius 0.1 pushes it 0.05 on; two fingers carry it."""
    at = lambda left, right, box: PusherState(
        finger_n2d=np.array([[left, right]]),
        box_nd=np.array([box]),
        mat_nd=np.array([[0.5, 0.0]]),
        button_nd=np.array([[0.0, 0.8]]),
        pressed_n=np.zeros(1, bool),
    )
    sim, go = Pusher("push"), lambda *v: np.array([[v]])
    after, paid, over = sim.step(at([-0.15, 0.0], [0.9, 0.9], [0.0, 0.0]), go(1.0, 0.0, 0.0, 0.0), RNG)
    assert after.box_nd[0] == pytest.approx([0.05, 0.0]) and not paid.any() and not over.any()
    after, paid, _ = sim.step(at([0.2, 0.0], [0.44, 0.0], [0.32, 0.0]), go(0.0, -1.0, 0.0, -1.0), RNG)
    assert after.box_nd[0] == pytest.approx([0.32, -0.1]) and paid[0, 0] == 0  # 0.206 from the mat
    after, paid, _ = sim.step(at([0.9, 0.9], [0.9, 0.9], [0.4, 0.0]), go(0.0, 0.0, 0.0, 0.0), RNG)
    assert paid[0, 0] == 1 and sim.places(sim.observe(after))["box"][0, 0] == pytest.approx([0.4, 0.0])
    press, both = Pusher("press"), Pusher("both")
    touching = at([0.0, 0.75], [0.9, -0.9], [-0.9, -0.9])
    pressed = press.step(touching, go(0.0, 0.0, 0.0, 0.0), RNG)[0]
    assert pressed.pressed_n[0] and not both.step(touching, go(0.0, 0.0, 0.0, 0.0), RNG)[0].pressed_n[0]
    gone = replace(pressed, finger_n2d=np.array([[[0.0, 0.25], [0.9, -0.9]]]))
    assert press.step(gone, go(0.0, 0.0, 0.0, 0.0), RNG)[1][0, 0] == 1
    assert press.step(pressed, go(0.0, 0.0, 0.0, 0.0), RNG)[1][0, 0] == 0


def room(left, grip=1.0, move=(0.0, 0.0), goals=tuple(GOALS), **more):
    """Furniture after one step of a left finger at a place, the right one far away; the cup is at (-0.5, -0.4)."""
    sim = Furniture(goals=goals)
    fixed = {
        "cup_nd": np.array([[-0.5, -0.4]]),
        "mat_nd": np.array([[0.5, -0.2]]),
        "button_nd": np.array([[0.1, -0.8]]),
    }
    fixed |= {"finger_n2d": np.array([[left, (0.9, -0.9)]]), "order_nR": np.arange(len(goals))[None], **more}
    state = replace(sim.reset(RNG, 1), **fixed)
    after, paid, _ = sim.step(state, np.array([[[move[0] / DT, move[1] / DT, grip, 0, 0, -1]]]), RNG)
    return after, float(paid[0, 0])


def test_joints_let_a_thing_move_one_way():
    """A handle follows the part of a pull that its joint lets through: the drawer -y, the door its tangent, 0.1 / 0.4 rad;
    the cup all of it. An open finger moves nothing, one between two things the nearer one alone."""
    drawer = lambda *a, **k: float(room((-0.6, 0.65), *a, **k)[0].slide_n[0])
    assert drawer(move=(0.05, -0.1)) == pytest.approx(0.1) and drawer(move=(0.1, 0.0)) == 0 == drawer(-1.0, (0.0, -0.1))
    assert drawer(move=(0.0, 0.1)) == 0 and drawer(move=(0.0, -0.1), slide_n=np.array([0.39])) == 0.39  # out of reach
    assert room((0.3, 0.7), move=(0.05, -0.1))[0].turn_n[0] == pytest.approx(0.25)
    open_door = {"turn_n": np.array([np.pi / 2])}  # its handle is at (0.7, 0.3), and its tangent is x
    assert room((0.7, 0.3), move=(-0.1, -0.1), **open_door)[0].turn_n[0] == pytest.approx(np.pi / 2 - 0.25)
    assert room((-0.5, -0.4), move=(0.1, 0.05))[0].cup_nd[0] == pytest.approx([-0.4, -0.35])
    both, _ = room((-0.6, 0.6), move=(0.0, -0.1), cup_nd=np.array([[-0.6, 0.58]]))
    assert both.slide_n[0] == 0 and both.cup_nd[0, 1] == pytest.approx(0.48)


def test_goals_of_a_game_follow_one_another():
    """A goal that holds counts once, in its turn: a share of four each."""
    after, paid = room((-0.6, 0.45), move=(0.0, -0.1), slide_n=np.array([0.25]))
    assert after.slide_n[0] == pytest.approx(0.35) and after.round_n[0] == 1 and paid == 0.25
    sim = Furniture()
    assert isinstance(sim, HasRounds) and isinstance(sim, pl.control.ShowsTask)
    seen = sim.observe(after)
    assert sim.task_of(seen).item() == 1 and sim.round_of(seen).item() == 1
    early, paid = room(
        (0.1, -0.8), order_nR=np.array([[0, 3, 1, 2]])
    )  # the button is touched, and the drawer is wanted
    assert early.round_n[0] == 0 == paid
    last, paid = room((0.1, -0.8), order_nR=np.array([[0, 1, 2, 3]]), round_n=np.array([3]))
    assert last.round_n[0] == 4 and paid == 1 and not sim.observe(last)[0, 0, 14:18].any()
    with pytest.raises(UserError, match="goals are some of"):
        Furniture(goals=("sofa",))


def test_a_script_does_all_and_chance_hardly_any():
    sim = Furniture()
    shown = pl.control.play_games(sim, pl.control.acting_script(sim), 32, ("k",))
    chance = pl.control.play_games(sim, lambda obs, legal, rng: {"act": rng.normal(size=(32, 1, 6))}, 32, ("k",))
    assert shown["reward"][:, 0, -1].mean() == 1 and chance["reward"][:, 0, -1].mean() < 0.1


def test_each_task_has_its_plan_and_what_is_done_stays_paid():
    """Recorded plans of four tasks, followed by a script: the reward never falls where a task ends, and is 1 after the last;
    each is judged by its own plan."""
    sim = Furniture()
    parts = MovementParts.of(sim, "", "")
    scene = parts.scene(pl.control.play_games(sim, pl.control.acting_script(sim), 8, ("s",)))
    plans = [plan_of(*ROOM[g]) for g in GOALS]
    assert not [fault for p in plans for fault in faults_of(p, scene)]
    goals = [MovementGoals(plan=p, scene=scene) for p in plans]
    moving = MovementSimulator(sim, goals, parts.places, 0.9)
    act = lambda obs, legal, rng: {"act": sim.demonstrate(obs[..., : sim.observation])}
    played = pl.control.play_games(moving, act, 16, ("k",))
    done, paid = played["reward"][:, 0], played["plan_reward"][:, 0]
    assert (paid[done == 1] == 1).all() and (played["plan_done"][:, 0][done == 1] == 1).all()
    ends = np.diff(done, axis=1) > 0
    assert ends.sum() > 40 and (np.diff(paid, axis=1)[ends] >= -1e-9).all()
    assert ((paid >= done - 1e-9) & (paid <= done + 0.25 + 1e-9)).all()
    state = moving.reset(RNG, 4)
    task = sim.task_of(sim.observe(state.inner))
    seen = moving.observe(state)[..., sim.observation :]
    for i in range(4):
        own = goals[task[i, 0]].state(state.phase_nA, state.place, state.velocity)
        assert np.array_equal(seen[i], own[i])


def test_parts_are_numbers_of_an_observation_or_fixed():
    sim = Line()
    parts = MovementParts.of(sim, "hand=0:1", "origin=1:2,flag=1.5")
    place = parts.places(np.array([[[-2.0, 0.0]]]))
    assert {k: float(x[0, 0, 0]) for k, x in place.items()} == {"hand": -2.0, "origin": 0.0, "flag": 1.5}
    obs = np.array([[[[-2.0, 0.0], [-1.0, 0.0], [-0.5, 0.0]]]])
    after = np.array([[[[-1.0, 0.0], [-0.5, 0.0], [0.0, 0.0]]]])
    scene = MovementParts.of(sim, "hand=0:1", "origin=1:2").scene(
        {"obs": obs, "next_obs": after, "alive": np.ones((1, 3), bool)}
    )
    assert (scene.unit, scene.speed) == (1.0, 0.5) and scene.low == (-2.0,) and scene.high == (0.0,)
    for body, objects, why in (
        ("", "", "needs to know where parts are"),
        ("hand=0:1", "", "needs to know"),
        ("hand", "flag=1", "NAME=FIRST:END"),
        ("hand=0:9", "flag=1", "numbers 0 to 1"),
        ("hand=a:b", "flag=1", "hand=a:b"),
        ("hand=0:1", "flag=1/0", "different dimensions"),
        ("hand=0:1", "hand=1:2", "the same name"),
        ("hand=0:1,hand=1:2", "flag=1", "twice"),
        ("hand=0:1", "flag=inf", "finite"),
    ):
        with pytest.raises(UserError, match=why):
            MovementParts.of(sim, body, objects)
    with pytest.raises(UserError, match="no part moves"):
        parts.scene({"obs": obs, "next_obs": obs, "alive": np.ones((1, 3), bool)})


def test_a_run_that_was_killed_ends_with_the_same_and_asks_once(context, tmp_path):
    asked, made = [], replace(rmd_hoi.embedded(), sim=SHORT, **SMALL)

    def answer(request):
        asked.append(request.messages[0].content)
        return {"phases": PLANS["press"]}

    run = lambda: asyncio.run(replace(made, asked=pl.Scripted(answer)).run(context(out=tmp_path, seed=3))).metrics
    first = run()
    (tmp_path / "kept" / "arm-guide.json").unlink()
    assert run() == first and len(asked) == 1 and json.dumps(first)
    assert "Press the button" in asked[0] and "- 1: the distance shrinks" in asked[0]
    assert "- button: (" in asked[0] and "- from left: box " in asked[0]  # where things are
    arms = first["arms"]
    assert list(arms) == ["none", "guide", "contact", "shuffled"]
    assert {r["env_steps"] for r in arms.values()} == {40}
    assert arms["none"]["plan_reward"] == 0 < arms["guide"]["plan_reward"] == first["plan_reward"]
    assert arms["none"]["learned_from"] == pytest.approx(arms["none"]["return"])
    # the policy in the folder is the one that was measured
    policy = pl.control.load_policy(tmp_path / "policy")
    sim = rmd_hoi.load_movement(SHORT, tmp_path / "policy")
    greedy = lambda obs, legal, rng: policy.act(obs, legal, rng, greedy=True)
    played = pl.control.play_games(sim, greedy, 4, ("rmd-hoi", 3, "test"))
    assert played["plan_reward"].mean() == pytest.approx(first["plan_reward"])
    with pytest.raises(UserError, match="no plan of rmd-hoi"):
        rmd_hoi.load_movement(Pusher(), tmp_path)


def test_a_simulator_a_task_and_a_model_of_ones_own(context):
    """A plan with a fault is asked for again; games that end early are played too."""
    seen, sim = [], Line()
    sim.ends = True

    def answer(request):
        seen.append(request.messages[0].content)
        to = {"body_target": {"part": "hand", "place": "flag"}} if len(seen) > 2 else {}
        return {"phases": [phase(("hand", "flag" if len(seen) > 1 else "pole", APPROACH), **to)]}

    made = replace(rmd_hoi.build(), sim=sim, body="hand=0:1", objects="flag=1.5", goal="reach the flag", **SMALL)
    result = asyncio.run(replace(made, asked=pl.Scripted(answer)).run(context(steps=2))).metrics
    assert "reach the flag" in seen[0] and len(seen) == 3 and result["plan_reward"] > 0
    assert list(result["arms"]) == ["none", "guide", "contact"]  # one trend: nothing to exchange
    assert 16 <= result["arms"]["none"]["env_steps"] <= 48  # --steps 2 of 4 games of 4 steps
    with pytest.raises(Fault, match="chat-format"):
        asyncio.run(replace(made, asked=pl.Scripted(lambda request: "I cannot")).run(context(steps=1)))


def test_a_model_is_asked_for_each_task_once(context, tmp_path):
    asked = []

    def answer(request):
        asked.append(request.messages[0].content)
        return recorded(request)

    made = replace(rmd_hoi.embedded(asked=pl.Scripted(answer)), sim=Furniture(horizon=10), **SMALL)
    run = lambda: asyncio.run(made.run(context(out=tmp_path, seed=1))).metrics
    first = run()
    assert (
        run() == first
        and len(asked) == 4
        and all(f"The task: {GOALS[g]}" in a for g, a in zip(GOALS, asked, strict=True))
    )
    assert list(first["arms"]) == ["none", "script", "guide", "contact", "shuffled"] and len(first["plans"]) == 4
    assert first["arms"]["script"]["env_steps"] == 0 < first["arms"]["guide"]["plan_reward"]
    sim = rmd_hoi.load_movement(Furniture(horizon=10), tmp_path / "policy")
    assert len(sim.goals) == 4


def test_what_cannot_be_is_said(context):
    with pytest.raises(UserError, match="--llm endpoint"):
        asyncio.run(replace(rmd_hoi.build(), sim=SHORT, **SMALL).run(context()))
    for settings, why in (
        ({"wrong": 2.0}, "wrong is from 0 to 1"),
        ({"threshold": 1.0}, "threshold between"),
        ({"games": 1}, "games are 2"),
    ):
        with pytest.raises(UserError, match=why):
            rmd_hoi.build(**settings)
    made = replace(rmd_hoi.embedded(graph="none"), sim=SHORT, **SMALL)
    assert list(asyncio.run(made.run(context())).metrics["arms"]) == ["none", "guide"]


def test_contacts_of_a_plan_that_has_none_are_no_plan(context):
    """A plan that an older version kept may have trends alone."""
    said, ctx = [], context()
    ctx.say = said.append
    made = replace(rmd_hoi.embedded(graph="contact"), sim=SHORT, **SMALL)
    parts = MovementParts.of(SHORT, "", "")
    training = MovementTraining(program=made, ctx=ctx, parts=parts, scene=SCENE, key=("t",))
    arms = training.arms([plan_of(phase(("left", "button", APPROACH)))])
    assert list(arms) == ["none", "guide"] and "neither contacts nor targets" in said[0]
    assert asyncio.run(arms["guide"]())["plan_reward"] == 0
