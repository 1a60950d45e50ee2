"""A policy with an encoder of what was observed and done before.

B trajectories, T steps, O numbers that are observed, E privileged, D of an action (or K actions), F = O + D + 1
of a step in the history, k its length, Z of the latent.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import palaestra as pl

Latent = Literal["none", "history", "privileged"]
WEIGHTS, SIZES = "policy.safetensors", "policy.json"
CHANNELS, SPREAD = 32, (-5.0, 2.0)  # of a convolution; bounds of the latent's log deviation
FARTHEST = 10.0  # deviations of an observed number from its mean, beyond which it is cut
START_SD = -1.5  # log deviation of z before the first update
ILLEGAL = -1e9  # logit


def windows(steps_BTF: Tensor, k: int) -> Tensor:
    """[B, T, F, k] the k steps before each one, the latest last; zeros where there were fewer."""
    before = torch.zeros(len(steps_BTF), k, steps_BTF.shape[-1])
    return torch.cat([before, steps_BTF], 1).unfold(1, k, 1)[:, : steps_BTF.shape[1]]


def tower(inputs: int, outputs: int, width: int, gain: float = 1.0) -> nn.Sequential:
    """Two hidden layers; the last weights times `gain`."""
    hidden = (nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
    last = nn.Linear(width, outputs)
    with torch.no_grad():
        last.weight *= gain
        nn.init.zeros_(last.bias)
    return nn.Sequential(*hidden, last)


class HistoryEncoder(nn.Module):
    """Mean and log deviation of p(z | h), from convolutions over the steps of h (a TCN of two layers)."""

    def __init__(self, numbers: int, k: int, latent: int):
        super().__init__()
        self.numbers = numbers
        left = (((k + 1) // 2) + 1) // 2
        convolutions = (
            nn.Conv1d(numbers, CHANNELS, 3, stride=2, padding=1),
            nn.ELU(),
            nn.Conv1d(CHANNELS, CHANNELS, 3, stride=2, padding=1),
            nn.ELU(),
        )
        last = nn.Linear(CHANNELS * left, 2 * latent)
        self.net = nn.Sequential(*convolutions, nn.Flatten(), last)
        with torch.no_grad():  # z begins as a number with little noise
            last.bias[latent:] = START_SD

    def forward(self, history: Tensor) -> tuple[Tensor, Tensor]:
        """[..., Z] each, of [..., F, k]."""
        flat = self.net(history.reshape(-1, *history.shape[-2:]))
        mean, log_sd = flat.reshape(*history.shape[:-2], -1).chunk(2, -1)
        return mean, log_sd.clamp(*SPREAD)


class HistoryPolicy(nn.Module):
    """pi(a | o, z) and V(o, e). `latent` says what z is: a draw from p(z | h), a function of the privileged e,
    or nothing (zeros). All parts are there in each case, so that equal keys start alike.

    All numbers are read less their mean and divided by their deviation in games of the start, `scale`, the
    observed ones up to 10 deviations to either side.
    """

    middle: Tensor
    spread: Tensor
    seen_middle: Tensor
    seen_spread: Tensor

    def __init__(
        self,
        seen: int,
        privileged: int,
        actions: int | pl.control.Box,
        latent: Latent = "history",
        k: int = 20,
        size: int = 8,
        width: int = 64,
    ):
        super().__init__()
        self.seen, self.privileged, self.actions = seen, privileged, actions
        self.latent, self.k, self.size, self.width = latent, k, size, width
        outputs = actions.size if isinstance(actions, pl.control.Box) else actions
        self.encoder = HistoryEncoder(seen + outputs + 1, k, size)
        self.actor = tower(seen + size, outputs, width, gain=0.01)
        self.value = tower(seen + privileged, 1, width)
        self.of_privileged = tower(privileged, size, width)  # z of the oracle
        self.compared = tower(privileged, size, width)  # f of the contrastive term
        self.bilinear = nn.Linear(size, size, bias=False)  # W
        self.log_std: nn.Parameter | None = None
        if isinstance(actions, pl.control.Box):
            self.log_std = nn.Parameter(torch.full((outputs,), -0.5))
        self.register_buffer("middle", torch.zeros(privileged))
        self.register_buffer("spread", torch.ones(privileged))
        self.register_buffer("seen_middle", torch.zeros(seen))
        self.register_buffer("seen_spread", torch.ones(seen))

    def scale(self, seen: np.ndarray, e: np.ndarray) -> None:
        """Takes means and deviations of [N, O] and [N, E]; a number that is always the same is not divided."""
        for given, middle, spread in (
            (seen, self.seen_middle, self.seen_spread),
            (e, self.middle, self.spread),
        ):
            deviation = torch.from_numpy(given.std(0, dtype=np.float64)).float()
            middle.copy_(torch.from_numpy(given.mean(0, dtype=np.float64)))
            spread.copy_(torch.where(deviation > 1e-6, deviation, torch.ones(())))

    def observed(self, obs: Tensor) -> Tensor:
        """[..., O] what is observed, in its scale."""
        scaled = (obs[..., : self.seen] - self.seen_middle) / self.seen_spread
        return scaled.clamp(-FARTHEST, FARTHEST)

    def split(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """What is observed and what is privileged, in their scales."""
        return self.observed(obs), (obs[..., self.seen :] - self.middle) / self.spread

    def critic(self, obs: Tensor) -> Tensor:
        """[..., 1]"""
        return self.value(torch.cat(self.split(obs), -1))

    def steps(self, seen: Tensor, act: Tensor) -> Tensor:
        """[..., F] of a history: what was observed and done (clipped, or one of K), and a 1."""
        if isinstance(self.actions, pl.control.Box):
            act = torch.clamp(act, torch.tensor(self.actions.low), torch.tensor(self.actions.high))
        else:
            act = nn.functional.one_hot(act.long(), self.actions).float()
        return torch.cat([seen, act, torch.ones(*seen.shape[:-1], 1)], -1)

    def encode(self, columns: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """[B, T, Z] mean and log deviation of p(z | h) at each step."""
        seen, _ = self.split(columns["obs"])
        return self.encoder(windows(self.steps(seen, columns["act"]), self.k))

    def latents(self, obs: Tensor, coded: tuple[Tensor, Tensor], noise: Tensor) -> Tensor:
        """[..., Z] what the actor reads beside the observation."""
        if self.latent == "history":
            return coded[0] + coded[1].exp() * noise
        return self.of_privileged(self.split(obs)[1]) if self.latent == "privileged" else 0 * noise

    def forward(self, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """logp, entropy and value [B, T]; z, its mean and log deviation [B, T, Z], f(e) [B, T, Z], e [B, T, E].

        Args:
            columns: obs [B, T, O + E], act, noise [B, T, Z] with which z was drawn, and legal where there is one.
        """
        obs = columns["obs"]
        seen, e = self.split(obs)
        coded = self.encode(columns)
        z = self.latents(obs, coded, columns["noise"])
        drawn = coded[0] + coded[1].exp() * columns["noise"]
        logp, entropy = self.density(
            self.actor(torch.cat([seen, z], -1)), columns["act"], columns.get("legal")
        )
        return {
            "value": self.critic(obs)[..., 0],
            "logp": logp,
            "entropy": entropy,
            "z": self.bilinear(drawn),
            "z_mean": coded[0],
            "z_log_sd": coded[1],
            "compared": self.compared(e),
            "privileged": e,
        }

    def density(self, logits: Tensor, act: Tensor, legal: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.log_std is not None:
            normal = torch.distributions.Normal(logits, self.log_std.exp(), validate_args=False)
            return normal.log_prob(act).sum(-1), normal.entropy().sum(-1)
        if legal is not None:
            logits = logits.masked_fill(~legal.bool(), ILLEGAL)
        logp = torch.log_softmax(logits, -1)
        chosen = logp.gather(-1, act.long()[..., None])[..., 0]
        return chosen, -(logp.exp() * logp).sum(-1)


class HistoryPlayer:
    """A policy that plays games from their first step, all at a time; for other games make another one.

    Args:
        greedy: plays the middle of what is likely, z and action, as when it is deployed.
    """

    def __init__(self, policy: HistoryPolicy, greedy: bool = False):
        self.policy, self.greedy = policy, greedy
        self.history: Tensor | None = None  # [n, A, k, F]

    @torch.no_grad()
    def act(
        self, obs: np.ndarray, legal: np.ndarray | None, rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """See `pl.control.Acting`; obs [n, A, O], with the privileged numbers behind them where the policy or a
        critic reads them.
        """
        policy, given = self.policy, torch.from_numpy(obs).float()
        seen, shape = policy.observed(given), obs.shape[:-1]
        if self.history is None:
            self.history = torch.zeros(*shape, policy.k, policy.encoder.numbers)
        coded = policy.encoder(self.history.transpose(-1, -2))
        size = (*shape, policy.size)
        drawn = np.zeros(size) if self.greedy else rng.normal(size=size)
        noise = torch.from_numpy(drawn).float()
        z = policy.latents(given, coded, noise)
        logits = policy.actor(torch.cat([seen, z], -1))
        allowed = None if legal is None else torch.from_numpy(legal)
        act = self.choose(logits, allowed, rng)
        logp, _ = policy.density(logits, torch.from_numpy(act).float(), allowed)
        step = policy.steps(seen, torch.from_numpy(act).float())
        self.history = torch.cat([self.history[..., 1:, :], step[..., None, :]], -2)
        out = {"act": act, "logp": logp.numpy(), "noise": noise.numpy()}
        if given.shape[-1] > policy.seen:
            out["value"] = policy.critic(given)[..., 0].numpy()
        return out

    def choose(self, logits: Tensor, legal: Tensor | None, rng: np.random.Generator) -> np.ndarray:
        policy = self.policy
        if policy.log_std is not None:
            noise = 0.0 if self.greedy else rng.normal(size=logits.shape)
            return logits.numpy() + policy.log_std.exp().numpy() * noise
        if legal is not None:
            logits = logits.masked_fill(~legal.bool(), ILLEGAL)
        noise = 0.0 if self.greedy else rng.gumbel(size=logits.shape)
        return (logits.numpy() + noise).argmax(-1)


# ---- on disk


class HistoryController:
    """A saved policy on a robot: from what it observes to commands in the simulator's units, which it keeps as
    its history.

        controller = load_controller("RUN/policy")
        controller.reset()                       # before each episode
        command = controller(observed)           # [n, D], of [n, O]; or K, or of one robot [O]
    """

    def __init__(self, policy: HistoryPolicy, bounds: pl.control.Box | None):
        self.policy, self.bounds = policy, bounds
        self.player = HistoryPlayer(policy, greedy=True)

    def reset(self) -> None:
        self.player = HistoryPlayer(self.policy, greedy=True)

    def __call__(self, observed: np.ndarray) -> np.ndarray:
        given = np.asarray(observed, np.float32)
        if given.shape[-1] != self.policy.seen:
            raise pl.UserError(
                f"the policy reads {self.policy.seen} observed numbers, not {given.shape[-1]}"
            )
        # greedy actions draw nothing
        rows = given.reshape(-1, 1, self.policy.seen)
        act = self.player.act(rows, None, np.random.default_rng(0))["act"][:, 0]
        if self.bounds is not None:
            act = scale_actions(act, self.bounds)
        return act.reshape(*given.shape[:-1], *act.shape[1:])


def scale_actions(act: np.ndarray, box: pl.control.Box) -> np.ndarray:
    """Actions within the bounds for those from -1 to 1, beyond which they are clipped."""
    low, high = np.array(box.low), np.array(box.high)
    return low + (np.clip(act, -1, 1) + 1) / 2 * (high - low)


def save_controller(policy: HistoryPolicy, bounds: pl.control.Box | None, folder: Path) -> None:
    """Writes policy.safetensors, and policy.json with the sizes, each whole or not at all.

    Args:
        bounds: of the simulator's actions, where the policy's go from -1 to 1.
    """
    folder.mkdir(parents=True, exist_ok=True)
    spell = lambda box: {"low": box.low, "high": box.high}
    box = policy.actions if isinstance(policy.actions, pl.control.Box) else None
    about = {
        "seen": policy.seen,
        "privileged": policy.privileged,
        "actions": policy.actions if box is None else spell(box),
        "latent": policy.latent,
        "k": policy.k,
        "size": policy.size,
        "width": policy.width,
        "bounds": None if bounds is None else spell(bounds),
    }
    save_file({k: v.contiguous() for k, v in policy.state_dict().items()}, folder / f".{WEIGHTS}")
    (folder / f".{SIZES}").write_text(json.dumps(about, indent=1) + "\n")
    for name in (WEIGHTS, SIZES):
        os.replace(folder / f".{name}", folder / name)


def load_controller(folder: Path | str) -> HistoryController:
    """A policy as it was saved. Raises UserError for a folder that holds none."""
    where = Path(folder)
    try:
        about: dict[str, Any] = json.loads((where / SIZES).read_text())
        bounds, given = about.pop("bounds"), about["actions"]
        box = lambda given: pl.control.Box(low=tuple(given["low"]), high=tuple(given["high"]))
        about["actions"] = given if isinstance(given, int) else box(given)
        policy = HistoryPolicy(**about)
        policy.load_state_dict(load_file(where / WEIGHTS))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise pl.UserError(f"{folder} holds no policy of hib: {error}") from None
    return HistoryController(policy, None if bounds is None else box(bounds))
