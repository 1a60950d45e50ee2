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
    if "- prosumer 1: " in text:
        even = evenly_paid(text)
    return {"FTB": level(supplied * cheap), "FBS": level(even)}


def evenly_paid(text: str) -> float:
    """Of prosumers the smallest of what they earned for a kilowatt-hour that they had to sell, as a share of the largest;
    0 where nobody who had some earned anything, as a day without trade is fair to nobody, and 1 where nobody had any.
    """
    rates = list[float]()
    for line in re.findall(r"^- prosumer \d+: (.*)$", text, re.MULTILINE):
        value = {name: float(x) for name, x in re.findall(r"([\w ]+) = (-?[\d.]+)", line)}
        value = {name.strip(): x for name, x in value.items()}
        if (surplus := value.get("kWh that it had to sell", 0.0)) > 0.5:
            rates.append(value.get("profit in dollars", 0.0) / surplus)
    return min(rates) / max(max(rates), 1e-3) if rates else 1.0


def level(x: float) -> float:
    """The next twentieth from 0 to 1."""
    return round(20 * min(1.0, max(0.0, x))) / 20
