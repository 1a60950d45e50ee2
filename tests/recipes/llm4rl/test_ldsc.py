"""LDSC: regions, where options begin, the library that later tasks use again, and the arms."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.llm4rl import ldsc
from palaestra.recipes.llm4rl.ldsc.program import MAZES, OptionLearning, TaskLearner, on_route
from palaestra.recipes.llm4rl.ldsc.recorded import WRITTEN, recorded_subgoals
from palaestra.recipes.llm4rl.ldsc.subgoals import (
    PlaceWords,
    SubgoalOption,
    SubgoalRegion,
    exchange_coordinates,
    name_likeness,
    region_overlap,
    stored_option,
    tree_prior,
)

KEY = ("test",)
MAZE = pl.control.Maze(drawing="#######\n#.....#\n#######", goal=(5, 1), horizon=12, slip=0.0)
LEARNER = pl.control.DoubleQ(gamma=0.9, games=2, updates=1, width=8, explore=0.5)


def program(**settings):
    return replace(ldsc.embedded(), **{"learner": LEARNER, "steps": 40, "games": 2, **settings})


def words_of(sim=MAZE, names=""):
    act = lambda obs, legal, rng: {"act": rng.integers(4, size=obs.shape[:-1])}
    return PlaceWords.of(sim, pl.control.play_games(sim, act, 4, KEY), names)


def region(name, *centre, radius=0.5, after=""):
    return SubgoalRegion(name=name, centre=centre, radius=radius, after=after)


def walk(way):
    return lambda obs, legal, rng: {"act": np.full(obs.shape[:-1], way)}


def test_overlap_of_regions_by_hand():
    """Radius 1 and 0.5 apart: 1.5 / 2.5 = 0.6 in one dimension; in two with the same rows (2 * 1.5) / (8 - 3)."""
    assert region_overlap(region("a", 0.0, radius=1.0), region("b", 0.5, radius=1.0)) == pytest.approx(0.6)
    one, other = region("a", 0.0, 0.0, radius=1.0), region("b", 0.5, 0.0, radius=1.0)
    assert region_overlap(one, other) == pytest.approx(0.6)
    assert region_overlap(one, region("c", 3.0, 0.0)) == 0 and region_overlap(one, one) == 1
    inside = region("d", 0.0, 0.0, radius=0.5)
    assert region_overlap(one, inside) == pytest.approx(0.25)


def test_likeness_of_names():
    assert name_likeness("East door", "east door") == pytest.approx(1.0)
    assert name_likeness("east door", "kitchen") == 0
    # "  a b "-wise: 'ab' has "  a", " ab", "ab " and 'ac' has "  a", " ac", "ac ": one of three is shared
    assert name_likeness("ab", "ac") == pytest.approx(1 / 3)


def test_a_maze_walks_slips_and_knows_its_shortest_way():
    assert MAZE.observation == 2 + 5 and MAZE.route()[:, 0].tolist() == [1, 2, 3, 4, 5]
    paths = pl.control.play_games(MAZE, walk(1), 2, KEY)
    assert paths["reward"][0, 0].tolist() == [0, 0, 0, 1] and paths["over"][0].tolist() == [False] * 3 + [True]
    assert MAZE.view(paths["obs"])["x"][0, 0].tolist() == pytest.approx([1, 2, 3, 4])
    state = MAZE.reset(pl.rng_of(KEY), 3)
    after, _, _ = MAZE.step(state, np.array([[0], [2], [1]]), pl.rng_of(KEY))
    assert after.cell_n.tolist() == [0, 0, 1]  # a wall is stayed at
    slippery = replace(MAZE, slip=1.0)
    moved, _, _ = slippery.step(slippery.reset(pl.rng_of(KEY), 4000), np.ones((4000, 1), int), pl.rng_of(KEY))
    assert (moved.cell_n == 1).mean() == pytest.approx(0.25, abs=0.03)
    for more, why in (({"goal": (0, 0)}, "no free cell"), ({"drawing": "####\n#.##\n##.#", "goal": (2, 2)}, "no way")):
        with pytest.raises(UserError, match=why):
            replace(MAZE, **more)


def option(place, name="door"):
    learner = LEARNER.learner(MAZE, (*KEY, name))
    return SubgoalOption(region(name, float(place), 1.0), learner, words_of())


def played(own, way, timeout=2, games=1):
    """Games in which the global option never acts, and the option of a subgoal walks one way."""
    forced = pl.control.Option(
        name="door", act=walk(way), timeout=timeout, reached=own.reached, can_begin=own.can_begin
    )
    flat = pl.control.Option(name="global", act=walk(1), timeout=1)
    follower = pl.control.PlanFollower([[1]] * games)
    return asyncio.run(pl.control.play_options(MAZE, [flat, forced], follower, games, KEY))


def test_an_option_begins_anywhere_until_it_has_five_successes_then_where_it_succeeded():
    own = option(3)
    for _ in range(2):
        own.observe(played(own, 1, games=2), 1, KEY)
    assert own.successes == 4 and own.calls == 4
    far = np.concatenate([MAZE.observe(pl.control.maze.MazeState(cell_n=np.array([c]))) for c in range(5)])
    assert own.can_begin(far).all()
    own.observe(played(own, 1), 1, KEY)
    assert own.place_MP[:, 0] == pytest.approx([1] * 5) and own.success_M.all()  # where each call began
    for _ in range(30):
        own.place_MP = np.concatenate([own.place_MP, [[5.0, 1.2]]])
        own.success_M = np.append(own.success_M, False)
    assert own.can_begin(far).tolist() == [True, True, True, False, False]


def test_an_option_learns_from_all_steps_with_nothing_into_its_region():
    """Two steps right from 1 to 3: -0.1, then 0 and over; a game that is cut notes no failure."""
    own = option(3)
    own.observe(played(own, 1), 1, KEY)
    stored = own.learner.stored
    assert stored.columns["reward"][: stored.size] == pytest.approx([-0.1, 0.0])
    assert stored.columns["over"][: stored.size].tolist() == [False, True]
    cut = option(5)
    cut.observe(played(cut, 0, timeout=99), 1, KEY)
    assert (cut.calls, cut.successes, len(cut.success_M)) == (1, 0, 0)


def test_a_failed_call_is_one_row_and_none_before_there_are_five_successes():
    """Of two steps left nothing is noted, until right reached the region from the same place five times."""
    own = option(5)
    own.observe(played(own, 0, games=3), 1, KEY)
    assert (own.calls, len(own.success_M)) == (3, 0)
    own.observe(played(own, 1, timeout=4, games=5), 1, KEY)
    own.observe(played(own, 0), 1, KEY)
    assert own.success_M.tolist() == [True] * 5 + [False] and own.place_MP[:, 0] == pytest.approx([1] * 6)
    assert own.can_begin(MAZE.observe(MAZE.reset(pl.rng_of(KEY), 1))).all()


def test_a_game_that_is_over_elsewhere_costs_an_option_what_steps_without_end_cost():
    """To the goal at 5, past which no region is reached: -0.1 for three steps, then -0.1 / (1 - 0.9) = -1."""
    own = option(6)
    own.observe(played(own, 1, timeout=99), 1, KEY)
    stored = own.learner.stored
    assert stored.columns["reward"][: stored.size] == pytest.approx([-0.1, -0.1, -0.1, -1.0])
    assert stored.columns["over"][: stored.size].tolist() == [False, False, False, True]
    there = option(5)
    there.observe(played(there, 1, timeout=99), 1, KEY)
    assert there.learner.stored.columns["reward"][3] == 0
    whole = replace(LEARNER, gamma=1.0).learner(MAZE, KEY)
    without = SubgoalOption(region("past", 6.0, 1.0), whole, words_of())
    without.observe(played(without, 1, timeout=99), 1, KEY)
    assert whole.stored.columns["reward"][3] == pytest.approx(-0.1 * 12)


def test_the_library_serves_regions_that_overlap_and_names_that_are_alike():
    library = [option(3, "east door"), option(5, "corner")]
    assert stored_option(library, region("a gate", 3.2, 1.0)) == (library[0], True)
    assert stored_option(library, region("East door", 1.0, 1.0)) == (library[0], False)
    assert stored_option(library, region("kitchen", 1.0, 1.0)) == (None, False)


def test_later_tasks_use_options_again():
    regions = [[region("door", 3.0, 1.0)], [region("gate", 3.2, 1.0), region("door", 5.0, 1.0)]]
    made = program(tasks=(MAZE, MAZE))
    words = [words_of()] * 2
    arm = lambda reuse: OptionLearning(program=made, ctx=None, words=words, regions=regions, reuse=reuse, key=KEY)
    library = []
    first, none = arm(True).options(0, library)
    first[0].learner.values.net[0].weight.data += 1.0
    second, again = arm(True).options(1, library)
    weights = lambda o: o.learner.values.net[0].weight
    assert (none, again) == (0, 2) and second[0] is first[0] and second[1] is not first[0]
    assert (weights(second[1]) == weights(first[0])).all() and second[1].learner.stored.size == 0
    fresh, again = arm(False).options(1, list(first))
    assert again == 0 and all(o is not first[0] for o in fresh)


def learner_of(made, regions, tasks=1):
    words, arm = [words_of()] * tasks, {"ctx": None, "reuse": True, "key": KEY}
    return OptionLearning(program=made, words=words, regions=regions, **arm)


def test_an_option_explores_as_much_as_its_task():
    """At epsilon 1 each of four actions is taken a quarter of the times, at 0 one always."""
    setting = learner_of(program(tasks=(MAZE,)), [[region("door", 3.0, 1.0)]])
    learner = TaskLearner(setting, 0, setting.options(0, [])[0])
    obs = MAZE.observe(MAZE.reset(pl.rng_of(KEY), 4000))
    for epsilon, shares in ((1.0, [0.25] * 4), (0.0, [0, 0, 0, 1])):
        act = learner.options(epsilon)[1].act(obs, None, pl.rng_of(KEY))["act"]
        assert sorted(np.bincount(act[:, 0], minlength=4) / 4000) == pytest.approx(shares, abs=0.03)


def test_the_tree_says_what_is_tried():
    regions = [region("door", 3.0, 1.0), region("corner", 5.0, 1.0, after="door"), region("x", 1.0, 1.0, after="?")]
    obs = MAZE.observe(pl.control.maze.MazeState(cell_n=np.array([0, 2])))
    assert tree_prior(regions, words_of())(obs)[:, 0].tolist() == [[-1, 0, -2, 0], [-1, 0, 1, 0]]


def test_the_tree_names_the_regions_of_its_task_whatever_a_stored_option_is_called():
    """The gate is reached by the option "door"; past it "corner" is tried at +1 nat, and before it at -2."""
    regions = [[region("door", 3.0, 1.0)], [region("gate", 3.2, 1.0), region("corner", 5.0, 1.0, after="gate")]]
    setting, library = learner_of(program(tasks=(MAZE, MAZE)), regions, 2), []
    setting.options(0, library)
    options, again = setting.options(1, library)
    assert again == 1 and options[0].region.name == "door"
    obs = MAZE.observe(pl.control.maze.MazeState(cell_n=np.array([0, 2])))
    assert TaskLearner(setting, 1, options).prior(obs)[:, 0].tolist() == [[-1, 0, -2], [-1, 0, 1]]


def test_places_of_a_simulator_are_read_in_the_order_of_the_coordinates():
    """Of a corridor along y = 1, (y, x) is (1, 1) to (1, 5); of x alone 1 to 5."""
    swapped, line = words_of(names="y,x"), words_of(names="x")
    assert swapped.free(MAZE).tolist() == [[1, x] for x in range(1, 6)] == swapped.route(MAZE).tolist()
    reply = {"subgoals": [{"name": "door", "y": 0.0, "x": 3.0, "radius": 0.5, "after": None}]}
    assert swapped.regions(reply, swapped.free(MAZE))[0][0].centre == (1.0, 3.0)
    assert line.free(MAZE).tolist() == [[x] for x in range(1, 6)]
    assert line.own(np.zeros((2, 2))).shape == (2, 1) and words_of(names="y").own(np.zeros((2, 1))) is None


def test_a_region_around_the_start_is_said_and_one_of_everything_refused(context):
    said, ctx = [], context()
    ctx.say = said.append
    reply = {"subgoals": [{"name": "home", "x": 1, "y": 1, "radius": 2}, {"name": "end", "x": 5, "y": 1, "radius": 1}]}
    made = program(tasks=(MAZE,), asked=pl.Scripted(lambda request: reply))
    assert len(asyncio.run(made.ask(ctx, 0, words_of()))) == 2
    assert len(said) == 2 and said[0] == "task 1: asks for subgoals"
    assert "games begin in 'home'" in said[1] and "end" not in said[1]
    with pytest.raises(ValueError, match="less than or equal to 3"):  # x is 6 wide
        words_of().form(3).model_validate({"subgoals": [{"name": "all", "x": 3, "y": 1, "radius": 3.5}]})


def test_what_counts_is_the_share_of_calls_that_reach_their_region(context):
    """Nothing at y = 3 is reached, from which a wall parts the agent, however many steps are spent on it."""
    maze = replace(MAZE, drawing=MAZE.drawing + "\n#.....#\n#######")
    for y, reaches in ((1, True), (3, False)):
        answer = lambda request, y=y: {"subgoals": [{"name": "end", "x": 2, "y": y, "radius": 0.5}]}
        found = asyncio.run(program(tasks=(maze,), asked=pl.Scripted(answer)).run(context())).metrics
        assert 0 <= found["by_options"] <= 1
        assert (found["by_options"] > 0) == reaches


def test_the_control_keeps_number_radii_and_coordinates():
    words = words_of()
    regions = [region("a", 1.0, 2.0), region("b", 3.0, 4.0), region("c", 5.0, 6.0)]
    other = exchange_coordinates(regions, words, KEY)
    assert [r.centre[0] for r in other] == [1, 3, 5] and sorted(r.centre[1] for r in other) == [2, 4, 6]
    assert not {r.centre for r in other} & {r.centre for r in regions}
    # x lies from 0 to 6 and y from 0 to 2; one alone is mirrored
    assert exchange_coordinates([region("a", 1.0, 2.0)], words, KEY)[0].centre == (5.0, 0.0)
    line = words_of(names="x")
    assert [r.centre for r in exchange_coordinates([region("a", 1.0), region("b", 2.0)], line, KEY)] == [(5.0,), (4.0,)]
    assert exchange_coordinates([], words, KEY) == []


def test_an_oracle_has_places_of_a_shortest_way():
    way = on_route(MAZE.route(), 3)
    assert [r.centre for r in way] == [(4.0, 1.0), (5.0, 1.0)] and way[1].after == "place 3"


def test_replies_are_checked_moved_to_free_places_and_freed_of_duplicates():
    words = words_of()
    form = words.form(3)
    good = {"name": "door", "x": 3, "y": 0, "radius": 1}
    reply = form.model_validate({"subgoals": [good, {**good, "name": "again"}]}).model_dump()
    regions, dropped = words.regions(reply, MAZE.places)
    assert [r.centre for r in regions] == [(3.0, 1.0)] and dropped == 1 and regions[0].after == ""
    for wrong, why in (
        ([], "at least 1"),
        ([good] * 4, "at most 3"),
        ([{**good, "x": 7}], "less than or equal to 6"),
        ([{**good, "radius": 0}], "greater than 0"),
    ):
        with pytest.raises(ValueError, match=why):
            form.model_validate({"subgoals": wrong})
    with pytest.raises(UserError, match="there is no 'z'; there are x, y"):
        words_of(names="x,z")
    for maze in MAZES:
        request = pl.ChatRequest(messages=pl.services.question_messages(maze.about))
        for written in recorded_subgoals(request)["subgoals"]:
            assert [written["x"], written["y"]] in maze.places.tolist()
    assert len(WRITTEN) == len(MAZES)


def test_a_reply_that_never_fits_leaves_a_task_without_subgoals_and_a_dead_endpoint_ends_the_run(context):
    said, ctx = [], context()
    ctx.say = said.append
    made = program(tasks=(MAZE,), asked=pl.Scripted(lambda request: "no idea"))
    assert asyncio.run(made.ask(ctx, 0, words_of())) == [] and "no reply fits" in said[-1]

    def down(request):
        raise pl.Fault("chat-500", "down")

    with pytest.raises(Fault, match="down"):
        asyncio.run(replace(made, asked=pl.Scripted(down)).run(context()))
    with pytest.raises(UserError, match="--llm endpoint"):
        asyncio.run(replace(made, asked=None).run(context()))
    with pytest.raises(UserError, match="games is 2 or more"):
        ldsc.build(games=1)
    with pytest.raises(UserError, match="one agent, not 3"):
        replace(made, tasks=(pl.control.SimpleSpread(),))
    with pytest.raises(UserError, match="one size each"):
        replace(made, tasks=(MAZE, MAZES[0]))


def test_a_killed_run_ends_with_the_same_and_arms_take_equal_steps(context, tmp_path):
    asked = []

    def answer(request):
        asked.append(request.messages[0].content)
        return {"subgoals": [{"name": "middle", "x": 3, "y": 1, "radius": 0.5}]}

    made = program(tasks=(MAZE, MAZE), asked=pl.Scripted(answer))
    run = lambda: asyncio.run(made.run(context(out=tmp_path, seed=2))).metrics
    first = run()
    (tmp_path / "kept" / "arm-guide.json").unlink()
    assert run() == first and len(asked) == 1  # of two tasks with the same words
    assert "from (1, 1) to the goal (5, 1)" in asked[0] and "#.....#" in asked[0] and "- x: from 0 to 6" in asked[0]
    arms = first["arms"]
    assert list(arms) == ["none", "guide", "without reuse", "shuffled", "oracle"]
    steps = [arm["env_steps"] for arm in arms.values()]
    assert min(steps) >= 2 * 40 and max(steps) - min(steps) <= 2 * 2 * 12
    assert first["by_options"] > 0 == arms["none"]["by_options"]
    assert (first["reused"], arms["without reuse"]["reused"]) == (1, 0)
    record = json.loads((tmp_path / "policy" / "task-2" / "options.json").read_text())
    assert record["coordinates"] == ["x", "y"] and record["options"][1]["name"] == "middle"
    saved = pl.control.load_policy(tmp_path / "policy" / "task-2" / "option-1")
    assert (saved.observation, saved.actions) == (7, 4)
    over = pl.control.load_policy(tmp_path / "policy" / "task-2" / "over")
    assert over.actions == 2


def test_ones_own_simulators_are_tasks_and_coordinates_are_named(context, tmp_path):
    pytest.importorskip("gymnasium")
    (tmp_path / "own.py").write_text(
        "import gymnasium\ndef make():\n    return gymnasium.make('CartPole-v1', max_episode_steps=20)\n"
    )
    seen = []

    def answer(request):
        seen.append(request.messages[0].content)
        return {"subgoals": [{"name": "right", "number_0": 0.01, "number_2": 0.0, "radius": 0.05}]}

    sim = f"{tmp_path}/own.py:make"
    made = ldsc.build(
        asked=pl.Scripted(answer), sim=f"{sim}, {sim}", place="number_0,number_2", goal="stay up", games=2
    )
    found = asyncio.run(replace(made, learner=replace(LEARNER, games=2)).run(context(steps=2))).metrics
    assert "The goal: stay up" in seen[0] and "- number_0: from " in seen[0] and "number_1" not in seen[0]
    assert list(found["arms"]) == ["none", "guide", "without reuse", "shuffled"] and found["reused"] == 1


def test_a_comma_in_brackets_is_one_of_an_id_s_settings(monkeypatch) -> None:
    named: list[str] = []
    monkeypatch.setattr("palaestra.control.named.simulator_by_name", named.append)
    pl.control.simulators_by_name("gymnasium:A-v0(horizon=30,x=1), f.py:second,gymnasium:B-v0(x='a,b')")
    assert named == ["gymnasium:A-v0(horizon=30,x=1)", "f.py:second", "gymnasium:B-v0(x='a,b')"]


def test_tasks_of_gymnasium_with_settings_are_told_apart() -> None:
    pytest.importorskip("gymnasium")
    spec = (
        "gymnasium:MountainCar-v0(horizon=30,goal_velocity=0.01),gymnasium:MountainCar-v0(horizon=20,goal_velocity=0)"
    )
    program = pl.recipe("ldsc", sim=spec, place="number_0", subgoals="none")
    assert [task.horizon for task in program.tasks] == [30, 20]
