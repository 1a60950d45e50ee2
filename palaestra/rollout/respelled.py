"""Rows as a model with another tokenizer reads them, and which of their tokens have the same text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from palaestra.errors import UserError
from palaestra.models.alignment import Alignment, align, common_length, text_ends
from palaestra.rollout.privileged import behind_prompt, prompt_of
from palaestra.types import Row, Segment, Task, value_class

if TYPE_CHECKING:
    from palaestra.chat.dialect import Chat


@value_class
class RespelledScores:
    """Args:
    row: with the prompt in the model's own chat template, and the reply's text in its own tokens.
    alignment: of the trained tokens of the row as the policy has it, [T], and of the tokens of `row`.
    """

    row: Row
    alignment: Alignment


def respell(row: Row, task: Task, other_task: Task, own: Chat, theirs: Chat) -> RespelledScores:
    """A row of one reply to its task, as a model reads it whose prompts `theirs` writes.

    The end of the reply, where the policy wrote one, is a span of its own: the end token of each. Where
    their tokenizer cannot spell a text it is aligned up to there.

    Args:
        task: what the row begins with.
        other_task: what the model reads in its place; `task` itself, or one that says more.

    Raises:
        UserError: the row does not begin with its task's prompt, or somebody else speaks behind it.
    """
    begun, segments = behind_prompt(row, task, own)
    visible = [s for s in segments if not s.hidden]
    if any(s.ids and not s.replies and not s.trained for s in visible):
        raise UserError(
            f"task {task.id!r}: somebody else speaks between its replies, whose words a teacher with "
            "another tokenizer cannot be shown; take one with the policy's tokenizer"
        )
    ids = (*begun, *(i for s in visible for i in s.ids))
    ended = bool(ids) and ids[-1] == own.end
    text, own_ends = text_ends(ids[: len(ids) - ended], own.decode)
    spelled = theirs.encode_text(text)
    their_text, their_ends = text_ends(spelled, theirs.decode)
    alignment = align(own_ends, their_ends, common_length(text, their_text))
    last = alignment.spans + 1
    own_N = np.concatenate([alignment.own_T, [last] * ended]).astype(np.int64)
    their_N = np.concatenate([alignment.their_T, [last] * ended]).astype(np.int64)
    prompt = prompt_of(other_task, theirs)
    reply = Segment(
        ids=(*spelled, *[theirs.end] * ended),
        trained=True,
        temperature=next(s.temperature for s in visible if s.trained),
    )
    before = sum(len(s.ids) for s in prompt)
    view = row.view()
    own_T = np.concatenate([np.zeros(len(view.ids_T) - len(own_N), np.int64), own_N])
    whole = whole_spans(own_T, their_N, view.trained_T)
    return RespelledScores(
        row=Row(segments=(*prompt, reply), key=row.key),
        alignment=Alignment(
            own_T=np.where(whole[own_T], own_T, 0),
            their_T=np.concatenate(
                [np.zeros(before, np.int64), np.where(whole[their_N], their_N, 0)]
            ),
        ),
    )


def whole_spans(own_T: np.ndarray, their_N: np.ndarray, trained_T: np.ndarray) -> np.ndarray:
    """[spans + 1] whether a span has tokens of both, and all of its own are trained."""
    n = int(max(own_T.max(initial=0), their_N.max(initial=0))) + 1
    own, theirs = np.bincount(own_T, minlength=n), np.bincount(their_N, minlength=n)
    whole = (own > 0) & (theirs > 0) & (np.bincount(own_T, trained_T, minlength=n) == own)
    whole[0] = False
    return whole
