"""Answers in rounds: what is shown again, and which answer counts."""

import asyncio

import palaestra as pl
import pytest
from palaestra.types import Episode, Message, Row, Segment
from palaestra.worlds.again import ask_again, previous_answer

from tests.rows import every
from tests.search.fake import problem_of

SHOWN = "The assistant's previous answer is: <answer> {} </answer>, and please re-answer."


def said(text, status="finished"):
    segment = Segment(ids=(1,), logp=(0.0,), trained=True, policy="policy", text=text)
    return Episode(rows=(Row(segments=(segment,)),), status=status)


def test_the_previous_answer_stands_behind_the_users_question():
    system, user = Message(role="system", content="Be short."), Message(role="user", content="2*3?")
    assert ask_again((system, user), " 6 ") == (
        system, Message(role="user", content="2*3?\n" + SHOWN.format("6")),
    )  # fmt: skip
    assert ask_again((system, user), "") == (system, user)
    with pytest.raises(pl.UserError, match="behind the user's question, and there is none"):
        ask_again((system,), "6")


@every(
    ("text", "keep", "shown"),
    [
        ("2*3=6\n= 6", "answer", "6"), ("It is \\boxed{6}", "answer", "6"), ("I am not sure", "answer", ""),
        ("<think>hm \\boxed{5}</think>\nprint(6)", "reply", "print(6)"), ("<think>hm</think>= 6", "answer", "6"),
    ],
)  # fmt: skip
def test_what_is_shown_of_an_answer(text, keep, shown):
    assert previous_answer(said(text), keep) == shown
    assert previous_answer(said(text, "truncated:length"), keep) == ""


def search(context, budget, answers, rounds=2):
    """Answers by chain and round: `answers[chain][round]`."""

    def says(begun, key):
        _, chain, _, number = key[3].split()
        return answers[int(chain)][int(number)]

    ctx = context()
    problem, engine = problem_of(ctx, says, budget)
    result = asyncio.run(pl.search.AnswerRounds(rounds=rounds)(problem))
    return problem, engine, result


def test_the_last_round_of_each_chain_votes(context):
    """Round 1 says 3 three times; the last rounds say 5, 4 and 5."""
    problem, engine, result = search(context, 24, [["= 3", "= 5"], ["= 3", "= 4"], ["= 3", "= 5"]])
    assert (result.episode.text, result.score, result.candidates) == ("= 5", 2, 3)
    assert problem.left == 0 and not problem.oracle
    shown = [SHOWN.format(3) in begun for begun in engine.begun]
    assert shown == [False, True] * 3


def test_only_the_last_answer_is_shown(context):
    """Three rounds: the third prompt holds the second answer, and not the first."""
    _, engine, _ = search(context, 12, [["= 3", "= 5", "= 5"]], rounds=3)
    assert [begun.count("previous answer") for begun in engine.begun] == [0, 1, 1]
    assert SHOWN.format(5) in engine.begun[2]


def test_of_a_chain_that_is_cut_the_last_whole_answer_counts(context):
    """4 + 4 + 4 + 1 tokens: the second chain has no second round."""
    _, _, result = search(context, 13, [["= 3", "= 5"], ["= 4", "= 7"]])
    assert (result.episode.text, result.candidates) == ("= 5", 2)
    _, _, result = search(context, 2, [["= 3", "= 5"]])
    assert (result.episode.text, result.candidates) == ("= ", 1)


def test_one_round_is_the_majority_vote_and_an_unreadable_answer_is_not_shown(context):
    _, engine, result = search(context, 12, [["= 3"], ["= 5"], ["= 5"]], rounds=1)
    assert (result.episode.text, result.candidates) == ("= 5", 3)
    assert not any("previous answer" in begun for begun in engine.begun)
    _, engine, result = search(context, 6, [["1", "= 5"]])
    assert result.episode.text == "= 5" and not any("previous answer" in b for b in engine.begun)


def test_settings_are_checked():
    for given in ("multi-round(rounds=0)", "multi-round(keep=all)"):
        with pytest.raises(pl.UserError):
            pl.search.strategy_by_name(given)
    assert pl.search.strategy_by_name("multi-round(rounds=4)")[1] == pl.search.AnswerRounds(rounds=4)
