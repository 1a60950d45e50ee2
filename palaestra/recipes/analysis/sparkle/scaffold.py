"""Partial step scaffolding: hard problems are trained on with the beginning of their solution already said."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

import palaestra as pl
from palaestra.recipes.analysis.sparkle.training import ScaffoldArm, report

MARK = "guided"
PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
NUMBERED = re.compile(r"(?:^|(?<=\n)|(?<=[.!?] ))[ \t]*(?=\d+[.)]\s)")
LINE = re.compile(r"\n+")
SENTENCE = re.compile(r"(?<=[.!?])\s+")


def unit_starts(text: str, mark: re.Pattern[str]) -> list[int]:
    """Where the parts of a text begin that a mark stands between."""
    ends = (m.end() for m in mark.finditer(text))
    return sorted({0, *(end for end in ends if text[end:].strip())})


def lines_and_sentences(text: str) -> list[int]:
    return sorted({*unit_starts(text, LINE), *unit_starts(text, SENTENCE)})


def beginnings(working: str, segments: int) -> list[str]:
    """The first 1, 2, ... segments of a working, the last of which is all of it.

    It is cut between paragraphs, else before numbered items, else between lines, whichever there are enough
    of: segment k of n ends before unit floor(k U / n) of U. Else between lines and sentences: ceil(U / n) to a
    segment, and with fewer than n of them one to each. "" has none.
    """
    text = working.strip()
    if not text:
        return []
    for mark in (PARAGRAPH, NUMBERED, LINE):
        starts = unit_starts(text, mark)
        if len(starts) >= segments:
            cuts = [starts[k * len(starts) // segments] for k in range(1, segments)]
            return [*(text[:c] for c in cuts), f"{text}\n"]
    starts = lines_and_sentences(text)
    each = max(1, -(-len(starts) // segments))
    return [*(text[:c] for c in starts[each::each]), f"{text}\n"]


def working_of(solution: str, answer: object) -> str:
    """A written solution without the statement of its answer, which the policy is to say: up to the sentence or
    line that states it; of a thought and an answer, the thought. Where nothing is stated, up to the last line.
    """
    thought, mark, _ = solution.partition("</think>")
    if mark:
        return thought.rstrip()
    text = solution.rstrip()
    place = pl.verifiers.answer_place(text)
    end = place[0] if place else len(text)
    if before := [c for c in lines_and_sentences(text) if 0 < c <= end - (place is None)]:
        return text[: before[-1]].rstrip()
    answer_text = str(answer).strip() if answer is not None else ""
    at = text.rfind(answer_text) if answer_text else -1
    return text[: min(end, at) if at >= 0 else end].rstrip() if place or at >= 0 else ""


@pl.declare(columns=(("scaffold", str, "the beginning of a solution that a reply goes on from"),))
@pl.stage
class ScaffoldedTasks:
    """Training problems of a source, each as often as it has beginnings; held-out ones as they are.

    Args:
        tasks: the source.
        rows: the number of a training problem and the beginning of its reply; "" = none.
    """

    tasks: pl.Tasks
    rows: tuple[tuple[int, str], ...]

    @property
    def name(self) -> str:
        return self.tasks.name

    @property
    def size(self) -> int:
        return len(self.rows)

    def task(self, split: str, index: int) -> pl.Task:
        if split != "train":
            return self.tasks.task(split, index)
        number, text = self.rows[index]
        task = self.tasks.task("train", number)
        more = {"scaffold": text} if text else {}
        return replace(task, id=f"{task.id}#{index}", meta={**task.meta, **more})


@pl.stage
class ScaffoldColumn:
    """The beginning that the task has; "" = none."""

    def __call__(self, ctx: pl.Context, group: pl.Group, rng: np.random.Generator) -> str:
        return str(group.task.meta.get("scaffold") or "")


def nothing_there(right_N: np.ndarray) -> bool:
    """Whether no answer was sampled."""
    return not len(right_N)


@pl.stage
class AsPrompt:
    """Makes the beginnings that replies were forced to have a part of their prompts: what is judged is what the
    policy said itself.
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        def own(e: pl.Episode) -> pl.Episode:
            if not e.facts.get(MARK):
                return e
            rows = tuple(
                replace(
                    r,
                    segments=tuple(
                        replace(s, author="environment")
                        if s.author == "forced" and s.text == group.task.meta["scaffold"]
                        else s
                        for s in r.segments
                    ),
                )
                for r in e.rows
            )
            return replace(e, rows=rows)

        return replace(group, episodes=tuple(map(own, group.episodes)))


def stage_two(steps: int, prompts: int, n: int, kl: float) -> pl.Recipe:
    """GRPO in which replies go on from the beginning that their problem has."""
    sample = pl.Sample(n=n)
    begun = pl.rollout.Begin(ScaffoldColumn(), sample, MARK)
    with_scaffold = pl.links(begun, AsPrompt(), pl.Score())
    collect = pl.links(with_scaffold, pl.When(nothing_there, pl.links(sample, pl.Score())))
    return pl.vary(
        pl.recipe("grpo", kl=kl),
        collect=collect,
        schedule=pl.Schedule(prompts=prompts, steps=steps),
    )


@dataclass(frozen=True, slots=True)
class HardSet:
    """Training problems by number: those that the start never solves, others, and how the hard ones begin."""

    hard: Sequence[int]
    others: Sequence[int]
    begins: Mapping[int, Sequence[str]]

    def rows(self, arm: str, segments: int, rng: np.random.Generator) -> list[tuple[int, str]]:
        """The training set of an arm: problems, and the beginnings of their replies."""
        plain = [(i, "") for i in self.hard]
        if arm == "hard":
            return plain
        if arm == "mixed":
            some = rng.permutation(len(self.others))[: len(self.hard)]
            return [*plain, *((self.others[int(k)], "") for k in some)]
        begins = self.begins
        if arm == "shuffled":
            own = [i for i in self.hard if begins.get(i)]
            ring = [own[int(k)] for k in rng.permutation(len(own))]
            begins = {a: begins[b] for a, b in zip(ring, ring[1:] + ring[:1], strict=True)}
        most = segments // 2 if arm == "half" else segments
        return [*plain, *((i, b) for i in self.hard for b in begins.get(i, ())[:most])]


ARMS = ("hard", "mixed", "all", "half", "shuffled")


@pl.stage
class Scaffolding:
    """The training part; see the package.

    Args:
        train: what each arm is trained with.
        compared: the arms, "hard" among them.
        segments: parts that a solution is cut into.
        tries: answers of the start by which a training problem is hard.
        pool: training problems that are tried.
        tasks: held-out problems, asked without a scaffold.
        n: answers to each.
        temperature: of the answers.
    """

    train: pl.Recipe
    compared: tuple[str, ...] = ("hard", "mixed", "all")
    segments: int = 4
    tries: int = 20
    pool: int = 256
    tasks: int = 64
    n: int = 8
    temperature: float = 1.0
    question: ClassVar[str] = (
        "Are hard problems worth training on, with the beginning of a solution or without?"
    )
    check_up: ClassVar[bool] = False
    trains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        pl.check_bounds("problems", self.tasks, least=1)
        pl.check_bounds("samples", self.n, least=1)
        pl.check_bounds("segments", self.segments, least=2)
        pl.check_bounds("tries", self.tries, least=1)
        pl.check_bounds("pool", self.pool, least=1)
        if strange := [a for a in self.compared if a not in ARMS]:
            raise pl.UserError(f"arms: {strange[0]!r} is none of {', '.join(ARMS)}")
        if "hard" not in self.compared or len({*self.compared}) < len(self.compared):
            raise pl.UserError(
                f"arms={','.join(self.compared)}: different ones, 'hard' among them: all are compared with that"
            )

    async def run(self, ctx: pl.Context) -> pl.Result:
        power = pl.studies.tell_power(ctx, self.tasks)
        asked = pl.studies.AnswerProblems(self.tasks, self.n, self.temperature)
        start = await pl.studies.answers_of(ctx, "start-answers", None, asked)
        pl.studies.right_shares(start)
        problems = await self._hard(ctx)
        arms = list[ScaffoldArm]()
        for name in self.compared:
            rows = problems.rows(name, self.segments, pl.rng_of(ctx.key("arm", name)))
            tasks = ScaffoldedTasks(ctx.bench.tasks, tuple(rows))
            there = ctx.with_bench(replace(ctx.bench, tasks=tasks))
            trained = await there.once(f"{name}-rl", self.train)
            items = await pl.studies.answers_of(
                ctx, f"{name}-answers", trained.artifacts["policy"], asked
            )
            signal = pl.studies.curve_of(ctx, f"{name}-rl", "groups_mixed")
            spent = float(trained.metrics.get("sampled_tokens", 0))
            arms.append(ScaffoldArm(name, len(rows), items, float(np.mean(signal or [0.0])), spent))
        schedule = self.train.schedule
        protocol = {
            "hard problems": f"{len(problems.hard)} of {len(problems.hard) + len(problems.others)} training problems, of "
            f"which the start solves none in {self.tries} answers; {sum(map(bool, problems.begins.values()))} of them "
            "have a solution",
            "training": f"{schedule.steps} steps of {schedule.prompts} prompts, alike in all arms",
            "answers": f"{self.n} to each of {len(start)} held-out problems at temperature {self.temperature:g}, "
            "without a scaffold",
            "power": power,
        }
        whole = report(start, arms)
        return pl.studies.publish(ctx, replace(whole, question=self.question, protocol=protocol))

    async def _hard(self, ctx: pl.Context) -> HardSet:
        """The hard problems among the first training problems, and how their replies may begin."""
        items = await pl.studies.answers(
            ctx,
            "policy",
            self.pool,
            self.tries,
            temperature=self.temperature,
            draw="tries",
            split="train",
        )
        solved = pl.studies.right_shares(items)
        numbers = [x["problem"] for x in items]
        hard = [i for i, s in zip(numbers, solved, strict=True) if not s]
        others = [i for i, s in zip(numbers, solved, strict=True) if s]
        if len(hard) < 2:
            raise pl.UserError(
                f"of {len(numbers)} training problems the start leaves {len(hard)} unsolved within {self.tries} "
                "answers, and an arm needs two: take harder problems, more of them (pool=N), or fewer tries=N"
            )
        begins = {i: self._begins(ctx, i) for i in hard}
        lacking = sum(not b for b in begins.values())
        if lacking:
            ctx.say(
                f"{lacking} of {len(hard)} hard problems have no solution that can be cut, and only their bare version"
            )
        if lacking == len(hard) and {*self.compared} - {"hard", "mixed"}:
            raise pl.UserError(
                "no hard problem has a solution to show the beginning of: give rows a column `demonstration`, or "
                "take arms=hard,mixed"
            )
        if not others and "mixed" in self.compared:
            ctx.say("the start solves no training problem, so the arm mixed is the arm hard")
        return HardSet(hard, others, begins)

    def _begins(self, ctx: pl.Context, number: int) -> list[str]:
        tasks, task = ctx.bench.tasks, ctx.bench.tasks.task("train", number)
        solution = task.meta.get("demonstration")
        if not solution:
            rng = pl.rng_of(ctx.key("solution", number))
            solution = pl.tasks.demonstration(tasks, task, rng, "work")
        if not isinstance(solution, str):
            return []
        return beginnings(working_of(solution, task.answer), self.segments)
