"""Trajectories that somebody wrote down: read, checked field by field, made into episodes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.errors import UserError
from palaestra.types import Episode, Event, Group, Reward, Row, Segment, Task

Trajectory = Mapping[str, Any]
LENGTH = 4  # tokens of a trajectory whose length is not given
LOGP = -1.0  # nats of a token whose log-prob is not given
BY_TOKEN = ("tokens", "logp", "behaviour_logp", "ref_logp", "entropy", "value")
# quantities that are a vector for the whole row, of any length
OF_ROWS = ("head_gradient", "embedding")


# ---- kinds of values


def is_number(x: Any) -> bool:
    try:
        return isinstance(x, Real) and math.isfinite(x)
    except OverflowError:  # an integer beyond the floats
        return False


def is_whole(x: Any, least: int = 0) -> bool:
    return is_number(x) and not isinstance(x, bool) and x == int(x) and x >= least


def is_list_of(x: Any, kind: Callable[[Any], bool], least: int = 1) -> bool:
    listed = isinstance(x, list | tuple) or (isinstance(x, np.ndarray) and x.ndim > 0)
    return listed and len(x) >= least and all(map(kind, x))


KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "reward": ("a finite number", is_number),
    "length": ("a whole number of at least 1", lambda x: is_whole(x, 1)),
    "tokens": (
        "a list of token ids, whole numbers of at least 0",
        lambda x: is_list_of(x, is_whole),
    ),
    "turn_rewards": ("a list of finite numbers, one a turn", lambda x: is_list_of(x, is_number)),
    "turn_lengths": (
        "a list of whole numbers of at least 1, one a turn",
        lambda x: is_list_of(x, lambda n: is_whole(n, 1)),
    ),
    # facts of the episode
    "states": ("a list of states, one a turn", lambda x: is_list_of(x, lambda s: True)),
    "executed": ("a list of truth values, one a turn", lambda x: is_list_of(x, is_number)),
    "gold_prob": ("a list of probabilities, one a turn", lambda x: is_list_of(x, is_number)),
    "stratum": ("a number or a text", lambda x: is_number(x) or isinstance(x, str)),
    "agent": ("a number or a text", lambda x: is_number(x) or isinstance(x, str)),
    "prefix_values": (
        "a list of two or more finite numbers",
        lambda x: is_list_of(x, is_number, 2),
    ),
    "critiques": (
        "a list of lists of step numbers",
        lambda x: is_list_of(x, lambda c: is_list_of(c, is_whole, 0), 0),
    ),
}
# what any other field is
NUMBERS = ("a list of finite numbers", lambda x: is_list_of(x, is_number))
# of the episode
FACTS = ("states", "executed", "gold_prob", "stratum", "agent", "prefix_values", "critiques")
FIELDS = ("reward", "length", "tokens", "turn_rewards", "turn_lengths", *BY_TOKEN[1:], *FACTS)


UNKNOWN_LENGTHS = (
    f"no length is given (--lengths '[[5,9,3,7]]'), so {LENGTH} tokens are taken, and token_weights hold for "
    "these"
)

# ---- to episodes


def place(group: int, index: int) -> str:
    return f"trajectory {index} of group {group}"


def lengths_of(trajectory: Trajectory) -> list[int]:
    """Tokens of each turn."""
    if "turn_lengths" in trajectory:
        return [int(n) for n in trajectory["turn_lengths"]]
    for name in BY_TOKEN:
        if name in trajectory:
            return [len(trajectory[name])]
    return [int(trajectory.get("length", LENGTH))]


def lacks_length(trajectory: Trajectory) -> bool:
    """Whether nothing says how many tokens it has."""
    return not {"turn_lengths", "length", *BY_TOKEN} & set(trajectory)


def groups_of(
    groups: Sequence[Sequence[Trajectory]], policy: str, quantities: Sequence[str]
) -> list[Group]:
    """Groups of finished episodes whose tokens are the policy's; `quantities` are further fields a
    method reads.

    Raises UserError that names group, trajectory and field.
    """
    if not groups or not all(groups):
        raise UserError(
            "there is no group, or one without a trajectory; give rewards such as [[1,0,0,0]]"
        )
    for g, group in enumerate(groups):
        for i, t in enumerate(group):
            check(t, place(g, i), (*FIELDS, *quantities))
    for name in {
        n for group in groups for t in group for n in t if n.removeprefix("policy_") in OF_ROWS
    }:
        if len({len(t[name]) for group in groups for t in group if name in t}) > 1:
            raise UserError(f"{name} must have the same length in every trajectory")
    return [
        Group(
            task=Task(id=str(g)),
            episodes=tuple(_episode(t, g, i, policy) for i, t in enumerate(group)),
        )
        for g, group in enumerate(groups)
    ]


def check(t: Trajectory, where: str, fields: Sequence[str]) -> None:
    """Raises UserError for an unknown field, a value of another kind, and lengths that do not
    agree.
    """
    for name, given in t.items():
        if name not in fields:
            known = ", ".join(dict.fromkeys(fields))
            raise UserError(f"{where}: unknown field {name!r}; there are {known}")
        kind, fits = KINDS.get(name, NUMBERS)
        if not fits(given):
            raise UserError(f"{where}: {name} must be {kind}, not {shorten(given)}")
    if "reward" not in t and "turn_rewards" not in t:
        raise UserError(f"{where} has neither reward nor turn_rewards")
    lengths = lengths_of(t)
    n = sum(lengths)
    for name in t:
        by_token = name not in KINDS and name.removeprefix("policy_") not in OF_ROWS
        if (name == "tokens" or by_token) and len(t[name]) != n:
            raise UserError(f"{where}: {name} has {len(t[name])} values for {n} tokens")
    if t.get("length", n) != n:
        raise UserError(f"{where}: length says {t['length']} tokens, its other fields {n}")
    if len(t.get("turn_rewards", lengths)) != len(lengths):
        raise UserError(f"{where}: {len(t['turn_rewards'])} turn_rewards for {len(lengths)} turns")


def shorten(given: Any) -> str:
    """A value as it stands in a file, shortened."""
    text = json.dumps(given, default=str)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _episode(t: Trajectory, group: int, index: int, policy: str) -> Episode:
    lengths = lengths_of(t)
    n = sum(lengths)
    ids = t.get("tokens", [10 + group + 1000 * index + k for k in range(n)])
    logp = t.get("behaviour_logp", t.get("logp", [LOGP] * n))
    segments, start = [Segment(ids=(0,), turn=0)], 0
    for turn, length in enumerate(lengths):
        piece = slice(start, start + length)
        segment = Segment(
            ids=tuple(int(x) for x in ids[piece]),
            logp=tuple(map(float, logp[piece])),
            author="policy",
            policy=policy,
            trained=True,
            turn=turn,
            version=0,
        )
        segments.append(segment)
        start += length
    facts = {k: t[k] for k in FACTS if k in t}
    return Episode(
        rows=(Row(segments=tuple(segments)),),
        reward=_reward(t, lengths),
        status="finished",
        facts=facts,
    )


def _reward(t: Trajectory, lengths: list[int]) -> Reward:
    paid = t.get("turn_rewards")
    if paid is None:
        return Reward(total=float(t["reward"]))
    events = tuple(
        Event(row=0, token=int(end), value=float(x))
        for end, x in zip(np.cumsum(lengths), paid, strict=True)
    )
    return Reward(total=float(t.get("reward", sum(paid))), events=events)


# ---- from the command line


def read_groups(
    rewards: str | None, lengths: str | None, file: str | None
) -> list[list[Trajectory]]:
    """The groups of the command line: `--rewards [--lengths]`, or `--group FILE.json`."""
    if file is not None:
        return groups_from(None, None, _json(Path(file), f"--group {file}"))
    if rewards is None:
        raise UserError("give --rewards '[[1,0,0,0]]' or --group FILE.json")
    return groups_from(
        _json(rewards, "--rewards"), None if lengths is None else _json(lengths, "--lengths"), None
    )


def groups_from(rewards: Any, lengths: Any, groups: Any) -> list[list[Trajectory]]:
    """Groups from nested lists of rewards and lengths, or from trajectories. Raises UserError for
    another shape.
    """
    if groups is not None:
        return _trajectories(groups)
    totals, sizes = _check_nested(rewards, "--rewards", "[[1,0,0,0]]"), None
    if lengths is not None:
        sizes = _check_nested(lengths, "--lengths", "[[5,9,3,7]]")
        if [len(g) for g in sizes] != [len(g) for g in totals]:
            raise UserError("--lengths must have the shape of --rewards")
    return [
        [{"reward": r} | ({"length": sizes[g][i]} if sizes else {}) for i, r in enumerate(group)]
        for g, group in enumerate(totals)
    ]


def _check_nested(groups: Any, name: str, example: str) -> list[list[Any]]:
    if (
        not isinstance(groups, list)
        or not groups
        or not all(isinstance(g, list) and g for g in groups)
    ):
        raise UserError(f"{name} must be a list of groups, none of them empty, such as {example}")
    return groups


def _json(source: str | Path, name: str) -> Any:
    try:
        return json.loads(source.read_text() if isinstance(source, Path) else source)
    except OSError as error:
        raise UserError(f"{name}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name}: not JSON: {error}") from None


def _trajectories(groups: Any) -> list[list[Trajectory]]:
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
            '--group: expected a list of groups, each a list of trajectories such as {"reward": 1, '
            '"length": 5}'
        )
    return groups
