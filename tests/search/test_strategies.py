"""What each strategy chooses, on answers that are written down, worked out by hand."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.search.named import STRATEGIES
from palaestra.search.problem import vote_of
from palaestra.search.trees import effective_reward
from palaestra.types import Reward, Task

from tests.rows import every
from tests.search.fake import ASKED, problem_of


def search(problem, strategy):
    return asyncio.run(strategy(problem))


def by_turn(*texts):
    """The answers in the order in which they are sampled, again from the first."""
    return lambda begun, key: texts[key[4] % len(texts)]


class Scores:
    """A reward by the text of an answer; it keeps the tasks and texts that it was asked about."""

    def __init__(self, worth, bounds=None):
        self.worth, self.bounds, self.tasks, self.texts = worth, bounds, [], []

    async def __call__(self, ctx, group):
        self.tasks.append(group.task)
        self.texts += [e.text for e in group.episodes]
        return [Reward(total=self.worth[e.text]) for e in group.episodes]


async def gold(ctx, group):
    return [Reward(total=float(e.text == f"= {group.task.answer}"), solved=None) for e in group.episodes]


@every(
    ("text", "vote"),
    [
        ("= 5", "5"), ("2*3=6\n= 6", "6"), ("The answer is 0.5", "1/2"), ("so \\boxed{1/2}", "1/2"),
        ("<answer>.50</answer>", "1/2"), ("Answer: **Paris**.", "paris"), ("\\boxed{PARIS}", "paris"), ("", ""),
        ("<think>= 4</think>\n= 6", "6"), ("<think>hm</think>= 6", "6"),
        ("2 + 3 = 5", "5"), ("So she has 7 apples.", "7"), ("Paris", "paris"), ("(B)", "B"),
    ],
)  # fmt: skip
def test_a_vote_is_the_final_answer_in_one_spelling(text, vote):
    assert vote_of(text) == vote


def test_the_majority_is_the_commonest_answer_and_of_a_tie_the_first_one(context):
    """Each answer is four tokens: `=`, a space, a digit and the end."""
    for texts, winner, votes in (
        (("= 3", "= 5", "= 5"), "= 5", 2),
        (("= 3", "= 5", "= 5", "= 3"), "= 3", 2),
        (("= 7", "= 3", "= 5"), "= 7", 1),
        (("", "", "= 5"), "= 5", 1),  # who says nothing does not vote
    ):
        budget = sum(4 if t else 1 for t in texts)
        problem, _ = problem_of(context(), by_turn(*texts), budget)
        result = search(problem, pl.search.MajorityVote())
        assert (result.episode.text, result.score, result.candidates) == (winner, votes, len(texts))
        assert not problem.oracle and problem.left == 0


def test_a_weighted_vote_sums_scores(context):
    """3 has 0.3 + 0.3 against 0.5 of 5; the second 3 has more than the first, so it stands for both."""
    texts = ("1=1\n= 3", "= 5", "= 3")
    tokens = 8 + 4 + 4
    scorer = Scores({"1=1\n= 3": 0.3, "= 5": 0.5, "= 3": 0.31}, bounds=(0.0, 1.0))
    problem, _ = problem_of(context(), by_turn(*texts), tokens, scorer=scorer)
    result = search(problem, pl.search.WeightedVote())
    assert (result.episode.text, result.score) == ("= 3", pytest.approx(0.61))
    scorer = Scores({"1=1\n= 3": 0.3, "= 5": 0.62, "= 3": 0.31}, bounds=(0.0, 1.0))
    problem, _ = problem_of(context(), by_turn(*texts), tokens, scorer=scorer)
    assert search(problem, pl.search.WeightedVote()).episode.text == "= 5"


def test_scores_that_may_be_negative_vote_with_their_sigmoid(context):
    """sigmoid(-2) = 0.1192 twice against sigmoid(3) = 0.9526."""
    scorer = Scores({"= 3": -2.0, "= 5": 3.0})
    problem, _ = problem_of(context(), by_turn("= 3", "= 5", "= 3"), 12, scorer=scorer)
    result = search(problem, pl.search.WeightedVote())
    assert (result.episode.text, result.score) == ("= 5", pytest.approx(1 / (1 + math.exp(-3))))
    assert problem.weigh(np.array([0.0, -math.inf])).tolist() == [0.5, 0.0]


def test_best_of_n_takes_the_first_of_the_highest_scores(context):
    scorer = Scores({"= 3": 0.2, "= 5": 0.9, "1=1\n= 5": 0.9})
    problem, _ = problem_of(context(), by_turn("= 3", "= 5", "1=1\n= 5"), 16, scorer=scorer)
    result = search(problem, pl.search.BestAnswer())
    assert (result.episode.text, result.score, result.candidates) == ("= 5", 0.9, 3)
    assert not problem.oracle


def test_who_asks_the_verifier_with_the_answer_is_an_oracle(context):
    problem, _ = problem_of(context(), by_turn("= 3", "= 2"), 8, reward=gold)
    assert search(problem, pl.search.BestAnswer()).episode.text == "= 2"
    assert problem.oracle
    problem, _ = problem_of(context(), by_turn("= 3", "= 2"), 8, reward=gold)
    assert search(problem, pl.search.MajorityVote()).episode.text == "= 3"
    assert not problem.oracle


def test_a_scorer_is_asked_without_the_gold_answer(context):
    task = Task(id="t", prompt=ASKED.prompt, answer="2", meta={"solution": "= 2"})
    scorer = Scores({"= 3": 0.0, "= 2": 1.0})
    problem, _ = problem_of(context(), by_turn("= 3", "= 2"), 8, scorer=scorer, reward=gold, task=task)
    search(problem, pl.search.BestAnswer())
    assert [(t.answer, dict(t.meta), t.prompt) for t in scorer.tasks] == [(None, {}, ASKED.prompt)]
    assert problem.task.answer is None and not problem.task.meta


def test_an_answer_that_the_budget_cuts_is_no_candidate_where_another_is_whole(context):
    """9 tokens: two answers of four and the first token of a third, which says nothing."""
    problem, engine = problem_of(context(), by_turn("= 3", "= 5", "= 5"), 9)
    result = search(problem, pl.search.MajorityVote())
    assert (result.candidates, result.episode.text, problem.left) == (2, "= 3", 0)
    assert engine.sampled_tokens == 9
    problem, _ = problem_of(context(), by_turn("= 3"), 2)
    assert search(problem, pl.search.MajorityVote()).episode.text == "= "


BEAM = {  # by what was said so far, the lines that are tried, in order
    "": ["1\n", "2\n", "3\n", "4\n"],
    "2\n": ["5\n", "6\n"],
    "3\n": ["7\n", "8\n"],
    "2\n6\n": ["= 1", "= 2"],
    "3\n7\n": ["= 3", "= 4"],
}
WORTH = {
    "1\n": 0.1, "2\n": 0.4, "3\n": 0.3, "4\n": 0.2,
    "2\n5\n": 0.2, "2\n6\n": 0.6, "3\n7\n": 0.5, "3\n8\n": 0.1,
    "2\n6\n= 1": 0.3, "2\n6\n= 2": 0.7, "3\n7\n= 3": 0.8, "3\n7\n= 4": 0.9,
}  # fmt: skip


def lines_of_tree(begun, key):
    """Of `branch` lines behind each beginning the one whose turn it is."""
    options = BEAM[begun]
    return options[key[-1] % len(options)]


def test_a_beam_of_two_on_a_tree_by_hand(context):
    """Four first lines, of which 2 and 3 are kept; then 2-6 and 3-7; the best end is 3-7-4.

    Tokens: 4 lines of 2, then 4 of 2, then 4 ends of 4.
    """
    scorer = Scores(WORTH)
    problem, engine = problem_of(context(), lines_of_tree, 8 + 8 + 16, scorer=scorer)
    result = search(problem, pl.search.BeamSearch(width=2, branch=2))
    assert engine.begun == [""] * 4 + ["2\n"] * 2 + ["3\n"] * 2 + ["2\n6\n"] * 2 + ["3\n7\n"] * 2
    assert (result.episode.text, result.score, result.candidates) == ("3\n7\n= 4", 0.9, 4)
    assert problem.left == 0 and not problem.oracle
    assert scorer.texts == list(WORTH)


def test_a_beam_is_led_by_progress(context):
    """B(Q) = 1 - (1 - Q)^2, a = 1. First lines from 0: 1 and 2 stay. Behind 1
    nothing is gained, .7 + B(.7) - B(.7) = .7; behind 2 .5 + B(.5) - B(.4) = .61 and .69 + B(.69) - B(.4) =
    .69 + .9039 - .64 = .9539, so of both beginnings 2-8 is kept first; by Q alone it would be 1-5.
    """
    lines = {
        "": ["1\n", "2\n"],
        "1\n": ["5\n", "6\n"],
        "2\n": ["7\n", "8\n"],
        "2\n8\n": ["= 3", "= 4"],
        "1\n5\n": ["= 1", "= 2"],
    }
    worth = {"1\n": 0.7, "2\n": 0.4, "1\n5\n": 0.7, "1\n6\n": 0.1, "2\n7\n": 0.5, "2\n8\n": 0.69}
    worth |= {"2\n8\n= 3": 0.8, "2\n8\n= 4": 0.2, "1\n5\n= 1": 0.9, "1\n5\n= 2": 0.1}
    for progress, kept in ((1.0, "2\n8\n"), (0.0, "1\n5\n")):
        says = lambda begun, key: lines[begun][key[-1] % 2]
        problem, engine = problem_of(context(), says, 8 + 8 + 16, scorer=Scores(worth, bounds=(0, 1)))
        beam = pl.search.BeamSearch(width=2, branch=2, progress=progress, k=2)
        search(problem, beam)
        assert engine.begun[:2] == ["", ""] and next(b for b in engine.begun if b.count("\n") == 2) == kept
    assert effective_reward(0.2, 0.1, 3.0, 4) == pytest.approx(0.9395)  # of the catalogue


def test_a_beam_is_led_by_log_probs_where_scores_are_equal(context):
    """An oracle's verifier gives 0 to every beginning; the model's own log-probs decide."""
    probable = {"4\n": -0.1, "1\n": -0.5}

    def says(begun, key):
        if not begun:
            return BEAM[""][key[-1] % 4]
        return "= 2"

    problem, engine = problem_of(context(), says, 8 + 8, reward=gold, logp=lambda text, begun: probable.get(text, -2.0))
    search(problem, pl.search.BeamSearch(width=2, branch=1))
    # two first lines are tried, 1 and 2, of which both stay: 1 is more probable
    assert engine.begun[:4] == ["", "", "1\n", "2\n"]
    assert problem.oracle


def test_equal_lines_count_once_and_another_beam_begins(context):
    """All first lines are one, which ends at once: one candidate a beam, and beams until nothing is left."""
    problem, engine = problem_of(context(), lambda begun, key: "= 2", 16, reward=gold)
    result = search(problem, pl.search.BeamSearch(width=1, branch=2))
    assert (result.candidates, len(engine.begun), problem.left) == (2, 4, 0)
    assert len(set(engine.calls)) == 4


def test_monte_carlo_search_opens_the_highest_upper_bound(context):
    """n = 2 answers an opening, c = sqrt 2; V + c sqrt(ln N / n), unvisited first.

    The root's answers begin with lines 1 and 2. Opened in turn: V(1) = 0.1, V(2) = 0.6, n = 2 each, N = 6:
    1: 0.1 + sqrt 2 sqrt(ln 6 / 2) = 1.439, 2: 0.6 + 1.339 = 1.939, so below 2: line 3, whose answers are worth 0.
    V(2) = 1.2 / 4 = 0.3, n = 4, N = 8: 1: 0.1 + 1.442 = 1.542, 2: 0.3 + 1.020 = 1.320, so below 1.
    """
    says = {
        "": ["1\n= 8", "2\n= 8"],
        "1\n": ["4\n= 6", "4\n= 7"],
        "2\n": ["3\n= 6", "5\n= 7"],
        "2\n3\n": ["= 0", "= 0"],
        "1\n4\n": ["= 0", "= 1"],
    }
    worth = {
        "1\n= 8": 0.3, "2\n= 8": 0.3, "1\n4\n= 6": 0.0, "1\n4\n= 7": 0.2, "2\n3\n= 6": 0.5, "2\n5\n= 7": 0.7,
        "2\n3\n= 0": 0.0, "1\n4\n= 0": 0.1, "1\n4\n= 1": 0.95,
    }  # fmt: skip
    scorer = Scores(worth, bounds=(0.0, 1.0))
    tokens = 2 * 6 + 2 * 6 + 2 * 6 + 2 * 4 + 2 * 4
    problem, engine = problem_of(context(), lambda begun, key: says[begun][key[4] % 2], tokens, scorer=scorer)
    result = search(problem, pl.search.MonteCarloSearch(n=2, children=2))
    opened = engine.begun[::2]
    assert opened == ["", "1\n", "2\n", "2\n3\n", "1\n4\n"] and engine.begun[1::2] == opened
    assert (result.episode.text, result.score, problem.left) == ("1\n4\n= 1", 0.95, 0)
    assert not problem.oracle


def test_a_score_that_nobody_can_give_is_no_zero(context):
    """In the tree the answer counts nowhere; of whole answers it is not chosen."""

    async def fails(ctx, group):
        return [pl.Fault("judge", "gone") if e.text.endswith("1") else Reward(total=-1.0) for e in group.episodes]

    says = by_turn("= 1", "= 2")
    problem, _ = problem_of(context(), says, 8, scorer=fails)
    assert search(problem, pl.search.BestAnswer()).episode.text == "= 2"
    problem, _ = problem_of(context(), says, 8, scorer=fails)
    result = search(problem, pl.search.MonteCarloSearch(n=2))
    assert (result.episode.text, result.candidates) == ("= 2", 1)

    async def never(ctx, group):
        return [pl.Fault("judge", "gone") for _ in group.episodes]

    problem, _ = problem_of(context(), says, 8, scorer=never)
    with pytest.raises(pl.UserError, match="the scorer says nothing of any answer to 't': judge: gone"):
        search(problem, pl.search.BestAnswer())


def test_without_answers_no_verifier_can_choose(context):
    problem, _ = problem_of(context(), by_turn("= 1"), 8)
    with pytest.raises(pl.UserError, match="no verifier can choose; give --reward-model DIR"):
        search(problem, pl.search.BestAnswer())


def test_a_beam_needs_one_answer(context):
    problem, _ = problem_of(context(), by_turn("= 1"), 8)
    problem.ctx = problem.ctx.with_bench(context("hop").bench)
    with pytest.raises(pl.UserError, match=r"world of several turns.*mcts, best-of-n or majority"):
        search(problem, pl.search.BeamSearch())


@every("name", ["beam(width=0)", "mcts(n=0)", "beam(temperature=0)", "mcts(temperature=0)", "majority(temperature=-1)"])
def test_settings_that_make_no_sense_are_refused(name):
    with pytest.raises(pl.UserError):
        pl.search.strategy_by_name(name)


def test_strategies_by_name():
    name, made = pl.search.strategy_by_name("beam(width=2,branch=8)")
    assert (name, made) == ("beam(width=2,branch=8)", pl.search.BeamSearch(width=2, branch=8))
    assert pl.search.strategy_by_name(replace(made, width=3)) == ("BeamSearch", replace(made, width=3))
    for given, why in (
        ("baem", "no strategy 'baem'; did you mean beam"),
        ("beam(wide=2)", "beam has no setting 'wide'; did you mean width"),
        ("beam+mcts", "takes one strategy"),
    ):
        with pytest.raises(pl.UserError, match=why):
            pl.search.strategy_by_name(given)


def test_the_help_names_every_strategy(capsys):
    with pytest.raises(SystemExit):
        main(["search", "--help"])
    words = capsys.readouterr().out.replace(",", " ").split()
    assert set(STRATEGIES) <= set(words)
