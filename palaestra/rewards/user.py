"""The user's own reward function, from a file or a program:

    def score(responses, answers, **fields):      # plain or async
        return [float(a in r) for r, a in zip(responses, answers)]

One call a batch: it waits until no model samples any more and judges everything that waits by then.
`fields` are lists as long as `responses`: prompts (the text of the last user message), messages,
ids, domains, and every other column of the data by its name; a function without `**fields` gets
those it names. It returns a list with a number for each response, None where the reward does not
apply to an answer, or a dictionary of named parts, of which "total" is the reward (else their sum)
and "solved", true or false, says what counts as a right answer: without it a run reports the mean
reward, and no accuracy.

With `(response, answer, **fields)` in the singular it is called for each answer, several at a time,
which is faster where it waits for something. Functions written for TRL, verl, verifiers and OpenRLHF
are known by their parameters: `palaestra.rewards.conventions`. A `Fault` that a function raises
leaves the episodes unscored; any other error stops the run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.errors import Fault, NotApplicable, UserError
from palaestra.rewards.calls import Hung, call_within, pool_of
from palaestra.rewards.conventions import (
    Attempt,
    Convention,
    convention_of,
    names_more_than_text,
    positional,
)
from palaestra.rewards.forked import Arguments
from palaestra.rewards.together import judge_together
from palaestra.rewards.verify import response_text, reward_of
from palaestra.services.threads import watch_signals
from palaestra.tasks.user_code import file_of, load, locate_error
from palaestra.types import Group, Reward, need_at_least, stage

if TYPE_CHECKING:
    from palaestra.context import Context

NUMBERS = ("total", "solved")  # named parts that are no labels
BY_PLACE_NAMES = ("responses", "answers")


@stage
class UserReward:
    """A function, or the `FILE.py:FUNCTION` that holds it, as a reward.

    Args:
        function: see the module's text for what it takes and returns.
        timeout: seconds that one call may take.
        workers: calls at a time of a function that is called for each answer or each group; one for
            a whole batch is called once at a time.
    """

    function: str | Callable[..., Any]
    timeout: float = 60.0
    workers: int = 16

    def __post_init__(self) -> None:
        need_at_least(self, timeout=0, workers=1)
        watch_signals()
        function = self._function()
        if not callable(function) or isinstance(function, type):
            raise UserError(
                f"{self.name} is no function; write def {self.name.rpartition(':')[2]}(responses, "
                "answers, **fields)"
            )
        if convention_of(function) is None:
            raise UserError(
                f"{self.name} takes {inspect.signature(function)}; it must take (responses, "
                "answers, **fields)"
            )

    @property
    def name(self) -> str:
        """How messages call it."""
        if isinstance(self.function, str):
            return self.function
        own = getattr(self.function, "__name__", type(self.function).__name__)
        return f"{Path(file_of(self.function)).name}:{own}"

    @property
    def reads_answers(self) -> bool:
        """Whether it asks for more than prompts and completions."""
        return names_more_than_text(self._function())

    async def __call__(self, ctx: Context | None, group: Group) -> list[Reward | Fault]:
        convention = self._convention()
        if convention.unit == "batch":
            return await judge_together(
                ctx, self.function, group, lambda groups: self._batch(ctx, groups)
            )
        attempts = attempts_of(group)
        if convention.unit == "group":
            return await self._call(ctx, convention, attempts)
        results = await asyncio.gather(*(self._call(ctx, convention, [a]) for a in attempts))
        return [each for (each,) in results]

    async def _batch(self, ctx: Context | None, groups: list[Group]) -> list[Reward | Fault]:
        """Of all episodes of the groups, in order."""
        return await self._call(
            ctx, self._convention(), [a for g in groups for a in attempts_of(g)]
        )

    async def _call(
        self, ctx: Context | None, convention: Convention, attempts: Sequence[Attempt]
    ) -> list[Reward | Fault]:
        """One call of the function, for these attempts."""
        pool = pool_of(self.function, 1 if convention.unit == "batch" else self.workers)
        pool.calls += 1
        waiting = nullcontext() if ctx is None else pool.queue(len(attempts), self.name, ctx.say)
        with waiting:
            async with pool.door:
                try:
                    result = await self._result(lambda: self._arguments(convention, attempts))
                except Hung as hung:
                    if ctx is None or convention.unit == "batch" or not pool.goes_on(hung):
                        raise
                    return [hung.fault for _ in attempts]
        if convention.unit == "answer":
            return [self._reward(convention.read(result), 0, attempts[0])]
        values = self._values(convention.unwrap(result), len(attempts))
        pairs = enumerate(zip(values, attempts, strict=True))
        return [self._reward(convention.read(v), i, a) for i, (v, a) in pairs]

    def _arguments(self, convention: Convention, attempts: Sequence[Attempt]) -> Arguments:
        """What one call for these attempts gets. Raises UserError for a column that is missing."""
        function, arguments = self._function(), convention.arguments(attempts)
        places = positional(function)[: convention.by_place]
        # a name that the attempts have is meant wherever it stands; the others go by their place
        left = iter([n for n in BY_PLACE_NAMES if n not in places])
        by_place = [p if p in arguments else next(left) for p in places]
        taken = (*places, *by_place)
        given = wanted(function, {k: v for k, v in arguments.items() if k not in taken})
        if missing := [p for p in required(function) if p not in given and p not in places]:
            raise UserError(
                f"{self.name} needs {missing[0]!r}, which the data has not; it has "
                f"{', '.join(arguments)}"
            )
        return [arguments[k] for k in by_place], given

    async def _result(self, arguments: Callable[[], Arguments]) -> Any:
        function, file = self._function(), file_of(self._function())
        try:
            return await call_within(
                function, arguments, self.function, self.name, file, self.timeout
            )
        except (Fault, UserError):
            raise
        except (Exception, SystemExit) as error:
            where = locate_error(error, file)
            raise UserError(f"{where} (in {self.name.rpartition(':')[2]})") from error

    def _values(self, result: Any, n: int) -> Sequence[Any]:
        """A list, tuple, array or tensor of `n` values as a sequence."""
        if hasattr(result, "tolist"):
            result = result.reshape(-1) if getattr(result, "shape", None) == (n, 1) else result
            result = result.tolist()
        if not isinstance(result, list | tuple):
            raise UserError(
                f"{self.name} returned {type(result).__name__}, not a list; return one number a "
                "response"
            )
        if len(result) != n:
            raise UserError(
                f"{self.name} returned {len(result)} values for {n} responses; return one for each"
            )
        return result

    def _reward(self, result: Any, i: int, attempt: Attempt) -> Reward | Fault:
        if result is None:
            return NotApplicable(f"{self.name} gave None for task {attempt.task.id!r}")
        labels = dict[str, str]()
        if isinstance(result, Mapping):
            own = {str(k): v for k, v in result.items()}
            labels = {k: v for k, v in own.items() if isinstance(v, str) and k not in NUMBERS}
            result = {k: v for k, v in own.items() if k not in labels}
        try:
            return replace(reward_of(result), labels=labels)
        except ValueError as error:
            raise UserError(
                f"{self.name} returned {error}, for response {i} (task {attempt.task.id!r}); "
                "return finite numbers"
            ) from None

    def _function(self) -> Callable[..., Any]:
        return load(self.function, "function") if isinstance(self.function, str) else self.function

    def _convention(self) -> Convention:
        convention = convention_of(self._function())
        assert convention is not None  # __post_init__ has refused it
        return convention


def attempts_of(group: Group) -> list[Attempt]:
    return [Attempt(task=group.task, episode=e, text=response_text(e)) for e in group.episodes]


def required(function: Callable[..., Any]) -> list[str]:
    """The parameters without a default."""
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [p.name for p in parameters if p.kind not in kinds and p.default is p.empty]


def wanted(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Of what can be given, what a function takes by name."""
    parameters = inspect.signature(function).parameters
    every = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return {k: v for k, v in given.items() if every or k in parameters}
