"""Subgoals as regions of places, the options that reach them, and the library that keeps these.

n games, A agents, O numbers of an observation, P coordinates of a place, K options.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, create_model

import palaestra as pl

GESTATION = 5  # successes, until which an option may begin anywhere
NEIGHBOURS, RECORDED = 5, 512  # calls that say where an option begins, and those that are kept
OVERLAP, LIKENESS = 0.5, 0.8  # above which an option is used again: of regions, and of names
STEP_COST = 0.1  # of an option's step on its way to the region
# log-probabilities of what is tried, in nats and up to their sum: the global option, an option where the
# subgoal before its own is reached, where it is not, and one that comes first
GLOBAL, FOLLOWS, UNRELATED, FIRST = -1.0, 1.0, -2.0, 0.0


@runtime_checkable
class TellsPlaces(Protocol):
    """A simulator that tells where an agent can be [C, Q]: x and y where these are in `visible`, then its
    other quantities in their order; they may be fewer than it has.
    """

    @property
    def places(self) -> np.ndarray: ...


@runtime_checkable
class TellsRoute(Protocol):
    """A simulator that tells the places of a shortest way to its goal [S, Q], in the order of
    `TellsPlaces`, for an oracle.
    """

    def route(self) -> np.ndarray: ...


@pl.value_class
class SubgoalRegion:
    """Places whose coordinates are each within `radius` of the `centre`; `after` names the subgoal
    that comes before it, "" = none.
    """

    name: str
    centre: tuple[float, ...]
    radius: float
    after: str = ""

    def holds(self, place: np.ndarray) -> np.ndarray:
        """[...] bool of places [..., P]."""
        return np.asarray((np.abs(place - np.array(self.centre)) <= self.radius).all(-1))


def region_overlap(one: SubgoalRegion, other: SubgoalRegion) -> float:
    """Intersection over union of two regions, which are cubes. In one dimension radius 1 and centres 0.5
    apart give 1.5 / 2.5 = 0.6.
    """
    far = np.abs(np.array(one.centre) - np.array(other.centre))
    shared = np.minimum(2 * min(one.radius, other.radius), one.radius + other.radius - far)
    both = float(np.prod(np.maximum(0.0, shared)))
    P = len(one.centre)
    return both / ((2 * one.radius) ** P + (2 * other.radius) ** P - both)


def name_likeness(one: str, other: str) -> float:
    """The cosine of two names as counts of three letters in a row, without case."""
    counts = [
        Counter(f"  {x.lower()} "[i : i + 3] for i in range(len(x) + 1)) for x in (one, other)
    ]
    dot = sum(counts[0][k] * counts[1][k] for k in counts[0])
    size = [sum(v * v for v in c.values()) ** 0.5 for c in counts]
    return dot / (size[0] * size[1]) if all(size) else 0.0


@pl.value_class
class PlaceWords:
    """Where an agent is: the quantities of its observation that are coordinates, with bounds, and the
    places [S, P] where games began.
    """

    view: pl.control.ViewWords
    names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    starts: np.ndarray

    @classmethod
    def of(cls, sim: pl.control.Simulator, games: pl.control.Paths, names: str) -> "PlaceWords":
        """The quantities of `names`, else x and y, else the first two numbers of an observation. Bounds
        that are those of games alone are doubled, as a goal may lie where they did not come.

        Raises UserError for quantities that the simulator does not have.
        """
        view = pl.control.ViewWords.of(sim, games)
        known = list(view.visible)
        axes = [n.strip() for n in names.split(",") if n.strip()]
        axes = axes or coordinates_first(known)[:2]
        if unknown := [n for n in axes if n not in known]:
            raise pl.UserError(
                f"place={names}: there is no {unknown[0]!r}; there are {', '.join(known)}"
            )
        has_view = hasattr(sim, "visible") and hasattr(sim, "view")
        low, high = [], []
        for name in axes:
            quantity = view.visible[name]
            more = 0.0 if has_view else (quantity.high - quantity.low) / 2
            low.append(quantity.low - more)
            high.append(quantity.high + more)
        columns = view.compute(games["obs"][:, 0, 0])
        return cls(
            view=view,
            names=tuple(axes),
            low=tuple(low),
            high=tuple(high),
            starts=np.stack([columns[n] for n in axes], -1),
        )

    def places(self, obs: np.ndarray) -> np.ndarray:
        """[..., P] of observations [..., O]."""
        columns = self.view.compute(obs)
        return np.stack([columns[n] for n in self.names], -1)

    def own(self, place: np.ndarray) -> np.ndarray | None:
        """[S, P] of places that a simulator tells [S, Q], see `TellsPlaces`; None where they lack one of
        the coordinates.
        """
        coordinates = coordinates_first(list(self.view.visible))[: place.shape[1]]
        if not set(self.names) <= set(coordinates):
            return None
        return place[:, [coordinates.index(n) for n in self.names]]

    def free(self, sim: pl.control.Simulator) -> np.ndarray | None:
        """[C, P] where an agent can be, or None where the simulator does not tell."""
        return self.own(sim.places) if isinstance(sim, TellsPlaces) else None

    def route(self, sim: pl.control.Simulator) -> np.ndarray | None:
        """[S, P] of a shortest way, or None where the simulator does not tell."""
        return self.own(sim.route()) if isinstance(sim, TellsRoute) else None

    def spelled(self) -> str:
        return "\n".join(
            f"- {n}: from {low:.4g} to {high:.4g} ({self.view.visible[n].about})"
            for n, low, high in zip(self.names, self.low, self.high, strict=True)
        )

    def form(self, most: int) -> type[BaseModel]:
        """What a reply has to fit: 1 to `most` subgoals within the bounds, with a radius of at most half
        of the widest coordinate's, as one that is larger may hold everywhere.
        """
        widest = max(high - low for low, high in zip(self.low, self.high, strict=True))
        fields: dict[str, Any] = {
            n: (float, Field(ge=low, le=high))
            for n, low, high in zip(self.names, self.low, self.high, strict=True)
        }
        fields |= {
            "name": (str, Field(min_length=1, max_length=80)),
            "after": (str | None, None),
            "radius": (float, Field(gt=0, le=widest / 2 if widest > 0 else None)),
        }
        config = ConfigDict(coerce_numbers_to_str=True)
        item: Any = create_model("SubgoalReply", __config__=config, **fields)
        several: Any = (list[item], Field(min_length=1, max_length=most))
        return create_model("SubgoalReplies", subgoals=several)

    def regions(
        self, reply: dict[str, Any], free: np.ndarray | None
    ) -> tuple[list[SubgoalRegion], int]:
        """The subgoals of a reply, and how many were dropped as duplicates of others.

        Args:
            free: places [C, P] where an agent can be: a centre that is none is moved to the nearest.
        """
        regions: list[SubgoalRegion] = []
        for given in reply["subgoals"]:
            centre = np.array([given[n] for n in self.names])
            if free is not None:
                centre = free[np.abs(free - centre).sum(1).argmin()]
            region = SubgoalRegion(
                name=given["name"],
                centre=tuple(map(float, centre)),
                radius=given["radius"],
                after=given["after"] or "",
            )
            if all(region_overlap(region, other) <= OVERLAP for other in regions):
                regions.append(region)
        return regions, len(reply["subgoals"]) - len(regions)


def coordinates_first(known: Sequence[str]) -> list[str]:
    """Names of quantities, x and y before the others where there are both."""
    first = ["x", "y"] if {"x", "y"} <= set(known) else []
    return [*first, *(n for n in known if n not in first)]


def exchange_coordinates(
    regions: Sequence[SubgoalRegion], words: PlaceWords, key: pl.Key
) -> list[SubgoalRegion]:
    """The control: each coordinate is that of another subgoal, drawn for each coordinate by itself, so
    number, radii and each coordinate's values stay what they are. A subgoal alone, and subgoals of one
    coordinate, are mirrored between the bounds.
    """
    if not regions:
        return []
    centres = np.array([r.centre for r in regions])
    if min(centres.shape) < 2:
        centres = np.array(words.low) + np.array(words.high) - centres
    for axis in range(1, centres.shape[1] if len(regions) > 1 else 1):
        rng = pl.rng_of((*key, "exchange", axis))
        centres[:, axis] = pl.control.shuffle_rows(centres[:, axis : axis + 1], rng)[:, 0]
    return [
        SubgoalRegion(name=r.name, centre=tuple(map(float, c)), radius=r.radius, after=r.after)
        for r, c in zip(regions, centres, strict=True)
    ]


@dataclass
class SubgoalOption:
    """A region with the values that reach it, and the places [M, P] where its calls began, with whether
    each succeeded. A call is one row, however long: a failed one is longer than most that succeed. What fails
    before `GESTATION` successes is no row, as it says what the option has not learned yet.
    """

    region: SubgoalRegion
    learner: pl.control.QLearner
    words: PlaceWords
    place_MP: np.ndarray = field(init=False)
    success_M: np.ndarray = field(init=False)
    successes: int = 0
    calls: int = 0

    def __post_init__(self) -> None:
        self.place_MP, self.success_M = np.zeros((0, len(self.region.centre))), np.zeros(0, bool)

    def reached(self, obs: np.ndarray) -> np.ndarray:
        """[m] of observations [m, A, O]."""
        return self.region.holds(self.words.places(obs[:, 0]))

    def can_begin(self, obs: np.ndarray) -> np.ndarray:
        """[m] anywhere until `GESTATION` successes; then where most of the calls that began nearest
        succeeded.
        """
        if self.successes < GESTATION:
            return np.ones(len(obs), bool)
        place = self.words.places(obs[:, 0])
        far = np.abs(place[:, None] - self.place_MP).sum(-1)
        k = min(NEIGHBOURS, far.shape[1])
        near = np.argpartition(far, k - 1, axis=1)[:, :k]
        return self.success_M[near].mean(1) > 0.5

    def option(self, timeout: int, epsilon: float) -> pl.control.Option:
        acting = self.learner.settings.acting(self.learner.values, epsilon)
        return pl.control.Option(
            name=self.region.name,
            act=acting,
            timeout=timeout,
            reached=self.reached,
            can_begin=self.can_begin,
        )

    def observe(self, games: pl.control.OptionGames, number: int, key: pl.Key) -> None:
        """Learns from the steps of all options: -cost a step, 0 into the region, and where the game is
        over elsewhere, from where the region is never reached, the worst that steps could cost,
        -cost / (1 - gamma). And notes from where its own calls succeeded. What the game cut says nothing.
        """
        steps = pl.control.option_paths(games, number, own=False)
        arrives = steps["over"] & self.region.holds(self.words.places(steps["next_obs"][:, 0]))
        paid = np.where(steps["over"], -self._worst(games.sim.horizon), -STEP_COST)
        self.learner.update(steps, np.where(arrives, 0.0, paid)[:, None], key)
        self._note(games, number)

    def _worst(self, horizon: int) -> float:
        """What steps without end cost, at this value of later ones; those of a game at gamma 1."""
        gamma = self.learner.settings.gamma
        return STEP_COST / (1 - gamma) if gamma < 1 else STEP_COST * horizon

    def _note(self, games: pl.control.OptionGames, number: int) -> None:
        place = self.words.places(games.paths()["obs"][:, 0])
        for call in games.calls:
            if call.option != number or not call.steps:
                continue
            self.calls += 1
            if call.end == pl.control.CUT:
                continue
            success = call.end == pl.control.REACHED
            if not success and self.successes < GESTATION:
                continue
            self.successes += success
            began = place[call.game, call.start]
            self.place_MP = np.concatenate([self.place_MP, began[None]])[-RECORDED:]
            self.success_M = np.append(self.success_M, success)[-RECORDED:]


def stored_option(
    library: Sequence[SubgoalOption], region: SubgoalRegion
) -> tuple[SubgoalOption | None, bool]:
    """The option of a library that serves a region, and whether its region does too (they overlap);
    else it is one with a like name, whose values are a start alone.
    """
    near = [(region_overlap(o.region, region), i) for i, o in enumerate(library)]
    if near and max(near)[0] > OVERLAP:
        return library[max(near)[1]], True
    like = [(name_likeness(o.region.name, region.name), i) for i, o in enumerate(library)]
    if like and max(like)[0] > LIKENESS:
        return library[max(like)[1]], False
    return None, False


def tree_prior(regions: Sequence[SubgoalRegion], words: PlaceWords) -> pl.control.Prior:
    """[..., 1 + K] log-probabilities, up to their sum, by which options are tried: one whose subgoal
    comes after another is tried most where the agent is at that one. The first option is global.
    """
    by_name = {r.name: r for r in regions}

    def prior(obs: np.ndarray) -> np.ndarray:
        place = words.places(obs)
        columns = [np.full(obs.shape[:-1], GLOBAL)]
        for region in regions:
            before = by_name.get(region.after)
            if before is None:
                columns.append(np.full(obs.shape[:-1], FIRST))
            else:
                columns.append(np.where(before.holds(place), FOLLOWS, UNRELATED))
        return np.stack(columns, -1)

    return prior
