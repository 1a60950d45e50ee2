"""Controls of problems with media: what is left of a prompt, and whose media stand in it."""

import asyncio
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.pictures import PICTURE_MARK
from palaestra.run.media_exam import MediaExam
from palaestra.tasks.media import ControlledDraw, MediaControl, media_of
from palaestra.toys.screen import Screen
from palaestra.types import Message, Task

PLAIN = Screen()


def words(task):
    return [m.content.replace(PICTURE_MARK, "<>") for m in task.prompt]


def test_removed_media_leave_the_words_and_all_else():
    task = MediaControl("removed").tasks(PLAIN).task("test", 3)
    own = PLAIN.task("test", 3)
    assert task == replace(own, prompt=Screen(blind=True).task("test", 3).prompt)
    assert MediaControl().tasks(PLAIN) is PLAIN


def test_swapped_media_are_those_of_the_next_problem():
    swapped = MediaControl("swapped").tasks(PLAIN)
    for i in range(6):
        task, own = swapped.task("train", i), PLAIN.task("train", i)
        assert media_of(task) == media_of(PLAIN.task("train", i + 1)) != media_of(own)
        assert replace(task, prompt=own.prompt) == own and words(task) == words(own)


class Listed:
    """Tasks of a list, the same ones in both splits."""

    name = "listed"

    def __init__(self, *tasks):
        self.listed = tasks
        self.size = self.test_size = len(tasks)

    def task(self, split, index):
        return self.listed[index]


def asking(identity, *pictures, text="which?", **meta):
    message = Message(role="user", content=PICTURE_MARK * len(pictures) + text, pictures=pictures)
    return Task(id=identity, prompt=(message,), meta=meta)


def test_a_donor_has_as_many_media_and_none_in_common():
    a, b, c, d = (media_of(PLAIN.task("train", i))[0] for i in range(4))
    source = Listed(asking("0", a), asking("1", a), asking("2", b, c), asking("3", d), asking("4"))
    swapped = MediaControl("swapped").tasks(source)
    assert [media_of(swapped.task("test", i)) for i in (0, 1, 3, 4)] == [(d,), (d,), (a,), ()]
    with pytest.raises(UserError, match="has media to swap in"):
        swapped.task("test", 2)
    apart = Listed(asking("0", a))
    apart.task = lambda split, index: asking("t", d) if split == "train" else asking("0", a)
    assert media_of(MediaControl("swapped").tasks(apart).task("test", 0)) == (d,)


def test_without_the_question_options_and_instruction_stay():
    (a,) = media_of(PLAIN.task("train", 0))
    bare = MediaControl(question=False)
    options = ("red", "blue")
    listed = asking("0", a, text="Which colour?\nA. red\nB. blue", options=options)
    assert words(bare.apply(listed)) == ["<>A. red\nB. blue"]
    other = asking("0", a, text="Which colour?\n(A) red\n(B) blue\nsay", options=options)
    assert words(bare.apply(other)) == ["<>(A) red\n(B) blue"]
    told = replace(asking("0", a, text="Which colour? Say it."), instruction="Say it.")
    assert words(bare.apply(told)) == ["<>Say it."]
    named = asking("0", a, text="Hear this. Which? Choose: red", question="Which?")
    assert words(bare.apply(named)) == ["<>Hear this.  Choose: red"]
    assert words(bare.apply(asking("0", a))) == ["<>"]
    with pytest.raises(UserError, match="nothing left"):
        MediaControl("removed", question=False).apply(asking("0", a))
    with pytest.raises(UserError, match="'remove' is unknown"):
        MediaControl("remove")


def test_a_draw_is_controlled_and_draws_the_same_problems(context):
    ctx = context("screen")
    plain, _ = pl.Shuffled()(ctx, ("k",), 4, {})
    same, _ = asyncio.run(ControlledDraw(pl.Shuffled())(ctx, ("k",), 4, {}))
    bare, state = asyncio.run(ControlledDraw(pl.Shuffled(), MediaControl("removed"))(ctx, ("k",), 4, {}))
    assert same == plain and state == {"cursor": 4}
    assert [t.id for t in bare] == [t.id for t in plain] and not any(map(media_of, bare))


def test_the_exam_measures_each_condition_on_the_same_problems(context, monkeypatch):
    """Answers that repeat how many pictures were seen and how many words were read."""
    asked, judges = {}, []

    async def attempt(ctx, n, sample, *, split="test", label=""):
        tasks = [ctx.bench.tasks.task(split, i) for i in range(n)]
        asked[label] = tasks
        judges.append(ctx.bench.reward)
        seen = [float(bool(media_of(t)) and t.prompt[0].content.strip(PICTURE_MARK) != "") for t in tasks]
        rewards = [pl.Reward(total=x, solved=bool(x)) for x in seen]
        return [
            pl.Group(task=t, episodes=(pl.Episode(reward=r, status="finished"),))
            for t, r in zip(tasks, rewards, strict=True)
        ]

    monkeypatch.setattr("palaestra.run.media_exam.attempt_tasks", attempt)
    ctx = context("screen")
    records = asyncio.run(MediaExam(n=5)(ctx))
    assert {k: records[k]["mean"] for k in asked_names(asked)} == {
        "kept": 1.0, "removed": 0.0, "swapped": 1.0, "no question": 0.0,
    }  # fmt: skip
    assert records["used"] == 1.0 and set(judges) == {ctx.bench.reward}
    judges.clear()
    asyncio.run(MediaExam(n=5, reward=len)(ctx))
    assert judges == [len] * 4
    assert len({tuple(t.id for t in tasks) for tasks in asked.values()}) == 1
    assert asyncio.run(MediaExam(n=5)(context("screen(blind=True)"))) == {"without": 5}
    with pytest.raises(UserError, match="conditions"):
        MediaExam(conditions=("removed",))


def asked_names(asked):
    return [label.removeprefix("media ") for label in asked]


def test_the_benefit_is_the_gain_that_needs_the_media():
    """omni-r1's reference: (0.70 - 0.60) - (0.52 - 0.45) = 0.03."""
    found = lambda kept, removed: {"kept": {"mean": kept}, "removed": {"mean": removed}, "used": kept - removed}
    exam = MediaExam()
    assert exam.compare(found(0.60, 0.45), found(0.70, 0.52)) == {"benefit": pytest.approx(0.03)}
    assert exam.compare({"without": 3}, found(0.70, 0.52)) == {}
