"""Questions with options about coordination, by what they ask for: made of the games in rooms, or a user's
file; and the shares that are answered right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

import palaestra as pl

SURROUNDINGS = "environment comprehension"
MINDS = "theory of mind"
JOINT = "joint planning"
TYPES = (SURROUNDINGS, MINDS, JOINT)
UNTYPED = "no type"
MOST = 4  # options
DRAWS = 1000
TEXTS = {
    SURROUNDINGS: "Which of these can {who} not do now?",
    MINDS: "Both of you play as well as can be. What does {who} do now?",
    JOINT: "Both of you play as well as can be. What do you do now?",
}
BRIEF = {SURROUNDINGS: "{who} cannot?", MINDS: "{who} does?", JOINT: "you do?"}


@pl.declare(
    columns=(
        ("options", tuple, "the answers to choose from"),
        ("type", str, "what a question about a game asks for, such as theory of mind"),
    )
)
@pl.stage
class RoomQuestions:
    """Questions about places of a game in rooms, a third of each type. The places are those that a game
    can come to, drawn with equal odds.

        environment comprehension   which action is not possible for a player (one is not)
        theory of mind              what the partner does in the best joint plan
        joint planning              what one does oneself

    The last two are asked where all best joint plans have that action.
    """

    world: Any
    name: str = "coordqa"
    size: int | None = None
    reads: ClassVar[tuple[str, ...]] = ("options", "type")

    def task(self, split: str, index: int) -> pl.Task:
        kind = TYPES[index % len(TYPES)]
        for draw in range(DRAWS):
            rng = pl.rng_of(("coordqa", repr(self.world), split, index, draw))
            made = self._draw(kind, rng)
            if made is not None:
                prompt, options, right = made
                return pl.Task(
                    id=f"{self.name}/{split}/{index}",
                    prompt=pl.tasks.add_options(
                        (pl.Message(role="user", content=prompt),), {"options": options}
                    ),
                    answer="ABCD"[right],
                    meta={"options": options, "type": kind},
                    domain=self.name,
                )
        raise pl.UserError(
            f"{type(self.world).__name__} has no place that a question about {kind} can be asked of; "
            "bring questions of your own, questions=FILE.jsonl"
        )

    def _draw(self, kind: str, rng: np.random.Generator) -> tuple[str, list[str], int] | None:
        """A prompt, its options, and the number of the right one; None where this place will not do."""
        world, plan = self.world, self.world.plan()
        places = list(plan.index)
        place = places[int(rng.integers(len(places)))]
        i = int(rng.integers(2))
        seat, other = world.seats[i], world.seats[1 - i]
        asked = seat if kind == JOINT else other
        able = list(world.actions(place, asked))
        if kind == SURROUNDINGS:
            known = sorted(
                {a for p in places[:200] for s in world.seats for a in world.actions(p, s)}
            )
            wrong = [a for a in known if a not in able]
            right = wrong[int(rng.integers(len(wrong)))]
        else:
            at = world.seats.index(asked)
            best = {moves[at] for moves in plan.best(place, world.turns)}
            if len(best) > 1:
                return None
            (right,) = best
            able = [a for a in able if a != right]
        others = [able[j] for j in rng.permutation(len(able))[: MOST - 1].tolist()]
        options = [right, *others]
        order = rng.permutation(len(options)).tolist()
        options = [options[j] for j in order]
        place_lines = world.place_text(place, seat)
        text = (BRIEF if world.brief else TEXTS)[kind].format(
            who=asked if world.brief else asked.capitalize()
        )
        if world.brief:
            return "\n".join([f"you {seat}", *place_lines, text]), options, options.index(right)
        rules = world.rules(seat)
        return f"{rules}\n\n{' '.join(place_lines)}\n{text}", options, options.index(right)


def questions_of(file: str, world: Any) -> Any:
    """The questions of a file, or those of a game in rooms; None = there are none. Raises UserError for
    rows without options or an answer.
    """
    if not file:
        return RoomQuestions(world) if isinstance(world, pl.worlds.CollabGame) else None
    tasks = pl.tasks.FileTasks(file, test=file)
    for i in range(tasks.test_size):
        row = tasks.task("test", i)
        if not pl.tasks.option_texts(row.meta):
            raise pl.UserError(
                f"{file}: the row {row.id} has no options; each row needs a prompt, a list of options, the "
                "answer as a letter or text of one, and a type"
            )
    return tasks


def type_of(task: pl.Task) -> str:
    """The type of a question as it is grouped: without regard to letter case and blanks at its ends."""
    return str(task.meta.get("type") or UNTYPED).strip().lower().replace("_", " ")


async def answer_questions(
    ctx: pl.Context, tasks: Any, n: int, trials: int, temperature: float, top_p: float
) -> list[dict[str, Any]]:
    """The first `n` questions, each asked `trials` times.

    Returns:
        For each {"kind": "question", "type", "options": how many, "prompt", "gold", "texts", "right"}.
    """
    bench = replace(
        ctx.bench, tasks=tasks, world=pl.worlds.Question(), reward=pl.Verified("choice")
    )
    there = ctx.with_bench(bench)
    items = await pl.studies.answers(
        there, "policy", n, trials, temperature=temperature, top_p=top_p, draw="coordqa"
    )
    asked = [(x, tasks.task("test", x["problem"])) for x in items if x["texts"]]
    if len(asked) < len(items):
        ctx.say(f"{len(items) - len(asked)} questions have no answer that could be made: left out")
    return [
        {
            "kind": "question",
            "type": type_of(task),
            "options": len(pl.tasks.option_texts(task.meta)),
            **{k: item[k] for k in ("id", "prompt", "gold", "texts", "right")},
        }
        for item, task in asked
    ]


def share_right(items: Sequence[Mapping[str, Any]]) -> pl.stats.Interval:
    """The mean share of trials that are right, over questions: the trials of one are no questions of their
    own.
    """
    return pl.stats.bounded_interval([float(np.mean(x["right"])) for x in items], 0.0, 1.0)


def question_numbers(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By type "qa_TYPE", what is right, and "qa_TYPE_chance", what an answer at random would have: the
    mean of 1 / options.
    """
    numbers: dict[str, Any] = {}
    for kind in sorted({x["type"] for x in items}):
        own = [x for x in items if x["type"] == kind]
        name = f"qa_{kind.replace(' ', '_')}"
        numbers[name] = share_right(own)
        numbers[f"{name}_chance"] = float(np.mean([1 / x["options"] for x in own]))
    return numbers
