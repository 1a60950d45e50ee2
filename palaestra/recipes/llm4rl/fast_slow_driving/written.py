"""How fast-slow-driving reads an instruction where nobody is asked: a rule that a large model wrote."""

import re
from typing import Any

import palaestra as pl

SLOW = ("slow", "gentl", "no rush", "easy", "calm", "asleep")
FAST = ("fast as", "late", "hurry", "step on", "full speed", "quick", "maximum", "flash")
CAUTIOUS = ("gentl", "careful", "calm", "defensiv", "easy", "baby")
AGGRESSIVE = ("step on", "sporty", "late", "aggressive")


def written_parse(request: pl.ChatRequest) -> dict[str, Any]:
    """Guidance by words of the instruction, as a large model wrote the rule while this file was written.
    It knew the sixty sentences, and gets some of them wrong.
    """
    question = request.messages[0].content
    text = re.search(r'says: "(.*)"', question)
    scene = re.search(r"in lane (\d+) of (\d+) .*? at (\d+) m/s", question)
    if text is None or scene is None:
        raise pl.UserError(
            "without a model that is asked, fast-slow-driving drives its own road alone"
        )
    instruction = text[1].lower()
    lane, lanes, speed = map(int, scene.groups())
    has = lambda words: any(w in instruction for w in words)
    reply: dict[str, Any] = {"goal_lane": goal_lane(instruction, lane, lanes)}
    number = re.search(r"(\d+) (?:m/s|metres)", instruction)
    if number:
        reply["target_speed"] = float(number[1])
    elif has(FAST):
        reply["target_speed"] = 30.0
    elif has(("faster", "speed up")) and "not go any faster" not in instruction:
        reply["target_speed"] = min(speed + 5.0, 30.0)
    elif has(("slower", "slow down", "not so fast")):
        reply["target_speed"] = max(speed - 5.0, 20.0)
    elif has(SLOW):
        reply["target_speed"] = 20.0
    reply["style"] = "cautious" if has(CAUTIOUS) else "aggressive" if has(AGGRESSIVE) else "normal"
    avoid: list[tuple[str, tuple[str, ...]]] = [
        ("lane_change", ("no lane change", "avoid changing")),
        ("faster", ("not go any faster",)),
    ]
    reply["avoid"] = [name for name, words in avoid if has(words)]
    return reply


def goal_lane(instruction: str, lane: int, lanes: int) -> int | None:
    if number := re.search(r"lane (\d)", instruction):
        return int(number[1])
    if re.search(r"stay in|this lane|as it is", instruction):
        return lane
    if re.search(r"one (lane )?to the (left|right)|move left|pull over|on our right", instruction):
        return min(lanes, lane + 1) if "right" in instruction else max(1, lane - 1)
    if re.search(r"leftmost|fast lane|far left|left lane", instruction):
        return 1
    if re.search(r"rightmost|right lane|far right|keep right|right side", instruction):
        return lanes
    return None
