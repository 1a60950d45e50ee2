"""Demonstrations of whole games: what a world's oracle says, as episodes to imitate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from palaestra.abilities import HoldsEpisodes, Solves
from palaestra.errors import Fault, UserError
from palaestra.rollout.play import Shortens, await_if_needed, frame_of, play
from palaestra.rollout.player import EnginePlayer, after_opening
from palaestra.types import (
    Act,
    Ask,
    Call,
    Completion,
    Frame,
    Group,
    Key,
    Message,
    Reward,
    Row,
    Sampling,
    Segment,
    Task,
    World,
    value_class,
)

if TYPE_CHECKING:
    from palaestra.context import Context


async def play_as_oracle(ctx: Context, key: Key, group: Group, model: str) -> Group:
    """Adds an episode in which the world's oracle says what the model would: trained, without age,
    of unknown behaviour log-probs. Seats with players of their own keep these; turns that happen at
    the same time see the state before any of them.

    Raises UserError where the oracle does not bring the game to its end.
    """
    world = PlayedByOracle(world=ctx.bench.world)
    sampling = Sampling(max_tokens=ctx.bench.max_tokens)
    engine = ctx.engine(model)
    player = OraclePlayer(
        engine=engine,
        sampling=sampling,
        policy=model,
        world=world,
        context=ctx.model(model).context,
    )
    cast = {
        seat: player if isinstance(p, EnginePlayer) else p
        for seat, p in ctx.cast(model, sampling).items()
    }
    turns, index = ctx.bench.max_turns, len(group.episodes)
    played = await play(world, cast, group.task, (*key, index), (*key, "world"), max_turns=turns)
    if played.status != "finished":
        why = played.facts.get("error", played.status)
        raise UserError(f"task {group.task.id!r}: its oracle's game is not over: {why}")

    def recorded(s: Segment) -> Segment:
        known = {"author": "demonstration", "logp": None, "version": None}
        return replace(s, **known) if s.trained and s.policy == model else s

    rows = tuple(replace(r, segments=tuple(map(recorded, r.segments))) for r in played.rows)
    reward = Reward(total=1.0) if played.reward is None else played.reward
    made = replace(played, rows=rows, reward=replace(reward, judged=False))
    return replace(group, episodes=(*group.episodes, made))


class PlayedByOracle:
    """A world that says what its state is, to who plays by it."""

    def __init__(self, world: World) -> None:
        self.world, self.seats, self.state = world, world.seats, None

    @property
    def shorter(self) -> str:
        return self.world.shorter if isinstance(self.world, Shortens) else ""

    async def reset(self, task: Task, key: Key) -> Frame:
        return self._seen(await frame_of(self.world.reset(task, key)))

    async def step(self, state: Any, acts: tuple[Act, ...], key: Key) -> Frame:
        return self._seen(await frame_of(self.world.step(state, acts, key)))

    async def leave(self, state: Any) -> None:
        if isinstance(self.world, HoldsEpisodes):
            await await_if_needed(self.world.leave(state))

    def oracle(self) -> Any:
        """What should be said now; a world without an oracle has nothing to say."""
        if not isinstance(self.world, Solves):
            raise UserError(f"{type(self.world).__name__} has no oracle")
        return self.world.oracle(self.state)

    def _seen(self, frame: Frame) -> Frame:
        self.state = frame.state
        return frame


@value_class
class OraclePlayer(EnginePlayer):
    """Says what the oracle of a watched world says, in the model's tokens. A reply that ends with a
    stop string of the world stays open.
    """

    world: PlayedByOracle
    context: int  # tokens that the model can see

    async def act(self, row: Row, messages: tuple[Message, ...], ask: Ask, key: Key) -> Completion:
        reply = await await_if_needed(self.world.oracle())
        if isinstance(reply, Call):
            raise UserError("an oracle that calls tools cannot be imitated; let it say text")
        text = after_opening(row.segments, str(reply).removeprefix(ask.prefix))
        stopped = text.endswith(ask.stop) if ask.stop else False
        end = () if stopped else (self.engine.dialect.end,)
        ids = (*self.engine.dialect.encode_text(text), *end)
        room = self.context - len(row.context())
        if len(ids) > room:
            raise Fault(
                "context", f"the oracle says {len(ids)} tokens and there is room for {room}"
            )
        return Completion(
            ids=ids,
            logp=(0.0,) * len(ids),
            text=text,
            cut=len(text),
            finish="stop" if stopped else "eos",
            version=None,
        )
