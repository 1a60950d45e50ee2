"""Tasks one after another, each with subgoals that a model names and options that reach them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.ldsc.subgoals import (
    PlaceWords,
    SubgoalOption,
    SubgoalRegion,
    exchange_coordinates,
    stored_option,
    tree_prior,
)

Subgoals = Literal["model", "none"]
GOALS = ((9, 1), (9, 9), (6, 9))
MAZES: tuple[pl.control.Simulator, ...] = tuple(pl.control.Maze(goal=goal) for goal in GOALS)
SAMPLE = 16  # games of the start, which bounds of coordinates are taken from
ASKS = 4  # a reply, and three repairs
FORM = """{about}

Coordinates of the agent:
{places}

Name 1 to {most} subgoals on the way to the goal, such as doors, in their order, the last one at the goal. A \
subgoal is reached where each coordinate is within "radius" of its own. Answer with {{"subgoals": [{{"name": \
"...", {axes}, "radius": ..., "after": NAME OF THE SUBGOAL BEFORE IT OR ""}}]}}.
"""


@pl.stage
class ReuseOptions:
    """A program: in each task the model names subgoals, each becomes an option with values of its own,
    and values over options and single actions choose among them. Options whose region is needed again
    in a later task go on as they are.

    Args:
        asked: who names subgoals; None = nobody, which is refused unless subgoals="none".
        tasks: simulators with the same observations and actions, learned in their order.
        goal: of the tasks, in words, for a simulator that does not say what it is about.
        place: names of the coordinates, with commas; see `PlaceWords`.
        steps: environment steps of a task in each arm.
        timeout: of an option, in steps.
        most: subgoals of a task.
        games: on which a task is measured.
    """

    asked: pl.Source | None = None
    tasks: tuple[pl.control.Simulator, ...] = MAZES
    place: str = ""
    goal: str = ""
    subgoals: Subgoals = "model"
    reuse: bool = True
    steps: int = 6_000
    timeout: int = 20
    most: int = 6
    games: int = 128
    learner: pl.control.DoubleQ = pl.control.DoubleQ(
        gamma=0.95,
        games=8,
        lr=4e-3,
        updates=20,
        batch=128,
        width=32,
        follow=0.25,
        explore=1.0,
        explore_steps=0.7,
    )
    smallest: ClassVar[Mapping[str, float]] = {"games": 8}

    def __post_init__(self) -> None:
        for name, least in {"steps": 1, "timeout": 1, "most": 1, "games": 2}.items():
            if getattr(self, name) < least:
                raise pl.UserError(f"ldsc: {name} is {least} or more")
        if not self.tasks:
            raise pl.UserError("ldsc needs a task: --env FILE.py:NAME, or several with commas")
        first = self.tasks[0]
        for task in self.tasks:
            if task.agents != 1:
                raise pl.UserError(f"ldsc: a task has one agent, not {task.agents}")
            if (task.observation, task.actions) != (first.observation, first.actions):
                raise pl.UserError(
                    "ldsc: tasks share options, so their observations and actions have one size each"
                )

    @property
    def source(self) -> pl.Source:
        """Who names subgoals, its replies kept. Raises UserError where nobody does."""
        if self.asked is None:
            raise pl.UserError(
                "ldsc needs a language model that names subgoals: "
                "--llm endpoint(url='...',model='...'), a folder, or transcript:FILE; or subgoals=none"
            )
        return pl.services.TranscribedSource(self.asked)

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("ldsc", ctx.seed)
        words = [self._words(task, key) for task in self.tasks]
        regions = [await self.ask(ctx, i, w) for i, w in enumerate(words)]
        arm = lambda given, reuse, folder=None: OptionLearning(
            program=self, ctx=ctx, words=words, regions=given, reuse=reuse, key=key
        ).arm(folder)
        folder = None if ctx.out is None else ctx.out / "policy"
        nothing: list[list[SubgoalRegion]] = [[] for _ in words]
        arms = {"none": arm(nothing, False), "guide": arm(regions, self.reuse, folder)}
        if self.subgoals == "model":
            arms["without reuse"] = arm(regions, False)
            other = [
                exchange_coordinates(r, w, (*key, i))
                for i, (r, w) in enumerate(zip(regions, words, strict=True))
            ]
            arms["shuffled"] = arm(
                [self._free(i, r, words[i]) for i, r in enumerate(other)], self.reuse
            )
            routes = [w.route(task) for w, task in zip(words, self.tasks, strict=True)]
            ways = [on_route(route, 4) for route in routes if route is not None]
            if len(ways) == len(self.tasks):
                arms["oracle"] = arm(ways, self.reuse)
        results = await pl.control.compare_arms(ctx, arms)
        ctx.spend("env_steps", sum(r["env_steps"] for r in results.values()))
        guide = results["guide"]
        ctx.log({"arm": "guide", "by_options": guide["by_options"], "return": guide["return"]})
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results),
                "by_options": guide["by_options"],
                "reused": guide["reused"],
                "subgoals": [[r.name for r in own] for own in regions],
                "sampled_tokens": 0,
            },
            artifacts={} if folder is None else {"agent": str(folder)},
        )

    def cut(self, ctx: pl.Context) -> int:
        """Environment steps of a task, by `--steps`."""
        if (most := ctx.budget.get("steps")) is None:
            return self.steps
        return min(self.steps, int(most) * self.learner.games * self.tasks[0].horizon)

    async def ask(self, ctx: pl.Context, task: int, words: PlaceWords) -> list[SubgoalRegion]:
        """The subgoals of a task; none where the model writes no reply that fits, which is said."""
        if self.subgoals == "none":
            return []
        sim = self.tasks[task]
        about = str(getattr(sim, "about", "") or "An agent acts in a simulator.")
        text = FORM.format(
            about=f"{about}\nThe goal: {self.goal}" if self.goal else about,
            places=words.spelled(),
            most=self.most,
            axes=", ".join(f'"{n}": ...' for n in words.names),
        )
        request = pl.ChatRequest(messages=pl.services.question_messages(text), max_tokens=2048)

        async def answer() -> dict[str, Any] | None:
            ctx.say(f"task {task + 1}: asks for subgoals")
            try:
                form = words.form(self.most)
                reply = await ctx.ask_for(self.source, request, form, asks=ASKS)
            except pl.Fault as fault:
                if fault.cause != "chat-format":
                    raise
                return None
            return reply.model_dump()

        record = await ctx.once(f"subgoals-{task}", answer)
        if record is None:
            ctx.say(f"task {task + 1}: no reply fits, so it has no subgoals and is learned without")
            return []
        regions, dropped = words.regions(record, words.free(sim))
        if dropped:
            ctx.say(
                f"task {task + 1}: {dropped} subgoals are where another one is, and were dropped"
            )
        if around := [r.name for r in regions if r.holds(words.starts).all()]:
            ctx.say(
                f"task {task + 1}: games begin in {', '.join(map(repr, around))}, so these are reached at "
                "once, and only lead back there"
            )
        return regions

    def _words(self, task: pl.control.Simulator, key: pl.Key) -> PlaceWords:
        learner = self.learner.learner(task, key)
        act = self.learner.acting(learner.values, 1.0)
        games = pl.control.play_games(task, act, SAMPLE, (*key, "sample"))
        return PlaceWords.of(task, games, self.place)

    def _free(
        self, task: int, regions: Sequence[SubgoalRegion], words: PlaceWords
    ) -> list[SubgoalRegion]:
        """Regions with their centres at free places, where a task tells these."""
        free = words.free(self.tasks[task])
        if free is None:
            return list(regions)
        near = lambda r: free[np.abs(free - np.array(r.centre)).sum(1).argmin()]
        return [replace(r, centre=tuple(map(float, near(r)))) for r in regions]


def on_route(route: np.ndarray, every: int) -> list[SubgoalRegion]:
    """Subgoals at every few places of a shortest way [S, P], and at its end: an oracle's."""
    at = [*range(every, len(route) - 1, every), len(route) - 1]
    names = [f"place {i}" for i in at]
    return [
        SubgoalRegion(name=n, centre=tuple(map(float, route[i])), radius=0.5, after=before)
        for n, i, before in zip(names, at, ["", *names], strict=False)
    ]


@pl.value_class
class OptionLearning:
    """The tasks of an arm, learned one after another with one library of options."""

    program: ReuseOptions
    ctx: pl.Context
    words: Sequence[PlaceWords]
    regions: Sequence[Sequence[SubgoalRegion]]
    reuse: bool
    key: pl.Key

    def arm(self, folder: Path | None) -> pl.control.ArmRun:
        """What `compare_arms` runs; the policies are saved where there is a folder."""

        async def run() -> Mapping[str, Any]:
            library: list[SubgoalOption] = []
            curve, results, reused = list[dict[str, Any]](), list[dict[str, float]](), 0
            for task in range(len(self.program.tasks)):
                options, again = self.options(task, library)
                reused += again
                learner = TaskLearner(self, task, options)
                curve += await learner.learn()
                results.append(await learner.measure())
                if folder is not None:
                    save_task(folder / f"task-{task + 1}", learner)
            mean = {k: float(np.mean([r[k] for r in results])) for k in results[0]}
            each = {f"return_task_{i + 1}": r["return"] for i, r in enumerate(results)}
            taken = sum(line["taken"] for line in curve)
            return {
                **mean,
                **each,
                "learned_from": mean["return"],
                "agreement": 1.0,  # an arm's rewards are the simulator's
                "by_options": sum(x["reached"] for x in curve)
                / max(1, sum(x["called"] for x in curve)),
                "reused": reused,
                "env_steps": taken,
                "curve": curve,
            }

        return run

    def options(self, task: int, library: list[SubgoalOption]) -> tuple[list[SubgoalOption], int]:
        """The options of a task, and how many of them served before; the library gets the others."""
        chosen, reused = list[SubgoalOption](), 0
        for i, region in enumerate(self.regions[task]):
            stored, same = stored_option(library, region) if self.reuse else (None, False)
            if stored is not None and same:
                chosen.append(stored)
                reused += 1
                continue
            sim, key = self.program.tasks[task], (*self.key, "option", task, i)
            learner = self.program.learner.learner(sim, key)
            if stored is not None:
                learner.values.load_state_dict(stored.learner.values.state_dict())
                learner.following.load_state_dict(stored.learner.values.state_dict())
                reused += 1
            chosen.append(SubgoalOption(region, learner, self.words[task]))
        library += [o for o in chosen if o not in library]
        return chosen, reused


class TaskLearner:
    """One task: values over its options and the single actions, the global option's values, and those
    of each option, all of which learn from every game.
    """

    def __init__(self, setting: OptionLearning, task: int, options: Sequence[SubgoalOption]):
        self.setting, self.task, self.own = setting, task, options
        self.sim: pl.control.Simulator = setting.program.tasks[task]
        settings, self.key = setting.program.learner, (*setting.key, "task", task)
        self.flat = settings.learner(self.sim, (*self.key, "global"))
        spaces = pl.control.OptionSpaces(observation=self.sim.observation, actions=1 + len(options))
        self.over = settings.learner(spaces, (*self.key, "over"))
        # the task's own regions, as a stored option may have been named otherwise
        self.prior = tree_prior(setting.regions[task], setting.words[task])

    def options(self, epsilon: float) -> list[pl.control.Option]:
        """The global option, one step of the values of single actions, and those of the subgoals."""
        program = self.setting.program
        acting = program.learner.acting(self.flat.values, epsilon)
        flat = pl.control.Option(name="global", act=acting, timeout=1)
        return [flat, *(o.option(program.timeout, epsilon) for o in self.own)]

    async def play(self, games: int, epsilon: float, key: pl.Key) -> pl.control.OptionGames:
        over = self.setting.program.learner.acting(self.over.values, epsilon, self.prior)
        choose = pl.control.choose_by(over)
        return await pl.control.play_options(self.sim, self.options(epsilon), choose, games, key)

    async def learn(self) -> list[dict[str, Any]]:
        """The lines of the task's iterations."""
        program, lines, taken = self.setting.program, list[dict[str, Any]](), 0
        steps = program.cut(self.setting.ctx)
        while taken < steps:
            key = (*self.key, len(lines))
            epsilon = program.learner.epsilon(taken / steps)
            games = await self.play(program.learner.games, epsilon, key)
            paths = games.paths()
            taken += games.env_steps
            flat_loss = self.flat.update(paths, paths["reward"], (*key, "global"))
            decisions = pl.control.decision_paths(games, program.learner.gamma)
            over_loss = self.over.update(decisions, decisions["reward"], (*key, "over"))
            for number, option in enumerate(self.own, start=1):
                option.observe(games, number, (*key, number))
            called = [c.end for c in games.calls if c.option > 0 and c.steps]
            lines.append(
                {
                    "task": self.task + 1,
                    "reward": float(pl.control.returns_of(paths).mean()),
                    "taken": games.env_steps,
                    "called": len(called),
                    "reached": called.count(pl.control.REACHED),
                    "loss": flat_loss,
                    "loss_options": over_loss,
                }
            )
        return lines

    async def measure(self) -> dict[str, float]:
        """What test games are paid on average, its standard error, and their steps."""
        games = await self.play(self.setting.program.games, 0.0, (*self.key, "test"))
        returns = pl.control.returns_of(games.paths())
        return {
            "return": float(returns.mean()),
            "error": pl.stats.standard_error(returns),
            "length": games.env_steps / len(returns),
        }


def save_task(folder: Path, learner: TaskLearner) -> None:
    """Writes the values over options and of each option, and options.json with their regions."""
    pl.control.save_policy(learner.over.values, folder / "over")
    pl.control.save_policy(learner.flat.values, folder / "option-0")
    for number, option in enumerate(learner.own, start=1):
        pl.control.save_policy(option.learner.values, folder / f"option-{number}")
    spell: Callable[[SubgoalOption], dict[str, Any]] = lambda o: {
        "name": o.region.name,
        "centre": o.region.centre,
        "radius": o.region.radius,
        "after": o.region.after,
        "successes": o.successes,
        "calls": o.calls,
    }
    record = {
        "coordinates": learner.setting.words[learner.task].names,
        "options": ["global", *map(spell, learner.own)],
    }
    (folder / "options.json").write_text(json.dumps(record, indent=1) + "\n")
