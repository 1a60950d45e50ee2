"""What a large model wrote once about segments of `CarFollowing`: the guide of llm-hfbf where nobody is
asked.
"""

import re
from typing import Any

import palaestra as pl


def written_judgement(request: pl.ChatRequest) -> dict[str, Any]:
    """A verdict by a rule that a large model wrote while this file was written, so it knew the simulator
    and the biases; it reads the question alone.
    """
    text = request.messages[0].content
    value = {name: float(x) for name, x in re.findall(r"^- (\w+) = (-?[\d.]+)", text, re.MULTILINE)}
    gap, speed, closing = value["time_gap"], value["speed"], value["closing"]
    risky = value["collision"] > 0 or gap < 0.9 or (gap < 1.5 and closing > 2)
    good = -1.0 if risky else min(1.0, max(-0.6, speed / 10 - 1.0))
    if (match := re.search(r"labelled it (-?[\d.]+)", text)) is None:
        return {"feedback": good}
    label = float(match[1])
    biased = abs(label - good) > 0.6
    kind = "none" if not biased else "conservative" if label < good else "aggressive"
    return {"biased": biased, "kind": kind, "corrected": good, "confidence": 1.0}
