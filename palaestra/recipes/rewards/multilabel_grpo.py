"""GRPO with a reward model of several labels: one encoder, one output in [0, 1] a label, aggregated to one reward.

    L = mean_k (s_k - t_k)^2, missing labels left out;   R = sum_k w_k s_k, w_k = 1 / m;   A_i = (R_i - mean R) / std R

(arXiv:2503.21819; std over the group with ddof 0). Labels are aggregated first and normalised in the group afterwards;
`aggregate="after_norm"` normalises each label in the group and weighs then, so that no label dominates by its spread. `gate`
and `floor` make R = 0 where that label is below the floor. In an empty response the labels `content` are 0 whatever the model
says. `build` trains the reward model beside the policy on the labels of `Labels`, each of which is logged (part/label/NAME): a
policy that is safe because it refuses everything shows there. A score that is not finite is an error of its episode.
"""

from typing import ClassVar, Literal

import numpy as np

from palaestra.card import Card, Size
from palaestra.catalogue import recipe
from palaestra.context import Context
from palaestra.credit import advantages as pure
from palaestra.credit.links import Center, Chain, Scale, chain
from palaestra.credit.preferences import Rate
from palaestra.credit.scopes import scope_keys
from palaestra.credit.table import Table, Values
from palaestra.errors import Fault, UserError
from palaestra.objective.reward_model import Regression
from palaestra.rewards.labels import QUALITY_LABELS, Beside, Labels
from palaestra.rewards.learned import Learned
from palaestra.rollout.collect import Sample, Score, links
from palaestra.step import Learner, Recipe
from palaestra.types import Group, Reward, stage
from palaestra.update import AdamW
from palaestra.values import vary

CARD = Card(
    title="GRPO with multi-label reward regression",
    paper="arXiv:2503.21819",
    claim="A reward from several explicit labels improves all of them, where one collapsed score may trade one for another.",
    source="abstract and two summaries; loss, weights, gate and the order after_norm inferred",
    size=Size(
        setting="policies of 0.5B, 7B and 14B with LoRA of unknown rank; politeness, meaningfulness, actionability, "
        "safety, of unknown weights",
        model="qwen2.5-14b",
    ),
)


@stage
class MultiLabel:
    """R of the module's docstring from the heads of `model`; parts MODEL/LABEL."""

    labels: tuple[str, ...] = QUALITY_LABELS
    weights: tuple[float, ...] = ()
    gate: str = ""
    floor: float = 0.5
    content: tuple[str, ...] = ("right", "worked")
    model: str = "reward"

    async def __call__(self, ctx: Context, group: Group) -> list[Reward | Fault]:
        found = await Learned(self.model, self.labels, self.weights, squash=True)(ctx, group)
        return [
            self._whole(r, e.text) if isinstance(r, Reward) else r for r, e in zip(found, group.episodes, strict=True)
        ]

    def _whole(self, reward: Reward, text: str) -> Reward:
        s = {k: reward.parts[f"{self.model}/{k}"] for k in self.labels}
        s |= {} if text.strip() else dict.fromkeys(self.content, 0.0)
        weights = self.weights or (1 / len(s),) * len(s)
        total = sum(w * s[k] for k, w in zip(self.labels, weights, strict=True))
        shut = self.gate and s[self.gate] < self.floor
        return Reward(total=0.0 if shut else total, parts={f"{self.model}/{k}": x for k, x in s.items()})


@stage
class EachLabel:
    """sum_k w_k (s_k - mean) / std, every label normalised in its group; one without variance adds 0."""

    labels: tuple[str, ...] = QUALITY_LABELS
    weights: tuple[float, ...] = ()
    model: str = "reward"
    eps: float = 1e-6
    spreads: ClassVar[bool] = True  # equal sums of different labels

    def __call__(self, x: Values, table: Table) -> Values:
        out_E, key_E = np.zeros_like(x.x_N), scope_keys(table, "group")
        for k, w in zip(self.labels, self.weights or (1 / len(self.labels),) * len(self.labels), strict=True):
            s_E = np.array(
                [e.reward.parts.get(f"{self.model}/{k}", np.nan) if e.reward else np.nan for e in table.episodes]
            )
            if np.isnan(s_E).any():
                raise UserError(f"an episode's reward has no part {self.model}/{k}, which after_norm normalises")
            out_E += w * (s_E - pure.group_mean(s_E, key_E)) / (pure.group_std(s_E, key_E) + self.eps)
        return Values(level="episode", x_N=out_E)


def build(
    weights: tuple[float, ...] = (),
    gate: str = "",
    floor: float = 0.5,
    aggregate: Literal["before_norm", "after_norm"] = "before_norm",
) -> Recipe:
    parent, reward = recipe("grpo"), MultiLabel(QUALITY_LABELS, weights, gate, floor)
    policy = vary(parent, credit=credit(aggregate, weights)).learners
    learners = {**policy, "reward": label_learner(tuple(f"label/{k}" for k in QUALITY_LABELS))}
    collect = links(Sample(n=8), Score(reward=reward, shadow=True), Beside(Labels(), "label"))
    return vary(parent, collect=collect, learners=learners)


def credit(aggregate: str, weights: tuple[float, ...] = ()) -> Chain:
    if aggregate == "after_norm":
        return chain(EachLabel(QUALITY_LABELS, weights))
    return chain(Center("group"), Scale("group", ddof=0))


def label_learner(targets: tuple[str, ...], heads: tuple[str, ...] = QUALITY_LABELS) -> Learner:
    """The reward model: an output a label."""
    objective = Regression(heads, targets, squash=True)
    return Learner(credit=Rate(targets=targets), objective=objective, heads=heads, optimiser=AdamW(lr=1e-3))
