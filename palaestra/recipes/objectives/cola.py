"""CoLA, control by latent actions: reinforcement learning of a policy over K codes instead of V
tokens.

On the hidden states of the frozen model stand an inverse dynamics model (which code, seen the next
token; straight-through one-hot), a language world model p(x | h, code) and a policy pi(code | h)
(arXiv:2503.21383; LAMDA-RL/CoLA):

    first `construct` steps   -log p(x | h, a) - log pi(a | h),  a = argmax of the inverse model: world and cloned policy
    then                      GRPO on the policy over codes alone; trunk, world and inverse model stand still

Groups' advantages have ddof 1 and a ratio clipped at 1 +- 0.2. Deviations: a token is credited with
all codes it may have come from, by their posterior, where the release records the one that was
drawn (the same gradient in the mean, with less noise; the ratio is the posterior's mean of the
codes' ratios); constructing and cloning go on at once, on samples of the start model instead of
1.1T tokens of text. Equal rewards and groups of one give 0 in the second phase and teach in the
first.

Left out: a KL on codes (it would need the head as it was at the end of construction as a frozen
model), the undocumented extra regulariser, a sampling temperature of 2 for codes, tree search over
codes.
"""

from typing import Any

from torch import Tensor

import palaestra as pl

CARD = pl.Card(
    title="CoLA: latent actions for LLM control",
    paper="arXiv:2503.21383",
    claim="Acting in a small space of latent codes explores more diverse answers and reaches a "
    "higher accuracy than tokens do.",
    source="released code and README; stages partly from general knowledge",
    size=pl.Size(
        setting="Llama-3.1 8B with 1B of world and inverse model and 2B of policy (a layer each "
        "here), 64 codes, 1.1T tokens; G = 4, lr 5e-7, KL 0.001 on codes (not built)",
        model="llama-3.1-8b",
        samples=4,
        lr=5e-7,
        arguments={"codes": 64},
        beside={"world and inverse model": 1.0, "policy over codes": 2.0},
    ),
    needs=pl.needs.Requirements(
        shows="coded_nll",
        off={"construct": 0},
        own={
            "construct": 1,
            "schedule.prompts": 4,
            "collect.then.links.0.n": 2,
            "collect.first.links.0.n": 2,
        },
    ),
    use="It helps where many different answers count more than the best one; the codes are as good as the "
    "text that they were constructed on, so give `construct` many more steps than the default.",
    lacks=(
        "Codes cannot be chosen at generation, so they do not control what the model writes, "
        "which is half of the paper's aim.",
        "Codes are constructed on samples of the start model, not on a corpus of text.",
        "Fine-tuning on demonstrations under the guidance of codes is not there.",
        "Tree search over codes and the KL on codes are not there.",
        "Every token takes the logits of the vocabulary for all codes, so memory grows with `codes`.",
    ),
    grade="C",
)


@pl.stage
class Coded(pl.Algebra):
    """What it costs to tell the tokens by way of codes, per token, in nats: the head's
    own output.
    """

    head: str

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.head,)

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        loss = pl.reduce_terms(out[self.head], batch, "tokens")
        return loss, {"coded_nll": loss.detach()}


@pl.stage
class Phases:
    """A stage that is `first` until `acting` is 1, then `then`. As an objective it moves nothing of
    the other phase.
    """

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
    def couples(self) -> pl.objective.Couples:
        return self.current.couples

    def __call__(self, *given: Any) -> Any:
        return self.current(*given)


def build(codes: int = 16, construct: int = 15) -> pl.Recipe:
    head = f"latent-{codes}"
    acting: Any = pl.Jump(0.0, 1.0, construct)
    text = pl.links(pl.Sample(n=8, model="ref"), pl.Score(), pl.Offline())
    return pl.vary(
        pl.recipe("grpo"),
        collect=Phases(text, pl.links(pl.Sample(n=8), pl.Score()), acting),
        objective=Phases(Coded(head), pl.Clipped(reduce="sequences"), acting),
        heads=(head,),
        references={"ref": "policy"},
    )
