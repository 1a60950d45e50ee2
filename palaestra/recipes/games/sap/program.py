"""SAP as a program: games between the stored strategies, the network, and series against opponents."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

import palaestra as pl
from palaestra.recipes.games.sap.match import ChangePlan, PlayedMatch
from palaestra.recipes.games.sap.minirts import RULES, MiniRts
from palaestra.recipes.games.sap.network import Evaluator, train_evaluator
from palaestra.recipes.games.sap.seated import SeatedGame
from palaestra.recipes.games.sap.space import FORM, PlannedStrategy, read_strategy

KINDS = ("seen", "unseen", "rules")  # opponents: stored strategies, others, and rule-based ones
TRIES = 3  # of a recogniser
FEWEST = 4  # strategies
PROPOSE = (
    "Propose a strategy for a real-time strategy game, unlike {n} that were proposed before, as one JSON "
    "object: {form}"
)
RECOGNISE = """These are games of one opponent, as far as they were seen:
{seen}

{listed}{form}"""
ARMS = ("random", "meta", "nearest", "sap", "sap_known")


class StrategyGame(Protocol):
    """What is played: the built-in real-time game or a user's game. `change` is asked within a game, with
    what was seen of the opponent so far, for the own strategy from there on.
    """

    space: tuple[PlannedStrategy, ...]
    form: str

    async def play(
        self,
        own: PlannedStrategy,
        other: PlannedStrategy,
        key: pl.Key,
        change: ChangePlan | None = None,
    ) -> PlayedMatch | None: ...
    def read(self, text: str) -> PlannedStrategy | None: ...
    def recognise(self, seen: Sequence[str]) -> PlannedStrategy | None: ...


def payoff_entry(won: float, damage: float, spent: float = 0.0, harvested: float = 0.0) -> float:
    """What a game is worth in the payoff matrix: 10 won + 0.1 damage + 0.1 (spent - harvested)."""
    return 10 * won + 0.1 * damage + 0.1 * (spent - harvested)


@dataclass(frozen=True)
class KnownPayoffs:
    """The stored strategies, the payoff of each against each, and the network that was trained on them."""

    stored: tuple[PlannedStrategy, ...]
    payoff_NN: np.ndarray
    net: Evaluator
    space: tuple[PlannedStrategy, ...]

    @property
    def meta(self) -> PlannedStrategy:
        """The stored strategy of the best average payoff."""
        return self.stored[int(self.payoff_NN.mean(1).argmax())]

    def nearest(self, other: PlannedStrategy) -> PlannedStrategy:
        """The best stored response to the stored strategy that is nearest to another one."""
        vectors = np.array([s.vector for s in self.stored])
        near = int(np.abs(vectors - np.array(other.vector)).sum(1).argmin())
        return self.stored[int(self.payoff_NN[:, near].argmax())]

    def response(self, other: PlannedStrategy) -> tuple[PlannedStrategy, float | None]:
        """What is played against a strategy: of a stored one the best of its column; else the best of the
        network over the whole space, with the chance that it predicts, or where that is below one half
        the meta strategy.
        """
        if any(s.vector == other.vector for s in self.stored):
            return self.nearest(other), None
        chances = self.net.chances(np.array([s.vector for s in self.space]), other.vector)
        best = int(chances.argmax())
        if chances[best] < 0.5:
            return self.meta, None
        return self.space[best], float(chances[best])


@pl.stage
class StrategyPlanning:
    """The program; see the module of the package.

    Args:
        strategies: a file of strategies for a game of one's own; "" = the built-in game is played.
        proposer: a model that proposes strategies of the built-in game; None = they are drawn.
        recogniser: a model that names the opponent's strategy; None = in the built-in game the features
            that were seen, in another one the model that plays.
        planner: a model that turns a strategy into orders in the built-in game; None = rules do.
        tasks: strategies of the built-in game.
        share: of strategies that are stored, with their payoffs; the others are unseen opponents.
        n: games of each pair of stored strategies.
        rounds: games of a series against one opponent, which is recognised after each, and in the built-in
            game within each.
        every: ticks of the built-in game, of 200, between two recognitions and between two calls of the
            planner.
        noise: the chance that a feature is seen wrong in the built-in game.
        epochs: of the network at most; it stops after `patience` without a better held-out loss.
        search: whether opponents are exploited; without it the meta strategy is played.
    """

    strategies: str = ""
    proposer: pl.Source | None = None
    recogniser: pl.Source | None = None
    planner: pl.Source | None = None
    tasks: int = 50
    share: float = 0.6
    n: int = 2
    rounds: int = 2
    every: int = 20
    noise: float = 0.1
    epochs: int = 400
    patience: int = 100
    search: bool = True
    temperature: float = 1.0
    smallest: ClassVar[Mapping[str, float]] = {"epochs": 8}

    def __post_init__(self) -> None:
        for name, least in (
            ("rounds", 1),
            ("epochs", 1),
            ("patience", 1),
            ("noise", 0),
            ("every", 1),
        ):
            pl.check_bounds(name, getattr(self, name), least=least)
        pl.check_bounds("plays", self.n, least=1)
        pl.check_bounds("count", self.tasks, least=FEWEST, most=1020)
        pl.check_bounds("share", self.share, least=0.1, most=0.9)

    async def run(self, ctx: pl.Context) -> pl.Result:
        game = self.game_of(ctx)
        strategies = await self._strategies(ctx, game)
        order = np.random.default_rng(ctx.seed).permutation(len(strategies)).tolist()
        n = min(len(order) - 1, max(2, round(self.share * len(order))))
        stored = tuple(strategies[i] for i in order[:n])
        unseen = tuple(strategies[i] for i in order[n:])
        payoffs = await ctx.once("payoffs", lambda: self._payoffs(ctx, game, stored))
        wins_NN = np.array(payoffs["wins"])
        net = train_evaluator(
            np.array([s.vector for s in stored]),
            wins_NN,
            epochs=self.epochs,
            patience=self.patience,
            seed=ctx.seed,
        )
        known = KnownPayoffs(stored, np.array(payoffs["payoff"]), net, game.space)
        ctx.log({"strategies": len(stored), "net_accuracy": net.accuracy, "net_epochs": net.epochs})
        series = list[dict[str, Any]]()
        rules = () if self.strategies else tuple(RULES)
        for i, other in enumerate((*stored, *unseen, *rules)):
            make = lambda i=i, other=other: self._series(ctx, game, known, other, i)
            kind = "seen" if i < n else "unseen" if i < len(order) else "rules"
            series.append({"kind": kind, **(await ctx.once(f"series-{i}", make))})
        metrics = {"net_accuracy": net.accuracy, **numbers_of(series)}
        if metrics["left_out"]:
            ctx.say(
                f"{metrics['left_out']} opponents are left out: all games of a series broke off"
            )
        ctx.log({k: x.mean if isinstance(x, pl.stats.Interval) else x for k, x in metrics.items()})
        whole = {
            k: {"of": "reward", **x.json()} if isinstance(x, pl.stats.Interval) else x
            for k, x in metrics.items()
        }
        whole |= {"sampled_tokens": ctx.sampled_tokens}
        return pl.Result(metrics=whole, artifacts=self._write(ctx, known, series))

    def game_of(self, ctx: pl.Context) -> StrategyGame:
        """The game that is played. Raises UserError for one that has not two seats, or no strategies."""
        seats = ctx.bench.world.seats
        if self.strategies:
            if len(seats) != 2:
                raise pl.UserError(
                    f"{ctx.bench.name} has the seats {', '.join(seats)}; sap plays strategies of a file in a "
                    "game of two seats: --env FILE.py:CLASS, or --task kuhn"
                )
            return SeatedGame(ctx, self.strategies, self.temperature)
        if len(seats) == 2:
            raise pl.UserError(
                f"sap plays {ctx.bench.name} by strategies of yours: give strategies=FILE.jsonl, a line each "
                '{"text": "...", "vector": [...]}; without a game it plays its own'
            )
        return MiniRts(self.noise, self.every, ctx, self.planner)

    # ---- the offline stage

    async def _strategies(self, ctx: pl.Context, game: StrategyGame) -> tuple[PlannedStrategy, ...]:
        """The strategies of a file, of a proposer, or drawn from the space."""
        if self.strategies:
            return game.space
        if self.proposer is None:
            drawn = np.random.default_rng((ctx.seed, 1)).permutation(len(game.space))[: self.tasks]
            return tuple(game.space[i] for i in drawn.tolist())
        source = self.proposer

        async def propose() -> list[list[float]]:
            asked = [PROPOSE.format(n=i, form=FORM) for i in range(self.tasks)]
            replies = [await ctx.ask(source, text, seed=i) for i, text in enumerate(asked)]
            made = [s for s in map(read_strategy, replies) if s is not None]
            return [list(v) for v in dict.fromkeys(s.vector() for s in made)]

        vectors = [tuple(v) for v in await ctx.once("proposed", propose)]
        ctx.say(f"the proposer gave {len(vectors)} different strategies in {self.tasks} replies")
        if len(vectors) < FEWEST:
            raise pl.UserError(
                f"the proposer gave {len(vectors)} strategies that the space has, and {FEWEST} are needed; take "
                "a model that writes JSON, a larger count, or no proposer"
            )
        return tuple(s for s in game.space if s.vector in vectors)

    async def _payoffs(
        self, ctx: pl.Context, game: StrategyGame, stored: Sequence[PlannedStrategy]
    ) -> dict[str, Any]:
        """The share of games that the row wins against the column, and its payoff; a mirror image is not
        played, and a strategy against itself is a draw.
        """
        n = len(stored)
        wins_NN, payoff_NN, broken = np.zeros((n, n)), np.zeros((n, n)), 0
        for i in range(n):
            for j in range(i):
                made = [
                    await game.play(stored[i], stored[j], ctx.key("pair", i, j, k))
                    for k in range(self.n)
                ]
                games = [m for m in made if m is not None]
                broken += len(made) - len(games)
                if not games:
                    continue
                wins_NN[i, j] = np.mean([m.won > 0 for m in games])
                wins_NN[j, i] = np.mean([m.won < 0 for m in games])
                payoff_NN[i, j] = np.mean(
                    [payoff_entry(m.won, m.damage, m.spent, m.harvested) for m in games]
                )
                payoff_NN[j, i] = -payoff_NN[i, j]
        if broken == self.n * n * (n - 1) // 2:
            raise pl.Fault("sap", "no game between two strategies came to an end that pays")
        if broken:
            ctx.say(f"{broken} games between strategies broke off, and are left out")
        return {"wins": wins_NN.tolist(), "payoff": payoff_NN.tolist()}

    # ---- the online stage

    async def _series(
        self,
        ctx: pl.Context,
        game: StrategyGame,
        known: KnownPayoffs,
        other: PlannedStrategy,
        number: int,
    ) -> dict[str, Any]:
        """A series of each arm against one opponent: points, what was recognised, and predictions."""
        arms = {arm: await self._arm(ctx, game, known, other, (number, arm)) for arm in ARMS}
        return {"opponent": other.name, **arms}

    async def _arm(
        self,
        ctx: pl.Context,
        game: StrategyGame,
        known: KnownPayoffs,
        other: PlannedStrategy,
        which: tuple[int, str],
    ) -> dict[str, Any]:
        number, arm = which
        own, seen = known.meta, list[str]()
        if arm == "random":
            rng = pl.rng_of(ctx.key("random", number))
            own = game.space[int(rng.integers(len(game.space)))]
        adapts = self.search and arm not in ("random", "meta")
        predicted: float | None = None
        points, pairs = list[float](), list[tuple[float, float]]()
        right, answers = list[bool](), list[bool]()

        async def change(now: str) -> PlannedStrategy:
            """The response to what games before and this one show; without a recognition it stays."""
            nonlocal own, predicted
            watched.append(now)
            is_told = arm == "sap_known" and other.vector  # a rule has no vector
            strategy = other if is_told else await self.recognised(ctx, game, seen, watched)
            right.append(strategy is not None and strategy.vector == other.vector)
            if strategy is not None:
                near = arm == "nearest"
                own, predicted = (
                    (known.nearest(strategy), None) if near else known.response(strategy)
                )
            answers.append(own.vector != known.meta.vector)
            return own

        for k in range(self.rounds):
            begun, watched = predicted, list[str]()
            match = await game.play(
                own, other, ctx.key("series", number, k), change if adapts else None
            )
            if match is None:
                continue
            points.append(float(match.won > 0))
            if begun is not None:
                pairs.append((begun, points[-1]))
            if adapts and k < self.rounds - 1:
                await change(match.seen)
            seen.append(match.seen)
        return {"points": points, "predicted": pairs, "right": right, "answers": answers}

    async def recognised(
        self,
        ctx: pl.Context,
        game: StrategyGame,
        seen: Sequence[str],
        watched: Sequence[str] = (),
    ) -> PlannedStrategy | None:
        """The opponent's strategy by what was seen of games and `watched` of the present one; None = it cannot
        be told in three tries.
        """
        source = self.recogniser
        if source is None and not self.strategies:
            return game.recognise([*seen, *watched])
        if source is None:
            source = pl.services.client_from_text("policy", "recogniser")[0]
        listed = ""
        if self.strategies:
            lines = (f"{i + 1}. {s.text}\n" for i, s in enumerate(game.space))
            listed = f"The strategies:\n{''.join(lines)}\n"
        games = [*seen, *watched[-1:]]  # what was watched last tells all of a game
        listing = "\n".join(f"game {i + 1}: {text}" for i, text in enumerate(games))
        asked = RECOGNISE.format(seen=listing, listed=listed, form=game.form)
        for i in range(TRIES):
            request = pl.ChatRequest(
                messages=pl.services.question_messages(asked), temperature=0.7 if i else 0.0
            )
            if (strategy := game.read(await ctx.ask(source, request, seed=i))) is not None:
                return strategy
        return None

    def _write(
        self, ctx: pl.Context, known: KnownPayoffs, series: Sequence[Mapping[str, Any]]
    ) -> dict[str, str]:
        """The stored strategies with their payoffs, and every series, in the run folder."""
        if ctx.out is None:
            return {}
        files = {"payoffs": ctx.folder / "payoffs.json", "series": ctx.folder / "series.jsonl"}
        stored = {
            "strategies": [asdict(s) for s in known.stored],
            "payoff": known.payoff_NN.tolist(),
        }
        files["payoffs"].write_text(json.dumps(stored) + "\n", encoding="utf-8")
        pl.tasks.write_records(files["series"], series)
        return {name: str(path) for name, path in files.items()}


def numbers_of(series: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Win rates by arm against seen and unseen opponents, the opponent being the unit, and what the
    method gains over the meta strategy.
    """
    numbers: dict[str, Any] = {}
    whole = [x for x in series if all(x[arm]["points"] for arm in ARMS)]
    rate = lambda x, arm: float(np.mean(x[arm]["points"]))
    for arm in ARMS:
        for kind in KINDS:
            if own := [rate(x, arm) for x in whole if x["kind"] == kind]:
                numbers[f"{arm}_{kind}"] = pl.stats.bounded_interval(own)
    gains = [rate(x, "sap") - rate(x, "meta") for x in whole]
    numbers["exploited"] = float(np.mean(gains)) if gains else 0.0
    for arm in ("meta", "nearest"):
        over = [rate(x, "sap") - rate(x, arm) for x in whole if x["kind"] == "unseen"]
        numbers[f"above_{arm}_unseen"] = pl.stats.mean_interval(over)
    answers = [a for x in whole for a in x["sap"]["answers"]]
    numbers["answered"] = float(np.mean(answers)) if answers else 0.0
    right = [r for x in whole for r in x["sap"]["right"]]
    if right:
        numbers["recognised"] = float(np.mean(right))
    pairs = [p for x in whole for p in x["sap"]["predicted"]]
    if pairs:
        numbers["predicted_minus_won"] = float(np.mean([a - b for a, b in pairs]))
    numbers["left_out"] = len(series) - len(whole)
    return numbers
