"""Answers in rounds: the model is asked again with its previous answer in the prompt."""

from __future__ import annotations

import numpy as np

from palaestra.errors import UserError
from palaestra.search.problem import SearchProblem, SearchResult
from palaestra.search.sampling import elect
from palaestra.types import Episode, need_at_least, stage
from palaestra.worlds.again import ShownAgain, ask_again, previous_answer


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
    keep: ShownAgain = "answer"
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
