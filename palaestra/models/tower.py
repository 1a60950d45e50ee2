"""What a model of transformers sees pictures and hears sounds with: its own towers and projectors, and
the processor that was saved beside it.

The processor says by which text a picture or sound is replaced in a prompt (tokens around it, between
its tiles and rows) and how often the model's image or audio token stands in it: each of these is a
place of it, with an id of its own (`palaestra.pictures`). Each goes through its tower alone, so that
it has the same bits in any company, and pictures of unequal size and sounds of unequal length need no
padding beyond what the processor adds.
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
from transformers.masking_utils import create_bidirectional_mask

from palaestra.errors import UserError
from palaestra.pictures import FIRST_PLACE, PLACE_BITS, Picture
from palaestra.sounds import Sound, resample, samples_of
from palaestra.suggest import suggestion

# model types whose text decoder takes embeddings at plain positions under a causal mask
CAUSAL = ("aya_vision", "idefics2", "idefics3", "internvl", "llava", "llava_onevision", "smolvlm")
MUTUAL = ("gemma3",)  # and those where the places of a picture see each other
# and those whose positions are grids, see `grid`
GRID = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen2_5_omni_thinker")
HEARING = ("qwen2_5_omni_thinker", "qwen2_audio")  # those whose sounds are read
WAVES = ("input_features", "feature_attention_mask")  # what a tower takes of a sound
TEXTUAL = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")
MODEL_PARTS = ("tower", "projector", "language")
# modules between tower and language part, as architectures call them
PROJECTORS = (
    "multi_modal_projector", "connector", "image_newline", "merger", "deepstack_merger_list",
    "audio_tower.proj",
)  # fmt: skip
HELD = 64  # pictures and sounds that are kept as the processor made them


@dataclass(frozen=True, eq=False)
class Processed:
    """A picture or sound as a processor makes it: its ids in a prompt, the image or audio token where
    places are, and what the tower takes.
    """

    ids: tuple[int, ...]
    inputs: dict[str, Tensor]


class Tower:
    """The towers of a model, `causal`, that was loaded with its `processor`. All that takes a picture
    or sound raises UserError for an architecture whose pictures or sounds are not supported here.
    """

    def __init__(self, causal: Any, processor: Any, name: str):
        self.causal, self.processor, self.name = causal, processor, name
        self._processed = lru_cache(HELD)(self._process)

    @property
    def sees(self) -> bool:
        """Whether its processor reads pictures."""
        return getattr(self.processor, "image_processor", None) is not None

    @property
    def hears(self) -> bool:
        """Whether its processor reads sounds."""
        reads = getattr(self.processor, "feature_extractor", None) is not None
        return reads and self.causal.config.model_type in HEARING

    def place_of(self, picture: Picture) -> int:
        """The token that stands in a prompt for each place of a picture, or sound."""
        kind = "audio" if isinstance(picture, Sound) else "image"
        return int(getattr(self.causal.config, f"{kind}_token_id", None) or 0)

    def mark_of(self, picture: Picture) -> str:
        """What a chat template writes where a picture, or sound, stands. Raises UserError where the model
        does not see, or hear, it.
        """
        self._check(picture)
        kind = "audio" if isinstance(picture, Sound) else "image"
        return str(getattr(self.processor, f"{kind}_token", None) or "")

    def places(self, picture: Picture) -> int:
        """How many places a picture or sound takes. Raises UserError where there are too many, or
        none.
        """
        n = self._processed(picture).ids.count(self.place_of(picture))
        heard = isinstance(picture, Sound)
        if n > 1 << PLACE_BITS:
            remedy = (
                "cut it, or give --max-duration"
                if heard
                else "make it smaller, or give --max-pixels"
            )
            raise UserError(
                f"{picture.title} takes {n:,} places, and at most {1 << PLACE_BITS:,} are told "
                f"apart; {remedy}"
            )
        if heard and not n:
            raise UserError(
                f"{picture.title} is too short: {self.name} makes no token of it; leave it out, or give "
                "a longer one"
            )
        return n

    def spell(self, picture: Picture) -> Sequence[str | tuple[int, ...]]:
        """What stands for a picture or sound in a prompt: text of the processor, read with its special
        tokens, and between it runs of ids of places.
        """
        ids, place = self._processed(picture).ids, self.place_of(picture)
        own = iter(picture.ids(self.places(picture)))
        spelling: list[str | tuple[int, ...]] = []
        at = 0
        while at < len(ids):
            end, on = at, ids[at] == place
            while end < len(ids) and (ids[end] == place) == on:
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
        """[P, D], an embedding for each place of a picture or sound; gradients reach the tower and
        projector. Where the first S layers of the language part take further features of a picture (DeepStack,
        arXiv:2406.04334), [P, (1 + S) D].
        """
        device, dtype = self.causal.device, self.causal.dtype
        inputs = {
            k: v.to(device, dtype) if v.is_floating_point() else v.to(device)
            for k, v in self._processed(picture).inputs.items()
        }
        if isinstance(picture, Sound):
            looked_PD = _listen(self.causal, **inputs)
        else:
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
        self._check(picture)
        if isinstance(picture, Sound):
            return self._process_sound(picture)
        made = self._read(picture, images=[to_pil(picture)])
        inputs = {k: v for k, v in made.items() if k not in TEXTUAL and isinstance(v, Tensor)}
        return Processed(tuple(made["input_ids"][0].tolist()), inputs)

    def _check(self, picture: Picture) -> None:
        """Raises UserError for what the model does not see, or hear."""
        if isinstance(picture, Sound):
            if self.hears:
                return
            raise UserError(
                f"{self.name} has no ears, and a prompt holds a sound; take a model that hears, such as "
                "Qwen2.5-Omni or Qwen2-Audio, or leave the sounds out"
            )
        if not self.sees:
            raise UserError(
                f"{self.name} has no eyes, and a prompt holds a picture; take a model that sees, such as "
                "Qwen2.5-Omni or a vision-language model, or leave the pictures out"
            )
        kind = str(self.causal.config.model_type)
        if kind not in (*CAUSAL, *MUTUAL, *GRID):
            raise UserError(
                f"{self.name} is of the architecture {kind!r}, whose pictures are not read here; "
                f"take one of {', '.join((*CAUSAL, *MUTUAL, *GRID))}, or leave the pictures out"
            )

    def _process_sound(self, sound: Sound) -> Processed:
        """At the rate of the model's feature extractor, whatever the sound's is."""
        extractor: Any = self.processor.feature_extractor
        rate, most = int(extractor.sampling_rate), int(extractor.n_samples)
        samples_N = resample(samples_of(sound), sound.rate, rate).astype(np.float32)
        if len(samples_N) > most:  # the extractor would leave out the end without a word
            raise UserError(
                f"{sound.title} is {sound.seconds:.1f} s long, and {self.name} hears up to "
                f"{most / rate:g} s; cut it, or give --max-duration {most // rate}"
            )
        how, whole = {"sampling_rate": rate}, self.causal.config.model_type == "qwen2_audio"
        if (
            not whole
        ):  # which wants all of its 30 s, silence included; of others silence is left out again
            how["max_length"] = min(most, len(samples_N) + extractor.n_fft + extractor.hop_length)
        made = self._read(sound, audio=[samples_N], audio_kwargs=how)
        inputs = {k: made[k] for k in WAVES}
        if not whole:
            n = int(inputs["feature_attention_mask"].sum())
            inputs = {k: v[..., :n].clone() for k, v in inputs.items()}
        return Processed(tuple(made["input_ids"][0].tolist()), inputs)

    def _read(self, picture: Picture, **media: Any) -> Mapping[str, Any]:
        """What the processor makes of a prompt that is nothing but a picture or sound."""
        try:
            return self.processor(
                text=self.mark_of(picture), add_special_tokens=False, return_tensors="pt", **media
            )
        except (ValueError, TypeError, RuntimeError) as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(
                f"the processor of {self.name} refuses {picture.title}: {why}"
            ) from None


def _listen(causal: Any, input_features: Tensor, feature_attention_mask: Tensor) -> Tensor:
    """[P, D] of one sound."""
    if causal.config.model_type != "qwen2_audio":
        return causal.get_audio_features(
            input_features, feature_attention_mask=feature_attention_mask, return_dict=True
        ).last_hidden_state
    # it has no function for this; between the convolutions and the pooling silence is left out
    tower = causal.model.audio_tower
    inner, places = tower._get_feat_extract_output_lengths(feature_attention_mask.sum(-1))
    whole = (input_features.shape[-1] - 2) // 2 + 1
    sounding_1T = torch.arange(whole, device=inner.device)[None] < inner[:, None]
    mask = create_bidirectional_mask(
        config=tower.config,
        inputs_embeds=input_features.new_zeros(1, whole, 1),
        attention_mask=sounding_1T.long(),
    )
    heard_1PD = tower(input_features, attention_mask=mask).last_hidden_state
    return causal.model.multi_modal_projector(heard_1PD)[0, : int(places)]


def at_places(each: Sequence[Tensor], which_N: Tensor, number_N: Tensor) -> Tensor:
    """[N, F] of places by the number of what they are of, and their number in it.

    Args:
        each: [P, F] of every picture or sound.
    """
    before = torch.tensor([0, *map(len, each[:-1])], device=which_N.device).cumsum(0)
    return torch.cat(list(each))[before[which_N] + number_N]


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
            f"rates: {name} sees and hears nothing, so it has no parts; take a model that does, or "
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
            if any(f".{p}." in f".{n}." for p in PROJECTORS)
            else "tower",
            p,
        )
        for n, p in module.named_parameters()
    } | {k: ("projector" if n.startswith("out.") else "tower", p) for k, (n, p) in own.items()}
