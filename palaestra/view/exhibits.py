"""Rollouts for the eye: which ones to show, and which of their tokens were surprising, encouraged or discouraged."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from palaestra.types import value
from palaestra.view.drawing import number

LONGEST = 600  # tokens shown of one rollout
LARGEST = 16  # samples shown of one group
LEVELS = 4  # strengths of colour
MARK = re.compile(r"<\|.*\|>|</?\w+>")  # special tokens, as most tokenizers write them
RARE = (0.9, 0.5, 0.2, 0.05)  # probabilities of a token, below each of which it is one level more surprising


@value
class Rollout:
    """One row of a rollout file; what the file lacks is empty."""

    at: int  # row of the file
    step: int = 0
    group: int = 0
    sample: int = 0
    task_id: str = ""
    prompt: str = ""
    text: str = ""
    status: str = ""
    muted: bool = False
    reward: float = math.nan
    reward_parts: Mapping[str, float]
    error: str = ""  # what infrastructure said
    advantage: float = math.nan
    n_tokens: int = 0

    @property
    def ok(self) -> bool:
        return not self.status.startswith("error") and math.isfinite(self.reward)


@value
class Token:
    """A piece of text with the classes that colour it and what it tells when pointed at."""

    text: str
    look: str = ""
    told: str = ""


@value
class Raw:
    """A token as recorded; None = unknown, or no matter of the policy's."""

    text: str
    mine: bool
    logp: float | None
    advantage: float | None


class StepRollouts:
    """The rollouts of a step. Tokens are unpacked for those that are shown only: files are large, pages are not."""

    def __init__(self, path: Path):
        import pyarrow.parquet as pq

        table = pq.ParquetFile(path).read()  # `read_table` would import pandas, where there is one
        self._rows = table.column("rows") if "rows" in table.column_names else None
        plain = table.drop_columns(["rows"]) if self._rows is not None else table
        self.all = [_rollout(at, found) for at, found in enumerate(plain.to_pylist())]
        self.step = self.all[0].step if self.all else 0

    @property
    def valid(self) -> list[Rollout]:
        return [r for r in self.all if r.ok]

    def raw(self, rollout: Rollout) -> list[Raw]:
        """Its tokens behind the prompt; without recorded ones its text in one piece."""
        rows = self._rows[rollout.at].as_py() if self._rows is not None else None
        found = [t for i, row in enumerate(rows or []) for t in _tokens(row, skip=bool(rollout.prompt) and i == 0)]
        return found or [Raw(text=rollout.text, mine=True, logp=None, advantage=None)]


def _rollout(at: int, found: Mapping[str, Any]) -> Rollout:
    """Reads what is there, whatever else is."""
    whole = {k: v for k in ("step", "group", "sample", "n_tokens") if isinstance(v := found.get(k), int)}
    text = {k: str(found.get(k) or "") for k in ("task_id", "prompt", "text", "status")}
    numbers = {k: math.nan if (v := number(found.get(k))) is None else v for k in ("reward", "advantage")}
    parts = {k: float(v) for k, v in _object(found.get("reward_parts")).items() if number(v) is not None}
    error = str(_object(found.get("facts")).get("error") or "")
    given: dict[str, Any] = {**whole, **text, **numbers}
    return Rollout(at=at, muted=bool(found.get("muted")), reward_parts=parts, error=error, **given)


def _object(text: Any) -> dict[str, Any]:
    """A JSON object; of anything else an empty one."""
    try:
        found = json.loads(text or "{}")
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _tokens(row: Mapping[str, Any], skip: bool) -> list[Raw]:
    """The tokens of a context; with `skip`, without those before the policy's first. One author may stand for all."""
    texts = row.get("tokens") or []

    def column(name: str) -> list[Any]:
        found = row.get(name)
        return found if isinstance(found, list) and len(found) == len(texts) else [found] * len(texts)

    columns = zip(texts, *map(column, ("author", "trained", "logp", "advantage")), strict=True)
    tokens = [
        Raw(
            text=str(text),
            mine=author not in (None, "", "environment") or bool(trained),
            logp=number(logp),
            advantage=number(advantage) if trained in (True, None) else None,
        )
        for text, author, trained, logp, advantage in columns
    ]
    start = next((i for i, t in enumerate(tokens) if t.mine), len(tokens)) if skip else 0
    return tokens[start:]


# ---- which ones


def notable(rollouts: Iterable[Rollout]) -> dict[str, Rollout]:
    """The best, a typical and the worst one. Among equal rewards, one of another problem and of middling length."""
    left = list(rollouts)
    if not left:
        return {}
    rewards, length = [r.reward for r in left], median(r.n_tokens for r in left)
    wanted = {"best": max(rewards), "worst": min(rewards), "typical": median(rewards)}
    if wanted["best"] == wanted["worst"]:
        del wanted["best"], wanted["worst"]
    found: dict[str, Rollout] = {}
    for name, reward in wanted.items():
        close = min((abs(r.reward - reward) for r in left), default=None)
        if close is None:
            break
        ties = [r for r in left if abs(r.reward - reward) == close]
        middle = median(r.n_tokens for r in ties) if name != "typical" else length
        found[name] = min(ties, key=lambda r: (r.group in {f.group for f in found.values()}, abs(r.n_tokens - middle)))
        left.remove(found[name])
    return {name: found[name] for name in ("best", "typical", "worst") if name in found}


def instructive_group(rollouts: Iterable[Rollout]) -> list[Rollout]:
    """The group whose rewards differ most, best first: what a method learns from when it compares answers."""
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
    return max((abs(t.advantage) for raw in raws for t in raw if t.advantage is not None), default=0.0)


def coloured(raw: Sequence[Raw], scale: float) -> list[Token]:
    """Tokens with their classes; neighbours that are not the policy's become one block."""
    tokens: list[Token] = []
    for mine, run in groupby(raw[:LONGEST], key=lambda t: t.mine):
        if mine:
            tokens += [Token(text=t.text, look=_look(t, scale), told=_told(t)) for t in run]
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
    if t.logp is not None and (level := sum(math.exp(t.logp) < p for p in RARE)):
        classes.append(f"rare{level}")
    return " ".join(classes)


def _told(t: Raw) -> str:
    told = [] if t.logp is None else [f"probability {math.exp(t.logp):.3g}"]
    return ", ".join(told + ([] if t.advantage is None else [f"advantage {t.advantage:+.3g}".replace("-", "−")]))


def shows_work(text: str) -> bool:
    """More than one line: something before the answer."""
    return sum(bool(line.strip()) for line in text.splitlines()) > 1
