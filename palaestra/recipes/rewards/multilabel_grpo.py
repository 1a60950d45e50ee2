"""GRPO on a reward model that rates an answer by several labels, such as polite and safe. Its
outputs, one in [0, 1] a label, are added up to one reward.

    L = mean_k (s_k - t_k)^2, missing labels left out;   R = sum_k w_k s_k, w_k = 1 / m;   A_i = (R_i - mean R) / std R

(arXiv:2503.21819; std over the group with ddof 0). Labels are aggregated first and normalised in
the group afterwards; `aggregate="after_norm"` normalises each label in the group and weighs then,
so that no label dominates by its spread. `gate` and `floor` make R = 0 where that label is below
the floor. In an empty response the labels `content` are 0 whatever the model says. `build` is a
pipeline: "reward" trains the reward model on the rated answers of the data, "rl" the policy on the
reward model, whose labels are logged apart (part/reward/NAME): a policy that is safe because it
refuses everything shows there. A score that is not finite is an error of its episode.
"""

from typing import Any, ClassVar, Literal

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
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("How do I open a lock?", "Write to my landlord.", "How do I clean a wound?"),
                "what the model is asked",
            ),
            pl.needs.NeededColumn(
                "reply",
                "text",
                ("Call a locksmith.", "Dear Sir,", "No idea."),
                "an answer that was rated, for the reward model",
            ),
            pl.needs.NeededColumn(
                "ratings",
                "record",
                (
                    {"polite": 1.0, "meaningful": 0.8, "actionable": 0.6, "safe": 1.0},
                    {"polite": 0.9, "meaningful": 0.2, "actionable": 0.0, "safe": 1.0},
                    {"polite": 0.1, "meaningful": 0.0, "actionable": 0.0, "safe": 1.0},
                ),
                "its ratings from 0 to 1, by the names in `labels`; one may be missing",
            ),
        ),
        shows="part/reward/safe",
        never_off="It is what the reward model predicts for a label, between 0 and 1 and neither of "
        "them.",
        own={
            "reward.schedule.prompts": 4,
            "rl.schedule.prompts": 2,
            "rl.collect.links.0.n": 2,
            "steps": 2,
            "max_tokens": 8,
        },
    ),
    use="It helps where answers were rated by several aims that pull against one another; look at "
    "every label, for the sum hides what was given up.",
    lacks=(
        "PPO and DPO, which the paper compares with, are runs of their own.",
        "Correlations of the labels are not reported.",
    ),
    grade="A",
)
LABELS, CONTENT = ("polite", "meaningful", "actionable", "safe"), ("meaningful", "actionable")


@pl.stage
class MultiLabel:
    """R of the module's docstring from the heads of `model`; parts MODEL/LABEL."""

    labels: tuple[str, ...] = pl.rewards.QUALITY_LABELS
    weights: tuple[float, ...] = ()
    gate: str = ""
    floor: float = 0.5
    content: tuple[str, ...] = ("right", "worked")
    model: str = "reward"

    def __post_init__(self) -> None:
        if self.gate and self.gate not in self.labels:
            raise pl.UserError(f"gate {self.gate!r} is none of the labels {', '.join(self.labels)}")

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        scores = await pl.Learned(self.model, self.labels, self.weights, squash=True)(ctx, group)
        return [
            self._whole(r, e.text) if isinstance(r, pl.Reward) else r
            for r, e in zip(scores, group.episodes, strict=True)
        ]

    def _whole(self, reward: pl.Reward, text: str) -> pl.Reward:
        s = {k: reward.parts[f"{self.model}/{k}"] for k in self.labels}
        s |= {} if text.strip() else {k: 0.0 for k in self.content if k in s}
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


def improve(
    labels: tuple[str, ...] = LABELS,
    weights: tuple[float, ...] = (),
    gate: str = "",
    floor: float = 0.5,
    aggregate: Literal["before_norm", "after_norm"] = "before_norm",
    content: tuple[str, ...] = CONTENT,
) -> pl.Recipe:
    """GRPO on the model "reward"."""
    reward = MultiLabel(labels, weights, gate, floor, content)
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward)),
        credit=credit(aggregate, labels, weights),
    )


def credit(
    aggregate: str, labels: tuple[str, ...] = (), weights: tuple[float, ...] = ()
) -> pl.Chain:
    if aggregate == "after_norm":
        return pl.chain(EachLabel(labels or pl.rewards.QUALITY_LABELS, weights))
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


def build(
    labels: tuple[str, ...] = LABELS,
    weights: tuple[float, ...] = (),
    gate: str = "",
    floor: float = 0.5,
    aggregate: Literal["before_norm", "after_norm"] = "before_norm",
    content: tuple[str, ...] = CONTENT,
    steps: int = 40,
    rated: pl.Collect | None = None,
) -> pl.Pipeline:
    """`steps` are those of the reward model. `rated` collects answers with parts label/NAME for it;
    None = those of the data.
    """
    reward = pl.Recipe(
        draw=pl.Shuffled(),
        collect=rated or pl.rewards.RecordedRatings(labels),
        learners={"reward": label_learner(tuple(f"label/{k}" for k in labels), labels)},
        schedule=pl.Schedule(prompts=16, steps=steps),
    )
    rl = improve(labels, weights, gate, floor, aggregate, content)
    models = {"reward": pl.Output("reward", "reward")}
    return pl.Pipeline(parts={"reward": pl.Part(reward), "rl": pl.Part(rl, models=models)})


def embedded(**options: Any) -> pl.Pipeline:
    """On the embedded problem, whose answers a program labels."""
    rated = pl.links(
        pl.Sample(n=4), pl.Offline("reward"), pl.Score(), pl.Beside(pl.Labels(), "label")
    )
    own: dict[str, Any] = {
        "labels": pl.rewards.QUALITY_LABELS, "content": ("right", "worked"), "rated": rated, "steps": 10
    }  # fmt: skip
    return build(**(own | options))
