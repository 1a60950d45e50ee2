"""Playing with world knowledge: an environment that is watched, and a player whose verb is chosen by the
agent and by what is known of similar states.
"""

import inspect
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.agents.wkm.knowledge import StateBase, likeliest, mix_verbs, verb_of

WORLD = "world"  # the name of the world knowledge model in a run
OBSERVED = 1000  # characters of an observation that are told on


class WatchedGame:
    """An environment of one seat in one episode, which keeps what was said and done. `knowledge` is
    shown behind what it says first.
    """

    def __init__(self, world: pl.World, knowledge: str = "") -> None:
        self.world, self.knowledge = world, knowledge
        self.seats = world.seats
        self.solved: float | None = getattr(world, "solved", None)
        self.says, self.actions = list[tuple[pl.Message, ...]](), list[str]()
        self.changed = list[
            bool
        ]()  # by turn with knowledge of the state, whether it changed the verb

    async def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        self.says, self.actions, self.changed = [], [], []
        frame = self._seen(await awaited(self.world.reset(task, key)))
        if not self.knowledge:
            return frame
        asks = tuple(replace(a, say=with_knowledge(a.say, self.knowledge)) for a in frame.asks)
        return replace(frame, asks=asks)

    async def step(self, state: Any, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        self.actions.append(acts[0].text)
        return self._seen(await awaited(self.world.step(state, acts, key)))

    async def leave(self, state: Any) -> None:
        leave: Any = getattr(self.world, "leave", None)
        if leave is not None:
            await awaited(leave(state))

    def oracle(self, state: Any) -> Any:
        """What the environment's own says."""
        solver: Any = self.world
        return solver.oracle(state)

    def _seen(self, frame: pl.Frame) -> pl.Frame:
        if len(frame.asks) > 1:
            raise pl.UserError("wkm plans for one agent, and several are asked at once here")
        self.says += [ask.say for ask in frame.asks]
        return frame


def with_knowledge(say: Sequence[pl.Message], knowledge: str) -> tuple[pl.Message, ...]:
    """Messages with task knowledge behind the last one."""
    if not say:
        return (pl.Message(role="user", content=knowledge),)
    *before, last = say
    return (*before, replace(last, content=f"{last.content}\n{knowledge}"))


async def awaited(given: Any) -> Any:
    """What an environment's method returned, once it is there."""
    return await given if inspect.isawaitable(given) else given


def said_text(say: Sequence[pl.Message]) -> str:
    return "\n".join(m.content for m in say)


def history_text(
    says: Sequence[Sequence[pl.Message]], actions: Sequence[str], characters: int = OBSERVED
) -> str:
    """Actions and what followed each, a line each; of an observation at most so many characters, of
    the last one at least 1000.
    """
    lines = list[str]()
    for i, action in enumerate(actions):
        lines.append(f"> {' '.join(pl.judges.reply_after_thinking(action).split())}")
        last = i == len(actions) - 1
        room = max(characters, OBSERVED) if last else characters
        if i + 1 < len(says) and (text := said_text(says[i + 1])[:room].strip()):
            lines.append(text)
    return "\n".join(lines)


@pl.value_class
class KnowledgePlayer(pl.rollout.EnginePlayer):
    """The agent, whose verb from the second turn on is that of the largest
    weight * P_agent + (1 - weight) * P_know; it writes the rest of the action itself.

    Args:
        ctx: of the run.
        model: the agent's name in it.
        world: what it plays, watched.
        base: records of states.
        describe: how the world model is asked for a sentence about the state.
        weight: of the agent.
        k: records that are looked at.
        verbs: the legal ones; () = those of the base. Where the environment lists legal replies it is
            their verbs.
        marker: text that stands before the action of a reply, such as "Action:"; "" = the reply is the
            action.
        tokens: of the sentence.
        characters: of an earlier observation.
    """

    ctx: Any
    model: str
    world: WatchedGame
    base: StateBase
    describe: str
    weight: float = 0.5
    k: int = 50
    verbs: tuple[str, ...] = ()
    marker: str = ""
    tokens: int = 128
    characters: int = OBSERVED

    async def act(
        self, row: pl.Row, messages: tuple[pl.Message, ...], ask: pl.Ask, key: pl.Key
    ) -> pl.Completion:
        plain = pl.rollout.EnginePlayer.act
        known = await self._known() if self.world.actions else {}
        if not known:
            return await plain(self, row, messages, ask, key)
        if ask.choices is not None:
            verb = self._verb(known, row.context(), self._spelled(ask.choices))
            legal = tuple(c for c in ask.choices if verb_of(c) == verb)
            return await plain(self, row, messages, replace(ask, choices=legal), key)
        begun = await self._before(row, ask, key)
        if begun is not None and begun.finish != "stop":
            return begun  # it wrote no action
        ids = begun.ids if begun else ()
        space = " " if begun and not begun.text.endswith((" ", "\n")) else ""
        written = {v.casefold(): v for v in self.verbs}
        written = {v: self.base.verbs.get(v, w) for v, w in written.items()} or self.base.verbs
        spelled = {v: [self._encode(space + w)] for v, w in written.items()}
        verb = self._verb(known, (*row.context(), *ids), spelled)
        return await self._rest(row, ask, (*ids, *spelled[verb][0]), key)

    async def _known(self) -> dict[str, float]:
        """P_know in the state that was reached; {} where the world model cannot be asked."""
        question = self.describe.format(
            task=said_text(self.world.says[0]),
            history=history_text(self.world.says, self.world.actions, self.characters),
        )
        request = pl.ChatRequest(
            messages=(pl.Message(role="user", content=question),), max_tokens=self.tokens
        )
        try:
            state = await self.ctx.ask(pl.LocalModel(WORLD), request)
        except pl.Fatal:
            raise
        except pl.Fault:  # its client has counted it
            return {}
        return self.base.next_verbs(verb_of(self.world.actions[-1]), state, self.k)

    def _spelled(self, choices: Sequence[str]) -> dict[str, list[tuple[int, ...]]]:
        """The tokens of all legal replies, by verb."""
        spelled: dict[str, list[tuple[int, ...]]] = {}
        for choice in choices:
            whole = (*self._encode(choice), self.engine.dialect.end)
            spelled.setdefault(verb_of(choice), []).append(whole)
        return spelled

    def _verb(
        self,
        known: dict[str, float],
        context: tuple[int, ...],
        spelled: dict[str, list[tuple[int, ...]]],
    ) -> str:
        """The verb of the largest share; whether it is another one than the agent's is kept."""
        pairs = [(context, ids) for each in spelled.values() for ids in each]
        scores = iter(pl.models.score_pairs(self.ctx.model(self.model), pairs))
        logp = {
            verb: float(np.logaddexp.reduce([next(scores).sum() for _ in each]))
            for verb, each in spelled.items()
        }
        verb = likeliest(mix_verbs(logp, known, self.weight))
        self.world.changed.append(verb != likeliest(mix_verbs(logp, {}, 1.0)))
        return verb

    async def _before(self, row: pl.Row, ask: pl.Ask, key: pl.Key) -> pl.Completion | None:
        """What the agent writes up to the marker; None where there is none."""
        if not self.marker:
            return None
        sampling = replace(self.sampling, max_tokens=self.limit(ask), stop=(self.marker,))
        return await self.engine.generate(row.context(), sampling, (*key, "thought"))

    async def _rest(
        self, row: pl.Row, ask: pl.Ask, begun: tuple[int, ...], key: pl.Key
    ) -> pl.Completion:
        """The reply that begins so, to its end."""
        room = max(self.limit(ask) - len(begun), 1)
        sampling = replace(self.sampling, max_tokens=room, stop=self.stop(ask))
        more = await self.engine.generate((*row.context(), *begun), sampling, key)
        text = self.engine.dialect.decode(begun)
        return replace(
            more,
            ids=(*begun, *more.ids),
            logp=(0.0,) * (len(begun) + len(more.ids)),
            text=text + more.text,
            cut=len(text) + more.cut,
        )

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.engine.dialect.encode_text(text))
