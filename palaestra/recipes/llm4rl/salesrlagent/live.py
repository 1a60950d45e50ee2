"""The saved policy on a conversation under way."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.salesrlagent.predictors import advice_of, predict
from palaestra.recipes.llm4rl.salesrlagent.states import NEUTRAL, state_width, table_of
from palaestra.recipes.llm4rl.salesrlagent.talks import SalesTalk

SETTINGS = "predictor.json"  # in the folder of the policy
Messages = Sequence[tuple[str, str]]


def save_settings(folder: Path, embed: str, width: int, turns: int) -> None:
    """Writes what states are made with beside a policy."""
    kept = {"embed": embed, "width": width, "turns": turns}
    (folder / SETTINGS).write_text(json.dumps(kept) + "\n", encoding="utf-8")


def load_predictor(folder: Path | str) -> Callable[..., dict[str, Any]]:
    """A function from the messages so far, pairs of "user" or "assistant" and a text, to
    {"probability": [T], "advice": text}. Its second argument are a language model's [T, 2] scores of
    each prefix, engagement and effectiveness; without it they are 0.5.

    Raises UserError for a folder that holds no predictor, and for no message, or more than were read.
    """
    where = Path(folder)
    policy = pl.control.load_policy(where)
    try:
        kept = json.loads((where / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise pl.UserError(f"{where} holds no predictor: {error}") from None
    embed = pl.tasks.load(kept["embed"], "function") if kept["embed"] else None

    def say(messages: Messages, scores: Any = None) -> dict[str, Any]:
        T = len(messages)
        if not 0 < T <= kept["turns"]:
            raise pl.UserError(f"a conversation has 1 to {kept['turns']} messages here, not {T}")
        talk = SalesTalk(messages=tuple(messages), converted=False)
        table = table_of([talk], kept["width"], embed, T)
        given = np.full((1, T, 2), NEUTRAL) if scores is None else np.reshape(scores, (1, T, 2))
        for metric in range(2):
            table = table.with_metric(metric, given[..., metric])
        if state_width(table.width) != policy.observation:
            raise pl.UserError(
                f"embed= gives {table.width} numbers, and the policy was trained on "
                f"{policy.observation - state_width(0)}"
            )
        p = predict(policy, table)[0]
        return {"probability": [float(x) for x in p], "advice": advice_of(float(p[-1]))}

    return say
