"""Engines: what samples from a model. `own` runs in this process; the others serve the same weights from elsewhere."""

from __future__ import annotations

from palaestra.context import Engine
from palaestra.engines.own import OwnEngine
from palaestra.engines.vllm import VllmEngine
from palaestra.errors import UserError
from palaestra.models.load import Model


def build(name: str, model: Model, *, slots: int, cache_mb: int) -> Engine:
    """The engine called `name` over a model. Raises `UserError` where it is unknown or not installed."""
    if name == "own":
        return OwnEngine(model, slots=slots, cache_mb=cache_mb)
    if name == "vllm":
        return VllmEngine(model, slots=slots, cache_mb=cache_mb)
    raise UserError(f"unknown engine {name!r}: use --engine own or --engine vllm")
