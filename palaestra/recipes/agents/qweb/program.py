"""The program: the instructor, the agent, and how many held-out instructions the agent carries out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np

import palaestra as pl
from palaestra.recipes.agents.qweb.games import FormFilling, FormNaming, PageArrays, write_goal
from palaestra.recipes.agents.qweb.goals import (
    FieldList,
    FillableForm,
    FormGoal,
    cut_goal,
    draw_goal,
    draw_other,
    fill_at_random,
    form_without_list,
    read_goals,
    simulated_size,
    warm_probability,
    warm_start,
)
from palaestra.recipes.agents.qweb.learner import (
    InstructedGame,
    PageLearner,
    PlayedPage,
    load_network,
    play_pages,
    save_network,
)
from palaestra.recipes.agents.qweb.miniwob import BrowserProblem, open_browsers
from palaestra.recipes.agents.qweb.network import QWebNetwork
from palaestra.recipes.agents.qweb.page import read_pages
from palaestra.recipes.agents.qweb.toy import travel_fields, travel_page

Curriculum: TypeAlias = Literal["none", "warm", "goals", "both"]
Rows: TypeAlias = list[tuple[str, Mapping[str, Any]]]
AGENT, INSTRUCTOR, ACTIONS = "qweb", "inet", "actions.jsonl"


def rows_of(path: str) -> Rows:
    """(where, record) of each line of a user's file."""
    return [
        (records.where(i), record)
        for records in pl.tasks.open_records(path).values()
        for i, record in enumerate(records)
    ]


class PageProblem(Protocol):
    """Episodes to learn on, and held-out ones."""

    @property
    def together(self) -> int:
        """Episodes that can be played side by side."""
        ...

    def deal(self, share: float, rng: np.random.Generator) -> Sequence[InstructedGame]:
        """Those of an iteration, at a share of training."""
        ...

    def tests(self) -> Sequence[InstructedGame]: ...


@dataclass
class Material:
    """Forms, their arrays, and held-out instructions."""

    forms: tuple[FillableForm, ...]
    tests: tuple[FormGoal, ...]

    def __post_init__(self) -> None:
        self.arrays = [PageArrays(f.page) for f in self.forms]
        self.names = tuple(sorted({n for f in self.forms for x in f.fields for n in x.names}))

    @property
    def instructions(self) -> int:
        """How many differ, values counted."""
        return sum(f.instructions for f in self.forms)


@pl.stage
class FormNavigation:
    """A program: learns to carry out instructions on forms for `steps` actions, fewer where the run has
    fewer steps (`--steps` counts iterations), and measures held-out ones without exploration.

    Its summary has `success`, the share of held-out instructions after which all fields are right and the
    form is submitted, beside `success/start` of the network before the first step, and `fields`, the
    share of fields that are right at the end. With `meta` also `inet/success`, the share of forms that
    the instructor describes without a mistake. `actions.jsonl` has what was done for each instruction.

    Args:
        forms: an HTML file or a folder of them; "" = the built-in form of `size` fields.
        fields: a file with a line for each field.
        tests: a file with held-out instructions; "" = `exam` drawn ones.
        miniwob: a task of MiniWoB++ that is played instead, in a browser.
        curriculum: "warm" starts, simulated "goals", "both" or "none".
        warm: p_ws of the first episode.
        guided: share of training after which there is no curriculum.
        dense: whether the change of phi is paid.
        potential: gamma of that.
        meta: whether instructions are those that an instructor writes of forms filled in at random.
        naming: actions that the instructor learns from.
        start: a folder with a trained agent.
    """

    forms: str = ""
    fields: str = ""
    tests: str = ""
    miniwob: str = ""
    curriculum: Curriculum = "both"
    warm: float = 0.5
    guided: float = 0.6
    dense: bool = True
    potential: float = 1.0
    meta: bool = False
    size: int = 6
    steps: int = 12_000
    naming: int = 6_000
    exam: int = 100
    start: str = ""
    learner: pl.control.DoubleQ = pl.control.DoubleQ()
    brings_reward: ClassVar[bool] = True

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("qweb", ctx.seed)
        if self.miniwob:
            problem = BrowserProblem(open_browsers(self.miniwob, self.learner.games), self.exam)
            try:
                metrics = await self.run_on(ctx, problem, key)
            finally:
                problem.close()
        else:
            material = self.material(ctx, key)
            metrics: dict[str, Any] = {"instructions": material.instructions}
            inet = None
            if self.meta:
                metrics |= await ctx.once("instructor", lambda: self.instruct(ctx, material, key))
                inet = load_network(ctx.folder, INSTRUCTOR)
            metrics |= await self.run_on(ctx, FormProblem(self, material, inet), key)
        artifacts = {"actions": str(ctx.folder / ACTIONS), "agent": str(ctx.folder)}
        return pl.Result(metrics={**metrics, "sampled_tokens": 0}, artifacts=artifacts)

    async def run_on(self, ctx: pl.Context, problem: PageProblem, key: pl.Key) -> dict[str, Any]:
        """Trains and measures the agent."""
        trained = await ctx.once("agent", lambda: self.train(ctx, problem, key))
        measured = await ctx.once("measured", lambda: self.measure(ctx, problem, key))
        ctx.log(measured)
        return {**trained, **measured}

    # ---- what is learned on

    def material(self, ctx: pl.Context, key: pl.Key) -> Material:
        """Forms, and instructions that are not trained on. Raises UserError for files that do not fit."""
        rng = pl.rng_of((*key, "material"))
        pages = read_pages(self.forms) if self.forms else (travel_page(self.size),)
        listed: Rows = rows_of(self.fields) if self.fields else []
        if not self.forms and not listed:
            listed = [("the built-in form", row) for row in travel_fields(pages[0])]
        if listed:
            forms = FieldList(pages, rng).forms(listed)
            if left := [p.name for p in pages if p not in [f.page for f in forms]]:
                ctx.say(f"no field of {', '.join(left)} is listed; nothing is learned on them")
        else:
            forms = tuple(form_without_list(p, rng) for p in pages)
            ctx.say(
                "no list of fields: they are called by their labels, and text is made up; "
                "fields=FILE.jsonl says what instructions call them and which values they have"
            )
        if self.tests:
            tests = read_goals(forms, rows_of(self.tests))
            if not tests:
                raise pl.UserError(f"{self.tests} has no instruction")
        else:
            tests = tuple(draw_goal(forms, rng, held_out=True) for _ in range(self.exam))
        return Material(forms, tests)

    # ---- the instructor

    async def instruct(self, ctx: pl.Context, material: Material, key: pl.Key) -> dict[str, Any]:
        """Trains the instructor on forms that are filled in at random, and keeps it."""
        learner = PageLearner(self.learner, (*key, "instructor"))

        def deal(share: float, rng: np.random.Generator) -> list[FormNaming]:
            return [self.naming_game(material, rng) for _ in range(self.learner.games)]

        taken = await learner.learn(deal, self.most(ctx, self.naming), logger(ctx, "inet/"))
        save_network(learner.net, ctx.folder, INSTRUCTOR)
        rng = pl.rng_of((*key, "instructor", "test"))
        games = [self.naming_game(material, rng) for _ in range(self.exam)]
        played = play_pages(learner.net, games, 0.0, rng)
        return {"inet/success": float(np.mean([g.solved for g in played])), "inet/env_steps": taken}

    def naming_game(self, material: Material, rng: np.random.Generator) -> FormNaming:
        n = int(rng.integers(len(material.forms)))
        values = fill_at_random(material.forms[n], rng)
        return FormNaming(
            material.arrays[n],
            material.forms[n],
            values,
            material.names,
            self.dense,
            self.potential,
        )

    # ---- the agent

    async def train(self, ctx: pl.Context, problem: PageProblem, key: pl.Key) -> dict[str, Any]:
        """Trains the agent and keeps it."""
        learner = PageLearner(self.learner, (*key, "agent"))
        if self.start:
            given = load_network(Path(self.start).expanduser(), AGENT)
            for net in (learner.net, learner.following):
                net.load_state_dict(given.state_dict())
        before = exam_of(learner.net, problem, key)
        taken = await learner.learn(problem.deal, self.most(ctx, self.steps), logger(ctx))
        if isinstance(problem, FormProblem) and problem.repeated:
            ctx.say(
                f"{problem.repeated} instructions of training are in the exam too, as there are only "
                f"{problem.material.instructions}"
            )
        save_network(learner.net, ctx.folder, AGENT)
        ctx.spend("env_steps", taken)
        return {
            "success/start": float(np.mean([g.solved for g in before])),
            "env_steps": taken,
            "parameters": sum(p.numel() for p in learner.net.parameters()),
        }

    def most(self, ctx: pl.Context, steps: int) -> int:
        """Actions, no more than the run's iterations have at least."""
        given = ctx.budget.get("steps")
        return steps if given is None else min(steps, int(given) * self.learner.games)

    async def measure(self, ctx: pl.Context, problem: PageProblem, key: pl.Key) -> dict[str, Any]:
        """How many held-out instructions are carried out; writes what was done."""
        played = exam_of(load_network(ctx.folder, AGENT), problem, key)
        records = [describe_game(game) for game in played]
        pl.tasks.write_records(ctx.folder / ACTIONS, records)
        return {
            "success": float(np.mean([g.solved for g in played])),
            "fields": float(np.mean([r["fields"] for r in records])),
            "tests": len(played),
        }


@dataclass
class FormProblem:
    """Instructions that are drawn, or written by an instructor, with the help that the curriculum gives."""

    program: FormNavigation
    material: Material
    inet: QWebNetwork | None
    repeated: int = 0  # instructions of training that a test has, as there are too few

    @property
    def together(self) -> int:
        return self.program.learner.games

    def tests(self) -> list[FormFilling]:
        arrays = self.material.arrays
        return [
            FormFilling(arrays[g.form], g, arrays[g.form].page.initial) for g in self.material.tests
        ]

    def deal(self, share: float, rng: np.random.Generator) -> list[FormFilling]:
        goals = (
            [self.draw(rng) for _ in range(self.together)] if self.inet is None else self.write(rng)
        )
        return [self.assist(goal, share, rng) for goal in goals]

    def draw(self, rng: np.random.Generator) -> FormGoal:
        forms = self.material.forms
        goal = draw_other(forms, self.material.tests, rng)
        self.repeated += goal is None
        return goal or draw_goal(forms, rng)

    def write(self, rng: np.random.Generator) -> list[FormGoal]:
        """Forms that are filled in at random, with instructions of the instructor."""
        assert self.inet is not None
        games = [self.program.naming_game(self.material, rng) for _ in range(self.together)]
        played = play_pages(self.inet, games, 0.0, rng)
        numbers = {id(f): i for i, f in enumerate(self.material.forms)}
        return [write_goal(g.game, g.states[-1], numbers[id(g.game.form)]) for g in played]

    def assist(self, goal: FormGoal, share: float, rng: np.random.Generator) -> FormFilling:
        """An episode at a share of training, made easier as the curriculum says."""
        p, arrays, n = self.program, self.material.arrays[goal.form], len(goal.pairs)
        cut, first, filled = goal, arrays.page.initial, 0
        if p.curriculum in ("goals", "both"):
            most = simulated_size(n, share, p.guided)
            cut = cut_goal(goal, int(rng.integers(1, most + 1)) if most < n else n, rng)
        warm = (
            warm_probability(p.warm, share, p.guided) if p.curriculum in ("warm", "both") else 0.0
        )
        if rng.random() < warm:
            first, filled = warm_start(arrays.page, cut.wanted, rng)
        return FormFilling(
            arrays, cut, first, p.dense, p.potential, helped=filled > 0 or len(cut.pairs) < n
        )


def logger(
    ctx: pl.Context, prefix: str = ""
) -> Callable[[int, float, Sequence[PlayedPage[Any]]], None]:
    """Writes the numbers of an iteration."""

    def log(taken: int, loss: float, played: Sequence[PlayedPage[Any]]) -> None:
        numbers = {
            "reward": float(np.mean([g.total for g in played])),
            "solved": float(np.mean([g.solved for g in played])),
            "loss": loss,
            "env_steps": taken,
        }
        if not prefix:
            numbers["solved_with_help"] = float(
                np.mean([g.solved and g.game.helped for g in played])
            )
        ctx.log({f"{prefix}{name}": x for name, x in numbers.items()})

    return log


def exam_of(
    net: QWebNetwork, problem: PageProblem, key: pl.Key
) -> list[PlayedPage[InstructedGame]]:
    """All held-out episodes, without exploration."""
    games, played = list(problem.tests()), list[PlayedPage[InstructedGame]]()
    rng = pl.rng_of((*key, "exam"))
    for at in range(0, len(games), problem.together):
        played += play_pages(net, games[at : at + problem.together], 0.0, rng)
    return played


def describe_game(played: PlayedPage[InstructedGame]) -> dict[str, Any]:
    """An instruction, what was done for it, and whether that was right."""
    game, states = played.game, played.states
    return {
        "instruction": dict(game.pairs(states[0])),
        "actions": [game.describe(s, x.action) for s, x in zip(states, played.steps, strict=False)],
        "fields": game.progress(states[-1]),
        "solved": played.solved,
    }
