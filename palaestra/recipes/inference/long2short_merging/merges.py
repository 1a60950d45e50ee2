"""Merges by low rank and by activations, beside those of `pl.models`.

A weight matrix is W_i in model i, W_0 in the base; other weights are added as task arithmetic does.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

import palaestra as pl

Weights: TypeAlias = Mapping[str, Tensor]


def shrink(x: Tensor, by: float) -> Tensor:
    """The matrix with its singular values less `by`, at least 0: the nearest one under a penalty of
    `by` on the sum of singular values.
    """
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    return (u * (s - by).clamp(min=0)) @ v


def low_rank(x: Tensor, share: float) -> Tensor:
    """The matrix of its largest singular values, a share of their number, at least one."""
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    n = max(1, round(share * len(s)))
    return (u[:, :n] * s[:n]) @ v[:n]


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
            total = total + a * (low_rank(own, self.rank) if own.ndim == 2 else own)
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
        scale = self._scales(ctx)
        how = Relaxed(self.how, scale)
        return await pl.run.Merged(self.inputs, how, self.tokenizer).run(ctx)

    @torch.no_grad()
    def _scales(self, ctx: pl.Context) -> dict[str, Tensor]:
        """By weight, what the change of each of its columns is multiplied by."""
        model, sums = ctx.model("policy"), dict[str, Tensor]()
        dialect, hooks = ctx.engine("policy").dialect, []

        def listen(name: str, layer: nn.Linear) -> None:
            def add(_: nn.Module, args: tuple[Tensor, ...]) -> None:
                total = args[0].detach().double().abs().flatten(0, -2).sum(0)
                sums[name] = sums.get(name, torch.zeros_like(total)) + total

            hooks.append(layer.register_forward_pre_hook(add))

        own = pl.models.weights_of(model.module)  # a tied layer stands elsewhere
        for name, layer in model.module.named_modules():
            if isinstance(layer, nn.Linear) and f"{name}.weight" in own:
                listen(f"{name}.weight", layer)
        try:
            for i in pl.run.chosen_tasks(ctx.bench, self.tasks, "train"):
                prompt = ctx.bench.tasks.task("train", i).prompt
                heard = dialect.extend(prompt, first=True, closed=False)
                ids = torch.tensor([[z for s in heard for z in s.ids]], device=model.device)
                model.logits(model.hidden(ids)[0])
        finally:
            for hook in hooks:
                hook.remove()
        return {n: 1 - (1 - self.omega) * x / x.max().clamp(min=1e-12) for n, x in sums.items()}


@pl.stage
class Relaxed:
    """A merge whose changes of the base are multiplied by a number for each column."""

    how: "pl.models.Ties | pl.models.TaskArithmetic | pl.models.Dare"
    scale: Mapping[str, Tensor]

    def __call__(self, base: Weights, models: Sequence[Weights]) -> dict[str, Tensor]:
        made = self.how(base, models)
        for name, by in self.scale.items():
            if name in made:
                w = base[name].double()
                made[name] = (w + (made[name].double() - w) * by).to(base[name].dtype)
        return made
