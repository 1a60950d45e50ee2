"""Cooperative navigation as LaRe asks about it, and what a large model answered once: what lare runs
on where the user brings nothing.
"""

from collections.abc import Sequence

import palaestra as pl

QUANTITIES: pl.control.Quantities = {
    "nearest_landmark": pl.control.Quantity(
        low=0.0, high=6.0, about="distance to the landmark that is nearest to the agent"
    ),
    "all_landmarks": pl.control.Quantity(
        low=0.0, high=18.0, about="sum of the agent's distances to all three landmarks"
    ),
    "approach": pl.control.Quantity(
        low=-0.3, high=0.3, about="how much nearer that landmark is than a step ago"
    ),
    "nearest_agent": pl.control.Quantity(
        low=0.0, high=6.0, about="distance to the nearest other agent; below 0.3 they touch"
    ),
    "touching": pl.control.Quantity(low=0.0, high=2.0, about="number of agents that it touches"),
    "speed": pl.control.Quantity(low=0.0, high=2.0, about="of the agent"),
    "from_centre": pl.control.Quantity(
        low=0.0, high=6.0, about="distance to the middle of the field, which is 2 by 2"
    ),
}
ABOUT = """Three agents move in a plane with three landmarks. As a team they should cover all \
landmarks, one agent each, and not bump into one another. They are paid once, after 25 steps."""


@pl.stage
class Navigation(pl.control.SimpleSpread):
    """The simulator with what a question about it tells."""

    about: str = ABOUT

    @property
    def declared(self) -> pl.control.Quantities:
        return QUANTITIES


def op(name: str, *args: object) -> dict[str, object]:
    return {"op": name, "args": list(args)}


NEAR, CLOSE = op("neg", "nearest_landmark"), op("exp", op("multiply", -3, "nearest_landmark"))
ROOM, ARRIVED = op("minimum", "nearest_agent", 0.6), op("less", "nearest_landmark", 0.1)
# what a large model answered to the five requests, and to the one that merges them
CANDIDATES: tuple[Sequence[object], ...] = (
    (NEAR, "approach", op("neg", "touching"), ARRIVED),
    (CLOSE, op("neg", "touching"), ROOM, "approach"),
    (
        NEAR,
        op("neg", "all_landmarks"),
        ROOM,
        op("neg", op("maximum", 0, op("subtract", "from_centre", 1))),
    ),
    (ARRIVED, "approach", op("multiply", ARRIVED, op("neg", "speed")), op("neg", "touching")),
    (op("neg", op("square", "nearest_landmark")), CLOSE, op("neg", "touching"), "nearest_agent"),
)
MERGED: Sequence[object] = (
    NEAR, CLOSE, "approach", ARRIVED, op("neg", "touching"), ROOM, op("neg", "all_landmarks"),
    op("multiply", ARRIVED, op("neg", "speed")),
)  # fmt: skip


def recorded(request: pl.ChatRequest) -> dict[str, object]:
    """The recorded answer to a request. A large model wrote it while this file was written,
    so it knew the simulator and its rewards, not only the question.
    """
    chosen = MERGED if request.temperature < 1 else CANDIDATES[request.seed % len(CANDIDATES)]
    return {"expressions": list(chosen)}
