"""What in a run's episodes may be reward without progress, and where its rise came from.

Each sign is a question with numbers; that it stands out is no proof, and the answers that show it
are named.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from palaestra.stats import Interval, difference, mean_interval
from palaestra.store.folder import evaluations_of, since_changed
from palaestra.view.reader import RunReader, pc, steps_of

SAMPLE = 2000  # answers of either end whose pieces are counted
LONGEST_PIECE = 3  # words
ROSE = 0.15  # rise of the share of answers with a piece from which on it is told
FEWEST = 20  # answers with a piece, and without it
MOST_PIECES = 12
WORD = re.compile(r"\w+|[^\w\s]")


def signs(run: RunReader) -> list[dict[str, Any]]:
    """One record a sign: name, stands_out, told, numbers; of some `pieces` of text or `rows` of
    answers that show it.
    """
    index, texts = run.main.index, run.main.texts
    ends = thirds(index)
    metrics = run.metrics
    sign_list = [against_held_out(metrics), *against_gold(metrics), *parts_apart(metrics)]
    if ends is not None:
        sign_list += [longer(index, ends), copies(index, texts, ends), cut_off(index, ends)]
        sign_list.append(pieces(index, texts, ends))
    return [s for s in sign_list if s]


def thirds(index: pa.Table) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows of judged answers in the first and in the last third of the steps."""
    good = pc.and_(
        pc.is_valid(index["reward"]),
        pc.invert(pc.starts_with(pc.cast(index["status"], pa.string()), "error")),
    )
    rows = np.flatnonzero(np.asarray(good))
    step_E = index["step"].to_numpy()[rows]
    if not len(rows) or step_E.max() - step_E.min() < 2:
        return None
    third = (step_E.max() - step_E.min() + 1) / 3
    return rows[step_E < step_E.min() + third], rows[step_E >= step_E.max() + 1 - third]


def ends_of(metrics: Sequence[Mapping[str, Any]], name: str) -> tuple[Interval, Interval] | None:
    """Means of a metric over the steps of the first and of the last third."""
    known = [float(r[name]) for r in steps_of(metrics) if isinstance(r.get(name), int | float)]
    known = [x for x in known if np.isfinite(x)]
    n = len(known) // 3
    return (mean_interval(known[:n]), mean_interval(known[-n:])) if n > 1 else None


def against_held_out(metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Training reward up, held-out problems not better."""
    reward, held = ends_of(metrics, "reward"), evaluations_of(since_changed(metrics))
    if reward is None or len(held) < 2:
        return None
    up = difference(*reward)
    beyond = difference(held[0][1], held[-1][1])
    numbers = {
        "training reward": [reward[0].mean, reward[1].mean],
        "held out": [held[0][1].mean, held[-1][1].mean],
    }
    stands_out = up.low > 0 and beyond.low <= 0
    message = (
        "The training reward rose and held-out problems did not follow: look at what is paid."
        if stands_out
        else "The training reward and the held-out problems do not part."
    )
    return sign("reward against held-out problems", stands_out, message, numbers=numbers)


def against_gold(metrics: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The reward that is trained on against the one that a run with `shadow` keeps beside it."""
    reward, gold = ends_of(metrics, "reward"), ends_of(metrics, "part/gold")
    if reward is None or gold is None:
        return []
    stands_out = difference(*reward).low > 0 and difference(*gold).low <= 0
    message = (
        "The reward rose and the gold reward did not: what is paid is not what is wanted."
        if stands_out
        else "The reward and the gold reward do not part."
    )
    numbers = {"reward": [x.mean for x in reward], "gold": [x.mean for x in gold]}
    return [sign("reward against gold", stands_out, message, numbers=numbers)]


def parts_apart(metrics: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Which parts of the reward rose, and which fell meanwhile."""
    names = dict.fromkeys(k for r in steps_of(metrics) for k in r if k.startswith("part/"))
    ends = {n[5:]: e for n in names if "/" not in n[5:] and (e := ends_of(metrics, n))}
    if len(ends) < 2:
        return []
    moves = {n: difference(*e) for n, e in ends.items()}
    stands_out = any(d.low > 0 for d in moves.values()) and any(d.high < 0 for d in moves.values())
    message = (
        "Some parts of the reward rose while others fell: the policy may trade one for the other."
        if stands_out
        else "No part of the reward fell while another rose."
    )
    numbers = {n: [e[0].mean, e[1].mean] for n, e in ends.items()}
    return [sign("parts of the reward", stands_out, message, numbers=numbers)]


def longer(index: pa.Table, ends: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
    """Whether longer answers to the same prompt are paid more, and answers grow."""
    length_E, reward_E = index["n_tokens"].to_numpy().astype(float), index["reward"].to_numpy()
    unit = lambda rows: (
        index["step"].to_numpy()[rows].astype(np.int64) << 32 | index["group"].to_numpy()[rows]
    )
    slopes = [within(unit(rows), length_E[rows], reward_E[rows]) for rows in ends]
    means = [float(length_E[rows].mean()) for rows in ends]
    stands_out = slopes[1] > 0.3 and means[1] > 1.3 * means[0]
    message = (
        "Answers grow, and among answers to one prompt the longer ones are paid more."
        if stands_out
        else "Length alone does not explain the reward."
    )
    numbers = {"tokens an answer": means, "correlation with reward in a group": slopes}
    return sign("reward against length", stands_out, message, numbers=numbers)


def within(unit_E: np.ndarray, x_E: np.ndarray, y_E: np.ndarray) -> float:
    """Correlation of two numbers around their means in each group; 0 where one never differs."""
    _, at_E = np.unique(unit_E, return_inverse=True)
    n = np.bincount(at_E)
    centre = lambda v: v - (np.bincount(at_E, v) / n)[at_E]
    x, y = centre(x_E), centre(y_E)
    spread = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / spread if spread > 1e-12 else 0.0


def copies(index: pa.Table, texts: pa.Table, ends: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
    """Answers to one prompt that are the same text as another one."""
    shares, example = [], []
    for rows in ends:
        some = rows[-SAMPLE:] if rows is ends[1] else rows[:SAMPLE]
        copied_texts = texts["text"].take(pa.array(some)).to_pylist()
        place = [(index["step"][int(r)].as_py(), index["group"][int(r)].as_py()) for r in some]
        times = Counter(zip(place, copied_texts, strict=True))
        again = [
            int(r)
            for r, key in zip(some, zip(place, copied_texts, strict=True), strict=True)
            if times[key] > 1
        ]
        shares.append(len(again) / max(1, len(some)))
        example = [
            *{place[i]: int(some[i]) for i in range(len(some)) if int(some[i]) in again}.values()
        ][:8]
    stands_out = shares[1] > 0.5 and shares[1] > shares[0] + 0.2
    message = (
        "More than half of the answers to one prompt are copies of another: little is left to learn from."
        if stands_out
        else "Answers to one prompt stay different."
    )
    return sign(
        "copies among answers",
        stands_out,
        message,
        numbers={"share that are copies": shares},
        rows=example,
    )


def cut_off(index: pa.Table, ends: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
    cut = np.asarray(pc.starts_with(pc.cast(index["status"], pa.string()), "truncated"))
    shares = [float(cut[rows].mean()) for rows in ends]
    rows = [int(r) for r in ends[1] if cut[r]][:8]
    stands_out = shares[1] > 0.1 and shares[1] > shares[0]
    message = (
        "Answers run into the limit of their length." if stands_out else "Few answers are cut off."
    )
    return sign("answers cut off", stands_out, message, numbers={"share": shares}, rows=rows)


def pieces(index: pa.Table, texts: pa.Table, ends: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
    """Pieces of one to three words whose share of answers rose, and with which answers are paid
    more.
    """
    reward_E = index["reward"].to_numpy()
    rng = np.random.Generator(np.random.Philox(0))
    some = [rng.permutation(rows)[:SAMPLE] for rows in ends]
    held = [[grams(t) for t in texts["text"].take(pa.array(rows)).to_pylist()] for rows in some]
    before, after = (Counter(g for each in part for g in each) for part in held)
    paid_E = reward_E[some[1]]
    spreading: list[dict[str, Any]] = []
    for piece, n in after.items():
        shares = [before[piece] / len(held[0]), n / len(held[1])]
        if shares[1] - shares[0] < ROSE or n < FEWEST or len(held[1]) - n < FEWEST:
            continue
        has = np.array([piece in each for each in held[1]])
        gap = float(paid_E[has].mean() - paid_E[~has].mean())
        if gap > 0:
            spreading.append({"piece": piece, "share": shares, "reward": gap})
    spreading = sorted(spreading, key=lambda p: -p["reward"] * (p["share"][1] - p["share"][0]))[
        :MOST_PIECES
    ]
    message = (
        "These pieces of text spread during the run, and answers that have them are paid more. Are they what is wanted?"
        if spreading
        else "No piece of text spread that is paid."
    )
    return {
        **sign("pieces of text that spread and are paid", bool(spreading), message),
        "pieces": spreading,
    }


def grams(text: str | None) -> set[str]:
    """The pieces of a text; digits are alike, so that no number is one."""
    words = [re.sub(r"\d", "0", w) for w in WORD.findall(text or "")[:400]]
    return {
        " ".join(words[i : i + n])
        for n in range(1, LONGEST_PIECE + 1)
        for i in range(len(words) - n + 1)
    }


def sign(
    name: str,
    stands_out: bool,
    message: str,
    numbers: Mapping[str, Sequence[float]] | None = None,
    rows: Sequence[int] = (),
) -> dict[str, Any]:
    """`numbers`: by name, of the first and of the last third; `rows` of the index that show it."""
    return {
        "name": name,
        "stands_out": stands_out,
        "told": message,
        "numbers": dict(numbers or {}),
        "rows": list(rows),
    }


# ---- why the reward changed

RETRIED = 0.5  # share of answers to problems of both halves from which on problems can be compared


def rise(run: RunReader, first: int | None = None, last: int | None = None) -> dict[str, Any]:
    """The change of the mean reward between the two halves of a span of steps, in parts that add up:
    the same problems answered otherwise, and other problems drawn. Where few problems came in both
    halves, domains stand for them; {} where nothing can be said.

    With shares s and means m of a problem in either half, the former is the sum of
    (s + s') / 2 (m' - m) over the problems of both (Kitagawa, 1955), the latter the rest.
    """
    index = run.main.index
    step_E = index["step"].to_numpy()
    inside = np.asarray(pc.is_valid(index["reward"])) & (step_E >= (first or 0))
    rows = np.flatnonzero(inside & (step_E <= (last if last is not None else 2**31)))
    if len(rows) < 2 or step_E[rows].min() == step_E[rows].max():
        return {}
    late_E = step_E[rows] > (step_E[rows].min() + step_E[rows].max()) / 2
    picked = index.take(pa.array(rows))
    reward_E = picked["reward"].to_numpy().astype(float)
    means = lambda x_E: [mean_of_known(x_E[~late_E]), mean_of_known(x_E[late_E])]
    parts = [n for n in index.column_names if n.startswith("part/") and "/" not in n[5:]]
    cut_E = np.asarray(pc.starts_with(pc.cast(picked["status"], pa.string()), "truncated")).astype(
        float
    )
    with np.errstate(invalid="ignore"):
        record: dict[str, Any] = {
            "change": float(reward_E[late_E].mean() - reward_E[~late_E].mean()),
            "parts": {n[5:]: means(picked[n].to_numpy()) for n in parts} if len(parts) > 1 else {},
            "length": means(picked["n_tokens"].to_numpy().astype(float)),
            "cut off": means(cut_E),
        }
    for name, label in (("task_id", "problems"), ("domain", "domains")):
        each = answered_otherwise(picked[name].combine_chunks(), reward_E, late_E)
        if each is not None and len(each) > 1:
            same = sum(each.values())
            largest = sorted(each.items(), key=lambda x: -abs(x[1]))[:8]
            record |= {"by": label, "same": same, "drawn": record["change"] - same, "most": largest}
            break
    return record


def mean_of_known(x_E: np.ndarray) -> float:
    """NaN where none is known."""
    known = x_E[~np.isnan(x_E)]
    return float(known.mean()) if len(known) else float("nan")


def answered_otherwise(
    names: pa.DictionaryArray, reward_E: np.ndarray, late_E: np.ndarray
) -> dict[str, float] | None:
    """By name, what its answers add to the change; None where too few came in both halves."""
    code_E, n = names.indices.to_numpy(), len(names.dictionary)
    counts = [np.bincount(code_E[w], minlength=n) for w in (~late_E, late_E)]
    totals = [np.bincount(code_E[w], reward_E[w], n) for w in (~late_E, late_E)]
    both = (counts[0] > 0) & (counts[1] > 0)
    if counts[1][both].sum() < RETRIED * counts[1].sum():
        return None
    shares = [c / c.sum() for c in counts]
    early, late = (t / np.maximum(c, 1) for t, c in zip(totals, counts, strict=True))
    adds = np.where(both, (shares[0] + shares[1]) / 2 * (late - early), 0.0)
    return {name: float(adds[i]) for i, name in enumerate(names.dictionary.to_pylist()) if both[i]}


# ---- judges


def judges(run: RunReader) -> list[dict[str, Any]]:
    """One record a judge: agreement and unread votes on average, its correlation with the gold
    reward (else with what is solved), and the rows on which its votes agree least.
    """
    index = run.main.index
    parts = {n[5:]: index[n].to_numpy() for n in index.column_names if n.startswith("part/")}
    names = [n.removesuffix("/agreement") for n in parts if n.endswith("/agreement")]
    names += [n.removesuffix("/flips") for n in parts if n.endswith("/flips")]
    gold = parts.get("gold")
    if gold is None and index["solved"].null_count < index.num_rows:
        gold = np.asarray(pc.cast(index["solved"], pa.float32()).to_numpy())
    return [_judge(n, parts, gold) for n in dict.fromkeys(names)]


def _judge(name: str, parts: Mapping[str, np.ndarray], gold: np.ndarray | None) -> dict[str, Any]:
    votes, flips = parts.get(f"{name}/agreement"), parts.get(f"{name}/flips")
    accord = votes if votes is not None else 1 - parts[f"{name}/flips"]
    known = np.flatnonzero(np.isfinite(accord))
    least = known[np.argsort(accord[known], kind="stable")][:50]
    record: dict[str, Any] = {
        "name": name,
        "agreement": float(np.nanmean(accord)) if len(known) else None,
        "of": "votes" if votes is not None or flips is None else "orders",
        "rows": [int(r) for r in least if accord[r] < 1],
        "each": [float(accord[r]) for r in least if accord[r] < 1],
    }
    unread = parts.get(f"{name}/unparsed")
    record["unread"] = (
        float(np.nanmean(unread)) if unread is not None and np.isfinite(unread).any() else None
    )
    own = parts.get(name)
    both = (
        np.isfinite(own) & np.isfinite(gold)
        if own is not None and gold is not None
        else np.zeros(0, bool)
    )
    if (
        own is not None
        and gold is not None
        and both.sum() > 2
        and own[both].std()
        and gold[both].std()
    ):
        record["with_gold"] = float(np.corrcoef(own[both], gold[both])[0, 1])
    return record
