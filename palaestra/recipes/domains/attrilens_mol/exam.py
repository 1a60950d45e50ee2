"""What the named attributes are worth: as features of a small decision tree."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.domains.attrilens_mol import attributes

DEPTH, LEAST = 4, 5  # of the tree, and of the molecules in a leaf


@dataclass(frozen=True)
class AttributeTree:
    """A leaf (column -1), or where a column is split. `share` is that of class 1."""

    share: float
    column: int = -1
    cut: float = 0.0
    below: "AttributeTree | None" = None
    above: "AttributeTree | None" = None


def grow_tree(
    x_NF: np.ndarray, y_N: np.ndarray, depth: int = DEPTH, least: int = LEAST
) -> AttributeTree:
    """A CART tree (Breiman and others, 1984): each split makes the weighted Gini impurity

        sum over both sides of n_side * 2 p (1 - p)

    smallest, over all columns and all cuts halfway between two neighbouring values.
    """
    share = float(y_N.mean())
    best = (len(y_N) * 2 * share * (1 - share) - 1e-9, -1, 0.0)
    for column in range(x_NF.shape[1]) if depth else ():
        order = np.argsort(x_NF[:, column], kind="stable")
        x_N, ones_N = x_NF[order, column], np.cumsum(y_N[order])
        n_N = np.arange(1, len(y_N))
        left_N, right_N = ones_N[:-1] / n_N, (ones_N[-1] - ones_N[:-1]) / (len(y_N) - n_N)
        impurity_N = 2 * (n_N * left_N * (1 - left_N) + (len(y_N) - n_N) * right_N * (1 - right_N))
        allowed_N = (x_N[1:] > x_N[:-1]) & (n_N >= least) & (len(y_N) - n_N >= least)
        if not allowed_N.any():
            continue
        at = int(np.argmin(np.where(allowed_N, impurity_N, np.inf)))
        if impurity_N[at] < best[0]:
            best = (float(impurity_N[at]), column, float((x_N[at] + x_N[at + 1]) / 2))
    _, column, cut = best
    if column < 0:
        return AttributeTree(share)
    low_N = x_NF[:, column] <= cut
    sides = (grow_tree(x_NF[side], y_N[side], depth - 1, least) for side in (low_N, ~low_N))
    return AttributeTree(share, column, cut, *sides)


def tree_share(node: AttributeTree, x_F: np.ndarray) -> float:
    """The share of class 1 in the leaf that a molecule falls into."""
    while node.below is not None and node.above is not None:
        node = node.below if x_F[node.column] <= node.cut else node.above
    return node.share


def tree_auc(
    names: Sequence[str], train: Sequence[pl.Task], test: Sequence[pl.Task], positive: str
) -> float | None:
    """Of a tree on some descriptors, fitted on training molecules; None without two classes held out."""
    if not names:
        return None
    x, y = zip(
        *((features(part, names), classes(part, positive)) for part in (train, test)), strict=True
    )
    tree = grow_tree(x[0], y[0])
    return pl.stats.roc_auc(np.array([tree_share(tree, row) for row in x[1]]), y[1])


def features(tasks: Sequence[pl.Task], names: Sequence[str]) -> np.ndarray:
    """[molecules, descriptors]"""
    return np.array(
        [
            [pl.tasks.descriptor_value(pl.tasks.molecule_of(t), n) or 0.0 for n in names]
            for t in tasks
        ]
    )


def classes(tasks: Sequence[pl.Task], positive: str) -> np.ndarray:
    """1 where the answer is the favourable one."""
    return np.array([float(str(t.answer) == positive) for t in tasks])


@dataclass(frozen=True)
class AttributeExam:
    """An evaluator: greedy answers to held-out molecules.

    "named" attributes that are known an answer, "confirmed" the share of their statuses that the
    intervals confirm, "tree" the area under the curve (AUC) of a tree of depth 4 on the `top`
    descriptors that are named most often, "tree_all" that of a tree on all descriptors. Trees are fitted
    on training molecules.
    """

    given: tuple[tuple[str, float, float], ...] = ()
    positive: str = ""
    tasks: int = 64
    top: int = 5
    drawn: bool = (
        True  # without `given`, intervals of the training molecules; else "confirmed" is left out
    )

    async def __call__(self, ctx: Any) -> Mapping[str, Any]:
        known = ctx.bench.tasks
        positive = self.positive or pl.tasks.favourable_answer(attributes.answers_of(known))
        test = [known.task("test", i) for i in pl.run.chosen_tasks(ctx.bench, self.tasks)]
        attempt: Callable[..., Any] = pl.Sample(n=1, temperature=0.0)
        keys = [(ctx.seed, "attributes", i) for i in range(len(test))]
        groups = await asyncio.gather(
            *(attempt(ctx, key, pl.Group(task=t)) for key, t in zip(keys, test, strict=True))
        )
        texts = [pl.response_text(e) for g in groups for e in g.episodes[:1]]
        return exam_numbers(
            texts,
            test,
            attributes.training_tasks(known),
            self._intervals(known, positive),
            positive,
            self.top,
        )

    def _intervals(self, tasks: pl.Tasks, positive: str) -> attributes.Intervals:
        if self.given:
            return {name: (low, high) for name, low, high in self.given}
        drawn = attributes.drawn_intervals(tasks, positive) if self.drawn else {}
        return {name: (low, high) for name, (low, high) in drawn.items()}


def exam_numbers(
    texts: Sequence[str],
    test: Sequence[pl.Task],
    train: Sequence[pl.Task],
    intervals: attributes.Intervals,
    positive: str,
    top: int,
) -> dict[str, float]:
    """The numbers of `AttributeExam`; one that nothing can be said of is left out."""
    if not texts:
        return {}
    named = [
        {pl.verifiers.descriptor_named(n) for n, _ in attributes.named_items(x) or []} - {None}
        for x in texts
    ]
    often = Counter(str(n) for names in named for n in sorted(map(str, names)))
    most = sorted(often, key=lambda n: (-often[n], n))[:top]
    verdicts = [
        v
        for x, t in zip(texts, test, strict=True)
        for v in attributes.agreements(x, pl.tasks.molecule_of(t), intervals)
        if v is not None
    ]
    numbers = {
        "named": sum(map(len, named)) / len(named),
        "confirmed": sum(verdicts) / len(verdicts) if verdicts else None,
        "tree": tree_auc(most, train, test, positive),
        "tree_all": tree_auc(list(pl.verifiers.DESCRIPTORS), train, test, positive),
    }
    return {name: x for name, x in numbers.items() if x is not None}
