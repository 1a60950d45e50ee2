"""What parts may be able to do beside what they must: a class that has the attribute has the ability.

Whether it names the protocol or not makes no difference, and a field, a class variable or a
property will do; a class that names it is checked by a type checker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from palaestra.context import Context, Credit, LearnsEarly, Pool
from palaestra.pictures import Picture
from palaestra.types import (
    Batch,
    Call,
    Completion,
    Dialect,
    Group,
    Key,
    Malformed,
    Message,
    Meter,
    Metrics,
    Outputs,
    Sampling,
    State,
    Task,
    Tasks,
    ToolSchema,
)

if TYPE_CHECKING:
    from torch import Tensor

# fmt: off
__all__ = [
    "Answers", "BeginsEarly", "Casts", "Checks", "CountsSamples", "Demonstrates", "DropsEqual",
    "FindsMistakes", "GivesBatches", "GivesTasks", "HeldOutSize", "HoldsEpisodes", "KeepsEqual",
    "KnowsBounds", "LeavesEqual", "LimitsTurns", "LogsDraw", "Mixes", "OffersTools", "PaysGold",
    "PicksAnswers", "PutsAnswers", "ReadsCalls", "Solves", "SolvesSome", "Spreads",
    "TakesForms", "TrainingSize", "Warns", "WritesAnswers", "WritesQuestions", "draw_numbers",
    "keeps_equal", "solves", "source_of",
]
# fmt: on

# ---- clients


@runtime_checkable
class HasBudget(Protocol):
    """A client that spends at most so much, of which each of several processes may have a part.
    Without it there is nothing to divide.
    """

    def take_part(self, number: int, of: int, elsewhere: Callable[[], Meter]) -> None:
        """Spends at most the part `number` of `of`, counted from 0, what was spent `elsewhere`
        included. Raises UserError where it cannot be divided so.
        """
        ...


# ---- sources of tasks, and worlds

Habit: TypeAlias = Literal["guess", "work"]  # the answer at once, or visible steps first


@runtime_checkable
class TrainingSize(Protocol):
    """An environment that says how many training tasks it has. Without it they are endless."""

    @property
    def size(self) -> int | None:
        """Training tasks; None = endless."""
        ...


@runtime_checkable
class HeldOutSize(Protocol):
    """Tasks whose held-out split has an end, beyond which nothing asks. Without it, it has none."""

    @property
    def test_size(self) -> int | None:
        """Tasks of the split "test"; None = endless."""
        ...


@runtime_checkable
class GivesTasks(Protocol):
    """An environment with tasks of its own. Without it tasks hold only their split and index."""

    def task(self, split: str, index: int) -> Task: ...


@runtime_checkable
class Answers(Protocol):
    """Tasks that say whether they have answers, without which no accuracy is measured."""

    @property
    def has_answers(self) -> bool: ...


@runtime_checkable
class Warns(Protocol):
    """Tasks that know what speaks against their held-out split. Without it some are compared."""

    @property
    def caveat(self) -> str | None:
        """One line for the reader of an accuracy; "" = nothing, None = nobody knows."""
        ...


@runtime_checkable
class Notes(Protocol):
    """Tasks, or the dialect of a chat template, that have something to say of themselves before the
    first step: how they were read, and what looks wrong in them.
    """

    @property
    def notes(self) -> Sequence[str]:
        """A line each."""
        ...


@runtime_checkable
class Checks(Protocol):
    """Tasks with a check of their own, the reward then. Without it answers are compared."""

    def check(self, text: str, task: Task) -> float | Mapping[str, float]:
        """A number, or named parts, for what the policy said last."""
        ...


@runtime_checkable
class Demonstrates(Protocol):
    """Tasks that can be shown solved: for imitation, and for the check before the first step.

    Without it the answer itself, as text, is the demonstration.
    """

    def demonstration(self, task: Task, rng: np.random.Generator, habit: Habit) -> str: ...


@runtime_checkable
class FindsMistakes(Protocol):
    """Tasks that know where a working goes wrong: what an oracle of the steps is made of."""

    def first_wrong(self, text: str, task: Task) -> int | None:
        """The first wrong line of a working, from 0; None if all are right."""
        ...


@runtime_checkable
class Mixes(Protocol):
    """Tasks of several sources; the `domain` of each task is the name of its source."""

    @property
    def parts(self) -> Sequence[tuple[Tasks, float]]:
        """The sources with their weights."""
        ...


@runtime_checkable
class SeesPictures(Protocol):
    """An engine whose model sees pictures. Without it a prompt with one is refused."""

    async def generate_seeing(
        self, prompt: tuple[int, ...], pictures: tuple[Picture, ...], sampling: Sampling, key: Key
    ) -> Completion:
        """Continues `prompt`, in which places of the pictures stand. Raises `Fault`."""
        ...


def split_size(tasks: Tasks, split: str) -> int | None:
    """How many tasks a split has; None = endless, or nobody knows."""
    if split == "test":
        return tasks.test_size if isinstance(tasks, HeldOutSize) else None
    return tasks.size


def source_of(tasks: Tasks, task: Task) -> Tasks:
    """Where a task came from: of a mixture its part, else the tasks themselves."""
    parts = tasks.parts if isinstance(tasks, Mixes) else ()
    return {part.name: part for part, _ in parts}.get(task.domain, tasks)


@runtime_checkable
class Solves(Protocol):
    """A world that knows what to say. It is played before the first step, and must earn 1."""

    def oracle(self, state: Any) -> str | Call | Awaitable[str | Call]:
        """What the seat to move should say, or which tool it should call, in a frame's state."""
        ...


@runtime_checkable
class SolvesSome(Solves, Protocol):
    """A world that stands for another one, and has an oracle only where that has one."""

    @property
    def has_oracle(self) -> bool: ...


@runtime_checkable
class LimitsTurns(Protocol):
    """A world, or a source of questions, that says how long a turn may be. Without it, as long as
    in other benches.
    """

    @property
    def max_tokens(self) -> int:
        """Tokens of one turn; 0 = as in other benches."""
        ...


@runtime_checkable
class HasDialect(Protocol):
    """An environment that says how its tools are shown and calls are written. Without it that is
    the way of the model's family.
    """

    @property
    def dialect(self) -> Dialect: ...


@runtime_checkable
class KnowsSolved(Protocol):
    """A world that says which pay means solved. Without it a run reports the mean pay, and no
    accuracy.
    """

    @property
    def solved(self) -> float | None:
        """An episode that was paid so much or more is solved; None = nobody knows."""
        ...


@runtime_checkable
class KnowsBounds(Protocol):
    """A world or a reward whose pay lies between two numbers; without it, it may be any number."""

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The lowest and the highest; None = nobody knows."""
        ...


@runtime_checkable
class Remarks(Protocol):
    """A world that has to say something of its pay before the first step."""

    async def remarks(self) -> Sequence[str]:
        """A line each."""
        ...


@runtime_checkable
class Casts(Protocol):
    """A world that brings players who are not trained. Without it the policy has every seat."""

    @property
    def players(self) -> Mapping[str, Callable[[Sequence[Message], np.random.Generator], str]]:
        """By seat, a function of what was said so far and of randomness that says the next turn."""
        ...


@runtime_checkable
class HoldsEpisodes(Protocol):
    """A world that holds something for each episode (a process, a connection), and is told when one
    is over, however it ended: finished, cut, failed or called off.
    """

    def leave(self, state: Any) -> Awaitable[None] | None:
        """Gives back what belongs to an episode. `state` is that of its last frame."""
        ...


@runtime_checkable
class OffersTools(Protocol):
    """A world whose asks have tools, which may be processes or connections."""

    async def open(self) -> tuple[ToolSchema, ...]:
        """Begins them before the first step, so that what is wrong is said first; what can be
        called.
        """
        ...

    def close(self) -> None:
        """Ends them; what is asked of the world afterwards begins others."""
        ...


async def tools_of(world: object) -> tuple[ToolSchema, ...]:
    """What can be called in a world; nothing where it offers no tools."""
    return await world.open() if isinstance(world, OffersTools) else ()


@runtime_checkable
class ReadsCalls(Protocol):
    """A player that is told of the tools of an ask, and reads its own calls. Without it, it knows
    no tools, and one call a turn is read.
    """

    def read_calls(
        self, text: str, finish: str, tools: tuple[ToolSchema, ...]
    ) -> tuple[Call | Malformed, ...]:
        """All calls of a turn, in order."""
        ...


def bounds_of(payer: object) -> tuple[float, float] | None:
    """Between which numbers a world or a reward pays; None = nobody knows."""
    return payer.bounds if isinstance(payer, KnowsBounds) else None


def solves(world: object) -> bool:
    """Whether a world can be asked for its oracle."""
    return world.has_oracle if isinstance(world, SolvesSome) else isinstance(world, Solves)


# ---- stages


@runtime_checkable
class KeepsEqual(Protocol):
    """A credit that says whether groups of equal rewards get credit too. Without it, no."""

    @property
    def keeps_equal(self) -> bool: ...


@runtime_checkable
class ReadsRight(Protocol):
    """A part that tells right answers from wrong ones (`Episode.is_right`). Without it, it does not."""

    @property
    def reads_right(self) -> bool: ...


@runtime_checkable
class WeighsFact(Protocol):
    """A part that weighs a fact by turn which an episode may lack: then each turn has the same."""

    @property
    def weighs_fact(self) -> str:
        """Its name; "" = its weight is 0."""
        ...


@runtime_checkable
class DropsEqual(Protocol):
    """A pool that says whether it drops groups of equal rewards. Without it, no."""

    @property
    def drops_equal(self) -> bool: ...


@runtime_checkable
class LeavesEqual(Protocol):
    """A link of credit that says how a group of equal rewards leaves it. Without it, as it came."""

    @property
    def equal(self) -> bool | None:
        """With credit (True), without (False), or as it came (None)."""
        ...


@runtime_checkable
class NeedsSeveral(Protocol):
    """A credit, or a link of it, that says whether a prompt with one answer gets none. Without it,
    no.
    """

    @property
    def needs_several(self) -> bool: ...


@runtime_checkable
class Spreads(Protocol):
    """A link of credit that says whether it tells what was rewarded equally apart. Without it, no.

    No centring that follows undoes it, so groups of equal rewards keep credit.
    """

    @property
    def spreads(self) -> bool: ...


@runtime_checkable
class GivesBatches(Protocol):
    """A pool that gives whole batches. A dry run at a paper's size gives it the paper's prompts."""

    @property
    def size(self) -> int:
        """Groups of a batch."""
        ...


@runtime_checkable
class BeginsEarly(Protocol):
    """An update that begins with the groups of a batch before all of them are there."""

    @property
    def one_process(self) -> bool:
        """Whether only a learner in one process can do so."""
        ...

    def begin(
        self,
        ctx: Context,
        name: str,
        learner: LearnsEarly,
        groups: list[Group],
        over: Callable[[], Sequence[bool]],
    ) -> None:
        """Learns from groups that have come.

        Args:
            ctx, name, learner: as an update is called with.
            groups: that have come since it was last called.
            over: says of each attempt that waits in the queue, in order, whether it is finished.
        """
        ...


@runtime_checkable
class CountsSamples(Protocol):
    """A stage of `collect` that says how many answers to a prompt it samples."""

    @property
    def n(self) -> int: ...


@runtime_checkable
class LogsDraw(Protocol):
    """A draw with numbers for the log of each step. Without it, it has none."""

    def draw_numbers(self, state: State) -> Metrics:
        """Numbers of the newest draw, from the state that it left."""
        ...


@runtime_checkable
class PicksAnswers(Protocol):
    """A link of a collection that samples and judges nothing: it only mutes some of the answers by
    their rewards, so it can be shown on rewards alone.
    """

    def pick(self, group: Group) -> Group: ...


def draw_numbers(draw: object, state: State) -> Metrics:
    """What a draw logs of a step."""
    return draw.draw_numbers(state) if isinstance(draw, LogsDraw) else {}


def keeps_equal(credit: Credit) -> bool:
    """Groups whose rewards are all equal get credit too, so no gate may drop them."""
    return isinstance(credit, KeepsEqual) and credit.keeps_equal


def needs_several(credit: Credit) -> bool:
    """A prompt with one answer gets no credit."""
    return isinstance(credit, NeedsSeveral) and credit.needs_several


def drops_equal(pool: Pool) -> bool:
    """Groups whose rewards are all equal are not trained on."""
    return isinstance(pool, DropsEqual) and pool.drops_equal


# ---- rewards: who checks or audits one must know how a right answer is written


@runtime_checkable
class PaysGold(Protocol):
    """A reward that says what a reference is worth. Without it, no less than any other answer."""

    @property
    def gold(self) -> float | None: ...


@runtime_checkable
class ReplaysRecords(Protocol):
    """A link of a collection that may add what is recorded instead of sampling it. Without it, it
    samples.
    """

    @property
    def recorded(self) -> bool:
        """Whether it samples nothing, so that held-out records can be measured likewise."""
        ...


@runtime_checkable
class MeasuresRecords(Protocol):
    """An objective that says how well a model does on held-out records. Without it, nothing is
    measured on them.
    """

    def measures(self, out: Outputs, batch: Batch) -> Mapping[str, Tensor]:
        """Of whole units: "margin" [units] of pairs, right where it is above 0 and half right at 0,
        NaN where neither answer is the better one; or of rows "nll" [B], summed over "tokens" [B].
        """
        ...


@runtime_checkable
class NamesUnit(Protocol):
    """An objective that says what its margins are measured in. Without it no unit is told."""

    @property
    def margin_unit(self) -> str: ...


@runtime_checkable
class ReadsAnswers(Protocol):
    """A reward that says whether it looks at the task's answer. Without it, yes."""

    @property
    def reads_answers(self) -> bool: ...


@runtime_checkable
class PutsAnswers(Protocol):
    """A reward that writes a task's answer as a response. Without it the tasks demonstrate one."""

    def put(self, task: Task) -> str | None:
        """The response; None where the answer is none and nothing can be checked."""
        ...


@runtime_checkable
class ChecksGold(Protocol):
    """A reward that can say before the first step whether it can read a task's answer."""

    def check_gold(self, task: Task) -> None:
        """Raises UserError, without the task's name, where it cannot."""
        ...


@runtime_checkable
class WritesQuestions(Protocol):
    """A program that writes questions about documents, in a pipeline before what learns from them. Without
    it a search needs questions of the user's.
    """

    @property
    def writes_questions(self) -> bool: ...


@runtime_checkable
class WritesAnswers(Protocol):
    """A reward that writes a task's answer in a way of its own. Without it, it is plain text."""

    def gold_text(self, task: Task) -> str:
        """The answer as text, which a form goes around."""
        ...


@runtime_checkable
class ProbesTests(Protocol):
    """A reward by tests that can say which of them a candidate passes that solves nothing."""

    @property
    def has_tests(self) -> bool:
        """Whether it judges by tests at all."""
        ...

    def null_passes(self, task: Task) -> list[tuple[str, tuple[str, ...]]]:
        """Each test of the task as text, and the names of the candidates that pass it."""
        ...


@runtime_checkable
class TakesForms(Protocol):
    """A reward that says how an answer stands in a response. Without it common forms are tried."""

    @property
    def forms(self) -> tuple[str, ...]:
        """With {} where the answer goes, e.g. "<answer>{}</answer>"."""
        ...
