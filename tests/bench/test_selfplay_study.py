"""The study of self-play: its games, its arms, and what its page says of numbers."""

import json

import palaestra as pl
import pytest
from palaestra.markdown import fill_marks
from palaestra.run import built_in
from palaestra.types import Message

pytest.importorskip("pyspiel")

from benchmarks.selfplay import games, page, study


def test_the_negotiation_is_zero_sum_with_value_0():
    world = games.negotiation()
    assert len(world.situations()) == 20
    found = world.exact_play(games.uniform(world))
    assert found["exploitability"] == pytest.approx(1.0) and found["value"] == pytest.approx(0.0)
    solved = world.exact_play(games.counterfactual(world))
    assert solved["exploitability"] < 1e-3 and solved["value"] == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize(("moves", "pay"), [
    ("3y", 2), ("1y", -2), ("2y", 0), ("32y", -1), ("31y", 1), ("31n", -2), ("12n", -2),
])  # fmt: skip
def test_what_a_negotiation_pays(moves, pay):
    """With 0 points outside for p0 and 2 for p1: an agreement pays the difference of shares, leaving that of options."""
    state = games.negotiation().load().new_initial_state()
    state = state.child(1)  # l h
    for said in moves:
        assert games.show(state, state.current_player()).split()[1] == "lh"[state.current_player()]
        state = state.child(games.WORDS.index(said))
    assert state.is_terminal() and state.returns() == [pay, -pay]


def test_nobody_sees_what_the_other_has_outside():
    world = games.negotiation()
    low, high = (world.load().new_initial_state().child(i).child(2) for i in (1, 3))  # l h, h h
    assert games.show(low, 1) == games.show(high, 1) == "p1 h 3"


def test_teachers_and_coins_say_legal_words():
    for game, make in games.WORLDS.items():
        world = make()
        for text, words in world.situations().values():
            rng = pl.rng_of(("coin", text))
            said = {study.COINS[game]([Message(role="user", content=text)], rng) for _ in range(60)}
            assert said == set(words.values()), text


def test_teacher_of_the_negotiation_gives_every_legal_action_a_chance():
    for state in games.decisions(games.negotiation().load()):
        chances = games.negotiate_naively(state)
        assert sorted(chances) == state.legal_actions() and sum(chances.values()) == pytest.approx(1)


def kuhn_table(chance):
    return {s: {0: 1 - p, 1: p} for s in games.kuhn().situations() for p in [chance(s)]}


def test_the_average_of_policies_counts_how_often_each_gets_somewhere():
    """A first seat that always bets never answers a bet; the average there is the other policy's answer alone."""
    bets, passes = kuhn_table(lambda s: 1.0), kuhn_table(lambda s: 0.0)
    world = games.kuhn()
    mean = games.average(world, [bets, passes])
    assert mean["0"] == {0: 0.5, 1: 0.5} and mean["0pb"] == {0: 1.0, 1: 0.0} and mean["1b"] == {0: 0.5, 1: 0.5}
    often = kuhn_table(lambda s: 0.75)
    assert games.average(world, [often, often]) == often


def test_the_average_policy_earns_what_drawing_a_policy_earns():
    """Against uniform play the pay of the average is the mean of the pays: the draw is kept for a game."""
    world = games.kuhn()
    tables = [kuhn_table(lambda s: 0.1 + 0.2 * int(s[0])), kuhn_table(lambda s: 0.9 - 0.3 * int(s[0]))]
    each = [world.exact_play(t)["against_uniform"] for t in tables]
    mean = world.exact_play(games.average(world, tables))["against_uniform"]
    assert mean == pytest.approx(sum(each) / 2)


def test_fictitious_play_nears_an_equilibrium():
    world = games.kuhn()
    few, many = (world.exact_play(games.fictitious(world, n))["exploitability"] for n in (5, 20))
    assert many < few < 11 / 24 and many < 0.1


def test_deals_of_seeds_are_their_own(monkeypatch):
    monkeypatch.setattr(built_in, "WORLDS", dict(built_in.WORLDS))  # what is registered stays there
    tasks = [games.DealsOfSeed(games.kuhn(), "x", seed) for seed in (0, 1)]
    assert len({t.task("train", i).id for t in tasks for i in range(50)}) == 100
    assert games.register("kuhn", 3) == "kuhn-3"


def test_arms_differ_in_the_other_seat_alone():
    made = {arm: study.recipe_of(arm, "kuhn") for arm in study.ARMS}
    casts = {arm: r.collect.links[0].cast for arm, r in made.items()}
    assert casts["self"] is None and len({repr(c) for c in casts.values()}) == 4
    for r in made.values():  # a learner has its objective, credit and optimiser
        assert r.learners == made["self"].learners and r.schedule == made["self"].schedule
    assert set(made["mixed population"].references) == {"past", "start"}
    assert made["fixed opponent"].references == {"start": "policy"}


def results_with(late, seeds=range(5)):
    cells = {
        f"{game}/{arm}/{seed}": {
            "course": [0.3 + 0.01 * seed, 0.2], "last": x, "late": x + 0.01 * seed + 0.001 * (seed * len(arm) % 3), "average": x,
            "value": 0.0, "against uniform": 0.1, "illegal": 0.01, "tokens": 6000, "steps": 20, "seconds": 7.0,
        }
        for game in page.TITLES for arm, x in late.items() for seed in seeds
    }  # fmt: skip
    return {"references": {}, "cells": cells}


LATE = {"self": 0.1, "past selves": 0.1, "fixed opponent": 0.3, "mixed population": 0.2}


def test_verdicts_follow_the_declared_rule():
    rows = {x.split(" | ")[0]: x for x in page.arms_table(results_with(LATE), "kuhn").splitlines()}
    assert rows["| fixed opponent"].endswith(", more exploitable |")
    assert "no difference that matters" in rows["| fixed opponent"]  # less the start
    assert rows["| past selves"].endswith(", no difference that matters |")
    assert ", less exploitable |" in rows["| self"] and rows["| self"].endswith("|  |")
    text = page.conclusions(results_with(LATE))
    assert "Not complete" not in text and "more exploitable: fixed opponent +0.200, mixed population +0.10" in text


def test_a_missing_cell_makes_its_game_a_trial():
    results = results_with(LATE)
    del results["cells"]["kuhn/self/4"]
    assert "trial: 4 of 5 seeds" in page.arms_table(results, "kuhn")
    assert "more exploitable" not in page.arms_table(results, "kuhn")
    assert "more exploitable" in page.arms_table(results, "negotiation")
    assert page.conclusions(results).startswith("- **Not complete:** 1 of the 40 declared cells")


def test_arms_are_compared_at_the_last_step_that_all_have():
    results = results_with(LATE)
    for at, cell in results["cells"].items():
        cell["steps"] = 5 if "/self/" in at else 8
        cell["course"] = [0.3, 0.2 if "/self/" in at else 0.25, 0.9]
    assert "| Kuhn poker | 3 | +0.050 [+0.050, +0.050] |" in page.steps_table(results)


def test_the_measure_is_the_second_half_of_the_course():
    world = games.kuhn()
    tables = [kuhn_table(lambda s, p=p: p) for p in (0.5, 0.5, 1.0, 1.0)]
    found = study.course(world, tables)
    assert found["course"][0] == pytest.approx(11 / 24, abs=1e-4) and found["late"] == pytest.approx(1 / 3, abs=1e-4)
    assert found["last"] == found["average"] == found["late"]


def test_the_page_has_what_the_results_say():
    text = page.PAGE.read_text()
    results = json.loads((page.HERE / "results.json").read_text())
    assert fill_marks(text, page.made_parts(results)) == text, "python -m benchmarks.selfplay.page"
