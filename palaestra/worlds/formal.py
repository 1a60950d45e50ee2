"""Answers by proof: a question becomes an existence problem, a prover reads both, z3 decides, and the
answer is read from what was proven (NL-FL HybridReasoning, arXiv:2505.23703).

    align       "find a such that C(a)" becomes "there is a such that C(a)", in words
    formalise   the same in SMT-LIB, read by `verifiers.smt`; what cannot be read is written again
    reason      the prover sees the question and the statement (mixed problem input), thinks on the
                question, and gives a witness for the statement
    prove       z3 looks for a number that satisfies the statement, and checks the prover's where it
                finds none. It is verified where no other number satisfies the statement; a statement
                that several satisfy, or none, is written again, and so is one that has the number
                itself where the question does not have it
    extract     the model states the final answer from the question, the thoughts and the witness

An extracted answer is verified where it is the verified witness, or the letter of an option that is. Where
it has another number the witness itself is the answer; where it is another letter, or words of
the question, it stays as it is, and is not verified. Without a proof what the
thoughts say still votes, unverified. An answer that was verified is right only if the statement says what
the question asks.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TypeAlias

from palaestra.rewards.verify import response_text
from palaestra.rewards.votes import vote_of
from palaestra.types import Episode, Message, stage, value_class
from palaestra.verifiers.base import strip_thinking
from palaestra.verifiers.smt.proofs import ExistenceProof, need_z3, prove_existence
from palaestra.verifiers.smt.statements import (
    ExistenceStatement,
    Unreadable,
    is_guess,
    numbers_of_options,
    read_claim,
    read_statement,
)
from palaestra.worlds.again import behind_question

STAGES = ("align", "formalise", "reason", "extract")

DEGENERATE = {
    "several": "other numbers satisfy it too, so it does not determine the answer",
    "empty": "no number satisfies it",
    "guessed": "it has the answer itself as a number that the question does not have, and should only "
    "say what holds of it",
}

# (stage, prompt, name of the random stream) to a reply; None = nothing could be said
AskStage: TypeAlias = Callable[[str, tuple[Message, ...], str], Awaitable[Episode | None]]
# a final answer in plain words to an episode that says it, without a token of the model's
SayPlainly: TypeAlias = Callable[[str], Episode]


@stage
class FormalPrompts:
    """What stands behind the question in each stage. {problem} is the existence problem in words,
    {statement} its SMT-LIB, {why} what was wrong with the last one, {thoughts} the prover's reply,
    {proof} what z3 says, and {witness} the number that it proved.
    """

    align: str = """
Do not solve this. Rewrite it as an existence problem: which number is asked for, and every condition on
it. Say so where the least or the greatest such number is meant. Do not guess the number.
Example. Question: What is the least natural number whose square is at least 10?
There is a number a such that a is natural, a * a >= 10, and no smaller natural number has this property."""
    formalise: str = """
Existence problem: {problem}
Write it in SMT-LIB. The number is the constant `answer`, which you declare as Int or Real; use only
declare-const, define-fun, assert, and (minimize answer) or (maximize answer). Never write the number itself.
Example. There is a number a such that a is natural, a * a >= 10, and no smaller natural number has it.
(declare-const answer Int)
(assert (>= answer 0))
(assert (>= (* answer answer) 10))
(minimize answer)"""
    again: str = "\nThe last attempt was refused: {why}."
    reason: str = """
The same as a formal statement:
{statement}
Solve the question step by step. End with a witness for the statement in the form (= answer NUMBER)."""
    extract: str = """
A prover worked on this question and wrote:
{thoughts}
{proof}
Give only the final answer to the question, in the form that it asks for."""
    proven: str = "It is proven that the number is {witness}."
    unproven: str = "Nothing was proven."


@value_class
class FormalAnswer:
    """What one attempt came to.

    Args:
        episode: the final answer.
        vote: it in one spelling; see `vote_of`.
        verified: whether z3 proved that it is the one number that satisfies the statement, and the answer
            says that number or its option.
        proof: what z3 said; None = it was not asked.
    """

    episode: Episode
    vote: str
    verified: bool = False
    proof: ExistenceProof | None = None


@dataclass
class FormalRunner:
    """Answers one question by proof. Each stage depends on what is written in its prompt alone.

    Args:
        prompt: the question.
        ask: what replies in a stage.
        say: makes an episode of an answer that the program states.
        prompts: of the stages.
        tries: statements that are written at most until one can be read.
        attempts: of the prover at one statement.
        seconds: of each question to z3.
        stream: of the random streams.
    """

    prompt: tuple[Message, ...]
    ask: AskStage
    say: SayPlainly
    prompts: FormalPrompts = FormalPrompts()
    tries: int = 2
    attempts: int = 1
    seconds: float = 2.0
    stream: int = 0
    refused: list[str] = field(default_factory=list[str])  # why statements were written again
    cut: list[str] = field(default_factory=list[str])  # stages whose reply did not come to its end
    unstated: bool = False  # no statement came about

    def __post_init__(self) -> None:
        need_z3()

    async def run(self) -> list[FormalAnswer]:
        """The answers of all attempts; none where no statement could be made of the question."""
        problem = _text(await self._ask("align", self.prompts.align, ""))
        stated = await self.formalise(problem) if problem else None
        self.unstated = stated is None
        if stated is None:
            return []
        answers = [await self.attempt(*stated, i) for i in range(self.attempts)]
        return [a for a in answers if a is not None]

    async def formalise(self, problem: str) -> tuple[ExistenceStatement, ExistenceProof] | None:
        """The first statement that has one solution, else the last one that could be read, with what z3
        finds for it; None where none could.
        """
        asked, why, best = self.prompts.formalise.format(problem=problem), "", None
        for i in range(self.tries):
            more = self.prompts.again.format(why=why) if why else ""
            episode = await self._ask("formalise", asked + more, f"{i}")
            if episode is None:
                break
            try:
                statement = read_statement(response_text(episode))
            except Unreadable as error:
                why = str(error)
            else:
                proof = await self._prove(statement)
                if proof.status not in ("unreadable", "guessed"):
                    best = statement, proof
                if proof.status in ("proved", "unknown"):
                    break
                why = proof.why or DEGENERATE[proof.status]
            self.refused.append(why)
        return best

    async def attempt(
        self, statement: ExistenceStatement, proof: ExistenceProof, number: int
    ) -> FormalAnswer | None:
        """One attempt at a statement, of which `proof` is what z3 found alone; None where nothing could be
        said to the end.
        """
        prompt = self.prompts.reason.format(statement=statement.shown)
        reasoning = await self._ask("reason", prompt, f"{number}")
        claim = read_claim(response_text(reasoning)) if reasoning else None
        if claim is not None and not proof.verified:
            proof = await self._prove(statement, claim, search=False)
            if proof.status == "guessed":
                self.refused.append(DEGENERATE["guessed"])
        proof_text = self.prompts.unproven
        if proof.verified:
            proof_text = self.prompts.proven.format(witness=proof.witness)
        asked = self.prompts.extract.format(thoughts=_text(reasoning), proof=proof_text)
        extracted = await self._ask("extract", asked, f"{number}") if reasoning else None
        return self.answer_of(extracted, proof)

    def answer_of(self, extracted: Episode | None, proof: ExistenceProof) -> FormalAnswer | None:
        """The extracted answer; where it has another number than the verified witness, or says nothing that
        the question has, the witness.
        """
        question = _question(self.prompt)
        vote = vote_of(response_text(extracted), question) if extracted else ""
        if not proof.verified or proof.witness is None:
            return (
                FormalAnswer(episode=extracted, vote=vote, proof=proof)
                if extracted and vote
                else None
            )
        stated = f"= {proof.witness}"
        of_witness = vote_of(stated)
        chosen = numbers_of_options(question).get(vote.upper())
        if extracted and vote and (vote == of_witness or _is_choice(vote, question)):
            same = vote == of_witness or chosen == proof.witness
            return FormalAnswer(episode=extracted, vote=vote, verified=same, proof=proof)
        return FormalAnswer(episode=self.say(stated), vote=of_witness, verified=True, proof=proof)

    async def _prove(
        self, statement: ExistenceStatement, claim: Fraction | None = None, *, search: bool = True
    ) -> ExistenceProof:
        """What z3 says; a proof of what the statement itself guesses is none."""
        proof = await asyncio.to_thread(
            prove_existence, statement, claim, search=search, seconds=self.seconds
        )
        if proof.witness is None or not proof.verified:
            return proof
        guessed = is_guess(statement, proof.witness, _question(self.prompt))
        return replace(proof, status="guessed") if guessed else proof

    async def _ask(self, stage: str, instruction: str, name: str) -> Episode | None:
        """A reply that came to its end."""
        asked = behind_question(self.prompt, instruction)
        episode = await self.ask(stage, asked, f"{self.stream} {stage} {name}".rstrip())
        if episode is None or episode.status.startswith("truncated"):
            self.cut.append(stage)
            return None
        return episode


def _text(episode: Episode | None) -> str:
    return strip_thinking(response_text(episode)).strip() if episode else ""


def _is_choice(vote: str, question: str) -> bool:
    """Whether a vote is a letter, or words that stand in the question, and no number."""
    words = re.findall(r"\w+", question.casefold())
    vote_words = re.findall(r"\w+", vote.casefold())
    return (len(vote) == 1 and vote.isalpha()) or (
        bool(vote_words) and all(w in words and w.isalpha() for w in vote_words)
    )


def _question(prompt: Sequence[Message]) -> str:
    return "\n".join(m.content for m in prompt)


def elect_answer(
    votes: Sequence[str], verified: Sequence[bool], *, verified_first: bool = True
) -> int | None:
    """The place of the answer that is chosen: the first that has the winning vote, a verified one
    before others.

    With `verified_first` only verified answers stand, if there is one; among them the commonest, of a
    tie the one with most votes of all answers, then the first. Else the commonest of all answers, the
    first of a tie. An empty vote counts for nothing. None where nobody votes.
    """
    places = [i for i, v in enumerate(votes) if v]
    first = [i for i in places if verified[i]]
    able = first if verified_first and first else places
    if not able:
        return None
    of_able, of_all = Counter(votes[i] for i in able), Counter(votes)
    winner = max((votes[i] for i in able), key=lambda v: (of_able[v], of_all[v]))
    return min((i for i in places if votes[i] == winner), key=lambda i: (not verified[i], i))
