"""What a step reaches the outside through: models, engines, measurements, clocks. One object a run;
it holds no method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from palaestra.abilities import OffersTools
from palaestra.context import Carrier, Collects
from palaestra.models.lora import LoRA
from palaestra.models.threads import use_threads
from palaestra.rollout.tickets import InProcess
from palaestra.run.clocks import Clocks
from palaestra.run.faces.programs import RunPrograms
from palaestra.run.faces.recording import RunRecording
from palaestra.run.faces.rollouts import RunRollouts
from palaestra.run.steering import OnStep
from palaestra.trackers.feed import Trackers


@dataclass(kw_only=True)
class RunContext(RunRecording, RunRollouts, RunPrograms):
    """A run's door to effects: what stands behind the `Context` that stages know, and what the run
    itself is set up with.
    """

    resumed: bool = False  # the user expects to go on from a checkpoint
    # adapters of the models that parts load; None = all weights are trained
    lora: LoRA | None = None
    # where a recipe's rollouts happen, from its first step on
    open_carrier: Callable[[Collects, RunContext], Carrier] = lambda recipe, ctx: InProcess()
    trackers: Trackers = field(default_factory=Trackers)  # the parts of a pipeline share them
    on_step: OnStep | None = None
    elsewhere: bool = False  # other processes hold the recipe too, so it stays as it is

    def __post_init__(self) -> None:
        self.clocks = Clocks(self.on_gpu, lambda: self.engine_seconds)
        self.seconds = self.clocks.seconds
        use_threads(self.models.values())

    def close(self) -> None:
        """Ends what engines and the world run elsewhere."""
        for engine in self.engines.values():
            engine.close()
        if isinstance(self.bench.world, OffersTools):
            self.bench.world.close()
