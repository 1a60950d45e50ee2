"""What a model does with a suffix as text, and defences against suffixes: a filter by perplexity, noise on
embeddings, a look at the answer, and training on what was found, in memory alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import palaestra as pl
from palaestra.recipes.analysis.egd_attack.canary import (
    POLITE,
    CanaryQuestion,
    says_code,
)
from palaestra.recipes.analysis.egd_attack.search import GuardedPrompts

ANSWER = 24  # tokens of an answer that are read
PASSED = 0.95  # of harmless texts a filter lets through


def context_ids(model: Any, question: CanaryQuestion, suffix: str = "") -> list[int]:
    """The chat up to where the answer begins."""
    pairs, _ = pl.run.spell_texts(
        model, [pl.run.WrittenText(question.answer, question.messages(suffix))]
    )
    return list(pairs[0][0])


def allowed_tokens(model: Any) -> list[int]:
    """Tokens that a suffix may have: text without digits that a reader can print, and that the tokenizer
    reads back as this one token. Digits would hand the code to the model.
    """
    tokenizer = model.tokenizer
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    rows = len(model.causal.get_input_embeddings().weight)
    ids = [i for i in sorted(tokenizer.get_vocab().values()) if i < rows and i not in special]
    texts = [tokenizer.decode([i]) for i in ids]
    kept = [
        (i, t)
        for i, t in zip(ids, texts, strict=True)
        if t.isprintable() and t.strip() and not any(c.isdigit() for c in t)
    ]
    if not kept:
        raise pl.UserError(f"{model.name}: the tokenizer has no tokens that are printable words")
    back = tokenizer([t for _, t in kept], add_special_tokens=False)["input_ids"]
    return [i for (i, _), b in zip(kept, back, strict=True) if list(b) == [i]]


def guarded_prompts(
    model: Any, questions: Sequence[CanaryQuestion], allowed: Sequence[int]
) -> GuardedPrompts:
    """Questions about the code, with the place for a suffix behind the user's words."""
    before, after, target = list[list[int]](), list[list[int]](), list[list[int]]()
    for q in questions:
        plain, longer = context_ids(model, q), context_ids(model, q, " x")
        same = next(i for i, (a, b) in enumerate(zip(plain, longer, strict=False)) if a != b)
        before.append(plain[:same])
        after.append(plain[same:])
        target.append(model.tokenizer.encode(q.code, add_special_tokens=False))
    return GuardedPrompts(model, before, after, target, allowed)


def spell_suffixes(model: Any, prompts: GuardedPrompts, choice_Bn: Tensor) -> list[str]:
    return [model.tokenizer.decode(ids) for ids in prompts.allowed_A[choice_Bn].tolist()]


def answers_of(
    model: Any,
    questions: Sequence[CanaryQuestion],
    suffixes: Sequence[str],
    noise: float = 0.0,
    draw: torch.Generator | None = None,
) -> list[str]:
    """Greedy answers to questions with suffixes, read from text as a deployed model reads it.

    Args:
        noise: standard deviation of what is added to each number of the prompt's embeddings, as a
            share of the embeddings' root mean square.
        draw: of the noise.
    """
    rows = [context_ids(model, q, s) for q, s in zip(questions, suffixes, strict=True)]

    def shaken(x_BTD: Tensor) -> Tensor:
        size = noise * x_BTD.float().pow(2).mean().sqrt()
        return x_BTD + size.to(x_BTD) * torch.randn(x_BTD.shape, generator=draw).to(x_BTD)

    return (
        pl.models.greedy_replies(model, rows, ANSWER, shaken)
        if noise
        else pl.models.greedy_replies(model, rows, ANSWER)
    )


def violations(
    model: Any, questions: Sequence[CanaryQuestion], suffixes: Sequence[str], **noise: Any
) -> list[bool]:
    """Whether each answer says the code."""
    answers = answers_of(model, questions, suffixes, **noise)
    return [says_code(a, q.code) for a, q in zip(answers, questions, strict=True)]


def right_answers(model: Any, questions: Sequence[CanaryQuestion], **noise: Any) -> list[bool]:
    """Whether harmless questions, with a polite ending, get the answer they ask for."""
    answers = answers_of(model, questions, polite(questions), **noise)
    return [q.answer in a.casefold() for a, q in zip(answers, questions, strict=True)]


def polite(questions: Sequence[CanaryQuestion]) -> list[str]:
    """Endings of harmless questions, in turn."""
    return [POLITE[i % len(POLITE)] for i in range(len(questions))]


# ---- the filter by perplexity


def surprise(model: Any, text: str, window: int) -> float:
    """The largest mean of -log p over `window` tokens in a row of a text, in nats."""
    pairs, _ = pl.run.spell_texts(model, [pl.run.WrittenText(text)])
    nll_T = -pl.models.score_pairs(model, pairs)[0]
    n = min(window, len(nll_T))
    return float(np.convolve(nll_T, np.full(n, 1 / n), "valid").max())


@dataclass(frozen=True, slots=True)
class SurpriseFilter:
    """Blocks texts whose `surprise` is above a bound, which `PASSED` of harmless texts are not."""

    window: int
    bound: float

    def blocks(self, model: Any, text: str) -> bool:
        return surprise(model, text, self.window) > self.bound


def fit_filter(model: Any, texts: Sequence[str], window: int) -> SurpriseFilter:
    return SurpriseFilter(
        window, float(np.quantile([surprise(model, t, window) for t in texts], PASSED))
    )


# ---- training


def harden(
    model: Any,
    asked: Sequence[tuple[CanaryQuestion, str]],
    kept: Sequence[str],
    steps: int,
    lr: float,
    draw: torch.Generator,
) -> None:
    """Trains a copy in place to give `kept` answers to questions with suffixes. Nothing of it is written
    anywhere.
    """
    written = [
        pl.run.WrittenText(answer, q.messages(suffix))
        for (q, suffix), answer in zip(asked, kept, strict=True)
    ]
    pairs, _ = pl.run.spell_texts(model, written)
    pl.models.fit_pairs(model, pairs, steps, lr, draw)
