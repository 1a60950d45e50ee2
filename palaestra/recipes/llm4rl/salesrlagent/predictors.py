"""Predictors of an outcome after each message, and how good they are: proper scores, calibration, and
what is gained by saying nothing.

N conversations, T messages, p in [0, 1], y 0 or 1.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

import palaestra as pl
from palaestra.recipes.llm4rl.salesrlagent.states import PAST, TalkTable

Rewarded = Literal["proper", "accuracy"]
STEP = 2 / 3  # of a log-odds, for an action of 1; near a half p moves by 1/6
REACH = 12.0  # an action at most: a log-odds of 8 about that of the base rate
LEAST = 1e-3  # of a probability in a logarithm
BINS = 10  # of the calibration error
NEAR = 5  # neighbours that a distance is the mean of
ADVICE = ((0.5, "close"), (0.4, "build value"), (0.3, "discover needs"))
OTHERWISE = "qualify again"


def advice_of(p: float) -> str:
    """What the probability is read as: >= 0.5 close, >= 0.4 build value, >= 0.3 discover needs."""
    return next((text for least, text in ADVICE if p >= least), OTHERWISE)


def probability(act: np.ndarray, base: float = 0.5) -> np.ndarray:
    """sigmoid(log(base / (1 - base)) + 2 act / 3): the base rate where the action is 0."""
    return 1 / (1 + np.exp(-(np.log(base / (1 - base)) + STEP * act)))


def turn_rewards(
    p: np.ndarray, before: np.ndarray, y: np.ndarray, rewarded: Rewarded, flip: float
) -> np.ndarray:
    """1 - (p - y)^2, a strictly proper score, or with "accuracy" 1 where p is on y's side of a half;
    less flip |p - p of the turn before|.
    """
    right = (p >= 0.5) == (y >= 0.5)
    score = 1 - (p - y) ** 2 if rewarded == "proper" else right.astype(float)
    return score - flip * np.abs(p - before)


@pl.value_class
class PredictionState:
    """Games under way: which conversation, the next message, and the probabilities so far, the last
    one last.
    """

    row: np.ndarray
    turn: int
    past: np.ndarray


@pl.stage
class PredictionGames:
    """A simulator in arrays: a game is a conversation, an action the probability of its outcome. What
    is predicted does not change the conversation. Games are drawn at random, or with `in_order` are
    the conversations one after another.

    Args:
        base: the probability that an action of 0 says, in (0, 1).
    """

    table: TalkTable
    rewarded: Rewarded = "proper"
    flip: float = 0.0
    bonus: float = 0.0  # times the score of the last message, added there
    in_order: bool = False
    agents: int = 1
    actions: pl.control.Box = pl.control.Box(low=(-REACH,), high=(REACH,))
    base: float = 0.5

    @property
    def horizon(self) -> int:
        return int(self.table.length.max())

    @property
    def observation(self) -> int:
        return self.table.x.shape[2] + PAST

    def reset(self, rng: np.random.Generator, n: int) -> PredictionState:
        N = len(self.table.length)
        row = np.arange(n) % N if self.in_order else rng.integers(N, size=n)
        return PredictionState(row=row, turn=0, past=np.zeros((n, PAST)))

    def observe(self, state: PredictionState) -> np.ndarray:
        at = np.minimum(state.turn, self.table.length[state.row] - 1)
        return np.concatenate([self.table.x[state.row, at], state.past], -1)[:, None]

    def legal(self, state: PredictionState) -> None:
        return None

    def step(
        self, state: PredictionState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[PredictionState, np.ndarray, np.ndarray]:
        p, y = probability(act_nA[:, 0, 0], self.base), self.table.converted[state.row]
        before = state.past[:, -1] if state.turn else p
        paid = turn_rewards(p, before, y, self.rewarded, self.flip)
        over = state.turn + 1 >= self.table.length[state.row]
        paid = paid + self.bonus * over * turn_rewards(p, p, y, self.rewarded, 0.0)
        past = np.concatenate([state.past[:, 1:], p[:, None]], -1)
        return PredictionState(row=state.row, turn=state.turn + 1, past=past), paid[:, None], over


def predict(policy: Any, table: TalkTable, base: float) -> np.ndarray:
    """[N, T] what a policy says, without noise; it learned with an action of 0 at `base`."""
    games = PredictionGames(table, in_order=True, base=base)
    act = lambda obs, legal, rng: policy.act(obs, legal, rng, greedy=True)
    paths = pl.control.play_games(games, act, len(table.length), ("predict",))
    probabilities = probability(np.clip(paths["act"][:, 0, :, 0], -REACH, REACH), base)
    full = np.zeros(table.x.shape[:2])
    full[:, : probabilities.shape[1]] = probabilities
    return full


class TurnGRU(nn.Module):
    """Reads states one after another and gives a logit at each, [N, T]."""

    def __init__(self, inputs: int, width: int = 32):
        super().__init__()
        self.read = nn.GRU(inputs, width, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.read(x)[0])[..., 0]


class TurnLogistic(nn.Module):
    """A logit of a state alone, [N, T]."""

    def __init__(self, inputs: int):
        super().__init__()
        self.head = nn.Linear(inputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)[..., 0]


def fit_supervised(kind: str, table: TalkTable, epochs: int, key: pl.Key) -> nn.Module:
    """A network fitted to outcomes by cross-entropy over all turns, with weight decay 1e-3."""
    made = TurnGRU if kind == "gru" else TurnLogistic
    net = pl.control.draw_network(lambda: made(table.x.shape[2]), (*key, kind))
    optimiser = torch.optim.AdamW(net.parameters(), 1e-2, weight_decay=1e-3)
    x, y = torch.from_numpy(table.x), torch.from_numpy(table.converted).float()
    alive = torch.from_numpy(table.alive).float()
    for epoch in range(epochs):
        order = pl.rng_of((*key, kind, epoch)).permutation(len(x))
        for rows in np.array_split(order, max(1, len(x) // 64)):
            target = y[rows, None].expand(len(rows), x.shape[1])
            each = nn.functional.binary_cross_entropy_with_logits(
                net(x[rows]), target, reduction="none"
            )
            loss = (each * alive[rows]).sum() / alive[rows].sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return net


def supervised_probabilities(net: nn.Module, table: TalkTable) -> np.ndarray:
    """[N, T]"""
    with torch.no_grad():
        return torch.sigmoid(net(torch.from_numpy(table.x))).numpy().astype(float)


# ---- how good they are


def calibration_error(p: np.ndarray, y: np.ndarray) -> float:
    """sum_b n_b / n |mean p - mean y| over ten equal bins of p."""
    at = np.minimum((p * BINS).astype(int), BINS - 1)
    parts = [at == b for b in range(BINS)]
    return float(sum(abs(p[k].sum() - y[k].sum()) for k in parts) / len(p))


def scores_of(p: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Of predictions [M]: "brier", "log_loss" (nats; p within 0.001 of 0 and 1 is moved there),
    "calibration_error" and "accuracy".
    """
    sure = np.clip(p, LEAST, 1 - LEAST)
    return {
        "brier": float(((p - y) ** 2).mean()),
        "log_loss": float(-np.where(y > 0, np.log(sure), np.log(1 - sure)).mean()),
        "calibration_error": calibration_error(p, y),
        "accuracy": float(((p >= 0.5) == (y >= 0.5)).mean()),
    }


def measure_predictions(
    p: np.ndarray, table: TalkTable, rewarded: Rewarded, flip: float, bonus: float
) -> dict[str, float]:
    """The numbers of an arm: as of `measure_arm`, where "return" is the sum over the messages of a
    conversation of 1 - (p - y)^2, and the scores of all messages together and of the last one.
    """
    alive, y = table.alive, table.converted[:, None] + np.zeros_like(p)
    before = np.concatenate([p[:, :1], p[:, :-1]], 1)
    last = table.length - 1
    end = np.arange(len(p)), last
    true = ((1 - (p - y) ** 2) * alive).sum(1)
    own = (turn_rewards(p, before, y, rewarded, flip) * alive).sum(1)
    own = own + bonus * turn_rewards(p[end], p[end], y[end], rewarded, 0.0)
    varies = np.ptp(true) > 1e-9 and np.ptp(own) > 1e-9
    ends = scores_of(p[end], y[end])
    return {
        "return": float(true.mean()),
        "error": float(true.std(ddof=1) / len(true) ** 0.5) if len(true) > 1 else 0.0,
        "learned_from": float(own.mean()),
        "agreement": float(np.corrcoef(true, own)[0, 1]) if varies else 0.0,
        **scores_of(p[alive], y[alive]),
        "brier_last": ends["brier"],
        "accuracy_last": ends["accuracy"],
    }


def scores_by_turn(p: np.ndarray, table: TalkTable) -> list[dict[str, float]]:
    """The scores at each message, of the conversations that have it."""
    lines = list[dict[str, float]]()
    for t in range(p.shape[1]):
        rows = table.length > t
        if rows.any():
            lines.append(
                {
                    "turn": t + 1,
                    "n": int(rows.sum()),
                    **scores_of(p[rows, t], table.converted[rows]),
                }
            )
    return lines


# ---- what it knows that it does not know


def distances(x: np.ndarray, known: np.ndarray) -> np.ndarray:
    """[M] the mean distance of embeddings [M, E] to the nearest five of the `known` ones [K, E]."""
    near = min(NEAR, len(known))
    distance_N = np.zeros(len(x))
    for rows in np.array_split(np.arange(len(x)), max(1, len(x) // 256)):
        square = (
            np.square(x[rows]).sum(1)[:, None] + np.square(known).sum(1) - 2 * x[rows] @ known.T
        )
        distance_N[rows] = np.sqrt(np.maximum(np.partition(square, near - 1, 1)[:, :near], 0)).mean(
            1
        )
    return distance_N


def selective(
    p: np.ndarray, y: np.ndarray, doubt: np.ndarray, threshold: float
) -> Mapping[str, float]:
    """ "coverage", the share of predictions that are given, with the Brier scores of these ("risk_kept")
    and of those that are withheld ("risk_withheld", 0 where there is none); and "risk_area", the mean
    of the risk over all coverages.
    """
    risk, kept = (p - y) ** 2, doubt <= threshold
    order = np.argsort(doubt, kind="stable")
    mean = lambda part: float(risk[part].mean()) if part.any() else 0.0
    return {
        "coverage": float(kept.mean()),
        "risk_kept": mean(kept),
        "risk_withheld": mean(~kept),
        "risk_area": float((np.cumsum(risk[order]) / np.arange(1, len(risk) + 1)).mean()),
    }
