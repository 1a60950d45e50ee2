"""How well a policy tells molecules apart, and how much of what it says of them is true."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.domains.mppreasoner import claims, rewards

OPEN = "<answer>"


def before_answer(text: str) -> str:
    """A reply up to the place where True or False stands; one that has none is made to answer there."""
    head, mark, _ = text.rpartition(OPEN)
    if mark:
        return head + OPEN
    closed = "" if "</think>" in text or "<think>" not in text else "</think>"
    return text.rstrip() + closed + OPEN


def true_shares(ctx: Any, episodes: Sequence[pl.Episode]) -> list[float]:
    """P(True) / (P(True) + P(False)) of the policy behind the thoughts of each reply."""
    starts = [before_answer(pl.response_text(e)) for e in episodes]
    asked = [
        (e, s, word) for e, s in zip(episodes, starts, strict=True) for word in ("True", "False")
    ]
    logps = [float(x.sum()) for x in pl.rewards.reference_logp(ctx, "policy", asked)]
    return [
        1 / (1 + math.exp(min(700.0, no - yes)))
        for yes, no in zip(logps[::2], logps[1::2], strict=True)
    ]


@dataclass(frozen=True)
class MoleculeExam:
    """An evaluator: greedy answers to held-out molecules.

    "auc" is the area under the ROC curve of P(True) against P(False) behind the thoughts, "right" the share
    of right answers, "claims" what an answer claims of its molecule, "confirmed" the share of this that RDKit
    confirms, "information" the entropy in bits of which claims are made, which is what they tell of the
    molecule, as greedy answers follow from it: 0 = every molecule is said to be the same.
    """

    tasks: int = 64

    async def __call__(self, ctx: Any) -> Mapping[str, Any]:
        test = [ctx.bench.tasks.task("test", i) for i in pl.run.chosen_tasks(ctx.bench, self.tasks)]
        attempt: Callable[..., Any] = pl.Sample(n=1, temperature=0.0)
        keys = [(ctx.seed, "molecules", i) for i in range(len(test))]
        groups = await asyncio.gather(
            *(attempt(ctx, key, pl.Group(task=t)) for key, t in zip(keys, test, strict=True))
        )
        answered = [(g.task, e) for g in groups for e in g.episodes[:1] if e.ok]
        if not answered:
            return {}
        shares = true_shares(ctx, [e for _, e in answered])
        return exam_numbers(
            [t for t, _ in answered], [pl.response_text(e) for _, e in answered], shares
        )


def exam_numbers(
    tasks: Sequence[pl.Task], texts: Sequence[str], shares: Sequence[float]
) -> dict[str, float]:
    """The numbers of `MoleculeExam`; one that nothing can be said of is left out."""
    gold_N = np.array([float(str(t.answer) == "True") for t in tasks])
    answers = [rewards.read_answer(x) for x in texts]
    counts = [
        rewards.confirmed(x, pl.tasks.molecule_of(t), rewards.neighbours_of(t))
        for x, t in zip(texts, tasks, strict=True)
    ]
    kinds = Counter(said_of(x, t) for x, t in zip(texts, tasks, strict=True))
    share_K = np.array(list(kinds.values())) / len(texts)
    true, every = (sum(x) for x in zip(*counts, strict=True))
    numbers = {
        "auc": pl.stats.roc_auc(np.array(shares), gold_N),
        "right": float(
            np.mean(
                [
                    a.verdict is not None and a.verdict == y
                    for a, y in zip(answers, gold_N, strict=True)
                ]
            )
        ),
        "claims": every / len(texts),
        "confirmed": true / every if every else None,
        "information": float(-(share_K * np.log2(share_K)).sum()),
    }
    return {name: x for name, x in numbers.items() if x is not None}


def said_of(text: str, task: pl.Task) -> frozenset[tuple[str, str, bool]]:
    """The claims of a text, whatever is true of them."""
    smiles, others = pl.tasks.molecule_of(task), rewards.neighbours_of(task)
    every = [
        *claims.principle_claims(text, smiles, others),
        *claims.structure_claims(text, smiles, others),
    ]
    return frozenset((c.about, c.band, c.negated) for c in every)
