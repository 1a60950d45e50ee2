"""Problems that are written: their answers are checked, and what does not pass is not there."""

import asyncio
from dataclasses import replace

import pytest
from palaestra.curriculum.written import ProblemOrder, ProblemsByModel, ProblemsFromSource, agreed_answer
from palaestra.errors import Fault, UserError
from palaestra.services.chat.scripted import Scripted
from palaestra.types import Message, Task

TWO = "add(d=2)+bool(d=2)"


def write(writer, ctx, **order):
    order = {"domain": "add(d=2)", "n": 3, **order}
    return asyncio.run(writer(ctx, ("k", 1), ProblemOrder(**order)))


def test_the_source_writes_problems_of_its_domain_that_it_pays(context):
    ctx = context(TWO)
    made = write(ProblemsFromSource(), ctx, n=5)
    part = ctx.bench.tasks.parts[0][0]
    assert len({t.id for t in made}) == 5 and {t.domain for t in made} == {"add(d=2)"}
    assert all(part.check(f"= {t.answer}", t) == 1 for t in made)
    first = {ctx.bench.tasks.task("train", i).id for i in range(200)}
    assert not first & {t.id for t in made}
    assert write(ProblemsFromSource(), ctx, n=5) == made
    lone = context("add(d=2)")
    assert len(write(ProblemsFromSource(), lone, domain="add", n=2)) == 2
    with pytest.raises(UserError, match=r"no source writes problems of 'sort'; there are add\(d=2\), bool"):
        write(ProblemsFromSource(), ctx, domain="sort")


class Book:
    """A client that writes, rates and solves by rule, and keeps what it was asked."""

    def __init__(self, answers=("5",), ratings=("perfect",), problem="what is 2+3"):
        self.answers, self.ratings, self.problem, self.asked = answers, ratings, problem, []

    def __call__(self, request):
        text = request.messages[-1].content
        self.asked.append(text)
        if text.startswith("Write one"):
            return {"problem": self.problem}
        if text.startswith("Is this problem"):
            n = sum(t.startswith("Is this problem") for t in self.asked)
            return {"rating": self.ratings[(n - 1) % len(self.ratings)]}
        n = sum(not t.startswith(("Write one", "Is this")) for t in self.asked)
        return f"so \\boxed{{{self.answers[(n - 1) % len(self.answers)]}}}"


def by_model(book, **options):
    return ProblemsByModel(client=Scripted(book), **options)


def test_the_majority_of_eight_solutions_is_the_answer(context):
    """Four of eight votes are enough, three are not."""
    ctx = context(TWO)
    half = Book(answers="55551234")
    (task,) = write(by_model(half), ctx, n=1, concepts=("carry", "sums"), document="two and two")
    assert (task.answer, task.meta["votes"], task.domain) == ("5", 0.5, "add(d=2)")
    assert "carry; sums" in half.asked[0] and "two and two" in half.asked[0]
    assert write(by_model(Book(answers="55512346")), ctx, n=1) == []
    assert write(by_model(Book(answers="55556666")), ctx, n=1) == []  # a shared first place
    style = Task(id="x", prompt=(Message(role="user", content="like this"),))
    shown = Book()
    write(by_model(shown, votes=1), ctx, n=1, examples=(style,))
    assert "like this" in shown.asked[0]


@pytest.mark.parametrize(
    ("ratings", "kept"),
    [
        (("perfect", "acceptable"), 1),
        (("acceptable", "perfect"), 1),
        (("acceptable", "acceptable"), 0),
        (("perfect", "bad"), 0),
    ],
)
def test_one_judge_says_perfect_and_no_one_bad(context, ratings, kept):
    book = Book(ratings=ratings)
    judge = Scripted(book)
    assert len(write(by_model(book, judges=(judge, judge), votes=1), context(TWO), n=1)) == kept


def test_what_has_no_form_is_not_there_and_a_failure_is_a_fault(context):
    assert write(ProblemsByModel(client=Scripted(lambda _: "no json")), context(TWO), n=2) == []
    assert write(by_model(Book(problem=" ")), context(TWO), n=1) == []

    def broken(request):
        raise Fault("endpoint", "gone")

    with pytest.raises(Fault, match="gone"):
        write(ProblemsByModel(client=Scripted(broken)), context(TWO), n=1)


def test_a_solver_of_its_own_answers(context):
    book, solver = Book(), Book(answers=("7",))
    (task,) = write(replace(by_model(book), solver=Scripted(solver)), context(TWO), n=1)
    assert task.answer == "7" and len(solver.asked) == 8 and len(book.asked) == 1


def test_answers_are_read_where_they_stand():
    assert agreed_answer(["\\boxed{4}", "the answer is 4", "it is 3"]) == ("4", 2 / 3)
    assert agreed_answer(["", "   "]) == (None, 0.0)
