"""Arithmetic of weights: models of one shape are averaged, their differences from a common base are
added, trimmed, thinned and cut in rank, single rows are edited, and every edit can be undone to the
bit. Each way to merge treats every weight by itself, so models can be merged one weight at a time.

    task vector  d_i = theta_i - theta_0                                        (arXiv:2212.04089)

Weights are `Module.named_parameters()`, in which tied ones stand once. Sums are made in float64 and
rounded once to the type of the first model, so a model averaged with itself is itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from palaestra.errors import UserError
from palaestra.schedule import check_bounds
from palaestra.types import rng_of, stage

Weights: TypeAlias = Mapping[str, Tensor]
# of the base and of the models that are merged
Merge: TypeAlias = Callable[[Weights, Sequence[Weights]], dict[str, Tensor]]
HEAD = "lm_head.weight"
STRAIGHT = 0.9995  # cosine from which an arc is a line to rounding
GATE, UP, DOWN = "gate_proj.weight", "up_proj.weight", "down_proj.weight"


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """The weights of a module by name, without copies. Tied ones stand once."""
    return {name: p.detach() for name, p in module.named_parameters()}


def check_shapes(base: Weights, models: Sequence[Weights]) -> None:
    """Raises UserError where models do not have the names and shapes of the base's weights."""
    for i, model in enumerate(models, 1):
        if odd := sorted(set(base) ^ set(model)):
            there = "only in the first" if odd[0] in base else "not in the first"
            raise UserError(
                f"models that are merged must have the same weights, and {odd[0]!r} is {there} of "
                f"them (compared with number {i}); merge fine-tunes of one base"
            )
        for name, tensor in base.items():
            if tensor.shape != model[name].shape:
                raise UserError(
                    f"models that are merged must have the same shapes, and {name!r} is "
                    f"{tuple(tensor.shape)} in one and {tuple(model[name].shape)} in number {i}; "
                    "merge fine-tunes of one base"
                )


def common_weights(
    base: nn.Module, modules: Sequence[nn.Module]
) -> tuple[dict[str, Tensor], list[dict[str, Tensor]], list[str]]:
    """Weights under the same names and of the same shapes, of models that differ in whether the head
    is tied to the embedding, or in the rows of both: releases of one base pad the vocabulary
    differently.

    Returns:
        The base's weights, those of each module, and notes on what was done. A tied head stands for
        itself where another model's is not tied. Rows that a module lacks are the base's, and those
        that the base lacks are left out.
    """
    whole, *given = (weights_of(m) for m in (base, *modules))
    notes: list[str] = []
    if any((HEAD in whole) != (HEAD in w) for w in given):
        for module, weights in zip((base, *modules), (whole, *given), strict=True):
            weights.setdefault(HEAD, head_of(module))
        notes.append("the head is tied to the embedding in some of the models: it is untied")
    for name in embedding_names(base) & whole.keys():
        for weights in given:
            own, theirs = whole[name], weights.get(name)
            if theirs is None or len(theirs) == len(own) or theirs.shape[1:] != own.shape[1:]:
                continue
            weights[name] = fit_rows(theirs, own)
            rows = min(len(own), len(theirs))
            notes.append(f"{name} has {len(own)} and {len(theirs)} rows: {rows} are merged")
    return whole, given, notes


def fit_rows(theirs: Tensor, own: Tensor) -> Tensor:
    """A weight with the number of rows of another: rows beyond are left out, missing ones are the
    other's.
    """
    rows = min(len(own), len(theirs))
    return torch.cat([theirs[:rows].to(own), own[rows:]])


def head_of(module: nn.Module) -> Tensor:
    """The weight of the head, which may be the embedding's."""
    layer: nn.Linear = module.get_output_embeddings()  # type: ignore[operator]
    return layer.weight.detach()


def embedding_names(module: nn.Module) -> set[str]:
    """The names of the weights that have a row for each token."""
    table: nn.Embedding = module.get_input_embeddings()  # type: ignore[operator]
    return {HEAD} | {n for n, p in module.named_parameters() if p is table.weight}


def untie_head(module: nn.Module) -> None:
    """Gives the head a weight of its own, equal to the embedding's, in place."""
    layer: nn.Linear = module.get_output_embeddings()  # type: ignore[operator]
    layer.weight = nn.Parameter(layer.weight.detach().clone())
    module.config.tie_word_embeddings = False  # type: ignore[union-attr]


def task_vectors(base: Weights, models: Sequence[Weights]) -> list[dict[str, Tensor]]:
    """theta_i - theta_0 of each model, in float64. Raises UserError for models of other shapes."""
    check_shapes(base, models)
    return [{n: m[n].double() - t.double() for n, t in base.items()} for m in models]


def add_vector(base: Weights, vector: Weights, scale: float = 1.0) -> dict[str, Tensor]:
    """theta_0 + scale * d, in the base's type."""
    return {n: (t.double() + scale * vector[n]).to(t.dtype) for n, t in base.items()}


def trim(x: Tensor, removed: float) -> Tensor:
    """The tensor with what is smaller in magnitude than its k-th smallest entry at 0, k = `removed`
    times their number: the released rule, by tensor, by which k - 1 entries go.
    """
    k = int(removed * x.numel() + 1e-9)
    if not k:
        return x
    least = x.abs().flatten().kthvalue(k).values
    return torch.where(x.abs() >= least, x, 0)


def elect_and_average(x_M: Tensor) -> Tensor:
    """[...] of [models, ...]: the mean over the models that have the elected sign there.

    It is the sign of the sum over models; a sum of 0 counts as positive. 0 where no model has it.
    """
    positive = x_M.sum(0) >= 0
    kept_M = torch.where(positive, x_M > 0, x_M < 0)
    return torch.where(kept_M, x_M, 0).sum(0) / kept_M.sum(0).clamp(min=1)


def arc(a: Tensor, b: Tensor, share: float) -> Tensor:
    """The point of the arc from `a` to `b`, both as one vector,

        (sin((1 - share) w) a + sin(share w) b) / sin w,    cos w = <a, b> / (|a| |b|)

    (Shoemake, SIGGRAPH 1985). Where |cos w| is above `STRAIGHT` or one of them is 0, the point of
    the line between them.
    """
    size = a.norm() * b.norm()
    cos = float((a * b).sum() / size) if size else 1.0
    if abs(cos) > STRAIGHT:
        return (1 - share) * a + share * b
    w = math.acos(cos)
    return (math.sin((1 - share) * w) * a + math.sin(share * w) * b) / math.sin(w)


def low_rank(x: Tensor, rank: int) -> Tensor:
    """The nearest matrix of that rank, which has the largest singular values alone; of a stack of
    matrices [..., rows, columns] each. What has no more singular values is itself, as are vectors.
    """
    if x.ndim < 2 or rank >= min(x.shape[-2:]):
        return x
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    return (u[..., :rank] * s[..., None, :rank]) @ v[..., :rank, :]


# ---- ways to merge


@stage
class Average:
    """sum_i share_i * theta_i, the models' own mean unless `shares` are given. The base counts only
    for its shapes (model soups, arXiv:2203.05482).
    """

    shares: tuple[float, ...] = ()

    def __call__(self, base: Weights, models: Sequence[Weights]) -> dict[str, Tensor]:
        check_shapes(base, models)
        share = self.shares or (1 / len(models),) * len(models)
        if len(share) != len(models) or abs(sum(share) - 1) > 1e-9:
            raise UserError(
                f"shares {', '.join(f'{x:g}' for x in share)} of {len(models)} models; give one "
                "for each, with the sum 1"
            )
        return {
            n: sum(
                (a * m[n].double() for a, m in zip(share, models, strict=True)),
                start=torch.zeros_like(t, dtype=torch.float64),
            ).to(t.dtype)
            for n, t in base.items()
        }


@stage
class Slerp:
    """The point of the arc between two models, weight by weight; `share` is the second's. The base
    counts only for its shapes.
    """

    share: float = 0.5

    def __post_init__(self) -> None:
        check_bounds("Slerp.share", self.share, least=0, most=1)

    def __call__(self, base: Weights, models: Sequence[Weights]) -> dict[str, Tensor]:
        check_shapes(base, models)
        if len(models) != 2:
            raise UserError(f"an arc lies between two models, not {len(models)}; give two")
        first, second = models
        return {
            n: arc(first[n].double(), second[n].double(), self.share).to(t.dtype)
            for n, t in base.items()
        }


@stage
class TaskArithmetic:
    """theta_0 + scale * sum_i d_i (arXiv:2212.04089). Where one model is the base, it goes from the
    base to the other.
    """

    scale: float = 0.7

    def __call__(self, base: Weights, models: Sequence[Weights]) -> dict[str, Tensor]:
        return self.join(base, task_vectors(base, models))

    def join(self, base: Weights, vectors: Sequence[Weights]) -> dict[str, Tensor]:
        total = {n: torch.stack([v[n] for v in vectors]).sum(0) for n in base}
        return add_vector(base, total, self.scale)


@stage
class Ties:
    """theta_0 + scale * d, d the mean of the trimmed task vectors over the models that have the
    elected sign (arXiv:2306.01708).

    Trimmed by tensor, as in the code of arXiv:2503.20641; the original does it over all weights.
    """

    removed: float = 0.8
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_bounds("Ties.removed", self.removed, least=0, most=1)

    def __call__(self, base: Weights, models: Sequence[Weights]) -> dict[str, Tensor]:
        return self.join(base, task_vectors(base, models))

    def join(self, base: Weights, vectors: Sequence[Weights]) -> dict[str, Tensor]:
        kept = {
            n: elect_and_average(torch.stack([trim(v[n], self.removed) for v in vectors]))
            for n in base
        }
        return add_vector(base, kept, self.scale)


@stage
class Dare:
    """Each entry of a task vector is dropped with probability `drop`, the others are divided by 1 -
    drop; then they are joined as `then` does (arXiv:2311.03099).
    """

    drop: float = 0.3
    then: TaskArithmetic | Ties = TaskArithmetic()
    seed: int = 0

    def __post_init__(self) -> None:
        check_bounds("Dare.drop", self.drop, least=0, most=0.99)

    def __call__(self, base: Weights, models: Sequence[Weights]) -> dict[str, Tensor]:
        vectors = task_vectors(base, models)
        return self.then.join(base, [self._thin(v, i) for i, v in enumerate(vectors)])

    def _thin(self, vector: Weights, i: int) -> dict[str, Tensor]:
        def kept(name: str, x: Tensor) -> Tensor:
            stays = rng_of(("dare", self.seed, i, name)).random(tuple(x.shape)) >= self.drop
            return torch.where(torch.from_numpy(stays).to(x.device), x / (1 - self.drop), 0)

        return {n: kept(n, x) for n, x in vector.items()}


@stage
class LowRank:
    """theta_0 + scale * sum_i D_i, D_i the task vector of model i with the `rank` largest singular
    values of each matrix; vectors, such as those of norms, are kept whole.
    """

    rank: int = 16
    scale: float = 0.7

    def __post_init__(self) -> None:
        check_bounds("LowRank.rank", self.rank, least=1)

    def __call__(self, base: Weights, models: Sequence[Weights]) -> dict[str, Tensor]:
        kept = [
            {n: low_rank(x, self.rank) for n, x in v.items()} for v in task_vectors(base, models)
        ]
        return TaskArithmetic(self.scale).join(base, kept)


@stage
class Relaxed:
    """A merge whose changes of the base are multiplied by a number for each column of a weight, as
    `relaxation` makes them (AIM, arXiv:2502.02421). Weights without such numbers change as they do.
    """

    how: Merge
    scale: Weights

    def __call__(self, base: Weights, models: Sequence[Weights]) -> dict[str, Tensor]:
        made = self.how(base, models)
        for name, t in base.items():
            if name in self.scale:
                w, by = t.double(), self.scale[name].to(t.device)
                made[name] = (w + (made[name].double() - w) * by).to(t.dtype)
        return made


def relaxation(inputs: Weights, omega: float) -> dict[str, Tensor]:
    """What the change of each column is multiplied by, by weight:

        1 - (1 - omega) a_j,    a_j = x_j / max_k x_k,

    x_j the mean magnitude of input j of the layer (`input_magnitudes`). With omega 1 that is 1;
    with omega 0 the column of the largest input stays as it is.
    """
    return {n: 1 - (1 - omega) * x / x.max().clamp(min=1e-12) for n, x in inputs.items()}


@stage
class PermuteUnits:
    """The one model that is given, with the hidden units of every gated MLP in another order: the
    same function somewhere else among all weights (arXiv:2209.04836).

    What a merge with an unrelated model does can so be seen without a second pre-training.
    """

    seed: int = 0

    def __call__(self, base: Weights, models: Sequence[Weights]) -> dict[str, Tensor]:
        check_shapes(base, models)
        (model,) = models
        moved = dict(model)
        blocks = [n.removesuffix(GATE) for n in model if n.endswith(GATE)]
        if not blocks:
            raise UserError(f"no weight ends with {GATE!r}: units of other MLPs are not permuted")
        for block in blocks:
            order = rng_of(("units", self.seed, block)).permutation(len(model[block + GATE]))
            at = torch.from_numpy(order).to(model[block + GATE].device)
            moved |= {block + n: model[block + n][at] for n in (GATE, UP)}
            moved[block + DOWN] = model[block + DOWN][:, at]
        return moved


# ---- edits in place


class Undo:
    """Puts back what an edit wrote over, to the bit; a difference that is added and taken off again
    would leave rounding behind. Of several edits the last is undone first.
    """

    def __init__(self) -> None:
        self._before: list[tuple[nn.Parameter, Tensor, Tensor]] = []

    @torch.no_grad()
    def write(self, weight: nn.Parameter, rows_N: Tensor, new: Tensor) -> None:
        """Sets rows of a weight, and keeps what stood there."""
        self._before.append((weight, rows_N, weight[rows_N].clone()))
        weight[rows_N] = new.to(weight.dtype)

    @torch.no_grad()
    def __call__(self) -> None:
        while self._before:
            weight, rows_N, old = self._before.pop()
            weight[rows_N] = old


def write_weights(module: nn.Module, weights: Weights) -> Undo:
    """Sets all weights of a module, in place. Raises UserError for weights of another shape."""
    check_shapes(weights_of(module), [weights])
    undo = Undo()
    for name, p in module.named_parameters():
        undo.write(p, torch.arange(len(p), device=p.device), weights[name].to(p.device))
    return undo


def add_to_rows(
    module: nn.Module, rows: Mapping[str, Sequence[int]], direction_D: Tensor, scale: float = 1.0
) -> Undo:
    """w <- w + scale * direction for the given rows of each named weight, in place.

    Sums are made in float64 and rounded to the weight's type. Raises UserError for a weight that is
    not there or has rows of another length.
    """
    named, undo = dict(module.named_parameters()), Undo()
    for name in rows:
        if name not in named or named[name].shape[1:] != direction_D.shape:
            shape = tuple(named[name].shape) if name in named else "not there"
            raise UserError(
                f"the weight {name!r} is {shape}; its rows must have the direction's "
                f"{tuple(direction_D.shape)}"
            )
    for name, chosen in rows.items():
        p, at_N = named[name], torch.tensor(sorted(set(chosen)), dtype=torch.long)
        at_N = at_N.to(p.device)
        moved = p.detach()[at_N].double() + scale * direction_D.to(p.device).double()
        undo.write(p, at_N, moved)
    return undo


def linear_barrier(share_K: Sequence[float], loss_K: Sequence[float]) -> float:
    """How far the loss between two models rises above the line between their own losses.

    Args:
        share_K: of the second model, from 0 to 1.
        loss_K: of the average with that share; the first and the last are the models' own.

    Returns:
        The largest excess, at least 0: models in one basin have about 0 (arXiv:1912.05671).
    """
    share, loss = np.array(share_K), np.array(loss_K)
    line = np.interp(share, share[[0, -1]], loss[[0, -1]])
    return float(max(0.0, (loss - line).max()))
