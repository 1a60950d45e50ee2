"""Linear probes: what can be read off hidden states. N = examples, D = numbers of a state, C =
classes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import torch
from torch import Tensor

from palaestra.types import value_class


@value_class
class Probe:
    """log p(class) = log softmax(W x + b) of a state x.

    What a probe reads may lie in the states or in its own weights: it is measured on other examples
    than it was fitted to, and beside one fitted to shuffled labels (Hewitt and Liang,
    arXiv:1909.03368).
    """

    classes: tuple[Hashable, ...]
    weight_CD: np.ndarray
    bias_C: np.ndarray

    def logp(self, states_ND: np.ndarray) -> np.ndarray:
        """[N, C] in nats."""
        x_NC = np.asarray(states_ND, float) @ self.weight_CD.T + self.bias_C
        x_NC -= x_NC.max(1, keepdims=True)
        return x_NC - np.log(np.exp(x_NC).sum(1, keepdims=True))

    def predict(self, states_ND: np.ndarray) -> list[Hashable]:
        """The likeliest class of each."""
        return [self.classes[i] for i in self.logp(states_ND).argmax(1)]

    def accuracy(self, states_ND: np.ndarray, labels: Sequence[Hashable]) -> float:
        """Share of states whose label it names."""
        predictions = self.predict(states_ND)
        return float(np.mean([a == b for a, b in zip(predictions, labels, strict=True)]))


def fit_probe(
    states_ND: np.ndarray,
    labels: Sequence[Hashable],
    ridge: float = 0.01,
    balanced: bool = False,
) -> Probe:
    """The probe of the least loss

        mean_n -log p(label_n | x_n) + ridge / 2 |W'|^2,   W' on states of variance 1,

    a convex problem, so there is one.

    Args:
        states_ND: one place of `activations`.
        labels: the class of each.
        ridge: keeps weights small where there are few examples.
        balanced: the mean is one over classes of means over their examples.

    Raises:
        ValueError: for fewer than two classes, or other numbers of labels than states.
    """
    classes = tuple(sorted(set(labels), key=repr))
    if len(classes) < 2 or len(labels) != len(states_ND):
        raise ValueError(f"{len(states_ND)} states with {len(labels)} labels of {len(classes)}")
    x = torch.as_tensor(np.asarray(states_ND, float))
    mean, scale = x.mean(0), x.std(0, correction=0).clamp(min=1e-12)
    x = (x - mean) / scale
    label = torch.tensor([classes.index(y) for y in labels])
    share = 1 / torch.bincount(label).to(x.dtype) if balanced else None
    weight = torch.zeros(len(classes), x.shape[1], dtype=x.dtype, requires_grad=True)
    bias = torch.zeros(len(classes), dtype=x.dtype, requires_grad=True)
    solver = torch.optim.LBFGS(
        [weight, bias],
        max_iter=1000,
        tolerance_grad=1e-9,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        solver.zero_grad()
        cost = torch.nn.functional.cross_entropy(x @ weight.T + bias, label, share)
        cost = cost + ridge / 2 * weight.square().sum()
        cost.backward()
        return cost.detach()

    solver.step(loss)
    raw = (weight / scale).detach()
    return Probe(
        classes=classes, weight_CD=raw.numpy(), bias_C=(bias.detach() - raw @ mean).numpy()
    )
