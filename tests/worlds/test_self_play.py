"""Agents of written games: credit and gradients by hand, and what self-play learns of games whose best moves are known."""

import asyncio
import json
import random
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.worlds.written import inside, self_play
from palaestra.worlds.written.files import read_games
from palaestra.worlds.written.sandboxed import GameVerdict, compare_players, random_points, train_on_game

TAKE = """
class CustomEnv:
    def reset(self, seed=None, options=None):
        self.stones, self.current_player = 9, 1
    def valid_moves(self):
        return [s for s in (1, 2, 3) if s <= self.stones]
    def step(self, action):
        self.stones -= action
        self.current_player *= -1
        return None, int(self.stones == 0), self.stones == 0, False, {}
    def render(self):
        return f"stones {self.stones}"
"""
COINS = """
class CustomEnv:
    def reset(self, seed=None, options=None):
        self.n, self.current_player = 0, 1
    def valid_moves(self):
        return [0, 1]
    def step(self, action):
        self.n += 1
        self.current_player *= -1
        return None, 0, self.n == 6, False, {}
    def render(self):
        return f"{self.n} of 6"
"""


class Stones:
    """9 stones, 1 to 3 in turn; who takes the last one wins."""

    def reset(self, seed=None):
        self.stones = 9

    def valid_moves(self):
        return [s for s in (1, 2, 3) if s <= self.stones]

    def step(self, action):
        self.stones -= action
        return None, int(self.stones == 0), self.stones == 0, False, {}


def first():
    return inside.begin(Stones, 0)


def test_credit_by_hand():
    """Values .5 and .2, a win at the end: deltas 1 - .2 = .8 and .99 * .2 - .5 = -.302, and the first turn
    is credited with -.302 + .99 * .95 * .8 = .4504."""
    turns = [self_play.SelfPlayTurn([], [0], 0, 1.0, v) for v in (0.5, 0.2)]
    self_play.credit(turns, 1.0)
    assert turns[1].advantage == pytest.approx(0.8) and turns[0].advantage == pytest.approx(0.4504)
    assert [t.target for t in turns] == pytest.approx([0.9504, 1.0])


def loss(agent, turns):
    """Of PPO, written from the formula, whose gradient the agent has in closed form."""
    raw = np.array([t.advantage for t in turns])
    total = 0.0
    for t, a in zip(turns, (raw - raw.mean()) / (raw.std() + 1e-8), strict=True):
        h = agent.hidden(t.seen)
        shares = agent.chances(h, t.known)
        r, v = shares[t.chosen] / t.chance, np.tanh(agent.value @ h)
        entropy = -(shares * np.log(shares)).sum()
        total += -min(r * a, np.clip(r, 0.8, 1.2) * a) + 0.5 * (v - t.target) ** 2 - 0.01 * entropy
    return total / len(turns)


def test_gradients_are_those_of_the_loss():
    """By differences of the loss; a ratio of 1.6 with a positive advantage is beyond the clip and has none."""
    agent, rng = self_play.Agent.drawn(0), np.random.default_rng(1)
    agent.features, agent.moves = {c: i for i, c in enumerate("abcd")}, {5: 0, 6: 1, 7: 2}
    for array in (agent.rows, agent.heads, agent.value):
        array[:] = rng.normal(0, 0.4, array.shape)
    turns = [
        self_play.SelfPlayTurn([0, 1], [0, 1, -1], 0, 0.3, 0.1),
        self_play.SelfPlayTurn([1, 2], [1, 2], 1, 0.4, -0.2),
    ]
    turns += [self_play.SelfPlayTurn([2, 3], [0, 2], 0, 0.2, 0.0)]
    for turn, (advantage, target) in zip(turns, ((-1.0, 0.5), (0.3, -1.0), (2.0, 1.0)), strict=True):
        turn.advantage, turn.target = advantage, target
    grads = self_play.gradients(agent, turns)
    for name, at in (("rows", (1, 3)), ("rows", (3, 0)), ("heads", (0, 5)), ("heads", (2, -1)), ("value", 7)):
        array = getattr(agent, name)
        start, ends = array[at], []
        for step in (1e-6, -1e-6):
            array[at] = start + step
            ends.append(loss(agent, turns))
        array[at] = start
        assert grads[name][at] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-7)


def test_self_play_finds_the_moves_that_win():
    """Of 9 stones the winner leaves a multiple of 4; an untrained agent takes any."""
    agent = self_play.train_agent(first, 2500, "a")
    read = self_play.Agent.read(json.loads(json.dumps(agent.data())))
    for stones in (9, 7, 6, 5):
        position = first()
        position.env.stones = stones
        for a, least in ((agent, 0.8), (read, 0.8)):
            shares = a.chances(a.hidden(a.seen(position)), a.known([1, 2, 3]))
            assert shares[stones % 4 - 1] > least, (stones, shares)
    fresh = self_play.Agent.drawn(0)
    assert fresh.chances(fresh.hidden(fresh.seen(first())), fresh.known([1, 2, 3])) == pytest.approx([1 / 3] * 3)


def test_who_plays_behind_the_tree():
    """An agent that always takes the smallest move plays 4 stones out to the end in four moves, alone or behind the tree."""

    class Smallest:
        def move(self, position, rng):
            return position.moves()[0]

    position, rng = first(), random.Random(0)
    position.env.stones = 4
    end = inside.play_out(position.copy(), rng, Smallest())
    assert end.plies == 4 and end.winner == 1  # 1, 1, 1, 1: who replies takes the last
    assert inside.roll_out(position, rng, Smallest()) == (0.0, 1.0)
    assert inside.search_move(position, 0, rng, Smallest()) == 1


def test_agents_are_trained_and_compared_in_the_sandbox():
    """Of 9 stones perfect play is known: the agent and the search know most of it, random moves a third."""
    agent = asyncio.run(train_on_game(TAKE, 1500, "a"))
    assert not isinstance(agent, GameVerdict) and agent.points > 0.8
    best = asyncio.run(compare_players(TAKE, 20, agent.weights, "a"))
    assert best["random"] == pytest.approx(1 / 3, abs=0.12) and min(best.values()) == best["random"]
    assert best["agent"] > 0.7 and best["agent_and_search"] > 0.7
    points = [asyncio.run(random_points(TAKE, 20, n, 0, "a", w)) for n, w in ((5, agent.weights), (0, ""))]
    assert sum(points[0]) < sum(points[1])


def test_no_agent_can_be_trained_where_moves_do_not_matter():
    """Every game is a draw, so an agent has half of the points whatever it learned."""
    assert asyncio.run(train_on_game(COINS, 200, "a")).verdict == "untrained"


def test_an_agent_of_a_file_plays(tmp_path):
    row = {"title": "take", "rules": "Take 1 to 3.", "code": TAKE}
    agent, again = (json.dumps(self_play.train_agent(first, 100, "a").data()) for _ in range(2))
    assert agent == again
    (file := tmp_path / "games.jsonl").write_text(json.dumps(row | {"agent": agent}))
    game = read_games(str(file))[0]
    assert game.agent == agent
    task = pl.worlds.WrittenGameTasks().task_of(game, "t", second=1)
    frame = asyncio.run(pl.worlds.WrittenGame(rival="agent", iterations=0).reset(task, ("k",)))
    assert "stones 9" not in frame.asks[0].say[0].content  # it has opened
    file.write_text(json.dumps(row | {"agent": "strong"}))
    with pytest.raises(UserError, match="agent is no opponent"):
        read_games(str(file))
    bare = pl.worlds.WrittenGameTasks().task_of(replace(game, agent=""), "t")
    with pytest.raises(UserError, match="no trained agent"):
        asyncio.run(pl.worlds.WrittenGame(rival="agent").reset(bare, ("k",)))
