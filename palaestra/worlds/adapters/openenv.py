"""Environments behind an OpenEnv server as worlds: `openenv:http://localhost:8000`, or `OpenEnvWorld`.

Each episode is a session of the server. An action is JSON on the last line of a reply; where the
server's schema has a single field, the reply itself is its value.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import httpx2
import numpy as np

from palaestra.errors import UserError
from palaestra.types import stage
from palaestra.worlds.adapters.base import (
    POLICY,
    AdaptedWorld,
    Illegal,
    Live,
    Lives,
    Scene,
    library_call,
    missing_library,
    show,
)

UNSEEN = ("metadata", "done", "reward")  # fields of every observation and action
SECONDS = 10.0  # until a server must say what actions it takes
REFUSED = "VALIDATION_ERROR"  # the server's code for an action that does not fit its schema


@stage
class OpenEnvWorld(AdaptedWorld):
    """What an OpenEnv server plays (https://github.com/huggingface/OpenEnv).

    Args:
        url: of the server.
        settings: keywords for every `reset`, beside the seed.
        sessions: episodes that the server allows at a time, its `max_concurrent_envs`.
        render: the text for an observation, a dictionary. Without it its fields, a line each.
        read: the action, a dictionary, that a reply means; ValueError for none.

    An action that does not fit the server's schema is illegal; any other error is a fault.
    """

    draws: ClassVar[bool] = False
    url: str
    settings: tuple[tuple[str, Any], ...] = ()
    sessions: int = 1
    render: Callable[[Mapping[str, Any]], str] | None = None
    read: Callable[[str], Mapping[str, Any]] | None = None
    schema: Mapping[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        load_client(self.label)
        object.__setattr__(self, "lives", Lives(self.sessions))
        object.__setattr__(self, "schema", action_schema(self.url))

    @property
    def label(self) -> str:
        return f"openenv:{self.url}"

    def open_live(self) -> Live:
        return OpenEnvSession(self, load_client(self.label)(base_url=self.url))

    def describe(self) -> str:
        return self.intro or ("" if self.read is not None else self.ways())

    def ways(self) -> str:
        """How an action is said."""
        kinds = {k: v.get("type", "any") for k, v in properties(self.schema).items()}
        if (name := only_field(self.schema)) is not None:
            return f"Reply with the {name} ({kinds[name]})"
        named = ", ".join(f"{k} ({kind})" for k, kind in kinds.items())
        return f"Reply with JSON on the last line, an object with {named}"


def load_client(label: str) -> Any:
    """The library's client for any environment."""
    try:
        from openenv.core import GenericEnvClient  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise missing_library(label, "OpenEnv", "openenv", error) from None
    return GenericEnvClient


def action_schema(url: str) -> Mapping[str, Any]:
    """The JSON schema of a server's actions. Raises UserError where no server answers."""
    try:
        response = httpx2.get(f"{url.rstrip('/')}/schema", timeout=SECONDS)
        response.raise_for_status()
        return response.json()["action"]
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"openenv:{url}: no OpenEnv server answers there ({type(error).__name__}: {error}); "
            "start it, or mend the URL"
        ) from None


def properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The fields of an action that are its own."""
    return {k: v for k, v in schema.get("properties", {}).items() if k not in UNSEEN}


def only_field(schema: Mapping[str, Any]) -> str | None:
    """The single field that must be given, or the single one that there is."""
    known = list(properties(schema))
    needed = [k for k in schema.get("required", ()) if k in known] or known
    return needed[0] if len(needed) == 1 else None


@dataclass
class OpenEnvSession:
    """One episode."""

    world: OpenEnvWorld
    client: Any

    async def start(self, seed: int) -> Scene:
        with library_call(self.world.label):
            await self.client.connect()
            result = await self.client.reset(seed=seed, **dict(self.world.settings))
        return self.scene(result)

    async def act(self, action: str) -> Scene:
        with library_call(self.world.label):
            try:
                result = await self.client.step(json.loads(action))
            except RuntimeError as error:
                if REFUSED not in str(error):
                    raise
                result = None
        if result is None:
            raise Illegal(f"That is no legal action. {self.world.ways()}")
        return self.scene(result)

    def scene(self, result: Any) -> Scene:
        seen = {k: v for k, v in result.observation.items() if k not in UNSEEN}
        text = self.world.render(result.observation) if self.world.render else show(seen)
        pay = {POLICY: float(result.reward or 0.0)}
        return Scene(text=text, pay=pay, status="finished" if result.done else "")

    def read(self, text: str) -> str:
        if self.world.read is not None:
            try:
                return json.dumps(dict(self.world.read(text)), sort_keys=True)
            except ValueError as why:
                raise Illegal(f"That is no legal action: {why}") from None
        try:
            message = json.loads(text.strip().splitlines()[-1])
        except (ValueError, IndexError):
            message = text.strip()
        if isinstance(message, dict):
            return json.dumps(message, sort_keys=True)
        name = only_field(self.world.schema)
        if name is None or message == "":
            raise Illegal(f"That is no legal action. {self.world.ways()}")
        whole = properties(self.world.schema)[name].get("type") == "string"
        return json.dumps({name: text.strip() if whole else message})

    def sample(self, rng: np.random.Generator, how: str) -> str:
        raise NotImplementedError(how)

    async def close(self) -> None:
        await self.client.close()
