"""Stand-ins for a judge, for runs without one: they read what a judge is shown, know the truth
where a rule does, and err.

Judge(client=Scripted(Grader(error=0.1)), template=GRADE, read=Odds())
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from statistics import NormalDist

from palaestra.tasks.procedural import ANSWER_PREFIX
from palaestra.toys.count import Count
from palaestra.types import ChatRequest, Reply, Task, rng_of, stage
from palaestra.verifiers.answers.final import same_answer

SUM = re.compile(r"(\d+)\+(\d+)")
COUNT = re.compile(r"make (\d+) from ([\d ]+)")
CERTAINTY = 20.0  # log-odds of a judge that never errs


def tag_content(request: ChatRequest, tag: str) -> str:
    """What stands between the tags of a judge's prompt; nothing where there are none."""
    text = request.messages[-1].content
    return text.rpartition(f"<{tag}>")[2].partition(f"</{tag}>")[0] if f"</{tag}>" in text else ""


def question_and_response(request: ChatRequest) -> tuple[str, str]:
    """The question, and the response without its answer mark."""
    return tag_content(request, "question"), tag_content(request, "response").strip().removeprefix(
        ANSWER_PREFIX
    ).strip()


def is_right_response(request: ChatRequest) -> bool:
    """Of sums by adding, of `count` any right expression; else equality with the reference, numbers
    by value.
    """
    question, response = question_and_response(request)
    if match := SUM.fullmatch(question.strip()):
        return same_answer(response, str(int(match[1]) + int(match[2])))
    match = COUNT.fullmatch(question.strip())
    if not match:
        return same_answer(response, tag_content(request, "reference"))
    numbers = tuple(int(n) for n in match[2].split())
    task = Task(id="", meta={"numbers": numbers, "target": int(match[1])})
    return Count().check(f"{ANSWER_PREFIX}{response}", task) == 1


def matches_last_digit(request: ChatRequest) -> bool:
    """A lazy judge of sums: a whole number whose last digit is right."""
    question, response = question_and_response(request)
    match = SUM.fullmatch(question.strip())
    return bool(
        match and response.isdigit() and int(response) % 10 == (int(match[1]) + int(match[2])) % 10
    )


@stage
class Grader:
    """Sees `check` through noise: s = +-1 + sigma n, log-odds 2 s / sigma^2, which are calibrated
    where half is right.

    sigma makes a share `error` of the verdicts wrong; `long_error` is that of responses of more
    than `long` characters. `sure` multiplies the log-odds: above 1 the judge is too sure of itself.
    The noise belongs to what is shown, so the same response gets the same verdict again.
    """

    check: Callable[[ChatRequest], bool] = is_right_response
    error: float = 0.0
    long_error: float = 0.0  # 0 = as others
    long: int = 10
    sure: float = 1.0
    yes: str = "[[YES]]"
    no: str = "[[NO]]"

    def log_odds(self, request: ChatRequest) -> float:
        sign = 1.0 if self.check(request) else -1.0
        long = len(question_and_response(request)[1]) > self.long
        error = self.long_error if self.long_error and long else self.error
        if not error:
            return sign * CERTAINTY
        sigma = 1 / NormalDist().inv_cdf(1 - error)
        noise = float(
            rng_of(
                ("grader", *question_and_response(request), tag_content(request, "reference"))
            ).normal()
        )
        return self.sure * 2 * (sign + sigma * noise) / sigma**2

    def __call__(self, request: ChatRequest) -> Reply:
        x = self.log_odds(request)
        if not request.choices:
            return Reply(text=self.yes if x > 0 else self.no)
        yes, no = request.choices
        return Reply(text="", choices={yes: -softplus(-x), no: -softplus(x)})


def softplus(x: float) -> float:
    """log(1 + exp(x)) without overflow."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
