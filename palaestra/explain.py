"""What a method does to given rewards: advantages, and what multiplies the gradient of each token's log-probability.

No model is needed: the weight of a token is minus the derivative of the loss to its log-prob, at log-probs that are given or
equal to the behaviour's (a ratio of 1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from palaestra.schedule import resolve
from palaestra.step import Learner, Recipe
from palaestra.types import Episode, Event, Group, Reward, Row, Segment, Signals, Task, UserError
from palaestra.update import pack

FIELDS = (
    "reward", "length", "tokens", "turn_rewards", "turn_lengths", "logp", "behaviour_logp", "ref_logp", "entropy", "value",
)  # fmt: skip
FACTS = (  # known of the episode; the first three by turn
    "states", "executed", "gold_prob", "stratum", "agent", "prefix_values", "critiques",
)  # fmt: skip
LENGTH = 4  # tokens of a trajectory whose length is not given
LOGP = -1.0  # nats of a token whose log-prob is not given

Trajectory = Mapping[str, Any]


def explain(recipe: Recipe, groups: Sequence[Sequence[Trajectory]]) -> dict[str, Any]:
    """{"advantages": per trajectory (a list where it differs by token), "token_weights": per token of each trajectory}.

    What changes with the step stands where it is at the end of the recipe's schedule.
    """
    name, learner = next(iter(resolve(recipe.learners, recipe.schedule.steps).items()))
    fields = tuple(dict.fromkeys((*FIELDS, *FACTS, *_quantities(learner))))
    built = [
        Group(task=Task(id=str(g)), episodes=tuple(_episode(t, g, i, name, fields) for i, t in enumerate(group)))
        for g, group in enumerate(groups)
    ]
    signals = _signals(learner, groups)
    examples, _ = learner.credit(built, signals, {})
    weights = _weights(learner, examples, groups, built)
    place = {id(e.rows[0]): (g, i) for g, group in enumerate(built) for i, e in enumerate(group.episodes)}
    advantages: list[list[Any]] = [[0.0] * len(group) for group in groups]
    for example in examples:
        g, i = place[id(example.row)]
        found = example.columns.get("advantage", example.columns.get("sign", 1.0))
        if np.ndim(found):
            found = np.asarray(found)[example.row.view().trained_T]
            found = float(found[0]) if len(found) and np.ptp(found) < 1e-12 else found.tolist()
        advantages[g][i] = found
    return {"advantages": advantages, "token_weights": weights}


def lengths_of(trajectory: Trajectory) -> list[int]:
    """Tokens of each turn."""
    if "turn_lengths" in trajectory:
        return [int(n) for n in trajectory["turn_lengths"]]
    for name in ("tokens", "logp", "behaviour_logp", "ref_logp", "entropy", "value"):
        if name in trajectory:
            return [len(trajectory[name])]
    return [int(trajectory.get("length", LENGTH))]


def _quantities(learner: Learner) -> list[str]:
    """Fields that this learner reads: "ref_logp" of a frozen model; of the policy "entropy", or apart from what the
    objective sees "policy_entropy"."""
    measured = [n for m, q in learner.needs for n in ([f"{m}_{q}"] if m != "policy" else [q, f"policy_{q}"])]
    return [*measured, *learner.objective.needs]


def _episode(t: Trajectory, group: int, index: int, policy: str, fields: Sequence[str]) -> Episode:
    unknown = set(t) - set(fields)
    if unknown:
        raise UserError(
            f"trajectory {index} of group {group}: unknown field {sorted(unknown)[0]!r}; there are {', '.join(fields)}"
        )
    lengths = lengths_of(t)
    n = sum(lengths)
    ids = t.get("tokens") or [10 + group + 1000 * index + k for k in range(n)]
    logp = t.get("behaviour_logp", t.get("logp", [LOGP] * n))
    for name, given in (
        ("tokens", ids),
        ("logp", logp),
        *((f, t[f]) for f in ("ref_logp", "entropy", "value") if f in t),
    ):
        if len(given) != n:
            raise UserError(f"trajectory {index} of group {group}: {name} has {len(given)} values for {n} tokens")
    segments, start = [Segment(ids=(0,), turn=0)], 0
    for turn, length in enumerate(lengths):
        piece = slice(start, start + length)
        said = Segment(
            ids=tuple(int(x) for x in ids[piece]),
            logp=tuple(map(float, logp[piece])),
            author="policy",
            policy=policy,
            trained=True,
            turn=turn,
            version=0,
        )
        segments.append(said)
        start += length
    facts = {k: t[k] for k in FACTS if k in t}
    return Episode(
        rows=(Row(segments=tuple(segments)),), reward=_reward(t, lengths, group, index), status="finished", facts=facts
    )


def _reward(t: Trajectory, lengths: list[int], group: int, index: int) -> Reward:
    paid = t.get("turn_rewards")
    if "reward" not in t and paid is None:
        raise UserError(f"trajectory {index} of group {group} has neither reward nor turn_rewards")
    if paid is None:
        return Reward(total=float(t["reward"]))
    if len(paid) != len(lengths):
        raise UserError(f"trajectory {index} of group {group}: {len(paid)} turn_rewards for {len(lengths)} turns")
    events = tuple(
        Event(row=0, token=int(end), value=float(x)) for end, x in zip(np.cumsum(lengths), paid, strict=True)
    )
    return Reward(total=float(t.get("reward", sum(paid))), events=events)


def _field(t: Trajectory, name: str, why: str) -> np.ndarray:
    """[1 + tokens] a per-token field behind the one prompt token."""
    if name not in t:
        raise UserError(f"the method needs {name!r} of every trajectory ({why}); give it with --group FILE.json")
    found = np.asarray(t[name], np.float64)
    if found.ndim != 1:
        raise UserError(f"{name!r} takes one number a token; what acts on whole distributions has no token weights")
    return np.concatenate([[0.0], found])


def _signals(learner: Learner, groups: Sequence[Sequence[Trajectory]]) -> Signals:
    def one(t: Trajectory) -> dict[str, np.ndarray]:
        found = {}
        for model, quantity in learner.needs:
            field = f"{model}_{quantity}"
            field = quantity if model == "policy" and field not in t else field
            if field == "logp":
                t = {"logp": t.get("behaviour_logp", [LOGP] * sum(lengths_of(t))), **t}
            found[f"{model}_{quantity}"] = _field(t, field, f"the {quantity} of {model}")
        return found

    return [[[one(t)] for t in group] for group in groups]


def _weights(
    learner: Learner, examples: list[Any], groups: Sequence[Sequence[Trajectory]], built: list[Group]
) -> list[Any]:
    weights: list[list[list[float]]] = [[[0.0] * sum(lengths_of(t)) for t in group] for group in groups]
    examples = [e for e in examples if e.row.view().trained_T.any()]
    batch = pack(examples, dtype=torch.float64)
    if batch is None:
        return weights
    place = {id(e.rows[0]): (g, i) for g, group in enumerate(built) for i, e in enumerate(group.episodes)}
    rows = [place[id(e.row)] for e in examples]
    given = {"logp": batch["behaviour_logp"].clone()}
    for need in ("logp", *learner.objective.needs):
        if need == "logp" and not any("logp" in t for group in groups for t in group):
            continue
        given[need] = torch.zeros_like(batch["behaviour_logp"])
        for b, (g, i) in enumerate(rows):
            values = torch.from_numpy(_field(groups[g][i], need, "an output of the model"))
            given[need][b, : len(values)] = values
    out = {k: v.requires_grad_() for k, v in given.items()}
    loss, _ = learner.objective(out, batch)
    gradient = torch.autograd.grad(loss, [out["logp"]], allow_unused=True, materialize_grads=True)[0]
    for b, (g, i) in enumerate(rows):
        weights[g][i] = (0.0 - gradient[b, 1 : 1 + len(weights[g][i])]).tolist()
    return weights


def read_groups(rewards: str | None, lengths: str | None, file: str | None) -> list[list[Trajectory]]:
    """The groups of the command line: `--rewards [--lengths]`, or `--group FILE.json`."""
    if file is not None:
        return _checked(_json(Path(file), f"--group {file}"))
    if rewards is None:
        raise UserError("give --rewards '[[1,0,0,0]]' or --group FILE.json")
    totals, sizes = _json(rewards, "--rewards"), _json(lengths, "--lengths") if lengths else None
    if not isinstance(totals, list) or not all(isinstance(g, list) for g in totals):
        raise UserError("--rewards must be a list of groups, such as [[1,0,0,0]]")
    if sizes is not None and [len(g) for g in sizes] != [len(g) for g in totals]:
        raise UserError("--lengths must have the shape of --rewards")
    return [
        [{"reward": r} | ({"length": sizes[g][i]} if sizes else {}) for i, r in enumerate(group)]
        for g, group in enumerate(totals)
    ]


def _json(source: str | Path, name: str) -> Any:
    try:
        return json.loads(source.read_text() if isinstance(source, Path) else source)
    except OSError as error:
        raise UserError(f"{name}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{name}: not JSON: {error}") from None


def _checked(groups: Any) -> list[list[Trajectory]]:
    """A group, a list of groups, or {"groups": [...]}; trajectories are objects."""
    if isinstance(groups, dict):
        groups = groups.get("groups", groups.get("trajectories"))
    if isinstance(groups, list) and groups and isinstance(groups[0], dict):
        groups = [groups]
    good = isinstance(groups, list) and all(
        isinstance(g, list) and g and all(isinstance(t, dict) for t in g) for g in groups
    )
    if not good or not groups:
        raise UserError(
            '--group: expected a list of groups, each a list of trajectories such as {"reward": 1, "length": 5}'
        )
    return groups
