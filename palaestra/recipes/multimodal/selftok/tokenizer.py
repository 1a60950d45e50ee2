"""A picture as a few discrete tokens: spatial ones, of a patch each, or nested ones, of which a prefix already
decodes to a coarse picture.

B = pictures, K = tokens of a picture, C = codes, D = numbers that a code stands for.
"""

import json
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
from safetensors.numpy import load_file, save_file

import palaestra as pl

Order = Literal["nested", "spatial", "shuffled"]
ORDERS: tuple[Order, ...] = ("nested", "spatial", "shuffled")
WEIGHTS, SETTINGS = "visual.safetensors", "visual.json"
ROUNDS = 12  # of Lloyd's algorithm


@dataclass(frozen=True)
class TokenizerSettings:
    """Of a tokenizer: `grid` cells a side of its pictures, K `tokens`, C `codes`. Raises UserError where
    spatial tokens do not cut the grid into square patches.
    """

    order: Order = "nested"
    grid: int = 8
    tokens: int = 16
    codes: int = 64

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise pl.UserError(f"order: {self.order!r} is unknown; use {', '.join(ORDERS)}")
        pl.check_bounds("tokenizer: grid", self.grid, least=2, most=64)
        pl.check_bounds("tokenizer: tokens", self.tokens, least=1, most=256)
        pl.check_bounds("tokenizer: codes", self.codes, least=2, most=4096)
        if self.order == "spatial" and (self.side**2 != self.tokens or self.grid % self.side):
            raise pl.UserError(
                f"spatial tokens are square patches, and {self.tokens} of them do not cut {self.grid} x {self.grid} "
                "cells; take a square number whose root divides the grid"
            )

    @property
    def side(self) -> int:
        """Patches of a side, where they are spatial."""
        return round(self.tokens**0.5)


@dataclass(frozen=True, eq=False)
class VisualTokenizer:
    """Codebooks [K or 1, C, D] on pictures less their `mean` [D], numbers in [-1, 1].

    Nested: token k is the code of codebook k that is nearest to what the tokens before it leave over
    (residual quantisation); code 0 is nothing, so no token makes a picture worse, and a prefix decodes to
    a coarse picture. Shuffled: the same tokens in another fixed order. Spatial: one codebook for all patches,
    in raster order.
    """

    settings: TokenizerSettings
    books: np.ndarray
    mean: np.ndarray
    permutation: np.ndarray

    @classmethod
    def fit(
        cls, settings: TokenizerSettings, pixels_BHWC: np.ndarray, key: pl.Key
    ) -> "VisualTokenizer":
        """By k-means on uint8 pictures; random numbers are the key's, the order left out."""
        s, rng = settings, pl.rng_of((*key, "codebooks"))
        x_BKD = patches_of(pixels_BHWC, s)
        mean = np.zeros(x_BKD.shape[-1]) if s.order == "spatial" else x_BKD.mean((0, 1))
        left_ND = x_BKD.reshape(-1, x_BKD.shape[-1]) - mean
        books = list[np.ndarray]()
        for _ in range(1 if s.order == "spatial" else s.tokens):
            book_CD = k_means(left_ND, s.codes, rng)
            if s.order != "spatial":
                book_CD[0] = 0.0
                left_ND = left_ND - book_CD[nearest(left_ND, book_CD)]
            books.append(book_CD)
        permutation = pl.rng_of((*key, "shuffled")).permutation(s.tokens)
        return cls(s, np.array(books, np.float32), mean.astype(np.float32), permutation)

    def encode(self, pixels_BHWC: np.ndarray) -> np.ndarray:
        """[B, K] tokens of uint8 pictures, in the order in which a language model writes them."""
        x_BKD = patches_of(pixels_BHWC, self.settings) - self.mean
        if self.settings.order == "spatial":
            flat = nearest(x_BKD.reshape(-1, x_BKD.shape[-1]), self.books[0])
            return flat.reshape(len(x_BKD), -1)
        left_BD, tokens = x_BKD[:, 0], list[np.ndarray]()
        for book_CD in self.books:
            tokens.append(nearest(left_BD, book_CD))
            left_BD = left_BD - book_CD[tokens[-1]]
        made = np.stack(tokens, 1)
        return made[:, self.permutation] if self.settings.order == "shuffled" else made

    def decode(self, tokens_BK: np.ndarray, kept: int | None = None) -> np.ndarray:
        """uint8 [B, H, W, 3]; of nested tokens the first `kept` alone, None = all."""
        s, tokens = self.settings, np.asarray(tokens_BK, np.int64)
        if s.order == "spatial":
            return pixels_of(self.books[0][tokens] + self.mean, s)
        if s.order == "shuffled":
            tokens = tokens[:, np.argsort(self.permutation)]
        n = s.tokens if kept is None else kept
        codes = [self.books[k][tokens[:, k]] for k in range(n)]
        whole_BD = self.mean + (np.sum(codes, 0) if codes else np.zeros((len(tokens), 1)))
        return pixels_of(whole_BD[:, None], s)

    def shuffled(self) -> "VisualTokenizer":
        """The same nested tokens in another order."""
        settings = replace(self.settings, order="shuffled")
        return VisualTokenizer(settings, self.books, self.mean, self.permutation)

    def save(self, folder: Path) -> None:
        """Raises OSError where it cannot be written."""
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {"books": self.books, "mean": self.mean, "permutation": self.permutation}
        save_file(arrays, folder / WEIGHTS)
        (folder / SETTINGS).write_text(json.dumps(asdict(self.settings), indent=1))


@lru_cache(8)
def load_tokenizer(folder: str) -> VisualTokenizer:
    """One that `VisualTokenizer.save` wrote."""
    settings = TokenizerSettings(**json.loads((Path(folder) / SETTINGS).read_text()))
    return VisualTokenizer(settings, **load_file(Path(folder) / WEIGHTS))


def patches_of(pixels_BHWC: np.ndarray, s: TokenizerSettings) -> np.ndarray:
    """[B, K, D] in [-1, 1]: patches in raster order where tokens are spatial, else the whole, K = 1."""
    x = np.asarray(pixels_BHWC, np.float64) / 127.5 - 1
    if s.order != "spatial":
        return x.reshape(len(x), 1, -1)
    p = s.grid // s.side
    cut = x.reshape(len(x), s.side, p, s.side, p, 3).swapaxes(2, 3)
    return cut.reshape(len(x), s.tokens, -1)


def pixels_of(x_BKD: np.ndarray, s: TokenizerSettings) -> np.ndarray:
    """uint8 [B, H, W, 3]: the inverse of `patches_of`, what lies outside of [-1, 1] cut off."""
    if s.order == "spatial":
        p = s.grid // s.side
        cut = x_BKD.reshape(len(x_BKD), s.side, s.side, p, p, 3)
        x_BKD = cut.swapaxes(2, 3)
    whole = x_BKD.reshape(len(x_BKD), s.grid, s.grid, 3)
    return ((whole.clip(-1, 1) + 1) * 127.5).round().astype(np.uint8)


def nearest(x_ND: np.ndarray, book_CD: np.ndarray) -> np.ndarray:
    """[N] the code with the least squared distance; of equal ones the first."""
    return ((book_CD**2).sum(1) - 2 * x_ND @ book_CD.T).argmin(1)


def k_means(x_ND: np.ndarray, codes: int, rng: np.random.Generator) -> np.ndarray:
    """[C, D] by Lloyd's algorithm from a start by k-means++, each code drawn in proportion to its squared
    distance from those there are. Codes that nothing is nearest to stay where they are.
    """
    book = [x_ND[int(rng.integers(len(x_ND)))]]
    gap_N = ((x_ND - book[0]) ** 2).sum(1)
    while len(book) < codes:
        total = gap_N.sum()
        at = (
            int(rng.choice(len(x_ND), p=gap_N / total))
            if total > 1e-9
            else int(rng.integers(len(x_ND)))
        )
        book.append(x_ND[at])
        gap_N = np.minimum(gap_N, ((x_ND - x_ND[at]) ** 2).sum(1))
    book_CD = np.array(book)
    for _ in range(ROUNDS):
        token_N = nearest(x_ND, book_CD)
        n_C = np.bincount(token_N, minlength=codes)
        sum_CD = np.zeros_like(book_CD)
        np.add.at(sum_CD, token_N, x_ND)
        book_CD = np.where(n_C[:, None] > 0, sum_CD / np.maximum(n_C, 1)[:, None], book_CD)
    return book_CD
