"""What the arms show together: the reward that was gained, and its price."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import palaestra as pl

Arms = Mapping[str, Mapping[str, Mapping[str, Any]]]
DRAWS = 2000  # of the bootstrap
LEAST = 0.01  # nats of KL below which no price is named


def gain_per_nat(before: float, after: float, kl: float) -> float:
    """The reward gained for each nat of KL to the prior; nan where hardly any was spent."""
    return (after - before) / kl if kl >= LEAST else float("nan")


def of_prompts(exam: Mapping[str, Any], key: str) -> list[float]:
    """Means over the samples of each prompt, as these are not independent."""
    by: dict[int, list[float]] = {}
    for prompt, x in zip(exam["prompt"], exam[key], strict=True):
        by.setdefault(prompt, []).append(float(x))
    return [float(np.mean(by[p])) for p in sorted(by)]


def price_draws(arm: Mapping[str, Mapping[str, Any]], key: str) -> np.ndarray:
    """[DRAWS] the gain a nat of bootstrap samples of the prompts that both exams have, the same ones for
    every order that has as many; nan where hardly any nat was spent.
    """
    by_prompt = {k: dict(zip(sorted(set(e["prompt"])), of_prompts(e, x), strict=True))
            for k, e, x in (("a", arm["before"], key), ("b", arm["after"], key), ("kl", arm["after"], "kl"))}  # fmt: skip
    both = sorted(set(by_prompt["a"]) & set(by_prompt["b"]))
    gain_N = np.array([by_prompt["b"][p] - by_prompt["a"][p] for p in both])
    kl_N = np.array([by_prompt["kl"][p] for p in both])
    rng = pl.rng_of(("selftok", "bootstrap", len(both)))
    at_RN = rng.integers(0, max(1, len(both)), (DRAWS, len(both)))
    kl_R = kl_N[at_RN].mean(1)
    return np.where(kl_R >= LEAST, gain_N[at_RN].mean(1) / np.maximum(kl_R, LEAST), np.nan)


def percentiles(mean: float, draws_R: np.ndarray, n: int) -> pl.stats.Interval:
    """A bootstrap interval of 95%; without bounds where a draw has no value."""
    low, high = np.quantile(draws_R, (0.025, 0.975)) if len(draws_R) else (np.nan, np.nan)
    some = bool(np.isfinite(low) and np.isfinite(high) and n > 1)
    return pl.stats.Interval(
        mean=mean,
        low=float(low) if some else float("-inf"),
        high=float(high) if some else float("inf"),
        n=n,
    )


def numbers_of(arms: Arms, strict: bool = False) -> dict[str, float | pl.stats.Interval]:
    """All numbers, as MEASURE_ORDER; `strict`: what was paid, whose gain is priced. Intervals are over
    prompts.
    """
    numbers: dict[str, float | pl.stats.Interval] = {}
    paid, draws = ("strict" if strict else "reward"), dict[str, np.ndarray]()
    for name, arm in arms.items():
        before, after = arm["before"], arm["after"]
        kl = float(np.mean(after["kl"]))
        draws[name] = price_draws(arm, paid)
        price = gain_per_nat(float(np.mean(before[paid])), float(np.mean(after[paid])), kl)
        n = len(set(before["prompt"]) & set(after["prompt"]))
        numbers |= {
            f"reward_prior_{name}": pl.stats.mean_interval(of_prompts(before, "reward")),
            f"reward_{name}": pl.stats.mean_interval(of_prompts(after, "reward")),
            f"strict_prior_{name}": pl.stats.mean_interval(of_prompts(before, "strict")),
            f"strict_{name}": pl.stats.mean_interval(of_prompts(after, "strict")),
            f"kl_{name}": kl,
            f"gain_per_nat_{name}": percentiles(price, draws[name], n),
            f"whole_{name}": float(np.mean(after["whole"])),
            **{
                f"{k}_{name}": float(x)
                for k, x in arm["tokens"].items()
                if k[:5] in ("error", "cells")
            },
        }
    if {"nested", "shuffled"} <= arms.keys():
        one, two = (numbers[f"gain_per_nat_{x}"] for x in ("nested", "shuffled"))
        assert isinstance(one, pl.stats.Interval) and isinstance(two, pl.stats.Interval)
        numbers["gain_per_nat_nested_less_shuffled"] = percentiles(
            one.mean - two.mean, draws["nested"] - draws["shuffled"], min(one.n, two.n)
        )
    return numbers


def report(question: str, arms: Arms, strict: bool = False) -> pl.studies.StudyReport:
    numbers = numbers_of(arms, strict)
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
                tell(number("gain_per_nat"), share=False),  # type: ignore[arg-type]
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
            "paid": "by the second program"
            if strict
            else "by the first program, every patch a thing",
            "intervals": "over prompts, the samples of one prompt as one; of the gain a nat by bootstrap",
            "second program": "the same tests, for which only things of the size and shape of the data's own count",
        },
        tables=[
            pl.studies.StudyTable(
                "Orders of tokens",
                columns,
                rows,
                "One run of each. Nested against shuffled is the clean test of order: the same tokens. Spatial tokens differ "
                "from both in their codebook and in what a token means to the language model too. Where `cells right` "
                "differ, compare gains with care.",
            )
        ],
    )


def findings(numbers: Mapping[str, Any], arms: Arms) -> list[str]:
    """As sentences."""
    price = {n: numbers[f"gain_per_nat_{n}"].mean for n in arms}
    clean = numbers.get("gain_per_nat_nested_less_shuffled")
    ranked = sorted((n for n in price if np.isfinite(price[n])), key=lambda n: -price[n])
    lines = list[str]()
    if clean is not None and np.isfinite(clean.mean):
        verb = (
            "more than"
            if clean.low > 0
            else "less than"
            if clean.high < 0
            else "not told apart from"
        )
        lines.append(
            f"The clean test of order, nested against the same tokens shuffled: the gain a nat is {verb} that of shuffled, "
            f"{pl.studies.tell_interval(clean, share=False, signed=True)}, one run of each."
        )
    if len(ranked) > 1:
        prices = ", ".join(f"{n} {price[n]:.3f}" for n in ranked)
        lines.append(
            f"Reward gained for a nat of KL to the prior, in one run of each order: {prices}."
        )
    elif not ranked:
        lines.append("No model moved far enough from its prior to name a price.")
    for n in arms:
        gain, strict = (
            numbers[f"{k}_{n}"].mean - numbers[f"{k}_prior_{n}"].mean for k in ("reward", "strict")
        )
        if strict < -0.02:
            lines.append(
                f"By the second program {n} loses {-strict:.3f} of the {numbers[f'strict_prior_{n}'].mean:.3f} that its prior "
                f"has, while the first one sees {gain:+.3f}: what is gained is paid for specks and blobs."
            )
        elif gain > 0.02 and strict < gain / 2:
            lines.append(
                f"The second program sees {strict:+.3f} of the {gain:+.3f} that {n} gained: part of the reward may be "
                "for blobs; look at pictures.png."
            )
    return lines
