"""A client of any OpenAI-compatible endpoint: `POST URL/chat/completions`.

    Endpoint(url="http://localhost:8000/v1", model="judge", key_env="JUDGE_KEY").open(ctx)

Timeouts, broken connections, half answers, garbage, 408, 425, 429 and 5xx are tried again with a
doubling wait; a `Retry-After` is obeyed, by all requests of the client. What fails to the end is a
Fault with its cause: "chat-timeout", "chat-connection", "chat-broken", "chat-garbage", "chat-429",
"chat-500", ..., "chat-refused", "chat-budget". After `patience` failed attempts in a row nothing is
tried again until the endpoint answers: a dead one is told soon. The API key is read from the
environment variable `key_env` at each call; it is in no setting, log, cache or message.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from palaestra.errors import Fault, UserError
from palaestra.services.chat.cache import Cache
from palaestra.services.chat.replies import answers_choices, read_reply
from palaestra.services.chat.wire import Wire
from palaestra.types import ChatRequest, Meter, Reply, rng_of, stage

if TYPE_CHECKING:
    from palaestra.context import Context

T = TypeVar("T")
RETRY_STATUSES = (408, 409, 425, 429)  # and every 5xx
# what not every server takes
EXTRAS = ("top_p", "response_format", "logprobs", "top_logprobs", "seed")
TOP = 20  # log-probabilities asked for: the most that the protocol gives
ROUNDING = 1e-9  # of sums of prices
EXCERPT = 200  # characters of an endpoint's own words in a message


@stage
class Endpoint:
    """Where, who, and how patiently. Budgets are of a run, divided among the processes that ask, and
    of each part of a pipeline anew; 0 = unbounded, and checked before a call: those under way may exceed them, but
    for `max_cost`. A call is not sent that, with those under way, could cost more than is left: its prompt counts as
    a token a byte, its reply as long as it may be (`cost_bound`). Judges with
    equal settings share a client and so a budget, and judges with a `name` of their own have one
    each.
    """

    url: str  # up to /v1
    model: str = "default"
    key_env: str = ""  # names the environment variable with the API key; "" = none is sent
    timeout: float = 60.0  # seconds of one attempt
    retries: int = 4
    backoff: float = 0.5  # seconds before the first retry
    # seconds before any retry; an endpoint that asks for more has failed
    longest_wait: float = 60.0
    concurrency: int = 8
    max_calls: int = 0
    patience: int = 32  # failed attempts in a row, of all requests, after which none is tried again
    max_tokens: int = 0
    max_cost: float = 0.0  # in the unit of `prices`
    prices: tuple[float, float] = (0.0, 0.0)  # of a million tokens: of prompts, of replies
    cache: str = "run"  # "run" = in the run folder, "" = none, else a folder
    name: str = ""  # of the client, in the metrics chat/NAME/...; "" = the model's

    def open(self, ctx: Context | None = None) -> EndpointClient:
        within = ctx.out / "chat" if ctx is not None and ctx.out is not None else None
        return EndpointClient(
            self, Cache(within if self.cache == "run" else Path(self.cache) if self.cache else None)
        )


class EndpointClient:
    """Calls of one run. Equal requests that are under way at a time share one call."""

    def __init__(self, settings: Endpoint, cache: Cache):
        self.settings, self.cache, self.meter = settings, cache, Meter()
        self.wire = Wire(f"{settings.url.rstrip('/')}/chat/completions", settings.timeout)
        self.name = settings.name or settings.model
        self.refused = frozenset[str]()  # EXTRAS that the endpoint does not take
        self.shows_choices = False  # whether a reply has had log-probabilities
        self.failed = 0  # attempts in a row
        # of the monotonic clock: when the endpoint lets itself be asked again
        self.not_before = 0.0
        self.elsewhere: Callable[[], Meter] = Meter  # what others have spent of the same budget
        self.under_way = 0.0  # what calls that are not answered yet may cost
        self._doors: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )
        self._under_way: dict[str, asyncio.Future[Reply]] = {}

    async def chat(self, request: ChatRequest) -> Reply:
        digest = request.digest(self.settings.url, self.settings.model)
        known = self.cache.get(digest)
        if known is not None and answers_choices(known, request.choices):
            self.meter.cached += 1
            return known
        under_way = self._under_way.get(digest)
        if (
            under_way is None
            or under_way.done()
            or under_way.get_loop() is not asyncio.get_running_loop()
        ):
            under_way = self._under_way[digest] = asyncio.ensure_future(
                self._fetch(request, digest)
            )
        return await asyncio.shield(under_way)

    async def _fetch(self, request: ChatRequest, digest: str) -> Reply:
        try:
            reply = await self.tried(lambda: self._once(request), digest)
        except Fault as fault:
            self.meter.count_fault(fault.cause)
            raise
        finally:
            self._under_way.pop(digest, None)
        if answers_choices(reply, request.choices):
            self.cache.put(digest, reply)
        return reply

    async def tried(self, once: Callable[[], Awaitable[T]], digest: str) -> T:
        """What `once` returns, tried again as long as it raises `Again`; see the module."""
        attempt = 0
        while True:
            try:
                answer = await once()
                self.failed = 0
                return answer
            except Again as again:
                self.failed += 1
                wait = (
                    self.settings.backoff * 2**attempt * (0.5 + rng_of((digest, attempt)).random())
                )
                wait = max(min(wait, self.settings.longest_wait), again.wait)
                last = attempt == self.settings.retries or self.failed >= self.settings.patience
                if last or wait > self.settings.longest_wait:
                    raise Fault(
                        again.cause, f"{self.settings.url} after {attempt + 1} attempts: {again}"
                    ) from None
            attempt += 1
            self.meter.retries += 1
            await asyncio.sleep(wait)

    async def _once(self, request: ChatRequest) -> Reply:
        """One attempt; the endpoint is asked again without the extras that it refuses."""
        without = self.refused
        asked = body_of(request, self.settings.model, without)
        status, headers, body = await self.send(asked)
        while more := refused_extras(status, body, without) - without:
            without |= more
            before, asked = asked, body_of(request, self.settings.model, without)
            if asked == before:
                break
            status, headers, body = await self.send(asked)
        if status == 200:
            self.refused |= without
        self.check_status(status, headers, body)
        try:
            reply = read_reply(body, request.choices)
        except ValueError as error:
            raise Again("chat-garbage", f"no chat completion: {str(error)[:EXCERPT]}") from None
        self.meter.spend(reply, self.settings.prices)
        if request.choices and reply.choices is None and self.shows_choices:
            raise Again("chat-garbage", "a reply without the log-probabilities that others had")
        self.shows_choices = self.shows_choices or reply.choices is not None
        return reply

    def check_status(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Raises Again, UserError or Fault for an answer that is none; see the module."""
        excerpt = self._clean(body.decode("utf-8", "replace"))[:EXCERPT]
        if status in RETRY_STATUSES or status >= 500:
            wait = retry_after(headers.get("retry-after", ""))
            self.not_before = max(
                self.not_before, time.monotonic() + min(wait, self.settings.longest_wait)
            )
            raise Again(f"chat-{status}", excerpt, wait)
        if status in (401, 403, 404):
            raise UserError(
                f"{self.settings.url} answers {status} to the model {self.settings.model!r}: "
                f"{self._hint(status)}"
            )
        if status != 200:
            raise Fault("chat-refused", f"{self.settings.url} answers {status}: {excerpt}")

    async def send(self, body: Mapping[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of one attempt. Raises Again for one that failed on the way, and
        Fault "chat-budget".
        """
        key = self._key()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        bound = cost_bound(body, self.settings.prices) if self.settings.max_cost else 0.0
        async with self._door():
            while (wait := self.not_before - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            self._spend(bound)
            self.under_way += bound
            try:
                return await self.wire.post(body, headers)
            except Fault as fault:
                detail = str(fault).removeprefix(f"{fault.cause}: ")
                raise Again(fault.cause, self._clean(detail)) from None
            finally:
                self.under_way -= bound

    def take_part(self, number: int, of: int, elsewhere: Callable[[], Meter]) -> None:
        """Divides the budget among processes, see `abilities.HasBudget`."""
        wholes = {k: getattr(self.settings, k) for k in ("max_calls", "max_tokens")}
        parts = {k: (n + of - 1 - number) // of for k, n in wholes.items()}
        for name, most in wholes.items():
            if most and not parts[name]:
                raise UserError(
                    f"{self.name}: {name}={most} cannot be divided among {of} processes; give at "
                    f"least {of}, or judges = 1 in the file of the cluster"
                )
        self.settings = replace(self.settings, **parts, max_cost=self.settings.max_cost / of)
        self.elsewhere = elsewhere

    def _spend(self, bound: float = 0.0) -> None:
        """Counts a call, if the budget has one left.

        Args:
            bound: of what the call may cost.
        """
        others = self.elsewhere()
        cost = self.meter.cost + others.cost
        most = self.settings.max_cost
        if most and cost + self.under_way + bound > most + ROUNDING:
            raise Fault(
                "chat-budget",
                f"{self.name}: {cost:g} of {most:g} of its cost are spent at {self.settings.url}, and a call may cost "
                f"{bound:g}; raise max_cost, or ask for shorter replies",
            )
        for spent, most, what in (
            (self.meter.calls + others.calls, self.settings.max_calls, "calls"),
            (self.meter.tokens + others.tokens, self.settings.max_tokens, "tokens"),
        ):
            if most and spent >= most:
                raise Fault(
                    "chat-budget",
                    f"{self.name}: {spent:g} of {most:g} {what} are spent at {self.settings.url}",
                )
        self.meter.calls += 1

    def _door(self) -> asyncio.Semaphore:
        return self._doors.setdefault(
            asyncio.get_running_loop(), asyncio.Semaphore(self.settings.concurrency)
        )

    def _key(self) -> str:
        name = self.settings.key_env
        if name and not os.environ.get(name):
            raise UserError(
                f"the environment variable {name} is not set; it must hold the API key of "
                f"{self.settings.url}"
            )
        return os.environ[name] if name else ""

    def _clean(self, text: str) -> str:
        """An endpoint may repeat the key that it refuses."""
        key = self._key()
        return text.replace(key, "***") if key else text

    def _hint(self, status: int) -> str:
        if status == 404:
            return (
                "no such model or path; the URL ends with /v1, the model is one that GET "
                "/v1/models lists"
            )
        name = self.settings.key_env
        return (
            f"it does not take the key in {name}"
            if name
            else "it wants a key; name its variable in key_env"
        )


class Again(Exception):
    """A failure that may pass. `wait` is what the endpoint asks for, in seconds."""

    def __init__(self, cause: str, detail: str, wait: float = 0.0):
        super().__init__(detail)
        self.cause, self.wait = cause, wait


def body_of(
    request: ChatRequest, model: str, without: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """The JSON of a request."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_tokens": request.max_tokens,
        "seed": request.seed % (1 << 31),
    }
    if request.stop:
        body["stop"] = list(request.stop)
    if request.schema is not None:
        named = {"name": "reply", "schema": request.schema, "strict": True}
        form = {"type": "json_schema", "json_schema": named}
        body["response_format"] = (
            {"type": "json_object", "schema": request.schema} if "json_schema" in without else form
        )
    if request.choices:
        body |= {"logprobs": True, "top_logprobs": TOP}
    return {k: v for k, v in body.items() if k not in without}


def cost_bound(body: Mapping[str, Any], prices: tuple[float, float]) -> float:
    """What a request costs at most, by the prices of a million tokens: a token has a byte at least, the marks of
    a message are no more than its quotes, names and braces in JSON, and a reply ends at `max_tokens`.
    """
    prompt = body.get("messages", body.get("prompt", ""))
    n = len(json.dumps(prompt, ensure_ascii=False).encode())
    return (n * prices[0] + int(body.get("max_tokens", 0)) * prices[1]) / 1e6


def refused_extras(
    status: int, body: bytes, without: frozenset[str] = frozenset()
) -> frozenset[str]:
    """Which fields an error is about: those it names; a refusal that names none is about all.

    Some servers report a field that they do not know as their own error (llama-cpp-python: 500). A
    schema has two forms, "json_schema" and the older "json_object"; the second is tried before
    there is none.
    """
    refusal = status in (400, 422, 501)
    named = (
        frozenset(n for n in EXTRAS if n.encode() in body)
        if refusal or status >= 500
        else frozenset[str]()
    )
    names = named or (frozenset(EXTRAS) if refusal else named)
    if "response_format" in names and "json_schema" not in without:
        return names - {"response_format"} | {"json_schema"}
    return names


def retry_after(text: str) -> float:
    """Seconds that a `Retry-After` header asks for: a number or a date; 0 where it says nothing."""
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0
