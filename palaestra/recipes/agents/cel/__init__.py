"""Cogito, Ergo Ludo: what an episode teaches is written down, and the next episode reads it.

Of every world there are two texts: rules G (what actions do) and a playbook P (what to do). Both
are empty before the first episode. With tau the first episode of a group, Z its outcome:

    acting        the policy sees G_k and P_k above the board; in a thought it predicts what each
                  action leads to, values that and chooses, and then names the action
    reflection    G_{k+1} = writer(tau, G_k),    P_{k+1} = writer(tau, Z, G_{k+1}, P_k)

and GRPO on the outcomes (0 or 1) of the episodes of a group, which share world and board. Each
world is met `length` times, a board of its own each time: the tasks' `boards`. Of a text over
`limit` characters the front is cut off, and the part "cut" of the rewards says so. The part "rules"
of a reward: the share of the episode's moves that the rules known before it predict.

`writer` is a language model, the policy itself unless another is named. The game is any environment
of yours whose episodes are won or lost. Without one T-lake is played, where `lake.py`, a program that
makes no mistake, writes in place of the embedded model, which cannot.

Deviations: reflections are not trained, so the policy gradient is that of acting alone (the
reward that would train them, the mean outcome of the next group, is not built). On T-lake (`plans`
false) a reply names one expectation and has no verbal values. The formulas of the paper were not
read.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.recipes.agents.cel.lake import WriteMoves, rule_quality
from palaestra.recipes.agents.cel.writing import WorldTexts, WriteByModel, Writer

CARD = pl.Card(
    title="Cogito, Ergo Ludo: rule induction + playbook",
    paper="arXiv:2509.25052",
    claim="An agent that writes down rules and strategy after each episode, and learns by outcomes "
    "to act by them, masters new worlds within a few episodes; frozen rules do worse.",
    source="abstract and public reviews for the roles and the two texts; details of the training "
    "inferred",
    size=pl.Size(
        setting="a model of about 4B parameters on Minesweeper, Frozen Lake, Sokoban; from memory",
        model="qwen3-4b",
        samples=8,
    ),
    task="lake",
    needs=pl.needs.Requirements(
        columns=(),
        models=(
            pl.needs.NeededModel(
                "writer",
                "writer",
                "writes rules and playbook after an episode",
                inert=None,
                otherwise="the policy itself writes",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "environment", "a game whose episodes are won or lost", built_in=("lake",)
            ),
        ),
        shows="part/known",
        off={"texts": False},
        own={
            "endpoint": "Right leads to the door.",
            "plans": False,
            "worlds": 1,
            "length": 2,
            "samples": 2,
            "schedule.prompts": 2,
        },
    ),
    use="It helps in worlds that are met again and whose rules the model does not know; where each is "
    "met once, the texts only cost context.",
    lacks=(
        "Of the paper's games only one like Frozen Lake is built in; Minesweeper and Sokoban "
        "are not.",
        "Of the episodes of a group the first alone is reflected on, and reflections are not "
        "trained.",
        "Predictions and values are thoughts of the policy in one reply, trained by the "
        "outcome alone: there are no calls of their own for them.",
        "The run's own held-out evaluation, unlike `new worlds`, does not show the texts.",
    ),
    grade="B",
)

THOUGHT = re.compile(r"<think>.*?</think>\s*", re.DOTALL)
ACTING = """\
Before every move think in <think>...</think>, by the rules and the playbook below, if there are any:
predict for each action that you may take what it will lead to, say how good each outcome is for
winning, and choose the best. After </think> write the move alone, in the form that the game asks for."""


def world_of(task: pl.Task) -> str:
    """What the texts are about: a world that knows itself, else the one of all tasks."""
    return str(task.meta.get("world", task.domain))


def known_of(notes: Sequence[pl.curriculum.Note]) -> WorldTexts:
    """What a world's note holds; nothing where there is none."""
    return WorldTexts(**notes[-1].facts) if notes else WorldTexts()


def show_knowledge(task: pl.Task, known: WorldTexts) -> pl.Task:
    """The task with what is known above its first message."""
    if not known.text or not task.prompt:
        return task
    first, *rest = task.prompt
    message = replace(first, content=f"{known.text}\n{first.content}")
    return replace(task, prompt=(message, *rest))


@pl.declare(columns=(("known", object, "what was written of the world before the episode"),))
@pl.stage
class PutKnowledge:
    """A task with what is known of its world, shown by `show`."""

    show: Callable[[pl.Task, WorldTexts], pl.Task] = show_knowledge

    def __call__(self, task: pl.Task, notes: Sequence[pl.curriculum.Note]) -> pl.Task:
        known = known_of(notes)
        informed = self.show(task, known)
        return replace(informed, meta={**task.meta, "known": known})


@pl.declare(columns=(("learned", object, "what was written of the world after the episode"),))
@pl.stage
class TextAbove:
    """A world with a text above what it says first. With `thinks` a thought before a move is not
    the move's: the world is given what stands after it.
    """

    world: pl.World
    text: str
    thinks: bool = False

    @property
    def seats(self) -> tuple[str, ...]:
        return self.world.seats

    async def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        begun: Any = self.world.reset(task, key)
        frame: pl.Frame = await begun if inspect.isawaitable(begun) else begun
        return replace(frame, asks=tuple(map(self._above, frame.asks)))

    async def step(self, state: Any, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        if self.thinks:
            acts = tuple(replace(a, text=THOUGHT.sub("", a.text)) for a in acts)
        went: Any = self.world.step(state, acts, key)
        return await went if inspect.isawaitable(went) else went

    async def leave(self, state: Any) -> None:
        leave: Any = getattr(self.world, "leave", None)
        left = leave(state) if leave else None
        await left if inspect.isawaitable(left) else None

    def _above(self, ask: pl.Ask) -> pl.Ask:
        if not ask.say:
            return ask
        first, *rest = ask.say
        return replace(ask, say=(replace(first, content=f"{self.text}\n{first.content}"), *rest))


@pl.stage
class Informed:
    """Collects as `link` does; where a task has no prompt to put what is known above, the world
    says it. `acting`: how to act by it, said above that; what is thought is not shown to the world.
    """

    link: pl.Collect
    acting: str = ""

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        known: WorldTexts = group.task.meta.get("known", WorldTexts())
        instructions = [self.acting, "" if group.task.prompt else known.text]
        text = "\n".join(filter(None, instructions))
        if not text:
            return await self.link(ctx, key, group)
        world = TextAbove(ctx.bench.world, text, thinks=bool(self.acting))
        return await self.link(ctx.with_bench(replace(ctx.bench, world=world)), key, group)


@pl.stage
class WriteDown:
    """Writes down what the first episode of a group taught, beside the task. A writer that fails
    leaves the texts as they were. Rewards get the part "known", whether there were texts before the
    episode, and, on T-lake, "rules", the share of its moves that the rules known before predict.

    Args:
        writer: of the texts.
        updates: episodes of a world after which the texts stay as they are; 0 = never.
    """

    writer: Writer
    updates: int = 0

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        known: WorldTexts = group.task.meta.get("known", WorldTexts())
        learned = replace(known, episodes=known.episodes + 1)
        if group.valid and not 0 < self.updates <= known.episodes:
            learned = await self._written(ctx, key, group, learned)
        episodes = tuple(self._told(e, known, learned.cut) for e in group.episodes)
        task = replace(group.task, meta={**group.task.meta, "learned": learned})
        return replace(group, task=task, episodes=episodes)

    async def _written(
        self, ctx: pl.Context, key: pl.Key, group: pl.Group, known: WorldTexts
    ) -> WorldTexts:
        try:
            return await self.writer(ctx, (*key, "write"), group.task, group.valid[0], known)
        except pl.Fatal:
            raise
        except pl.Fault:  # its client has counted it
            return known

    def _told(self, e: pl.Episode, known: WorldTexts, cut: bool | None) -> pl.Episode:
        if e.reward is None:
            return e
        quality = rule_quality(known.rules, e.facts.get("steps", ()))
        rules = {} if quality is None else {"rules": quality}
        parts = {**e.reward.parts, "known": float(bool(known.text)), **rules}
        parts |= {} if cut is None else {"cut": float(cut)}
        return replace(e, reward=replace(e.reward, parts=parts))


def learned_note(group: pl.Group) -> list[pl.curriculum.Note]:
    """What a group's reflection wrote."""
    learned: WorldTexts | None = group.task.meta.get("learned")
    if learned is None:
        return []
    facts: Mapping[str, Any] = {
        "rules": learned.rules,
        "playbook": learned.playbook,
        "episodes": learned.episodes,
    }
    return [pl.curriculum.Note(text=learned.text, about=world_of(group.task), facts=facts)]


def remembering(
    writer: Writer,
    length: int = 10,
    updates: int = 0,
    show: Callable[[pl.Task, WorldTexts], pl.Task] = show_knowledge,
    samples: int = 8,
    worlds: int = 64,
    acting: str = "",
) -> pl.Recipe:
    """`updates` 1 freezes the texts after the first episode; `worlds` new ones are played `length`
    times each where a run is measured, 0 = none. `acting` is told above the first message.
    """

    def recalled(draw: pl.Draw) -> pl.curriculum.Recalled:
        return pl.curriculum.Recalled(PutKnowledge(show), most=1, draw=draw, about=world_of)

    memory = pl.curriculum.Memorise(learned_note, most=256)
    reflect = WriteDown(writer, updates)
    exam = pl.run.MemoryExam(
        draw=recalled(pl.curriculum.Series(length, split="test", staggered=False)),
        collect=pl.links(Informed(pl.Sample(n=1), acting), pl.Score(), reflect),
        observe=memory,
        rounds=length,
        n=max(1, worlds),
    )
    return pl.vary(
        pl.recipe("grpo"),
        draw=recalled(pl.curriculum.Series(length)),
        collect=pl.links(Informed(pl.Sample(n=samples), acting), pl.Score(), reflect),
        observe=memory,
        evaluate={"new worlds": exam} if worlds else {},
    )


def build(
    writer: pl.Source | None = None,
    length: int = 10,
    texts: bool = True,
    samples: int = 8,
    worlds: int = 64,
    limit: int = 2000,
    plans: bool = True,
) -> pl.Recipe:
    """`writer` None is the policy, which writes at most `limit` characters a text. Each world is met
    `length` times. Without `texts` nothing is remembered. `worlds` new ones are played where a run
    is measured, 0 = none. With `plans` the policy is told to predict, value and choose.
    """
    writes = WriteByModel(writer or pl.LocalModel(), limit) if texts else write_nothing
    acting = ACTING if plans else ""
    return remembering(writes, length, samples=samples, worlds=worlds, acting=acting)


async def write_nothing(
    ctx: pl.Context, key: pl.Key, task: pl.Task, episode: pl.Episode, known: WorldTexts
) -> WorldTexts:
    """A writer that leaves the texts empty."""
    return known


def embedded(length: int = 10, samples: int = 8, worlds: int = 64) -> pl.Recipe:
    """On T-lake, with a program that writes."""
    return remembering(WriteMoves(), length, samples=samples, worlds=worlds)
