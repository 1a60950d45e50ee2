"""Decoding with few operators, for small models of Llama's shape on processors in float32.

A model of a million weights spends more time on starting operators than inside them. Here its
layers take half of those that transformers starts: queries, keys and values are one product, gate
and up another, both with the norm before them in their weights; a rotation is one product of
complex numbers; residuals are added by the product that makes them. The results differ from the
module's in the order of sums alone.

D = width, H and K = heads of queries and of keys, d = size of a head, n = sequences of q tokens
each, N = n q.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, rms_norm, silu
from transformers import LlamaForCausalLM
from transformers.activations import SiLUActivation
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from palaestra.engines.cache import SlotCache
from palaestra.engines.rows import ANY, RowRule, join, rule_for
from palaestra.models.blockwise import WHOLE, Tiling, attend, attend_one
from palaestra.models.load import Model
from palaestra.models.precision import SMALL

FIXED_ROPE = ("default", "linear", "llama3")  # rotations that depend on the position alone


@dataclass(frozen=True)
class LayerWeights:
    """What a layer's inputs are multiplied with from the right, in the order in which few rows are
    multiplied fastest.
    """

    qkv: Tensor  # [D, (H + 2 K) d]; numbers of a query or key that rotate together are neighbours
    out: Tensor
    gate_up: Tensor
    down: Tensor


class Compact:
    """The decoder of a model that may be trained meanwhile: who moves weights calls `forget`."""

    def __init__(self, causal: LlamaForCausalLM):
        config = causal.config
        self.decoder: Any = causal.model
        self.layers: list[Any] = list(causal.model.layers)
        self.heads = config.num_attention_heads
        self.shared = config.num_key_value_heads or self.heads
        self.eps = config.rms_norm_eps
        cos, sin = self.decoder.rotary_emb(
            torch.zeros(1), torch.arange(config.max_position_embeddings)[None]
        )
        half = cos.shape[-1] // 2
        # [positions, 1, d / 2] by which pairs of numbers are turned
        self.turns = torch.complex(cos[0, :, None, :half], sin[0, :, None, :half])
        self._rows: dict[int, RowRule | None] = {}  # by threads
        self.forget()

    @staticmethod
    def of(model: Model) -> Compact | None:
        """None where the model is larger, of another shape, adapted, or elsewhere."""
        causal = model.causal
        if type(causal) is not LlamaForCausalLM or causal.num_parameters() >= SMALL:
            return None
        config, parts = causal.config, causal.model.layers.modules()
        plain = {nn.Linear, LlamaRMSNorm, SiLUActivation}
        able = (
            plain.issuperset(type(m) for m in parts if not [*m.children()])
            and not (config.attention_bias or config.mlp_bias)
            and causal.model.rotary_emb.rope_type in FIXED_ROPE
        )
        fit = model.dtype == torch.float32 and model.device.type == "cpu"
        return Compact(causal) if able and fit else None

    def forget(self) -> None:
        """The weights have moved."""
        self._weights: list[LayerWeights] | None = None

    def rows(self) -> RowRule | None:
        """How many rows its products may have with the threads there are."""
        threads = torch.get_num_threads()
        if threads not in self._rows:
            first = self.weights()[0]
            kinds = {
                multiply: (first.qkv, first.gate_up),
                multiply_onto_zeros: (first.out, first.down),
            }
            self._rows[threads] = join(
                rule_for(f.__name__, partial(f, w_DM=w), w.shape[0], w.shape[1], "float32")
                for f, each in kinds.items()
                for w in each
            )
        return self._rows[threads]

    def weights(self) -> list[LayerWeights]:
        if self._weights is None:
            self._weights = [gather_weights(layer) for layer in self.layers]
        return self._weights

    def embed(self, ids_nq: Tensor) -> Tensor:
        """[n, q, D] of tokens."""
        return embedding(ids_nq, self.decoder.embed_tokens.weight)

    def hidden(
        self,
        x_nqD: Tensor,
        at_nq: Tensor,
        seen_nqL: Tensor,
        cache: SlotCache,
        added: Mapping[int, Tensor],
        tiling: Tiling = WHOLE,
    ) -> Tensor:
        """[n, q, D] after the last norm, of embeddings at their positions in the slots where
        `cache` writes; `seen_nqL` are the columns of its slot that each of them attends to, `added`
        the vectors [D] that steer the model, by place, and `tiling` that of attention over prompts.
        """
        n, q = at_nq.shape
        if q == 1:
            bias = torch.zeros(seen_nqL.shape).masked_fill_(~seen_nqL, float("-inf"))
            attention, seen = attend_one, bias.repeat_interleave(self.shared, 0)
        else:
            attention, seen = partial(attend, tiling=tiling), seen_nqL[:, None]
        rows = self.rows() or ANY
        turn = self.turns[at_nq.flatten()]
        x = x_nqD.flatten(0, 1)
        x = x + added[0] if 0 in added else x
        for i, w in enumerate(self.weights()):
            qkv = rows.apply(partial(multiply, w_DM=w.qkv), self._norm(x)).view(
                n * q, -1, 2 * turn.shape[2]
            )
            pairs = qkv[:, : self.heads + self.shared].unflatten(2, (-1, 2))
            torch.view_as_complex(pairs).mul_(turn)
            parts = qkv.view(n, q, *qkv.shape[1:]).transpose(1, 2)
            query, key, value = parts.split([self.heads, self.shared, self.shared], 1)
            keys, values = cache.update(key, value, i)
            mixed = attention(query, keys, values, seen).reshape(n * q, -1)
            x = rows.apply(partial(multiply_onto, w_DM=w.out), x, mixed)
            gate, up = rows.apply(partial(multiply, w_DM=w.gate_up), self._norm(x)).chunk(2, 1)
            x = rows.apply(partial(multiply_onto, w_DM=w.down), x, silu(gate).mul_(up))
            x = x + added[i + 1] if i + 1 in added else x
        return self.decoder.norm(x).view(n, q, -1)

    def _norm(self, x: Tensor) -> Tensor:
        return rms_norm(x, x.shape[1:], None, self.eps)


def multiply(x_ND: Tensor, *, w_DM: Tensor) -> Tensor:
    return torch.mm(x_ND, w_DM)


def multiply_onto(y_NM: Tensor, x_ND: Tensor, *, w_DM: Tensor) -> Tensor:
    return torch.addmm(y_NM, x_ND, w_DM)


def multiply_onto_zeros(x_ND: Tensor, *, w_DM: Tensor) -> Tensor:
    return multiply_onto(x_ND.new_zeros(len(x_ND), w_DM.shape[1]), x_ND, w_DM=w_DM)


def gather_weights(layer: Any) -> LayerWeights:
    a, mlp, width = layer.self_attn, layer.mlp, layer.self_attn.q_proj.weight.shape[1]
    turned = [
        p.weight.view(-1, 2, a.head_dim // 2, width).transpose(1, 2) for p in (a.q_proj, a.k_proj)
    ]
    qkv = torch.cat([p.reshape(-1, width) for p in (*turned, a.v_proj.weight)])
    gate_up = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
    return LayerWeights(
        qkv=(qkv * layer.input_layernorm.weight).t().contiguous(),
        out=a.o_proj.weight.t().contiguous(),
        gate_up=(gate_up * layer.post_attention_layernorm.weight).t().contiguous(),
        down=mlp.down_proj.weight.t().contiguous(),
    )
