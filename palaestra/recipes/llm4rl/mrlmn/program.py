"""Several agents that learn in groups, with targets of a language model, and the arms of a comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
import torch
from pydantic import BaseModel

import palaestra as pl
from palaestra.recipes.llm4rl.mrlmn.network import DroneNetwork
from palaestra.recipes.llm4rl.mrlmn.policy import (
    TARGET,
    DistilTargets,
    GroupedActorCritic,
    action_towards,
    actions_towards,
    clean_targets,
    match_targets,
    solver,
)

Matching = Literal["hungarian", "order"]
Cost = Literal["distance", "policy"]
FAR = 1e6  # within which the nearest situation has its targets
ASKS = 2
CURVE = 40
NEVER_ASKED = "nothing was distilled, since no two new places were met at once, whose targets could be exchanged"
COVERED = 0.8  # of the users, to which steps are counted
QUESTION = """{about}

Name a target cell for each agent, at most {agents}, so that together they do best. Any agent may fly to any target."""


GUIDED = ("moves", "bounds", "place", "situations", "spell")  # of a `GuidedGames`


class Targets(BaseModel):
    """What a language model says: places, in no order."""

    targets: list[tuple[float, float]]


@runtime_checkable
class GuidedGames(Protocol):
    """A simulator of agents that move in a plane by discrete actions."""

    @property
    def moves(self) -> np.ndarray:
        """[K, 2] how far each action moves an agent."""
        ...

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """[2] and [2], the least and largest places."""
        ...

    def place(self, obs: np.ndarray) -> np.ndarray:
        """[..., 2] where an agent is, of observations [..., O]."""
        ...

    def situations(self, paths: pl.control.Paths) -> np.ndarray:
        """[n, K] what a game is about, in numbers."""
        ...

    def spell(self, situation: np.ndarray) -> str:
        """A situation in words."""
        ...


@runtime_checkable
class HasGroups(Protocol):
    """A simulator whose agents are of several groups, which observations show as a one-hot."""

    @property
    def groups(self) -> int: ...
    @property
    def group_at(self) -> int:
        """Where the one-hot begins in an observation."""
        ...


@runtime_checkable
class Constrains(Protocol):
    """A simulator that forces actions on key agents."""

    def forced(self, obs: np.ndarray) -> np.ndarray:
        """[...] the action that is taken in place of the policy's, -1 = none."""
        ...


@runtime_checkable
class PlansTargets(Protocol):
    """A simulator that knows good targets: for the oracle."""

    def plan(self, situation: np.ndarray) -> np.ndarray:
        """[J, 2], in any order."""
        ...


@pl.stage
class LearnNetwork:
    """A program: agents learn by PPO in the arms of a comparison that take equally many environment steps.

    Args:
        asked: names targets.
        sim: see `GuidedGames`.
        beta: of the distillation, at first; it falls to 0 linearly.
        until: share of the training after which it is 0.
        serve: by group, what a unit of the fact "serves" adds to an agent's reward.
        relay: by group, of the fact "relays".
        constrain: key agents are forced, where the simulator says so.
        cost: of a match: "distance", or "policy", -log of the probability of the actions towards the target.
        calls: situations that are asked about in an arm, at most.
        steps: environment steps of an arm.
        games: in which arms are measured.
    """

    asked: pl.Source | None = None
    sim: Any = DroneNetwork()
    beta: float = 1.0
    until: float = 0.6
    serve: tuple[float, ...] = (0.2, 0.5, 1.0)
    relay: tuple[float, ...] = (0.5, 0.5, 0.2)
    constrain: bool = True
    cost: Cost = "distance"
    calls: int = 200
    steps: int = 32_000
    games: int = 64
    learner: pl.control.PPO = pl.control.PPO(lr=2e-3, games=32, minibatches=4)

    def __post_init__(self) -> None:
        pl.check_bounds("mrlmn: beta", self.beta, least=0)
        pl.check_bounds("mrlmn: until", self.until, least=0, most=1)
        if self.cost not in get_args(Cost):
            raise pl.UserError(f"mrlmn: cost is distance or policy, not {self.cost!r}")
        lacks = [n for n in GUIDED if not hasattr(self.sim, n)]
        if lacks or not isinstance(self.sim.actions, int):
            raise pl.UserError(
                f"mrlmn: the simulator has no {', '.join(lacks) or 'discrete actions'}; targets are places, so it says "
                "where agents are and how actions move them: see GuidedGames, or place=I,J moves=... for two numbers "
                "of its observations"
            )
        groups = self.groups
        if len(self.serve) not in (1, groups) or len(self.relay) not in (1, groups):
            raise pl.UserError(
                f"mrlmn: serve and relay have a weight for each of {groups} groups, or one for all"
            )

    @property
    def groups(self) -> int:
        return self.sim.groups if isinstance(self.sim, HasGroups) else 1

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("mrlmn", ctx.seed)
        solver()
        guide = None
        if self.asked is not None:
            guide = chat_guide(pl.services.TranscribedSource(self.asked), self.sim)
        make = lambda name, **more: (
            NetworkArm(program=self, ctx=ctx, key=key, name=name, **more).run
        )
        arms = {
            "random": make("random", untrained=True),
            "none": make("none", grouped=False),
            "grouped": make("grouped"),
        }
        if guide is not None:
            arms["guide"] = make("guide", guide=guide)
            if self.beta:
                other: Cost = "distance" if self.cost == "policy" else "policy"
                arms[f"by {other}"] = make(f"by {other}", guide=guide, cost=other)
                arms["unmatched"] = make("unmatched", guide=guide, matching="order")
                arms["shuffled"] = make("shuffled", guide=pl.control.ShuffledGuide(guide))
            arms["flown"] = make("flown", guide=guide, flown=True)
        if isinstance(self.sim, PlansTargets) and self.beta:
            oracle = pl.control.ComputedGuide(lambda rows: plans_of(self.sim, rows))
            arms["oracle"] = make("oracle", guide=oracle)
            arms["oracle flown"] = make("oracle flown", guide=oracle, flown=True)
        results = await pl.control.compare_arms(ctx, arms)
        ctx.spend("env_steps", sum(r["env_steps"] for r in results.values()))
        arm = "guide" if "guide" in results else "grouped"
        own = results[arm]
        ctx.log({"arm": arm, "distilled": own["distilled"], "return": own["return"]})
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results, arm),
                "distilled": own["distilled"],
                "sampled_tokens": 0,
            },
            artifacts={} if ctx.out is None else {"agent": str(ctx.out / "policy")},
        )


def chat_guide(source: pl.Source, sim: Any) -> pl.control.ChatGuide:
    """A language model that names targets; where a reply cannot be read there are none."""
    low, high = sim.bounds

    def read(answer: Any) -> Sequence[float]:
        return flat_targets(clean_targets(answer.targets, low, high, sim.agents), sim.agents)

    return pl.control.ChatGuide(
        source=source,
        spell=lambda x: QUESTION.format(about=sim.spell(x), agents=sim.agents),
        reply=Targets,
        read=read,
        fallback=(np.nan,) * (2 * sim.agents),
        asks=ASKS,
    )


def plans_of(sim: Any, rows: np.ndarray) -> np.ndarray:
    """[N, 2 A] the targets of an oracle."""
    return np.array([flat_targets(sim.plan(row), sim.agents) for row in rows])


def flat_targets(at_Jd: np.ndarray, agents: int) -> Sequence[float]:
    """2 A numbers, NaN where there are fewer targets than agents."""
    full = np.full((agents, 2), np.nan)
    full[: len(at_Jd)] = at_Jd
    return full.ravel().tolist()


def assign_targets(
    at_Ad: np.ndarray,
    target_Jd: np.ndarray,
    matching: Matching,
    cost_AJ: np.ndarray | None = None,
) -> np.ndarray:
    """[A, 2] the target of each agent, NaN = it has none. The cost of a match is `cost_AJ`, without it the distance in
    steps, |dx| + |dy|.
    """
    known = ~np.isnan(target_Jd).any(-1)
    there = target_Jd[known]
    given = np.full(at_Ad.shape, np.nan)
    if matching == "order":
        given[: len(there)] = there[: len(at_Ad)]
        return given
    away_AJ = np.abs(at_Ad[:, None] - there).sum(-1)
    chosen = match_targets(away_AJ if cost_AJ is None else cost_AJ[:, known])
    given[chosen >= 0] = there[chosen[chosen >= 0]]
    return given


@pl.value_class
class NetworkArm:
    """One arm of a run."""

    program: LearnNetwork
    ctx: pl.Context
    key: pl.Key
    name: str
    grouped: bool = True
    guide: Any = None
    matching: Matching = "hungarian"
    untrained: bool = False  # agents act at random, and nothing is learned
    flown: bool = False  # agents fly to their targets, and nothing is learned
    cost: Cost | None = None  # of a match; None = the program's

    async def run(self) -> Mapping[str, Any]:
        program, sim = self.program, self.program.sim
        advisor = None
        if self.guide is not None:
            fewest = 2 if isinstance(self.guide, pl.control.ShuffledGuide) else 1
            asking = pl.control.Asking(calls=program.calls, reach=FAR, fewest=fewest)
            advisor = asking.start(
                self.guide,
                2 * sim.agents,
                (*self.key, "guide"),
                self.ctx,
                neutral=np.nan,
                situations=sim.situations,
            )
        if self.flown:
            return await self.fly(advisor)
        if self.untrained:
            return self.measure(self.at_random)
        policy, lines = await self.learn(advisor)
        if advisor is not None and not advisor.asked and program.beta:
            self.ctx.say(f"arm {self.name}: {NEVER_ASKED}")
        if self.name == "guide" and self.ctx.out is not None:
            save_groups(policy, self.ctx.out / "policy")
        asked = {} if advisor is None else advisor.numbers()
        return {
            **self.measure(self.acting(policy)),
            "distilled": float(np.mean([x["distilled"] for x in lines])),
            "asked": asked.get("guide/asked", 0),
            "fallbacks": asked.get("guide/fallbacks", 0),
            "env_steps": int(lines[-1]["env_steps"]),
            "curve": lines[:: max(1, len(lines) // CURVE)],
        }

    def measure(self, act: pl.control.Acting) -> dict[str, Any]:
        """The numbers of games that are played so, of nobody who was asked or learned."""
        program = self.program
        numbers, played = pl.control.measure_arm(
            program.sim, act, self.shaping, program.games, self.key
        )
        none = {"distilled": 0.0, "asked": 0, "fallbacks": 0, "env_steps": 0}
        return {**numbers, **coverage_of(played), **none}

    def at_random(self, obs: np.ndarray, legal: Any, rng: np.random.Generator) -> Any:
        """Every legal action alike."""
        act = rng.integers(self.program.sim.actions, size=obs.shape[:2])
        return {"act": act if legal is None else legal_of(act, legal)}

    async def learn(self, advisor: Any) -> tuple[GroupedActorCritic, list[dict[str, float]]]:
        """The policy after the steps of the arm, and the numbers of its iterations."""
        program, sim, key = self.program, self.program.sim, (*self.key, "learn")
        learner, steps = program.learner, program.steps
        if (most := self.ctx.budget.get("steps")) is not None:
            steps = min(steps, int(most) * learner.games * sim.horizon)
        policy = self.start(key)
        optimiser = torch.optim.Adam(policy.parameters(), learner.lr, eps=1e-5)
        act, lines, taken, i = self.acting(policy), list[dict[str, float]](), 0, 0
        while taken < steps:
            paths = pl.control.play_games(sim, act, learner.games, (*key, i))
            beta = program.beta * max(0.0, 1 - taken / max(1e-9, program.until * steps))
            taken, i = taken + int(paths["alive"].sum()), i + 1
            batch = learner.batch_of(policy, paths, self.shaping)
            more: dict[str, Any] = {}
            used = learner
            if advisor is not None and beta > 0:
                await advisor.ask(paths, i)
                more = distillation_columns(self.aims(paths, advisor, policy), paths)
                own: Any = learner.objective
                used = replace(learner, objective=own + beta * DistilTargets())
            more["trained"] = batch["trained"] * rows_of_agents(paths["free"])
            batch = replace(batch, columns={**batch.columns, **more})
            metrics = used.update(policy, optimiser, batch, (*key, i))
            share = float(more["distil"].mean()) if "distil" in more else 0.0
            lines.append(
                {
                    "env_steps": float(taken),
                    "reward": float(pl.control.returns_of(paths).mean()),
                    "distilled": beta * share,
                    "distil_loss": float(metrics.get("distil_loss", 0.0)),
                    "forced": float(1 - paths["free"].mean()),
                }
            )
        return policy, lines

    def start(self, key: pl.Key) -> GroupedActorCritic:
        """The policy before the first step."""
        sim, width = self.program.sim, self.program.learner.width
        groups = self.program.groups if self.grouped else 1
        first = sim.group_at if groups > 1 else 0
        return pl.control.draw_network(
            lambda: GroupedActorCritic(sim.observation, sim.actions, groups, first, width), key
        )

    def acting(self, policy: GroupedActorCritic) -> pl.control.Acting:
        """Acts by the policy, or as the constraint of key agents says; "free" [n, A] are actions of the policy."""
        sim, program = self.program.sim, self.program
        constrained = self.grouped and program.constrain and isinstance(sim, Constrains)

        def act(obs: np.ndarray, legal: Any, rng: np.random.Generator) -> Mapping[str, np.ndarray]:
            done = policy.act(obs, legal, rng)
            forced = sim.forced(obs) if constrained else np.full(done["act"].shape, -1)
            free = forced < 0
            return {**done, "act": np.where(free, done["act"], forced), "free": free}

        return act

    def shaping(self, paths: pl.control.Paths) -> np.ndarray:
        """[n, A, T] R + a1_g serves + a2_g relays; R alone without groups."""
        sim, reward = self.program.sim, paths["reward"]
        if not self.grouped:
            return reward
        groups = self.program.groups
        group = np.zeros(reward.shape, int)
        if isinstance(sim, HasGroups):
            group = paths["obs"][..., sim.group_at : sim.group_at + groups].argmax(-1)
        for name, weights in (("serves", self.program.serve), ("relays", self.program.relay)):
            if name in paths:
                by_group = np.resize(np.array(weights), groups)
                reward = reward + by_group[group] * paths[name]
        return reward

    def aims(self, paths: pl.control.Paths, advisor: Any, policy: Any) -> np.ndarray:
        """[n, A, T, K] the actions that bring an agent nearer to its target, none where it has none. Targets are matched anew in
        each step: a match by the places at the start could not be told from what agents see later.
        """
        sim = self.program.sim
        target_n = advisor(sim.situations(paths)).reshape(len(paths["reward"]), sim.agents, 2)
        at = sim.place(paths["obs"])  # [n, A, T, 2]
        cost = None
        if (self.cost or self.program.cost) == "policy" and self.matching == "hungarian":
            cost = policy_costs(
                policy, paths["obs"], target_n[:, None, None] - at[:, :, :, None], sim
            )
        given = np.array(
            [
                [
                    assign_targets(
                        at[i, :, t], target, self.matching, None if cost is None else cost[i, :, t]
                    )
                    for t in range(at.shape[2])
                ]
                for i, target in enumerate(target_n)
            ]
        )
        near = actions_towards(np.moveaxis(given, 1, 2) - at, sim.moves)
        return near & paths["legal"].astype(bool) if "legal" in paths else near

    async def fly(self, advisor: Any) -> Mapping[str, Any]:
        """Every agent flies to its matched target: what the targets themselves are worth."""
        program, sim = self.program, self.program.sim
        still = np.zeros(sim.agents, int)
        act = lambda obs, legal, rng: {"act": np.tile(still, (len(obs), 1))}
        seen = pl.control.play_games(sim, act, program.games, (*self.key, "test"))
        await advisor.ask(seen, 1)
        target_n = advisor(sim.situations(seen)).reshape(program.games, sim.agents, 2)
        stay = int(np.linalg.norm(sim.moves, axis=-1).argmin())

        def towards(obs: np.ndarray, legal: Any, rng: Any) -> Mapping[str, np.ndarray]:
            at = sim.place(obs)
            matched = [
                assign_targets(a, t, self.matching) for a, t in zip(at, target_n, strict=True)
            ]
            aim = action_towards(np.array(matched) - at, sim.moves)
            act = np.where(aim < 0, stay, aim)
            return {"act": act if legal is None else legal_of(act, legal)}

        advisor_numbers = advisor.numbers()
        return {
            **self.measure(towards),
            "asked": advisor_numbers["guide/asked"],
            "fallbacks": advisor_numbers["guide/fallbacks"],
        }


def policy_costs(policy: Any, obs: np.ndarray, delta: np.ndarray, sim: Any) -> np.ndarray:
    """[n, A, T, J] -log pi(towards target j), of observations [n, A, T, O] and ways `delta` [n, A, T, J, 2] to targets;
    100 for a target that is none (NaN).
    """
    near = torch.from_numpy(actions_towards(delta, sim.moves))
    with torch.no_grad():
        logp = torch.log_softmax(policy.actor(torch.from_numpy(obs).float()), -1)
    logp = logp[..., None, :].masked_fill(~near, -100.0)
    return -logp.logsumexp(-1).clamp(min=-100.0).numpy()


def legal_of(act_nA: np.ndarray, legal_nAK: np.ndarray) -> np.ndarray:
    """[n, A] the actions, and where one is not legal the first that is."""
    may = np.take_along_axis(legal_nAK.astype(bool), act_nA[..., None], -1)[..., 0]
    return np.where(may, act_nA, legal_nAK.argmax(-1))


def rows_of_agents(x: np.ndarray) -> torch.Tensor:
    """[n A, T, ...] of [n, A, T, ...]."""
    return torch.from_numpy(np.ascontiguousarray(x).reshape(-1, *x.shape[2:])).float()


def distillation_columns(near: np.ndarray, paths: pl.control.Paths) -> dict[str, Any]:
    """The columns that `DistilTargets` reads: of steps that the policy itself took."""
    counts = near.any(-1) & paths["free"] & paths["alive"][:, None]
    return {TARGET: rows_of_agents(near), "distil": rows_of_agents(counts)}


def coverage_of(paths: pl.control.Paths) -> dict[str, float]:
    """Of a simulator that tells "covered": its mean over games, at their last step, and the mean number of steps until
    `COVERED` of the users are, the horizon where that is never; of one that tells "rate", its mean over users and games.
    """
    if "covered" not in paths:
        return {}
    covered_nT = paths["covered"][:, 0]
    there = covered_nT >= COVERED
    first = np.where(there.any(1), there.argmax(1) + 1, there.shape[1])
    rate = {"rate": float(paths["rate"].mean())} if "rate" in paths else {}
    return {
        **rate,
        "covered": float(covered_nT.mean()),
        "covered_last": float(covered_nT[:, -1].mean()),
        "steps_to_80": float(first.mean()),
    }


def save_groups(policy: GroupedActorCritic, folder: Any) -> None:
    """Writes the policy of each group as one of its own, which `pl.control.load_policy` reads."""
    actors = getattr(policy.actor, "towers", [policy.actor])
    critics = getattr(policy.critic, "towers", [policy.critic])
    for g, (actor, critic) in enumerate(zip(actors, critics, strict=True)):
        own = pl.control.ActorCritic(policy.observation, policy.actions, policy.width)
        own.actor, own.critic = actor, critic
        pl.control.save_policy(own, folder / f"group_{g}")
