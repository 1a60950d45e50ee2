"""`palaestra audit`: finds out what a reward pays for answers that solve nothing."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TextIO

from palaestra.abilities import ProbesTests
from palaestra.chat.dialect import Chat
from palaestra.errors import UserError
from palaestra.models.files import explain_failures, read_tokenizer, silence_transformers
from palaestra.models.load import base_of, find
from palaestra.rewards.audit import Audit, audit
from palaestra.rewards.manner import PLAIN, MannerAudit, audit_manner
from palaestra.rewards.nulls import TestsAudit, audit_tests
from palaestra.settings.rewards import reward_by_name
from palaestra.tasks.files import tasks_and_notes
from palaestra.tasks.oracle import Encode, whole_reply
from palaestra.terminal.streams import drawing

LEGEND = (  # of the table of probes
    "legend: gold = the reference answers, in the form in which they are paid most, {} being the answer; "
    "probe = a kind of\nanswer that solves nothing; mean = what it is paid on average, which should be "
    "far below the gold"
)
MANNERS = (
    "legend: right, wrong = what a right and a wrong answer, said in this manner, are paid on average; "
    "{} is the answer"
)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    if not arguments.data:
        raise UserError(
            "--data is missing: problems with their answers, lines {'prompt': ..., 'answer': ...}"
        )
    if arguments.n < 2:
        raise UserError(f"--n is {arguments.n}; try at least two problems")
    spec = arguments.reward
    judge = reward_by_name(spec, arguments.reward_timeout)
    tasks, seen = tasks_and_notes(arguments.data, arguments.n, arguments.columns)
    if arguments.manner:
        with progress(drawing(sys.stderr)) as say:
            manners = audit_manner(spec, judge, tasks, say, encoder(arguments.model))
        if not arguments.json:
            show_manners(manners)
        return asdict(manners)
    if (tested := by_tests(judge)) is not None:
        with progress(drawing(sys.stderr)) as say:
            report = audit_tests(spec, tested, tasks, say, seen)
        if not arguments.json:
            show_tests(report)
        return asdict(report)
    with progress(drawing(sys.stderr)) as say:
        result = audit(spec, judge, tasks, say, seen, encoder(arguments.model))
    if not arguments.json:
        show(result)
    return asdict(result)


def by_tests(judge: object) -> ProbesTests | None:
    """The reward where it judges by tests: what is asked of it then is another audit."""
    return judge if isinstance(judge, ProbesTests) and judge.has_tests else None


def encoder(model: str) -> Encode:
    """What gives the tokens of a response as the model called so would write it."""
    where = base_of(find(model))
    with silence_transformers(), explain_failures(model):
        dialect = Chat(read_tokenizer(where))
    return whole_reply(dialect.encode_text, dialect.end)


@contextmanager
def progress(stream: TextIO) -> Generator[Callable[[str], None]]:
    """Says on a terminal, in one line that goes away in the end, which probe is asked now;
    elsewhere nothing.
    """
    terminal, asked = stream.isatty(), 0

    def say(name: str) -> None:
        nonlocal asked
        asked += 1
        if terminal:
            stream.write(f"\r\x1b[Kprobe {asked}: {' '.join(ascii(name)[1:-1].split())[:60]}")
            stream.flush()

    try:
        yield say
    finally:
        if terminal:
            stream.write("\r\x1b[K")
            stream.flush()


def show_tests(a: TestsAudit) -> None:
    print(f"{a.reward}: {a.tests} tests of {a.problems} problems, asked of what solves nothing")
    print("legend: a finding names tests that are passed by a program which does nothing useful")
    show_lines(a)


def show(a: Audit) -> None:
    gold = (
        "not scored"
        if a.gold["mean"] is None
        else f"{a.gold['mean']:.4g} (written as {a.gold['form']!r})"
    )
    print(f"{a.reward}: {a.problems} problems, gold {gold}\n")
    print(f"{LEGEND}\n")
    print(f"{'probe':<48} {'mean':>8}")
    nothing = "no score" if a.hung else "raised"
    for name, score in sorted(a.probes.items(), key=lambda x: math.inf if x[1] is None else -x[1]):
        print(f"{name[:48]!r:<50} {nothing if score is None else format(score, '6.4f')}")
    if a.labels:
        print(f"\nlabelled responses: {', '.join(f'{k} {v}' for k, v in a.labels.items())}")
    if t := a.latency:
        print(
            f"\nseconds a response: median {t['median']:.2g}, 95% {t['p95']:.2g}, slowest "
            f"{t['slowest']:.2g}"
        )
    show_lines(a)


def show_manners(a: MannerAudit) -> None:
    """What each manner is paid beside the plain answer, of right and of wrong answers."""
    print(f"{a.reward}: {a.problems} problems, answers written as {a.form!r}\n")
    print(f"{MANNERS}\n")
    print(f"{'manner':<20} {'right':>8} {'wrong':>8}")
    for name in (PLAIN, *(m for m in a.right if m != PLAIN)):
        pays = (a.right[name], a.wrong[name])
        cells = ("raised" if x is None else format(x, ".4f") for x in pays)
        print(f"{name:<20} " + " ".join(f"{cell:>8}" for cell in cells))
    print("\nfindings:" if a.findings else "\nno findings: manner is not paid")
    for line in a.findings:
        print(f"  - {line}")


def show_lines(a: Audit | TestsAudit) -> None:
    """What was seen in the data, and what was found."""
    if a.data:
        print("\nthe data:")
    for line in a.data:
        print(f"  - {line}")
    print("\nfindings:" if a.findings else "\nno findings")
    for line in a.findings:
        print(f"  - {line}")
