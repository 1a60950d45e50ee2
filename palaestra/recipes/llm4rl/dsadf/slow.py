"""System 2: a language model that plans errands and picks actions one by one; its control, and an oracle.

m games, O numbers of an observation.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import AfterValidator, BaseModel, create_model

import palaestra as pl
from palaestra.recipes.llm4rl.dsadf.errands import ErrandBook

ASKS = 3  # a reply, and two repairs
MOST = 8  # goals of a plan
PLAN = """{about}

What is seen now:
{seen}

The task: {task}
{failed}
The goals that the agent knows:
{goals}

Name the goals of this list, by what stands before the colon, that do the task, in their order. \
Answer with {{"plan": ["...", ...]}}.
"""
ACT = """{about}

What is seen now:
{seen}

The goal: {goal}
It is reached where {where}.
The actions: {actions}

Which action is next? Answer with {{"action": "..."}}.
"""


@runtime_checkable
class TellsBestActions(Protocol):
    """A simulator that tells the first action of a shortest way to a goal by its name, for an oracle."""

    def best_actions(self, obs: np.ndarray, goals: Sequence[str]) -> np.ndarray:
        """[m] of observations [m, O]."""
        ...


class SlowSystem(Protocol):
    """Plans, and picks actions; counts what it was asked."""

    numbers: dict[
        str, int
    ]  # "calls" = plans and actions, "asked" = different questions, "fallbacks"

    async def plan(
        self, obs: np.ndarray, errands: Sequence[int], failed: Sequence[str]
    ) -> list[list[int]]: ...
    async def act(
        self, obs: np.ndarray, legal: np.ndarray | None, goals: Sequence[int], rng: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """[m] actions, and which of them are its own and not drawn."""
        ...


def fresh_numbers() -> dict[str, int]:
    return {"calls": 0, "asked": 0, "fallbacks": 0}


class OracleSystem:
    """The errand's own goals, and the first action of a shortest way."""

    def __init__(self, sim: TellsBestActions, book: ErrandBook):
        self.sim, self.book, self.numbers = sim, book, fresh_numbers()

    async def plan(
        self, obs: np.ndarray, errands: Sequence[int], failed: Sequence[str]
    ) -> list[list[int]]:
        self.numbers["calls"] += len(errands)
        return [self.book.plan(e) for e in errands]

    async def act(
        self, obs: np.ndarray, legal: np.ndarray | None, goals: Sequence[int], rng: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        self.numbers["calls"] += len(goals)
        best = self.sim.best_actions(obs, [self.book.names[g] for g in goals])
        return best, np.ones(len(best), bool)


class QuestionLimit:
    """Counts the different questions of all arms of a run.

    Args:
        most: that may be asked; 0 = as many as there are.
    """

    def __init__(self, most: int = 0):
        self.most, self.asked = most, 0

    def take(self, n: int) -> None:
        """Raises UserError where n more are too many."""
        if self.most and self.asked + n > self.most:
            raise pl.UserError(
                f"dsadf: System 2 was asked {self.asked} questions, {n} more come now, and questions={self.most} is "
                "the limit; raise it, or lower steps, games or timeout"
            )
        self.asked += n


class ModelSystem:
    """A chat model. The same question of an arm is asked once; how often its answer was used is counted
    as calls. A plan without a fit reply is the default curriculum, every trained goal in the file's order; an
    action without one is drawn from the legal ones; both are fallbacks.

    Args:
        shuffled: the control: an answer is that of another question of the same kind that was asked before.
        limit: of questions; None = there is none.
    """

    def __init__(
        self,
        ctx: pl.Context,
        source: pl.Source,
        sim: pl.control.Simulator,
        book: ErrandBook,
        about: str,
        key: pl.Key,
        shuffled: bool = False,
        limit: QuestionLimit | None = None,
    ):
        self.ctx, self.source, self.sim, self.book, self.about = ctx, source, sim, book, about
        self.rng, self.shuffled = pl.rng_of((*key, "shuffled")), shuffled
        self.actions = pl.control.action_words(sim)
        self.limit = limit or QuestionLimit()
        self.answers: dict[str, dict[str, Any]] = {"plan": {}, "action": {}}
        self.numbers = fresh_numbers()

    async def plan(
        self, obs: np.ndarray, errands: Sequence[int], failed: Sequence[str]
    ) -> list[list[int]]:
        goals = "\n".join(
            f"- {name}: reached where {self.book.spell_where(k)}"
            for k, name in enumerate(self.book.names)
        )
        texts = [
            PLAN.format(
                about=self.about,
                seen=self.book.spell_seen(row),
                task=self.book.errands[e].task,
                failed=f"The agent has just failed at: {why}\n" if why else "",
                goals=goals,
            )
            for row, e, why in zip(obs, errands, failed, strict=True)
        ]
        form = pl.control.plan_form(self.book.names, MOST)
        replies = await self._answers("plan", texts, form)
        number = {name: k for k, name in enumerate(self.book.names)}
        return [list(self.book.trained) if r is None else [number[x] for x in r] for r in replies]

    async def act(
        self, obs: np.ndarray, legal: np.ndarray | None, goals: Sequence[int], rng: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        free = np.ones((len(obs), len(self.actions)), bool) if legal is None else legal
        texts = [
            ACT.format(
                about=self.about,
                seen=self.book.spell_seen(row),
                goal=self.book.names[g],
                where=self.book.spell_where(g),
                actions=", ".join(a for a, x in zip(self.actions, may, strict=True) if x),
            )
            for row, g, may in zip(obs, goals, free, strict=True)
        ]
        replies = await self._answers("action", texts, action_form(self.actions))
        chosen, own = np.zeros(len(obs), int), np.zeros(len(obs), bool)
        for i, reply in enumerate(replies):
            act = -1 if reply is None else self.actions.index(reply)
            if act >= 0 and not free[i, act]:
                self.numbers["fallbacks"] += 1
            own[i] = act >= 0 and free[i, act]
            chosen[i] = act if own[i] else rng.choice(np.flatnonzero(free[i]))
        return chosen, own

    async def _answers(
        self, kind: Literal["plan", "action"], texts: Sequence[str], form: type[BaseModel]
    ) -> list[Any]:
        """An answer for each text, None where none fits."""
        known = self.answers[kind]
        new = list(dict.fromkeys(t for t in texts if t not in known))
        self.limit.take(len(new))
        for text, answer in zip(
            new, await asyncio.gather(*(self._ask(t, form, kind) for t in new)), strict=True
        ):
            known[text] = answer
        self.numbers["calls"] += len(texts)
        self.numbers["asked"] += len(new)
        replies = [self._other(known, t) if self.shuffled else known[t] for t in texts]
        self.numbers["fallbacks"] += sum(r is None for r in replies)
        return replies

    def _other(self, known: Mapping[str, Any], text: str) -> Any:
        """The answer to another question; to the only one there is none."""
        others = [t for t in known if t != text]
        return known[others[int(self.rng.integers(len(others)))]] if others else None

    async def _ask(self, text: str, form: type[BaseModel], kind: str) -> Any:
        request = pl.ChatRequest(messages=pl.services.question_messages(text), max_tokens=512)
        try:
            reply = await self.ctx.ask_for(self.source, request, form, asks=ASKS)
        except pl.Fault as fault:
            if fault.cause != "chat-format":
                raise
            return None
        return getattr(reply, kind)


def action_form(names: Sequence[str]) -> type[BaseModel]:
    """{"action": NAME}, a name that exists, without case."""
    by_key = {name.strip().lower(): name for name in names}

    def known(name: str) -> str:
        if (own := by_key.get(name.strip().lower())) is None:
            raise ValueError(f"there is no {name!r}; there are {', '.join(names)}")
        return own

    item: Any = Annotated[str, AfterValidator(known)]
    return create_model("ActionReply", action=(item, ...))
