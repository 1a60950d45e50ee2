"""Where parts of a body and of objects are, in any simulator: as it says itself, or as numbers of its
observation.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.rmd_hoi.plan import CLOSE, MovementScene

PlacesOf: TypeAlias = Callable[[np.ndarray], Mapping[str, np.ndarray]]


@runtime_checkable
class TellsParts(Protocol):
    """A simulator that names its parts, and where they are by an observation [..., O]."""

    @property
    def body_parts(self) -> tuple[str, ...]: ...
    @property
    def object_parts(self) -> tuple[str, ...]: ...
    def places(self, obs: np.ndarray) -> Mapping[str, np.ndarray]: ...


@pl.value_class
class MovementParts:
    """Names, and a function from observations [..., O] to places [..., d] by name."""

    body: tuple[str, ...]
    objects: tuple[str, ...]
    places: PlacesOf

    @classmethod
    def of(cls, sim: pl.control.Simulator, body: str, objects: str) -> "MovementParts":
        """Of text such as "hand=0:3" and "box=3:6,flag=1/0/0": numbers 0 to 2 of an observation, or
        coordinates; without text what the simulator says.

        Raises UserError for text that cannot be read, and where nobody says.
        """
        if body and objects:
            parts = {role: read_parts(text, sim) for role, text in (("b", body), ("o", objects))}
            both = {**parts["b"], **parts["o"]}
            if len(both) < len(parts["b"]) + len(parts["o"]):
                raise pl.UserError("a part of the body and one of an object have the same name")
            if len(sizes := {size for size, _ in both.values()}) > 1:
                raise pl.UserError(f"parts have places of different dimensions, {sorted(sizes)}")
            places: PlacesOf = lambda obs: {k: read(obs) for k, (_, read) in both.items()}
            return cls(body=tuple(parts["b"]), objects=tuple(parts["o"]), places=places)
        if isinstance(sim, TellsParts) and not (body or objects):
            return cls(body=sim.body_parts, objects=sim.object_parts, places=sim.places)
        raise pl.UserError(
            "rmd-hoi needs to know where parts are: body='hand=0:3' objects='box=3:6,goal=6:9', numbers "
            "of an observation, or a simulator with body_parts, object_parts and places(obs)"
        )

    def scene(self, games: pl.control.Paths) -> MovementScene:
        """What lengths and speeds mean, by games of the start: the unit of length is half of the mean
        distance between parts of the body and of objects in the first step, the unit of speed the
        median of relative speeds.

        Raises UserError where nothing moves, or all parts are at one place.
        """
        obs, after = games["obs"], games["next_obs"]
        before, then = self.places(obs), self.places(after)
        alive = np.broadcast_to(games["alive"][:, None], obs.shape[:-1])
        away, speeds, close = list[float](), list[np.ndarray](), list[tuple[str, str]]()
        for b in self.body:
            for o in self.objects:
                gap, moved = before[o] - before[b], (then[o] - then[b]) - (before[o] - before[b])
                away.append(float(np.linalg.norm(gap[:, :, 0], axis=-1).mean()))
                speeds.append(np.linalg.norm(moved, axis=-1)[alive])
        unit, speed = 0.5 * float(np.mean(away)), float(np.median(np.concatenate(speeds)))
        if unit < 1e-9 or speed < 1e-9:
            raise pl.UserError(
                "in the first games no part moves, or all parts are at one place: check body= and objects="
            )
        pairs = [(b, o) for b in self.body for o in self.objects]
        close = [pair for pair, far in zip(pairs, away, strict=True) if far < CLOSE * unit]
        seen = np.concatenate([x[alive] for x in before.values()])
        return MovementScene(
            body=self.body,
            objects=self.objects,
            unit=unit,
            speed=speed,
            low=tuple(map(float, seen.min(0))),
            high=tuple(map(float, seen.max(0))),
            close=tuple(close),
        )


def spell_places(places: Mapping[str, np.ndarray]) -> str:
    """Where parts are at the start of games, a line each: in one game, and from where to where over all.

    Args:
        places: by name, [n, d].
    """
    spell = lambda x: "(" + ", ".join(f"{v:.2f}" for v in x) + ")"
    lines = list[str]()
    for name, at_nd in places.items():
        low, high = at_nd.min(0), at_nd.max(0)
        span = (
            f"; over games from {spell(low)} to {spell(high)}" if (high > low).any() else ", always"
        )
        lines.append(f"- {name}: {spell(at_nd[0])}{span}")
    return "\n".join(lines)


def spell_distances(
    places: Mapping[str, np.ndarray], body: Sequence[str], objects: Sequence[str]
) -> str:
    """How far each part of the body is from each of an object at the start, on average over games."""
    far = lambda b, o: float(np.linalg.norm(places[o] - places[b], axis=-1).mean())
    return "\n".join(
        f"- from {b}: " + ", ".join(f"{o} {far(b, o):.2f}" for o in objects) for b in body
    )


def read_parts(
    text: str, sim: pl.control.Simulator
) -> dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]]:
    """The dimensions of each part's place, and how it is read from observations."""
    return {name: read_place(name, place, sim) for name, place in split_parts(text)}


def split_parts(text: str) -> list[tuple[str, str]]:
    """The names and places of "hand=0:3,box=3:6". Raises UserError for other text."""
    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    if any(not (name and sign and place) for name, sign, place in pairs):
        raise pl.UserError(f"{text!r}: parts are written NAME=FIRST:END, or NAME=X/Y, with commas")
    if len({name for name, _, _ in pairs}) < len(pairs):
        raise pl.UserError(f"{text!r} names a part twice")
    return [(name, place) for name, _, place in pairs]


def read_place(
    name: str, text: str, sim: pl.control.Simulator
) -> tuple[int, Callable[[np.ndarray], np.ndarray]]:
    """FIRST:END are numbers of an observation, X/Y/... coordinates that stay."""
    first, colon, end = text.partition(":")
    try:
        if colon:
            a, b = int(first), int(end)
            if not 0 <= a < b <= sim.observation:
                raise ValueError(f"an observation has the numbers 0 to {sim.observation - 1}")
            return b - a, lambda obs: obs[..., a:b]
        fixed = np.array([float(x) for x in text.split("/")])
        if not np.isfinite(fixed).all():
            raise ValueError("coordinates are finite numbers")
    except ValueError as error:
        raise pl.UserError(f"part {name}={text}: {error}") from None
    return len(fixed), lambda obs: np.broadcast_to(fixed, (*obs.shape[:-1], len(fixed)))
