"""A user's game of two seats, in which a model plays by strategies that are given as text."""

import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import palaestra as pl
from palaestra.recipes.games.sap.match import ChangePlan, PlayedMatch
from palaestra.recipes.games.sap.space import PlannedStrategy

TOLD = "Play by this strategy: {text}"
EXCERPT = (
    2_000  # characters of the opponent's replies in a game that a recogniser reads, the last ones
)


@dataclass(frozen=True, slots=True)
class PlannedGame:
    """A state of the game, and what each seat has said."""

    state: Any
    talk: tuple[tuple[str, str], ...] = ()


@pl.declare(facts=(("said_by_seat", tuple, "the replies of a game with the seat of each"),))
@pl.stage
class WithPlans:
    """A world in which each seat is told a strategy behind what it is shown in every turn."""

    world: Any
    plans: tuple[tuple[str, str], ...]

    @property
    def seats(self) -> tuple[str, ...]:
        return self.world.seats

    async def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        return self._planned(await _frame(self.world.reset(task, key)), ())

    async def step(self, state: PlannedGame, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        talk = (*state.talk, *((a.ask.seat, a.text) for a in acts))
        frame = await _frame(self.world.step(state.state, acts, key))
        return self._planned(frame, talk)

    def _planned(self, frame: pl.Frame, talk: tuple[tuple[str, str], ...]) -> pl.Frame:
        asks = tuple(replace(a, say=self._told(a)) for a in frame.asks)
        facts = {**frame.facts, "said_by_seat": talk}
        return replace(frame, state=PlannedGame(frame.state, talk), asks=asks, facts=facts)

    def _told(self, ask: pl.Ask) -> tuple[pl.Message, ...]:
        plan = dict(self.plans).get(ask.seat, "")
        if not ask.say or not plan:
            return ask.say
        last = ask.say[-1]
        text = f"{last.content}\n\n{TOLD.format(text=plan)}"
        return (*ask.say[:-1], replace(last, content=text))


async def _frame(made: pl.Frame | Awaitable[pl.Frame]) -> pl.Frame:
    """A world's method may be plain or async."""
    return made if isinstance(made, pl.Frame) else await made


@pl.stage
class PolicyInAllSeats:
    """The policy in every seat, whatever player the game has for one."""

    def __call__(
        self, ctx: pl.Context, key: pl.Key, sampling: pl.Sampling, seats: Mapping[str, pl.Player]
    ) -> dict[str, pl.Player]:
        player = pl.rollout.EnginePlayer(engine=ctx.engine("policy"), sampling=sampling)
        return dict.fromkeys(seats, player)


class SeatedGame:
    """Games of the policy with itself, each side by a strategy; who has which seat is drawn."""

    form = "Reply with the number of the strategy that the opponent plays by."

    def __init__(self, ctx: pl.Context, file: str, temperature: float) -> None:
        self.ctx, self.space = ctx, read_strategies(file)
        self.sample = pl.Sample(n=1, temperature=temperature, cast=PolicyInAllSeats())

    async def play(
        self,
        own: PlannedStrategy,
        other: PlannedStrategy,
        key: pl.Key,
        change: ChangePlan | None = None,
    ) -> PlayedMatch | None:
        """A game, through which each seat keeps its strategy; None where it broke off."""
        seats, rng = self.ctx.bench.world.seats, pl.rng_of(key)
        first = int(rng.integers(2))
        mine, theirs = seats[first], seats[1 - first]
        world = WithPlans(self.ctx.bench.world, ((mine, own.text), (theirs, other.text)))
        there = self.ctx.with_bench(replace(self.ctx.bench, world=world))
        task = self.ctx.bench.tasks.task("train", int(rng.integers(self._size())))
        group = await self.sample(there, key, pl.Group(task=task))
        episode = group.episodes[0]
        parts = {} if episode.reward is None else episode.reward.parts
        if pl.payment(mine) not in parts and pl.payment(theirs) not in parts:
            return None
        margin = parts.get(pl.payment(mine), 0.0) - parts.get(pl.payment(theirs), 0.0)
        their_words = "\n".join(
            t for seat, t in episode.facts.get("said_by_seat", ()) if seat == theirs
        )
        return PlayedMatch(
            won=int(margin > 0) - int(margin < 0), damage=0.0, seen=their_words[-EXCERPT:]
        )

    def _size(self) -> int:
        size = self.ctx.bench.tasks.size
        return 10_000 if size is None else max(1, size)

    def read(self, text: str) -> PlannedStrategy | None:
        """The strategy whose number, from 1, a recogniser names last."""
        number = pl.worlds.move_of(text)
        return self.space[number - 1] if number and number <= len(self.space) else None

    def recognise(self, seen: Sequence[str]) -> PlannedStrategy | None:
        """Only a model can."""
        return None


def read_strategies(file: str) -> tuple[PlannedStrategy, ...]:
    """The strategies of a file: a line each with a text and a vector. Raises UserError."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise pl.UserError(f"strategies={file}: no such file")
    form = 'a line is {"text": "attack early", "vector": [1, 0, 0.5]}, of all the same length'
    made = list[PlannedStrategy]()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line)
            vector = tuple(float(x) for x in row["vector"])
            text = str(row["text"]).strip()
        except (ValueError, TypeError, KeyError):
            raise pl.UserError(f"{file}:{number} cannot be read; {form}") from None
        if not text or not vector or len(vector) != len(made[0].vector if made else vector):
            raise pl.UserError(
                f"{file}:{number} has no text, or a vector of another length; {form}"
            )
        made.append(PlannedStrategy(name=str(row.get("name") or text), text=text, vector=vector))
    if len({s.vector for s in made}) != len(made) or len(made) < 4:
        raise pl.UserError(
            f"{file} has {len(made)} strategies, of which {len({s.vector for s in made})} have a vector of "
            "their own; give at least four, each with its own"
        )
    return tuple(made)
