"""Texts of a user's file: what a model is measured, probed or calibrated on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import numpy as np

from palaestra.chat.dialect import Chat
from palaestra.errors import UserError
from palaestra.models.model import Model
from palaestra.models.score import Pair, score_pairs
from palaestra.tasks.sources import open_records
from palaestra.types import Message

REPLIES = ("demonstration", "response", "completion", "chosen", "answer")
FORMS = (
    "a column `text`, or `prompt` (or `messages`) and one of "
    + ", ".join(REPLIES)
    + "; or a .txt file"
)


@dataclass(frozen=True, slots=True)
class WrittenText:
    """A plain text, where `prompt` is empty, or a reply to messages; `cut` = the reply has no end."""

    text: str
    prompt: tuple[Message, ...] = ()
    cut: bool = False


def read_texts(file: str, most: int = 0) -> list[WrittenText]:
    """The texts of a file in any form that data may have; of the `train` split where it has several.

    Args:
        file: JSONL, JSON, Parquet, CSV or a .txt file with a text a paragraph.
        most: how many are read; 0 = all.

    Raises UserError for a file without texts, or a record without one.
    """
    splits = open_records(file)
    records = splits.get("train", next(iter(splits.values())))
    texts = [text_of(r, records.where(i)) for i, r in enumerate(islice(records, most or None))]
    if not texts:
        raise UserError(f"{file}: no texts; it needs {FORMS}")
    return texts


def text_of(record: Mapping[str, Any], where: str) -> WrittenText:
    """The text of a record."""
    if isinstance(text := record.get("text"), str) and text.strip():
        return WrittenText(text)
    reply = next((str(record[c]) for c in REPLIES if record.get(c) not in (None, "")), "")
    prompt = record.get("prompt", record.get("messages"))
    if not reply or not prompt:
        raise UserError(f"{where}: no text; it needs {FORMS}")
    return WrittenText(reply, messages_of(prompt, where))


def messages_of(prompt: Any, where: str) -> tuple[Message, ...]:
    """The messages of a prompt, which is a text or a chat."""
    if isinstance(prompt, str):
        return (Message(role="user", content=prompt),)
    messages = cast("list[Any]", prompt if isinstance(prompt, list) else [prompt])
    if not all(isinstance(m, Mapping) and isinstance(m.get("content"), str) for m in messages):
        raise UserError(f"{where}: a prompt is a text, or a list of {{'role', 'content'}}")
    return tuple(Message(role=str(m.get("role", "user")), content=m["content"]) for m in messages)


def spell_texts(model: Model, texts: Sequence[WrittenText]) -> tuple[list[Pair], int]:
    """The ids of each text as a context and what follows it, and how many were cut to the model's
    context.

    The context of a plain text is its first token; that of a reply is the chat up to it, and the
    reply ends with the token that ends a turn, unless it was cut. Texts of one token, which say nothing, are left out.
    """
    dialect, pairs, cut = Chat(model.tokenizer), list[Pair](), 0
    for each in texts:
        if each.prompt:
            pieces = dialect.extend(each.prompt, first=True, closed=False)
            context = [i for piece in pieces for i in piece.ids]
            target = [*dialect.encode_text(each.text), *([] if each.cut else [dialect.end])]
        else:
            ids = dialect.encode_text(each.text)
            context, target = list(ids[:1]), list(ids[1:])
        room = model.context - len(context)
        cut += len(target) > room
        if context and (target := target[: max(room, 0)]):
            pairs.append((context, target))
    if not pairs:
        raise UserError(
            f"none of {len(texts)} texts fits into the {model.context} tokens of {model.name}"
        )
    return pairs, cut


def mean_loss(model: Model, pairs: Sequence[Pair]) -> float:
    """-log p of what follows each context, in nats a token; exp of it is the perplexity."""
    logp = np.concatenate([np.asarray(x, float) for x in score_pairs(model, pairs)])
    return float(-logp.mean())
