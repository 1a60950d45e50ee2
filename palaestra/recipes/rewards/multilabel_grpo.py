"""GRPO with a reward model of several labels: one encoder, one output in [0, 1] a label, aggregated
to one reward.

    L = mean_k (s_k - t_k)^2, missing labels left out;   R = sum_k w_k s_k, w_k = 1 / m;   A_i = (R_i - mean R) / std R

(arXiv:2503.21819; std over the group with ddof 0). Labels are aggregated first and normalised in
the group afterwards; `aggregate="after_norm"` normalises each label in the group and weighs then,
so that no label dominates by its spread. `gate` and `floor` make R = 0 where that label is below
the floor. In an empty response the labels `content` are 0 whatever the model says. `build` trains
the reward model beside the policy on the labels of `Labels`, each of which is logged
(part/label/NAME): a policy that is safe because it refuses everything shows there. A score that is
not finite is an error of its episode.
"""

from typing import ClassVar, Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="GRPO with multi-label reward regression",
    paper="arXiv:2503.21819",
    claim="A reward from several explicit labels improves all of them, where one collapsed score "
    "may trade one for another.",
    source="abstract and two summaries; loss, weights, gate and the order after_norm inferred",
    size=pl.Size(
        setting="policies of 0.5B, 7B and 14B with LoRA of unknown rank; politeness, "
        "meaningfulness, actionability, safety, of unknown weights",
        model="qwen2.5-14b",
    ),
)


@pl.stage
class MultiLabel:
    """R of the module's docstring from the heads of `model`; parts MODEL/LABEL."""

    labels: tuple[str, ...] = pl.rewards.QUALITY_LABELS
    weights: tuple[float, ...] = ()
    gate: str = ""
    floor: float = 0.5
    content: tuple[str, ...] = ("right", "worked")
    model: str = "reward"

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        found = await pl.Learned(self.model, self.labels, self.weights, squash=True)(ctx, group)
        return [
            self._whole(r, e.text) if isinstance(r, pl.Reward) else r
            for r, e in zip(found, group.episodes, strict=True)
        ]

    def _whole(self, reward: pl.Reward, text: str) -> pl.Reward:
        s = {k: reward.parts[f"{self.model}/{k}"] for k in self.labels}
        s |= {} if text.strip() else dict.fromkeys(self.content, 0.0)
        weights = self.weights or (1 / len(s),) * len(s)
        total = sum(w * s[k] for k, w in zip(self.labels, weights, strict=True))
        shut = self.gate and s[self.gate] < self.floor
        return pl.Reward(
            total=0.0 if shut else total, parts={f"{self.model}/{k}": x for k, x in s.items()}
        )


@pl.stage
class EachLabel:
    """sum_k w_k (s_k - mean) / std, every label normalised in its group; one without variance adds
    0.
    """

    labels: tuple[str, ...] = pl.rewards.QUALITY_LABELS
    weights: tuple[float, ...] = ()
    model: str = "reward"
    eps: float = 1e-6
    spreads: ClassVar[bool] = True  # equal sums of different labels

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        out_E, key_E = np.zeros_like(x.x_N), pl.credit.scope_keys(table, "group")
        for k, w in zip(
            self.labels, self.weights or (1 / len(self.labels),) * len(self.labels), strict=True
        ):
            s_E = np.array(
                [
                    e.reward.parts.get(f"{self.model}/{k}", np.nan) if e.reward else np.nan
                    for e in table.episodes
                ]
            )
            if np.isnan(s_E).any():
                raise pl.UserError(
                    f"an episode's reward has no part {self.model}/{k}, which after_norm normalises"
                )
            out_E += (
                w * (s_E - pl.group_mean(s_E, key_E)) / (pl.credit.group_std(s_E, key_E) + self.eps)
            )
        return pl.Values(level="episode", x_N=out_E)


def build(
    weights: tuple[float, ...] = (),
    gate: str = "",
    floor: float = 0.5,
    aggregate: Literal["before_norm", "after_norm"] = "before_norm",
) -> pl.Recipe:
    parent, reward = pl.recipe("grpo"), MultiLabel(pl.rewards.QUALITY_LABELS, weights, gate, floor)
    policy = pl.vary(parent, credit=credit(aggregate, weights)).learners
    learners = {
        **policy,
        "reward": label_learner(tuple(f"label/{k}" for k in pl.rewards.QUALITY_LABELS)),
    }
    collect = pl.links(
        pl.Sample(n=8), pl.Score(reward=reward, shadow=True), pl.Beside(pl.Labels(), "label")
    )
    return pl.vary(parent, collect=collect, learners=learners)


def credit(aggregate: str, weights: tuple[float, ...] = ()) -> pl.Chain:
    if aggregate == "after_norm":
        return pl.chain(EachLabel(pl.rewards.QUALITY_LABELS, weights))
    return pl.chain(pl.Center("group"), pl.Scale("group", ddof=0))


def label_learner(
    targets: tuple[str, ...], heads: tuple[str, ...] = pl.rewards.QUALITY_LABELS
) -> pl.Learner:
    """The reward model: an output a label."""
    objective = pl.Regression(heads, targets, squash=True)
    return pl.Learner(
        credit=pl.Rate(targets=targets),
        objective=objective,
        heads=heads,
        optimiser=pl.AdamW(lr=1e-3),
    )
