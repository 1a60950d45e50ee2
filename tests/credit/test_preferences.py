"""Pairs and imitation: of one task, without what is muted or failed."""

import pytest
from palaestra.credit.length import Shortest
from palaestra.credit.preferences import Compare, Rate
from palaestra.credit.rows import Imitate, Prefer
from palaestra.credit.steps import StepPairs
from palaestra.types import Episode, Group, Task

from tests.fake import episode


@pytest.mark.parametrize("credit", [Prefer(), Compare(), Rate(), StepPairs(), Shortest(pairs=True)])
def test_a_muted_episode_is_not_preferred_to_or_against(credit):
    """Of a right and a wrong answer either is muted: no pair has it, and it is not rated."""
    for muted in (0, 1):
        values = {"prefix_values": (0.5, 0.25)}
        both = tuple(episode((0,), (1, 2)[: 2 - r], float(r), muted=r == muted, facts=values) for r in (0, 1))
        found, _ = credit([Group(task=Task(id="t"), episodes=both)], [[[{}], [{}]]], {})
        rated = [float(1 - muted)] if isinstance(credit, Rate) else []
        assert [e.columns.get("target_total") for e in found] == rated


def test_errors_and_muted_episodes_are_not_imitated():
    told = episode((0,), (1, 2), 1.0), episode((0,), (1, 3), 1.0, muted=True), Episode(status="error:x")
    found, _ = Imitate()([Group(task=Task(id="t"), episodes=told)], [[[{}], [{}], []]], {})
    assert [e.row for e in found] == list(told[0].rows)


@pytest.mark.parametrize("credit", [Prefer(), Compare(), StepPairs(), StepPairs(form="whole"), Shortest(pairs=True)])
def test_a_pair_is_of_one_task(credit):
    """A right answer to one problem and a wrong one to another make none."""
    values = {"prefix_values": (0.5, 0.25)}
    right, wrong = (episode((0,), (1, 2)[: 2 - r], float(r), facts=values) for r in (1, 0))
    both = lambda *groups: [Group(task=Task(id=str(i)), episodes=g) for i, g in enumerate(groups)]
    assert credit(both((right,), (wrong,)), [[[{}]]] * 2, {})[0] == []
    found, _ = credit(both((right, wrong), (right, wrong)), [[[{}], [{}]]] * 2, {})
    assert len(found) == 4 and len({e.unit for e in found}) == 2
