"""Numbers, tables and sentences of the study. The unit is the game: its win rate is one value."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

import palaestra as pl

SPREAD = 0.3  # standard deviation over games of the difference between two models' win rates
CHECKS: Mapping[str, str] = {
    "unwritten": "the reply of the writer has no rules or no class",
    "crash": "the code raises an error or ends its program",
    "malformed": "the class does not keep to its form",
    "timeout": "the code hangs",
    "memory": "the code takes too much memory",
    "output": "the code prints without end",
    "endless": "a game of random moves has no end",
    "undecided": "more than a fifth of random games are drawn",
    "chance": "the same moves lead to other positions",
    "first move": "the first move, or who opens, decides",
    "luck": "a search does not beat random moves",
    "untrained": "an agent of self-play does not beat random moves",
    "broke": "more than a fifth of the model's games had no end or broke",
}
Items = Sequence[Mapping[str, Any]]


def tell_games(items: Items, protocol: Mapping[str, str], question: str) -> pl.studies.StudyReport:
    """What the examined and played games show."""
    played = [x for x in items if not x["verdict"]]
    numbers = {**checks_of(items), **scores_of(played)}
    return pl.studies.StudyReport(
        study="gg-bench",
        question=question,
        findings=findings_of(items, played, numbers),
        numbers=numbers,
        protocol={**protocol, "power": power_of(len(played))},
        tables=[checks_table(items), *([games_table(played)] if played else [])],
        items=items,
    )


def power_of(n: int) -> str:
    """The difference of two models' win rates that n games show four times out of five."""
    if n < 2:
        return "with fewer than two games nothing is said about others"
    z = NormalDist().inv_cdf(0.975) + NormalDist().inv_cdf(0.8)
    points = min(100.0, 100 * z * SPREAD / math.sqrt(n))
    return (
        f"with {n} games a difference of {points:.0f} points between two models is seen four times out of "
        f"five, if their difference has a standard deviation of {100 * SPREAD:.0f} points over games"
    )


def checks_of(items: Items) -> dict[str, Any]:
    """How many games pass the checks, and the share that each check stopped."""
    counts = Counter(x["verdict"] for x in items)
    n = max(1, len(items))
    return {
        "games": len(items),
        "games_used": counts[""],
        **{f"stopped_by/{w.replace(' ', '_')}": counts[w] / n for w in CHECKS if counts[w]},
    }


def scores_of(played: Items) -> dict[str, Any]:
    """The model's score and what it is compared with; of no games only that the opponent took nothing."""
    against = [float(np.mean(x["random_against_opponent"])) for x in played]
    among = [float(np.mean(x["random_against_random"])) for x in played]
    edge = float(np.mean(np.subtract(among, against))) if played else 0.0
    if not played:
        return {"opponent_edge": edge}
    rates = [win_rate(x["plays"]) for x in played]
    plays = [p for x in played for p in x["plays"]]
    solved = [x["value"] for x in played if x["value"] is not None]
    numbers: dict[str, Any] = {
        "win_rate": pl.stats.bounded_interval(rates),
        "random_win_rate": pl.stats.bounded_interval(against),
        "above_random": pl.stats.mean_interval(list(np.subtract(rates, against))),
        "opponent_edge": edge,
        "illegal_replies": sum(p["illegal"] for p in plays)
        / max(1, sum(p["replies"] for p in plays)),
        "lost_by_illegal": share(
            plays, lambda p: p["result"].startswith("illegal") and not p["won"]
        ),
        "drawn": share(plays, lambda p: p["result"] == "draw"),
        "broken": share(plays, lambda p: p["result"] in ("broken", "endless")),
        "opener_wins_at_random": float(np.mean([x["opener"] for x in played])),
        "solved": len(solved) / len(played),
    }
    trained = [x["agent_points"] for x in played if "agent_points" in x]
    if trained:
        numbers["agent_against_random"] = pl.stats.bounded_interval(trained)
    best = [x["best_moves"] for x in played if x.get("best_moves")]
    for player in best[0] if best else ():
        numbers[f"best_moves/{player}"] = pl.stats.bounded_interval([b[player] for b in best])
    if best:
        gains = [b["agent_and_search"] - b["search"] for b in best]
        numbers["agent_over_search"] = pl.stats.mean_interval(gains)
    if solved:
        numbers["opener_wins_if_perfect"] = solved.count(1) / len(solved)
    for name, second in (("as_first", False), ("as_second", True)):
        own = [
            win_rate(s) for x in played if (s := [p for p in x["plays"] if p["second"] == second])
        ]
        if own:
            numbers[f"win_rate_{name}"] = pl.stats.bounded_interval(own)
    return numbers


def win_rate(plays: Items) -> float:
    """The share of plays that are won; drawn, broken and endless ones are not."""
    return share(plays, lambda p: p["won"])


def share(plays: Items, is_one: Any) -> float:
    return sum(map(bool, map(is_one, plays))) / max(1, len(plays))


def checks_table(items: Items) -> pl.studies.StudyTable:
    counts = Counter(x["verdict"] for x in items)
    rows = [["used", str(counts[""]), "it passed all checks"]]
    for word, why in CHECKS.items():
        if counts[word]:
            rows.append([word, str(counts[word]), why])
    return pl.studies.StudyTable("Games by check", ("check", "games", "what it means"), rows)


def games_table(played: Items) -> pl.studies.StudyTable:
    """A row for each game that was played."""
    perfect = {None: "not known", 1: "who opens", 0: "nobody", -1: "who replies"}
    rows = list[list[str]]()
    for x in played:
        n = len(x["plays"])
        won = sum(p["won"] for p in x["plays"])
        interval = pl.studies.tell_interval(pl.stats.proportion(won, n))
        random = f"{np.mean(x['random_against_opponent']):.0%}"
        illegal = sum(p["illegal"] for p in x["plays"])
        rows.append(
            [x["title"], interval, random, f"{x['plies']:.1f}", perfect[x["value"]], str(illegal)]
        )
    columns = (
        "game",
        "the model wins",
        "random moves win",
        "moves",
        "perfect play wins",
        "illegal replies",
    )
    note = "Both play the same opponent. Moves are those of a random game. One game says little: see the mean over games."
    return pl.studies.StudyTable("Games that were played", columns, rows, note)


def findings_of(items: Items, played: Items, numbers: Mapping[str, Any]) -> list[str]:
    """The findings as sentences."""
    passed = f"{len(played)} of {len(items)} games passed the checks"
    if not played:
        return [f"{passed}, so there is no score; the table says what stopped the others."]
    tell, above = pl.studies.tell_interval, numbers["above_random"]
    verdict = (
        "more often than"
        if above.low > 0
        else "less often than"
        if above.high < 0
        else "about as often as"
    )
    lines = [
        f"The model wins {tell(numbers['win_rate'])} of its plays of {len(played)} games, {verdict} a player of "
        f"random legal moves, who wins {tell(numbers['random_win_rate'])} (difference "
        f"{tell(above, signed=True)}).",
        f"{passed}.",
    ]
    if numbers["lost_by_illegal"] > 0 or numbers["illegal_replies"] > 0:
        lines.append(
            f"{numbers['illegal_replies']:.1%} of its replies name no legal move, and it loses "
            f"{numbers['lost_by_illegal']:.1%} of plays by that alone."
        )
    if numbers["broken"] > 0:
        lines.append(f"{numbers['broken']:.1%} of plays broke or had no end, and count as not won.")
    if "agent_over_search" in numbers:
        best = {k: tell(numbers[f"best_moves/{k}"]) for k in ("random", "agent", "search")}
        lines.append(
            f"In games that can be solved, the opponent makes {tell(numbers['best_moves/agent_and_search'])} of its "
            f"moves as perfect play would, of positions where that matters; the agent alone {best['agent']}, the search "
            f"alone {best['search']}, random moves {best['random']}."
        )
    if numbers["opponent_edge"] <= 0:
        lines.append("The opponent is no stronger than random moves, so the score says little.")
    return lines
