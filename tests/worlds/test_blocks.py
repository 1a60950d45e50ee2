"""Prompt blocks: what is asked in each, which may come next, and how grades are read."""

import asyncio

import numpy as np
import palaestra as pl
import pytest
from palaestra.types import Episode, Message, Row, Segment
from palaestra.worlds.blocks import DEBATE, DECOMPOSE, REASON, REFINE, TERMINATE, BlockRunner, BlockSpaces

from tests.rows import every

QUESTION = (Message(role="user", content="2+3+4?"),)
PROMPTS = pl.worlds.BlockPrompts(
    so_far="|", reason="|reason", decompose="|list", merge="|{ideas}|merge", debate="|plan",
    compare="|{ideas}|compare", refine="|refine", terminate="|answer", grade="|grade",
)  # fmt: skip


def said(text):
    segment = Segment(ids=(1,), logp=(0.0,), trained=True, policy="policy", text=text)
    return Episode(rows=(Row(segments=(segment,)),), status="finished")


def runner_of(reply, **given):
    """A runner whose model says `reply(what is asked)`, None = no room; and the requests made."""
    asked = []

    async def ask(prompt, name, temperature):
        asked.append((prompt[-1].content.removeprefix("2+3+4?"), name, temperature))
        text = reply(asked[-1][0])
        return None if text is None else said(text)

    return BlockRunner(QUESTION, ask, PROMPTS, **given), asked


def run(runner, *blocks):
    async def all_of():
        state = await runner.start()
        for block in blocks:
            state = await runner.run(state, block)
        return state

    return asyncio.run(all_of())


def replies(told):
    last = told.rpartition("|")[2]
    return {"grade": "3313222", "list": "add", "merge": "5+4=9", "plan": "left", "compare": "best"}.get(
        last, f"{last}!"
    )


def test_every_block_asks_for_its_part_and_grades_are_greedy():
    runner, asked = runner_of(replies)
    state = run(runner, REASON, DECOMPOSE)
    assert state.steps == ("reason!", "5+4=9") and state.grades == (3, 3, 1, 3, 2, 2, 2)
    assert asked == [
        ("|grade", "0  grade", 0.0),
        ("|reason", "0 reason step", 1.0), ("|reason!|grade", "0 reason grade", 0.0),
        ("|reason!|list", "0 reason decompose idea 0", 1.0),
        ("|reason!|add|merge", "0 reason decompose step", 1.0),
        ("|reason!\n5+4=9|grade", "0 reason decompose grade", 0.0),
    ]  # fmt: skip
    assert (runner.calls, runner.graded, runner.unread) == (6, 21, 0)


def test_refining_replaces_the_last_step_and_a_debate_compares_its_plans():
    runner, asked = runner_of(replies, plans=2)
    state = run(runner, REASON, REFINE, DEBATE)
    assert state.steps == ("refine!", "best") and state.blocks == (REASON, REFINE, DEBATE)
    assert ("|refine!|left\nleft|compare", "0 reason refine debate step", 1.0) in asked
    assert sum(told.endswith("|plan") for told, _, _ in asked) == 2


def test_nothing_is_refined_or_debated_before_the_first_step_and_the_limit_forces_an_answer():
    runner, _ = runner_of(replies, limit=3)
    start = run(runner)
    assert np.flatnonzero(runner.legal(start)).tolist() == [REASON, DECOMPOSE, TERMINATE]
    assert runner.legal(run(runner, REASON)).all()
    assert np.flatnonzero(runner.legal(run(runner, REASON, REASON))).tolist() == [TERMINATE]


@every("reply", [None, "", "<think>hm</think>"])
def test_a_block_that_says_nothing_ends_the_solution(reply):
    runner, _ = runner_of(lambda told: "3" if told.endswith("grade") else reply)
    state = run(runner, REASON)
    assert state.stuck and not state.steps and np.flatnonzero(runner.legal(state)).tolist() == [TERMINATE]


def test_the_answer_is_asked_for_with_what_the_context_has_room_for():
    runner, asked = runner_of(lambda told: None if "a" in told[:-7] else "= 9")
    state = pl.worlds.PartialSolution(steps=("a", "b"), blocks=(REASON, REASON))
    assert pl.response_text(asyncio.run(runner.finish(state))) == "= 9"
    assert [told for told, _, _ in asked] == ["|a\nb|answer", "|b|answer"]


def test_equal_blocks_of_one_stream_are_asked_once():
    shared = {}
    first, asked = runner_of(replies, replies=shared)
    again, more = runner_of(replies, replies=shared)
    other, others = runner_of(replies, replies=shared, stream=1)
    states = [run(r, REASON) for r in (first, again, other)]
    assert states[0] == states[1] and len(asked) == 3 and not more and len(others) == 3
    assert again.calls == 3


@every(
    ("text", "grades", "unread"),
    [
        ("modelling: 3\nClarity - 1\ncalculation: 2\ncomplexity: 1\nalternatives: 3\ncompleteness: 2\nconsistency 3",
         (3, 1, 2, 1, 3, 2, 3), 0),
        ("1. modelling: 3\n2. clarity: 4\n3. calculation: 1.5", (3, 2, 2, 2, 2, 2, 2), 6),
        ("3 1 2 3 2 1 1", (3, 1, 2, 3, 2, 1, 1), 0),
        ("3123211", (3, 1, 2, 3, 2, 1, 1), 0),
        ("3 1 2", (2,) * 7, 7),
        ("it is good", (2,) * 7, 7),
    ],
)  # fmt: skip
def test_grades_are_read_by_name_or_in_order_and_count_as_2_else(text, grades, unread):
    assert pl.worlds.read_grades(text) == (grades, unread)


def test_unread_grades_are_counted():
    runner, _ = runner_of(lambda told: "modelling: 3" if told.endswith("grade") else "x")
    assert run(runner, REASON).grades == (3, 2, 2, 2, 2, 2, 2)
    assert (runner.graded, runner.unread) == (14, 12)
    silent, asked = runner_of(replies, grades=False)
    assert run(silent, REASON).grades == (2,) * 7 and len(asked) == 1 and silent.graded == 0


def test_a_navigator_chooses_among_legal_blocks_and_is_kept(tmp_path):
    values = pl.control.DoubleQ(dueling=True, width=8).start(BlockSpaces(), ("n",))
    last = values.net[-1]
    last.weight.data.zero_()
    last.bias.data = last.bias.data.new_tensor([0.0, 0.0, 0.1, 0.5, 0.4, 0.2])
    pl.control.save_policy(values, tmp_path)
    kept = pl.worlds.load_navigator(tmp_path)
    legal = np.array([True, True, False, False, True])
    assert pl.worlds.choose_block(kept, (2,) * 7, np.ones(5, bool)) == DEBATE
    assert pl.worlds.choose_block(kept, (2,) * 7, legal) == TERMINATE
    assert pl.worlds.state_of_grades((1, 2, 3)).tolist() == [-1.0, 0.0, 1.0]


def test_another_policy_is_no_navigator(tmp_path):
    pl.control.save_policy(pl.control.DoubleQ(width=8).start(pl.control.Rooms(), ("n",)), tmp_path)
    with pytest.raises(pl.UserError, match="none that chooses between 5 blocks by 7 grades"):
        pl.worlds.load_navigator(tmp_path)
