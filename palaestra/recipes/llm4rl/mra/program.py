"""The loop that finds a set of policies for games of different populations, and its arms."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import nn

import palaestra as pl
from palaestra.recipes.llm4rl.mra.games import (
    HasEquilibria,
    PopulationGame,
    make_game,
)
from palaestra.recipes.llm4rl.mra.network import (
    ModePolicy,
    PolicySet,
    save_policies,
)

Arm = Literal["none", "specialists", "latents", "mra"]
DECAY = 0.8  # of the running mean of a mode's return in a game
REVIVE = 20  # iterations between two looks at whether one mode serves all games
NOISE = 1.0  # that a mode is moved away from the one it is copied from
FLOOR = -5.0  # of the bonus of a step, nats
CURVE = 40  # lines of an arm's curve in the log


def mode_bonus(logp_Z: np.ndarray, mode: int) -> np.ndarray:
    """[...] log d(z | o, a) - log p(z) in nats, for modes that are equally likely and the exact posterior
    d(z | o, a) = pi_z(a | o) / sum_z' pi_z'(a | o): above 0 where what was done tells the mode.

    Its mean over modes and what they do is I(z; a | o), at most log(modes).

    Args:
        logp_Z: log-probabilities of what was done, under each mode, [..., modes].
        mode: that did it.
    """
    mixture = np.logaddexp.reduce(logp_Z, -1) - np.log(logp_Z.shape[-1])
    return np.maximum(logp_Z[..., mode] - mixture, FLOOR)


def assign_modes(
    return_ZG: np.ndarray, near_G: np.ndarray | float = 0.0, before_G: Sequence[int] = ()
) -> np.ndarray:
    """[G] z*(g): of the modes whose return in game g is at most `near` below the best one, that which the
    fewest games before g have, and of these the one that the game has had, then the best. With near 0
    it is argmax_z J_g(z).
    """
    modes, games = return_ZG.shape
    near_G = np.broadcast_to(near_G, games)
    mode_G, uses_Z = np.zeros(games, int), np.zeros(modes, int)
    for g in range(games):
        earned = return_ZG[:, g]
        fits = np.flatnonzero(earned >= earned.max() - near_G[g])
        had = before_G[g] if len(before_G) else -1
        mode_G[g] = min(fits, key=lambda z: (uses_Z[z], z != had, -earned[z]))
        uses_Z[mode_G[g]] += 1
    return mode_G


def assignment_entropy(mode_G: np.ndarray) -> float:
    """In nats, of how games are spread over modes; 0 where one mode serves all."""
    share = np.unique(mode_G, return_counts=True)[1] / len(mode_G)
    return float(-(share * np.log(share)).sum())


@pl.stage
class LearnPolicySet:
    """A program: trains policies on games with `train` agents, in the arms of a comparison that take
    equally many environment steps, and tries them in games with `test` agents, which they never saw.

    Args:
        sim: "hunt", "congestion", "spread", or FILE.py:NAME, a function of the number of agents.
        layout: of an observation, see `games.parse_layout`.
        modes: latents of the set.
        diversity: the weight of the bonus, in standard deviations of the simulator's first rewards.
        share: of the games of an iteration that is played with a mode the game is not assigned to.
        warm: share of the steps for which no mode is assigned.
        near: in standard deviations of a game's return, how far below the best mode another one counts as
            equally good, so that games spread over modes.
        steps: environment steps of an arm.
        tries: games in which each mode is tried in an unseen game.
        adapt: updates of the latent alone in an unseen game.
    """

    sim: str = "hunt"
    layout: str = ""
    train: tuple[int, ...] = (2, 3, 4)
    test: tuple[int, ...] = (5, 6)
    modes: int = 4
    diversity: float = 4.0
    share: float = 0.25
    warm: float = 0.3
    near: float = 0.1
    steps: int = 20_000
    tries: int = 64
    adapt: int = 8
    games: int = 512
    width: int = 32
    learner: pl.control.PPO = pl.control.PPO(lr=3e-3, games=128, minibatches=1, bootstrap=True)
    smallest: ClassVar[Mapping[str, float]] = {"tries": 2, "adapt": 1, "games": 8}

    def __post_init__(self) -> None:
        if min(self.modes, self.steps, self.width, self.tries) < 1 or self.games < 2:
            raise pl.UserError("mra: modes, steps, width and tries are 1 or more, games 2 or more")
        if self.learner.games < 4:
            raise pl.UserError("mra: batch is 4 or more, so that two modes play in an iteration")
        if self.diversity < 0 or self.adapt < 0 or not 0 <= self.share < 1:
            raise pl.UserError("mra: diversity and adapt are 0 or more, share is from 0 to below 1")
        if both := set(self.train) & set(self.test):
            raise pl.UserError(f"mra: {min(both)} agents are in train and in test")

    def family(self) -> dict[int, PopulationGame]:
        """The games by their number of agents. Raises UserError where they cannot share weights."""
        made = {n: make_game(self.sim, n, self.layout) for n in (*self.train, *self.test)}
        sizes = {n: tuple(size for _, size in game.entities) for n, game in made.items()}
        if len(set(sizes.values())) > 1 or len({str(g.sim.actions) for g in made.values()}) > 1:
            raise pl.UserError(
                f"{self.sim}: numbers of an entity are {sizes} by the number of agents, and must be the "
                "same, as must the actions; where an observation grows with the agents say how, "
                "layout=4,2*n,2*(n-1), or give the simulator `entities`"
            )
        return made

    async def run(self, ctx: pl.Context) -> pl.Result:
        key: pl.Key = ("mra", ctx.seed)
        games, steps = self.family(), self.steps
        if (most := ctx.budget.get("steps")) is not None:
            longest = max(games[n].sim.horizon for n in self.train)
            steps = min(steps, int(most) * self.learner.games * len(self.train) * longest)
        arms = {
            name: ArmOfSet(program=self, ctx=ctx, games=games, steps=steps, key=key, arm=name).run
            for name in ("none", "specialists", "latents", "mra")
        }
        results = await pl.control.compare_arms(ctx, arms)
        ctx.spend("env_steps", sum(r["env_steps"] for r in results.values()))
        own = results["mra"]
        numbers = {
            "information": own["information"],
            "information_gain": own["information"] - results["latents"]["information"],
        }
        ctx.log({"arm": "mra", "return": own["return"], **numbers})
        return pl.Result(
            metrics={
                **pl.control.arm_summary(results, "mra"),
                "unseen_gain": own["unseen"] - results["none"]["unseen"],
                **numbers,
                "sampled_tokens": 0,
            },
            artifacts={} if ctx.out is None else {"agent": str(ctx.out / "policy")},
        )


@pl.value_class
class ArmOfSet:
    """One arm of a run."""

    program: LearnPolicySet
    ctx: pl.Context
    games: Mapping[int, PopulationGame]
    steps: int
    key: pl.Key
    arm: Arm

    async def run(self) -> dict[str, Any]:
        """Trains and measures. Returns per agent: "return", over all games, and those that were "seen"
        and "unseen"; "adapted" is the unseen with the latent moved.
        """
        program, seen, lines = self.program, self.program.train, list[dict[str, float]]()
        if self.arm == "specialists":
            each = [self.learner((n,), 1, self.steps // len(seen), lines) for n in seen]
        else:
            modes = 1 if self.arm == "none" else program.modes
            each = [self.learner(seen, modes, self.steps, lines)]
        choices = [(x.policies, mode) for x in each for mode in range(x.modes)]
        known = {n: (x.policies, x.mode_of(n)) for x in each for n in x.games}
        numbers: dict[str, Any] = {}
        chosen: dict[int, int] = {}
        for n, game in self.games.items():
            policies, mode = known[n] if n in known else self.choose(game, n, choices)
            chosen[n] = mode
            numbers |= self.test(game, n, policies.play(mode, game.entities), f"{n}")
            if n not in known:
                moved = self.adapted(game, n, policies, mode)
                numbers |= self.test(game, n, moved, f"{n}_adapted")
        if self.arm == "mra" and self.ctx.out is not None:
            save_policies(
                each[0].policies,
                {n: g.entities for n, g in self.games.items()},
                chosen,
                self.ctx.out / "policy",
            )
        return {
            **self.summary(numbers),
            "information": each[0].information((*self.key, "information")),
            "assignment_entropy": 0.0 if len(each) > 1 else assignment_entropy(each[0].mode_G),
            "agreement": 1.0,  # modes that are in use learn from what is paid
            "env_steps": sum(x.taken for x in each),
            "deployment_steps": self.deployment_steps(len(choices)),
            "revived": sum(x.revived for x in each),
            **numbers,
            "curve": lines[:: max(1, len(lines) // CURVE)],
        }

    def learner(
        self, train: Sequence[int], modes: int, steps: int, lines: list[dict[str, float]]
    ) -> "PolicySetLearner":
        """A trained set."""
        program = self.program
        learner = PolicySetLearner(
            program=program,
            games={n: self.games[n] for n in train},
            modes=modes,
            diversity=program.diversity if self.arm == "mra" else 0.0,
            warm=round(program.warm * steps) if modes > 1 else 0,
            key=(*self.key, "learn", *train),
        )
        while learner.taken < steps:
            lines.append(learner.iterate())
        return learner

    def choose(
        self, game: PopulationGame, n: int, choices: Sequence[tuple[PolicySet, int]]
    ) -> tuple[PolicySet, int]:
        """The policy that earns most in games that serve for nothing else."""
        earned = [
            per_agent(
                game, policies.play(mode, game.entities), self.program.tries, (*self.key, "try", n)
            )
            for policies, mode in choices
        ]
        return choices[int(np.argmax(earned))]

    def adapted(self, game: PopulationGame, n: int, policies: PolicySet, mode: int) -> ModePolicy:
        """The policy after first-order updates of its latent in the game, all else as it is."""
        frozen = copy.deepcopy(policies).requires_grad_(False)
        latent = nn.Parameter(policies.modes[mode : mode + 1].detach().clone())
        policy = ModePolicy(frozen, latent, 0, game.entities)
        # the critic reads the latent too, and its loss would move it elsewhere
        learner = replace(self.program.learner, objective=ADAPTS, epochs=1, minibatches=1)
        optimiser = torch.optim.Adam([latent], 0.1)
        for i in range(self.program.adapt):
            key = (*self.key, "adapt", n, i)
            paths = pl.control.play_games(game.sim, policy.act, learner.games, key)
            learner.update(policy, optimiser, learner.batch_of(policy, paths), key)
        return policy

    def test(self, game: PopulationGame, n: int, policy: ModePolicy, name: str) -> dict[str, float]:
        numbers = {
            f"return_{name}": per_agent(game, policy, self.program.games, (*self.key, "test", n))
        }
        if isinstance(game.sim, HasEquilibria):
            numbers[f"exploitability_{name}"] = game.sim.exploitability(first_choice(game, policy))
        return numbers

    def summary(self, numbers: Mapping[str, float]) -> dict[str, float]:
        mean = lambda kind, names: float(np.mean([numbers[f"{kind}_{n}"] for n in names]))
        seen, unseen = self.program.train, self.program.test
        adapted = [f"{n}_adapted" for n in unseen]
        result = {"return": mean("return", (*seen, *unseen)), "seen": mean("return", seen)}
        result |= {"unseen": mean("return", unseen), "adapted": mean("return", adapted)}
        if f"exploitability_{unseen[0]}" in numbers:
            result["exploitability"] = mean("exploitability", (*seen, *unseen))
        return result

    def deployment_steps(self, choices: int) -> int:
        """Steps of games in which modes are tried and the latent is adapted, none of which train
        the set; at most, where games may end early.
        """
        program = self.program
        games = program.tries * choices + program.adapt * program.learner.games
        return sum(games * self.games[n].sim.horizon for n in program.test)


ADAPTS = pl.Clipped(reduce="tokens") + 0.01 * pl.Entropy()


@dataclass
class PolicySetLearner:
    """Policies, and what is known of each mode in each game, while they are trained.

    An iteration plays each game with its mode, z*(g), which learns from what is paid, and some more
    games with another one. A mode that no game has learns there from

        r + diversity sd(r) (log d(z | o, a) - log p(z))

    sd(r) that of the game's rewards at the start; every fourth iteration one that another game has is
    only tried. For the first steps no game has one, and all modes learn so in all games.
    """

    program: LearnPolicySet
    games: Mapping[int, PopulationGame]
    modes: int
    diversity: float
    warm: int  # steps for which no mode is assigned
    key: pl.Key
    taken: int = 0
    revived: int = 0
    i: int = 0
    return_ZG: np.ndarray = field(init=False)
    spread_G: np.ndarray = field(init=False)  # standard deviation of what a game pays an agent

    def __post_init__(self) -> None:
        first = next(iter(self.games.values()))
        sizes, width = [size for _, size in first.entities], self.program.width
        actions, key = first.sim.actions, self.key
        self.policies = pl.control.draw_network(
            lambda: PolicySet(sizes, actions, self.modes, width=width), key
        )
        lr = self.program.learner.lr
        self.optimiser = torch.optim.Adam(self.policies.parameters(), lr, eps=1e-5)
        self.return_ZG = np.zeros((self.modes, len(self.games)))
        self.spread_G = np.zeros(len(self.games))
        self.scale_G = np.ones(len(self.games))
        self.mode_G = np.zeros(len(self.games), int)
        if self.modes > 1:
            self.try_all()

    @property
    def all_games(self) -> list[PopulationGame]:
        return list(self.games.values())

    def mode_of(self, agents: int) -> int:
        return int(self.mode_G[list(self.games).index(agents)])

    def try_all(self) -> None:
        """Each mode plays each game a few times, so that none is chosen unseen."""
        n = max(2, self.program.learner.games // 4)
        for g in range(len(self.games)):
            rewards = list[np.ndarray]()
            for z in range(self.modes):
                paths = self.play(g, z, n, "first")
                paid_n = self.paid(paths)
                self.return_ZG[z, g] = paid_n.mean()
                self.spread_G[g] += paid_n.std() / self.modes
                # games of one mode may all end before those of another
                rewards.append(np.moveaxis(paths["reward"], 1, 2)[paths["alive"]].ravel())
            self.scale_G[g] = np.std(np.concatenate(rewards)) or 1.0
        self.mode_G = self.assign()

    def assign(self) -> np.ndarray:
        return assign_modes(self.return_ZG, self.program.near * self.spread_G, self.mode_G.tolist())

    def play(self, g: int, z: int, n: int, name: str) -> pl.control.Paths:
        game = self.all_games[g]
        act = self.policies.play(z, game.entities).act
        paths = pl.control.play_games(game.sim, act, n, (*self.key, self.i, name, g, z))
        self.taken += int(paths["alive"].sum())
        return paths

    def paid(self, paths: pl.control.Paths) -> np.ndarray:
        """[n] what each game paid an agent."""
        return pl.control.returns_of(paths) / paths["reward"].shape[1]

    def iterate(self) -> dict[str, float]:
        """One iteration over all games. Returns its numbers."""
        self.i += 1
        self.bonuses: list[float] = []
        warm = self.taken < self.warm
        rewards = [self.play_all(g) if warm else self.play_game(g) for g in range(len(self.games))]
        if self.modes > 1 and not warm:
            self.mode_G = self.assign()
            if self.i % REVIVE == 0 and len(self.games) > 1:
                self.revive()
        return {
            "env_steps": float(self.taken),
            "reward": float(np.mean(rewards)),
            "bonus": float(np.mean(self.bonuses)) if self.bonuses else 0.0,
            "assignment_entropy": assignment_entropy(self.mode_G),
        }

    def play_all(self, g: int) -> float:
        """Every mode plays a game and learns to be told from the others there. The mean of what is paid."""
        n = max(2, self.program.learner.games // self.modes)
        return float(np.mean([self.play_diverse(g, z, n) for z in range(self.modes)]))

    def play_game(self, g: int) -> float:
        """The game's mode learns from what it is paid, and then another one plays. The mean of the first."""
        games, z = self.program.learner.games, int(self.mode_G[g])
        others = min(max(2, round(self.program.share * games)), games - 2) if self.modes > 1 else 0
        paths = self.play(g, z, games - others, "train")
        self.learn(g, z, paths, paths["reward"])
        paid_n = self.paid(paths)
        self.spread_G[g] += (1 - DECAY) * (paid_n.std() - self.spread_G[g])
        self.note(g, z, paid_n)
        if others:
            other = self.other_mode(g)
            if other in self.mode_G:
                self.note(g, other, self.paid(self.play(g, other, others, "other")))
            else:
                self.play_diverse(g, other, others)
        return float(paid_n.mean())

    def play_diverse(self, g: int, z: int, n: int) -> float:
        """A mode plays, and learns from what it is paid and the bonus. The mean of the first."""
        paths = self.play(g, z, n, "diverse")
        reward, paid_n = paths["reward"], self.paid(paths)
        if self.diversity:
            bonus = self.bonus(g, z, paths)
            self.bonuses.append(float(bonus.mean()))
            reward = reward + self.diversity * self.scale_G[g] * bonus
        self.learn(g, z, paths, reward)
        self.note(g, z, paid_n)
        return float(paid_n.mean())

    def note(self, g: int, z: int, paid_n: np.ndarray) -> None:
        """Moves the running mean of what a mode is paid in a game."""
        self.return_ZG[z, g] += (1 - DECAY) * (float(paid_n.mean()) - self.return_ZG[z, g])

    def other_mode(self, g: int) -> int:
        """One that no game has, and every fourth time one that another game has; each in its turn."""
        others = [z for z in range(self.modes) if z != self.mode_G[g]]
        free = [z for z in others if z not in self.mode_G]
        used = [z for z in others if z in self.mode_G]
        choices = (used if self.i % 4 == 0 else free) or others
        return choices[(self.i + g) % len(choices)]

    def learn(self, g: int, z: int, paths: pl.control.Paths, reward: np.ndarray) -> None:
        learner = self.program.learner
        policy = self.policies.play(z, self.all_games[g].entities)
        batch = learner.batch_of(policy, paths, lambda _: reward)
        learner.update(policy, self.optimiser, batch, (*self.key, self.i, "update", g, z))

    @torch.no_grad()
    def bonus(self, g: int, z: int, paths: pl.control.Paths) -> np.ndarray:
        """[n, A, T] of what a mode did, in nats."""
        columns = {
            k: torch.from_numpy(paths[k]).float() for k in ("obs", "act", "legal") if k in paths
        }
        entities = self.all_games[g].entities
        logp = [self.policies.play(m, entities)(columns)["logp"].numpy() for m in range(self.modes)]
        return mode_bonus(np.stack(logp, -1).astype(float), z) * paths["alive"][:, None]

    def revive(self) -> None:
        """Where one mode serves all games, the least useful of the others starts again beside it."""
        if assignment_entropy(self.mode_G) > 0:
            return
        most = int(self.mode_G[0])
        idle = [z for z in range(self.modes) if z != most]
        worst = min(idle, key=lambda z: self.return_ZG[z].mean())
        noise = pl.rng_of((*self.key, self.i, "revive")).normal(size=self.policies.latent)
        with torch.no_grad():
            start = self.policies.modes[most]
            self.policies.modes[worst] = start + NOISE * torch.from_numpy(noise).float()
        self.revived += 1

    def information(self, key: pl.Key) -> float:
        """I(z; a | o) in nats, from games that each mode plays in turn; 0 of one mode."""
        parts = list[float]()
        for g, game in enumerate(self.all_games):
            for z in range(self.modes):
                act = self.policies.play(z, game.entities).act
                paths = pl.control.play_games(game.sim, act, 32, (*key, g, z))
                alive = np.broadcast_to(paths["alive"][:, None], paths["reward"].shape)
                parts.append(float(self.bonus(g, z, paths)[alive].mean()))
        return float(np.mean(parts))


def per_agent(game: PopulationGame, policy: ModePolicy, n: int, key: pl.Key) -> float:
    """What a game pays an agent on average."""
    return pl.control.mean_return(game.sim, policy.act, n, key) / game.sim.agents


def first_choice(game: PopulationGame, policy: ModePolicy) -> np.ndarray:
    """[K] probabilities of the first action, of agents that all see the same then."""
    state = game.sim.reset(pl.rng_of(("first",)), 1)
    seen = torch.from_numpy(game.sim.observe(state)[0, :1]).float()
    with torch.no_grad():
        return policy.actor(seen)[0].softmax(-1).double().numpy()
