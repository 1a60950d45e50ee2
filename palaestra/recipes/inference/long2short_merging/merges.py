"""Merges by low rank and by activations, beside those of `pl.models`.

A weight matrix is W_i in model i, W_0 in the base; other weights are added as task arithmetic does.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

import palaestra as pl

Weights: TypeAlias = Mapping[str, Tensor]


def shrink(x: Tensor, by: float) -> Tensor:
    """The matrix with its singular values less `by`, at least 0: the nearest one under a penalty of
    `by` on the sum of singular values.
    """
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    return (u * (s - by).clamp(min=0)) @ v


@pl.stage
class LoRE:
    """W_0 + scale * sum_i D_i, D_i the matrix of low rank that explains what model i has beyond the
    base: W_i - W_0 with its singular values less mu (LoRE-Merging, arXiv:2502.10749).

    The original estimates the base too, by turns. Of two models its estimate is their mean and D_1 =
    -D_2, so that the merge is the average; the base is known here.

    Args:
        mu: as a share of the largest singular value, so that it fits any scale.
    """

    mu: float = 0.05
    scale: float = 0.7

    def __call__(self, base: Weights, models: Sequence[Weights]) -> dict[str, Tensor]:
        pl.models.Average()(base, models)  # refuses models of other shapes
        return {n: self._join(w, [m[n] for m in models]) for n, w in base.items()}

    def _join(self, base: Tensor, given: Sequence[Tensor]) -> Tensor:
        total = base.double()
        for w in given:
            own = w.double() - base.double()
            if own.ndim == 2:
                own = shrink(own, self.mu * float(torch.linalg.matrix_norm(own, ord=2)))
            total = total + self.scale * own
        return total.to(base.dtype)


@pl.stage
class Twin:
    """S + sum_i a_i low_rank(W_i - S), S the shared part, which `shared` makes: what a model has
    beyond it is kept at low rank (Twin-Merging, arXiv:2406.15479). The weights `a` are constants
    here, where the original asks a router for each input.
    """

    shared: pl.models.TaskArithmetic = pl.models.TaskArithmetic(0.5)
    rank: float = 0.2  # share of the singular values
    weights: tuple[float, ...] = ()  # of the models; none = equal ones, with the sum 1

    def __call__(self, base: Weights, models: Sequence[Weights]) -> dict[str, Tensor]:
        shared = self.shared(base, models)
        a_M = self.weights or (1 / len(models),) * len(models)
        if len(a_M) != len(models):
            raise pl.UserError(f"{len(a_M)} weights of {len(models)} models; give one for each")
        return {n: self._join(s, [m[n] for m in models], a_M) for n, s in shared.items()}

    def _join(self, shared: Tensor, given: Sequence[Tensor], a_M: Sequence[float]) -> Tensor:
        total = shared.double()
        for a, w in zip(a_M, given, strict=True):
            own = w.double() - shared.double()
            rank = max(1, round(self.rank * min(own.shape)))
            total = total + a * pl.models.low_rank(own, rank)
        return total.to(shared.dtype)


@pl.stage
class ActivationInformed:
    """A program: a merge whose changes are smaller where the base model's inputs are large,

        W = W_0 + (W_merged - W_0) * (1 - (1 - omega) a_j),    a_j = mean |x_j| / max_k mean |x_k|,

    column by column, x the inputs of the layer on `tasks` prompts (AIM, arXiv:2502.02421). omega 1
    is the merge itself, omega 0 leaves the most active column as it is in the base.
    """

    inputs: tuple[str, ...]
    how: "pl.models.Ties | pl.models.TaskArithmetic | pl.models.Dare" = pl.models.TaskArithmetic(
        0.7
    )
    omega: float = 0.4
    tasks: int = 32
    tokenizer: str = ""  # as in `pl.run.Merged`

    async def run(self, ctx: pl.Context) -> pl.Result:
        how = pl.models.Relaxed(self.how, self._scales(ctx))
        return await pl.run.Merged(self.inputs, how, self.tokenizer).run(ctx)

    def _scales(self, ctx: pl.Context) -> dict[str, Tensor]:
        """By weight, what the change of each of its columns is multiplied by."""
        dialect, rows = ctx.engine("policy").dialect, list[list[int]]()
        for i in pl.run.chosen_tasks(ctx.bench, self.tasks, "train"):
            prompt = ctx.bench.tasks.task("train", i).prompt
            heard = dialect.extend(prompt, first=True, closed=False)
            rows.append([z for s in heard for z in s.ids])
        inputs = pl.models.input_magnitudes(ctx.model("policy"), rows)
        return pl.models.relaxation(inputs, self.omega)
