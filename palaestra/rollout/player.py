"""Who fills a seat: the engine's model, or a script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from palaestra.rollout.engines import Engine
from palaestra.types import Ask, Call, Key, Malformed, Message, Row, Sample, Sampling, Segment, rng_of, value


@value
class EnginePlayer:
    """A model behind an engine. `policy` names the learner that trains on what it says; "" = none."""

    engine: Engine
    sampling: Sampling
    name: str = "policy"
    policy: str = "policy"

    @property
    def temperature(self) -> float:
        """Of the sampling; greedy tokens are trained on, if at all, at temperature 1."""
        return self.sampling.temperature or 1.0

    def hear(self, ask: Ask, *, first: bool, closed: bool, turn: int) -> tuple[Segment, ...]:
        dialect = self.engine.dialect
        pieces = dialect.extend(ask.say, first=first, closed=closed)
        heard = tuple(
            Segment(
                ids=p.ids,
                author=p.author,
                hidden=p.hidden,
                trained=p.trained,
                policy=self.policy if p.trained else "",
                turn=turn,
                text=p.text,
            )
            for p in pieces
        )
        if ask.prefix:
            forced = Segment(ids=dialect.encode_text(ask.prefix), author="forced", turn=turn, text=ask.prefix)
            heard = (*heard, forced)
        return heard

    async def act(self, row: Row, messages: tuple[Message, ...], ask: Ask, key: Key) -> Sample:
        limit = ask.max_tokens or self.sampling.max_tokens
        sampling = replace(self.sampling, max_tokens=limit, stop=ask.stop or self.sampling.stop)
        return await self.engine.generate(row.context(), sampling, key)

    def parse(self, text: str, finish: str) -> Call | Malformed | None:
        return self.engine.dialect.parse(text, finish)


@value
class Script:
    """Plays `fn(messages, rng) -> text`. It has no tokens, so nothing can be trained on it."""

    fn: Callable[..., str]
    name: str = "script"
    policy: str = ""
    temperature: float = 1.0

    def hear(self, ask: Ask, *, first: bool, closed: bool, turn: int) -> tuple[Segment, ...]:
        return tuple(Segment(ids=(), author=m.author, turn=turn, text=m.content) for m in ask.say)

    async def act(self, row: Row, messages: tuple[Message, ...], ask: Ask, key: Key) -> Sample:
        text = self.fn(messages, rng_of(key))
        return Sample(ids=(), logp=(), text=text, cut=len(text), finish="eos")

    def parse(self, text: str, finish: str) -> Call | Malformed | None:
        return None
