"""A family of pendulums with a hidden mass, length and friction, n of them at a time."""

from collections.abc import Mapping

import numpy as np

import palaestra as pl

Range = tuple[float, float]
GRAVITY, STEP, PARTS = 9.81, 0.2, 8  # m/s^2, seconds of a step, parts in which it is integrated
TORQUE, FASTEST, FARTHEST = 20.0, 8.0, 1.2  # N m, rad/s, rad of a target to each side


@pl.value_class
class PendulumState:
    """[n] each: the angle from hanging down and its speed, the target, and the hidden numbers."""

    angle: np.ndarray
    speed: np.ndarray
    target: np.ndarray
    mass: np.ndarray
    length: np.ndarray
    friction: np.ndarray


@pl.stage
class HiddenPendulums:
    """A pendulum is to be held at an angle that is drawn for each game, up to 1.2 rad to either side.

        m l^2 angle'' = 20 u - m g l sin(angle) - friction angle',  -1 <= u <= 1
        reward = -(angle - target)^2 - 0.01 angle'^2 - 0.01 u^2, after the step

    Holding it takes the torque m g l sin(target), so a controller that does not know mass and length is
    left with an error. Seen: cosine and sine of the angle, speed / 8, cosine and sine of the target. `facts`
    tells mass (kg), length (m) and friction (N m s).

    Args:
        mass, length, friction: ranges that are drawn from, evenly.
        outside: draws masses outside their range alone, on both sides, as far as a range `wider` times
            as wide goes; the others as ever.
    """

    mass: Range = (0.5, 1.5)
    length: Range = (0.8, 1.2)
    friction: Range = (0.05, 0.3)
    outside: bool = False
    wider: float = 1.5
    horizon: int = 40

    @property
    def agents(self) -> int:
        return 1

    @property
    def observation(self) -> int:
        return 5

    @property
    def actions(self) -> pl.control.Box:
        return pl.control.Box(low=(-1.0,), high=(1.0,))

    def masses(self, rng: np.random.Generator, n: int) -> np.ndarray:
        low, high = self.mass
        drawn = rng.uniform(low, high, n)
        if not self.outside:
            return drawn
        beyond = (self.wider - 1) / 2 * (drawn - low)  # from 0 to how far the wider range goes
        return np.where(rng.random(n) < 0.5, low - beyond, high + beyond)

    def reset(self, rng: np.random.Generator, n: int) -> PendulumState:
        return PendulumState(
            angle=rng.uniform(-0.5, 0.5, n),
            speed=np.zeros(n),
            target=rng.uniform(-FARTHEST, FARTHEST, n),
            mass=self.masses(rng, n),
            length=rng.uniform(*self.length, n),
            friction=rng.uniform(*self.friction, n),
        )

    def observe(self, state: PendulumState) -> np.ndarray:
        columns = (
            np.cos(state.angle),
            np.sin(state.angle),
            state.speed / FASTEST,
            np.cos(state.target),
            np.sin(state.target),
        )
        return np.stack(columns, -1)[:, None]

    def legal(self, state: PendulumState) -> None:
        return None

    def step(
        self, state: PendulumState, act_nA: np.ndarray, rng: np.random.Generator
    ) -> tuple[PendulumState, np.ndarray, np.ndarray]:
        u, angle, speed = act_nA[:, 0, 0], state.angle, state.speed
        inertia, pull = state.mass * state.length**2, state.mass * GRAVITY * state.length
        for _ in range(PARTS):
            torque = TORQUE * u - pull * np.sin(angle) - state.friction * speed
            speed = np.clip(speed + STEP / PARTS * torque / inertia, -FASTEST, FASTEST)
            angle = angle + STEP / PARTS * speed
        error = np.arctan2(np.sin(angle - state.target), np.cos(angle - state.target))
        paid = -(error**2) - 0.01 * speed**2 - 0.01 * u**2
        after = PendulumState(
            angle=angle,
            speed=speed,
            target=state.target,
            mass=state.mass,
            length=state.length,
            friction=state.friction,
        )
        return after, paid[:, None], np.zeros(len(u), bool)

    def facts(self, state: PendulumState) -> Mapping[str, np.ndarray]:
        names = ("mass", "length", "friction")
        return {name: getattr(state, name)[:, None] for name in names}
