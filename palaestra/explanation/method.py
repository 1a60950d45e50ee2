"""What a method does to given rewards: advantages, and what multiplies the gradient of each token's
log-probability.

No model is needed: the weight of a token is minus the derivative of the loss to its log-prob, at
log-probs that are given or equal to the behaviour's (a ratio of 1). Nothing else that a model says
is made up: what the credit reads must be given, and without what only the loss reads there are no
weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch

from palaestra.abilities import PicksAnswers
from palaestra.errors import UserError
from palaestra.explanation.reading import (
    UNUSED_ADVANTAGES,
    derivative,
    dropped_groups_remark,
    links_of,
    muted_answers_remark,
    varies_within_episode,
)
from palaestra.explanation.trajectories import (
    LOGP,
    OF_ROWS,
    UNKNOWN_LENGTHS,
    Trajectory,
    groups_of,
    lacks_length,
    lengths_of,
    place,
)
from palaestra.method import Learner, Recipe
from palaestra.run.stages import check_stages
from palaestra.schedule import resolve
from palaestra.types import Example, Group, Signals
from palaestra.update import pack

MADE_ROWS = (
    "this method learns from rows that its credit makes of the answers, so an answer has no "
    "advantage of its own"
)


def explain(recipe: Recipe, groups: Sequence[Sequence[Trajectory]]) -> dict[str, Any]:
    """{"advantages": ..., "token_weights": per token of each trajectory, "notes": lines of text}.

    An advantage is a number a trajectory; of a method whose credit is by turn or token it is a list
    over its tokens. The weights are None where something is missing that the loss reads; a note
    names it. What changes with the step stands where it is at the end of the recipe's schedule.
    Raises UserError where the credit itself needs what is not given or makes rows of its own, and
    for a part of the recipe that does not fit its place.
    """
    check_stages(recipe)
    recipe = resolve(recipe, recipe.schedule.steps)
    name, learner = next(iter(recipe.learners.items()))
    built = pick_answers(recipe, groups_of(groups, name, _fields(learner)))
    signals = _signals(learner, groups)
    examples, _ = learner.credit(built, signals, {})
    where = {
        id(e.rows[0]): (g, i) for g, group in enumerate(built) for i, e in enumerate(group.episodes)
    }
    advantages = _advantages(
        examples, groups, where, varies_within_episode(learner.credit, built, signals)
    )
    notes = muted_answers_remark(built) + dropped_groups_remark(recipe.pool, built)
    weights = None
    if missing := _missing_fields(learner, groups):
        fields = " and ".join(map(repr, missing))
        them = "it" if len(missing) == 1 else "them"
        notes.append(
            f"no token_weights: the loss reads {fields}; add {them} to every trajectory (--group "
            "FILE.json)"
        )
    else:
        weights, unused = _weights(learner, examples, groups, where)
        notes += [UNUSED_ADVANTAGES] if unused else []
        notes += [UNKNOWN_LENGTHS] if any(map(lacks_length, chain(*groups))) else []
    return {"advantages": advantages, "token_weights": weights, "notes": notes}


def pick_answers(recipe: Recipe, groups: Sequence[Group]) -> list[Group]:
    """The groups as the recipe's collection leaves them where it trains on some answers alone."""
    picks = [link for link in links_of(recipe.collect) if isinstance(link, PicksAnswers)]
    picked: list[Group] = []
    for group in groups:
        for link in picks:
            group = link.pick(group)
        picked.append(group)
    return picked


def _advantages(
    examples: Sequence[Example],
    groups: Sequence[Sequence[Trajectory]],
    where: Mapping[int, tuple[int, int]],
    by_token: bool,
) -> list[list[Any]]:
    """Of each trajectory; 0 where it has no credit."""
    advantages: list[list[Any]] = [
        [[0.0] * sum(lengths_of(t)) if by_token else 0.0 for t in group] for group in groups
    ]
    for example in examples:
        if id(example.row) not in where:
            raise UserError(MADE_ROWS)
        g, i = where[id(example.row)]
        trained_T = example.row.view().trained_T
        credit = example.columns.get("advantage", example.columns.get("sign", 1.0))
        credit_N = np.broadcast_to(credit, trained_T.shape)[trained_T]
        advantages[g][i] = credit_N.tolist() if by_token else float(credit_N[0])
    return advantages


# ---- what a model would have said


def _needs(learner: Learner) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What is measured, by name, with the fields that may give it: of the policy "entropy", or
    apart from what the objective sees "policy_entropy"; of a frozen model "ref_logp".
    """
    for model, quantity in learner.needs:
        name = f"{model}_{quantity}"
        yield name, (name, quantity) if model == "policy" else (name,)


def _fields(learner: Learner) -> list[str]:
    """Fields that this learner reads."""
    return [
        *(f for _, fields in _needs(learner) for f in reversed(fields)),
        *learner.objective.needs,
    ]


def _missing_fields(learner: Learner, groups: Sequence[Sequence[Trajectory]]) -> list[str]:
    """Fields that some trajectory lacks. The policy's log-probs have a default."""
    asked = [*(fields for _, fields in _needs(learner)), *((n,) for n in learner.objective.needs)]
    every = [t for group in groups for t in group]
    lacking = [
        fields[-1] for fields in asked if not all(any(f in t for f in fields) for t in every)
    ]
    return list(dict.fromkeys(f for f in lacking if f != "logp"))


class _Measured(dict[str, np.ndarray]):
    """Signals of a row. One that was not given is missed when it is asked for, by the name of its
    field.
    """

    def __init__(self, columns: Mapping[str, np.ndarray], fields: Mapping[str, str], where: str):
        super().__init__(columns)
        self.fields, self.where = fields, where

    def __missing__(self, name: str) -> np.ndarray:
        if name not in self.fields:
            raise KeyError(name)
        raise UserError(
            f"{self.where} has no {self.fields[name]!r}, which the credit of this method needs; "
            "give it with --group FILE.json"
        )


def _signals(learner: Learner, groups: Sequence[Sequence[Trajectory]]) -> Signals:
    names = {name: fields[-1] for name, fields in _needs(learner)}

    def one(t: Trajectory, where: str) -> dict[str, np.ndarray]:
        t = {"logp": t.get("behaviour_logp", [LOGP] * sum(lengths_of(t))), **t}
        given = {name: next((f for f in fields if f in t), "") for name, fields in _needs(learner)}
        return _Measured(
            {name: _column(t, field) for name, field in given.items() if field}, names, where
        )

    return [[[one(t, place(g, i))] for i, t in enumerate(group)] for g, group in enumerate(groups)]


def _column(t: Trajectory, field: str) -> np.ndarray:
    """[1 + tokens] a field by token behind the one prompt token, or [1, D] a vector of the row."""
    values = np.asarray(t[field], np.float64)
    return (
        values[None]
        if field.removeprefix("policy_") in OF_ROWS
        else np.concatenate([[0.0], values])
    )


# ---- the loss


def _weights(
    learner: Learner,
    examples: Sequence[Example],
    groups: Sequence[Sequence[Trajectory]],
    where: Mapping[int, tuple[int, int]],
) -> tuple[list[list[list[float]]], bool]:
    """Weights of all tokens, and whether the loss leaves the advantages unused."""
    weights = [[[0.0] * sum(lengths_of(t)) for t in group] for group in groups]
    examples = [e for e in examples if np.any(e.columns.get("trained", e.row.view().trained_T))]
    batch = pack(examples, dtype=torch.float64)
    if batch is None:
        return weights, False
    rows = [where[id(e.row)] for e in examples]
    T, out = batch["ids"].shape[1], {"logp": batch["behaviour_logp"].clone()}
    for need in dict.fromkeys(("logp", *learner.objective.needs)):
        for b, (g, i) in enumerate(rows):
            if need in groups[g][i]:
                column = torch.from_numpy(_column(groups[g][i], need))
                shape = column.shape if column.dim() == 2 else (T,)
                out.setdefault(need, torch.zeros(len(rows), *shape, dtype=torch.float64))[
                    b, : len(column)
                ] = column
    found_BT, unused = derivative(learner.objective, out, batch)
    for b, (g, i) in enumerate(rows):  # a row may stand in several pairs
        weights[g][i] = [
            w + more for w, more in zip(weights[g][i], found_BT[b, 1:].tolist(), strict=False)
        ]
    return weights, unused
