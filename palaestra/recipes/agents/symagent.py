"""SymAgent: an agent over a graph of facts, planned by rules that are induced from the graph, learning from
its own trajectories.

    planner     p ~ model(question, k similar solved questions with the chains of relations to their answers)
    executor    a thought, an action, what it gives, and so on: getReasoningPath(question),
                searchNeighbor(entity, relation), wikiSearch(entity, relation), finish(names)
    reward      r = |given & right| / |right|,     0 without finish

A round of self-learning: one trajectory u is explored per question; the same model is shown u and r(u)
and plays once more, u'; of the two is kept

    r > r': u        r < r': u'        r = r' > 0: the one of fewer actions        r = r' = 0: none

and the model imitates what is kept, on its thoughts and actions alone. What was shown of u is not part of
what is trained on. The next round explores with the new model (arXiv:2502.03283, equations 2 to 8).

    palaestra train symagent --graph triples.tsv --data questions.jsonl --model DIR [--docs FOLDER]

An answer may be a list of all that are right. A question is about the entities in the column `entity`,
else about those whose names stand in it. `planner=graph` shows the chains of similar questions as they
are; these are also shown where the model writes none that exists. A fact that the graph lacks and that was
read in documents is in the fact "added" of the episode; `missing_triples(palaestra.open(RUN).episodes())` lists
all with how often they were read. They never enter your file.

Recall pays for any number of names: `finish` counts the first ten, --env "graph(measure=f1)" pays F1.

Long because a question is played twice, the second time with the first attempt in sight: the recipe writes this
attempt down, merges both trajectories by its rule, and says why nothing was left to imitate.
"""

import json
from collections import Counter
from dataclasses import replace
from typing import Any, Literal

import palaestra as pl

EXPLORER = "explorer"
REFINED = "reattempted"
CARD = pl.Card(
    title="SymAgent: neural-symbolic agent over knowledge graphs",
    paper="arXiv:2502.03283",
    claim="An agent that induces rules from the graph and imitates what it explored and refined itself "
    "answers multi-hop questions better than one without rules or without this learning.",
    source="the paper's text (equations 2 to 8, section 4), as a public repository keeps it, and the abstract",
    size=pl.Size(
        setting="Qwen2-7B, Mistral-7B and Llama-2-7B; 2,826 questions of WebQSP and 1,635 of CWQ over "
        "8.3M triples of Freebase, MetaQA with 3 hops to test on",
        model="qwen2.5-7b",
    ),
    model="tiny-agent",
    task="graph",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.QUESTION,
            replace(
                pl.needs.GOLD_ANSWER, meaning="the right answer, or a list of all that are right"
            ),
            pl.needs.NeededColumn(
                "entity",
                "any",
                ("bako", "tiru", ["mema"]),
                "the entity that the question is about, or several",
                otherwise="the entities of the graph whose names stand in the question",
            ),
        ),
        places=(
            pl.needs.NeededPlace("graph", "whose facts are followed", built_in=("graph",)),
            pl.needs.NeededPlace(
                "documents",
                "which have what the graph lacks",
                otherwise="what the graph lacks is found nowhere",
            ),
        ),
        shows="part/reach",
        off={"planner": "nobody"},
        own={
            "model": "tiny-agent",
            "env": "graph(told=0,turns=2)",
            "planner": "graph",
            "rounds": 1,
            "steps": 2,
            "round1.schedule.prompts": 4,
        },
    ),
    use="It helps where questions need several facts in a row and similar questions have known answers; "
    "where the start never finishes with a right name, nothing is kept and nothing is learned.",
    lacks=(
        "The number of rounds is given (`rounds`): nothing sees that the gain on held-out questions "
        "has become negligible.",
        "wikiSearch searches a folder of yours by BM25, not Wikipedia or the internet.",
        "Freebase and the three data sets are not there; any graph that fits into memory is.",
    ),
    grade="A",
)

ATTEMPT = (
    "An earlier attempt of yours at the question below:\n{attempt}\n\nIt earned {reward:.2f} of 1. Write "
    "a better one from the beginning."
)
LONGEST = 2000  # characters of an attempt that are shown, from its end


def kept_of(first: float, refined: float, n_first: int, n_refined: int) -> int | None:
    """Which of two trajectories is kept by its reward and its number of actions: 0 the first, 1 the
    refined one, of wholly equal ones the first; None = both earned nothing.
    """
    if first != refined:
        return int(refined > first)
    return int(n_refined < n_first) if first > 0 else None


def attempt_text(episode: pl.Episode) -> str:
    """What was done and seen in an episode, a line each, without the question."""
    lines = list[str]()
    for row in episode.rows:
        begun = False
        for s in row.segments if not row.thread else ():
            if s.trained:
                begun = True
                lines.append(s.text.strip())
            elif begun and s.text.strip():
                lines.append(f"({s.text.strip()})")
    return "\n".join(lines)[-LONGEST:]


@pl.stage
class ShownAttempt:
    """A world over a graph in which the policy reads `text` before the question. It is hidden: what
    is trained on does not have it, unless `hidden` is false.
    """

    world: pl.worlds.GraphQuestions
    text: str
    hidden: bool = True

    @property
    def seats(self) -> tuple[str, ...]:
        return self.world.seats

    def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        return self._shown(self.world.reset(task, key))

    def step(self, state: Any, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        return self._shown(self.world.step(state, acts, key))

    def oracle(self, state: Any) -> str:
        return self.world.oracle(state)

    def _shown(self, frame: pl.Frame) -> pl.Frame:
        if frame.state.steps or frame.state.waiting:
            return frame
        before = pl.Message(role="user", content=self.text, hidden=self.hidden)
        return replace(frame, asks=tuple(replace(a, say=(before, *a.say)) for a in frame.asks))


@pl.declare(facts=(("reattempted", float, "1 where an earlier attempt was shown"),))
@pl.stage
class ExploreGraph:
    """Plays a question, and with `refine` once more with the first attempt and its reward shown.
    `planner`: who gives chains of relations, None = as the world says.
    """

    sample: pl.Sample = pl.Sample(n=1, model=EXPLORER)
    planner: Literal["model", "graph", "nobody"] | None = None
    refine: bool = True

    async def check_start(self, ctx: pl.Context) -> None:
        world, tasks = ctx.bench.world, ctx.bench.tasks
        if isinstance(world, pl.worlds.GraphQuestions) and tasks.size is not None:
            asked = [tasks.task("train", i) for i in range(tasks.size)]
            for line in pl.worlds.lost_entities(world.planner, asked):
                ctx.say(f"note: {line}")

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world = ctx.bench.world
        if not isinstance(world, pl.worlds.GraphQuestions):
            raise pl.UserError(
                "symagent follows the facts of a graph: --graph FILE.tsv --data FILE.jsonl, or --task "
                "graph"
            )
        world = replace(world, plan=self.planner) if self.planner else world
        play = pl.links(self.sample, pl.Score())
        ctx = ctx.with_bench(replace(ctx.bench, world=world))
        group = await play(ctx, key, group)
        if not self.refine or not group.valid:
            return group
        first = group.valid[0]
        text = ATTEMPT.format(attempt=attempt_text(first), reward=first.total)
        with_attempt = ctx.with_bench(replace(ctx.bench, world=ShownAttempt(world, text)))
        again = await play(with_attempt, (*key, REFINED), pl.Group(task=group.task))
        more = (replace(e, facts={**e.facts, REFINED: 1.0}) for e in again.episodes)
        return replace(group, episodes=(*group.episodes, *more))


@pl.stage
class MergeTrajectories:
    """Mutes all trajectories of a question but the one that is kept, and trains on its thoughts and
    actions alone. Parts of the reward: "reach", the share of the right answers that the planner's
    chains lead to; "written", whether the model wrote them; "precision"; "missing", the facts read that
    the graph lacks; "kept", and "kept refined" of those that are.
    """

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        able = [i for i, e in enumerate(group.episodes) if e.ok and e.reward is not None]
        best: int | None = None
        for i in able:
            e = group.episodes[i]
            if best is None:
                best = i if e.total > 0 else None
                continue
            other = group.episodes[best]
            if kept_of(other.total, e.total, other.facts["turns"], e.facts["turns"]):
                best = i
        episodes = (self._merged(e, i == best) for i, e in enumerate(group.episodes))
        return replace(group, episodes=tuple(episodes))

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where nothing is imitated, and where no chain of the planner leads to an answer."""
        episodes = [e for g in groups for e in g.valid if e.reward and "kept" in e.reward.parts]
        notes = list[str]()
        if episodes and not any(e.reward.parts["kept"] for e in episodes if e.reward):
            ended = sum(bool(e.facts["answered"]) for e in episodes)
            notes.append(
                f"no trajectory of the first step earned anything, so nothing is imitated: {ended} of "
                f"{len(episodes)} ended with finish(...), none with a right name; take a model that follows "
                "instructions, more turns, or easier questions"
            )
        with_chains = [e for e in episodes if e.facts["rules"]]
        if with_chains and not any(e.facts["reach"] for e in with_chains):
            notes.append(
                "no chain of the planner led to a right answer in the first step; are the facts that lead to "
                "the answers in the graph, under the names that the questions and answers have?"
            )
        return "; and ".join(notes)

    def _merged(self, e: pl.Episode, kept: bool) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        refined = e.facts.get(REFINED, 0.0)
        new_parts = {
            "reach": float(e.facts["reach"]),
            "written": float(e.facts["written"] > 0),
            "precision": float(e.facts["precision"]),
            "missing": float(len(e.facts["added"])),
            "kept": float(kept),
            "kept refined": float(kept and refined > 0),
        }
        reward = replace(e.reward, parts={**e.reward.parts, **new_parts})
        rows = tuple(r if not r.thread else without_gradient(r) for r in e.rows)
        return replace(e, reward=reward, rows=rows, muted=not kept)


def without_gradient(row: pl.Row) -> pl.Row:
    """A row of the planner or of who reads documents: its tokens are not imitated."""
    return replace(row, segments=tuple(replace(s, trained=False) for s in row.segments))


def missing_triples(episodes: Any) -> Counter[tuple[str, str, str]]:
    """The facts that a run read in documents and its graph lacks, with the number of episodes that
    read them, the most frequent first. `episodes`: the run's table of them.
    """
    facts = map(json.loads, episodes["facts"].to_pylist())
    read = Counter(tuple(fact) for of_episode in facts for fact in of_episode.get("added", ()))
    return Counter(dict(read.most_common()))


def explore_and_imitate(
    steps: int, lr: float, planner: Literal["model", "graph", "nobody"] | None, refine: bool
) -> pl.Recipe:
    """A round: the model of its beginning explores, and what is kept is imitated."""
    return pl.vary(
        pl.recipe("sft"),
        collect=pl.links(
            ExploreGraph(planner=planner, refine=refine), MergeTrajectories(), pl.Offline()
        ),
        references={EXPLORER: "policy"},
        optimiser=pl.AdamW(lr=lr),
        schedule=pl.Schedule(prompts=32, steps=steps),
    )


def build(
    rounds: int = 3,
    steps: int = 40,
    lr: float = 1e-5,
    planner: Literal["model", "graph", "nobody"] | None = None,
    refine: bool = True,
) -> pl.Pipeline:
    """Each round has `steps` of 32 questions. `planner` None: as the environment says, where the
    model plans unless --env "graph(plan=...)" says otherwise. Without `refine` only right
    explorations are imitated.
    """
    if rounds < 1:
        raise pl.UserError(f"symagent: rounds is 1 or more, not {rounds}")
    part = explore_and_imitate(steps, lr, planner, refine)
    names = [f"round{i}" for i in range(1, rounds + 1)]
    starts = (None, *map(pl.Output, names))
    return pl.Pipeline(
        parts={n: pl.Part(part, model=start) for n, start in zip(names, starts, strict=False)}
    )


@pl.stage
class ShowActions:
    """Demonstrates actions, and in a share of the questions with a wrong attempt above them."""

    share: float = 0.5

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world, rng = ctx.bench.world, pl.rng_of((*key, "attempt"))
        if isinstance(world, pl.worlds.GraphQuestions) and rng.random() < self.share:
            wrong = pl.worlds.call_text("finish", (str(group.task.meta["entity"]),))
            text = ATTEMPT.format(attempt=wrong, reward=0.0)
            attempt_world = ShownAttempt(world, text, hidden=False)
            ctx = ctx.with_bench(replace(ctx.bench, world=attempt_world))
        return await pl.Demonstrate()(ctx, key, group)


def embedded(rounds: int = 2, steps: int = 8, lr: float = 5e-4, **options: Any) -> pl.Pipeline:
    """On questions over a small graph. The small model has never seen the actions, so it is shown a few
    solved questions first.
    """
    sft = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(ShowActions()),
        schedule=pl.Schedule(prompts=16, steps=11),
        optimiser=pl.AdamW(lr=2e-3, warmup=10),
    )
    made = build(rounds, steps, lr, **options)
    smaller = {n: pl.override(p.runnable, "schedule.prompts", 16) for n, p in made.parts.items()}
    parts = {n: replace(p, runnable=smaller[n]) for n, p in made.parts.items()}
    parts["round1"] = replace(parts["round1"], model=pl.Output("shown"))
    return pl.Pipeline(parts={"shown": pl.warm(sft), **parts})
