"""Kuhn poker in words: what is shown, whose reply counts, who teaches."""

import asyncio
from collections import Counter

import pytest
from palaestra.errors import UserError
from palaestra.rollout.play import play
from palaestra.rollout.player import Script
from palaestra.run.benches import bench_by_name
from palaestra.worlds.adapters.named import world_by_name
from palaestra.worlds.adapters.spiel import SpielWorld, equilibrium
from palaestra.worlds.kuhn import NAIVE, kuhn

pytest.importorskip("pyspiel")


def game(world, *words, index=0):
    """A hand in which the seats say these words in turn."""
    left = list(words)
    cast = {seat: Script(fn=lambda messages, rng: left.pop(0)) for seat in world.seats}
    return asyncio.run(play(world, cast, world.task("train", index), ("k",), ("w",)))


def test_what_a_turn_shows():
    hand = game(kuhn(), "p", "b", "p")
    shown = [r.segments[0].text for r in hand.rows]
    first, second = shown[0][-1], shown[1].split()[2]
    assert shown == [f"kuhn\n\np0 {first}", f"kuhn\n\np1 {second} p", f"kuhn\n\np0 {first} pb"]
    assert first != second and hand.reward.parts == {"seat:p0": -1.0, "seat:p1": 1.0}


def test_legal_play_is_zero_sum_and_cards_are_dealt_evenly():
    either = {s: Script(fn=lambda messages, rng: str(rng.choice(["p", "b"]))) for s in ("p0", "p1")}
    world, dealt = kuhn(), Counter()
    for i in range(300):
        hand = asyncio.run(play(world, either, world.task("train", i), ("k", i), ("w",)))
        assert sum(hand.reward.parts.values()) == 0 and 1 <= abs(hand.reward.total) <= 2
        assert hand.facts["illegal"] == 0
        dealt[tuple(r.segments[0].text.split()[2] for r in hand.rows[:2])] += 1
    assert len(dealt) == 6 and all(abs(n - 50) < 26 for n in dealt.values())  # four deviations


@pytest.mark.parametrize("said", ["B", "bet", " b", "b.", ""])
def test_a_reply_is_a_word_or_none(said):
    hand = game(kuhn(), said)
    assert hand.reward.parts == {"seat:p0": -2.0, "seat:p1": 2.0} and hand.facts["illegal"] == 1


def test_a_random_action_stands_in_for_a_reply_that_is_none():
    """The hand goes on and the offender pays the penalty, on top of what the hand pays."""
    world = SpielWorld("kuhn_poker", words=("p", "b"), retries=1, penalty=-0.5, forfeits=False)
    hand = game(world, "x", "y", "b", "b")
    paid = hand.reward.parts
    assert hand.status == "finished" and hand.facts["illegal"] == 2
    assert paid["seat:p0"] + paid["seat:p1"] == -0.5 and paid["seat:p1"] in (-2, -1, 1, 2)
    assert world.bounds is None and SpielWorld("kuhn_poker", forfeits=False).bounds == (-2.0, 2.0)
    assert game(world, "x", "y", "b", "b").reward == hand.reward


def test_teachers():
    """What they say is legal, follows the hand alone, and is drawn as often as they say."""
    world, bets = kuhn(), Counter()
    for i in range(600):
        frame = asyncio.run(world.reset(world.task("train", i), ("k",)))
        said = world.oracle(frame.state)
        assert said in ("p", "b") and said == world.oracle(frame.state)
        card = frame.asks[0].say[0].content[-1]
        bets[card, said] += 1
    for card, p in zip("JQK", NAIVE["bet"], strict=True):
        n = bets[card, "p"] + bets[card, "b"]
        assert abs(bets[card, "b"] / n - p) < 4 * (p * (1 - p) / n) ** 0.5
    assert world.has_oracle and not SpielWorld("kuhn_poker", teacher="random", against="random").has_oracle
    by_name = world_by_name("spiel:tic_tac_toe(teacher=random)")
    assert by_name.oracle(asyncio.run(by_name.reset(by_name.task("train", 0), ("k",))).state).startswith("x(")


def test_the_equilibrium_never_bets_the_queen():
    state = kuhn().load().new_initial_state()
    for action in (1, 0):  # the queen, and the jack
        state.apply_action(action)
    assert equilibrium("kuhn_poker").action_probabilities(state)[1] < 0.01


@pytest.mark.parametrize(("made", "says"), [
    (lambda: SpielWorld("kuhn_poker", words=("p",)), "2 actions and 1 words"),
    (lambda: SpielWorld("kuhn_poker", teacher="rand"), "no teacher 'rand'; did you mean random"),
    (lambda: SpielWorld("kuhn_poker").oracle(None), "has no teacher"),
    (lambda: equilibrium("matrix_pd"), "no game of two whose sums are zero"),
    (lambda: equilibrium("tic_tac_toe"), "more than 10,000 histories"),
    (lambda: SpielWorld("kuhn_poker").situations(), "a policy is a table only with words"),
    (lambda: SpielWorld("kuhn_poker", words=("p", "b"), render=lambda s, p: str(s)).situations(), "in two ways"),
])  # fmt: skip
def test_what_is_refused(made, says):
    with pytest.raises(UserError, match=says):
        made()


def test_the_task_by_name():
    bench, players = bench_by_name("kuhn")
    assert bench.name == "kuhn" and bench.world.seats == ("p0", "p1") and not players
    assert len(bench.world.situations()) == 12
