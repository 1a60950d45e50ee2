"""Labels of an answer, and rewards that stand beside the reward."""

import asyncio

import numpy as np
import pytest
from palaestra.errors import Fault, UserError
from palaestra.rewards.labels import QUALITY_LABELS, Also, Beside, Labels, Noisy, RecordedRatings, text_properties
from palaestra.rollout.collect import links
from palaestra.types import Episode, Group, Reward, stage

from tests.rewards.labelled import group, reward_of, said


@stage
class Broken:
    """A judge that fails for one text."""

    async def __call__(self, ctx, group):
        return [Fault("down") if "x" in e.text else Reward(total=1.0, parts={"a": 0.25}) for e in group.episodes]


def test_properties_of_an_answer():
    assert text_properties("2+2=4\n= 4") == {"worked": pytest.approx(1 / 3), "brief": 1 - 9 / 40, "tidy": 1.0}
    assert text_properties("= 4\n= 4")["tidy"] == 0 and text_properties("1=1\n1=1\n= 4")["tidy"] == 0
    assert text_properties("") == {"worked": 0.0, "brief": 1.0, "tidy": 0.0} and text_properties("9" * 99)["brief"] == 0


def test_labels_know_the_bench(context):
    right, wrong = reward_of(Labels(), context(), "= 4", "= 5")
    assert tuple(right.parts) == QUALITY_LABELS and right.parts["right"] == 1 and wrong.parts["right"] == 0
    assert right.total == pytest.approx((1 + 0 + 0.925 + 1) / 4)
    with pytest.raises(UserError, match="pays by itself"):
        reward_of(Labels(), context("grid"), "= 4")


def test_noise_is_the_same_for_the_same_seed(context):
    texts = ["= 4"] * 400
    flipped = [r.total for r in reward_of(Noisy(share=0.25), context(), *texts)]
    assert flipped == [r.total for r in reward_of(Noisy(share=0.25), context(), *texts)]
    assert np.mean(flipped) == pytest.approx(0.75, abs=0.07) and set(flipped) == {0.0, 1.0}
    assert {r.total for r in reward_of(Noisy(share=0.0), context(), *texts)} == {1.0}


def test_beside_and_also_leave_the_reward_alone(context):
    before = group(said("= 4", 0.5, own=0.5), said("x", 0.7), said("= 5"), Episode(status="error:dead"))
    after = asyncio.run(Beside(Broken(), "b")(context(), (), before))
    assert (
        dict(after.episodes[0].reward.parts) == {"own": 0.5, "b": 1.0, "b/a": 0.25} and after.episodes[0].total == 0.5
    )
    assert not after.episodes[1].reward.parts and after.episodes[1].ok  # a fault costs the part, not the episode
    assert after.episodes[2:] == before.episodes[2:]
    more = asyncio.run(Also(links())(context(), (), before))
    assert [len(e.rows) for e in more.episodes] == [2, 2, 1, 0]


def test_recorded_ratings_are_what_a_reward_model_learns(context):
    task = group(meta={"reply": "Dear Sir,", "ratings": {"polite": 1, "safe": 0.5, "other": 0.1}}).task
    (made,) = asyncio.run(
        RecordedRatings(("polite", "safe", "brief"), "policy")(context(), ("k",), Group(task=task))
    ).episodes
    assert made.reward.parts == {"label/polite": 1.0, "label/safe": 0.5} and made.reward.total == 0.75
    assert made.rows[-1].segments[-1].text == "Dear Sir," and made.rows[-1].segments[-1].policy == "policy"


@pytest.mark.parametrize(
    "meta, match",
    [
        ({"ratings": {"polite": 1}}, "has no rated answer"),
        ({"reply": "x"}, "has no rated answer"),
        ({"reply": "x", "ratings": {"kind": 1}}, "is rated by kind, and none of polite"),
        ({"reply": "x", "ratings": {"polite": 7}}, "its rating 'polite' is 7; give a number from 0 to 1"),
        ({"reply": "x", "ratings": {"polite": True}}, "its rating 'polite' is True"),
    ],
)
def test_ratings_that_cannot_be_learned_are_refused(meta, match):
    with pytest.raises(UserError, match=match):
        RecordedRatings(("polite",)).ratings(group(meta=meta).task)
