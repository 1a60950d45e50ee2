"""NL-FL HybridReasoning: statements, proofs and votes by hand, and a user's own questions with one's own models."""

import asyncio
import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.inference.nl_fl_hybrid import build
from palaestra.recipes.inference.nl_fl_hybrid.program import AnsweredProblem, ProveAnswers
from palaestra.recipes.inference.nl_fl_hybrid.toy import draw_stage, smt_of
from palaestra.types import Episode, Message, Reply, Reward, Row, Segment, rng_of
from palaestra.verifiers.smt import proofs, statements
from palaestra.verifiers.smt.proofs import ExistenceProof, prove_existence
from palaestra.verifiers.smt.statements import Unreadable, read_claim, read_statement
from palaestra.worlds.formal import FormalAnswer, FormalPrompts, FormalRunner, elect_answer

from tests.chat_server import serving

LEAST = "(declare-const answer Int)(assert (>= answer 0))(assert (>= (* answer answer) 10))(minimize answer)"
BY_ALL = (
    "(assert (>= answer 0))(assert (>= (* answer answer) 10))"
    "(assert (forall ((d Int)) (=> (and (>= d 0) (>= (* d d) 10)) (<= answer d))))"
)
LOOSE = "(assert (>= answer 0))(assert (>= (* answer answer) 10))"


def said(text, right=False, tokens=3, status="finished"):
    segment = Segment(ids=(1,) * tokens, logp=(0.0,) * tokens, trained=True, text=text)
    return Episode(
        rows=(Row(segments=(segment,)),), reward=Reward(total=float(right), solved=bool(right)), status=status
    )


# ---- z3


@pytest.mark.parametrize("text", [LEAST, BY_ALL])
def test_the_least_c_with_c_squared_at_least_ten_is_four(text):
    """Of 0..10 the first with c c >= 10 is 4; 5 satisfies the first clause, and is not the least."""
    by_hand = next(c for c in range(11) if c * c >= 10)
    statement = read_statement(text)
    found = prove_existence(statement)
    assert (found.status, found.witness, found.claimed) == ("proved", by_hand, False)
    checked = prove_existence(statement, Fraction(4), search=False)
    assert checked.verified and checked.claimed and checked.witness == 4
    assert not prove_existence(statement, Fraction(5), search=False).verified
    assert prove_existence(statement, Fraction(3), search=False).status == "refuted"
    assert prove_existence(statement, Fraction(5)).witness == 4, "z3 looks on where the claim does not hold"


def test_a_degenerate_witness_is_not_verified():
    """Without minimality 5 satisfies the statement, and so do others; a contradiction has no number."""
    found = prove_existence(read_statement(LOOSE), Fraction(5), search=False)
    assert (found.status, found.witness, found.verified) == ("several", 5, False)
    assert prove_existence(read_statement("(assert (< answer answer))")).status == "empty"
    greatest = read_statement("(assert (<= (* answer answer) 10))(maximize answer)")
    assert prove_existence(greatest).witness == 3
    assert prove_existence(greatest, Fraction(2), search=False).status == "several"
    assert not prove_existence(read_statement("(assert (> answer 3))(maximize answer)")).verified


def test_fractions_are_read_exactly_and_roots_are_no_fractions():
    third = "(declare-const answer Real)(assert (= (* 3 answer) 1))"
    assert prove_existence(read_statement(third)).witness == Fraction(1, 3)
    root = "(declare-const answer Real)(assert (= (* answer answer) 2))(assert (> answer 0))"
    assert prove_existence(read_statement(root)).status == "unknown"
    assert prove_existence(read_statement("(assert (= answer foo))")).status == "unreadable"
    assert prove_existence(read_statement("(declare-const answer Bool)(assert answer)")).status == "unreadable"
    defined = read_statement("(define-fun answer () Int (+ 40 2))")
    assert prove_existence(defined).witness == 42


def test_z3_is_stopped_at_its_time_limit():
    """Whether 114 is a sum of three cubes is not known."""
    cubes = "(declare-const x Int)(declare-const y Int)"
    cubes += "(assert (= (+ (* x x x) (* y y y) (* answer answer answer)) 114))"
    assert prove_existence(read_statement(cubes), seconds=0.2).status == "unknown"


# ---- what is read


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('(include "/etc/passwd")', "no assertion"),
        ('(assert (> answer 1)) (include "/etc/passwd")', "'include' is not allowed"),
        ('(assert (> answer 1)) (set-option :regular-output-channel "here")', "'set-option' is not allowed"),
        ("(assert (> answer 1)) (eval answer)", "'eval' is not allowed"),
        ("(assert (= answer 4))", "names the answer"),
        ("(assert (and (> answer 3) (= (- 4) answer)))", "names the answer"),
        ("(define-fun answer () Int 4)", "names the answer"),
        ("(assert (> answer 1)", "not closed"),
        ("(assert (> answer 1)) (minimize x)", "least or the greatest"),
        ("The answer is 4.", "no assertion"),
        ("(assert " + "(- " * 300 + "answer" + ")" * 301, "brackets in one another"),
        ("(assert (> answer 1))" * 2000, "characters"),
        ("(assert (> answer 'a))", "cannot be read"),
    ],
)
def test_what_is_no_existence_statement_is_refused(text, why):
    with pytest.raises(Unreadable, match=why):
        read_statement(text)


GUESSES = (
    "(assert (= answer 42 42))", "(assert (= (+ answer 0) 42))", "(assert (and (<= 42 answer) (<= answer 42)))",
    "(assert (not (distinct answer 42)))", "(assert (let ((a 42)) (= answer a)))", "(assert (or (= answer 42)))",
    "(assert (>= answer 42))(minimize answer)", "(declare-const x Int)(assert (= x 42))(assert (= answer x))",
)  # fmt: skip


@pytest.mark.parametrize("text", GUESSES)
def test_a_guess_in_any_spelling_is_refused(text):
    """z3 proves 42 for each; without a 42 in the question that is the statement's own guess."""
    assert prove_existence(read_statement(text)).witness == 42
    runner = runner_of({"align": ["a"], "formalise": [text]}, [], tries=1)
    assert asyncio.run(runner.run()) == [] and "the answer itself" in runner.refused[0]
    asked = (Message(role="user", content="What is the 42 of it?"),)
    assert asyncio.run(replace(runner, prompt=asked)._prove(read_statement(text))).verified
    (unsure,) = (ExistenceProof(status="unknown"),)
    replies = {"reason": ["(= answer 42)"], "extract": ["It is 42."]}
    claimed = asyncio.run(runner_of(replies, []).attempt(read_statement(text), unsure, 0))
    assert not claimed.verified and claimed.vote == "42"


def test_what_counts_as_the_questions_number():
    assert statements.numbers_in("Twice 1,000 is 1/3 of 2.5, and seven") == {
        *map(Fraction, (2, 1000, 1, 3, 7)), Fraction(1, 3), Fraction(5, 2),
    }  # fmt: skip
    least = read_statement("(assert (>= answer 0))(assert (>= (* answer answer) answer))(minimize answer)")
    assert not statements.is_guess(least, Fraction(0), "the least natural number?"), "a sign is no guess"
    below = read_statement("(assert (>= answer (- 4)))(minimize answer)")
    assert statements.is_guess(below, Fraction(-4), "Q?") and not statements.is_guess(below, Fraction(-4), "-4?")


def test_a_statement_is_found_in_prose_and_fences():
    plain = "(declare-const answer Int)\n(assert (> answer 1))"
    assert read_statement("Sure: (assert (> answer 1)) ; by hand\nThat is all.").text == plain
    fenced = f"(assert (< answer 0))\n```smt2\n{plain}\n(check-sat)\n```\nDone (I think."
    assert read_statement(fenced) == read_statement(plain)
    assert read_statement(LEAST).bound == "minimize" and "minimize" not in read_statement(LEAST).text
    assert read_statement(LEAST).shown.endswith("(minimize answer)")


def test_the_last_witness_of_a_reply_counts():
    assert read_claim("Is it (= answer 3)? No: (= answer (- 4)), so") == -4
    assert read_claim("(define-fun answer () Real (/ 1 3))") == Fraction(1, 3)
    assert read_claim("= 4") is None and read_claim("(= answer x)") is None and read_claim("(= answer 4") is None


def test_z3_is_refused_with_the_remedy_where_it_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(proofs, "find_spec", lambda name: None)
    for work in (
        lambda: pl.train(build(tasks=1), task="add", out=tmp_path / "run", quiet=True),
        lambda: pl.search.run(task="add", strategy="nl-fl-hybrid", budget=64, n=1),
    ):
        with pytest.raises(UserError, match=r"pip install 'palaestra\[z3\]'"):
            work()


# ---- votes


@pytest.mark.parametrize(
    ("votes", "verified", "first", "winner"),
    [
        ("4 544", "1 000", True, 0),  # NL 5, 4, 4 and a verified 4: 4
        ("4 555", "1 000", True, 0),  # a verified one stands before three of words
        ("4 555", "1 000", False, 2),
        ("4 544", "0 000", True, 0),  # unverified: 4 has three votes
        ("9 544", "0 000", True, 3),  # never before others: 4 has two votes
        ("457 5", "110 0", True, 1),  # of two verified the one with more votes of all
        ("445 55", "111 00", True, 0),  # the commonest verified
        ("4 4", "0 1", True, 2),  # of equal answers the verified one
        ("_ __", "0 00", True, None),
        ("", "", True, None),
    ],
)
def test_verified_answers_come_first(votes, verified, first, winner):
    each = ["" if v in "_ " else v for v in votes]
    assert elect_answer(each, [v == "1" for v in verified], verified_first=first) == winner


# ---- stages


def runner_of(replies, log, **settings):
    """A runner whose stages say what `replies` has for them, in turn."""

    async def ask(stage, prompt, name):
        log.append((stage, prompt[-1].content))
        return said(replies[stage].pop(0)) if replies.get(stage) else None

    question = (Message(role="user", content="Q?"),)
    return FormalRunner(question, ask, said, **{"prompts": FormalPrompts(), "seconds": 1.0, **settings})


def test_stages_hand_on_what_was_said():
    log = []
    replies = {
        "align": ["there is an a"], "formalise": ["no", LOOSE, LEAST],
        "reason": ["3 is too small. (= answer 5)"], "extract": ["= 4"],
    }  # fmt: skip
    runner = runner_of(replies, log, tries=3)
    (answer,) = asyncio.run(runner.run())
    assert [stage for stage, _ in log] == ["align", "formalise", "formalise", "formalise", "reason", "extract"]
    assert all(text.startswith("Q?") for _, text in log), "each stage has the question"
    assert "there is an a" in log[1][1] and "no assertion" in log[2][1] and "other numbers satisfy" in log[3][1]
    assert "(minimize answer)" in log[4][1]
    assert "3 is too small" in log[5][1] and "It is proven that the number is 4." in log[5][1]
    assert answer.verified and answer.vote == "4" and answer.episode.text == "= 4"
    assert len(runner.refused) == 2


def test_the_witness_stands_where_another_answer_is_extracted():
    replies = {"align": ["a"], "formalise": [LEAST], "reason": ["(= answer 5)"], "extract": ["It is 5."]}
    (answer,) = asyncio.run(runner_of(replies, []).run())
    assert answer.verified and answer.vote == "4" and answer.episode.text == "= 4"


OPTIONS = "Which option is it? (A) 5 (B) 7 (C) 9. Answer with the letter."


@pytest.mark.parametrize(
    "extracted, vote, verified",
    [
        ("\\boxed{B}", "B", True),
        ("\\boxed{A}", "A", False),
        ("\\boxed{Option}", "option", False),
        ("aaaaads", "7", True),
        ("\\boxed{7}", "7", True),
        ("\\boxed{5}", "7", True),
    ],
)
def test_a_letter_is_not_replaced_by_the_number(extracted, vote, verified):
    """z3 proves 7, which is option B; another letter or a word is no proven answer, and loses to four of B."""
    runner = replace(runner_of({}, []), prompt=(Message(role="user", content=OPTIONS),))
    answer = runner.answer_of(said(extracted), ExistenceProof(status="proved", witness=Fraction(7)))
    assert (answer.vote, answer.verified) == (vote, verified)
    assert answer.episode.text == ("= 7" if extracted in ("\\boxed{5}", "aaaaads") else extracted)
    votes, sure = [vote, *"BBBB"], [verified, *[False] * 4]
    assert votes[elect_answer(votes, sure)] == (vote if verified else "B")


def test_options_are_numbers_fractions_included_and_shares_are_none():
    found = statements.numbers_of_options("(A) 1/3 (B) 50% (C) 1,200 D. -2.5 E) 2 cm")
    assert found == {"A": Fraction(1, 3), "C": 1200, "D": Fraction(-5, 2), "E": 2}


BOUNDS = [
    ("(assert (> answer 6))(assert (< answer 8))", 7, "What is it?", True),
    ("(assert (and (> answer 6) (> 8 answer)))(assert (>= (* answer answer) 0))", 7, "What is it?", True),
    ("(assert (> answer 6))(assert (< answer 8))", 7, "Which one lies between 6 and 8?", False),
    ("(assert (> answer 6))(minimize answer)", 7, "What is it?", True),
    ("(assert (> answer 6))(minimize answer)", 7, "What is the least one above 6?", False),
    ("(assert (< answer 8))(maximize answer)", 7, "What is it?", True),
    ("(assert (>= answer 9))(minimize answer)", 9, OPTIONS, True),
    ("(assert (>= answer 9))(minimize answer)", 9, "What is the least one of 9 or more? A. 8 B. 9", False),
    ("(assert (> answer 6))(assert (= (* answer answer) 49))", 7, "Whose square is 49?", False),
    ("(assert (>= answer 0))(assert (<= answer (/ 1 2)))", 0, "What is it?", True),
]


@pytest.mark.parametrize("text, witness, question, guessed", BOUNDS)
def test_bounds_that_leave_one_number_are_a_guess(text, witness, question, guessed):
    assert prove_existence(read_statement(text)).witness == witness
    assert statements.is_guess(read_statement(text), Fraction(witness), question) == guessed


def test_without_a_proof_what_is_extracted_votes_unverified():
    """The statement has several numbers; the prover's 5 is one of them, and is not verified."""
    log = []
    replies = {"align": ["a"], "formalise": [LOOSE], "reason": ["(= answer 5)"], "extract": ["It is 5."]}
    (answer,) = asyncio.run(runner_of(replies, log, tries=1).run())
    assert not answer.verified and answer.vote == "5" and answer.proof.claimed
    assert "Nothing was proven." in log[-1][1]


@pytest.mark.parametrize("replies", [{}, {"align": ["a"]}, {"align": ["a"], "formalise": ["x", "y"]}])
def test_a_stage_that_fails_leaves_the_answers_in_words(replies):
    runner = runner_of(replies, [])
    assert asyncio.run(runner.run()) == [] and runner.unstated
    assert runner.cut == ([] if "formalise" in replies else ["formalise"] if replies else ["align"])


def test_a_run_without_statements_says_so(tmp_path, capsys):
    """The built-in model's replies are cut at 2 tokens, so no question is ever put as a statement."""
    told = {"tasks": 2, "plain": 1, "proofs": 1}
    found = pl.train("nl-fl-hybrid", task="add", out=tmp_path / "run", evaluate=0, max_tokens=2, set=told).summary
    assert found["unstated"] == 2 and sum(found["cut"].values()) == 2 and not found["refused"]
    said = capsys.readouterr()
    assert "no statement came about in 2 of 2 tries by proof" in said.out + said.err
    assert "raise --max-tokens" in said.out + said.err
    assert ProveAnswers().inert_note({"unstated": 0, "cut": {"reason": 1}}, 1) == ""
    assert "give a formaliser" in ProveAnswers().inert_note({"unstated": 1, "cut": {}}, 1)


# ---- the program


def test_the_summary_by_hand():
    """Three problems: the proof mends the first, spoils the second, and there is none for the third."""
    proof = lambda vote: FormalAnswer(episode=said(vote), vote=vote, verified=True)
    problems = [
        AnsweredProblem([said("= 5")], [said("= 5"), said("= 6")], [proof("4")], [True], 9, ["why"]),
        AnsweredProblem([said("= 7", 1)], [said("= 7", 1)], [proof("8")], [False], 5),
        AnsweredProblem([said("= 1", 1)], [said("= 1", 1)], [], [], 4, ["why", "other"]),
    ]
    found = ProveAnswers().summary(problems)
    means = {way: found[way]["accuracy"]["mean"] for way in ("words", "proofs", "hybrid")}
    assert means == {way: pytest.approx(x / 3) for way, x in (("words", 2), ("proofs", 1), ("hybrid", 2))}
    assert found["answers_changed"] == pytest.approx(2 / 3) and found["beyond_words"] == pytest.approx(1 / 3)
    assert found["verified"] == pytest.approx(2 / 3) and found["verified_right"] == 0.5
    assert found["tokens"] == 6 and found["tokens_of_words"] == 4 and found["refused"] == {"why": 2, "other": 1}
    by_vote = ProveAnswers(verified_first=False).summary(problems)
    assert by_vote["hybrid"]["accuracy"]["mean"] == pytest.approx(2 / 3)


def test_a_users_questions_are_proven_by_ones_own_models(tmp_path, monkeypatch):
    """The formaliser's statement decides; words alone are given at least as many tokens."""
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"Which number is three times {n}?", "answer": str(3 * n)} for n in range(41, 53)]
    Path("mine.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))

    def reply(body):
        question = body["messages"][-1]["content"]
        n = int(question.split("times ")[1][:2])
        return f"```smt2\n(assert (= answer (* 3 {n})))\n```" if "SMT-LIB" in question else f"(= answer {3 * n})"

    with serving(reply) as (_, url):
        other = f"endpoint(url='{url}',model='m')"
        run = pl.train(
            "nl-fl-hybrid", data="mine.jsonl", out="run", quiet=True, evaluate=0, max_tokens=16,
            set={"tasks": 2, "plain": 1, "proofs": 1, "formaliser": other, "prover": other},
        )  # fmt: skip
    found = run.summary
    assert found["accuracy_after"]["mean"] == 1.0 and found["verified_right"] == 1.0 and found["answers_changed"] == 1.0
    assert found["tokens_of_words"] >= found["tokens"] > 16


@pytest.mark.parametrize("finish, status", [("length", "truncated:length"), ("stop", "finished")])
def test_a_cut_reply_of_an_endpoint_is_known_as_cut(finish, status):
    """An endpoint that stopped at its most tokens did not come to the end of the stage."""

    class Client:
        async def chat(self, request):
            return Reply(text="(assert", finish=finish)

    dialect = SimpleNamespace(encode_text=lambda text: [1, 2])
    ctx = SimpleNamespace(
        bench=SimpleNamespace(max_tokens=8),
        client=lambda source: Client(),
        engine=lambda name: SimpleNamespace(dialect=dialect),
    )
    asked = (Message(role="user", content="Q?"),)
    e = asyncio.run(ProveAnswers()._ask_other(ctx, None, "align", asked, (0, "proof")))
    assert e.status == status and e.rows[0].segments[0].text == "(assert"


def test_the_search_spends_its_budget_and_no_more():
    found = pl.search.run(task="add", strategy="nl-fl-hybrid(tries=1)", budget=100, n=2, max_tokens=24)
    assert (found["least_tokens"], found["most_tokens"]) == (100, 100) and not found["oracle"]


# ---- the embedded problem


def test_demonstrated_statements_say_what_chains_ask():
    """z3 and the toy agree on ten chains; every stage is shown."""
    tasks = pl.toys.ArithmeticChain()
    stages = set()
    for i in range(60):
        task = tasks.task("train", i)
        stages.add(draw_stage(task, rng_of((0, i)))[0].rstrip().rpartition("\n")[2])
        if i < 5:
            statement = read_statement(smt_of(task))
            assert prove_existence(statement).witness == int(task.answer)
    assert stages == {"", "exists", "smt", "prove", "answer"}


def test_arguments_are_checked():
    for given in ({"plain": 0}, {"proofs": -1}, {"tries": 0}, {"seconds": 0.0}):
        with pytest.raises(UserError):
            build(**given)


def test_written_trees_are_read_again():
    tree = ("assert", ("=", "answer", ("|a b|", "x")))
    assert statements.read_trees(statements.write_tree(tree)) == [tree]
