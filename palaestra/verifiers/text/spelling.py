"""Spelling correction: what a correction gains over the misspelt text, and CEC-Zero's rewards of
embeddings.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from palaestra.errors import UserError
from palaestra.types import stage
from palaestra.verifiers.answers.short import stated_answer
from palaestra.verifiers.base import (
    Judgement,
    failed_judgement,
    guard_verifier,
    require_field,
    strip_thinking,
)
from palaestra.verifiers.text.similarity import cosine, edit_similarity

WRONG_CHARACTER_WORTH = 0.9  # the most that a text with a wrong character is worth


@stage
class Spelling:
    """1 for the correct sentence; else what of the way from `source` to it was gone, (s - s0) / (1
    - s0), at most 0.9.

    s is the edit similarity to the answer, s0 that of `source`, so that handing the source back is
    0, unless it is correct. Parts: precision, recall and F1 of the edits, and `paper`, CEC-Zero's
    R1 (arXiv:2505.09082): the cosine (of character n-grams) rescaled above 0.8, which pays a copy
    with one mistake well.
    """

    theta: float = 0.8

    @guard_verifier
    def __call__(self, response: str, answer: Any, *, source: str) -> Judgement:
        gold = normalise_characters(str(require_field(answer, "answer", str, self)))
        if not gold:
            raise UserError("Spelling: the answer is empty; give the correct sentence")
        stated, wrong = stated_answer(response), normalise_characters(source)
        text = normalise_characters(strip_thinking(response) if stated is None else stated)
        if not text or len(text) > 4 * len(gold) + 20:
            return failed_judgement("unparsable")
        made, wanted = edits(wrong, text), edits(wrong, gold)
        shared = len(made & wanted)
        f1 = 2 * shared / (len(made) + len(wanted)) if made or wanted else 1.0
        start = edit_similarity(wrong, gold)
        gain = 0.0 if start == 1 else max(0.0, (edit_similarity(text, gold) - start) / (1 - start))
        parts = {
            "exact": float(text == gold),
            "precision": shared / len(made) if made else float(not wanted),
            "recall": shared / len(wanted) if wanted else float(not made),
            "f1": f1,
            "paper": rescale_similarity(cosine(text, gold), self.theta),
        }
        return Judgement(
            score=1.0 if text == gold else min(WRONG_CHARACTER_WORTH, gain), parts=parts
        )


def normalise_characters(text: str) -> str:
    """The text without blanks at its ends, its characters in Unicode's composed form (NFC)."""
    return unicodedata.normalize("NFC", text).strip()


def edits(a: str, b: str) -> set[tuple[int, int, str]]:
    """The replacements (from, to, text) that make b of a."""
    codes = (
        SequenceMatcher(None, a, b, autojunk=False).get_opcodes() if len(a) + len(b) < 4000 else []
    )
    return {(i, j, b[k:m]) for tag, i, j, k, m in codes if tag != "equal"}


def rescale_similarity(c: float, theta: float = 0.8) -> float:
    """max(0, (c - theta) / (1 - theta)): a similarity below `theta` counts nothing."""
    return max(0.0, (c - theta) / (1 - theta))


def cluster_consensus(
    embeddings: Sequence[Sequence[float]], radius: float, theta: float = 0.8
) -> list[float]:
    """R2 of candidates: the rescaled cosine to the mean of the largest cluster for its members, 0
    for others and in a tie.

    Clusters are the connected parts of the graph of pairs at most `radius` apart.
    """
    x_ND = np.asarray(embeddings, dtype=float)
    near_NN = np.linalg.norm(x_ND[:, None] - x_ND[None], axis=-1) <= radius
    label_N = np.arange(len(x_ND))
    for _ in range(len(x_ND)):
        label_N = np.where(near_NN, label_N[None], len(x_ND)).min(axis=1)
    names, sizes = np.unique(label_N, return_counts=True)
    if (sizes == sizes.max()).sum() > 1:
        return [0.0] * len(x_ND)
    member_N = label_N == names[sizes.argmax()]
    centre_D = x_ND[member_N].mean(axis=0)
    norm_N = np.linalg.norm(x_ND, axis=1) * np.linalg.norm(centre_D)
    cosine_N = np.divide(x_ND @ centre_D, norm_N, out=np.zeros(len(x_ND)), where=norm_N > 0)
    return [
        rescale_similarity(float(c), theta) if m else 0.0
        for c, m in zip(cosine_N, member_N, strict=True)
    ]
