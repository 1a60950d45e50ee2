"""Small networks on observations: drawn by key, and kept as safetensors and JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from palaestra.control.simulators import Box
from palaestra.errors import UserError
from palaestra.types import Key, seed_of

WEIGHTS, SIZES = "policy.safetensors", "policy.json"
LOGIT_OF_ILLEGAL = -1e9
LOG_STD = (-20.0, 2.0)  # bounds of a squashed policy's log deviation
N = TypeVar("N", bound=nn.Module)


def draw_network(make: Callable[[], N], key: Key) -> N:
    """A network whose start is the key's, wherever torch's own stream stands, which stays there."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed_of((*key, "start")) % (1 << 31))
        return make()


def tower(
    inputs: int,
    outputs: int,
    width: int,
    activation: Callable[[], nn.Module] = nn.Tanh,
    gain: float = 1.0,
) -> nn.Sequential:
    """Two hidden layers; weights are orthogonal, the last ones times `gain`."""
    sizes, gains = (inputs, width, width, outputs), (2**0.5, 2**0.5, gain)
    layers: list[nn.Module] = []
    for before, after, scale in zip(sizes, sizes[1:], gains, strict=False):
        linear = nn.Linear(before, after)
        nn.init.orthogonal_(linear.weight, scale)
        nn.init.zeros_(linear.bias)
        layers += [linear, activation()]
    return nn.Sequential(*layers[:-1])


class ActorCritic(nn.Module):
    """Two towers on an observation, the same for every agent: a policy and the value.

    Discrete actions have a softmax over the legal ones; continuous ones a Gaussian whose deviation
    does not depend on the observation.
    """

    def __init__(self, observation: int, actions: int | Box, width: int = 64):
        super().__init__()
        self.observation, self.actions, self.width = observation, actions, width
        outputs = actions.size if isinstance(actions, Box) else actions
        self.actor: nn.Module = tower(observation, outputs, width, gain=0.01)
        self.critic: nn.Module = tower(observation, 1, width)
        self.log_std: nn.Parameter | None = None
        if isinstance(actions, Box):
            self.log_std = nn.Parameter(torch.zeros(outputs))

    def forward(self, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What objectives read: logp, entropy and value, each [B, T], in nats and in rewards.

        Args:
            columns: obs [B, T, O], act [B, T] or [B, T, D], and legal [B, T, K] where there is one.
        """
        out = {"value": self.critic(columns["obs"])[..., 0]}
        logits = self.actor(columns["obs"])
        if self.log_std is not None:
            normal = torch.distributions.Normal(logits, self.log_std.exp(), validate_args=False)
            logp, entropy = normal.log_prob(columns["act"]).sum(-1), normal.entropy().sum(-1)
            return out | {"logp": logp, "entropy": entropy}
        logp = log_softmax_of_legal(logits, columns.get("legal"))
        chosen = columns["act"].long()[..., None]
        return out | {
            "logp": logp.gather(-1, chosen)[..., 0],
            "entropy": -(logp.exp() * logp).sum(-1),
        }

    @torch.no_grad()
    def act(self, obs: Any, legal: Any, rng: Any, greedy: bool = False) -> dict[str, Any]:
        """Actions of a policy that plays, see `Acting`; `greedy` ones are the likeliest."""
        seen = torch.from_numpy(obs).float()
        logits, value = self.actor(seen), self.critic(seen)[..., 0].numpy()
        if self.log_std is not None:
            std = self.log_std.exp().numpy()
            noise = 0.0 if greedy else rng.normal(size=logits.shape)
            act = logits.numpy() + std * noise
            normal = torch.distributions.Normal(logits, self.log_std.exp(), validate_args=False)
            logp = normal.log_prob(torch.from_numpy(act).float()).sum(-1).numpy()
            return {"act": act, "logp": logp, "value": value}
        allowed = None if legal is None else torch.from_numpy(legal)
        logp = log_softmax_of_legal(logits, allowed).numpy()
        act = (logp if greedy else logp + rng.gumbel(size=logp.shape)).argmax(-1)
        chosen = logp.reshape(-1, logp.shape[-1])[range(act.size), act.ravel()]
        return {"act": act, "logp": chosen.reshape(act.shape), "value": value}


def log_softmax_of_legal(logits: Tensor, legal: Tensor | None) -> Tensor:
    """[..., K] in nats; an action that is not legal has probability 0 in float32."""
    if legal is not None:
        logits = logits.masked_fill(~legal.bool(), LOGIT_OF_ILLEGAL)
    return torch.log_softmax(logits, -1)


class ActionValues(nn.Module):
    """The value of each action in an observation, [..., K]."""

    def __init__(self, observation: int, actions: int, width: int = 64):
        super().__init__()
        self.observation, self.actions, self.width = observation, actions, width
        self.net = tower(observation, actions, width, nn.ReLU)

    def forward(self, obs: Tensor) -> Tensor:
        return self.net(obs)


class DuelingValues(ActionValues):
    """Action values of two heads on one body, the value of the observation and the advantage of each
    action (arXiv:1511.06581, equation 9): Q(s, a) = V(s) + A(s, a) - mean_a A(s, a).
    """

    def __init__(self, observation: int, actions: int, width: int = 64):
        super().__init__(observation, 1 + actions, width)
        self.actions = actions

    def forward(self, obs: Tensor) -> Tensor:
        return join_heads(self.net(obs))


def join_heads(heads: Tensor) -> Tensor:
    """[..., K] action values of [..., 1 + K]: the value, then the advantages."""
    value, advantage = heads[..., :1], heads[..., 1:]
    return value + advantage - advantage.mean(-1, keepdim=True)


class SquashedGaussian(nn.Module):
    """A policy of continuous actions: tanh of a Gaussian draw, stretched to the bounds, whose mean and
    deviation depend on the observation (arXiv:1812.05905, appendix C).
    """

    middle: Tensor
    reach: Tensor

    def __init__(self, observation: int, actions: Box, width: int = 64):
        super().__init__()
        self.observation, self.actions, self.width = observation, actions, width
        self.net = tower(observation, 2 * actions.size, width, nn.ReLU, gain=0.01)
        low, high = torch.tensor(actions.low), torch.tensor(actions.high)
        if not bool(torch.isfinite(low).all() & torch.isfinite(high).all()):
            raise UserError("a squashed policy needs actions with bounds; PPO takes unbounded ones")
        if not bool((low < high).all()):
            raise UserError(f"a squashed policy needs low below high, not {actions}")
        self.register_buffer("middle", (low + high) / 2, persistent=False)
        self.register_buffer("reach", (high - low) / 2, persistent=False)

    def forward(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Actions [..., D] between -1 and 1, before they are stretched to the bounds, and their
        log-density [...] in nats.

            log p = sum_d [log N(u_d) - log(1 - tanh(u_d)^2)],  u = mean + std noise

        Args:
            noise: [..., D] standard normal draws; 0 gives the middle of what is likely.
        """
        mean, log_std = self.net(obs).chunk(2, -1)
        log_std = log_std.clamp(*LOG_STD)
        u = mean + log_std.exp() * noise
        log_normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
        # log(1 - tanh^2), which is not lost to rounding where tanh is close to 1
        log_slope = 2 * (math.log(2) - u - nn.functional.softplus(-2 * u))
        return torch.tanh(u), (log_normal - log_slope).sum(-1)

    def stretch(self, act: Tensor) -> Tensor:
        """From [-1, 1] to the bounds."""
        return self.middle + self.reach * act

    def squeeze(self, act: Tensor) -> Tensor:
        """From the bounds to [-1, 1]."""
        return (act - self.middle) / self.reach

    @torch.no_grad()
    def act(self, obs: Any, legal: Any, rng: Any, greedy: bool = False) -> dict[str, Any]:
        """Actions of a policy that plays, see `Acting`; `greedy` ones are without noise."""
        shape = (*obs.shape[:-1], self.actions.size)
        noise = np.zeros(shape) if greedy else rng.normal(size=shape)
        act, _ = self(torch.from_numpy(obs).float(), torch.from_numpy(noise).float())
        return {"act": self.stretch(act).numpy()}


class TwinCritics(nn.Module):
    """Two networks that value an observation with a continuous action, each [...]."""

    def __init__(self, observation: int, actions: Box, width: int = 64):
        super().__init__()
        inputs = observation + actions.size
        self.first = tower(inputs, 1, width, nn.ReLU)
        self.second = tower(inputs, 1, width, nn.ReLU)

    def forward(self, obs: Tensor, act: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([obs, act], -1)
        return self.first(both)[..., 0], self.second(both)[..., 0]


# ---- on disk

Policy: TypeAlias = ActorCritic | ActionValues | SquashedGaussian
KINDS: Mapping[str, type[ActorCritic] | type[ActionValues] | type[SquashedGaussian]] = {
    "squashed gaussian": SquashedGaussian,
    "actor-critic": ActorCritic,
    "action values": ActionValues,
    "dueling values": DuelingValues,
}


def save_policy(policy: Policy, folder: Path | str) -> None:
    """Writes policy.safetensors, and policy.json with the sizes, each whole or not at all."""
    where = Path(folder)
    where.mkdir(parents=True, exist_ok=True)
    box = policy.actions if isinstance(policy.actions, Box) else None
    sizes = {
        "kind": next(name for name, kind in KINDS.items() if type(policy) is kind),
        "observation": policy.observation,
        "actions": policy.actions if box is None else {"low": box.low, "high": box.high},
        "width": policy.width,
    }
    tensors = {k: v.contiguous() for k, v in policy.state_dict().items()}
    save_file(tensors, where / f".{WEIGHTS}")
    (where / f".{SIZES}").write_text(json.dumps(sizes, indent=1) + "\n")
    for name in (WEIGHTS, SIZES):
        os.replace(where / f".{name}", where / name)


def load_policy(folder: Path | str) -> Policy:
    """A policy as it was saved. Raises UserError for a folder that holds none."""
    where = Path(folder)
    try:
        sizes = json.loads((where / SIZES).read_text())
        given: Any = sizes["actions"]
        actions = given if isinstance(given, int) else Box(**{k: tuple(given[k]) for k in given})
        make: Any = KINDS[sizes["kind"]]
        policy = draw_network(
            lambda: make(int(sizes["observation"]), actions, int(sizes["width"])), ()
        )
        policy.load_state_dict(load_file(where / WEIGHTS))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise UserError(f"{where} holds no policy: {error}") from None
    return policy
