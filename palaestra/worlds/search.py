"""Questions that are answered by searching: a message searches, or it answers.

    <search>boss of bako</search>    tool: bako: boss of bako is tiru.    ...    <answer>mema</answer>

A message may begin with a thought in <think>...</think>. What is found is a message of its own: it
is never trained on, and what stands in a document is never read as the policy's, tags included.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypeVar

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.services.index import BM25, Hit, document_of, words_of
from palaestra.tasks.phrasing import plain_question
from palaestra.types import (
    Act,
    Ask,
    Frame,
    Key,
    Message,
    Task,
    need_at_least,
    rng_of,
    stage,
    value_class,
)
from palaestra.verifiers.answers.boxes import boxed_answer
from palaestra.verifiers.answers.final import gold_of
from palaestra.verifiers.answers.short import contains_term, matches_gold, normalise_text
from palaestra.verifiers.ranking import document_grades
from palaestra.worlds.outage import OUT, Outage
from palaestra.worlds.retrieval import Retriever, check_gold, find
from palaestra.worlds.tool_log import CallOutcome, log_facts
from palaestra.worlds.uptake import Uptake

Outcome: TypeAlias = Literal[
    "found",
    "nothing",
    "empty",
    "failed",
    "over",
    "malformed",
    "judged",
    "opened",
    "unknown",
    "answer",
]
Rule: TypeAlias = Literal["again", "end"]
EMPTY, NOTHING, SPENT = "invalid query", "nothing", "no searches left"
THINK, RESULT = "think", "result"
QUOTES = "`\"'“‘«"  # a tag behind one of these is quoted
CLOSED = re.compile(r"[\s.!*]*")  # what may stand behind a search
REMARK = re.compile(r"[ \t.!*]*(?:\n.*)?", re.DOTALL)  # and behind an answer


@stage
class SearchRules:
    """What follows a turn that finds nothing, by its outcome: "again", the policy is told and goes
    on, or "end", the episode ends unpaid.
    """

    empty: Rule = "again"  # a query without a word
    nothing: Rule = "again"  # no document shares a word with it
    over: Rule = "again"  # more searches than an episode may have
    malformed: Rule = "again"  # neither a search nor an answer, or several


@value_class
class SearchState:
    task: Task
    found: tuple[tuple[str, ...], ...] = ()  # ids of documents, by turn
    gains: tuple[float, ...] = ()  # by turn
    outcomes: tuple[Outcome, ...] = ()  # by turn
    answer: str | None = None
    seconds: tuple[float, ...] = field(default=(), compare=False)  # by turn, that its search took
    # (id, text) of the passages that were shown, in order, each once
    passages: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    uptake: Uptake = field(default=Uptake(), repr=False, compare=False)  # a result by turn

    @property
    def calls(self) -> int:
        """Searches that were made; an empty one is one too."""
        return sum(o in ("found", "nothing", "empty", "failed") for o in self.outcomes)


@declare(
    facts=(
        "turns",
        ("calls", int, "searches that were made"),
        "tool_calls",
        "tool_malformed",
        "tool_errors",
        "malformed",
        ("outcomes", tuple, "by turn, what became of it"),
        ("found", tuple, "by search, ids of the documents that it showed"),
        ("coverage", tuple, "by search, the share of the gold documents that were seen by then"),
        ("gains", tuple, "by turn, the share of the gold documents that its search showed"),
        "executed",
        "answered",
        "answer",
        ("seen", tuple, "ids of the passages that were shown before the answer, in order"),
        ("citations", tuple, "of these, the passages that have the words of the answer"),
        "correct",
        "tool_log",
        "tool_seconds",
        "tools_offered",
        "tool_used",
    )
)
@stage
class Search:
    """Pays 1 for the right answer, in \\boxed{} or without: its words without case, punctuation and
    articles are those of the gold answer or of one of several, numbers by value.

    Facts by turn: "outcomes"; "found", the ids of documents; "coverage", the share of the ids in
    the task's `meta["gold"]` that were found so far; "gains", the share of them that this search
    showed (of a task without gold documents 1 where a passage has an answer's words, else 0);
    "executed", whether it found something or answered. And "turns", "calls", "malformed", "answered", "answer", "correct".
    At the end "seen" has the ids of all passages shown, and "citations" those of them that have the answer's words.

    Args:
        index: of the documents, or a search of the user's own, `OwnSearch`.
        k: documents that a search shows at most, a line each.
        turns: that an episode may have, the answer included.
        calls: searches that an episode may make; 0 = as many as it has turns.
        rules: what follows a turn that finds nothing.
        forms: tags of a search and of an answer.
        told: the rules stand behind the question, for models that were not trained on them.
        seconds: that a search takes in the median, as a service that is far away does; they are
            waited for, and use no processor.
        sigma: of the logarithm of these seconds.
        fails: share of the searches that give nothing but an error, see `Outage`.
        fails_from: the step of training from which on they do.
    """

    index: Retriever
    k: int = 3
    turns: int = 6
    calls: int = 0
    rules: SearchRules = SearchRules()
    forms: tuple[str, str] = ("search", "answer")
    told: bool = False
    seconds: float = 0.0
    sigma: float = 0.8
    seats: tuple[str, ...] = ("policy",)
    fails: float = 0.0
    fails_from: int = 0
    trained: int = field(default=0, repr=False, compare=False)  # steps before this one
    solved: ClassVar[float] = 1.0
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        need_at_least(self, k=1, turns=1, calls=0, seconds=0, sigma=0)
        Outage(share=self.fails, since=self.fails_from)
        tags = {*self.forms, THINK, RESULT}
        if len(tags) < 4 or not all(re.fullmatch(r"\w+", tag) for tag in tags):
            raise UserError(f"Search: forms are two words other than {THINK} and {RESULT}")

    def at_step(self, step: int) -> Self:
        return replace(self, trained=step) if self.fails else self

    def reset(self, task: Task, key: Key) -> Frame:
        if not task.prompt:
            raise UserError(f"task {task.id!r} of a search needs a question and an answer")
        right_answers(task)
        check_gold(self.index, sources_of(task), task)
        *before, last = task.prompt
        content = f"{last.content}\n\n{self.usage}" if self.told else last.content
        return self._ask(self._begin(task), (*before, replace(last, content=content)))

    async def step(self, state: SearchState, acts: tuple[Act, ...], key: Key) -> Frame:
        state = hear(state, self.untagged(acts[0].text))
        form, content = self.read(acts[0].text)
        if form == "answer":
            return self._end(self._after(replace(state, answer=content), "answer"))
        if form == "search" and self.calls and state.calls >= self.calls:
            return self._missed(state, "over", SPENT, self.rules.over)
        if form == "search" and not words_of(content):
            return self._missed(state, "empty", EMPTY, self.rules.empty)
        if form == "search" and Outage(share=self.fails, since=self.fails_from).fails(
            key, self.trained
        ):
            return self._missed(state, "failed", OUT, self.rules.nothing)
        if form == "search":
            begin = time.perf_counter()
            hits = await self._search(content, key)
            took = time.perf_counter() - begin
            if not hits:
                return self._missed(state, "nothing", NOTHING, self.rules.nothing, took)
            state = self._after(state, "found", hits, took)
            return self._go_on(state, "\n".join(map(self.line_of, hits)))
        return self._missed(state, "malformed", self.correction(state), self.rules.malformed)

    def line_of(self, hit: Hit) -> str:
        """How a passage is shown: a line each, so that a document cannot look like several."""
        _, text, _ = hit
        return " ".join(text.split())

    def correction(self, state: SearchState) -> str:
        """What the policy is told whose message could not be read."""
        search, answer = self.forms
        return f"use <{search}>...</{search}> or <{answer}>...</{answer}>"

    @property
    def usage(self) -> str:
        """How documents are searched and how a question is answered, in words."""
        search, answer = self.forms
        if self.turns == 1:
            return f"Write <{answer}>the answer</{answer}>, as short as possible."
        most = f" You may search {self.calls or self.turns - 1} times."
        return (
            f"You can search documents: end a message with <{search}>a few words</{search}>, and the "
            f"next message has what was found.{most} Once you know the answer, write "
            f"<{answer}>it</{answer}>, as short as possible. A message has one search or one answer."
        )

    def closed(self) -> Search:
        """The same questions without the documents: the first message must answer."""
        return replace(self, turns=1)

    def read(self, text: str) -> tuple[Literal["search", "answer", "open", "malformed"], str]:
        """What a message does, and what with: one search or one answer, after a thought or other words
        without a tag, or without any. A quoted tag is none. Nothing stands behind a search, since it
        would be made up before the documents are read; further lines may stand behind an answer.
        """
        read = self._action.fullmatch(text)
        if read is None:
            return "malformed", ""
        form, content, behind = read.groups()
        if form == self.forms[0]:
            return ("search", content.strip()) if CLOSED.fullmatch(behind) else ("malformed", "")
        return ("answer", content.strip()) if REMARK.fullmatch(behind) else ("malformed", "")

    def oracle(self, state: SearchState) -> str:
        """The next step of the shortest way: the next known search, of a question without known ones
        its own words, once; then the right answer, at once where no search is allowed.
        """
        query = self.next_query(state) if self.turns > 1 else ""
        search, answer = self.forms
        if query:
            return f"<{search}>{query}</{search}>"
        return f"<{answer}>{gold_of(right_answers(state.task)[0])}</{answer}>"

    def next_query(self, state: SearchState) -> str:
        """What should be searched now; "" = nothing more."""
        meta, ids_found = state.task.meta, {i for ids in state.found for i in ids}
        if "queries" in meta:
            known_ways = zip(meta.get("gold", ()), meta["queries"], strict=False)
            return next((q for i, q in known_ways if i not in ids_found), "")
        query = self.first_query(state.task)
        index = self.index
        finds = not isinstance(index, BM25) or bool(index.search(query, 1))
        return query if not state.outcomes and finds else ""

    def first_query(self, task: Task) -> str:
        """What is searched first where examples are written: the first known way, or the question
        itself, without a recipe's instruction and without tags, which would end the search.
        """
        known_ways = task.meta.get("queries") or ()
        return self.untagged(str([*known_ways, plain_question(task)][0]))

    def untagged(self, text: str) -> str:
        """The text without tags of the form, so that it can stand inside one."""
        return " ".join(self._tag.sub(" ", text).split())

    @cached_property
    def _kept(self) -> dict[str, tuple[Hit, ...]]:
        return {}

    @property
    def _tags(self) -> str:
        """All tags of the form, for a pattern."""
        return "|".join((*self._actions, THINK, RESULT))

    @property
    def _actions(self) -> tuple[str, ...]:
        """The tags of what a message may do."""
        return self.forms

    @cached_property
    def _tag(self) -> re.Pattern[str]:
        return re.compile(rf"</?(?:{self._tags})>")

    @cached_property
    def _action(self) -> re.Pattern[str]:
        inside = rf"(?:(?!</?(?:{self._tags})>).)*"
        forms = "|".join(self._actions)
        return re.compile(
            rf"{inside}(?:<{THINK}>{inside}</{THINK}>{inside})?"
            rf"(?<![{QUOTES}])<({forms})>({inside})</\1>({inside})",
            re.DOTALL,
        )

    def _begin(self, task: Task) -> SearchState:
        return SearchState(task=task)

    def _facts(self, state: SearchState) -> Mapping[str, Any]:
        return facts(state)

    async def _search(self, query: str, key: Key) -> tuple[Hit, ...]:
        if self.seconds:
            z = float(rng_of((*key, "wait", query)).standard_normal())
            await asyncio.sleep(self.seconds * math.exp(self.sigma * z))
        return await find(self.index, query, self.k, self._kept)

    def _after(
        self, state: SearchState, outcome: Outcome, hits: tuple[Hit, ...] = (), seconds: float = 0.0
    ) -> SearchState:
        return replace(
            state,
            outcomes=(*state.outcomes, outcome),
            found=(*state.found, tuple(i for i, _, _ in hits)),
            gains=(*state.gains, gain(state.task, hits)),
            seconds=(*state.seconds, seconds),
            passages=tuple(dict((*state.passages, *(h[:2] for h in hits))).items()),
        )

    def _missed(
        self, state: SearchState, outcome: Outcome, say: str, rule: Rule, seconds: float = 0.0
    ) -> Frame:
        state = self._after(state, outcome, seconds=seconds)
        if rule == "again":
            return self._go_on(state, say)
        return self._end(state, "truncated:calls" if outcome == "over" else "finished")

    def _go_on(self, state: SearchState, say: str) -> Frame:
        if state.outcomes[-1] in ("found", "opened"):
            used = state.uptake
            before = [""] * (len(state.outcomes) - len(used.used) - 1)  # turns without a result
            state = replace(state, uptake=used.returned(*before, say))
        if len(state.outcomes) >= self.turns:
            return self._end(state, "truncated:turns")
        return self._ask(state, (Message(role="tool", content=say),))

    def _ask(self, state: SearchState, say: tuple[Message, ...]) -> Frame:
        ask = Ask(seat="policy", say=say)
        return Frame(state=state, asks=(ask,), facts=self._facts(state), state_key=known(state))

    def _end(self, state: SearchState, status: str = "finished") -> Frame:
        answer, golds = state.answer, right_answers(state.task)
        right = answer is not None and any(
            matches_gold(golds, text) for text in (answer, boxed_answer(answer)) if text
        )
        return Frame(
            state=state,
            pay={("policy", ""): float(right)},
            facts={**self._facts(state), **citations(state), "correct": right},
            state_key=known(state),
            status=status,
        )


def facts(state: SearchState) -> Mapping[str, Any]:
    """What the world knows of an episode."""
    gold = sources_of(state.task)
    seen, coverage = set[str](), list[float]()
    for ids in state.found:
        seen |= sources_among(gold, ids)
        coverage.append(len(seen) / len(gold) if gold else 0.0)
    count = Counter(state.outcomes)
    missed = count["empty"] + count["nothing"] + count["over"] + count["failed"]
    return {
        **log_of(state, "search"),
        "tool_calls": count["found"] + missed + count["malformed"],
        "tool_malformed": count["malformed"],
        "tool_errors": missed,
        "turns": len(state.outcomes),
        "calls": state.calls,
        "malformed": state.outcomes.count("malformed"),
        "outcomes": state.outcomes,
        "found": state.found,
        "coverage": tuple(coverage),
        "gains": state.gains,
        "executed": tuple(o in ("found", "opened", "answer") for o in state.outcomes),
        "answered": state.answer is not None,
        "answer": state.answer,
    }


def citations(state: SearchState) -> dict[str, Any]:
    """The passages behind an answer: those that were shown before it, and of these the ones that have
    its words. No passage supports an answer that was not given, or has no word.
    """
    said = boxed_answer(state.answer) or state.answer if state.answer else ""
    words = lambda text: f" {' '.join(words_of(text))} "
    wanted = words(said)
    have = [i for i, text in state.passages if wanted.strip() and wanted in words(text)]
    return {"seen": tuple(i for i, _ in state.passages), "citations": tuple(have)}


def log_of(state: SearchState, search: str, opening: str = "") -> dict[str, Any]:
    """The calls of an episode as a log has them; a search and an opening are tools of these names."""
    as_logged: dict[Outcome, tuple[str, CallOutcome]] = {
        "found": (search, "result"),
        "opened": (opening, "result"),
        "unknown": (opening, "error"),
        "malformed": ("", "malformed"),
        **dict.fromkeys(("nothing", "empty", "over", "failed"), (search, "error")),
    }
    calls = [(n, as_logged[o]) for n, o in enumerate(state.outcomes) if o in as_logged]
    log = tuple((n + 1, *call) for n, call in calls)
    used = [n < len(state.uptake.used) and state.uptake.used[n] for n, _ in calls]
    seconds = tuple(state.seconds[n] if n < len(state.seconds) else 0.0 for n, _ in calls)
    return log_facts(log, seconds, filter(None, (search, opening)), used)


StateT = TypeVar("StateT", bound=SearchState)


def hear(state: StateT, text: str) -> StateT:
    """The state after a message of the policy, for which results it uses."""
    asked = () if state.outcomes else tuple(m.shown for m in state.task.prompt)
    return replace(state, uptake=state.uptake.heard(*asked).said(text))


def sources_of(task: Task) -> frozenset[str]:
    """The gold documents of a question, its column `gold`: ids of passages, or of whole documents,
    whose passages are FILE#1, FILE#2, ... Of a mapping to grades, those with one above 0. Raises
    UserError for anything else.
    """
    gold = task.meta.get("gold")
    if gold is None or gold in ("", [], (), {}):
        return frozenset()
    return frozenset(n for n, g in document_grades(gold, f"task {task.id!r}").items() if g > 0)


def gain(task: Task, hits: Sequence[Hit]) -> float:
    """What a search showed of the gold documents; see `Search`."""
    if gold := sources_of(task):
        return len(sources_among(gold, [i for i, _, _ in hits])) / len(gold)
    texts = [normalise_text(text) for _, text, _ in hits]
    return float(any(contains_term(a, text) for a in right_answers(task) for text in texts))


def right_answers(task: Task) -> list[str]:
    """The answers of a question, any of which is right. Raises UserError where it has none."""
    given = task.answer if isinstance(task.answer, list | tuple) else [task.answer]
    answers = [str(a) for a in given if a is not None and str(a).strip()]
    if not answers:
        raise UserError(
            f"task {task.id!r} of a search needs a question and an answer, and its answer is "
            f"{task.answer!r}; drop the row, or say which column has the answer, e.g. --columns "
            "solution=answer"
        )
    return answers


def sources_among(gold: frozenset[str], ids: Iterable[str]) -> set[str]:
    """Those gold documents of which one of these passages is a part."""
    return {name for i in ids for name in (i, document_of(i)) if name in gold}


def known(state: SearchState) -> tuple[str, ...]:
    """Situations are equal where the same documents were found."""
    return tuple(sorted({i for ids in state.found for i in ids}))
