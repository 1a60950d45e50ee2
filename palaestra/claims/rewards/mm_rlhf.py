"""The claim of mm-rlhf: MM-RLHF: critique-based reward model, dynamic reward scaling."""

import palaestra as pl
from palaestra.recipes.rewards.mm_rlhf import DynamicDPO, RankedPairs


@pl.stage
class Quality:
    """The reward model's stand-in, right + 0.3 * worked; the part "said" is what people say of it,
    with `noise` added.
    """

    noise: float = 0.4

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        rng, found = (
            pl.rng_of(("quality", ctx.seed, ctx.step, group.task.id)),
            await pl.Labels()(ctx, group),
        )
        said = rng.standard_normal(len(found)) * self.noise
        return [
            r if isinstance(r, pl.Fault) else self._quality(r, float(x))
            for r, x in zip(found, said, strict=True)
        ]

    def _quality(self, labels: pl.Reward, error: float) -> pl.Reward:
        q = labels.parts["right"] + 0.3 * labels.parts["worked"]
        return pl.Reward(total=q, parts={"said": q + error})


def quality_recipe(objective: DynamicDPO) -> pl.Recipe:
    return pl.vary(
        pl.recipe("dpo"),
        collect=pl.links(pl.Sample(n=4), pl.Score(reward=Quality(), shadow=True)),
        credit=RankedPairs("said"),
        objective=objective,
        schedule=pl.Schedule(prompts=8, steps=30),
    )


EXPERIMENT = pl.Experiment(
    claim="With labels that err on close pairs, DPO whose beta grows with the margin samples more "
    "right answers over the run than DPO with one beta.",
    arms={
        "beta 0.1": quality_recipe(DynamicDPO(w=0.0)),
        "beta 0.15": quality_recipe(DynamicDPO(beta=0.15, w=0.0)),
        "dynamic": quality_recipe(DynamicDPO()),
        "released": quality_recipe(DynamicDPO(w=0.1, source="implicit")),
        "dynamic without imitation": quality_recipe(DynamicDPO(sft=0.0)),
    },
    expect=pl.Greater("dynamic", "beta 0.1"),
    falsified_if="one beta of 0.1 is within two points of the dynamic one, or better",
    task="add",
    tokens=20_000,
    evaluate=128,
    measure=pl.Logged("part/gold", last=0),
    metric="share of right samples over the whole run",
    seconds=40,
    controls={"accuracy": pl.Final(), "accuracy before": pl.Final("before.mean")},
    note="The margin is that of the true quality, the best case of a reward model; pairs of equal "
    "quality are ranked by noise. The critique-based reward model is not part of this comparison. "
    "A first measure, held-out accuracy at the end, was 100% in every run of both arms and was "
    "given up for it.",
)
