"""The claim of mm-rlhf: MM-RLHF: critique-based reward model, dynamic reward scaling."""

from palaestra.catalogue import recipe
from palaestra.context import Context
from palaestra.errors import Fault
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.recipes.rewards.mm_rlhf import DynamicDPO, RankedPairs
from palaestra.rewards.labels import Labels
from palaestra.rollout.collect import Sample, Score, links
from palaestra.step import Recipe, Schedule
from palaestra.types import Group, Reward, rng_of, stage
from palaestra.values import vary


@stage
class Quality:
    """The reward model's stand-in, right + 0.3 * worked; the part "said" is what people say of it, with `noise` added."""

    noise: float = 0.4

    async def __call__(self, ctx: Context, group: Group) -> list[Reward | Fault]:
        rng, found = rng_of(("quality", ctx.seed, ctx.step, group.task.id)), await Labels()(ctx, group)
        said = rng.standard_normal(len(found)) * self.noise
        return [r if isinstance(r, Fault) else self._quality(r, float(x)) for r, x in zip(found, said, strict=True)]

    def _quality(self, labels: Reward, error: float) -> Reward:
        q = labels.parts["right"] + 0.3 * labels.parts["worked"]
        return Reward(total=q, parts={"said": q + error})


def quality_recipe(objective: DynamicDPO) -> Recipe:
    return vary(
        recipe("dpo"),
        collect=links(Sample(n=4), Score(reward=Quality(), shadow=True)),
        credit=RankedPairs("said"),
        objective=objective,
        schedule=Schedule(prompts=8, steps=30),
    )


EXPERIMENT = Experiment(
    claim="With labels that err on close pairs, DPO whose beta grows with the margin samples more right answers over the run "
    "than DPO with one beta.",
    arms={
        "beta 0.1": quality_recipe(DynamicDPO(w=0.0)),
        "beta 0.15": quality_recipe(DynamicDPO(beta=0.15, w=0.0)),
        "dynamic": quality_recipe(DynamicDPO()),
        "released": quality_recipe(DynamicDPO(w=0.1, source="implicit")),
        "dynamic without imitation": quality_recipe(DynamicDPO(sft=0.0)),
    },
    expect=Greater("dynamic", "beta 0.1"),
    falsified_if="one beta of 0.1 is within two points of the dynamic one, or better",
    task="add",
    tokens=20_000,
    evaluate=128,
    measure=Logged("part/gold", last=0),
    metric="share of right samples over the whole run",
    seconds=40,
    controls={"accuracy": Final(), "accuracy before": Final("accuracy_before.mean")},
    note="The margin is that of the true quality, the best case of a reward model; pairs of equal quality are ranked by noise. "
    "The critique-based reward model is not part of this comparison. A first measure, held-out accuracy at the end, was 100% "
    "in every run of both arms and was given up for it.",
)
