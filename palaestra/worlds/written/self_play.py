"""Trains an agent on a written game by self-play. This file lies beside `inside` in the sandbox, which has
numpy and no torch, so that PPO stands here by hand.

    features      the fields of the game's object, each with its value, as one-hot numbers
    network       h = tanh(b + sum of the features' rows), a softmax over legal moves, a value in (-1, 1)
    four stages   before each a frozen copy of the agent joins the pool; it plays against a member that is
                  drawn for each game and moves at random with the chance epsilon, which falls from 1 to 0.1
    loss          -min(r A, clip(r, 1 - 0.2, 1 + 0.2) A) + 0.5 (v - R)^2 - 0.01 H,   r = pi / pi_old
    kept          of the copies after the stages the one with the most points against the others and random moves

The pool, epsilon and the four stages are those of gg-bench's agents (arXiv:2505.07215), which are a
network on the game's observation trained for a million steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

STAGES = 4
EPSILON = (1.0, 0.1)  # of the pool's random moves, at the first step and at the last one
GAMES = 32  # of an update
EPOCHS, CLIP, ENTROPY, VALUE = 4, 0.2, 0.01, 0.5
GAMMA, LAM, LR, NORM = 0.99, 0.95, 0.01, 0.5
WIDTH = 32
MOST_FEATURES, MOST_MOVES = 4_096, 1_024
PLIES = 100  # of a game at most
TRIALS = 20  # games of each pair of copies, and of a copy with random moves

Begin = Callable[[], Any]  # the first position of the game


def features_of(position: Any) -> list[str]:
    """The fields of a position as texts, with who moves.

    >>> class Env: pass
    >>> env = Env(); env.heap = [3, 1]
    >>> features_of(type("P", (), {"env": env, "seat": 1}))
    ['seat=1', '/heap/0=3', '/heap/1=1']
    """
    made = [f"seat={position.seat}"]
    _walk("", vars(position.env), made, 6)
    return made


def _walk(path: str, x: Any, made: list[str], depth: int) -> None:
    if len(made) >= MOST_FEATURES or depth < 0:
        return
    if hasattr(x, "tolist"):
        x = x.tolist()
    if isinstance(x, bool | int | float | str | type(None)):
        made.append(f"{path}={x!r:.80}")
    elif isinstance(x, Mapping):
        for key, value in x.items():
            _walk(f"{path}/{key}", value, made, depth - 1)
    elif isinstance(x, set | frozenset):
        made.extend(f"{path}:{value!r:.80}" for value in sorted(x, key=repr))
    elif isinstance(x, Sequence):
        for i, value in enumerate(x):
            _walk(f"{path}/{i}", value, made, depth - 1)


@dataclass
class Agent:
    """A small actor and critic whose features and moves are those that it has met.

    Args:
        rows: of each feature, [F, WIDTH].
        heads: of each move, [A, WIDTH + 1], the last column being its bias.
        value: [WIDTH + 1].
    """

    features: dict[str, int] = field(default_factory=dict)
    moves: dict[int, int] = field(default_factory=dict)
    rows: Any = None
    heads: Any = None
    value: Any = None

    @classmethod
    def drawn(cls, seed: int) -> Agent:
        """An agent before its first game, which moves nearly evenly."""
        rng = np.random.default_rng(seed)
        return cls(
            rows=rng.normal(0, 0.3, (MOST_FEATURES, WIDTH)),
            heads=np.zeros((MOST_MOVES, WIDTH + 1)),
            value=np.zeros(WIDTH + 1),
        )

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Agent:
        """The agent that `data` gives."""
        features = {name: i for i, name in enumerate(data["features"])}
        moves = {int(m): i for i, m in enumerate(data["moves"])}
        sizes = {"rows": (-1, WIDTH), "heads": (-1, WIDTH + 1), "value": (WIDTH + 1,)}
        arrays = {k: np.array(data[k], float).reshape(size) for k, size in sizes.items()}
        return cls(features, moves, **arrays)

    def data(self) -> dict[str, Any]:
        """The agent as plain data, to four digits, of what it has met alone."""
        short = lambda x: [float(f"{v:.4g}") for v in x.ravel().tolist()]
        return {
            "features": list(self.features),
            "moves": list(self.moves),
            "rows": short(self.rows[: len(self.features)]),
            "heads": short(self.heads[: len(self.moves)]),
            "value": short(self.value),
        }

    def copy(self) -> Agent:
        """A frozen copy."""
        arrays = (self.rows.copy(), self.heads.copy(), self.value.copy())
        return Agent(dict(self.features), dict(self.moves), *arrays)

    def seen(self, position: Any, learn: bool = False) -> list[int]:
        """The numbers of a position's features; those never met are left out, or with `learn` taken in."""
        return numbers(self.features, features_of(position), MOST_FEATURES if learn else 0)

    def known(self, moves: Sequence[int], learn: bool = False) -> list[int]:
        """The numbers of moves, -1 for one that was never met."""
        return [
            self.moves.setdefault(m, len(self.moves))
            if learn and len(self.moves) < MOST_MOVES
            else self.moves.get(m, -1)
            for m in moves
        ]

    def hidden(self, seen: Sequence[int]) -> Any:
        """[WIDTH + 1] of a position, the last one being 1."""
        h = np.ones(WIDTH + 1)
        h[:-1] = np.tanh(self.rows[seen].sum(0))
        return h

    def chances(self, h: Any, known: Sequence[int]) -> Any:
        """[moves] of the legal moves; one that was never met counts as a logit of 0."""
        at = np.asarray(known)
        logits = np.where(at >= 0, self.heads[at] @ h, 0.0)
        shares = np.exp(logits - logits.max())
        return shares / shares.sum()

    def move(self, position: Any, rng: random.Random) -> int:
        """A move that is drawn from the policy."""
        moves = position.moves()
        if len(moves) == 1:
            return moves[0]
        shares = self.chances(self.hidden(self.seen(position)), self.known(moves))
        return rng.choices(moves, shares.tolist())[0]


def numbers(known: dict[str, int], names: Sequence[str], room: int) -> list[int]:
    """The numbers of names, which `known` takes in as far as there is room."""
    made = list[int]()
    for name in names:
        at = known.get(name)
        if at is None and len(known) < room:
            at = known[name] = len(known)
        if at is not None:
            made.append(at)
    return made


@dataclass
class SelfPlayTurn:
    """A turn of the agent, and what it is credited with."""

    seen: list[int]
    known: list[int]
    chosen: int  # place of the move among the legal ones
    chance: float
    value: float
    advantage: float = 0.0
    target: float = 0.0


def train_agent(begin: Begin, steps: int, seed: str) -> Agent:
    """The agent after about `steps` turns of its own; the same bits for the same seed."""
    rng = random.Random(f"{seed}/self-play")
    agent, taken = Agent.drawn(rng.randrange(2**31)), 0
    adam, pool, copies = Adam(agent), list[Agent](), list[Agent]()
    for stage in range(STAGES):
        pool.append(agent.copy())
        while taken < steps * (stage + 1) / STAGES:
            epsilon = EPSILON[0] + (EPSILON[1] - EPSILON[0]) * min(1.0, taken / steps)
            turns = list[SelfPlayTurn]()
            for game in range(GAMES):
                turns += play_game(begin, agent, rng.choice(pool), game % 2, epsilon, rng)
            if not turns:  # no move of this game is ever a choice
                break
            taken += len(turns)
            for _ in range(EPOCHS):
                adam.step(agent, turns)
        copies.append(agent.copy())
    return best_copy(begin, copies, rng)


def play_game(
    begin: Begin, agent: Agent, rival: Agent, seat: int, epsilon: float, rng: random.Random
) -> list[SelfPlayTurn]:
    """The agent's turns in a game against a member of the pool, with what they are credited with."""
    position, turns = begin(), list[SelfPlayTurn]()
    while not position.done and position.plies < PLIES:
        moves = position.moves()
        if len(moves) == 1:
            position.advance(moves[0])
        elif position.seat != seat:
            drawn = rng.random() < epsilon
            position.advance(rng.choice(moves) if drawn else rival.move(position, rng))
        else:
            seen, known = agent.seen(position, learn=True), agent.known(moves, learn=True)
            h = agent.hidden(seen)
            shares = agent.chances(h, known)
            at = rng.choices(range(len(moves)), shares.tolist())[0]
            value = float(np.tanh(agent.value @ h))
            turns.append(SelfPlayTurn(seen, known, at, float(shares[at]), value))
            position.advance(moves[at])
    credit(turns, 0.0 if position.winner is None else 1.0 if position.winner == seat else -1.0)
    return turns


def credit(turns: Sequence[SelfPlayTurn], paid: float) -> None:
    """Generalised advantages of a game that pays at its end (arXiv:1506.02438), in place."""
    advantage, after = 0.0, 0.0
    for i, turn in enumerate(reversed(turns)):
        delta = (0.0 if i else paid) + GAMMA * after - turn.value
        advantage = delta + GAMMA * LAM * advantage
        turn.advantage, turn.target, after = advantage, advantage + turn.value, turn.value


class Adam:
    """Adam on the loss of PPO, whose gradients are written out."""

    def __init__(self, agent: Agent) -> None:
        names = ("rows", "heads", "value")
        self.moments = {n: [np.zeros_like(getattr(agent, n)) for _ in "mv"] for n in names}
        self.steps = 0

    def step(self, agent: Agent, turns: Sequence[SelfPlayTurn]) -> None:
        """One step on all these turns."""
        grads = gradients(agent, turns)
        length = float(np.sqrt(sum((g * g).sum() for g in grads.values())))
        self.steps += 1
        for name, grad in grads.items():
            grad = grad * min(1.0, NORM / (length + 1e-8))
            first, second = (moment[: len(grad)] for moment in self.moments[name])
            first[:] = 0.9 * first + 0.1 * grad
            second[:] = 0.999 * second + 0.001 * grad * grad
            unbiased = first / (1 - 0.9**self.steps)
            scale = np.sqrt(second / (1 - 0.999**self.steps)) + 1e-5
            getattr(agent, name)[: len(grad)] -= LR * unbiased / scale


def gradients(agent: Agent, turns: Sequence[SelfPlayTurn]) -> dict[str, Any]:
    """Of the mean loss of turns, whose advantages are centred and scaled, by weight; those of features and
    moves that were never met are left out.
    """
    rows, heads = agent.rows[: len(agent.features)], agent.heads[: len(agent.moves)]
    grads = {
        n: np.zeros_like(x) for n, x in (("rows", rows), ("heads", heads), ("value", agent.value))
    }
    raw = np.array([t.advantage for t in turns])
    scaled = (raw - raw.mean()) / (raw.std() + 1e-8)
    for turn, advantage in zip(turns, scaled.tolist(), strict=True):
        h = agent.hidden(turn.seen)
        shares = agent.chances(h, turn.known)
        ratio = shares[turn.chosen] / turn.chance
        clipped = (ratio > 1 + CLIP and advantage > 0) or (ratio < 1 - CLIP and advantage < 0)
        chosen = np.zeros(len(shares))
        chosen[turn.chosen] = 1.0
        logs = np.log(shares + 1e-12)
        logit = ENTROPY * shares * (logs - (shares * logs).sum())
        if not clipped:
            logit = logit - advantage * ratio * (chosen - shares)
        value = float(np.tanh(agent.value @ h))
        inner = 2 * VALUE * (value - turn.target) * (1 - value * value)
        at, met = np.asarray(turn.known), np.asarray(turn.known) >= 0
        back = inner * agent.value + (logit * met) @ np.where(met[:, None], agent.heads[at], 0.0)
        np.add.at(grads["heads"], at[met], np.outer(logit[met], h))
        grads["value"] += inner * h
        grads["rows"][turn.seen] += back[:-1] * (1 - h[:-1] ** 2)
    return {n: g / len(turns) for n, g in grads.items()}


def best_copy(begin: Begin, copies: Sequence[Agent], rng: random.Random) -> Agent:
    """The copy with the most points against the others and random moves; of equal ones the last."""
    points = [0.0] * len(copies)
    for i, copy in enumerate(copies):
        for j, other in enumerate((*copies, None)):
            if i != j:
                points[i] += sum(duel(begin, copy, other, k % 2, rng) for k in range(TRIALS))
    return max(zip(points, range(len(copies)), copies, strict=True), key=lambda x: x[:2])[2]


def duel(begin: Begin, agent: Agent, other: Agent | None, seat: int, rng: random.Random) -> float:
    """The agent's points in a game against another one, None = random moves; a draw is a half."""
    position = begin()
    while not position.done and position.plies < PLIES:
        mover = agent if position.seat == seat else other
        moves = position.moves()
        position.advance(rng.choice(moves) if mover is None else mover.move(position, rng))
    return 0.5 if position.winner is None else float(position.winner == seat)
