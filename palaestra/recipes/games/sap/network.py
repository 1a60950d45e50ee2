"""The strategy evaluation network: the chance that one strategy wins against another, from both vectors.

24 -> 256 -> 64 -> 1, with batch norm, leaky ReLU and dropout 0.5; sigmoid; binary cross-entropy
Adam 1e-3, weight decay 1e-4, batches of 32; stops when the held-out loss was not better for 100 epochs
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

HIDDEN = (256, 64)
DROPOUT, LR, DECAY, BATCH = 0.5, 1e-3, 1e-4, 32
KEPT = 0.8  # of the pairs, which are trained on; the others say when to stop


class PayoffNet(nn.Module):
    """Scores [B] of pairs of vectors [B, 2 D], as logits of the chance to win."""

    def __init__(self, width: int, rng: torch.Generator) -> None:
        super().__init__()
        sizes = (width, *HIDDEN)
        # empty at first: their weights are drawn below, from this network's own stream
        empty = [nn.Linear(a, b, device="meta") for a, b in pairwise((*sizes, 1))]
        linear = [layer.to_empty(device="cpu") for layer in empty]
        self.layers, self.last = nn.ModuleList(linear[:-1]), linear[-1]
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for b in HIDDEN)
        for layer in linear:
            nn.init.kaiming_uniform_(layer.weight, a=5**0.5, generator=rng)
            nn.init.zeros_(layer.bias)
        self.rng = rng

    def forward(self, x_BD: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x_BD = nn.functional.leaky_relu(norm(layer(x_BD)))
            if self.training:
                kept = torch.rand(x_BD.shape, generator=self.rng) >= DROPOUT
                x_BD = x_BD * kept / (1 - DROPOUT)
        return self.last(x_BD)[:, 0]


@dataclass(frozen=True)
class Evaluator:
    """A network that was trained, and how well it tells wins on pairs that were held out."""

    net: PayoffNet
    accuracy: float
    epochs: int

    def chances(self, own_ND: np.ndarray, other_D: Sequence[float]) -> np.ndarray:
        """[N] chances that each own strategy wins against the other one."""
        other_ND = np.tile(np.asarray(other_D, np.float32), (len(own_ND), 1))
        with torch.no_grad():
            logits = self.net(
                torch.from_numpy(np.concatenate([own_ND, other_ND], 1).astype(np.float32))
            )
        return torch.sigmoid(logits).numpy().astype(np.float64)


def train_evaluator(
    vectors_ND: np.ndarray, wins_NN: np.ndarray, *, epochs: int, patience: int, seed: int
) -> Evaluator:
    """Trains on all ordered pairs of strategies.

    Args:
        vectors_ND: the strategies.
        wins_NN: the chance that the row wins against the column, as it was observed; a draw is no win. A
            pair and its mirror image are held out together.
        epochs: at most.
        patience: epochs without a better held-out loss, after which it stops with the best weights.
    """
    n = len(vectors_ND)
    rng = torch.Generator().manual_seed(seed)
    order = np.random.default_rng(seed).permutation(
        [(i, j) for i in range(n) for j in range(i + 1)]
    )
    cut = max(1, round(KEPT * len(order)))
    rows = [_rows(vectors_ND, wins_NN, part) for part in (order[:cut], order[cut:])]
    (x, y), (held_x, held_y) = rows
    net = PayoffNet(2 * vectors_ND.shape[1], rng)
    optimiser = torch.optim.Adam(net.parameters(), lr=LR, weight_decay=DECAY)
    loss_of = nn.functional.binary_cross_entropy_with_logits
    best, best_loss, since, done = net.state_dict(), float("inf"), 0, 0
    told_x, told_y = (held_x, held_y) if len(held_x) else (x, y)
    while done < epochs and since < patience:
        net.train()
        for batch in torch.randperm(len(x), generator=rng).split(BATCH):
            if len(batch) < 2:  # batch norm needs two
                continue
            optimiser.zero_grad()
            loss_of(net(x[batch]), y[batch]).backward()
            optimiser.step()
        net.eval()
        with torch.no_grad():
            loss = float(loss_of(net(told_x), told_y))
        done, since = done + 1, since + 1
        if loss < best_loss:
            best, best_loss, since = {k: v.clone() for k, v in net.state_dict().items()}, loss, 0
    net.load_state_dict(best)
    net.eval()
    with torch.no_grad():
        right = (net(told_x) > 0) == (told_y > 0.5)
    return Evaluator(net, float(right.float().mean()), done)


def _rows(vectors_ND: np.ndarray, wins_NN: np.ndarray, pairs: np.ndarray) -> tuple[Tensor, Tensor]:
    """Inputs [R, 2 D] and labels [R] of pairs and their mirror images; of a strategy and itself once."""
    both = list(dict.fromkeys([p for i, j in pairs.tolist() for p in ((i, j), (j, i))]))
    width = 2 * vectors_ND.shape[1]
    x = np.array([np.concatenate([vectors_ND[i], vectors_ND[j]]) for i, j in both], np.float32)
    y = np.array([wins_NN[i, j] for i, j in both], np.float32)
    return torch.from_numpy(x.reshape(-1, width)), torch.from_numpy(y)
