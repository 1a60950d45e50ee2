"""The stages of the world knowledge model as programs: expert games, knowledge written from them, and an
exam with and without it.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import palaestra as pl
from palaestra.recipes.agents.wkm.knowledge import StateBase, StateRecord, verb_as_written
from palaestra.recipes.agents.wkm.play import (
    WORLD,
    KnowledgePlayer,
    WatchedGame,
    history_text,
    said_text,
)
from palaestra.recipes.agents.wkm.trajectories import GivenTrajectories, read_trajectories

EXPERIENCED = "experienced"
COMPARE = (
    "A task:\n{task}\n\nAn expert did it so:\n{expert}\n\nAnother attempt, which {outcome}:\n{sampled}\n\n"
    "Compare the two. In a few sentences, write what is to be done in such a task, in which order, and which "
    "mistakes to avoid. Write about the task, not about the attempts."
)
RECALL = "A task:\n{task}\n\nWrite what is to be done in such a task, and which mistakes to avoid."
DESCRIBE = (
    "A task:\n{task}\n\nWhat was done so far, and what it led to:\n{history}\n\nDescribe the present state in one "
    "sentence: what is to be reached, where things are, what is held, and what went wrong."
)


@pl.value_class
class Wording:
    """How models are asked. `compare` takes {task}, {expert}, {sampled} and {outcome}, `recall` {task},
    `describe` {task} and {history}.

    Args:
        characters: of an observation in a history or a trajectory, but for the last one.
        tokens: of task knowledge; a sentence about a state has at most 128.
    """

    compare: str = COMPARE
    recall: str = RECALL
    describe: str = DESCRIBE
    characters: int = 1000
    tokens: int = 256

    def __post_init__(self) -> None:
        parts = {
            "compare": {"task", "expert", "sampled", "outcome"},
            "recall": {"task"},
            "describe": {"task", "history"},
        }
        for name, known in parts.items():
            try:
                getattr(self, name).format(**dict.fromkeys(known, ""))
            except (KeyError, IndexError, ValueError):
                raise pl.UserError(
                    f"wkm: {name} takes {', '.join(f'{{{x}}}' for x in sorted(known))} and nothing else in "
                    "braces; write other braces twice"
                ) from None


def game_record(index: int, world: WatchedGame, episode: pl.Episode) -> dict[str, Any]:
    """A game as plain data."""
    return {
        "task": index,
        "says": [[[m.role, m.content] for m in say] for say in world.says],
        "actions": list(world.actions),
        "solved": bool(episode.solved),
    }


def says_of(game: Mapping[str, Any]) -> list[tuple[pl.Message, ...]]:
    return [tuple(pl.Message(role=r, content=c) for r, c in say) for say in game["says"]]


def trajectory_text(game: Mapping[str, Any], characters: int) -> str:
    return history_text(says_of(game), game["actions"], characters)


def conversation(game: Mapping[str, Any], knowledge: str = "") -> dict[str, Any]:
    """A game as a row of data whose actions are imitated."""
    messages = list[dict[str, str]]()
    for i, (say, action) in enumerate(zip(game["says"], game["actions"], strict=False)):
        messages += [{"role": role, "content": text} for role, text in say]
        if i == 0 and knowledge:
            messages[-1]["content"] += f"\n{knowledge}"
        messages.append({"role": "assistant", "content": action})
    return {"messages": messages}


async def play_game(
    ctx: pl.Context,
    key: pl.Key,
    split: Any,
    index: int,
    *,
    knowledge: str = "",
    temperature: float = 1.0,
    model: str = "policy",
    given: GivenTrajectories | None = None,
    oracle: bool = False,
    guide: Mapping[str, Any] | None = None,
) -> tuple[WatchedGame, pl.Episode]:
    """A scored game of a task: of a `given` trajectory, of the environment's `oracle`, or of a model, whose verbs
    are chosen with knowledge of states where there is a `guide` (fields of `KnowledgePlayer`).
    """
    world = WatchedGame(ctx.bench.world, knowledge)
    there = ctx.with_bench(replace(ctx.bench, world=world))
    task = ctx.bench.tasks.task(split, index)
    group = pl.Group(task=task)
    if oracle:
        played = await pl.Demonstrate()(there, key, group)
        return world, played.episodes[0]

    def seated(ctx: Any, key: pl.Key, sampling: pl.Sampling, seats: Mapping[str, Any]) -> Any:
        if given is not None:
            action = given.next_action  # not None
            script = pl.rollout.Script(fn=lambda messages, rng: action(task, world))
            return dict.fromkeys(seats, script)
        if guide is None:
            return seats
        player = KnowledgePlayer(
            engine=ctx.engine(model), sampling=sampling, name=model, policy="", ctx=ctx,
            model=model, world=world, **guide,
        )  # fmt: skip
        return dict.fromkeys(seats, player)

    sample = pl.Sample(n=1, temperature=temperature, model=model, cast=seated)
    played = await pl.Score()(there, key, await sample(there, key, group))
    return world, played.episodes[0]


def training_numbers(ctx: pl.Context, games: int) -> list[int]:
    """Numbers of training tasks, each once."""
    first, size = pl.curriculum.first_number(ctx), ctx.bench.tasks.size
    numbers = [first + i for i in range(games if size is None else min(games, size))]
    return numbers if size is None else [i % size for i in numbers]


@pl.stage
class PlayExperts:
    """A program: expert games of training tasks, from a file, by the environment's oracle, or the
    shortest solved one of `tries` of the model itself. Artifacts: "games", and "conversations" to imitate.
    """

    games: int = 64
    trajectories: str = ""
    tries: int = 4

    async def run(self, ctx: pl.Context) -> pl.Result:
        given = (
            GivenTrajectories(read_trajectories(self.trajectories)) if self.trajectories else None
        )
        oracle = not given and pl.abilities.solves(ctx.bench.world)

        async def one(i: int) -> dict[str, Any] | None:
            key = ctx.key("game", i)
            n = 1 if given or oracle else self.tries
            played = [
                await play_game(
                    ctx, (*key, j) if j else key, "train", i, given=given, oracle=oracle
                )
                for j in range(n)
            ]
            good = [(w, e) for w, e in played if e.ok and (oracle or e.solved) and w.actions]
            if not good:
                return None
            return game_record(i, *min(good, key=lambda we: len(we[0].actions)))

        numbers = training_numbers(ctx, self.games)
        games = [g for g in await asyncio.gather(*map(one, numbers)) if g is not None]
        by = "your trajectories" if given else "the oracle" if oracle else "the model itself"
        ids = [ctx.bench.tasks.task("train", i).id for i in numbers]
        remarks = given.remarks(ids) if given else ""
        if len(games) < 2:
            raise pl.UserError(
                f"wkm: {by} solved {len(games)} of {len(numbers)} training tasks, and two are needed to learn from: "
                f"{remarks + '; ' if remarks else ''}"
                "give trajectories=FILE.jsonl of solved tasks by their id or prompt, give the environment a "
                "method oracle(state), or take an easier environment"
            )
        if len(games) < len(numbers):
            ctx.say(f"{len(games)} of {len(numbers)} training tasks have an expert game, by {by}")
        if remarks:
            ctx.say(f"{self.trajectories}: {remarks}")
        ctx.log({"experts": len(games)})
        files = {
            "games": pl.tasks.write_records(ctx.folder / "games.jsonl", games),
            "conversations": pl.tasks.write_records(
                ctx.folder / "conversations.jsonl", [conversation(g) for g in games]
            ),
        }
        metrics = {"experts": len(games), "sampled_tokens": ctx.sampled_tokens}
        return pl.Result(metrics=metrics, artifacts=files)


@pl.stage
class WriteKnowledge:
    """A program: the experienced agent plays the tasks of expert games itself, compares both games of each
    in task knowledge, and describes the states of the expert's. Artifacts: "world", rows that teach the
    world model; "agent", expert games with task knowledge; "states", the state base.
    """

    games: str
    wording: Wording = Wording()
    writer: pl.Source | None = None

    async def run(self, ctx: pl.Context) -> pl.Result:
        text = Path(self.games).read_text(encoding="utf-8")
        games = [json.loads(line) for line in text.splitlines()]
        written = await asyncio.gather(*(self._written(ctx, g) for g in games))
        world, agent, records = list[Any](), list[Any](), list[StateRecord]()
        for game, (knowledge, states) in zip(games, written, strict=True):
            if knowledge:
                world.append(
                    self._lesson(self.wording.recall.format(task=task_text(game)), knowledge)
                )
            agent.append(conversation(game, knowledge))
            for t, state in states:
                world.append(self._lesson(self._history(game, t), state))
                before, after = map(verb_as_written, game["actions"][t - 1 : t + 1])
                records.append(StateRecord(before=before, state=state, after=after))
        asked = len(games) + sum(len(g["actions"]) - 1 for g in games)
        if len(world) < asked:
            ctx.say(
                f"{asked - len(world)} of {asked} texts of the writer are empty and are left out"
            )
        if not world:
            raise pl.UserError(
                "wkm: the writer wrote no knowledge; give writer=DIR or an endpoint that can write a sentence"
            )
        base = ctx.folder / "states.jsonl"
        StateBase(records).write(base)
        metrics = {
            "task_knowledge": sum(bool(k) for k, _ in written),
            "state_knowledge": len(records),
        }
        ctx.log(metrics)
        files = {
            "world": pl.tasks.write_records(ctx.folder / "world.jsonl", world),
            "agent": pl.tasks.write_records(ctx.folder / "agent.jsonl", agent),
            "states": str(base),
        }
        return pl.Result(metrics={**metrics, "sampled_tokens": ctx.sampled_tokens}, artifacts=files)

    async def _written(
        self, ctx: pl.Context, game: Mapping[str, Any]
    ) -> tuple[str, list[tuple[int, str]]]:
        """Task knowledge, and of each later state its turn and a sentence; what is empty is left out."""
        index, characters = game["task"], self.wording.characters
        world, episode = await play_game(ctx, ctx.key("game", index), "train", index)
        done = "succeeded" if episode.ok and episode.solved else "failed"
        asked = self.wording.compare.format(
            task=task_text(game),
            expert=trajectory_text(game, characters),
            sampled=history_text(world.says, world.actions, characters) or "(nothing)",
            outcome=done,
        )
        turns = range(1, len(game["actions"]))
        texts = await asyncio.gather(
            self._ask(ctx, asked, self.wording.tokens),
            *(self._ask(ctx, self._history(game, t), 128) for t in turns),
        )
        states = [(t, text) for t, text in zip(turns, texts[1:], strict=True) if text]
        return texts[0], states

    def _history(self, game: Mapping[str, Any], turn: int) -> str:
        before = history_text(
            says_of(game)[: turn + 1], game["actions"][:turn], self.wording.characters
        )
        return self.wording.describe.format(task=task_text(game), history=before)

    async def _ask(self, ctx: pl.Context, text: str, tokens: int) -> str:
        message = pl.Message(role="user", content=text)
        request = pl.ChatRequest(messages=(message,), max_tokens=tokens)
        try:
            reply = await ctx.ask(self.writer or pl.LocalModel(), request)
        except pl.Fatal:
            raise
        except pl.Fault:  # its client has counted it
            return ""
        return " ".join(pl.judges.reply_after_thinking(reply).split())

    def _lesson(self, asked: str, reply: str) -> dict[str, Any]:
        return {"prompt": asked, "demonstration": reply}


def task_text(game: Mapping[str, Any]) -> str:
    return "\n".join(text for _, text in game["says"][0])


@pl.stage
class PlanExam:
    """A program: held-out tasks played greedily by the experienced agent, by the agent with task knowledge,
    and by the agent with knowledge of the task and of states. "verbs_changed" is the share of actions
    whose verb knowledge of the state changed.
    """

    states: str
    wording: Wording = Wording()
    tasks: int = 64
    weight: float = 0.5
    k: int = 50
    verbs: tuple[str, ...] = ()
    marker: str = ""

    async def run(self, ctx: pl.Context) -> pl.Result:
        base = StateBase.read(self.states)
        if self.k >= len(base.records) > 0:
            ctx.say(
                f"k={self.k} is no less than the {len(base.records)} records of states, so all of them count as "
                f"similar; give k={max(1, len(base.records) // 20)}"
            )
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        guide = {
            "base": base, "describe": self.wording.describe, "weight": self.weight, "k": self.k,
            "verbs": self.verbs, "marker": self.marker, "characters": self.wording.characters,
        }  # fmt: skip
        arms: dict[str, dict[str, Any]] = {
            "experienced": {"model": EXPERIENCED},
            "task knowledge": {"known": True},
            "task and state knowledge": {"known": True, "guide": guide},
        }
        measured: dict[str, Any] = {}
        for name, arm in arms.items():
            games = await asyncio.gather(*(self._game(ctx, i, **arm) for i in numbers))
            measured[name] = measure_games(games)
        changed = measured["task and state knowledge"]["changed"]
        ctx.log({"verbs_changed": changed})
        ends = measured["experienced"]["outcome"], measured["task and state knowledge"]["outcome"]
        metrics = {**measured, "verbs_changed": changed, "sampled_tokens": ctx.sampled_tokens}
        return pl.Result(metrics={**pl.ends.at_ends(*ends), **metrics})

    async def _game(
        self, ctx: pl.Context, index: int, known: bool = False, **arm: Any
    ) -> tuple[WatchedGame, pl.Episode]:
        key, knowledge = ctx.key("exam", index), ""
        if known:
            knowledge = await self._task_knowledge(ctx, key, index)
        return await play_game(ctx, key, "test", index, knowledge=knowledge, temperature=0.0, **arm)

    async def _task_knowledge(self, ctx: pl.Context, key: pl.Key, index: int) -> str:
        """What the world model knows of a task before it begins."""
        world = WatchedGame(ctx.bench.world)
        frame = await world.reset(ctx.bench.tasks.task("test", index), (*key, "world"))
        await world.leave(frame.state)
        text = self.wording.recall.format(task=said_text(world.says[0]))
        request = pl.ChatRequest(
            messages=(pl.Message(role="user", content=text),), max_tokens=self.wording.tokens
        )
        try:
            return " ".join((await ctx.ask(pl.LocalModel(WORLD), request)).split())
        except pl.Fatal:
            raise
        except pl.Fault:  # its client has counted it
            return ""


def measure_games(games: Sequence[tuple[WatchedGame, pl.Episode]]) -> dict[str, Any]:
    """Of some games the accuracy or the mean reward, actions and impossible actions a game (None where the
    environment does not say which are), and the share of actions whose verb was changed.
    """
    valid = [(w, e) for w, e in games if e.ok and e.reward is not None]
    if not valid:
        raise pl.Fault("wkm", "no held-out task could be played")
    if all(e.reward is not None and e.reward.solved is not None for _, e in valid):
        interval = pl.stats.proportion(sum(e.solved for _, e in valid), len(valid))
        outcome = {"of": "accuracy", **interval.json()}
    else:
        outcome = {"of": "reward", **pl.stats.mean_interval([e.total for _, e in valid]).json()}
    invalid = [e.facts["invalid"] for _, e in valid if "invalid" in e.facts]
    actions = sum(len(w.actions) for w, _ in valid)
    return {
        "outcome": outcome,
        "games": len(valid),
        "failed": len(games) - len(valid),
        "actions": actions / len(valid),
        "invalid": sum(invalid) / len(invalid) if invalid else None,
        "changed": sum(sum(w.changed) for w, _ in valid) / max(1, actions),
    }


@pl.stage
class PlanWithKnowledge:
    """A program: all stages in their order; see `wkm`. Experts play `n` training tasks, and `tasks` held-out
    ones are planned. `begin`: what is learned before all of them.
    """

    n: int
    tasks: int
    experts: PlayExperts
    writing: WriteKnowledge
    exam: PlanExam
    imitate: pl.Recipe
    learn: pl.Recipe
    begin: pl.Recipe | None = None

    async def run(self, ctx: pl.Context) -> pl.Result:
        if len(ctx.bench.world.seats) != 1:
            raise pl.UserError(
                f"wkm plans for one agent, and {ctx.bench.name} has the seats "
                f"{', '.join(ctx.bench.world.seats)}; use an environment of one seat"
            )
        start: str | None = None
        if self.begin is not None:
            start = (await ctx.once("shown", self.begin)).artifacts["policy"]
        experts = await ctx.once("experts", replace(self.experts, games=self.n), start)
        on = lambda file: {"data": file, "test_data": file, "columns": ""}
        games = experts.artifacts
        experienced = await ctx.once(
            EXPERIENCED, self.imitate, start, None, on(games["conversations"])
        )
        own = experienced.artifacts["policy"]
        writing = replace(self.writing, games=games["games"])
        known = (await ctx.once("knowledge", writing, own)).artifacts
        world = await ctx.once(WORLD, self.learn, start, None, on(known["world"]))
        agent = await ctx.once("agent", self.imitate, start, None, on(known["agent"]))
        models = {WORLD: world.artifacts["policy"], EXPERIENCED: own}
        exam = replace(self.exam, states=known["states"], tasks=self.tasks)
        result = await ctx.once("exam", exam, agent.artifacts["policy"], models)
        made = {
            "policy": agent.artifacts["policy"],
            WORLD: models[WORLD],
            "states": known["states"],
        }
        return pl.Result(metrics=result.metrics, artifacts=made)
