"""The models of a run: what a stage asks of those that stand still."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

import numpy as np
from torch import Tensor

from palaestra.attempts import DraftCounts
from palaestra.chat.dialect import Chat
from palaestra.context import Engine, Rewrite
from palaestra.engines import select
from palaestra.engines.own import OwnEngine
from palaestra.errors import UserError
from palaestra.models.files import explain_failures, read_tokenizer
from palaestra.models.forward import forward
from palaestra.models.load import Model, frozen_copy, load
from palaestra.models.lora import LoRA
from palaestra.models.model import NO_BOUND
from palaestra.models.routing import for_learner
from palaestra.models.threads import use_threads
from palaestra.models.vocabulary import Tokenizes, TokenSpelling
from palaestra.rollout.privileged import PrivilegedReader
from palaestra.run.faces.situation import RunSituation
from palaestra.run.measuring import measure
from palaestra.services.chat.named import is_endpoint, scoring_from_text
from palaestra.services.chat.scoring import Scorer
from palaestra.types import Batch, Groups, Need, Outputs, Signals

if TYPE_CHECKING:
    from palaestra.context import Context

NOTHING: Mapping[str, Rewrite] = MappingProxyType({})


@dataclass(kw_only=True)
class RunModels(RunSituation):
    """The models of a run by name, the engines that sample from them, and what they say."""

    # the trainable ones by learner name and frozen ones by reference name
    models: dict[str, Model]
    engine_name: str = "own"  # what samples; see `engines`
    slots: int = 256  # sequences that an engine runs at a time
    cache_mb: int = 4096  # of an engine's keys and values

    engines: dict[str, Engine] = field(init=False, repr=False, compare=False, default_factory=dict)
    versions: dict[str, int] = field(init=False, repr=False, compare=False, default_factory=dict)
    # endpoints that stand for models, by reference name
    scorers: dict[str, Scorer] = field(init=False, repr=False, compare=False, default_factory=dict)
    dialects: dict[str, Chat] = field(init=False, repr=False, compare=False, default_factory=dict)
    # of references that move: the steps that their models are of, the oldest first
    held: dict[str, dict[str, int]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def model(self, name: str) -> Model:
        if name in self.scorers:
            raise UserError(
                f"{name!r} is an endpoint, which says how likely tokens are; here a model of a folder is "
                "needed"
            )
        try:
            return self.models[name]
        except KeyError:
            raise UserError(
                f"no model {name!r} in this run; there are {', '.join(self.models)}"
            ) from None

    def whole(self, name: str) -> Model:
        """A model with all its present weights in this process, as files hold it."""
        return self.model(name)

    def reference(self, name: str, source: str) -> None:
        """Adds a frozen model: a copy of the run's model `source` as it is at the call, else the
        one of that name or folder, or an endpoint that says how likely tokens are.
        """
        if is_endpoint(source):
            endpoint = scoring_from_text(source, name)
            if endpoint.tokenizer:
                with explain_failures(endpoint.tokenizer):
                    self.dialects[name] = Chat(read_tokenizer(endpoint.tokenizer))
            dialect = self.dialect(name if endpoint.tokenizer else "policy")
            self.scorers[name] = Scorer(endpoint, lambda i: dialect.decode([i]))
            return
        self.models[name] = frozen_copy(self.models.get(source) or self.load(source))
        use_threads(self.models.values())

    def dialect(self, name: str) -> Chat:
        """How a model's prompts are written. An endpoint whose tokenizer is not named has the policy's."""
        if name in self.scorers and name not in self.dialects:
            return self.dialect("policy")
        if name not in self.dialects:
            model = self.model(name)
            self.dialects[name] = Chat(model.tokenizer, model.places, model.sight)
        return self.dialects[name]

    def spelling(self, name: str) -> Tokenizes:
        """A model with its tokenizer, or that of an endpoint."""
        if name in self.scorers:
            return TokenSpelling(
                self.dialect(name).tokenizer, self.scorers[name].client.settings.url
            )
        return self.model(name)

    def load(self, name: str, lora: LoRA | None = None) -> Model:
        """A further model, of the policy's dtype and on its device."""
        start = self.model("policy")
        return load(
            name, dtype=str(start.dtype).removeprefix("torch."), device=start.device, lora=lora
        )

    def renew(self, version: int) -> None:
        """The weights are those of a version. What is under way goes on with them."""
        for model in self.models:
            self.versions[model] = version
        for name, engine in self.engines.items():
            engine.version = self.versions[name]
            engine.forget()  # so a run that goes on from here finds the same

    def engine(self, name: str = "policy") -> Engine:
        if name not in self.engines:
            self.engines[name] = select.build(
                self.engine_name, self.model(name), slots=self.slots, cache_mb=self.cache_mb
            )
            self.engines[name].version = self.versions.get(name, 0)
        return self.engines[name]

    @property
    def sampling(self) -> bool:
        """Whether a model is sampling, or is asked to."""
        return any(e.busy for e in self.engines.values())

    @property
    def sampled_tokens(self) -> int:
        """Tokens all engines have sampled, evaluations and other processes included."""
        engines = tuple(self.engines.values())  # another thread may ask while one is made
        return sum(e.sampled_tokens for e in engines) + self.carrier.counts.sampled_tokens

    @property
    def draft_counts(self) -> DraftCounts:
        """Of all engines, other processes included."""
        total = DraftCounts()
        for engine in tuple(self.engines.values()):
            if isinstance(engine, OwnEngine):
                total.add(engine.draft_counts)
        total.add(self.carrier.counts.drafts)
        return total

    @property
    def engine_seconds(self) -> float:
        """Of this process."""
        return sum(e.seconds for e in self.engines.values())

    def on_gpu(self) -> bool:
        """Whether some of its models are."""
        return any(m.device.type == "cuda" for m in self.models.values())

    def snapshots(self, name: str) -> Mapping[str, int]:
        """The models of a reference that keeps snapshots, and the steps that they are of."""
        return self.held.get(name, {})

    def decode(self, ids: Sequence[int]) -> str:
        return self.engine().dialect.decode(ids)

    def forward(self, name: str, needs: Sequence[str]) -> Callable[[Batch], Outputs]:
        """The training forward pass of a model, timed."""
        model = self.model(name)

        def run(batch: Batch) -> Outputs:
            with self.phase("forward"):
                return forward(model, for_learner(batch, name), needs)

        return run

    def outputs(
        self, name: str, needs: Sequence[str], batch: Batch, parts: Sequence[Tensor]
    ) -> Iterable[dict[str, np.ndarray]]:
        """What a model says of each part of a batch, in order, as float64 arrays."""
        run, device = self.forward(name, needs), self.model(name).device
        for rows in parts:
            out = run(batch.part(rows).to(device))
            yield {k: v.double().cpu().numpy() for k, v in out.items()}

    def measure(
        self,
        groups: Groups,
        needs: Sequence[Need],
        privileged: Mapping[str, Rewrite] = NOTHING,
    ) -> Signals:
        ctx = cast("Context", self)
        room = lambda name: NO_BOUND if name in self.scorers else self.model(name).context
        readers = {k: PrivilegedReader(ctx, rewrite, room(k)) for k, rewrite in privileged.items()}
        return measure(self, groups, needs, readers)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Charges the time of a synchronous block to a phase, without what inner phases take."""
        return self.clocks.phase(name)
