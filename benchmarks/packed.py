"""`python -m benchmarks.packed [MODEL] [N] [ROUNDS]`: how far log-probs of the scorer, and so of the training
forward pass, depend on which other rows are packed with a row.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from palaestra.models.load import Model, load
from palaestra.models.score import Pair, score_pairs
from palaestra.types import rng_of


def pairs_of(model: Model, n: int) -> list[Pair]:
    """`n` prompts of 5 to 99 random tokens, with answers of 2 to 59."""
    rng, most = rng_of(("packed",)), min(250, model.vocabulary)
    draw = lambda low, high: tuple(map(int, rng.integers(3, most, rng.integers(low, high))))
    return [(draw(5, 100), draw(2, 60)) for _ in range(n)]


def gaps(model: Model, pairs: Sequence[Pair], size: int, rounds: int = 1) -> list[np.ndarray]:
    """Absolute differences [tokens] in nats of each row alone and among `size` of them, which are drawn
    anew in every round.
    """
    alone = [score_pairs(model, [pair])[0] for pair in pairs]
    found, rng = list[np.ndarray](), rng_of(("company", size))
    for _ in range(rounds):
        order = rng.permutation(len(pairs))
        for some in (order[i : i + size] for i in range(0, len(order), size)):
            scores = score_pairs(model, [pairs[k] for k in some])
            found += [np.abs(x - alone[k]) for k, x in zip(some, scores, strict=True)]
    return found


def main(name: str = "tiny", n: str = "24", rounds: str = "3") -> None:
    model = load(name, dtype="float32")
    pairs = pairs_of(model, int(n))
    print(
        "| model | rows together | rows that differ | tokens that differ | mean, nats | largest |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for size in (2, 4, 8, int(n)):
        every = gaps(model, pairs, size, int(rounds))
        tokens = np.concatenate(every)
        rows = sum(bool(x.any()) for x in every)
        print(
            f"| {name} | {size} | {rows} of {len(every)} | {(tokens > 0).mean():.0%} | "
            f"{tokens.mean():.1e} | {tokens.max():.1e} |"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
