"""What an update does to each token: seen where the gradient passes, and kept for the run folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

import numpy as np
import torch
from torch import Tensor

from palaestra.store.rollouts import StepTrace
from palaestra.types import Batch, Example, Groups, Key, Outputs, Row

Forward = Callable[[Batch], Outputs]


class TokenMoves:
    """Minus the derivative of the losses of a step to the log-prob of each token, and the ratio of
    the token's probability to that of its sampling.

    A loss that reads another output of the model (entropy, a value) moves the weights by that as
    well, which is not told here.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[Tensor, Tensor, Tensor]] = []  # place [B], weight and ratio [B, T]

    def watch(self, forward: Forward) -> Forward:
        """The forward pass, whose log-probs tell their gradient when it comes."""

        def run(batch: Batch) -> Outputs:
            out = forward(batch)
            logp = out.get("logp")
            if logp is not None and logp.requires_grad and "place" in batch.columns:
                # the gradient needs the values only here, and the graph must not be kept
                ratio = (logp.detach() - batch["behaviour_logp"]).exp()
                logp.register_hook(lambda g: self.keep(batch["place"], g, ratio))
            return out

        return run

    def keep(self, place_B: Tensor, slope_BT: Tensor, ratio_BT: Tensor) -> None:
        """On the device, as a copy: to wait for it here would slow every micro-batch."""
        self.seen.append((place_B, -slope_BT.detach(), ratio_BT))

    def on_cpu(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """What was seen, to be sent to another process."""
        return [(place.cpu(), weight.cpu(), ratio.cpu()) for place, weight, ratio in self.seen]

    def join(self, each: Sequence[Sequence[tuple[Tensor, Tensor, Tensor]]]) -> None:
        """What the ranks of one learner saw, pass by pass, so that a later update stays the later:
        all make as many passes, and one that counts for nothing adds a weight of 0.
        """
        self.seen = [x for passes in zip_longest(*each) for x in passes if x is not None]

    def rows(self, lengths: Sequence[int]) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
        """Weights, summed over the updates, and the last ratios, [T] by the place of the example."""
        weights: dict[int, np.ndarray] = {}
        ratios: dict[int, np.ndarray] = {}
        for place_B, weight_BT, ratio_BT in self.seen:
            known = (weight_BT.double().cpu().numpy(), ratio_BT.double().cpu().numpy())
            for b, i in enumerate(place_B.to(torch.int64).tolist()):
                T = lengths[i]
                weight_T, ratio_T = (np.pad(x[b, :T], (0, max(0, T - x.shape[1]))) for x in known)
                weights[i] = weights.get(i, 0.0) + weight_T
                ratios[i] = ratio_T
        return weights, ratios


def trace_of(
    seen: Groups,
    examples: Mapping[str, Sequence[Example]],
    kept: Mapping[Key, str],
    moves: Mapping[str, TokenMoves],
) -> StepTrace:
    """What a step made of the episodes that it saw.

    Args:
        examples: what was learned from, by learner.
        kept: what became of the episode of each row, by its key.
        moves: what updates did to tokens, by learner.
    """
    rows = {r.key: r for g in seen for e in g.episodes for r in e.rows if r.key}
    credit = {
        e.row.key: e.columns["advantage"]
        for each in examples.values()
        for e in each
        if "advantage" in e.columns and has_tokens_of(e.row, rows.get(e.row.key))
    }
    weights, ratios = moves_by_row(moves, examples, rows)
    return StepTrace(advantages=credit, weights=weights, ratios=ratios, kept=kept)


def moves_by_row(
    moves: Mapping[str, TokenMoves],
    examples: Mapping[str, Sequence[Example]],
    rows: Mapping[Key, Row],
) -> tuple[dict[Key, np.ndarray], dict[Key, np.ndarray]]:
    """The weights and ratios of a step by the key of the row. A row may stand in several examples,
    of several learners: weights add up, and the ratio is that of whoever trains the token.

    Args:
        rows: those that the step keeps; others count for nothing.
    """
    weights: dict[Key, np.ndarray] = {}
    ratios: dict[Key, np.ndarray] = {}
    for name, seen in moves.items():
        each = examples.get(name, ())
        views = [e.row.view(name) for e in each]
        weight, ratio = seen.rows([len(v.ids_T) for v in views])
        for i, weight_T in weight.items():
            key = each[i].row.key
            if not has_tokens_of(each[i].row, rows.get(key)):
                continue
            trained_T = np.array(each[i].columns.get("trained", views[i].trained_T), bool)
            weights[key] = weights.get(key, 0.0) + weight_T
            before_T = ratios.get(key, np.full(len(trained_T), np.nan))
            ratios[key] = np.where(trained_T, ratio[i], before_T)
    return weights, ratios


def has_tokens_of(row: Row, kept: Row | None) -> bool:
    """Whether training saw the tokens of the row that is kept under its key. A credit may add some
    that nobody sampled, such as the place where a reward model is read.
    """
    if kept is None or row is kept:
        return kept is not None
    return np.array_equal(row.view().ids_T, kept.view().ids_T)
