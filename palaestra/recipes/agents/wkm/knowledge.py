"""State knowledge: sentences about a state with the verbs before and after it, found by their words, and
what they say of the next verb.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

import palaestra as pl

WORD = re.compile(r"\w+")
VERB = re.compile(r"[^\s\[({:,.*`]+")


def verb_of(action: str) -> str:
    """The first word of an action in small letters, as verbs are compared."""
    return verb_as_written(action).casefold()


def verb_as_written(action: str) -> str:
    """The first word of an action: "Go" of "Go to shelf 1", "click" of "click[buy]"; of several lines
    that of the last with a word, without "Action:" and markdown before it.
    """
    lines = [line.strip().lstrip("*`>-# ") for line in action.splitlines()]
    last = next((line for line in reversed(lines) if VERB.search(line)), "")
    last = re.sub(r"^action\s*\d*\s*:\W*", "", last, flags=re.IGNORECASE)
    match = VERB.search(last)
    return match[0] if match else ""


def mix_verbs(
    logp: Mapping[str, float], known: Mapping[str, float], weight: float
) -> dict[str, float]:
    """P(verb) = weight * P_agent(verb) + (1 - weight) * P_know(verb), P_agent the softmax of the agent's
    log-probabilities over the legal verbs (arXiv:2405.14205, section 3.4).

    Where nothing was found P is P_agent, where no score of the agent is a number P_know. What is known
    of verbs that are not legal does not count.

    Args:
        logp: of each legal verb, in nats.
        known: shares of the verbs that were retrieved.
        weight: of the agent, 0 to 1.
    """
    known = {v: known.get(v, 0.0) for v in logp}
    total = sum(known.values())
    score_V = np.array(list(logp.values()), dtype=np.float64)
    if np.isnan(score_V).all():
        return {v: x / total for v, x in known.items()} if total else {}
    score_V = np.where(np.isnan(score_V), -np.inf, score_V)
    share_V = np.exp(score_V - np.logaddexp.reduce(score_V))
    agent = dict(zip(logp, map(float, share_V), strict=True))
    if not total:
        return agent
    return {v: weight * agent[v] + (1 - weight) * known[v] / total for v in logp}


def likeliest(shares: Mapping[str, float]) -> str:
    """The verb of the largest share, of equals the first; "" = there is none."""
    return max(shares, key=lambda v: shares[v], default="")


@pl.value_class
class StateRecord:
    """The verb before a state, a sentence about the state, and the verb after it; verbs as they were
    written.
    """

    before: str
    state: str
    after: str


class StateBase:
    """Records that are found by the cosine of their sentences' word counts, words weighed by
    log((1 + n) / (1 + records with it)) + 1.
    """

    def __init__(self, records: Sequence[StateRecord]) -> None:
        self.records = tuple(records)

    @classmethod
    def read(cls, file: str | Path) -> "StateBase":
        """The records of a file that `write` wrote. Raises UserError for a line that is none."""
        records = list[StateRecord]()
        for n, line in enumerate(Path(file).read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            try:
                given = json.loads(line)
                names = ("before", "state", "after")
                before, state, after = (str(given[name]) for name in names)
            except (ValueError, KeyError, TypeError):
                raise pl.UserError(
                    f'{file}:{n}: no record; write {{"before": "open", "state": "the egg is found", '
                    '"after": "take"}'
                ) from None
            verbs = {"before": verb_as_written(before), "after": verb_as_written(after)}
            records.append(StateRecord(state=state, **verbs))
        return cls(records)

    def write(self, file: Path) -> None:
        """A JSON object a line."""
        rows = ({"before": r.before, "state": r.state, "after": r.after} for r in self.records)
        pl.tasks.write_records(file, rows)

    @cached_property
    def verbs(self) -> dict[str, str]:
        """All verbs of the records in their order, in small letters, and how each is mostly written."""
        written = Counter(v for r in self.records for v in (r.before, r.after) if v)
        names = dict.fromkeys(v.casefold() for v in written)
        return {
            name: max((v for v in written if v.casefold() == name), key=lambda v: written[v])
            for name in names
        }

    def nearest(self, state: str, k: int) -> list[StateRecord]:
        """The `k` records of the most similar sentences, the first of equals first."""
        query_W = self._vector(state)
        order = np.argsort(-(self._rows @ query_W), kind="stable")[:k]
        return [self.records[i] for i in order]

    def next_verbs(self, before: str, state: str, k: int) -> dict[str, float]:
        """P_know: the shares of the next verbs among the nearest records that have the verb before, in
        small letters.
        """
        near = (r for r in self.nearest(state, k) if r.before.casefold() == before.casefold())
        after = Counter(r.after.casefold() for r in near)
        return {verb: n / after.total() for verb, n in after.items()}

    @cached_property
    def _places(self) -> dict[str, int]:
        words = (w for r in self.records for w in WORD.findall(r.state.casefold()))
        return {w: i for i, w in enumerate(dict.fromkeys(words))}

    @cached_property
    def _weight(self) -> np.ndarray:
        having_W = np.zeros(len(self._places))
        for r in self.records:
            for w in set(WORD.findall(r.state.casefold())):
                having_W[self._places[w]] += 1
        return np.log((1 + len(self.records)) / (1 + having_W)) + 1

    @cached_property
    def _rows(self) -> np.ndarray:
        rows = [self._vector(r.state) for r in self.records]
        return np.array(rows) if rows else np.zeros((0, len(self._places)))

    def _vector(self, text: str) -> np.ndarray:
        """[W], of length 1, or 0 where no word is known."""
        x_W = np.zeros(len(self._places))
        for w in WORD.findall(text.casefold()):
            if w in self._places:
                x_W[self._places[w]] += 1
        x_W *= self._weight
        size = np.linalg.norm(x_W)
        return x_W / size if size else x_W
