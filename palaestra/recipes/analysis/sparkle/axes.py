"""The three axes: what a model is asked of each problem, with and without what stands beside it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel

import palaestra as pl
from palaestra.recipes.analysis.sparkle.findings import AxisAnswers, report

ASK = """Annotate this problem for a study of how it is solved. Reply with a JSON object:
"plan": an outline of the steps to the answer, without any result;
"knowledge": the facts, definitions and lemmas that it needs, without the answer;
"subproblems": the steps as questions in order, each {"question": ..., "answer": ...}, every one \
answerable from the problem and the answers before it; the last one asks for the answer of the problem.

Problem:
"""
PLAIN, HARD = "plain", "difficulty"
KINDS = ("always", "at times", "never")


class Annotation(BaseModel):
    """What a model is asked for beside a problem."""

    class Part(BaseModel):
        question: str
        answer: str

    plan: str
    knowledge: str
    subproblems: list[Part]


@dataclass(frozen=True, slots=True)
class ProblemNotes:
    """What stands beside a problem; "" and () = nothing."""

    plan: str = ""
    knowledge: str = ""
    parts: Sequence[pl.tasks.SubProblem] = ()

    def json(self) -> dict[str, Any]:
        parts = [[p.question, p.answer] for p in self.parts]
        return {"plan": self.plan, "knowledge": self.knowledge, "parts": parts}


def notes_from(kept: Mapping[str, Any]) -> ProblemNotes:
    parts = [pl.tasks.SubProblem(question=q, answer=a) for q, a in kept["parts"]]
    return ProblemNotes(kept["plan"], kept["knowledge"], parts)


def notes_of(task: pl.Task) -> ProblemNotes:
    """Those of the row. Raises UserError for columns in another form."""
    return ProblemNotes(
        pl.tasks.written_note(task, "plan"),
        pl.tasks.written_note(task, "knowledge"),
        pl.tasks.subproblems_of(task),
    )


@pl.stage
class FixedTasks:
    """Problems that are asked in a study."""

    tasks: tuple[pl.Task, ...]
    name: str = "asked"
    size: int | None = 0

    @property
    def test_size(self) -> int:
        return len(self.tasks)

    def task(self, split: str, index: int) -> pl.Task:
        return self.tasks[index]


@pl.stage
class ReasoningAxes:
    """The study; see the package.

    Args:
        base: the model before training; "" = what the run of the model began with, or none.
        annotator: writes what rows do not have.
        tasks: held-out problems.
        n: answers to each, in each form.
        temperature: of the answers.
    """

    base: str = ""
    annotator: pl.Source | None = None
    tasks: int = 64
    n: int = 8
    temperature: float = 1.0
    question: ClassVar[str] = (
        "Did training make the model better at following plans, using knowledge, or solving parts?"
    )
    check_up: ClassVar[bool] = False

    def __post_init__(self) -> None:
        pl.check_bounds("problems", self.tasks, least=1)
        pl.check_bounds("samples", self.n, least=1)

    async def run(self, ctx: pl.Context) -> pl.Result:
        names = models_of(ctx, self.base)
        power = pl.studies.tell_power(ctx, self.tasks)
        numbers = pl.run.chosen_tasks(ctx.bench, self.tasks)
        problems = [ctx.bench.tasks.task("test", i) for i in numbers]
        kept = await ctx.once("annotations", lambda: self._annotate(ctx, problems))
        notes = [notes_from(x) for x in kept["notes"]]
        if not any(x.plan or x.knowledge or x.parts for x in notes):
            raise pl.UserError(
                "no problem has a plan, knowledge or sub-problems: give rows the columns `plan`, `knowledge` or "
                "`subproblems` (--columns THEIRS=plan reads another one so), or a model that writes them: "
                "annotator=DIR"
            )
        forms = forms_of(problems, notes, pl.rng_of(ctx.key("partners")))
        asked = AxisAnswers(problems, notes, forms, names)
        for name in names:
            for form, some in forms.items():
                asked.items[name, form] = await self._answers(ctx, name, form, [t for _, t in some])
        levels, source = await self._levels(ctx, names[-1], problems)
        answers = f"{self.n} to each of {len(problems)} problems in each form, at temperature {self.temperature:g}"
        protocol = {
            "answers": answers,
            "difficulty": source,
            "annotations": kept["source"],
            "power": power,
        }
        whole = report(asked, levels)
        return pl.studies.publish(ctx, replace(whole, question=self.question, protocol=protocol))

    async def _answers(
        self, ctx: pl.Context, model: str, form: str, tasks: Sequence[pl.Task]
    ) -> list[pl.studies.Item]:
        """What a model answers to problems in a form; parts are compared with their own answers."""
        bench = replace(ctx.bench, tasks=FixedTasks(tuple(tasks)))
        if form == "parts":
            bench = replace(bench, reward=pl.Verify(pl.rewards.Exact()))
        return await pl.studies.answers(
            ctx.with_bench(bench),
            model,
            len(tasks),
            self.n,
            temperature=self.temperature,
            draw=form.replace(" ", "-"),
        )

    async def _levels(
        self, ctx: pl.Context, model: str, problems: Sequence[pl.Task]
    ) -> tuple[list[str], str]:
        """How hard each problem is, and who says so: the column, else answers that nothing else is measured on."""
        given = [t.meta.get("difficulty") for t in problems]
        if any(x is not None for x in given):
            return levels_of(given), "the column `difficulty`"
        items = await self._answers(ctx, model, HARD, problems)
        who = "the start" if model == "base" else "the model"
        return [
            KINDS[0 if s == 1 else 1 if s else 2] for s in pl.studies.right_shares(items)
        ], f"how often {who} is right in {self.n} further answers"

    # ---- annotations

    async def _annotate(self, ctx: pl.Context, problems: Sequence[pl.Task]) -> dict[str, Any]:
        """What stands beside each problem: its columns, else what the annotator writes."""
        notes = [notes_of(t) for t in problems]
        lacking = [i for i, x in enumerate(notes) if not (x.plan and x.knowledge and x.parts)]
        source, leak_notes = "columns of the data", list[str]()
        if self.annotator is not None and lacking:
            ctx.say(f"{len(lacking)} of {len(problems)} problems are annotated by a model")
            made = await asyncio.gather(*(self._written(ctx, problems[i]) for i in lacking))
            for i, own in zip(lacking, made, strict=True):
                x = notes[i]
                notes[i] = ProblemNotes(
                    x.plan or own.plan, x.knowledge or own.knowledge, x.parts or own.parts
                )
            source = f"of {len(lacking)} problems by a model, else columns of the data"
        for what in ("plan", "knowledge"):
            texts = [(t, getattr(x, what)) for t, x in zip(problems, notes, strict=True)]
            leaks = sum(bool(s) and pl.rollout.leaks_answer(s, t.answer) for t, s in texts)
            if leaks:
                leak_notes.append(f"the answer stands in {leaks} texts of the column {what}")
        if leak_notes:
            ctx.say(f"{'; '.join(leak_notes)}: where that is no chance, an axis measures copying")
        return {"notes": [x.json() for x in notes], "source": "; ".join([source, *leak_notes])}

    async def _written(self, ctx: pl.Context, task: pl.Task) -> ProblemNotes:
        """What the annotator writes, without what tells the answer; nothing where its reply has no form."""
        assert self.annotator is not None
        question = ASK + pl.tasks.plain_question(task)
        if solution := task.meta.get("demonstration"):
            question += f"\n\nA right solution:\n{solution}"
        if task.answer is not None:
            question += f"\n\nIts answer: {task.answer}"
        none = Annotation(plan="", knowledge="", subproblems=[])
        annotation = await ctx.ask_for(self.annotator, question, Annotation, fallback=none)
        silent = lambda text: "" if pl.rollout.leaks_answer(text, task.answer) else text.strip()
        parts = [
            pl.tasks.SubProblem(question=p.question, answer=p.answer)
            for p in annotation.subproblems
        ]
        return ProblemNotes(silent(annotation.plan), silent(annotation.knowledge), parts)


def models_of(ctx: Any, base: str) -> list[str]:
    """Who is asked: the model, and the one before training if there is one, which is added to the context."""
    if pl.studies.knows_base(ctx, base):
        pl.studies.bring_models(ctx, base)
    return ["policy", *(["base"] if "base" in ctx.models else [])]


def forms_of(
    problems: Sequence[pl.Task], notes: Sequence[ProblemNotes], rng: np.random.Generator
) -> dict[str, list[tuple[int, pl.Task]]]:
    """The tasks that are asked in each form, with the number of their problem."""
    forms = {PLAIN: list(enumerate(problems))}
    for what, show in (("plan", pl.tasks.add_plan), ("knowledge", pl.tasks.add_knowledge)):
        texts = {i: text for i, x in enumerate(notes) if (text := getattr(x, what))}
        if texts:
            forms[what] = [(i, show(problems[i], text)) for i, text in texts.items()]
        if len(texts) > 1:
            other = partners(list(texts), rng)
            forms[f"other {what}"] = [
                (i, show(problems[i], texts[j])) for i, j in zip(texts, other, strict=True)
            ]
    parts = [
        (i, pl.tasks.subproblem_task(problems[i], x.parts, at))
        for i, x in enumerate(notes)
        for at in range(len(x.parts))
    ]
    if parts:
        forms["parts"] = parts
    return forms


def partners(numbers: Sequence[int], rng: np.random.Generator) -> list[int]:
    """Another one for each of at least two numbers: the next in a random ring."""
    ring = [int(i) for i in rng.permutation(len(numbers))]
    after = {a: ring[(k + 1) % len(ring)] for k, a in enumerate(ring)}
    return [numbers[after[k]] for k in range(len(numbers))]


LEVELS = 10


def levels_of(given: Sequence[Any]) -> list[str]:
    """Names of levels: the values as they are; of more than ten different numbers, tenths by rank; "?" for
    none.
    """
    known = [x for x in given if x is not None]
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in known)
    if not numbers or len({*known}) <= LEVELS:
        return ["?" if x is None else f"{x:g}" if numbers else str(x) for x in given]
    ranked = sorted(known)
    tenth = lambda x: min(LEVELS, 1 + LEVELS * sum(y < x for y in ranked) // len(ranked))
    return ["?" if x is None else str(tenth(x)) for x in given]
