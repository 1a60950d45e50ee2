"""Questions that are answered by following the facts of a graph, and by reading documents where a fact
is missing.

    Action: searchNeighbor(bako, boss)    tool: tiru    ...    Action: finish(mema)

Actions are those of SymAgent (arXiv:2502.03283, section 4.2). A message has one, on a line of its
own, behind thoughts of any kind.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.services.index import BM25
from palaestra.services.triples import INVERSE, RelationPath, Triple, plain_name
from palaestra.tasks.phrasing import question_text
from palaestra.types import (
    Act,
    Ask,
    Frame,
    Key,
    Message,
    Task,
    need_at_least,
    stage,
    value_class,
)
from palaestra.verifiers.answers.short import contains_term, matches_gold, normalise_text
from palaestra.verifiers.base import strip_thinking
from palaestra.worlds.rules import ARROW, RulePlanner
from palaestra.worlds.tool_log import CallOutcome, LoggedCall, log_facts

PLAN, NEIGHBOUR, TEXT, FINISH = "getReasoningPath", "searchNeighbor", "wikiSearch", "finish"
ACTIONS = {name.casefold(): name for name in (PLAN, NEIGHBOUR, TEXT, FINISH)}
INTENT = r"[^\n()\[\]]*?(?:\bwill|'ll|\blet me|\blet's|\blet us)\s+(?:(?!not\b|never\b)\w+\s+){0,2}"
ACTION = re.compile(
    rf"^[ \t]*(?:[-+>][ \t]+|\d+[.)][ \t]+)?(?:action\s*\d*\s*:\s*|{INTENT})?"
    rf"({'|'.join(ACTIONS.values())})\s*(?:\((.*?)\)|\[(.*?)\])[ \t.]*(?:(?:#|//|--|—).*)?$",
    re.IGNORECASE | re.MULTILINE,
)
SEVERAL = re.compile(rf"\b(?:{'|'.join(ACTIONS.values())})\s*[(\[]", re.IGNORECASE)
MARKS = re.compile(r"(?<!\w)[*`]+|[*`]+(?!\w)")  # of markdown
OBSERVATION = re.compile(r"^[ \t>-]*observation\b", re.IGNORECASE | re.MULTILINE)
NAMED = re.compile(  # quoted text is left as it is
    r'("(?:[^"]|"")*")|(^|,)(\s*)(?:answers?|names?|entity|relation|question)\s*=\s*', re.IGNORECASE
)
NO_ENTITY = "No entity found."
NO_TEXT = "No document found."
NO_ACTION = "No action."
PLANNER, EXTRACTOR = "planner", "extractor"  # threads
SHOWN = 30  # neighbours
EXTRACT = (
    "{text}\n\nWrite the facts about {entity} and {relation} that stand there, a line each, as "
    "head | {relation} | tail, or none."
)
FACT = re.compile(r"^\W*([^|\n]+?)\s*\|\s*([^|\n]+?)\s*\|\s*([^|\n]+?)[\s).]*$", re.MULTILINE)


@value_class
class GraphStep:
    """An action: its name ("" = none could be read), its arguments, and the entities or the text
    that it gave.
    """

    action: str
    args: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    text: str = ""


@value_class
class GraphState:
    task: Task
    entities: tuple[str, ...] = ()  # of the question
    rules: tuple[RelationPath, ...] = ()
    written: int = 0  # of the rules, those that the planner wrote
    steps: tuple[GraphStep, ...] = ()
    added: tuple[Triple, ...] = ()  # facts that were read in documents, apart from the graph
    answer: tuple[str, ...] | None = None
    waiting: Literal["", "planner", "extractor"] = ""  # whose reply is asked for


@declare(
    facts=(
        "turns",
        "tool_calls",
        "tool_malformed",
        "tool_errors",
        "tool_log",
        "tools_offered",
        "malformed",
        "answered",
        "answer",
        "correct",
        ("recall", float, "the share of the right answers that were given"),
        ("precision", float, "the share of the given answers that are right"),
        ("rules", tuple, "chains of relations that the planner gave, as text"),
        ("written", int, "of these, how many a model wrote"),
        ("reach", float, "the share of the right answers that the chains lead to in the graph"),
        ("added", tuple, "facts that the graph lacks and that were read in documents"),
    )
)
@stage
class GraphQuestions:
    """Pays the share of the right answers that `finish` names: the task's answer is one, or a list of
    all of them. Names are compared without case, punctuation and articles. Without `finish` it pays 0.

    A task's column `entity`, a name or several, says what the question is about; without it these
    are the entities whose names stand in the question. A relation may be followed backwards, with
    "^-1" behind it. What `wikiSearch` finds may give facts that the graph lacks: they hold in this
    episode alone, and are its fact "added".

    Args:
        planner: of chains of relations, with the graph.
        documents: that `wikiSearch` searches; None = there is no such action.
        plan: who gives the chains: the "model", in a thread of its own, "graph" = those of similar
            questions as they are, also where the model writes none, or "nobody".
        extract: who reads facts out of documents: the "model", in a thread of its own, or "use": a
            name in them that the next action works with is taken for the tail.
        k: documents that a search shows.
        turns: actions that an episode may have.
        names: answers of `finish` that count; more are ignored, since recall pays for any number.
        measure: "recall", as in the paper, or "f1" of the answers.
        told: the actions are explained behind the question, for models that were not trained on
            them.
    """

    planner: RulePlanner
    documents: BM25 | None = None
    plan: Literal["model", "graph", "nobody"] = "model"
    extract: Literal["model", "use"] = "model"
    k: int = 3
    turns: int = 10
    names: int = 10
    measure: Literal["recall", "f1"] = "recall"
    told: bool = False
    seats: tuple[str, ...] = ("policy",)
    solved: ClassVar[float] = 1.0
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def __post_init__(self) -> None:
        need_at_least(self, k=1, turns=1, names=1)
        choices = {
            "plan": ("model", "graph", "nobody"),
            "extract": ("model", "use"),
            "measure": ("recall", "f1"),
        }
        for name, legal in choices.items():
            if getattr(self, name) not in legal:
                raise UserError(
                    f"graph: {name} is {' or '.join(legal)}, not {getattr(self, name)!r}"
                )

    @property
    def asks(self) -> int:
        """Messages that an episode may have, those of the planner and the extractor included."""
        return 2 * self.turns + 1

    def reset(self, task: Task, key: Key) -> Frame:
        if not task.prompt or not golds_of(task):
            raise UserError(f"task {task.id!r} of a graph needs a question and an answer")
        entities = entities_of(task) or self.planner.entities_in(question_text(task))
        state = GraphState(task=task, entities=entities)
        return self._planned(state, question_text(task))

    def step(self, state: GraphState, acts: tuple[Act, ...], key: Key) -> Frame:
        text = acts[0].text
        if state.waiting == "planner":
            return self._with_rules(state, self.planner.read(strip_thinking(text)))
        if state.waiting == "extractor":
            return self._with_facts(state, strip_thinking(text))
        name, args = read_action(text)
        if name == FINISH:
            args = join_names(args, self.planner.graph.entities)
            state = self._used(state, args)
            return self._end(replace(state, answer=args, steps=(*state.steps, act(name, args))))
        if name == PLAN and len(args) == 1:
            state = replace(state, steps=(*state.steps, act(name, args)))
            return self._planned(state, args[0])
        if name == NEIGHBOUR and len(args) == 2:
            state = self._used(state, args[:1])
            neighbours = self.planner.graph.neighbours(*args, state.added)
            listing = ", ".join(neighbours[:SHOWN]) + (", ..." if len(neighbours) > SHOWN else "")
            return self._observed(
                state, act(name, args, neighbours), listing or self._no_entity(args[0], state)
            )
        if name == TEXT and len(args) == 2 and self.documents is not None:
            return self._searched(self._used(state, args[:1]), args)
        return self._observed(state, act(""), self.usage if self.told else NO_ACTION)

    @property
    def usage(self) -> str:
        """The actions, in words."""
        texts = (
            [
                f"{TEXT}(entity, relation) searches documents, where the graph lacks a fact.",
            ]
            if self.documents
            else []
        )
        lines = [
            "Answer by a graph of facts. A message has a short thought, and then one action on a line "
            "of its own:",
            f"{PLAN}(question) gives chains of relations that may answer it.",
            f"{NEIGHBOUR}(entity, relation) gives the entities that a relation leads to; "
            f"relation{INVERSE} follows it backwards.",
            *texts,
            f"{FINISH}(name, ...) ends with all answers.",
            f'Write a name that has a comma in "double quotes". You may write {self.turns} actions.',
        ]
        return "\n".join(lines)

    def oracle(self, state: GraphState) -> str:
        """The next action on a chain that leads to the answers: the task's column `relations`, else
        the shortest in the graph. What nothing leads to is answered at once.
        """
        golds = golds_of(state.task)
        path = tuple(state.task.meta.get("relations") or ()) or next(
            iter(self.planner.graph.paths(state.entities, golds, self.planner.hops, 1)), ()
        )
        if state.waiting == "planner":
            return ARROW.join(path) or "none"
        if state.waiting == "extractor":
            return "none"
        onward = self._next_on(state, path) if len(state.steps) < self.turns - 1 else ""
        return onward or call_text(FINISH, golds)

    def _next_on(self, state: GraphState, path: RelationPath) -> str:
        """The next action along a path that was not done; "" = all were."""
        way = tuple(map(str, state.task.meta.get("path") or ()))
        at = state.entities
        done = {(s.action, *map(plain_name, s.args)): s for s in state.steps}
        for i, relation in enumerate(path):
            after = list[str]()
            for entity in at:
                pair = (plain_name(entity), plain_name(relation))
                asked = done.get((NEIGHBOUR, *pair))
                if asked is None:
                    return call_text(NEIGHBOUR, (entity, relation))
                if not asked.found and self.documents and (TEXT, *pair) not in done:
                    return call_text(TEXT, (entity, relation))
                after += asked.found or way[i + 1 : i + 2]
            at = tuple(dict.fromkeys(after))
        return ""

    def _planned(self, state: GraphState, question: str) -> Frame:
        """Asks for the chains of a question; the task's own is no example, however it is asked."""
        if self.plan == "nobody":
            return self._with_rules(state, ())
        own = question_text(state.task)
        request = self.planner.request(question, own) if self.plan == "model" else ""
        state = replace(state, rules=self.planner.induce(question, own))
        if not request:
            return self._with_rules(state, ())
        say = (Message(role="user", content=request),)
        ask = Ask(seat="policy", thread=PLANNER, say=say, new_row=True)
        return self._frame(replace(state, waiting="planner"), ask)

    def _with_rules(self, state: GraphState, rules: tuple[RelationPath, ...]) -> Frame:
        """Goes on with chains that the planner wrote; without any with those of the examples."""
        state = replace(
            state, waiting="", rules=rules or state.rules, written=state.written + len(rules)
        )
        if not state.steps:
            return self._frame(state, self._begin(state))
        return self._ask(state, rules_text(state) or "No chain found.")

    def _begin(self, state: GraphState) -> Ask:
        *before, last = state.task.prompt
        parts = [last.content, self.usage if self.told else "", rules_text(state)]
        say = (*before, replace(last, content="\n\n".join(filter(None, parts))))
        return Ask(seat="policy", say=say, stop=self._stop)

    @property
    def offered(self) -> tuple[str, ...]:
        """The actions that can be called."""
        return (PLAN, NEIGHBOUR, *([TEXT] if self.documents else []))

    @property
    def _stop(self) -> tuple[str, ...]:
        return ("\nObservation",) if self.told else ()

    def _searched(self, state: GraphState, args: tuple[str, ...]) -> Frame:
        hits = self.documents.search(" ".join(args), self.k) if self.documents else ()
        text = "\n".join(" ".join(t.split()) for _, t, _ in hits)
        done = act(TEXT, args, (), text)
        if not hits or self.extract == "use":
            return self._observed(state, done, text or NO_TEXT)
        state = replace(state, steps=(*state.steps, done), waiting="extractor")
        request = EXTRACT.format(text=text, entity=args[0], relation=args[1])
        say = (Message(role="user", content=request),)
        return self._frame(state, Ask(seat="policy", thread=EXTRACTOR, say=say, new_row=True))

    def _with_facts(self, state: GraphState, text: str) -> Frame:
        """Keeps the facts of a reply that are about what was searched and stand in the text."""
        done = state.steps[-1]
        entity, relation = map(plain_name, done.args)
        facts = list[Triple]()
        for head, named, tail in FACT.findall(text):
            about = plain_name(named) == relation and entity in map(plain_name, (head, tail))
            if about and all(contains_term(x, normalise_text(done.text)) for x in (head, tail)):
                facts.append((head, done.args[1], tail))
        state = self._added(replace(state, waiting=""), facts)
        read = "\n".join(" | ".join(f) for f in facts)
        return self._ask(state, f"{done.text}\n{read}" if read else done.text)

    def _used(self, state: GraphState, names: tuple[str, ...]) -> GraphState:
        """With the facts that an action takes from the documents that were searched just before."""
        last = state.steps[-1] if state.steps else act("")
        if self.extract != "use" or last.action != TEXT:
            return state
        text = normalise_text(last.text)
        new = [x for x in names if plain_name(x) != plain_name(last.args[0])]
        return self._added(
            state, [(last.args[0], last.args[1], x) for x in new if contains_term(x, text)]
        )

    def _added(self, state: GraphState, facts: list[Triple]) -> GraphState:
        graph = self.planner.graph
        new = [
            f
            for f in facts
            if plain_name(f[2]) not in map(plain_name, graph.neighbours(f[0], f[1]))
        ]
        return replace(state, added=tuple(dict.fromkeys((*state.added, *new))))

    def _no_entity(self, entity: str, state: GraphState) -> str:
        known = self.planner.graph.relations_of(entity) if self.told else ()
        more = f" {entity} has: {', '.join(known[:SHOWN])}" if known else ""
        return NO_ENTITY + more

    def _observed(self, state: GraphState, done: GraphStep, say: str) -> Frame:
        return self._ask(replace(state, steps=(*state.steps, done)), say)

    def _ask(self, state: GraphState, say: str) -> Frame:
        if len(state.steps) >= self.turns:
            return self._end(state, "truncated:turns")
        message = Message(role="tool", content=say)
        return self._frame(state, Ask(seat="policy", say=(message,), stop=self._stop))

    def _frame(self, state: GraphState, ask: Ask) -> Frame:
        return Frame(state=state, asks=(ask,), facts=self._facts(state))

    def _end(self, state: GraphState, status: str = "finished") -> Frame:
        facts = self._facts(state)
        recall, precision = facts["recall"], facts["precision"]
        f1 = 2 * recall * precision / (recall + precision) if recall + precision else 0.0
        paid = recall if self.measure == "recall" else f1
        return Frame(state=state, pay={("policy", ""): paid}, facts=facts, status=status)

    def _facts(self, state: GraphState) -> Mapping[str, Any]:
        golds = tuple(dict.fromkeys(golds_of(state.task)))
        answers = tuple(dict.fromkeys(state.answer or ()))[: self.names]
        recall = sum(any(matches_gold([g], x) for x in answers) for g in golds) / len(golds)
        right = sum(matches_gold(list(golds), x) for x in answers)
        precision = right / len(answers) if answers else 0.0
        malformed = sum(not s.action for s in state.steps)
        empty = sum(map(is_empty, state.steps))
        follow = self.planner.graph.follow
        reached = {e for rule in state.rules for e in follow(state.entities, rule)}
        return {
            "turns": len(state.steps),
            "tool_calls": len(state.steps) - (state.answer is not None),
            "tool_malformed": malformed,
            "tool_errors": empty,
            **log_facts(log_of(state.steps), None, self.offered),
            "malformed": malformed,
            "answered": state.answer is not None,
            "answer": ", ".join(state.answer) if state.answer is not None else None,
            "recall": recall,
            "precision": precision,
            "correct": recall == precision == 1,
            "rules": tuple(map(ARROW.join, state.rules)),
            "written": state.written,
            "reach": sum(plain_name(g) in reached for g in golds) / len(golds),
            "added": state.added,
        }


def is_empty(step: GraphStep) -> bool:
    """Whether nothing was found."""
    return step.action in (NEIGHBOUR, TEXT) and not step.found and not step.text


def log_of(steps: Sequence[GraphStep]) -> tuple[LoggedCall, ...]:
    """The calls as a log has them; the last answer is none."""

    def outcome(step: GraphStep) -> CallOutcome:
        if not step.action:
            return "malformed"
        return "error" if is_empty(step) else "result"

    return tuple((n, s.action, outcome(s)) for n, s in enumerate(steps, 1) if s.action != FINISH)


def act(
    action: str, args: tuple[str, ...] = (), found: tuple[str, ...] = (), text: str = ""
) -> GraphStep:
    return GraphStep(action=action, args=args, found=found, text=text)


def read_action(text: str) -> tuple[str, tuple[str, ...]]:
    """The one action of a message and its arguments; ("", ()) where there is none, or several.
    One in <think></think> is none, nor is one behind an observation that the message makes up for it.
    Markdown, a comment behind the action and the "answer=" of an argument are left out.
    """
    parts = OBSERVATION.split(MARKS.sub("", strip_thinking(text)))
    calls = next(filter(None, map(ACTION.findall, parts)), [])
    if len(calls) != 1:
        return "", ()
    name, inside = ACTIONS[calls[0][0].casefold()], without_names(calls[0][1] or calls[0][2])
    if SEVERAL.search(inside):  # two on a line
        return "", ()
    if name == PLAN:
        return name, tuple(filter(None, [inside.strip().strip("\"'")]))
    parts = next(csv.reader([inside], skipinitialspace=True), [])
    args = tuple(x for part in parts if (x := part.strip().strip("\"'")))
    if name in (NEIGHBOUR, TEXT) and len(args) > 2:  # commas of a name without quotes
        args = (", ".join(args[:-1]), args[-1])
    return name, args


def join_names(names: tuple[str, ...], entities: Container[str]) -> tuple[str, ...]:
    """Names of which neighbours that are one entity of the graph together are one name, as in
    finish(O'Neill, Jean-Luc). `entities`: as `plain_name` writes them.
    """
    joined, i = list[str](), 0
    while i < len(names):
        runs = (
            (j, mark.join(names[i:j])) for j in range(len(names), i + 1, -1) for mark in (", ", ",")
        )
        j, name = next((r for r in runs if plain_name(r[1]) in entities), (i + 1, names[i]))
        joined.append(name)
        i = j
    return tuple(joined)


def without_names(text: str) -> str:
    """Arguments without the "answer=" before them."""
    return NAMED.sub(lambda m: m[1] or m[2] + m[3], text)


def call_text(name: str, args: tuple[str, ...]) -> str:
    """An action as it is written."""
    quoted = ('"' + x.replace('"', '""') + '"' if re.search(r'[,"]', x) else x for x in args)
    return f"{name}({', '.join(quoted)})"


def golds_of(task: Task) -> tuple[str, ...]:
    """All right answers of a question."""
    gold = task.answer
    return tuple(
        map(str, gold if isinstance(gold, list | tuple) else [] if gold is None else [gold])
    )


def entities_of(task: Task) -> tuple[str, ...]:
    """What a task's column `entity` names; an empty name is none."""
    given = task.meta.get("entity") or ()
    named = (given,) if isinstance(given, str) else given
    return tuple(str(x) for x in named if x is not None and str(x).strip())


def lost_entities(planner: RulePlanner, tasks: Sequence[Task]) -> list[str]:
    """A line for people for each reason that questions start nowhere in the graph."""
    named = [(t, [e for e in entities_of(t) if not planner.graph.relations_of(e)]) for t in tasks]
    unknown = [names[0] for _, names in named if names]
    texts = [question_text(t) for t in tasks if not entities_of(t)]
    bare = [text for text in texts if not planner.entities_in(text)]
    lines = list[str]()
    if unknown:
        lines.append(
            f"{len(unknown)} of {len(tasks)} questions name entities that the graph lacks, such as "
            f"{unknown[0]!r}, and nothing is found from there; write the column entity as the graph does"
        )
    if bare:
        lines.append(
            f"{len(bare)} of {len(tasks)} questions have no column entity and no name of the graph in "
            f"them, such as {bare[0]!r}; name what each is about in the column entity"
        )
    return lines


def rules_text(state: GraphState) -> str:
    """The chains as they are shown; "" = there are none."""
    return "\n".join(["paths:", *map(ARROW.join, state.rules)]) if state.rules else ""
