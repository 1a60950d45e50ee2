"""What the small agent reads: conversations in the project's own worlds and dialects.

Single questions and what is said after them are the first model's (`tools.tiny_model.mixture`);
here are the worlds of many turns, tools, notes, critics, and hints that cannot be done without.
Demonstrators decide at random and have bad habits, so that reinforcement learning has something to
find.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from palaestra.recipes.agents.cel import WorldTexts, show_knowledge
from palaestra.rewards.critic import critic_question
from palaestra.run.benches import bench_by_name
from palaestra.services.sandbox.values import Ran
from palaestra.tasks import phrasing as formats
from palaestra.tasks.procedural import question_task
from palaestra.toys.chain import ArithmeticChain
from palaestra.toys.constraints import ConstraintTasks
from palaestra.toys.grid import ACTIONS, Grid, GridTasks
from palaestra.toys.judging import CompareAnswers, Grade
from palaestra.toys.lake import MOVES, Lake, LakeState, LakeTasks, way_to
from palaestra.toys.lookup import LookupTasks
from palaestra.toys.mistakes import wrong_answer
from palaestra.toys.unanswerable import Unanswerable
from palaestra.toys.wiki import SYLLABLES
from palaestra.toys.words import VERBS
from palaestra.types import Ask, Frame, Message
from palaestra.worlds.notebook import NO_CODE, SILENT, output
from palaestra.worlds.tictactoe import TicTacToe, TicTacToeTasks
from tools.tiny_agent.playing import Rng, played
from tools.tiny_agent.searching import noting, reading, searching
from tools.tiny_agent.tooling import ordering, tools
from tools.tiny_agent.words import WORDS
from tools.tiny_model import mixture as first
from tools.tiny_model.mixture import (
    Conversation,
    Phase,
    either,
    habit,
    mistaken,
    pick,
    problem,
    said,
    source,
)

__all__ = ["Conversation", "Phase", "conversation", "phase_at"]


# `words` is how much of copying there is besides, most of it first: until something is copied,
# searches and hints cannot be learned, and nothing teaches it faster
PHASES = (
    Phase(until=0.2, diligent=True, words=1.0, difficulty=(0.5, 0.3, 0.2)),
    Phase(until=0.4, diligent=True, words=0.3, difficulty=(0.5, 0.3, 0.2)),
    Phase(until=0.72, diligent=True, words=0.15),
    Phase(until=1.0, diligent=False, words=0.06),
)


def phase_at(done: float) -> Phase:
    """The phase when a share `done` of the time is spent."""
    return next((p for p in PHASES if done < p.until), PHASES[-1])


def word(rng: Rng, phase: Phase) -> Conversation:
    return first.single("words", rng, phase)


def common(rng: Rng, phase: Phase) -> Conversation:
    """Common words, as they are or in capitals, one or several."""
    shown = " ".join(str(w) for w in rng.choice(WORDS, int(rng.integers(1, 5)), replace=False))
    verb = str(rng.choice(["copy", "upper"]))
    task = question_task("words", f"{verb} {shown}", VERBS[verb](shown))
    return (*task.prompt, said(f"= {task.answer}"))


def copying(rng: Rng, phase: Phase) -> Conversation:
    """A line of words, names, keys and numbers, as it is."""
    kinds = (
        lambda: str(rng.choice(WORDS)),
        lambda: "".join(str(s) for s in rng.choice(SYLLABLES, 2)),
        lambda: f"{chr(97 + int(rng.integers(26)))}{int(rng.integers(10))}",
        lambda: str(rng.integers(1000)),
    )
    shown = " ".join(kinds[int(i)]() for i in rng.integers(len(kinds), size=rng.integers(3, 16)))
    task = question_task("words", f"copy {shown}", shown)
    return (*task.prompt, said(f"= {task.answer}"))


def session(rng: Rng, phase: Phase) -> Conversation:
    """Several questions one after the other, so that a context grows long."""
    talk, letters = list[Message](), int(rng.integers(300, 1500))
    while sum(len(m.content) for m in talk) < letters:
        talk += first.single(pick(rng, SINGLES), rng, phase)
    return tuple(m for i, m in enumerate(talk) if i == 0 or m.role != "system")


def beside(rng: Rng, phase: Phase) -> Conversation:
    """Questions that the first model does not know: sentences, sums that lack a digit, verdicts on
    answers.
    """
    kind = pick(rng, {"sentence": 3, "unanswerable": 2, "compare": 1, "grade": 1})
    tasks: Any = {
        "sentence": ConstraintTasks,
        "unanswerable": Unanswerable,
        "compare": CompareAnswers,
        "grade": Grade,
    }[kind]()
    task = problem(tasks, rng)
    if kind == "unanswerable" and not phase.diligent and rng.random() < 0.5:
        # a bad habit: a number all the same
        return (*task.prompt, said(f"= {int(rng.integers(10, 200))}"))
    return (*task.prompt, said(tasks.demonstration(task, rng, habit(rng, 0.4, phase))))


# ---- guidance that matters


def dose(rng: Rng, phase: Phase) -> Conversation:
    """A chain of numbers so large that products are out of reach, and some of its steps as a hint:
    the reply has them only from there.
    """
    modulo, n = int(rng.choice([11, 13, 17, 23, 37, 53, 71, 97])), int(rng.integers(3, 7))
    tasks = ArithmeticChain(operands=(n, n), modulo=modulo)
    task = problem(tasks, rng)
    steps = tasks.steps(task)
    given = int(rng.integers(0, len(steps) + 1))
    return (
        *formats.add_hint(task, steps[:given]).prompt,
        said(tasks.demonstration(task, rng, "work" if given else habit(rng, 0.4, phase))),
    )


def mended(rng: Rng, phase: Phase) -> Conversation:
    """A wrong working of such a chain and which line is wrong: what stands before it is right and
    is kept. Or its answer is told, and said again.
    """
    modulo, n = int(rng.choice([10, 11, 23, 53, 97])), int(rng.integers(3, 6))
    tasks = ArithmeticChain(operands=(n, n), modulo=modulo)
    task = problem(tasks, rng)
    wrong = wrong_answer(tasks, task, rng, "work")
    at, told = tasks.first_wrong(wrong, task), rng.random() < 0.3
    note = formats.reveal_answer(task.answer) if told or at is None else formats.critique(at)
    how = "guess" if told and rng.random() < 0.6 else "work"
    return (*task.prompt, mistaken(wrong), note, said(tasks.demonstration(task, rng, how)))


def again(rng: Rng, phase: Phase) -> Conversation:
    """Several attempts, each told that it is wrong. What was said before is mostly not said
    again; some repeat it.
    """
    tasks, _ = source(pick(rng, {"chain": 2, "add": 2, "sort": 1, "knights": 1}), rng, phase, 3)
    task, talk = problem(tasks, rng), list[Message]()
    talk += task.prompt
    wrong = wrong_answer(tasks, task, rng, either(rng))
    for _ in range(int(rng.integers(1, 4))):
        talk += [mistaken(wrong), formats.retry()]
        if rng.random() < 0.75:
            wrong = wrong_answer(tasks, task, rng, either(rng))
    return (*talk, said(tasks.demonstration(task, rng, habit(rng, 0.55, phase))))


def critic(rng: Rng, phase: Phase) -> Conversation:
    """A critic names the wrong step of a working; one in three does not look."""
    tasks, _ = source(pick(rng, {"chain": 2, "add": 2, "bool": 1, "sort": 1}), rng, phase, 3)
    task = problem(tasks, rng)
    right = rng.random() < 0.4
    text = (
        tasks.demonstration(task, rng, "work") if right else wrong_answer(tasks, task, rng, "work")
    )
    lines = text.split("\n")
    at = None if right else tasks.first_wrong(text, task)
    if not phase.diligent and rng.random() < 0.35:
        at = int(rng.integers(len(lines))) if rng.random() < 0.5 else None
    named = "none" if at is None or at >= len(lines) else str(at + 1)
    own = "".join(f"{s}\n" for s in tasks.steps(task)) if habit(rng, 0.3, phase) == "work" else ""
    return (
        Message(role="user", content=critic_question(task, lines)),
        said(f"{own}wrong steps: {named}"),
    )


# ---- worlds


def hop(rng: Rng, phase: Phase) -> Conversation:
    return first.hop(rng, phase)


def grid(rng: Rng, phase: Phase) -> Conversation:
    """On 3 x 3 squares as the first model, or on 4 x 4."""
    if rng.random() < 0.6:
        return first.grid(rng, phase)
    world, straying = Grid(), 0.4 if rng.random() < 0.6 and not phase.diligent else 0.03

    def speaks(frame: Frame, ask: Ask) -> str:
        return str(rng.choice(ACTIONS)) if rng.random() < straying else world.oracle(frame.state)

    (talk,) = played(world, problem(GridTasks(side=4, steps=8), rng), speaks, ())
    return talk


def lake(rng: Rng, phase: Phase) -> Conversation:
    """What the actions do is told (sometimes in part) or tried out; what was seen is not forgotten.
    Some demonstrators overlook it, and one in four goes to the wrong thing.
    """
    task = problem(LakeTasks(), rng)
    start: LakeState = task.meta["start"]
    world, names = Lake(turns=int(rng.integers(4, 9))), start.names
    short = {"u": "up", "d": "down", "l": "left", "r": "right"}
    told = [k for k in short if rng.random() < 0.8] if rng.random() < 0.65 else []
    aim = "goal" if rng.random() < 0.75 else "hole"
    rules = " ".join(f"{k}{names[short[k]]}" for k in told)
    playbook = f"t{names['goal']}" if rng.random() < 0.5 else ""
    aim = "goal" if playbook and rng.random() < 0.85 else aim
    means = {short[k]: names[short[k]] for k in told}
    forgets = 0.05 if phase.diligent else 0.25
    things = {"goal": start.goal, "hole": start.hole}

    def speaks(frame: Frame, ask: Ask) -> str:
        state: LakeState = frame.state
        for before, action, after in state.steps:
            step = (after[0] - before[0], after[1] - before[1])
            move = next((m for m, by in MOVES.items() if by == step), None)
            if move is not None:
                means[move] = action
        other = things["hole" if aim == "goal" else "goal"]
        move = way_to(state, things[aim], other)
        if move in means and rng.random() >= forgets:
            return means[move]
        untried = [names[m] for m in MOVES if names[m] not in means.values()]
        return str(rng.choice(untried or [names[m] for m in MOVES]))

    told_task = show_knowledge(task, WorldTexts(rules=rules, playbook=playbook))
    (talk,) = played(world, told_task, speaks, ())
    return talk


def notebook(rng: Rng, phase: Phase) -> Conversation:
    """Cells of T-lookup. Some answer too early, some forget the tags, some look up twice in one
    cell, or what is not there: what the notebook then shows is written here.
    """
    task = problem(LookupTasks(), rng)
    *cells, last = task.meta["solution"]
    talk = list(task.prompt)
    hasty = 0.0 if phase.diligent else 0.3
    for cell in cells:
        slip = rng.random()
        key = cell.partition("get('")[2][:2]
        if rng.random() < hasty:
            early = f"<think>{key}</think><code>answer(get('{key}'))</code>"
            return (*talk, said(early))
        if slip < 0.03:
            talk += [said(cell.replace("<code>", "").replace("</code>", "")), _tool(NO_CODE)]
        elif slip < 0.06:
            twice = cell.replace(")</code>", f")+get('{key}')</code>")
            talk += [said(twice), _tool(_failed("RuntimeError: one get a cell"))]
        elif slip < 0.09:
            name = f"{chr(97 + int(rng.integers(26)))}{int(rng.integers(10))}"
            if name not in task.prompt[0].content:
                talk += [
                    said(cell.replace(f"get('{key}", f"get('{name}")),
                    _tool(_failed(f"KeyError: '{name}'")),
                ]
        talk += [said(cell), _tool(SILENT)]
    return (*talk, said(last))


def _tool(content: str) -> Message:
    return Message(role="tool", content=content)


def _failed(line: str) -> str:
    return output(Ran(status="error", stderr=line), "", 200)


def tictactoe(rng: Rng, phase: Phase) -> Conversation:
    """A move of a game: the oracle's, or any square, seldom a taken one."""
    world = TicTacToe()

    def speaks(frame: Frame, ask: Ask) -> str:
        p = rng.random()
        free = [i for i in range(9) if i not in frame.state.moves]
        if p < 0.03:
            return str(rng.integers(9))
        return world.oracle(frame.state) if p < 0.5 else str(rng.choice(free))

    talks = played(world, problem(TicTacToeTasks(plies=(0, 5)), rng), speaks, ())
    return talks[int(rng.integers(len(talks)))]


def kuhn(rng: Rng, phase: Phase) -> Conversation:
    """A turn of a hand. The naive player's, or any."""
    bench, _ = bench_by_name("kuhn")
    world: Any = bench.world

    def speaks(frame: Frame, ask: Ask) -> str:
        return world.oracle(frame.state) if rng.random() < 0.6 else str(rng.choice(["p", "b"]))

    task = bench.tasks.task("train", int(rng.integers(1 << 40)))
    talks = played(world, task, speaks, (int(rng.integers(1 << 40)),))
    return talks[int(rng.integers(len(talks)))]


PARTS: Mapping[Callable[[Rng, Phase], Conversation], float] = {
    dose: 0.09,
    mended: 0.04,
    first.hint: 0.03,
    first.example: 0.025,
    first.revision: 0.04,
    first.verdict: 0.025,
    first.pose: 0.01,
    again: 0.03,
    critic: 0.03,
    beside: 0.05,
    word: 0.02,
    common: 0.02,
    session: 0.01,
    searching: 0.13,
    noting: 0.045,
    reading: 0.035,
    tools: 0.13,
    ordering: 0.03,
    hop: 0.035,
    grid: 0.02,
    lake: 0.04,
    notebook: 0.035,
    tictactoe: 0.025,
    kuhn: 0.01,
}
SINGLES: Mapping[str, float] = {
    "chain": 0.1,
    "add": 0.05,
    "bool": 0.03,
    "sort": 0.02,
    "knights": 0.025,
    "count": 0.03,
    "rec": 0.015,
}


def conversation(rng: Rng, phase: Phase) -> Conversation:
    part = pick(rng, {**PARTS, **SINGLES, copying: phase.words})
    return first.single(part, rng, phase) if isinstance(part, str) else part(rng, phase)
