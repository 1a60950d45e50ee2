"""REC: REINFORCE with the group's mean as baseline learns from samples of older weights, and two
levers make that robust.

-(r_i - mean_group(r)) log pi is the gradient of a pairwise KL-regularised consistency loss on
samples of any policy, so it needs no importance ratio (arXiv:2509.24203). Lever one regularises the
update, lever two shapes the data; each is an argument or a term of the objective that AsymRE uses
too (`objective.policy.Reinforce`), or a link of the credit:

    REC-OneSide-NoIS   build()                       PPO's mask, no ratio as a weight: behaves like GRPO
    REC-OneSide-IS     build(weighted=True)
    REC-TwoSide, Ring  build(trust="two-side"), build(trust="ring")
    REINFORCE          build(trust="all")
    OPMD               build(trust="all", tau=1)     loss / (1 + tau)
    Kimi's OPMD        build(trust="all", tau=1, regulariser="kimi")        loss + tau (log rho)^2
    AsymRE             build(trust="all", tau=0.1, regulariser="asymre")    loss - tau log pi: the baseline lowered by tau
    RED-Drop, -Weight  build(trust="all", data="drop"), build(trust="all", data="weight")

Samples are `lag` steps old, 6 by default. Every token of the batch weighs the same. `std` divides
rewards by the group's deviation (ddof 0), before anything is dropped or weighted. A group of one or of equal rewards has A = 0.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Group-Relative REINFORCE is secretly off-policy (REC, OPMD, AsymRE, data weighting)",
    paper="arXiv:2509.24203",
    claim="Clipping, not importance sampling, is what lets group-relative REINFORCE learn from "
    "stale samples.",
    source="paper and released code (modelscope/Trinity-RFT, examples/rec_gsm8k)",
    size=pl.Size(
        setting="Qwen2.5-3B-Instruct on GSM8K, 96 prompts x 8, 1,024 tokens, lr 1e-6, synchronised "
        "every 20 steps",
        model="qwen2.5-3b",
        prompts=96,
        samples=8,
        tokens=1024,
        lr=1e-6,
    ),
    needs=pl.needs.Requirements(
        shows="clipped",
        off={"trust": "all"},
        own={
            "lag": 1,
            "schedule.prompts": 4,
            "collect.links.0.n": 4,
            "optimiser.lr": 0.01,
        },
    ),
    use="It helps where samples are older than the weights that learn from them; on fresh samples the "
    "mask never acts.",
    lacks=(
        "The sampler is synchronised in every step, `lag` steps behind, and not every so many "
        "steps.",
        "Recorded answers of another policy cannot be brought.",
    ),
    grade="A",
)


@pl.stage
class DropSurplus:
    """RED-Drop: no more samples below the group's mean than at or above it; the rest get 0 and
    count in no mean.

    The surplus is dropped from the end: independent samples are exchangeable, so these are random
    ones. Centres on the kept.
    """

    equal: ClassVar[bool] = False

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        out_N, key_N = np.zeros_like(x.x_N), pl.credit.scope_keys(table, "group", x.level)
        good_N = x.x_N >= pl.group_mean(x.x_N, key_N)
        for key in np.unique(key_N):
            good, bad = (np.flatnonzero((key_N == key) & side_N) for side_N in (good_N, ~good_N))
            kept = np.concatenate([good, bad[: len(good)]])
            out_N[kept] = x.x_N[kept] - x.x_N[kept].mean()
        return replace(x, x_N=out_N)


@pl.stage
class Reweight:
    """RED-Weight: A exp(A / temperature)."""

    temperature: float = 1.0

    def __post_init__(self) -> None:
        pl.check_bounds("Reweight.temperature", self.temperature, above=0)

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        return replace(x, x_N=x.x_N * np.exp(x.x_N / self.temperature))


def build(
    trust: pl.objective.Trust = "one-side",
    weighted: bool = False,
    high: float = 0.2,
    tau: float = 0.0,
    regulariser: Literal["opmd", "kimi", "asymre"] = "opmd",
    data: Literal["all", "drop", "weight"] = "all",
    std: bool = False,
    lag: int = 6,
) -> pl.Recipe:
    """`tau` weighs the regulariser, 0 = none. `lag` is the age of the samples, in steps."""
    pl.check_bounds("rec: tau", tau, least=0)
    objective = pl.Reinforce(reduce="tokens", trust=trust, weighted=weighted, high=high)
    regularised: dict[str, Any] = {
        "opmd": (1 / (1 + tau)) * objective,
        "kimi": objective + 2 * tau * pl.KL("k2", model="behaviour", reduce="tokens"),
        "asymre": objective + tau * pl.Imitation(),
    }
    shaped = {
        "all": (pl.Center("group"),),
        "drop": (DropSurplus(),),
        "weight": (pl.Center("group"), Reweight()),
    }[data]
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(*((pl.Scale("group", ddof=0),) if std else ()), *shaped),
        objective=regularised[regulariser] if tau else objective,
        schedule=pl.Schedule(prompts=16, steps=50, lag=lag),
    )
