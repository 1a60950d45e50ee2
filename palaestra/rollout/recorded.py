"""Episodes that nobody samples: demonstrations and recorded preferences. Their version is None, so
they have no age.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from palaestra.abilities import Habit, Solves, solves
from palaestra.context import RewardFn
from palaestra.declared import DeclaredName, declare
from palaestra.errors import TooLong, UserError
from palaestra.rollout.collect import judge_group, none_right, rewards
from palaestra.rollout.oracle import play_as_oracle
from palaestra.rollout.player import after_opening, shown_tools
from palaestra.tasks.cuts import is_cut, is_document
from palaestra.tasks.procedural import demonstration
from palaestra.tasks.tool_data import tools_of_task
from palaestra.types import (
    Episode,
    Group,
    Key,
    Message,
    Reward,
    Row,
    Segment,
    Task,
    Tasks,
    ToolSchema,
    need_at_least,
    rng_of,
    stage,
)

if TYPE_CHECKING:
    from palaestra.context import Context


def recorded_episode(
    ctx: Context,
    model: str,
    prompt: tuple[Message, ...],
    reply: str,
    reward: float,
    *,
    of: str = "a recorded answer",
    tools: tuple[ToolSchema, ...] = (),
    judged: bool = True,
    ends: bool = True,
) -> Episode:
    """A finished episode with `reply` as the trained turn, its end token included where it `ends`; so
    are messages of the prompt that are marked as trained. Behaviour log-probs are unknown. `tools` are shown as
    to who may call them. Not `judged`: the reward only says what is imitated or preferred, so no
    number is made of it.

    Raises `UserError` where they do not fit into the context of the model; `of` says whose they
    are.
    """
    dialect = ctx.engine(model).dialect
    prompt, tools = shown_tools(prompt, tools, ctx.bench.dialect, first=True)
    heard = tuple(
        Segment(
            ids=p.ids,
            author=p.author,
            policy=model if p.trained else "",
            trained=p.trained,
            hidden=p.hidden,
            text=p.text,
            pictures=p.pictures,
        )
        for p in dialect.extend(prompt, first=True, closed=False, tools=tools)
    )
    reply = after_opening(heard, reply)
    segment = Segment(
        ids=(*dialect.encode_text(reply), *((dialect.end,) if ends else ())),
        author="demonstration",
        policy=model,
        trained=True,
        text=reply,
        finish="eos" if ends else "length",
    )
    row, context = Row(segments=(*heard, segment)), ctx.model(model).context
    if len(row.context()) > context:
        raise TooLong(
            f"{of} has {len(row.context())} tokens with its prompt, and the context of "
            f"{ctx.model(model).name} holds {context}; shorten it, or leave it out"
        )
    return Episode(rows=(row,), reward=Reward(total=reward, judged=judged), status="finished")


def document_episode(
    ctx: Context, model: str, text: str, reward: float, *, ends: bool = True
) -> Episode:
    """A finished episode that is a text without the chat template, from the start token to the end
    token, where it `ends`; all of it is trained. Behaviour log-probs are unknown. It may be longer than the
    context of the model.
    """
    dialect = ctx.engine(model).dialect
    begin = dialect.tokenizer.bos_token_id
    end = (dialect.end,) if ends else ()
    ids = (*(() if begin is None else (begin,)), *dialect.encode_text(text), *end)
    segment = Segment(
        ids=ids,
        author="demonstration",
        policy=model,
        trained=True,
        text=text,
        finish="eos" if ends else "length",
    )
    return Episode(
        rows=(Row(segments=(segment,)),),
        reward=Reward(total=reward, judged=False),
        status="finished",
    )


def written_answer(tasks: Tasks, task: Task, rng: np.random.Generator, habit: Habit) -> str:
    """The task's column `demonstration`, else what its source writes, else the answer as text.
    Raises UserError where there is none.
    """
    if task.answer is None and "demonstration" not in task.meta:
        raise UserError(
            f"task {task.id!r} has nothing to imitate: give it an `answer` or a `demonstration` column"
        )
    return task.meta.get("demonstration") or demonstration(tasks, task, rng, habit)


@stage
class Demonstrate:
    """Adds a demonstration: the task's column `demonstration`, else what its source writes, else
    the answer as text. Of a conversation the messages that the column `imitated` names, by their
    places in the prompt, are demonstrated too. In a world that has an oracle it is what that says,
    turn by turn, see `play_as_oracle`.
    """

    habit: Habit = "work"
    model: str = "policy"
    recorded: ClassVar[bool] = True

    def texts(self, task: Task) -> list[tuple[str, str]]:
        """What of the task's data is imitated, by its column."""
        own = task.meta.get("demonstration")
        return [("demonstration", own)] if isinstance(own, str) and own else []

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        task = group.task
        if isinstance(ctx.bench.world, Solves) and solves(ctx.bench.world):
            return await play_as_oracle(ctx, key, group, self.model)
        reply = written_answer(ctx.bench.tasks, task, rng_of(key), self.habit)
        made = self.episode(ctx, task, reply, await tools_of_task(ctx.bench.world, task))
        return replace(group, episodes=(*group.episodes, made))

    def episode(
        self,
        ctx: Context,
        task: Task,
        reply: str,
        tools: tuple[ToolSchema, ...],
        *,
        column: str = "demonstration",
    ) -> Episode:
        """A demonstration as an episode. Raises UserError where it does not fit into the context."""
        of = f"task {task.id!r}: its {column}"
        if is_document(task):
            model, ends = ctx.model(self.model), not is_cut(task, column)
            made = document_episode(ctx, self.model, reply, 1.0, ends=ends)
            if (n := len(made.rows[0].context())) > model.context:
                raise TooLong(
                    f"{of} has {n} tokens, and the context of {model.name} holds {model.context}; "
                    "split its text, or leave it out"
                )
            return made
        prompt = tuple(
            replace(m, trained=True, author="demonstration") if i in _imitated(task) else m
            for i, m in enumerate(task.prompt)
        )
        return recorded_episode(
            ctx,
            self.model,
            prompt,
            reply,
            1.0,
            of=of,
            tools=tools,
            judged=False,
            ends=not is_cut(task, column),
        )


@stage
class Swap:
    """Puts demonstrations in the place of up to `k` wrong episodes, drawn at random, where
    `when(rewards)` holds. The others stay as they are, in their order.

    A task has several by its column `demonstrations`, else one, as for `Demonstrate`. Of several `k`
    are drawn, or those are taken that have the most of `score`, a reward of them as episodes; of
    equal ones the shorter. One that cannot be scored is not taken. They are paid 1, have no age, and
    have the fact `mark`.
    """

    k: int = 2
    when: Callable[[np.ndarray], bool] = none_right
    habit: Habit = "work"
    model: str = "policy"
    mark: str = "demonstration"
    score: RewardFn | None = None

    def __post_init__(self) -> None:
        need_at_least(self, k=1)

    @property
    def writes_facts(self) -> tuple[DeclaredName, ...]:
        return (DeclaredName(self.mark, bool, "whether it is a demonstration"),)

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        task, rng = group.task, rng_of(key)
        wrong = [i for i, e in enumerate(group.episodes) if e.ok and not e.solved]
        if not wrong or not self.when(rewards(group)):
            return group
        given = [str(text) for text in task.meta.get("demonstrations") or ()]
        texts = given or [written_answer(ctx.bench.tasks, task, rng, self.habit)]
        drawn = rng.permutation(len(texts)).tolist()
        tools, episodes = await tools_of_task(ctx.bench.world, task), list(group.episodes)
        made = [
            recorded_episode(
                ctx,
                self.model,
                task.prompt,
                texts[i],
                1.0,
                of=f"task {task.id!r}: its demonstration",
                tools=tools,
                judged=False,
            )
            for i in (drawn if self.score else drawn[: self.k])
        ]
        chosen = await self._best(ctx, Group(task=task, episodes=tuple(made)))
        places = rng.permutation(len(wrong))[: len(chosen)]
        for place, e in zip(sorted(places.tolist()), chosen, strict=False):
            episodes[wrong[place]] = replace(e, facts={**e.facts, self.mark: True})
        return replace(group, episodes=tuple(episodes))

    async def _best(self, ctx: Context, made: Group) -> list[Episode]:
        """The `k` that have the most of `score`; without one, as many as there are."""
        if self.score is None:
            return list(made.episodes)
        rewards = await judge_group(ctx, self.score, made)
        pairs = zip(rewards, made.episodes, strict=True)
        able = [(-r.total, len(e.rows[0].context()), e) for r, e in pairs if isinstance(r, Reward)]
        return [e for *_, e in sorted(able, key=lambda x: x[:2])[: self.k]]


@declare(facts=(("gap", float, "by how much the better of two recorded answers is better"),))
@stage
class Recorded:
    """Adds the task's recorded pair: `chosen` with reward 1, `rejected` with reward 0; a number in
    the column `gap`, how much better the one is, becomes a fact of both. Of data without pairs, its
    `response`, with reward 1 where it is `right`, else 0.

    A reply of several messages has those before its last one in the column `chosen_before` and its
    like: what the assistant says there is trained too, unless it is marked, and what users and tools
    say is not.
    """

    model: str = "policy"
    recorded: ClassVar[bool] = True

    def texts(self, task: Task) -> list[tuple[str, str]]:
        """What of the task's data is read, by its column. Raises UserError where it is no text."""
        return [(name, _field(task, name)) for name, _ in self._named(task)]

    def episode(
        self,
        ctx: Context,
        task: Task,
        reply: str,
        tools: tuple[ToolSchema, ...],
        *,
        column: str,
        reward: float = 0.0,
        whose: Task | None = None,
    ) -> Episode:
        """A recorded reply as an episode, behind the prompt of `task`; `whose`: the task that it was
        recorded for, where that is another one. Raises UserError where it does not fit into the context.
        """
        return recorded_episode(
            ctx,
            self.model,
            (*task.prompt, *before_last(whose or task, column)),
            reply,
            reward,
            of=f"task {task.id!r}: its {column!r} answer",
            tools=tools,
            judged=column == "response",
            ends=not is_cut(whose or task, column),
        )

    def _named(self, task: Task) -> tuple[tuple[str, float], ...]:
        """The columns that are read, with their rewards."""
        if "chosen" not in task.meta and "right" in task.meta:
            return (("response", float(bool(task.meta["right"]))),)
        return (("chosen", 1.0), ("rejected", 0.0))

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        task = group.task
        named, tools = self._named(task), await tools_of_task(ctx.bench.world, task)
        is_judged = len(named) == 1
        episodes = (
            self.episode(ctx, task, _field(task, name), tools, column=name, reward=reward)
            for name, reward in named
        )
        gap = task.meta.get("gap")
        facts = {"gap": float(gap)} if isinstance(gap, int | float) and not is_judged else {}
        pair = (replace(e, facts={**e.facts, **facts}) for e in episodes)
        return replace(group, episodes=(*group.episodes, *pair))


def before_last(task: Task, column: str) -> tuple[Message, ...]:
    """The messages of a recorded reply before its last one."""
    talk = task.meta.get(f"{column}_before") or ()
    return tuple(
        Message(**m, author="demonstration" if m["role"] == "assistant" else "environment")
        for m in talk
    )


@stage
class Offline:
    """What a model sampled becomes recorded data that another learns from: its tokens are
    `policy`'s to train on, without age.

    Behaviour log-probs stay, for they are those of the model that sampled.
    """

    policy: str = "policy"

    async def __call__(self, ctx: Context, key: Key, group: Group) -> Group:
        return replace(group, episodes=tuple(self._recorded(e) for e in group.episodes))

    def _recorded(self, episode: Episode) -> Episode:
        def each(s: Segment) -> Segment:
            return replace(s, policy=self.policy, version=None) if s.trained else s

        rows = tuple(replace(r, segments=tuple(map(each, r.segments))) for r in episode.rows)
        return replace(episode, rows=rows)


def _imitated(task: Task) -> tuple[int, ...]:
    """Places of the prompt's messages that are demonstrations; a column of this name that is none
    has none.
    """
    turns = task.meta.get("imitated")
    own = turns if isinstance(turns, list | tuple) else ()
    return tuple(i for i in own if isinstance(i, int) and i < len(task.prompt))


def _field(task: Task, name: str) -> str:
    text = task.meta.get(name)
    if not isinstance(text, str) or not text:
        raise UserError(
            f"task {task.id!r}: no text in the column {name!r}; preference data has prompt, "
            "chosen, rejected"
        )
    return text
