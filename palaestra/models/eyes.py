"""What a language model sees pictures with: patches as embeddings that stand among those of tokens; and
the pictures and sounds of a forward pass.

M = pictures of a forward pass, P = places of a picture, D = the model's width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, interpolate, layer_norm, scaled_dot_product_attention

from palaestra.errors import UserError
from palaestra.models.ears import Ears, Heard, sound_columns
from palaestra.models.grid import GridOf
from palaestra.models.tower import Tower, at_places
from palaestra.pictures import FIRST_PLACE, PLACE_BITS, Picture, by_digest, pictures_in
from palaestra.sounds import Sound
from palaestra.types import Batch, Row, rng_of

EYES = "eyes"  # the name of the head
SIDE, PATCH, CHANNELS = 32, 8, 3  # pixels of a picture and of a patch, both square
INNER, HEADS = 96, 4  # width of the one layer, and its attention heads
SPREAD = 0.25  # of an embedding at the start, about that of the embedded model's tokens


class Eyes(nn.Module):
    """One transformer layer over the patches of a picture of 32 x 32 pixels: 16 places, each with
    the embedding of its patch in the light of the others. (Patches: arXiv:2010.11929.)

    Its random start is a path's, the same on every machine.
    """

    places = (SIDE // PATCH) ** 2

    def __init__(self, width: int, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.patch = nn.Linear(PATCH * PATCH * CHANNELS, INNER, dtype=dtype)
        self.position = nn.Parameter(torch.empty(self.places, INNER, dtype=dtype))
        self.qkv = nn.Linear(INNER, 3 * INNER, dtype=dtype)
        self.mix = nn.Linear(INNER, INNER, dtype=dtype)
        self.up = nn.Linear(INNER, 4 * INNER, dtype=dtype)
        self.down = nn.Linear(4 * INNER, INNER, dtype=dtype)
        self.out = nn.Linear(INNER, width, dtype=dtype)
        with torch.no_grad():
            for name, p in self.named_parameters():
                if name.endswith("bias"):
                    p.zero_()
                    continue
                drawn = rng_of(("head", EYES, name, width)).standard_normal(tuple(p.shape))
                scale = 1.0 if name == "position" else p.shape[1] ** -0.5
                p.copy_(torch.from_numpy(drawn * scale))
            self.out.weight.mul_(SPREAD)

    def forward(self, pixels_MHWC: Tensor) -> Tensor:
        """[M, P, D] of uint8 pixels [M, 32, 32, 3]."""
        M, n = len(pixels_MHWC), SIDE // PATCH
        x = pixels_MHWC.to(self.patch.weight.dtype) / 127.5 - 1
        x = x.view(M, n, PATCH, n, PATCH, CHANNELS).transpose(2, 3).reshape(M, n * n, -1)
        x = self.patch(x) + self.position
        q, k, v = self.qkv(_norm(x)).view(M, n * n, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(M, n * n, INNER)
        x = x + self.mix(seen)
        x = x + self.down(gelu(self.up(_norm(x))))
        return self.out(_norm(x))


def _norm(x: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:])


def count_places(eyes: Any, picture: Picture, of: str) -> int:
    """How many places a picture takes. Raises UserError where it cannot be seen."""
    if isinstance(eyes, Tower):
        return eyes.places(picture)
    if not isinstance(eyes, Eyes):
        raise UserError(
            f"{of} has no eyes, and a prompt holds a picture; take a vision-language model, train it "
            f"with heads=('{EYES}',), or start from a model that was"
        )
    if picture.shape[2] != CHANNELS:
        raise UserError(
            f"a picture has {'x'.join(map(str, picture.shape))} numbers; {of} sees pictures of "
            f"{CHANNELS} colours"
        )
    return eyes.places


def fit_picture(picture: Picture) -> Tensor:
    """uint8 [32, 32, 3] of a picture of any size, which is stretched to a square; each pixel is a
    mean of those that it covers.
    """
    pixels_HWC = torch.from_numpy(pixels_of(picture).copy())
    if picture.shape[:2] == (SIDE, SIDE):
        return pixels_HWC
    pixels_1CHW = pixels_HWC.permute(2, 0, 1)[None].float()
    fitted = interpolate(pixels_1CHW, (SIDE, SIDE), mode="bilinear", antialias=True)
    return fitted[0].permute(1, 2, 0).round().clamp(0, 255).to(torch.uint8)


@dataclass(frozen=True)
class Senses:
    """What a model sees and hears with; None = it does not. A tower may do both. `name` is the
    model's.
    """

    eyes: Eyes | Tower | None
    ears: Ears | Tower | None
    name: str

    def need_eyes(self) -> Eyes | Tower:
        """Raises UserError where there are none."""
        if self.eyes is None:
            raise UserError(f"{self.name} has no eyes, and a row holds a picture")
        return self.eyes

    def need_ears(self) -> Ears | Tower:
        """Raises UserError where there are none."""
        if self.ears is None:
            raise UserError(f"{self.name} has no ears, and a row holds a sound")
        return self.ears


@dataclass(frozen=True)
class Seen:
    """The pictures of a forward pass, each once: digests [M] in rising order, uint8 pixels
    [M, H, W, C], and where they are of unequal size the height and width [M, 2] that are theirs;
    and its sounds.
    """

    digest_M: Tensor
    pixels_MHWC: Tensor
    size_M2: Tensor | None = None
    heard: Heard | None = None

    @classmethod
    def of(cls, pictures: Iterable[Picture], device: torch.device) -> Seen | None:
        """None where there are none."""
        known = by_digest(pictures)
        if not known:
            return None
        heard = Heard.of((p for p in known.values() if isinstance(p, Sound)), device)
        digests = sorted(d for d, p in known.items() if not isinstance(p, Sound))
        if not digests:
            return cls._nothing(device, heard)
        pixels, size = _stack([known[d] for d in digests])
        return cls(
            torch.tensor(digests, device=device),
            pixels.to(device),
            None if size is None else size.to(device),
            heard,
        )

    @classmethod
    def _nothing(cls, device: torch.device, heard: Heard | None) -> Seen:
        """No picture, and sounds."""
        digest_M = torch.zeros(0, dtype=torch.int64, device=device)
        pixels = torch.zeros(0, 0, 0, CHANNELS, dtype=torch.uint8, device=device)
        return cls(digest_M, pixels, heard=heard)

    @classmethod
    def in_batch(cls, batch: Batch) -> Seen | None:
        """Those of a batch's columns "picture", "pixels" and "extent", and its sounds; None where it
        has no such.
        """
        heard = Heard.in_columns(batch.columns)
        if "picture" not in batch.columns:
            return heard and cls._nothing(batch["ids"].device, heard)
        digest_N, pixels_NHWC = batch["picture"].flatten(), batch["pixels"].flatten(0, 1)
        digest_M, which_N = digest_N.unique(return_inverse=True)
        first_M = torch.empty_like(digest_M).scatter_(
            0, which_N, torch.arange(len(digest_N), device=digest_N.device)
        )
        size = batch["extent"].flatten(0, 1)[first_M] if "extent" in batch.columns else None
        return cls(digest_M, pixels_NHWC[first_M], size, heard)

    def picture(self, at: int) -> Picture:
        """One of them, without what fills it up."""
        pixels = self.pixels_MHWC[at]
        if self.size_M2 is not None:
            height, width = self.size_M2[at].tolist()
            pixels = pixels[:height, :width]
        height, width, channels = pixels.shape
        return Picture(shape=(height, width, channels), data=pixels.cpu().numpy().tobytes())

    def embed(self, senses: Senses, ids_BT: Tensor, text_BTD: Tensor) -> Tensor:
        """[B, T, D]: the embeddings of tokens, and at the places of pictures and sounds what eyes
        and ears make of these. Raises UserError for a place of one that is not here.
        """
        return self.inputs(senses, ids_BT, text_BTD)["inputs_embeds"]

    def inputs(self, senses: Senses, ids_BT: Tensor, text_BTD: Tensor) -> dict[str, Any]:
        """What a decoder of transformers takes: `embed`, and where the eyes give more features than
        one vector a place, these for its first layers.
        """
        on_BT = ids_BT >= FIRST_PLACE
        if not on_BT.any():
            return {"inputs_embeds": text_BTD}
        place_N = ids_BT[on_BT] - FIRST_PLACE
        digest_N, number_N = place_N >> PLACE_BITS, place_N & ((1 << PLACE_BITS) - 1)
        found_NF = self._features(senses, digest_N, number_N).to(text_BTD.dtype)
        first_ND, *deep = found_NF.split(text_BTD.shape[-1], -1)
        inputs = {"inputs_embeds": text_BTD.masked_scatter(on_BT[..., None], first_ND)}
        return inputs | (
            {"visual_pos_masks": on_BT, "deepstack_visual_embeds": deep} if deep else {}
        )

    def _features(self, senses: Senses, digest_N: Tensor, number_N: Tensor) -> Tensor:
        """[N, F] of places of pictures and sounds."""
        if self.heard is None:
            return self._look(senses.need_eyes(), digest_N, number_N)
        sounds_N = torch.isin(digest_N, self.heard.digest_S)
        heard_KD = self.heard.embed(senses.need_ears(), digest_N[sounds_N], number_N[sounds_N])
        if sounds_N.all():
            return heard_KD
        seen_KD = self._look(senses.need_eyes(), digest_N[~sounds_N], number_N[~sounds_N])
        both_ND = seen_KD.new_zeros(len(digest_N), seen_KD.shape[-1])
        both_ND = both_ND.index_put((sounds_N.nonzero()[:, 0],), heard_KD.to(seen_KD.dtype))
        return both_ND.index_put(((~sounds_N).nonzero()[:, 0],), seen_KD)

    def _look(self, eyes: Eyes | Tower, digest_N: Tensor, number_N: Tensor) -> Tensor:
        """[N, F] of places of pictures."""
        digest_K, which_N = digest_N.unique(return_inverse=True)
        at_K = torch.searchsorted(self.digest_M, digest_K).clamp(max=len(self.digest_M) - 1)
        if not len(self.digest_M) or not torch.equal(self.digest_M[at_K], digest_K):
            raise UserError("the pixels of a picture are not here; give them with the tokens")
        if isinstance(eyes, Tower):
            looked = [eyes.look(self.picture(k)) for k in at_K.tolist()]
            return at_places(looked, which_N, number_N)
        if self.pixels_MHWC.shape[1:3] == (SIDE, SIDE) and self.size_M2 is None:
            return eyes(self.pixels_MHWC[at_K])[which_N, number_N]
        fitted = [fit_picture(self.picture(k)) for k in at_K.tolist()]
        return eyes(torch.stack(fitted).to(digest_N.device))[which_N, number_N]

    def grid_of(self, tower: Tower) -> GridOf:
        """The grids of their places, by digest."""
        at = {d: i for i, d in enumerate(self.digest_M.tolist())}
        sounds = set[int]() if self.heard is None else set(self.heard.digest_S.tolist())

        def grid(digest: int) -> tuple[int, int] | None:
            if digest in sounds:
                return None
            if digest not in at:
                raise UserError("the pixels of a picture are not here; give them with the tokens")
            return tower.grid(self.picture(at[digest]))

        return grid


def _stack(pictures: Sequence[Picture]) -> tuple[Tensor, Tensor | None]:
    """uint8 [M, H, W, C], filled up with zeros, and the sizes [M, 2] where these differ. Raises
    UserError for different numbers of channels.
    """
    shapes = {p.shape for p in pictures}
    if len({channels for _, _, channels in shapes}) > 1:
        raise UserError(f"pictures of one batch have different shapes: {sorted(shapes)}")
    if len(shapes) == 1:
        pixels = np.frombuffer(b"".join(p.data for p in pictures), np.uint8).copy()
        return torch.from_numpy(pixels).view(len(pictures), *shapes.pop()), None
    height, width, channels = (max(s[i] for s in shapes) for i in range(3))
    filled = torch.zeros(len(pictures), height, width, channels, dtype=torch.uint8)
    for room, p in zip(filled, pictures, strict=True):
        room[: p.shape[0], : p.shape[1]] = torch.from_numpy(pixels_of(p).copy())
    return filled, torch.tensor([p.shape[:2] for p in pictures])


def pixels_of(picture: Picture) -> np.ndarray:
    """uint8 [height, width, channels], which cannot be written to."""
    return np.frombuffer(picture.data, np.uint8).reshape(picture.shape)


def shown_pictures(row: Row, ids_T: np.ndarray) -> tuple[Picture, ...]:
    """The pictures of a row that its training view has. Raises UserError where the pixels of one are missing."""
    places = ids_T[ids_T >= FIRST_PLACE].tolist()
    return pictures_in(places, by_digest(row.pictures)) if places else ()


def picture_columns(pictures: Sequence[tuple[Picture, ...]]) -> dict[str, Tensor]:
    """Digests "picture" [B, P] and "pixels" [B, P, H, W, C] in uint8 of the pictures of each row,
    the last one again where there are fewer, and where sizes differ "extent" [B, P, 2], the height
    and width of each; nothing where there is none. Sounds are in `sound_columns`.
    """
    by_digest(p for row in pictures for p in row)
    kinds = [[isinstance(p, Sound) for p in row] for row in pictures]
    if any(map(any, kinds)):
        each = list(zip(pictures, kinds, strict=True))
        sounds = [tuple(p for p in row if isinstance(p, Sound)) for row, _ in each]
        seen = [
            tuple(p for p, is_sound in zip(row, of, strict=True) if not is_sound)
            for row, of in each
        ]
        return {**picture_columns(seen), **sound_columns(sounds)}
    every = next((row for row in pictures if row), None)
    if every is None:
        return {}
    most = max(map(len, pictures))
    # a row without any holds one that none of its places is of
    filled = [(*row, *[(row or every)[-1]] * (most - len(row))) for row in pictures]
    pixels, size = _stack([p for row in filled for p in row])
    columns = {
        "picture": torch.tensor([[p.digest for p in row] for row in filled]),
        "pixels": pixels.view(len(filled), most, *pixels.shape[1:]),
    }
    return columns if size is None else {**columns, "extent": size.view(len(filled), most, 2)}
