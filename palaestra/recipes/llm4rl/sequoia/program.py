"""The arms in which sequential values of combinatorial actions are compared, and the exact optimum."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import palaestra as pl
from palaestra.recipes.llm4rl.sequoia.bandit import (
    Domain,
    RestlessBandit,
    check_bandit,
    draw_bandit,
    load_bandit,
)
from palaestra.recipes.llm4rl.sequoia.learner import (
    CostNetwork,
    FeasibleActions,
    Policy,
    SequentialCosts,
    inputs_of,
)
from palaestra.recipes.llm4rl.sequoia.milp import network_value

WORK = 3e7  # states times actions times arms up to which the optimum is computed
NETWORK = "network.json"  # in the run folder


def feasible_actions(actions: FeasibleActions, most: int = 12) -> np.ndarray | None:
    """[A, n] all feasible actions, by trying each; None where there are too many to try."""
    n = actions.bandit.feasible.actions
    if n > most:
        return None
    every = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    return np.stack([a for a in every if actions.allows(a)])


def optimal_actions(bandit: RestlessBandit, every: np.ndarray) -> np.ndarray:
    """[H, S, ..., S] the number of the best of the actions [A, n] at each time in each state, by going back
    from the horizon: V_t(s) = max_a E[paid(s') + V_(t+1)(s')].
    """
    J, S = bandit.arms, bandit.states
    grid = np.indices((S,) * J).reshape(J, -1).T
    paid = bandit.paid(grid).reshape((S,) * J)
    f = bandit.strength(every)  # [A, J]
    value = np.zeros((S,) * J)
    best = np.zeros((bandit.horizon, *value.shape), int)
    for t in reversed(range(bandit.horizon)):
        most = np.full(value.shape, -np.inf)
        for number, strength in enumerate(f):
            ahead = paid + value
            for j in range(J):
                p = (1 - strength[j]) * bandit.transitions[j, 0] + strength[j] * bandit.transitions[
                    j, 1
                ]
                ahead = np.moveaxis(np.tensordot(p, ahead, (1, j)), 0, j)
            better = ahead > most + 1e-12
            most, best[t] = np.where(better, ahead, most), np.where(better, number, best[t])
        value = most
    return best


def load_planner(folder: Path | str, bandit: str | RestlessBandit, seconds: float = 10.0) -> Policy:
    """From a state of each arm, [J] from 0, the feasible action [n] that a trained network values most.

        act = load_planner("RUN", "FILE.json")
        action = act([0, 2, 1])

    Args:
        folder: of the run.
        bandit: that it was trained on, or one of the same size with another limit.

    Raises UserError for a folder that holds no network, or one of another size.
    """
    problem = load_bandit(bandit) if isinstance(bandit, str) else bandit
    try:
        weights = json.loads((Path(folder) / NETWORK).read_text())
        tensors = {k: torch.tensor(v) for k, v in weights.items()}
        hidden = [len(v) for k, v in weights.items() if k.endswith("bias")][:-1]
        inputs = problem.feasible.actions + problem.arms * problem.states
        network = CostNetwork(inputs, tuple(hidden))
        network.load_state_dict(tensors)
    except (OSError, ValueError, AttributeError, TypeError, RuntimeError) as error:
        raise pl.UserError(f"{folder} holds no network for these arms: {error}") from None
    actions = FeasibleActions(problem, seconds, pl.rng_of(("sequoia", "planner")))
    return lambda state: actions.least(network, np.asarray(state, int))


@pl.stage
class PlanRestless:
    """A program: values of combinatorial actions on restless arms, in arms of a comparison.

    Args:
        bandit: FILE.json or FILE.py:NAME; "" = one that is drawn, of a `domain`.
        arms, budget, horizon: of what is drawn.
        instance: which one is drawn.
        steps: of the bandit, that are learned from.
        sample: random feasible actions of which the best one at once is an arm.
        games: of the test, with the same random numbers in all arms.
    """

    bandit: str = ""
    domain: Domain = "capacity"
    arms: int = 5
    budget: int = 2
    horizon: int = 10
    instance: int = 0
    steps: int = 400
    sample: int = 100
    games: int = 32
    learner: SequentialCosts = SequentialCosts()

    def __post_init__(self) -> None:
        if min(self.arms, self.budget, self.horizon, self.steps, self.sample) < 1 or self.games < 2:
            raise pl.UserError(
                "sequoia: arms, budget, horizon, steps and sample are 1 or more, games 2 or more"
            )

    def problem(self) -> RestlessBandit:
        """Raises UserError where there is none."""
        if self.bandit:
            made = load_bandit(self.bandit)
            check_bandit(made, self.bandit)
            return made
        rng = pl.rng_of(("sequoia", "bandit", self.domain, self.instance))
        return draw_bandit(self.domain, self.arms, self.budget, self.horizon, rng)

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("sequoia", ctx.seed)
        bandit, steps = self.problem(), self.steps
        if (most := ctx.budget.get("steps")) is not None:
            steps = min(steps, int(most) * bandit.horizon)
        comparison = RestlessArms(program=self, ctx=ctx, bandit=bandit, steps=steps, key=key)
        results = await pl.control.compare_arms(ctx, comparison.arms())
        ctx.spend("env_steps", sum(r["env_steps"] for r in results.values()))
        changed = await comparison.changed()
        own = results["sequoia"]["return"]
        others = {
            f"return_{name.replace(' ', '_')}": r["return"]
            for name, r in results.items()
            if name != "sequoia"
        }
        gains = {
            "gain": own - results["myopic"]["return"],
            "gain_over_one_step": own - results["one step"]["return"],
            "changed": changed,
        }
        ctx.log({"arm": "sequoia", "return": own, **gains})
        return pl.Result(
            metrics={"return": own, **gains, **others, "sampled_tokens": 0, "arms": results},
            artifacts={} if ctx.out is None else {"agent": str(ctx.out / NETWORK)},
        )


@pl.value_class
class RestlessArms:
    """Trains networks once, and plays the test games of each arm."""

    program: PlanRestless
    ctx: pl.Context
    bandit: RestlessBandit
    steps: int
    key: pl.Key

    def arms(self) -> dict[str, pl.control.ArmRun]:
        program, bandit = self.program, self.bandit
        self.feasible("any").random()  # raises UserError where no action is feasible
        idle = np.zeros(bandit.feasible.actions, int)
        policies: dict[str, Callable[[FeasibleActions], Policy]] = {
            "random": lambda actions: lambda s: actions.random(),
            "sample": lambda actions: lambda s: actions.best_of(program.sample, s),
            "myopic": lambda actions: actions.myopic,
        }
        if self.feasible("none").allows(idle):
            policies = {"none": lambda actions: lambda s: idle, **policies}
        arms = {name: self.fixed(policy, name) for name, policy in policies.items()}
        arms["one step"] = self.learned("one step", "least")
        arms["greedy"] = self.learned("sequoia", "greedy")
        arms["sequoia"] = self.learned("sequoia", "least")
        each = bandit.arms * float(bandit.states) ** bandit.arms  # of work, for an action
        every = feasible_actions(self.feasible("optimum")) if each < WORK else None
        if every is not None and len(every) * each < WORK:
            arms["optimum"] = self.optimum(every)
        else:
            self.ctx.say("the optimum is not computed: there are too many states and actions")
        return arms

    def feasible(self, arm: str) -> FeasibleActions:
        """The feasible actions with random numbers that are an arm's own, whatever other arms drew."""
        key = (*self.key, "feasible", arm)
        return FeasibleActions(self.bandit, self.program.learner.seconds, pl.rng_of(key))

    def fixed(self, policy: Callable[[FeasibleActions], Policy], name: str) -> pl.control.ArmRun:
        async def run() -> Mapping[str, Any]:
            actions = self.feasible(name)
            numbers = self.measure(policy(actions), remember=name != "random")
            return {**numbers, "env_steps": 0, "fallbacks": actions.failures}

        return run

    async def network(self, name: str) -> tuple[CostNetwork, dict[str, Any]]:
        """The trained network "sequoia", or the same one with gamma 0, and its record; trained once."""
        program, learner = self.program, self.program.learner
        settings = learner if name == "sequoia" else replace(learner, gamma=0.0)

        async def train() -> Mapping[str, Any]:
            network, actions, lines = settings.learn(self.bandit, self.steps, self.key)
            weights = {k: v.tolist() for k, v in network.state_dict().items()}
            taken, failures = lines[-1]["env_steps"], actions.failures
            return {"weights": weights, "curve": lines, "env_steps": taken, "failures": failures}

        record = dict(await self.ctx.once(f"network-{name.replace(' ', '-')}", train))
        network = program.learner.network(self.bandit, self.key)
        network.load_state_dict({k: torch.tensor(v) for k, v in record["weights"].items()})
        if name == "sequoia" and self.ctx.out is not None:
            (self.ctx.out / NETWORK).write_text(json.dumps(record["weights"]) + "\n")
        return network, record

    def learned(self, name: str, choice: str) -> pl.control.ArmRun:
        async def run() -> Mapping[str, Any]:
            network, record = await self.network(name)
            actions = self.feasible(name)
            act = actions.greedy if choice == "greedy" else actions.least
            numbers = self.measure(lambda s: act(network, s))
            curve = record["curve"] if choice == "least" else []
            failures = actions.failures + record["failures"]
            numbers |= {"env_steps": record["env_steps"], "fallbacks": failures}
            return {**numbers, "curve": curve[:: max(1, len(curve) // 40)]}

        return run

    def optimum(self, every: np.ndarray) -> pl.control.ArmRun:
        async def run() -> Mapping[str, Any]:
            best = optimal_actions(self.bandit, every)
            policy = lambda s, t: every[best[(t, *s)]]
            return {**self.measure(policy, timed=True), "env_steps": 0, "fallbacks": 0}

        return run

    def measure(self, policy: Any, remember: bool = True, timed: bool = False) -> dict[str, Any]:
        """What test games pay: "return", with its standard "error". States and luck are those of all arms.

        Args:
            remember: asks a policy once for each state.
            timed: a policy is told the time too.
        """
        bandit, n = self.bandit, self.program.games
        rng = pl.rng_of((*self.key, "test"))
        state, paid = bandit.first(rng, n), np.zeros(n)
        known: dict[bytes, np.ndarray] = {}
        for t in range(bandit.horizon):
            acts = list[np.ndarray]()
            for s in state:
                name = s.tobytes()
                if timed or not remember or name not in known:
                    known[name] = policy(s, t) if timed else policy(s)
                acts.append(known[name])
            state = bandit.step(state, np.stack(acts), rng.random(state.shape))
            paid += bandit.paid(state)
        return {"return": float(paid.mean()), "error": float(paid.std(ddof=1) / np.sqrt(n))}

    async def changed(self) -> float:
        """Mean over states of how far what follows moves the order of actions: the standard deviation, over
        feasible actions, of Q(s, a) / (1 - gamma), which is c(s, a) and what follows, less the c(s, a) of the
        network with gamma 0. Where what follows does not depend on the action it is 0.
        """
        actions = FeasibleActions(
            self.bandit, self.program.learner.seconds, pl.rng_of((*self.key, "changed"))
        )
        acts = np.unique(actions.some(16), axis=0)
        states = pl.rng_of((*self.key, "changed", "states")).integers(
            self.bandit.states, size=(64, self.bandit.arms)
        )
        pairs = [np.broadcast_to(x, (64, len(acts), x.shape[-1])) for x in (states[:, None], acts)]
        inputs = inputs_of(self.bandit, *pairs)
        networks = [(await self.network(name))[0] for name in ("sequoia", "one step")]
        values = [network_value(network.layers, inputs) for network in networks]
        whole = values[0] / (1 - self.program.learner.gamma)
        return float((whole - values[1]).std(1).mean())
