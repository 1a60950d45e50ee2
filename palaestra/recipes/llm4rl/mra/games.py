"""Families of games that differ in the number of agents.

n games at a time, N agents in each, K actions.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.mra.network import Entities


@runtime_checkable
class SeesEntities(Protocol):
    """A simulator that says how its observations are built."""

    @property
    def entities(self) -> Entities:
        """(how many, numbers of each): first (1, numbers) of the agent itself, then each kind that it
        sees, in the order of the observation.
        """
        ...


@runtime_checkable
class HasEquilibria(Protocol):
    """A simulator that knows how much one agent can gain against the others."""

    def exploitability(self, policy_K: np.ndarray) -> float:
        """What a best answer earns above the policy, where all others play the policy."""
        ...


@pl.stage
class SpreadOfAny(pl.control.SimpleSpread):
    """Cooperative navigation of N agents to as many landmarks."""

    @property
    def entities(self) -> Entities:
        return ((1, 4), (self.agents, 2), (self.agents - 1, 2))


@pl.stage
class ResourceGame:
    """N agents each choose one of several resources, once, and do not see how many they are. A resource
    that at least `needed` agents chose pays its worth: to each of them, or with `shared` in equal parts.

    `hunt` is the default: what two agents should choose earns less than it could with three or four,
    and with five or six the best choice is one that never pays fewer.
    """

    agents: int = 2
    worths: tuple[float, ...] = (0.3, 0.6, 1.0)
    needed: tuple[int, ...] = (1, 3, 5)
    shared: bool = False

    horizon = 1
    observation = 1

    @property
    def actions(self) -> int:
        return len(self.worths)

    @property
    def entities(self) -> Entities:
        return ((1, 1),)

    def reset(self, rng: np.random.Generator, n: int) -> np.ndarray:
        return np.ones((n, self.agents, 1))

    def observe(self, state: np.ndarray) -> np.ndarray:
        return state

    def legal(self, state: np.ndarray) -> None:
        return None

    def step(
        self, state: np.ndarray, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        users_nA = (act_nA[:, :, None] == act_nA[:, None]).sum(-1)
        worth_nA = np.asarray(self.worths)[act_nA] * (users_nA >= np.asarray(self.needed)[act_nA])
        return state, worth_nA / (users_nA if self.shared else 1), np.ones(len(state), bool)

    def earnings(self, policy_K: np.ndarray) -> np.ndarray:
        """[K] what a choice earns on average where the N - 1 others play a policy:
        w E[(1 + X >= needed) / (1 + X if shared else 1)], X binomial with N - 1 and p.
        """
        users = np.arange(self.agents)[:, None]  # others with the same choice
        ways = np.array([math.comb(self.agents - 1, j) for j in range(self.agents)])[:, None]
        p = np.clip(policy_K, 0.0, 1.0)
        chance = ways * p**users * (1 - p) ** (self.agents - 1 - users)
        pays = (users + 1 >= np.asarray(self.needed)) / (users + 1 if self.shared else 1)
        return np.asarray(self.worths) * (chance * pays).sum(0)

    def exploitability(self, policy_K: np.ndarray) -> float:
        """0 where the policy is a Nash equilibrium."""
        earned_K = self.earnings(policy_K)
        return float(earned_K.max() - (policy_K * earned_K).sum())


def congestion_game(agents: int) -> ResourceGame:
    """Resources that are shared by those who choose them."""
    return ResourceGame(agents, (1.0, 0.6, 0.3), (1, 1, 1), True)


@pl.value_class
class PopulationGame:
    """One game of a family."""

    sim: pl.control.Simulator
    entities: Entities


def make_game(spec: str, agents: int, layout: str = "") -> PopulationGame:
    """The game of a family with some number of agents.

    Args:
        spec: "hunt", "congestion", "spread", or FILE.py:NAME, a function of the number of agents that makes a
            simulator in arrays or a parallel environment of PettingZoo.
        layout: of an observation, see `parse_layout`; "" = the simulator's `entities`, else all numbers
            are the agent's own.

    Raises UserError where a function makes something else, or observations do not have the layout.
    """
    if spec in BUILT_IN:
        sim: Any = BUILT_IN[spec](agents)
    else:
        make: Any = pl.tasks.load(spec, "function")
        try:
            sim = make(agents)
        except TypeError as error:
            raise pl.UserError(
                f"{spec}: mra calls it with the number of agents and takes a simulator: {error}"
            ) from None
        if hasattr(sim, "possible_agents"):
            sim = pl.control.ParallelSimulator(lambda: make(agents))
    lacks = [
        name
        for name in (
            "agents",
            "horizon",
            "observation",
            "actions",
            "reset",
            "observe",
            "legal",
            "step",
        )
        if not hasattr(sim, name)
    ]
    if lacks:
        raise pl.UserError(
            f"{spec} makes no simulator of several agents: it has no {' and no '.join(lacks)}"
        )
    if sim.agents != agents:
        raise pl.UserError(f"{spec} was asked for {agents} agents and makes {sim.agents}")
    entities: Entities = ((1, int(sim.observation)),)
    if layout:
        entities = parse_layout(layout, agents)
    elif isinstance(sim, SeesEntities):
        entities = tuple(sim.entities)
    total = sum(count * size for count, size in entities)
    if total != sim.observation or entities[0][0] != 1:
        raise pl.UserError(
            f"{spec}: {agents} agents see {sim.observation} numbers each, and the entities "
            f"{list(entities)} (how many, numbers of each; first the agent itself, once) have {total}"
        )
    return PopulationGame(sim=sim, entities=entities)


BUILT_IN: dict[str, Callable[[int], Any]] = {
    "hunt": ResourceGame,
    "congestion": congestion_game,
    "spread": SpreadOfAny,
}
PART = re.compile(r"(\d+)(?:\*(?:\(n-(\d+)\)|(n)|(\d+)))?")


def parse_layout(text: str, agents: int) -> Entities:
    """ "4,2*n,2*(n-1)" as ((1, 4), (n, 2), (n - 1, 2)): numbers of each, times how many there are.

    Raises UserError for anything else.
    """
    entities = list[tuple[int, int]]()
    for part in text.replace(" ", "").split(","):
        if (match := PART.fullmatch(part)) is None:
            raise pl.UserError(
                f"layout={text}: {part!r} is no part of a layout such as 4,2*n,2*(n-1): numbers of "
                "each entity times how many there are, n the number of agents"
            )
        size, less, n, count = match.groups()
        many = agents - int(less) if less else agents if n else int(count or 1)
        entities.append((max(0, many), int(size)))
    return tuple(entities)


def parse_populations(text: str | int | Sequence[int], name: str) -> tuple[int, ...]:
    """ "2,3,4" as numbers of agents. Raises UserError for anything else."""
    parts = text.split(",") if isinstance(text, str) else [text] if isinstance(text, int) else text
    try:
        numbers = tuple(int(x) for x in parts)
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1 or len(set(numbers)) < len(numbers):
        raise pl.UserError(f"{name}={text}: numbers of agents, each once, such as {name}=2,3,4")
    return numbers
