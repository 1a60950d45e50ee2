"""What other packages add, of all kinds: which names are ours, what works, what a run uses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from palaestra import catalogue
from palaestra.engines import select
from palaestra.errors import UserError
from palaestra.plugins import KINDS, Plugin, find, refused
from palaestra.rewards.verified import Verified
from palaestra.run import benches
from palaestra.run.built_in import GUESSABLE, QUESTIONS, WORLDS
from palaestra.settings import overrides
from palaestra.settings.fields import Settings
from palaestra.tasks.spec import names_in
from palaestra.trackers import registry as trackers
from palaestra.verifiers import registry as verifiers


def ours() -> Mapping[str, Collection[str]]:
    """The names of each kind that mean something of this package."""
    problems = {*QUESTIONS, *GUESSABLE, *WORLDS}
    return {
        "recipes": {e.id for e in catalogue.all_entries()},
        "tasks": problems,
        "worlds": problems,
        "verifiers": {*verifiers.VERIFIERS},
        "engines": {*select.ENGINES},
        "trackers": {*trackers.OWN, trackers.NONE},
    }


def standings() -> list[dict[str, Any]]:
    """Every plugin. `unused` is why its name means something else, `broken` why it does not work.

    A recipe is built, and a problem or a verifier made without settings; an engine, which wants
    a model, and a tracker, which may open a connection, are only imported.
    """
    known = ours()
    return [
        {
            "kind": kind,
            "name": p.name,
            "package": p.package,
            "unused": why,
            "broken": "" if why else failure(p),
        }
        for kind in KINDS
        for p, why in refused(kind, known[kind]).items()
    ]


def failure(plugin: Plugin) -> str:
    """Why a plugin, which is used, does not work; "" = it does."""
    try:
        if plugin.kind == "recipes":
            overrides.call_build(plugin.name, {})
        elif plugin.kind == "engines":
            select.factory(plugin.name)
        elif plugin.kind == "trackers":
            trackers.factory(plugin.name)
        elif plugin.kind == "verifiers":
            verifiers.make_verifier(plugin.name, {})
        else:
            benches.bench_by_name(plugin.name)
    except UserError as error:
        return str(error)
    return ""


def plugins_used(settings: Settings, parts: Iterable[Any]) -> list[Plugin]:
    """The plugins that make a run's numbers, as settings or parts name them: trackers do not."""
    judges = [x.name for x in parts if isinstance(x, Verified)]
    named = [
        ("recipes", settings.recipe),
        *(("engines", name) for name in names_in(settings.engine)),
        *(("verifiers", name) for judge in judges for name in names_in(judge)),
        *((kind, name) for name in names_in(settings.task) for kind in ("tasks", "worlds")),
    ]
    known = ours()
    others = (find(kind, name) for kind, name in named if name not in known[kind])
    return [plugin for plugin in others if plugin is not None]
