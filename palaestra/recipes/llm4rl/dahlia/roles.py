"""Who is asked about a task: a planner, a co-planner that writes missing functions, and a reporter."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, Field, field_validator

import palaestra as pl
from palaestra.recipes.llm4rl.dahlia.sandboxed import (
    parameters_of,
    plain_code,
    run_answer,
    undefined_calls,
)
from palaestra.recipes.llm4rl.dahlia.tabletop import ManipulationWorld

M = TypeVar("M", bound=BaseModel)
ASKS = 3  # a reply, and two repairs
HELPERS = 4  # functions of a program that are written for it
GIVEN = ("poses", "instruction")
# what a program may ask co-planners while it runs, each in words (released code: LMPs of these names)
CO_PLANNERS: Mapping[str, str] = {
    "parse_obj_name": "parse_obj_name(description): the name of the object that is described, or a list of names",
    "parse_position": "parse_position(description): the position that is described, as poses() tells positions",
    "parse_question": "parse_question(question): the answer to a question about where things are: a truth value, "
    "a number, a text or a list",
    "transform_shape_pts": "transform_shape_pts(description, points): a list of points, moved, turned or scaled as "
    "is described",
}


class ProgramReply(BaseModel):
    """A program; thoughts are its comments."""

    program: str = Field(min_length=1)

    @field_validator("program")
    @classmethod
    def python(cls, text: str) -> str:
        plain_code(text)
        return text


class HelperReply(BaseModel):
    """A function that a program calls and does not define."""

    function: str = Field(min_length=1)

    @field_validator("function")
    @classmethod
    def python(cls, text: str) -> str:
        return plain_code(text)


class AnswerReply(BaseModel):
    """A program that sets `answer`: what a co-planner says."""

    program: str = Field(min_length=1)

    @field_validator("program")
    @classmethod
    def python(cls, text: str) -> str:
        return plain_code(text)


class JudgeReply(BaseModel):
    """A program that sets `judge`, and three lines for the planner, which hears them where it is False."""

    judge: str = Field(min_length=1)
    report: list[str] = Field(default_factory=list, max_length=12)

    @field_validator("judge")
    @classmethod
    def python(cls, text: str) -> str:
        return plain_code(text)


PLANNER = """{about}

Write a Python program that does a task. It may call these primitives and poses(), each moves a whole object; \
think step by step in comments, then call them. Functions that you call and do not define are written for you: \
give them names that say what they do. No imports, no random numbers.
{primitives}
{example}
Task: {instruction}
poses: {poses}

Answer with {{"program": "..."}}."""

AGAIN = """{judged} Now the poses are as follows.
poses: {poses}

Try again: write the program that does the task from here, and answer with {{"program": "..."}}."""

HELPER = """{about}
{primitives}

A program for the task "{instruction}" calls {name}, which nobody has defined:
{program}

Write this function in Python. It may call the primitives and poses(). Answer with {{"function": "def {name}(...): ..."}}."""

ANSWER = """{about}

A program for the task "{instruction}" asks {call}.
{meaning}
poses: {poses}

Write a Python program that sets `answer` from poses() and {names}: plain data. No imports, no primitives. \
Answer with {{"program": "answer = ..."}}."""

REPORTER = """{about}

A robot was told: {instruction}
It made these calls: {calls}
{error}Where things are:
poses: {poses}
Where they were before: {before}

Write a Python program that sets judge to True if the task is done, else to False, from poses() alone. Then three \
lines for who plans, for the case that it is not done: what differs, which step went wrong, what to do.

Answer with {{"judge": "judge = ...", "report": ["...", "...", "..."]}}."""


def spell(world: ManipulationWorld, instructions: Mapping[str, str]) -> str:
    """Primitives, and the co-planners of a program."""
    lines = [f"- {text}" for text in world.primitives.values()]
    if instructions:
        lines += ["Questions in words, which others answer from the poses while the program runs:"]
        lines += [f"- {text}" for text in instructions.values()]
    return "\n".join(lines)


@pl.value_class
class WrittenProgram:
    """A program as the planner wrote it, "" = none, and functions that were written for it."""

    code: str = ""
    helpers: tuple[str, ...] = ()


class TaskRoles:
    """The roles in one task, with what the planner has been told so far."""

    def __init__(
        self,
        ctx: pl.Context,
        world: ManipulationWorld,
        sources: Mapping[str, pl.Source],
        instruction: str,
        co_planners: bool = True,
    ):
        self.ctx, self.world, self.sources, self.instruction = ctx, world, sources, instruction
        self.talk: tuple[pl.Message, ...] = ()
        self.calls = self.helpers = self.answers = self.fallbacks = 0
        # a world's own primitive of such a name is what programs call
        self.co_planners = (
            {n: text for n, text in CO_PLANNERS.items() if n not in world.primitives}
            if co_planners
            else {}
        )

    async def _ask(self, role: str, messages: Sequence[pl.Message], form: type[M]) -> M | None:
        """The reply; None where none fits, which is counted."""
        request = pl.ChatRequest(messages=tuple(messages), max_tokens=2048)
        self.calls += 1
        try:
            return await self.ctx.ask_for(self.sources[role], request, form, asks=ASKS)
        except pl.Fault as fault:
            if fault.cause != "chat-format":
                raise
            self.fallbacks += 1
            return None

    async def plan(self, poses: Mapping[str, Any], judged: str = "") -> WrittenProgram:
        """A program for the task; one without code where no reply fits.

        Args:
            judged: how the last attempt was judged, where there was one.
        """
        if not self.talk:
            example = str(getattr(self.world, "example", ""))
            text = PLANNER.format(
                about=self.world.about,
                primitives=spell(self.world, self.co_planners),
                example=f"\n{example}\n" if example else "",
                instruction=self.instruction,
                poses=json.dumps(poses),
            )
        else:
            text = AGAIN.format(judged=judged, poses=json.dumps(poses))
        messages = (*self.talk, *pl.services.question_messages(text))
        reply = await self._ask("planner", messages, ProgramReply)
        if reply is None:
            return WrittenProgram()
        message = pl.Message(role="assistant", content=reply.model_dump_json())
        self.talk = (*messages, message)
        return await self.complete(plain_code(reply.program))

    async def complete(self, code: str) -> WrittenProgram:
        """The program, with functions that it calls and nobody defined."""
        known, helpers = [*self.world.primitives, *self.co_planners, *GIVEN], list[str]()
        for _ in range(HELPERS):
            whole = "\n".join([*helpers, code])
            if not (missing := undefined_calls(whole, known)):
                break
            text = HELPER.format(
                about=self.world.about,
                primitives=spell(self.world, self.co_planners),
                instruction=self.instruction,
                name=missing[0],
                program=whole,
            )
            reply = await self._ask("helper", pl.services.question_messages(text), HelperReply)
            if reply is None or missing[0] in undefined_calls(
                f"{reply.function}\n{missing[0]}()", known
            ):
                break
            self.helpers += 1
            helpers.insert(0, reply.function)
        return WrittenProgram(code=code, helpers=tuple(helpers))

    async def answer(self, name: str, arguments: Sequence[Any], poses: Mapping[str, Any]) -> Any:
        """What a co-planner says to a program that asks it. Raises ValueError, which the program hears, where
        no reply fits, or the co-planner's own program ends in an error.
        """
        names = list(parameters_of(self.co_planners[name]))
        text = ANSWER.format(
            about=self.world.about,
            instruction=self.instruction,
            call=f"{name}({', '.join(json.dumps(a) for a in arguments)})",
            meaning=self.co_planners[name],
            poses=json.dumps(poses),
            names=" and ".join(names),
        )
        reply = await self._ask("helper", pl.services.question_messages(text), AnswerReply)
        if reply is None:
            raise ValueError(f"nobody could answer {name}")
        given = dict(zip(names, arguments, strict=True))
        value = await run_answer(poses, self.instruction, plain_code(reply.program), given)
        self.answers += 1
        return value

    async def report(
        self,
        poses: Mapping[str, Any],
        calls: Sequence[str],
        error: str,
        before: Mapping[str, Any],
    ) -> JudgeReply | None:
        """The judgment of an attempt.

        Args:
            before: poses at the start of the attempt.
        """
        text = REPORTER.format(
            about=self.world.about,
            instruction=self.instruction,
            calls="; ".join(calls) or "none",
            error=f"Its program ended with an error: {error}\n" if error else "",
            poses=json.dumps(poses),
            before=json.dumps(before),
        )
        return await self._ask("reporter", pl.services.question_messages(text), JudgeReply)


def check_primitives(world: ManipulationWorld) -> None:
    """Raises UserError for primitives whose words do not begin with their signature, or that take the
    name of what every program has.
    """
    for name, text in world.primitives.items():
        try:
            parameters_of(text)
            why = ""
        except (ValueError, TypeError) as error:
            why = f": {error}"
        if why or not text.strip().startswith(f"{name}(") or name in GIVEN:
            raise pl.UserError(
                f'dahlia: primitives are told by signature and words, {{"{name}": "{name}(what, where=0): ..."}}, '
                f"and none is called {' or '.join(GIVEN)}; {text!r} is not{why}"
            )
