"""SRFT: imitation of demonstrations and reinforcement in one stage, with weights that follow the
policy's entropy.

Every prompt has eight sampled answers and one demonstration, which counts as right. H is the mean
entropy of the policy over the batch's tokens, a constant of the loss:

    L = w_sft E_demo[-log pi] - E_demo[min(rho A, clip(rho, 1 - eps, 1 + eps) A)]
        + w_rl E_own+[-log pi] + E_own-[log pi],    w_sft = 0.5 exp(-H),  w_rl = 0.1 exp(H)

(arXiv:2506.19767). A policy of high entropy imitates less and its own successes weigh more; one of low
entropy the other way round. Own right answers are paid +1, wrong ones -1. Each of the four means is over
the tokens of its own kind, and 0 if there are none. A is GRPO's advantage in the group with its
demonstration, so a demonstration in a failing group has a large one. The probability of a demonstration
under its unknown author is taken to be 1, so rho = pi, which the clip never reaches, as A >= 0;
`external="luffy"` uses pi / (pi + 0.1) instead (arXiv:2504.14945).

The equations are those of a reader's notes, which print exp(-H) in both weights but explain the
opposite for w_rl: `own_sign=-1` gives the printed form. `floor` leaves out tokens of wrong answers
whose probability is below it, where log pi has no bound. `per` scales H: with a tokenizer of bytes, 4
bytes are about one token of the paper's models, whose entropy the constants suit; exp(H) is at most
`most`. `adaptive=False` keeps the weights of H = 0.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor

import palaestra as pl

CARD = pl.Card(
    title="SRFT: single-stage supervised + reinforcement fine-tuning",
    paper="arXiv:2506.19767",
    claim="One stage whose imitation falls and whose hold on own successes grows with the entropy "
    "beats imitation before reinforcement, and reinforcement alone.",
    source="abstract, and a reader's notes for the equations and the two weights; no code was found",
    size=pl.Size(
        setting="Qwen2.5-Math-7B with demonstrations of a stronger model; G = 8 and lr 5e-6 from "
        "memory",
        model="qwen2.5-7b",
        samples=8,
        lr=5e-6,
    ),
    needs=pl.needs.Requirements(
        columns=(pl.needs.PROMPT, pl.needs.ANSWER, pl.needs.DEMONSTRATION),
        shows="weight/imitation",
        off={"imitation": 0.0},
        own={"schedule.prompts": 4, "collect.links.0.n": 3},
    ),
    use="Try it where imitating first costs skills that the model has; with demonstrations in the model's "
    "own style, imitation first and then GRPO ended higher in our measurement.",
    lacks=(
        "The equations are those of a reader's notes: neither the text nor the code of the "
        "paper was read.",
    ),
    grade="A",
)
MARK = "demonstration"


@pl.stage
class Sides:
    """The advantage of an own answer is 1 where it is right, else -1, and its tokens are marked
    "right" or "wrong"; demonstrations keep what they have.
    """

    above: float = 0.5
    mark: str = MARK
    equal: ClassVar[bool] = True

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        shown_E = np.array([bool(e.facts.get(self.mark)) for e in table.episodes], bool)
        right_E = table.reward_E > self.above
        for name, side_E in (("right", right_E), ("wrong", ~right_E)):
            held_E = (side_E & ~shown_E).astype(float)
            table.add_column(f"is:{name}", pl.Values(level="episode", x_N=held_E))
        return replace(x, x_N=np.where(shown_E, x.x_N, np.where(right_E, 1.0, -1.0)))


@pl.stage
class EntropyScaled(pl.Algebra):
    """weight exp(sign per H) times the objective; H is the mean entropy in nats of the whole batch's
    tokens, and exp(per H) at most `most`.
    """

    objective: pl.Objective
    weight: float
    sign: float
    per: float = 1.0
    most: float = 20.0
    name: str = "weight"

    def __post_init__(self) -> None:
        pl.check_bounds("EntropyScaled.per", self.per, least=0)
        pl.check_bounds("EntropyScaled.most", self.most, least=1)

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.objective.needs, "entropy")))

    @property
    def couples(self) -> pl.objective.Couples:
        return "batch"

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = self.objective(out, batch)
        entropy = pl.token_mean(out["entropy"], batch)  # detached: a weight, not a path
        w = self.weight * (self.per * entropy).exp().clamp(max=self.most) ** self.sign
        return w * loss, {**metrics, f"weight/{self.name}": w, "entropy": entropy}


@pl.stage
class Unlikelihood(pl.Algebra):
    """Mean log pi of the tokens whose probability is `floor` or more; the others count as 0."""

    floor: float = 0.0

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        kept_BT = (out["logp"].detach().exp() >= self.floor).float()
        loss = pl.reduce_terms(out["logp"] * kept_BT, batch, "tokens")
        return loss, {"kept": pl.token_mean(kept_BT, batch)}


def build(
    imitation: float = 0.5,
    own: float = 0.1,
    own_sign: float = 1.0,
    adaptive: bool = True,
    external: Literal["plain", "luffy"] = "plain",
    floor: float = 0.0,
    per: float = 1.0,
    most: float = 20.0,
) -> pl.Recipe:
    """`imitation` and `own` are the weights at H = 0."""
    shaped: Any = pl.Shaped("power" if external == "plain" else "saturating")
    imitate, held = (
        pl.On(MARK, pl.Imitation(), over="own"),
        pl.On("right", pl.Imitation(), over="own"),
    )
    weighed = (
        EntropyScaled(imitate, imitation, -1.0, per, most, "imitation")
        + EntropyScaled(held, own, own_sign, per, most, "own")
        if adaptive
        else imitation * imitate + own * held
    )
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=8), pl.Score(), pl.rollout.Mark(pl.Demonstrate(), MARK)),
        credit=pl.chain(pl.Fact(MARK), pl.Center("group"), pl.Scale("group", ddof=1), Sides()),
        objective=weighed
        + pl.On(MARK, shaped, over="own")
        + pl.On("wrong", Unlikelihood(floor), over="own"),
    )
