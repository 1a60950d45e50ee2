"""Who fills a seat: the engine's model, or a script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile

from palaestra.abilities import SeesPictures
from palaestra.context import Engine
from palaestra.errors import Fault, UserError
from palaestra.types import (
    Ask,
    Call,
    Choices,
    Completion,
    Dialect,
    Key,
    Malformed,
    Message,
    Moves,
    Replies,
    Row,
    Sampling,
    Segment,
    ToolSchema,
    rng_of,
    value_class,
)


async def continue_row(
    engine: Engine, row: Row, reply: tuple[int, ...], sampling: Sampling, key: Key
) -> Completion:
    """What an engine says after a row and the ids `said`. Raises UserError where the row holds
    pictures, which the engine cannot show to its model.
    """
    prompt, pictures = (*row.context(), *reply), row.pictures
    if not pictures:
        return await engine.generate(prompt, sampling, key)
    if not isinstance(engine, SeesPictures):
        raise UserError(
            f"{type(engine).__name__} cannot show pictures to its model; use the engine 'own'"
        )
    return await engine.generate_seeing(prompt, pictures, sampling, key)


@value_class
class EnginePlayer:
    """A model behind an engine. `policy` names the learner that trains on what it says;
    "" = none.
    """

    engine: Engine
    sampling: Sampling
    name: str = "policy"
    policy: str = "policy"
    dialect: Dialect | None = None  # of calls; None = as the model's family writes them

    @property
    def temperature(self) -> float:
        """Of the sampling; greedy tokens are trained on, if at all, at temperature 1."""
        return self.sampling.temperature or 1.0

    def hear(self, ask: Ask, *, first: bool, closed: bool, turn: int) -> tuple[Segment, ...]:
        dialect = self.engine.dialect
        say, tools = shown_tools(ask.say, ask.tools, self.dialect, first=first)
        pieces = dialect.extend(say, first=first, closed=closed, tools=tools)
        heard = tuple(
            Segment(
                ids=p.ids,
                author=p.author,
                hidden=p.hidden,
                trained=p.trained,
                policy=self.policy if p.trained else "",
                turn=turn,
                text=p.text,
                pictures=p.pictures,
            )
            for p in pieces
        )
        if ask.shown:
            ids = dialect.encode_text(ask.shown)
            heard = (*heard, Segment(ids=ids, turn=turn, text=ask.shown))
        if prefix := after_opening(heard, ask.prefix):
            forced = Segment(
                ids=dialect.encode_text(prefix), author="forced", turn=turn, text=prefix
            )
            heard = (*heard, forced)
        return heard

    def limit(self, ask: Ask) -> int:
        """Tokens of a turn: what the world asks for, else what the sampling allows."""
        return ask.max_tokens or self.sampling.max_tokens

    def stop(self, ask: Ask) -> tuple[str, ...]:
        """Strings that end a turn."""
        more = self.dialect.stops(ask.tools) if self.dialect and ask.tools else ()
        return (*(ask.stop or self.sampling.stop), *more)

    def replies(self, ask: Ask) -> Replies:
        """The legal ones in tokens, none where any is.

        Raises UserError for two that are spelled alike.
        """
        dialect = self.engine.dialect
        texts = dict[tuple[int, ...], str]()
        for text in ask.choices or ():
            ids = (*dialect.encode_text(text), dialect.end)
            if ids in texts:
                raise UserError(f"the choices {texts[ids]!r} and {text!r} are spelled alike")
            texts[ids] = text
        return tuple(texts)

    async def act(self, row: Row, messages: tuple[Message, ...], ask: Ask, key: Key) -> Completion:
        own = self.sampling.temperature
        sampling = replace(
            self.sampling,
            temperature=own if ask.temperature is None else ask.temperature,
            max_tokens=self.limit(ask),
            stop=self.stop(ask),
            choices=self.replies(ask),
        )
        return await continue_row(self.engine, row, (), sampling, key)

    def parse(self, text: str, finish: str) -> Call | Malformed | None:
        return self.engine.dialect.parse(text, finish)

    def read_calls(
        self, text: str, finish: str, tools: tuple[ToolSchema, ...]
    ) -> tuple[Call | Malformed, ...]:
        read = self.dialect.read if self.dialect else self.engine.dialect.read_calls
        return read(text, finish, tools)


def after_opening(heard: Sequence[Segment], reply: str) -> str:
    """A reply without the beginning that is forced on it by what was heard, such as the "<think>"
    of a chat template; the whole reply where it does not begin so.
    """
    forced = takewhile(lambda s: s.author == "forced", reversed(heard))
    opening = "".join(s.text for s in reversed(list(forced)))
    begun = opening.strip()
    if not begun or not reply.lstrip().startswith(begun):
        return reply
    rest = reply.lstrip().removeprefix(begun)
    return rest.removeprefix(opening[len(opening.rstrip()) :])


def shown_tools(
    say: tuple[Message, ...], tools: tuple[ToolSchema, ...], dialect: Dialect | None, *, first: bool
) -> tuple[tuple[Message, ...], tuple[ToolSchema, ...]]:
    """Messages as a bench's dialect shows its tools in a first turn, and the tools that are left to
    the chat template: all where the bench has no dialect.
    """
    if dialect is None or not tools:
        return say, tools
    return (dialect.show(say, tools) if first else say), ()


@value_class
class Resuming:
    """A player who speaks for another one, and hears and reads as that one does."""

    player: EnginePlayer

    @property
    def name(self) -> str:
        return self.player.name

    @property
    def policy(self) -> str:
        return self.player.policy

    @property
    def temperature(self) -> float:
        return self.player.temperature

    def hear(self, ask: Ask, *, first: bool, closed: bool, turn: int) -> tuple[Segment, ...]:
        return self.player.hear(ask, first=first, closed=closed, turn=turn)

    def parse(self, text: str, finish: str) -> Call | Malformed | None:
        return self.player.parse(text, finish)

    def read_calls(
        self, text: str, finish: str, tools: tuple[ToolSchema, ...]
    ) -> tuple[Call | Malformed, ...]:
        return self.player.read_calls(text, finish, tools)


@value_class
class Continued(Resuming):
    """Says again what was `said`, token by token, and goes on as `player` where that breaks off: a
    branch of an episode.

    A whole segment (it has a `finish`) is repeated as it is, an open one is continued in its turn,
    later turns are the player's own. Repeated tokens keep their log-probs and versions. A turn that
    only `cap` ends, before it was as long as player and world allow, is left open.
    """

    said: tuple[Segment, ...] = ()
    cap: int = 0  # tokens that a turn may gain; 0 = all it may have

    async def act(self, row: Row, messages: tuple[Message, ...], ask: Ask, key: Key) -> Completion:
        begun = (s for s in self.said if s.turn == key[-1])  # a turn's key ends with its number
        before = next(begun, Segment(ids=()))
        logp, stop = before.logp or (), self.player.stop(ask)
        if before.finish:
            cut = _cut(before.text, stop) if before.finish == "stop" else len(before.text)
            return Completion(
                ids=before.ids,
                logp=logp,
                text=before.text,
                cut=cut,
                finish=before.finish,
                version=before.version,
                moved=before.moved,
                choices=before.choices,
                experts=before.experts,
            )
        if ask.choices is not None:
            return await self._choose(row, before, ask, key)
        room = max(self.player.limit(ask) - len(before.ids), 1)
        sampling = replace(self.player.sampling, max_tokens=min(self.cap or room, room), stop=stop)
        try:
            more = await continue_row(self.player.engine, row, before.ids, sampling, key)
        except Fault as fault:
            if fault.cause != "context" or not before.ids:
                raise
            # what was said fills the context
            more = Completion(ids=(), logp=(), text="", cut=0, finish="length")
        ids, decode = (*before.ids, *more.ids), self.player.engine.dialect.decode
        finish = "" if more.finish == "length" and len(more.ids) == self.cap < room else more.finish
        text = decode(ids[:-1] if finish == "eos" else ids)
        # perhaps begun in what was said before, where the engine does not look
        if any(s in text for s in stop):
            ends = (
                n
                for n in range(len(before.ids) + 1, len(ids))
                if any(s in decode(ids[:n]) for s in stop)
            )
            ids, finish = ids[: next(ends, len(ids))], "stop"
            text = decode(ids)
        return Completion(
            ids=ids,
            logp=(*logp, *more.logp)[: len(ids)],
            text=text,
            cut=_cut(text, stop),
            finish=finish,
            version=more.version if before.version is None else before.version,
            moved=_joined(before, more, len(ids)),
            experts=more.experts,
        )

    async def _choose(self, row: Row, before: Segment, ask: Ask, key: Key) -> Completion:
        """One of the replies that begin with what was said: the rest of the restricted
        distribution. `cap` does not cut it.
        """
        replies, n = self.player.replies(ask), len(before.ids)
        rest = tuple(r[n:] for r in replies if r[:n] == before.ids)
        if not rest:
            raise UserError("the world strays: no legal reply begins like the one to be continued")
        sampling = replace(self.player.sampling, choices=rest)
        more = await continue_row(self.player.engine, row, before.ids, sampling, key)
        assert more.choices is not None
        seen = before.choices.log_mass if before.choices else more.choices.log_mass
        ids = (*before.ids, *more.ids)
        text = self.player.engine.dialect.decode(ids[:-1])
        return replace(
            more,
            ids=ids,
            logp=(*(before.logp or ()), *more.logp),
            text=text,
            cut=len(text),
            version=more.version if before.version is None else before.version,
            moved=_joined(before, more, len(ids)),
            choices=Choices(ids=replies, log_mass=seen),
        )


@value_class
class Handover(Resuming):
    """A turn that another author begins: what was `said` stands at its start, as a segment of its
    own with its own policy, trained flag and log-probs, and `player` goes on from there.

    The ids are never tokenised again. The turn is the one that `said` names; it is no longer than
    others, what was said included. Who began gets no credit for what follows but through the
    reward: say trained=True, and whose policy it is, where the start is to be learned from.
    """

    said: Segment

    def hear(self, ask: Ask, *, first: bool, closed: bool, turn: int) -> tuple[Segment, ...]:
        heard = self.player.hear(ask, first=first, closed=closed, turn=turn)
        return (*heard, self.said) if turn == self.said.turn else heard

    async def act(self, row: Row, messages: tuple[Message, ...], ask: Ask, key: Key) -> Completion:
        if key[-1] == self.said.turn:  # a turn's key ends with its number
            if ask.choices is not None:
                raise UserError(
                    "the world says which replies are legal, so none can begin with what another "
                    "author says; show guidance in the prompt"
                )
            room = max(self.player.limit(ask) - len(self.said.ids), 1)
            ask = replace(ask, max_tokens=room)
        return await self.player.act(row, messages, ask, key)


def _joined(before: Segment, more: Completion, length: int) -> Moves:
    """Where newer weights took over in what goes on from `before`."""
    at = len(before.ids)
    if before.version is None or more.version is None:
        return tuple((at + i, v) for i, v in more.moved)
    last = before.moved[-1][1] if before.moved else before.version
    took_over = ((at, more.version),) if more.version != last else ()
    moved = (*before.moved, *took_over, *((at + i, v) for i, v in more.moved))
    return tuple((i, v) for i, v in moved if i < length)


def _cut(text: str, stop: tuple[str, ...]) -> int:
    """Where the first stop string ends."""
    return min((text.find(s) + len(s) for s in stop if s in text), default=len(text))


@value_class
class Script:
    """Plays `fn(messages, rng) -> text`. It has no tokens, so nothing can be trained on it."""

    fn: Callable[..., str]
    name: str = "script"
    policy: str = ""
    temperature: float = 1.0

    def hear(self, ask: Ask, *, first: bool, closed: bool, turn: int) -> tuple[Segment, ...]:
        return tuple(Segment(ids=(), author=m.author, turn=turn, text=m.content) for m in ask.say)

    async def act(self, row: Row, messages: tuple[Message, ...], ask: Ask, key: Key) -> Completion:
        text = self.fn(messages, rng_of(key))
        return Completion(ids=(), logp=(), text=text, cut=len(text), finish="eos")

    def parse(self, text: str, finish: str) -> Call | Malformed | None:
        return None
