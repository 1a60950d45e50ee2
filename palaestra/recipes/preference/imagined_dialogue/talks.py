"""Talks of the trained agent with users it has not met: held-out profiles, played by a language model,
or the tastes of the built-in problem, by a program.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

import palaestra as pl
from palaestra.recipes.preference.imagined_dialogue.imagine import (
    LABEL,
    Talk,
    read_label,
    record,
)

TASTES = "abcdef"
COST = 0.05  # of a question
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
    said: tuple[tuple[str, str], ...] = ()  # roles and texts


@pl.stage
class TasteUser:
    """A user with six tastes, of whom the agent may ask about one in each turn ("ask c" is answered
    by yes or no), until it recommends an item ("take c1"), which is worth 1 if the user's taste is
    so, else 0. Each question costs 0.05; without an item in `turns` turns nothing else is paid.
    """

    turns: int = 4
    seats: tuple[str, ...] = ("policy",)
    bounds: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        ask = pl.Ask(seat="policy", say=task.prompt)
        return pl.Frame(state=TalkState(task=task), asks=(ask,))

    def step(self, state: TalkState, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        text = acts[0].text.strip()
        now = replace(state, said=(*state.said, ("assistant", text)))
        paid = -COST * len(state.said)
        word, _, what = text.partition(" ")
        if word != "take" and len(now.said) < self.turns:
            say = (pl.Message(role="user", content=answer(state.task.answer, word, what)),)
            return pl.Frame(state=now, asks=(pl.Ask(seat="policy", say=say),))
        return pl.Frame(
            state=now,
            pay={("policy", ""): paid + (word == "take") * worth(state.task.answer, what)},
        )


def answer(tastes: str, word: str, what: str) -> str:
    """Of a user with tastes such as "010011"."""
    if word != "ask" or what not in TASTES or len(what) != 1:
        return "what?"
    return "yes" if tastes[TASTES.index(what)] == "1" else "no"


def worth(tastes: str, item: str) -> float:
    """1 if a user has the taste that an item is for, else 0."""
    if len(item) != 2 or item[0] not in TASTES:
        return 0.0
    return float(tastes[TASTES.index(item[0])] == item[1])


def taste_task(number: int) -> pl.Task:
    """One of the 64 users."""
    tastes = format(number % 64, "06b")
    prompt = (pl.Message(role="user", content="hi"),)
    return pl.Task(id=f"tastes/{tastes}", prompt=prompt, answer=tastes)


@pl.stage
class TasteUsers:
    """The 64 users as a source of tasks, all of which are held out."""

    @property
    def name(self) -> str:
        return "tastes"

    @property
    def size(self) -> int | None:
        return 64

    @property
    def test_size(self) -> int | None:
        return 64

    def task(self, split: str, index: int) -> pl.Task:
        return taste_task(index)


def noisy_talk(number: int) -> Talk:
    """A talk of an agent that knows no better: up to three questions about random tastes, then an
    item, which in two of five talks fits an answer that it has, if any, and else is random.
    """
    rng = pl.rng_of(("tastes", number))
    tastes = format(int(rng.integers(64)), "06b")
    messages, known = [("user", "hi")], list[str]()
    for _ in range(int(rng.integers(4))):
        what = TASTES[int(rng.integers(6))]
        said = answer(tastes, "ask", what)
        messages += [("assistant", f"ask {what}"), ("user", said)]
        known.append(what + str(int(said == "yes")))
    fits = bool(known) and rng.random() < 0.4
    item = known[-1] if fits else f"{TASTES[int(rng.integers(6))]}{int(rng.integers(2))}"
    messages.append(("assistant", f"take {item}"))
    rewards = [-COST] * (len(messages) // 2 - 1) + [worth(tastes, item)]
    return Talk(messages=tuple(messages), reward=rewards, profile=f"tastes {tastes}")


@pl.stage
class TasteDialogues:
    """A program: `dialogues` noisy talks, written as the artifact "dialogues"; users are held out."""

    dialogues: int = 600

    async def run(self, ctx: pl.Context) -> pl.Result:
        talks = [noisy_talk(i) for i in range(self.dialogues)]
        held = {format(i, "06b") for i in range(0, 64, 8)}
        rows = [
            replace(t, split="test" if t.profile.removeprefix("tastes ") in held else "train")
            for t in talks
        ]
        file = ctx.folder / "dialogues.jsonl"
        file.write_text("".join(json.dumps(record(t)) + "\n" for t in rows), encoding="utf-8")
        reward = float(np.mean([np.sum(t.reward) for t in talks]))
        metrics = {"dialogues": len(talks), "reward_mean": reward}
        ctx.log(metrics)
        return pl.Result(metrics=metrics, artifacts={"dialogues": str(file)})


class SimulatedUser:
    """A user of a profile, whom a language model plays and who says at the end how far the agent
    came, from 0 to 1.
    """

    seats = ("policy",)
    bounds = (0.0, 1.0)

    def __init__(self, ctx: pl.Context, client: pl.Source, turns: int):
        self.ctx, self.client, self.turns = ctx, client, turns

    def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        said = tuple((m.role, m.text) for m in task.prompt)
        ask = pl.Ask(seat="policy", say=task.prompt)
        return pl.Frame(state=TalkState(task=task, said=said), asks=(ask,))

    async def step(self, state: TalkState, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        profile = str(state.task.meta["profile"])
        talk = Talk(messages=(*state.said, ("assistant", acts[0].text)), reward=0.0)
        turns = sum(role == "assistant" for role, _ in talk.messages)
        if turns < self.turns:
            said = await self._ask(USER.format(profile=profile, talk=talk.text), 1.0, key)
            if said and "DONE" not in said:
                now = replace(state, said=(*talk.messages, ("user", said)))
                say = (pl.Message(role="user", content=said),)
                return pl.Frame(state=now, asks=(pl.Ask(seat="policy", say=say),))
        task = "A conversation of an agent with a user."
        label = read_label(
            await self._ask(LABEL.format(task=task, profile=profile, talk=talk.text), 0.0, key)
        )
        if label is None:
            raise pl.Fault("unread", "the user gave no number from 0 to 1 for the conversation")
        now = replace(state, said=talk.messages)
        return pl.Frame(state=now, pay={("policy", ""): label})

    async def _ask(self, question: str, temperature: float, key: pl.Key) -> str:
        request = pl.ChatRequest(
            messages=pl.services.question_messages(question),
            temperature=temperature,
            max_tokens=256,
        )
        said = await self.ctx.ask(self.client, request, seed=pl.seed_of(key) % (1 << 31))
        return said.rpartition("</think>")[2].strip().removeprefix("User:").strip()


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
            world, tasks = TasteUser(), TasteUsers()
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
