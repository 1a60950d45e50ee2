"""The arms: what a tree of primitives that is edited costs and brings, beside plans without it."""

import asyncio
import heapq
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.interactive_navigation.games import (
    NavigationGame,
    NavigationLimits,
    Planning,
    direct_call,
    mean_numbers,
)
from palaestra.recipes.llm4rl.interactive_navigation.roles import AdviceRecord, NavigationRoles
from palaestra.recipes.llm4rl.interactive_navigation.rooms import BlockedRooms
from palaestra.recipes.llm4rl.interactive_navigation.tree import (
    NavigationWorld,
    PrimitiveCall,
    all_calls,
    checked_values,
)

SEARCHED, DEEPEST = 20_000, 12  # states of an oracle's search, and calls of its plan
MAPS_OF_A_STEP = 4


@pl.stage
class EditTrees:
    """A program: the same starts are played in arms, each with the same limits.

    Args:
        asked: who plans, and advises and edits unless `advisor` and `arborist` do; None = nobody, which
            is refused.
        edits: False = the guided arm has no arborist: where the tree is to be mended, it is written anew.
        tasks: starts of games.
    """

    asked: pl.Source | None = None
    advisor: pl.Source | None = None
    arborist: pl.Source | None = None
    world: NavigationWorld = BlockedRooms()
    edits: bool = True
    tasks: int = 40
    limits: NavigationLimits = NavigationLimits()

    def __post_init__(self) -> None:
        if self.tasks < 1 or self.limits.acts < 1 or self.limits.calls < 1 or self.limits.cost <= 0:
            raise pl.UserError(
                "interactive-navigation: tasks, acts and calls are 1 or more, and cost is above 0"
            )

    def sources(self) -> dict[str, pl.Source]:
        """Who is asked in each role, replies kept. Raises UserError where nobody is."""
        if self.asked is None:
            raise pl.UserError(
                "interactive-navigation needs a language model that plans: "
                "--llm endpoint(url='...',model='...'), a folder, or transcript:FILE"
            )
        roles = {"planner": self.asked, "advisor": self.advisor, "arborist": self.arborist}
        return {r: pl.services.TranscribedSource(s or self.asked) for r, s in roles.items()}

    async def run(self, ctx: pl.Context) -> pl.Result:
        plays = NavigationArms(program=self, ctx=ctx, sources=self.sources())
        check_world(self.world, plays.keys[0])
        own: Planning = "arborist" if self.edits else "advisor"
        guided = await ctx.once("guided-games", lambda: plays.ask(own))
        arms: dict[str, pl.control.ArmRun] = {
            "none": plays.arm("none", plays.directly),
            "flat": plays.arm("flat", lambda: plays.ask("flat")),
        }
        if self.edits:
            arms["advisor"] = plays.arm("advisor", lambda: plays.ask("advisor"))
        arms["guide"] = plays.arm("guide", lambda: as_coroutine(guided))
        if len([g for g in guided if g["advice"]]) > 1:
            arms["shuffled"] = plays.arm("shuffled", lambda: plays.ask(own, others_advice(guided)))
        else:
            ctx.say("fewer than two games have advice, so there is no shuffled arm")
        if getattr(self.world, "certain", False):
            arms["oracle"] = plays.arm("oracle", plays.searched)
        results = await pl.control.compare_arms(ctx, arms)
        guide, flat = results["guide"], results["flat"]
        ctx.log({"arm": "guide", **{k: guide[k] for k in ("rescued", "return", "calls", "tokens")}})
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results),
                "rescued": guide["rescued"],
                "tokens_saved": saved_share(guide, flat, "tokens"),
                "calls_saved": saved_share(guide, flat, "calls"),
                "sampled_tokens": 0,
            },
            artifacts={} if ctx.out is None else {"games": str(ctx.out / "games")},
        )


def world_by_name(spec: str) -> NavigationWorld:
    """A world from FILE.py:NAME, a class or a function without arguments, or a world itself. Raises
    UserError for anything else, and for a primitive that `explore` names and there is not.
    """
    own = pl.tasks.load(spec, "world")
    callable_one = isinstance(own, type) or (callable(own) and not hasattr(own, "reset"))
    world: Any = own() if callable_one else own
    parts = (
        "about",
        "primitives",
        "reset",
        "view",
        "values",
        "spell",
        "refuse",
        "predict",
        "execute",
    )
    if lacks := [n for n in (*parts, "reached") if not hasattr(world, n)]:
        raise pl.UserError(
            f"{spec} is no world with primitives: it has no {', no '.join(lacks)}; see "
            "docs/methods/interactive-navigation.md"
        )
    explore = getattr(world, "explore", "")
    if explore and list(world.primitives.get(explore, ("missing",))):
        raise pl.UserError(f"{spec}: explore={explore!r} is no primitive without arguments")
    return world


def check_world(world: NavigationWorld, key: pl.Key) -> None:
    """Raises UserError where two starts by the same random numbers differ, where views cannot be compared,
    where names of arguments are no texts or too much alike, or where states of a world that is certain
    have no hash.
    """
    one, other = (world.reset(pl.rng_of((*key, "start"))) for _ in range(2))
    same: Any = world.view(one) == world.view(other)
    if not (isinstance(same, bool | np.bool_) and same):
        raise pl.UserError(
            "interactive-navigation: reset(rng) gives another view for the same rng, or views that == does "
            "not compare as a whole; take every random number from rng, and tuples in the place of arrays"
        )
    checked_values(world, world.view(one))
    if getattr(world, "certain", False):
        try:
            hash(one)
        except TypeError as error:
            raise pl.UserError(
                f"interactive-navigation: certain = True needs states with a hash, for an oracle: {error}"
            ) from None


def saved_share(own: Mapping[str, Any], other: Mapping[str, Any], name: str) -> float:
    """1 - own / other of games with a surprise where there are some, else of all; 0 where the other is 0."""
    name = f"{name}_surprise" if f"{name}_surprise" in own else name
    return 1 - own[name] / other[name] if other[name] else 0.0


def others_advice(games: Sequence[Mapping[str, Any]]) -> list[list[AdviceRecord]]:
    """For each game the advice of the next game that has some, going round: the control. A game's own
    advice is its own only where no other game has any.
    """
    n = len(games)
    with_advice = [i for i in range(n) if games[i]["advice"]]
    after = lambda i: min(with_advice, key=lambda k: (k - i - 1) % n)
    return [list(games[after(i)]["advice"]) for i in range(n)]


async def as_coroutine(value: Any) -> Any:
    return value


@pl.value_class
class NavigationArms:
    """Plays the starts of a run."""

    program: EditTrees
    ctx: pl.Context
    sources: Mapping[str, pl.Source]

    @property
    def keys(self) -> list[pl.Key]:
        """Of the starts; fewer where `--steps` says so, four for each."""
        steps = self.ctx.budget.get("steps")
        n = (
            self.program.tasks
            if steps is None
            else min(self.program.tasks, MAPS_OF_A_STEP * int(steps))
        )
        return [("interactive-navigation", self.ctx.seed, i) for i in range(max(1, n))]

    def start(self, key: pl.Key) -> Any:
        return self.program.world.reset(pl.rng_of((*key, "start")))

    def arm(
        self, name: str, play: Callable[[], Awaitable[list[dict[str, Any]]]]
    ) -> pl.control.ArmRun:
        """What `compare_arms` runs: the means over games, which are kept in the run folder."""

        async def run() -> Mapping[str, Any]:
            games = await play()
            hides: Any = getattr(self.program.world, "surprising", lambda state: False)
            surprising = [bool(hides(self.start(key))) for key in self.keys]
            if self.ctx.out is not None:
                folder = self.ctx.out / "games"
                folder.mkdir(parents=True, exist_ok=True)
                rows = [{k: v for k, v in g.items() if k != "advice"} for g in games]
                text = "\n".join(json.dumps(row) for row in rows) + "\n"
                (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
            wins = np.array([g["success"] for g in games])
            return {
                "return": float(wins.mean()),
                "error": pl.stats.standard_error(wins),
                **mean_numbers(games, surprising),
            }

        return run

    async def ask(
        self, planning: Planning, advice: Sequence[Sequence[AdviceRecord]] | None = None
    ) -> list[dict[str, Any]]:
        """Games with a planner, an advisor and, for "arborist", an arborist."""
        program = self.program

        async def one(i: int, key: pl.Key) -> dict[str, Any]:
            replies = None if advice is None else advice[i]
            roles = NavigationRoles(
                self.ctx, program.world, self.sources, program.limits.calls, replies
            )
            return await NavigationGame(program.world, roles, planning, program.limits, key).play()

        return list(await asyncio.gather(*(one(i, key) for i, key in enumerate(self.keys))))

    async def directly(self) -> list[dict[str, Any]]:
        """One call that should reach the goal by itself, and nothing where there is none."""
        world = self.program.world
        games = list[dict[str, Any]]()
        for key in self.keys:
            state = self.start(key)
            call = direct_call(world, world.view(state))
            games.append(self._play(key, state, [] if call is None else [call]))
        return games

    async def searched(self) -> list[dict[str, Any]]:
        """The cheapest plan of each start, found in the world itself with all that is hidden."""
        games = list[dict[str, Any]]()
        for key in self.keys:
            plan = cheapest_plan(self.program.world, self.start(key), self.program.limits)
            games.append(self._play(key, self.start(key), plan or []))
        return games

    def _play(self, key: pl.Key, state: Any, plan: Sequence[PrimitiveCall]) -> dict[str, Any]:
        world, rng, cost, trace = self.program.world, pl.rng_of((*key, "acts")), 0.0, list[str]()
        for call in plan:
            state, paid, success = world.execute(state, call.name, call.arguments, rng)
            cost += paid
            trace.append(f"{call}: {'done' if success else 'failed'}, cost {paid:g}")
        success = float(world.reached(world.view(state)))
        return {
            "acts": len(plan), "success": success, "cost": cost, "calls": 0, "tokens": 0, "trace": trace,
        }  # fmt: skip


def cheapest_plan(
    world: NavigationWorld, start: Any, limits: NavigationLimits
) -> list[PrimitiveCall] | None:
    """The cheapest calls from a state to the goal, done in the world itself: uniform-cost search over
    states, of worlds whose `execute` draws nothing. None = there is none within the limits, 12 calls
    and 20,000 states.
    """
    queue: list[tuple[float, int, Any, list[PrimitiveCall]]] = [(0.0, 0, start, [])]
    known: dict[Any, float] = {}
    made, rng = 0, pl.rng_of(("search",))
    while queue and made < SEARCHED:
        cost, _, state, plan = heapq.heappop(queue)
        view = world.view(state)
        if world.reached(view):
            return plan
        if known.get(state, float("inf")) < cost or len(plan) >= min(DEEPEST, limits.acts):
            continue
        for call in all_calls(world, view):
            after, paid, success = world.execute(state, call.name, call.arguments, rng)
            total = cost + paid
            if success and total < min(limits.cost, known.get(after, float("inf"))):
                known[after], made = total, made + 1
                heapq.heappush(queue, (total, made, after, [*plan, call]))
    return None
