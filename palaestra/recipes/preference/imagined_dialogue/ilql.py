"""Implicit language Q-learning on recorded dialogues. Shapes: B rows, T tokens of a row.

A row is a dialogue. Its actions are the agent's tokens; the next state of an action is what stands
before the agent's next token, what the user says in between included. The reward of a turn of the
agent lies at the turn's last token, and the value behind the last action is 0.
"""

import math
from dataclasses import field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import palaestra as pl

HEADS = ("q", "q2", "slow_q", "slow_q2", "value")
TWINS = ("q", "q2")


def turn_rewards(task: pl.Task) -> tuple[float, ...]:
    """The reward of each of the agent's turns: the column `reward` is a number, which the last turn
    gets, or a list with one for each. Raises UserError where it is neither.
    """
    given = task.meta.get("reward")
    turns = sum(m.role == "assistant" for m in task.prompt) + 1
    several = isinstance(given, list | tuple)
    listed: list[Any] = list(given) if several else [0.0] * (turns - 1) + [given]
    if len(listed) != turns or not all(map(_is_reward, listed)):
        raise pl.UserError(
            f"task {task.id!r}: reward is {given!r}; write a number for the whole dialogue, or a "
            f"list of {turns}, one for each turn of the assistant"
        )
    return tuple(float(x) for x in listed)


def _is_reward(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


@pl.declare(
    facts=(("turn_rewards", tuple, "of each turn of the agent, in order"),),
    reads_columns=("reward",),
)
@pl.stage
class RecordedDialogue(pl.Demonstrate):
    """Adds the task's dialogue, with its rewards. All of the agent's turns are trained."""

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        task = group.task
        reply, rewards = task.meta.get("demonstration"), turn_rewards(task)
        if not isinstance(reply, str):
            raise pl.UserError(
                f"task {task.id!r} is no dialogue; write its messages, [{{'role': 'user', 'content': "
                "'...'}}, ...], of which one at least is the assistant's, in the column messages"
            )
        own = [i for i, m in enumerate(task.prompt) if m.role == "assistant"]
        whole = replace(task, meta={**task.meta, "imitated": own})
        episode = self.episode(ctx, whole, reply, ())
        episode = replace(
            episode, reward=pl.Reward(total=sum(rewards)), facts={"turn_rewards": rewards}
        )
        return replace(group, episodes=(*group.episodes, episode))


@pl.declare(reads=("turn_rewards",))
@pl.stage
class DialogueRewards:
    """Every dialogue as a row, with the column "reward" [T]: that of a turn at its last token."""

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        examples = [
            pl.Example(
                row=row,
                columns={**signals[g][e][r], "reward": rewards_at(row, episode.facts)},
            )
            for g, group in enumerate(groups)
            for e, episode in enumerate(group.episodes)
            if episode.ok and not episode.muted
            for r, row in enumerate(episode.rows)
        ]
        return examples, state


def rewards_at(row: pl.Row, facts: Any) -> np.ndarray:
    """[T] rewards of a row's tokens, 0 but at the last token of each turn of the agent."""
    on_T = row.view().trained_T
    ends = np.flatnonzero(on_T & ~np.append(on_T[1:], False))
    reward_T = np.zeros(len(on_T))
    reward_T[ends] = facts["turn_rewards"]
    return reward_T


def next_action(x_BT: Tensor, on_BT: Tensor) -> Tensor:
    """[B, T] x at the row's next trained token, 0 behind the last one."""
    T = x_BT.shape[1]
    at_BT = torch.where(on_BT > 0, torch.arange(T, device=x_BT.device), T)
    # the least place from here on, then of the places behind this one
    from_BT = at_BT.flip(1).cummin(1).values.flip(1)
    next_BT = torch.nn.functional.pad(from_BT[:, 1:], (0, 1), value=T)
    return torch.nn.functional.pad(x_BT, (0, 1)).gather(1, next_BT)


@pl.stage
class ILQL(pl.Algebra):
    """The loss of implicit language Q-learning (arXiv:2206.11871), a mean over the agent's tokens:

        L_Q    sum over the twins of (r + gamma V(s') - Q(s, a))^2,    V(s') held still
        L_V    |tau - 1(u < 0)| u^2,    u = min of the slow Q's (s, a) - V(s)
        L_CQL  sum over the twins of log sum_v exp Q(s, v) - Q(s, a)
        L_LM   -log pi(a | s)

        L = L_Q + L_V + cql * L_CQL + lm * L_LM

    Args:
        gamma: of one token of the agent to its next.
        tau: above 1/2 V is an optimist among the recorded actions; at 1/2 it is their mean.
        cql: keeps Q low where no action was recorded; 0.01 to 0.25.
        lm: the weight of imitation, which makes the model pi_beta.
    """

    gamma: float = 0.99
    tau: float = 0.7
    cql: float = 0.1
    lm: float = 1.0

    def __post_init__(self) -> None:
        pl.check_bounds("ILQL.gamma", self.gamma, least=0, most=1)
        pl.check_bounds("ILQL.tau", self.tau, above=0, most=1)
        pl.check_bounds("ILQL.cql", self.cql, least=0)
        pl.check_bounds("ILQL.lm", self.lm, least=0)

    @property
    def needs(self) -> tuple[str, ...]:
        return ("logp", *HEADS, "q_logsumexp", "q_logsumexp:2")

    def measures(self, out: pl.Outputs, batch: pl.Batch) -> dict[str, Tensor]:
        """Of held-out dialogues, under the policy that acts."""
        return {"nll": -(out["logp"] * batch.mask).sum(1), "tokens": batch.mask.sum(1)}

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        after_BT = next_action(out["value"], batch.mask)
        # targets: Q follows V, and V follows the slow copies
        target_BT = (batch["reward"] + self.gamma * after_BT).detach()
        slow_BT = torch.minimum(out["slow_q"], out["slow_q2"]).detach()
        u_BT = slow_BT - out["value"]
        terms = {
            "q_loss": (target_BT - out["q"]) ** 2 + (target_BT - out["q2"]) ** 2,
            "v_loss": expectile_weight(u_BT, self.tau) * u_BT**2,
            "cql_loss": out["q_logsumexp"] - out["q"] + out["q_logsumexp:2"] - out["q2"],
            "nll": -out["logp"],
        }
        means = {name: pl.reduce_terms(x, batch, "tokens") for name, x in terms.items()}
        loss = means["q_loss"] + means["v_loss"]
        loss = loss + self.cql * means["cql_loss"] + self.lm * means["nll"]
        size = pl.token_mean(u_BT.detach().abs(), batch)
        return loss, {name: x.detach() for name, x in means.items()} | {"advantage": size}


def expectile_weight(u: Tensor, tau: float) -> Tensor:
    """|tau - 1(u < 0)|: tau above the expectile, 1 - tau below."""
    return torch.where(u < 0, 1 - tau, tau)


@pl.stage
class FollowAndAct:
    """An update, after which the slow copies of the Q heads take the share `polyak` of the way to
    them, and the model acts: pi exp(strength (Q - V)), renormalised. It learns as if it did not act.

    "tilt" is strength times the mean |Q - V| of the recorded tokens: by how many nats their
    log-probs move before renormalising.
    """

    strength: float = 4.0
    polyak: float = 0.005
    update: pl.Update = field(default_factory=pl.Plain)

    def __post_init__(self) -> None:
        pl.check_bounds("FollowAndAct.strength", self.strength, least=0)
        pl.check_bounds("FollowAndAct.polyak", self.polyak, above=0, most=1)

    def __call__(
        self, ctx: pl.Context, name: str, learner: pl.Learner, batch: pl.Batch, state: pl.State
    ) -> tuple[dict[str, Any], pl.State]:
        heads: dict[str, Any] = ctx.model(name).heads
        heads["q"].strength = 0.0
        metrics, state = self.update(ctx, name, learner, batch, state)
        for twin in TWINS:
            follow(heads[f"slow_{twin}"], heads[twin], self.polyak)
        heads["q"].strength = self.strength
        return {**metrics, "tilt": self.strength * metrics["advantage"]}, state


@torch.no_grad()
def follow(slow: torch.nn.Module, head: torch.nn.Module, share: float) -> None:
    """Moves the weights of a copy by a share of the way to those of its head."""
    for copy, own in zip(slow.parameters(), head.parameters(), strict=True):
        copy.lerp_(own, share)
