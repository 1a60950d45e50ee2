"""Cogito, Ergo Ludo: what an episode teaches is written down, and the next episode reads it.

Of every world there are two texts: rules G (what actions do) and a playbook P (what to do). Both
are empty before the first episode. With tau the first episode of a group, Z its outcome:

    acting        the policy sees G_k and P_k above the board; one reply names what is aimed at,
                  what the action is expected to do, and the action itself
    reflection    G_{k+1} = writer(tau, G_k),    P_{k+1} = writer(tau, Z, G_{k+1}, P_k)

and GRPO on the outcomes (0 or 1) of the episodes of a group, which share world and board. Each
world is met `length` times, a board of its own each time: the tasks' `boards`. Of a text over
`limit` characters the front is cut off. The part "rules" of a reward: the share of the episode's
moves that the rules known before it predict.

`writer` is a language model (`WriteByModel`) or a program. The default `WriteMoves` is a program
that stands in for one: it reads the moves of T-lake off the episode in a fixed grammar, makes no
mistake, and cannot be trained.

Deviations: reflections are not trained, so the policy gradient is that of acting alone (the
reward that would train them, the mean outcome of the next group, is not built); the lookahead over
all actions is the one expectation that the reply names; there are no verbal values. The formulas of
the paper were not read.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import palaestra as pl

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
)

DIRECTIONS = {"u": (0, -1), "d": (0, 1), "l": (-1, 0), "r": (1, 0)}
RULE = re.compile(r"\b([udlr])([0-9])\b")
AIM = re.compile(r"\bt([0-9])\b")
RULES, PLAYBOOK = "rules: ", "playbook: "


@pl.value_class
class WorldTexts:
    """What is written of a world, after so many episodes."""

    rules: str = ""
    playbook: str = ""
    episodes: int = 0

    @property
    def text(self) -> str:
        """As it is shown; nothing of what is empty."""
        shown = [f"{RULES}{self.rules}"] if self.rules else []
        return "\n".join([*shown, *([f"{PLAYBOOK}{self.playbook}"] if self.playbook else [])])


class Writer(Protocol):
    """Writes down what an episode taught. Called with (ctx, key, task, episode, what is known)."""

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, task: pl.Task, episode: pl.Episode, known: WorldTexts
    ) -> WorldTexts: ...


@pl.stage
class WriteMoves:
    """A program in place of a model: reads off the steps of an episode which action moved where,
    and from its outcome which thing to go to.

    The grammar: "u4 l7" (4 moves up, 7 left) and "t9" (to 9). What is seen anew corrects what was
    written. A step that changed nothing teaches nothing. Of two things, the one that was not lost
    on is gone to.
    """

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, task: pl.Task, episode: pl.Episode, known: WorldTexts
    ) -> WorldTexts:
        rules = read_rules(known.rules)
        for before, said, after in episode.facts.get("steps", ()):
            if (found := direction(before, after)) is not None:
                rules = {d: name for d, name in rules.items() if name != said} | {found: said}
        written = " ".join(f"{d}{rules[d]}" for d in DIRECTIONS if d in rules)
        aim, result = episode.facts.get("thing", ""), episode.facts.get("result", "")
        if result == "lost":
            aim = next(x for x in things_in(task) if x != aim)
        return replace(known, rules=written, playbook=f"t{aim}" if aim else known.playbook)


@pl.stage
class WriteByModel:
    """A language model writes: first the rules, then the playbook.

    Args:
        source: of the model.
        limit: characters of each text; what is longer loses its front.
    """

    source: pl.Source
    limit: int = 400

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, task: pl.Task, episode: pl.Episode, known: WorldTexts
    ) -> WorldTexts:
        told = "".join(s.text for row in episode.rows for s in row.segments)
        rules = await self._ask(ctx, RULES_ASKED.format(rules=known.rules, episode=told))
        asked = PLAYBOOK_ASKED.format(
            rules=rules,
            playbook=known.playbook,
            episode=told,
            outcome="won" if episode.solved else "lost",
        )
        return replace(known, rules=rules, playbook=await self._ask(ctx, asked))

    async def _ask(self, ctx: pl.Context, text: str) -> str:
        message = pl.Message(role="user", content=text)
        reply = await ctx.client(self.source).chat(pl.ChatRequest(messages=(message,)))
        return " ".join(reply.text.split())[-self.limit :]


RULES_ASKED = """\
These rules of a game were written down so far; they may be empty or wrong:
{rules}

An episode that was played:
{episode}

Keep what it confirms, correct what it refutes, add what it shows. Write the rules alone, as in
"u4 l7" where the action 4 moves up and 7 moves left."""
PLAYBOOK_ASKED = """\
The rules of a game: {rules}
The playbook so far; it may be empty or wrong: {playbook}

An episode that was {outcome}:
{episode}

Write the playbook alone: advice on how to win, as in "t9" where the thing 9 is to be reached."""


def read_rules(text: str) -> dict[str, str]:
    """The names of actions by direction, as a text in the grammar gives them."""
    return dict(RULE.findall(text))


def read_aim(text: str) -> str:
    """The thing that a playbook says to go to; "" = none."""
    found = AIM.search(text)
    return found[1] if found else ""


def direction(before: str, after: str) -> str | None:
    """Of a move between two squares as they are named; None = nothing moved."""
    by = (ord(after[0]) - ord(before[0]), int(after[1:]) - int(before[1:]))
    return next((d for d, step in DIRECTIONS.items() if step == by), None)


def things_in(task: pl.Task) -> list[str]:
    """The names of the things on the board of a task, without what is written above it."""
    board = pl.tasks.question_text(task).splitlines()[-1]
    return [part[0] for part in board.split()[1:]]


def rule_quality(rules: str, steps: Sequence[tuple[str, str, str]]) -> float | None:
    """The share of the steps (from, action, to) that moved which rules predict; None where none
    did.
    """
    means = {name: d for d, name in read_rules(rules).items()}
    moves = [(said, d) for a, said, b in steps if (d := direction(a, b)) is not None]
    return sum(means.get(said) == d for said, d in moves) / len(moves) if moves else None


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
    told = replace(first, content=f"{known.text}\n{first.content}")
    return replace(task, prompt=(told, *rest))


@pl.declare(columns=(("known", object, "what was written of the world before the episode"),))
@pl.stage
class PutKnowledge:
    """A task with what is known of its world, shown by `show`."""

    show: Callable[[pl.Task, WorldTexts], pl.Task] = show_knowledge

    def __call__(self, task: pl.Task, notes: Sequence[pl.curriculum.Note]) -> pl.Task:
        known = known_of(notes)
        shown = self.show(task, known)
        return replace(shown, meta={**task.meta, "known": known})


@pl.declare(columns=(("learned", object, "what was written of the world after the episode"),))
@pl.stage
class WriteDown:
    """Writes down what the first episode of a group taught, beside the task. A writer that fails
    leaves the texts as they were. Rewards get the part "rules", the share of the episode's moves
    that the rules known before predict.

    Args:
        writer: of the texts.
        updates: episodes of a world after which the texts stay as they are; 0 = never.
    """

    writer: Writer
    updates: int = 0

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        known: WorldTexts = group.task.meta.get("known", WorldTexts())
        episodes = tuple(self._told(e, known) for e in group.episodes)
        learned = replace(known, episodes=known.episodes + 1)
        if group.valid and not 0 < self.updates <= known.episodes:
            learned = await self._written(ctx, key, group, learned)
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

    def _told(self, e: pl.Episode, known: WorldTexts) -> pl.Episode:
        quality = rule_quality(known.rules, e.facts.get("steps", ()))
        if e.reward is None or quality is None:
            return e
        parts = {**e.reward.parts, "rules": quality}
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


def build(
    writer: Writer = WriteMoves(),
    length: int = 10,
    updates: int = 0,
    show: Callable[[pl.Task, WorldTexts], pl.Task] = show_knowledge,
    samples: int = 8,
    worlds: int = 64,
) -> pl.Recipe:
    """`updates` 1 freezes the texts after the first episode; `worlds` new ones are played `length`
    times each where a run is measured, 0 = none.
    """

    def recalled(draw: pl.Draw) -> pl.curriculum.Recalled:
        return pl.curriculum.Recalled(PutKnowledge(show), most=1, draw=draw, about=world_of)

    memory = pl.curriculum.Memorise(learned_note, most=256)
    reflect = WriteDown(writer, updates)
    exam = pl.run.MemoryExam(
        draw=recalled(pl.curriculum.Series(length, split="test", staggered=False)),
        collect=pl.links(pl.Sample(n=1), pl.Score(), reflect),
        observe=memory,
        rounds=length,
        n=max(1, worlds),
    )
    return pl.vary(
        pl.recipe("grpo"),
        draw=recalled(pl.curriculum.Series(length)),
        collect=pl.links(pl.Sample(n=samples), pl.Score(), reflect),
        observe=memory,
        evaluate={"new worlds": exam} if worlds else {},
    )
