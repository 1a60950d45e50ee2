"""The tables of docs/guides.md, from benchmarks/guides/results.json.

python -m benchmarks.guides.page docs/guides.md
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.guides import advice, maps, rewards
from benchmarks.guides.run import STUDIES, read_results
from palaestra.control.language import columns_of
from palaestra.markdown import fill_marks, table
from palaestra.stats import Interval, bounded_interval, mean_interval

Cells = Mapping[str, Mapping[str, Any]]
KINDS = {
    "rooms": "key and door, goal in sight; the goal pays",
    "maze": "four rooms, feet slip; the goal pays",
    "phrases": "forty phrases, key and door; the door pays",
    "lid": "a hand opens a box and puts an item in; that pays",
    "coverage": "three agents, each sees a part; distances cost",
    "car": "following a car; speed pays, collisions cost",
    "pendulum": "hold an angle, mass unseen; errors cost",
    "drones": "six drones serve users; each served user pays",
}
SHARES = ("maze", "advice", "maps")  # returns of these are shares of games


def values(cells: Cells, simulator: str, arm: str, name: str = "return") -> dict[int, float]:
    """By seed, of the seeds that are done."""
    found: dict[int, float] = {}
    for key, cell in cells.items():
        where, what, seed = key.split("/")
        if (where, what) == (simulator, arm):
            found[int(seed)] = float(cell[name])
    return found


def difference(cells: Cells, simulator: str, arm: str, other: str, share: bool) -> Interval:
    """What an arm is paid more than another one, over the seeds that both have."""
    one, two = values(cells, simulator, arm), values(cells, simulator, other)
    apart = [one[seed] - two[seed] for seed in sorted(one.keys() & two.keys())]
    return bounded_interval(apart, -1.0, 1.0) if share else mean_interval(apart)


def number(x: float) -> str:
    """Three digits, no exponent."""
    if x == 0 or abs(x) < 5e-4:
        return "0"
    return f"{x:.0f}" if abs(x) >= 100 else f"{x:.3g}"


def spell(interval: Interval) -> str:
    """Mean and ends of an interval."""
    if interval.n == 0:
        return "not run"
    ends = f" [{number(interval.low)}, {number(interval.high)}]" if interval.n > 1 else ""
    return signed(interval.mean) + ends


def signed(x: float) -> str:
    return f"{'+' if x > 5e-4 else ''}{number(x)}"


def mean_of(numbers: Mapping[int, float]) -> str:
    return number(float(np.mean(list(numbers.values())))) if numbers else "not run"


def verdict(against_none: Interval, against_shuffled: Interval) -> str:
    """The rule that was declared before the cells were run."""
    if against_none.n < 2:
        return "not run"
    if against_none.low > 0:
        reason = against_shuffled.low > 0
        return "help" + ("" if reason else ", but no more than shuffled words")
    return "harm" if against_none.high < 0 else "nothing seen"


def rewards_table(cells: Cells) -> str:
    rows: list[list[str]] = []
    for simulator in rewards.MAKE:
        share = simulator in SHARES
        against = lambda arm, other="none", s=simulator, b=share: difference(
            cells, s, arm, other, b
        )
        guide, words = against("guide"), against("guide", "shuffled")
        rows.append(
            [
                f"{simulator}: {KINDS[simulator]}",
                verdict(guide, words),
                mean_of(values(cells, simulator, "none")),
                spell(guide),
                spell(against("shuffled")),
                spell(words),
                spell(against("oracle")) if "oracle" in rewards.arms_of(simulator) else "",
                str(guide.n),
            ]
        )
    head = ("simulator", "words", "none", "guide - none", "shuffled - none", "guide - shuffled")
    return table(rows, *head, "oracle - none", "seeds")


def shaped_table(cells: Cells) -> str:
    """The true return beside what the arm's own reward says of the same games."""
    rows: list[list[str]] = []
    for simulator in rewards.MAKE:
        row = [simulator]
        for arm in ("guide", "shuffled"):
            row += [
                mean_of(values(cells, simulator, arm, name))
                for name in ("return", "learned_from", "agreement")
            ]
        rows.append(row)
    head = ("simulator", "guide: paid", "its own reward", "agreement")
    return table(rows, *head, "shuffled: paid", "its own reward", "agreement")


def drafts_table(cells: Cells) -> str:
    """What each draft changes, the mean of the seeds that have it."""
    rows: list[list[str]] = []
    for simulator in rewards.MAKE:
        none, guide = (values(cells, simulator, arm) for arm in ("none", "guide"))
        both = none.keys() & guide.keys()
        row = [simulator]
        for draft in range(rewards.DRAFTS):
            apart = [guide[s] - none[s] for s in both if s % rewards.DRAFTS == draft]
            row.append(signed(float(np.mean(apart))) if apart else "")
        rows.append(row)
    return table(rows, "simulator", *(f"draft {k + 1}" for k in range(rewards.DRAFTS)))


def pays_for_going_on(simulator: str, number: int) -> bool:
    """Whether a draft pays more than 0 for a step that does not end the game, in the games it was checked on."""
    step, draft = rewards.search_of(simulator).words.step, rewards.draft_of(simulator, number)
    games = rewards.sample_of(simulator)
    own = columns_of(draft.reward, step.compute(games), step.declared).sum(-1)
    goes_on = games["alive"] & ~games["over"]
    return bool((own[:, 0][goes_on] > 1e-9).any())


def ends_table(cells: Cells) -> str:
    """Drafts of the games that a goal ends, by whether they pay for going on."""
    rows: list[list[str]] = []
    for simulator in rewards.LEFT:
        none = values(cells, simulator, "none")
        for pays in (False, True):
            drafts = [k for k in range(rewards.DRAFTS) if pays_for_going_on(simulator, k) == pays]
            row = [simulator, "some" if pays else "none", ", ".join(str(k + 1) for k in drafts)]
            for arm in ("guide", "potential"):
                told = values(cells, simulator, arm)
                apart = [
                    told[s] - none[s] for s in told if s in none and s % rewards.DRAFTS in drafts
                ]
                mean = signed(float(np.mean(apart))) if apart else ""
                row += [mean, str(len(apart))]
            rows.append(row)
    head = (
        "simulator",
        "steps paid above 0",
        "drafts",
        "guide - none",
        "cells",
        "potential - none",
    )
    return table(rows, *head, "cells")


def forms_table(cells: Cells) -> str:
    """The same words as a potential, and with signs turned."""
    rows: list[list[str]] = []
    for simulator in rewards.MAKE:
        share = simulator in SHARES
        apart = [difference(cells, simulator, arm, "none", share) for arm in ("guide", "potential")]
        direct = difference(cells, simulator, "potential", "guide", share)
        wrong = [difference(cells, simulator, arm, "none", share) for arm in rewards.WRONG]
        told = [spell(w) if simulator in rewards.WITH_WRONG else "" for w in wrong]
        rows.append([simulator, *map(spell, (*apart, direct)), *told, str(apart[1].n)])
    head = ("simulator", "guide - none", "potential - none", "potential - guide")
    return table(rows, *head, "wrong 20 - none", "wrong 50 - none", "seeds of potential")


def advice_table(cells: Cells) -> str:
    rows: list[list[str]] = []
    for arm in advice.ARMS:
        apart = difference(cells, "maze", arm, "none", True)
        right = values(cells, "maze", arm, "on_shortest")
        rows.append(
            [
                arm,
                "" if arm == "none" else mean_of(right),
                mean_of(values(cells, "maze", arm)),
                "" if arm == "none" else spell(apart),
                mean_of(values(cells, "maze", arm, "unaided")),
                mean_of(values(cells, "maze", arm, "while_learning")),
                str(apart.n),
            ]
        )
    head = ("arm", "advice on a shortest way", "goal reached", "arm - none", "without the advice")
    return table(rows, *head, "while learning", "seeds")


def maps_table(cells: Cells) -> str:
    rows: list[list[str]] = []
    for name in maps.ROOMS:
        sim = maps.map_of(name)
        guide = difference(cells, name, "guide", "none", True)
        rows.append(
            [
                f"{name.removeprefix('side')} x {name.removeprefix('side')}",
                str(len(sim.route()) - 1),
                *(mean_of(values(cells, name, arm)) for arm in ("none", "guide", "shuffled")),
                spell(guide),
                spell(difference(cells, name, "guide", "shuffled", True)),
                str(guide.n),
            ]
        )
    head = ("map", "shortest way", "none", "guide", "shuffled", "guide - none", "guide - shuffled")
    return table(rows, *head, "seeds")


def progress(results: Mapping[str, Cells]) -> str:
    """How many of the declared cells are run."""
    counts = [
        f"{name} {len(results.get(name, {}))} of {len(cells())}"
        for name, (cells, _) in STUDIES.items()
    ]
    return f"Cells that are run, of those declared: {', '.join(counts)}."


def made_parts(results: Mapping[str, Cells]) -> dict[str, str]:
    """The page's tables by their marks."""
    of = lambda name: results.get(name, {})
    makers: Sequence[tuple[str, Any]] = (
        ("rewards", rewards_table),
        ("shaped", shaped_table),
        ("drafts", drafts_table),
        ("ends", ends_table),
        ("forms", forms_table),
    )
    return {
        **{name: make(of("rewards")) for name, make in makers},
        "advice": advice_table(of("advice")),
        "maps": maps_table(of("maps")),
        "progress": progress(results),
    }


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.write_text(fill_marks(place.read_text(), made_parts(read_results())))
