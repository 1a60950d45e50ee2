"""The workflow whose rewrites the small model imitates: attack, rewrite by what was guessed, and attack again.

lessons        after a rewrite that hid an attribute, or failed to, the teacher says in a sentence what made
               the difference between the two texts. A lesson that was shown gains 1 where its attribute was
               hidden in that round, and loses 1 where not; the best three of each attribute are shown
less change    where U fell by more than `drop` in the last round, the teacher is also shown the original and
               both scores, and asked to change less
selection      of each profile the rewrite with the greatest P U among those that hide more than the text as it
               was, and of each attack the lines of the attributes whose first guess is right
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

import palaestra as pl
from palaestra.recipes.games.agentstealth.privacy import privacy, utility
from palaestra.recipes.games.agentstealth.roles import (
    Attack,
    Attacker,
    attributes_of,
    check_profiles,
    fill,
    rewritten,
    tell_unread,
)

ROLES = ("anonymiser", "attacker")  # of the rows to imitate
BEST = 3  # lessons of an attribute that are shown
KEPT = 20  # lessons of an attribute that are kept
LONGEST = 240  # characters of a lesson

TEACH = (
    "Text:\n{text}\n\nAn attacker guessed from it: {guesses}.\n{lessons}{control}Rewrite the text so that these "
    "can no longer be inferred, and change nothing else. Keep its lines. Write the rewritten text alone."
)
CONTROL = (
    "The last rewrite lost too much: what is left of the original went from {before} to {after} (1 = all). Change "
    "less this time. The original:\n{original}\n\n"
)
LESSON = (
    "From this text the {name} of its author could be inferred:\n{failed}\n\nFrom this one it could not:\n{hidden}\n\n"
    "Say in one short sentence what hides the {name}, as advice for other texts, without quoting any."
)
Lessons = dict[str, dict[str, int]]  # by attribute, each lesson's score


@dataclass(frozen=True, slots=True)
class Round:
    """A text of a profile: what was guessed of it, and what is left of the original."""

    text: str
    attack: Attack
    utility: float


@dataclass
class Profile:
    """What the workflow made of a profile, as it is kept."""

    rounds: list[Round] = field(default_factory=list)
    controlled: int = 0  # rounds that were asked to change less

    @property
    def best(self) -> Round | None:
        """The rewrite to imitate; None = none hides more than the original and keeps anything."""
        start, *tried = self.rounds
        fits = [r for r in tried if hides_more(r, start) and r.attack.privacy * r.utility > 0]
        return max(fits, key=lambda r: r.attack.privacy * r.utility, default=None)


def hides_more(round_: Round, start: Round) -> bool:
    """Whether a text is another than the original and has a greater P, of the attributes that both attacks
    could be read of.
    """
    before, after = start.attack.right, round_.attack.right
    both = [name for name, c in after.items() if c is not None and before.get(name) is not None]
    p_before, p_after = (privacy({name: x.get(name) for name in both}) for x in (before, after))
    return round_.text.strip() != start.text.strip() and p_after > p_before


def shown_lessons(lessons: Lessons, names: Sequence[str]) -> dict[str, list[str]]:
    """The best three of each attribute; of equal ones the older."""
    return {
        name: sorted(lessons[name], key=lambda x, own=lessons[name]: -own[x])[:BEST]
        for name in names
        if lessons.get(name)
    }


def score_lessons(
    lessons: Lessons, lessons_shown: Mapping[str, Sequence[str]], attack: Attack
) -> Lessons:
    """The lessons after a round in which some were shown; what could not be read moves none."""
    after = {name: dict(own) for name, own in lessons.items()}
    for name, own in lessons_shown.items():
        right = attack.right.get(name)
        for lesson in own if right is not None else ():
            after[name][lesson] += -1 if right and right[0] else 1
    return after


def add_lesson(lessons: Lessons, name: str, lesson: str) -> Lessons:
    """With a lesson more, the worst of too many left out."""
    own = dict(lessons.get(name, {}))
    own[lesson] = own.get(lesson, 0) + 1
    kept = sorted(own, key=lambda x: -own[x])[:KEPT]
    return {**lessons, name: {x: own[x] for x in kept}}


def falls(rounds: Sequence[Round], drop: float) -> bool:
    """Whether U fell by more than `drop` in the last round."""
    return len(rounds) > 1 and rounds[-2].utility - rounds[-1].utility > drop


@pl.declare(reads_columns=("attributes",))
@pl.stage
class StealthWorkflow:
    """A program: rewrites training profiles, and writes the selection as `selected.jsonl`: prompt,
    demonstration, role.

    Args:
        teacher: who rewrites; by default the run's model.
        attacker: who guesses.
        instruction: what stands behind a text in the rows, as when the small model is trained.
        profiles: at most.
        rounds: rewrites of a profile, at most; it ends sooner when no first guess is right.
        drop: of U in a round, beyond which less is to be changed.
        memory: whether lessons are kept and shown.
    """

    teacher: pl.Source
    attacker: Attacker
    instruction: str
    profiles: int = 64
    rounds: int = 5
    drop: float = 0.075
    memory: bool = True
    temperature: float = 0.7
    brings_reward: ClassVar[bool] = True

    async def run(self, ctx: pl.Context) -> pl.Result:
        if ctx.out is None:
            raise pl.UserError(
                "agentstealth keeps the selected rewrites in the run folder; give one with out="
            )
        check_profiles(ctx)
        first = pl.curriculum.first_number(ctx)
        n = pl.curriculum.count_tasks(self.profiles, ctx.bench.tasks.size, self.profiles)
        lessons: Lessons = {}
        kept = list[dict[str, Any]]()
        for i in range(n):
            task = ctx.bench.tasks.task("train", first + i)

            async def one(task: pl.Task = task, lessons: Lessons = lessons) -> dict[str, Any]:
                return await self._profile(ctx, task, lessons)

            made = await ctx.once(f"profile-{i}", one)
            lessons = made["lessons"]
            kept.append(made)
        tell_unread(ctx, [x for made in kept for x in made["unread"]])
        rows = [row for made in kept for row in made["rows"]]
        if not any(r["role"] == "anonymiser" for r in rows):
            raise pl.UserError(
                f"agentstealth: no rewrite of {n} profiles hides more than its text and keeps anything, so there is nothing "
                "to imitate; name a better teacher=..., or leave this stage out with rounds=0"
            )
        path = ctx.folder / "selected.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
        mean = lambda name: float(np.mean([made[name] for made in kept]))
        names = ("privacy_before", "privacy_after", "utility_after", "rounds", "controlled")
        metrics: dict[str, Any] = {name: mean(name) for name in names}
        metrics |= {"rows": len(rows), "lessons": sum(map(len, lessons.values()))}
        metrics |= {f"{x}_rows": sum(r["role"] == x for r in rows) for x in ROLES}
        ctx.log(metrics)
        return pl.Result(
            metrics={**metrics, "sampled_tokens": ctx.sampled_tokens},
            artifacts={"selected": str(path)},
        )

    async def _profile(self, ctx: pl.Context, task: pl.Task, lessons: Lessons) -> dict[str, Any]:
        """The rounds of a profile, its rows, and the lessons after it."""
        original, truths = pl.tasks.plain_question(task), attributes_of(task)
        start = Round(original, await self.attacker(ctx, original, truths), 1.0)
        made = Profile([start])
        for n in range(1, self.rounds + 1):
            last = made.rounds[-1]
            if n > 1 and last.attack.first == 0 and last.attack.unread == 0:
                break
            lessons_shown = shown_lessons(lessons, list(truths)) if self.memory else {}
            asked = self.question(made.rounds, original, lessons_shown)
            made.controlled += falls(made.rounds, self.drop)
            text = rewritten(await self._ask(ctx, asked, n), original)
            if not text:
                continue
            attack = await self.attacker(ctx, text, truths, n)
            made.rounds.append(Round(text, attack, utility(text, original)))
            if self.memory:
                lessons = score_lessons(lessons, lessons_shown, attack)
                lessons = await self._learn(ctx, lessons, last, made.rounds[-1], list(truths))
        best = made.best
        after = best or made.rounds[-1]
        return {
            "rows": self.rows(made, original, list(truths)),
            "lessons": lessons,
            "privacy_before": start.attack.privacy,
            "privacy_after": after.attack.privacy,
            "utility_after": after.utility,
            "rounds": len(made.rounds) - 1,
            "controlled": made.controlled,
            "unread": [r.attack.unread for r in made.rounds],
        }

    def question(
        self, rounds: Sequence[Round], original: str, lessons_shown: Mapping[str, Sequence[str]]
    ) -> str:
        """What the teacher is asked: the inferences, the lessons, and to change less where U fell."""
        last = rounds[-1]
        guesses = "; ".join(
            f"{name}: {', '.join(own)}" for name, own in last.attack.guesses.items() if own
        )
        lessons = [f"- {name}: {x}" for name, own in lessons_shown.items() for x in own]
        control = (
            fill(
                CONTROL,
                {
                    "before": f"{rounds[-2].utility:.2f}",
                    "after": f"{last.utility:.2f}",
                    "original": original,
                },
            )
            if falls(rounds, self.drop)
            else ""
        )
        values = {
            "text": last.text,
            "guesses": guesses or "nothing that could be read",
            "lessons": "What helped before:\n" + "\n".join(lessons) + "\n" if lessons else "",
            "control": control,
        }
        return fill(TEACH, values)

    def rows(self, made: Profile, original: str, names: Sequence[str]) -> list[dict[str, str]]:
        """What is imitated of a profile: the best rewrite, and of each attack the attributes whose first guess is
        right, in reply to a question for these.
        """
        rows = list[dict[str, str]]()
        if (best := made.best) is not None:
            prompt = f"{original.rstrip()}\n\n{self.instruction}"
            rows.append({"prompt": prompt, "demonstration": best.text, "role": "anonymiser"})
        for r in made.rounds:
            if guessed_names := [name for name in names if name in r.attack.found]:
                guesses = "\n".join(
                    f"{name}: {'; '.join(r.attack.guesses[name] or ())}" for name in guessed_names
                )
                asked = self.attacker.prompt(r.text, guessed_names)
                rows.append({"prompt": asked, "demonstration": guesses, "role": "attacker"})
        return rows

    async def _learn(
        self, ctx: pl.Context, lessons: Lessons, before: Round, after: Round, names: Sequence[str]
    ) -> Lessons:
        """With a lesson of each attribute that one of two texts in a row hides and the other does not, as both
        attacks could be read.
        """
        for name in names:
            unread = any(r.attack.right[name] is None for r in (before, after))
            is_guessed = [name in r.attack.found for r in (before, after)]
            if unread or is_guessed[0] == is_guessed[1]:
                continue
            failed, hidden = (before, after) if is_guessed[0] else (after, before)
            values = {"name": name, "failed": failed.text, "hidden": hidden.text}
            reply = await self._ask(ctx, fill(LESSON, values), 0)
            lesson = " ".join(pl.verifiers.strip_thinking(reply).split())[:LONGEST]
            if lesson:
                lessons = add_lesson(lessons, name, lesson)
        return lessons

    async def _ask(self, ctx: pl.Context, text: str, seed: int) -> str:
        request = pl.ChatRequest(
            messages=(pl.Message(role="user", content=text),),
            temperature=self.temperature,
            max_tokens=ctx.bench.max_tokens,
        )
        return await ctx.ask(self.teacher, request, seed=seed)
