"""A recurrent state-space model of a simulator, and an actor and a critic that learn in its imagination.

B sequences, T steps, M states, H imagined steps; deterministic h, stochastic s of the latent state.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

import palaestra as pl
from palaestra.recipes.llm4rl.robohorizon.views import CODE, HasCameras, MaskedViews

HIDDEN, STOCHASTIC, WIDTH = 64, 16, 64
LEAST_STD = 0.1
WEIGHTS, SIZES = "world.safetensors", "world.json"


def gaussian_kl(mean_q: Tensor, std_q: Tensor, mean_p: Tensor, std_p: Tensor) -> Tensor:
    """[...] KL(q || p) of diagonal Gaussians [..., S], in nats."""
    ratio = (std_q / std_p) ** 2
    return 0.5 * (ratio + ((mean_q - mean_p) / std_p) ** 2 - 1 - ratio.log()).sum(-1)


def lambda_returns(
    reward: Tensor, value: Tensor, discount: Tensor, lam: float, length_M: Tensor
) -> Tensor:
    """[H, M] V_t = r_t + d_t ((1 - lam) v_t+1 + lam V_t+1), and r_t + d_t v_t+1 in the last step of each
    row's own horizon (DreamerV2, arXiv:2010.02193 eq. 4).

    Args:
        reward, discount: of steps 0 to H - 1, [H, M].
        value: v_1 to v_H, of the states that the steps lead to, [H, M].
        length_M: horizons, 1 to H; what lies behind one is not meant to be read.
    """
    after, out = value[-1], list[Tensor]()
    for t in reversed(range(len(reward))):
        after = torch.where(length_M - 1 == t, value[t], after)
        after = reward[t] + discount[t] * ((1 - lam) * value[t] + lam * after)
        out.append(after)
    return torch.stack(out[::-1])


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, WIDTH), nn.ELU(), nn.Linear(WIDTH, outputs))


class LatentWorld(nn.Module):
    """RSSM: h_t = GRU(h_t-1, [s_t-1, a_t-1]); prior p(s_t | h_t); posterior q(s_t | h_t, z_t), z_t the
    observation; heads for z, the reward and the end of a game; an actor and a critic on [h, s].
    """

    mean: Tensor
    std: Tensor

    def __init__(self, observation: int, actions: int | pl.control.Box):
        super().__init__()
        self.observation, self.actions = observation, actions
        self.discrete = isinstance(actions, int)
        size = actions if isinstance(actions, int) else actions.size
        self.act_size, state = size, HIDDEN + STOCHASTIC
        self.gru = nn.GRUCell(STOCHASTIC + size, HIDDEN)
        self.prior = mlp(HIDDEN, 2 * STOCHASTIC)
        self.posterior = mlp(HIDDEN + observation, 2 * STOCHASTIC)
        self.decoder = mlp(state, observation)
        self.reward = mlp(state, 1)
        self.ends = mlp(state, 1)
        self.actor = mlp(state, size if self.discrete else 2 * size)
        self.critic = mlp(state, 1)
        self.slow_critic = mlp(state, 1)
        self.slow_critic.load_state_dict(self.critic.state_dict())
        self.register_buffer("mean", torch.zeros(observation))
        self.register_buffer("std", torch.ones(observation))

    def see(self, obs: np.ndarray) -> Tensor:
        """[..., O] what the world is a model of, of a simulator's observations: the same numbers."""
        return torch.from_numpy(np.asarray(obs)).float()

    def normalise(self, obs: Tensor) -> Tensor:
        return (obs - self.mean) / self.std

    def begin(self, n: int) -> tuple[Tensor, Tensor]:
        """h and s before the first observation."""
        return torch.zeros(n, HIDDEN), torch.zeros(n, STOCHASTIC)

    def gaussian(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = x.chunk(2, -1)
        return mean, F.softplus(raw) + LEAST_STD

    def observe(
        self, h: Tensor, s: Tensor, before: Tensor, z: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """h and s after the action `before` and a normalised observation, posterior and prior."""
        h = self.gru(torch.cat([s, before], -1), h)
        prior = self.gaussian(self.prior(h))
        posterior = self.gaussian(self.posterior(torch.cat([h, z], -1)))
        return h, posterior[0] + posterior[1] * noise, posterior, prior

    def imagine(self, h: Tensor, s: Tensor, act: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """h and s after an action, without an observation."""
        h = self.gru(torch.cat([s, act], -1), h)
        mean, std = self.gaussian(self.prior(h))
        return h, mean + std * noise

    def act(
        self, state: Tensor, noise: Tensor, legal: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """An action [..., A], differentiable, and the policy's entropy [...], in nats.

        Args:
            noise: [..., A] standard normal, or Gumbel of discrete actions, which are one-hot with the
                gradient of their probabilities.
        """
        out = self.actor(state)
        if self.discrete:
            out = out if legal is None else out.masked_fill(~legal, -1e9)
            logp = torch.log_softmax(out, -1)
            hot = F.one_hot((logp + noise).argmax(-1), self.act_size).float()
            p = logp.exp()
            return hot + p - p.detach(), -(p * logp).sum(-1)
        mean, std = self.action_gaussian(out)
        normal = torch.distributions.Normal(mean, std, validate_args=False)
        return mean + std * noise, normal.entropy().sum(-1)

    def action_gaussian(self, out: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of continuous actions; a mean is within bounds that are finite."""
        mean, std = self.gaussian(out)
        low, high = self.bounds
        finite = torch.isfinite(low) & torch.isfinite(high)
        low, high = torch.where(finite, low, -1.0), torch.where(finite, high, 1.0)
        middle, half = (high + low) / 2, (high - low) / 2
        return torch.where(finite, middle + half * torch.tanh(mean), mean), std * half

    @property
    def bounds(self) -> tuple[Tensor, Tensor]:
        assert isinstance(self.actions, pl.control.Box)
        return torch.tensor(self.actions.low), torch.tensor(self.actions.high)

    def expert_loss(self, state: Tensor, act: Tensor) -> Tensor:
        """[...] -ln p(a | s) of actions of demonstrations."""
        out = self.actor(state)
        if self.discrete:
            return -(torch.log_softmax(out, -1) * act).sum(-1)
        mean, std = self.action_gaussian(out)
        return -torch.distributions.Normal(mean, std, validate_args=False).log_prob(act).sum(-1)

    def encode_actions(self, act: Any) -> Tensor:
        """[..., A] of actions as a simulator takes them."""
        given = torch.as_tensor(np.asarray(act))
        return F.one_hot(given.long(), self.act_size).float() if self.discrete else given.float()

    def sizes(self) -> dict[str, Any]:
        """What else a reader of the folder needs."""
        return {}

    def save(self, folder: Path) -> None:
        """Writes world.safetensors and world.json."""
        folder.mkdir(parents=True, exist_ok=True)
        box = self.actions if isinstance(self.actions, pl.control.Box) else None
        actions = self.actions if box is None else {"low": box.low, "high": box.high}
        save_file({k: v.contiguous() for k, v in self.state_dict().items()}, folder / WEIGHTS)
        sizes = {"observation": self.observation, "actions": actions, **self.sizes()}
        (folder / SIZES).write_text(json.dumps(sizes) + "\n")


class SeeingWorld(LatentWorld):
    """A world whose z_t is the code of the front camera's picture, by a masked autoencoder that stays as it is."""

    def __init__(self, sim: Any, views: MaskedViews):
        super().__init__(CODE, sim.actions)
        self.sim, self.views = sim, views

    def see(self, obs: np.ndarray) -> Tensor:
        flat = np.asarray(obs).reshape(-1, obs.shape[-1])
        images = torch.from_numpy(np.asarray(self.sim.render(flat), np.float32))
        return self.views.front_codes(images).reshape(*obs.shape[:-1], CODE)

    def sizes(self) -> dict[str, Any]:
        return {"views": list(self.views.shape)}


def load_world(folder: Path | str, sim: Any = None) -> LatentWorld:
    """A world as it was saved; one that sees takes its simulator, which renders. Raises UserError for a folder that holds
    none.
    """
    try:
        sizes = json.loads((Path(folder) / SIZES).read_text())
        given: Any = sizes["actions"]
        actions = (
            given
            if isinstance(given, int)
            else pl.control.Box(low=tuple(given["low"]), high=tuple(given["high"]))
        )
        if shape := sizes.get("views"):
            if not isinstance(sim, HasCameras):
                raise pl.UserError(
                    f"{folder}: this world sees; give the simulator with its cameras"
                )
            make = lambda: SeeingWorld(sim, MaskedViews(*map(int, shape)))
        else:
            make = lambda: LatentWorld(int(sizes["observation"]), actions)
        world = pl.control.draw_network(make, ())
        world.load_state_dict(load_file(Path(folder) / WEIGHTS))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise pl.UserError(f"{folder} holds no world of robohorizon: {error}") from None
    return world


class WorldPlayer:
    """Plays games with a world's actor, whose latent states follow what it sees: a player for each call
    of `play_games`. `greedy` takes the likeliest actions.
    """

    def __init__(self, world: LatentWorld, greedy: bool = False):
        self.world, self.greedy = world, greedy
        self.state: tuple[Tensor, Tensor, Tensor] | None = None

    @torch.no_grad()
    def __call__(self, obs: Any, legal: Any, rng: np.random.Generator) -> Mapping[str, np.ndarray]:
        world, n = self.world, len(obs)
        if self.state is None:
            self.state = (*world.begin(n), torch.zeros(n, world.act_size))
        h, s, before = self.state
        z = world.normalise(world.see(obs[:, 0]))
        h, s, _, _ = world.observe(h, s, before, z, torch.zeros(n, STOCHASTIC))
        draw = rng.gumbel if world.discrete else rng.normal
        noise = torch.from_numpy(draw(size=(n, world.act_size))).float() * (not self.greedy)
        allowed = None if legal is None else torch.from_numpy(legal[:, 0])
        act, _ = world.act(torch.cat([h, s], -1), noise, allowed)
        if not world.discrete:
            low, high = world.bounds
            act = act.clamp(low, high)
        self.state = (h, s, act)
        given = act.argmax(-1).numpy() if world.discrete else act.numpy()
        return {"act": given[:, None]}


@torch.no_grad()
def prediction_error(
    world: LatentWorld, sim: pl.control.Simulator, games: int, key: pl.Key
) -> dict[str, float]:
    """How well the world foretells games of its own actor: "foretold", 1 less the squared error of the
    next observation over its variance, by one step without having seen it; 1 is perfect, 0 a constant.
    """
    paths = pl.control.play_games(sim, WorldPlayer(world), games, (*key, "foretold"))
    z = world.normalise(world.see(paths["obs"][:, 0]))
    after = world.normalise(world.see(paths["next_obs"][:, 0]))
    act, alive = world.encode_actions(paths["act"][:, 0]), torch.from_numpy(paths["alive"])
    n, T = alive.shape
    h, s = world.begin(n)
    before, still, errors = torch.zeros(n, world.act_size), torch.zeros(n, STOCHASTIC), []
    for t in range(T):
        h, s, _, _ = world.observe(h, s, before, z[:, t], still)
        before = act[:, t]
        state = torch.cat(world.imagine(h, s, before, still), -1)
        errors.append((world.decoder(state) - after[:, t]).square().sum(-1))
    error = torch.stack(errors, 1)[alive].mean()
    variance = after[alive].var(0).sum().clamp_min(1e-9)
    return {"foretold": float(1 - error / variance)}
