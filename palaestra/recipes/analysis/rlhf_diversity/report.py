"""The findings of the study as sentences, tables and a chart."""

from collections.abc import Mapping, Sequence

import palaestra as pl
from palaestra.recipes.analysis.rlhf_diversity.measures import (
    Variety,
    best_name,
    mean,
)


def tell(
    base: Variety,
    model: Variety,
    less: pl.stats.Interval,
    lost: pl.stats.Interval | None,
    shifted: Mapping[str, Mapping[str, pl.stats.Interval]],
) -> list[str]:
    """The findings as sentences, the answer first."""
    way = "less" if less.high < 0 else "more" if less.low > 0 else "not measurably less or more"
    first = (
        f"Answers to one problem are {way} varied after training: {mean(model.distinct):.3f} of distinct "
        f"n-grams against {mean(base.distinct):.3f}, {pl.studies.tell_interval(less, share=False, signed=True)}."
    )
    if lost is None:
        control = "The start reaches the model's quality at no temperature that was tried, so nothing is matched."
    else:
        seen = "is lost" if lost.low > 0 else "is gained" if lost.high < 0 else "is no seen loss"
        control = (
            f"The start as good as the model, at another temperature, has {mean(model.distinct) + lost.mean:.3f}: "
            f"{pl.studies.tell_interval(lost, share=False, signed=True)} {seen} beyond sharpening."
        )
    lines = [
        f"On {problem} the model gets {each['policy'].mean:.3f}, the start {each['base'].mean:.3f}."
        for problem, each in shifted.items()
    ]
    return [first, control, *lines]


def tell_best(measures: Mapping[str, Variety], n: int) -> list[str]:
    """What best of n gets beside the model, in a list of one sentence; nothing where it was left out."""
    if (best := measures.get(best_name(n))) is None:
        return []
    model = measures["policy"]
    return [
        f"Best of {n} from the start, chosen by the problem's reward, gets {best.quality.mean:.3f} with "
        f"{mean(best.distinct):.3f} of distinct n-grams; the model gets {model.quality.mean:.3f} with "
        f"{mean(model.distinct):.3f}."
    ]


def table(measures: Mapping[str, Variety]) -> pl.studies.StudyTable:
    """All measures of all models."""
    columns = (
        "model",
        "quality",
        "distinct, one problem",
        "across problems",
        "spread, one problem",
        "across problems",
        "KL, nats an answer",
    )
    rows = [
        (
            called(name),
            pl.studies.tell_interval(m.quality, share=False),
            f"{mean(m.distinct):.3f}",
            f"{mean(m.across):.3f}",
            f"{m.spread_within:.3f}",
            f"{m.spread_across:.3f}",
            "" if m.kl is None else f"{m.kl:.2f}",
        )
        for name, m in measures.items()
    ]
    return pl.studies.StudyTable("How varied the answers are", columns, rows)


def shifted_tables(
    measures: Mapping[str, Variety], shifted: Mapping[str, Mapping[str, pl.stats.Interval]]
) -> list[pl.studies.StudyTable]:
    """Quality on the other problems, and how much less it is than on the one trained on."""
    if not shifted:
        return []
    rows = [
        (
            called(name),
            problem,
            pl.studies.tell_interval(each[name], share=False),
            f"{m.quality.mean - each[name].mean:+.3f}",
        )
        for problem, each in shifted.items()
        for name, m in measures.items()
        if name in each
    ]
    return [
        pl.studies.StudyTable("On other problems", ("model", "problem", "quality", "gap"), rows)
    ]


def called(name: str) -> str:
    return {"base": "start", "policy": "model"}.get(name, name)


def chart(measures: Mapping[str, Variety], heats: Sequence[Variety]) -> pl.studies.StudyChart:
    """Diversity against quality: the start's line over temperatures, and a point for each model."""
    line = pl.studies.StudyLine(
        "start, by temperature",
        [m.quality.mean for m in heats],
        [mean(m.distinct) for m in heats],
    )
    points = [
        pl.studies.StudyLine(called(n), [m.quality.mean], [mean(m.distinct)])
        for n, m in measures.items()
        if n != "base"
    ]
    return pl.studies.StudyChart(
        "Variety against quality", "quality", "distinct n-grams", [line, *points]
    )
