"""What a large model wrote once about days of `Microgrid`: the critic of fairmarket-rl where nobody is
asked.
"""

import re
from typing import Any

import palaestra as pl


def written_scores_of_fairness(request: pl.ChatRequest) -> dict[str, Any]:
    """Scores by a rule that a large model wrote while this file was written, so it knew the simulator.
    It reads the question alone, and scores in twentieths.
    """
    text = request.messages[0].content
    column = lambda name: [float(x) for x in re.findall(rf"{re.escape(name)} = (-?[\d.]+)", text)]
    need, served = column("kWh that it needed"), column("kWh received from sellers")
    price, profit = column("mean price in dollars"), column("profit in dollars")
    supplied = sum(served) / max(sum(need), 1e-9)
    cheap = (0.3 - sum(price) / max(len(price), 1)) / 0.2
    even = min(profit) / max(max(profit), 1e-9) if profit and max(profit) > 0.05 else 1.0
    return {"FTB": level(supplied * cheap), "FBS": level(even)}


def level(x: float) -> float:
    """The next twentieth from 0 to 1."""
    return round(20 * min(1.0, max(0.0, x))) / 20
