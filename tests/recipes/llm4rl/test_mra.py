"""MRA: the bonus, the assignment of modes to games, games with known equilibria, and the network of any population."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.errors import UserError
from palaestra.recipes.llm4rl import mra
from palaestra.recipes.llm4rl.mra.games import (
    ResourceGame,
    congestion_game,
    make_game,
    parse_layout,
    parse_populations,
)
from palaestra.recipes.llm4rl.mra.network import PolicySet
from palaestra.recipes.llm4rl.mra.program import (
    ArmOfSet,
    LearnPolicySet,
    PolicySetLearner,
    assign_modes,
    assignment_entropy,
    mode_bonus,
)

KEY = ("test",)
SMALL = {
    "learner": pl.control.PPO(games=8, minibatches=1),
    "games": 8,
    "tries": 2,
    "adapt": 1,
    "steps": 100,
    "width": 16,
}
TABLE = np.log([[0.9, 0.1], [0.1, 0.9]])  # of two modes over two actions


def run(ctx, **settings):
    return asyncio.run(LearnPolicySet(**{**SMALL, **settings}).run(ctx))


def test_the_bonus_is_what_an_action_says_of_the_mode():
    """log(0.9 / 0.5) = 0.587787 and log(0.1 / 0.5) = -1.609438; their mean by the policy is I = 0.368064 nats."""
    assert mode_bonus(TABLE.T, 0) == pytest.approx([0.587787, -1.609438], abs=1e-6)
    mean = sum(0.5 * (np.exp(TABLE[z]) * mode_bonus(TABLE.T, z)).sum() for z in range(2))
    assert mean == pytest.approx(0.368064, abs=1e-6)
    apart = np.log([[1.0, 1e-30], [1e-30, 1.0]])
    assert mode_bonus(apart[0], 0) == pytest.approx(np.log(2)) and mode_bonus(apart[0], 1) == -5.0


def test_the_mode_of_a_game_is_the_best_one_there():
    assert assign_modes(np.array([[3.0, 1.0], [2.0, 4.0]])).tolist() == [0, 1]
    assert assign_modes(np.array([[3.0, 3.0], [2.9, 2.9]])).tolist() == [0, 0]
    # within 0.2 of the best, the second game takes the one that the first has not
    assert assign_modes(np.array([[3.0, 3.0], [2.9, 2.9]]), 0.2).tolist() == [0, 1]
    assert assign_modes(np.array([[3.0, 3.0], [2.9, 2.9]]), 0.2, [1, 0]).tolist() == [1, 0]
    assert assign_modes(np.array([[3.0], [2.0]]), 0.2, [1]).tolist() == [0]  # too far below to keep


def test_the_entropy_of_an_assignment():
    assert assignment_entropy(np.array([0, 1, 1])) == pytest.approx(0.636514, abs=1e-6)
    assert assignment_entropy(np.array([2, 2, 2])) == 0


def test_a_resource_needs_enough_agents():
    sim, rng = ResourceGame(4), pl.rng_of(KEY)
    state = sim.reset(rng, 2)
    _, paid, over = sim.step(state, np.array([[1, 1, 1, 0], [1, 1, 2, 0]]), rng)
    assert paid.tolist() == [[0.6, 0.6, 0.6, 0.3], [0, 0, 0, 0.3]] and over.all()


def test_shared_resources_are_divided():
    sim, rng = congestion_game(3), pl.rng_of(KEY)
    _, paid, _ = sim.step(sim.reset(rng, 1), np.array([[0, 0, 1]]), rng)
    assert paid.tolist() == [[0.5, 0.5, 0.6]]


def test_exploitability_is_zero_in_an_equilibrium():
    """Two agents, worths 1 and 0.6 (the third is not used): 1 - p / 2 = 0.6 (1 - (1 - p) / 2), so p = 0.7 / 0.8."""
    two = congestion_game(2)
    p = 0.7 / 0.8
    assert two.earnings(np.array([p, 1 - p, 0])) == pytest.approx([0.5625, 0.5625, 0.3])
    assert two.exploitability(np.array([p, 1 - p, 0])) == pytest.approx(0)
    assert two.exploitability(np.array([1.0, 0, 0])) == pytest.approx(0.1)  # 0.6 in place of 0.5
    # of three, one third each: w (1 - (2 / 3)^3) / (3 / 3) = 19 / 27 w; the best less the mean of 1, 0.6, 0.3
    assert congestion_game(3).exploitability(np.full(3, 1 / 3)) == pytest.approx(19 / 27 * (1 - 1.9 / 3))
    hunt = ResourceGame(5)
    assert [hunt.exploitability(np.eye(3)[k]) for k in (0, 1, 2)] == pytest.approx([0, 0, 0])
    assert ResourceGame(4).exploitability(np.eye(3)[2]) == pytest.approx(0.3)


def test_one_network_serves_any_number_of_agents_in_any_order():
    policies = pl.control.draw_network(lambda: PolicySet((4, 2, 2), 5, 3, width=16), KEY)
    with torch.no_grad():
        for n in (1, 2, 5):
            game = make_game("spread", n)
            policy = policies.play(1, game.entities)
            obs = torch.from_numpy(game.sim.observe(game.sim.reset(pl.rng_of(KEY), 2))).float()
            assert policy.actor(obs).shape == (2, n, 5) and policy.critic(obs).shape == (2, n, 1)
        turned = torch.cat([obs[..., :4], obs[..., 4:14].reshape(2, 5, 5, 2).flip(2).flatten(2), obs[..., 14:]], -1)
        assert torch.allclose(policy.actor(turned), policy.actor(obs), atol=1e-6)
        assert not torch.allclose(policies.play(2, game.entities).actor(obs), policy.actor(obs))


def test_a_mode_that_no_game_has_learns_to_differ():
    """Two modes, one game: with the bonus they part, without it both end where the game pays at once."""
    program = LearnPolicySet(**SMALL)
    program = replace(program, learner=pl.control.PPO(lr=0.02, games=32, epochs=2, minibatches=1))
    games = {2: make_game("hunt", 2)}
    apart, alike = (PolicySetLearner(program, games, 2, eta, 1_000, KEY) for eta in (4.0, 0.0))
    for _ in range(15):
        apart.iterate()
        alike.iterate()
    assert apart.information(KEY) > 0.4 and alike.information(KEY) < 0.1


def test_a_set_is_saved_and_a_killed_run_goes_on_with_the_next_arm(context, tmp_path):
    result = run(context(out=tmp_path), modes=2)
    own = result.metrics["arms"]["mra"]
    assert own["env_steps"] >= 100 and own["deployment_steps"] == 2 * (2 * 2 + 8)
    assert {"return_5", "return_5_adapted", "exploitability_6_adapted"} <= own.keys()
    assert (tmp_path / "arms.md").read_text().count("\n") == 6
    policy = mra.load_policies(tmp_path / "policy")
    act = policy(5).act(np.ones((3, 5, 1)), None, pl.rng_of(KEY))["act"]
    assert act.shape == (3, 5)
    with pytest.raises(UserError, match="has policies for 2, 3, 4, 5, 6 agents, not 9"):
        policy(9)
    with pytest.raises(UserError, match="holds no policies"):
        mra.load_policies(tmp_path)
    done = sorted(tmp_path.rglob("arm-*.json"))
    assert [f.stem for f in done] == ["arm-latents", "arm-mra", "arm-none", "arm-specialists"]
    done[2].unlink()
    again = run(context(out=tmp_path), modes=2).metrics
    assert json.dumps(result.metrics) == json.dumps(again)


def test_one_mode_says_nothing_and_arms_take_equally_many_steps(context):
    arms = run(context(), modes=1, train=(2, 3), test=(4,)).metrics["arms"]
    taken = [a["env_steps"] for a in arms.values()]
    assert max(taken) - min(taken) <= 2 * 8 and arms["mra"]["information"] == 0


def test_what_the_bonus_did_is_shown_and_not_how_latents_start(context):
    """Latents differ from the start; without the bonus the arms mra and latents are the same."""
    learned = run(context(), modes=3, train=(2, 3), test=(4,), steps=400)
    none = run(context(), modes=3, train=(2, 3), test=(4,), steps=400, diversity=0.0)
    idle = run(context(), modes=3, train=(2, 3), test=(4,), steps=2)  # ends where modes were tried
    for made in (learned, none, idle):
        arms = made.metrics["arms"]
        gain = arms["mra"]["information"] - arms["latents"]["information"]
        assert made.metrics["information_gain"] == gain
    assert idle.metrics["information"] > 0.05 and learned.metrics["information_gain"] > 0.1
    assert none.metrics["information_gain"] == 0 == idle.metrics["information_gain"]


def test_adapting_moves_the_latent_alone():
    program = LearnPolicySet(**SMALL)
    game = make_game("hunt", 5)
    policies = pl.control.draw_network(lambda: PolicySet((1,), 3, 2), KEY)
    before = {k: v.clone() for k, v in policies.state_dict().items()}
    arm = ArmOfSet(program=program, ctx=None, games={5: game}, steps=1, key=KEY, arm="mra")
    moved = arm.adapted(game, 5, policies, 1)
    assert not torch.equal(moved.actor.modes[0], before["modes"][1])
    now = {**moved.actor.tower.state_dict(prefix="actor."), **moved.critic.tower.state_dict(prefix="critic.")}
    assert all(torch.equal(now[k], before[k]) for k in now) and torch.equal(policies.modes, before["modes"])


OWN = '''
import numpy as np


class Line:
    """Agents on a line see themselves and each of the others; actions are continuous."""

    horizon, legal = 3, staticmethod(lambda state: None)

    def __init__(self, agents):
        from palaestra.control import Box

        self.agents, self.observation, self.actions = agents, agents, Box(low=(-1.0,), high=(1.0,))

    def reset(self, rng, n):
        return rng.normal(size=(n, self.agents))

    def observe(self, state):
        return np.stack([np.roll(state, -i, 1) for i in range(self.agents)], 1)

    def step(self, state, act, rng):
        after = state + act[..., 0]
        return after, -np.abs(after), np.zeros(len(after), bool)


class Ends(Line):
    """Of two actions, the first ends a game."""

    def __init__(self, agents):
        super().__init__(agents)
        self.horizon, self.actions = 12, 2

    def step(self, state, act, rng):
        return state, np.full(act.shape, 1.0 + act[:, :1]), (act == 0).any(1)


def seven(agents):
    return Line(7)


def nothing(agents):
    return object()
'''


def test_a_simulator_of_ones_own_with_continuous_actions(context, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    arms = run(context(), sim=f"{tmp_path}/own.py:Line", layout="1,1*(n-1)", train=(1, 2), test=(3,)).metrics["arms"]
    assert np.isfinite(arms["mra"]["information"]) and arms["mra"]["information"] != 0
    assert "exploitability" not in arms["mra"]


def test_games_may_end_after_unequal_steps(context, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    spec = f"{tmp_path}/own.py:Ends"
    arms = run(context(), sim=spec, layout="1,1*(n-1)", train=(1, 2), test=(3,)).metrics["arms"]
    assert arms["mra"]["return"] >= 1
    game, paid = make_game(spec, 1), list[float]()
    learner = PolicySetLearner(LearnPolicySet(**SMALL), {1: game}, 4, 1.0, 0, KEY)
    for z in range(4):
        act = learner.policies.play(z, game.entities).act
        paths = pl.control.play_games(game.sim, act, 2, (*KEY, 0, "first", 0, z))
        for reward, over in zip(paths["reward"][:, 0], paths["over"], strict=True):
            paid += reward[: over.tolist().index(True) + 1].tolist()  # no step behind an end
    assert learner.scale_G[0] == pytest.approx(np.std(paid))


@pytest.mark.parametrize(
    ("name", "layout", "says"),
    [
        ("Line", "", "layout=4,2"),
        ("Line", "1,2*n", "see 2 numbers each"),
        ("seven", "", "asked for 2 agents and makes 7"),
        ("nothing", "", "it has no agents"),
    ],
)
def test_a_simulator_that_does_not_fit_is_refused(context, tmp_path, name, layout, says):
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(UserError, match=says):
        run(context(), sim=f"{tmp_path}/own.py:{name}", layout=layout)


def test_layouts_and_populations_are_read_from_text():
    assert parse_layout("4, 2*n, 2*(n-1), 3*2", 3) == ((1, 4), (3, 2), (2, 2), (2, 3))
    assert parse_populations("2,3", "train") == (2, 3) and parse_populations(4, "test") == (4,)
    for text in ("", "2,2", "0", "two"):
        with pytest.raises(UserError, match="train=2,3,4"):
            parse_populations(text, "train")
    with pytest.raises(UserError, match="is no part of a layout"):
        parse_layout("4,n", 3)
    with pytest.raises(UserError, match="5 agents are in train and in test"):
        mra.build(train="2,5")
    with pytest.raises(UserError, match="batch is 4 or more"):
        mra.build(batch=3)
    assert mra.build(train=[2], test=3).test == (3,)
