"""DSADF: what is remembered of which goal, what System 2 is told of goals, limits, and goals that are never reached."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.llm4rl import dsadf
from palaestra.recipes.llm4rl.dsadf.dual import DualChooser
from palaestra.recipes.llm4rl.dsadf.errands import Errand, ErrandBook, ErrandGoal, read_errands
from palaestra.recipes.llm4rl.dsadf.memory import SkillMemory
from palaestra.recipes.llm4rl.dsadf.program import DualLearning
from palaestra.recipes.llm4rl.dsadf.slow import ModelSystem, QuestionLimit
from palaestra.recipes.llm4rl.dsadf.written import written_answer

KEY = ("test",)
MAZE = pl.control.Maze(drawing="#######\n#.....#\n#######", goal=(5, 1), horizon=12, slip=0.0)
LEARNER = pl.control.DoubleQ(gamma=0.9, games=2, updates=1, width=8, explore=0.5)


def walk(way):
    return lambda obs, legal, rng: {"act": np.full(obs.shape[:-1], way)}


def book_of(*goals):
    games = pl.control.play_games(MAZE, walk(1), 2, KEY)
    goals = goals or (("go to the middle", 3), ("go to the end", 5))
    return ErrandBook(
        goals=tuple(ErrandGoal(goal=n, where={"x": (x, x), "y": (0, 2)}) for n, x in goals),
        errands=(Errand(task="walk", goals=[n for n, _ in goals]),),
        view=pl.control.ViewWords.of(MAZE, games),
    )


def program(**settings):
    made = dsadf.embedded(pl.Scripted(written_answer, name="rules"))
    return replace(made, **{"learner": LEARNER, "steps": 200, "games": 11, **settings})


def test_goals_that_are_alike_have_records_of_their_own():
    long = "put the {} cup on the wooden kitchen shelf"
    book = book_of((long.format("red"), 1), (long.format("blue"), 2), (long.format("green"), 3))
    red, blue, green = book.code_KW
    memory = SkillMemory(forget=0.0)
    for _ in range(10):
        memory.note(red, True)
        memory.note(blue, False)
    found = [(memory.record(c).successes, memory.record(c).failures) for c in (red, blue)]
    assert found == [(10, 0), (0, 10)] and len(memory.records) == 2
    assert memory.record(green) is memory.records[0]  # one that was never tried is like another


def test_system_2_is_told_where_goals_are_reached(context):
    asked = []

    def answer(request):
        asked.append(request.messages[0].content)
        return {"plan": ["go to the end"], "action": "action 1"}

    book, obs = book_of(), MAZE.observe(MAZE.reset(pl.rng_of(KEY), 1))[:, 0]
    slow = ModelSystem(context(), pl.Scripted(answer), MAZE, book, "a corridor", KEY)
    assert asyncio.run(slow.plan(obs, [0], [""])) == [[1]]
    asyncio.run(slow.act(obs, None, [0], pl.rng_of(KEY)))
    assert "- go to the end: reached where x = 5 and y from 0 to 2" in asked[0]
    assert "The goal: go to the middle\nIt is reached where x = 3 and y from 0 to 2." in asked[1]


def made_of_file(tmp_path, *goals, **settings):
    file = tmp_path / "goals.jsonl"
    file.write_text("\n".join(json.dumps(g) for g in goals))
    return replace(dsadf.build(), sim=MAZE, goals=str(file), learner=LEARNER, steps=60, **settings)


END = {"goal": "end", "where": {"x": [5, 5]}}
START = {"goal": "middle", "where": {"x": [3, 3]}}


def test_the_default_timeout_is_a_games_and_a_goal_never_reached_is_said(context, tmp_path):
    assert dsadf.build().timeout == 20 == dsadf.embedded().timeout
    (tmp_path / "own.py").write_text("import palaestra as pl\nmake = lambda: pl.control.Maze(horizon=50)\n")
    file = tmp_path / "g.jsonl"
    file.write_text("{}")
    own = dsadf.build(sim=f"{tmp_path}/own.py:make", goals=str(file))
    assert own.timeout == 0
    one = made_of_file(tmp_path, END, timeout=0)
    assert DualLearning(one, context(), one.book(KEY), KEY).timeout == 12
    two = made_of_file(tmp_path, END, START, {"task": "both", "goals": ["middle", "end"]}, timeout=0)
    said, ctx = [], context()
    ctx.say = said.append
    setting = DualLearning(two, ctx, two.book(KEY), KEY)
    assert setting.timeout == 6
    asyncio.run(setting.start())
    assert not any("never reached" in text for text in said)
    wall = {"goal": "wall", "where": {"x": [0, 0]}}
    never = made_of_file(tmp_path, END, wall, timeout=4)
    asyncio.run(DualLearning(never, ctx, never.book(KEY), KEY).start())
    assert "never reached 'wall' (tried" in said[0] and "'end'" not in said[0] and "timeout above 4" in said[0]


def test_fewer_games_than_errands_are_refused():
    with pytest.raises(UserError, match="games=10 is below the 11 errands"):
        program(games=10).book(KEY)


def test_what_does_not_fit_in_a_line_is_named(tmp_path):
    file = tmp_path / "goals.jsonl"
    for line, why in (
        ({"task": "go"}, r"goals: Field required"),
        ({"goal": "a", "where": {"x": [1]}}, r"where\.x\.1: Field required"),
        ([1], "valid dictionary"),
    ):
        file.write_text(json.dumps(line))
        with pytest.raises(UserError, match=why):
            read_errands(str(file))


class Walker:
    """A System 2 that walks right, and whose actions are its own or drawn."""

    def __init__(self, own):
        self.own, self.numbers = own, {"calls": 0}

    async def plan(self, obs, errands, failed):
        return [[0, 1] for _ in errands]

    async def act(self, obs, legal, goals, rng):
        return np.ones(len(obs), int), np.array([self.own(g) for g in goals])


def test_ways_with_drawn_actions_are_none_of_system_2s():
    book = book_of()
    ways = {}
    for name, own in (("own", lambda g: True), ("drawn", lambda g: False), ("first", lambda g: g == 0)):
        chooser = DualChooser(book, Walker(own), lambda code, rng: False, [0], 6)
        options = [pl.control.Option(name=n, act=walk(0), timeout=6) for n in book.names]
        single = [pl.control.primitive_option(str(k), k) for k in range(4)]
        games = asyncio.run(pl.control.play_options(MAZE, [*options, *single], chooser, 1, KEY))
        chooser.finish(games)
        ways[name] = [goal for *_, goal in chooser.ways]
        assert chooser.routed == {"slow": 2}
    assert ways == {"own": [0, 1], "drawn": [], "first": [0]}


def test_a_model_whose_replies_never_fit_reaches_nothing(context):
    found = {}
    for name, answer in (("none", lambda request: "no idea"), ("rules", written_answer)):
        ctx, said = context(), []
        ctx.say = said.append
        made = program(asked=pl.Scripted(answer), steps=60, gate="slow")
        setting = DualLearning(made, ctx, made.book(KEY), KEY)
        found[name] = asyncio.run(setting.arm("slow")())
    assert found["none"]["slow_share"] == 1 == found["rules"]["slow_share"] == found["rules"]["slow_reached"]
    assert found["none"]["slow_reached"] == 0


def test_calls_are_told_before_the_first_and_a_limit_ends_a_run(context):
    ctx, said = context(), []
    ctx.say = said.append
    # practice 0.4 * 200, a round of 2 games of 60 steps, 11 games of the test: 860 in each arm
    with pytest.raises(UserError, match=r"questions=3 is the limit"):
        asyncio.run(program(questions=3).run(ctx))
    assert "up to 5160 actions, 860 in each of 6 arms" in said[0] and "3 plans" in said[0]
    limit = QuestionLimit(3)
    limit.take(3)
    with pytest.raises(UserError, match="asked 3 questions, 1 more"):
        limit.take(1)
    QuestionLimit().take(10**6)
