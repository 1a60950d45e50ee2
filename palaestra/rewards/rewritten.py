"""One reward for several forms of answer: a reply that ends with the line `= ANSWER`, put into the
form a verifier reads.

    Rewritten(Verified("sql-partial", paper=True), unless="schema", write=AsQuery())

Tasks that have the column `unless` are judged as they are. For the others `write` makes a response,
a reference and fields of the small model's reply: the verifier, its partial credit and its exploits
stay what they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from palaestra.errors import Fault, UserError
from palaestra.rewards.verified import Verified, judge_each
from palaestra.tasks.procedural import final_answer
from palaestra.types import Group, Reward, Task, stage

if TYPE_CHECKING:
    from palaestra.context import Context

VerifierInput: TypeAlias = tuple[str, Any, Mapping[str, Any]]  # response, reference, fields
Write: TypeAlias = Callable[[str, Task], VerifierInput]


@stage
class Rewritten:
    """The reward of what `write` makes of a reply, for tasks without the column `unless`; else of
    the reply itself.
    """

    reward: Verified
    unless: str
    write: Write

    async def __call__(self, ctx: Context | None, group: Group) -> list[Reward | Fault]:
        return await judge_each(self.judge, group)

    def judge(self, text: str, task: Task) -> Reward:
        if self.unless not in task.meta:
            text, answer, fields = self.write(text, task)
            task = replace(task, answer=answer, meta={**task.meta, **fields})
        return self.reward.judge(text, task)

    def put(self, task: Task) -> str | None:
        """The task's answer as a response: as the verifier reads it where that judges the reply."""
        return self.reward.put(task) if self.unless in task.meta else f"= {task.answer}"


@stage
class Weighed:
    """The weighted sum of some parts of a reward: (name, weight)."""

    reward: Rewritten
    weights: tuple[tuple[str, float], ...]

    async def __call__(self, ctx: Context | None, group: Group) -> list[Reward | Fault]:
        return [r if isinstance(r, Fault) else self.weigh(r) for r in await self.reward(ctx, group)]

    def weigh(self, reward: Reward) -> Reward:
        return replace(
            reward, total=sum(w * reward.parts.get(name, 0.0) for name, w in self.weights)
        )


def working_of(text: str) -> str:
    """What stands before the answer line; a dash where nothing does."""
    return "\n".join(text.strip().splitlines()[:-1]).strip() or "-"


def write_blocks(
    text: str, tags: tuple[str, str], write: Callable[[str], str], end: str = ""
) -> str:
    """`write(answer)` in the second tag behind the working in the first; a reply without an answer
    line stays as it is.
    """
    answer, (a, b) = final_answer(text), tags
    if answer is None:
        return text
    return f"<{a}>{end}{working_of(text)}{end}</{a}>{end}<{b}>{end}{write(answer)}{end}</{b}>"


QUERY = re.compile(r"\s*(select|with)\b", re.IGNORECASE)
PLACES, CHARACTERS = "abcdefgh", "abcdefghijklmnopqrstuvwxyz0123456789_"
COLUMNS = [f"{p}_{c}" for p in PLACES for c in CHARACTERS]
ITEMS = f"CREATE TABLE item ({', '.join(COLUMNS)});" + "".join(
    f"INSERT INTO item VALUES ({', '.join(repr(c * n) for c in COLUMNS)});" for n in (1, 2)
)


def write_query(answer: str) -> str:
    """`661` as SELECT a_6, b_6, c_1 FROM item: a column for each place and character, _ for all but
    letters and digits.
    """
    characters = [c if c in CHARACTERS else "_" for c in answer.lower() if not c.isspace()]
    return (
        f"SELECT {', '.join(f'{PLACES[i % len(PLACES)]}_{c}' for i, c in enumerate(characters))} FROM "
        "item"
        if characters
        else ""
    )


@stage
class AsQuery:
    """The answer of a built-in problem as the query that selects a column for each of its characters."""

    tags: tuple[str, str] = ("think", "answer")
    newlines: bool = False  # around the tags

    def __call__(self, text: str, task: Task) -> VerifierInput:
        """A reply on a user's own database stays as it is. Raises UserError where the reference is
        a query, and there is nothing to run it on.
        """
        if "database" in task.meta:
            return text, task.answer, {}
        if QUERY.match(str(task.answer)):
            raise UserError(
                f"task {task.id!r} has a query as its answer and no database to run it on; add the "
                "column `schema`, a script that makes one, or `database`, the path of a sqlite file"
            )
        return (
            write_blocks(text, self.tags, write_query, "\n" * self.newlines),
            write_query(str(task.answer)),
            {"schema": ITEMS},
        )
