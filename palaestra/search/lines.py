"""An answer line by line: what a search over steps writes, drops and goes on with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from palaestra.context import Context, Engine
from palaestra.errors import Fault, UserError
from palaestra.rollout.play import frame_of
from palaestra.rollout.player import EnginePlayer, continue_row
from palaestra.types import Episode, Key, Row, Sampling, Segment, Task, value_class
from palaestra.worlds.question import Question

if TYPE_CHECKING:
    from palaestra.types import Ask

END_OF_LINE = "\n"


@value_class
class PartialAnswer:
    """The beginning of an answer: its tokens, their log-probs in nats, and whether it has ended:
    "" = it can be gone on with, "eos" = the model ended it, "length" = it was cut.
    """

    ids: tuple[int, ...] = ()
    logp: tuple[float, ...] = ()
    finish: str = ""

    @property
    def confidence(self) -> float:
        """Mean log-prob of its tokens; 0 where it has none."""
        return float(np.mean(self.logp)) if self.logp else 0.0


@dataclass(frozen=True)
class LineWriter:
    """Writes lines of answers to one question.

    Args:
        engine: what samples.
        row: the prompt, as the model reads it.
        turn: who is asked, and how long the answer may be.
        sampling: of the answers.
    """

    engine: Engine
    row: Row
    ask: Ask
    player: EnginePlayer
    sampling: Sampling

    async def write(self, start: PartialAnswer, key: Key) -> PartialAnswer | None:
        """One more line, its end included. None where nothing could be sampled.

        Args:
            start: the beginning that it goes on from, which has not ended.
            key: of its random stream.
        """
        room = self.player.limit(self.ask) - len(start.ids)
        stops = self.player.stop(self.ask)
        sampling = replace(self.sampling, max_tokens=room, stop=(*stops, END_OF_LINE))
        try:
            more = await continue_row(self.engine, self.row, start.ids, sampling, key)
        except Fault as fault:
            if fault.cause == "context" and start.ids:  # the beginning fills the context
                return replace(start, finish="length")
            return None
        ids = (*start.ids, *more.ids)
        line_end = more.finish == "stop" and not any(s in more.text for s in stops)
        full = line_end and len(ids) >= self.player.limit(self.ask)
        finish = "length" if full else "" if line_end else more.finish
        return PartialAnswer(ids=ids, logp=(*start.logp, *more.logp), finish=finish)

    def text(self, answer: PartialAnswer) -> str:
        """What it says so far."""
        ids = answer.ids[:-1] if answer.finish == "eos" else answer.ids
        return self.engine.dialect.decode(ids)

    def episode(self, answer: PartialAnswer) -> Episode:
        """It as an episode, unjudged; one that has not ended breaks off there."""
        segment = Segment(
            ids=answer.ids,
            author=self.player.name,
            policy=self.player.policy,
            trained=True,
            logp=answer.logp,
            temperature=self.player.temperature,
            version=self.engine.version,
            text=self.text(answer),
            finish="eos" if answer.finish in ("eos", "stop") else "length",
        )
        status = "finished" if answer.finish in ("eos", "stop") else "truncated:length"
        return Episode(rows=(self.row.add(segment),), status=status)


async def line_writer(ctx: Context, key: Key, task: Task, temperature: float) -> LineWriter:
    """What writes answers to a task. Raises UserError where it is no question with one answer."""
    if not isinstance(ctx.bench.world, Question):
        raise UserError(
            f"{ctx.bench.name} is a world of several turns, and this strategy writes one answer line "
            "by line; search it with mcts, best-of-n or majority"
        )
    if temperature <= 0:
        raise UserError("temperature 0 writes the same line each time; give one above 0")
    frame = await frame_of(ctx.bench.world.reset(task, (*key, "world")))
    (ask,) = frame.asks
    sampling = Sampling(temperature=temperature, max_tokens=ctx.bench.max_tokens)
    player = ctx.cast("policy", sampling)[ask.seat]
    if not isinstance(player, EnginePlayer):
        raise UserError("an endpoint cannot go on from the beginning of an answer")
    heard = player.hear(ask, first=True, closed=False, turn=0)
    row = Row(segments=tuple(heard), seat=ask.seat)
    return LineWriter(engine=player.engine, row=row, ask=ask, player=player, sampling=sampling)


def unlike(answers: Sequence[PartialAnswer | None]) -> list[PartialAnswer]:
    """Those that could be written, each once, in order."""
    return list({a.ids: a for a in answers if a is not None}.values())
