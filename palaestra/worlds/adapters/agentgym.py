"""Environments behind an AgentGym server as worlds: `agentgym:http://localhost:36001(items=200)`, or
`AgentGymWorld`.

    POST /create {}                    -> {"id": 7}, or 7
    POST /reset {"id": 7, "data_idx": 3} -> {"observation": "Goal: craft a stick."}
    POST /step {"id": 7, "action": "get 1 log"}
                                       -> {"observation": "Got 1 log.", "reward": 0.0, "done": false}
    GET /observation?id=7              -> "Goal: craft a stick.", where an answer has no observation
    POST /close {"id": 7}

Each episode is an environment of the server: created, reset to an item, stepped and closed. A server
of `palaestra serve` says more (`palaestra.worlds.world_server`): how many items of which split it has,
and what a turn is limited to. Its episodes are those of its world in process.
"""

from __future__ import annotations

import asyncio
import json
import math
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

import httpx2
import numpy as np

from palaestra.errors import Fault, UserError
from palaestra.types import Ask, Frame, Message, Task, need_at_least, stage, value_class
from palaestra.verifiers.base import strip_thinking
from palaestra.worlds.adapters.base import (
    POLICY,
    AdaptedWorld,
    Illegal,
    Live,
    Scene,
    Trail,
    library_call,
    show,
)

ITEMS = 200  # that a server has which says nothing of them
TEST_EVERY = 8  # every eighth item is held out
CLOSING = 5.0  # seconds for the end of an episode
ACTION = "Action:"  # what stands before the action where a reply also has a thought
SPLITS = ("train", "test")  # of a server that says how many items each has
LIMITS = ("stop", "max_tokens", "new_row", "prefix", "choices", "temperature")  # of an `ask`
OBSERVATIONS = ("observation", "state")  # fields that servers call it
Failure = Literal["fault", "zero"]


@value_class
class AskedScene(Scene):
    """A scene of a server that says how a turn is asked for."""

    ask: Ask | None = None


@stage
class AgentGymWorld(AdaptedWorld):
    """An environment that an AgentGym server plays (https://github.com/WooooDyy/AgentGym).

    The score of an episode is the reward of its LAST step, not the sum: each step pays the
    difference to the reward before. `score="sum"` adds up the rewards of all steps.

    A server that is down, slow or lies (no JSON, no observation, a reward that is no finite number,
    a `done` that is no truth value, an `error` field) is a Fault, and the episode has no reward.
    With `failure="zero"`, as in AgentGym-RL (arXiv:2509.08755), a failure in a step ends the
    episode with score 0; a failure before the first step stays a Fault.

    Args:
        url: of the server.
        settings: further fields for `create`.
        items: items that the server has; every eighth is held out. 0 = what the server says of itself,
            200 where it says nothing.
        seconds: until an answer must be complete.
        identifier: the field that names an environment; servers also say `env_idx`.
        item: the field of `reset` that names an item; servers also say `session_id` or `game`.
        reward: the field of `step` that holds the reward; servers also say `score`.
        score: which rewards of a step count.
        failure: what a failure in a step means.
        render: the text for an observation. Without it text stays, other values are shown in JSON.
        read: the action that a reply means; ValueError for none. Without it what follows the only
            `Action:`, or the whole reply.
    """

    draws: ClassVar[bool] = False
    url: str
    settings: tuple[tuple[str, Any], ...] = ()
    items: int = field(default=0, kw_only=True)
    seconds: float = field(default=60.0, kw_only=True)
    identifier: str = field(default="id", kw_only=True)
    item: str = field(default="data_idx", kw_only=True)
    reward: str = field(default="reward", kw_only=True)
    score: Literal["last", "sum"] = field(default="last", kw_only=True)
    failure: Failure = field(default="fault", kw_only=True)
    render: Callable[[Any], str] | None = None
    read: Callable[[str], str] | None = None
    about: Mapping[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.items:
            need_at_least(self, items=TEST_EVERY)
        if not self.seconds > 0:
            raise UserError(f"{self.label}: seconds={self.seconds:g} must be above 0")
        try:
            greeting = httpx2.get(self.url, timeout=min(self.seconds, 10.0))
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise UserError(
                f"{self.label}: no server answers there ({type(error).__name__}: {error}); "
                "start it, or correct the URL"
            ) from None
        object.__setattr__(self, "about", about_of(greeting.text))
        for split in SPLITS if self.whole else ():
            if not is_size(self.about.get(split)):
                raise UserError(
                    f"{self.label}: the server says it has {self.about[split]!r} items of {split}; a number "
                    "or null is expected, so correct the server, or give items=N"
                )
        if self.solved is None:
            object.__setattr__(self, "solved", self.about.get("solved"))

    @property
    def label(self) -> str:
        return f"agentgym:{self.url}"

    @property
    def whole(self) -> bool:
        """Whether the server is one of ours: it takes whole replies, and has items by split."""
        return self.about.get("whole") is True and not self.items

    @property
    def size(self) -> int | None:
        return self.about.get("train") if self.whole else self.listed - self.listed // TEST_EVERY

    @property
    def test_size(self) -> int | None:
        return self.about.get("test") if self.whole else self.listed // TEST_EVERY

    @property
    def listed(self) -> int:
        """Items without splits."""
        return self.items or ITEMS

    @property
    def max_turns(self) -> int:
        return int(self.about.get("max_turns") or super().max_turns)

    @property
    def max_tokens(self) -> int:
        return int(self.about.get("max_tokens") or 0)

    @property
    def caveat(self) -> str:
        return ""

    def task(self, split: str, index: int) -> Task:
        """The item at this position of a split. Of a server with splits a held-out one has the seed
        -1 - index.
        """
        ahead = TEST_EVERY - 1
        at = index * TEST_EVERY + ahead if split == "test" else index + index // ahead
        if self.whole:
            at = -1 - index if split == "test" else index
        return Task(
            id=f"{self.label}/{split}/{index}", meta={"seed": at, "plays": ""}, domain=self.label
        )

    def _ask(self, trail: Trail, scene: Scene, pay: Mapping[str, float], text: str) -> Frame:
        frame = super()._ask(trail, scene, pay, text)
        if isinstance(scene, AskedScene) and scene.ask is not None and text == scene.text:
            return replace(frame, asks=(scene.ask,))
        return frame

    def open_live(self) -> Live:
        return AgentGymSession(self)


@lru_cache(maxsize=1)
def certificates() -> ssl.SSLContext:
    """Loaded once: this takes longer than an episode's calls."""
    return ssl.create_default_context()


@dataclass
class AgentGymSession:
    """One environment of a server, and the reward of its last step."""

    world: AgentGymWorld
    environment: Any = None  # how the server names it; None = not created
    last: float = 0.0

    async def start(self, seed: int) -> Scene:
        split = {"split": "test" if seed < 0 else "train"} if self.world.whole else {}
        created = await self.call("create", split | dict(self.world.settings))
        name = (
            created.get(self.world.identifier, created.get("id")) if is_object(created) else created
        )
        if isinstance(name, bool) or not isinstance(name, int | str):
            raise self.fault("create", f"names no environment: {excerpt(created)}")
        self.environment = name
        item = -1 - seed if seed < 0 else seed
        reply = await self.call("reset", self.named({self.world.item: item}))
        return self.scene(reply, await self.observation(reply), 0.0, done=False)

    async def act(self, action: str) -> Scene:
        try:
            return await self.step(action)
        except Fault as error:
            if self.world.failure == "fault":
                raise
            facts = {"failure": str(error)}
            return Scene(pay={POLICY: -self.last}, status="finished", facts=facts)

    async def step(self, action: str) -> Scene:
        answer = await self.call("step", self.named({"action": action}))
        if not is_object(answer):
            raise self.fault("step", f"answers no object: {excerpt(answer)}")
        reward, done = answer.get(self.world.reward), answer.get("done")
        if not isinstance(reward, int | float) or not math.isfinite(reward):
            raise self.fault("step", f"{self.world.reward} is no finite number: {excerpt(reward)}")
        if not isinstance(done, bool):
            raise self.fault("step", f"done is no truth value: {excerpt(done)}")
        text = await self.observation(answer)
        pay = float(reward) - (self.last if self.world.score == "last" else 0.0)
        self.last += pay
        return self.scene(answer, text, pay, done=done)

    def scene(self, answer: Any, text: str, pay: float, *, done: bool) -> Scene:
        """What an answer shows, with what a server of ours says beside it."""
        more = answer if self.world.whole and is_object(answer) else {}
        status = str(more.get("status") or "finished") if done else ""
        facts = {k: as_tuple(v) for k, v in dict(more.get("facts") or {}).items()}
        ask = ask_of(more.get("ask"))
        return AskedScene(text=text, pay={POLICY: pay}, status=status, facts=facts, ask=ask)

    async def observation(self, answer: Any) -> str:
        """What an answer shows, else what `/observation` shows."""
        if not is_object(answer) or not any(name in answer for name in OBSERVATIONS):
            answer = await self.call("observation", self.named({}), get=True)
        if is_object(answer):
            answer = next((answer[name] for name in OBSERVATIONS if name in answer), answer)
        if answer is None:
            raise self.fault("observation", "is null")
        return self.world.render(answer) if self.world.render else show(answer)

    def named(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {self.world.identifier: self.environment, **fields}

    async def call(self, path: str, fields: Mapping[str, Any], *, get: bool = False) -> Any:
        """The JSON that the server answers. Raises Fault for anything else."""
        seconds = self.world.seconds
        with library_call(f"{self.world.label}/{path}"):
            async with (
                asyncio.timeout(seconds),
                httpx2.AsyncClient(timeout=seconds, verify=certificates()) as client,
            ):
                url = f"{self.world.url.rstrip('/')}/{path}"
                request = client.get(url, params=fields) if get else client.post(url, json=fields)
                response = await request
        if response.status_code != 200:
            raise self.fault(path, f"status {response.status_code}: {excerpt(response.text)}")
        try:
            answer = response.json()
        except (ValueError, RecursionError):
            raise self.fault(path, f"answers no JSON: {excerpt(response.text)}") from None
        if is_object(answer) and answer.get("error"):
            raise self.fault(path, excerpt(answer["error"]))
        return answer

    def fault(self, path: str, what: str) -> Fault:
        return Fault("environment", f"{self.world.label}/{path}: {what}")

    def read(self, text: str) -> str:
        if self.world.whole and self.world.read is None:
            return text
        if self.world.read is not None:
            try:
                return self.world.read(text)
            except ValueError as why:
                raise Illegal(f"That is no legal action: {why}") from None
        _, *actions = (reply := strip_thinking(text)).split(ACTION)
        if len(actions) > 1:
            raise Illegal(f"That is no legal action. Write {ACTION} once")
        action = (actions[0] if actions else reply).strip()
        if not action:
            raise Illegal(f"That is no legal action. Reply with an action, or with {ACTION} and it")
        return action

    def sample(self, rng: np.random.Generator, how: str) -> str:
        raise NotImplementedError(how)

    async def close(self) -> None:
        if self.environment is not None:
            async with asyncio.timeout(CLOSING):
                await self.call("close", self.named({}))


def about_of(text: str) -> Mapping[str, Any]:
    """What a server says of itself; {} where that is no JSON object."""
    try:
        about = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return about if is_object(about) else {}


def is_size(value: Any) -> bool:
    """Whether a value is a number of items; None = there is no last one."""
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


def ask_of(asked: Any) -> Ask | None:
    """The messages and limits of a turn. Raises Fault where a server says them wrongly."""
    if not is_object(asked):
        return None
    try:
        limits = {k: as_tuple(v) for k, v in asked.items() if k in LIMITS}
        say = tuple(Message(role=str(role), content=str(text)) for role, text in asked["say"])
        return Ask(seat=POLICY, say=say, **limits)
    except (KeyError, TypeError, ValueError) as error:
        raise Fault("environment", f"the server's ask cannot be read: {error}") from None


def as_tuple(value: Any) -> Any:
    """A JSON value with tuples for lists."""
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value


def is_object(value: Any) -> bool:
    """Whether a JSON value is an object."""
    return isinstance(value, dict)


def excerpt(value: Any) -> str:
    """A value in a message, at most 200 characters of it."""
    text = value if isinstance(value, str) else json.dumps(value)
    return " ".join(text.split())[:200]
