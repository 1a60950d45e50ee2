"""Rewards from a check: a function of what the policy said last and of the task, which knows the
answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from palaestra.abilities import Checks, Mixes
from palaestra.errors import Fault, UserError
from palaestra.tasks.user_code import with_own_data
from palaestra.types import SOLVED_TOTAL, Episode, Group, Reward, Task, Tasks, stage
from palaestra.verifiers.answers.final import gold_of, is_right_answer

if TYPE_CHECKING:
    from palaestra.context import Context

Check: TypeAlias = Callable[[str, Task], "float | Mapping[str, float]"]


@stage
class Verify:
    """Scores every episode of a group by `check(text, task)`: a number, or named parts.

    The total is the part "total" if there is one, else the sum of the parts. What earns `gold` is
    solved, unless a part "solved" says what is.
    """

    check: Check
    gold: ClassVar[float] = 1.0  # what the reference answer must be worth

    async def __call__(self, ctx: Context, group: Group) -> list[Reward]:
        return [self.judge(response_text(e), group.task) for e in group.episodes]

    def judge(self, text: str, task: Task) -> Reward:
        name = getattr(self.check, "__qualname__", type(self.check).__name__)
        try:
            judgement = self.check(text, with_own_data(task))
        except (UserError, Fault):
            raise
        except Exception as error:
            raise Fault(
                "reward", f"{name} raised {type(error).__name__}: {error} on task {task.id!r}"
            ) from error
        try:
            reward = reward_of(judgement)
        except ValueError as error:
            raise Fault("reward", f"{name} gave {error} on task {task.id!r}") from None
        full = reward.total >= SOLVED_TOTAL * self.gold
        return reward if reward.solved is not None else replace(reward, solved=full)


@stage
class Exact:
    """1 if the response's final answer is the task's answer, else 0; see
    `palaestra.verifiers.answers.final`.
    """

    def __call__(self, text: str, task: Task) -> float:
        if task.answer is None:
            recorded = {
                "chosen": "; its chosen and rejected are for: palaestra train dpo pairs=data",
                "demonstration": "; its demonstration is for: palaestra train sft",
            }
            use = next((text for column, text in recorded.items() if column in task.meta), "")
            raise UserError(
                f"task {task.id!r} has no answer to compare with; give it one, or a --reward of "
                f"your own{use}"
            )
        prompt = "\n".join(m.content for m in task.prompt)
        return float(is_right_answer(text, gold_of(task.answer), prompt))


@stage
class ByDomain:
    """The check of the part of a mixture that the task came from."""

    checks: tuple[tuple[str, Check], ...]

    def __call__(self, text: str, task: Task) -> float | Mapping[str, float]:
        return dict(self.checks)[task.domain](text, task)


def check_for(tasks: Tasks) -> Check:
    """The tasks' own check; for a mixture that of each part; else exact answers."""
    if isinstance(tasks, Mixes) and tasks.parts:
        return ByDomain(tuple((part.name, check_for(part)) for part, _ in tasks.parts))
    return tasks.check if isinstance(tasks, Checks) else Exact()


def response_text(episode: Episode) -> str:
    """What was said in the policy's last turn, whoever began or ended it. "" where the world says
    that this was no answer: its fact `answered` is False.
    """
    if episode.facts.get("answered") is False:
        return ""
    spoken = [(r, s) for r in episode.rows for s in r.segments if s.trained or s.logp is not None]
    spoken = [(r, s) for r, s in spoken if s.trained] or spoken
    if not spoken:
        return ""
    row, last = max(spoken, key=lambda x: x[1].turn)
    own = (s for s in row.segments if s is last or (s.replies and s.turn == last.turn))
    return "".join(s.text for s in own)


def reward_of(result: Any) -> Reward:
    """A reward from a number or named parts: "total" is the total, else their sum; "solved" says
    whether the answer is right, and is no part of the sum. Raises ValueError with what was found
    instead.
    """
    if isinstance(result, Mapping):
        parts = {str(k): value_of(v, f" in part {k!r}") for k, v in result.items()}
        solved = parts.pop("solved", None)
        if not parts:
            raise ValueError("no parts")
        if solved not in (None, 0, 1):
            raise ValueError(f"{solved:g} in part 'solved', not true or false")
        total = parts.pop("total", None)
        return Reward(
            total=sum(parts.values()) if total is None else total,
            parts=parts,
            solved=None if solved is None else bool(solved),
        )
    return Reward(total=value_of(result))


def value_of(value: Any, where: str = "") -> float:
    if hasattr(value, "item") and set(getattr(value, "shape", (0,))) <= {1}:  # one number
        value = value.item()
    if not isinstance(value, Real):
        raise ValueError(f"{type(value).__name__} {str(value)[:40]!r}{where}, not a number")
    if not math.isfinite(value):
        raise ValueError(f"{float(value)}{where}, not a finite number")
    return float(value)
