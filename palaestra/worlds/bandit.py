"""Bandits that are drawn: each turn one of K arms is pulled and pays a reward, whose mean is not known.

    buttons B, K, Q, R, S. ...                                                        assistant: Q

    bernoulli    one arm, drawn, pays 1 with probability 1/2 + gap/2, the others with 1/2 - gap/2
    gaussian     means ~ Normal(0, variance), rewards ~ Normal(mean, variance)
    contextual   with features=d: x ~ Normal(0, I), theta_k ~ Normal(0, I/d), reward ~ Normal(theta_k . x, variance)

The environments are those of EVOLvE (arXiv:2410.06238): K 5 or 20, gap 0.5 or 0.2, variance 1 or 3. Expected
regret of uniform play is T (K - 1)/K gap: 48 with K=5, gap 0.2, T=300. A reward follows from the key of the
episode, the turn and the arm alone, so that players of one episode meet the same rewards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Literal

import numpy as np

from palaestra.control.bandits import ALPHA
from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.schedule import check_bounds
from palaestra.suggest import no_setting
from palaestra.tasks.spec import parse_alone
from palaestra.types import (
    Act,
    Ask,
    Frame,
    Key,
    Message,
    Task,
    need_at_least,
    rng_of,
    stage,
    value_class,
)
from palaestra.worlds.explore import ExploreBandit, read_arm

LETTERS = "BCDEFGHJKLMNPQRSTUVWXYZ"  # names of arms: no article, no pronoun, no digit
SCENARIOS = {
    "buttons": "There are {n} buttons, {names}. Pressing one pays a reward, each with a mean of its own.",
    "ads": "You can show one of {n} ads, {names}. The reward says whether it was clicked.",
    "videos": "You recommend one of {n} videos, {names}. The reward says how much it was liked.",
    "clothes": "You recommend one of {n} pieces of clothing, {names}. The reward says how much it was liked.",
    "brief": "bandit",
}
Kind = Literal["bernoulli", "gaussian"]


@declare(
    columns=(
        ("names", tuple, "the names of a bandit's arms"),
        ("means", tuple, "by arm, the mean reward; () = it depends on a context"),
        ("weights", tuple, "by arm, the weights of a context's features in its mean reward"),
        ("noise", float, "the standard deviation of a reward; 0 = a reward is 0 or 1"),
    )
)
@stage
class BanditTasks:
    """Bandits that are drawn; `test_size` are held out. The names of the arms are drawn too, but for the
    scenario "brief", which models of little skill read.
    """

    arms: int = 5
    gap: float = 0.5
    kind: Kind = "bernoulli"
    variance: float = 1.0
    features: int = 0
    scenario: str = "buttons"
    name: str = "bandit"
    size: int | None = None
    test_size: int = 16

    def __post_init__(self) -> None:
        need_at_least(self, arms=2, features=0, variance=0)
        check_bounds("bandit: gap", self.gap, least=0, most=1)
        if self.kind not in ("bernoulli", "gaussian"):
            raise UserError(f"bandit: kind is bernoulli or gaussian, not {self.kind!r}")
        if self.scenario not in SCENARIOS:
            raise UserError(
                f"bandit: scenario is one of {', '.join(SCENARIOS)}, not {self.scenario!r}"
            )

    def task(self, split: str, index: int) -> Task:
        if split not in ("train", "test"):
            raise UserError(f"{self.name} has no split {split!r}; use 'train' or 'test'")
        rng = rng_of(("bandit", repr(self), split, index))
        rounds = range(-(-self.arms // len(LETTERS)))
        pool = [f"{x}{i + 1 if i else ''}" for i in rounds for x in LETTERS]
        drawn_names = tuple(pool[i] for i in rng.permutation(len(pool))[: self.arms].tolist())
        names = tuple(pool[: self.arms]) if self.scenario == "brief" else drawn_names
        spread = self.variance**0.5
        means, weights, noise = (), (), spread
        if self.features:
            drawn = rng.normal(size=(self.arms, self.features)) / self.features**0.5
            weights = tuple(map(tuple, drawn.tolist()))
        elif self.kind == "gaussian":
            means = tuple((spread * rng.normal(size=self.arms)).tolist())
        else:
            best, noise = int(rng.integers(self.arms)), 0.0
            means = tuple(0.5 + self.gap / 2 * (1 if k == best else -1) for k in range(self.arms))
        text = SCENARIOS[self.scenario].format(n=self.arms, names=", ".join(names))
        return Task(
            id=f"{self.name}/{split}/{index}",
            prompt=(Message(role="user", content=text),),
            meta={"names": names, "means": means, "weights": weights, "noise": noise},
            domain=self.name,
        )


@value_class
class BanditState:
    """The bandit of a task, and the features of the present context."""

    names: tuple[str, ...]
    mean_K: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...]
    noise: float
    prompt: tuple[Message, ...]
    key: Key
    turn: int = 0
    context: tuple[float, ...] = ()


@stage
class DrawnBandit:
    """The bandit of a task, without an end: one seat, whose legal replies are the names of the arms."""

    seats: tuple[str, ...] = ("policy",)

    def reset(self, task: Task, key: Key) -> Frame:
        state = BanditState(
            names=tuple(task.meta["names"]),
            mean_K=tuple(task.meta["means"]),
            weights=tuple(map(tuple, task.meta["weights"])),
            noise=float(task.meta["noise"]),
            prompt=task.prompt,
            key=key,
        )
        return self._ask(state, {})

    def step(self, state: BanditState, acts: tuple[Act, ...], key: Key) -> Frame:
        rng = rng_of((*state.key, "arm", state.turn))
        arm = read_arm(acts[0].text, state.names)
        k = int(rng.integers(len(state.names))) if arm is None else state.names.index(arm)
        mean = self.expected(state)[state.names[k]]
        rng = rng_of((*state.key, "reward", state.turn, k))
        reward = mean + state.noise * rng.normal() if state.noise else float(rng.random() < mean)
        return self._ask(state, {("policy", ""): float(reward)}, state.turn + 1)

    def legal(self, state: BanditState) -> tuple[str, ...]:
        return state.names

    def features(self, state: BanditState) -> tuple[float, ...]:
        return state.context

    def expected(self, state: BanditState) -> Mapping[str, float]:
        """The mean reward of each arm, now."""
        means = state.mean_K or (np.asarray(state.weights) @ np.asarray(state.context)).tolist()
        return dict(zip(state.names, means, strict=True))

    def _ask(
        self, state: BanditState, pay: Mapping[tuple[str, str], float], turn: int = 0
    ) -> Frame:
        n, context = len(state.weights[0]) if state.weights else 0, ()
        if n:
            context = tuple(rng_of((*state.key, "context", turn)).normal(size=n).round(2).tolist())
        state = replace(state, turn=turn, context=context)
        context_text = f"\ncontext: {' '.join(f'{x:g}' for x in context)}" if n else ""
        *before, last = state.prompt
        say = (*before, replace(last, content=last.content + context_text))
        return Frame(state=state, asks=(Ask(seat="policy", say=say, new_row=True),), pay=pay)


def bandit_by_name(spec: str) -> tuple[BanditTasks, ExploreBandit]:
    """The world of `bandit(arms=N,gap=0.2,horizon=T,view=summary,...)`, and its bandits. Raises UserError
    for other settings.
    """
    given = parse_alone(spec, "bandit(arms=N,gap=0.2,horizon=T)").settings
    own: dict[str, Any] = {"horizon": 50, "view": "summary", "alpha": ALPHA}
    drawn = {f.name: f.default for f in fields(BanditTasks) if f.name not in ("name", "size")}
    known = {**own, **drawn}
    for key, value in given.items():
        if key not in known:
            raise UserError(no_setting("bandit", key, list(known)))
        if not isinstance(value, str if isinstance(known[key], str) else int | float):
            raise UserError(f"{spec}: {key} is {value!r}; it is such as {known[key]!r}")
    tasks = BanditTasks(**{k: v for k, v in given.items() if k in drawn}, name=spec)
    explained = tasks.scenario != "brief"
    return tasks, ExploreBandit(
        DrawnBandit(), told=explained, **{k: v for k, v in given.items() if k in own}
    )
