"""Rollouts for the eye: which ones to show, and which of their tokens were surprising, encouraged
or discouraged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import median

import numpy as np

from palaestra.store.reading import Raw, Rollout
from palaestra.types import value_class

LONGEST = 600  # tokens shown of one rollout
LARGEST = 16  # samples shown of one group
LEVELS = 4  # strengths of colour
MARK = re.compile(r"<\|.*\|>|</?\w+>")  # special tokens, as most tokenizers write them
# probabilities of a token, below each of which it is one level more surprising
RARITY = (0.9, 0.5, 0.2, 0.05)


@value_class
class Token:
    """A piece of text with the classes that colour it and what it tells when pointed at."""

    text: str
    look: str = ""
    title: str = ""


# ---- which ones


def notable_rollouts(rollouts: Iterable[Rollout]) -> dict[str, Rollout]:
    """The best, a typical and the worst one. Among equal rewards, one of another problem and of
    middling length.
    """
    left = list(rollouts)
    if not left:
        return {}
    rewards, length = [r.reward for r in left], median(r.n_tokens for r in left)
    wanted = {"best": max(rewards), "worst": min(rewards), "typical": median(rewards)}
    if wanted["best"] == wanted["worst"]:
        del wanted["best"], wanted["worst"]
    by_name: dict[str, Rollout] = {}
    for name, reward in wanted.items():
        close = min((abs(r.reward - reward) for r in left), default=None)
        if close is None:
            break
        ties = [r for r in left if abs(r.reward - reward) == close]
        middle = median(r.n_tokens for r in ties) if name != "typical" else length
        by_name[name] = min(
            ties,
            key=lambda r: (
                r.group in {f.group for f in by_name.values()},
                abs(r.n_tokens - middle),
            ),
        )
        left.remove(by_name[name])
    return {name: by_name[name] for name in ("best", "typical", "worst") if name in by_name}


def instructive_group(rollouts: Iterable[Rollout]) -> list[Rollout]:
    """The group whose rewards differ most, best first: what a method learns from when it compares
    answers.
    """
    groups: dict[int, list[Rollout]] = {}
    for r in rollouts:
        groups.setdefault(r.group, []).append(r)
    several = [g for g in groups.values() if len(g) > 1]
    if not several:
        return []
    chosen = max(several, key=lambda g: float(np.var([r.reward for r in g])))
    return sorted(chosen, key=lambda r: -r.reward)


# ---- how they look


def largest_advantage(raws: Iterable[Sequence[Raw]]) -> float:
    """What the strongest colour stands for."""
    return max(
        (abs(t.advantage) for raw in raws for t in raw if t.advantage is not None), default=0.0
    )


def colour_tokens(raw: Sequence[Raw], scale: float) -> list[Token]:
    """Tokens with their classes; neighbours that are not the policy's become one block."""
    tokens: list[Token] = []
    for mine, run in groupby(raw[:LONGEST], key=lambda t: t.mine):
        if mine:
            tokens += [
                Token(text=t.text, look=_look(t, scale), title=_describe_token(t)) for t in run
            ]
        else:
            tokens.append(Token(text="".join(t.text for t in run).strip(), look="other"))
    if len(raw) > LONGEST:
        tokens.append(Token(text=f" … {len(raw) - LONGEST:,} more tokens", look="rest"))
    return tokens


def _look(t: Raw, scale: float) -> str:
    classes = ["break"] if t.text == "\n" else ["mark"] if MARK.fullmatch(t.text) else []
    if t.advantage and scale:
        strength = min(LEVELS, math.ceil(LEVELS * abs(t.advantage) / scale - 1e-9))
        classes.append(f"{'up' if t.advantage > 0 else 'down'}{strength}")
    if t.logp is not None and (level := sum(math.exp(t.logp) < p for p in RARITY)):
        classes.append(f"rare{level}")
    return " ".join(classes)


def _describe_token(t: Raw) -> str:
    facts = [] if t.logp is None else [f"probability {math.exp(t.logp):.3g}"]
    return ", ".join(
        facts + ([] if t.advantage is None else [f"advantage {t.advantage:+.3g}".replace("-", "−")])
    )


def shows_work(text: str) -> bool:
    """More than one line: something before the answer."""
    return sum(bool(line.strip()) for line in text.splitlines()) > 1
