"""Retrieval of cases, and its finetuning without labels.

For each intent the words find candidates, which are ordered anew by how alike their SCRIPTS are: those
that are high in both are positives, those whose words are alike and whose scripts are not are hard
negatives. An encoder learns from them by InfoNCE over the batch and the hard negatives,

    L = -log  exp(e(q) e(p) / tau) / sum_c exp(e(q) e(c) / tau),    |e| = 1

e is the mean vector of a text's words, weighed by how rare they are; it begins as a random projection.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import log
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch.nn import functional as F

import palaestra as pl
from palaestra.recipes.agents.re4.bank import ScriptCase
from palaestra.recipes.agents.re4.scripts import Language, script_similarity

Kind: TypeAlias = Literal["tuned", "words", "none"]
ALIKE, UNLIKE, CANDIDATES = (
    0.7,
    0.4,
    16,
)  # similarity of scripts: a positive's least, a negative's most


@dataclass(frozen=True)
class IntentPair:
    """Numbers of cases: an intent, one that needs a like script, and one that only sounds like it."""

    intent: int
    positive: int
    negative: int | None


def same_intent(a: str, b: str) -> bool:
    """Whether two texts are one intent: such a case is the item itself, or its copy."""
    return " ".join(a.split()).casefold() == " ".join(b.split()).casefold()


def mine_pairs(
    cases: Sequence[ScriptCase],
    search: "pl.services.BM25",
    language: Language = "auto",
    candidates: int = CANDIDATES,
) -> list[IntentPair]:
    """The pairs of a bank, at most one for each case, in order; none for a case without a positive."""
    pairs = list[IntentPair]()
    for i, case in enumerate(cases):
        near = [int(n) for n, _, _ in search.search(case.intent, candidates + 1)]
        near = [n for n in near if n != i and not same_intent(cases[n].intent, case.intent)]
        alike = {n: script_similarity(cases[n].script, case.script, language) for n in near}
        positive = max(near, key=lambda n: alike[n], default=None)
        if positive is None or alike[positive] < ALIKE:
            continue
        negative = next((n for n in near if alike[n] <= UNLIKE), None)
        pairs.append(IntentPair(i, positive, negative))
    return pairs


def words_of(text: str) -> list[str]:
    return "".join(c if c.isalnum() else " " for c in text.casefold()).split()


@dataclass(frozen=True)
class Encoder:
    """Texts as unit vectors. Words that no intent of the bank has count nothing.

    Args:
        rarity: log(1 + N / n) of each word, by its place.
        weight_VD: the vectors of the words.
    """

    place: dict[str, int]
    rarity: list[float]
    weight_VD: torch.Tensor

    def __call__(self, texts: Sequence[str]) -> torch.Tensor:
        """[N, D]; zeros for a text without a known word."""
        return F.normalize(self.bags(texts) @ self.weight_VD, dim=-1)

    def bags(self, texts: Sequence[str]) -> torch.Tensor:
        """[N, V] how often each word is in each text, weighed by its rarity."""
        bags_NV = torch.zeros(len(texts), len(self.place))
        for row, text in enumerate(texts):
            for word, n in Counter(w for w in words_of(text) if w in self.place).items():
                bags_NV[row, self.place[word]] = n * self.rarity[self.place[word]]
        return bags_NV


def new_encoder(intents: Sequence[str], seed: int, width: int = 128) -> Encoder:
    """An encoder that has not learned: a random projection of weighed bags of words."""
    of_each = [set(words_of(t)) for t in intents]
    known = sorted(set[str]().union(*of_each))
    rarity = [log(1 + len(intents) / sum(w in ws for ws in of_each)) for w in known]
    generator = torch.Generator().manual_seed(seed % (1 << 31))
    weight_VD = torch.randn(len(known), width, generator=generator) / width**0.5
    return Encoder({w: i for i, w in enumerate(known)}, rarity, weight_VD)


def tune_encoder(
    encoder: Encoder,
    cases: Sequence[ScriptCase],
    pairs: Sequence[IntentPair],
    seed: int,
    steps: int = 100,
    batch: int = 32,
    lr: float = 0.02,
    tau: float = 0.1,
) -> Encoder:
    """The encoder after `steps` of InfoNCE on pairs; another positive of the batch with the same
    script as its own counts for no negative.
    """
    if not pairs or not steps:
        return encoder
    weight_VD = encoder.weight_VD.clone().requires_grad_(True)
    bags_NV = encoder.bags([c.intent for c in cases])
    optimiser = torch.optim.Adam([weight_VD], lr=lr)
    rng = pl.rng_of(("re4", "pairs", seed))
    for _ in range(steps):
        drawn = [
            pairs[int(i)] for i in rng.choice(len(pairs), min(batch, len(pairs)), replace=False)
        ]
        hard = [p.negative for p in drawn if p.negative is not None]
        options = [p.positive for p in drawn] + hard
        q_BD = F.normalize(bags_NV[[p.intent for p in drawn]] @ weight_VD, dim=-1)
        c_CD = F.normalize(bags_NV[options] @ weight_VD, dim=-1)
        scripts = [cases[n].script for n in options]
        also_BC = torch.tensor(
            [[i != j and s == scripts[i] for j, s in enumerate(scripts)] for i in range(len(drawn))]
        )
        scores_BC = (q_BD @ c_CD.T / tau).masked_fill(also_BC, float("-inf"))
        loss = F.cross_entropy(scores_BC, torch.arange(len(drawn)))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return Encoder(encoder.place, encoder.rarity, weight_VD.detach())


@dataclass
class CaseIndex:
    """Finds the cases that are most alike an intent, but for the intent itself.

    Args:
        kind: by the tuned encoder, or by words (BM25).
        numbers: "words" and "tuned", how alike the script of the first case is to an item's own, a mean
            over the bank with each item left out; "pairs", how many there were to learn from.
    """

    cases: list[ScriptCase]
    kind: Kind
    language: Language
    seed: int
    steps: int = 100
    numbers: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.words = pl.services.BM25(tuple((str(i), c.intent) for i, c in enumerate(self.cases)))
        if self.kind == "tuned":
            pairs = mine_pairs(self.cases, self.words, self.language)
            start = new_encoder([c.intent for c in self.cases], self.seed)
            self.encoder = tune_encoder(start, self.cases, pairs, self.seed, self.steps)
            self.numbers = {
                "pairs": float(len(pairs)),
                "words": self.usefulness("words"),
                "tuned": self.usefulness("tuned"),
            }

    @cached_property
    def vectors_ND(self) -> torch.Tensor:
        return self.encoder([c.intent for c in self.cases])

    def find(self, intent: str, k: int, kind: Kind | None = None) -> list[ScriptCase]:
        """The `k` best cases, the best first."""
        if (kind or self.kind) == "tuned":
            score_N = (self.vectors_ND @ self.encoder([intent])[0]).numpy()
            order = [int(i) for i in np.argsort(-score_N, kind="stable")]
        else:
            order = [int(n) for n, _, _ in self.words.search(intent, len(self.cases))]
        ranked = (self.cases[i] for i in order if not same_intent(self.cases[i].intent, intent))
        return [c for c, _ in zip(ranked, range(k), strict=False)]

    def usefulness(self, kind: Kind, most: int = 256) -> float:
        """The mean similarity of scripts over the first `most` cases."""
        some = self.cases[:most]
        firsts = [(c, self.find(c.intent, 1, kind)) for c in some]
        each = [
            script_similarity(f[0].script, c.script, self.language) if f else 0 for c, f in firsts
        ]
        return sum(each) / len(each)
