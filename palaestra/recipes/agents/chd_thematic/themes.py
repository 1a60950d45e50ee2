"""Codes and themes of transcripts: how replies are read, joined, changed and compared. No model is asked
here.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

import palaestra as pl

Quote = tuple[int, str]  # number of the transcript, id of the line
LONGEST_LINE = 100  # words
SENTENCE = re.compile(r"(?<=[.!?])\s+")
LINE_ID = re.compile(r"\bq\s?(\d+)\b", re.IGNORECASE)
BARE_IDS = re.compile(r":\s*((?:\d+[\s,;and]*)+)$")
CODE_ID = re.compile(r"\bc\s?(\d+)\b", re.IGNORECASE)
THEME_ID = re.compile(r"\bt\s?(\d+)\b", re.IGNORECASE)
SAID = re.compile(r"[\"“”«»]([^\"“”«»]{3,})[\"“”«»]")
LINE_RANGE = re.compile(r"\bq\s?(\d+)\s*(?:[-–—]|to)\s*q?\s?(\d+)\b", re.IGNORECASE)
# a label that says that there is none, or that repeats the form of the question
NO_CODE = ("", "none", "no code", "nothing", "n a", "label")
FORM_NAMES = ("", "name", "name definition")
MARKS = " \t-*•–—:|#`_()[]\"'.,;"
# what an edit names: ids of themes alone, before a name, a reason or the end; a question names none
NAMED_THEMES = re.compile(
    r"\W*(?:the\s+)?(?:themes?\s+)?(t\s?\d+(?:(?:[\s,&+/]|and|with|into)+t\s?\d+)*)(?=\s*(?:[^\w\s?]|$|because\b))",
    re.IGNORECASE,
)
THEME_RANGE = re.compile(r"\bt\s?(\d+)\s*(?:[-–—]|to)\s*t\s?(\d+)\b", re.IGNORECASE)
EDIT = re.compile(r"^\W*(delete|merge|split|add)\b\W*(.*)$", re.IGNORECASE)
SCORE = re.compile(r"\bscore\b\D{0,20}([1-5])\b", re.IGNORECASE)


@dataclass(frozen=True)
class Interview:
    """A transcript as lines by their ids, "q1" and so on."""

    name: str
    lines: Mapping[str, str]


@dataclass(frozen=True)
class ThemeCode:
    """A label with the lines that show it, and the coders who wrote it."""

    label: str
    quotes: tuple[Quote, ...]
    coders: tuple[int, ...]


@dataclass(frozen=True)
class Theme:
    """Codes that belong together, by their numbers."""

    name: str
    definition: str
    codes: tuple[int, ...]


@dataclass
class CodeReading:
    """What was read of a coder's reply: labels with line ids; ids and quotations that were given, and
    those that are in the transcript.
    """

    codes: list[tuple[str, tuple[str, ...]]] = field(
        default_factory=list[tuple[str, tuple[str, ...]]]
    )
    given: int = 0
    true: int = 0


def split_lines(name: str, text: str) -> Interview:
    """A transcript in lines: those of the text, long ones by sentences and then by words."""
    pieces = list[str]()
    for line in text.splitlines():
        whole = " ".join(line.split())
        parts = SENTENCE.split(whole) if len(whole.split()) > LONGEST_LINE else [whole]
        for part in parts:
            words = part.split()
            cuts = range(0, len(words), LONGEST_LINE)
            pieces += [" ".join(words[i : i + LONGEST_LINE]) for i in cuts]
    return Interview(name, {f"q{i + 1}": piece for i, piece in enumerate(pieces)})


def plain(text: str) -> str:
    """Words alone, in lower case: two labels of this form are the same."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def label_of(text: str) -> str:
    """A label or name without list marks and numbers in front of it."""
    return re.sub(r"^\s*(?:\d+[.)]|[-*•])\s*", "", text).strip(MARKS)


def spell_out(text: str, ranges: re.Pattern[str], letter: str) -> str:
    """The text with the ids of a range, q1-q3 or q1 to q3, one by one."""

    def each(m: re.Match[str]) -> str:
        first, last = int(m[1]), int(m[2])
        far = last - first > LONGEST_LINE  # no range that somebody means
        return m[0] if far else " ".join(f"{letter}{i}" for i in range(first, last + 1)) or m[0]

    return ranges.sub(each, text)


def line_ids(text: str) -> list[str]:
    """The ids in a text, those of ranges too."""
    return [f"q{n}" for n in LINE_ID.findall(spell_out(text, LINE_RANGE, "q"))]


def read_codes(reply: str, lines: Mapping[str, str]) -> CodeReading:
    """The codes of a reply about these lines, one a line: a label and ids (q3, or bare numbers behind a
    colon) or the words of a line in quotation marks. A code that names a line which is not there, or
    words that nobody said, is dropped, and so is one without either.
    """
    reading, known = CodeReading(), {i: plain(text) for i, text in lines.items()}
    for line in reply.splitlines():
        first = LINE_ID.search(line)
        bare, quotes = BARE_IDS.search(line), SAID.findall(line)
        if first:
            label, ids = line[: first.start()], line_ids(line)
            label = label if label_of(label) else LINE_ID.sub("", LINE_RANGE.sub("", line))
        elif bare:
            label, ids = line[: bare.start()], [f"q{n}" for n in re.findall(r"\d+", bare[1])]
        elif quotes:
            label = line[: SAID.search(line).start()]  # pyright: ignore[reportOptionalMemberAccess]
            ids = [next((i for i, x in known.items() if plain(s) in x), "") for s in quotes]
        else:
            continue
        true = [i for i in ids if i in lines]
        reading.given, reading.true = reading.given + len(ids), reading.true + len(true)
        name = label_of(SAID.sub("", label))
        if plain(name) not in NO_CODE and len(true) == len(ids):
            reading.codes.append((name, tuple(dict.fromkeys(true))))
    return reading


def merge_codes(written: Sequence[tuple[int, str, tuple[Quote, ...]]]) -> list[ThemeCode]:
    """Codes of (coder, label, quotes) by label: the first spelling stays, quotes and coders are joined."""
    by_label: dict[str, ThemeCode] = {}
    for coder, label, quotes in written:
        old = by_label.get(plain(label), ThemeCode(label, (), ()))
        by_label[plain(label)] = replace(
            old,
            quotes=tuple(dict.fromkeys((*old.quotes, *quotes))),
            coders=tuple(sorted({*old.coders, coder})),
        )
    return list(by_label.values())


def read_themes(reply: str, n: int) -> list[Theme]:
    """Themes of a reply, one a line: NAME | DEFINITION | c1, c4, of codes 1 to n. The name may also stand
    behind the codes, and lines with one name are one theme. A code belongs to the first theme that names
    it, and a theme without a code is none.
    """
    themes, taken = dict[str, Theme](), set[int]()
    for line in reply.splitlines():
        first = CODE_ID.search(line)
        if not first:
            continue
        name, _, definition = line[: first.start()].partition("|")
        name = label_of(name) or label_of(CODE_ID.sub("", line))
        codes = [int(c) - 1 for c in CODE_ID.findall(line[first.start() :])]
        free = tuple(c for c in dict.fromkeys(codes) if 0 <= c < n and c not in taken)
        if free and plain(name) not in FORM_NAMES:
            taken |= set(free)
            old = themes.get(plain(name), Theme(name, definition.strip(MARKS), ()))
            themes[plain(name)] = replace(old, codes=(*old.codes, *free))
    return list(themes.values())


def join_themes(themes: Sequence[Theme], similar: float) -> list[Theme]:
    """Themes of several batches: those whose names are alike by `similar` or more are one."""
    joined = list[Theme]()
    for theme in themes:
        at = next(
            (i for i, old in enumerate(joined) if text_similarity(old.name, theme.name) >= similar),
            None,
        )
        if at is None:
            joined.append(theme)
        else:
            joined[at] = replace(joined[at], codes=(*joined[at].codes, *theme.codes))
    return joined


# ---- what reviewers change


def read_score(reply: str) -> int | None:
    """1 to 5 behind the word "score", of several the last; None = there is none."""
    scores = SCORE.findall(reply)
    return int(scores[-1]) if scores else None


def apply_edits(reply: str, themes: Sequence[Theme], n: int) -> tuple[list[Theme], int]:
    """The themes after the edits of a reply, one a line, and how many edits named nothing that is there.

        delete t2        merge t1 t3: NAME        split t4: NAME = c1 c2; NAME = c3        add NAME: c5 c6

    Numbers are those of `themes`. What a split does not name stays; a code that is added leaves the theme
    that had it; a theme without codes is deleted. A reply that repeats the form of the question is read
    from there on.
    """
    now: list[Theme | None] = list(themes)
    extra, void = list[Theme](), 0
    edits = [match for line in reply.splitlines() if (match := EDIT.match(line))]
    forms = [i for i, match in enumerate(edits) if is_form(match[2])]
    for match in edits[max(forms, default=-1) + 1 :]:
        done = _apply(match[1].lower(), match[2], now, extra, n)
        void += not done
    kept = [t for t in (*now, *extra) if t is not None and t.codes]
    return kept, void


def is_form(edit: str) -> bool:
    """Whether an edit is a line of the question: it has NAME for a name."""
    head, _, tail = edit.partition(":")
    return not {plain(head), plain(tail.partition("=")[0])}.isdisjoint(FORM_NAMES[1:])


def _apply(kind: str, rest: str, now: list[Theme | None], extra: list[Theme], n: int) -> bool:
    """One edit; whether it changed anything. A sentence about themes deletes and joins none."""
    head, _, tail = rest.partition(":")
    if kind in ("delete", "merge"):
        named = NAMED_THEMES.match(spell_out(rest, THEME_RANGE, "t"))
        if named is None:
            return False
        head = named[1]
    at = [int(t) - 1 for t in THEME_ID.findall(head)]
    at = [i for i in dict.fromkeys(at) if 0 <= i < len(now) and now[i] is not None]
    if kind == "delete":
        for i in at:
            now[i] = None
        return bool(at)
    if kind == "merge" and len(at) > 1:
        themes = [t for i in at if (t := now[i]) is not None]
        codes = tuple(dict.fromkeys(c for t in themes for c in t.codes))
        now[at[0]] = replace(themes[0], name=label_of(tail) or themes[0].name, codes=codes)
        for i in at[1:]:
            now[i] = None
        return True
    if kind == "split" and len(at) == 1 and (old := now[at[0]]) is not None:
        parts = list[Theme]()
        left = set(old.codes)
        for piece in tail.split(";"):
            name, _, ids = piece.partition("=")
            codes = tuple(c for x in CODE_ID.findall(ids) if (c := int(x) - 1) in left)
            if codes and label_of(name):
                left -= set(codes)
                parts.append(Theme(label_of(name), "", codes))
        now[at[0]] = replace(old, codes=tuple(c for c in old.codes if c in left))
        extra += parts
        return bool(parts)
    if kind == "add" and label_of(head):
        codes = tuple(c for x in CODE_ID.findall(tail) if 0 <= (c := int(x) - 1) < n)
        for i, old in enumerate(now):
            if old is not None and codes:
                now[i] = replace(old, codes=tuple(c for c in old.codes if c not in codes))
        if codes:
            extra.append(Theme(label_of(head), "", tuple(dict.fromkeys(codes))))
        return bool(codes)
    return False


def share_changed(before: Sequence[Theme], after: Sequence[Theme]) -> float:
    """1 - the share of themes that are in both lists with the same name and codes, of the longer list."""
    same = {(plain(t.name), frozenset(t.codes)) for t in before}
    same &= {(plain(t.name), frozenset(t.codes)) for t in after}
    most = max(len(before), len(after))
    return 1 - len(same) / most if most else 0.0


# ---- how good themes are


def text_similarity(a: str, b: str) -> float:
    """The cosine of the counts of the texts' words, each cut to its first six letters; in [0, 1]."""
    x, y = (Counter(w[:6] for w in plain(text).split()) for text in (a, b))
    dot = sum(n * y[w] for w, n in x.items())
    norm = math.sqrt(sum(n * n for n in x.values()) * sum(n * n for n in y.values()))
    return dot / norm if norm else 0.0


def redundancy(themes: Sequence[Theme]) -> float:
    """The mean similarity of two themes' names and definitions; 0 of fewer than two."""
    texts = [f"{t.name} {t.definition}" for t in themes]
    pairs = [text_similarity(a, b) for a, b in combinations(texts, 2)]
    return float(np.mean(pairs)) if pairs else 0.0


def match_themes(similar_MH: np.ndarray, threshold: float) -> list[tuple[int, int]]:
    """Pairs (machine, human), each theme in one at most, whose similarities, of those at `threshold` or
    more, have the greatest sum (the assignment problem, by shortest augmenting paths).
    """
    worth = np.where(similar_MH >= threshold, similar_MH, 0.0)
    if not worth.size:
        return []
    flip = worth.shape[0] > worth.shape[1]
    rows = _assign(-(worth.T if flip else worth))
    pairs = [(c, r) if flip else (r, c) for r, c in enumerate(rows)]
    return sorted((m, h) for m, h in pairs if similar_MH[m, h] >= threshold and worth[m, h] > 0)


def _assign(cost: np.ndarray) -> list[int]:
    """The column of each row of the cheapest assignment, of a matrix with no more rows than columns."""
    n, m = cost.shape
    u, v = np.zeros(n + 1), np.zeros(m + 1)
    row_of = np.zeros(m + 1, dtype=int)  # by column, from 1; 0 = free
    for i in range(1, n + 1):
        row_of[0], j = i, 0
        least, used = np.full(m + 1, np.inf), np.zeros(m + 1, dtype=bool)
        came = np.zeros(m + 1, dtype=int)
        while row_of[j]:
            used[j] = True
            r = row_of[j]
            for k in range(1, m + 1):
                if not used[k]:
                    reduced = cost[r - 1, k - 1] - u[r] - v[k]
                    if reduced < least[k]:
                        least[k], came[k] = reduced, j
            free = [k for k in range(1, m + 1) if not used[k]]
            nxt = min(free, key=lambda k: least[k])
            step = least[nxt]
            for k in range(m + 1):
                if used[k]:
                    u[row_of[k]] += step
                    v[k] -= step
                else:
                    least[k] -= step
            j = nxt
        while j:
            row_of[j] = row_of[came[j]]
            j = int(came[j])
    columns = [0] * n
    for k in range(1, m + 1):
        if row_of[k]:
            columns[row_of[k] - 1] = k - 1
    return columns


def precision_recall(matches: int, machine: int, human: int) -> dict[str, float]:
    """Precision, recall and F1 of `matches` pairs; 0 where there is no theme."""
    p, r = matches / machine if machine else 0.0, matches / human if human else 0.0
    return {"precision": p, "recall": r, "f1": 2 * p * r / (p + r) if p + r else 0.0}


def coder_agreement(coded: Sequence[set[Quote]], every: Sequence[Quote]) -> float | None:
    """The mean over pairs of coders of Cohen's kappa on which lines they coded; None of one coder."""
    marks = [[float(q in own) for q in every] for own in coded]
    kappas = [pl.judges.judge_agreement(a, b).kappa for a, b in combinations(marks, 2)]
    return float(np.mean(kappas)) if kappas and every else None
