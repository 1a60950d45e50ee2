"""Collab Capture and Collab Escape: their exact values by a search that does not use the worlds, their rules one by
one, and legal replies by seat.
"""

import asyncio
from fractions import Fraction
from functools import cache
from itertools import product

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.rollout.play import play
from palaestra.rollout.player import Script
from palaestra.run.benches import bench_by_name
from palaestra.types import Act, Ask
from palaestra.worlds.collab import CollabState
from palaestra.worlds.collab_capture import CapturePlace, CollabCapture
from palaestra.worlds.collab_escape import CollabEscape, EscapePlace

EDGES = {1: [2, 8], 2: [1, 3], 3: [2, 4, 7], 4: [3, 5], 5: [4, 6], 6: [5, 7], 7: [3, 6, 8], 8: [1, 7]}
ROOMS = {1: [2, 6], 2: [1, 3], 3: [2, 4], 4: [3, 5], 5: [4, 6, 7], 6: [5, 9, 1], 7: [5, 8], 8: [7], 9: [6]}


@cache
def escape_chance(a, b, k, g1, g5, left):
    """The best probability of a win within `left` turns, in fractions, by the rules as the catalogue has them."""
    if left == 0:
        return Fraction(0)
    best = Fraction(0)
    near = [r for r in (a, b) if r in EDGES[k]]
    hunted = near[:1] or EDGES[k]
    ways = [[*EDGES[r], r, *([0] if r in (1, 5) else [])] for r in (a, b)]  # 0 = fix
    for x, y in product(*ways):
        fixing = [r for r, m in ((a, x), (b, y)) if m == 0]
        n1, n5 = (n if n == 2 else min(2, n + fixing.count(r)) if r in fixing else 0 for r, n in ((1, g1), (5, g5)))
        p, q = x or a, y or b
        value = Fraction(0)
        for to in hunted:
            if to in (p, q):
                continue
            won = n1 == n5 == 2 and 7 in (p, q)
            value += Fraction(1, len(hunted)) * (1 if won else escape_chance(p, q, to, n1, n5, left - 1))
        best = max(best, value)
    return best


def test_escape_is_won_as_often_as_an_independent_search_says():
    for turns, chance in ((5, Fraction(1, 36)), (6, Fraction(25, 27)), (7, Fraction(187, 192)), (8, Fraction(1))):
        assert escape_chance(1, 2, 6, 0, 0, turns) == chance  # the catalogue's values
        assert CollabEscape(turns=turns).ceiling() == pytest.approx(float(chance), abs=1e-12)


def passes(room, to, doors):
    return doors.get((min(room, to), max(room, to)), True)


def capture_turns(away, may_stay, crossing, most=4):
    """The fewest turns to a capture, by search over all joint moves, breadth first."""

    def run(t, players, doors):
        free = [r for r in ROOMS[t] if passes(t, r, doors)] + [t] * may_stay
        return sorted(free, key=lambda r: (-min(away(r, p, doors) for p in players), r))[0]

    places = [(1, 2, 9, True, True)]
    for n in range(1, most + 1):
        after = set()
        for a, b, t, d12, d34 in places:
            doors = {(1, 2): d12, (3, 4): d34}
            ways = [[*(r for r in ROOMS[x] if passes(x, r, doors)), x, *([0] if x in (8, 9) else [])] for x in (a, b)]
            for x, y in product(*ways):
                p, q = x or a, y or b
                presses = [r for r, m in ((a, x), (b, y)) if m == 0]
                thief = run(t, (p, q), doors)
                crossed = (a == thief and p == t) or (b == thief and q == t)
                if thief in (p, q) or (crossing and crossed):
                    return n
                after.add((p, q, thief, d12 ^ (presses.count(9) % 2 == 1), d34 ^ (presses.count(8) % 2 == 1)))
        places = after
    return None


def links_apart(room, other, doors):
    reached, n = {other}, 0
    while room not in reached:
        wider = reached | {r for x in reached for r in ROOMS[x] if passes(x, r, doors)}
        if wider == reached:
            return 9
        reached, n = wider, n + 1
    return n


@pytest.mark.parametrize("crossing", [True, False])
def test_a_thief_is_caught_as_soon_as_an_independent_search_says(crossing):
    released = capture_turns(lambda r, p, doors: abs(r - p), False, crossing)
    stays = capture_turns(links_apart, True, crossing)
    assert (released, stays) == (1, 2)  # the catalogue's values
    for thief, turns in (("released", released), ("stays", stays)):
        world = CollabCapture(thief=thief, crossing=crossing, turns=10)
        assert world.ceiling() == pytest.approx((10 - turns + 1) / 10)


def act(seat, text):
    return Act(ask=Ask(seat=seat), text=text, call=None, finish="eos", n_tokens=0)


def after(world, place, alice, bob, turn=0, key=("k",)):
    return world.step(CollabState(place=place, turn=turn), (act("alice", alice), act("bob", bob)), key)


def test_two_players_of_the_best_plan_win_and_are_paid_alike():
    for world, turns in ((CollabEscape(), 8), (CollabCapture(), 2)):
        for n in range(20):
            frame = world.reset(None, ("k", n))
            while frame.asks:
                acts = tuple(act(s, world.reply(frame.state, s, None)) for s in world.seats)
                frame = world.step(frame.state, acts, ("k", n, frame.state.turn))
            pay = world.score(frame.state.turn)
            assert frame.pay == {("alice", ""): pay, ("bob", ""): pay} and frame.state.turn <= turns
            assert frame.facts["result"] == world.won and pay >= world.solved


def test_generators_need_two_fixes_without_a_pause():
    world = CollabEscape()
    both = after(world, EscapePlace(rooms=(1, 1)), "fix the generator", "Fix the generator.")
    assert both.state.place.fixes == (2, 0)  # both in one turn
    one = after(world, EscapePlace(rooms=(1, 3)), "fix the generator", "wait")
    assert one.state.place.fixes == (1, 0)
    paused = after(world, one.state.place, "wait", "wait")
    assert paused.state.place.fixes == (0, 0)  # it starts again
    runs = after(world, EscapePlace(rooms=(1, 3), fixes=(2, 0)), "move to room 2", "wait")
    assert runs.state.place.fixes == (2, 0)  # one that runs goes on
    assert "fix the generator" not in world.actions(EscapePlace(rooms=(1, 3), fixes=(2, 0)), "alice")


def test_the_killer_follows_alice_first_and_a_catch_is_looked_at_before_a_win():
    world = CollabEscape()
    assert world.hunts(EscapePlace(rooms=(5, 7), killer=6)) == (5,)
    assert world.hunts(EscapePlace(rooms=(1, 7), killer=6)) == (7,)
    assert world.hunts(EscapePlace(rooms=(1, 2), killer=6)) == (5, 7)
    # where alice stood: she has left it
    assert after(world, EscapePlace(rooms=(5, 2), killer=6), "move to room 4", "wait").state.place.killer == 5
    caught = after(world, EscapePlace(rooms=(7, 3), killer=6, fixes=(2, 2)), "wait", "move to room 7")
    assert caught.facts["result"] == "caught" and caught.pay == {("alice", ""): 0.0, ("bob", ""): 0.0}
    free = after(world, EscapePlace(rooms=(5, 3), killer=6, fixes=(2, 2)), "move to room 4", "move to room 7")
    assert free.facts["result"] == "escaped" and free.pay[("bob", "")] == 1.0


def test_doors_stop_all_and_are_worked_by_their_buttons():
    world = CollabCapture()
    shut = after(world, CapturePlace(rooms=(9, 8), thief=4), "press the button", "press the button")
    assert shut.state.place.doors == (False, False)
    place = CapturePlace(rooms=(1, 3), thief=8, doors=(False, False))
    assert world.actions(place, "alice") == ("stay", "move to room 6")
    assert world.actions(place, "bob") == ("stay", "move to room 2")
    # a player who walks through a door that is shut in the same turn has passed
    passed = after(world, CapturePlace(rooms=(9, 1), thief=7), "press the button", "move to room 2")
    assert passed.state.place.rooms == (9, 2) and passed.state.place.doors == (False, True)


def test_a_crossing_is_a_capture_where_it_counts_as_one():
    place = CapturePlace(rooms=(5, 8), thief=7)  # cornered: whoever comes, it is met
    for crossing, rooms in ((True, (7, 8)), (False, (7, 8))):
        frame = after(CollabCapture(crossing=crossing), place, "move to room 7", "stay")
        assert frame.state.place.rooms == rooms
    passing = CapturePlace(rooms=(6, 1), thief=9)
    frames = [
        after(CollabCapture(thief="released", crossing=c), passing, "move to room 9", "stay") for c in (True, False)
    ]
    assert [bool(f.pay) for f in frames] == [True, False] and frames[1].state.place.thief == 6


@pytest.mark.parametrize(
    "text, room",
    [
        ("move to room 8", 8),
        ("**Move to Room 8**", 8),
        ("\\boxed{move to room 8}", 8),
        ("I would wait, but no: move to room 8.", 8),
        ("<think>move to room 2</think> move to room 8", 8),
        ("move to room 5", 1),  # is not linked: nothing is done
        ("", 1),
    ],
)
def test_replies_are_read(text, room):
    frame = after(CollabEscape(), EscapePlace(), text, "wait")
    assert frame.state.place.rooms[0] == room
    assert frame.facts["illegal:alice"] == int(room == 1) and frame.facts["illegal:bob"] == 0


def test_a_game_ends_unpaid_when_its_turns_are_over():
    frame = after(CollabEscape(turns=3), EscapePlace(), "wait", "wait", turn=2)
    assert not frame.asks and frame.facts["result"] == "out of turns" and set(frame.pay.values()) == {0.0}


def test_each_seat_is_offered_what_it_may_do_itself():
    """alice in room 1 and bob in room 2 move at once and may do different things."""
    world = CollabEscape()
    frame = world.reset(None, ("k",))
    offers = {a.seat: pl.worlds.legal_replies(world, frame.state, a) for a in frame.asks}
    assert offers == {
        "alice": ("wait", "move to room 2", "move to room 8", "fix the generator"),
        "bob": ("wait", "move to room 1", "move to room 3"),
    }
    held = CollabEscape(illegal="never").reset(None, ("k",))
    assert {a.seat: a.choices for a in held.asks} == offers
    assert all("killer in room 6" in a.say[0].content for a in frame.asks)
    assert [a.seat for a in pl.worlds.Candidates(world)._restrict(frame).asks if a.choices == offers[a.seat]] == [
        "alice", "bob",
    ]  # fmt: skip


def test_two_random_players_make_no_illegal_move_and_a_tournament_counts_by_seat():
    game = pl.games.play("collab-escape", ["random", "random"], n=4)["games"]
    assert all(set(g["illegal"].values()) == {0} and g["turns"]["alice"] == g["turns"]["bob"] for g in game)


OWN = """
from palaestra.types import Ask, Frame, Message

class Apart:
    seats = ("a", "b")
    def reset(self, task, key):
        say = (Message(role="user", content="?"),)
        return Frame(state=0, asks=(Ask(seat="a", say=say), Ask(seat="b", say=say)))
    def step(self, state, acts, key):
        same = float({x.text for x in acts} == {"left", "up"})
        return Frame(state=1, pay={("a", ""): same, ("b", ""): same})
"""


@pytest.mark.parametrize("method, good", [("legal_for(self, state, seat)", 0), ("legal(self, state)", 1)])
def test_a_class_of_the_users_lists_replies_by_seat_or_for_all(tmp_path, method, good):
    """With one list for all seats, a game of two who say different things counts an honest reply as illegal."""
    body = "('left',) if seat == 'a' else ('up',)" if good == 0 else "('left',)"
    (tmp_path / "apart.py").write_text(f"{OWN}    def {method}:\n        return {body}\n")
    (tmp_path / "up.py").write_text("def up(messages, rng):\n    return 'up'\n")
    game = pl.games.play(f"{tmp_path}/apart.py:Apart", ["random", f"{tmp_path}/up.py:up"])["games"][0]
    assert game["illegal"] == {"a": 0, "b": good} and game["pay"] == {"a": 1.0, "b": 1.0}


def test_settings():
    bench, _ = bench_by_name("collab-capture(thief='released',turns=4,brief=True)")
    assert bench.world == CollabCapture(thief="released", turns=4, brief=True) and bench.max_turns == 8
    for spec, why in (
        ("collab-escape(turn=4)", "turns"),
        ("collab-escape(turns='x')", "whole number"),
        ("collab-capture(thief='slow')", "stays or released"),
        ("collab-escape(turns=0)", "1 to 100"),
    ):
        with pytest.raises(UserError, match=why):
            bench_by_name(spec)


def test_a_short_prompt_has_the_state_and_the_actions_alone():
    world = CollabCapture(brief=True)
    assert world.reset(None, ("k",)).asks[1].say[0].content.splitlines() == [
        "you bob", "alice 1 bob 2 thief 9", "1-2 open 3-4 open", "actions: stay, move to room 1, move to room 3",
    ]  # fmt: skip


def test_the_worlds_chance_is_that_of_its_key():
    world, cast = CollabEscape(), {s: Script(fn=lambda m, rng: "wait") for s in ("alice", "bob")}
    task = bench_by_name("collab-escape")[0].tasks.task("test", 0)
    ends = [asyncio.run(play(world, cast, task, ("p", n), ("w", n % 2))).facts["team_turns"] for n in range(4)]
    assert ends[0] == ends[2] and ends[1] == ends[3]
