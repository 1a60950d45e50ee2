"""Candidates for `Coverage` that a large model wrote once: what lero runs on where nobody is asked."""

from collections.abc import Mapping
from typing import Any

import palaestra as pl


def op(name: str, *args: Any) -> dict[str, Any]:
    return {"op": name, "args": list(args)}


def weigh(weight: float, x: Any) -> dict[str, Any]:
    return op("multiply", weight, x)


LANDMARKS = range(3)
NEARER = [op("less", f"landmark_{k}_distance", f"landmark_{k}_rival") for k in LANDMARKS]
CLAIMED = [op("less", f"landmark_{k}_rival", f"landmark_{k}_distance") for k in LANDMARKS]
FREE = [op("multiply", NEARER[k], f"landmark_{k}_{axis}") for k in LANDMARKS for axis in "xy"]
CLOSE = [op("exp", weigh(-3.0, f"landmark_{k}_distance")) for k in LANDMARKS]
CROWD = [op("exp", weigh(-3.0, f"other_{j}_distance")) for j in range(2)]
APART = op("neg", "touching")

# two generations of three
WRITTEN: tuple[Mapping[str, Any], ...] = (
    {"reward": [op("neg", "own_distance"), weigh(0.5, APART)], "features": CLOSE},
    {"reward": ["contribution", weigh(0.5, APART)], "features": CLAIMED},
    {
        "team_weight": 0.8,
        "own_weight": 0.2,
        "reward": [op("exp", weigh(-3.0, "own_distance"))],
        "features": CROWD,
    },
    {
        "reward": ["contribution", op("neg", "own_distance"), weigh(0.5, APART)],
        "features": [*CLAIMED, *FREE],
    },
    {"reward": ["contribution", weigh(0.5, APART)], "features": FREE},
    {
        "team_weight": 0.7,
        "own_weight": 0.3,
        "reward": ["contribution", op("neg", "worst_distance")],
        "features": [*CLAIMED, *CROWD],
    },
)


def recorded(request: pl.ChatRequest) -> Mapping[str, Any]:
    """The candidate of the request's number. A large model wrote them while this file was written, so
    it knew the simulator, and it never saw how the candidates before did.
    """
    return WRITTEN[request.seed % len(WRITTEN)]
