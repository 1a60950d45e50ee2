"""Rewards in a weighted sum: totals by hand, parts by name, faults that stay faults."""

import asyncio

import pytest
from palaestra.errors import Fault, UserError
from palaestra.judges.pointwise import Judge
from palaestra.rewards.verified import Verified
from palaestra.rewards.verify import Verify
from palaestra.rewards.weighted import Weighted
from palaestra.services.chat.scripted import Scripted
from palaestra.tasks.oracle import episode_saying
from palaestra.types import Group, Message, Reward, Task

TASK = Task(id="t/0", prompt=(Message(role="user", content="2+2?"),), answer="4")


def short(text, task):
    return {"words": float(len(text.split())), "digits": 0.25}


def rewards(weighted, *texts):
    return asyncio.run(weighted(None, Group(task=TASK, episodes=tuple(map(episode_saying, texts)))))


def test_the_total_and_the_parts():
    """The judge gives (7 - 1) / 9 = 2/3, the check 2 words + 0.25: 3 * 2/3 - 0.5 * 2.25 = 0.875."""
    judge = Judge(client=Scripted(lambda request: "[[7]]"))
    (found,) = rewards(Weighted((("judge", judge, 3.0), ("form", Verify(short), -0.5))), "it's 4")
    assert found.total == pytest.approx(0.875)
    assert found.parts == {
        "judge": pytest.approx(2 / 3), "judge/agreement": 1.0, "judge/unparsed": 0.0, "form": 2.25, "form/words": 2.0,
        "form/digits": 0.25,
    }  # fmt: skip


def test_a_fault_of_one_part_is_the_episodes():
    judge = Judge(client=Scripted(lambda request: "[[7]]" if ">right<" in request.messages[-1].content else "seven"))
    found = rewards(Weighted((("form", Verify(short), 1.0), ("judge", judge, 1.0))), "right", "wrong")
    assert isinstance(found[0], Reward) and isinstance(found[1], Fault) and found[1].cause == "judge-unparsed"
    assert "it was told: Think first. End with a rating from 1 (worst) to 10 (best)" in str(found[1])


def test_a_part_that_fails_as_a_whole_leaves_every_episode_unscored():
    async def dead(ctx, group):
        raise Fault("chat-500", "down")

    found = rewards(Weighted((("form", Verify(short), 1.0), ("judge", dead, 1.0))), "right", "wrong")
    assert [f.cause for f in found] == ["chat-500"] * 2


def test_a_verifier_that_reads_no_answer_needs_one_beside_it():
    with pytest.raises(UserError, match="reads no answer"):
        Verified("tags")
    form = Weighted((("form", Verified("tags", beside=True), 0.5), ("exact", Verified("exact"), 1.0)))
    right, bare = rewards(form, "<think>2 and 2</think><answer>4</answer>", "4")
    assert (right.total, bare.total) == (1.5, 1.0)


def test_names_differ():
    with pytest.raises(UserError, match=r"named \['a', 'a'\]"):
        Weighted((("a", Verify(short), 1.0), ("a", Verify(short), 1.0)))
