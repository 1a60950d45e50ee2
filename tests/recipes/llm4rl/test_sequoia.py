"""SEQUOIA: integer programs that hold a network, restless arms, their limits, the optimum, and a user's file."""

import asyncio
import json
import sys
from itertools import pairwise, product

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.llm4rl import sequoia
from palaestra.recipes.llm4rl.sequoia.bandit import (
    RestlessBandit,
    budget_set,
    capacity_set,
    climbing,
    draw_bandit,
    path_set,
    read_bandit,
    schedule_set,
)
from palaestra.recipes.llm4rl.sequoia.learner import (
    FeasibleActions,
    PrioritisedReplay,
    SequentialCosts,
    exploration,
    td_targets,
)
from palaestra.recipes.llm4rl.sequoia.milp import (
    Feasible,
    least_linear,
    least_of_network,
    network_value,
)
from palaestra.recipes.llm4rl.sequoia.program import PlanRestless, feasible_actions, optimal_actions

pytest.importorskip("scipy")
KEY = ("test",)
FAST = SequentialCosts(hidden=(4,), epochs=4, batch=8, per_step=1)


def three(feasible: Feasible | None = None, **more) -> RestlessBandit:
    """Arms of four states that pay 0.2, 0.15, 0.1 and 5; up with 0.1 idle and 0.8 acted on."""
    return RestlessBandit(
        transitions=climbing(np.tile([0.1, 0.8], (3, 1)), 4),
        rewards=np.tile([0.2, 0.15, 0.1, 5.0], (3, 1)),
        feasible=feasible or budget_set(3, 1),
        horizon=4,
        **more,
    )


def allowed(feasible):
    """All feasible actions, each tried by fixing it."""
    actions = FeasibleActions(three(feasible), 5.0, pl.rng_of(KEY))
    return {a for a in product((0, 1), repeat=feasible.actions) if actions.allows(np.array(a))}


def test_the_least_of_a_network_is_that_of_trying_all():
    """Two of three at most, the state is 1: -2.8 at (0, 1, 1), -0.3 at (0, 0, 1)."""
    layers = [
        (np.array([[1.0, -2, 1, 0.5], [-1, 1, 2, -1]]), np.array([-0.5, 0])),
        (np.array([[1.0, -1.5]]), np.array([0.2])),
    ]
    assert least_of_network(budget_set(3, 2), layers, np.ones(1), 5.0).tolist() == [0, 1, 1]
    at = lambda a: float(network_value(layers, np.array([*a, 1.0])))
    assert at((0, 1, 1)) == pytest.approx(-2.8) and at((0, 0, 1)) == pytest.approx(-0.3)


def test_a_program_holds_deep_networks():
    """Two hidden layers, drawn; every state of a few."""
    rng = pl.rng_of(KEY)
    sizes = (9, 6, 5, 1)
    layers = [(rng.normal(size=(b, a)), rng.normal(size=b)) for a, b in pairwise(sizes)]
    actions = np.array(list(product((0, 1), repeat=5)))
    fits = actions[actions.sum(1) <= 3]
    for _ in range(6):
        state = rng.normal(size=4)
        values = network_value(layers, np.concatenate([fits, np.tile(state, (len(fits), 1))], 1))
        found = least_of_network(budget_set(5, 3), layers, state, 5.0)
        assert network_value(layers, np.concatenate([found, state])) == pytest.approx(values.min(), abs=1e-5)


def test_targets_and_exploration():
    """-3 - 0.99 * 2.8 = -5.772; 0.05 + 0.85 / e = 0.362698."""
    assert td_targets(np.array([-3.0]), np.array([-2.8]), 0.99) == pytest.approx([-5.772])
    assert exploration(1000) == pytest.approx(0.362698, abs=1e-6) and exploration(0) == pytest.approx(0.9)


def test_what_an_arm_pays_next():
    """In state 2: 0.8 * 5 + 0.2 * 0.15 = 4.03 acted on, 0.1 * 5 + 0.9 * 0.15 = 0.635 idle."""
    bandit = three()
    assert bandit.expected(np.array([2, 2, 2])).tolist() == pytest.approx(np.array([[0.635, 4.03]] * 3))
    cost = bandit.cost(np.array([2, 2, 2]), np.array([[0, 1, 0], [0, 0, 0]]))
    assert cost == pytest.approx([-(4.03 + 2 * 0.635), -3 * 0.635])
    assert bandit.least_myopic(np.array([0, 2, 3]), 5.0).tolist() == [0, 0, 1]  # 3.55 against 3.395 and -0.035


def test_arms_move_by_their_probabilities():
    """u = 0.15 is above the 0.1 to stay up of an idle arm's ladder only where it goes down with 0.9."""
    bandit, state = three(), np.array([1, 1, 1])
    after = bandit.step(np.tile(state, (4000, 1)), np.tile([1, 0, 0], (4000, 1)), pl.rng_of(KEY).random((4000, 3)))
    assert set(after.ravel()) == {0, 2}
    up = (after == 2).mean(0)
    assert up[0] == pytest.approx(0.8, abs=0.03) and up[1] == pytest.approx(0.1, abs=0.03)
    assert bandit.paid(np.array([[3, 0, 2]])) == pytest.approx([5.3])


def test_several_actions_act_on_an_arm_by_a_link():
    """Sums 1.5, 0.5, 0 on corners (0, 0), (1, 0.2), (2, 1): 0.6, 0.1, 0; the myopic program finds the best pair."""
    link = ((0.0, 1.0, 2.0), (0.0, 0.2, 1.0))
    weights = np.array([[1.0, 0.5], [0.5, 0.0], [0.0, 0.0]])
    bandit = three(budget_set(2, 2), weights=weights, link=link)
    assert bandit.strength(np.array([1, 1])) == pytest.approx([0.6, 0.1, 0])
    state = np.array([2, 1, 0])
    every = np.array(list(product((0, 1), repeat=2)))
    best = every[bandit.cost(np.tile(state, (4, 1)), every).argmin()]
    assert bandit.least_myopic(state, 5.0).tolist() == best.tolist() == [1, 1]


def test_workers_have_capacities():
    """Costs 2, 3, 4 and capacities 5, 4: all but all three fit (2 + 3 and 4 do, too)."""
    assert allowed(capacity_set([2, 3, 4], [5, 4])) == set(product((0, 1), repeat=3))
    assert allowed(capacity_set([2, 3, 4], [4, 2])) == {
        (0, 0, 0),
        (1, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
        (1, 1, 0),
        (1, 0, 1),
    }


def test_a_slot_of_a_worker_serves_one_arm():
    made = allowed(schedule_set([[0], [1]], [[0], [0], [1]]))
    assert made == {(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1)}


def test_a_walk_comes_back_to_the_depot():
    """On the line 0 - 1 - 2 - 3, four moves reach 1 and 2; arm 3 is too far, and two are acted on at most."""
    made = allowed(path_set(4, [(0, 1), (1, 2), (2, 3)], 0, 4, 2))
    assert made == {a for a in product((0, 1), repeat=4) if a[3] == 0 and sum(a) <= 2}


def test_the_optimum_looks_to_the_horizon():
    """One arm that loses at once and wins later. Up surely when acted on: 0.2, 0.15, 0.1, then 5."""
    bandit = RestlessBandit(
        transitions=climbing(np.array([[0.0, 1.0]]), 4),
        rewards=np.array([[0.2, 0.15, 0.1, 5.0]]),
        feasible=budget_set(1, 1),
        horizon=3,
        start=np.zeros(1, int),
    )
    actions = FeasibleActions(bandit, 5.0, pl.rng_of(KEY))
    best = optimal_actions(bandit, feasible_actions(actions))
    every = feasible_actions(actions)
    chosen = [every[best[t, s]].tolist() for t, s in ((0, 0), (1, 1), (2, 2), (1, 0))]
    assert chosen == [[1], [1], [1], [0]]  # with two steps left the top is out of reach
    assert bandit.least_myopic(np.array([0]), 5.0).tolist() == [0]


def test_greedy_stops_where_no_single_part_helps():
    """Two actions that only help together: the program finds them, one after another does not."""
    bandit = three(budget_set(3, 2))
    network = SequentialCosts(hidden=(1,)).network(bandit, KEY)
    weights = np.zeros((1, 15))
    weights[0, :2] = 1
    state = {"net.0.weight": weights, "net.0.bias": [-1.5], "net.2.weight": [[-1.0]], "net.2.bias": [0.0]}
    import torch

    network.load_state_dict({k: torch.tensor(np.array(v)).float() for k, v in state.items()})
    actions = FeasibleActions(bandit, 5.0, pl.rng_of(KEY))
    assert actions.least(network, np.zeros(3, int)).tolist() == [1, 1, 0]
    assert actions.greedy(network, np.zeros(3, int)).tolist() == [0, 0, 0]


def test_replay_is_by_priority():
    """Priorities 1 and 16 with alpha 0.5: probabilities 0.2 and 0.8; weights (2 p)^-1 = 2.5 and 0.625, divided by 2.5."""
    replay = PrioritisedReplay(alpha=0.5, beta=1.0)
    for name in (0.0, 1.0):
        replay.add((np.zeros(1), np.zeros(1), np.zeros(1), name))
    replay.note(np.array([0, 1]), np.array([1.0, -16.0]))
    which, weights = replay.draw(pl.rng_of(KEY), 2000)
    assert (which == 1).mean() == pytest.approx(0.8, abs=0.03)
    assert {round(float(w), 4) for w in weights[which == 1]} == {0.25} and weights[which == 0] == pytest.approx(1)


def run(ctx, **settings):
    made = PlanRestless(**{"arms": 3, "horizon": 4, "steps": 8, "sample": 4, "games": 4, "learner": FAST} | settings)
    return asyncio.run(made.run(ctx)).metrics


def test_without_what_follows_it_is_the_one_step_network(context):
    made = run(context())
    off = run(context(), learner=SequentialCosts(hidden=(4,), epochs=4, batch=8, per_step=1, gamma=0.0))
    assert made["changed"] > 0 and off["changed"] == 0 == off["gain_over_one_step"]
    arms = made["arms"]
    assert list(arms) == ["none", "random", "sample", "myopic", "one step", "greedy", "sequoia", "optimum"]
    assert {arms[n]["env_steps"] for n in ("one step", "greedy", "sequoia")} == {8}
    assert made["return_optimum"] >= made["return_none"]


def test_a_killed_run_goes_on_with_the_next_arm(context, tmp_path):
    first = run(context(out=tmp_path), domain="path")
    weights = json.loads((tmp_path / "network.json").read_text())
    assert np.array(weights["net.0.weight"]).shape == (4, 3 + 3 * 4)
    for arm in ("sequoia", "sample", "myopic"):  # each has random numbers of its own
        next(tmp_path.rglob(f"arm-{arm}.json")).unlink()
    assert json.dumps(run(context(out=tmp_path), domain="path")) == json.dumps(first)


@pytest.mark.parametrize("domain", ["capacity", "schedule", "path", "interventions", "budget"])
def test_each_domain_has_actions_to_choose_from(domain):
    bandit = draw_bandit(domain, 4, 2, 5, pl.rng_of(KEY))
    actions = FeasibleActions(bandit, 5.0, pl.rng_of(KEY))
    every = feasible_actions(actions)
    assert 2 < len(every) < 16 and actions.allows(actions.random())
    states = np.array([0, 1, 2, 3])
    costs = bandit.cost(np.tile(states, (len(every), 1)), every)
    assert bandit.cost(states, actions.myopic(states)) == pytest.approx(costs.min(), abs=1e-6)


OWN = {
    "up": [[0.1, 0.9], [0.2, 0.8]],
    "rewards": [[0, 1], [0, 2]],
    "horizon": 3,
    "start": [0, 0],
    "limit": {"matrix": [[1, 1, -1]], "low": [None], "high": [0]},  # an action needs the hidden binary
}


def test_a_file_of_ones_own(context, tmp_path):
    (tmp_path / "own.json").write_text(json.dumps(OWN))
    made = run(context(out=tmp_path), bandit=str(tmp_path / "own.json"))
    assert made["return_optimum"] > 0 and made["arms"]["sequoia"]["fallbacks"] == 0
    act = sequoia.load_planner(tmp_path, str(tmp_path / "own.json"))
    assert act([0, 1]).shape == (2,) and act([0, 1]).sum() <= 1
    with pytest.raises(UserError, match="holds no network for these arms"):
        sequoia.load_planner(tmp_path, three())
    (tmp_path / "own.py").write_text(f"null = None\n\n\ndef make():\n    return {OWN!r}\n")
    again = run(context(), bandit=f"{tmp_path}/own.py:make")
    assert again["return"] == made["return"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rewards": None}, "is no bandit"),
        ({"limit": {"most": 2}}, "limit has budget; or costs, capacities"),
        ({"up": [[0.1, 0.9]]}, r"transitions are \[1, 2, 2, 2\]; 2 arms of 2 states need"),
        ({"up": [[0.1, 1.9], [0, 1]]}, "sum to 1"),
        ({"start": [0, 2]}, "start has a state from 0 to 1"),
        ({"limit": {"costs": [1, 2, 3], "capacities": [4]}}, "limit is of 3 actions, and there are 2"),
        ({"colour": 1}, "there is no colour"),
        ({"rewards": [0, 1]}, "rewards are a list an arm"),
        (
            {"limit": {"edges": [[0, 1], [1, 2]], "depot": 0, "length": 2, "budget": 1}},
            "there is no arm 2; edges and depot are numbers from 0 to 1",
        ),
        ({"weights": [[1, 0], [0, 1]]}, "weights and link need each other"),
        (
            {"weights": [[1, 0], [0, 3]], "link": {"x": [0, 1], "y": [0, 1]}},
            "link goes over all sums of weights, 0 to 3",
        ),
    ],
)
def test_a_file_that_does_not_fit_is_refused(change, says):
    with pytest.raises(UserError, match=says):
        read_bandit({**OWN, **change}, "own.json")


def test_a_limit_that_allows_nothing_is_said(context, tmp_path):
    (tmp_path / "own.json").write_text(json.dumps({**OWN, "limit": {"budget": -1}}))
    with pytest.raises(UserError, match="no action is feasible"):
        run(context(), bandit=str(tmp_path / "own.json"))


def test_the_best_actions_are_looked_for_anew(monkeypatch):
    """After every `refresh` games; with 1 that was never."""
    found = []
    least = FeasibleActions.least
    monkeypatch.setattr(FeasibleActions, "least", lambda self, *a: found.append(1) or least(self, *a))
    counts = []
    for refresh in (1, 100):
        found.clear()
        settings = SequentialCosts(hidden=(4,), epochs=1, batch=4, per_step=1, refresh=refresh)
        settings.learn(three(), 24, KEY)
        counts.append(len(found))
    assert counts[0] > counts[1]


def test_what_cannot_be_is_refused(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="cannot be read"):
        sequoia.build(bandit=str(tmp_path / "none.json"))
    with pytest.raises(UserError, match="has no limit"):
        read_bandit({k: v for k, v in OWN.items() if k != "limit"}, "own.json")
    with pytest.raises(UserError, match="gamma is from 0 to below 1"):
        sequoia.build(gamma=1.0)
    none = Feasible(actions=2, matrix=np.ones((1, 2)), low=np.array([3.0]), high=np.array([4.0]))
    with pytest.raises(UserError, match="no action is feasible"):
        FeasibleActions(three(none), 5.0, pl.rng_of(KEY)).random()
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(UserError, match=r"pip install 'palaestra\[milp\]'"):
        least_linear(budget_set(2, 1), np.ones(2), 5.0)
