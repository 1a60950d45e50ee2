"""What attempts are sampled with."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from palaestra.context import Bench
from palaestra.rollout.player import EnginePlayer
from palaestra.run.faces.models import RunModels
from palaestra.schedule import fit_to_run, resolve
from palaestra.types import Player, Sampling
from palaestra.worlds.outage import ChangesByStep

R = TypeVar("R")  # a recipe, or another value with schedules in it


@dataclass(kw_only=True)
class RunRollouts(RunModels):
    """Who attempts the problem of a run, with which weights and schedules."""

    def at(self, recipe: R, step: int, version: int | None = None) -> R:
        """The recipe with its schedules, and sizes that follow the run's, as numbers. Tokens
        sampled from here on carry the version, that of the step if none is given.
        """
        self.step = step
        self.renew(step if version is None else version)
        world: Any = self.bench.world
        if isinstance(world, ChangesByStep) and (at_step := world.at_step(step)) is not world:
            self.bench = replace(self.bench, world=at_step)
        now = resolve(recipe, step)
        schedule = getattr(now, "schedule", None)  # what collects alone has none, and no pool
        return fit_to_run(now, schedule.prompts if schedule else 0, self.bench.max_tokens)

    def cast(self, model: str, sampling: Sampling) -> dict[str, Player]:
        """Who fills the seats of the bench's world: its own players, and the model in
        all others.
        """
        player: Player = EnginePlayer(
            engine=self.engine(model), sampling=sampling, policy=model, dialect=self.bench.dialect
        )
        return {seat: self.players.get(seat, player) for seat in self.bench.world.seats}

    def with_bench(self, bench: Bench, players: Mapping[str, Player] | None = None) -> Self:
        """This context with another problem: the same models, engines and clients. `players`: of
        its seats that are not the policy's; None = as before.
        """
        other = copy.copy(self)
        other.bench = bench
        other.players = self.players if players is None else players
        return other
