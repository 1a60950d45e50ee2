"""Double deep Q learning on pages: games are played, their steps stored, and values learned from these.

    y = r + gamma (1 - over) Q'(s', argmax_a Q(s', a)),   a = (element, click or text of a field)

over legal actions (arXiv:1509.06461); Q' follows Q. The greatest Q of all actions is found in factors: it
is the sum of the greatest of each, so no action has to be tried.
"""

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from safetensors.torch import load_file, save_file

import palaestra as pl
from palaestra.recipes.agents.qweb.network import (
    ILLEGAL,
    PageView,
    QWebNetwork,
    flat_legal,
    stack_views,
)

Action: TypeAlias = tuple[
    int, int | None
]  # element, and the field whose value is typed; None = click
WEIGHTS, ABOUT = "{}.safetensors", "{}.json"


class PageGame(Protocol):
    """One episode on a page: a state is a value."""

    @property
    def limit(self) -> int:
        """Actions, at most. Who is not over by then has failed."""
        ...

    def start(self) -> Any: ...
    def view(self, state: Any, taken: int = 0) -> PageView:
        """What is seen of a state behind so many actions."""
        ...

    def step(self, state: Any, action: Action) -> tuple[Any, float, bool]:
        """The next state, the reward, and whether the episode is over."""
        ...

    def failure(self) -> float:
        """What running into the limit pays beside."""
        ...

    def solved(self, state: Any) -> bool: ...


G = TypeVar("G", bound=PageGame)


class InstructedGame(PageGame, Protocol):
    """An episode in which an instruction is carried out, told for people."""

    @property
    def helped(self) -> bool:
        """Whether it is made easier than a held-out one."""
        ...

    def pairs(self, state: Any) -> tuple[tuple[str, str], ...]: ...
    def describe(self, state: Any, action: Action) -> str: ...
    def progress(self, state: Any) -> float: ...


@dataclass(frozen=True, slots=True)
class PageStep:
    """A stored transition."""

    view: PageView
    action: Action
    reward: float
    after: PageView
    over: bool


@dataclass(frozen=True, slots=True)
class PlayedPage(Generic[G]):
    """What became of a game.

    Args:
        states: before each step, and at the end.
    """

    game: G
    steps: tuple[PageStep, ...]
    states: tuple[Any, ...]
    over: bool  # before the limit

    @property
    def solved(self) -> bool:
        return self.over and self.game.solved(self.states[-1])

    @property
    def total(self) -> float:
        return sum(s.reward for s in self.steps)


def flat_index(action: Action, fields: int) -> int:
    """e (1 + F), and 1 + f behind it where text of field f is typed."""
    element, typed = action
    return element * (1 + fields) + (0 if typed is None else 1 + typed)


def greedy_action(q_EF: np.ndarray, legal_EF: np.ndarray) -> Action:
    """The best legal action of q [E, 1 + F]."""
    best = int(np.where(legal_EF, q_EF, ILLEGAL).argmax())
    element, column = divmod(best, q_EF.shape[1])
    return element, None if column == 0 else column - 1


def random_action(legal_EF: np.ndarray, rng: np.random.Generator) -> Action:
    """Each factor drawn in turn among what is legal: the element, click or text, the field."""
    rows = np.flatnonzero(legal_EF.any(1))
    element = int(rows[rng.integers(len(rows))])
    fields = np.flatnonzero(legal_EF[element, 1:])
    if len(fields) and (not legal_EF[element, 0] or rng.random() < 0.5):
        return element, int(fields[rng.integers(len(fields))])
    return element, None


def play_pages(
    net: QWebNetwork, games: Sequence[G], epsilon: float, rng: np.random.Generator
) -> list[PlayedPage[G]]:
    """Plays games side by side to their end or limit; a random action with probability `epsilon`."""
    states = [[g.start()] for g in games]
    views = [g.view(s[0]) for g, s in zip(games, states, strict=True)]
    steps: list[list[PageStep]] = [[] for _ in games]
    ended = [False] * len(games)
    while playing := [i for i, g in enumerate(games) if not ended[i] and len(steps[i]) < g.limit]:
        with torch.no_grad():
            q_BEF = net(stack_views([views[i] for i in playing])).numpy()
        for i, q_EF in zip(playing, q_BEF, strict=True):
            legal = views[i].legal
            q_EF = q_EF[: legal.shape[0], : legal.shape[1]]
            explores = rng.random() < epsilon
            action = random_action(legal, rng) if explores else greedy_action(q_EF, legal)
            state, reward, over = games[i].step(states[i][-1], action)
            states[i].append(state)
            late = not over and len(steps[i]) + 1 == games[i].limit
            reward += games[i].failure() if late else 0.0
            after = games[i].view(state, len(steps[i]) + 1)
            steps[i].append(PageStep(views[i], action, reward, after, over or late))
            views[i], ended[i] = after, over
    rows = zip(games, steps, states, ended, strict=True)
    return [PlayedPage(g, tuple(s), tuple(seen), over) for g, s, seen, over in rows]


@dataclass
class PageLearner:
    """Values that learn from the steps that are stored, with those that follow them.

    Args:
        settings: of double Q learning.
        key: of the start and of all that is drawn.
    """

    settings: pl.control.DoubleQ
    key: pl.Key
    net: QWebNetwork = field(init=False)

    def __post_init__(self) -> None:
        s = self.settings
        if s.prior or s.cql or s.dueling:
            raise pl.UserError(
                "learner: prior, cql and dueling do nothing on pages; leave them out"
            )
        self.net, self.following = (new_network(s.width, self.key) for _ in range(2))
        self.stored: deque[PageStep] = deque(maxlen=s.keep)
        self.optimiser = torch.optim.Adam(self.net.parameters(), s.lr)

    async def learn(
        self,
        deal: Callable[[float, np.random.Generator], Sequence[G]],
        steps: int,
        log: Callable[[int, float, Sequence[PlayedPage[G]]], None],
    ) -> int:
        """Plays and learns for at least so many actions. How many they were.

        Args:
            deal: the games of an iteration, from the share of training and a stream.
            log: gets the number of actions so far, the loss and what was played.
        """
        taken, i = 0, 0
        while taken < steps:
            share = taken / steps
            rng = pl.rng_of((*self.key, "iteration", i))
            games = deal(share, rng)
            played = play_pages(self.net, games, self.settings.epsilon(share), rng)
            self.stored.extend(s for g in played for s in g.steps)
            taken, i = taken + sum(len(g.steps) for g in played), i + 1
            log(taken, self.update(rng), played)
        return taken

    def update(self, rng: np.random.Generator) -> float:
        """Learns `updates` batches. The mean of their losses."""
        losses = list[float]()
        for _ in range(self.settings.updates):
            rows = rng.integers(len(self.stored), size=self.settings.batch)
            loss = self.loss([self.stored[i] for i in rows])
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            pl.control.follow_network(self.following, self.net, self.settings.follow)
            losses.append(float(loss.detach()))
        return float(np.mean(losses)) if losses else 0.0

    def loss(self, steps: Sequence[PageStep]) -> torch.Tensor:
        """Huber's loss of the values of what was done."""
        before, after = stack_views([s.view for s in steps]), stack_views([s.after for s in steps])
        number = lambda values: torch.tensor(list(values), dtype=torch.float32)
        with torch.no_grad():
            y_B = pl.control.q_targets(
                number(s.reward for s in steps),
                number(s.over for s in steps),
                self.net(after).flatten(1),
                self.following(after).flatten(1),
                self.settings.gamma,
                flat_legal(after),
            )
        q_BEF = self.net(before)
        fields = q_BEF.shape[2] - 1
        done = torch.tensor([flat_index(s.action, fields) for s in steps])
        q_B = q_BEF.flatten(1).gather(1, done[:, None])[:, 0]
        return torch.nn.functional.smooth_l1_loss(q_B, y_B)


def new_network(width: int, key: pl.Key) -> QWebNetwork:
    """The network whose start is the key's, wherever torch's own stream stands, which stays there."""
    return pl.control.draw_network(lambda: QWebNetwork(width), key)


def save_network(net: QWebNetwork, folder: Path, name: str) -> None:
    """Writes NAME.safetensors and NAME.json."""
    tensors = {k: v.contiguous() for k, v in net.state_dict().items()}
    save_file(tensors, folder / WEIGHTS.format(name))
    (folder / ABOUT.format(name)).write_text(json.dumps({"width": net.width}) + "\n")


def load_network(folder: Path, name: str) -> QWebNetwork:
    """A network as it was saved. Raises UserError for a folder that holds none."""
    try:
        net = new_network(int(json.loads((folder / ABOUT.format(name)).read_text())["width"]), ())
        net.load_state_dict(load_file(folder / WEIGHTS.format(name)))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise pl.UserError(f"{folder} holds no {name} network of qweb: {error}") from None
    return net
