"""How the weights of a run move."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from palaestra.context import Engine, Learns
from palaestra.engines import select
from palaestra.models.heap import give_back
from palaestra.models.load import load_heads, save, save_adapters, weights_sha256
from palaestra.models.master import MasterWeights, Optimizer, load_optimiser
from palaestra.models.optimiser_files import made_state
from palaestra.models.routing import for_learner
from palaestra.run.cases import dump_case
from palaestra.run.faces.models import RunModels
from palaestra.run.moves import TokenMoves
from palaestra.types import Batch, Groups, Objective, State
from palaestra.update import backward


@dataclass(kw_only=True)
class RunTraining(RunModels):
    """The optimisers of a run, and how its weights move."""

    optimisers: dict[str, Optimizer] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    # of the step under way, by learner
    moves: dict[str, TokenMoves] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    @property
    def learners_engines(self) -> dict[str, Engine]:
        """The engines that sample from what is trained."""
        return {n: e for n, e in self.engines.items() if n in self.optimisers}

    def optimiser(self, name: str, learner: Learns) -> Optimizer:
        if name not in self.optimisers:
            self.optimisers[name] = learner.optimiser.build(self.model(name).trainable())
        return self.optimisers[name]

    def optimiser_state(self, name: str) -> dict[str, Any]:
        """What an optimiser needs to go on, as files hold it. What takes memory of its own is a
        `DueTensor`.
        """
        optimiser = self.optimisers[name]
        return (
            optimiser.due_state()
            if isinstance(optimiser, MasterWeights)
            else optimiser.state_dict()
        )

    @contextmanager
    def weights(self, name: str) -> Generator[Iterable[tuple[str, Tensor]]]:
        """The trained weights of a learner as they are now, one after another, by the names and of the
        types that files have.
        """
        yield self.whole(name).named_trainable().items()

    def save(self, name: str, directory: Path, *, whole: bool) -> None:
        """Writes a model with its present weights; of one with adapters these alone, unless it is to
        be `whole`.
        """
        model = self.whole(name)
        (save if whole or not model.adapted else save_adapters)(model, directory)

    def weights_sha256(self, name: str) -> str:
        """`weights_sha256` of a model with its present weights."""
        return weights_sha256(self.whole(name))

    def restore(self, name: str, learner: Learns, folder: Path, optimiser: dict[str, Any]) -> None:
        """Sets a learner's weights, heads and optimiser to those of a checkpoint. The optimiser's state
        is that of `read_state`.
        """
        load_heads(self.model(name), folder)
        self.model(name).load_weights(folder)
        load_optimiser(self.optimiser(name, learner), made_state(optimiser))

    def moving(self, name: str) -> None:
        """To be told before a model's weights change: its engine forgets what it knows of the old
        ones.
        """
        if name in self.engines:
            self.engines[name].forget()

    def learning(self, state: State, ready: Groups, seen: Groups) -> AbstractContextManager[None]:
        """Engines give back the memory that they can. One process has nobody else to tell."""
        for engine in self.engines.values():
            if isinstance(engine, select.Rests):
                engine.rest()
        return nullcontext()

    def backward(
        self, name: str, objective: Objective, batch: Batch, budget: int
    ) -> dict[str, Tensor]:
        """`update.backward` on a model of this process; what moves each token is kept."""
        model, run = self.model(name), self.forward(name, objective.needs)
        run = self.moves.setdefault(name, TokenMoves()).watch(run)
        metrics = backward(run, objective, batch.to(model.device), budget, model.packs)
        give_back(model)  # what activations took, for the optimiser
        return metrics

    def dump(self, name: str, learner: Learns, batch: Batch, metrics: Mapping[str, float]) -> None:
        """Writes what is needed to see a failed update again."""
        if self.out is not None:
            dump_case(
                self.out / "cases" / f"step-{self.step}-{name}",
                self.whole(name),
                learner,
                for_learner(batch, name),
                metrics,
            )
