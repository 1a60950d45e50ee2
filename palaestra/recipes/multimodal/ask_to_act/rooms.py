"""Episodes in places with look-alike objects, and what they are paid."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import palaestra as pl
from palaestra.recipes.multimodal.ask_to_act.people import (
    ModelKnower,
    ModelQuestionJudge,
    SeatedUser,
)


def own_world(ctx: pl.Context) -> Any:
    """The environment that a user brings in place of records; None where rows are records."""
    world = ctx.bench.world
    return None if isinstance(world, pl.worlds.AskingRoom | pl.worlds.Question) else world


async def check_records(ctx: pl.Context) -> None:
    """Raises UserError for the first row that is no record."""
    tasks = ctx.bench.tasks
    sizes = {"train": tasks.size, "test": getattr(tasks, "test_size", None)}
    for split, size in sizes.items():
        for i in range(min(size or 0, 512)):
            pl.worlds.read_record(tasks.task(split, i))


@pl.stage
class ShowRooms:
    """Adds an episode of a program that knows the record: it asks what singles the object out, then fetches it."""

    room: pl.worlds.AskingRoom = pl.worlds.AskingRoom()
    recorded: ClassVar[bool] = True

    async def check_start(self, ctx: pl.Context) -> None:
        """Raises UserError for a row that is no record, an environment in their place, and too few turns."""
        if own_world(ctx) is not None:
            raise pl.UserError(
                "ask-to-act: shown=N imitates a program that knows records, and an environment of yours has none; imitate "
                "episodes of yours first (palaestra train sft), then start from that model"
            )
        await check_records(ctx)
        tasks = ctx.bench.tasks
        for i in range(min(tasks.size or 8, 64)):
            task = tasks.task("train", i)
            needed = await self._turns(task)
            if needed > self.room.turns:
                raise pl.UserError(
                    f"task {task.id!r}: the program that is imitated needs {needed} turns there; raise turns, which is "
                    f"{self.room.turns}"
                )

    async def _turns(self, task: pl.Task) -> int:
        room, key = replace(self.room, turns=64), ("shown", task.id)
        frame, n = room.reset(task, key), 0
        while frame.asks:
            act = pl.Act(
                ask=frame.asks[0],
                text=room.oracle(frame.state),
                call=None,
                finish="eos",
                n_tokens=0,
            )
            frame, n = await room.step(frame.state, (act,), key), n + 1
        return n

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        there = replace(ctx.bench, world=self.room, max_turns=self.room.turns + 1)
        return await pl.Demonstrate()(ctx.with_bench(there), key, group)


@pl.stage
class SampleRooms(pl.Sample):
    """Plays `n` episodes of the policy in places with look-alike objects.

    Args:
        room: the world with its weights.
        user, judge: models that play them; None = programs.
    """

    room: pl.worlds.AskingRoom = pl.worlds.AskingRoom()
    user: pl.Source | None = None
    judge: pl.Source | None = None
    brings_reward: ClassVar[bool] = True
    turns_setting: ClassVar[str] = "turns"

    async def check_start(self, ctx: pl.Context) -> None:
        """Raises UserError for a row that is no record, or an environment whose user nobody plays."""
        world = own_world(ctx)
        if world is None:
            return await check_records(ctx)
        self._asked(ctx, world)
        return None

    def _asked(self, ctx: pl.Context, world: Any) -> pl.worlds.AskedUser:
        """An environment of the user's own, with a model on its seat `user`. Raises UserError."""
        room = self.room
        if self.user is None:
            raise pl.UserError(
                "ask-to-act: the seat `user` of an environment is played by a model; give user="
            )
        if self.judge is None and room.useful:
            raise pl.UserError(
                "ask-to-act: which question is useful in an environment of yours says a model; give judge=, or useful=0"
            )
        judge = None if self.judge is None else ModelQuestionJudge(ctx, self.judge).in_environment
        player = SeatedUser(ctx, self.user)
        return pl.worlds.AskedUser(
            world=world,
            user=player,
            judge=judge,
            budget=room.budget,
            useful=room.useful,
            step_cost=room.step_cost,
            over=room.over,
        )

    async def play(
        self,
        ctx: pl.Context,
        key: pl.Key,
        group: pl.Group,
        players: Mapping[str, pl.Player],
    ) -> pl.Group:
        world: Any = own_world(ctx)
        if world is None:
            room: Any = replace(
                self.room,
                user=None if self.user is None else ModelKnower(ctx, self.user),
                judge=None if self.judge is None else ModelQuestionJudge(ctx, self.judge),
            )
        else:
            room = self._asked(ctx, world)
        there = replace(ctx.bench, world=room, max_turns=self.room.turns + 1)
        return await super().play(ctx.with_bench(there), key, group, players)


@pl.declare(reads=("correct", "asked_useful", "ars"))
@pl.stage
class RoomParts:
    """A link behind `SampleRooms`. Parts, each as it was paid: "success", "subgoals", "useful", "over"; and "ars". In
    an environment of the user's own "earned", what that paid, "useful" and "over".
    """

    room: pl.worlds.AskingRoom = pl.worlds.AskingRoom()

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        enough = getattr(ctx.bench.world, "solved", None) if ctx else None
        return replace(group, episodes=tuple(self._told(e, enough) for e in group.episodes))

    def _told(self, e: pl.Episode, enough: float | None) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        room, facts = self.room, e.facts
        if "earned" in facts:
            over, earned = room.over * facts["over_budget"], facts["earned"]
            useful = e.reward.total - earned + over + room.step_cost * facts["turns"]
            solved = None if enough is None else earned >= enough
            own = {"earned": earned, "useful": round(useful, 9), "over": -over}
            return replace(e, reward=replace(e.reward, parts=own, solved=solved))
        success = room.success * facts["correct"]
        subgoals = room.subgoal * facts["subgoals"]
        over = room.over * facts["over_budget"]
        useful = e.reward.total - success - subgoals + over + room.step_cost * facts["turns"]
        parts = {
            "success": success,
            "subgoals": subgoals,
            "useful": round(useful, 9) if room.useful else 0.0,
            "over": -over,
            "ars": facts["ars"],
        }
        return replace(e, reward=replace(e.reward, parts=parts, solved=bool(facts["correct"])))
