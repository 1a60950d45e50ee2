"""Fills the tables and the conclusions of docs/ranking.md: python -m benchmarks.ranking.page

Intervals are at 95%, over queries and seeds: both are drawn again, queries whole with their seeds and seeds whole with
their queries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.markdown import fill_marks, table

HERE = Path(__file__).parent
PAGE = Path("docs/ranking.md")
ROUNDS, MATTERS, MOSTLY = 4000, 0.03, 0.5
BASE = "bm25"
NAMES = {
    "graded": "Graded: news reports, judged by people",
    "known-item": "Known-item: manual pages by their descriptions",
}
CALLS = {  # of the model for one query of four candidates
    "bm25": "0",
    "pointwise": "4",
    "pointwise, as many tokens": "4",
    "elimination by imitation": "3",
    "iranker": "3",
    "coranking": "3",
    "rec-r1": "1",
}
PAIRS = (
    ("iranker", "elimination by imitation"),
    ("iranker", "pointwise, as many tokens"),
    ("coranking", "pointwise, as many tokens"),
    ("rec-r1", "pointwise, as many tokens"),
)

Values = Mapping[str, np.ndarray]  # [seeds, queries] of a measure, by arm


def values(results: Mapping[str, Any], collection: str, measure: str, part: str = "") -> Values:
    """A measure of each arm that has cells; an arm without seeds has one row."""
    rows = dict[str, list[list[float]]]()
    for at in sorted(results["cells"]):
        name, arm, _ = at.split("/")
        cell = results["cells"][at]
        cell = cell.get(part, {}) if part else cell
        if name == collection and measure in cell:
            rows.setdefault(arm, []).append(cell[measure])
    return {arm: np.array(x) for arm, x in rows.items()}


def interval(a_SQ: np.ndarray, b_SQ: np.ndarray | None = None) -> tuple[float, float, float]:
    """Mean and ends of a measure, or of a less b, by query; seeds of both are drawn apart."""
    rng = np.random.default_rng(0)
    means = np.empty(ROUNDS)
    for i in range(ROUNDS):
        q = rng.integers(a_SQ.shape[1], size=a_SQ.shape[1])
        means[i] = redrawn(a_SQ, q, rng) - (0.0 if b_SQ is None else redrawn(b_SQ, q, rng))
    low, high = np.quantile(means, (0.025, 0.975))
    return float(a_SQ.mean() - (0.0 if b_SQ is None else b_SQ.mean())), float(low), float(high)


def redrawn(x_SQ: np.ndarray, q: np.ndarray, rng: np.random.Generator) -> float:
    return float(x_SQ[rng.integers(len(x_SQ), size=len(x_SQ))][:, q].mean())


def cells_of(results: Mapping[str, Any], collection: str, arm: str) -> list[Mapping[str, Any]]:
    """The cells of an arm."""
    return [c for at, c in results["cells"].items() if at.startswith(f"{collection}/{arm}/")]


def unread(results: Mapping[str, Any], collection: str, arm: str) -> float | None:
    """The share of queries with a message that could not be read, for which what was found stays as it is."""
    shares = [
        c["notes"]["unread"] for c in cells_of(results, collection, arm) if "unread" in c["notes"]
    ]
    return float(np.mean(shares)) if shares else None


def verdict(
    gain: tuple[float, float, float], seeds: int, declared: int, unread: float | None = None
) -> str:
    """What a reader may take from a difference. An arm whose messages mostly cannot be read shows BM25's order, and
    has no verdict.
    """
    if unread is not None and unread > MOSTLY:
        return "mostly unreadable"
    if seeds < declared:
        return f"trial: {seeds} of {declared} seeds"
    _, low, high = gain
    if max(-low, high) < MATTERS:
        return "no difference that matters"
    return "better" if low > 0 else "worse" if high < 0 else "not decided"


def written(x: tuple[float, float, float], sign: str = "") -> str:
    return f"{x[0]:{sign}.3f} [{x[1]:{sign}.3f}, {x[2]:{sign}.3f}]"


def arms_table(results: Mapping[str, Any], collection: str, declared: int) -> str:
    """Every arm of a collection beside BM25."""
    quality, ranks = (values(results, collection, m) for m in ("ndcg", "rr"))
    shifted = values(results, collection, "ndcg", "shifted")
    rows = list[tuple[str, ...]]()
    for arm in CALLS:
        if arm not in quality:
            rows.append((arm, *["not run"] * 2, "", "", "", "", CALLS[arm], ""))
            continue
        gain = interval(quality[arm], quality[BASE])
        took = [c["seconds"]["training"] for c in cells_of(results, collection, arm)]
        lost = unread(results, collection, arm)
        judged = verdict(gain, len(quality[arm]), declared, lost)
        rows.append((
            arm, written(interval(quality[arm])), written(interval(ranks[arm])),
            *(("", "") if arm == BASE else (written(gain, "+"), judged)),
            "" if lost is None else f"{lost:.0%}",
            f"{shifted[arm].mean():.3f}" if arm in shifted else "", CALLS[arm],
            "" if arm == BASE else f"{np.mean(took):.0f}",
        ))  # fmt: skip
    head = ("arm", "NDCG@10 [95%]", "MRR@10 [95%]", "NDCG@10 above BM25", "", "unreadable", "with the words of other candidates",
            "calls a query", "processor seconds of training")  # fmt: skip
    return table(rows, *head)


def pairs_table(results: Mapping[str, Any], declared: int) -> str:
    """Arms against each other."""
    rows = list[tuple[str, ...]]()
    for one, other in PAIRS:
        cells = list[str]()
        for collection in NAMES:
            quality = values(results, collection, "ndcg")
            if one in quality and other in quality:
                gain = interval(quality[one], quality[other])
                seeds = min(len(quality[one]), len(quality[other]))
                lost = max(unread(results, collection, x) or 0.0 for x in (one, other))
                cells.append(f"{written(gain, '+')}, {verdict(gain, seeds, declared, lost)}")
            else:
                cells.append("not run")
        rows.append((f"{one} less {other}", *cells))
    return table(rows, "NDCG@10", *NAMES)


def conclusions(results: Mapping[str, Any], declared: int) -> str:
    """Sentences that follow from the verdicts."""
    lines = list[str]()
    ahead = [f"{arm} on {n}" for n in NAMES for arm in CALLS if is_above(results, n, arm)]
    lines.append(
        f"- **Above BM25 with its whole interval: {', '.join(ahead) or 'no arm on either collection'}.**"
    )
    for collection in NAMES:
        quality = values(results, collection, "ndcg")
        by = dict[str, list[str]]()
        for arm in CALLS:
            if arm in quality and arm != BASE:
                gain = interval(quality[arm], quality[BASE])
                lost = unread(results, collection, arm)
                by.setdefault(verdict(gain, len(quality[arm]), declared, lost), []).append(
                    f"{arm} ({gain[0]:+.3f})"
                )
        told = ". ".join(f"{v.capitalize()}: {', '.join(arms)}" for v, arms in by.items())
        lines.append(f"- **{NAMES[collection]}.** BM25 has NDCG@10 {quality[BASE].mean():.3f}; the arms less that: {told}."
                     if BASE in quality else f"- **{NAMES[collection]}.** Not run.")  # fmt: skip
    lines += [
        f"- **What the words of candidates are worth** (NDCG@10 less that with other candidates' words), {told}."
        for told in (words_worth(results, n) for n in NAMES)
        if told
    ]
    missing = len(NAMES) * (1 + declared * (len(CALLS) - 1)) - len(results["cells"])
    if missing > 0:
        lines.insert(0, f"- **Not complete:** {missing} of the declared cells are not run yet.")
    return "\n".join(lines)


def is_above(results: Mapping[str, Any], collection: str, arm: str) -> bool:
    """Whether an arm's interval less BM25 lies above 0."""
    quality = values(results, collection, "ndcg")
    return arm in quality and arm != BASE and interval(quality[arm], quality[BASE])[1] > 0


def words_worth(results: Mapping[str, Any], collection: str) -> str:
    """What each arm that reads candidates loses when their words are another query's."""
    quality = values(results, collection, "ndcg")
    other = values(results, collection, "ndcg", "shifted")
    told = list[str]()
    for arm in CALLS:
        if arm in other:
            gain = written(interval(quality[arm], other[arm]), "+")
            alike = (quality[arm] == other[arm]).mean()
            told.append(f"{arm} {gain}, the same for {alike:.0%} of queries")
    return f"{collection}: {'; '.join(told)}" if told else ""


def collections_table(results: Mapping[str, Any]) -> str:
    rows = [
        (name, *(str(c[k]) for k in ("docs", "train", "test", "digest")))
        for name, c in results.get("collections", {}).items()
    ]
    return table(
        rows, "collection", "documents", "training queries", "test queries", "digest of the rows"
    )


def main() -> None:
    results = json.loads((HERE / "results.json").read_text())
    declared = len(json.loads((HERE / "declared.json").read_text())["seeds"])
    made = {
        "conclusions": conclusions(results, declared),
        "collections": collections_table(results),
        "pairs": pairs_table(results, declared),
        **{n: f"### {title}\n\n{arms_table(results, n, declared)}" for n, title in NAMES.items()},
    }
    PAGE.write_text(fill_marks(PAGE.read_text(), made))


if __name__ == "__main__":
    main()
