"""Evaluating a model that is not ours to train: it answers behind an OpenAI-compatible endpoint.

`palaestra eval --engine openai:http://localhost:8000/v1 --model NAME`
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from palaestra.engines.endpoint import EndpointPlayer
from palaestra.run import setup
from palaestra.run.context import RunContext
from palaestra.services.chat.endpoint import Endpoint
from palaestra.settings.fields import Settings
from palaestra.types import Player, Sampling

SCHEME = "openai:"


@dataclass
class Served(RunContext):
    """A context in which `endpoint` plays every seat that has no player of its own."""

    endpoint: Endpoint = field(default_factory=lambda: Endpoint(url=""))

    def cast(self, model: str, sampling: Sampling) -> dict[str, Player]:
        player: Player = EndpointPlayer(
            client=self.client(self.endpoint),
            sampling=sampling,
            policy=model,
            dialect=self.bench.dialect,
        )
        return {seat: self.players.get(seat, player) for seat in self.bench.world.seats}


def context(
    settings: Settings, key_env: str = "", *, talk: bool = True, out: Path | None = None
) -> RunContext:
    """The context of an evaluation: the run's own model, or the one behind openai:URL."""
    if not settings.engine.startswith(SCHEME):
        return setup.context(settings, talk=talk, out=out)
    own = setup.context(replace(settings, model="tiny", engine="own"), talk=talk, out=out)
    url = settings.engine.removeprefix(SCHEME)
    endpoint = Endpoint(url=url, model=settings.model, key_env=key_env, cache="")
    return Served(
        **{f.name: getattr(own, f.name) for f in fields(own) if f.init}, endpoint=endpoint
    )
