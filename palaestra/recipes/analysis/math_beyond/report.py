"""The findings of the study as sentences, tables and curves."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import palaestra as pl

MOST_SHOWN, MOST_LETTERS = 20, 200  # problems of a kind, and letters of each, on the page
MOST_CHANGED = 5


def unsolved(items: Sequence[pl.studies.Item]) -> list[int]:
    """The places of problems without a right answer."""
    return [i for i, share in enumerate(pl.studies.right_shares(items)) if not share]


def tell(
    problems: int,
    hard: int,
    n: int,
    expansion: pl.stats.Interval,
    lost: pl.stats.Interval,
    sharper: pl.stats.Interval,
    trained: str = "",
) -> list[str]:
    """The findings as sentences, the answer first; `trained` is what `tell_seen` says."""
    points = lambda x: pl.studies.tell_interval(x, signed=True)
    single = f"one answer is right {how_often(sharper)}"
    if not hard:
        answer = (
            f"These problems cannot tell: the start solves all {problems} within {n} answers. Take harder "
            "ones, or fewer answers."
        )
    elif expansion.low > 0:
        answer = f"Expansion: the model solves problems that the start does not, and {single}."
    elif sharper.low > 0:
        answer = f"Sharpening: {single}, and no problem is seen to be solved that the start never solves."
    elif sharper.high < 0:
        answer = f"Worse: {single}."
    else:
        answer = f"No difference is seen: {single}."
    rest = [
        f"Of {hard} problems that the start never solved in {n} answers the model solves {points(expansion)} "
        "more than the start drawn again.",
        f"Of the {problems - hard} that it did solve the model never solves {points(lost)} more.",
    ]
    sentences = rest[0 if hard else 1 :][: None if hard < problems else 1]
    return [" ".join(x for x in (answer, trained) if x), *sentences]


def how_often(gain: pl.stats.Interval) -> str:
    """A difference of shares in words, more often or less."""
    if gain.mean >= 0:
        return f"{pl.studies.tell_interval(gain, signed=True)} more often"
    less = replace(gain, mean=-gain.mean, low=-gain.high, high=-gain.low)
    return f"{pl.studies.tell_interval(less, signed=True)} less often"


def tell_guess(possible: int, n: int) -> list[str]:
    """What guesses reach, in a list of one sentence; nothing where it is not known what is right."""
    if not possible:
        return []
    once, within = (pl.studies.guessed(possible, k) for k in (1, n))
    trap = " So these problems say little of what is solved within that many."
    lot = f"{possible} answers" if possible > 1 else "1 answer"
    return [
        f"Who guesses among {lot} is right {once:.1%} of the time, and within {n} guesses solves {within:.1%} of the "
        f"problems.{trap if within > 0.5 else ''}"
    ]


def tell_seen(seen: Sequence[bool], shares: Mapping[str, Sequence[float]]) -> str:
    """How many problems the model was trained on, and what is measured on the others; "" = on none."""
    if not any(seen):
        return ""
    if all(seen):
        return (
            "It was trained on all of these problems, so they do not show what it does on others."
        )
    others = [i for i, known in enumerate(seen) if not known]
    start, model = ([shares[k][i] for i in others] for k in ("start", "model"))
    gain = pl.stats.paired_share_difference(start, model)
    return (
        f"It was trained on {sum(seen)} of these {len(seen)} problems; on the other {len(others)} one answer "
        f"is right {how_often(gain)}."
    )


def right_table(
    shares: Mapping[str, Sequence[float]], seen: Sequence[bool], guess: float | None = None
) -> pl.studies.StudyTable:
    """The share of right answers of the start and of the model: of all problems, of those that the model
    was trained on, and of the others; and of a guess, where it is known.
    """
    everything = range(len(shares["start"]))
    kinds = [("all", list(everything))]
    if seen:
        kinds += [
            (name, [i for i in everything if seen[i] == known])
            for name, known in (("trained on", True), ("not trained on", False))
        ]
    rows: list[tuple[str, ...]] = []
    for name, those in kinds:
        if not those:
            continue
        start, model = ([shares[k][i] for i in those] for k in ("start", "model"))
        cells = [pl.studies.tell_interval(pl.stats.bounded_interval(x)) for x in (start, model)]
        gain = pl.stats.paired_share_difference(start, model)
        cells.append(pl.studies.tell_interval(gain, signed=True))
        cells += [] if guess is None else [f"{guess:.1%}"]
        rows.append((name, str(len(those)), *cells))
    columns = ("problems", "number", "start", "model", "difference")
    columns += () if guess is None else ("a guess",)
    return pl.studies.StudyTable("How often one answer is right", columns, rows)


def kinds_table(before: Sequence[float], now: Sequence[float]) -> list[pl.studies.StudyTable]:
    """How many problems are solved by both, by one, and by none."""
    pairs = list(zip(before, now, strict=True))
    count = lambda a, b: str(sum((x, y) == (a, b) for x, y in pairs))
    rows = [
        ("kept", "solved by both", count(1, 1)),
        ("gained", "by the model alone", count(0, 1)),
        ("lost", "by the start alone", count(1, 0)),
        ("never", "by neither", count(0, 0)),
    ]
    note = (
        "Solved means that at least one of the answers is right, so a problem may count as kept that is solved "
        "more or less often than before. The start's second draw, on all problems."
    )
    return [pl.studies.StudyTable("Problems by who solves them", ("", "", "problems"), rows, note)]


def tables_of(
    again: Sequence[pl.studies.Item],
    after: Sequence[pl.studies.Item],
    before: Sequence[float],
    now: Sequence[float],
) -> list[pl.studies.StudyTable]:
    """What moved, and how long answers are."""
    moved = moved_table(again, after, before, now)
    return [*kinds_table(before, now), *moved, lengths_table(again, after)]


def moved_table(
    again: Sequence[pl.studies.Item],
    after: Sequence[pl.studies.Item],
    before: Sequence[float],
    now: Sequence[float],
) -> list[pl.studies.StudyTable]:
    """Which problems were gained and which lost, the first of each, with an answer before and after;
    nothing where none was.
    """
    rows: list[tuple[str, ...]] = []
    for kind, outcome in (("gained", (0, 1)), ("lost", (1, 0))):
        pairs = zip(again, after, before, now, strict=True)
        moved = [(x, y) for x, y, a, b in pairs if (a, b) == outcome]
        rows += [
            (
                kind,
                str(y["id"]),
                shortened(str(y["prompt"])),
                "" if y["gold"] is None else shortened(str(y["gold"])),
                shortened(example(x)),
                shortened(example(y)),
            )
            for x, y in moved[:MOST_SHOWN]
        ]
    note = (
        f"At most {MOST_SHOWN} of each. Of the one that solved it the first right answer is shown, of the other its "
        "first one; items.jsonl has all problems, with all answers of the model."
    )
    columns = ("", "problem", "its end", "right answer", "start", "model")
    if rows:
        return [pl.studies.StudyTable("Which were gained and lost", columns, rows, note)]
    return most_changed(again, after)


def most_changed(
    again: Sequence[pl.studies.Item], after: Sequence[pl.studies.Item]
) -> list[pl.studies.StudyTable]:
    """Where no problem was gained or lost: those whose share of right answers changed most, with an answer before
    and after; nothing where none changed.
    """
    shares = [pl.studies.right_shares(x) for x in (again, after)]
    gains = [b - a for a, b in zip(*shares, strict=True)]
    top = sorted((i for i, g in enumerate(gains) if g), key=lambda i: -abs(gains[i]))[:MOST_CHANGED]
    rows = [
        (
            f"{100 * gains[i]:+.0f} points".replace("-", "−"),
            str(after[i]["id"]),
            shortened(str(after[i]["prompt"])),
            "" if after[i]["gold"] is None else shortened(str(after[i]["gold"])),
            shortened(str(again[i]["texts"][0])),
            shortened(str(after[i]["texts"][0])),
        )
        for i in top
    ]
    note = "No problem was gained or lost. Of both the first answer is shown."
    columns = ("right answers", "problem", "its end", "right answer", "start", "model")
    return [pl.studies.StudyTable("Which changed most", columns, rows, note)] if rows else []


def example(item: pl.studies.Item) -> str:
    """The first right answer, or the first one where none is right."""
    right = [t for t, r in zip(item["texts"], item["right"], strict=True) if r]
    return str([*right, *item["texts"]][0])


def shortened(prompt: str) -> str:
    """The end of a prompt in one line."""
    line = " ".join(prompt.split())
    return line if len(line) <= MOST_LETTERS else f"...{line[-MOST_LETTERS:]}"


def lengths_table(
    again: Sequence[pl.studies.Item], after: Sequence[pl.studies.Item]
) -> pl.studies.StudyTable:
    """Tokens of an answer before and after training: the mean, of right ones too, and how many were cut."""
    rows: list[tuple[str, ...]] = []
    for name, items in (("start", again), ("model", after)):
        tokens = [n for x in items for n in x["tokens"]]
        right = [n for x in items for n, r in zip(x["tokens"], x["right"], strict=True) if r]
        cut = sum(sum(x["cut"]) for x in items)
        cells = [f"{sum(some) / len(some):.1f}" if some else "" for some in (tokens, right)]
        rows.append((name, *cells, f"{cut} of {len(tokens)}"))
    columns = ("answers of the", "tokens", "tokens of right ones", "cut")
    return pl.studies.StudyTable("How long the answers are", columns, rows)


def starts_table(starts: Sequence[Sequence[pl.studies.Item]]) -> list[pl.studies.StudyTable]:
    """What several start models leave unsolved; nothing for one."""
    if len(starts) < 2:
        return []
    sets = [{*unsolved(items)} for items in starts]
    rows = [(f"base {i + 1}" if i else "base", str(len(s))) for i, s in enumerate(sets)]
    rows += [
        ("at least one of them", str(len(set.union(*sets)))),
        ("all of them", str(len(set.intersection(*sets)))),
    ]
    return [pl.studies.StudyTable("Problems never solved", ("by", "problems"), rows)]


def curves(
    again: Sequence[pl.studies.Item], after: Sequence[pl.studies.Item], n: int, possible: int = 0
) -> pl.studies.StudyChart:
    """pass@k of both over k = 1, 2, 4, ... n, and that of guesses among `possible` answers, 0 = not known."""
    ks = [1 << i for i in range(n.bit_length()) if 1 << i <= n]
    lines = []
    for name, items in (("start", again), ("model", after)):
        points = [pl.stats.bounded_interval(pl.studies.passed(items, k)) for k in ks]
        lines.append(
            pl.studies.StudyLine(
                name,
                ks,
                [p.mean for p in points],
                [p.low for p in points],
                [p.high for p in points],
            )
        )
    if possible:
        guess = [pl.studies.guessed(possible, k) for k in ks]
        lines.append(pl.studies.StudyLine("a guess", ks, guess))
    return pl.studies.StudyChart(
        "Problems solved within k answers",
        "answers",
        "problems solved",
        lines,
        share=True,
        log_x=True,
    )
