"""A causal language model with its tokenizer, and what sampling and training ask of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, fields
from functools import cache as remember
from functools import cached_property, partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from transformers import PreTrainedTokenizerBase
from transformers.cache_utils import Cache
from transformers.modeling_layers import GradientCheckpointingLayer

from palaestra.chat.template import end_of_turn
from palaestra.errors import UserError
from palaestra.models.ears import EARS, Ears, count_sound_places
from palaestra.models.eyes import EYES, Eyes, Seen, Senses, count_places
from palaestra.models.files import check_processor, explain_failures, silence_transformers
from palaestra.models.grid import GridOf, batch_shifts
from palaestra.models.heads import Q_HEADS, SLOW, ActionValueHead, VocabularyHead, head
from palaestra.models.inside.latent import PREFIX, LatentHead
from palaestra.models.inside.residual import hooked, layers_of
from palaestra.models.offload import offloading
from palaestra.models.packed import enable
from palaestra.models.precision import SMALL
from palaestra.models.quantised import unpacked_weights
from palaestra.models.routing import Router, find_routers
from palaestra.models.tower import Tower, mutual
from palaestra.models.weight_files import digest_of, read_weights
from palaestra.pictures import FIRST_PLACE, Picture
from palaestra.sounds import Sound

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "_linear_pointwise", "convolution")
NO_BOUND = 1 << 30  # context of a model whose config gives none (recurrent ones)


def with_cache(module: nn.Module, cache: Cache | None) -> dict[str, Any]:
    """What a decoder or causal model of transformers is called with to use a cache, or none: up to
    5.23 it is named `past_key_values`, and from 5.24 on that name makes a warning.
    """
    if cache is None:
        return {"use_cache": False}
    return {cache_name(type(module)): cache, "use_cache": True}


@remember
def cache_name(architecture: type[nn.Module]) -> str:
    """What its forward pass calls a cache."""
    return "cache" if "cache" in signature(architecture.forward).parameters else "past_key_values"


@dataclass(eq=False)
class Model:
    """`module` is a causal model of transformers, or one wrapped by peft. It stays in eval mode: no
    dropout, ever.
    """

    name: str
    module: nn.Module
    tokenizer: PreTrainedTokenizerBase
    source: str
    heads: dict[str, nn.Module] = field(default_factory=dict)
    # layers forget their activations and compute them again in the backward pass
    recompute: bool = False
    # a frozen model that shares the weights of one with adapters, and runs without these
    bare: bool = False
    # vectors [D] added between its layers, by place; see `activations.steered`
    added: Mapping[int, Tensor] = field(default_factory=dict)
    # of a model that sees or hears by itself, as transformers reads it beside the weights
    processor: Any = None
    # what layers keep for the backward pass waits for it elsewhere, see `offload`
    offload: bool = False

    def __getstate__(self) -> dict[str, Any]:
        """What another process gets: what was worked out from it is worked out there again."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def adapted(self) -> bool:
        """Trains low-rank adapters instead of all weights."""
        return hasattr(self.module, "peft_config")

    @cached_property
    def causal(self) -> Any:
        """The transformers model, without peft's wrapping (its layers are still the
        adapted ones).
        """
        return self.module.get_base_model() if self.adapted else self.module  # type: ignore[operator]

    @property
    def device(self) -> torch.device:
        return next(self.module.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return self.causal.dtype

    @property
    def n_parameters(self) -> int:
        return unpacked_weights(self.module)

    @cached_property
    def width(self) -> int:
        """D, the size of the hidden states that meet the vocabulary."""
        out = self.causal.get_output_embeddings()
        return (
            self.causal.config.get_text_config().hidden_size if out is None else out.weight.shape[1]
        )

    @cached_property
    def vocabulary(self) -> int:
        """V, the number of logits."""
        return self.causal.config.get_text_config().vocab_size

    @cached_property
    def position_bytes(self) -> int:
        """What a token of a training forward pass keeps for the backward pass, about: some twelve
        vectors of the width and four of the middle layer in every layer (recomputed: one, and one
        layer's), three of the vocabulary.
        """
        config = self.causal.config.get_text_config()
        layers, middle = (
            getattr(config, "num_hidden_layers", 1),
            getattr(config, "intermediate_size", None),
        )
        layer = 12 * self.width + 4 * (middle if isinstance(middle, int) else 4 * self.width)
        kept = layers * self.width + layer if self.recompute else layers * layer
        return kept * self.dtype.itemsize + 3 * self.vocabulary * torch.float32.itemsize

    @cached_property
    def head_size(self) -> int:
        """Numbers of an attention head's key."""
        config = self.causal.config.get_text_config()
        heads = max(1, getattr(config, "num_attention_heads", 1))
        return getattr(config, "head_dim", None) or config.hidden_size // heads

    @cached_property
    def positions(self) -> int:
        """The most tokens that the architecture has places for."""
        return (
            getattr(self.causal.config.get_text_config(), "max_position_embeddings", None)
            or NO_BOUND
        )

    @cached_property
    def window(self) -> int:
        """The tokens, its own included, that every layer looks back on; UNBOUNDED where all see the
        whole past.
        """
        config = self.causal.config.get_text_config()
        if set(getattr(config, "layer_types", None) or ()) == {"full_attention"}:
            return NO_BOUND
        sizes = (getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size"))
        return min((s for s in sizes if isinstance(s, int) and s > 0), default=NO_BOUND)

    @cached_property
    def context(self) -> int:
        """The most tokens a sequence may have. While sampling every layer sees the whole past: so
        long as a window holds it.
        """
        return min(self.positions, self.window)

    @cached_property
    def eos(self) -> frozenset[int]:
        """Every token that ends a turn: the configs', the tokenizer's, the chat template's."""
        config, generation = self.causal.config.get_text_config(), self.causal.generation_config
        sources: list[Any] = [
            end_of_turn(self.tokenizer),
            self.tokenizer.eos_token_id,
            getattr(config, "eos_token_id", None),
        ]
        sources.append(generation.eos_token_id if generation else None)
        ids = {
            i
            for given in sources
            for i in (given if isinstance(given, (list, tuple)) else (given,))
        }
        return frozenset(i for i in ids if i is not None)

    # ---- running

    @cached_property
    def packs(self) -> bool:
        """Runs rows without padding and shared prompts once; see `packed`."""
        return not self.is_mutual and enable(self.causal)

    def hidden(
        self, ids_BT: Tensor, seen: Seen | None = None, cache: Cache | None = None, **options: Any
    ) -> Tensor:
        """[B, T, D] after the last norm. `seen` are the pictures whose places are among the ids.
        The cache holds the past and takes the tokens. Options go to the decoder: positions, mask.
        Without positions, rows begin with their first token.
        """
        with self._without_adapters(), self._between_layers({}):
            given = {**self._inputs(ids_BT, seen, options), **options}
            return self._decoder(**given, **with_cache(self._decoder, cache)).last_hidden_state

    def hidden_of(
        self, embeddings_BTD: Tensor, cache: Cache | None = None, **options: Any
    ) -> Tensor:
        """[B, T, D] after the last norm, of rows of embeddings where `hidden` has tokens, such as means
        of embeddings; gradients reach them.
        """
        with self._without_adapters(), self._between_layers({}):
            return self._decoder(
                inputs_embeds=embeddings_BTD, **with_cache(self._decoder, cache), **options
            ).last_hidden_state

    def stream(self, ids_BT: Tensor, places: Sequence[int], **options: Any) -> list[Tensor]:
        """[B, T, D] of each place as transformers counts hidden states: 0 the embeddings, l what
        layer l gives, and of the last layer what the last norm gives.
        """
        streams: dict[int, Tensor] = {}
        last = len(self.layers)
        seen = {p: partial(streams.__setitem__, p) for p in places if p != last}
        with self._without_adapters(), self._between_layers(seen):
            run = self._decoder(input_ids=ids_BT, **{"use_cache": False, **options})
        streams[last] = run.last_hidden_state
        return [streams[p] for p in places]

    def attention(self, ids_BT: Tensor, seen: Seen | None = None) -> tuple[Tensor, ...]:
        """[B, H, T, T] of every layer, where the attention implementation gives its maps."""
        with self._without_adapters(), self._between_layers({}):
            return self._decoder(
                **self._inputs(ids_BT, seen, {}), use_cache=False, output_attentions=True
            ).attentions

    def _inputs(
        self, ids_BT: Tensor, seen: Seen | None, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Tokens as they are where there are no pictures."""
        if seen is None:
            return {"input_ids": ids_BT}
        inputs = seen.inputs(self.senses, ids_BT, self._embed_text(ids_BT))
        if self.is_mutual and "attention_mask" not in options:
            T = ids_BT.shape[1]
            past_TT = torch.ones(T, T, dtype=torch.bool, device=ids_BT.device).tril()
            inputs["attention_mask"] = (past_TT | mutual(ids_BT))[:, None]
        grids = self.grids(seen)
        if grids is None or "position_ids" in options:
            return inputs
        at_T = torch.arange(ids_BT.shape[1], device=ids_BT.device)
        return {**inputs, "position_ids": at_T + batch_shifts(ids_BT, grids)[..., :-1]}

    def embed(self, ids_BT: Tensor, seen: Seen) -> Tensor:
        """[B, T, D]: embeddings of tokens, and of places of pictures. Raises UserError where one
        is not among those seen, or the model has no eyes.
        """
        return seen.embed(self.senses, ids_BT, self._embed_text(ids_BT))

    def _embed_text(self, ids_BT: Tensor) -> Tensor:
        """[B, T, D], anything at places of pictures."""
        return self.causal.get_input_embeddings()(ids_BT.where(ids_BT < FIRST_PLACE, 0))

    @property
    def senses(self) -> Senses:
        """What it sees and hears with."""
        return Senses(self.eyes, self.ears, self.name)

    @property
    def has_grids(self) -> bool:
        """Whether pictures move the positions of what follows them; see `grid`."""
        return self.sight is not None and self.sight.has_grid

    @property
    def is_mutual(self) -> bool:
        """Whether the places of a picture see each other, whichever comes first."""
        return self.sight is not None and self.sight.is_mutual

    def grids(self, seen: Seen | None) -> GridOf | None:
        """The grids of pictures by digest; None where positions are places."""
        tower = self.sight if seen is not None and self.has_grids else None
        return seen.grid_of(tower) if seen is not None and tower is not None else None

    @property
    def eyes(self) -> Eyes | Tower | None:
        """What it sees pictures with; None = it sees nothing."""
        eyes = self.heads.get(EYES)
        if isinstance(eyes, Eyes):
            return eyes
        return self.tower if self.tower is not None and self.tower.sees else None

    @property
    def ears(self) -> Ears | Tower | None:
        """What it hears sounds with; None = it hears nothing."""
        ears = self.heads.get(EARS)
        if isinstance(ears, Ears):
            return ears
        return self.tower if self.tower is not None and self.tower.hears else None

    @property
    def has_senses(self) -> bool:
        """Whether it sees or hears."""
        return self.eyes is not None or self.ears is not None

    @cached_property
    def tower(self) -> Tower | None:
        """Of a model that sees or hears by itself: its own."""
        return None if self.processor is None else Tower(self.causal, self.processor, self.name)

    @property
    def sight(self) -> Tower | None:
        """How a processor writes pictures and sounds; None = its own eyes and ears take them as they are."""
        return None if isinstance(self.heads.get(EYES), Eyes) else self.tower

    def places(self, picture: Picture) -> int:
        """How many places a picture or sound takes. Raises UserError for one that it cannot see or hear."""
        if self.sight is not None:
            return self.sight.places(picture)
        if (self.ears if isinstance(picture, Sound) else self.eyes) is None:
            check_processor(self.source, self.causal.config)
        if isinstance(picture, Sound):
            return count_sound_places(self.ears, picture, self.name)
        return count_places(self.eyes, picture, self.name)

    def logits(self, hidden_ND: Tensor) -> Tensor:
        """[N, V] as the module itself makes them from hidden states, scaling and soft-capping
        included; by way of codes where there is a latent head, and with the values of tokens where
        there is a head "q" that acts.
        """
        with self._without_adapters():
            logits_NV = (
                self.latent.logits(hidden_ND, self._head) if self.latent else self._head(hidden_ND)
            )
        q = self.heads.get("q")
        if isinstance(q, ActionValueHead) and q.strength:
            return q.act(self.action_values(hidden_ND), logits_NV)
        return logits_NV

    def action_values(self, hidden_ND: Tensor) -> Tensor:
        """[N, V] values of tokens that the model acts by: the least of the heads "q" and "q2" that
        there are, of their slow copies where there are some.
        """
        slow = [h for n in Q_HEADS if (h := self.heads.get(SLOW + n)) is not None]
        own = slow or [self.heads[n] for n in Q_HEADS if n in self.heads]
        return torch.stack([h(hidden_ND) for h in own]).amin(0)

    @property
    def latent(self) -> LatentHead | None:
        return next((h for h in self.heads.values() if isinstance(h, LatentHead)), None)

    @property
    def logits_each(self) -> int:
        """Logits that those of one token take: of the vocabulary, under every code where there is a
        latent head.
        """
        return self.vocabulary * (self.latent.codes if self.latent else 1)

    def read(self, head: str, hidden_ND: Tensor, token_N: Tensor) -> Tensor:
        """[N] what a head says of hidden states; of a latent head the cost of the tokens that
        followed, of values of tokens theirs.
        """
        module = self.heads[head]
        if isinstance(module, ActionValueHead):
            return module(hidden_ND).gather(1, token_N[:, None])[:, 0]
        return (
            module.construct(hidden_ND, token_N, self._head)
            if isinstance(module, LatentHead)
            else module(hidden_ND)
        )

    def steering(self, hidden_ND: Tensor) -> Tensor:
        """[N] how far the codes of the latent head differ in the next token."""
        if self.latent is None:
            raise KeyError(f"{self.name} has no latent head")
        return self.latent.steering(hidden_ND, self._head)

    @property
    def is_thrifty(self) -> bool:
        """Whether layers keep products and attention alone for the backward pass, and compute again
        what is cheap between them: of large models below float32 on a processor, where memory is
        short and an operator takes longer than to start it.
        """
        low = self.dtype.itemsize < torch.float32.itemsize
        return low and self.device.type == "cpu" and self.n_parameters >= SMALL

    @contextmanager
    def recomputing(self) -> Generator[None]:
        """Inside, layers run under gradient checkpointing if `recompute` is set, or the model is
        thrifty, and what they keep is moved away if `offload` is set. Sampling stays outside: it
        caches.

        The switch that transformers has for it works in training mode alone, in which some layers
        drop out.
        """
        options = dict[str, Any](use_reentrant=False, preserve_rng_state=False)
        if not self.recompute:
            options["context_fn"] = partial(create_selective_checkpoint_contexts, keep_products)
        on = torch.is_grad_enabled() and (self.recompute or self.is_thrifty)
        every = self.module.modules() if on else ()
        layers = [m for m in every if isinstance(m, GradientCheckpointingLayer)]
        before = {m: f for m in layers if (f := m.__dict__.get("forward"))}
        for layer in layers:
            layer.__dict__["forward"] = partial(checkpoint, layer.forward, **options)
        moves = self.offload and torch.is_grad_enabled()
        away = offloading(self.module.parameters()) if moves else nullcontext()
        try:
            with away:
                yield
        finally:
            for layer in layers:
                del layer.__dict__["forward"]
                if layer in before:
                    layer.__dict__["forward"] = before[layer]

    def _between_layers(
        self, seen: Mapping[int, Callable[[Tensor], None]]
    ) -> AbstractContextManager[None]:
        any_place = self.added or seen
        return hooked(self.layers, self.added, seen) if any_place else nullcontext()

    @cached_property
    def layers(self) -> list[nn.Module]:
        return layers_of(self.causal)

    @property
    def routers(self) -> list[Router]:
        """What chooses experts, in order; none in a dense model. Raises UserError where it cannot be replayed."""
        return self._routers

    _routers = cached_property(lambda self: find_routers(self.layers))

    @cached_property
    def is_mixture(self) -> bool:
        """Whether it has experts of which a token takes some."""
        return any(hasattr(m, "experts") for m in self.causal.modules())

    @cached_property
    def _decoder(self) -> Any:
        return self.causal.get_decoder()

    @cached_property
    def _head(self) -> VocabularyHead:
        return VocabularyHead(self.causal, self.width)

    @contextmanager
    def _without_adapters(self) -> Generator[None]:
        if not self.bare:
            yield
            return
        with self.module.disable_adapter():  # type: ignore[operator]
            yield

    # ---- weights

    def named_trainable(self) -> dict[str, nn.Parameter]:
        """What an optimiser moves, by name; heads as "head.NAME"."""
        if self.bare:
            return {}
        named = [*self.module.named_parameters()]
        named += [
            (f"head.{h}.{n}", p)
            for h, head in self.heads.items()
            for n, p in head.named_parameters()
        ]
        return {n: p for n, p in named if p.requires_grad}

    def trainable(self) -> list[nn.Parameter]:
        return list(self.named_trainable().values())

    def freeze_below(self, layers: int) -> None:
        """Only the last `layers` decoder layers learn from here on, beside heads; where there are
        adapters, all of these go on learning. Raises UserError for more layers than there are.
        """
        if self.adapted:
            return
        if layers > len(self.layers):
            raise UserError(
                f"layers={layers}: {self.name} has {len(self.layers)}; name fewer, or 0 for all weights"
            )
        self.module.requires_grad_(False)
        for layer in self.layers[-layers:]:
            layer.requires_grad_(True)

    @torch.no_grad()
    def load_weights(self, directory: str | Path) -> None:
        """Sets the weights to those that `save` wrote, in place and one after another: optimisers keep
        hold of them. Heads stay.
        """
        directory = Path(directory)
        with silence_transformers(), explain_failures(str(directory)):
            if self.adapted:
                from peft.utils import set_peft_model_state_dict

                set_peft_model_state_dict(
                    self.module, load_file(directory / "adapter" / "adapter_model.safetensors")
                )
                return
            own = dict(self.module.named_parameters())
            for name, value in read_weights(self.module, directory):
                own[name].copy_(value)

    def add_eyes(self) -> None:
        """A head that sees pictures, unless a processor writes the model's prompts, as with ears."""
        if self.processor is None:
            self.add_head(EYES)

    def add_ears(self) -> None:
        """A head that hears sounds, unless the model hears by itself, or its processor refuses them."""
        if self.processor is None:
            self.add_head(EARS)

    def add_head(self, name: str) -> nn.Module:
        """The head of that name, made if there is none."""
        if name not in self.heads:
            dtype = torch.promote_types(self.dtype, torch.float32)
            made = head(name, self.width, self.vocabulary, dtype)
            if name.startswith(PREFIX):
                made = LatentHead(
                    int(name.removeprefix(PREFIX)), self.width, self.vocabulary, dtype
                )
                self.module.requires_grad_(False)  # what stands below a latent head is frozen
            self.heads[name] = made.to(self.device)
        return self.heads[name]


def keep_products(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """What a thrifty layer keeps: outputs that took about all of its time."""
    name = op.name()
    costly = "_scaled_dot_product" in name or name.split("::")[-1].split(".")[0] in PRODUCTS
    return CheckpointPolicy.MUST_SAVE if costly else CheckpointPolicy.PREFER_RECOMPUTE


def trainable_copy(model: Model, share: bool = False) -> Model:
    """The model as it is, to be trained apart from the original.

    Args:
        share: the copy of a model with adapters has adapters of its own on the same base weights,
            which nothing may write to.
    """
    heads = {n: copy.deepcopy(h) for n, h in model.heads.items()}
    same = {id(p): p for p in model.module.parameters() if share and not p.requires_grad}
    return Model(
        model.name,
        copy.deepcopy(model.module, same if model.adapted else None),
        model.tokenizer,
        model.source,
        heads,
        model.recompute,
        processor=model.processor,
        offload=model.offload,
    )


def frozen_copy(model: Model) -> Model:
    """The model as it is, never to change. Untouched adapters are switched off instead of copied
    with their base.
    """
    heads = {n: _freeze(h) for n, h in model.heads.items()}
    same = model.bare or (model.adapted and _is_untouched(model.module))
    return Model(
        model.name,
        model.module if same else _freeze(model.module),
        model.tokenizer,
        model.source,
        heads,
        bare=same,
        processor=model.processor,
    )


def _freeze(module: nn.Module) -> nn.Module:
    twin = copy.deepcopy(module).requires_grad_(False)
    for p in twin.parameters():
        p.grad = None
    return twin


def _is_untouched(module: nn.Module) -> bool:
    """Low-rank adapters start with B = 0, and then change nothing."""
    return not any(p.any() for n, p in module.named_parameters() if "lora_B" in n)


def weights_sha256(model: Model) -> str:
    """Digest of what is trained; of all weights where nothing is."""
    return digest_of((model.named_trainable() or dict(model.module.named_parameters())).items())
