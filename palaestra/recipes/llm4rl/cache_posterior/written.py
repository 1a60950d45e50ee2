"""The prior of cache-posterior where nobody is asked: a rule that a large model wrote."""

import re
from typing import Any

import palaestra as pl
from palaestra.recipes.llm4rl.cache_posterior.grid import DOOR, KEY, STEPS

PLACE = r"row (\d+), column (\d+)"


def written_prior(request: pl.ChatRequest) -> dict[str, Any]:
    """Weights of phrases for a state of `PhraseGrid`, by a rule that a large model wrote while this
    file was written. It knew the game, and it does not say which of the phrases for the key and for the
    door does something.
    """
    text = request.messages[0].content
    own = place_of(rf"You stand at {PLACE}", text)
    key, door = place_of(rf"The key lies at {PLACE}", text), place_of(rf"door is at {PLACE}", text)
    target = door if key is None else key
    if own is None or target is None:
        raise pl.UserError(
            "without a model that is asked, cache-posterior plays its own game alone"
        )
    if own == target:
        return {"weights": dict.fromkeys(DOOR if key is None else KEY, 1.0)}
    down, right = target[0] - own[0], target[1] - own[1]
    ways = {"north": -down, "south": down, "west": -right, "east": right}
    return {"weights": {f"{s} {way}": far for way, far in ways.items() if far > 0 for s in STEPS}}


def place_of(pattern: str, text: str) -> tuple[int, int] | None:
    """Row and column; None = the text does not say so."""
    match = re.search(pattern, text)
    return None if match is None else (int(match[1]), int(match[2]))
