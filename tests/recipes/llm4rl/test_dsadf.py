"""DSADF: the memory's bound, gates, who acts for a goal, what is distilled, and the arms."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.errors import Fault, UserError
from palaestra.recipes.llm4rl import dsadf
from palaestra.recipes.llm4rl.dsadf.dual import DualChooser
from palaestra.recipes.llm4rl.dsadf.errands import Errand, ErrandBook, ErrandGoal, cosine, done_errands, read_errands
from palaestra.recipes.llm4rl.dsadf.fast import FastSystem, clone_loss, goal_paths
from palaestra.recipes.llm4rl.dsadf.house import PLACES, ErrandHouse, ErrandState
from palaestra.recipes.llm4rl.dsadf.memory import GoalRecord, SkillMemory, gate_of
from palaestra.recipes.llm4rl.dsadf.program import DualLearning, ErrandRounds
from palaestra.recipes.llm4rl.dsadf.slow import ModelSystem, OracleSystem
from palaestra.recipes.llm4rl.dsadf.written import written_answer

KEY = ("test",)
beta_quantile = pl.stats.beta_quantile
MAZE = pl.control.Maze(drawing="#######\n#.....#\n#######", goal=(5, 1), horizon=12, slip=0.0)
LEARNER = pl.control.DoubleQ(gamma=0.9, games=2, updates=1, width=8, explore=0.5)
RULES = pl.Scripted(written_answer, name="rules")
HOUSE = ErrandHouse()
MIDDLE, END = 0, 1


def maze_book(*errands, goals=(("go to the middle", 3), ("go to the end", 5))):
    games = pl.control.play_games(MAZE, walk(1), 2, KEY)
    return ErrandBook(
        goals=tuple(ErrandGoal(goal=n, where={"x": (x, x)}) for n, x in goals),
        errands=errands or (Errand(task="walk", goals=[n for n, _ in goals]),),
        view=pl.control.ViewWords.of(MAZE, games),
    )


def walk(way):
    return lambda obs, legal, rng: {"act": np.full(obs.shape[:-1], way)}


def program(**settings):
    return replace(dsadf.embedded(RULES), **{"learner": LEARNER, "steps": 200, "games": 11, **settings})


def test_the_bound_is_below_the_threshold_where_the_mean_passes():
    """Of 7 successes and 3 failures; Beta(1, 1) is uniform, and Beta(11, 1) has the quantile 0.1^(1/11)."""
    record = GoalRecord(successes=7, failures=3)
    assert record.mean == pytest.approx(8 / 12) and record.bound(0.1) == pytest.approx(0.489239, abs=1e-6)
    assert beta_quantile(0.1, 1, 1) == pytest.approx(0.1) and beta_quantile(0.1, 11, 1) == pytest.approx(
        0.1 ** (1 / 11)
    )
    for level, a, b in ((0.1, 3.5, 2.25), (0.5, 1.0, 9.0)):
        draws = np.random.default_rng(0).beta(a, b, 200_000)
        assert (draws < beta_quantile(level, a, b)).mean() == pytest.approx(level, abs=3e-3)


def test_what_is_forgotten_makes_a_running_average():
    """5 of 10, then a success at rate 0.1: from 0.5 to 0.55."""
    memory, code = SkillMemory(forget=0.1), np.ones(2)
    memory.codes, memory.records = [code], [GoalRecord(successes=5, failures=5)]
    memory.note(code, True)
    assert (memory.records[0].successes, memory.records[0].failures) == pytest.approx((5.5, 4.5))
    memory.note(code, False)
    assert (memory.records[0].successes, memory.records[0].failures) == pytest.approx((4.95, 5.05))


def test_gates_by_hand():
    book, rng = maze_book(goals=(("put the cup on the sink", 1), ("put the book on the sink", 2))), pl.rng_of(KEY)
    cup, other = book.code_KW
    assert cosine(cup, other) == pytest.approx(4 / 5) and cosine(cup, 0 * cup) == 0
    memory = SkillMemory()
    memory.codes, memory.records = [cup], [GoalRecord(successes=7, failures=3)]
    gate = lambda rule, share=0.0: gate_of(rule, memory, 0.6, 0.1, share)
    opens = lambda rule: [gate(rule)(code, rng) for code in (cup, other)]
    assert opens("lcb") == [False, False] and opens("mean") == [True, False]  # the other one is unfamiliar
    assert opens("fast") == [True, True] and opens("slow") == [False, False]
    drawn = [gate("random", 0.3)(other, rng) for _ in range(4000)]
    assert np.mean(drawn) == pytest.approx(0.7, abs=0.03)


def test_demonstrated_actions_are_to_be_better_by_a_margin():
    """Values 1 and 0.5: with the second one demonstrated 1 + 0.1 - 0.5, with the first max(1, 0.6) - 1."""
    q = torch.tensor([[1.0, 0.5], [1.0, 0.5], [1.0, 0.95]])
    assert clone_loss(q, torch.tensor([1, 0, 0])).tolist() == pytest.approx([0.6, 0.0, 0.05])


def test_every_trained_goal_learns_from_all_steps():
    """Right from 1: the middle is reached by the second step, from it on a step is none of it, from 4 one is."""
    book = maze_book()
    games = asyncio.run(played(book, [pl.control.Option(name="right", act=walk(1), timeout=99)], [0]))
    paths = goal_paths(games, book)
    assert paths["alive"].astype(int).tolist() == [[1, 1, 0, 1], [1, 1, 1, 1]]
    assert paths["reward"][:, 0].tolist() == [[0, 1, 0, 0], [0, 0, 0, 1]]
    assert paths["over"].astype(int).tolist() == [[0, 1, 0, 1], [0, 0, 0, 1]]  # the maze ends at 5
    assert (paths["obs"][0, 0, :, -len(book.code_KW[0]) :] == book.code_KW[0]).all()


async def played(book, options, chosen, sim=MAZE):
    return await pl.control.play_options(sim, options, pl.control.PlanFollower([chosen]), 1, KEY)


class Told:
    """A System 2 that is told its plans, one after another, and walks one way."""

    def __init__(self, plans, way=1, own=True):
        self.own, self.plans, self.way, self.failed, self.numbers = own, list(plans), way, [], {"calls": 0}

    async def plan(self, obs, errands, failed):
        self.failed += failed
        return [self.plans.pop(0) for _ in errands]

    async def act(self, obs, legal, goals, rng):
        return np.full(len(obs), self.way), np.full(len(obs), self.own)


def do_errand(slow, gate, way=1, sim=MAZE, timeout=4, **settings):
    """One game in which System 1 walks one way; the maze ends at 5."""
    book = maze_book()
    fast = [
        pl.control.Option(name=n, act=walk(way), timeout=timeout, reached=lambda o, k=k: book.holds(o[:, 0])[:, k])
        for k, n in enumerate(book.names)
    ]
    single = [pl.control.primitive_option(str(k), k) for k in range(4)]
    chooser = DualChooser(book, slow, gate, [0], timeout, **settings)
    games = asyncio.run(pl.control.play_options(sim, [*fast, *single], chooser, 1, KEY))
    chooser.finish(games)
    return chooser, games


def test_a_goal_is_fast_where_the_gate_opens_and_slow_ways_are_kept():
    codes = maze_book().code_KW
    opens = lambda code, rng: bool((code == codes[MIDDLE]).all())
    chooser, games = do_errand(Told([[MIDDLE, END]]), opens)
    # the last step of the game counts: nobody is asked after it
    assert chooser.outcomes == [(MIDDLE, True)] and chooser.ways == [(0, 2, 4, END)]
    assert chooser.routed == {"fast": 1, "slow": 1} and games.env_steps == 4
    both, _ = do_errand(Told([[MIDDLE, END]]), lambda code, rng: True)
    assert both.outcomes == [(MIDDLE, True), (END, True)] and both.ways == []


def test_a_failure_of_system_1_goes_back_to_system_2_which_is_told_of_it():
    """System 1 walks left for four steps; then System 2 plans anew and walks there itself."""
    slow = Told([[MIDDLE], [MIDDLE]])
    chooser, games = do_errand(slow, lambda code, rng: True, way=0)
    assert chooser.outcomes == [(MIDDLE, False)] and chooser.ways == [(0, 4, 6, MIDDLE)]
    assert slow.failed == ["", "go to the middle"] and games.env_steps == 6
    alone, _ = do_errand(Told([[MIDDLE]] * 3), lambda code, rng: True, way=0, alone=True)
    assert alone.outcomes == [(MIDDLE, False)] * 2 and alone.ways == []  # the third is cut by the horizon
    never, games = do_errand(Told([[MIDDLE]]), lambda code, rng: False, replans=0, sim=MAZE)
    assert games.env_steps == 2 and never.ways == [(0, 0, 2, MIDDLE)]


def test_system_2_has_so_many_actions_for_a_goal_and_so_many_plans():
    slow = Told([[END]] * 3, way=0)
    chooser, games = do_errand(slow, lambda code, rng: False, timeout=3, replans=2)
    assert games.env_steps == 9 and chooser.ways == [] and slow.failed == ["", "go to the end", "go to the end"]


def test_a_game_that_is_over_elsewhere_is_a_failure_and_one_that_is_cut_says_nothing():
    class Sudden(pl.control.Maze):
        def step(self, state, act_nA, rng):
            after, paid, over = super().step(state, act_nA, rng)
            return after, paid, over | (after.cell_n == 1)

    sudden = Sudden(drawing=MAZE.drawing, goal=(5, 1), horizon=12, slip=0.0)
    chooser, _ = do_errand(Told([[MIDDLE]]), lambda code, rng: True, sim=sudden)
    assert chooser.outcomes == [(MIDDLE, False)]
    cut, _ = do_errand(Told([[END]]), lambda code, rng: True, sim=replace(MAZE, horizon=2))
    assert cut.outcomes == [] and cut.ways == []


def test_what_is_never_tried_is_tried_in_practice():
    shut = lambda code, rng: False
    chooser, _ = do_errand(Told([[MIDDLE]]), shut, trial=1.0)
    assert chooser.outcomes == [(MIDDLE, True)] and chooser.routed == {"fast": 1}


def test_an_errand_is_done_where_its_goals_were_reached_in_order():
    forth = Errand(task="forth", goals=["go to the middle", "go to the end"])
    back = Errand(task="back", goals=["go to the end", "go to the middle"])
    book = maze_book(forth, back)
    paths = pl.control.play_games(MAZE, walk(1), 2, KEY)
    assert done_errands(book, paths, np.array([0, 1])).tolist() == [True, False]
    early = {k: v[:, :, :3] if k not in ("alive", "over") else v[:, :3] for k, v in paths.items()}
    assert done_errands(book, early, np.array([0, 1])).tolist() == [False, False]


def house_book():
    return program().book(KEY)


def test_the_house_by_hand():
    """Onto the cup, take it, one step right, put it: the cup is there and hands are empty. Two things in one cell
    do not fit, a hand holds one."""
    C = {place: c for c, place in enumerate(HOUSE.cells)}
    at = lambda x, y: C[x, y]
    state = ErrandState(
        cell_n=np.array([at(1, 2)]), thing_nT=np.array([[at(2, 2), at(3, 2)]]), hands_n=np.zeros(1, int)
    )
    step = lambda s, act: HOUSE.step(s, np.array([[act]]), pl.rng_of(KEY))[0]
    seen = lambda s: {k: int(v[0, 0]) for k, v in HOUSE.view(HOUSE.observe(s)).items()}
    assert seen(step(state, 4))["hands"] == 0  # nothing lies there
    held = step(step(state, 1), 4)
    assert seen(held)["hands"] == 1
    there = step(held, 1)
    assert (seen(there)["x"], seen(there)["cup_x"], seen(there)["book_x"]) == (3, 3, 3)
    assert seen(step(there, 4))["hands"] == 1 and seen(step(there, 5))["hands"] == 1
    put = step(step(held, 0), 5)
    assert (seen(put)["cup_x"], seen(put)["hands"]) == (1, 0)
    assert seen(step(state, 0))["x"] == 1  # a wall


@pytest.mark.parametrize("who", ["oracle", "rules"])
def test_the_oracle_and_the_written_rules_do_every_errand_by_shortest_ways(who, context):
    book = house_book()
    model = ModelSystem(context(), RULES, HOUSE, book, HOUSE.about, KEY)
    slow = OracleSystem(HOUSE, book) if who == "oracle" else model
    setting = program().book  # the same goals
    assert setting(KEY).names == book.names
    errands = np.arange(33) % len(book.errands)
    chooser = DualChooser(book, slow, lambda code, rng: False, list(errands), 20, replans=0)
    single = [pl.control.primitive_option(a, k) for k, a in enumerate(HOUSE.action_names)]
    fast = [pl.control.Option(name=n, act=walk(0), timeout=9) for n in book.names]
    games = asyncio.run(pl.control.play_options(HOUSE, [*fast, *single], chooser, len(errands), KEY))
    chooser.finish(games)
    assert done_errands(book, games.paths(), errands).all() and not slow.numbers["fallbacks"]
    steps, first = games.paths()["alive"].sum(1), HOUSE.view(games.paths()["obs"][:, 0, 0])
    cross = lambda a, b: (
        abs(a[0] - b[0]) + abs(a[1] - b[1])
        if (a[0] - 4) * (b[0] - 4) > 0
        else (abs(a[0] - b[0]) + abs(a[1] - 2) + abs(b[1] - 2))
    )
    for game in range(len(PLACES)):  # the first errands are to go to a place
        start = (int(first["x"][game]), int(first["y"][game]))
        assert steps[game] == cross(start, list(PLACES.values())[game])


def test_replies_that_do_not_fit_are_counted_and_a_dead_endpoint_ends_the_run(context):
    book, obs = maze_book(), MAZE.observe(MAZE.reset(pl.rng_of(KEY), 2))[:, 0]

    def system(answer, shuffled=False):
        return ModelSystem(context(), pl.Scripted(answer), MAZE, book, "a corridor", KEY, shuffled=shuffled)

    plan = lambda slow: asyncio.run(slow.plan(obs, [0, 0], ["", ""]))
    act = lambda slow, free=None: asyncio.run(slow.act(obs, free, [0, 1], pl.rng_of(KEY)))[0]
    asked = []

    def answer(request):
        asked.append(request.messages[0].content)
        return {"plan": ["Go to the END"], "action": "action 2"}

    good = system(answer)
    assert plan(good) == [[END], [END]] and act(good).tolist() == [2, 2]
    assert good.numbers == {"calls": 4, "asked": 3, "fallbacks": 0}  # two games ask for the same plan
    assert "The task: walk" in asked[0] and "- x = 1 (" in asked[0] and "The goal: go to the middle" in asked[1]
    free = np.array([[True, False, False, False]] * 2)
    assert act(good, free).tolist() == [0, 0] and good.numbers["fallbacks"] == 2
    assert "The actions: action 0\n" in asked[-1]
    for bad in ({"plan": ["fly"], "action": "fly"}, {"plan": []}, {"plan": ["go to the end"] * 3}, "no idea"):
        slow = system(lambda request, bad=bad: bad)
        assert plan(slow) == [[MIDDLE, END]] * 2 and slow.numbers["fallbacks"] == 2
        assert set(act(slow)) <= set(range(4)) and slow.numbers["fallbacks"] == 4

    def down(request):
        raise pl.Fault("chat-500", "down")

    with pytest.raises(Fault, match="down"):
        plan(system(down))


def test_the_control_never_has_the_answer_to_its_own_question(context):
    book, obs = maze_book(), MAZE.observe(MAZE.reset(pl.rng_of(KEY), 2))[:, 0]
    way = lambda request: {
        "action": "action 0" if "goal: go to the middle" in request.messages[0].content else "action 1"
    }
    slow = ModelSystem(context(), pl.Scripted(way), MAZE, book, "a corridor", KEY, shuffled=True)
    for _ in range(5):
        assert asyncio.run(slow.act(obs, None, [MIDDLE, END], pl.rng_of(KEY)))[0].tolist() == [1, 0]
    assert slow.numbers["fallbacks"] == 0


def test_what_system_2_did_becomes_what_system_1_does():
    """Ways to a goal that is not trained: without their term nothing is learned of it."""
    near = Errand(task="a", goals=["go to the end"])
    book = maze_book(near, Errand(task="b", goals=["go to the middle"], part="met"))
    games = asyncio.run(played(book, [pl.control.Option(name="right", act=walk(1), timeout=99)], [0]))
    left = asyncio.run(played(book, [pl.control.Option(name="left", act=walk(0), timeout=99)], [0]))
    best = {}
    for clone in (0.0, 1.0):
        fast = FastSystem(MAZE, book, replace(LEARNER, updates=60, lr=1e-2), 9, KEY)
        assert fast.keep(left.paths(), [(0, 0, 2, MIDDLE)]) == 2
        told = fast.learn(games, clone, KEY)
        obs = pl.control.with_goal(left.paths()["obs"][0, :, :2].swapaxes(0, 1), book.code_KW[[MIDDLE, MIDDLE]])
        values = fast.learner.values(torch.from_numpy(obs[:, 0]).float())
        best[clone] = values.argmax(-1).tolist()
        assert (told["cloned"] > 0) == (clone > 0)
    assert best[1.0] == [0, 0] and best[0.0] != [0, 0]


def test_files_that_do_not_fit_say_what_to_write(tmp_path):
    def file(*lines):
        path = tmp_path / "goals.jsonl"
        path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
        return str(path)

    end = {"goal": "end", "where": {"x": [5, 5]}}
    goals, errands = read_errands(file(end, "", {"goal": "middle", "where": {"x": [3, 3]}}))
    assert [e.goals for e in errands] == [["end"], ["middle"]] and errands[0].part == "known"
    goals, errands = read_errands(file(end, {"task": "go", "goals": ["end"], "part": "unseen"}))
    for lines, why in (
        (["{"], ":1: a line is"),
        ([end, {"task": "go"}], ":2: a line is"),
        ([end, {"task": "go", "goals": ["end"], "part": "new"}], ":2: a line is"),
        ([{"task": "go", "goals": ["end"]}], "has no goal"),
        (["[1]"], ":1: a line is"),
    ):
        with pytest.raises(UserError, match=why):
            read_errands(file(*lines))
    with pytest.raises(UserError, match=r"goals=.*none\.jsonl"):
        read_errands(str(tmp_path / "none.jsonl"))
    for goals, errands, why in (
        ((("end", 5),), [Errand(task="a", goals=["end"], part="unseen")], '"part": "known"'),
        ((("end", 5),), [Errand(task="a", goals=["start"])], "no line has the goal 'start'"),
        ((("to end", 5), ("end to", 3)), [Errand(task="a", goals=["to end"])], "same words"),
    ):
        with pytest.raises(UserError, match=why):
            maze_book(*errands, goals=goals)
    with pytest.raises(UserError, match="no quantity 'z'; there are x, y"):
        view = maze_book().view
        ErrandBook(
            goals=(ErrandGoal(goal="a", where={"z": (0, 1)}),), errands=(Errand(task="a", goals=["a"]),), view=view
        )


def test_bad_settings_are_refused(context):
    for settings, why in (
        ({"tau": 1.5}, "tau is a share"),
        ({"games": 1}, "games is 2 or more"),
        ({"gate": "random"}, "is an arm of every run"),
        ({"sim": MAZE}, "needs goals=FILE.jsonl"),
        ({"sim": pl.control.SimpleSpread()}, "one agent, not 3"),
    ):
        with pytest.raises(UserError, match=why):
            program(**settings)
    idle = [ErrandGoal(goal="be", where={"x": (0, 9)})], (Errand(task="be", goals=["be"]),)
    book = ErrandBook(goals=tuple(idle[0]), errands=idle[1], view=maze_book().view)
    with pytest.raises(UserError, match="goals in which games do not begin"):
        asyncio.run(DualLearning(program(), context(), book, KEY).start())
    with pytest.raises(UserError, match="--llm endpoint"):
        asyncio.run(program(asked=None).run(context()))


def test_a_killed_run_ends_with_the_same_and_arms_take_equal_steps(context, tmp_path):
    asked = []

    def answer(request):
        asked.append(1)
        return written_answer(request)

    made = program(asked=pl.Scripted(answer), steps=150)
    run = lambda: asyncio.run(made.run(context(out=tmp_path, seed=2))).metrics
    first, questions = run(), len(asked)
    (tmp_path / "kept" / "arm-guide.json").unlink()
    assert run() == first and len(asked) == questions
    arms = first["arms"]
    assert list(arms) == [
        "none", "guide", "without distilling", "mean gate", "random gate", "fast alone", "slow alone", "shuffled",
        "oracle",
    ]  # fmt: skip
    steps = [arm["env_steps"] for arm in arms.values()]
    assert min(steps) >= 150 and max(steps) - min(steps) <= 2 * HOUSE.horizon
    # System 1 knows nothing yet, so the gate gives System 2 everything, and so does the drawn one
    assert first["slow_share"] == arms["random gate"]["slow_share"] == 1 == arms["slow alone"]["return"]
    assert arms["oracle"]["return"] == 1 and arms["slow alone"]["calls"] > 1 and arms["none"]["calls"] == 0
    assert arms["fast alone"]["slow_share"] == 0 and arms["guide"]["demos"] > 0 == arms["without distilling"]["demos"]
    assert {"success_known", "success_met", "success_unseen"} <= set(first)
    saved = pl.control.load_policy(tmp_path / "policy")
    assert saved.actions == 6 and "go to the desk" in json.loads((tmp_path / "policy" / "memory.json").read_text())


def test_practice_meets_no_unseen_errand(context):
    made, ctx = program(steps=300), context()
    rounds = []

    class Spy(ErrandRounds):
        async def play(self, errands, *rest):
            rounds.append({self.book.errands[e].part for e in errands})
            return await super().play(errands, *rest)

    setting = DualLearning(made, ctx, made.book(KEY), KEY)

    async def go():
        fast, memory, taken, _ = await setting.start()
        doing = Spy(setting, fast, memory, setting.system("model"), "lcb", 0.0)
        await doing.practise(taken, 1.0)
        await doing.measure()

    asyncio.run(go())
    *practice, test = rounds
    assert len(practice) > 3 and set().union(*practice) <= {"known", "met"} and test == {"known", "met", "unseen"}


def test_ones_own_environment_has_goals_in_a_file(context, tmp_path):
    pytest.importorskip("gymnasium")
    (tmp_path / "own.py").write_text(
        "import gymnasium\ndef make():\n    return gymnasium.make('CartPole-v1', max_episode_steps=20)\n"
    )
    (tmp_path / "goals.jsonl").write_text('{"goal": "go right", "where": {"number_0": [0.05, 9]}}\n')
    seen = []

    def answer(request):
        seen.append(request.messages[0].content)
        return {"plan": ["go right"], "action": "action 1"}

    made = dsadf.build(
        asked=pl.Scripted(answer),
        sim=f"{tmp_path}/own.py:make",
        goals=f"{tmp_path}/goals.jsonl",
        about="A cart.",
        games=2,
    )
    found = asyncio.run(replace(made, learner=LEARNER).run(context(steps=2))).metrics
    assert seen[0].startswith("A cart.") and "The task: go right" in seen[0] and "- number_0 = " in seen[0]
    assert "oracle" not in found["arms"] and "success_unseen" not in found
