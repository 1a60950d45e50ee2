"""From measured numbers to a verdict: a function of what a result stores, so that anybody can
recompute it (`palaestra reproduce --check`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from palaestra.ledger.expectations import Expectation, Greater, Judged, Needs, Veto
from palaestra.stats import (
    MOST_FLIPPED,
    Interval,
    interquartile_mean,
    irregularity,
    mean_interval,
    paired_difference,
    sign_flip_interval,
    stratified_bootstrap,
)
from palaestra.types import value_class

LEAST_SEEDS = 3  # of a block, below which an interval says nothing about a claim

# by task, one per seed in the order of the blocks; None = failed or not measured
ValuesByTask = Mapping[str, Sequence[float | None]]


@value_class
class Measured:
    """What was measured of an experiment.

    Args:
        arms: the measure, by arm.
        blocks: the seeds, in the order in which values are listed.
        vetoes: what each veto measures, by arm, one per seed.
    """

    arms: Mapping[str, ValuesByTask]
    blocks: Sequence[Sequence[int]]
    vetoes: Mapping[str, Mapping[str, Sequence[float | None]]]


def judge(
    expect: Expectation,
    measured: Measured,
    reasons: Sequence[Needs] = (),
    vetoes: Mapping[str, Veto] | None = None,
    *,
    illustration: bool = False,
) -> dict[str, Any]:
    """Effect, intervals, verdict and what each reason and veto says, as a result stores them."""
    result: dict[str, Any] = {"effect": None, "ci95": [None, None], "by_block": []}
    first, second = expect.arms
    statements = {n: _of_veto(n, v, expect, measured) for n, v in (vetoes or {}).items()}
    if lacking := _lacking(expect, measured):
        statements = {r.without: _of_reason(r, expect, measured) for r in reasons} | statements
        return {**result, "verdict": "inconclusive", "reason": lacking, "said": statements}
    effect = effect_of(measured.arms[first], measured.arms[second])
    parts = [effect_of(*(_cut(measured.arms[a], s) for a in (first, second)))
             for s in _slices(measured.blocks)]  # fmt: skip
    statements = {
        r.without: _of_reason(r, expect, measured, [effect, *parts]) for r in reasons
    } | statements
    result["effect"], result["ci95"] = effect.mean, [effect.low, effect.high]
    result["by_block"] = [{"effect": p.mean, "ci95": [p.low, p.high]} for p in parts]
    decides = effect
    if len(measured.arms[first]) == 1 and effect.n <= MOST_FLIPPED:
        differences = _differences(measured.arms[first], measured.arms[second])
        shape = irregularity(differences)
        flipped = sign_flip_interval(differences)
        result |= {"shape": shape}
        if math.isfinite(flipped.low):  # five differences have none
            result |= {"ci95_permutation": [flipped.low, flipped.high]}
            if shape:
                low, high = min(effect.low, flipped.low), max(effect.high, flipped.high)
                decides = Interval(mean=effect.mean, low=low, high=high, n=effect.n)
    judgement = expect.judge(decides, parts)
    stopped = [n for n in vetoes or {} if statements[n]["speaks"]]
    unknown = [n for n in vetoes or {} if "effect" not in statements[n] or statements[n]["doubts"]]
    if illustration:
        judgement = Judged("illustration", "nothing is trained: it shows what a program does")
    elif stopped and judgement.verdict in ("reproduced", "smaller", "inconclusive"):
        judgement = Judged(
            "not-reproduced", f"vetoed: {'; '.join(statements[n]['said'] for n in stopped)}"
        )
    elif unknown and judgement.verdict in ("reproduced", "smaller"):
        judgement = Judged("inconclusive", "; ".join(statements[n]["said"] for n in unknown))
    return {**result, "verdict": judgement.verdict, "reason": judgement.reason, "said": statements}


def _lacking(expect: Expectation, measured: Measured) -> str:
    """Why there can be no verdict; "" if there can."""
    missing = [a for a in expect.arms if a not in measured.arms]
    if missing:
        return f"needs the arms {' and '.join(expect.arms)}"
    if any(None in row for a in expect.arms for row in measured.arms[a].values()):
        return "not every seed of both arms has finished with a number"
    if any(len(block) < LEAST_SEEDS for block in measured.blocks):
        n = min(map(len, measured.blocks))
        return f"{n} seeds in a block are too few"
    return ""


def _of_reason(
    needs: Needs, expect: Expectation, measured: Measured, effects: Sequence[Interval] = ()
) -> dict[str, Any]:
    """Whether the effect goes where the reason for it is taken away; `effects` are those of all
    seeds and of each block, none where there is no number.
    """
    arm, better = (measured.arms.get(a, {}) for a in (needs.without, expect.arms[1]))
    rows = (*arm.values(), *better.values())
    if not arm or not better or any(None in row or len(row) < LEAST_SEEDS for row in rows):
        return {"kind": "reason", "said": f"{needs.without}: not measured"}
    arm_effect = effect_of(arm, better)
    return {
        "kind": "reason",
        "effect": arm_effect.mean,
        "ci95": [arm_effect.low, arm_effect.high],
        "said": _reason_said(needs, arm_effect, expect, measured, effects),
    }


def _reason_said(
    needs: Needs,
    interval: Interval,
    expect: Expectation,
    measured: Measured,
    effects: Sequence[Interval],
) -> str:
    """What the better arm's lead over the arm without a reason says of it.

    Args:
        found: better - without.
        effects: better - the other arm, over all seeds and in each block.
    """
    by = expect.margins[-1]
    if needs.without in expect.arms:
        return f"this experiment has no arm that lacks this alone: {needs.reason}"
    if isinstance(expect, Greater) and effects:
        whole = effects[0]
        if any(e.low <= 0 for e in effects):  # nothing that could have a reason
            head = "the effect is negative" if whole.high < 0 else "no certain effect"
            lead = f"{interval.mean:+.3g} [{interval.low:.3g}, {interval.high:.3g}]"
            return f"{head}; against {needs.without}: {lead}"
        remains = effect_of(measured.arms[expect.than], measured.arms[needs.without])
        if interval.low > 0 and remains.low > 0:
            return (
                f"adds {interval.mean:.3g}, and {remains.mean:.3g} stay without it: {needs.reason}"
            )
        if interval.low > 0 and remains.high < 0:
            below = f"{-remains.mean:.3g} below {expect.than} without it"
            return f"needed ({below}): {needs.reason}"
        by = min(by, whole.mean / 2)
    words = {"held": "needed", "refuted": "not needed", "open": "open whether it is needed"}
    return f"{words[needs.said(interval, by)]}: {needs.reason}"


def _of_veto(name: str, veto: Veto, expect: Expectation, measured: Measured) -> dict[str, Any]:
    """What the better arm lost of something else."""
    pair = (veto.against or expect.arms[0], expect.arms[1])
    first, second = (list(measured.vetoes[name].get(a, [None])) for a in pair)
    spoken = {"kind": "veto", "falls": veto.falls, "against": pair[0]}
    if None in (*first, *second) or len(first) < LEAST_SEEDS:
        return spoken | {"speaks": False, "said": f"{name}: not measured"}
    difference = paired_difference(_known(first), _known(second))
    allowed = f"a fall of {veto.falls:g} is allowed" if veto.falls else "no fall is allowed"
    return {
        **spoken,
        "effect": difference.mean,
        "ci95": [difference.low, difference.high],
        "speaks": veto.speaks(difference),
        "doubts": veto.doubts(difference),
        "said": f"{name}: {difference.mean:+.3g} [{difference.low:.3g}, {difference.high:.3g}], {allowed}",
    }


def effect_of(first: ValuesByTask, second: ValuesByTask) -> Interval:
    """second - first, paired by seed: the mean with its t interval, or over several tasks the
    interquartile mean.

    The latter with a stratified bootstrap, which draws seeds anew inside each task.
    """
    if len(first) == 1:
        return mean_interval(_differences(first, second))
    differences = {
        t: [b - a for a, b in zip(_known(first[t]), _known(second[t]), strict=True)] for t in first
    }
    return stratified_bootstrap(
        differences, lambda x_N: interquartile_mean(x_N.tolist()), key=("ledger", *differences)
    )


def per_seed(values: ValuesByTask) -> list[float | None]:
    """One per seed: the mean over tasks."""
    return [
        None if None in row else float(np.mean(_known(row)))
        for row in zip(*values.values(), strict=True)
    ]


def _differences(first: ValuesByTask, second: ValuesByTask) -> list[float]:
    rows = zip(_known(per_seed(first)), _known(per_seed(second)), strict=True)
    return [b - a for a, b in rows]


def _slices(blocks: Sequence[Sequence[int]]) -> list[slice]:
    ends = np.cumsum([0, *map(len, blocks)]).tolist()
    return [slice(a, b) for a, b in pairwise(ends)]


def _cut(values: ValuesByTask, rows: slice) -> ValuesByTask:
    return {task: row[rows] for task, row in values.items()}


def _known(values_N: Sequence[float | None]) -> list[float]:
    return [x for x in values_N if x is not None]
