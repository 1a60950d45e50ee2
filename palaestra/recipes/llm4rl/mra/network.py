"""A set of policies, one for each mode of a latent, whose weights do not depend on the number of agents.

Z numbers of a latent, W of a layer, O of an observation, K actions.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import palaestra as pl

WEIGHTS, SIZES = "policy.safetensors", "policy.json"
# (how many, numbers of each) of the agent itself, which is one, and of each kind of entity it sees
Entities = Sequence[tuple[int, int]]


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class RelationTower(nn.Module):
    """The agent's own numbers, each kind of entity by attention, and the latent, through two layers.

        tanh(body [own, attention of own over the entities of each kind, ..., z]) head + z own

    Attention is an average, so its weights serve any number of entities. Of none it gives zeros.

    Args:
        sizes: numbers of the agent itself, then those of an entity of each kind.
        latent: Z.
    """

    def __init__(self, sizes: Sequence[int], latent: int, outputs: int, width: int, gain: float):
        super().__init__()
        own, *others = sizes
        self.own = nn.Sequential(layer(own, width), nn.Tanh())
        self.entity = nn.ModuleList(nn.Sequential(layer(d, width), nn.Tanh()) for d in others)
        self.query = nn.ModuleList(layer(width, width, 1.0) for _ in others)
        self.body = nn.Sequential(layer((1 + len(others)) * width + latent, width), nn.Tanh())
        self.head = layer(width, outputs, gain)
        self.own_of_mode = nn.Linear(
            latent, outputs, bias=False
        )  # so that modes differ from the start
        nn.init.orthogonal_(self.own_of_mode.weight)

    def forward(self, obs: Tensor, entities: Entities, z: Tensor) -> Tensor:
        """[..., outputs] of observations [..., O] and a latent [Z]."""
        parts = obs.split([count * size for count, size in entities], -1)
        own = self.own(parts[0])
        seen = [own]
        kinds = zip(self.entity, self.query, parts[1:], entities[1:], strict=True)
        for entity, query, part, (count, size) in kinds:
            if not count:
                seen.append(torch.zeros_like(own))
                continue
            each = entity(part.reshape(*part.shape[:-1], count, size))
            score = (each * query(own)[..., None, :]).sum(-1) / each.shape[-1] ** 0.5
            seen.append((score.softmax(-1)[..., None] * each).sum(-2))
        z = z.expand(*own.shape[:-1], -1)
        return self.head(self.body(torch.cat([*seen, z], -1))) + self.own_of_mode(z)


class AtMode(nn.Module):
    """A tower in one game and at one of the modes."""

    def __init__(self, tower: RelationTower, modes: nn.Parameter, mode: int, entities: Entities):
        super().__init__()
        self.tower, self.modes = tower, modes
        self.mode, self.entities = mode, entities

    def forward(self, obs: Tensor) -> Tensor:
        return self.tower(obs, self.entities, self.modes[self.mode])


class PolicySet(nn.Module):
    """pi(a | o, z): towers that all games and modes share, and a latent [Z] for each mode."""

    def __init__(
        self,
        sizes: Sequence[int],
        actions: int | pl.control.Box,
        modes: int,
        latent: int = 8,
        width: int = 64,
    ):
        super().__init__()
        self.sizes, self.actions, self.latent, self.width = tuple(sizes), actions, latent, width
        outputs = actions.size if isinstance(actions, pl.control.Box) else actions
        self.actor = RelationTower(sizes, latent, outputs, width, 0.01)
        self.critic = RelationTower(sizes, latent, 1, width, 1.0)
        self.modes = nn.Parameter(torch.randn(modes, latent))
        self.log_std: nn.Parameter | None = None
        if isinstance(actions, pl.control.Box):
            self.log_std = nn.Parameter(torch.zeros(outputs))

    def play(self, mode: int, entities: Entities) -> "ModePolicy":
        """One of the policies in a game with these entities; it shares the weights."""
        return ModePolicy(self, self.modes, mode, entities)


class ModePolicy(pl.control.ActorCritic):
    """A policy of a set, in a game: what learners and simulators take.

    Args:
        modes: latents [modes, Z]: those of the set, or one that is adapted alone.
    """

    def __init__(self, policies: PolicySet, modes: nn.Parameter, mode: int, entities: Entities):
        nn.Module.__init__(self)
        self.observation = sum(count * size for count, size in entities)
        self.actions, self.width = policies.actions, policies.width
        self.actor = AtMode(policies.actor, modes, mode, entities)
        self.critic = AtMode(policies.critic, modes, mode, entities)
        self.log_std = policies.log_std


# ---- on disk


def save_policies(
    policies: PolicySet, entities: dict[int, Entities], modes: dict[int, int], folder: Path
) -> None:
    """Writes policy.safetensors, and policy.json with the sizes and the mode of each number of agents."""
    folder.mkdir(parents=True, exist_ok=True)
    box = policies.actions if isinstance(policies.actions, pl.control.Box) else None
    about = {
        "sizes": policies.sizes,
        "actions": policies.actions if box is None else {"low": box.low, "high": box.high},
        "modes": len(policies.modes),
        "latent": policies.latent,
        "width": policies.width,
        "entities": {str(n): list(map(list, e)) for n, e in entities.items()},
        "mode_of": {str(n): mode for n, mode in modes.items()},
    }
    save_file(dict(policies.state_dict()), folder / f".{WEIGHTS}")
    (folder / f".{SIZES}").write_text(json.dumps(about, indent=1) + "\n")
    for name in (WEIGHTS, SIZES):
        os.replace(folder / f".{name}", folder / name)


def load_policies(folder: Path | str) -> Callable[[int], ModePolicy]:
    """From a saved set, the policy of a number of agents that it was trained with or tried in.

    Raises UserError for a folder that holds none, and for another number.
    """
    where = Path(folder)
    try:
        about = json.loads((where / SIZES).read_text())
        given = about["actions"]
        actions = (
            given
            if isinstance(given, int)
            else pl.control.Box(low=tuple(given["low"]), high=tuple(given["high"]))
        )
        policies = PolicySet(
            about["sizes"], actions, about["modes"], about["latent"], about["width"]
        )
        policies.load_state_dict(load_file(where / WEIGHTS))
        entities, mode_of = about["entities"], about["mode_of"]
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise pl.UserError(f"{folder} holds no policies of mra: {error}") from None

    def policy(agents: int) -> ModePolicy:
        if str(agents) not in mode_of:
            raise pl.UserError(
                f"{folder} has policies for {', '.join(mode_of)} agents, not {agents}"
            )
        return policies.play(mode_of[str(agents)], [tuple(e) for e in entities[str(agents)]])

    return policy
