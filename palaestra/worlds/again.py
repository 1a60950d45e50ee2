"""A question asked again with what was answered before."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from palaestra.errors import UserError
from palaestra.rewards.intrinsic import read_answer
from palaestra.rewards.verify import response_text
from palaestra.types import Episode, Message
from palaestra.verifiers.base import strip_thinking

# the words of arXiv:2503.19855
AGAIN = "\nThe assistant's previous answer is: <answer> {answer} </answer>, and please re-answer."

ShownAgain = Literal["answer", "reply"]


def ask_again(prompt: tuple[Message, ...], answer: str) -> tuple[Message, ...]:
    """The prompt with a previous answer behind its last message of the user.

    Args:
        prompt: the original question, without an earlier answer.
        answer: that was given last; "" = the question as it is.

    Raises:
        UserError: no message of the prompt is the user's.
    """
    if not answer:
        return prompt
    return behind_question(prompt, AGAIN.format(answer=answer.strip()))


def behind_question(prompt: tuple[Message, ...], text: str) -> tuple[Message, ...]:
    """The prompt with a text behind its last message of the user.

    Raises:
        UserError: no message of the prompt is the user's.
    """
    places = [i for i, m in enumerate(prompt) if m.role == "user"]
    if not places:
        raise UserError("a previous answer is shown behind the user's question, and there is none")
    last = prompt[places[-1]]
    asked = replace(last, content=last.content + text)
    return (*prompt[: places[-1]], asked, *prompt[places[-1] + 1 :])


def previous_answer(episode: Episode, keep: ShownAgain = "answer") -> str:
    """What is shown of an answer in the next round: the final answer, without the reasoning, or the
    whole reply behind its thinking (the program of a coding problem). "" where it states none, or was
    cut.
    """
    if episode.status.startswith("truncated"):
        return ""
    text = strip_thinking(response_text(episode)).strip()
    return text if keep == "reply" else (read_answer(text) or "")
