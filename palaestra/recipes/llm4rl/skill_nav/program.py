"""A low level that follows waypoints, learned in two stages, below planners that name them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch

import palaestra as pl
from palaestra.recipes.llm4rl.skill_nav.course import Reach, VelocityCourse, WaypointCourse
from palaestra.recipes.llm4rl.skill_nav.planning import (
    SECONDS,
    DirectPlanner,
    ModelPlanner,
    WaypointPlanner,
    YardMap,
)
from palaestra.recipes.llm4rl.skill_nav.written import ROOMS
from palaestra.recipes.llm4rl.skill_nav.yard import (
    DT,
    FASTEST,
    NEAR,
    Yard,
    near_place,
    told_policy,
    turned,
)

Planner = Literal["model", "none"]
LowLevel = Literal["two stages", "one stage", "velocity"]
APART = 3  # cells along rows and columns between start and goal at least
SLOWING = 0.5  # metres before a waypoint from which a tracker slows down
FIRST = 0.4  # share of the steps that are spent on fixed courses


class PlansWaypoints(Protocol):
    numbers: dict[str, int]

    async def plan(self, yard: YardMap, start: int, goal: int, failed: int | None) -> list[int]:
        """Cells after the start, the last one the goal; [] = there is no way."""
        ...


@pl.stage
class WaypointNavigation:
    """A program: a policy learns to reach single waypoints; in the test planners name waypoints on maps that it
    never saw, each an option with a timeout, after which the planner is asked again from where the robot is.

    Args:
        asked: the language model that plans; None = nobody, which is refused unless planner="none".
        maps: drawings.
        reach: form of the reward for waypoints, see `WaypointCourse`.
        steps: environment steps of each low level.
        timeout: seconds for a waypoint.
        replans: of a game.
        noise: of commands, in shares of their size, in the second half of the test.
        courses: pairs of start and goal of a map.
        games: of each half of the test, on a map.
    """

    asked: pl.Source | None = None
    maps: tuple[str, ...] = (ROOMS,)
    planner: Planner = "model"
    reach: Reach = "each"
    steps: int = 60_000
    timeout: float = 10.0
    replans: int = 2
    noise: float = 0.1
    courses: int = 24
    games: int = 96
    learner: pl.control.PPO = pl.control.PPO(games=16, lr=3e-3, gamma=0.95, lam=0.9, bootstrap=True)

    def __post_init__(self) -> None:
        least = {"steps": 1, "replans": 0, "courses": 1, "games": 2, "noise": 0}
        for name, value in least.items():
            if getattr(self, name) < value:
                raise pl.UserError(f"skill-nav: {name} is {value} or more")
        if self.timeout < DT:
            raise pl.UserError(f"skill-nav: timeout is in seconds, {DT:g} or more")
        if not self.maps:
            raise pl.UserError("skill-nav needs a map")

    @property
    def source(self) -> pl.Source:
        """Who plans, its replies kept. Raises UserError where nobody does."""
        if self.asked is None:
            raise pl.UserError(
                "skill-nav needs a language model that plans: --llm endpoint(url='...',model='...'), a folder, "
                "or transcript:FILE; or planner=none"
            )
        return pl.services.TranscribedSource(self.asked)

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("skill-nav", ctx.seed)
        levels = LowLevels(self, ctx, key)
        test = NavigationTest(
            self, [drawn_courses(YardMap(m), self.courses, key) for m in self.maps]
        )
        folder = None if ctx.out is None else ctx.out / "policy"

        def arm(
            planner: PlansWaypoints, level: LowLevel = "two stages", save: bool = False
        ) -> pl.control.ArmRun:
            async def run() -> Mapping[str, Any]:
                policy, lines, taken = levels.trained(level)
                if save and folder is not None:
                    pl.control.save_policy(policy, folder)
                numbers = await test.measure(policy, level == "velocity", planner, key)
                return {**numbers, "env_steps": taken, "curve": lines}

            return run

        arms: dict[str, pl.control.ArmRun] = {"none": arm(DirectPlanner())}
        if self.planner == "none":
            arms["guide"] = arm(DirectPlanner(), save=True)
        else:
            model = lambda shuffled=False: ModelPlanner(ctx, self.source, key, shuffled=shuffled)
            arms |= {
                "guide": arm(model(), save=True),
                "one stage": arm(model(), "one stage"),
                "velocity": arm(model(), "velocity"),
                "shuffled": arm(model(shuffled=True)),
                "a star": arm(WaypointPlanner()),
                "a star velocity": arm(WaypointPlanner(), "velocity"),
                "oracle": arm(WaypointPlanner(SECONDS)),
            }
        results = await pl.control.compare_arms(ctx, arms)
        ctx.spend("env_steps", sum(r["env_steps"] for r in results.values()))
        guide = results["guide"]
        by_waypoints = guide["by_waypoints"] if self.planner == "model" else 0.0
        if guide.get("fallbacks"):
            ctx.say(f"{guide['fallbacks']} of {guide['asked']} plans did not fit; those are of A*")
        ctx.log({"arm": "guide", "by_waypoints": by_waypoints, "return": guide["return"]})
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results),
                "by_waypoints": by_waypoints,
                "with_noise": guide["with_noise"],
                "seconds": guide["seconds"],
                "sampled_tokens": 0,
            },
            artifacts={} if folder is None else {"agent": str(folder)},
        )

    def cut(self, ctx: pl.Context) -> int:
        """Environment steps of a low level, by `--steps`."""
        if (most := ctx.budget.get("steps")) is None:
            return self.steps
        return min(self.steps, int(most) * self.learner.games * WaypointCourse().horizon)


class LowLevels:
    """The policies of a run, each trained once, by its name's own key, so in a run that goes on the same."""

    def __init__(self, program: WaypointNavigation, ctx: pl.Context, key: pl.Key):
        self.program, self.key, self.steps = program, key, program.cut(ctx)
        self.known: dict[str, tuple[pl.control.ActorCritic, list[dict[str, Any]], int]] = {}

    def trained(self, level: LowLevel) -> tuple[pl.control.ActorCritic, list[dict[str, Any]], int]:
        """A policy, the lines of its training, and its environment steps."""
        if level not in self.known:
            self.known[level] = self._train(level)
        return self.known[level]

    def _train(self, level: LowLevel) -> tuple[pl.control.ActorCritic, list[dict[str, Any]], int]:
        reach, whole = self.program.reach, self.steps
        random: tuple[pl.control.Simulator, int] = (WaypointCourse(reach=reach), whole)
        stages: Sequence[tuple[pl.control.Simulator, int]] = {
            "two stages": [(WaypointCourse("fixed", reach=reach), round(FIRST * whole)), random],
            "one stage": [random],
            "velocity": [(VelocityCourse(), whole)],
        }[level]
        settings, key = self.program.learner, (*self.key, level)
        policy = settings.start(stages[0][0], key)
        optimiser = torch.optim.Adam(policy.parameters(), settings.lr, eps=1e-5)
        taken, lines = 0, list[dict[str, Any]]()
        for sim, until in stages:
            while taken < until:
                own = (*key, len(lines))
                paths = pl.control.play_games(sim, policy.act, settings.games, own)
                taken += int(paths["alive"].sum())
                losses = settings.update(policy, optimiser, settings.batch_of(policy, paths), own)
                reward = float(pl.control.returns_of(paths).mean())
                lines.append(
                    {"level": level, "reward": reward, "env_steps": taken, "loss": losses["loss"]}
                )
        return policy, lines, taken


class WaypointFollower:
    """A policy as the `act` of options whose goal is a waypoint: it is told where that lies in its own frame,
    or with `velocity` what a tracker makes of it, straight to the waypoint and slower near it.
    """

    def __init__(self, policy: pl.control.ActorCritic, velocity: bool, noise: float):
        self.policy, self.velocity, self.noise = policy, velocity, noise

    def act(
        self, obs: np.ndarray, legal: Any, rng: np.random.Generator
    ) -> Mapping[str, np.ndarray]:
        seen, way = obs[:, 0, :-2], obs[:, 0, -2:] - obs[:, 0, :2]
        command = turned(way, -np.arctan2(seen[:, 3], seen[:, 2]))
        if self.velocity:
            far = np.linalg.norm(command, axis=1, keepdims=True)
            command = command / np.maximum(far, SLOWING) * FASTEST
        command = command * (1 + self.noise * rng.normal(size=command.shape))
        return self.policy.act(told_policy(seen, command)[:, None], None, rng, greedy=True)


@pl.value_class
class YardCourses:
    yard: YardMap
    ends: tuple[tuple[int, int], ...]  # cells of start and goal


def drawn_courses(yard: YardMap, count: int, key: pl.Key) -> YardCourses:
    """Pairs of start and goal with a way between, APART at least; those farthest apart where none is. Raises
    UserError for a map without a way.
    """
    cells, region = np.array(yard.cells), yard.region_C
    apart_CC = np.abs(cells[:, None] - cells).sum(-1)
    pairs = (region[:, None] == region) & (apart_CC > 0)
    if not pairs.any():
        raise pl.UserError("a map has two free cells with a way between them at least")
    wide = pairs & (apart_CC >= APART)
    ends = np.argwhere(wide if wide.any() else pairs)
    picks = pl.rng_of((*key, "courses", yard.drawing)).permutation(len(ends))[:count]
    return YardCourses(yard=yard, ends=tuple((int(a), int(b)) for a, b in ends[picks]))


class NavigationTest:
    """Games on maps, half of them with noise on commands."""

    def __init__(self, program: WaypointNavigation, courses: Sequence[YardCourses]):
        self.program, self.courses = program, courses

    async def measure(
        self, policy: pl.control.ActorCritic, velocity: bool, planner: PlansWaypoints, key: pl.Key
    ) -> dict[str, float]:
        """Shares of games that reach their goal, without noise and with it; seconds of a game; and the share of
        waypoints, each time one is aimed at, that were reached.
        """
        done: dict[float, list[np.ndarray]] = {0.0: [], self.program.noise: []}
        seconds, ends = list[np.ndarray](), list[int]()
        for noise in done:
            follower = WaypointFollower(policy, velocity, noise)
            for number, course in enumerate(self.courses):
                own = (*key, "test", number)
                games, reached = await self.play(course, follower, planner, own)
                done[noise].append(reached)
                if not noise:
                    seconds.append(games.paths()["alive"].sum(1) * DT)
                    ends += [c.end for c in games.calls if c.steps]
        clean, noisy = (
            np.concatenate(x).astype(float) for x in (done[0.0], done[self.program.noise])
        )
        return {
            "return": float(clean.mean()),
            "error": pl.stats.standard_error(clean),
            "with_noise": float(noisy.mean()),
            "seconds": float(np.concatenate(seconds).mean()),
            "by_waypoints": ends.count(pl.control.REACHED) / max(1, len(ends)),
            **planner.numbers,
        }

    async def play(
        self, course: YardCourses, follower: WaypointFollower, planner: PlansWaypoints, key: pl.Key
    ) -> tuple[pl.control.OptionGames, np.ndarray]:
        """The games of a map, and which of them came to their goal."""
        program, yard = self.program, course.yard
        ends = [course.ends[i % len(course.ends)] for i in range(program.games)]
        sim = Yard(yard.drawing, tuple(yard.cells[a] for a, _ in course.ends))
        alone = isinstance(planner, DirectPlanner)
        timeout = sim.horizon if alone else max(1, round(program.timeout / DT))
        options = [
            pl.control.Option(
                name=f"cell {i}",
                act=follower.act,
                timeout=timeout,
                reached=near_place(yard.middle(i)),
                goal=yard.middle(i),
            )
            for i in range(len(yard.cells))
        ]

        async def replan(games: pl.control.OptionGames, rows: np.ndarray) -> list[list[int]]:
            here = [yard.nearest(games.obs[row, 0, :2]) for row in rows]
            return [
                await planner.plan(yard, at, ends[row][1], int(games.last_n[row]))
                for at, row in zip(here, rows, strict=True)
            ]

        plans = [await planner.plan(yard, a, b, None) for a, b in ends]
        plan_follower = pl.control.PlanFollower(plans, replan=replan, replans=program.replans)
        games = await pl.control.play_options(sim, options, plan_follower, program.games, key)
        paths, goal = games.paths(), np.array([yard.middle(b) for _, b in ends])
        near = np.linalg.norm(paths["next_obs"][:, 0, :, :2] - goal[:, None], axis=-1) <= NEAR
        return games, (near & paths["alive"]).any(1)


def read_maps(file: str) -> tuple[str, ...]:
    """Drawings of a file, with an empty line between two. Raises UserError for one that does not fit."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise pl.UserError(f"--env {file}: {error}") from None
    lines = [line.rstrip() for line in text.splitlines()]
    drawings = tuple(part for part in "\n".join(lines).split("\n\n") if part.strip())
    if not drawings:
        raise pl.UserError(f"--env {file} has no map")
    for number, drawing in enumerate(drawings, start=1):
        try:
            YardMap(drawing)
        except pl.UserError as error:
            raise pl.UserError(f"--env {file}, map {number}: {error}") from None
    return drawings
