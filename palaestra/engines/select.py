"""Engines: what samples from a model. `own` runs in this process; the others serve the same weights
from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from palaestra.context import Engine
from palaestra.engines.own import OwnEngine
from palaestra.engines.vllm import VllmEngine, check_served
from palaestra.models.load import Model
from palaestra.plugins import pick

ENGINES: Mapping[str, Callable[..., Engine]] = {"own": OwnEngine, "vllm": VllmEngine}


def build(name: str, model: Model, *, slots: int, cache_mb: int) -> Engine:
    """The engine called `name` over a model, one of ours or a plugin.

    Args:
        slots: sequences that run at a time.
        cache_mb: memory for their keys and values, in MiB.

    Raises:
        UserError: it is unknown or not installed, or another package's factory fails.
    """
    return factory(name)(model, slots=slots, cache_mb=cache_mb)


def check(name: str, model: Model) -> None:
    """Raises UserError for an engine that could not sample from the model, before anything runs."""
    if factory(name) is VllmEngine:
        check_served(model)


def factory(name: str) -> Callable[..., Engine]:
    """What makes the engine called `name`."""
    return pick("engines", name, ENGINES, lambda p: p.factory(Engine, "an engine"))
