"""A place with look-alike objects, of which a user wants one: the agent looks, carries, or asks.

    bring the cup to the door       at the shelf: cup 1 red small, cup 2 red big          go sink
    at the sink: cup 3 blue small   ask colour   the user says: red       go shelf        ask size
    the user says: big              take cup 2   go door                  put

What is here is seen, what lies elsewhere is not. The user knows which object is meant. Each object has a
value for each attribute; its place is one more. Questions are `ask colour`, answered with a value, and
`ask colour red`, answered yes or no; both with the words of the record.

A place may have a picture (`views`): whoever comes there is shown it, with the names of what lies there
and without their values, so these are in the picture alone.

Objects that agree with all answers are the candidates. A question is useful if they become fewer; so the
same question is never useful twice. The turn t is paid

    r_t = w_s [the target was put at the goal] + w_g [new subgoal] + w_q [useful question]
          - c_step - c_over [questions > B]

with two subgoals: being where the target lies, and holding it (Ask-to-Act, arXiv:2504.00907; weights are
ours, as the paper's are not known). Whether a question is useful says the program above, or `judge`, who
knows the target; what it says reaches the reward alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any, Literal, Protocol, TypeAlias

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.pictures import PICTURE_MARK, Picture
from palaestra.rollout.play import await_if_needed
from palaestra.schedule import check_bounds
from palaestra.types import Act, Ask, Frame, Key, Message, Task, seed_of, stage, value_class

Interview: TypeAlias = tuple[tuple[str, str], ...]  # questions and their answers, in order
PLACE, NAME = "place", "name"
YES = re.compile(r"\b(yes|no)\b(?!\s+(?:idea|clue|opinion|preference))", re.IGNORECASE)
NOT = r"(?:\bnot|\bno|\bnor|\bneither|\bnever|n['\u2019]t)\s+(?:(?:the|a|an)\s+)?"  # before a value that is denied


class RoomUser(Protocol):
    """Whoever knows which object is meant."""

    def __call__(
        self, task: Task, talk: Interview, question: str, key: Key
    ) -> str | Awaitable[str]:
        """The answer to a question. Raises Fault where nobody says anything."""
        ...


class QuestionJudge(Protocol):
    """Says whether a question narrows down what is meant."""

    def __call__(
        self, task: Task, talk: Interview, question: str, answer: str, key: Key
    ) -> bool | Awaitable[bool]: ...


@value_class
class RoomItem:
    """An object: its name, where it lies, and its values by attribute."""

    name: str
    place: str
    values: tuple[tuple[str, str], ...]

    def value(self, attribute: str) -> str:
        """Its place where the attribute is "place"; "" for one that it has not."""
        return self.place if attribute == PLACE else dict(self.values).get(attribute, "")

    @property
    def shown(self) -> str:
        return " ".join(
            [
                self.name,
                *(v for _, v in self.values if not _contains(self.name.rstrip("0123456789 "), v)),
            ]
        )


@value_class
class AskingRecord:
    """What a task says: the objects, the one that is meant, where it is to be put, all places, and
    the pictures of those that have one.
    """

    items: tuple[RoomItem, ...]
    target: str
    goal: str
    places: tuple[str, ...]
    start: str
    told: tuple[tuple[str, tuple[str, ...]], ...] = ()  # values that the instruction names
    views: tuple[tuple[str, Picture], ...] = ()  # what is seen at a place

    @property
    def attributes(self) -> tuple[str, ...]:
        """Those in which objects differ, with their place."""
        names = dict.fromkeys(k for x in self.items for k, _ in x.values)
        return tuple(k for k in (*names, PLACE) if len({x.value(k) for x in self.items}) > 1)

    def item(self, name: str) -> RoomItem:
        return next(x for x in self.items if x.name == name)

    def questions(self) -> tuple[str, ...]:
        """All that can be asked: each attribute, and each of its values."""
        open_ones = [f"ask {k}" for k in self.attributes]
        closed = [
            f"ask {k} {v}"
            for k in self.attributes
            for v in dict.fromkeys(x.value(k) for x in self.items)
            if v
        ]
        return (*open_ones, *closed)

    def keeps(self, item: RoomItem, question: str, answer: str) -> bool:
        """Whether an object agrees with an answer. One that says nothing of the attribute excludes none."""
        attribute, value = self.read(question)
        if value:
            verdict = YES.search(answer)
            return verdict is None or (item.value(attribute) == value) == (
                verdict[1].casefold() == "yes"
            )
        values = {v for x in self.items if (v := x.value(attribute)) and _contains(answer, v)}
        denied = {v for v in values if _contains(answer, v, NOT)}
        named = values - denied
        if named:
            return len(named) != 1 or item.value(attribute) in named
        return item.value(attribute) not in denied

    def read(self, question: str) -> tuple[str, str]:
        """The attribute of a question, and the value of a closed one; "" for none."""
        words = question.removeprefix("ask ").strip()
        if words in self.attributes:
            return words, ""
        for k in self.attributes:
            value = words.removeprefix(f"{k} ").strip()
            if value != words and any(x.value(k) == value for x in self.items):
                return k, value
        return "", ""

    def candidates(self, talk: Interview) -> tuple[str, ...]:
        """The names of the objects that agree with the instruction and all answers."""
        return tuple(
            x.name
            for x in self.items
            if all(x.value(k) in named for k, named in self.told)
            and all(self.keeps(x, q, a) for q, a in talk)
        )

    def answer(self, question: str) -> str:
        """What a user says who knows the target; "I cannot say" to what is no question here."""
        attribute, value = self.read(question)
        if not attribute:
            return "I cannot say"
        own = self.item(self.target).value(attribute)
        return ("yes" if own == value else "no") if value else own or "I cannot say"

    @property
    def needed(self) -> int:
        """The least number of questions after which the target is the only candidate, or where there is
        none, as few as possible.
        """
        return len(self.ambiguity)

    @property
    def ambiguity(self) -> tuple[str, ...]:
        """The attributes that a user has to name, as few as possible: () = the instruction is enough. Of equally few the
        first ones.
        """
        asked = [(f"ask {k}", self.answer(f"ask {k}")) for k in self.attributes]
        fewest = len(self.candidates(tuple(asked)))
        enough = next(
            some
            for n in range(len(asked) + 1)
            for some in combinations(asked, n)
            if len(self.candidates(some)) == fewest
        )
        return tuple(self.read(question)[0] for question, _ in enough)


def _contains(text: str, value: str, before: str = "") -> bool:
    """Whether a value stands in a text, behind what the expression `before` takes."""
    pattern = rf"{before}(?<!\w){re.escape(value)}(?!\w)"
    return re.search(pattern, text, re.IGNORECASE) is not None


def read_record(task: Task) -> AskingRecord:
    """The record of a task. Raises UserError, with the task's id, for what it lacks."""
    wrong = lambda what: UserError(f"task {task.id!r}: {what}")
    objects, target, goal = (task.meta.get(k) for k in ("objects", "wanted", "bring_to"))
    if not isinstance(objects, list | tuple) or len(objects) < 2:
        raise wrong(
            "'objects' is a list of two objects or more, each with name, place and its attributes: "
            '[{"name": "cup 1", "place": "shelf", "colour": "red"}, ...]'
        )
    items = list[RoomItem]()
    for x in objects:
        if not isinstance(x, Mapping) or not {NAME, PLACE} <= x.keys():
            raise wrong(f"the object {str(x)[:60]} has no name or no place")
        values = tuple((str(k), str(v)) for k, v in x.items() if k not in (NAME, PLACE) and v)
        items.append(RoomItem(name=str(x[NAME]), place=str(x[PLACE]), values=values))
    names = [x.name for x in items]
    if len({*names}) < len(names):
        raise wrong("two objects have the same name; the agent could not say which it takes")
    if target not in names:
        raise wrong(f"'wanted' is {target!r}, and the objects are {', '.join(names)}")
    if not isinstance(goal, str) or not goal.strip():
        raise wrong("'bring_to' is missing: the place where the object is to be put")
    more = task.meta.get("places") or ()
    if not isinstance(more, list | tuple):
        raise wrong("'places' is a list of names")
    places = tuple(dict.fromkeys([*(x.place for x in items), *map(str, more), goal]))
    start = str(task.meta.get("begin_at") or places[0])
    if start not in places:
        raise wrong(f"'begin_at' is {start!r}, and the places are {', '.join(places)}")
    views = _read_views(task, places)
    prompt = room_instruction(task)
    named_values = list[tuple[str, tuple[str, ...]]]()
    for k in dict.fromkeys(k for x in items for k, _ in x.values):
        every = dict.fromkeys(x.value(k) for x in items)
        named = tuple(v for v in every if v and _contains(prompt, v))
        if named:
            named_values.append((k, named))
    record = AskingRecord(
        items=tuple(items),
        target=str(target),
        goal=goal,
        places=places,
        start=start,
        told=tuple(named_values),
        views=views,
    )
    if target not in record.candidates(()):
        raise wrong("the instruction names values that 'wanted' has not")
    return record


def _read_views(task: Task, places: Sequence[str]) -> tuple[tuple[str, Picture], ...]:
    """The pictures of a row by the place that each shows, by `views`; () without that column."""
    named = task.meta.get("views") or ()
    if not named:
        return ()
    wrong = lambda what: UserError(f"task {task.id!r}: {what}")
    if not isinstance(named, list | tuple):
        raise wrong("'views' is a list of places, one for each picture of the row")
    pictures = [p for m in task.prompt for p in m.pictures]
    if len(pictures) != len(named):
        raise wrong(f"'views' names {len(named)} places, and the row has {len(pictures)} pictures")
    if odd := [v for v in named if v not in places]:
        raise wrong(f"'views' names {odd[0]!r}, and the places are {', '.join(places)}")
    if len({*named}) < len(named):
        raise wrong("'views' names a place twice; a place has one picture")
    return tuple(zip(map(str, named), pictures, strict=True))


def room_instruction(task: Task) -> str:
    """What is to be done, in words: the prompt without its pictures."""
    return "\n".join(_words(m) for m in task.prompt)


def _words(message: Message) -> str:
    return message.content.replace(PICTURE_MARK, "") if message.pictures else message.content


@value_class
class AskingState:
    task: Task
    record: AskingRecord
    at: str
    visited: tuple[str, ...] = ()
    held: str = ""
    talk: Interview = ()
    useful: tuple[bool, ...] = ()  # by question, as it was paid
    found: bool = False  # the agent was where the target lies
    taken: bool = False  # it held the target
    turns: int = 0
    invalid: int = 0
    done: bool = False
    success: bool = False


@declare(
    columns=(
        ("objects", tuple, "what lies in a place: name, place and attributes of each"),
        ("wanted", str, "the name of the object that is meant"),
        ("bring_to", str, "where it is to be put"),
        ("places", tuple, "the names of all places"),
        ("begin_at", str, "the place in which the agent begins"),
        ("views", tuple, "the places that the pictures of the row show, in their order"),
    ),
    facts=(
        "turns",
        "invalid",
        "correct",
        ("asked_useful", int, "questions after which fewer things can be meant"),
        ("asked_idle", int, "other questions"),
        ("asked_needed", int, "the fewest questions that single the target out"),
        ("asked_bits", float, "log2 of the candidates before all questions to those after"),
        ("over_budget", int, "questions behind the budget"),
        ("subgoals", int, "0 to 2, those that were paid: the target was found, and held"),
        ("ars", float, "100 success / (1 + |needed - useful| + idle)"),
    ),
    reads_columns=("objects", "wanted", "bring_to"),
)
@stage
class AskingRoom:
    """The world. An impossible action costs a turn. With `legal` there is none, since only possible
    ones can be said; then questions are those of the record, on values that were seen or said before.

    Args:
        turns: of an episode.
        budget: questions that are free of c_over.
        success, subgoal, useful, step, over: w_s, w_g, w_q, c_step and c_over.
        usefulness: "oracle" = candidates become fewer; "shuffled" = a coin that the question and the
            task throw, a control. Whoever says it, the same question is not useful twice.
        user: who answers; None = the record does.
        judge: who says which question is useful; None = `usefulness`.
    """

    turns: int = 12
    budget: int = 2
    success: float = 1.0
    subgoal: float = 0.2
    useful: float = 0.2
    step_cost: float = 0.01
    over: float = 0.1
    usefulness: Literal["oracle", "shuffled"] = "oracle"
    user: RoomUser | None = None
    judge: QuestionJudge | None = None
    legal: bool = True
    seats: tuple[str, ...] = ("policy",)

    def __post_init__(self) -> None:
        check_bounds("turns", self.turns, least=1)
        check_bounds("budget", self.budget, least=0)

    def reset(self, task: Task, key: Key) -> Frame:
        record = read_record(task)
        state = AskingState(task=task, record=record, at=record.start, visited=(record.start,))
        state = replace(state, found=record.item(record.target).place == state.at)
        *before, last = task.prompt
        if not record.views:
            opened = replace(last, content=f"{last.content}\n{self._view(state)}")
            return self._ask(state, (*before, opened))
        words = [replace(m, content=_words(m), pictures=()) for m in (*before, last)]
        seen = self._seen(state, f"{words[-1].content}\n{self._view(state)}", last.role)
        return self._ask(state, (*words[:-1], seen))

    async def step(self, state: AskingState, acts: tuple[Act, ...], key: Key) -> Frame:
        action = " ".join(acts[0].text.split())
        before = state
        state = replace(state, turns=state.turns + 1)
        if action.startswith("ask ") and self._may_ask(state, action):
            state, text = await self._asked(state, action, key)
        else:
            state, text = self._acted(state, action)
        frame_of = self._end if state.done or state.turns >= self.turns else self._ask
        message = Message(role="tool", content=text)
        if state.at != before.at:
            message = self._seen(state, text, "tool")
        return replace(
            frame_of(state, (message,)),
            pay={("policy", ""): self.pay(before, state)},
        )

    def pay(self, before: AskingState, after: AskingState) -> float:
        """r_t of the turn between two states."""
        asked = len(after.useful) > len(before.useful)
        return (
            self.success * after.success
            + self.subgoal * (_subgoals(after) - _subgoals(before))
            + self.useful * (asked and after.useful[-1])
            - self.step_cost
            - self.over * (asked and len(after.useful) > self.budget)
        )

    def oracle(self, state: AskingState) -> str:
        """Asks the questions that single the target out first, fewest first, then fetches it."""
        record = state.record
        now = record.candidates(state.talk)
        if state.held:
            return "put" if state.at == record.goal else f"go {record.goal}"
        asked = {q: record.answer(q) for q in (f"ask {k}" for k in record.attributes)}
        left = {q: len(record.candidates((*state.talk, (q, a)))) for q, a in asked.items()}
        if left and min(left.values()) < len(now):
            return min(left, key=lambda q: left[q])
        place = record.item(record.target).place
        return f"take {record.target}" if state.at == place else f"go {place}"

    def actions(self, state: AskingState) -> tuple[str, ...]:
        """All that is possible."""
        record = state.record
        moves = [f"go {p}" for p in record.places if p != state.at]
        hands = (
            ["put"]
            if state.held
            else [f"take {x.name}" for x in record.items if x.place == state.at]
        )
        known = self._known(state)
        asked = (
            q for q in record.questions() if (r := record.read(q)) and (not r[1] or r in known)
        )
        return (*moves, *hands, *asked)

    def _known(self, state: AskingState) -> set[tuple[str, str]]:
        """The values, with their attributes, that the agent has seen or was told; places are all shown."""
        record = state.record
        words = "\n".join([room_instruction(state.task), *(a for _, a in state.talk)])
        return {
            (k, v)
            for k in record.attributes
            for x in record.items
            if (v := x.value(k)) and (k == PLACE or x.place in state.visited or _contains(words, v))
        }

    def _may_ask(self, state: AskingState, action: str) -> bool:
        """Whether a user hears a question: one of the record, or with a user who is no program any."""
        return self.user is not None or action in state.record.questions()

    async def _asked(self, state: AskingState, question: str, key: Key) -> tuple[AskingState, str]:
        record, task = state.record, state.task
        answer = record.answer(question)
        if self.user is not None:
            answer = await await_if_needed(self.user(task, state.talk, question, key))
        talk = (*state.talk, (question, answer))
        if self.judge is not None:
            useful = bool(
                await await_if_needed(self.judge(task, state.talk, question, answer, key))
            )
        elif self.usefulness == "shuffled":
            useful = seed_of(("useful", task.id, question)) % 2 == 0
        else:
            left, before = (len(record.candidates(t)) for t in (talk, state.talk))
            useful = 0 < left < before
        useful = useful and question not in dict(state.talk)
        state = replace(state, talk=talk, useful=(*state.useful, useful))
        return state, f"the user says: {answer}"

    def _acted(self, state: AskingState, action: str) -> tuple[AskingState, str]:
        record, target = state.record, state.record.target
        word, _, name = action.partition(" ")
        if word == "go" and name in record.places and name != state.at:
            is_at_target = state.found or record.item(target).place == name
            visited = tuple(dict.fromkeys((*state.visited, name)))
            state = replace(state, at=name, found=is_at_target, visited=visited)
        elif word == "take" and not state.held and name in [x.name for x in self._here(state)]:
            state = replace(state, held=name, taken=state.taken or name == target)
        elif action == "put" and state.held:
            success = state.held == target and state.at == record.goal
            return replace(state, done=True, success=success), "done"
        else:
            state = replace(state, invalid=state.invalid + 1)
            return state, f"cannot, {self._view(state)}"
        return state, self._view(state)

    def _here(self, state: AskingState) -> list[RoomItem]:
        return [x for x in state.record.items if x.place == state.at and x.name != state.held]

    def _view(self, state: AskingState) -> str:
        """What is seen: the place, what lies there, what is held, and where one can go."""
        pictured = state.at in dict(state.record.views)
        names = (x.name if pictured else x.shown for x in self._here(state))
        here = ", ".join(names) or "nothing"
        held = f" with {state.held}" if state.held else ""
        return f"at {state.at}{held}: {here}; places: {', '.join(state.record.places)}"

    def _seen(self, state: AskingState, text: str, role: str) -> Message:
        """A text for who comes to a place, with its picture where it has one, which a user shows."""
        picture = dict(state.record.views).get(state.at)
        if picture is None:
            return Message(role=role, content=text)
        return Message(role="user", content=f"{PICTURE_MARK}{text}", pictures=(picture,))

    def _ask(self, state: AskingState, say: tuple[Message, ...]) -> Frame:
        choices = self.actions(state) if self.legal else None
        return Frame(
            state=state,
            asks=(Ask(seat="policy", say=say, choices=choices),),
            facts=self._facts(state),
        )

    def _end(self, state: AskingState, say: tuple[Message, ...]) -> Frame:
        status = "finished" if state.done else "truncated:turns"
        return Frame(state=state, facts=self._facts(state), status=status)

    def _facts(self, state: AskingState) -> dict[str, Any]:
        record = state.record
        sizes = [len(record.candidates(state.talk[:i])) for i in range(len(state.talk) + 1)]
        relevant = sum(a > b > 0 for a, b in pairwise(sizes))
        idle = len(state.talk) - relevant
        return {
            "turns": state.turns,
            "invalid": state.invalid,
            "correct": state.success,
            "asked_useful": relevant,
            "asked_idle": idle,
            "asked_needed": record.needed,
            "asked_bits": math.log2(sizes[0] / max(1, sizes[-1])),
            "over_budget": max(0, len(state.talk) - self.budget),
            "subgoals": _subgoals(state) - (record.item(record.target).place == record.start),
            "ars": resolution_score(state.success, record.needed, relevant, idle),
        }


def resolution_score(success: bool, needed: int, useful: int, idle: int) -> float:
    """The ambiguity-resolution score: 100 success / (1 + |K - q_rel| + q_irr)."""
    return 100.0 * success / (1 + abs(needed - useful) + idle)


def _subgoals(state: AskingState) -> int:
    return state.found + state.taken


def replies_of(talk: Sequence[tuple[str, str]]) -> str:
    """What was asked and answered, a line each."""
    return "\n".join(f"{q} -> {a}" for q, a in talk)
