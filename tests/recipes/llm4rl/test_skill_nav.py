"""Skill-Nav: ground and gaits, rewards, waypoints that are checked, both planners, and the arms."""

import asyncio
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.llm4rl import skill_nav
from palaestra.recipes.llm4rl.skill_nav.course import (
    CourseState,
    VelocityCourse,
    VelocityState,
    WaypointCourse,
    cosine_to,
    drawn_waypoints,
    fixed_games,
    random_games,
    reach_reward,
    track_reward,
)
from palaestra.recipes.llm4rl.skill_nav.planning import SECONDS, DirectPlanner, ModelPlanner, WaypointPlanner, YardMap
from palaestra.recipes.llm4rl.skill_nav.program import NavigationTest, WaypointFollower, YardCourses, drawn_courses
from palaestra.recipes.llm4rl.skill_nav.written import ROOMS, written_waypoints
from palaestra.recipes.llm4rl.skill_nav.yard import (
    WALL,
    YardState,
    blocked_at,
    kind_at,
    moved_state,
    read_map,
    seen_state,
    told_policy,
    turned,
)

KEY = ("test",)
HALL = "######\n#.~+.#\n#....#\n######"
RULE = pl.Scripted(written_waypoints, name="rule")
LEARNER = pl.control.PPO(games=4, width=8)


def yard(x, y, yaw=0.0, drawing=HALL):
    """One robot at a place of a map."""
    return YardState(
        map_nHW=read_map(drawing)[None],
        place_n2=np.array([[x, y]], float),
        yaw_n=np.array([yaw]),
        moved_n2=np.zeros((1, 2)),
        hit_n=np.zeros(1, bool),
    )


def test_rewards_by_hand():
    assert reach_reward(np.array(3), np.array(4.0)) == pytest.approx(0.749813, abs=1e-6)
    way = np.array([0.0, 1.0])
    slow, steep = np.array([1.0, 0.05]), np.array([1.0, 0.2])
    assert cosine_to(slow, way) == pytest.approx(0.049938, abs=1e-6) and track_reward(slow, way) == -1
    assert track_reward(steep, way) == pytest.approx(0.196116, abs=1e-6)
    assert track_reward(np.zeros(2), way) == -1 and track_reward(2 * way, way) == pytest.approx(1.0)


def test_gaits_and_ground_by_hand():
    """A quarter of a second: 0.25 m on floor, 0.0375 m on slow ground, half of a metre a second in the high gait."""
    step = lambda state, *act: moved_state(state, np.array([act], float))
    moved = lambda state, *act: (step(state, *act).place_n2 - state.place_n2)[0]
    assert moved(yard(1.5, 2.5), 1, 0, -1) == pytest.approx([0.25, 0])
    assert moved(yard(1.5, 2.5), 1, 0, 1) == pytest.approx([0.125, 0])
    assert moved(yard(2.5, 1.5), 1, 0, -1) == pytest.approx([0.0375, 0])
    assert moved(yard(2.5, 1.5), 1, 0, 1) == pytest.approx([0.125, 0])
    assert moved(yard(2.5, 2.5, np.pi / 2), 1, 0, -1) == pytest.approx([0, 0.25])  # its own frame is turned
    assert moved(yard(2.5, 2.5), 3, 4, -1) == pytest.approx([0.15, 0.2])  # no faster than 1 m/s
    against = step(yard(1.1, 2.5), -1, 0.5, -1)
    assert against.hit_n.all() and against.place_n2[0] == pytest.approx([1.1, 2.5 + 0.25 * 0.5 / 1.25**0.5])
    turn = step(yard(2.5, 2.5, 1.0), 0.6, 0.0, -1)
    assert turn.moved_n2[0] == pytest.approx([0.6, 0])


def test_a_gap_is_passed_in_its_middle():
    places = np.array([[[3.05, 1.5], [3.05, 1.75], [3.5, 1.9], [2.9, 1.75], [0.5, 1.5], [9.0, 9.0]]])
    map_nHW = read_map(HALL)[None]
    assert blocked_at(map_nHW, places)[0].tolist() == [False, True, False, False, True, True]
    aside = moved_state(yard(2.9, 1.75), np.array([[1.0, 0.0, 1.0]]))
    assert aside.hit_n.all() and aside.place_n2[0] == pytest.approx([2.9, 1.75])
    assert not moved_state(yard(2.9, 1.5), np.array([[1.0, 0.0, 1.0]])).hit_n.any()


def test_what_a_robot_sees_is_in_its_own_frame_and_tells_no_place():
    """At (1.5, 2.5) 0.8 m to its left is a wall; turned by half a circle that is on its right."""
    seen, back = seen_state(yard(1.5, 2.5))[0], seen_state(yard(1.5, 2.5, np.pi))[0]
    scan = lambda row: row[6:31].reshape(5, 5)  # 0.8 m behind to 0.8 m ahead, by -0.8 to 0.8 m across
    assert scan(seen)[0].all() and not scan(seen)[2:, 2].any() and scan(back)[4].all()
    told = told_policy(seen[None], np.array([[4.0, 3.0]]))[0]
    assert told[:4] == pytest.approx([2.4, 1.8, 3.0, 0.0])  # at most 3 m
    elsewhere = yard(2.5, 2.5, drawing="#######\n#.....#\n#..~+.#\n#.....#\n#######")
    same = replace(elsewhere, place_n2=elsewhere.place_n2)
    assert (told_policy(seen_state(same), np.zeros((1, 2)))[:, :6] == [0, 0, 0, 1, 0, 0]).all()
    assert turned(np.array([[1.0, 0.0]]), np.array([np.pi / 2]))[0] == pytest.approx([0, 1])


def course(sim, x=1.5, way=((1.9, 2.5), (3.5, 2.5)), **state):
    own = {"at_n": np.zeros(1, int), "reached_n": np.zeros(1, int), "seconds_n": np.zeros(1), "steps": 0}
    own |= {"dwelt_n": np.zeros(1, int)} | state
    return sim, CourseState(yard=yard(x, 2.5), way_nL2=np.array([way], float), **own)


def steps_of(sim, state, acts):
    paid, rng = [], pl.rng_of(KEY)
    for act in acts:
        state, reward, over = sim.step(state, np.array([[act]], float), rng)
        paid.append(float(reward[0, 0]))
        assert not over.any()
    return state, paid


def test_a_waypoint_pays_once_then_is_dwelt_at_and_followed_by_the_next():
    """0.25 m of 0.4 m bring it within 0.3 m: 1 / 0.251 less 0.01 of effort; then it stands, and 1 s later the next
    one is told."""
    sim, state = course(WaypointCourse("fixed"))
    state, paid = steps_of(sim, state, [(1, 0, -1), (0, 0, -1), (0.4, 0, -1)])
    assert paid == pytest.approx([1 / 0.251 - 0.01, 0.1, 0.1 * 0.6 - 0.01 * 0.16])
    assert (state.reached_n[0], state.at_n[0]) == (1, 0)
    state, _ = steps_of(sim, state, [(0, 0, -1)] * 2)
    assert (state.at_n[0], state.seconds_n[0], state.dwelt_n[0]) == (1, 0.0, 0)
    sim, state = course(WaypointCourse("fixed", reach="elapsed"))
    _, paid = steps_of(sim, state, [(1, 0, -1), (0, 0, -1)])
    assert paid == pytest.approx([1 / 0.251 - 0.01, 1 / 0.501 + 0.1])


def test_heading_elsewhere_is_punished_in_random_courses_alone():
    for maps, track in (("fixed", 0.0), ("random", 0.1)):
        sim, state = course(WaypointCourse(maps), way=((3.5, 2.5),), x=2.5)
        _, paid = steps_of(sim, state, [(0, 0, -1), (1, 0, -1)])
        assert paid == pytest.approx([-track, track - 0.01])


def test_maps_of_training_have_what_they_say():
    rng = pl.rng_of(KEY)
    rows, way_nL2 = fixed_games(rng, 64)
    assert not blocked_at(rows.map_nHW, way_nL2).any() and not blocked_at(rows.map_nHW, rows.place_n2).any()
    assert (np.diff(way_nL2[..., 0]) <= 3).all() and (kind_at(rows.map_nHW, rows.place_n2) == 0).all()
    matrix, _ = random_games(rng, 256)
    inner = matrix.map_nHW[:, 1:-1, 1:-1]
    assert [(inner == k).mean() for k in range(4)] == pytest.approx([0.57, 0.15, 0.2, 0.08], abs=0.02)
    ways = drawn_waypoints(matrix, rng) - matrix.place_n2
    far = np.linalg.norm(ways, axis=1)
    assert ((far == 0) | ((far >= 0.5 - 1e-9) & (far <= 3 + 1e-9))).all() and (far > 0).mean() > 0.9
    middle = matrix.place_n2 + 0.5 * ways
    assert not (kind_at(matrix.map_nHW, middle) == WALL).any()


def test_velocities_are_paid_by_how_near_they_are():
    sim = VelocityCourse()
    state = VelocityState(yard=yard(1.5, 2.5), wish_n2=np.array([[0.5, 0.0]]), steps=0)
    after, paid, _ = sim.step(state, np.array([[[1.0, 0.0, -1.0]]]), pl.rng_of(KEY))
    assert paid[0, 0] == pytest.approx(np.exp(-1.0) - 0.01) and (after.wish_n2 == state.wish_n2).all()
    last = replace(state, steps=7)
    assert (sim.step(last, np.zeros((1, 1, 3)), pl.rng_of(KEY))[0].wish_n2 != state.wish_n2).any()


def test_a_star_is_as_short_as_breadth_first_and_turns_where_the_way_does():
    plan = YardMap(ROOMS)
    for start in (0, 7, 20):
        far, left = {start: 0}, [start]
        while left:
            cell = left.pop(0)
            for to in plan.next[cell]:
                if to not in far:
                    far[to] = far[cell] + 1
                    left.append(to)
        for goal in range(len(plan.cells)):
            assert len(plan.way(start, goal)) == far[goal] + 1
            assert not plan.wrong_with(start, goal, plan.waypoints(start, goal))
    corner = YardMap("#####\n#...#\n###.#\n#####")
    assert corner.way(0, 3) == [0, 1, 2, 3] and corner.waypoints(0, 3) == [2, 3]
    apart = YardMap("#####\n#.#.#\n#####")
    assert apart.way(0, 1) == [] and apart.waypoints(0, 1) == []
    assert plan.waypoints(7, 7) == [7]  # whoever is in the goal's cell goes to its middle
    assert apart.region_C.tolist() == [0, 1] and set(corner.region_C) == {0}
    line = YardMap("########\n#...+..#\n########")
    assert line.waypoints(0, 5) == [2, 4, 5] and line.waypoints(0, 5, SECONDS) == [2, 3, 4, 5]
    # over 3 m of slow ground, 6 s in the high gait, or 5 m around
    around = YardMap("#######\n#.~~~.#\n#.....#\n#######")
    assert len(around.way(0, 4)) == 5 and len(around.way(0, 4, SECONDS)) == 7


def test_what_is_wrong_with_waypoints_is_said():
    plan = YardMap(ROOMS)
    cell = lambda x, y: plan.number[x, y]
    start, goal = cell(1, 1), cell(3, 3)
    for waypoints, why in (
        ([99, goal], "no index 99; there are 0 to 39"),
        ([-1, goal], "no index -1"),
        ([start], f"the last waypoint is {goal}"),
        ([], "the last waypoint is"),
        ([cell(1, 7), goal], "more than 3"),
    ):
        assert why in plan.wrong_with(start, goal, waypoints)
    assert plan.wrong_with(start, goal, [goal]) == ""
    assert "a wall in the way" in plan.wrong_with(cell(3, 1), cell(5, 1), [cell(5, 1)])
    # past the corner of a wall, which is nearer than 0.2 m
    assert "a wall in the way" in plan.wrong_with(cell(4, 2), cell(3, 3), [cell(3, 3)])
    with pytest.raises(ValueError, match="the last waypoint is"):
        plan.form(start, goal).model_validate({"waypoints": [start]})


def test_the_written_rule_plans_every_course_of_the_rooms():
    plan = YardMap(ROOMS)
    for start in range(len(plan.cells)):
        for goal in set(range(len(plan.cells))) - {start}:
            request = pl.ChatRequest(messages=pl.services.question_messages(plan.question(start, goal)))
            assert not plan.wrong_with(start, goal, written_waypoints(request)["waypoints"])
    other = pl.ChatRequest(messages=pl.services.question_messages(YardMap(HALL).question(0, 1)))
    with pytest.raises(UserError, match="its own rooms alone"):
        written_waypoints(other)


def test_replies_that_do_not_fit_are_a_stars_and_a_dead_endpoint_ends_the_run(context):
    plan, asked = YardMap(HALL), []

    def ask(answer, failed=None, shuffled=False):
        planner = ModelPlanner(context(), pl.Scripted(answer), KEY, shuffled=shuffled)
        return planner, lambda a, b, f=failed: asyncio.run(planner.plan(plan, a, b, f))

    def answer(request):
        asked.append(request.messages[0].content)
        return {"waypoints": [6, 7]}

    planner, go = ask(answer)
    assert go(4, 7) == [6, 7] == go(4, 7) and planner.numbers == {"asked": 1, "fallbacks": 0}
    assert "The robot is at 4 and has to go to 7. Name" in asked[0] and HALL in asked[0]
    assert "- 1: column 2, row 1, slow ground" in asked[0] and "- 2: column 3, row 1, narrow gap" in asked[0]
    assert go(4, 7, 6) == [6, 7] and "It did not reach 6 in time" in asked[-1]
    for bad in ({"waypoints": [99]}, {"waypoints": "east"}, "no idea"):
        planner, go = ask(lambda request, bad=bad: bad)
        assert go(4, 7) == plan.waypoints(4, 7) and planner.numbers == {"asked": 1, "fallbacks": 1}

    def down(request):
        raise pl.Fault("chat-500", "down")

    with pytest.raises(Fault, match="down"):
        ask(down)[1](4, 7)


def test_the_control_has_the_waypoints_of_another_question_and_ends_at_the_goal(context):
    last = lambda request: int(request.messages[0].content.split("the last one ")[1].split(".")[0])
    way = lambda request: {"waypoints": [5, last(request)]}
    planner, plan = ModelPlanner(context(), pl.Scripted(way), KEY, shuffled=True), YardMap(HALL)
    go = lambda a, b: asyncio.run(planner.plan(plan, a, b, None))
    assert go(4, 6) == [6]  # there is no other one yet
    assert go(5, 7) == [5, 7] and go(4, 6) == [5, 6]


class Straight:
    """A policy that heads for its waypoint, fast, and by what it was told."""

    def __init__(self, far=1.0, gait=-1.0):
        self.far, self.gait, self.told = far, gait, []

    def act(self, obs, legal, rng, greedy=False):
        assert greedy
        self.told.append(obs[:, 0, :2])
        heads = obs[:, 0, :2] * self.far
        return {"act": np.concatenate([heads, np.full((len(obs), 1), self.gait)], -1)[:, None]}


def test_a_waypoint_that_is_not_reached_in_time_is_planned_anew_from_where_the_robot_is():
    """Nobody moves: each game is planned for once, and twice anew; then it ends."""
    program, said = replace(skill_nav.embedded(RULE), games=2, timeout=1.0, replans=2), []

    class Told(WaypointPlanner):
        async def plan(self, yard, start, goal, failed):
            said.append((start, goal, failed))
            return await super().plan(yard, start, goal, failed)

    plan = YardMap(HALL)
    test = NavigationTest(program, [YardCourses(yard=plan, ends=((4, 7), (7, 4)))])
    follower = WaypointFollower(Straight(far=0.0), False, 0.0)
    games, reached = asyncio.run(test.play(test.courses[0], follower, Told(), KEY))
    assert not reached.any() and games.steps == 3 * 4
    assert said == [(4, 7, None), (7, 4, None), (4, 7, 6), (7, 4, 5), (4, 7, 6), (7, 4, 5)]
    walker = WaypointFollower(Straight(), False, 0.0)
    test = NavigationTest(replace(program, timeout=5.0), test.courses)
    games, reached = asyncio.run(test.play(test.courses[0], walker, WaypointPlanner(), KEY))
    assert reached.all() and [c.end for c in games.calls] == [pl.control.REACHED] * 4
    _, direct = asyncio.run(test.play(test.courses[0], walker, DirectPlanner(), KEY))
    assert direct.all()


def test_a_follower_is_told_the_waypoint_or_a_velocity_in_its_own_frame():
    """At (1.5, 2.5), turned by a quarter, the waypoint 2 m along x is 2 m to its right."""
    seen = seen_state(yard(1.5, 2.5, np.pi / 2))[:, None]
    obs = pl.control.with_goal(seen, np.array([[3.5, 2.5]]))
    near = pl.control.with_goal(seen, np.array([[1.75, 2.5]]))
    policy = Straight()
    for velocity in (False, True):
        for given in (obs, near):
            WaypointFollower(policy, velocity, 0.0).act(given, None, pl.rng_of(KEY))
    assert np.concatenate(policy.told) == pytest.approx(np.array([[0, -2], [0, -0.25], [0, -1], [0, -0.5]]))
    noisy, rng = Straight(), pl.rng_of(KEY)
    for _ in range(2000):
        WaypointFollower(noisy, False, 0.1).act(obs, None, rng)
    assert np.concatenate(noisy.told)[:, 1].std() == pytest.approx(0.2, rel=0.1)


def test_courses_and_maps_of_ones_own(tmp_path):
    courses = drawn_courses(YardMap(ROOMS), 10, KEY)
    cells = courses.yard.cells
    assert len(set(courses.ends)) == 10
    assert all(abs(cells[a][0] - cells[b][0]) + abs(cells[a][1] - cells[b][1]) >= 3 for a, b in courses.ends)
    assert len(drawn_courses(YardMap("####\n#..#\n####"), 10, KEY).ends) == 2
    with pytest.raises(UserError, match="a way between them"):
        drawn_courses(YardMap("#####\n#.#.#\n#####"), 10, KEY)
    path = tmp_path / "maps.txt"
    path.write_text(f"\n{HALL}\n\n\n####\n#..#\n####\n")
    assert [YardMap(m).map_HW.shape for m in skill_nav.read_maps(str(path))] == [(4, 6), (3, 4)]
    for text, why in (
        ("", "has no map"),
        ("####\n#.x#\n####", "map 1: a map has no sign 'x'"),
        ("####\n#..\n####", "one length"),
        ("....", "enclose"),
        ("###\n#.#\n###", "two free cells"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=why):
            skill_nav.read_maps(str(path))
    with pytest.raises(UserError, match=r"none\.txt"):
        skill_nav.read_maps(str(tmp_path / "none.txt"))
    for settings, why in (
        ({"games": 1}, "games is 2"),
        ({"timeout": 0.1}, "in seconds"),
        ({"noise": -1}, "noise is 0"),
    ):
        with pytest.raises(UserError, match=why):
            skill_nav.embedded(**settings)


def test_a_killed_run_ends_with_the_same_and_low_levels_take_equal_steps(context, tmp_path):
    asked = []

    def answer(request):
        asked.append(1)
        return written_waypoints(request)

    made = replace(skill_nav.embedded(pl.Scripted(answer)), learner=LEARNER, steps=240, games=4, courses=4, timeout=2.0)
    run = lambda: asyncio.run(made.run(context(out=tmp_path, seed=1))).metrics
    first, questions = run(), len(asked)
    (tmp_path / "kept" / "arm-guide.json").unlink()
    assert run() == first and len(asked) == questions
    arms = first["arms"]
    assert list(arms) == [
        "none", "guide", "one stage", "velocity", "shuffled", "a star", "a star velocity", "oracle",
    ]  # fmt: skip
    steps = [arm["env_steps"] for arm in arms.values()]
    assert min(steps) >= 240 and max(steps) - min(steps) <= 4 * 60
    saved = pl.control.load_policy(tmp_path / "policy")
    assert saved.observation == 56 and saved.actions.size == 3
    with pytest.raises(UserError, match="--llm endpoint"):
        asyncio.run(replace(made, asked=None).run(context()))
    alone = asyncio.run(replace(made, asked=None, planner="none").run(context())).metrics
    assert list(alone["arms"]) == ["none", "guide"] and alone["by_waypoints"] == 0
