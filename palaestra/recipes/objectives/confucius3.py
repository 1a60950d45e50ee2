"""Confucius3-Math: targeted entropy, recovered samples, hardness weights on GRPO and DAPO.

Stage 1 of the report (`build(phase=1)`) is GRPO with TER, the loss 0.001 |H - target|, H the
batch's mean token entropy (target 0.55 nats of their model). Stages 2 and 3, the default, are DAPO
with (arXiv:2506.18330, section 6):

    RSR   groups that dynamic sampling kept beyond the batch come first in the next one and are then forgotten (algorithm 1).
          They are one step old, without correction: the ratio is against the policy before the update
    PSHW  R = +-1, mu the group's mean, A_i = (R_i - mu) D, D = -0.256 mu + 1.256: from 1 (all right) to 1.512 (all wrong).
          No std; tokens are summed and divided by a constant, 0 < right < G

The stages are lengthened from 4K to 16K tokens by hand (`max_tokens`). The reward's repetition
checks are the task's business. A group of equal rewards never arrives; a batch of entropy `target`
has no gradient from TER.
"""

from dataclasses import replace
from typing import ClassVar, Literal

import palaestra as pl

CARD = pl.Card(
    title="Confucius3-Math: targeted entropy regularisation, recent sample recovery, "
    "policy-specific hardness weighting",
    paper="arXiv:2506.18330",
    claim="Recovering surplus groups and weighting by hardness reach more accuracy for equal "
    "generated samples than DAPO.",
    source="technical report",
    size=pl.Size(
        setting="DeepSeek-R1-Distill-Qwen-14B, 256 samples a batch, 4K, 8K, 16K tokens; sampling 3 "
        "to 9 times the batch",
        model="qwen2.5-14b",
        answers=256,
        tokens=16384,
        arguments={"length": 16384},
    ),
    needs=pl.needs.Requirements(
        shows="age_max",
        off={"rsr": False},
        own={"schedule.prompts": 8, "pool.size": 2, "collect.links.0.n": 4},
    ),
    use="It helps where many groups are all right or all wrong, so that batches are drawn several times "
    "and what is left over is dear; where most groups are mixed, little is recovered.",
    lacks=(
        "Stages of growing length are started by hand.",
        "The Chinese mathematics data and their filters are not there.",
        "Targeted entropy is not in the default run: `phase=1` is a run of its own, and its "
        "target of 0.55 nats is that of the authors' model.",
    ),
    grade="A",
)


@pl.stage
class Hardness:
    """(R - mu) (slope * mu + level), mu the group's mean of R in [-1, 1]; 1 where all are right, as
    level = 1 - slope.
    """

    slope: float = -0.256
    level: float = 1.256
    equal: ClassVar[bool] = False

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        mean_N = pl.group_mean(x.x_N, pl.credit.scope_keys(table, "group", x.level))
        return replace(x, x_N=(x.x_N - mean_N) * (self.slope * mean_N + self.level))


def build(
    phase: Literal[1, 2] = 2,
    target: float = 0.55,
    rsr: bool = True,
    pshw: bool = True,
    length: float | None = None,
    squared: bool = False,
    right: float | None = None,
) -> pl.Recipe:
    """`squared` makes TER (H - target)^2, whose gradient vanishes at the target instead of changing
    its sign there. An answer is right from the reward `right` on; None = as the reward says, else
    from 1.
    """
    if phase == 1:
        return pl.vary(
            pl.recipe("grpo"),
            objective=pl.Clipped() + 0.001 * pl.objective.TargetEntropy(target, squared),
        )
    return pl.vary(
        pl.recipe("grpo"),
        pool=pl.Mixed(size=0),
        schedule=pl.Schedule(prompts=16, max_age=int(rsr), steps=50),
        credit=pl.chain(
            pl.credit.Outcome(1.0, -1.0, right=right), Hardness() if pshw else pl.Center("group")
        ),
        objective=pl.Clipped(high=0.28, reduce="constant", length=length, old="policy"),
        needs=(("policy", "logp"),),
    )
