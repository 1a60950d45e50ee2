"""A judge for the problem that is built in, by a program that gains from its demonstrations.

It reads the text that a judge is shown and knows how sums modulo m are done, but sees each response
through noise: its score is quality + sigma n with n ~ N(0, 1) of the question and the response, and

    sigma = NOISE / (1 + c),     c = the demonstrations in the prompt that put better before worse responses

That more right demonstrations make a better judge is so by this formula, and not a result.
"""

from __future__ import annotations

import re
import string

import palaestra as pl

NOISE = 1.0
CHAIN = re.compile(r"\d+(?:[+*-]\d+)+ mod \d+")
SHOWN = re.compile(
    r"<question>(.*?)</question>\n(.*?)(?=\nRanking: |\n\nEnd with |\n\nAnswer with )(?:\nRanking: \[\[(.*?)\]\])?",
    re.DOTALL,
)
RESPONSE = re.compile(r"<response>(.*?)</response>", re.DOTALL)


def chain_lines(question: str) -> list[str]:
    """The working of a sum, read strictly from left to right, a line `a+b=c` an operator; none for any
    other question.
    """
    if not CHAIN.fullmatch(question.strip()):
        return []
    chain, _, modulo = question.strip().partition(" mod ")
    numbers, operators = re.findall(r"\d+", chain), re.findall(r"[+*-]", chain)
    total, lines = int(numbers[0]), list[str]()
    for operator, number in zip(operators, map(int, numbers[1:]), strict=True):
        steps = {"+": total + number, "-": total - number, "*": total * number}
        result = steps[operator] % int(modulo)
        lines.append(f"{total}{operator}{number}={result}")
        total = result
    return lines


def quality(question: str, response: str) -> float:
    """1 for the right answer, and up to one half for the share of the working that is there and right."""
    lines = chain_lines(question)
    if not lines:
        return 0.0
    right = pl.tasks.final_answer(response) == lines[-1].rpartition("=")[2]
    response_lines = response.split("\n")
    worked = next((i for i, x in enumerate(lines) if response_lines[i : i + 1] != [x]), len(lines))
    return float(right) + 0.5 * worked / len(lines)


def is_good_example(question: str, responses: list[str], ranking: str) -> bool:
    """Whether a demonstration puts no worse response before a better one, and they are not all equal."""
    order = [string.ascii_uppercase.index(x) for x in ranking.split(" > ")]
    ranked = [quality(question, responses[i]) for i in order]
    return ranked[0] > ranked[-1] and ranked == sorted(ranked, reverse=True)


def noisy_judge(request: pl.ChatRequest) -> str:
    """The ranking of the last question of a prompt, as [[B > A]]."""
    questions = [
        (question, RESPONSE.findall(listed), ranking)
        for question, listed, ranking in SHOWN.findall(request.messages[0].text)
    ]
    *examples, (question, responses, _) = questions
    sigma = NOISE / (1 + sum(is_good_example(*x) for x in examples))
    score = [
        quality(question, x) + sigma * pl.rng_of(("noisy judge", question, x)).normal()
        for x in responses
    ]
    best_first = sorted(range(len(responses)), key=lambda i: -score[i])
    return f"[[{' > '.join(string.ascii_uppercase[i] for i in best_first)}]]"
