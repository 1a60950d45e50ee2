"""Answers in rounds: the model is asked again with its previous answer in the prompt."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from palaestra.errors import UserError
from palaestra.rewards.intrinsic import read_answer
from palaestra.rewards.verify import response_text
from palaestra.search.problem import SearchProblem, SearchResult
from palaestra.search.sampling import elect
from palaestra.types import Episode, Message, need_at_least, stage
from palaestra.verifiers.base import strip_thinking

# the words of arXiv:2503.19855
AGAIN = "\nThe assistant's previous answer is: <answer> {answer} </answer>, and please re-answer."

Kept = Literal["answer", "reply"]


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
    places = [i for i, m in enumerate(prompt) if m.role == "user"]
    if not places:
        raise UserError("a previous answer is shown behind the user's question, and there is none")
    last = prompt[places[-1]]
    asked = replace(last, content=last.content + AGAIN.format(answer=answer.strip()))
    return (*prompt[: places[-1]], asked, *prompt[places[-1] + 1 :])


def previous_answer(episode: Episode, keep: Kept = "answer") -> str:
    """What is shown of an answer in the next round: the final answer, without the reasoning, or the
    whole reply behind its thinking (the program of a coding problem). "" where it states none, or was
    cut.
    """
    if episode.status.startswith("truncated"):
        return ""
    text = strip_thinking(response_text(episode)).strip()
    return text if keep == "reply" else (read_answer(text) or "")


@stage
class AnswerRounds:
    """Multi-round thinking (arXiv:2503.19855): answers again with the previous final answer in the
    prompt, `rounds` times; the last answer counts.

    Chains of rounds follow one another until the budget is spent; of their last answers the
    commonest is chosen, of a tie the first. A round without a readable answer is followed by the
    plain question. Of a chain that the budget cuts, the last whole answer counts.

    Args:
        rounds: of a chain; 1 = the majority vote.
        keep: what is shown of the previous round, see `previous_answer`.
        temperature: of the answers.
    """

    rounds: int = 2
    keep: Kept = "answer"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        need_at_least(self, rounds=1, temperature=0)
        if self.keep not in ("answer", "reply"):
            raise UserError(f"AnswerRounds: keep is 'answer' or 'reply', not {self.keep!r}")

    async def __call__(self, problem: SearchProblem) -> SearchResult:
        ends, cut, chain = list[Episode](), list[Episode](), 0
        while problem.left:
            before = problem.left
            last = None
            prompt = problem.task.prompt
            for number in range(self.rounds):
                name = f"chain {chain} round {number}"
                e = await problem.answer(prompt, name, self.temperature)
                if e is None or e.status.startswith("truncated"):
                    cut += [] if e is None else [e]
                    if not problem.left:
                        break
                else:
                    last = e
                prompt = ask_again(problem.task.prompt, previous_answer(e, self.keep) if e else "")
            ends += [] if last is None else [last]
            chain += 1
            if problem.left == before:
                break
        answers = ends or cut
        return elect(problem, answers, np.ones(len(answers)))
