"""Clip and Delta: shaped scores of steps by hand, bounds, and where they are paid."""

import asyncio
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra.errors import Fault, UserError
from palaestra.recipes.rewards import clip_delta
from palaestra.services.chat.scripted import Scripted
from palaestra.types import Episode, Group, Reply

from tests.rewards.texts import Clients, asked, door, spoken

Q = [0.9, 0.4, 0.95, 0.8]


def test_clip_delta_reference_values():
    assert clip_delta.shape_rewards(Q, "plain", 0.7) == Q
    assert clip_delta.shape_rewards(Q, "clip", 0.7) == pytest.approx([0, -0.3, 0, 0])
    assert clip_delta.shape_rewards(Q, "delta", 0.7) == pytest.approx([0.5, -0.55, 0.95, 0])
    assert clip_delta.shape_rewards(Q, "clip-delta", 0.7) == pytest.approx([0.3, -0.3, 0, 0])
    assert clip_delta.shape_rewards([0.9, 0.4], "clip", 0.7, keep_last=False) == pytest.approx([0, 0])


@pytest.mark.parametrize("k", [4, 40])
def test_clip_delta_repetition_pays_only_when_plain(k):
    paid = {
        shape: sum(clip_delta.shape_rewards([0.9] * k, shape, 0.7))
        for shape in ("plain", "clip", "delta", "clip-delta")
    }
    assert paid == pytest.approx({"plain": 0.9 * k, "clip": 0, "delta": 0.9, "clip-delta": 0})


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12))
def test_clip_delta_returns_are_bounded(q):
    delta, both = (clip_delta.shape_rewards(q, s, 0.7) for s in ("delta", "clip-delta"))
    for k in range(len(q) - 1):
        assert sum(delta[k:]) == pytest.approx(q[k])
    assert all(sum(both[k:]) <= 1e-12 for k in range(len(q)))
    assert delta[-1] == both[-1] == 0


@pytest.mark.parametrize("shape", ["plain", "clip", "delta", "clip-delta"])
def test_clip_delta_of_nothing_and_of_one_step(shape):
    assert clip_delta.shape_rewards([], shape, 0.7) == []
    assert clip_delta.shape_rewards([0.4], shape, 0.7) == pytest.approx(
        {"plain": [0.4], "clip": [-0.3], "delta": [0], "clip-delta": [0]}[shape]
    )


def test_clip_delta_pays_at_the_last_token_of_each_step():
    task = asked("1+2+4 mod 10", "7", modulo=10)
    text = "1+2=3\n3+4=8\nok\n= 7"
    link = clip_delta.BoundedStepRewards("plain", alpha=0.5, eta=0.7, prm=clip_delta.TrueLines())
    group = Group(task=task, episodes=(spoken(text, 1.0), spoken("", 0.0), Episode(status="error:x")))
    full, empty, broken = asyncio.run(link(door(), (), group)).episodes
    assert [e.value for e in full.reward.events] == pytest.approx([0.5, 0.0, 0.5, 0.35])
    assert [e.token for e in full.reward.events] == [6, 12, 15, 19]  # one prompt token, line breaks included, the end
    assert full.total == pytest.approx(2.35) and full.reward.parts["right"] == 1.0
    assert empty.total == 0 and empty.reward.events == () and broken.reward is None


def test_clip_delta_reward_sits_where_gae_reads_it():
    from palaestra.credit.gae import token_rewards
    from palaestra.credit.table import Table

    link = clip_delta.BoundedStepRewards("clip", alpha=1.0, eta=0.7, prm=clip_delta.TrueLines())
    group = asyncio.run(link(door(), (), Group(task=asked(modulo=10), episodes=(spoken("1+2=4\n= 3", 1.0),))))
    found = token_rewards(Table([group], [], {}))
    assert found[5] == pytest.approx(-0.7) and found[-1] == pytest.approx(1.0) and found.sum() == pytest.approx(0.3)


def test_clip_delta_true_lines():
    prm, task = clip_delta.TrueLines(), asked(modulo=10)
    lines = ["7*8=6", "7*8=56", "ok", "word", "= 3", "9" * 50 + "+1=1", "3-5=8"]
    assert prm.scores(task, lines) == [1, 0, 1, 0, None, 0, 1]
    assert prm.scores(asked(), ["9+8+1=18", "7*8=56"]) == [1, 1]


def test_clip_delta_asks_a_model_about_every_prefix():
    seen = []

    def unsure(request):
        shown = request.messages[-1].content.partition("<response>")[2].partition("</response>")[0]
        seen.append(shown)
        p = 0.25 if "wrong" in shown else 0.75
        return Reply(text="", choices={"Yes": math.log(p), "No": math.log(1 - p)})

    scores = asyncio.run(clip_delta.StepJudge(Scripted(unsure))(Clients(), asked(), ["one", "wrong", "= 3"]))
    assert scores == pytest.approx([0.75, 0.25, 0.25]) and sorted(seen) == ["one", "one\nwrong", "one\nwrong\n= 3"]


def test_clip_delta_reads_a_word_and_leaves_out_what_says_nothing():
    def word(request):
        shown = request.messages[-1].content
        if "down" in shown:
            raise Fault("chat-500")
        return "hm" if "silent" in shown else "[[No]]" if "wrong" in shown else "[[Yes]]"

    judge = clip_delta.StepJudge(Scripted(word), "words")
    assert asyncio.run(judge(Clients(), asked(), ["one", "wrong", "silent"])) == [1.0, 0.0, None]
    with pytest.raises(Fault, match="chat-500"):
        asyncio.run(judge(Clients(), asked(), ["down"]))


def test_clip_delta_needs_a_process_reward_model():
    link = clip_delta.build().collect.links[-1]
    with pytest.raises(UserError, match="prm=DIR"):
        asyncio.run(link(door(), (), Group(task=asked(), episodes=(spoken("= 3", 1.0),))))
