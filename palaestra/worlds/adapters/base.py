"""What the worlds of other libraries' environments share: seats, replies that are no action, and a
state that is a value though the environment is none.

The state is a `Trail`: the seed and every action since. Running environments are kept beside it.
Whoever goes on from a trail for the first time takes the one that stands there; who goes on from it
again, for a fork or after a restart, has the actions played anew from the seed. So everything
random in an environment must follow from its seed; one that shows something else when it is played
anew is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from palaestra.context import Bench
from palaestra.declared import declare
from palaestra.errors import Fault, PalaestraError, UserError
from palaestra.rollout.play import await_if_needed
from palaestra.types import Act, Ask, Frame, Key, Message, Task, rng_of, seed_of, stage, value_class

POLICY = "policy"  # the seat where only one player is trained
SEEDS = 2**31  # libraries take seeds of 32 bits with a sign
KEPT = 256  # running environments that wait for their next action, at first
REMEMBERED = 2**16  # environments that were ended for want of room
PATIENCE, PAUSE = 10.0, 0.01  # seconds
GAMES, ACTIONS = 32, 1000  # of random play before the first step, at most
# who plays the other seats: the policy itself, a name that the world knows, or a function
Opponent: TypeAlias = str | Callable[[Sequence[Message], np.random.Generator], str]


class Illegal(ValueError):
    """A reply that is no action here. Its text is what the seat is told."""


@value_class
class Scene:
    """What an environment shows after its start or an action."""

    seat: str = POLICY  # who acts next
    text: str = ""  # what that seat is shown
    before: tuple[Message, ...] = ()  # messages that it is shown before the text
    pay: Mapping[str, float] = field(default_factory=dict)  # by seat, since the scene before
    status: str = ""  # "" = it goes on, else "finished" or "truncated:WHY"
    facts: Mapping[str, Any] = field(default_factory=dict)


class Live(Protocol):
    """One episode of another library's environment, which changes as it is played. An action is
    text that `read` made, so that it can be stored and done again.

    What goes wrong inside the library is to be a `Fault`: see `library_call`.
    """

    def start(self, seed: int) -> Scene | Awaitable[Scene]: ...
    def read(self, text: str) -> str:
        """The action that a reply means. Raises Illegal."""
        ...

    def act(self, action: str) -> Scene | Awaitable[Scene]:
        """Raises Illegal where the environment refuses the action and stands where it stood."""
        ...

    def sample(self, rng: np.random.Generator, how: str) -> str:
        """An action of another player's: `how` is "random", or another name that the world knows."""
        ...

    def close(self) -> Awaitable[None] | None: ...


@value_class
class Trail:
    """All that is needed to bring an environment to where it stands."""

    seed: int
    actions: tuple[str, ...] = ()
    turns: int = 0  # replies so far
    illegal: int = 0  # of these, replies that were no action
    executed: tuple[bool, ...] = ()  # by turn, whether its reply was an action
    plays: str = ""  # the player that the policy is; "" = all of them
    asked: tuple[str, ...] = ()  # players who were asked before
    seen: str = ""  # digest of what was shown last
    given: str = ""  # what the episode begins with beside its seed, as JSON


class Lives:
    """Running environments, by the trail that brought them there; the oldest of too many end, since
    an episode that is given up elsewhere never says so. One that was ended too early comes back to
    be played anew: then there is room for twice as many from there on, so that the number follows
    the episodes in flight.

    `most` of them may run at a time; None = any number. Who finds no room waits `PATIENCE` seconds
    for an episode to end, and then takes the place of one that waits for its next action, which is
    played anew if it comes.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.running = 0
        self.room = KEPT
        self.kept: list[tuple[Trail, Live, Scene]] = []
        self.crowded_out = set[int]()  # hashes of trails

    async def begin(self, make: Callable[[], Live]) -> Live:
        """A fresh environment, as soon as there is room."""
        waited = 0.0
        while self.most is not None and self.running >= self.most:
            if self.kept and waited >= PATIENCE:
                await self.end(self.kept.pop(0)[1])
            else:
                await asyncio.sleep(PAUSE)
                waited += PAUSE
        self.running += 1
        try:
            return make()
        except BaseException:
            self.running -= 1
            raise

    async def end(self, live: Live) -> None:
        """Closes an environment; one that cannot even be closed is let go."""
        self.running -= 1
        with suppress(Exception):
            await await_if_needed(live.close())

    def take(self, trail: Trail) -> tuple[Live, Scene] | None:
        """One that stands there. Whoever takes it has it alone."""
        where = (trail.seed, trail.actions)
        for i, (known, live, scene) in enumerate(self.kept):
            if (known.seed, known.actions) == where:
                del self.kept[i]
                return live, scene
        if hash(where) in self.crowded_out:
            self.crowded_out.clear()
            self.room *= 2
        return None

    async def keep(self, trail: Trail, live: Live, scene: Scene) -> None:
        self.kept.append((trail, live, scene))
        if len(self.kept) > self.room:
            oldest, ended, _ = self.kept.pop(0)
            if len(self.crowded_out) == REMEMBERED:
                self.crowded_out.clear()
            self.crowded_out.add(hash((oldest.seed, oldest.actions)))
            await self.end(ended)


@declare(
    facts=(
        ("actions", int, "actions that the environment took"),
        ("illegal", int, "actions that it refused"),
        "executed",
        ("reason", str, "why a game of TextArena ended"),
        "*",
    )
)
@stage
class AdaptedWorld:
    """An environment of another library as a world. What it is an adapter of says `open_live`.

    A reply that is no action is answered with what is wrong, and asked for again `retries` times in
    an episode; the next one ends it, with `penalty` on top of what was paid before (None: 0, and in
    a game the lowest result). With `memory` a seat sees the whole episode; without it what is shown
    last. An episode that was paid `solved` or more is solved; None = nobody knows.
    """

    draws: ClassVar[bool] = True  # a legal action can be drawn at random
    retries: int = field(default=2, kw_only=True)
    penalty: float | None = field(default=None, kw_only=True)
    memory: bool = field(default=True, kw_only=True)
    solved: float | None = field(default=None, kw_only=True)
    intro: str = field(default="", kw_only=True)
    lives: Lives = field(default_factory=Lives, init=False, repr=False, compare=False)

    @property
    def sides(self) -> tuple[str, ...]:
        """The environment's own seats, in their order."""
        return (POLICY,)

    @property
    def opponent(self) -> Opponent:
        """Who plays the other seats; "self" = the policy has all."""
        return "self"

    @property
    def label(self) -> str:
        """What the environment is called in messages."""
        raise NotImplementedError

    @property
    def max_turns(self) -> int:
        """Turns after which an episode is cut."""
        return Bench.max_turns

    def open_live(self) -> Live:
        """A fresh environment, not started. Raises UserError where there is none."""
        raise NotImplementedError

    def start(self, live: Live, trail: Trail) -> Scene | Awaitable[Scene]:
        """The first scene of a fresh environment."""
        return live.start(trail.seed)

    def describe(self) -> str:
        """What a player is told at the start."""
        return self.intro

    def said(self, act: Act) -> str:
        """What of a turn is read as an action."""
        return act.text

    # ---- what it pays

    async def remarks(self) -> list[str]:
        """That silence may pay better than play, where it does."""
        seat = self.sides[0]
        forfeit = self.forfeit(seat).get(seat, 0.0)
        lowest = 0.0 if forfeit < 0 else await self.lowest_pay()
        if lowest >= 0:
            return []
        return [
            f"{self.label}: who gives no legal action to the last is paid {forfeit:g}, and legal play "
            f"earned as little as {lowest:g}, so silence may pay best; give penalty={lowest:g} or less"
        ]

    async def lowest_pay(self) -> float:
        """The least that a seat earned in some games of random legal actions, at most 0."""
        lowest, left = 0.0, ACTIONS if self.draws else 0
        for seed in range(GAMES):
            if left > 0:
                paid, actions = await self._play_at_random(seed, left)
                lowest, left = min(lowest, *paid.values()), left - actions
        return lowest

    async def _play_at_random(self, seed: int, most: int) -> tuple[dict[str, float], int]:
        """What each seat was paid in a game of at most so many actions, and how many it had. What
        cannot be played is left for the run to tell.
        """
        live, rng = self.open_live(), rng_of(("random play", seed))
        paid, n = dict.fromkeys(self.sides, 0.0), 0
        try:
            scene: Scene = await await_if_needed(live.start(seed))
            while not scene.status and n < most:
                action, n = live.sample(rng, "random"), n + 1
                scene = await await_if_needed(live.act(action))
                paid |= {seat: paid[seat] + x for seat, x in scene.pay.items()}
        except Exception:
            return paid, max(n, 1)
        finally:
            with suppress(Exception):
                await await_if_needed(live.close())
        return paid, max(n, 1)

    # ---- a world

    @property
    def seats(self) -> tuple[str, ...]:
        return self.sides if self.opponent == "self" else (POLICY,)

    @property
    def size(self) -> int | None:
        """Training tasks; None = endless."""
        return None

    @property
    def test_size(self) -> int | None:
        """Held-out tasks; None = endless."""
        return None

    @property
    def caveat(self) -> str:
        """One line for the reader of a result."""
        return "held-out episodes differ from the trained ones by their seed alone"

    def task(self, split: str, index: int) -> Task:
        """An episode is a seed; the policy plays the seats in turn, where it has only one."""
        seed = seed_of((self.label, split, index)) % SEEDS
        plays = "" if self.opponent == "self" else self.sides[index % len(self.sides)]
        return Task(
            id=f"{self.label}/{split}/{index}",
            meta={"seed": seed, "plays": plays},
            domain=self.label,
        )

    async def reset(self, task: Task, key: Key) -> Frame:
        trail = Trail(seed=task.meta["seed"], plays=task.meta["plays"])
        live, scene = await self._play_anew(trail)
        return await self._or_end(live, self._go_on(trail, live, scene))

    async def step(self, state: Trail, acts: tuple[Act, ...], key: Key) -> Frame:
        live, scene = self.lives.take(state) or await self._play_anew(state)
        trail = replace(state, turns=state.turns + 1)
        return await self._or_end(live, self._reply(trail, live, scene, self.said(acts[0])))

    # ---- how

    async def _or_end(self, live: Live, going: Coroutine[Any, Any, Frame]) -> Frame:
        """What comes of it; where that is an error, nobody goes on from there."""
        try:
            return await going
        except BaseException:
            await self.lives.end(live)
            raise

    async def _reply(self, trail: Trail, live: Live, scene: Scene, text: str) -> Frame:
        try:
            action = live.read(text)
            after: Scene = await await_if_needed(live.act(action))
        except Illegal as why:
            return await self._refuse(trail, live, scene, str(why))
        done = replace(trail, actions=(*trail.actions, action), executed=(*trail.executed, True))
        return await self._go_on(done, live, after)

    async def _play_anew(self, trail: Trail) -> tuple[Live, Scene]:
        """A fresh environment brought to where a trail ends."""
        live = await self.lives.begin(self.open_live)
        try:
            scene: Scene = await await_if_needed(self.start(live, trail))
            for action in trail.actions:
                scene = await await_if_needed(live.act(action))
            self._check_repeat(trail, scene)
        except BaseException:
            await self.lives.end(live)
            raise
        return live, scene

    def _check_repeat(self, trail: Trail, scene: Scene) -> None:
        if trail.seen and trail.seen != digest(scene):
            raise UserError(
                f"{self.label} does not repeat itself: after the same seed and actions it shows "
                "something else, so no episode of it can be forked; take a method that does not "
                "continue episodes, or an environment whose randomness follows its seed"
            )

    async def _go_on(self, trail: Trail, live: Live, scene: Scene) -> Frame:
        """The frame after a scene; where others are to move, after they have."""
        pay = dict(scene.pay)
        while not scene.status and trail.plays not in ("", scene.seat):
            action = self._answer(trail, live, scene)
            scene = await await_if_needed(live.act(action))
            trail = replace(trail, actions=(*trail.actions, action))
            for seat, amount in scene.pay.items():
                pay[seat] = pay.get(seat, 0.0) + amount
        trail = replace(trail, seen=digest(scene))
        if scene.status or trail.turns >= self.max_turns:
            return await self._end(trail, live, pay, scene, "truncated:turns")
        first = scene.seat not in trail.asked
        trail = replace(trail, asked=(*trail.asked, scene.seat)) if first else trail
        description = self.describe() if first or not self.memory else ""
        frame = self._ask(trail, scene, pay, "\n\n".join(filter(None, (description, scene.text))))
        await self.lives.keep(trail, live, scene)
        return frame

    def _answer(self, trail: Trail, live: Live, scene: Scene) -> str:
        """What another player does."""
        rng = rng_of(("opponent", trail.seed, len(trail.actions)))
        who = self.opponent
        if isinstance(who, str):
            return live.sample(rng, who)
        reply = who((Message(role="user", content=scene.text),), rng)
        try:
            return live.read(reply)
        except Illegal as why:
            raise UserError(f"{self.label}: the opponent says {reply!r}; {why}") from None

    async def _refuse(self, trail: Trail, live: Live, scene: Scene, why: str) -> Frame:
        """Asks again, or ends the episode."""
        trail = replace(trail, illegal=trail.illegal + 1, executed=(*trail.executed, False))
        if trail.illegal > self.retries:
            return await self._end(trail, live, self.forfeit(scene.seat), scene, "finished")
        if trail.turns >= self.max_turns:
            return await self._end(trail, live, {}, scene, "truncated:turns")
        texts = (why,) if self.memory else (self.describe(), why, scene.text)
        frame = self._ask(trail, scene, {}, "\n\n".join(filter(None, texts)))
        await self.lives.keep(trail, live, scene)
        return frame

    def forfeit(self, seat: str) -> Mapping[str, float]:
        """The pay where a player gives no action to the last."""
        return {seat: self.penalty or 0.0}

    def _ask(self, trail: Trail, scene: Scene, pay: Mapping[str, float], text: str) -> Frame:
        ask = Ask(
            seat=self._seat(trail, scene.seat),
            say=(*scene.before, Message(role="user", content=text)),
            new_row=not self.memory,
        )
        return Frame(
            state=trail,
            asks=(ask,),
            pay=self._pay(trail, {s: x for s, x in pay.items() if x}),
            facts=self._facts(trail, scene),
            state_key=scene.text,
        )

    async def _end(
        self, trail: Trail, live: Live, pay: Mapping[str, float], scene: Scene, status: str
    ) -> Frame:
        """The last frame: as the scene ends, else with `status`. Everybody is paid, be it nothing."""
        frame = Frame(
            state=trail,
            pay=self._pay(trail, dict.fromkeys(self.sides, 0.0) | dict(pay)),
            facts=self._facts(trail, scene),
            state_key=scene.text,
            status=scene.status or status,
        )
        await self.lives.end(live)
        return frame

    def _seat(self, trail: Trail, player: str) -> str:
        return POLICY if trail.plays else player

    def _pay(self, trail: Trail, pay: Mapping[str, float]) -> dict[tuple[str, str], float]:
        """By seat and thread; what players are paid who are not trained is nobody's."""
        for player, amount in pay.items():
            if not math.isfinite(amount):
                raise Fault("environment", f"{self.label} pays {amount} to {player}")
        return {
            (self._seat(trail, player), ""): float(amount)
            for player, amount in pay.items()
            if trail.plays in ("", player)
        }

    def _facts(self, trail: Trail, scene: Scene) -> dict[str, Any]:
        counts = {"actions": len(trail.actions), "illegal": trail.illegal}
        return {"executed": trail.executed, **scene.facts, **counts}


@declare(columns=("seed", "plays"))
@stage
class AdaptedTasks:
    """The episodes of an adapted world."""

    world: AdaptedWorld
    name: str

    @property
    def size(self) -> int | None:
        return self.world.size

    @property
    def test_size(self) -> int | None:
        return self.world.test_size

    @property
    def caveat(self) -> str:
        return self.world.caveat

    def task(self, split: str, index: int) -> Task:
        return self.world.task(split, index)


def digest(scene: Scene) -> str:
    """Of what can be seen of a scene, as far as a player can tell."""
    seen = repr((scene.seat, scene.before, scene.text, scene.status, sorted(scene.pay.items())))
    return hashlib.blake2b(seen.encode(), digest_size=8).hexdigest()


@contextmanager
def library_call(label: str) -> Generator[None]:
    """What another library raises inside is a fault of the environment: a status, not a reward."""
    try:
        yield
    except PalaestraError:
        raise
    except Exception as error:
        what = " ".join(str(error).split())[:300]
        raise Fault("environment", f"{label}: {type(error).__name__}: {what}") from error


def label_of(prefix: str, make: str | Callable[[], Any]) -> str:
    """What an environment is called in messages: by its name, or by the function that makes it."""
    name = make if isinstance(make, str) else getattr(make, "__name__", type(make).__name__)
    return f"{prefix}:{name}"


def missing_library(what: str, library: str, extra: str, error: ImportError) -> UserError:
    """What to install where a library cannot be imported."""
    return UserError(f"{what} needs {library} ({error}): pip install 'palaestra[{extra}]'")


# ---- text


def last_named(text: str, names: Collection[str]) -> str | None:
    """The name that stands last in a reply, as a word of its own, in any letter case; None = none.

    >>> last_named("not left, so Right.", ("left", "right"))
    'right'
    """
    known = {n.lower(): n for n in names}
    longest_first = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
    names_found = re.findall(rf"(?<![\w.-])(?:{longest_first})(?!\w|-\w|\.\d)", text.lower())
    return known[names_found[-1]] if names_found else None


def named_action(text: str, names: Sequence[str]) -> str:
    """The same, for actions that must be named. Raises Illegal."""
    name = last_named(text, names) if names else None
    if name is None:
        raise Illegal(f"That is no legal action. Reply with one of: {', '.join(names)}")
    return name


def show(value: Any) -> str:
    """An observation as text: numbers, lists in JSON, a line for each entry of a dictionary."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "\n".join(f"{k}: {show(v)}" for k, v in value.items())
    return json.dumps(plain(value))


def plain(value: Any) -> Any:
    """Arrays and numbers of numpy as lists and numbers, fractions to four digits."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float):
        return round(value, 4)
    return value if isinstance(value, str | int | bool | None) else str(value)
