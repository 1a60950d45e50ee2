"""CoLA, control by latent actions: reinforcement learning of a policy over K codes instead of V tokens.

On the hidden states of the frozen model stand an inverse dynamics model (which code, seen the next token; straight-through
one-hot), a language world model p(x | h, code) and a policy pi(code | h) (arXiv:2503.21383; LAMDA-RL/CoLA):

    first `construct` steps   -log p(x | h, a) - log pi(a | h),  a = argmax of the inverse model: world and cloned policy
    then                      GRPO on the policy over codes alone; trunk, world and inverse model stand still

Groups' advantages have ddof 1 and a ratio clipped at 1 +- 0.2. Deviations: a token is credited with all codes it may have come
from, by their posterior, where the release records the one that was drawn (the same gradient in the mean, with less
noise; the ratio is the posterior's mean of the codes' ratios); constructing and cloning go on at once, on samples of
the start model instead of 1.1T tokens of text. Equal rewards and groups of one give 0 in the second phase and teach in the first.

Left out: a KL on codes (it would need the head as it was at the end of construction as a frozen model), the undocumented extra
regulariser, a sampling temperature of 2 for codes, tree search over codes.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from palaestra.card import Card, Size
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.objective.algebra import Algebra, Couples, reduce
from palaestra.objective.policy import Clipped
from palaestra.objective.track import Track
from palaestra.pipeline import Output, Part, Pipeline
from palaestra.recipes.base import grpo
from palaestra.rollout.collect import Sample, Score, links
from palaestra.rollout.recorded import Offline
from palaestra.schedule import Jump
from palaestra.step import Recipe
from palaestra.types import Batch, Outputs, stage
from palaestra.update import AdamW, Plain
from palaestra.values import vary

CARD = Card(
    id="cola",
    family="objectives",
    title="CoLA: latent actions for LLM control",
    paper="arXiv:2503.21383",
    parent="grpo",
    claim="Acting in a small space of latent codes explores more diverse answers and reaches a higher accuracy than tokens do.",
    changes={
        "collect": "first texts of the start model, then answers by way of codes",
        "objective": "first the cost of codes (world, inverse model, cloned policy), then GRPO on the policy over codes",
        "heads": "a latent head; the model below it is frozen",
    },
    source="released code and README; stages partly from general knowledge",
    paper_scale=(
        "Llama-3.1 8B with 1B of world and inverse model and 2B of policy (a layer each here), 64 codes, 1.1T "
        "tokens; G = 4, lr 5e-7, KL 0.001 on codes (not built)"
    ),
    size=Size(
        model="llama-3.1-8b",
        samples=4,
        lr=5e-7,
        arguments={"codes": 64},
        beside={"world and inverse model": 1.0, "policy over codes": 2.0},
    ),
)


@stage
class Coded(Algebra):
    """What it costs to tell the tokens by way of codes, per token, in nats: the head's own output."""

    head: str

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.head,)

    def __call__(self, out: Outputs, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        loss = reduce(out[self.head], batch, "tokens")
        return loss, {"coded_nll": loss.detach()}


@stage
class Phases:
    """A stage that is `first` until `acting` is 1, then `then`. As an objective it moves nothing of the other phase."""

    first: Any
    then: Any
    acting: float

    @property
    def current(self) -> Any:
        return self.then if self.acting >= 1 else self.first

    @property
    def needs(self) -> tuple[str, ...]:
        return self.current.needs

    @property
    def couples(self) -> Couples:
        return self.current.couples

    def __call__(self, *given: Any) -> Any:
        return self.current(*given)


def build(codes: int = 16, construct: int = 15) -> Recipe:
    head = f"latent-{codes}"
    acting: Any = Jump(0.0, 1.0, construct)
    text = links(Sample(n=8, model="ref"), Score(), Offline())
    return vary(
        grpo.build(),
        collect=Phases(text, links(Sample(n=8), Score()), acting),
        objective=Phases(Coded(head), Clipped(reduce="sequences"), acting),
        heads=(head,),
        references={"ref": "policy"},
    )


USED = (("policy", "code_usage"), ("policy", "code_steering"))


def constructing() -> Recipe:
    """Only the first phase, with eight steps of the optimiser on a step's samples."""
    return vary(build(construct=1 << 30), optimiser=AdamW(lr=1e-3), update=Plain(minibatches=8))


def acting(lr: float) -> Recipe:
    """Only the second phase; logs how many codes are used, and how far they differ."""
    logged = Track(tuple(f"{model}_{quantity}" for model, quantity in USED))
    then = Clipped(reduce="sequences") + logged
    return vary(build(construct=0), objective=then, needs=USED, optimiser=AdamW(lr=lr))


def staged(lr: float) -> Pipeline:
    return Pipeline(parts={"codes": Part(constructing()), "rl": Part(acting(lr), model=Output("codes"))})


EXPERIMENT = Experiment(
    claim="After 24,000 sampled tokens of reinforcement learning on T-rec, CoLA solves 2 points more held-out problems within 8 "
    "samples than GRPO on tokens.",
    arms={"grpo": vary(grpo.build(), optimiser=AdamW(lr=3e-4)), "cola": staged(3e-3), "codes-only": constructing()},
    expect=Greater("cola", than="grpo"),
    falsified_if="pass@8 of CoLA is less than 2 points above that of GRPO",
    measure=Final("sampled_after.pass@8.mean"),
    metric="held-out pass@8 (temperature 1)",
    task="rec",
    tokens=24_000,
    evaluate=256,
    samples=8,
    seconds=75,
    controls={
        "accuracy": Final(),
        "pass@1": Final("sampled_after.pass@1.mean"),
        "entropy": Logged("entropy_sampled"),
        "entropy of the codes used (nats, of 2.77)": Logged("policy_code_usage"),
        "variation of the next token between codes": Logged("policy_code_steering"),
    },
    note="CoLA's codes are made first, in a part of their own with as many tokens again, sampled by the start model: about 160 "
    "steps of AdamW at 1e-3, without a reward; codes-only is this part alone. GRPO moves the whole model and CoLA a head, so "
    "each has the rate with the best held-out pass@1 of four tried on another seed: GRPO of 1e-4, 3e-4, 1e-3 and 3e-3 (the first "
    "three alike), CoLA of 3e-4, 1e-3, 3e-3 and 1e-2. Pass@8 stands for the diversity that the paper measures by embeddings.",
)
