"""What a model makes of what follows fixed contexts, given as tokens or as points between tokens. B = rows,
P = tokens of the longest context, S = positions behind them, V = tokens, D = the model's width.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import DynamicCache

from palaestra.errors import UserError
from palaestra.models.model import Model

TOLERANCE = 0.05  # of logits, in nats, between a pass with and without a cache


class PrefixStates:
    """Contexts that are read once, and what follows them as embeddings, with a gradient to those.

    Contexts of different length are padded at their end, where nothing attends.

    Raises:
        UserError: the model gives other logits behind a cached context than behind the context itself,
            as those with recurrent layers do where contexts are padded.
    """

    def __init__(self, model: Model, contexts: Sequence[Sequence[int]]) -> None:
        self.model = model
        self.length_B = torch.tensor([len(c) for c in contexts], device=model.device)
        width = int(self.length_B.max())
        ids_BP = torch.tensor(
            [[*c, *[c[-1]] * (width - len(c))] for c in contexts], device=model.device
        )
        self.mask_BP = torch.arange(width, device=model.device) < self.length_B[:, None]
        self.cache = DynamicCache()
        with torch.no_grad():
            model.hidden(ids_BP, cache=self.cache)
        self._check(contexts)

    def hidden(self, embeddings_BSD: Tensor) -> Tensor:
        """[B, S, D] after the last norm."""
        rows, size, _ = embeddings_BSD.shape
        here = torch.arange(size, device=self.model.device)
        seen_BT = torch.cat([self.mask_BP, self.mask_BP.new_ones(rows, size)], 1).long()
        return self.model.hidden_of(
            embeddings_BSD,
            copy.deepcopy(self.cache),
            attention_mask=seen_BT,
            position_ids=self.length_B[:, None] + here,
        )

    def _check(self, contexts: Sequence[Sequence[int]]) -> None:
        """Compares the first row's logits with those without a cache."""
        first = torch.tensor([contexts[0]], device=self.model.device)
        with torch.no_grad():
            embeddings_VD = embeddings_of(self.model, first[0, -2:])
            cached = self.hidden(embeddings_VD.expand(len(contexts), -1, -1))[0, -1:]
            plain = self.model.hidden(torch.cat([first, first[:, -2:]], 1))[0, -1:]
            gap = (self.model.logits(cached) - self.model.logits(plain)).float().abs().max()
        if not float(gap) < TOLERANCE * (1 if self.model.dtype == torch.float32 else 20):
            raise UserError(
                f"{self.model.name} does not go on from cached contexts of different length: its logits differ by "
                f"{float(gap):.3g}; a model with attention in all layers does"
            )


def embeddings_of(model: Model, token_N: Tensor) -> Tensor:
    """[N, D] the embeddings of tokens as the first layer gets them."""
    return model.causal.get_input_embeddings()(token_N)
