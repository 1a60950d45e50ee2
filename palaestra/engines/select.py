"""Engines: what samples from a model. `own` runs in this process; the others serve the same weights
from elsewhere. They are named as tasks are: NAME, or NAME(setting=value).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from inspect import Parameter
from typing import Any, Protocol, runtime_checkable

from palaestra.context import Engine
from palaestra.engines.drafts import sources_of
from palaestra.engines.formats import check_format
from palaestra.engines.own import OwnEngine
from palaestra.engines.vllm import NO_ROUTES, VllmEngine, check_served
from palaestra.errors import UserError
from palaestra.models.load import Model
from palaestra.models.routing import routers_to_replay
from palaestra.plugins import pick
from palaestra.suggest import no_setting
from palaestra.tasks.spec import parse_alone

ENGINES: Mapping[str, Callable[..., Engine]] = {"own": OwnEngine, "vllm": VllmEngine}
NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
OF_THE_RUN = ("model", "slots", "cache_mb")  # which flags of their own give


@runtime_checkable
class Rests(Protocol):
    """An engine that may give its memory back while the run learns."""

    def rest(self) -> None: ...


def build(spec: str, model: Model, *, slots: int, cache_mb: int) -> Engine:
    """The engine that `spec` names over a model, one of ours or a plugin.

    Args:
        slots: sequences that run at a time.
        cache_mb: memory for their keys and values, in MiB.

    Raises:
        UserError: it is unknown or not installed, has no such settings, or another package's
            factory fails.
    """
    make, settings = _read(spec)
    return make(model, slots=slots, cache_mb=cache_mb, **settings)


def check(spec: str, model: Model) -> None:
    """Raises UserError for an engine that could not sample from the model, before anything runs."""
    make, settings = _read(spec)
    if make is VllmEngine:
        check_served(model, **settings)
    if make is OwnEngine:
        check_format(settings.get("dtype", ""), model.device.type)
        sources_of(settings.get("drafts", "off"))
        if settings.get("router_replay", False):
            routers_to_replay(model)


def gpus_of(spec: str) -> int:
    """GPUs that the engine takes in each process that samples with it."""
    make, settings = _read(spec)
    return settings.get("tp", 1) if make is VllmEngine else 1


def samples_apart(spec: str) -> bool:
    """Whether the own engine is to sample from copies of the weights in another dtype, and so from
    another distribution than the trainer's.
    """
    return spec.startswith("own(") and bool(_read(spec)[1].get("dtype"))


def factory(name: str) -> Callable[..., Engine]:
    """What makes the engine called `name`."""
    return pick("engines", name, ENGINES, lambda p: p.factory(Engine, "an engine"))


def _read(spec: str) -> tuple[Callable[..., Engine], Mapping[str, Any]]:
    """What makes an engine, and its settings. Raises UserError."""
    part = parse_alone(spec, "--engine NAME or --engine 'NAME(setting=value)'")
    make = factory(part.name)
    kinds = {name: p.kind for name, p in inspect.signature(make).parameters.items()}
    takes = [n for n, kind in kinds.items() if n not in OF_THE_RUN and kind in NAMED]
    others = Parameter.VAR_KEYWORD in kinds.values()
    for key in part.settings:
        if key in OF_THE_RUN:
            flag = key.replace("_", "-")
            raise UserError(f"engine {part.name!r} has no setting {key!r}; that is --{flag}")
        if key == "router_replay" and make is VllmEngine:
            raise UserError(NO_ROUTES)
        if key not in takes and not others:
            raise UserError(no_setting(f"engine {part.name!r}", key, takes))
    return make, part.settings
