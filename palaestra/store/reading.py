"""The rollouts of a run folder, as read: what is there, whatever else is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from palaestra.store.limits import check_unpacked, json_object, open_rollouts, read_row_groups
from palaestra.types import value_class


def number(x: Any) -> float | None:
    """What is a number and finite."""
    if not isinstance(x, int | float):
        return None
    try:
        return float(x) if math.isfinite(x) else None
    except OverflowError:  # a whole number of hundreds of digits
        return None


@value_class
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


@value_class
class Raw:
    """A token as recorded; None = unknown, or no matter of the policy's."""

    text: str
    mine: bool
    logp: float | None
    advantage: float | None


LARGE = ("rows", "pictures", "sounds")


class StepRollouts:
    """The rollouts of a step. Tokens are unpacked for those that are shown only: files are large,
    pages are not.
    """

    def __init__(self, path: Path):
        opened = open_rollouts(path)
        parts = [check_unpacked(path, part) for part in read_row_groups(opened)]
        table = pa.concat_tables(parts) if parts else opened.schema_arrow.empty_table()
        self._rows = table.column("rows") if "rows" in table.column_names else None
        plain = table.drop_columns([n for n in LARGE if n in table.column_names])
        self.all = [_rollout(at, token) for at, token in enumerate(plain.to_pylist())]
        self.step = self.all[0].step if self.all else 0

    @property
    def valid(self) -> list[Rollout]:
        return [r for r in self.all if r.ok]

    def raw(self, rollout: Rollout) -> list[Raw]:
        """Its tokens behind the prompt; without recorded ones its text in one piece."""
        rows = self._rows[rollout.at].as_py() if self._rows is not None else None
        try:
            tokens = [
                t
                for i, row in enumerate(rows or [])
                for t in _tokens(row, skip=bool(rollout.prompt) and i == 0)
            ]
        except (TypeError, ValueError, AttributeError):  # a column of another type
            tokens = []
        return tokens or [Raw(text=rollout.text, mine=True, logp=None, advantage=None)]


def _rollout(at: int, row: Mapping[str, Any]) -> Rollout:
    """Reads what is there, whatever else is."""
    whole = {
        k: v for k in ("step", "group", "sample", "n_tokens") if isinstance(v := row.get(k), int)
    }
    text = {k: str(row.get(k) or "") for k in ("task_id", "prompt", "text", "status")}
    numbers = {
        k: math.nan if (v := number(row.get(k))) is None else v for k in ("reward", "advantage")
    }
    parts = {
        k: float(v)
        for k, v in json_object(row.get("reward_parts")).items()
        if number(v) is not None
    }
    error = str(json_object(row.get("facts")).get("error") or "")
    given: dict[str, Any] = {**whole, **text, **numbers}
    return Rollout(at=at, muted=bool(row.get("muted")), reward_parts=parts, error=error, **given)


def _tokens(row: Mapping[str, Any], skip: bool) -> list[Raw]:
    """The tokens of a context; with `skip`, without those before the policy's first. One author may
    stand for all.
    """
    texts = row.get("tokens") or []

    def column(name: str) -> list[Any]:
        values = row.get(name)
        return (
            values
            if isinstance(values, list) and len(values) == len(texts)
            else [values] * len(texts)
        )

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
