"""Agents that trade, each with a learner of its own, and the arms in which a critic's scores are compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from pydantic import BaseModel, Field

import palaestra as pl
from palaestra.recipes.llm4rl.fairmarket_rl.microgrid import Microgrid

Critic = Literal["model", "none"]
SAMPLE = 64  # games of the start, which the ranges of a table are taken from
LEVELS = 12  # of a range; a number of a table is rounded to multiples of its twelfth
FEW = 10  # updates, fewer than which leave the ramp no room
FAR = 1e6  # levels within which the nearest table has its scores
ASKS = 3
UNKNOWN = (0.5, 0.5)  # scores of a reply that cannot be read
QUESTION = """{about}

A day of trades, by household:
{lines}

How fair was it? Give two scores from 0 to 1. FTB, fairness to buyers: were they supplied, and at a fair \
price? FBS, fairness between sellers: is the profit spread evenly over them?"""


class FairnessScores(BaseModel):
    """What a critic says of a day."""

    FTB: float = Field(ge=0.0, le=1.0)
    FBS: float = Field(ge=0.0, le=1.0)


@runtime_checkable
class FairMarket(Protocol):
    """A simulator that says who sells, and what its transactions were."""

    @property
    def sells(self) -> np.ndarray:
        """[A] who is a seller; the others are buyers."""
        ...

    def table(self, paths: pl.control.Paths) -> dict[str, np.ndarray]:
        """[n, A] by name: what a game's transactions sum up to."""
        ...


@runtime_checkable
class MeasuresFairness(Protocol):
    """A simulator that knows how fair a game was: for measures, and the oracle's arm."""

    def fairness(self, paths: pl.control.Paths) -> np.ndarray:
        """[n, 2] FTB and FBS."""
        ...

    def served(self, paths: pl.control.Paths) -> float:
        """The share of demand that was supplied."""
        ...


def ramp(share: float, start: float, full: float) -> float:
    """clip((e - e0) / (e1 - e0), 0, 1) of the episodes e so far, all three as shares of the training."""
    if full <= start:
        return float(share >= start)
    return float(np.clip((share - start) / (full - start), 0.0, 1.0))


@pl.stage
class TradeFairly:
    """A program: independent PPO whose rewards have a critic's scores of fairness added, at the end of a
    game: lambda_B FTB for everyone and lambda_S FBS for sellers, beside profits in units of their
    deviation.

    Args:
        asked: who scores games; None = nobody, which is refused.
        critic: "none" = no scores in the guided arm, and nobody is asked.
        to_buyers, between: the largest lambda_B and lambda_S.
        start, full: shares of the training at which lambdas leave 0 and are largest.
        calls: games that an arm asks about at most.
        steps: slots that are played in an arm's training.
    """

    asked: pl.Source | None = None
    sim: pl.control.Simulator = Microgrid()
    critic: Critic = "model"
    to_buyers: float = 5.0
    between: float = 5.0
    start: float = 1 / 15
    full: float = 1 / 5
    calls: int = 500
    steps: int = 16_000
    games: int = 256
    learner: pl.control.PPO = pl.control.PPO(games=64, minibatches=2, bootstrap=True)

    def __post_init__(self) -> None:
        if (
            min(self.games, self.calls) < 2
            or self.steps < 1
            or not 0 <= self.start <= self.full <= 1
        ):
            raise pl.UserError(
                "fairmarket-rl: games and calls are 2 or more, steps 1 or more, and 0 <= start <= full <= 1"
            )
        if self.sim.agents < 2:
            raise pl.UserError(
                "fairmarket-rl needs a simulator of several agents: --env FILE.py:NAME"
            )

    @property
    def source(self) -> pl.Source:
        """Who scores games, its replies kept. Raises UserError where nobody does."""
        if self.asked is None:
            raise pl.UserError(
                "fairmarket-rl needs a language model that scores games: "
                "--llm endpoint(url='...',model='...'), a folder, or transcript:FILE"
            )
        return pl.services.TranscribedSource(self.asked)

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("fairmarket-rl", ctx.seed)
        setting = FairSetting(self, ctx, key)
        arms = {"none": setting.arm("none", None)}
        guide = None if self.critic == "none" else setting.guide()
        arms["guide"] = setting.arm("guide", guide)
        if guide is not None:
            arms["constant"] = setting.arm("constant", guide, at_once=True)
            arms["shuffled"] = setting.arm("shuffled", pl.control.ShuffledGuide(guide))
            if isinstance(self.sim, MeasuresFairness):
                arms["oracle"] = setting.arm("oracle", "oracle")
        results = await pl.control.compare_arms(ctx, arms)
        ctx.spend("env_steps", sum(r["env_steps"] for r in results.values()))
        own = results["guide"]
        ctx.log({"arm": "guide", "fairness_paid": own["fairness_paid"], "return": own["return"]})
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results),
                "fairness_paid": own["fairness_paid"],
                "sampled_tokens": 0,
            },
            artifacts={} if ctx.out is None else {"agent": str(ctx.out / "policy")},
        )


class FairSetting:
    """What the arms of a run share: how a game is told of, and who is asked."""

    def __init__(self, program: TradeFairly, ctx: pl.Context, key: pl.Key):
        self.program, self.ctx, self.key = program, ctx, key
        sim = program.sim
        start = program.learner.start(sim, key).act
        self.sample = pl.control.play_games(sim, start, SAMPLE, (*key, "sample"))
        self.sells = sim.sells if isinstance(sim, FairMarket) else np.ones(sim.agents, bool)
        if not isinstance(sim, FairMarket):
            ctx.say(
                "the simulator does not say who sells (`sells`) and what was traded (`table`): each agent "
                "counts as a seller, and the critic reads what it earned and its `facts`"
            )
        columns = self.table(self.sample)
        self.names = tuple(columns)
        stacked = np.stack(list(columns.values()), -1)  # [n, A, C]
        self.step_AC, self.plain_AC = steps_of(stacked)
        self.steps = self.steps_of_training()
        self.about = str(getattr(sim, "about", "") or "Agents act in a simulator.")

    def steps_of_training(self) -> int:
        """The environment steps of an arm. Says so where they are enough for few updates alone."""
        program, games = self.program, self.program.learner.games
        steps = program.steps
        if (most := self.ctx.budget.get("steps")) is not None:
            steps = min(steps, int(most) * games * program.sim.horizon)
        length = float(self.sample["alive"].sum(1).mean())
        updates = max(1, int(np.ceil(steps / (games * length))))
        if updates < FEW:
            self.ctx.say(
                f"steps={steps} are {updates} updates, of {games} games with about {length:.0f} steps each: the "
                f"ramp has no room, and agents learn little; steps={int(np.ceil(FEW * games * length))} are "
                f"{FEW} updates, and so are fewer learner.games"
            )
        return steps

    def table(self, paths: pl.control.Paths) -> dict[str, np.ndarray]:
        """[n, A] by name: what a game was for each agent."""
        sim, alive = self.program.sim, paths["alive"][:, None]
        if isinstance(sim, FairMarket):
            return sim.table(paths)
        columns = {"earned": (paths["reward"] * alive).sum(-1)}
        if isinstance(sim, pl.control.TellsFacts):
            facts = sim.facts(sim.reset(np.random.default_rng(0), 1))
            columns |= {name: (paths[name] * alive).mean(-1) for name in facts}
        return columns

    def situations(self, paths: pl.control.Paths) -> np.ndarray:
        """[n, A C] each number of the table of each game, in steps: the range of the start's games has
        `LEVELS` of them, and trained agents may go beyond it.
        """
        values = np.stack(list(self.table(paths).values()), -1)
        return np.round(values / self.step_AC).reshape(len(values), -1)

    def spell(self, situation: np.ndarray) -> str:
        """The question about a game."""
        level_AC = situation.reshape(self.step_AC.shape)
        value_AC = level_AC * self.step_AC + 0.0  # no -0
        lines = list[str]()
        counts = {True: 0, False: 0}
        for a, sells in enumerate(map(bool, self.sells)):
            counts[sells] += 1
            who = "prosumer" if self.sells.all() else "seller" if sells else "buyer"
            who = who if isinstance(self.program.sim, FairMarket) else "agent"
            cells = [
                f"{name} = {value_AC[a, c]:.3g}"
                for c, name in enumerate(self.names)
                if level_AC[a, c] != self.plain_AC[a, c]
            ]
            lines.append(f"- {who} {counts[sells]}: {', '.join(cells) or 'nothing'}")
        return QUESTION.format(about=self.about, lines="\n".join(lines))

    def guide(self) -> pl.control.ChatGuide:
        """Who is asked about a game."""
        return pl.control.ChatGuide(
            source=self.program.source,
            spell=self.spell,
            reply=FairnessScores,
            read=read_fairness,
            fallback=UNKNOWN,
            asks=ASKS,
        )

    def arm(self, name: str, guide: Any, at_once: bool = False) -> pl.control.ArmRun:
        """What `compare_arms` runs, with a cache of its own; `at_once` = lambdas are largest from the
        first game on.
        """

        async def run() -> Mapping[str, Any]:
            program, lines = self.program, list[dict[str, Any]]()
            sim, steps = program.sim, self.steps
            given = FairnessShaping(self, guide, steps, at_once)
            traders = IndependentTraders(learner=program.learner)
            policies = await traders.learn(sim, steps, (*self.key, "learn"), given, lines.append)
            if name == "guide" and self.ctx.out is not None:
                for a, policy in enumerate(policies):
                    pl.control.save_policy(policy, self.ctx.out / "policy" / f"agent_{a}")
            act = joint_acting(policies)
            numbers, played = pl.control.measure_arm(sim, act, given, program.games, self.key)
            names = ("env_steps", "reward", "weight", "fairness_paid")
            curve = [{k: x[k] for k in names if k in x} for x in lines]
            return {
                **numbers,
                **self.measures(played),
                **given.numbers(played),
                "env_steps": int(lines[-1]["env_steps"]),
                "curve": curve,
            }

        return run

    def measures(self, played: pl.control.Paths) -> dict[str, float]:
        """What sellers and buyers were paid for a game, and of a simulator that knows it how fair it
        was.
        """
        paid_nA = (played["reward"] * played["alive"][:, None]).sum(-1)
        numbers = {"profit": float(paid_nA[:, self.sells].sum(1).mean())}
        sim = self.program.sim
        if isinstance(sim, MeasuresFairness):
            FTB, FBS = sim.fairness(played).mean(0)
            numbers |= {"FTB": float(FTB), "FBS": float(FBS), "served": sim.served(played)}
        return numbers


class FairnessShaping:
    """The rewards of an arm: profits in units of their deviation over the games so far, and at the last
    step of a game lambda_B FTB, for sellers and lambda_S FBS.

    Args:
        steps: environment steps of the training; how many of them were taken is where the ramp stands,
            and how much of the budget of calls may be used.
    """

    def __init__(self, setting: FairSetting, guide: Any, steps: int, at_once: bool):
        self.setting, self.guide, self.steps, self.at_once = setting, guide, steps, at_once
        self.taken = 0
        self.weight = 0.0  # of the ramp
        # the deviation over games of what fairness added to an agent's rewards, of agents on average
        self.paid = 0.0
        A = setting.program.sim.agents
        self.count, self.total, self.square = 0, np.zeros(A), np.zeros(A)
        self.advisor: pl.control.Advisor | None = None
        if guide is not None and guide != "oracle":
            calls = setting.program.calls
            asking = pl.control.Asking(calls=calls, reach=FAR)
            self.advisor = asking.start(
                guide,
                2,
                (*setting.key, "guide"),
                setting.ctx,
                neutral=UNKNOWN[0],
                situations=setting.situations,
            )

    async def between(self, paths: pl.control.Paths, i: int) -> Mapping[str, Any]:
        """Before games are learned from: takes in their profits, and asks the critic about them if its
        scores count.
        """
        paid_nA = (paths["reward"] * paths["alive"][:, None]).sum(-1)
        self.count += len(paid_nA)
        self.total, self.square = self.total + paid_nA.sum(0), self.square + (paid_nA**2).sum(0)
        program, new = self.setting.program, int(paths["alive"].sum())
        self.taken += new
        if self.guide is not None:
            at = ramp(self.taken / self.steps, program.start, program.full)
            self.weight = 1.0 if self.at_once else at
        if self.advisor is not None and self.weight > 0:
            share = max(2, int(program.calls * new / self.steps))
            self.advisor.asking = replace(self.advisor.asking, most=share)
            return await self.advisor.ask(paths, i)
        return {}

    @property
    def scale(self) -> np.ndarray:
        """[A] the deviation of an agent's profits; 1 where they are always the same."""
        mean_A = self.total / max(1, self.count)
        std_A = np.sqrt(np.maximum(self.square / max(1, self.count) - mean_A**2, 0.0))
        return np.where(std_A > 1e-6, std_A, 1.0)

    def scores(self, paths: pl.control.Paths) -> np.ndarray:
        """[n, 2] FTB and FBS of games."""
        sim = self.setting.program.sim
        if self.advisor is not None:
            return self.advisor(self.setting.situations(paths))
        if self.guide == "oracle" and isinstance(sim, MeasuresFairness):
            return sim.fairness(paths)
        return np.zeros((len(paths["reward"]), 2))

    def __call__(self, paths: pl.control.Paths) -> np.ndarray:
        program, sells = self.setting.program, self.setting.sells
        shaped = paths["reward"] / self.scale[:, None]
        FTB_n1, FBS_n1 = self.scores(paths).T[..., None]
        given_nA = program.to_buyers * FTB_n1 + program.between * FBS_n1 * sells
        given_nA = self.weight * given_nA
        self.paid = float(given_nA.std(0).mean())
        last_n = np.maximum(paths["alive"].sum(1) - 1, 0)
        shaped[np.arange(len(shaped)), :, last_n] += given_nA
        return shaped

    def numbers(self, played: pl.control.Paths) -> dict[str, Any]:
        """What was asked, how far what fairness added differs from game to game, and how the critic's scores of games go with the
        formulas, as rank correlations; 0 where one is always the same.
        """
        numbers: dict[str, Any] = {"fairness_paid": self.paid}
        if self.advisor is not None:
            advisor_numbers = self.advisor.numbers()
            numbers |= {
                k: advisor_numbers[f"guide/{k}"] for k in ("asked", "fallbacks", "left_out")
            }
            sim = self.setting.program.sim
            if isinstance(sim, MeasuresFairness):
                true, scores = sim.fairness(played), self.scores(played)
                for i, name in enumerate(("FTB", "FBS")):
                    numbers[f"{name}_agreement"] = pl.stats.rank_correlation(
                        scores[:, i], true[:, i]
                    )
        return numbers


def steps_of(values_nAC: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[A, C] what numbers of a table are rounded to multiples of: a twelfth of their range in games of
    the start, or for one that is the same in all of them a twelfth of its size; and [A, C] the level of
    such a one, NaN of the others.
    """
    low, high = values_nAC.min(0), values_nAC.max(0)
    size = np.where(low != 0, np.abs(low), 1.0)
    step = np.where(high > low, high - low, size) / LEVELS
    return step, np.where(high > low, np.nan, np.round(low / step))


def read_fairness(answer: Any) -> Sequence[float]:
    return (answer.FTB, answer.FBS)


@pl.value_class
class IndependentTraders:
    """Independent PPO (arXiv:2011.09533) without shared weights: every agent has a policy and a critic
    of its own, and learns from its own observations and rewards.
    """

    learner: pl.control.PPO

    async def learn(
        self,
        sim: pl.control.Simulator,
        steps: int,
        key: pl.Key,
        shaping: FairnessShaping,
        log: Callable[[dict[str, Any]], None],
    ) -> list[Any]:
        """The policies of the agents after at least `steps` environment steps."""
        policies = [self.learner.start(sim, (*key, "agent", a)) for a in range(sim.agents)]
        optimisers = [torch.optim.Adam(p.parameters(), self.learner.lr, eps=1e-5) for p in policies]
        act, taken, i = joint_acting(policies), 0, 0
        while taken < steps:
            paths = pl.control.play_games(sim, act, self.learner.games, (*key, i))
            taken, i = taken + int(paths["alive"].sum()), i + 1
            more = await shaping.between(paths, i)
            reward = shaping(paths)
            for a, (policy, optimiser) in enumerate(zip(policies, optimisers, strict=True)):
                own = own_paths(paths, reward, a)
                batch = self.learner.batch_of(policy, own)
                self.learner.update(policy, optimiser, batch, (*key, i, a))
            alive = paths["alive"][:, None]
            log(
                {
                    "step": i,
                    "env_steps": taken,
                    "reward": float((paths["reward"] * alive).sum((1, 2)).mean()),
                    "weight": shaping.weight,
                    "fairness_paid": shaping.paid,
                    **more,
                }
            )
        return policies


def own_paths(paths: pl.control.Paths, reward: np.ndarray, agent: int) -> pl.control.Paths:
    """What one agent saw and did, [n, 1, T], with rewards to learn from."""
    own = {k: v if k in ("alive", "over") else v[:, agent : agent + 1] for k, v in paths.items()}
    return {**own, "reward": reward[:, agent : agent + 1]}


def joint_acting(policies: Sequence[Any]) -> pl.control.Acting:
    """Everyone acts by their own policy."""

    def act(
        obs: np.ndarray, legal: np.ndarray | None, rng: np.random.Generator
    ) -> Mapping[str, np.ndarray]:
        parts = [
            policy.act(obs[:, a : a + 1], None if legal is None else legal[:, a : a + 1], rng)
            for a, policy in enumerate(policies)
        ]
        return {k: np.concatenate([p[k] for p in parts], 1) for k in parts[0]}

    return act
