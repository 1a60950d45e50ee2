"""What the tiny model reads: conversations drawn from the training splits of the project's own
tasks.

Demonstrators have habits: they guess more often than they work, and ever more so on harder
problems. So the model knows ways to succeed that it seldom takes, which is what reinforcement
learning can find. Lessons come before habits (`PHASES`): at first the problems are small, words are
copied a lot, and demonstrators nearly always work, because a guess teaches nothing; then come all
problems; habits come last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from palaestra.tasks import phrasing as formats
from palaestra.tasks.procedural import final_answer, format_answer
from palaestra.toys.chain import ArithmeticChain
from palaestra.toys.count import Count
from palaestra.toys.grid import MOVES, Grid, GridTasks
from palaestra.toys.hop import Hop, HopTasks
from palaestra.toys.knights import Knights
from palaestra.toys.ladder import Add, Bool, Sort
from palaestra.toys.mistakes import wrong_answer
from palaestra.toys.rec import Rec
from palaestra.toys.words import Words
from palaestra.types import Act, Message, Task, value_class
from palaestra.worlds.tictactoe import completing_squares, draw_board

Conversation: TypeAlias = tuple[Message, ...]
Rng: TypeAlias = np.random.Generator

LADDER: Mapping[str, Callable[[int], Any]] = {
    "add": Add,
    "bool": Bool,
    "sort": Sort,
    "knights": Knights,
}
DILIGENT = 0.85  # how often a diligent demonstrator works
WORKS = {"chain": 0.25, "count": 0.35, "rec": 0.3, "words": 0.0}  # how often a demonstrator works
WORKS_AT = (0.6, 0.5, 0.35, 0.3, 0.15, 0.08)  # the same on the Ladder, by d
UNSURE = 0.08  # of guesses at d >= 4


@value_class
class Phase:
    """A part of the training."""

    until: float  # share of the time
    diligent: bool
    words: float  # share of word problems
    difficulty: tuple[float, ...] = (0.25, 0.22, 0.2, 0.15, 0.1, 0.08)  # of d = 1..6 on the Ladder


PHASES = (
    Phase(until=0.3, diligent=True, words=0.15, difficulty=(0.5, 0.3, 0.2)),
    Phase(until=0.65, diligent=True, words=0.05),
    Phase(until=1.0, diligent=False, words=0.04),
)


def phase_at(done: float) -> Phase:
    """The phase when a share `done` of the time is spent."""
    return next((p for p in PHASES if done < p.until), PHASES[-1])


def said(content: str) -> Message:
    return Message(role="assistant", content=content, author="demonstration", trained=True)


def mistaken(content: str) -> Message:
    """A reply that is shown and not to be learned."""
    return Message(role="assistant", content=content, author="demonstration")


def pick(rng: Rng, shares: Mapping[Any, float]) -> Any:
    names, weights = list(shares), np.array(list(shares.values()))
    return names[int(rng.choice(len(names), p=weights / weights.sum()))]


def source(name: str, rng: Rng, phase: Phase, hardest: int = 6) -> tuple[Any, float]:
    """A task source and how often its demonstrator works."""
    if name in LADDER:
        d = pick(rng, dict(enumerate(phase.difficulty[:hardest], start=1)))
        return LADDER[name](d), WORKS_AT[d - 1]
    if name == "chain":
        n = pick(rng, {2: 0.04, 3: 0.06, 4: 0.28, 5: 0.28, 6: 0.28, 7: 0.06})
        return ArithmeticChain(operands=(n, n)), WORKS[name]
    return {"count": Count, "rec": Rec, "words": Words}[name](), WORKS[name]


def problem(tasks: Any, rng: Rng) -> Task:
    return tasks.task("train", int(rng.integers(1 << 40)))


def habit(rng: Rng, works: float, phase: Phase) -> Any:
    return "work" if rng.random() < (max(works, DILIGENT) if phase.diligent else works) else "guess"


def either(rng: Rng) -> Any:
    return "work" if rng.random() < 0.5 else "guess"


# ---- one question, one answer


def single(name: str, rng: Rng, phase: Phase) -> Conversation:
    """Sometimes a system message says whether to work or to guess."""
    tasks, works = source(name, rng, phase)
    task, how = problem(tasks, rng), habit(rng, works, phase)
    reply = tasks.demonstration(task, rng, how)
    if how == "guess" and name in LADDER and tasks.d >= 4 and rng.random() < UNSURE:
        reply = formats.UNSURE_ANSWER
    if name != "words" and rng.random() < 0.08:
        how = either(rng)
        reply = tasks.demonstration(task, rng, how)
        task = formats.add_instruction(
            task, formats.THINK_STEPWISE if how == "work" else formats.ANSWER_AT_ONCE
        )
    return (*task.prompt, said(reply))


def hint(rng: Rng, phase: Phase) -> Conversation:
    """Some steps are given; the reply repeats them and goes on."""
    tasks, _ = source(pick(rng, {"chain": 3, "add": 2, "bool": 1, "sort": 1}), rng, phase)
    task = problem(tasks, rng)
    steps = tasks.steps(task)
    shown_steps = steps[: int(rng.integers(1, len(steps) + 1))] if steps else []
    return (
        *formats.add_hint(task, shown_steps).prompt,
        said(tasks.demonstration(task, rng, habit(rng, 0.85, phase))),
    )


def example(rng: Rng, phase: Phase) -> Conversation:
    """A solved problem comes first; the reply follows its habit."""
    tasks, works = source(
        pick(rng, {"chain": 2, "add": 2, "bool": 1, "sort": 1, "knights": 1}), rng, phase, hardest=3
    )
    first, task, how = problem(tasks, rng), problem(tasks, rng), habit(rng, max(works, 0.5), phase)
    asked = formats.add_examples(task, [(first, tasks.demonstration(first, rng, how))])
    return (*asked.prompt, said(tasks.demonstration(task, rng, how)))


# ---- after a wrong answer


def revision(rng: Rng, phase: Phase) -> Conversation:
    """A wrong answer, what is said to it ("wrong", which line, or the answer), and a better one,
    worked more often.
    """
    name = pick(rng, {"chain": 3, "add": 2, "bool": 1, "sort": 1, "knights": 1, "count": 1})
    tasks, works = source(name, rng, phase, hardest=3)
    task = problem(tasks, rng)
    wrong = wrong_answer(tasks, task, rng, either(rng))
    notes = {"retry": formats.retry(), "told": formats.reveal_answer(task.answer)}
    at = tasks.first_wrong(wrong, task)
    if at is not None:
        notes["critique"] = formats.critique(at)
    kind = pick(rng, dict.fromkeys(notes, 1.0))
    often = {"retry": max(works, 0.5), "told": 0.7, "critique": 0.85}[kind]
    better = tasks.demonstration(task, rng, habit(rng, often, phase))
    return (*task.prompt, mistaken(wrong), notes[kind], said(better))


def verdict(rng: Rng, phase: Phase) -> Conversation:
    """An answer is judged right or wrong, or two are compared. Working: the problem's own steps,
    then its answer again.
    """
    tasks, _ = source(pick(rng, {"chain": 3, "add": 2, "sort": 1}), rng, phase, hardest=3)
    task, how = problem(tasks, rng), either(rng)
    right, wrong = tasks.demonstration(task, rng, how), wrong_answer(tasks, task, rng, how)
    worked, first = habit(rng, 0.4, phase) == "work", bool(rng.random() < 0.5)
    if rng.random() < 0.3:
        answers = [right.split("\n")[-1], wrong.split("\n")[-1]]
        judged = formats.comparison_task(
            task, *(answers if first else answers[::-1]), better=1 if first else 2
        )
        own = [*tasks.steps(task), str(task.answer)]
    else:
        judged = formats.judging_task(task, right if first else wrong, first)
        own = [*tasks.steps(task), f"{task.answer} {final_answer(judged.meta['text'])}"]
    return (*judged.prompt, said(format_answer(own if worked else [], judged.answer)))


def pose(rng: Rng, phase: Phase) -> Conversation:
    """The roles exchanged: the reply is a problem."""
    name = pick(rng, dict.fromkeys(("chain", "count", *LADDER), 1.0))
    tasks, _ = source(name, rng, phase, hardest=3)
    return (*formats.posing_task(name).prompt, said(formats.question_text(problem(tasks, rng))))


# ---- worlds


def played(world: Any, task: Task, act: Callable[[Any], str]) -> Conversation:
    """A whole episode of a single seat."""
    frame, heard = world.reset(task, ()), []
    while frame.asks:
        text = act(frame.state)
        heard += [*frame.asks[0].say, said(text)]
        done = Act(ask=frame.asks[0], text=text, call=None, finish="eos", n_tokens=len(text))
        frame = world.step(frame.state, (done,), ())
    return tuple(heard)


def hop(rng: Rng, phase: Phase) -> Conversation:
    """Follows the path, or loses patience and answers with what it has, or calls in a
    wrong form.
    """
    task, world = problem(HopTasks(), rng), Hop()
    patience = 0.35 if rng.random() < 0.8 and not phase.diligent else 1.0
    careful = phase.diligent or rng.random() < 0.9

    def act(state: Any) -> str:
        right = world.oracle(state)
        path, n = task.meta["path"], len(state.found)
        if not careful and rng.random() < 0.3:
            return right.replace("(", " ").replace(")", "")
        return (
            right
            if rng.random() < patience or right.startswith("ANSWER")
            else f"ANSWER({path[min(n, len(path) - 1)]})"
        )

    return played(world, task, act)


def grid(rng: Rng, phase: Phase) -> Conversation:
    """Walks straight, or strays: then every other action is any one of the six."""
    task, world = problem(GridTasks(), rng), Grid()
    straying = 0.5 if rng.random() < 0.6 and not phase.diligent else 0.03

    def act(state: Any) -> str:
        return (
            str(rng.choice([*MOVES, "pick", "drop"]))
            if rng.random() < straying
            else world.oracle(state)
        )

    return played(world, task, act)


def tictactoe(rng: Rng, phase: Phase) -> Conversation:
    """One position, one move: mostly a free square, sometimes the one that wins or saves, seldom a
    taken one.
    """
    while True:
        moves = tuple(int(m) for m in rng.permutation(9)[: int(rng.integers(0, 9))])
        before = moves[:-1]
        if not any(
            moves[i] in completing_squares(moves[:i], i % 2)
            for i in range(len(before) + 1)
            if i < len(moves)
        ):
            break
    mover = len(moves) % 2
    sharp = [*completing_squares(moves, mover), *completing_squares(moves, 1 - mover)]
    free = [i for i in range(9) if i not in moves]
    if rng.random() < 0.03 and moves:
        square = int(rng.choice(moves))
    else:
        square = sharp[0] if sharp and rng.random() < 0.35 else int(rng.choice(free))
    return Message(role="user", content=draw_board(moves)), said(str(square))


PARTS: Mapping[Callable[[Rng, Phase], Conversation], float] = {
    hint: 0.05,
    example: 0.04,
    revision: 0.08,
    verdict: 0.06,
    pose: 0.015,
    hop: 0.045,
    grid: 0.035,
    tictactoe: 0.045,
}
SINGLES: Mapping[str, float] = {
    "chain": 0.23,
    "add": 0.1,
    "bool": 0.07,
    "sort": 0.06,
    "knights": 0.06,
    "count": 0.09,
    "rec": 0.05,
}


def conversation(rng: Rng, phase: Phase) -> Conversation:
    part = pick(rng, {**PARTS, **SINGLES, "words": phase.words})
    return single(part, rng, phase) if isinstance(part, str) else part(rng, phase)
