"""Rewards in a weighted sum: totals by hand, parts by name, faults that stay faults."""

import asyncio
from dataclasses import replace

import pytest
from palaestra.errors import Fault, NotApplicable, UserError
from palaestra.judges.pointwise import Judge
from palaestra.rewards.verified import Verified
from palaestra.rewards.verify import Verify, response_text
from palaestra.rewards.weighted import Weighted
from palaestra.run.describe import describe
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


def test_a_part_is_a_mean_over_the_answers_that_it_judged():
    """Of four answers it judges those of one word: 1 and 3 characters. A part that is missing otherwise is 0."""

    async def lengths(ctx, group):
        texts = [response_text(e) for e in group.episodes]
        none = NotApplicable("two words")
        return [none if " " in t else Reward(total=float(len(t)), parts={"odd": 1.0}) for t in texts]

    async def rare(ctx, group):
        return [Reward(total=0.0, parts={"weak": 1.0} if i == 0 else {}) for i in range(len(group.episodes))]

    inner = Weighted((("length", lengths, 1.0), ("rare", rare, 1.0)))
    episodes = tuple(map(episode_saying, ("a", "a b", "abc", "c d")))
    for judge, name in ((inner, "{}"), (Weighted((("all", inner, 1.0),)), "all/{}")):
        found = asyncio.run(judge(None, Group(task=TASK, episodes=episodes)))
        assert [r.silent for r in found] == [(), (name.format("length"),)] * 2
        scored = tuple(replace(e, reward=r) for e, r in zip(episodes, found, strict=True))
        told = {k: v for k, v in describe([Group(task=TASK, episodes=scored)], []).items() if k.startswith("part")}
        length, odd, weak = (name.format(x) for x in ("length", "length/odd", "rare/weak"))
        assert told[f"part/{length}"] == 2.0 and told[f"part/{odd}"] == 1.0 and told[f"part/{weak}"] == 0.25
        assert {k: v for k, v in told.items() if k.startswith("part_share/")} == {
            f"part_share/{length}": 0.5, f"part_share/{odd}": 0.5,
        }  # fmt: skip


def test_the_bounds_of_a_sum_are_known_where_all_are():
    """2 * [0, 1] - [0, 1] and [0, 1] of the judge, whose unread replies cost 1 more."""
    judge = Judge(unparsed=-1.0)
    tags, exact = Verified("tags", beside=True), Verified("exact")
    assert Weighted((("exact", exact, 2.0), ("tags", tags, -1.0))).bounds == (-1.0, 2.0)
    assert judge.bounds == (-1.0, 1.0) and Verified("api-migration", paper=True).bounds is None
    assert Weighted((("exact", exact, 2.0), ("form", Verify(short), 1.0))).bounds is None


def test_names_differ():
    with pytest.raises(UserError, match=r"named \['a', 'a'\]"):
        Weighted((("a", Verify(short), 1.0), ("a", Verify(short), 1.0)))
