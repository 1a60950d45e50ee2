"""What the arms show together: the reward that was gained, and its price."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import palaestra as pl

Arms = Mapping[str, Mapping[str, Mapping[str, Any]]]
LEAST = 0.01  # nats of KL below which no price is named


def gain_per_nat(before: float, after: float, kl: float) -> float:
    """The reward gained for each nat of KL to the prior; nan where hardly any was spent."""
    return (after - before) / kl if kl >= LEAST else float("nan")


def numbers_of(arms: Arms) -> dict[str, float | pl.stats.Interval]:
    """All numbers, as MEASURE_ORDER."""
    numbers: dict[str, float | pl.stats.Interval] = {}
    for name, arm in arms.items():
        before, after = arm["before"], arm["after"]
        kl = float(np.mean(after["kl"]))
        numbers |= {
            f"reward_prior_{name}": pl.stats.mean_interval(before["reward"]),
            f"reward_{name}": pl.stats.mean_interval(after["reward"]),
            f"strict_prior_{name}": pl.stats.mean_interval(before["strict"]),
            f"strict_{name}": pl.stats.mean_interval(after["strict"]),
            f"kl_{name}": kl,
            f"gain_per_nat_{name}": gain_per_nat(
                float(np.mean(before["reward"])), float(np.mean(after["reward"])), kl
            ),
            f"whole_{name}": float(np.mean(after["whole"])),
            **{
                f"{k}_{name}": float(x)
                for k, x in arm["tokens"].items()
                if k[:5] in ("error", "cells")
            },
        }
    return numbers


def report(question: str, arms: Arms) -> pl.studies.StudyReport:
    numbers = numbers_of(arms)
    tell = pl.studies.tell_interval
    rows: list[list[str]] = []
    for name in arms:
        number = lambda k, name=name: numbers[f"{k}_{name}"]
        cells = [tell(number(k)) for k in ("reward_prior", "reward", "strict_prior", "strict")]  # type: ignore[arg-type]
        rows.append(
            [
                name,
                f"{number('cells'):.3f}",
                *cells,
                f"{number('kl'):.2f}",
                f"{number('gain_per_nat'):.3f}",
            ]
        )
    columns = [
        "tokens", "cells right", "reward of the prior", "after RL", "second program, prior", "second program, after RL",
        "KL in nats", "gain a nat",
    ]  # fmt: skip
    return pl.studies.StudyReport(
        study="selftok",
        question=question,
        findings=findings(numbers, arms),
        numbers=numbers,
        protocol={
            "exam": f"{len(next(iter(arms.values()))['after']['reward'])} sampled pictures of held-out prompts; the KL "
            "is the mean of log p / p_prior of a sampled picture",
            "second program": "the same tests, for which only things of the size and shape of the data's own count",
        },
        tables=[
            pl.studies.StudyTable(
                "Orders of tokens",
                columns,
                rows,
                "One run of each. Tokenizers of equal rate; where `cells right` differ, compare gains with care.",
            )
        ],
    )


def findings(numbers: Mapping[str, Any], arms: Arms) -> list[str]:
    """As sentences."""
    price = {n: numbers[f"gain_per_nat_{n}"] for n in arms}
    ranked = sorted((n for n in price if np.isfinite(price[n])), key=lambda n: -price[n])
    lines = list[str]()
    if len(ranked) > 1:
        told = ", ".join(f"{n} {price[n]:.3f}" for n in ranked)
        lines.append(
            f"Reward gained for a nat of KL to the prior, in one run of each order: {told}."
        )
    elif not ranked:
        lines.append("No model moved far enough from its prior to name a price.")
    for n in arms:
        gain, strict = (
            numbers[f"{k}_{n}"].mean - numbers[f"{k}_prior_{n}"].mean for k in ("reward", "strict")
        )
        if gain > 0.02 and strict < gain / 2:
            lines.append(
                f"The second program sees {strict:+.3f} of the {gain:+.3f} that {n} gained: part of the reward may be "
                "for blobs; look at pictures.png."
            )
    return lines
