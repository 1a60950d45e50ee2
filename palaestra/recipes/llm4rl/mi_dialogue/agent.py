"""A dialogue manager of two levels, its PPO on the semi-MDP, and first- or second-order MAML.

n dialogues, T turns, D = ceil(T / H) decisions of the master, O options.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

import palaestra as pl

Order = Literal["first", "second"]
Player = Callable[[Any, Any, Any], Mapping[str, np.ndarray]]
Parameters = Mapping[str, Tensor]
Loss = Callable[[Parameters], Tensor]


@pl.value_class
class PolicyShape:
    """What a network is drawn for."""

    observation: int
    actions: int


class OptionPolicies(nn.Module):
    """One policy and one critic for each option; a row's option says which of them it is."""

    def __init__(self, policies: Sequence[nn.Module]):
        super().__init__()
        self.each = nn.ModuleList(policies)

    def forward(self, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """logp, entropy and value, each [B, T], of the options in `columns`."""
        made = [policy(columns) for policy in self.each]
        chosen = columns["option"].long()[None]
        return {k: torch.stack([m[k] for m in made]).gather(0, chosen)[0] for k in made[0]}


class DialogueAgent:
    """The master policy picks an option in every `every`-th turn, by the numbers `overview` of an
    observation; the option's policy picks the act. With one option it is a flat policy.
    """

    def __init__(self, master: Any, options: OptionPolicies, overview: Sequence[int], every: int):
        self.master, self.options = master, options
        self.overview, self.every = list(overview), every

    def player(self, greedy: bool = False) -> Player:
        """Acts in games from their start on, once."""
        turn, held = 0, dict[str, np.ndarray]()

        def act(obs: Any, legal: Any, rng: Any) -> Mapping[str, np.ndarray]:
            nonlocal turn, held
            if turn % self.every == 0:
                choice = self.master.act(obs[..., self.overview], None, rng, greedy=greedy)
                held = {
                    "option": choice["act"],
                    "option_logp": choice["logp"],
                    "option_value": choice["value"],
                }
            turn += 1
            each: list[Any] = list(self.options.each)
            made: list[Any] = [policy.act(obs, legal, rng, greedy=greedy) for policy in each]
            pick = lambda k: np.take_along_axis(
                np.stack([m[k] for m in made]), held["option"].astype(int)[None], 0
            )[0]
            return {**held, **{k: pick(k) for k in ("act", "logp", "value")}}

        return act


def draw_agent(
    sim: pl.control.Simulator, options: int, every: int, learner: pl.control.PPO, key: pl.Key
) -> DialogueAgent:
    """An agent before its first turn. What the master sees is the simulator's `overview`, else all."""
    overview = getattr(sim, "overview", tuple(range(sim.observation)))
    made: Any = learner.start
    actions = int(sim.actions) if isinstance(sim.actions, int) else 0
    master = made(PolicyShape(observation=len(overview), actions=options), (*key, "master"))
    shape = PolicyShape(observation=sim.observation, actions=actions)
    each = [made(shape, (*key, "option", o)) for o in range(options)]
    return DialogueAgent(master, OptionPolicies(each), overview, every)


def copy_agent(agent: DialogueAgent) -> DialogueAgent:
    """The same weights, which move apart from here on."""
    return DialogueAgent(
        deepcopy(agent.master), deepcopy(agent.options), agent.overview, agent.every
    )


def decisions(
    paths: pl.control.Paths, every: int, gamma: float, overview: Sequence[int]
) -> pl.control.Paths:
    """The master's steps: R_k = sum_j gamma^j r_{kH + j} over the turns until it decides again."""
    n, A, T = paths["reward"].shape
    D = -(-T // every)
    padded = np.zeros((n, A, D * every))
    padded[..., :T] = paths["reward"] * paths["alive"][:, None]
    over = np.zeros((n, D * every), bool)
    over[:, :T] = paths["over"]
    return {
        "obs": paths["obs"][:, :, ::every][..., list(overview)],
        "act": paths["option"][:, :, ::every],
        "logp": paths["option_logp"][:, :, ::every],
        "value": paths["option_value"][:, :, ::every],
        "reward": (padded.reshape(n, A, D, every) * gamma ** np.arange(every)).sum(-1),
        "alive": paths["alive"][:, ::every],
        "over": np.asarray(over.reshape(n, D, every).any(-1)),
    }


def batches_of(
    agent: DialogueAgent, paths: pl.control.Paths, learner: pl.control.PPO
) -> dict[str, pl.Batch]:
    """What each level learns from: "options" every turn, "master" every decision, whose discount is
    gamma^H.
    """
    none: Any = None  # what follows the horizon is worth nothing, so no critic is asked
    turns = learner.batch_of(none, paths)
    option = torch.from_numpy(paths["option"]).reshape(turns.columns["act"].shape)
    slow = replace(learner, gamma=learner.gamma**agent.every)
    steps = decisions(paths, agent.every, learner.gamma, agent.overview)
    return {
        "options": replace(turns, columns={**turns.columns, "option": option}),
        "master": slow.batch_of(none, steps),
    }


def levels_of(agent: DialogueAgent) -> dict[str, Any]:
    return {"options": agent.options, "master": agent.master}


def loss_on(module: nn.Module, batch: pl.Batch, objective: pl.Objective) -> Loss:
    """The objective as a function of a module's weights."""

    def loss(parameters: Parameters) -> Tensor:
        given = dict(parameters)
        return objective(torch.func.functional_call(module, given, (batch.columns,)), batch)[0]

    return loss


def inner_step(parameters: Parameters, loss: Loss, rate: float, order: Order) -> dict[str, Tensor]:
    """theta - a grad L(theta); "second" keeps the graph, so that the outer gradient runs through it."""
    names = list(parameters)
    slopes: Any = torch.autograd.grad(
        loss(parameters),
        [parameters[k] for k in names],
        create_graph=order == "second",
        allow_unused=True,
    )
    return {
        k: parameters[k] if g is None else parameters[k] - rate * g
        for k, g in zip(names, slopes, strict=True)
    }


def meta_gradient(
    parameters: Parameters, tasks: Sequence[tuple[Loss, Loss]], rate: float, order: Order
) -> dict[str, Tensor]:
    """mean_i of the gradient of L_i(theta_i), theta_i = theta - a grad L'_i(theta) (MAML,
    arXiv:1703.03400): with respect to theta, or with "first" to theta_i.

    Args:
        tasks: of each the loss that is adapted to, L', and the one that is measured, L.
    """
    total = {k: torch.zeros_like(p) for k, p in parameters.items()}
    for support, query in tasks:
        adapted = inner_step(parameters, support, rate, order)
        if order == "first":  # the gradient stops at the adapted weights
            adapted = {k: p.detach().requires_grad_() for k, p in adapted.items()}
        to = adapted if order == "first" else parameters
        slopes: Any = torch.autograd.grad(query(adapted), [to[k] for k in total], allow_unused=True)
        for k, g in zip(total, slopes, strict=True):
            total[k] = total[k] if g is None else total[k] + g / len(tasks)
    return {k: g.detach() for k, g in total.items()}


def adapt_agent(
    agent: DialogueAgent, paths: pl.control.Paths, learner: pl.control.PPO, rate: float
) -> DialogueAgent:
    """The agent after one inner step of both levels on some games; the given one stays as it is."""
    adapted, batches = copy_agent(agent), batches_of(agent, paths, learner)
    for name, module in levels_of(adapted).items():
        weights = dict(module.named_parameters())
        moved = inner_step(
            weights, loss_on(module, batches[name], learner.objective), rate, "first"
        )
        with torch.no_grad():
            for k, p in weights.items():
                p.copy_(moved[k])
    return adapted
