"""What a reply votes for: its final answer in one spelling."""

from __future__ import annotations

from palaestra.rewards.intrinsic import read_answer
from palaestra.verifiers.answers.final import extract_answer, final_line, strip_markup
from palaestra.verifiers.answers.notation import text_key
from palaestra.verifiers.answers.numerals import read_number
from palaestra.verifiers.base import strip_thinking


def vote_of(text: str, prompt: str = "") -> str:
    """What a reply to a prompt votes for: its final answer in one spelling, "" where it says nothing.

    The answer is read behind the thinking, in any form: a box, a tag, a marker, an answer line; else it
    is the last number that is a result, else the last line. Numbers are one by value: 0.5, 1/2 and .50
    are one vote. Other answers are one without case and markup.
    """
    text = strip_thinking(text)
    answer = read_answer(text) or extract_answer(text, "0", prompt) or final_line(text)
    answer = strip_markup(answer)
    number = read_number(answer)
    if number is None:
        return text_key(answer)
    return f"{number[0]}%" if number[1] else str(number[0])
