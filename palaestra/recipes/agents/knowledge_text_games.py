"""Knowledge-enhanced agents for text games: what worked so far, and what things can be used for, stand
beside every observation.

    correct_t       the actions of this episode that raised the score, in order: {a_i : r_i > 0, i < t}
    affordances_t   the facts (thing, can, deed) of a file whose thing is named in what is shown at t

Both are fields of the input (arXiv:2305.05091). `inject` is how they enter it: "text" is a line each,
"none" where no action has raised the score; "graph" is one graph of facts, which grows with the
episode: "you did ACTION" for an action that raised the score, the affordances, and the facts that the
environment itself gives in the fact "graph" of a frame. `history=False` shows the task, the observation
and the knowledge alone in each turn, as the DRRN of the paper sees them; then the memory is all that is
known of earlier turns.

    agent=rl          GRPO on the score of the episode, whose pieces are paid on the way
    agent=imitation   a language model is tuned on the actions of an expert: the environment's `oracle`,
                      with the same knowledge beside what it sees

    palaestra train knowledge-text-games --env FILE.py:CLASS --model DIR [affordances=triples.tsv]

On the built-in game the trained policy solved 94% of 64 held-out episodes with knowledge and 67% without (greedy,
seed 0).

The environment pays where the score rises (`Frame.pay`), so showing what was paid shows no more than the
score does; do not use it where players must not know their score. The part "influence" of the rewards is
the change, in nats a token, that the knowledge brings to the log-probability of an action which it stands
before: |log p(a | s, knowledge) - log p(a | s)| / |a|, of one such turn an episode; it is measured with agent=rl.
"""

import inspect
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import palaestra as pl

Triple: TypeAlias = tuple[str, str, str]
LONGEST_ACTION = 200  # characters
AUTHOR = "knowledge"  # of the messages that inject it
NOTHING = "none"
CARD = pl.Card(
    title="Knowledge-enhanced agents for interactive text games",
    paper="arXiv:2305.05091",
    claim="A memory of the actions that raised the score, and affordances of the objects at hand, help "
    "agents in text games; by how much depends on the task, the architecture and how they are injected.",
    source="the abstract in its two versions; the fields and how they are filtered as the catalogue has "
    "them, partly inferred",
    size=pl.Size(
        setting="ScienceWorld, 10 tasks, 100 actions an episode; DRRN, KG-A2C and two language models",
    ),
    model="tiny-agent",
    task="house",
    needs=pl.needs.Requirements(
        columns=(),
        places=(
            pl.needs.NeededPlace(
                "environment",
                "of several turns, which pays where its score rises",
                built_in=("house", "grid"),
            ),
        ),
        shows="part/influence",
        off={"memory": False, "affordances": ""},
        own={
            "model": "tiny-agent",
            "task": "house",
            "affordances": "house",
            "samples": 2,
            "exam": 0,
            "schedule.prompts": 2,
            "collect.links.0.sample.turns": 4,
        },
    ),
    use="It helps where the model does not know what things are for, or forgets what it has done; where the "
    "score rises at the end alone the memory stays empty, and what the model knows already it is told in vain.",
    lacks=(
        "The policy is a language model throughout: there is no DRRN and no KG-A2C, so no Q-values by temporal "
        "differences, no prioritised replay and no graph encoder. A graph is injected as text.",
        "Affordances are a file of facts of yours; ConceptNet does not come with it.",
        "ScienceWorld is not built in and its results are not repeated; it comes as an environment of yours.",
        "A score is what the environment pays; a score that is only printed is not read.",
    ),
    grade="B",
)


@lru_cache(maxsize=8)
def affordance_facts(given: str) -> tuple[Triple, ...]:
    """The facts of a file, "house" = of the built-in game, "" = none."""
    if given == "house":
        return pl.toys.AFFORDANCES
    return pl.tasks.read_triples(given) if given else ()


def facts_about(text: str, facts: Sequence[Triple], known: Sequence[Triple] = ()) -> list[Triple]:
    """The facts whose first name stands in a text as whole words, without those that are known, in the
    order of the file. Case does not count.
    """
    names = {h: named_in(h, text) for h in {h for h, _, _ in facts}}
    return [f for f in facts if names[f[0]] and f not in known]


def named_in(name: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) is not None


def within(facts: Sequence[Triple], characters: int) -> list[Triple]:
    """The first facts, whole ones, whose lines have at most so many characters."""
    kept, used = list[Triple](), 0
    for fact in facts:
        used += len(fact_text(fact)) + 2
        if used > characters:
            break
        kept.append(fact)
    return kept


def fact_text(fact: Triple) -> str:
    return " ".join(fact)


@pl.value_class
class GameState:
    """The environment's state, and what is known in the episode.

    Args:
        first: what the environment said first.
        said: the action that was taken last.
        correct: actions that raised the score: the last line of each reply, without its reasoning.
        shown: affordances that stand in the context already.
        graph: the graph of facts so far.
        informed: turns that had knowledge before them.
        turns: messages of all seats so far.
        cut: affordances that found no room.
    """

    inner: Any
    first: tuple[pl.Message, ...] = ()
    correct: tuple[str, ...] = ()
    shown: tuple[Triple, ...] = ()
    graph: tuple[Triple, ...] = ()
    informed: tuple[int, ...] = ()
    turns: int = 0
    cut: int = 0


@pl.declare(
    facts=(
        ("informed", tuple, "turns with knowledge before them"),
        ("correct_actions", tuple, "actions that raised the score, in order"),
        ("facts_cut", int, "affordances that found no room"),
    )
)
@pl.stage
class WithGameKnowledge:
    """An environment whose first seat reads what worked so far and what things can be used for behind
    every observation.

    Args:
        world: the user's.
        affordances: facts (thing, relation, use).
        memory: whether actions that raised the score are shown.
        inject: as text or as a graph.
        history: whether earlier turns stay in the context; without them each turn is a row of its own,
            with what the environment said first above the observation.
        characters: of the affordances in one turn, at most.
    """

    world: pl.World
    affordances: tuple[Triple, ...] = ()
    memory: bool = True
    inject: Literal["text", "graph"] = "text"
    history: bool = True
    characters: int = 400

    @property
    def seats(self) -> tuple[str, ...]:
        return self.world.seats

    @property
    def solved(self) -> float | None:
        """The pay of a solved task, as the environment says."""
        solved: Any = getattr(self.world, "solved", None)
        return solved

    async def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        return self._frame(GameState(inner=None), await awaited(self.world.reset(task, key)))

    async def step(self, state: GameState, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        frame = await awaited(self.world.step(state.inner, acts, key))
        own = [a for a in acts if a.ask.seat == self.seats[0]]
        paid = sum(x for (seat, _), x in frame.pay.items() if seat == self.seats[0])
        if own and paid > 0:
            lines = pl.judges.reply_after_thinking(own[-1].text).split("\n")
            last_line = next((" ".join(x.split()) for x in reversed(lines) if x.strip()), "")
            state = replace(state, correct=(*state.correct, last_line[-LONGEST_ACTION:]))
        return self._frame(replace(state, turns=state.turns + len(acts)), frame)

    async def leave(self, state: GameState) -> None:
        leave: Any = getattr(self.world, "leave", None)
        if leave is not None:
            await awaited(leave(state.inner))

    def oracle(self, state: GameState) -> Any:
        """What the environment's own says."""
        solver: Any = self.world
        return solver.oracle(state.inner)

    def _frame(self, state: GameState, frame: pl.Frame) -> pl.Frame:
        state = replace(state, inner=frame.state)
        new_facts = (
            tuple(map(tuple, frame.facts.get("graph", ()))) if self.inject == "graph" else ()
        )
        state = replace(
            state, graph=(*state.graph, *(f for f in new_facts if f not in state.graph))
        )
        asks = list[pl.Ask]()
        for i, ask in enumerate(frame.asks):
            if ask.seat == self.seats[0]:
                ask, state = self._informed(ask, state, state.turns + i)
            asks.append(ask)
        facts = {
            **frame.facts,
            "informed": state.informed,
            "correct_actions": state.correct,
            "facts_cut": state.cut,
        }
        return replace(frame, state=state, asks=tuple(asks), facts=facts)

    def _informed(self, ask: pl.Ask, state: GameState, turn: int) -> tuple[pl.Ask, GameState]:
        """The ask with the knowledge behind what the environment says."""
        seen = ask.say
        if not state.first:
            state = replace(state, first=ask.say)
        elif not self.history:
            seen = with_observation(state.first, ask.say)
            ask = replace(ask, say=seen, new_row=True, begins=None)
        if ask.new_row:  # what was shown before is not in this row
            state = replace(state, shown=())
        text = "\n".join(m.content for m in seen)
        new = facts_about(text, self.affordances, state.shown)
        kept = within(new, self.characters)
        state = replace(state, shown=(*state.shown, *kept), cut=state.cut + len(new) - len(kept))
        knowledge = self._graph_text(state) if self.inject == "graph" else self._text(state, kept)
        if not knowledge:
            return ask, state
        say = (*ask.say, pl.Message(role="user", content=knowledge, author=AUTHOR))
        if kept or (self.memory and state.correct):
            state = replace(state, informed=(*state.informed, turn))
        return replace(ask, say=say), state

    def _text(self, state: GameState, facts: Sequence[Triple]) -> str:
        lines = [f"affordances: {'; '.join(map(fact_text, facts))}"] if facts else []
        if self.memory:
            lines.append(f"correct so far: {'; '.join(state.correct) or NOTHING}")
        return "\n".join(lines)

    def _graph_text(self, state: GameState) -> str:
        done = [("you", "did", action) for action in state.correct] if self.memory else []
        facts = [*state.graph, *state.shown, *done]
        return f"graph: {'; '.join(map(fact_text, facts))}" if facts else ""


def with_observation(
    first: Sequence[pl.Message], say: Sequence[pl.Message]
) -> tuple[pl.Message, ...]:
    """What was said first, with what is said later behind its last message."""
    *before, last = first
    later = "\n".join(m.content for m in say)
    return (*before, replace(last, content=f"{last.content}\n{later}"))


async def awaited(given: Any) -> Any:
    """What an environment's method returned, once it is there."""
    return await given if inspect.isawaitable(given) else given


@pl.stage
class PlayInformed:
    """Plays the environment with knowledge beside what it shows; `demonstrate`: its oracle does."""

    sample: pl.Sample
    affordances: str = ""
    memory: bool = True
    inject: Literal["text", "graph"] = "text"
    history: bool = True
    characters: int = 400
    demonstrate: bool = False

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        there = self.there(ctx)
        return await (pl.Demonstrate() if self.demonstrate else self.sample)(there, key, group)

    def there(self, ctx: pl.Context) -> pl.Context:
        """The context of a run in whose environment there is knowledge."""
        world = WithGameKnowledge(
            ctx.bench.world,
            affordance_facts(self.affordances),
            self.memory,
            self.inject,
            self.history,
            self.characters,
        )
        return ctx.with_bench(replace(ctx.bench, world=world))


@pl.stage
class MeasureInfluence:
    """Parts of the reward: "influence", see the top, 0 where no turn has knowledge before it;
    "correct actions", how many raised the score; "facts cut", affordances that found no room.
    """

    model: str = "policy"

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        episodes = (self._measured(ctx, (*key, i), e) for i, e in enumerate(group.episodes))
        return replace(group, episodes=tuple(episodes))

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where there was nothing to show."""
        played = [e for g in groups for e in g.valid if "informed" in e.facts]
        if not played or any(e.facts["informed"] for e in played):
            return ""
        return (
            "no action of the first step raised the score and nothing that was shown has an affordance, so "
            "the agent was told nothing: give affordances=FILE.tsv whose first column has names as the "
            "environment writes them, and let the environment pay where its score rises"
        )

    def _measured(self, ctx: pl.Context, key: pl.Key, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None or "informed" not in e.facts:
            return e
        influence = {
            "influence": self._influence(ctx, key, e),
            "correct actions": float(len(e.facts["correct_actions"])),
            "facts cut": float(e.facts["facts_cut"]),
        }
        return replace(e, reward=replace(e.reward, parts={**e.reward.parts, **influence}))

    def _influence(self, ctx: pl.Context, key: pl.Key, e: pl.Episode) -> float:
        turns = [
            (row.segments[:i], s.ids)
            for row in e.rows
            for i, s in enumerate(row.segments)
            if s.trained and s.ids and s.turn in e.facts["informed"]
        ]
        if not turns:
            return 0.0
        before, reply = turns[int(pl.rng_of((*key, "influence")).integers(len(turns)))]
        contexts = [
            tuple(i for s in before if keep or s.author != AUTHOR for i in s.ids)
            for keep in (True, False)
        ]
        pairs = [(context, reply) for context in contexts]
        informed, plain = (
            float(x.mean()) for x in pl.models.score_pairs(ctx.model(self.model), pairs)
        )
        return abs(informed - plain)


@pl.stage
class HeldOutInformed:
    """Greedy play of held-out episodes with knowledge beside what the environment shows."""

    played: PlayInformed
    n: int = 64

    async def __call__(self, ctx: Any) -> Any:
        n = min(self.n, ctx.plan.evaluate) or self.n  # a run measures on no more
        there: Any = self.played.there(ctx)
        return await pl.run.Exam(n=n)(there)


def build(
    agent: Literal["rl", "imitation"] = "rl",
    affordances: str = "",
    memory: bool = True,
    inject: Literal["text", "graph"] = "text",
    history: bool = True,
    characters: int = 400,
    samples: int = 8,
    exam: int = 64,
) -> pl.Recipe:
    """`affordances` is a file of facts, head<TAB>relation<TAB>tail a line, or records with these columns,
    of which at most `characters` are shown a turn; "" = none. `exam` held-out episodes are played with
    knowledge where a run is measured, 0 = none; the run's own evaluation plays without.
    """
    if characters < 1:
        raise pl.UserError(
            f"knowledge-text-games: characters is 1 or more, not {characters}; "
            'affordances="" shows none'
        )
    affordance_facts(affordances)
    played = PlayInformed(
        pl.Sample(n=samples), affordances, memory, inject, history, characters, agent == "imitation"
    )
    exams = {"with knowledge": HeldOutInformed(replace(played, demonstrate=False), exam)}
    given: dict[str, Any] = {"evaluate": exams if exam else {}}
    if agent == "imitation":
        return pl.vary(pl.recipe("sft"), collect=pl.links(played, MeasureInfluence()), **given)
    return pl.vary(
        pl.recipe("grpo"), collect=pl.links(played, pl.Score(), MeasureInfluence()), **given
    )


@pl.stage
class ShowKnowledge:
    """Demonstrates the built-in game, with the knowledge in three of four episodes."""

    played: PlayInformed
    share: float = 0.75

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        plain = replace(self.played, affordances="", memory=False, demonstrate=True)
        informed = pl.rng_of((*key, "knowledge")).random() < self.share
        link = replace(self.played, demonstrate=True) if informed else plain
        return await link(ctx, key, group)


def embedded(affordances: str = "house", samples: int = 4, **options: Any) -> pl.Pipeline:
    """On the built-in game. The small model has never seen it, so it is shown some episodes first."""
    learned = build(affordances=affordances, samples=samples, **options)
    collect: Any = learned.collect
    sft = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(ShowKnowledge(collect.links[0])),
        schedule=pl.Schedule(prompts=16, steps=48),
        optimiser=pl.AdamW(lr=2e-3, warmup=10),
    )
    learned = pl.vary(learned, schedule=pl.Schedule(prompts=8, steps=8))
    return pl.Pipeline(
        parts={"shown": pl.warm(sft), "played": pl.Part(learned, model=pl.Output("shown"))}
    )
