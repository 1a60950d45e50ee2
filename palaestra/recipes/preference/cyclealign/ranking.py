"""How the black box is asked for a ranking, and on what its ranking and the policy's own agree.

A ranking is a permutation of the numbers of k responses, the best first.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

import palaestra as pl

RUBRIC = "A good response is helpful and honest, does no harm, and says no more than is needed."
RANK_PROMPT = f"""Rank the responses to the question from best to worst by the rubric. {pl.judges.CAUTION} \
The order in which they are shown says nothing.

<rubric>{{rubric}}</rubric>

{{examples}}{{shown}}

{{instruction}}"""
ORDER = "End with a line that names every letter once, the best first, such as {order}."
LETTER = "Answer with the letter of the best response."
AGAIN = "That is no order of all responses. Write {letters} once each, the best first, as {order}, and nothing else."
MARK = re.compile(r"\[\[([^\[\]]*)\]\]")
MOST = len(string.ascii_uppercase)  # responses that can be told apart by a letter
Reading = Literal["order", "letters"]


@pl.value_class
class RankedExample:
    """A demonstration: a question and its responses, the best first."""

    question: str
    responses: tuple[str, ...]


# ranked by a person; what a judge sees where a user brings no demonstrations
STATIC = (
    RankedExample(
        question="My neighbour's dog barks all night. How do I make it stop?",
        responses=(
            "Talk to your neighbour first and say when it happens. If that does not help, ask your "
            "town's office for noise, and keep a list of the nights until then.",
            "You could talk to your neighbour.",
            "Put something into its food that makes it sleep.",
        ),
    ),
)


def read_examples(path: str) -> tuple[RankedExample, ...]:
    """The ranked examples of a file: records with prompt and `ranked`, a list of two or more
    responses with the best first, or with prompt, chosen and rejected.

    Raises:
        UserError: a record has neither, or the file has no record.
    """
    examples: list[RankedExample] = []
    for records in pl.tasks.open_records(path).values():
        for i, record in enumerate(records):
            prompt, ranked = record.get("prompt"), record.get("ranked")
            if ranked is None:
                ranked = [record.get("chosen"), record.get("rejected")]
            texts: list[Any] = list(ranked) if isinstance(ranked, list | tuple) else []
            if (
                not all(isinstance(x, str) and x.strip() for x in (prompt, *texts))
                or not 2 <= len(texts) <= MOST
            ):
                raise pl.UserError(
                    f"{records.where(i)}: a demonstration has prompt and ranked, a list of 2 to {MOST} "
                    "responses with the best first, or prompt, chosen and rejected; write these"
                )
            examples.append(RankedExample(question=str(prompt), responses=tuple(texts)))
    if not examples:
        raise pl.UserError(f"{path}: no demonstrations; it needs one a line")
    return tuple(examples)


def show_responses(question: str, responses: Sequence[str], shown_k: Sequence[int]) -> str:
    """The question with its responses as letters: letter number i stands for response `shown_k[i]`."""
    listed = [
        f"Response {string.ascii_uppercase[i]}:\n<response>{pl.judges.defuse(responses[n])}</response>"
        for i, n in enumerate(shown_k)
    ]
    return "\n".join((f"<question>{pl.judges.defuse(question)}</question>", *listed))


def order_mark(ranking: Sequence[int], shown_k: Sequence[int]) -> str:
    """A ranking as a judge writes it, [[B > A]]."""
    place = {n: i for i, n in enumerate(shown_k)}
    return f"[[{' > '.join(string.ascii_uppercase[place[n]] for n in ranking)}]]"


def show_example(example: RankedExample) -> str:
    """A demonstration in an order that belongs to it, with its ranking."""
    k = len(example.responses)
    shown_k = pl.rng_of(("example", example.question, *example.responses)).permutation(k).tolist()
    responses = show_responses(example.question, example.responses, shown_k)
    return f"An example:\n{responses}\nRanking: {order_mark(range(k), shown_k)}\n\n"


def read_order(text: str, shown_k: Sequence[int]) -> list[int] | None:
    """The ranking in the last double brackets of a reply, behind its thinking; None where it is no
    permutation of all letters.
    """
    marks = MARK.findall(pl.judges.reply_after_thinking(text))
    if not marks:
        return None
    named = [x.strip().removeprefix("Response").strip() for x in re.split("[>,]", marks[-1])]
    letters = string.ascii_uppercase[: len(shown_k)]
    if sorted(named) != list(letters):
        return None
    return [shown_k[letters.index(x)] for x in named]


async def ask_ranking(
    client: pl.Client,
    read: Reading,
    rubric: str,
    examples: Sequence[RankedExample],
    question: str,
    responses: Sequence[str],
    shown_k: Sequence[int],
) -> list[int] | None:
    """The judge's ranking of responses that are shown in the order `shown_k`.

    A reply that is no permutation is asked for once more, in the same talk; None = the second is
    none either. With "letters" the ranking is that of the letters' log-probabilities as the reply.

    Raises:
        Fault: the judge could not be reached.
        UserError: "letters" of an endpoint that shows no log-probabilities.
    """
    letters = string.ascii_uppercase[: len(shown_k)]
    instruction = LETTER if read == "letters" else ORDER.format(order=form_of(len(shown_k)))
    text = RANK_PROMPT.format(
        rubric=rubric,
        examples="".join(map(show_example, examples)),
        shown=show_responses(question, responses, shown_k),
        instruction=instruction,
    )
    messages = pl.services.question_messages(text)
    if read == "letters":
        reply = await client.chat(pl.ChatRequest(messages=messages, choices=tuple(letters)))
        if reply.choices is None:
            raise pl.UserError(
                f"cyclealign: {client.name} shows no log-probabilities, which read=letters needs; use "
                "read=order"
            )
        logp_k = [reply.choices[x] for x in letters]
        return [shown_k[i] for i in np.argsort(-np.array(logp_k), kind="stable").tolist()]
    reply = await client.chat(pl.ChatRequest(messages=messages))
    ranking = read_order(reply.text, shown_k)
    if ranking is None:
        repair = AGAIN.format(letters=", ".join(letters), order=form_of(len(shown_k)))
        correction = (
            pl.Message(role="assistant", content=reply.text or "..."),
            pl.Message(role="user", content=repair),
        )
        reply = await client.chat(pl.ChatRequest(messages=(*messages, *correction)))
        ranking = read_order(reply.text, shown_k)
    return ranking


def form_of(k: int) -> str:
    """The form of an order of `k` letters, in an order of its own that is not that of the letters."""
    letters = string.ascii_uppercase[:k]
    return f"[[{' > '.join(letters[1:] + letters[:1])}]]"


def agreed_order(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """The longest common subsequence of two rankings; of several, the one with the earlier members of
    `first`.
    """
    length = np.zeros((len(first) + 1, len(second) + 1), int)
    for i in reversed(range(len(first))):
        for j in reversed(range(len(second))):
            same = first[i] == second[j]
            length[i, j] = (
                1 + length[i + 1, j + 1] if same else max(length[i + 1, j], length[i, j + 1])
            )
    order, i, j = list[int](), 0, 0
    while length[i, j]:
        # the first member of `first` that a subsequence of this length can begin with
        at = next((n for n in range(j, len(second)) if second[n] == first[i]), None)
        if at is not None and 1 + length[i + 1, at + 1] == length[i, j]:
            order.append(first[i])
            j = at + 1
        i += 1
    return order


def pair_accuracy(score_k: Sequence[float], gold_k: Sequence[float]) -> float | None:
    """Of the pairs that differ in gold, the share that a score orders as gold does, a tie one half;
    None where no two differ.
    """
    right = [
        (np.sign(score_k[i] - score_k[j]) + 1) / 2
        for i in range(len(gold_k))
        for j in range(len(gold_k))
        if gold_k[i] > gold_k[j]
    ]
    return float(np.mean(right)) if right else None
