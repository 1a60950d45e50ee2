"""Learning in imagination: a world is fitted to stored games, and its actor and critic to imagined ones
that are as long as the key-horizon of the stage they begin in.

B sequences, L steps of one, M states, H imagined steps.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import palaestra as pl
from palaestra.recipes.llm4rl.robohorizon.views import MaskedViews
from palaestra.recipes.llm4rl.robohorizon.world import (
    HIDDEN,
    STOCHASTIC,
    LatentWorld,
    SeeingWorld,
    WorldPlayer,
    gaussian_kl,
    lambda_returns,
)

KEPT, EMA = 2048, 0.98  # games; of the slow critic
BALANCE = 0.8  # of the divergence the share that trains the prior (arXiv:2010.02193)


@pl.stage
class DreamLearner:
    """A world model's learner.

    An iteration plays `games` games and makes an update for every `every` environment steps: the world by
    L = -ln p(z|s) - ln p(r|s) - ln p(end|s) + beta KL(q || p), the critic by 0.5 (v - sg V)^2, the actor
    by -V - entropy * H(pi), plus bc * -ln p(a|s) of actions of demonstrations.
    """

    games: int = 8
    every: int = 75
    sequences: int = 16
    length: int = 12
    gamma: float = 0.97
    lam: float = 0.95
    beta: float = 0.1
    entropy: float = 1e-3
    bc: float = 1.0
    lr: float = 1e-3
    max_norm: float = 10.0
    smallest: ClassVar[Mapping[str, float]] = {"games": 2}

    def __post_init__(self) -> None:
        least = {"games": 1, "every": 1, "sequences": 1, "length": 2}
        for name, number in least.items():
            if getattr(self, name) < number:
                raise pl.UserError(f"robohorizon: world.{name} is {number} or more")

    async def learn(
        self,
        sim: pl.control.Simulator,
        steps: int,
        key: pl.Key,
        shaping: pl.control.Shaping,
        stage: Callable[[pl.control.Paths], np.ndarray],
        horizons: np.ndarray,
        demos: pl.control.Paths | None,
        log: Callable[[Mapping[str, Any]], None],
        views: MaskedViews | None = None,
    ) -> LatentWorld:
        """A world after at least `steps` environment steps, those of demonstrations counted.

        Args:
            stage: [n, T] the stage in which each step of games begins.
            horizons: imagined steps, by stage.
            views: gives a world that sees by it, with the front camera of a simulator that `HasCameras`.
        """
        plain = lambda: LatentWorld(sim.observation, sim.actions)
        make = plain if views is None else lambda: SeeingWorld(sim, views)
        world: LatentWorld = pl.control.draw_network(make, key)
        dream = Dream(self, world, horizons, key)
        taken = i = 0
        if demos is not None:
            taken = dream.store(demos, shaping(demos), stage(demos), True)
            dream.fit_scale()
            log(dream.updates(taken) | line_of(demos, 0, taken))
        while taken < steps:
            paths = pl.control.play_games(sim, WorldPlayer(world), self.games, (*key, i))
            new = dream.store(paths, shaping(paths), stage(paths), False)
            if i == 0 and demos is None:
                dream.fit_scale()
            taken, i = taken + new, i + 1
            log(dream.updates(new) | line_of(paths, i, taken))
        return world


def line_of(paths: pl.control.Paths, step: int, taken: int) -> dict[str, float]:
    """What a log says of games, beside the numbers of updates."""
    return {"step": step, "env_steps": taken, "reward": float(pl.control.returns_of(paths).mean())}


class Dream:
    """A world with its stored games, in one run."""

    def __init__(
        self, settings: DreamLearner, world: LatentWorld, horizons: np.ndarray, key: pl.Key
    ):
        self.settings, self.world, self.horizons = settings, world, torch.from_numpy(horizons)
        self.rng = pl.rng_of((*key, "dream"))
        self.torch_rng = torch.Generator().manual_seed(pl.seed_of((*key, "noise")) % (1 << 31))
        self.stored = list[dict[str, Tensor]]()
        heads = ("gru", "prior", "posterior", "decoder", "reward", "ends")
        model = [p for name in heads for p in getattr(world, name).parameters()]
        adam = lambda parameters: torch.optim.Adam(parameters, settings.lr, eps=1e-5)
        self.model, self.actor = adam(model), adam(list(world.actor.parameters()))
        self.critic = adam(list(world.critic.parameters()))

    def store(
        self, paths: pl.control.Paths, reward: np.ndarray, stage: np.ndarray, expert: bool
    ) -> int:
        """Keeps games; their number of steps. Demonstrations are never dropped."""
        for i, T in enumerate(paths["alive"].sum(1)):
            act = self.world.encode_actions(paths["act"][i, 0, :T])
            obs = np.concatenate([paths["obs"][i, 0, :T], paths["next_obs"][i, 0, T - 1 : T]])
            self.stored.append(
                {
                    "obs": self.world.see(obs),
                    "act": act,
                    "reward": torch.from_numpy(reward[i, 0, :T]).float(),
                    "end": torch.from_numpy(paths["over"][i, :T].astype(np.float32)),
                    "stage": torch.from_numpy(stage[i, :T]),
                    "expert": torch.full((int(T),), float(expert)),
                }
            )
        while len(self.stored) > KEPT:
            first = next((i for i, g in enumerate(self.stored) if not g["expert"][0]), 0)
            self.stored.pop(first)
        return int(paths["alive"].sum())

    def fit_scale(self) -> None:
        """The scale of observations, by the games that are stored; it is saved with the world."""
        seen = torch.cat([g["obs"] for g in self.stored])
        self.world.mean.copy_(seen.mean(0))
        self.world.std.copy_(seen.std(0).clamp_min(1e-3))

    def noise(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.torch_rng)

    def action_noise(self, n: int) -> Tensor:
        if not self.world.discrete:
            return self.noise(n, self.world.act_size)
        u = torch.rand(n, self.world.act_size, generator=self.torch_rng).clamp(1e-6, 1 - 1e-6)
        return -torch.log(-torch.log(u))

    def sequences(self) -> dict[str, Tensor]:
        """B parts of stored games, half of them of demonstrations where there are some, [B, L, ...], with
        a mask of the steps that there are.
        """
        L, parts = self.settings.length, list[dict[str, Tensor]]()
        expert_games = [g for g in self.stored if g["expert"][0]]
        for b in range(self.settings.sequences):
            games = expert_games if expert_games and b % 2 else self.stored
            game = games[int(self.rng.integers(len(games)))]
            T = len(game["act"])
            a = int(self.rng.integers(max(1, T - L + 1)))
            part = {k: v[a : a + L] for k, v in game.items() if k != "obs"}
            part |= {"obs": game["obs"][a : a + L], "next": game["obs"][a + 1 : a + L + 1]}
            part["mask"] = torch.ones(len(part["act"]))
            short = L - len(part["act"])
            parts.append({k: F.pad(v, [0, 0] * (v.ndim - 1) + [0, short]) for k, v in part.items()})
        return {k: torch.stack([p[k] for p in parts]) for k in parts[0]}

    def updates(self, steps: int) -> dict[str, float]:
        """As many updates as environment steps are worth, one at least; the numbers of the last one."""
        numbers = [self.update() for _ in range(max(1, steps // self.settings.every))]
        return numbers[-1]

    def update(self) -> dict[str, float]:
        """One update of world, actor and critic."""
        batch = self.sequences()
        states, model_loss = self.fit_world(batch)
        flat = batch["mask"].flatten() > 0
        begin = states.detach().flatten(0, 1)[flat]
        actor_loss, value = self.imagine(begin, batch["stage"].flatten()[flat])
        expert = batch["expert"] * batch["mask"]
        if self.settings.bc and bool(expert.any()):
            cost = self.world.expert_loss(states.detach(), batch["act"])
            actor_loss = actor_loss + self.settings.bc * (cost * expert).sum() / expert.sum()
        self.step(self.actor, actor_loss)
        with torch.no_grad():
            for slow, now in zip(
                self.world.slow_critic.parameters(), self.world.critic.parameters(), strict=True
            ):
                slow.lerp_(now, 1 - EMA)
        return {"model_loss": float(model_loss), "value": value}

    def fit_world(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """States [B, L, h + s] of the observations before each action, and the loss."""
        world, mask = self.world, batch["mask"]
        B, L = mask.shape
        h, s = world.begin(B)
        before = torch.zeros(B, world.act_size)
        states, loss = list[Tensor](), torch.zeros(())
        for t in range(L):
            z = world.normalise(batch["obs"][:, t])
            h, s, q, p = world.observe(h, s, before, z, self.noise(B, STOCHASTIC))
            state = torch.cat([h, s], -1)
            states.append(state)
            kl = BALANCE * gaussian_kl(*(x.detach() for x in q), *p)  # trains the prior alone
            kl = kl + (1 - BALANCE) * gaussian_kl(*q, *(x.detach() for x in p))  # the posterior
            before = batch["act"][:, t]
            # what an action leads to is told by the state after it, before it is seen
            after = torch.cat(world.imagine(h, s, before, self.noise(B, STOCHASTIC)), -1)
            paid = (world.reward(after)[:, 0] - batch["reward"][:, t]) ** 2
            end = F.binary_cross_entropy_with_logits(
                world.ends(after)[:, 0], batch["end"][:, t], reduction="none"
            )
            seen = (world.decoder(state) - z).square().sum(-1)
            decoded = (world.decoder(after) - world.normalise(batch["next"][:, t])).square().sum(-1)
            part = 0.5 * (seen + decoded + paid) + end + self.settings.beta * kl
            loss = loss + (part * mask[:, t]).sum() / mask.sum()
        self.step(self.model, loss)
        return torch.stack(states, 1), loss.detach()

    def imagine(self, begin: Tensor, stage: Tensor) -> tuple[Tensor, float]:
        """The actor's loss over imagined steps, and the mean value of where they begin; the critic is
        fitted to their returns.
        """
        world, settings = self.world, self.settings
        length = self.horizons[stage]
        H, M = int(length.max()), len(begin)
        h, s = begin[:, :HIDDEN], begin[:, HIDDEN:]
        states, entropies = [begin], list[Tensor]()
        for _ in range(H):
            act, entropy = world.act(torch.cat([h, s], -1), self.action_noise(M))
            if not world.discrete:
                low, high = world.bounds
                act = act + (act.clamp(low, high) - act).detach()  # as a simulator bounds it
            h, s = world.imagine(h, s, act, self.noise(M, STOCHASTIC))
            states.append(torch.cat([h, s], -1))
            entropies.append(entropy)
        path = torch.stack(states)
        reward = world.reward(path[1:])[..., 0]
        discount = settings.gamma * (1 - torch.sigmoid(world.ends(path[1:])[..., 0]))
        value = world.slow_critic(path[1:])[..., 0]
        returns = lambda_returns(reward, value, discount, settings.lam, length)
        inside = (torch.arange(H)[:, None] < length).float()
        gain = returns + settings.entropy * torch.stack(entropies)
        actor_loss = -(gain * inside).sum() / inside.sum()
        # the critic does not move the world, and its target does not move with it
        guess = world.critic(path[:-1].detach())[..., 0]
        critic_loss = 0.5 * ((guess - returns.detach()) ** 2 * inside).sum() / inside.sum()
        self.step(self.critic, critic_loss)
        return actor_loss, float(guess[0].detach().mean())

    def step(self, optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
        """One step of Adam. Raises Fault for a loss that is no finite number."""
        if not bool(torch.isfinite(loss)):
            raise pl.Fault("not-finite", "the loss of a world model is no finite number")
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        grads = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        for p, g in zip(parameters, grads, strict=True):
            p.grad = g
        torch.nn.utils.clip_grad_norm_(parameters, self.settings.max_norm)
        optimiser.step()
        optimiser.zero_grad()
