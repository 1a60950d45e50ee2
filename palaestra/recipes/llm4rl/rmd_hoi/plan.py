"""A plan of relative movements: phases, each a bipartite graph between parts of a body and of objects,
with targets.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

import palaestra as pl

CONTACT, APPROACH, SEPARATE, FREE = range(4)
TRENDS = {
    CONTACT: "they stay in contact, at rest to each other",
    APPROACH: "the distance shrinks",
    SEPARATE: "the distance grows",
    FREE: "no consistent trend",
}
MOST_PHASES, MARGIN = (
    8,
    0.1,
)  # how far outside of what was seen a target may lie, of its range or the unit
CLOSE = 0.5  # units within which parts may touch without a phase that brings them together
FILE = "plan.json"


class MovementEdge(BaseModel):
    """How a part of the body moves relative to a part of an object."""

    model_config = ConfigDict(extra="forbid")
    body: str
    object: str
    trend: int = Field(ge=CONTACT, le=FREE)


class MovementTarget(BaseModel):
    """Where a part should be: at another part, or at coordinates."""

    model_config = ConfigDict(extra="forbid")
    part: str
    place: str | list[float]


class MovementPhase(BaseModel):
    """G = {T_H, T_O, B}: targets of body and object, and the graph. Pairs that it does not name have no
    consistent trend.
    """

    model_config = ConfigDict(extra="forbid")
    edges: list[MovementEdge]
    body_target: MovementTarget | None = None
    object_target: MovementTarget | None = None


class MovementPlan(BaseModel):
    """What a language model writes."""

    phases: list[MovementPhase] = Field(min_length=1, max_length=MOST_PHASES)


@pl.value_class
class MovementScene:
    """The parts of a simulator, and what lengths and speeds mean in it.

    Args:
        unit: the length that counts as 1.
        speed: the speed that counts as 1, in lengths of the simulator a step.
        low, high: the places that parts had in sampled games, [d].
        close: pairs of parts that may touch from the start.
    """

    body: tuple[str, ...]
    objects: tuple[str, ...]
    unit: float
    speed: float
    low: tuple[float, ...]
    high: tuple[float, ...]
    close: tuple[tuple[str, str], ...] = ()

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(b, o) for b in self.body for o in self.objects]

    def form(self) -> type[MovementPlan]:
        """The model of plans without a fault, for `ask_for`: who writes another hears what is wrong."""
        scene = self

        class CheckedMovementPlan(MovementPlan):
            @model_validator(mode="after")
            def check(self) -> "CheckedMovementPlan":
                if wrong := faults_of(self, scene):
                    raise ValueError(wrong[0])
                return self

        return CheckedMovementPlan


def faults_of(plan: MovementPlan, scene: MovementScene) -> list[str]:
    """What is wrong with a plan: unknown parts, a pair twice in a phase, targets outside of the scene, a
    phase that asks for nothing, one of approach or separation alone, which a step at any distance would
    end, and contact of parts that nothing has brought together.
    """
    wrong, together = list[str](), set(scene.close)
    for i, phase in enumerate(plan.phases, start=1):
        pairs = [(e.body, e.object) for e in phase.edges]
        for edge in phase.edges:
            if edge.body not in scene.body:
                wrong.append(f"phase {i}: there is no body part {edge.body!r}; {scene.body}")
            if edge.object not in scene.objects:
                wrong.append(f"phase {i}: there is no object part {edge.object!r}; {scene.objects}")
        if len(set(pairs)) < len(pairs):
            wrong.append(f"phase {i}: a pair of parts has two edges")
        wrong += _faults_of_targets(phase, scene, i)
        trends = {e.trend for e in phase.edges} - {FREE}
        if not (phase.body_target or phase.object_target) and CONTACT not in trends:
            wrong.append(
                f"phase {i}: a trend is judged on one step, so one step at any distance would end this "
                "phase; give it a target, which says how far parts should approach or separate"
                if trends
                else f"phase {i} asks for nothing: it has neither a trend nor a target"
            )
        for edge, pair in zip(phase.edges, pairs, strict=True):
            if edge.trend == CONTACT and pair not in together:
                wrong.append(f"phase {i}: {pair} touch, and no phase before lets them approach")
            if edge.trend == APPROACH:
                together.add(pair)
            if edge.trend == SEPARATE:
                together.discard(pair)
    return wrong


def _faults_of_targets(phase: MovementPhase, scene: MovementScene, i: int) -> list[str]:
    wrong, known = list[str](), (*scene.body, *scene.objects)
    for target, parts in ((phase.body_target, scene.body), (phase.object_target, scene.objects)):
        if target is None:
            continue
        if target.part not in parts:
            wrong.append(f"phase {i}: the target's part {target.part!r} is none of {parts}")
        if isinstance(target.place, str):
            if target.place not in known or target.place == target.part:
                wrong.append(f"phase {i}: there is no place {target.place!r}; there are {known}")
            continue
        low, high = np.array(scene.low), np.array(scene.high)
        # a dimension without spread, as of a table's height, is given a part of the unit of length
        place, slack = np.array(target.place), MARGIN * np.maximum(high - low, scene.unit)
        if place.shape != low.shape:
            wrong.append(f"phase {i}: a place has {len(low)} coordinates")
        elif ((place < low - slack) | (place > high + slack)).any():
            wrong.append(f"phase {i}: {target.place} lies outside of the scene, {low} to {high}")
    return wrong


def trends_of(plan: MovementPlan, scene: MovementScene) -> np.ndarray:
    """[N, E] the trend of every pair of parts in every phase."""
    rows = [{(e.body, e.object): e.trend for e in phase.edges} for phase in plan.phases]
    return np.array([[row.get(pair, FREE) for pair in scene.pairs] for row in rows])


def contacts_alone(plan: MovementPlan) -> MovementPlan:
    """A chain of contacts (arXiv:2309.07918): targets, and of the trends contact alone."""
    phases = [
        p.model_copy(update={"edges": [e for e in p.edges if e.trend == CONTACT]})
        for p in plan.phases
    ]
    kept = [p for p in phases if p.edges or p.body_target or p.object_target]
    return MovementPlan.model_construct(phases=kept)


def shuffle_trends(plan: MovementPlan, rng: np.random.Generator) -> MovementPlan:
    """The same graph with its trends in another order, over all phases: sorted, then turned by as many
    as the most frequent trend has, so that no edge keeps its own if none is that of more than half.
    """
    edges = [e for phase in plan.phases for e in phase.edges]
    trends = np.array([e.trend for e in edges], int)
    order = np.argsort(trends + 0.5 * rng.random(len(trends)))
    turned = np.empty_like(trends)
    turned[order] = np.roll(trends[order], int(np.bincount(trends).max()) if len(trends) else 0)
    return with_trends(plan, turned.tolist())


def spoil_trends(plan: MovementPlan, share: float, rng: np.random.Generator) -> MovementPlan:
    """Each trend is another one with probability `share`: how wrong a plan may be."""
    edges = [e for phase in plan.phases for e in phase.edges]
    moved = rng.integers(1, len(TRENDS), len(edges)) * (rng.random(len(edges)) < share)
    trends = [(e.trend + int(m)) % len(TRENDS) for e, m in zip(edges, moved, strict=True)]
    return with_trends(plan, trends)


def with_trends(plan: MovementPlan, trends: Sequence[int]) -> MovementPlan:
    """The plan with other trends, edge by edge."""
    left = iter(trends)
    phases = [
        p.model_copy(
            update={"edges": [e.model_copy(update={"trend": next(left)}) for e in p.edges]}
        )
        for p in plan.phases
    ]
    return MovementPlan.model_construct(phases=phases)


@pl.value_class
class MovementFile:
    """Plans, one for each task, with what a policy that followed them needs: plan.json, beside the policy."""

    plans: tuple[MovementPlan, ...]
    scene: MovementScene
    threshold: float
    body: str = ""  # text of the parts, as `MovementParts.of` takes it
    objects: str = ""
    arrive: bool = False  # see `MovementSimulator`

    def save(self, folder: Path) -> None:
        """Writes plan.json."""
        scene = {k: getattr(self.scene, k) for k in MovementScene.__dataclass_fields__}
        record: dict[str, Any] = {
            "plans": [p.model_dump() for p in self.plans],
            "scene": scene,
            "threshold": self.threshold,
        }
        record |= {"body": self.body, "objects": self.objects, "arrive": self.arrive}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text(json.dumps(record, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path | str) -> "MovementFile":
        """What `save` wrote. Raises UserError for a folder without a plan."""
        try:
            record: dict[str, Any] = json.loads((Path(folder) / FILE).read_text())
            scene = {k: record["scene"][k] for k in MovementScene.__dataclass_fields__}
            scene |= {k: tuple(scene[k]) for k in ("body", "objects", "low", "high")}
            scene["close"] = tuple((str(a), str(b)) for a, b in scene["close"])
            return cls(
                plans=tuple(MovementPlan.model_validate(p) for p in record["plans"]),
                scene=MovementScene(**scene),
                threshold=float(record["threshold"]),
                body=str(record["body"]),
                objects=str(record["objects"]),
                arrive=bool(record.get("arrive", False)),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise pl.UserError(f"{folder} holds no plan of rmd-hoi: {error}") from None
