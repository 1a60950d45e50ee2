"""DSADF: where an observation is unlike all that System 1 has seen, control goes back to System 2."""

import asyncio
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.llm4rl import dsadf
from palaestra.recipes.llm4rl.dsadf.dual import DualChooser
from palaestra.recipes.llm4rl.dsadf.familiar import SeenViews
from palaestra.recipes.llm4rl.dsadf.program import DualLearning
from palaestra.recipes.llm4rl.dsadf.written import written_answer

from tests.recipes.llm4rl.test_dsadf import END, KEY, MAZE, MIDDLE, Told, do_errand, maze_book, walk

RIGHT = lambda code, rng: True


def strange_errand(slow, strange):
    """One game in which System 1 walks right, and ends where an observation is strange."""
    book = maze_book()
    ends = lambda obs, k: book.holds(obs[:, 0])[:, k] | strange(obs[:, 0])
    fast = [
        pl.control.Option(name=n, act=walk(1), timeout=4, reached=lambda o, k=k: ends(o, k))
        for k, n in enumerate(book.names)
    ]
    single = [pl.control.primitive_option(str(k), k) for k in range(4)]
    chooser = DualChooser(book, slow, RIGHT, [0], 4, strange=strange)
    games = asyncio.run(pl.control.play_options(MAZE, [*fast, *single], chooser, 1, KEY))
    chooser.finish(games)
    return chooser, games


def test_distances_are_in_deviations_of_training():
    """A grid of steps of 1: what is between two of them is familiar, what is 3 steps outside is strange; a number that
    never moved counts as it is."""
    grid = np.array([[x, 100.0 * y, 7.0] for x in range(10) for y in range(10)], float)
    seen = SeenViews(grid, 1.0, KEY)
    step = 1 / np.arange(10).std()
    assert seen.distance(np.array([[3.0, 400.0, 7.0], [3.5, 400.0, 7.0]])) == pytest.approx([0, step / 2], abs=1e-6)
    assert seen.limit == pytest.approx(step * np.sqrt(2), rel=0.5)
    assert seen(np.array([[4.5, 450.0, 7.0], [13.0, 400.0, 7.0], [4.0, 1300.0, 7.0], [4.0, 400.0, 9.0]])).tolist() == [
        False, True, True, True,
    ]  # fmt: skip
    seen.add(np.array([[13.0, 400.0, 7.0]]))
    assert not seen(np.array([[13.0, 400.0, 7.0]]))[0] and seen(np.zeros((0, 3))).shape == (0,)
    assert SeenViews(grid, 9.0, KEY)(np.array([[12.0, 400.0, 7.0]])).tolist() == [False]
    few = SeenViews(np.array([[1.0, 2.0]] * 40), 2.0, KEY)  # a world of one state
    assert few(np.array([[1.0, 2.0], [1.0, 2.1]])).tolist() == [False, True]


def test_system_2_takes_over_where_nothing_is_familiar_and_system_1_did_not_fail():
    """System 1 walks right to the end, of which the middle, cell 3, is not the goal; there everything is new to it."""
    middle = do_errand(Told([[END]]), RIGHT)[1].paths()["obs"][0, 0, 2]
    strange = lambda obs: np.abs(obs - middle).max(-1) < 1e-9
    slow = Told([[END], [END]])
    chooser, games = strange_errand(slow, strange)
    assert games.env_steps == 4 and slow.failed == ["", "go to the end, as what is seen now is new to it"]
    # two steps of System 1, which count as neither; then System 2 walks there, and its way is kept
    assert chooser.outcomes == [] and chooser.ways == [(0, 2, 4, END)] and chooser.handed == 1
    assert chooser.routed == {"fast": 1, "slow": 1}


def test_system_1_does_not_begin_where_nothing_is_familiar():
    everywhere = lambda obs: np.ones(len(obs), bool)
    chooser, _ = do_errand(Told([[MIDDLE]]), RIGHT, strange=everywhere, trial=1.0)
    assert chooser.routed == {"slow": 1} and chooser.handed == 1 and chooser.outcomes == []
    assert chooser.ways == [(0, 0, 2, MIDDLE)]
    shut, _ = do_errand(Told([[MIDDLE]]), lambda code, rng: False, strange=everywhere)
    assert shut.routed == {"slow": 1} and shut.handed == 0  # the gate gave it to System 2


def test_a_goal_that_is_reached_where_nothing_is_familiar_is_reached():
    last = do_errand(Told([[MIDDLE]]), RIGHT)[1].paths()["next_obs"][0, 0, 1]
    strange = lambda obs: np.abs(obs - last).max(-1) < 1e-9
    chooser, _ = strange_errand(Told([[MIDDLE]]), strange)
    assert chooser.outcomes == [(MIDDLE, True)] and chooser.handed == 0


def test_arms_have_what_training_saw_and_ways_make_it_familiar(context):
    made = dsadf.embedded(pl.Scripted(written_answer, name="rules"), strange=2.0)
    learner = pl.control.DoubleQ(gamma=0.9, games=2, updates=1, width=8, explore=0.5)
    made = replace(made, learner=learner, steps=200, games=11)
    setting = DualLearning(made, context(), made.book(KEY), KEY)
    fast, *_ = asyncio.run(setting.start())
    other, *_ = asyncio.run(setting.start())
    assert fast.seen is not None and len(fast.seen.kept) > 50
    fast.seen.add(np.zeros((1, made.sim.observation)) + 9)
    assert len(other.seen.ways) == 0  # each arm its own
    result = asyncio.run(setting.arm("lcb", clone=1.0)())
    assert 0 <= result["handed_over"] <= 1 and dsadf.build(sim="").strange == 2.0 and dsadf.embedded().strange == 0
    assert asyncio.run(setting.arm("random", share=0.5)())["handed_over"] == 0
    with pytest.raises(UserError, match="strange"):
        replace(made, strange=-1)
