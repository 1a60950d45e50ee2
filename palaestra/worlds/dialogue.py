"""Two agents, each with a context that the other does not see, talk until one states an answer.

Both are the policy, in a thread each: "a" reads the task's column `context_a`, "b" `context_b`. What
one says is the other's next message.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.types import (
    Act,
    Ask,
    Frame,
    Key,
    Message,
    Task,
    need_at_least,
    stage,
    value_class,
)
from palaestra.verifiers.answers.final import gold_of, same_answer
from palaestra.verifiers.answers.short import answer_f1, stated_answer

THREADS = ("a", "b")
RULES = (
    "You and a partner each know something that the other does not. Tell your partner briefly what "
    "helps. Once you know the answer, write <answer>it</answer>, which ends the talk."
)
PLAIN_ANSWER = "= "  # begins the last line of an answer of the small model


@value_class
class DialogueState:
    task: Task
    said: tuple[str, ...] = ()


@declare(
    facts=(
        ("messages", int, "messages of the dialogue"),
        ("repeated", bool, "whether an agent said the same twice"),
        "answered",
        "answer",
    ),
    reads_columns=("context_a", "context_b"),
)
@stage
class Dialogue:
    """Pays 1 for the right answer, for another one the F1 of its words and those of the right one
    (HotpotQA's), and 0 where none is stated in `turns` messages.

    Args:
        turns: messages of both agents together, at most.
        least: messages before which an answer does not end the talk; 2 = both have spoken.
        plain: no rules and no sentences: an agent reads what was said, its context and the question
            in one line, and a last line `= x` states an answer, too. For small models of sums.
    """

    turns: int = 8
    least: int = 1
    plain: bool = False
    seats: tuple[str, ...] = ("policy",)
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    solved: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        need_at_least(self, turns=1, least=1)

    def reset(self, task: Task, key: Key) -> Frame:
        if not task.prompt or task.answer is None:
            raise UserError(f"task {task.id!r} of a dialogue needs a question and an answer")
        if missing := [c for c in ("context_a", "context_b") if c not in task.meta]:
            raise UserError(
                f"task {task.id!r} has no {' and no '.join(missing)}; write what each of both agents "
                "knows alone in the columns context_a and context_b, or name yours: --columns "
                f"THEIRS={missing[0]}"
            )
        state = DialogueState(task=task)
        return Frame(state=state, asks=(self._ask(state),))

    def step(self, state: DialogueState, acts: tuple[Act, ...], key: Key) -> Frame:
        text = acts[0].text
        now = replace(state, said=(*state.said, text))
        answer = self.read(text) if len(now.said) >= self.least else None
        if answer is None and len(now.said) < self.turns:
            return Frame(state=now, asks=(self._ask(now),))
        facts = {
            "messages": len(now.said),
            "repeated": any(len({*own}) < len(own) for own in (now.said[::2], now.said[1::2])),
            "answered": answer is not None,
            "answer": answer or "",
        }
        paid = 0.0 if answer is None else worth(answer, gold_of(state.task.answer))
        return Frame(state=now, pay={("policy", acts[0].ask.thread): paid}, facts=facts)

    def oracle(self, state: DialogueState) -> str:
        """The right answer."""
        return f"<answer>{gold_of(state.task.answer)}</answer>"

    def read(self, text: str) -> str | None:
        """What a message states as the answer."""
        lines = text.strip().splitlines()
        if self.plain and lines and lines[-1].startswith(PLAIN_ANSWER):
            return lines[-1].removeprefix(PLAIN_ANSWER).strip()
        return stated_answer(text)

    def _ask(self, state: DialogueState) -> Ask:
        """The next agent's turn: the other's message, and before its first turn all that it knows."""
        n = len(state.said)
        heard = state.said[-1] if state.said else ""
        if self.plain:
            heard = self.read(heard) or heard
        if n >= 2:
            return Ask(
                seat="policy", say=(Message(role="user", content=heard),), thread=THREADS[n % 2]
            )
        last = state.task.prompt[-1]
        first = replace(last, content=self._beginning(state.task, last.content, THREADS[n], heard))
        return Ask(seat="policy", say=(*state.task.prompt[:-1], first), thread=THREADS[n])

    def _beginning(self, task: Task, question: str, thread: str, heard: str) -> str:
        context = str(task.meta[f"context_{thread}"])
        if self.plain:
            return f"{heard}{context} {question}"
        parts = [question, f"Only you know this:\n{context}", RULES]
        return "\n\n".join([*parts, *([f"Your partner says:\n{heard}"] if heard else [])])


def worth(answer: str, gold: str) -> float:
    """1 for the right answer, else the F1 of the words of both."""
    return 1.0 if same_answer(answer, gold) else answer_f1(answer, [gold])
