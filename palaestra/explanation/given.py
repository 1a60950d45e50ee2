"""A recipe on rollouts that exist already: who gets the credit, what weight each token has, where
the weights would go.

The stages are the recipe's own; only the sampling is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from palaestra.errors import UserError
from palaestra.explanation.reading import derivative, varies_within_episode
from palaestra.method import Learner, Recipe
from palaestra.rollout.collect import Links, Sample
from palaestra.run.context import RunContext
from palaestra.run.driver import prepare
from palaestra.types import Batch, Example, Group, value_class
from palaestra.update import backward, pack
from palaestra.values import brief

BUDGET = 4096  # padded tokens of a forward pass


@value_class
class Credited:
    """What a learner would train on."""

    name: str
    learner: Learner
    examples: Sequence[Example]
    within: bool  # the credit may differ within a row


async def judge_groups(recipe: Recipe, ctx: RunContext, groups: Sequence[Group]) -> list[Group]:
    """Unscored groups as the recipe judges and gates them; a UserError if it does not begin with
    plain samples.
    """
    links = recipe.collect.links if isinstance(recipe.collect, Links) else (recipe.collect,)
    if not isinstance(links[0], Sample):
        raise UserError(f"its rollouts are not plain samples but {brief(links[0])}")
    judged_groups: list[Group] = []
    for g, group in enumerate(groups):
        for i, link in enumerate(links[1:], 1):
            group = await link(ctx, (ctx.seed, "given", g, i), group)
        judged_groups.append(group)
    ready, _, _ = await recipe.pool(ctx, judged_groups, {})
    if not ready:
        raise UserError(f"its pool {brief(recipe.pool)} has no batch")
    return ready


def credit_groups(recipe: Recipe, ctx: RunContext, groups: Sequence[Group]) -> Credited:
    """The examples of the learner that trains the policy, from scored groups and a fresh state."""
    resolved: Recipe = ctx.at(recipe, 0)
    if "policy" not in resolved.learners:
        raise UserError(f"it trains {' and '.join(resolved.learners)}, not the policy")
    learner = resolved.learners["policy"]
    signals = ctx.measure(groups, learner.needs, learner.privileged)
    examples, _ = learner.credit(groups, signals, {})
    by_token = varies_within_episode(learner.credit, groups, signals)
    return Credited(name="policy", learner=learner, examples=examples, within=by_token)


def prepare_context(recipe: Recipe, ctx: RunContext) -> RunContext:
    """The context with the recipe's references and heads."""
    prepare(recipe, ctx)
    return ctx


def direction(credited: Credited, ctx: RunContext) -> np.ndarray | None:
    """[parameters] minus the gradient of the objective to the model's own weights, before any
    optimiser; None = no example.

    Heads are the method's own, so they are left out: directions of different methods have the same
    coordinates.
    """
    batch = pack(credited.examples, credited.name)
    if batch is None:
        return None
    model = ctx.model(credited.name)
    for p in model.trainable():
        p.grad = None
    run = ctx.forward(credited.name, credited.learner.objective.needs)
    backward(run, credited.learner.objective, batch.to(model.device), BUDGET)
    named = {n: p for n, p in model.named_trainable().items() if not n.startswith("head.")}
    flat = [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in named.values()]
    return -torch.cat(flat).double().cpu().numpy()


def token_weights(credited: Credited, ctx: RunContext) -> tuple[list[np.ndarray], bool]:
    """[T] of each example: minus the derivative of the loss to each log-prob, at the log-probs the
    tokens were sampled with.

    And whether the loss leaves the advantages unused.
    """
    learner, weights = (
        credited.learner,
        [np.zeros(len(e.row.view().ids_T)) for e in credited.examples],
    )
    live = [
        i for i, e in enumerate(credited.examples) if e.row.view(credited.name).trained_T[1:].any()
    ]
    batch = pack([credited.examples[i] for i in live], credited.name)
    if batch is None:
        return weights, False
    out = outputs(ctx, credited, batch) | {"logp": batch["behaviour_logp"].clone()}
    found_BT, unused = derivative(learner.objective, out, batch)
    for b, i in enumerate(live):
        weights[i] = found_BT[b, : len(weights[i])].double().numpy()
    return weights, unused


@torch.no_grad()
def outputs(ctx: RunContext, credited: Credited, batch: Batch) -> dict[str, torch.Tensor]:
    """What the model says about the whole batch, a few rows at a time."""
    run, T = ctx.forward(credited.name, credited.learner.objective.needs), batch["ids"].shape[1]
    here = batch.to(ctx.model(credited.name).device)
    parts = [
        run(here.part(rows)) for rows in torch.arange(len(batch.unit_B)).split(max(1, BUDGET // T))
    ]
    pad = lambda x: torch.nn.functional.pad(x, (0, T - x.shape[1])) if x.dim() == 2 else x
    return {k: torch.cat([pad(p[k]) for p in parts]).cpu() for k in parts[0]}


def strip_rewards(group: Group) -> Group:
    return replace(group, episodes=tuple(replace(e, reward=None) for e in group.episodes))
