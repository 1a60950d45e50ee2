"""The user's own reward function, from a file:

    def score(responses, answers, **fields):      # plain or async
        return [float(a in r) for r, a in zip(responses, answers)]

One call a batch: it waits until no model samples any more and judges everything that waits by then.
`fields` are lists as long as `responses`: prompts (the text of the last user message), messages,
ids, domains, and every other column of the data by its name; a function without `**fields` gets
those it names. It returns a list with a number for each response, or a dictionary of named parts,
of which "total" is the reward (else their sum) and "solved", true or false, says what counts as a right
answer: without it a run reports the mean reward, and no accuracy. A `Fault` that it raises leaves the episodes
unscored; any other error stops the run. In a function's place the name may hold a reward that is
composed already, such as `score = Weighted((("judge", Judge(...), 1.0), ...))`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from palaestra.context import RewardFn
from palaestra.errors import Fault, UserError
from palaestra.rewards.together import judge_together
from palaestra.rewards.verified import Verified
from palaestra.rewards.verify import response_text, reward_of
from palaestra.tasks.user_code import file_of, load, locate_error
from palaestra.types import Group, Reward, Task, stage

if TYPE_CHECKING:
    from palaestra.context import Context

Fields = Mapping[str, list[Any]]
LOCKS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class Hung(UserError):
    """A reward that gave nothing in its time."""

    def __init__(self, text: str, seconds: float):
        super().__init__(text)
        self.seconds = seconds


def reward_by_name(spec: str) -> RewardFn:
    """`FILE.py:NAME`, a function or a composed reward; else a verifier by its name, or a sum of
    them.
    """
    if ":" not in spec and ".py" not in spec:
        return Verified(spec)
    found = load(spec, "function")
    composed = is_dataclass(found) and not isinstance(found, type) and callable(found)
    return cast(RewardFn, found) if composed else UserReward(spec)


@stage
class UserReward:
    """`FILE.py:FUNCTION`, with at most `timeout` seconds a call. A plain function is called once at
    a time.
    """

    function: str
    timeout: float = 60.0

    def __post_init__(self) -> None:
        found, name = load(self.function, "function"), self.function.rpartition(":")[2]
        if not callable(found) or isinstance(found, type):
            raise UserError(
                f"{self.function} is no function; write def {name}(responses, answers, **fields)"
            )
        if len(positional_parameters(found)) < 2:
            raise UserError(
                f"{self.function} takes {inspect.signature(found)}; it must take (responses, "
                "answers, **fields)"
            )

    async def __call__(self, ctx: Context | None, group: Group) -> list[Reward]:
        return await judge_together(ctx, self.function, group, self._rewards)

    async def _rewards(self, groups: list[Group]) -> list[Reward]:
        """Of all episodes of the groups, in order."""
        tasks = [(g.task, e) for g in groups for e in g.episodes]
        responses, answers = [response_text(e) for _, e in tasks], [t.answer for t, _ in tasks]
        found = await self._call(
            load(self.function, "function"), responses, answers, fields_of(t for t, _ in tasks)
        )
        if hasattr(found, "tolist"):
            found = found.tolist()
        if not isinstance(found, list | tuple):
            raise UserError(
                f"{self.function} returned {type(found).__name__}, not a list; return one number a "
                "response"
            )
        if len(found) != len(tasks):
            raise UserError(
                f"{self.function} returned {len(found)} values for {len(tasks)} responses; return "
                "one for each"
            )
        return [self._reward(x, i, tasks[i][0]) for i, x in enumerate(found)]

    def _reward(self, found: Any, i: int, task: Task) -> Reward:
        try:
            return reward_of(found)
        except ValueError as error:
            where = f"for response {i} (task {task.id!r})"
            raise UserError(
                f"{self.function} returned {error}, {where}; return finite numbers"
            ) from None

    async def _call(
        self, function: Callable[..., Any], responses: list[str], answers: list[Any], fields: Fields
    ) -> Any:
        given = wanted_fields(function, fields)
        if missing := [p for p in required_parameters(function) if p not in given]:
            raise UserError(
                f"{self.function} needs {missing[0]!r}, which the data has not; it has "
                f"{', '.join(fields)}"
            )
        try:
            async with LOCKS.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
                started = None
                if not inspect.iscoroutinefunction(function):
                    found = await self._within(
                        run_in_thread(lambda: function(responses, answers, **given))
                    )
                    if not inspect.isawaitable(found):
                        return found
                    started = found
            work = await_result(started or function(responses, answers, **given))
            return await self._within(asyncio.run_coroutine_threadsafe(work, background_loop()), "")
        except (Fault, UserError):
            raise
        except (Exception, SystemExit) as error:
            raise UserError(
                f"{locate_error(error, file_of(function))} (in {self.function.rpartition(':')[2]})"
            ) from error

    async def _within(
        self, work: Future[Any], hung: str = "; a hung thread cannot be ended, so the run is"
    ) -> Any:
        """The result, or an error that says what was not done in time."""
        done, _ = await asyncio.wait({asyncio.wrap_future(work)}, timeout=self.timeout)
        if not done:
            work.cancel()
            told = (
                f"{self.function} gave nothing in {self.timeout:g} s{hung}; bound its work, or "
                "raise the timeout"
            )
            raise Hung(told, self.timeout)
        done.pop().exception()  # its copy of a TimeoutError has no traceback
        return work.result()


def fields_of(tasks: Iterable[Task]) -> Fields:
    """What a function can ask for beside responses and answers, a value for each response. The
    data's own columns come last.
    """
    rows = []
    for task in tasks:
        users = [m.content for m in task.prompt if m.role == "user"]
        own = {
            "prompts": users[-1] if users else "",
            "messages": [{"role": m.role, "content": m.content} for m in task.prompt],
            "ids": task.id,
            "domains": task.domain,
        }
        rows.append({**task.meta, **own})
    return {k: [r.get(k) for r in rows] for k in dict.fromkeys(k for r in rows for k in r)}


def positional_parameters(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def required_parameters(function: Callable[..., Any]) -> list[str]:
    """The parameters without a default, after responses and answers."""
    parameters = inspect.signature(function).parameters.values()
    rest = [
        p
        for p in parameters
        if p.name not in positional_parameters(function)[:2]
        and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    return [p.name for p in rest if p.default is p.empty]


def wanted_fields(function: Callable[..., Any], fields: Fields) -> Fields:
    """The fields a function takes."""
    parameters = inspect.signature(function).parameters
    taken = positional_parameters(function)[:2]
    every = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return {k: v for k, v in fields.items() if k not in taken and (every or k in parameters)}


async def await_result(work: Awaitable[Any]) -> Any:
    return await work


def run_in_thread(work: Callable[[], Any]) -> Future[Any]:
    """Runs it in a thread that does not keep the process alive."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            found = work()
        except BaseException as error:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        else:
            if future.set_running_or_notify_cancel():
                future.set_result(found)

    threading.Thread(target=run, name="user reward", daemon=True).start()
    return future


@lru_cache(maxsize=1)
def background_loop() -> asyncio.AbstractEventLoop:
    """A loop of its own for async functions: one that blocks it does not block the run."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="user reward loop", daemon=True).start()
    return loop
