"""ENCORE: the scores of several rules become one reward. A rule whose ratings have a high entropy
counts less.

    H_k = -sum_b p_kb ln p_kb,   w_k = exp(-H_k / tau) / sum_j exp(-H_j / tau),   r = sum_k w_k phi_k        (arXiv:2503.20995)

p_kb is the share of rule k's ratings at level b over the training set, tau = 2, and phi_k in [0, 1]
the head of rule k in one reward model, trained by squared error on the ratings. Nothing is trained
to find the weights. tau -> infinity is the mean, tau -> 0 the rule of least entropy; logarithms to
the base b are those of base e at tau * ln b. A constant rule has H = 0 and would weigh most: the
guard (not in the paper) leaves it out. In a comparison of two responses it cancels anyway, and only
shrinks the scale of r. `normalise` compares rules of different numbers of levels, by H /
ln(levels). Why it should work: a rule rated like a coin is no evidence for a preference. Why it may
not: ratings that are half 0 and half 1 may be informative. The weights are constants of the data
set: how often each rule got each level is counted in its first 4,096 rated answers, or given as
`counts`.

`build` is the pipeline of multilabel-grpo with these weights: a reward model learns the ratings of
the data, GRPO improves the policy on it.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="ENCORE: entropy-penalised multi-head reward composition",
    paper="arXiv:2503.20995",
    claim="Rules whose ratings have high entropy predict preferences badly, and weighing them down "
    "beats uniform weights.",
    source="three consistent second-hand accounts; base of the logarithm and guards inferred",
    size=pl.Size(
        setting="Llama3.1-8B, 10 rules, about 70k pairs of HH-RLHF and PKU-SafeRLHF, one epoch, lr "
        "2e-5 of the reward model; no policy is trained there",
        model="llama-3.1-8b",
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
                "an answer that was rated, for the reward model and the weights",
            ),
            pl.needs.NeededColumn(
                "ratings",
                "record",
                (
                    {"no harm": 1.0, "no insult": 1.0, "no private data": 0.5},
                    {"no harm": 0.5, "no insult": 1.0, "no private data": 0.0},
                    {"no harm": 0.0, "no insult": 0.5, "no private data": 0.5},
                ),
                "its ratings from 0 to 1, by the rules named in `rules`; few levels each",
            ),
        ),
        shows="part/weight_spread",
        off={"tau": 1e18},
        own={
            "reward.schedule.prompts": 4,
            "rl.schedule.prompts": 2,
            "rl.collect.links.0.n": 2,
            "steps": 2,
            "max_tokens": 8,
        },
    ),
    use="It helps where answers are rated by many rules of which some are rated like coins; with a "
    "few good rules it hardly differs from their mean.",
    lacks=(
        "Rules are not chosen from a hundred candidates: the data says which there are.",
        "How often the weighted reward prefers what people prefer, as on RewardBench, is not "
        "measured.",
    ),
    grade="A",
)
RULES = ("no harm", "no insult", "no private data")
LOOKED_AT = 4096  # records whose ratings are counted
Counts = tuple[tuple[int, ...], ...]  # by rule, by level
# of right, worked, brief, tidy at 0, .25, .5, .75, 1, of 512 answers of the tiny model to `chain`
COUNTS: Counts = (
    (303, 0, 0, 0, 209),
    (378, 0, 0, 0, 134),
    (2, 94, 39, 0, 377),
    (3, 0, 0, 0, 509),
)


def entropies(counts: Sequence[Sequence[float]], base: float = math.e) -> np.ndarray:
    """[R] H_k of how often each rule got each level; 0 ln 0 = 0."""
    entropies_R: list[float] = []
    for levels in counts:
        p = np.asarray(levels, np.float64)
        if not (p >= 0).all() or not p.sum():
            raise pl.UserError(
                f"a rule's ratings are counted as {list(levels)}; give numbers of 0 or more, not "
                "all 0"
            )
        p = p[p > 0] / p.sum()
        entropies_R.append(float(-(p * np.log(p)).sum() / math.log(base)) + 0.0)
    return np.array(entropies_R)


def entropy_weights(
    counts: Sequence[Sequence[float]],
    tau: float = 2.0,
    base: float = math.e,
    guard: bool = True,
    normalise: bool = False,
) -> np.ndarray:
    """[R] w_k, which sum to 1; 0 for a constant rule under the guard."""
    h_R = entropies(counts, base)
    kept_R = h_R > 0 if guard else np.ones(len(h_R), bool)
    if not kept_R.any():
        raise pl.UserError(
            "every rule got the same rating throughout; no weights can be found from entropies"
        )
    h_R = h_R / np.log([max(len(c), 2) for c in counts]) * math.log(base) if normalise else h_R
    w_R = np.where(kept_R, np.exp(-(h_R - h_R[kept_R].min()) / tau), 0.0)
    return w_R / w_R.sum()


def count_ratings(tasks: pl.Tasks, rules: tuple[str, ...]) -> Counts:
    """How often each rule got each of its levels in the data's column `ratings`.

    Raises:
        UserError: no record is rated by a rule.
    """
    rated = pl.rewards.RecordedRatings(rules)
    seen = [rated.ratings(tasks.task("train", i)) for i in range(min(tasks.size or 0, LOOKED_AT))]
    levels = {rule: Counter(x[rule] for x in seen if rule in x) for rule in rules}
    missing = [rule for rule, counts in levels.items() if not counts]
    if missing:
        raise pl.UserError(f"no record has a rating by the rule {missing[0]!r}")
    return tuple(tuple(levels[rule].values()) for rule in rules)


@pl.stage
class EntropyWeighted:
    """sum_k w_k s_k of the heads of `model`, one for each rule. The part "weight_spread" is the
    largest weight less the smallest.
    """

    rules: tuple[str, ...]
    counts: Counts = ()  # () = those of the data
    tau: float = 2.0
    base: float = math.e
    model: str = "reward"

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        w_R = self.weights(ctx.bench.tasks)
        learned = pl.Learned(self.model, self.rules, tuple(w_R.tolist()), squash=True)
        spread = {"weight_spread": float(np.ptp(w_R))}
        return [
            replace(r, parts={**r.parts, **spread}) if isinstance(r, pl.Reward) else r
            for r in await learned(ctx, group)
        ]

    def weights(self, tasks: pl.Tasks) -> np.ndarray:
        """[R] the weight of each rule."""
        counts = self.counts or count_ratings(tasks, self.rules)
        return entropy_weights(counts, self.tau, self.base)


def build(
    rules: tuple[str, ...] = RULES,
    counts: Counts = (),
    tau: float = 2.0,
    base: float = math.e,
    steps: int = 40,
    rated: pl.Collect | None = None,
) -> pl.Pipeline:
    """`steps` are those of the reward model. `rated` collects answers with parts label/RULE for it;
    None = those of the data.
    """
    made = pl.recipe("multilabel-grpo", labels=rules, steps=steps, rated=rated)
    reward = EntropyWeighted(rules, counts, tau, base)
    rl = made.parts["rl"]
    scored = pl.vary(rl.runnable, collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward)))
    return replace(made, parts={**made.parts, "rl": replace(rl, runnable=scored)})


def embedded(**options: Any) -> pl.Pipeline:
    """On the embedded problem, whose answers a program rates."""
    rated = pl.links(
        pl.Sample(n=4), pl.Offline("reward"), pl.Score(), pl.Beside(pl.Labels(), "label")
    )
    own: dict[str, Any] = {
        "rules": pl.rewards.QUALITY_LABELS, "counts": COUNTS, "rated": rated, "steps": 10
    }  # fmt: skip
    return build(**(own | options))
