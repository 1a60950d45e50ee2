"""AMFT: imitation and reinforcement in one loss, whose weight is learned.

Every prompt has eight samples and a demonstration, and

    L = (1 - mu) L_RL + mu L_SFT,     mu <- clip(mu + eta_mu M + eta_H (H* - H), 0.05, 0.95)

M is the slope in mu of minus the loss on held-out solutions after one more step of gradient descent, taken
every `every`-th step, H the entropy of the policy on its samples, and H* its mean entropy on the
demonstrations over a warm-up of `warmup` batches of imitation alone (arXiv:2508.06944; TSYJ-He/AMFT,
adaptive_weight_controller.py, amft_params.yaml). L_RL is
PPO's surrogate (clip 0.2) with 0.01 of entropy; here the group is the baseline, where the released
code has a critic. See `Interpolation`, `AdaptiveMixture`, `MetaWeight`.

A public listing says that the authors asked to withdraw the paper's third version while concerns
are investigated. The released trainer fills its rollouts with random tensors, and adds -lr times the
inner product, so that it climbs the validation loss: what is here is the corrected form, and numbers
are ours alone.

M is the cosine of its two factors: their product is about lr in size, which is nothing beside the
entropies (`cosine=False`). A `held` share of the tasks, always the same ones, is not trained on: their
demonstrations are the held-out solutions. `rule=None` keeps the weight, or follows a schedule of it.

Deviation: the released rates, eta_mu = 1e-4 and eta_H = 5e-4 with a look-ahead every 20 steps and a warm-up
of 20, would move mu by 0.01 in a run of 50 steps, so that nothing would adapt. Here they are 0.05 and 0.01,
every 5 steps, after 5: a weight that always moves one way crosses its range in about 90 steps.
"""

from dataclasses import replace
from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="AMFT: meta-gradient imitation-exploration balance",
    paper="arXiv:2508.06944",
    claim="A weight between imitation and reinforcement that follows the meta-gradient of held-out "
    "solutions and the entropy beats any fixed one.",
    source="released code (TSYJ-He/AMFT: adaptive_weight_controller.py, amft_trainer.py, "
    "amft_params.yaml) and the abstract; a listing says that its authors asked to withdraw v3 while "
    "concerns are investigated, its rollouts are random tensors and its meta-gradient has the other sign: "
    "the corrected form, with numbers of ours alone",
    size=pl.Size(
        setting="Qwen2.5-Math-7B and a Llama-3.2-11B vision model on maths, General Points and V-IRL; "
        "none of the paper's numbers is relied on",
        model="qwen2.5-7b",
        samples=8,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.ANSWER,
            replace(pl.needs.DEMONSTRATION, otherwise="the answer itself is imitated"),
        ),
        shows="mix/gain",
        off={"rule": "entropy"},
        own={
            "warmup": 1,
            "every": 1,
            "held": 0.5,
            "schedule.prompts": 8,
            "collect.link.links.0.n": 2,
        },
    ),
    use="It helps where solutions are at hand and nobody knows how much to imitate them; where a fixed weight "
    "near 0.8 is good for the whole run, a learned one adds nothing.",
    lacks=(
        "The look-ahead measures the likelihood of held-out demonstrations, not the task's "
        "reward, which the paper's weight is to maximise.",
        "There is no critic: the group is the baseline.",
        "Vision-language models cannot be loaded, and worlds of several turns were not tried.",
    ),
    grade="B",
)
MARK, HELD = "demonstration", "held"


@pl.declare(facts=("demonstration", ("held", float, "1 where the task is kept from training")))
@pl.stage
class HoldOut:
    """Keeps a share of the tasks, always the same ones, from training: a demonstration with the fact
    "held" is all that is made of them. The others are attempted by `link`.
    """

    link: pl.Collect
    share: float = 0.25

    def __post_init__(self) -> None:
        pl.check_bounds("HoldOut.share", self.share, least=0, most=1)

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        demonstration = pl.rollout.Mark(pl.Demonstrate(), MARK)
        link = (
            pl.rollout.Mark(demonstration, HELD)
            if self.keeps(group.task)
            else pl.links(self.link, demonstration)
        )
        return await link(ctx, key, group)

    def keeps(self, task: pl.Task) -> bool:
        return bool(pl.rng_of(("held out", task.id)).random() < self.share)


def by_author(table: pl.Table, episode: int) -> tuple[int, bool]:
    """Samples of a task are compared with one another, not with its demonstration."""
    return int(table.group_E[episode]), MARK in table.episodes[episode].facts


def build(
    rule: Literal["meta", "entropy", None] = "meta",
    weight: float = 0.5,
    gain_rate: float = 0.05,
    entropy_rate: float = 0.01,
    every: int = 5,
    cosine: bool = True,
    warmup: int = 5,
    held: float = 0.25,
    entropy: float = 0.01,
) -> pl.Recipe:
    """`weight` is mu at the start; `rule` "entropy" leaves out M, and None the whole controller."""
    own: Any = pl.Clipped(reduce="sequences")
    if entropy:
        own = own + entropy * pl.Entropy(reduce="sequences")
    looks = rule == "meta"
    return pl.vary(
        pl.recipe("grpo"),
        collect=HoldOut(pl.links(pl.Sample(n=8), pl.Score()), held),
        credit=pl.chain(
            pl.Fact(MARK), pl.Fact(HELD), pl.Center(by_author), pl.Scale(by_author, ddof=1)
        ),
        objective=pl.mixing.Interpolation(
            pl.On(MARK, own, over="own", absent=True),
            pl.On(MARK, pl.Imitation(), over="own"),
            weight,
        ),
        needs=(("policy", "entropy"),),
        update=pl.mixing.AdaptiveMixture(
            rule=pl.mixing.MetaWeight(gain_rate if looks else 0.0, entropy_rate) if rule else None,
            every=every if looks else 0,
            cosine=cosine,
            warmup=warmup,
            mark=MARK,
            held=HELD,
        ),
    )
