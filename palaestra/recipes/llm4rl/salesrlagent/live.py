"""The saved policy on a conversation under way."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.salesrlagent.predictors import advice_of, predict
from palaestra.recipes.llm4rl.salesrlagent.states import (
    EFFECTIVENESS,
    ENGAGEMENT,
    OUTCOME,
    state_width,
    table_of,
)
from palaestra.recipes.llm4rl.salesrlagent.talks import SalesTalk

SETTINGS = "predictor.json"  # in the folder of the policy
SCORES = {ENGAGEMENT: "engagement", EFFECTIVENESS: "effectiveness", OUTCOME: "stated probability"}
SPEAKERS = ("user", "assistant")
UNREAD = ("system", "developer", "tool")  # no part of a conversation, as in training


@pl.value_class
class PredictorSettings:
    """What the states of a saved policy are made with.

    Args:
        embed: FILE.py:NAME with an absolute path; "" = hashed words, `width` numbers.
        turns: messages of a conversation at most.
        metrics: those that a language model scored in training, in the order of the scores.
        base: share of training conversations that had the outcome, where predictions start.
    """

    embed: str
    width: int
    turns: int
    metrics: tuple[int, ...]
    base: float


def save_settings(folder: Path, settings: PredictorSettings) -> None:
    """Writes what states are made with beside a policy."""
    file, colon, name = settings.embed.rpartition(":")
    own = colon and file.endswith(".py")  # else a value of the program that trains
    embed = f"{Path(file).expanduser().resolve()}:{name}" if own else settings.embed
    kept = {
        "embed": embed,
        "width": settings.width,
        "turns": settings.turns,
        "metrics": settings.metrics,
        "base": settings.base,
    }
    (folder / SETTINGS).write_text(json.dumps(kept) + "\n", encoding="utf-8")


def load_settings(folder: Path) -> PredictorSettings:
    """As they were saved. Raises UserError for a folder that holds none."""
    try:
        kept = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        return PredictorSettings(
            embed=str(kept["embed"]),
            width=int(kept["width"]),
            turns=int(kept["turns"]),
            metrics=tuple(int(m) for m in kept["metrics"]),
            base=float(kept["base"]),
        )
    except KeyError as error:
        raise pl.UserError(
            f"{folder / SETTINGS} does not tell {error}: it is of an earlier version; train anew"
        ) from None
    except (OSError, ValueError, TypeError) as error:
        raise pl.UserError(f"{folder} holds no predictor: {error}") from None


def load_predictor(folder: Path | str) -> Callable[..., dict[str, Any]]:
    """A function from the messages so far to {"probability": [T], "advice": text}, T of the user's and
    the assistant's messages; those of the system and of tools are left out, as in training.

    A message is {"role": ..., "content": text}, or a pair of the two. The second argument, `scores`, are a
    language model's [T, 2] numbers in [0, 1] of each conversation so far, engagement and effectiveness,
    or with cue=true [T, 3], the probability that it states last: required of a policy that learned with
    them, and refused of another.

    Raises UserError for a folder that holds no predictor; and for messages or scores of another form, for
    no message, or more than were read.
    """
    where = Path(folder)
    policy = pl.control.load_policy(where)
    kept = load_settings(where)
    embed = pl.tasks.load(kept.embed, "function") if kept.embed else None

    def say(messages: Sequence[Any], scores: Any = None) -> dict[str, Any]:
        pairs = [m for m in map(message_pair, messages) if m[0] not in UNREAD]
        T = len(pairs)
        if not 0 < T <= kept.turns:
            raise pl.UserError(f"a conversation has 1 to {kept.turns} messages here, not {T}")
        talk = SalesTalk(messages=tuple(pairs), converted=False)
        table = table_of([talk], kept.width, embed, T)
        for metric, values in zip(kept.metrics, checked_scores(scores, kept, T).T, strict=True):
            table = table.with_metric(metric, values[None])
        if state_width(table.width) != policy.observation:
            raise pl.UserError(
                f"embed= gives {table.width} numbers, and the policy was trained on "
                f"{policy.observation - state_width(0)}"
            )
        p = predict(policy, table, kept.base)[0]
        return {"probability": [float(x) for x in p], "advice": advice_of(float(p[-1]))}

    return say


def message_pair(message: Any) -> tuple[str, str]:
    """The role and the text of a message. Raises UserError for what is none."""
    if isinstance(message, Mapping):
        role, text = message.get("role"), message.get("content")
    elif isinstance(message, list | tuple) and len(message) == 2:
        role, text = message
    else:
        role = text = None
    if not isinstance(role, str) or (not isinstance(text, str) and role not in UNREAD):
        raise pl.UserError(
            f'a message is {{"role": "user", "content": "..."}} or a pair of both, not {message!r}'
        )
    if role not in (*SPEAKERS, *UNREAD):
        raise pl.UserError(
            f"a message has the role {role!r}; the customer's is user, the seller's assistant"
        )
    return role, str(text)


def checked_scores(scores: Any, kept: PredictorSettings, turns: int) -> np.ndarray:
    """[T, S], S numbers that the policy was trained with. Raises UserError for others."""
    names, S = ", ".join(SCORES[m] for m in kept.metrics), len(kept.metrics)
    if scores is None and not S:
        return np.zeros((turns, 0))
    if not S:
        raise pl.UserError("this policy learned without a language model's scores: give none")
    if scores is None:
        raise pl.UserError(
            f"this policy learned with a language model's scores: give scores=[{turns}, {S}], {names} of "
            "each conversation so far"
        )
    try:
        given = np.array(scores, float)
    except (TypeError, ValueError):
        given = np.zeros(0)
    if given.shape != (turns, S) or not ((given >= 0) & (given <= 1)).all():
        raise pl.UserError(
            f"scores are {turns} rows, one for each message, of {S} numbers in [0, 1]: {names}"
        )
    return given
