"""gomoku: strategies and candidates are chosen, nothing illegal can be said, rivals move by rule."""

import asyncio
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.games.gomoku import (
    NOTE,
    ChooseCandidates,
    RivalExam,
    RuleRival,
    build,
    embedded,
)
from palaestra.run.benches import bench_by_name
from palaestra.types import Ask, Group, Message, Reward, Row, Task

from tests.fake import episode

BOARD = "mnk(columns=3,rows=3,line=3)"


def said(rival, ask, key=("k",)):
    messages = (Message(role="user", content=ask.say[-1].content),)
    return asyncio.run(rival.act(Row(), messages, ask, key)).text


def turn(moves, choices):
    world = bench_by_name(BOARD)[0].world
    return Ask(seat="x", say=(Message(role="user", content=f"{world.draw(moves)}\n{NOTE}"),), choices=choices)


def test_what_was_prevented_is_the_mean_over_turns():
    """Turns that were legal with 0.25 and 0.5: 0.625 of the probability lay on what cannot be said."""
    made = replace(episode((0,), (1, 2), 1.0), reward=Reward(total=1.0, parts={"seat:x": 1.0}))
    tell = lambda e: asyncio.run(
        pl.rewards.TellPrevented()(None, ("k",), Group(task=Task(id="t"), episodes=(e,)))
    ).episodes[0]
    told = tell(replace(made, facts={"legal_mass": (0.25, 0.5)}))
    assert told.reward.parts == {"seat:x": 1.0, "prevented": 0.625} and told.total == 1.0
    assert tell(made).reward.parts["prevented"] == 0.0
    assert tell(replace(made, reward=None)).reward is None


def test_the_rule_player_blocks_with_any_strategy_before_the_move():
    choices = ("attack a1", "attack c3", "block c3", "block c1")
    assert said(RuleRival(), turn((0, 4, 1), choices)) == "attack c3"
    assert said(RuleRival(), turn((0, 4, 1), ("a1", "c3"))) == "c3"


def test_what_is_no_candidate_and_what_is_no_board_is_a_random_choice():
    drawn = {said(RuleRival(), turn((0, 4, 1), ("a1", "b1")), ("k", i)) for i in range(20)}
    assert drawn == {"a1", "b1"}
    other = Ask(seat="p0", say=(Message(role="user", content="kuhn"),), choices=("p", "b"))
    assert {said(RuleRival(), other, ("k", i)) for i in range(20)} == {"p", "b"}


def play(ctx, link, n=3):
    groups = asyncio.run(pl.run.attempt_tasks(ctx, n, link))
    return [e for g in groups for e in g.episodes]


def test_the_model_says_candidates_alone_and_without_them_it_says_nothing_legal(context):
    ctx = context(BOARD)
    free = play(ctx, ChooseCandidates(pl.Sample(n=1), candidates=False))
    assert all(e.facts["result"].startswith("illegal") and "legal_mass" not in e.facts for e in free)
    games = play(ctx, ChooseCandidates(pl.Sample(n=1), ("attack", "block")))
    assert all(e.facts["illegal:x"] == e.facts["illegal:o"] == 0 for e in games)
    replies = [s.text for e in games for row in e.rows for s in row.segments if s.policy]
    assert len(replies) > 9 and all(r.split()[0] in ("attack", "block") for r in replies)
    assert all(0 <= m <= 1 for e in games for m in e.facts["legal_mass"])
    shown = ctx.decode(games[0].rows[0].segments[0].ids)
    assert "3 in a row wins" in shown and "Choose a strategy (attack, block)" in shown


def test_without_strategies_a_reply_is_a_move_and_nothing_is_added_to_the_prompt(context):
    ctx = context(BOARD)
    (game,) = play(ctx, ChooseCandidates(pl.Sample(n=1), ()), n=1)
    replies = [s.text for row in game.rows for s in row.segments if s.policy]
    assert all(len(r) == 2 for r in replies) and "strategy" not in ctx.decode(game.rows[0].segments[0].ids)


def test_the_exam_counts_points_of_the_models_seat(context):
    ctx = context(BOARD)
    found = asyncio.run(RivalExam(ChooseCandidates(pl.Sample(n=1), ("attack",)), 2)(ctx))
    assert set(found) == {"random", "weak", "rule", "illegal"} and found["illegal"] == 0
    assert all(found[k] in {i / 4 for i in range(5)} for k in ("random", "weak", "rule"))
    exam = RivalExam(ChooseCandidates(pl.Sample(n=1)))
    (game,) = play(ctx, ChooseCandidates(pl.Sample(n=1), ("attack",)), n=1)
    for paid, points in ((1.0, 1.0), (0.0, 0.5), (-1.0, 0.0)):
        own = replace(game, rows=tuple(replace(r, seat="o") for r in game.rows))
        parts = {"seat:x": -paid, "seat:o": paid}
        assert exam._points(replace(own, reward=Reward(total=-paid, parts=parts))) == points


def test_options():
    made = build(rivals=0.25, every=7, keep=3, games=9, exam=5)
    assert made.references == {"past": pl.rollout.Snapshots(7, 3)} and made.schedule.prompts == 9
    assert made.collect.links[0].sample.cast.p == 0.25 and made.evaluate["rivals"].n == 5
    assert made.learners["policy"].credit == pl.recipe("spiral").learners["policy"].credit
    alone = build(rivals=0.0, exam=0)
    assert alone.collect.links[0].sample.cast is None and not alone.references and not alone.evaluate
    assert build(candidates=False).collect.links[0].sample.cast is None
    assert embedded(games=4).schedule == pl.Schedule(prompts=4, steps=30)
    with pytest.raises(UserError, match="rivals"):
        build(rivals=1.5)


def test_a_game_that_lists_nothing_is_refused(context):
    class Silent:
        seats = ("x", "o")

        def reset(self, task, key):
            return pl.Frame(state=None, asks=(pl.Ask(seat="x"),))

    ctx = context(BOARD)
    ctx = ctx.with_bench(replace(ctx.bench, world=Silent()))
    with pytest.raises(UserError, match="give its class a method legal"):
        play(ctx, ChooseCandidates(pl.Sample(n=1)), n=1)
