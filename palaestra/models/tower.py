"""What a vision-language model of transformers sees pictures with: its own tower and projector, and
the processor that was saved beside it.

The processor says by which text a picture is replaced in a prompt (tokens around it, between its
tiles and rows) and how often the model's image token stands in it: each of these is a place of the
picture, with an id of its own (`palaestra.pictures`). Pictures go through the tower one at a time,
so that they have the same bits in any company, and pictures of unequal size need no padding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from palaestra.errors import UserError
from palaestra.pictures import FIRST_PLACE, PLACE_BITS, Picture
from palaestra.suggest import suggestion

# model types whose text decoder takes embeddings at plain positions under a causal mask
CAUSAL = ("aya_vision", "idefics2", "idefics3", "internvl", "llava", "llava_onevision", "smolvlm")
MUTUAL = ("gemma3",)  # and those where the places of a picture see each other
GRID = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")  # and those whose positions are grids, see `grid`
TEXTUAL = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")
MODEL_PARTS = ("tower", "projector", "language")
# modules between tower and language part, as architectures call them
PROJECTORS = (
    "multi_modal_projector", "connector", "image_newline", "merger", "deepstack_merger_list",
)  # fmt: skip
HELD = 64  # pictures whose processed pixels are kept


@dataclass(frozen=True, eq=False)
class Processed:
    """A picture as a processor makes it: its ids in a prompt, the image token where places are, and
    what the tower takes.
    """

    ids: tuple[int, ...]
    inputs: dict[str, Tensor]


class Tower:
    """The tower of a model, `causal`, that was loaded with its `processor`. All that takes a picture
    raises UserError for an architecture whose pictures are not supported here.
    """

    def __init__(self, causal: Any, processor: Any, name: str):
        self.causal, self.processor, self.name = causal, processor, name
        self.place = int(getattr(causal.config, "image_token_id", None) or 0)
        # what a chat template writes where a picture stands
        self.mark = str(getattr(processor, "image_token", None) or "")
        self._processed = lru_cache(HELD)(self._process)

    def places(self, picture: Picture) -> int:
        """How many places a picture takes. Raises UserError where there are too many."""
        n = self._processed(picture).ids.count(self.place)
        if n > 1 << PLACE_BITS:
            raise UserError(
                f"{picture.title} takes {n:,} places, and at most {1 << PLACE_BITS:,} are told "
                "apart; make it smaller, or give --max-pixels"
            )
        return n

    def spell(self, picture: Picture) -> Sequence[str | tuple[int, ...]]:
        """What stands for a picture in a prompt: text of the processor, read with its special
        tokens, and between it runs of ids of places.
        """
        ids = self._processed(picture).ids
        own = iter(picture.ids(self.places(picture)))
        spelling: list[str | tuple[int, ...]] = []
        at = 0
        while at < len(ids):
            end, on = at, ids[at] == self.place
            while end < len(ids) and (ids[end] == self.place) == on:
                end += 1
            if on:
                spelling.append(tuple(next(own) for _ in range(end - at)))
            else:
                tokens: Any = self.processor.tokenizer
                spelling.append(
                    tokens.decode(
                        list(ids[at:end]),
                        skip_special_tokens=False,
                        clean_up_tokenization_spaces=False,
                    )
                )
            at = end
        return spelling

    @property
    def has_grid(self) -> bool:
        """Whether positions of pictures are grids."""
        return self.causal.config.model_type in GRID

    @property
    def is_mutual(self) -> bool:
        """Whether the places of a picture see each other, whichever comes first."""
        return self.causal.config.model_type in MUTUAL

    def grid(self, picture: Picture) -> tuple[int, int]:
        """Rows and columns of its places, where positions are grids."""
        merged = int(self.causal.config.vision_config.spatial_merge_size)
        _, height, width = self._processed(picture).inputs["image_grid_thw"][0].tolist()
        return height // merged, width // merged

    def look(self, picture: Picture) -> Tensor:
        """[P, D], an embedding for each of its places; gradients reach the tower and projector. Where
        the first S layers of the language part take further features of a picture (DeepStack,
        arXiv:2406.04334), [P, (1 + S) D].
        """
        device, dtype = self.causal.device, self.causal.dtype
        inputs = {
            k: v.to(device, dtype) if v.is_floating_point() else v.to(device)
            for k, v in self._processed(picture).inputs.items()
        }
        made = self.causal.get_image_features(**inputs, return_dict=True)
        deep = getattr(made, "deepstack_features", None) or ()
        looked_PD = torch.cat([_flat(x) for x in (made.pooler_output, *deep)], 1)
        if len(looked_PD) != (n := self.places(picture)):
            raise UserError(
                f"{self.name}: its processor has {n} places for {picture.title} and its tower "
                f"{len(looked_PD)} embeddings; the processor files are of another model"
            )
        return looked_PD

    def tiles(self, picture: Picture) -> int:
        """How many images the processor makes of a picture; 1 where its patches are a grid."""
        pixels = self._processed(picture).inputs["pixel_values"]
        return math.prod(pixels.shape[:-3])

    def units(self, picture: Picture) -> Tensor | None:
        """[U] where the encoder works in windows, as Qwen2.5-VL's: which unit of patches that are
        merged, counted row by row, comes when; None = they come row by row.
        """
        config = self.causal.config.vision_config
        if not (size := getattr(config, "window_size", 0)):
            return None
        size = size // config.spatial_merge_size // config.patch_size
        rows, columns = self.grid(picture)
        r, c = np.divmod(np.arange(rows * columns), columns)
        return torch.from_numpy(np.lexsort((c, r, c // size, r // size)))

    def _process(self, picture: Picture) -> Processed:
        kind = str(self.causal.config.model_type)
        if kind not in (*CAUSAL, *MUTUAL, *GRID):
            raise UserError(
                f"{self.name} is of the architecture {kind!r}, whose pictures are not read here; "
                f"take one of {', '.join((*CAUSAL, *MUTUAL, *GRID))}, or leave the pictures out"
            )
        try:
            made = self.processor(
                text=self.mark,
                images=[to_pil(picture)],
                add_special_tokens=False,
                return_tensors="pt",
            )
        except (ValueError, TypeError, RuntimeError) as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(
                f"the processor of {self.name} refuses {picture.title}: {why}"
            ) from None
        inputs = {k: v for k, v in made.items() if k not in TEXTUAL and isinstance(v, Tensor)}
        return Processed(tuple(made["input_ids"][0].tolist()), inputs)


def mutual(ids_BT: Tensor) -> Tensor:
    """[B, T, T]: whether two tokens are places of the same picture at the same place of a row."""
    place_BT = ids_BT >= FIRST_PLACE
    first_BT = place_BT & ((ids_BT & ((1 << PLACE_BITS) - 1)) == 0)
    number_BT = first_BT.long().cumsum(1)
    both_BTT = place_BT[:, :, None] & place_BT[:, None, :]
    return both_BTT & (number_BT[:, :, None] == number_BT[:, None, :])


def _flat(features: Any) -> Tensor:
    """[P, D] of the parts of one picture."""
    parts = features if isinstance(features, list | tuple) else [features]
    return torch.cat([x.flatten(0, -2) for x in parts])


def to_pil(picture: Picture) -> Image.Image:
    """As an image of Pillow, grey where there is one channel."""
    pixels = np.frombuffer(picture.data, np.uint8).reshape(picture.shape)
    return Image.fromarray(pixels[..., 0] if picture.shape[2] == 1 else pixels).convert("RGB")


def set_rates(
    module: nn.Module,
    causal: Any,
    rates: Mapping[str, float],
    name: str,
    senses: Mapping[str, nn.Module] = MappingProxyType({}),
) -> None:
    """Freezes the parts of a model whose rate is 0, and marks the others for the optimiser; see
    `rate_share`. What is frozen already, as under adapters, stays so. `senses` are eyes and ears of
    the project's own, by name.

    Raises UserError for another part than MODEL_PARTS, a negative rate, or a model without a tower.
    """
    for part, rate in rates.items():
        if part not in MODEL_PARTS:
            raise UserError(
                f"rates: {part!r} is no part of a model{suggestion(part, MODEL_PARTS)}; use "
                f"{', '.join(MODEL_PARTS)}"
            )
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < math.inf:
            raise UserError(f"rates: that of {part} is {rate!r}; write 0, to freeze it, or more")
    parts = model_parts(module, causal, senses)
    if "tower" not in {part for part, _ in parts.values()}:
        raise UserError(
            f"rates: {name} sees and hears nothing, so it has no parts; take a vision-language model, or "
            "leave rates out"
        )
    for part, p in parts.values():
        rate = rates.get(part, 1.0)
        p.rate_share = float(rate)  # type: ignore[attr-defined]
        if rate == 0:
            p.requires_grad_(False)
    if not any(p.requires_grad for _, p in parts.values()):
        raise UserError(
            "rates: every part is frozen, so nothing is learned; give one a rate above 0"
        )


def rate_share(p: nn.Parameter) -> float:
    """What the learning rate of a weight is multiplied by, as `set_rates` says; else 1."""
    return getattr(p, "rate_share", 1.0)


def model_parts(
    module: nn.Module, causal: Any, senses: Mapping[str, nn.Module] = MappingProxyType({})
) -> dict[str, tuple[str, nn.Parameter]]:
    """The part that each weight of a model belongs to, and the weight, by its name; all are "language"
    where it has no tower. Of eyes and ears of the project's own, `senses`, the last layer, `out`, is the projector.
    """
    output = causal.get_output_embeddings()
    inner = (*causal.get_decoder().parameters(), *(() if output is None else output.parameters()))
    language = {id(p) for p in inner}
    own = {f"{sense}.{n}": (n, p) for sense, of in senses.items() for n, p in of.named_parameters()}
    return {
        n: (
            "language"
            if id(p) in language
            else "projector"
            if set(n.split(".")) & set(PROJECTORS)
            else "tower",
            p,
        )
        for n, p in module.named_parameters()
    } | {k: ("projector" if n.startswith("out.") else "tower", p) for k, (n, p) in own.items()}
