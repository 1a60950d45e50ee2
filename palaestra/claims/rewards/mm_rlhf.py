"""The claim of mm-rlhf: MM-RLHF: critique-based reward model, dynamic reward scaling."""

import numpy as np

import palaestra as pl
from palaestra.claims.starts import TWO_POINTS
from palaestra.recipes.rewards.mm_rlhf import DynamicDPO, RankedPairs


@pl.stage
class Quality:
    """The reward model's stand-in, right + 0.3 * worked; the part "said" is what people say of it,
    with `noise` added.
    """

    noise: float = 0.4

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        rng, rewards = (
            pl.rng_of(("quality", ctx.seed, ctx.step, group.task.id)),
            await pl.Labels()(ctx, group),
        )
        noise_N = rng.standard_normal(len(rewards)) * self.noise
        return [
            r if isinstance(r, pl.Fault) else self._quality(r, float(x))
            for r, x in zip(rewards, noise_N, strict=True)
        ]

    def _quality(self, labels: pl.Reward, error: float) -> pl.Reward:
        q = labels.parts["right"] + 0.3 * labels.parts["worked"]
        return pl.Reward(total=q, parts={"said": q + error})


@pl.stage
class OtherMargins:
    """The pairs of `pairs`, with the margins of other pairs of the batch: as large, and no matter of
    the pair.
    """

    pairs: RankedPairs

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        examples, state = self.pairs(groups, signals, state)
        margins_U = np.array([e.columns["margin"] for e in examples[::2]])
        mixed_U = pl.rng_of(("other margins", *margins_U.tolist())).permutation(margins_U)
        return [
            pl.Example(
                row=e.row, columns={**e.columns, "margin": float(mixed_U[i // 2])}, unit=e.unit
            )
            for i, e in enumerate(examples)
        ], state


def arm(objective: DynamicDPO, pairs: pl.Credit = RankedPairs("said")) -> pl.Recipe:
    """DPO on every two of 4 answers that people rank apart, 16 prompts a step."""
    return pl.vary(
        pl.recipe("dpo"),
        collect=pl.links(pl.Sample(n=4), pl.Score(reward=Quality(), shadow=True)),
        credit=pairs,
        objective=objective,
        schedule=pl.Schedule(prompts=16, steps=400),
    )


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "beta 0.1": arm(DynamicDPO(w=0.0)),
        "beta 0.15": arm(DynamicDPO(beta=0.15, w=0.0)),
        "dynamic": arm(DynamicDPO()),
        "other margins": arm(DynamicDPO(), OtherMargins(RankedPairs("said"))),
        "released": arm(DynamicDPO(w=0.1, source="implicit")),
    },
    expect=pl.ledger.Greater("dynamic", "beta 0.1", by=0.02, why=TWO_POINTS),
    reasons=(
        pl.ledger.Needs("other margins", "a beta that belongs to the pair"),
        pl.ledger.Needs(
            "beta 0.15", "a beta that differs between pairs, and not only a larger one"
        ),
    ),
    vetoes={"pass@8": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@8.mean"), falls=0.03)},
    task="add(d=6)",
    tokens=20_000,
    evaluate=96,
    samples=8,
    measure=pl.ledger.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    tuned={"optimiser.lr": (1e-4,)},
    blocks=pl.ledger.TWENTY_SEEDS,
    seconds=16.0,
    controls={
        "true reward": pl.ledger.Logged("part/gold", last=3),
        "beta": pl.ledger.Logged("beta", last=0),
        "pairs that the reward model ranks otherwise": pl.ledger.Logged("d_negative", last=0),
    },
)
