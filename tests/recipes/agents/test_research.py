"""ReSearch: its reward by answer and form, and what is trained."""

import asyncio

import pytest
from palaestra.recipes.agents import research
from palaestra.types import Episode, Group, Reward, Row, Segment, Task

from tests.recipes.objectives.helpers import advantages, near, scored

THOUGHT = "<think>so</think>"
GOOD = (f"{THOUGHT}<search>boss of bako</search>", f"{THOUGHT}<answer>x</answer>")


def reward(answer, gold, *texts, malformed=0, status="finished", **options):
    segments = tuple(Segment(ids=(1,), logp=(-1.0,), trained=True, text=t) for t in texts or GOOD)
    facts = {"answer": answer, "malformed": malformed}
    e = Episode(rows=(Row(segments=segments),), reward=Reward(total=0.0), facts=facts, status=status)
    link = research.build(**options).collect.links[-1]
    (after,) = asyncio.run(link(None, ("k",), Group(task=Task(id="t", answer=gold), episodes=(e,)))).episodes
    return after.reward.total


def test_rewards_of_the_catalogue():
    assert reward(r"\boxed{york city}", "new york city") == pytest.approx(0.8)
    assert reward("new york city", "new york city") == 0  # right, without a box
    assert reward(r"\boxed{no}", "yes") == pytest.approx(0.1)
    assert reward(r"\boxed{no way}", "no") == pytest.approx(0.1)  # a closed answer is no part of another
    assert reward(r"\boxed{yes}", "Yes.") == 1


def test_a_broken_form_pays_nothing():
    right = r"\boxed{mema}"
    assert reward(right, "mema") == 1 == reward(right, ["deci", "mema"])
    assert reward(right, "mema", malformed=1) == 0
    assert reward(right, "mema", "<search>x</search>", GOOD[1]) == 0  # a turn without a thought
    assert reward(right, "mema", "<search>x</search>", GOOD[1], think=False) == 1
    assert reward("mema", "mema", boxed=False) == 1 == reward(right, "mema", boxed=False)
    assert reward(None, "mema", status="truncated:turns") == 0  # without an end
    assert reward(r"\boxed{deci}", "mema", floor=0.0) == 0


def test_advantages_of_the_catalogue():
    assert advantages(research.build(), *scored(1, 0.1, 0, 0.8)) == near(
        [1.051752, -0.751252, -0.951585, 0.651085], 5e-3
    )
