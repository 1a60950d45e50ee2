"""What annotators and models say of items as shares of labels, and how far apart they are."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import palaestra as pl

STATED = re.compile(
    r"\banswer\s*(?:\*\*)?\s*(?::|\bis\b)[ \t]*(?:\*\*)?[ \t]*(\S[^\n]*)", re.IGNORECASE
)
PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def last_text(task: pl.Task) -> str:
    return task.prompt[-1].content


def shares_of(tasks: Sequence[pl.Task]) -> tuple[list[np.ndarray], list[str]]:
    """The share of each label among the annotations of every item, and the labels in the order of their
    names, see `said_labels`. Raises UserError for an item without annotations.
    """
    labels_by_task = said_labels(tasks)
    if empty := [t.id for t, each in zip(tasks, labels_by_task, strict=True) if not each]:
        raise pl.UserError(
            f"item {empty[0]!r} has no annotations; each row has a list of what annotators answered, "
            '"annotations": ["yes", "no", "yes"]'
        )
    labels = sorted({x for each in labels_by_task for x in each})
    if len(labels) < 2:
        raise pl.UserError(f"all annotations are {labels[0]!r}: nobody disagrees")
    return [
        np.array([each.count(x) / len(each) for x in labels]) for each in labels_by_task
    ], labels


def said_labels(tasks: Sequence[pl.Task]) -> list[list[str]]:
    """What annotators answered to each item, without empty ones. Of spellings that differ in case alone
    the commonest stands for all, of a tie the first by name.
    """
    annotations = [plain_annotations(t.meta.get("annotations") or ()) for t in tasks]
    counts = Counter(x for each in annotations for x in each)
    spelling: dict[str, str] = {}
    for x in sorted(counts, key=lambda x: (-counts[x], x)):
        spelling.setdefault(x.casefold(), x)
    return [[spelling[x.casefold()] for x in each] for each in annotations]


def plain_annotations(annotations: Sequence[Any]) -> list[str]:
    """As texts, without those that are empty or null."""
    return [text for x in annotations if x is not None and (text := str(x).strip())]


def annotation_remarks(tasks: Sequence[pl.Task]) -> list[str]:
    """What was done to annotations before they were counted, in sentences."""
    given = [t.meta.get("annotations") or () for t in tasks]
    plain = [x for each in given for x in plain_annotations(each)]
    lines: list[str] = []
    if empty := sum(map(len, given)) - len(plain):
        lines.append(f"{empty} annotations are empty and left out")
    alike: dict[str, set[str]] = {}
    for x in plain:
        alike.setdefault(x.casefold(), set()).add(x)
    if several := [sorted(s) for s in alike.values() if len(s) > 1]:
        spellings = ", ".join(" = ".join(map(repr, s)) for s in several)
        lines.append(f"labels that differ in upper and lower case are one: {spellings}")
    return lines


def named_label(text: str, labels: Sequence[str]) -> str | None:
    """The label that an answer states or is, else the only one that it names as a word; None = none, or
    several. Thinking is not read, and a label inside another one ("fair" of "not fair") is not named.
    """
    text = pl.verifiers.strip_thinking(text)
    box = pl.verifiers.boxed_answer(text)
    stated = [*([box] if box else []), *STATED.findall(text)[-1:], text]
    for each in stated:
        plain = each.strip().strip(".!\"'*_` ").casefold()
        for label in labels:
            if plain == label.casefold():
                return label
    for each in stated:
        if named := _names(each, labels):
            return named.pop() if len(named) == 1 else None
    return None


def _names(text: str, labels: Sequence[str]) -> set[str]:
    """The labels that stand in a text as words, apart from those whose every place lies in that of
    a longer one.
    """
    spans = {
        x: [m.span() for m in re.finditer(rf"(?<!\w){re.escape(x)}(?!\w)", text, re.IGNORECASE)]
        for x in labels
    }
    every = [s for each in spans.values() for s in each]
    inside = lambda s: any(o[0] <= s[0] and s[1] <= o[1] and o != s for o in every)
    return {x for x, each in spans.items() if not all(map(inside, each))}


def sampled_shares(texts: Sequence[str], labels: Sequence[str]) -> np.ndarray | None:
    """[labels] of the answers that name one."""
    named = [x for x in (named_label(t, labels) for t in texts) if x is not None]
    return np.array([named.count(x) / len(named) for x in labels]) if named else None


def stated_shares(text: str, labels: Sequence[str]) -> np.ndarray | None:
    """[labels] as an answer states them in lines of "label: N%", at sum 1; None where a label has no
    number, or all are 0.
    """
    percents: dict[str, float] = {}
    for line in pl.verifiers.strip_thinking(text).splitlines():
        for part in line.split(","):
            number = PERCENT.search(part)
            label = named_label(PERCENT.sub("", part).strip(" :-*"), labels)
            if number and label:
                percents[label] = min(100.0, float(number[1]))
    total = sum(percents.values())
    if len(percents) < len(labels) or not total:
        return None
    return np.array([percents[x] / total for x in labels])


def scored_shares(model: Any, tasks: Sequence[pl.Task], labels: Sequence[str]) -> list[np.ndarray]:
    """[labels] of each item: the probability of each label as the whole answer, at sum 1."""
    written = [pl.run.WrittenText(x, tuple(t.prompt)) for t in tasks for x in labels]
    pairs, _ = pl.run.spell_texts(model, written)
    logp = np.array([float(np.sum(x)) for x in pl.models.score_pairs(model, pairs)])
    logp_NK = logp.reshape(len(tasks), len(labels))
    p_NK = np.exp(logp_NK - logp_NK.max(1, keepdims=True))
    return [*(p_NK / p_NK.sum(1, keepdims=True))]


def variance(p_NK: np.ndarray) -> np.ndarray:
    """[N] sum_k p (1 - p)."""
    return (p_NK * (1 - p_NK)).sum(1)


def distance(p_NK: np.ndarray, q_NK: np.ndarray) -> list[float]:
    """Of each item the total variation."""
    return (np.abs(p_NK - q_NK).sum(1) / 2).tolist()


def varcorr(p_NK: np.ndarray, q_NK: np.ndarray) -> float | None:
    """The correlation of the two variances over items; None where one of them does not vary."""
    a_N, b_N = variance(p_NK), variance(q_NK)
    if len(a_N) < 2 or np.ptp(a_N) < 1e-12 or np.ptp(b_N) < 1e-12:
        return None
    return float(np.corrcoef(a_N, b_N)[0, 1])


def majority_f1(p_NK: np.ndarray, q_NK: np.ndarray) -> tuple[float, int]:
    """The mean over labels of the F1 of the model's likeliest label against the majority's, and how many
    items count: those without a tie among the annotations. Labels that neither names are left out.
    """
    top = np.sort(p_NK, axis=1)
    clear = top[:, -1] > top[:, -2]
    gold_N, said_N = p_NK[clear].argmax(1), q_NK[clear].argmax(1)
    scores: list[float] = []
    for k in range(p_NK.shape[1]):
        both, either = (
            ((gold_N == k) & (said_N == k)).sum(),
            (gold_N == k).sum() + (said_N == k).sum(),
        )
        if either:
            scores.append(float(2 * both / either))
    return float(np.mean(scores)) if scores else np.nan, int(clear.sum())


@dataclass(frozen=True, slots=True)
class DisagreementScore:
    """Of one model on some items."""

    varcorr: float | None
    distance: float
    f1: float
    n: int


def score(p_NK: np.ndarray, q_NK: np.ndarray) -> DisagreementScore:
    f1, n = majority_f1(p_NK, q_NK)
    return DisagreementScore(varcorr(p_NK, q_NK), float(np.mean(distance(p_NK, q_NK))), f1, n)


def halves_distance(annotations: Sequence[Any], labels: Sequence[str]) -> float:
    """The expected distance of two halves of the annotators, NaN for fewer than two: a mean over the
    cuts of their circle.
    """
    labels_given = [x.casefold() for x in plain_annotations(annotations)]
    labels = [x.casefold() for x in labels]
    half = len(labels_given) // 2
    if not half:
        return np.nan
    share = lambda part: np.array([[part.count(x) / len(part) for x in labels]])
    turned = [labels_given[i:] + labels_given[:i] for i in range(len(labels_given))]
    return float(np.mean([distance(share(t[:half]), share(t[half : 2 * half]))[0] for t in turned]))


def regression(model: Any, tasks: Sequence[pl.Task], p_NK: np.ndarray) -> np.ndarray | None:
    """[N, K] ridge regression of the shares on the model's last states of the prompts: each half of the
    items from a fit on the other; None for fewer than 8 items.
    """
    if len(tasks) < 8:
        return None
    states_ND = pl.models.activations(
        model, [last_text(t) or " " for t in tasks], [len(model.layers)]
    )[:, 0]
    states_ND = (states_ND - states_ND.mean(0)) / (states_ND.std(0) + 1e-6)
    q_NK = np.zeros_like(p_NK)
    for held in (np.arange(len(tasks)) % 2 == 0, np.arange(len(tasks)) % 2 == 1):
        x_MD, mean_K = states_ND[~held], p_NK[~held].mean(0)
        gram = x_MD @ x_MD.T + x_MD.shape[1] * np.eye(len(x_MD))
        q_NK[held] = mean_K + states_ND[held] @ x_MD.T @ np.linalg.solve(gram, p_NK[~held] - mean_K)
    q_NK = np.clip(q_NK, 1e-9, None)
    return q_NK / q_NK.sum(1, keepdims=True)
