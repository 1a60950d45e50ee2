"""The roles that one model plays, and what each is paid."""

import asyncio
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, Protocol

import numpy as np

import palaestra as pl

ROLES = ("proposer", "solver", "judge")
KEPT, NEUTRAL, MOST = (
    0.7,
    0.5,
    10_000,
)  # least V_Q, a rating that is missing, questions in the store


def tag_form(text: str, tag: str) -> float:
    """1 where <tag>...</tag> stands once, 0.5 where in several balanced pairs, else 0."""
    marks = re.findall(rf"<(/?){tag}>", text)
    pairs = len(marks) // 2
    if not marks or marks != ["", "/"] * pairs:
        return 0.0
    return 1.0 if pairs == 1 else 0.5


def tag_text(text: str, tag: str) -> str | None:
    """What stands in the last <tag>...</tag>; None without one."""
    pairs = re.findall(rf"<{tag}>((?:(?!<{tag}>).)*?)</{tag}>", text, re.DOTALL)
    return pairs[-1].strip() if pairs else None


def rating(score: float) -> float | None:
    """(s - 1) / 9 of a score from 1 to 10; None of another number."""
    return (score - 1) / 9 if 1 <= score <= 10 else None


class RoleForm(Protocol):
    """How the roles are asked, and how their replies are read: (what it says or None, F)."""

    def propose(self, task: pl.Task, reference: str) -> str: ...
    def question(self, reply: str) -> tuple[str | None, float]: ...
    def judge(self, question: str, answer: str | None) -> str: ...
    def rating(self, reply: str, of_answer: bool) -> tuple[float | None, float]: ...
    def solution(self, reply: str, task: pl.Task) -> float: ...


@pl.stage
class TaggedRoles:
    """Each role writes tags of its own: <question>, <answer> and <score>."""

    def propose(self, task: pl.Task, reference: str) -> str:
        about = f" in the field of {task.domain}" if task.domain else ""
        after = (
            f"\nBe inspired by this one, and do not repeat it:\n{reference}\n" if reference else " "
        )
        return (
            f"Write a new question{about} that is clear, has one answer and is hard.{after}"
            "Put it between <question> and </question>, without its answer."
        )

    def question(self, reply: str) -> tuple[str | None, float]:
        return tag_text(reply, "question") or None, tag_form(reply, "question")

    def judge(self, question: str, answer: str | None) -> str:
        asked = f"Question:\n{pl.judges.defuse(question)}\n\n"
        if answer is None:
            wish = "Is this question clear, complete and solvable?"
        else:
            asked += f"Answer:\n{pl.judges.defuse(answer)}\n\n"
            wish = "Is this answer right? Check it yourself."
        return f"{asked}{wish} Write a score from 1 (no) to 10 (yes) as <score>5</score>."

    def rating(self, reply: str, of_answer: bool) -> tuple[float | None, float]:
        number = re.match(r"[\s*_]*(\d+(?:\.\d+)?)", tag_text(reply, "score") or "")
        return rating(float(number[1])) if number else None, tag_form(reply, "score")

    def solution(self, reply: str, task: pl.Task) -> float:
        if task.instruction:
            return tag_form(reply, "answer")
        return float(bool(pl.stated_answer(reply) or pl.tasks.final_answer(reply)))


@pl.stage
class TaughtRoles:
    """The forms that the built-in model was taught: `pose DOMAIN`, `judge:` with `= right` or `= wrong`,
    and answers behind `= `. It was never taught to rate a question: its judge is asked the question
    itself, and rates it 1 if it states an answer, 0 if it says `= ?`.
    """

    def propose(self, task: pl.Task, reference: str) -> str:
        posed = f"pose {task.domain}"
        return f"example:\n{posed}\n{reference}\nnow:\n{posed}" if reference else posed

    def question(self, reply: str) -> tuple[str | None, float]:
        text = reply.strip()
        return text or None, float(bool(text) and pl.tasks.final_answer(text) is None)

    def judge(self, question: str, answer: str | None) -> str:
        return question if answer is None else f"judge:\n{question}\n{answer}"

    def rating(self, reply: str, of_answer: bool) -> tuple[float | None, float]:
        answer = pl.tasks.final_answer(reply)
        if not of_answer:
            return (None, 0.0) if answer is None else (float(answer != "?"), 1.0)
        verdict = {"right": 1.0, "wrong": 0.0}.get(answer or "")
        return verdict, float(verdict is not None)

    def solution(self, reply: str, task: pl.Task) -> float:
        return float(bool(pl.tasks.final_answer(reply)))


Difficulty = Literal["linear", "threshold"]


def proposer_pay(
    quality: float, ratings: Sequence[float], form: float, difficulty: Difficulty = "linear"
) -> tuple[float, float]:
    """(R_P, D) of a question with ratings of its answers, none where it is not kept; see the module."""
    mean = float(np.mean(ratings)) if ratings else 1.0
    hard = 1 - mean if difficulty == "linear" else float(mean < KEPT)
    return (quality + hard + form) / 3, hard


@pl.declare(
    facts=("agent", ("kept_question", str, "a question that the judge let pass; else absent"))
)
@pl.stage
class PlayRoles:
    """The episodes of a reference: its proposer, the judge of the question, solvers, and their judges.

    Args:
        n: answers of the solver.
        inspired: the probability that the proposer reads the reference.
    """

    n: int = 5
    inspired: float = 0.5
    difficulty: Difficulty = "linear"
    filtered: bool = True
    form: RoleForm = TaggedRoles()

    def __post_init__(self) -> None:
        if self.n < 1 or not 0 <= self.inspired <= 1:
            raise pl.UserError("multi-agent-evolve: n must be at least 1, inspired from 0 to 1")

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        task, form = group.task, self.form
        reads = pl.rng_of((*key, "inspired")).random() < self.inspired
        seen = pl.tasks.plain_question(task) if reads else ""
        proposer = await self._act(ctx, (*key, 0), task, form.propose(task, seen))
        question, wrote = form.question(reply_of(proposer))
        quality, judges = 0.0, list[pl.Episode]()
        if question is not None:
            score, judge = await self._rate(ctx, (*key, 1), task, question, None)
            quality = NEUTRAL if score is None else score
            judges.append(judge)
        kept = question is not None and (quality >= KEPT or not self.filtered)
        solved = own_task(task, question) if kept and question is not None else task
        sample = pl.Sample(n=self.n)
        solvers = (await sample(ctx, (*key, 2), pl.Group(task=solved))).episodes
        asked = pl.tasks.plain_question(solved)
        rated = await asyncio.gather(
            *(
                self._rate(ctx, (*key, 3, i), task, asked, reply_of(e))
                for i, e in enumerate(solvers)
                if e.ok
            )
        )
        judges += [judge for _, judge in rated]
        said_of_answers = [value for value, _ in rated]
        ratings = [NEUTRAL if value is None else value for value in said_of_answers]
        truths = [] if kept else await self._audit(ctx, key, task, solvers)
        answers = [
            self._paid_solver(e, rate, solved, truths[i] if truths else None)
            for i, (e, rate) in enumerate(
                zip((e for e in solvers if e.ok), said_of_answers, strict=True)
            )
        ]
        first = self._paid_proposer(
            proposer, question, quality, ratings if kept else [], wrote, kept
        )
        failed = [e for e in solvers if not e.ok]
        return replace(group, episodes=(first, *judges, *answers, *failed))

    async def _act(self, ctx: pl.Context, key: pl.Key, task: pl.Task, content: str) -> pl.Episode:
        """A reply of the model to a message of a role, not paid yet."""
        prompt = (pl.Message(role="user", content=content.replace(pl.PICTURE_MARK, "")),)
        asked = pl.Task(id=task.id, prompt=prompt, domain=task.domain)
        (e,) = (await pl.Sample(n=1)(ctx, key, pl.Group(task=asked))).episodes
        return replace(e, prompt=prompt)

    async def _rate(
        self, ctx: pl.Context, key: pl.Key, task: pl.Task, question: str, answer: str | None
    ) -> tuple[float | None, pl.Episode]:
        """What the judge says, None where that cannot be read, and its episode."""
        e = await self._act(ctx, key, task, self.form.judge(question, answer))
        if not e.ok:
            return None, e
        value, form = self.form.rating(reply_of(e), answer is not None)
        return value, as_role(e, "judge", form, {"unread": float(value is None)})

    async def _audit(
        self, ctx: pl.Context, key: pl.Key, task: pl.Task, solvers: Sequence[pl.Episode]
    ) -> list[bool | None]:
        """Whether each valid answer is right by the data; None = that is not known."""
        valid = tuple(e for e in solvers if e.ok)
        if task.answer is None:
            return [None] * len(valid)
        try:
            scored = await pl.Score()(ctx, (*key, "audit"), pl.Group(task=task, episodes=valid))
        except pl.Fault:
            return [None] * len(valid)
        return [e.is_right() if e.ok and e.reward else None for e in scored.episodes]

    def _paid_proposer(
        self,
        e: pl.Episode,
        question: str | None,
        quality: float,
        ratings: Sequence[float],
        form: float,
        kept: bool,
    ) -> pl.Episode:
        if not e.ok:
            return e
        pay, hard = proposer_pay(quality, ratings, form, self.difficulty)
        parts = {"question": quality, "difficulty": hard, "kept": float(kept)}
        parts["unread"] = float(question is None)
        paid = as_role(e, "proposer", pay if question is not None else 0.0, parts)
        return replace(paid, facts={**paid.facts, "kept_question": question}) if kept else paid

    def _paid_solver(
        self, e: pl.Episode, score: float | None, task: pl.Task, truth: bool | None
    ) -> pl.Episode:
        """An answer by its rating; one that cannot be read is neutral, and agrees with nothing."""
        form, rate = self.form.solution(reply_of(e), task), NEUTRAL if score is None else score
        parts = {"rating": rate}
        if truth is not None:
            parts["truth"] = float(truth)
            if score is not None:
                parts["agreement"] = float((score >= 0.5) == truth)
        return as_role(e, "solver", (rate + form) / 2, parts)

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where no question or no rating of the first step can be read."""
        parts = [e.reward.parts for g in groups for e in g.valid if e.reward]
        what = {"proposer": "no question", "judge": "no rating"}
        by_role = {r: [p["unread"] for p in parts if f"pay of {r}" in p] for r in what}
        unread_roles = [what[r] for r, unread in by_role.items() if unread and all(unread)]
        if not unread_roles:
            return ""
        return (
            f"{' and '.join(unread_roles)} of the first step could be read, so the roles are trained for their forms alone; "
            "begin with a model that follows instructions"
        )


PARTS = ("question", "difficulty", "kept", "rating", "truth", "agreement", "unread")


def as_role(e: pl.Episode, role: str, pay: float, parts: Mapping[str, float]) -> pl.Episode:
    """The episode paid in a role; what is said of other roles alone is silent."""
    given = {**parts, f"pay of {role}": pay}
    others = [f"pay of {r}" for r in ROLES]
    silent = tuple(n for n in (*PARTS, *others) if n not in given)
    reward = pl.Reward(total=pay, parts=given, silent=silent, solved=None)
    return replace(e, reward=reward, facts={**e.facts, "agent": role})


def reply_of(e: pl.Episode) -> str:
    """What was said behind the thinking; "" of an episode that failed."""
    return pl.verifiers.strip_thinking(pl.response_text(e)).strip("\n") if e.ok else ""


def own_task(task: pl.Task, question: str) -> pl.Task:
    """A question of the model as a problem: what stands around the reference's stays, its answer and
    columns go.
    """
    text = f"{question}\n\n{task.instruction}" if task.instruction else question
    number = hashlib.sha256(question.encode()).hexdigest()[:12]
    asked = pl.tasks.rephrase(task, text.replace(pl.PICTURE_MARK, ""))
    prompt = tuple(replace(m, pictures=()) if m.content == text else m for m in asked.prompt)
    return replace(asked, id=f"proposed/{number}", answer=None, meta={}, prompt=prompt)
