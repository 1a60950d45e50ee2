"""The games of the study of self-play, and what is exact in them.

Kuhn poker is the package's. The negotiation is a game of two who split points and count relative gains, so its sums are zero:

    p0 asks for 1, 2 or 3 of 4 points;  p1 agrees (y), or asks in turn for 1 or 2 of the 3 points that are left by then;
    p0 agrees (y) or leaves (n). Who leaves and who is left both take what they have outside: 0 (l) or 2 (h) points, of
    which each knows its own alone, drawn by a coin.

user: talks / p1 h 3        the second seat has 2 points outside, and was asked to leave 3 of 4        assistant: 2

A pay is the seat's own points less the other's. The equilibrium's value is 0, and uniform play is exploitable for 1 point.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from palaestra.run import built_in
from palaestra.types import Task, stage
from palaestra.worlds.adapters.base import AdaptedTasks
from palaestra.worlds.adapters.spiel import SpielWorld, decisions, equilibrium
from palaestra.worlds.kuhn import kuhn

OUTSIDE = {"l": 0, "h": 2}
PIE, LATER = 4, 3
DEALS = 1_000_000  # so many numbers of deals belong to a seed
WORDS = ("1", "2", "3", "y", "n")  # by the game's numbers of actions
Table = Mapping[str, Mapping[int, float]]


def negotiation_text() -> str:
    """The game in Gambit's extensive form."""
    lines = ['EFG 2 R "negotiation" { "p0" "p1" }']
    draws = " ".join(f'"{a} {b}" 0.25' for a, b in itertools.product(OUTSIDE, repeat=2))
    lines.append(f'c "" 1 "" {{ {draws} }} 0')
    sets, ends = dict[tuple[int, str], int](), itertools.count(1)

    def node(player: int, seen: str, actions: Sequence[str]) -> None:
        number = sets.setdefault((player, seen), 1 + sum(p == player for p, _ in sets))
        listed = " ".join(f'"{a}"' for a in actions)
        lines.append(f'p "" {player + 1} {number} "{seen}" {{ {listed} }} 0')

    def end(gain: int) -> None:
        lines.append(f't "" {next(ends)} "" {{ {gain} {-gain} }}')

    for a, b in itertools.product(OUTSIDE, repeat=2):
        node(0, a, WORDS[:3])
        for kept in (1, 2, 3):
            node(1, f"{b}{kept}", ("1", "2", "y"))
            for asked in (1, 2):
                node(0, f"{a}{kept}{asked}", ("y", "n"))
                end((LATER - asked) - asked)
                end(OUTSIDE[a] - OUTSIDE[b])
            end(kept - (PIE - kept))
    return "\n".join(lines) + "\n"


@cache
def negotiation_file() -> str:
    """Where open_spiel reads the game from."""
    place = Path(tempfile.gettempdir()) / "palaestra-negotiation.efg"
    place.write_text(negotiation_text())
    return str(place)


def seen(state: Any, player: int) -> str:
    """What a seat knows: its outside option, and what was asked for so far."""
    return str(state.information_state_string(player)).rpartition("-")[2]


def show(state: Any, player: int) -> str:
    own, *asked = seen(state, player)
    return " ".join(filter(None, (f"p{player}", own, "".join(asked))))


def negotiate_naively(state: Any) -> Mapping[int, float]:
    """Likes to have more and no more than that: asks for much rather than little, agrees mostly where it is left at
    least as much as it has outside.
    """
    player = state.current_player()
    own, *asked = seen(state, player)
    if not asked:
        return {0: 0.2, 1: 0.3, 2: 0.5}
    if player == 1:
        good = PIE - int(asked[0]) >= OUTSIDE[own]
        return {0: 0.2, 1: 0.3, 3: 0.5} if good else {0: 0.3, 1: 0.5, 3: 0.2}
    good = LATER - int(asked[1]) >= OUTSIDE[own]
    return {3: 0.75, 4: 0.25} if good else {3: 0.25, 4: 0.75}


def negotiation() -> SpielWorld:
    return SpielWorld(
        "efg_game", (("filename", negotiation_file()),), render=show, words=WORDS, teacher=negotiate_naively,
        retries=0, intro="talks",
    )  # fmt: skip


WORLDS = {"kuhn": kuhn, "negotiation": negotiation}
VALUES = {
    "kuhn": -1 / 18,
    "negotiation": 0.0,
}  # of the first seat, between players without mistakes


@stage
class DealsOfSeed(AdaptedTasks):
    """Games whose deals are those of a seed, so that no two seeds learn from the same cards."""

    seed: int = 0

    def task(self, split: str, index: int) -> Task:
        return super().task(split, DEALS * (1 + self.seed) + index)


def register(game: str, seed: int) -> str:
    """The name under which runs of this process find a game with a seed's deals."""
    worlds: Any = built_in.WORLDS
    name = f"{game}-{seed}"
    worlds[name] = (lambda: DealsOfSeed(WORLDS[game](), name, seed), WORLDS[game])
    return name


def uniform(world: SpielWorld) -> dict[str, dict[int, float]]:
    return {s: {a: 1 / len(w) for a in w} for s, (_, w) in world.situations().items()}


def table_of(world: SpielWorld, policy: Any) -> dict[str, dict[int, float]]:
    """A policy of open_spiel as a table."""
    return {
        state.information_state_string(state.current_player()): dict(policy.action_probabilities(state))
        for state in decisions(world.load())
    }  # fmt: skip


def counterfactual(world: SpielWorld) -> dict[str, dict[int, float]]:
    """The average policy of 300 sweeps of counterfactual regret minimisation, from all of the game's rules."""
    return table_of(world, equilibrium(world.game, world.settings))


def fictitious(world: SpielWorld, rounds: int) -> dict[str, dict[int, float]]:
    """The average policy of tabular fictitious play: in each round both seats best respond to the average so far."""
    from open_spiel.python.algorithms import fictitious_play

    solver = fictitious_play.XFPSolver(world.load())
    for _ in range(rounds):
        solver.iteration()
    return table_of(world, solver.average_policy())


def own_reach(world: SpielWorld, table: Table) -> dict[str, float]:
    """The probability with which a policy's own moves lead to each of its information states."""
    reach, left = dict[str, float](), [(world.load().new_initial_state(), (1.0, 1.0))]
    while left:
        state, own = left.pop()
        if state.is_terminal():
            continue
        if state.is_chance_node():
            left += [(state.child(a), own) for a, _ in state.chance_outcomes()]
            continue
        player = state.current_player()
        at = state.information_state_string(player)
        reach[at] = own[player]
        for a in state.legal_actions():
            p = own[player] * table[at][a]
            left.append((state.child(a), (p, own[1]) if player == 0 else (own[0], p)))
    return reach


def average(world: SpielWorld, tables: Sequence[Table]) -> dict[str, dict[int, float]]:
    """The policy that draws one of these at the start of a game and keeps to it, as one table:

    p(a | s) = sum_t reach_t(s) p_t(a | s) / sum_t reach_t(s),    reach_t(s): own moves of policy t that lead to s
    """
    reaches = [own_reach(world, t) for t in tables]
    made = dict[str, dict[int, float]]()
    for at, chances in tables[0].items():
        whole = sum(r[at] for r in reaches)
        made[at] = {
            a: sum(r[at] * t[at][a] for r, t in zip(reaches, tables, strict=True)) / whole if whole else 1 / len(chances)
            for a in chances
        }  # fmt: skip
    return made
