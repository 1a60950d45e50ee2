"""Searches for the worst suffix of bounded length, each under one budget of passes.

B = prompts, n = positions of the suffix, A = allowed tokens, S = positions behind the context.

    x in [B, n, A]   each row a distribution over the tokens that are allowed; its embedding is x E
    L(x)             mean of -log p of the code's tokens behind context, suffix and rest of the prompt
    F(x)             L + lambda sum_i [ H(x_i) + D(e_argmax || x_i) ],    D(e_k || x) = -log x_k

    eg       x <- x exp(-eta g) / Z, g = dF/dx: the step of mirror descent with the negative entropy, whose
             projection onto the simplex by the KL divergence is the division by Z
    pgd      x <- the point of the simplex next to x - eta g in Euclidean distance
    greedy   one token of the best suffix is exchanged for a random one, and kept if the loss falls
    random   a random suffix each time

lambda rises from 0 to `sharpen` over the budget. Each step of eg and pgd is followed by the loss of the
tokens nearest to its rows, which alone counts. A pass forward counts 1, one forward and back 3.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import palaestra as pl

FORWARD, BACK = 1, 3  # passes


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Positions of a suffix, passes for each prompt, and step sizes.

    Args:
        length: n, tokens of a suffix.
        passes: for each prompt and searcher.
        eta: of the exponentiated gradient.
        pgd: of the Euclidean one.
        sharpen: lambda at the end.
    """

    length: int = 5
    passes: int = 200
    eta: float = 5.0
    pgd: float = 3.0
    sharpen: float = 0.001


def exponentiated_step(log_x: Tensor, gradient: Tensor, eta: float) -> Tensor:
    """log of x exp(-eta g) / Z along the last axis, in logarithms: no number of a row can overflow, and a
    constant added to g changes nothing.
    """
    shifted = gradient - gradient.amin(-1, keepdim=True)
    return torch.log_softmax(log_x - eta * shifted, -1)


def onto_simplex(y: Tensor) -> Tensor:
    """The point of the simplex next to y along the last axis: max(y - t, 0) with t so that the sum is 1."""
    sorted_A, _ = y.sort(-1, descending=True)
    rank_A = torch.arange(1, y.shape[-1] + 1, device=y.device, dtype=y.dtype)
    excess_A = (sorted_A.cumsum(-1) - 1) / rank_A
    last = (sorted_A > excess_A).sum(-1, keepdim=True) - 1
    return (y - excess_A.gather(-1, last)).clamp_min(0)


def sharpness(x: Tensor) -> Tensor:
    """[B] sum over rows of H(x_i) + D(e_argmax || x_i), in nats; 0 where all rows are one-hot."""
    log_x = x.clamp_min(1e-30).log()
    return (-(x * log_x).sum(-1) - log_x.amax(-1)).sum(-1)


class GuardedPrompts:
    """Prompts with a place for a suffix, and the tokens of the answer that should not come.

    Args:
        model: under study; its weights get no gradient.
        before: ids up to the suffix.
        after: ids from there to where the answer begins.
        target: ids of the answer, at least one.
        allowed: tokens that a suffix may have.
    """

    def __init__(
        self,
        model: Any,
        before: Sequence[Sequence[int]],
        after: Sequence[Sequence[int]],
        target: Sequence[Sequence[int]],
        allowed: Sequence[int],
    ) -> None:
        self.model = model
        self.prefix = pl.models.PrefixStates(model, before)
        self.allowed_A = torch.tensor([*allowed], device=model.device)
        rest = [[*a, *t] for a, t in zip(after, target, strict=True)]
        width = max(map(len, rest))
        self.rest_BR = torch.tensor(
            [[*r, *[r[-1]] * (width - len(r))] for r in rest], device=model.device
        )
        at_B = torch.tensor([len(a) for a in after], device=model.device)
        size_B = torch.tensor([len(t) for t in target], device=model.device)
        place_R = torch.arange(width, device=model.device)
        self.is_target_BR = (place_R >= at_B[:, None]) & (place_R < (at_B + size_B)[:, None])
        with torch.no_grad():
            self.table_AD = pl.models.embeddings_of(model, self.allowed_A)
            self.rest_BRD = pl.models.embeddings_of(model, self.rest_BR)

    @property
    def rows(self) -> int:
        return len(self.rest_BR)

    def losses(self, x_BnA: Tensor) -> tuple[Tensor, Tensor]:
        """[B] L, and whether the most likely tokens are those of the target, all of them."""
        suffix_BnD = x_BnA.to(self.table_AD.dtype) @ self.table_AD
        hidden_BSD = self.prefix.hidden(torch.cat([suffix_BnD, self.rest_BRD], 1))
        # the state before a token says what it is
        n = x_BnA.shape[1]
        before_BRD = hidden_BSD[:, n - 1 : n - 1 + self.rest_BR.shape[1]]
        row_N, at_N = self.is_target_BR.nonzero(as_tuple=True)
        logits_NV = self.model.logits(before_BRD[row_N, at_N]).float()
        token_N = self.rest_BR[row_N, at_N]
        nll_N = torch.nn.functional.cross_entropy(logits_NV, token_N, reduction="none")
        sum_B = nll_N.new_zeros(self.rows).index_add(0, row_N, nll_N)
        wrong_N = (logits_NV.argmax(-1) != token_N).to(nll_N)
        wrong_B = nll_N.new_zeros(self.rows).index_add(0, row_N, wrong_N)
        return sum_B / self.is_target_BR.sum(1), wrong_B == 0

    @torch.no_grad()
    def losses_of_tokens(self, choice_Bn: Tensor) -> tuple[Tensor, Tensor]:
        """`losses` of suffixes, as places among the allowed tokens."""
        return self.losses(one_hot(choice_Bn, len(self.allowed_A)))

    @torch.no_grad()
    def losses_of_rows(self, x_BnA: Tensor) -> Tensor:
        """[B] L at a point, as a number to report."""
        return self.losses(x_BnA)[0]

    def gradient(self, x_BnA: Tensor, sharpen: float) -> tuple[Tensor, Tensor]:
        """dF/dx, and [B] L at x."""
        x = x_BnA.detach().requires_grad_()  # a leaf: the steps before are not differentiated
        loss_B, _ = self.losses(x)
        (g,) = torch.autograd.grad((loss_B + sharpen * sharpness(x)).sum(), x)
        return g, loss_B.detach()  # a number to report


def one_hot(choice_Bn: Tensor, size: int) -> Tensor:
    return torch.nn.functional.one_hot(choice_Bn, size).float()


@dataclass(slots=True)
class WorstSuffixes:
    """What a search ends with: the suffix of the least loss of each prompt (places among the allowed
    tokens, in memory alone), that loss, the loss of the relaxed rows that it is nearest to (NaN without any), the loss
    of the first suffix, the passes up to the first suffix whose answer is the code (0 = there was none), and after each
    pass the share of prompts that have one.
    """

    choice_Bn: Tensor = field(repr=False)
    loss_B: Tensor
    relaxed_B: Tensor
    start_B: Tensor
    first_B: Tensor
    passes: int = 0
    curve: list[tuple[int, float]] = field(default_factory=list)

    def see(
        self, choice_Bn: Tensor, losses: tuple[Tensor, Tensor], relaxed_B: Tensor | None = None
    ) -> None:
        loss_B, hit_B = losses
        better = loss_B < self.loss_B
        self.choice_Bn = torch.where(better[:, None], choice_Bn, self.choice_Bn)
        self.loss_B = torch.where(better, loss_B, self.loss_B)
        if relaxed_B is not None:
            self.relaxed_B = torch.where(better, relaxed_B, self.relaxed_B)
        self.first_B = torch.where(
            hit_B & (self.first_B == 0), torch.full_like(self.first_B, self.passes), self.first_B
        )
        self.curve.append((self.passes, float((self.first_B > 0).float().mean())))


Searcher = Callable[[GuardedPrompts, SearchSettings, torch.Generator], WorstSuffixes]


def begin(prompts: GuardedPrompts, choice_Bn: Tensor) -> WorstSuffixes:
    """The first suffix and its loss, which is the first pass of every search."""
    loss_B, hit_B = prompts.losses_of_tokens(choice_Bn)
    first_B = torch.where(hit_B, FORWARD, 0)
    best = WorstSuffixes(
        choice_Bn, loss_B, torch.full_like(loss_B, torch.nan), loss_B, first_B, FORWARD
    )
    best.curve.append((FORWARD, float(hit_B.float().mean())))
    return best


def draw_suffixes(prompts: GuardedPrompts, n: int, draw: torch.Generator) -> Tensor:
    size = len(prompts.allowed_A)
    return torch.randint(size, (prompts.rows, n), generator=draw).to(prompts.allowed_A.device)


def random_search(
    prompts: GuardedPrompts, s: SearchSettings, draw: torch.Generator
) -> WorstSuffixes:
    best = begin(prompts, draw_suffixes(prompts, s.length, draw))
    while best.passes + FORWARD <= s.passes:
        choice_Bn = draw_suffixes(prompts, s.length, draw)
        best.passes += FORWARD
        best.see(choice_Bn, prompts.losses_of_tokens(choice_Bn))
    return best


def greedy_exchange(
    prompts: GuardedPrompts, s: SearchSettings, draw: torch.Generator
) -> WorstSuffixes:
    best = begin(prompts, draw_suffixes(prompts, s.length, draw))
    while best.passes + FORWARD <= s.passes:
        place_B1 = torch.randint(s.length, (prompts.rows, 1), generator=draw)
        choice_Bn = best.choice_Bn.scatter(
            1, place_B1.to(best.choice_Bn.device), draw_suffixes(prompts, 1, draw)
        )
        best.passes += FORWARD
        best.see(choice_Bn, prompts.losses_of_tokens(choice_Bn))
    return best


def relaxed_search(
    prompts: GuardedPrompts,
    s: SearchSettings,
    draw: torch.Generator,
    step: Callable[[Tensor, Tensor], Tensor],
) -> WorstSuffixes:
    """Steps on the simplex from near its middle."""
    size = (prompts.rows, s.length, len(prompts.allowed_A))
    x = torch.softmax(0.1 * torch.randn(size, generator=draw), -1).to(prompts.allowed_A.device)
    best = begin(prompts, x.argmax(-1))
    best.relaxed_B = prompts.losses_of_rows(x)
    while best.passes + BACK + FORWARD <= s.passes:
        g, relaxed_B = prompts.gradient(x, s.sharpen * best.passes / s.passes)
        best.passes += BACK + FORWARD
        choice_Bn = x.argmax(-1)
        best.see(choice_Bn, prompts.losses_of_tokens(choice_Bn), relaxed_B)
        x = step(x, g)
    return best


def exponentiated_search(
    prompts: GuardedPrompts, s: SearchSettings, draw: torch.Generator
) -> WorstSuffixes:
    def step(x: Tensor, g: Tensor) -> Tensor:
        return exponentiated_step(x.clamp_min(1e-30).log(), g, s.eta).exp()

    return relaxed_search(prompts, s, draw, step)


def projected_search(
    prompts: GuardedPrompts, s: SearchSettings, draw: torch.Generator
) -> WorstSuffixes:
    return relaxed_search(prompts, s, draw, lambda x, g: onto_simplex(x - s.pgd * g))


SEARCHERS: Mapping[str, Searcher] = {
    "eg": exponentiated_search,
    "pgd": projected_search,
    "greedy": greedy_exchange,
    "random": random_search,
}
