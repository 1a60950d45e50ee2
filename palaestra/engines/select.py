"""Engines: what samples from a model. `own` runs in this process; the others serve the same weights from elsewhere."""

from __future__ import annotations

from typing import Protocol

from palaestra.engines.own import OwnEngine
from palaestra.engines.vllm import VllmEngine
from palaestra.models.load import Model
from palaestra.rollout.dialect import Chat
from palaestra.types import Completion, Key, Sampling, UserError


class Engine(Protocol):
    """Samples from one model, for any number of coroutines at a time."""

    version: int  # of the weights, as every sample carries it

    @property
    def exact(self) -> bool:
        """Samples come from the trainer's own weights, in float32 arithmetic: there is no mismatch to measure."""
        ...

    @property
    def dialect(self) -> Chat: ...
    @property
    def busy(self) -> bool: ...
    @property
    def seconds(self) -> float:
        """Spent in this engine so far."""
        ...

    @property
    def sampled_tokens(self) -> int: ...

    async def generate(self, prompt: tuple[int, ...], sampling: Sampling, key: Key) -> Completion:
        """Continues `prompt` with the random stream of `key`. Raises `Fault`."""
        ...

    def forget(self) -> None:
        """To be told that the weights move, before anybody asks again. Memory that held what they computed is given back."""
        ...

    def close(self) -> None: ...


def build(name: str, model: Model, *, slots: int, cache_mb: int) -> Engine:
    """The engine called `name` over a model. Raises `UserError` where it is unknown or not installed."""
    if name == "own":
        return OwnEngine(model, slots=slots, cache_mb=cache_mb)
    if name == "vllm":
        return VllmEngine(model, slots=slots, cache_mb=cache_mb)
    raise UserError(f"unknown engine {name!r}: use --engine own or --engine vllm")
