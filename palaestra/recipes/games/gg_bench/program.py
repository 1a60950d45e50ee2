"""The study: games are written or read, examined, and played by the model."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar, Literal, TypeAlias

import palaestra as pl
from palaestra.recipes.games.gg_bench.report import tell_games
from palaestra.recipes.games.gg_bench.writer import write_game

Rules: TypeAlias = pl.worlds.WrittenRules
FILE = "games.jsonl"  # the games that can be used, in the run folder
OPPONENTS = ("agent", "search", "exact")
BROKE = 0.2  # share of the model's plays of a game that may break; else the game is dropped


@pl.declare(reads=("broke", "result"))
@pl.stage
class GameBench:
    """The study; see the module of the package.

    Args:
        writer: a model that writes the games; None = they are those of the problem, of a file all.
        tasks: games that are written, or read.
        n: plays of each game by the model; it opens every second one.
        opponent: an "agent" that is trained on each game by self-play, with a tree search in front; the
            "search" alone, with random play behind the tree; or the "exact" solver where a game is small
            enough, else the search.
        training: turns of self-play on each game; a game on which no agent can be trained is dropped.
        iterations: of the opponent's tree search; with 0 an agent moves by its policy, and a search at
            random.
        temperature: of the model.
    """

    writer: pl.Source | None = None
    tasks: int = 40
    n: int = 30
    opponent: Literal["agent", "search", "exact"] = "agent"
    training: int = 8_000
    iterations: int = 300
    temperature: float = 1.0
    question: ClassVar[str] = "How often does the model win games that were generated for the test?"
    check_up: ClassVar[bool] = False

    def __post_init__(self) -> None:
        pl.check_bounds("games", self.tasks, least=1)
        pl.check_bounds("plays", self.n, least=1)
        pl.check_bounds("iterations", self.iterations, least=0)
        pl.check_bounds("training", self.training, least=1)
        if self.opponent not in OPPONENTS:
            raise pl.UserError(f"opponent is {self.opponent!r}; it takes {', '.join(OPPONENTS)}")

    async def run(self, ctx: pl.Context) -> pl.Result:
        world = check_world(ctx)
        games, items = list[Rules](), list[dict[str, Any]]()
        for number, game in enumerate(await self._games(ctx)):
            item = await self._examined(ctx, number, game)
            items.append(item)
            weights = item.pop("weights", "")
            if isinstance(game, Rules) and not item["verdict"]:
                games.append(replace(game, agent=weights))
        verdicts = Counter(x["verdict"] for x in items if x["verdict"])
        ctx.say(f"{len(games)} of {len(items)} games can be used{listed(verdicts)}")
        if ctx.out is not None:
            keep_games(ctx, games)
        usable = [x for x in items if not x["verdict"]]
        for number, (game, item) in enumerate(zip(games, usable, strict=True)):
            item |= await self._played(ctx, world, number, game)
            outcome = {"game": number + 1, "won": sum(p["won"] for p in item["plays"])}
            ctx.log({**outcome, "plays": len(item["plays"])})
        report = tell_games(items, self.protocol(world), self.question)
        return pl.studies.publish(ctx, report)

    def protocol(self, world: pl.worlds.WrittenGame) -> dict[str, str]:
        """How it was measured, in words."""
        behind = "random play behind the tree"
        rival = "the exact solver where a game is small enough, else " if self.solved else ""
        if self.opponent == "agent":
            behind = (
                f"an agent behind the tree that was trained by self-play for {self.training} turns"
            )
        games = "written by a model" if self.writer is not None else "of the problem"
        return {
            "games": f"{self.tasks} {games}, examined in the sandbox",
            "plays": f"{self.n} of each game, every second one opened by the model, at temperature "
            f"{self.temperature:g}; a reply without a legal move is asked for again {world.retries} times, and "
            "then the play is lost",
            "opponent": f"{rival}Monte Carlo tree search with {self.iterations} iterations and {behind}",
        }

    # ---- games

    async def _games(self, ctx: pl.Context) -> list[Rules | pl.worlds.GameVerdict]:
        """The games that are to be examined."""
        if self.writer is not None:
            return [await self._written(ctx, self.writer, i) for i in range(self.tasks)]
        tasks = ctx.bench.tasks
        if isinstance(tasks, pl.worlds.WrittenGameTasks) and tasks.file:
            return list(pl.worlds.read_games(tasks.file)[: self.tasks])
        drawn = [tasks.task("test", i) for i in pl.run.chosen_tasks(ctx.bench, self.tasks)]
        games = [rules_of(task) for task in drawn]
        return list({g.title: g for g in games}.values())  # a small grammar draws a game twice

    async def _written(
        self, ctx: pl.Context, writer: pl.Source, number: int
    ) -> Rules | pl.worlds.GameVerdict:
        """A game that the model writes; a run that goes on does not ask again."""

        async def write() -> dict[str, Any]:
            return asdict(await write_game(ctx, writer, number))

        data = await ctx.once(f"written-{number}", write)
        return pl.worlds.GameVerdict(**data) if "verdict" in data else Rules(**data)

    async def _examined(
        self, ctx: pl.Context, number: int, game: Rules | pl.worlds.GameVerdict
    ) -> dict[str, Any]:
        """What the checks say of a game, and how a player of random moves fares in it."""
        if isinstance(game, pl.worlds.GameVerdict):
            return {"title": f"game {number + 1}", **asdict(game)}

        async def examine() -> dict[str, Any]:
            verdict = await pl.worlds.examine_game(game.code, ctx.seed)
            if isinstance(verdict, pl.worlds.GameVerdict):
                return asdict(verdict)
            seed, n = f"{ctx.seed}/{number}", max(20, self.n)
            trained = await self._trained(game, seed)
            if isinstance(trained, pl.worlds.GameVerdict):
                return asdict(trained)
            weights = str(trained.get("weights", ""))
            points = [
                await pl.worlds.random_points(game.code, n, iterations, exact, seed, agent)
                for iterations, exact, agent in (
                    (self.iterations, self.solved, weights),
                    (0, 0, ""),
                )
            ]
            for broken in points:
                if isinstance(broken, pl.worlds.GameVerdict):
                    return asdict(broken)
            names = ("random_against_opponent", "random_against_random")
            return {
                "verdict": "",
                "why": "",
                **asdict(verdict),
                **dict(zip(names, points, strict=True)),
                **trained,
            }

        return {"title": game.title, **await ctx.once(f"examined-{number}", examine)}

    async def _trained(self, game: Rules, seed: str) -> dict[str, Any] | pl.worlds.GameVerdict:
        """The weights of the game's agent, its points against random moves, and how often players make a
        move of the exact solver; a file's agent is taken as it is. {} where no agent plays.
        """
        if self.opponent != "agent":
            return {}
        weights, points = game.agent, dict[str, Any]()
        if not weights:
            agent = await pl.worlds.train_on_game(game.code, self.training, seed)
            if isinstance(agent, pl.worlds.GameVerdict):
                return agent
            weights, points = agent.weights, {"agent_points": agent.points}
        best = await pl.worlds.compare_players(game.code, self.iterations, weights, seed)
        if isinstance(best, pl.worlds.GameVerdict):
            return best
        return {**points, "weights": weights, "best_moves": best}

    @property
    def solved(self) -> int:
        """Positions of a game that the opponent solves exactly, at most."""
        return pl.worlds.STATES if self.opponent == "exact" else 0

    # ---- play

    async def _played(
        self, ctx: pl.Context, world: pl.worlds.WrittenGame, number: int, game: Rules
    ) -> dict[str, Any]:
        """The model's plays of a game; a run that goes on does not play them again."""
        seated = replace(world, rival=self.opponent, iterations=self.iterations)
        there = ctx.with_bench(
            replace(ctx.bench, world=seated, max_turns=seated.most_turns, reward=None)
        )
        own = pl.worlds.WrittenGameTasks()
        sample = pl.Sample(n=1, temperature=self.temperature)

        async def one(i: int) -> dict[str, Any]:
            task = own.task_of(game, f"{game.title}/{i}", i % 2)
            group = await sample(there, ctx.key("play", number, i), pl.Group(task=task))
            return play_of(group.episodes[0], i % 2)

        async def play() -> list[dict[str, Any]]:
            plays = list(await asyncio.gather(*map(one, range(self.n))))
            if all(p["result"].startswith("error") for p in plays):
                why = plays[0]["result"]
                raise pl.Fault("study", f"no play of {game.title} could be made: {why}")
            return plays

        made = await ctx.once(f"played-{number}", play)
        plays = [p for p in made if not p["result"].startswith("error")]
        broke = [p for p in plays if p["result"] in ("broken", "endless")]
        verdict = {}
        if len(broke) > BROKE * len(plays):
            why = broke[0]["broke"] or "games had no end"
            verdict = {"verdict": "broke", "why": f"{len(broke)} of {len(plays)} plays: {why}"}
        return {"plays": plays, "errors": len(made) - len(plays), **verdict}


def play_of(episode: pl.Episode, second: int) -> dict[str, Any]:
    """A play as plain data. Only a win by the rules is a win."""
    result = str(
        episode.facts.get("result", "") or f"error: {episode.facts.get('error', episode.status)}"
    )
    own, other = ("first", "second")[second], ("first", "second")[1 - second]
    replies = sum(s.trained for r in episode.rows for s in r.segments)
    return {
        "second": bool(second),
        "result": result,
        "won": result == own or result == f"illegal:{other}",
        "illegal": int(episode.facts.get("illegal:player", 0)),
        "replies": replies,
        "plies": int(episode.facts.get("plies", 0)),
        "broke": str(episode.facts.get("broke", "")),
    }


def rules_of(task: pl.Task) -> Rules:
    meta = task.meta
    return Rules(
        title=meta["title"], rules=meta["rules_told"], moves=meta["moves_told"], code=meta["code"]
    )


def check_world(ctx: pl.Context) -> pl.worlds.WrittenGame:
    """The world of a bench. Raises UserError for one that is no written game."""
    world = ctx.bench.world
    if not isinstance(world, pl.worlds.WrittenGame):
        raise pl.UserError(
            f"{ctx.bench.name} is no written game; take --task written-games, or --task "
            "\"written-games(file='FILE')\" with games of yours, or writer=MODEL, which writes them"
        )
    return world


def listed(verdicts: Mapping[str, int]) -> str:
    counts = ", ".join(f"{word} {n}" for word, n in sorted(verdicts.items()))
    return f"; of the others: {counts}" if counts else ""


def keep_games(ctx: pl.Context, games: Sequence[Rules]) -> None:
    """Writes the games that can be used, for --task "written-games(file=...)"."""
    pl.tasks.write_records(ctx.folder / FILE, map(asdict, games))
