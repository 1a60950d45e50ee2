"""Sentences of passengers with what each means, and a file of yours."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.llm4rl.fast_slow_driving.guidance import (
    FOREVER,
    STYLES,
    VALID,
    WIDTH,
    DrivingGuidance,
    checked_guidance,
)

FILE = Path(__file__).with_name("sentences.jsonl")
LANES = ("leftmost", "rightmost", "left", "right", "stay")
KEYS = {"lane", "speed", "faster_by", "style", "avoid"}


@pl.value_class
class Sentence:
    """An instruction and its intent: "lane" (a number from 1, or one of LANES), "speed" in m/s or
    "faster_by" in m/s from the present one, "style", "avoid". None = the intent is not known.
    """

    text: str
    intent: Mapping[str, Any] | None = None


def read_sentences(file: str = "") -> tuple[Sentence, ...]:
    """Sentences of a file, {"instruction": "...", "intent": {...}} a line, intent optional; without a
    file the sixty that come with the method. Raises UserError with the line that does not fit.
    """
    path = Path(file) if file else FILE
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise pl.UserError(f"instructions={file}: {error}") from None
    rows = [
        read_sentence(f"{path}:{number}", line)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not rows:
        raise pl.UserError(f"instructions={file} has no instruction")
    return tuple(rows)


def read_sentence(where: str, line: str) -> Sentence:
    try:
        record: Any = json.loads(line)
        text, intent = record["instruction"], record.get("intent")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise pl.UserError(f'{where}: a line is {{"instruction": "...", "intent": {{}}}}') from None
    if not isinstance(text, str) or not text.strip():
        raise pl.UserError(f"{where}: the instruction is a text")
    if intent is not None:
        number = lambda x: isinstance(x, int | float) and not isinstance(x, bool)
        right = (
            isinstance(intent, dict)
            and set(intent) <= KEYS
            and (intent.get("lane", "stay") in LANES or isinstance(intent["lane"], int))
            and all(number(intent.get(k, 0)) for k in ("speed", "faster_by"))
            and intent.get("style", "normal") in STYLES
            and isinstance(intent.get("avoid", []), list)
            and all(x in ("lane_change", "faster") for x in intent.get("avoid", []))
        )
        if not right:
            raise pl.UserError(
                f"{where}: an intent has lane (a number from 1, or {', '.join(LANES)}), speed or faster_by in "
                f"m/s, style ({', '.join(STYLES)}), avoid (lane_change, faster)"
            )
    return Sentence(text=text, intent=intent)


def meant_guidance(
    intent: Mapping[str, Any], lane: int, speed: float, lanes: int, speeds: tuple[float, float]
) -> np.ndarray:
    """[G] what an intent means for a car in a lane (from 0) at a speed, to the end of the drive."""
    steps = {"left": -1, "right": 1, "stay": 0}
    where = intent.get("lane")
    goal = where
    if isinstance(where, str):
        ends = {"leftmost": 0, "rightmost": lanes - 1}
        goal = 1 + ends.get(where, min(max(lane + steps.get(where, 0), 0), lanes - 1))
    target = intent.get("speed")
    if "faster_by" in intent:
        target = speed + intent["faster_by"]
    guidance = DrivingGuidance(
        goal_lane=goal,
        target_speed=target,
        style=intent.get("style", "normal"),
        avoid=list(intent.get("avoid", [])),
    )
    row = np.array(checked_guidance(guidance, lanes, speeds)).reshape(WIDTH)
    row[VALID] = FOREVER
    return row
