"""Any environment of Gymnasium as a simulator, n copies of it stepped one after the other.

Environments hold their state themselves, so a state here is used once: from an older one nothing can
be stepped. Simulators in arrays are much faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from palaestra.control.simulators import Box
from palaestra.errors import UserError
from palaestra.tasks.user_modules import import_registrar
from palaestra.types import value_class

NO_SETTINGS: Mapping[str, Any] = {}
OLD_FORM = (
    "the environment has the form of the library gym: reset(seed=...) has to return (observation, info) and step "
    "(observation, reward, terminated, truncated, info); wrap it in shimmy's GymV21CompatibilityV0 or "
    "GymV26CompatibilityV0"
)


@value_class
class GymState:
    obs_nAO: np.ndarray
    over_n: np.ndarray
    number: int  # of the state among those of the simulator


class GymCopies:
    """What simulators over copies of an environment share: the copies move on, so only the newest state can
    be stepped from, and every action is legal.
    """

    _number = 0

    def observe(self, state: GymState) -> np.ndarray:
        return state.obs_nAO

    def legal(self, state: GymState) -> None:
        return None

    def _check(self, state: GymState) -> None:
        """Raises UserError for an older state than the newest."""
        if state.number != self._number:
            raise UserError("environments cannot be stepped from an older state")

    def _state(self, obs_nAO: np.ndarray, over_n: np.ndarray) -> GymState:
        self._number += 1
        return GymState(obs_nAO=obs_nAO, over_n=over_n, number=self._number)


class GymSimulator(GymCopies):
    """An environment by its id, or a function that makes one. It needs the extra `gymnasium`.

    Args:
        env: an id, or MODULE:ID where importing MODULE registers it.
        horizon: steps after which a game is cut.
        settings: keywords for an id.

    A game that lasts `horizon` steps is cut there, not over; the limit that an id comes with is the
    default, and is taken off the environment. One that an environment cuts itself before is over.

    Observations are flattened; parts of a dictionary that are no numbers, as MiniGrid's mission is
    none, are left out.

    Raises UserError for spaces other than Discrete and Box actions, where gymnasium or MODULE is missing,
    and for an environment without a limit and without a horizon.
    """

    def __init__(
        self,
        env: str | Callable[[], Any],
        horizon: int = 0,
        settings: Mapping[str, Any] = NO_SETTINGS,
    ):
        try:
            import gymnasium
        except ImportError:
            raise UserError("gymnasium is missing; `pip install 'palaestra[gymnasium]'`") from None
        self._spaces: Any = gymnasium.spaces
        if isinstance(env, str):
            name, limit = registered(gymnasium, env)
            self._make: Callable[[], Any] = lambda: gymnasium.make(
                name, max_episode_steps=-1, **settings
            )
            horizon = horizon or limit
        else:
            self._make = env
        check_horizon(env, horizon)
        self.horizon, self.agents = horizon, 1
        try:
            self._envs = [self._make()]
        except (TypeError, gymnasium.error.Error) as error:
            if not isinstance(env, str):
                raise
            raise UserError(f"{env} cannot be made: {' '.join(str(error).split())}") from None
        self._steps = 0
        self._space = numbers_of(self._spaces, self._envs[0].observation_space)
        self.observation = int(self._spaces.flatdim(self._space))
        self._first, self.actions = read_actions(self._spaces, self._envs[0].action_space)

    def reset(self, rng: np.random.Generator, n: int) -> GymState:
        while len(self._envs) < n:
            self._envs.append(self._make())
        seeds, self._steps = rng.integers(1 << 31, size=n).tolist(), 0
        observations = [begin(e, s) for e, s in zip(self._envs, seeds, strict=False)]
        return self._state(
            np.stack([self._flat(x) for x in observations])[:, None], np.zeros(n, bool)
        )

    def step(
        self, state: GymState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[GymState, np.ndarray, np.ndarray]:
        """Who is over is not stepped on."""
        self._check(state)
        obs, over_n = state.obs_nAO[:, 0].copy(), state.over_n.copy()
        paid_n = np.zeros(len(obs))
        self._steps += 1
        for i in np.flatnonzero(~state.over_n):
            given = act_nA[i, 0]
            if isinstance(self.actions, Box):
                given = np.reshape(given, self._envs[i].action_space.shape)
            else:
                given = int(given) + self._first
            reply = self._envs[i].step(given)
            if len(reply) != 5:
                raise UserError(OLD_FORM)
            seen, paid_n[i], ended, cut, _ = reply
            obs[i], over_n[i] = self._flat(seen), ended or (cut and self._steps < self.horizon)
        return self._state(obs[:, None], over_n), paid_n[:, None], over_n

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """[O] the least and the largest that each number of an observation may be."""
        flat = self._spaces.flatten_space(self._space)
        return np.asarray(flat.low, float), np.asarray(flat.high, float)

    @property
    def environment(self) -> Any:
        """One of the copies, without its wrappers."""
        return self._envs[0].unwrapped

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _flat(self, x: Any) -> np.ndarray:
        return flat_numbers(self._spaces, self._space, x)


def begin(env: Any, seed: int) -> Any:
    """The first observation. Raises UserError for an environment of the form before Gymnasium."""
    try:
        start = env.reset(seed=seed)
    except TypeError as error:
        if "'seed'" not in str(error):
            raise
        raise UserError(OLD_FORM) from None
    if not (isinstance(start, tuple) and len(start) == 2):
        raise UserError(OLD_FORM)
    return start[0]


def registered(gymnasium: Any, env: str) -> tuple[str, int]:
    """The id of ID or MODULE:ID, and its limit of steps, 0 for none. Raises UserError where there is none."""
    import_registrar(env, env)
    name = env.rpartition(":")[2]
    try:
        return name, int(gymnasium.spec(name).max_episode_steps or 0)
    except gymnasium.error.Error as error:
        raise UserError(str(error)) from None


def check_horizon(env: str | Callable[..., Any], horizon: int) -> None:
    """Raises UserError where games would have no end."""
    if isinstance(env, str) and not horizon:
        raise UserError(
            f"{env} comes without a limit of steps, so it needs a horizon: gymnasium:{env}(horizon=STEPS)"
        )
    if not horizon:
        raise UserError("an environment without a limit of its own needs a horizon, in steps")


def numbers_of(spaces: Any, space: Any) -> Any:
    """A space without the parts of a dictionary that cannot be flattened. Raises UserError where none is left."""
    if isinstance(space, spaces.Dict):
        parts = {k: v for k, v in space.items() if is_numbers(spaces, v)}
        if parts:
            return space if len(parts) == len(space) else spaces.Dict(parts)
    if not is_numbers(spaces, space):
        raise UserError(f"observations of {space} are no numbers, which a learner reads")
    return space


def is_numbers(spaces: Any, space: Any) -> bool:
    """Whether it can be flattened into numbers; text is none, though Gymnasium numbers its letters."""
    if isinstance(space, spaces.Text):
        return False
    try:
        return bool(spaces.flatdim(space))
    except (NotImplementedError, ValueError):
        return False


def flat_numbers(spaces: Any, space: Any, x: Any) -> np.ndarray:
    """An observation as float32; a dictionary may have more parts than `space`."""
    if isinstance(space, spaces.Dict):
        x = {k: x[k] for k in space}
    return np.asarray(spaces.flatten(space, x), np.float32)


def read_actions(spaces: Any, space: Any) -> tuple[int, int | Box]:
    """The number of the first action, and the actions of a space of Gymnasium's. Raises UserError for others."""
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.n)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low, high = (tuple(map(float, x.ravel())) for x in (space.low, space.high))
        return 0, Box(low=low, high=high)
    raise UserError(f"a simulator has Discrete actions or a Box of real numbers, not {space}")
