"""The arms of a comparison on held-out days."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.finrl_dapo.group import TradingGroups
from palaestra.recipes.llm4rl.finrl_dapo.headlines import written_scores
from palaestra.recipes.llm4rl.finrl_dapo.market import (
    CAPITAL,
    COST,
    UNIT,
    StockMarket,
    scale_by_news,
    shaped_reward,
)
from palaestra.recipes.llm4rl.finrl_dapo.news import (
    exchanged,
    score_headlines,
    unscored,
    whole_scores,
)
from palaestra.recipes.llm4rl.finrl_dapo.prices import (
    NEUTRAL,
    SCORES,
    PriceTable,
    made_up_prices,
    read_prices,
)

Scores = Literal["news", "none"]
YEAR = 252  # trading days
TAIL = 0.05  # of the worst days
LOOK_BACK = 20  # days before the first one that is traded


@pl.stage
class TradeWithNews:
    """A program: policies that trade on the first days of prices, and are measured on the last ones.

    Args:
        prices: a file; "" = a made-up market of `paths` paths.
        asked: who scores headlines; without one those of the made-up market have the scores that a
            large model wrote.
        scores: "none" = every score is 3, and nobody is asked.
        held: share of the days, the last ones, that are for the test.
        days: of a game that is trained on; at most those that there are.
        steps: days that are traded in an arm's training, all games together.
        calls: headlines that are asked about, at most, as many of each day.
        alpha, beta: exponents of sentiment and risk in a reward.
    """

    prices: str = ""
    asked: pl.Source | None = None
    scores: Scores = "news"
    held: float = 1 / 3
    days: int = 60
    steps: int = 40_000
    calls: int = 1000
    alpha: float = 1.0
    beta: float = 1.0
    paths: int = 32
    learner: TradingGroups = TradingGroups()
    critic: pl.control.PPO = pl.control.PPO(games=16, bootstrap=True)  # of the arm ppo
    smallest: ClassVar[Mapping[str, float]] = {"calls": 8, "paths": 2, "days": 10}

    def __post_init__(self) -> None:
        if not 0 < self.held < 1 or min(self.days, self.steps, self.calls, self.paths) < 1:
            raise pl.UserError(
                "finrl-dapo: held is between 0 and 1; days, steps, calls and paths are 1 or more"
            )

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("finrl-dapo", ctx.seed)
        table = read_prices(self.prices) if self.prices else made_up_prices(key, self.paths)
        for note in table.notes:
            ctx.say(f"{self.prices}: {note}")
        cut = first_held_day(len(table.days), self.held)
        score, counts = await self.read_news(ctx, table, cut)
        arms = TradingArms(self, ctx, table, score, key)
        results = await pl.control.compare_arms(ctx, arms.runs())
        ctx.spend("env_steps", sum(r["env_steps"] for r in results.values()))
        own = results["guide"]
        ctx.log({"arm": "guide", "news_effect": own["news_effect"], "return": own["return"]})
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results),
                "percent": own["percent"],
                "news_effect": own["news_effect"],
                "days": len(table.days) - arms.cut,
                **counts,
                "sampled_tokens": 0,
            },
            artifacts={} if ctx.out is None else {"agent": str(ctx.out / "policy")},
        )

    async def read_news(
        self, ctx: pl.Context, table: PriceTable, cut: int
    ) -> tuple[np.ndarray, Mapping[str, Any]]:
        """Scores, those of the file before those of the model, NaN where there is none; and counts, of
        which `held_scored` is how many of the days and stocks that are traded in the test have one.
        """
        nothing = np.full((*table.shape, len(SCORES)), np.nan)
        if self.scores == "none":
            return nothing, {}
        has_scores, asked = not np.isnan(table.given_PTK2).all(), self.asked
        if asked is None and not self.prices:
            asked = pl.Scripted(written_scores, name="written scores")
        if table.headlines and asked is None and not has_scores:
            raise pl.UserError(
                "finrl-dapo needs a language model that scores headlines: "
                "--llm endpoint(url='...',model='...'), a folder, or transcript:FILE; or columns "
                "sentiment and risk in the file; or scores=none"
            )
        counts: Mapping[str, Any] = {}
        if table.headlines and asked is not None:
            source = pl.services.TranscribedSource(asked)
            nothing, counts = await score_headlines(ctx, source, table, self.calls)
            if counts["left_out"]:
                ctx.say(f"{counts['left_out']} headlines count as 3: calls={self.calls} were asked")
        elif not has_scores:
            ctx.say(f"{self.prices} has neither headlines nor scores: news changes nothing")
        elif bare := len(unscored(table)):
            ctx.say(f"{bare} headlines without a score count as 3: nobody is asked, see --llm")
        score = np.where(np.isnan(table.given_PTK2), nothing, table.given_PTK2)
        held = ~np.isnan(score[:, cut:-1]).any(-1)
        ctx.say(
            f"{held.sum()} of {held.size} held-out days of stocks have a score, the others have 3"
        )
        return score, {**counts, "held_scored": int(held.sum())}


def first_held_day(days: int, held: float) -> int:
    """The day with which the test begins. The days before it are `LOOK_BACK` and two, at least: on the
    first of the two is a trade of the training, on the second what it earned.

    Raises UserError where a share that is held leaves fewer.
    """
    cut, least = min(days - 2, days - round(days * held)), LOOK_BACK + 2
    if cut < least:
        raise pl.UserError(
            f"finrl-dapo: held={held:g} leaves {cut} of {days} days to train on, and {least} are needed, "
            f"as {LOOK_BACK} are looked back on; give more days, or "
            f"held={int(100 * (days - least) / days) / 100:g} at most"
        )
    return cut


class TradingArms:
    """What the arms of a run share. Games of training end before the day `cut`, where those of the
    test begin.
    """

    def __init__(
        self,
        program: TradeWithNews,
        ctx: pl.Context,
        table: PriceTable,
        score: np.ndarray,
        key: pl.Key,
    ):
        self.program, self.ctx, self.table, self.key = program, ctx, table, key
        self.score = score
        self.cut = first_held_day(len(table.days), program.held)
        self.days = min(program.days, self.cut - 1 - LOOK_BACK)
        if self.days < program.days:
            ctx.say(
                f"games of training have {self.days} days, not {program.days}: there are no more"
            )

    def market(self, score: np.ndarray, test: bool = False, released: bool = False) -> StockMarket:
        """The market of the training days, or of the test."""
        return StockMarket(
            self.table.close_PTK,
            whole_scores(score),
            first=self.cut if test else LOOK_BACK,
            last=len(self.table.days) - 1 if test else self.cut - 1,
            unseen=self.cut,
            days=0 if test else self.days,
            released=released,
            alpha=self.program.alpha,
            beta=self.program.beta,
        )

    def runs(self) -> dict[str, pl.control.ArmRun]:
        """The arms by name."""
        nothing = np.full(self.score.shape, np.nan)
        folder = None if self.ctx.out is None else self.ctx.out / "policy"
        arms = {"none": self.arm(nothing), "guide": self.arm(self.score, folder=folder)}
        if (~np.isnan(self.score).any(-1)).sum() > 1:
            parts = (slice(0, self.cut), slice(self.cut, None))
            arms["shuffled"] = self.arm(exchanged(self.score, parts, self.key))
        if self.program.scores != "none":
            arms["oracle"] = self.arm(self.table.latent_PTK2)
        arms["released"] = self.arm(self.score, released=True)
        arms["ppo"] = self.arm(self.score, critic=True)
        arms["hold"] = self.hold
        return arms

    def arm(
        self,
        score: np.ndarray,
        folder: Path | None = None,
        released: bool = False,
        critic: bool = False,
    ) -> pl.control.ArmRun:
        """What `compare_arms` runs: trains a policy, and plays each held-out path by its likeliest
        actions.
        """

        async def run() -> Mapping[str, Any]:
            program, lines = self.program, list[dict[str, Any]]()
            sim, key = self.market(score, released=released), (*self.key, "learn")
            learner = program.critic if critic else program.learner
            steps = program.steps
            if (most := self.ctx.budget.get("steps")) is not None:
                steps = min(steps, int(most) * learner.games * sim.horizon)
            if critic:
                keep = lambda line: lines.append(dict(line))
                policy = await program.critic.learn(sim, steps, key, log=keep)
            else:
                policy = program.learner.learn(sim, steps, key, lines.append)
            if folder is not None:
                pl.control.save_policy(policy, folder)
            test = self.market(score, test=True, released=released)
            act = lambda obs, legal, rng: policy.act(obs, legal, rng, greedy=True)
            shaping = pl.control.as_paid if critic else shaped_reward
            games = len(self.table.close_PTK)
            numbers, played = pl.control.measure_arm(test, act, shaping, games, self.key)
            names = ("env_steps", "reward", "dropped", "passes")
            return {
                **numbers,
                **measures(played["assets"][:, 0], held_assets(test)),
                "news_effect": news_effect(test, policy, played),
                "env_steps": int(lines[-1]["env_steps"]),
                "curve": [{k: x[k] for k in names if k in x} for x in lines],
            }

        return run

    async def hold(self) -> Mapping[str, Any]:
        """Nobody learns: equal money in every stock, from the first day of the test to its last."""
        assets = held_assets(self.market(np.full(self.score.shape, np.nan), test=True))
        paid = UNIT * (assets[:, -1] - CAPITAL)
        return {
            "return": float(paid.mean()),
            "error": pl.stats.standard_error(paid),
            "learned_from": 0.0,
            "agreement": 0.0,
            **measures(assets, assets),
            "news_effect": 0.0,
            "env_steps": 0,
        }


def held_assets(sim: StockMarket) -> np.ndarray:
    """[P, T] what equal money in every stock is worth after each day of a test, its cost paid."""
    price = sim.price_PTK[:, sim.first : sim.last + 1]
    return CAPITAL / (1 + COST) * (price[:, 1:] / price[:, :1]).mean(2)


def measures(assets_nT: np.ndarray, held_nT: np.ndarray) -> dict[str, float]:
    """Means over games, of accounts that begin with the capital: percent gained; Sharpe ratio, the
    mean of daily returns by their deviation times sqrt(252); drawdown, the largest loss from a peak,
    in percent; cvar, the mean of the worst 5% of daily returns, in percent; and the information ratio,
    as Sharpe, of what is earned a day beyond equal money in every stock. 0 where nothing varies.
    """

    def daily(x_nT: np.ndarray) -> np.ndarray:
        whole = np.concatenate([np.full((len(x_nT), 1), CAPITAL), x_nT], 1)
        return whole[:, 1:] / whole[:, :-1] - 1

    def ratio(x_nT: np.ndarray) -> float:
        std_n = x_nT.std(1)
        varies = std_n > 1e-12
        return float(
            np.where(varies, x_nT.mean(1) / np.where(varies, std_n, 1), 0).mean() * YEAR**0.5
        )

    change_nT = daily(assets_nT)
    peak_nT = np.maximum(np.maximum.accumulate(assets_nT, 1), CAPITAL)
    worst = max(1, int(np.ceil(TAIL * change_nT.shape[1])))
    return {
        "percent": 100 * float((assets_nT[:, -1] / CAPITAL - 1).mean()),
        "sharpe": ratio(change_nT),
        "drawdown": 100 * float((1 - assets_nT / peak_nT).max(1).mean()),
        "cvar": 100 * float(np.sort(change_nT, 1)[:, :worst].mean()),
        "information_ratio": ratio(change_nT - daily(held_nT)),
    }


def news_effect(sim: StockMarket, policy: Any, played: pl.control.Paths) -> float:
    """How far news moves a trade: the mean distance, over the days and stocks of played games, of the
    scaled action from the one that the policy would take if every score were 3.
    """
    obs = played["obs"][:, 0][:, :, None]  # [n, T, 1, O]
    act = lambda x: sim.actions.clip(policy.act(x, None, None, greedy=True)["act"])[:, :, 0]
    sentiment = NEUTRAL + 2 * obs[:, :, 0, -2 * sim.K :: 2]
    return float(np.abs(scale_by_news(act(obs), sentiment) - act(sim.without_news(obs))).mean())
