"""The claim of llamarl: old samples weighted by min(pi / mu, rho)."""

import torch
from torch import Tensor

import palaestra as pl
from palaestra.claims.starts import RATES
from palaestra.recipes.systems.llamarl import build


def ratio_of(out: pl.Outputs, batch: pl.Batch) -> Tensor:
    """pi / mu [B, T] at trained tokens, without a gradient; 1 elsewhere."""
    return ((out["logp"].detach() - batch["behaviour_logp"]) * batch.mask).exp()


@pl.stage
class MixedRatios:
    """The weights min(pi / mu, cap) of a batch, each given to another token of it: the same sizes,
    and no reason to be there. What goes where follows from the rows' tokens, however the batch is
    split.
    """

    cap: float = 2.0

    @property
    def needs(self) -> tuple[str, ...]:
        return ("logp",)

    @property
    def couples(self) -> pl.objective.Couples:
        return "batch"

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        on_BT, w_BT = batch.mask > 0, ratio_of(out, batch).clamp(max=self.cap)
        draws_2BT = torch.zeros(2, *on_BT.shape, dtype=torch.float64)
        for b, (ids, n) in enumerate(
            zip(batch["ids"].tolist(), batch["length"].tolist(), strict=True)
        ):
            rng = pl.rng_of(("mixed ratios", *ids[:n]))
            draws_2BT[:, b, :n] = torch.from_numpy(rng.random((2, n)))
        to_N, from_N = (x_BT.to(on_BT.device)[on_BT].argsort() for x_BT in draws_2BT)
        mixed_N = torch.empty_like(w_BT[on_BT])
        mixed_N[to_N] = w_BT[on_BT][from_N]
        return w_BT.masked_scatter(on_BT, mixed_N), {}


@pl.stage
class Moved(pl.Algebra):
    """Adds nothing to the loss, and logs how far the policy has moved from the one that sampled:
    the shares of the trained tokens with pi / mu more than `by` away from 1 ("moved"), and above
    `cap` ("above").
    """

    by: float = 0.02
    cap: float = 2.0

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        r_BT = ratio_of(out, batch)
        return batch.mask.new_zeros(()), {
            "moved": pl.token_mean(((r_BT - 1).abs() > self.by).to(r_BT), batch),
            "above": pl.token_mean((r_BT > self.cap).to(r_BT), batch),
        }


def arm(lag: int, objective: pl.Objective | None = None) -> pl.Recipe:
    """The recipe at an age, with another objective if given; half the prompts, so that more steps
    fit into a cell.
    """
    own = build(lag=lag, length=64)
    whole = pl.objective.Sum((objective or own.learners["policy"].objective, Moved()))
    return pl.vary(own, objective=whole, schedule=pl.Schedule(prompts=8, steps=50, lag=lag))


PLAIN = pl.Reinforce(reduce="constant", length=64)

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "lag 0": arm(0),
        "lag 1": arm(1),
        "lag 8 unweighted": arm(8, PLAIN),
        "lag 8": arm(8),
        "lag 8 mixed-up weights": arm(8, pl.objective.TokenWeighted(PLAIN, MixedRatios())),
    },
    expect=pl.ledger.Greater(
        "lag 8",
        "lag 8 unweighted",
        by=0.03,
        why="three points, what a reader of curves would call a difference",
    ),
    reasons=(pl.ledger.Needs("lag 8 mixed-up weights", "that each token has its own weight"),),
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    tuned={"optimiser.lr": RATES},
    task="chain(operands=(7,9))",
    tokens=100_000,
    tuning_tokens=50_000,
    evaluate=128,
    samples=4,
    seconds=80.0,
    controls={
        "tokens with pi / mu more than 2% from 1": pl.ledger.Logged("moved"),
        "tokens with pi / mu above 2": pl.ledger.Logged("above"),
    },
)
