"""Talks of the trained agent with users it has not met: held-out profiles, played by a language model,
or the tastes of the built-in problem, by a program.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.recipes.preference.imagined_dialogue.imagine import (
    LABEL,
    RecordedTalk,
    read_label,
)

DESCRIPTION = (
    "A user has six tastes, a to f, each yes or no. Recommend an item, such as take a1 for who likes a "
    "and take a0 for who does not, after asking as little as possible, such as ask a."
)
USER = (
    "You are this user, and talk with an agent:\n{profile}\n\nThe conversation so far:\n{talk}\n\nWrite what you "
    "say next, as they would, in one or two sentences. If there is nothing left to say, write DONE."
)


@pl.value_class
class TalkState:
    """A talk under way."""

    task: pl.Task
    talk: tuple[tuple[str, str], ...] = ()  # roles and texts


class SimulatedUser:
    """A user of a profile, whom a language model plays and who says at the end how far the agent
    came, from 0 to 1.
    """

    seats = ("policy",)
    bounds = (0.0, 1.0)

    def __init__(self, ctx: pl.Context, client: pl.Source, turns: int):
        self.ctx, self.client, self.turns = ctx, client, turns

    def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        turns = tuple((m.role, m.text) for m in task.prompt)
        ask = pl.Ask(seat="policy", say=task.prompt)
        return pl.Frame(state=TalkState(task=task, talk=turns), asks=(ask,))

    async def step(self, state: TalkState, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        profile = str(state.task.meta["profile"])
        talk = RecordedTalk(messages=(*state.talk, ("assistant", acts[0].text)), reward=0.0)
        turns = sum(role == "assistant" for role, _ in talk.messages)
        if turns < self.turns:
            reply = await self._ask(USER.format(profile=profile, talk=talk.text), 1.0, key)
            if reply and "DONE" not in reply:
                now = replace(state, talk=(*talk.messages, ("user", reply)))
                say = (pl.Message(role="user", content=reply),)
                return pl.Frame(state=now, asks=(pl.Ask(seat="policy", say=say),))
        task = "A conversation of an agent with a user."
        label = read_label(
            await self._ask(LABEL.format(task=task, profile=profile, talk=talk.text), 0.0, key)
        )
        if label is None:
            raise pl.Fault("unread", "the user gave no number from 0 to 1 for the conversation")
        now = replace(state, talk=talk.messages)
        return pl.Frame(state=now, pay={("policy", ""): label})

    async def _ask(self, question: str, temperature: float, key: pl.Key) -> str:
        request = pl.ChatRequest(
            messages=pl.services.question_messages(question),
            temperature=temperature,
            max_tokens=256,
        )
        reply = await self.ctx.ask(self.client, request, seed=pl.seed_of(key) % (1 << 31))
        return reply.rpartition("</think>")[2].strip().removeprefix("User:").strip()


@pl.stage
class HeldOutUsers:
    """The held-out dialogues of a run that have a profile, as tasks that begin at their first message
    of the user. `numbers` are theirs in the data.
    """

    tasks: pl.Tasks
    numbers: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.tasks.name

    @property
    def size(self) -> int | None:
        return 0

    @property
    def test_size(self) -> int | None:
        return len(self.numbers)

    def task(self, split: str, index: int) -> pl.Task:
        task = self.tasks.task("test", self.numbers[index])
        n = next(i for i, m in enumerate(task.prompt) if m.role == "user") + 1
        return replace(task, prompt=task.prompt[:n], meta={"profile": task.meta["profile"]})


def held_out_users(bench: pl.Bench, n: int) -> HeldOutUsers:
    """The first `n` of a run. Raises UserError where no held-out dialogue has a profile."""
    every = pl.run.chosen_tasks(bench, 1 << 30)
    numbers = [i for i in every if bench.tasks.task("test", i).meta.get("profile")]
    if not numbers:
        raise pl.UserError(
            "user= plays held-out profiles, and no held-out dialogue has one; give the data a column "
            "profile, or leave user= off"
        )
    return HeldOutUsers(bench.tasks, tuple(numbers[:n]))


@pl.stage
class TalkExam:
    """The mean reward of talks with users the agent has not met: "acting", as it acts, and "imitating",
    of the model pi_beta alone.

    Args:
        user: plays held-out profiles; None = the users of the built-in problem, by a program.
        n: users, at most.
        turns: of the agent.
    """

    user: pl.Source | None = None
    n: int = 32
    turns: int = 6
    temperature: float = 1.0

    async def __call__(self, ctx: pl.Context) -> Mapping[str, Any]:
        if self.user is None:
            world, tasks = pl.toys.TasteUser(), pl.toys.TasteTalks()
        else:
            world = SimulatedUser(ctx, self.user, self.turns)
            tasks = held_out_users(ctx.bench, self.n)
        bench = replace(ctx.bench, world=world, tasks=tasks, reward=None)
        head: Any = ctx.model("policy").heads["q"]
        strength, scores = head.strength, dict[str, Any]()
        try:
            for name, w in (("acting", strength), ("imitating", 0.0)):
                head.strength = w
                ctx.engine().forget()
                groups = await pl.run.attempt_tasks(
                    ctx.with_bench(bench),
                    self.n,
                    pl.Sample(n=1, temperature=self.temperature),
                    label=f"talks {name}",
                )
                scores[name] = pl.run.judge_held_out(groups, world.bounds).json()
        finally:
            head.strength = strength
            ctx.engine().forget()
        return scores
