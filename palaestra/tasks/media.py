"""Controls of problems with pictures or sound: what is left without the media, with those of another
problem, or without the question.

A model that answers as well without a picture has not looked at it. `MediaControl` says what is
taken away, `ControlledTasks` are the problems without it, and `ControlledDraw` trains on these;
`pl.run.MediaExam` measures on held-out problems. All keep ids, answers and the order of problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Literal, get_args

from palaestra.abilities import split_size
from palaestra.errors import UserError
from palaestra.pictures import PICTURE_MARK, Picture
from palaestra.suggest import suggestion
from palaestra.tasks.options import contains_options, letter_options, option_texts
from palaestra.types import Key, Message, State, Task, Tasks, stage

if TYPE_CHECKING:
    from palaestra.context import AsyncDraw, Context, Draw

Media = Literal["kept", "removed", "swapped"]
DONORS = 64  # following problems in which media to swap in are looked for


@stage
class MediaControl:
    """What is taken away of each problem.

    Args:
        media: "removed" leaves pictures and sounds out of the prompt; "swapped" puts those of
            another problem in their places, the next one of the split, else of training, that has
            as many of each kind and none in common. Problems without media stay as they are.
        question: False leaves out the words of the user's messages, but for the options of a
            multiple choice and the instruction of a recipe. Of a task whose `meta` has "question",
            only this text is left out.
    """

    media: Media = "kept"
    question: bool = True

    def __post_init__(self) -> None:
        if self.media not in get_args(Media):
            raise UserError(
                f"media: {self.media!r} is unknown{suggestion(self.media, get_args(Media))}; use "
                f"{', '.join(get_args(Media))}"
            )

    def tasks(self, source: Tasks) -> Tasks:
        """The problems under this control."""
        return source if self == MediaControl() else ControlledTasks(self, source)

    def apply(self, task: Task, media: Sequence[Picture] = ()) -> Task:
        """One problem under this control; `media`: those to swap in. Raises UserError where nothing
        of the prompt is left.
        """
        rest = iter(media)
        prompt = tuple(self._message(m, task, rest) for m in task.prompt)
        if not any(m.content.strip() for m in prompt if m.role == "user"):
            raise UserError(
                f"task {task.id!r} has nothing left to ask without its question and its media; keep one"
            )
        return replace(task, prompt=prompt)

    def _message(self, message: Message, task: Task, media: Iterator[Picture]) -> Message:
        pictures, content = message.pictures, message.content
        if pictures and self.media == "removed":
            pictures, content = (), content.replace(PICTURE_MARK, "").lstrip()
        elif pictures and self.media == "swapped":
            pictures = tuple(next(media) for _ in pictures)
        if not self.question and message.role == "user":
            content = _without_question(content, task, len(pictures))
        return replace(message, content=content, pictures=pictures)


@stage
class ControlledTasks:
    """The problems of a source under a control, with the source's numbers, ids and answers.

    `task` raises UserError where no other problem has media to swap in.
    """

    control: MediaControl
    source: Tasks

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def size(self) -> int | None:
        return self.source.size

    @property
    def test_size(self) -> int | None:
        return split_size(self.source, "test")

    def task(self, split: str, index: int) -> Task:
        task = self.source.task(split, index)
        own = media_of(task)
        swaps = own and self.control.media == "swapped"
        return self.control.apply(task, self._donated(split, index, own) if swaps else ())

    def _donated(self, split: str, index: int, own: Sequence[Picture]) -> tuple[Picture, ...]:
        for name, first in dict.fromkeys(((split, index + 1), ("train", 0))):
            size = split_size(self.source, name)
            for i in range(first, first + (DONORS if size is None else min(DONORS, size))):
                media = media_of(self.source.task(name, i if size is None else i % size))
                alike = [type(m) for m in media] == [type(m) for m in own]
                if alike and not {m.digest for m in media} & {m.digest for m in own}:
                    return media
        raise UserError(
            f"{self.name}: none of the {DONORS} problems behind number {index} of {split!r} has media to "
            "swap in, as many of each kind and others; give more records, or media=removed"
        )


@stage
class ControlledDraw:
    """Draws training tasks under a control: what `draw` chooses and attempts is controlled too."""

    draw: Draw | AsyncDraw
    control: MediaControl = MediaControl()

    async def __call__(
        self, ctx: Context, key: Key, n: int, state: State
    ) -> tuple[list[Task], State]:
        drawn: Any = self.draw(self.controlled(ctx), key, n, state)
        return await drawn if isawaitable(drawn) else drawn

    def controlled(self, ctx: Context) -> Context:
        """The same run with its problems under the control."""
        tasks = self.control.tasks(ctx.bench.tasks)
        return ctx if tasks is ctx.bench.tasks else ctx.with_bench(replace(ctx.bench, tasks=tasks))


def media_of(task: Task) -> tuple[Picture, ...]:
    """Pictures and sounds of a task's prompt, in order."""
    return tuple(p for m in task.prompt for p in m.pictures)


def _without_question(content: str, task: Task, places: int) -> str:
    """The content without the words of the question: `places` marks of media, options, instruction."""
    asked = task.meta.get("question")
    if isinstance(asked, str) and asked and asked in content:
        return content.replace(asked, "", 1)
    kept = [options] if (options := _options(content, task)) else []
    if task.instruction and task.instruction in content and task.instruction not in "".join(kept):
        kept.append(task.instruction)
    return PICTURE_MARK * places + "\n".join(kept)


def _options(content: str, task: Task) -> str:
    """The lines of the content from the first option to the last one; "" where it shows none."""
    options = option_texts(task.meta)
    if not options or not contains_options(content, options):
        return ""
    if (written := letter_options(options)) in content:
        return written
    lines = content.split("\n")
    of = [i for i, line in enumerate(lines) if any(o.strip() in line for o in options)]
    return "\n".join(lines[of[0] : of[-1] + 1])
