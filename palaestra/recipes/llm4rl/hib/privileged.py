"""A simulator with what a robot observes in front, and behind it what only the simulator knows.

n games, A agents, O numbers that are observed, E that are privileged.
"""

from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.hib.network import scale_actions


def parse_columns(text: str, size: int, name: str) -> tuple[int, ...]:
    """Numbers of an observation, "0,1,4-6". Raises UserError for others than 0 to size - 1."""
    try:
        columns = list[int]()
        for part in text.split(","):
            first, _, last = part.strip().partition("-")
            columns += range(int(first), int(last or first) + 1)
    except ValueError:
        columns = []
    if not columns or len(set(columns)) < len(columns) or not all(0 <= c < size for c in columns):
        raise pl.UserError(
            f"{name}={text} names no columns: an observation has {size} numbers, such as {name}=0,1,4-6, "
            f"each once, from 0 to {size - 1}"
        )
    return tuple(columns)


class PrivilegedView:
    """The games of a simulator; an observation is [O observed, E privileged]. Actions with bounds go from
    -1 to 1 in each dimension.

    `privileged` are names of the simulator's `facts`, or numbers of its observation as in "3,4-6";
    `observed` are numbers of its observation, "" = all that are not privileged. An observation that is
    privileged and observed is refused.

    Raises UserError where there are no such columns, or none is left to be observed.
    """

    def __init__(self, sim: Any, privileged: str, observed: str = ""):
        self.sim, self.agents, self.horizon = sim, sim.agents, sim.horizon
        size, text = sim.observation, str(privileged).strip()
        names = [x.strip() for x in text.split(",") if x.strip()]
        if not names:
            raise pl.UserError(
                "hib needs privileged=NAME,NAME, facts of the simulator, or privileged=3,4, numbers of its "
                "observation: what the simulator knows and the robot does not see"
            )
        self.names: tuple[str, ...] = ()
        self.hidden: tuple[int, ...] = ()
        if all(x[0].isdigit() for x in names):
            self.hidden = parse_columns(text, size, "privileged")
        else:
            self.names = tuple(names)
            self._check_facts(text)
        rest = [c for c in range(size) if c not in self.hidden]
        self.seen = (
            parse_columns(str(observed), size, "observed") if str(observed).strip() else tuple(rest)
        )
        if both := set(self.seen) & set(self.hidden):
            raise pl.UserError(f"column {min(both)} is in privileged and in observed")
        if not self.seen:
            raise pl.UserError(f"privileged={text} leaves nothing of {size} numbers to be observed")
        self.privileged = len(self.names) + len(self.hidden)
        self.observation = len(self.seen) + self.privileged
        box = sim.actions
        self.actions, self.bounds = box, None
        if isinstance(box, pl.control.Box) and np.isfinite(np.array([box.low, box.high])).all():
            self.bounds: pl.control.Box | None = box
            self.actions = pl.control.Box(low=(-1.0,) * box.size, high=(1.0,) * box.size)

    def _check_facts(self, text: str) -> None:
        if not isinstance(self.sim, pl.control.TellsFacts):
            raise pl.UserError(
                f"privileged={text}: the simulator has no facts(state); give numbers of its observation, "
                "privileged=3,4"
            )
        sim: Any = self.sim
        known = sim.facts(sim.reset(pl.rng_of(("hib", "facts")), 1))
        if lacks := [x for x in self.names if x not in known]:
            message = f"the simulator tells no {lacks[0]}; its facts are {', '.join(known)}"
            if any(x[0].isdigit() for x in lacks):
                message += (
                    f"; privileged={text}: names of facts and numbers of the observation do not mix"
                )
            raise pl.UserError(message)
        for name in self.names:
            self._check_fact(name, known[name])

    def _check_fact(self, name: str, fact: Any) -> None:
        """Raises UserError for one that is no number of each agent in each game."""
        try:
            shape, finite = np.shape(fact), bool(np.isfinite(np.asarray(fact, np.float64)).all())
        except (TypeError, ValueError):
            raise pl.UserError(
                f"the fact {name} of the simulator is no array of numbers [games, agents]; privileged facts are"
            ) from None
        if shape != (1, self.agents):
            raise pl.UserError(
                f"the fact {name} of the simulator has the form {list(shape)} for one game; a privileged "
                f"fact is one number of each agent, [games, agents], here [1, {self.agents}]; write each "
                "number of a vector as a fact of its own, and one of a whole game [games, 1] times agents"
            )
        if not finite:
            raise pl.UserError(
                f"the fact {name} of the simulator is not finite at the start of a game"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the privileged numbers."""
        return self.names or tuple(f"number {c}" for c in self.hidden)

    def reset(self, rng: np.random.Generator, n: int) -> Any:
        return self.sim.reset(rng, n)

    def observe(self, state: Any) -> np.ndarray:
        obs = self.sim.observe(state)
        parts = [obs[..., self.seen]]
        if self.hidden:
            parts.append(obs[..., self.hidden])
        else:
            facts = self.sim.facts(state)
            parts.append(np.stack([facts[name] for name in self.names], -1))
        return np.concatenate(parts, -1).astype(np.float32)

    def legal(self, state: Any) -> np.ndarray | None:
        return self.sim.legal(state)

    def step(
        self, state: Any, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        return self.sim.step(state, self.command(act_nA), rng)

    def command(self, act: np.ndarray) -> np.ndarray:
        """Actions of the simulator for those from -1 to 1; others as they are."""
        return act if self.bounds is None else scale_actions(act, self.bounds)
