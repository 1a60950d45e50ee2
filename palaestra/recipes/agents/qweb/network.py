"""QWeb: values of actions on a page, in factors over the element, the action and the field.

    Q(s, e, click)   = Q_D(e) + Q_C(click | e)
    Q(s, e, type f)  = Q_D(e) + Q_C(type | e) + Q_T(f | e)

B pages, E elements, F fields of the instruction, W words, D numbers of a vector.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import palaestra as pl
from palaestra.recipes.agents.qweb.page import words_of

BUCKETS = 2048  # of hashed words; 0 = none
WORD_SCALE = 0.1  # deviation of the first word vectors
WORDS = 12  # that are read of an element, and of a field
KINDS = ("other", "text", "check", "radio", "option", "submit", "reset")
DEEPEST = 15
LINKS, ROUNDS = 3, 2  # neighbours that an element reads, and how often
MARKS = 2  # numbers of an element's state: it holds something, it is chosen
OVERLAPS = 3  # shared words of name and of value, and whether it holds the value
ILLEGAL = -1e9


def word_ids(words: Sequence[str]) -> list[int]:
    """Buckets of words, the same on every machine."""
    return [1 + zlib.crc32(w.encode()) % (BUCKETS - 1) for w in words[:WORDS]]


def overlap(words: Sequence[str], others: Sequence[str]) -> float:
    """The share of some words that stand among others: |words & others| / |words|, 0 of no words."""
    own = set(words)
    return len(own & set(others)) / len(own) if own else 0.0


def shallow_encoding(
    elements: Sequence[Sequence[str]], pairs: Sequence[tuple[str, str]]
) -> np.ndarray:
    """[E, F, 2] word overlap of each element with the name of each field, and with its value."""
    named = [(words_of(name), words_of(value)) for name, value in pairs]
    rows = [[[overlap(k, e), overlap(v, e)] for k, v in named] for e in elements]
    return np.array(rows, np.float32).reshape(len(elements), len(named), 2)


@pl.value_class
class PageView:
    """What is seen of a page with an instruction; arrays of several views may be the same ones.

    Args:
        words: [E, W] of elements.
        fields: [F, 2, W] words of names and of values.
        kind, depth: [E].
        links: [E, 3] the parent, the sibling before and the one behind; -1 = none.
        shallow: [E, F, 2], see `shallow_encoding`.
        marks: [E, 2] the element holds something; it is chosen.
        holds: [E, F] it holds the value of the field.
        legal: [E, 1 + F] a click, and text of each field.
        left: [1] the share of actions that are left until the limit.
    """

    words: np.ndarray
    fields: np.ndarray
    kind: np.ndarray
    links: np.ndarray
    depth: np.ndarray
    shallow: np.ndarray
    marks: np.ndarray
    holds: np.ndarray
    legal: np.ndarray
    left: np.ndarray


def word_rows(texts: Sequence[Sequence[str]]) -> np.ndarray:
    """[N, W] with 0 behind the last word."""
    rows = np.zeros((len(texts), WORDS), np.int64)
    for i, words in enumerate(texts):
        ids = word_ids(words)
        rows[i, : len(ids)] = ids
    return rows


COLUMNS: Mapping[str, tuple[Any, float]] = {  # type, and what stands where there is no element
    "words": (torch.long, 0),
    "fields": (torch.long, 0),
    "kind": (torch.long, 0),
    "links": (torch.long, -1),
    "depth": (torch.long, 0),
    "shallow": (torch.float32, 0),
    "marks": (torch.float32, 0),
    "holds": (torch.float32, 0),
    "legal": (torch.bool, 0),
    "left": (torch.float32, 0),
}


def stack_views(views: Sequence[PageView]) -> dict[str, Tensor]:
    """Columns [B, ...], with padding that no action is legal on; `there` [B, E] are true elements."""
    columns = dict[str, Tensor]()
    for name, (kind, empty) in COLUMNS.items():
        arrays = [getattr(v, name) for v in views]
        shape = tuple(max(1, *n) for n in zip(*(a.shape for a in arrays), strict=True))
        whole = np.full((len(arrays), *shape), empty, arrays[0].dtype)
        for row, a in zip(whole, arrays, strict=True):
            row[tuple(slice(n) for n in a.shape)] = a
        columns[name] = torch.from_numpy(whole).to(kind)
    counts = torch.tensor([len(v.kind) for v in views])
    columns["there"] = torch.arange(columns["kind"].shape[1])[None] < counts[:, None]
    return columns


def join_factors(element_BE: Tensor, mode_BE2: Tensor, field_BEF: Tensor) -> Tensor:
    """[B, E, 1 + F] Q of a click on each element, then of each field's text: the sums above."""
    click_BE1 = (element_BE + mode_BE2[..., 0])[..., None]
    type_BEF = (element_BE + mode_BE2[..., 1])[..., None] + field_BEF
    return torch.cat([click_BE1, type_BEF], -1)


class QWebNetwork(nn.Module):
    """Q [B, E, 1 + F] of `PageView`s: words of page and instruction share one embedding; a recurrent
    cell goes over the tree, in each of two rounds from an element's parent and the siblings beside it to the
    element; and the shallow encoding stands beside every pair of element and field.
    """

    def __init__(self, width: int = 32):
        super().__init__()
        self.width = width
        self.word = nn.Embedding(BUCKETS, width, padding_idx=0)
        self.kind = nn.Embedding(len(KINDS), width)
        self.depth = nn.Embedding(DEEPEST + 1, width)
        self.marks = nn.Linear(MARKS, width)
        self.link = nn.Linear(LINKS * width, width)
        self.tree = nn.GRUCell(width, width)
        self.field = nn.Linear(2 * width, width)
        self.pair_element, self.pair_field, self.pair_overlap = (
            nn.Linear(width, width), nn.Linear(width, width), nn.Linear(OVERLAPS, width)
        )  # fmt: skip
        self.pair = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.state = nn.Sequential(nn.Linear(4 * width + 2 * OVERLAPS + 1, width), nn.ReLU())
        seen = width + OVERLAPS
        self.q_element, self.q_mode, self.q_field = (nn.Linear(seen, n) for n in (1, 2, 1))
        nn.init.normal_(self.word.weight, std=WORD_SCALE)  # so that overlaps are learned from first

    def mean_words(self, ids: Tensor) -> Tensor:
        """[..., D] the mean over words, 0 of none."""
        return self.word(ids).sum(-2) / (ids > 0).sum(-1, keepdim=True).clamp(min=1)

    def elements(self, columns: Mapping[str, Tensor]) -> Tensor:
        """[B, E, D]"""
        x_BED = self.mean_words(columns["words"]) + self.kind(columns["kind"])
        x_BED = (
            x_BED + self.depth(columns["depth"].clamp(max=DEEPEST)) + self.marks(columns["marks"])
        )
        there = columns["there"][..., None]
        h_BED = torch.tanh(x_BED) * there
        B, E, D = h_BED.shape
        known = (columns["links"] >= 0).flatten(1)[..., None]
        at = columns["links"].clamp(min=0).flatten(1)[..., None].expand(-1, -1, D)
        for _ in range(ROUNDS):
            near_BE3D = (h_BED.gather(1, at) * known).reshape(B * E, LINKS * D)
            h_BED = (
                self.tree(self.link(near_BE3D), h_BED.reshape(B * E, D)).reshape(B, E, D) * there
            )
        return h_BED

    def forward(self, columns: Mapping[str, Tensor]) -> Tensor:
        e_BED = self.elements(columns)
        f_BFD = self.field(self.mean_words(columns["fields"]).flatten(2))
        E = e_BED.shape[1]
        overlaps = torch.cat([columns["shallow"], columns["holds"][..., None]], -1)  # [B, E, F, 3]
        real_BF1 = columns["fields"].flatten(2).any(-1).float()[..., None]
        count_B11 = real_BF1.sum(1, keepdim=True).clamp(min=1)
        joined = self.pair_element(e_BED)[:, :, None] + self.pair_field(f_BFD)[:, None]
        pair_BEFD = self.pair(joined + self.pair_overlap(overlaps)) * real_BF1[:, None]
        most_BE3, met_BF3 = overlaps.amax(2), overlaps.amax(1)
        open_BF3 = (1 - met_BF3) * real_BF1  # what of the instruction no element meets
        there = columns["there"][..., None].float()
        mean_BD = (e_BED * there).sum(1) / there.sum(1)
        left_BD = (f_BFD * open_BF3[..., 2:]).sum(1) / count_B11[:, 0]
        page = torch.cat([mean_BD + left_BD, open_BF3.amax(1), columns["left"]], -1)
        pairs = [pair_BEFD.amax(2), pair_BEFD.sum(2) / count_B11]
        state_BED = self.state(
            torch.cat([e_BED, *pairs, most_BE3, page[:, None].expand(-1, E, -1)], -1)
        )
        state_BED = torch.cat([state_BED, most_BE3], -1)
        return join_factors(
            self.q_element(state_BED)[..., 0],
            self.q_mode(state_BED),
            self.q_field(torch.cat([pair_BEFD, overlaps], -1))[..., 0],
        )


def flat_legal(columns: Mapping[str, Tensor]) -> Tensor:
    """[B, E (1 + F)] bool, in the order of `q.flatten(1)`."""
    return columns["legal"].flatten(1)
