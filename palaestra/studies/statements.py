"""Plain true and false statements that come with the package, for the check-up's probes: of each pair one is
true and one is not, and words of the two are the same, so that no word alone tells them apart.
"""

from __future__ import annotations

from palaestra.toys.facts import FACTS
from palaestra.types import rng_of

SUMS = 64


def plain_statements(sums: int = SUMS) -> list[dict[str, str]]:
    """Rows with `prompt`, `answer` (true or false), `entity` and `domain`: capitals of countries, each country with
    its own city and with that of the next one; sums of two numbers, each right and with the result
    of another sum.
    """
    rows: list[dict[str, str]] = []
    capitals = list(FACTS["capital"].items())
    for i, (country, city) in enumerate(capitals):
        other = capitals[(i + 1) % len(capitals)][1]
        for named, answer in ((city, "true"), (other, "false")):
            text = f"The capital of {country} is {named}."
            rows.append({"prompt": text, "answer": answer, "entity": country, "domain": "capitals"})
    rng = rng_of(("plain sums",))
    pairs = sorted({(int(a), int(b)) for a, b in rng.integers(10, 90, (2 * sums, 2))})[::2][:sums]
    for i, (a, b) in enumerate(pairs):
        c, d = pairs[(i + 1) % len(pairs)]
        wrong = c + d if c + d != a + b else a + b + 1
        for result, answer in ((a + b, "true"), (wrong, "false")):
            text, pair = f"{a} + {b} = {result}", f"{a}+{b}"
            rows.append({"prompt": text, "answer": answer, "entity": pair, "domain": "sums"})
    return rows
