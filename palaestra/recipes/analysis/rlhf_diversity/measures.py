"""What is measured of a model's answers: their variety, and how far they are from the start's."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import palaestra as pl

READ = 100  # tokens of an answer whose states are read


@dataclass(frozen=True, slots=True)
class Variety:
    """Of one model's answers: their quality; distinct n-grams of each problem's answers, by problem, and
    of each sample's answers to all problems; the quality by problem, of those with distinct n-grams; the
    spread of states, means; and the divergence from the start, None where it cannot be told.
    """

    quality: pl.stats.Interval
    within: Mapping[int, float]
    across: list[float]
    qualities: Mapping[int, float]
    spread_within: float = math.nan
    spread_across: float = math.nan
    kl: float | None = None

    @property
    def distinct(self) -> list[float]:
        """Of the problems, in their order."""
        return list(self.within.values())


def mean(values: Any) -> float:
    return float(np.mean(values))


def quality_of(items: Sequence[pl.studies.Item]) -> pl.stats.Interval:
    """The mean over problems that have an answer."""
    return pl.stats.unbounded_interval([q for q in pl.studies.quality(items) if q == q])


def measure(ctx: pl.Context, name: str, items: Sequence[pl.studies.Item]) -> Variety:
    """Of a model's answers; without a name only what texts alone say."""
    start = ctx.model("base")
    spell: Callable[[str], tuple[int, ...]] = lambda text: tuple(
        start.tokenizer.encode(text, add_special_tokens=False, verbose=False)
    )
    several = [x for x in items if len(x["texts"]) > 1]
    if not several:
        raise pl.UserError(
            "no problem has two answers that could be sampled; diversity is of several"
        )
    ids = [[spell(t) for t in x["texts"]] for x in several]
    columns = list(zip(*ids, strict=False))  # of each sample, one answer a problem
    size = len(start.tokenizer)
    plain = Variety(
        quality_of(items),
        {
            x["problem"]: pl.studies.distinct_ngrams(each, size)
            for x, each in zip(several, ids, strict=True)
        },
        [pl.studies.distinct_ngrams(each, size) for each in columns],
        {
            x["problem"]: q
            for x, q in zip(items, pl.studies.quality(items), strict=True)
            if len(x["texts"]) > 1
        },
    )
    if not name:
        return plain
    states = [
        pl.models.activations(
            start, [t[:READ] or (0,) for t in each], [len(start.layers)], at="mean"
        )[:, 0]
        for each in ids
    ]
    return replace(
        plain,
        spread_within=mean([pl.studies.spread(each) for each in states]),
        spread_across=mean(
            [pl.studies.spread(np.array(each)) for each in zip(*states, strict=False)]
        )
        if len(states) > 1
        else math.nan,
        kl=divergence(ctx, name, several),
    )


def divergence(ctx: pl.Context, name: str, items: Sequence[pl.studies.Item]) -> float | None:
    """The mean over answers of log p of the model less that of the start, in nats an answer; None
    where an episode has more than a question and an answer. Of an answer that was cut the end is not
    counted, which the model did not write.
    """
    if not isinstance(ctx.bench.world, pl.worlds.Question):
        return None
    written = [
        pl.run.WrittenText(text, tuple(ctx.bench.tasks.task("test", x["problem"]).prompt), cut)
        for x in items
        for text, cut in zip(x["texts"], x["cut"], strict=True)
    ]
    sums = [
        [
            float(np.sum(each))
            for each in pl.models.score_pairs(model, pl.run.spell_texts(model, written)[0])
        ]
        for model in (ctx.model(name), ctx.model("base"))
    ]
    return mean(sums[0]) - mean(sums[1])


def lost_beyond_sharpening(heats: Sequence[Variety], model: Variety) -> pl.stats.Interval | None:
    """How many distinct n-grams the model has less than the start at the temperature at which it is as
    good, on the line between two neighbouring temperatures; None where it is so at none.

    With mean diversities D and qualities Q of the hotter (0) and colder (1) one and of the model (m):

        w = (Q_m - Q_0) / (Q_1 - Q_0),   lost = D_0 + w (D_1 - D_0) - D_m

    and the t interval of the linearised terms of the problems, whose mean is `lost` itself:

        d_0 + w (d_1 - d_0) - d_m + (D_1 - D_0) (q_m - q_0 - w (q_1 - q_0)) / (Q_1 - Q_0)

    Of two that are equally good w = 0, and the second part is left out.

    Args:
        heats: of the start, the hottest first; of several crossings the first counts.
        model: all are compared on the problems that each of them has.
    """
    both = [i for i in model.within if all(i in x.within for x in heats)]
    d_HN, q_HN = (
        np.array([[of[i] for i in both] for of in each])
        for each in ([x.within for x in heats], [x.qualities for x in heats])
    )
    d_N, q_N = (np.array([of[i] for i in both]) for of in (model.within, model.qualities))
    if not both:
        return None
    for d0_N, d1_N, q0_N, q1_N in zip(d_HN, d_HN[1:], q_HN, q_HN[1:], strict=False):
        hot, cold, quality = q0_N.mean(), q1_N.mean(), q_N.mean()
        if min(hot, cold) <= quality <= max(hot, cold):
            w = (quality - hot) / (cold - hot) if cold != hot else 0.0
            terms_N = d0_N + w * (d1_N - d0_N) - d_N
            if cold != hot:
                slope = (d1_N - d0_N).mean() / (cold - hot)
                terms_N = terms_N + slope * (q_N - q0_N - w * (q1_N - q0_N))
            return pl.stats.mean_interval(terms_N.tolist())
    return None


def best_name(n: int) -> str:
    return f"start, best of {n}"


def best_of(items: Sequence[pl.studies.Item], n: int) -> list[pl.studies.Item]:
    """The items with the best answer of every `n` that follow one another: of the highest reward, the first
    of equals. What is left over at the end of a problem's answers is dropped.
    """
    made: list[pl.studies.Item] = []
    for x in items:
        blocks = [range(i, i + n) for i in range(0, len(x["texts"]) - n + 1, n)]
        kept = [max(block, key=lambda i: x["rewards"][i]) for block in blocks]
        own = {k: [x[k][i] for i in kept] for k in ("texts", "right", "rewards", "tokens", "cut")}
        made.append({**x, **own})
    return made


def measure_best(ctx: pl.Context, items: Sequence[pl.studies.Item], n: int) -> Variety:
    """Of best of `n` from the start's answers; the KL is its upper bound."""
    return replace(measure(ctx, "base", best_of(items, n)), kl=math.log(n) - (n - 1) / n)
