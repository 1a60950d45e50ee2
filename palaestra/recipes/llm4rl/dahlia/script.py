"""A script in the place of a language model, for the default's table alone: a planner that does what it was
told in the order of the words, and more carefully where it hears a report; a reporter that reads poses.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import palaestra as pl
from palaestra.recipes.llm4rl.dahlia.tabletop import BLOCKS, ZONES, Clause, Tabletop

CLAUSE = re.compile(r"put the (\w+ block) (in|on) the (\w+ (?:block|zone))")
ALL = re.compile(r"put all blocks in the (\w+ zone)")
PUT_ALL = """def put_all(blocks, zone):
    for block in blocks:
        pick_place(block, zone)"""
CAREFUL = """for what, block, place in {clauses}:
    for name in [block, place]:
        for top, pose in poses().items():
            if pose["on"] == name and top != block:
                pick_place(top, "table")
    if what == "in":
        pick_place(block, place)
    else:
        stack(block, place)"""


def goal_of(text: str) -> list[Clause]:
    """What an instruction wants."""
    if match := ALL.search(text):
        return [("in", block, match[1]) for block in BLOCKS]
    return [(what, block, place) for block, what, place in CLAUSE.findall(text)]


def scripted_arm(request: pl.ChatRequest) -> Mapping[str, Any]:
    """The reply of a planner, a co-planner or a reporter. Raises UserError for a question about another
    world, and for an instruction that is none of the default's.
    """
    first, last = request.messages[0].content, request.messages[-1].content
    if not first.startswith(Tabletop().about):
        raise pl.UserError(
            "dahlia: the script knows the default's table alone; name who is asked, "
            "--llm endpoint(url='...',model='...')"
        )
    match = re.search(
        r'(?m)^(?:Task: (?=put (?:all|the))|A robot was told: |A program for the task ")(.*)$', last
    )
    lines = re.findall(r"(?m)^(?:Task|A robot was told): (.*)$", first)
    instruction = lines[-1] if lines else match[1] if match else ""
    goal = goal_of(instruction)
    if "which nobody has defined" in last:
        return {"function": PUT_ALL}
    if not goal:
        raise pl.UserError(
            f"dahlia: the script cannot read the task {instruction!r}; name who is asked, --llm ..."
        )
    poses = json.loads(last.rsplit("poses: ", 1)[1].split("\n")[0])
    if "A robot was told" in last:
        return _report(goal, poses, last)
    if "What differs" in last:
        return {"program": _careful(goal, poses)}
    return {"program": _naive(goal)}


def _naive(goal: Sequence[Clause]) -> str:
    """Clause by clause, in the order of the words, whatever lies where."""
    zones = {place for _, _, place in goal}
    if len(goal) == len(BLOCKS) and len(zones) == 1:
        return f"# all blocks go to one zone\nput_all({[b for _, b, _ in goal]}, {zones.pop()!r})"
    lines = list[str]()
    for what, block, place in goal:
        call = "pick_place" if what == "in" else "stack"
        lines += [f"# {block} {what} {place}", f"{call}({block!r}, {place!r})"]
    return "\n".join(lines)


def _careful(goal: Sequence[Clause], poses: Mapping[str, Any]) -> str:
    """What is not as it should be, from below, after what lies on it was put away."""
    left = [c for c in from_below(goal) if not holds(c, poses)]
    moved = {block for _, block, _ in left}
    # a block that rests on one that moves has to be put there again
    more = [c for c in goal if c not in left and c[0] == "on" and c[2] in moved]
    return "# first what is below\n" + CAREFUL.format(clauses=from_below([*left, *more]))


def from_below(goal: Sequence[Clause]) -> list[Clause]:
    """The clauses in an order in which nothing is put on a block that still moves."""
    below = {block: place for what, block, place in goal if what == "on"}

    def height(block: str) -> int:
        return 1 + height(below[block]) if block in below else 0

    return sorted(goal, key=lambda c: (height(c[1]), c[0] == "on"))


def holds(clause: Clause, poses: Mapping[str, Any]) -> bool:
    what, block, place = clause
    if what == "on":
        return poses[block]["on"] == place
    x0, y0, x1, y1 = ZONES[place]
    return x0 <= poses[block]["x"] <= x1 and y0 <= poses[block]["y"] <= y1


def _report(goal: Sequence[Clause], poses: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A judge of the poses, and what differs from the goal."""
    tests = list[str]()
    for what, block, place in goal:
        if what == "on":
            tests.append(f"poses()[{block!r}]['on'] == {place!r}")
        else:
            x0, y0, x1, y1 = ZONES[place]
            x, y = f"poses()[{block!r}]['x']", f"poses()[{block!r}]['y']"
            tests.append(f"{x0} <= {x} <= {x1} and {y0} <= {y} <= {y1}")
    wrong = [f"{b} is not {w} the {p}" for w, b, p in goal if not holds((w, b, p), poses)]
    error = re.search(r"ended with an error: (.*)", text)
    step = error[1] if error else "a grasp may have missed"
    return {
        "judge": f"judge = bool({' and '.join(f'({t})' for t in tests)})",
        "report": [
            f"What differs: {', '.join(wrong) or 'nothing'}",
            f"Which step: {step}",
            "What to do: begin with what lies below, and put away what lies on it",
        ],
    }
