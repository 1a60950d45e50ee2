"""The studies of docs/guides.md: what the arms are, and that the page says what was measured."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import palaestra as pl
import pytest
from benchmarks.guides import advice, maps, page, rewards, run
from benchmarks.guides.simulators import LEFT, MAKE, ROOMS, rooms_places
from palaestra.markdown import fill_marks
from palaestra.recipes.llm4rl.lero.candidate import hybrid_reward

ROOT = Path(__file__).parents[2]


def games_of(simulator, n=8):
    sim = MAKE[simulator]()
    act = rewards.LEARNER.start(sim, ("test",)).act
    return sim, pl.control.play_games(sim, act, n, ("test", simulator))


@pytest.mark.parametrize("simulator", MAKE)
def test_what_is_said_of_a_simulator_is_what_its_games_have(simulator):
    sim, games = games_of(simulator)
    columns = sim.quantities(games)
    assert set(columns) == set(sim.declared) and sim.about
    assert {x.shape for x in columns.values()} == {games["reward"].shape}
    for number in range(rewards.DRAFTS):
        assert rewards.draft_of(simulator, number).reward  # each draft is there and fits the row's form


def test_what_stands_in_the_rooms_is_read_from_an_observation():
    read = MAKE["rooms"]().read
    state = ROOMS.reset(np.random.default_rng(0), 1)
    places = rooms_places()
    at = read(ROOMS.observe(state)[:, 0])
    assert (at["agent_x"][0], at["agent_y"][0]) == tuple(places[state.cell_n[0]])
    assert (at["goal_x"][0], at["goal_y"][0]) == tuple(places[state.goal_n[0]])
    assert at["has_key"][0] == 0


@pytest.mark.parametrize("simulator", LEFT)
def test_steps_left_shrink_by_one_a_step_at_most(simulator):
    _, games = games_of(simulator, 32)
    before, after = LEFT[simulator](games["obs"]), LEFT[simulator](games["next_obs"])
    alive = games["alive"][:, None]
    assert (before - after)[alive].max() == 1 and before.max() <= rewards.FARTHEST[simulator]
    over = games["over"][:, None]
    if simulator != "phrases":  # there the last phrase opens the door, and the observation stays
        assert not after[over].any()


def test_a_potential_adds_only_what_the_last_state_is_worth():
    _, games = games_of("car")
    step, draft = rewards.search_of("car").words.step, rewards.draft_of("car", 0)
    gamma, alive, over = 0.9, games["alive"][:, None], games["over"][:, None]
    added = rewards.as_potential(draft, step, gamma)(games) - draft.team_weight * games["reward"]
    T = added.shape[-1]
    total = (added * gamma ** np.arange(T) * alive).sum(-1)
    phi = (hybrid_reward(draft, step, 4, None)(games) - draft.team_weight * games["reward"]) * ~over
    last = games["alive"].sum(1) - 1
    n = np.arange(len(last))
    assert total[:, 0] == pytest.approx(gamma ** (last + 1) * phi[n, 0, last])


def test_signs_are_turned_with_their_share():
    draft = rewards.draft_of("lid", 1)
    assert rewards.turned(draft, 0.0, ("k",)) == draft
    assert all(getattr(e, "op", "") == "neg" for e in rewards.turned(draft, 1.0, ("k",)).reward)


def test_advice_is_changed_in_its_share_of_cells():
    ways = advice.advice_of(advice.WRITTEN)
    assert (advice.changed(ways, "written", ("k",)) == ways).all() and min(ways) >= 0
    half = advice.changed(ways, "wrong 50", ("k",))
    assert (half != ways).sum() == 34 and set(half[half != ways] ^ 1) <= set(ways)
    assert sorted(advice.changed(ways, "shuffled", ("k",))) == sorted(ways)
    opposite = np.array(ways) ^ 1
    assert advice.on_shortest(np.array(ways)) > 0.9 and advice.on_shortest(opposite) < 0.1
    assert advice.on_shortest(np.full(len(ways), -1)) == 0


def test_maps_grow_and_their_subgoals_are_free_places_on_the_way():
    sizes = [len(maps.map_of(name).places) for name in maps.ROOMS]
    assert all(a < b for a, b in pairwise(sizes))
    for name in maps.ROOMS:
        regions, sim = maps.regions_of(name), maps.map_of(name)
        assert {r.centre for r in regions} <= set(map(tuple, sim.places.tolist()))
        assert regions[-1].centre == sim.goal


def test_differences_are_of_the_same_seeds():
    cell = lambda x: {"return": x}
    cells = {"a/none/0": cell(1.0), "a/none/1": cell(5.0), "a/guide/1": cell(7.0), "a/guide/2": cell(100.0)}
    apart = page.difference(cells, "a", "guide", "none", False)
    assert (apart.mean, apart.n) == (2.0, 1)


def test_the_page_says_what_was_measured():
    results = run.read_results()
    known = {study: {"/".join(map(str, c)) for _, c in cells()} for study, (cells, _) in run.STUDIES.items()}
    assert all(set(cells) <= known[study] for study, cells in results.items())
    text = (ROOT / "docs/guides.md").read_text()
    assert fill_marks(text, page.made_parts(results)) == text, "python -m benchmarks.guides.page docs/guides.md"
