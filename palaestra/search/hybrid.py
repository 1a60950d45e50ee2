"""Answers by proof beside answers in words."""

from __future__ import annotations

from dataclasses import replace

from palaestra.rollout.recorded import recorded_episode
from palaestra.search.problem import SearchProblem, SearchResult, vote_of_episode
from palaestra.types import Episode, Message, need_at_least, stage
from palaestra.verifiers.smt.proofs import need_z3
from palaestra.worlds.formal import FormalAnswer, FormalPrompts, FormalRunner, elect_answer


@stage
class HybridReasoning:
    """NL-FL HybridReasoning (arXiv:2505.23703): answers in words and answers by proof, see
    `worlds.formal`, take turns until the budget is spent; all stages are paid from it.

    Of verified answers the commonest is chosen, of a tie the one that more answers in words agree with.
    Where none is verified all answers vote. Nobody is asked what an answer is worth; z3 decides whether
    a number satisfies what the model wrote of the question, and may be wrong of the question itself.

    Args:
        plain: answers in words before each proof.
        tries: statements that are written at most until one determines the answer.
        attempts: of the prover at one statement.
        verified_first: whether verified answers stand before all others; else they vote with them.
        seconds: of each question to z3. Close to this limit, another machine may decide otherwise.
        temperature: of what the model says.
        prompts: of the stages.
    """

    plain: int = 1
    tries: int = 2
    attempts: int = 1
    verified_first: bool = True
    seconds: float = 2.0
    temperature: float = 1.0
    prompts: FormalPrompts = FormalPrompts()

    def __post_init__(self) -> None:
        need_at_least(self, plain=0, tries=1, attempts=1, seconds=0.01, temperature=0)

    async def __call__(self, problem: SearchProblem) -> SearchResult:
        need_z3()
        proven, plain, number = list[FormalAnswer](), list[Episode](), 0
        while problem.left:
            before = problem.left
            if self.plain:
                plain = await problem.sample(self.plain, self.temperature)
            if problem.left:
                proven += await self._prove(problem, number)
            number += 1
            if problem.left == before:
                break
        whole = [e for e in plain if not e.status.startswith("truncated")]
        spoken = whole or ([] if proven else plain)
        answers = [*(a.episode for a in proven), *spoken]
        votes = [*(a.vote for a in proven), *(vote_of_episode(e, problem.task) for e in spoken)]
        verified = [*(a.verified for a in proven), *(False for _ in spoken)]
        at = elect_answer(votes, verified, verified_first=self.verified_first)
        if at is None:
            return problem.result(answers[0] if answers else None, answers)
        return problem.result(answers[at], answers, float(votes.count(votes[at])))

    async def _prove(self, problem: SearchProblem, number: int) -> list[FormalAnswer]:
        async def ask(stage: str, prompt: tuple[Message, ...], name: str) -> Episode | None:
            return await problem.answer(prompt, f"proof {name}", self.temperature)

        def say(text: str) -> Episode:
            made = recorded_episode(
                problem.ctx, "policy", problem.task.prompt, text, 0.0, of="a proven answer"
            )
            return replace(made, reward=None)

        runner = FormalRunner(
            problem.task.prompt, ask, say, self.prompts, self.tries, self.attempts, self.seconds,
            stream=number,
        )  # fmt: skip
        return await runner.run()
