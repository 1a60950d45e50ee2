"""Pairs of a group's episodes: who meets whom, what a pair says of itself, and how many of a pair are there."""

from collections import Counter
from dataclasses import replace

import pytest
from palaestra.credit.rows import Prefer
from palaestra.errors import UserError
from palaestra.types import Group

from tests.fake import episode, task


def group_of(rewards, lengths=None, facts=None):
    lengths = lengths or [2] * len(rewards)
    episodes = [episode((0,), tuple(range(1, n + 1)), r) for r, n in zip(rewards, lengths, strict=True)]
    return Group(task=task("t", (0,), ()), episodes=tuple(replace(e, facts=facts or {}) for e in episodes))


def pairs(credit, *groups):
    """Of each pair the places of the chosen and the rejected episode, and the column `gap`."""
    signals = [[[{}] for _ in g.episodes] for g in groups]
    examples, _ = credit(list(groups), signals, {})
    found = []
    for better, worse in zip(examples[::2], examples[1::2], strict=True):
        assert (better.columns["sign"], worse.columns["sign"]) == (1.0, -1.0) and better.unit == worse.unit
        assert better.columns["gap"] == worse.columns["gap"]
        rows = [e.rows[0] for e in groups[int(better.unit.split()[-1])].episodes]
        found.append((rows.index(better.row), rows.index(worse.row), better.columns["gap"]))
    return found


def told(rewards, lengths=None, **settings):
    """Episodes are told apart by their own length, so that no two rows are equal."""
    lengths = lengths or [i + 1 for i in range(len(rewards))]
    return pairs(Prefer(**settings), group_of(rewards, lengths))


def test_rlhf_workflow():
    """Best against worst; with .002 a token off, [-.04, .30, -.56, .40]: the brief good one is chosen."""
    rewards, lengths = [0.2, 1.1, -0.4, 0.7], [120, 400, 80, 150]
    assert told(rewards, lengths) == [(1, 2, pytest.approx(1.5))]
    assert told(rewards, lengths, length_cost=0.002) == [(3, 2, pytest.approx(0.96))]
    assert told(rewards, lengths, rule="max_max") == [(1, 3, pytest.approx(0.4))]


@pytest.mark.parametrize("rule", ["max_random", "random"])
def test_rules_that_draw(rule):
    rewards = [0.2, 1.1, -0.4, 0.7]
    groups = [group_of(rewards, [i + 1 + 10 * k for i in range(4)]) for k in range(1)]
    seen = Counter()
    for k in range(60):
        keyed = [
            replace(e, rows=tuple(replace(r, key=("run", k, i)) for r in e.rows))
            for i, e in enumerate(groups[0].episodes)
        ]
        ((better, worse, _),) = pairs(Prefer(rule=rule), replace(groups[0], episodes=tuple(keyed)))
        seen[better, worse] += 1
        assert rewards[better] > rewards[worse]
    assert set(seen) == ({(1, 0), (1, 2), (1, 3)} if rule == "max_random" else {
        (1, 0), (1, 2), (1, 3), (3, 0), (3, 2), (0, 2)
    })  # fmt: skip


@pytest.mark.parametrize("rule", ["", "max_random", "max_max", "random"])
def test_equal_rewards_make_no_pair(rule):
    """As of veriprefer: (1, .4) is a pair, (.4, .4) and two failures of 0 are none; a lone answer is none."""
    assert told([1.0, 0.4], rule=rule) == [(0, 1, pytest.approx(0.6))]
    for rewards in ([0.4, 0.4], [0.0, 0.0], [1.0]):
        assert told(rewards, rule=rule) == []


def test_the_data_say_how_clear_a_pair_is():
    assert pairs(Prefer(), group_of([1, 0], [1, 2], {"gap": -0.25})) == [(0, 1, -0.25)]


def recorded(n, author="demonstration"):
    group = group_of([1, 0][:n])

    def own(row):
        return replace(row, segments=tuple(replace(s, author=author) if s.trained else s for s in row.segments))

    return replace(group, episodes=tuple(replace(e, rows=tuple(map(own, e.rows))) for e in group.episodes))


def test_recorded_answers_without_pairs_are_refused():
    with pytest.raises(
        UserError,
        match=r"task 't' has one recorded answer and no pair.*write columns chosen and rejected.*`palaestra train kto`",
    ):
        pairs(Prefer(), recorded(1), recorded(1))
    assert pairs(Prefer(), recorded(1), recorded(2)) and pairs(Prefer(), recorded(1, "policy")) == []
