"""The findings of a record are asked for one by one, until a diagnosis is stated.

    user: age 54                      assistant: test HbA1c
    user: HbA1c: abnormal             assistant: diagnose diabetes

A finding is shown as `palaestra.tasks.clinical` reads it: "normal" or "abnormal" by its reference range, its
value where there is none, or "not available". What may be said in a turn follows from the record:

    record    tests that were not asked for and that the record answers, and diagnoses
    all       tests that were not asked for, and diagnoses; of some the answer is "not available"
    none      the model writes what it likes; a test that is asked for again, or a reply that cannot be read,
              costs a turn

With `interpret` a result that has a reference range is shown as a number with its range, and the next message says what it
means; then the record says it:

    user: HbA1c: 6.8 (normal <5.7)    assistant: result abnormal
    user: HbA1c: abnormal

A diagnosis can be chosen once a test was asked for, where there is one; in the last turn nothing else can. To
draw actions until a valid one comes is to draw from the policy restricted to valid actions (`types.Choices`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal, get_args

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.tasks.clinical import ABNORMAL, NORMAL
from palaestra.types import (
    Act,
    Ask,
    Frame,
    Key,
    Message,
    Task,
    need_at_least,
    rng_of,
    stage,
    value_class,
)
from palaestra.verifiers.base import strip_thinking

Restriction = Literal["record", "all", "none"]
ACTION = re.compile(r"[\s*`>#-]*(test|diagnose)\b[\s:*`]*(.*?)[\s.*`]*", re.IGNORECASE)
MISSING = "not available"
TEST, DIAGNOSE, RESULT = "test", "diagnose", "result"
MEANING = re.compile(
    rf"[\s*`>#-]*(?:{RESULT}\b)?[\s:*`]*({NORMAL}|{ABNORMAL})[\s.*`]*", re.IGNORECASE
)
READINGS = ("read", "misread")  # what becomes of a message that says what a result means
USAGE = (
    "Ask for one test in each message, or state the diagnosis. Write test NAME or diagnose NAME.\n"
    "Tests: {tests}\nDiagnoses: {classes}"
)


@value_class
class FindingsState:
    """What was asked of a record so far, and what became of each turn."""

    task: Task
    asked: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    diagnosis: str = ""  # "" = none was stated
    pending: str = ""  # the test whose result is to be interpreted

    @property
    def used(self) -> int:
        """Messages that asked for a test or stated a class, or could not be read."""
        return sum(x not in READINGS for x in self.outcomes)


@declare(
    facts=(
        ("outcomes", tuple, "by turn, what became of it"),
        ("tests_asked", tuple, "the tests that were asked for, in order"),
        ("stated", str, 'the class that was stated; "" = none'),
        "correct",
        "answered",
    ),
    reads_columns=("findings", "measured"),
)
@stage
class AskFindings:
    """Pays 1 for the record's class, stated before `turns` are over, else 0.

    The fact "outcomes" has a word for each turn: of a test "confirmed" where the record has its result and, if rows
    list what was ordered, the list names it; "abnormal" where that result is abnormal too; else "unordered",
    "missing" or "repeated". "read" where the meaning of a result was said as its range has it, else "misread". "unread" for
    a reply that is none of all, "right" or "wrong" for a diagnosis.

    Args:
        tests: names of the tests, as findings are keyed.
        classes: (name, training records) of each class.
        turns: messages of the model, the diagnosis included, those about the meaning of results not.
        restrict: which replies can be said.
        interpret: results that have a range are to be interpreted; the others are shown as without it.
        least: tests to be asked for before a diagnosis can be chosen, where there are as many.
        told: the first message lists tests and diagnoses, and replies begin with "test" or "diagnose"; 0 = names alone.
    """

    tests: tuple[str, ...]
    classes: tuple[tuple[str, int], ...]
    turns: int = 6
    restrict: Restriction = "record"
    told: bool = True
    interpret: bool = False
    least: int = 1
    seats: tuple[str, ...] = ("policy",)
    solved: ClassVar[float] = 1.0
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        need_at_least(self, turns=1, least=0)
        if self.restrict not in get_args(Restriction):
            raise UserError(
                f"findings: restrict is one of {', '.join(get_args(Restriction))}, not {self.restrict!r}"
            )
        given = (*self.tests, *(c for c, _ in self.classes))
        if bare := [n for n in given if not plain_name(n)]:
            raise UserError(
                f"findings: {bare[0]!r} is no name of a test or class; write one in words"
            )
        names = [plain_name(n) for n in given]
        if twice := [n for n in names if names.count(n) > 1]:
            raise UserError(
                f"findings: {twice[0]!r} names two of the tests and classes; give each a name of its own"
            )

    @property
    def most_turns(self) -> int:
        """Messages of the model at most, those about results among them."""
        return 2 * self.turns - 1 if self.interpret else self.turns

    def reset(self, task: Task, key: Key) -> Frame:
        *before, last = task.prompt
        usage = USAGE.format(
            tests=", ".join(self.tests), classes=", ".join(name for name, _ in self.classes)
        )
        text = f"{last.content}\n\n{usage}".strip() if self.told else last.content
        return self._ask(FindingsState(task=task), (*before, replace(last, content=text)))

    def step(self, state: FindingsState, acts: tuple[Act, ...], key: Key) -> Frame:
        if state.pending:
            return self._interpreted(state, acts[0].text)
        kind, name = self.read(acts[0].text)
        answer = str(state.task.answer)
        if kind == DIAGNOSE:
            right = name == answer
            state = replace(
                state, diagnosis=name, outcomes=(*state.outcomes, "right" if right else "wrong")
            )
            return self._end(state, float(right))
        if kind == TEST:
            outcome, reply = self._answer(state, name)
            asked = state.asked if outcome == "repeated" else (*state.asked, name)
            pending = name if outcome != "repeated" and self._measured(state, name) else ""
            reply = f"{name}: {self._measured(state, name)}" if pending else reply
            state = replace(
                state, asked=asked, pending=pending, outcomes=(*state.outcomes, outcome)
            )
        else:
            state = replace(state, outcomes=(*state.outcomes, "unread"))
            reply = "?"
        if state.used >= self.turns:
            return self._end(state, 0.0)
        return self._ask(state, (Message(role="user", content=reply),), {("policy", ""): 0.0})

    def _interpreted(self, state: FindingsState, text: str) -> Frame:
        """The frame after a message that says what the pending result means."""
        name, meaning = state.pending, state.task.meta["findings"][state.pending]
        outcome = "read" if self.read_meaning(text) == meaning else "misread"
        state = replace(state, pending="", outcomes=(*state.outcomes, outcome))
        message = Message(role="user", content=f"{name}: {meaning}")
        return self._ask(state, (message,), {("policy", ""): 0.0})

    def _measured(self, state: FindingsState, name: str) -> str:
        """A result as a number with its range; "" = it is not to be interpreted."""
        return str(state.task.meta.get("measured", {}).get(name, "")) if self.interpret else ""

    def legal(self, state: FindingsState) -> tuple[str, ...]:
        """The valid replies of a turn."""
        if state.pending:
            return tuple(self.say(RESULT, x) for x in (NORMAL, ABNORMAL))
        findings = state.task.meta["findings"]
        tests = [
            t
            for t in self.tests
            if t not in state.asked and (t in findings or self.restrict != "record")
        ]
        if state.used + 1 >= self.turns:
            tests = []
        first = len(state.asked) < self.least and bool(tests)
        classes = [] if first else [name for name, _ in self.classes]
        return (*(self.say(TEST, t) for t in tests), *(self.say(DIAGNOSE, c) for c in classes))

    def oracle(self, state: FindingsState) -> str:
        """Asks for tests of the record in an order drawn by its name, one at least where there is one, and states its
        class; says what results mean.
        """
        if state.pending:
            return self.say(RESULT, state.task.meta["findings"][state.pending])
        has = [t for t in self.tests if t in state.task.meta["findings"]]
        rng = rng_of(("findings", state.task.id))
        order = [has[int(i)] for i in rng.permutation(len(has))]
        most = min(len(has), self.turns - 1)
        wanted = int(rng.integers(1, most + 1)) if most > 0 else 0
        left = [t for t in order if t not in state.asked]
        if len(state.asked) < wanted and left:
            return self.say(TEST, left[0])
        return self.say(DIAGNOSE, str(state.task.answer))

    def say(self, kind: str, name: str) -> str:
        """A reply that the world reads so."""
        name = " ".join(name.split())
        return f"{kind} {name}" if self.told else name

    def read(self, text: str) -> tuple[str, str]:
        """What the first line of a reply asks for or states: ("test" | "diagnose" | "", name)."""
        lines = [x for x in strip_thinking(text).strip().splitlines() if x.strip()] or [""]
        match = ACTION.fullmatch(lines[0])
        whole = ("", lines[0])
        readings = [whole] if match is None else [(match[1].lower(), match[2]), whole]
        kinds = {TEST: self.tests, DIAGNOSE: tuple(name for name, _ in self.classes)}
        for stated, wanted in readings if self.told else readings[::-1]:
            for kind, names in kinds.items():
                same = [n for n in names if plain_name(n) == plain_name(wanted)]
                if same and stated in ("", kind):
                    return kind, same[0]
        return "", ""

    def read_meaning(self, text: str) -> str:
        """What the first line of a reply says of a result: "normal", "abnormal", or "" for neither."""
        lines = [x for x in strip_thinking(text).strip().splitlines() if x.strip()] or [""]
        match = MEANING.fullmatch(lines[0])
        return match[1].lower() if match else ""

    def weights(self, least: float = 0.2, most: float = 5.0) -> Mapping[str, float]:
        """By class w_c = N / (K n_c), within bounds, of the N training records, n_c of class c, of K classes."""
        total = sum(n for _, n in self.classes)
        k = len(self.classes)
        return {name: min(most, max(least, total / (k * n))) for name, n in self.classes}

    def _answer(self, state: FindingsState, name: str) -> tuple[str, str]:
        """What becomes of a test, and what is said of it."""
        if name in state.asked:
            return "repeated", f"{name}: asked before"
        meta = state.task.meta
        if name not in meta["findings"]:
            return "missing", f"{name}: {MISSING}"
        reply = f"{name}: {meta['findings'][name]}"
        ordered: Sequence[str] | None = meta.get("ordered")
        if ordered is not None and name not in ordered:
            return "unordered", reply
        return "abnormal" if name in meta.get("abnormal", ()) else "confirmed", reply

    def _facts(self, state: FindingsState) -> dict[str, object]:
        return {
            "outcomes": state.outcomes,
            "tests_asked": state.asked,
            "stated": state.diagnosis,
            "answered": bool(state.diagnosis),
            "correct": bool(state.diagnosis) and state.diagnosis == str(state.task.answer),
        }

    def _ask(
        self,
        state: FindingsState,
        say: tuple[Message, ...],
        pay: Mapping[tuple[str, str], float] | None = None,
    ) -> Frame:
        choices = None if self.restrict == "none" else self.legal(state)
        ask = Ask(seat="policy", say=say, choices=choices)
        return Frame(state=state, asks=(ask,), pay=pay or {}, facts=self._facts(state))

    def _end(self, state: FindingsState, pay: float) -> Frame:
        return Frame(state=state, pay={("policy", ""): pay}, facts=self._facts(state))


def plain_name(name: str) -> str:
    """A name as it is compared: case, the width of blanks, and marks around it do not count."""
    return " ".join(name.casefold().split()).strip(" .*`:")
