"""Questions that are answered with tools, and users who say what they want by and by.

Calls are written in both dialects, behind the rules and the descriptions that a run shows. Half of
the demonstrators call; others guess, call wrongly at first, or call twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from palaestra.chat.calls import TagCalls, with_rules
from palaestra.tasks.procedural import question_task
from palaestra.toys.ladder import Add
from palaestra.toys.words import VERBS, Words
from palaestra.types import Ask, Frame, Message, Task, ToolSchema, value_class
from palaestra.worlds import toolbox as boxes
from palaestra.worlds.toolbox import Toolbox, tool_names
from palaestra.worlds.tools import WithTools
from tools.tiny_agent import functions
from tools.tiny_agent.playing import Rng, played, wait_for
from tools.tiny_agent.searching import question
from tools.tiny_agent.words import THINGS, WORDS
from tools.tiny_model.mixture import Conversation, Phase, pick, problem, said

USELESS = (functions.stock, functions.reverse, functions.upper, functions.subtract)
DECISIONS = {"call": 0.52, "guess": 0.3, "slip": 0.12, "twice": 0.06}


@value_class
class Quest:
    """A question, the calls that answer it, one after the other, and which tools there are."""

    task: Task
    calls: tuple[tuple[str, Mapping[str, Any]], ...]
    tools: tuple[Any, ...]
    wrong: str  # what who does not call says


@lru_cache(256)
def world_of(tools: tuple[str, ...]) -> WithTools:
    if tools == ("python",):  # what the sandbox shows of a print, without a sandbox
        boxes.BOXES[tools] = Toolbox((), more=[functions.Printing()])
    return WithTools(tools, turns=4)


def number(rng: Rng, digits: int) -> int:
    return int(rng.integers(10 ** (digits - 1), 10**digits))


def near(rng: Rng, value: int) -> str:
    """A wrong number of about the same size."""
    by = int(rng.integers(1, max(10, abs(value) // 4)))
    return str(value + by if rng.random() < 0.5 else value - by)


def calculation(rng: Rng) -> Quest:
    op = pick(rng, {"+": 2, "*": 3, "-": 1})
    d = int(rng.integers(1, 5)) if op == "+" else int(rng.integers(1, 4))
    a, b = number(rng, d), number(rng, d)
    named = {"+": functions.add, "*": functions.multiply, "-": functions.subtract}[op]
    value = {"+": a + b, "*": a * b, "-": a - b}[op]
    task = (
        problem(Add(d), rng) if op == "+" else question_task("product", f"{a}{op}{b}", str(value))
    )
    asked = task.prompt[0].content
    if op == "+":
        a, _, b = asked.partition("+")
        value = int(task.answer)
    how = pick(rng, {"function": 2, "calculate": 1, "python": 1})
    call = {
        "function": (named.__name__, {"a": int(a), "b": int(b)}),
        "calculate": ("calculate", {"expression": asked}),
        "python": ("python", {"code": f"print({asked})"}),
    }[how]
    tools = {"function": (named,), "calculate": (functions.calculate,), "python": ("python",)}[how]
    return Quest(task=task, calls=(call,), tools=tools, wrong=f"= {near(rng, value)}")


def spelling(rng: Rng) -> Quest:
    verb, tool = (
        ("reverse", functions.reverse) if rng.random() < 0.5 else ("upper", functions.upper)
    )
    task = problem(Words(verbs=(verb,)), rng)
    if rng.random() < 0.4:
        word = str(rng.choice(WORDS))
        task = question_task("words", f"{verb} {word}", VERBS[verb](word))
    text = task.prompt[0].content.partition(" ")[2]
    letters = "".join(str(c) for c in rng.permutation(list(str(task.answer))))
    return Quest(task=task, calls=((verb, {"text": text}),), tools=(tool,), wrong=f"= {letters}")


def retrieval(rng: Rng) -> Quest:
    _, index, task = question(rng)
    functions.PAGES[:] = [index]
    calls = tuple(("search", {"query": q}) for q in task.meta["queries"])
    someone = task.meta["path"][-2]
    return Quest(task=task, calls=calls, tools=(functions.search,), wrong=f"= {someone}")


def storage(rng: Rng) -> Quest:
    """Two values of a store, and their sum or product; each step takes a tool of its own."""
    keys = [f"{chr(97 + int(n) // 10)}{int(n) % 10}" for n in rng.permutation(260)[:2]]
    a, b = (int(x) for x in rng.integers(2, 100, 2))
    functions.STORE.clear()
    functions.STORE.update(zip(keys, (a, b), strict=True))
    times = rng.random() < 0.5
    joined = ("multiply", functions.multiply) if times else ("add", functions.add)
    value = a * b if times else a + b
    task = question_task("store", f"{keys[0]}{'*' if times else '+'}{keys[1]}", str(value))
    calls = (
        ("get", {"key": keys[0]}),
        ("get", {"key": keys[1]}),
        (joined[0], {"a": a, "b": b}),
    )
    tools = (functions.get, joined[1])
    return Quest(task=task, calls=calls, tools=tools, wrong=f"= {near(rng, value)}")


QUESTS: Mapping[Callable[[Rng], Quest], float] = {
    calculation: 0.5,
    spelling: 0.15,
    retrieval: 0.2,
    storage: 0.15,
}


def written(call: tuple[str, Mapping[str, Any]], tags: bool) -> str:
    """A call as text."""
    name, args = call
    if not tags:
        return f"<tool_call>{json.dumps({'name': name, 'arguments': args})}</tool_call>"
    alone = next(iter(args.values())) if len(args) == 1 else json.dumps(args)
    return f"<{name}>{alone}</{name}>"


def slipped(rng: Rng, call: tuple[str, Mapping[str, Any]], tags: bool) -> str:
    """A call that cannot be made: of no JSON, of no tool, without an argument, with a wrong one."""
    name, args = call
    kind = pick(rng, {"json": 1, "tool": 1, "missing": 1, "other": 1})
    if kind == "json":
        text = written(call, tags)
        return text.replace("}}", "}") if not tags else text.replace("</", "<")
    if kind == "tool" and not tags:
        return written((str(rng.choice(["sum", "find", "run", "solve"])), args), tags)
    if kind == "missing" and len(args) > 1:
        return written((name, dict(list(args.items())[:1])), tags)
    return written((name, {"x": next(iter(args.values())), **dict(list(args.items())[1:])}), tags)


def tools(rng: Rng, phase: Phase) -> Conversation:
    """A whole episode: calls and their results, then the answer."""
    quest = pick(rng, QUESTS)(rng)
    more = [t for t in USELESS if t not in quest.tools and rng.random() < 0.15]
    offered = [*quest.tools, *more] if "python" not in quest.tools else [*quest.tools]
    order = rng.permutation(len(offered))
    names = tool_names([offered[i] for i in order])
    tags = rng.random() < 0.35
    how = "call" if phase.diligent and rng.random() < 0.7 else pick(rng, DECISIONS)
    todo = list(quest.calls)
    if how == "twice":
        todo.insert(0, todo[0])
    slips = how == "slip"

    def speaks(frame: Frame, ask: Ask) -> str:
        nonlocal slips
        if how == "guess":
            return quest.wrong
        if slips:
            slips = False
            return slipped(rng, todo[0], tags)
        if todo:
            return written(todo.pop(0), tags)
        return f"= {quest.task.answer}"

    (talk,) = played(world_of(names), quest.task, speaks, (), TagCalls() if tags else None)
    return talk


def ordering(rng: Rng, phase: Phase) -> Conversation:
    """A user wants something and leaves out how many. Asking finds out; a hasty demonstrator orders
    one. What is not there is said.
    """
    item, amount, there = (
        str(rng.choice(THINGS)),
        int(rng.integers(2, 30)),
        int(rng.integers(1, 40)),
    )
    names = tool_names([functions.order, functions.stock])
    tags = rng.random() < 0.35
    schemas: tuple[ToolSchema, ...] = world_schemas(names)
    complete = rng.random() < 0.3
    ask = f"order {amount} {item}" if complete else f"order {item}"
    begin = (Message(role="user", content=ask),)
    shown = TagCalls().show(begin, schemas) if tags else with_rules(begin, schemas)
    talk = list[Message](shown)
    hasty = not complete and not phase.diligent and rng.random() < 0.45
    if not complete and not hasty:
        talk += [said("how many?"), Message(role="user", content=str(amount))]
    wanted = 1 if hasty else amount
    if rng.random() < 0.3:
        talk += _called(("stock", {"item": item}), tags, str(there))
    enough = there >= wanted
    call = ("order", {"item": item, "amount": wanted})
    result = (
        f"ordered {wanted} {item}" if enough else f"error: ValueError: there are {there} of {item}"
    )
    talk += _called(call, tags, result)
    return (*talk, said("= done" if enough else f"= {there}"))


def _called(call: tuple[str, Mapping[str, Any]], tags: bool, result: str) -> list[Message]:
    return [said(written(call, tags)), Message(role="tool", content=result)]


@lru_cache(16)
def world_schemas(names: tuple[str, ...]) -> tuple[ToolSchema, ...]:
    return wait_for(WithTools(names).open())
