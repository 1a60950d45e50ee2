"""How a verifier of steps is asked, and how its reply is read."""

import re
from collections.abc import Sequence
from typing import Protocol

import palaestra as pl

STEP = re.compile(r"^\W*step\s+(\d+)\W+(right|wrong)\b(.*)$", re.IGNORECASE | re.MULTILINE)
FINAL = re.compile(r"^\W*final\W+(right|wrong)\b", re.IGNORECASE | re.MULTILINE)
ASK = (
    "Check the solution step by step. Write one line for each step, `Step 1: right` or `Step 1: "
    "wrong`, each with your reason behind it. End with the line `Final: right` or `Final: wrong`, "
    "which judges the final answer."
)


@pl.value_class
class StepVerdicts:
    """What a verifier's reply says: +1, -1 or 0 (no verdict) for each step, the whole solution
    (None = it cannot be read), and the share of the criteria of form that the reply meets.
    """

    steps: tuple[float, ...]
    final: bool | None
    form: float


class Form(Protocol):
    """How a verifier is asked and read; `lines` are the steps of the solution."""

    def ask(self, task: pl.Task, text: str, lines: Sequence[str]) -> tuple[pl.Message, ...]: ...
    def read(self, reply: str, lines: Sequence[str]) -> StepVerdicts: ...


@pl.stage
class NumberedSteps:
    """The verifier writes a verdict with a reason for each numbered step, and one for the whole.

    Criteria of form: each step has a verdict and no others have one; each verdict has a reason; the
    whole has a verdict. Of several verdicts on one thing the last counts. The solution is the
    generator's text: what it says of itself is not read, only the reply is.
    """

    def ask(self, task: pl.Task, text: str, lines: Sequence[str]) -> tuple[pl.Message, ...]:
        steps = "\n".join(f"Step {i}: {line}" for i, line in enumerate(lines, start=1))
        content = f"{task.prompt[-1].content}\n\nSolution:\n{steps}\n\n{ASK}"
        return (*task.prompt[:-1], pl.Message(role="user", content=content))

    def read(self, reply: str, lines: Sequence[str]) -> StepVerdicts:
        text = pl.verifiers.strip_thinking(reply)
        verdicts = {int(k): (v.lower() == "right", why) for k, v, why in STEP.findall(text)}
        finals = FINAL.findall(text)
        steps = tuple(
            0.0 if k not in verdicts else 1.0 if verdicts[k][0] else -1.0
            for k in range(1, len(lines) + 1)
        )
        criteria = (
            bool(lines) and set(verdicts) == set(range(1, len(lines) + 1)),
            bool(verdicts) and all(re.search(r"\w", why) for _, why in verdicts.values()),
            bool(finals),
        )
        final = finals[-1].lower() == "right" if finals else None
        return StepVerdicts(steps=steps, final=final, form=sum(criteria) / len(criteria))


@pl.stage
class Reworked:
    """The verifier works the problem itself and says `= right` or `= wrong`: a step is right if it
    stands in that work. For small models that write sums line by line.
    """

    def ask(self, task: pl.Task, text: str, lines: Sequence[str]) -> tuple[pl.Message, ...]:
        return pl.tasks.judging_task(task, text, True).prompt

    def read(self, reply: str, lines: Sequence[str]) -> StepVerdicts:
        own = pl.tasks.answer_lines(reply)[:-1]
        whole = {"right": True, "wrong": False}.get(pl.tasks.final_answer(reply) or "")
        steps = [1.0 if a == b else -1.0 for a, b in zip(lines[:-1], own, strict=False)]
        steps += [0.0] * (len(lines) - 1 - len(steps))
        steps += [0.0 if whole is None else 1.0 if whole else -1.0] * bool(lines)
        form = (bool(own) + (len(own) == len(lines))) / 2
        return StepVerdicts(steps=tuple(steps), final=whole, form=form)
