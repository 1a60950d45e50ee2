"""Environments of Gymnasium as simulators: each copy is the environment, stepped."""

import asyncio

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError

gymnasium = pytest.importorskip("gymnasium")


class Short(gymnasium.Env):
    """Ends by itself after three steps; actions are 1 and 2."""

    observation_space = gymnasium.spaces.Discrete(4)
    action_space = gymnasium.spaces.Discrete(2, start=1)

    def reset(self, *, seed=None, options=None):
        self.at = 0
        return 0, {}

    def step(self, action):
        assert action in (1, 2)
        self.at += 1
        return self.at, float(action), False, self.at == 3, {}


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_a_copy_is_the_environment(name):
    sim, rng = pl.control.GymSimulator(name, horizon=30), pl.rng_of(("gym", name))
    first = pl.rng_of(("gym", name)).integers(1 << 31, size=3).tolist()
    state, envs = sim.reset(rng, 3), [gymnasium.make(name) for _ in range(3)]
    seen = [e.reset(seed=s)[0] for e, s in zip(envs, first, strict=True)]
    over, draw = np.zeros(3, bool), pl.rng_of(("acts",))
    for _ in range(30):
        assert sim.observe(state)[:, 0] == pytest.approx(np.stack(seen))
        act = draw.integers(2, size=(3, 1)) if name == "CartPole-v1" else draw.uniform(-2, 2, (3, 1, 1))
        state, paid, after = sim.step(state, act, rng)
        for i in np.flatnonzero(~over):
            given = act[i, 0] if name == "Pendulum-v1" else int(act[i, 0])
            seen[i], reward, over[i], _, _ = envs[i].step(given)
            assert paid[i, 0] == pytest.approx(reward)
        assert (after == over).all()
    assert over.any() == (name == "CartPole-v1")


def test_sizes_limits_and_actions():
    sim = pl.control.GymSimulator("Pendulum-v1")
    assert (sim.horizon, sim.observation, sim.actions) == (200, 3, pl.control.Box(low=(-2.0,), high=(2.0,)))
    short = pl.control.GymSimulator(Short, horizon=5)
    assert (short.observation, short.actions) == (4, 2)
    games = pl.control.play_games(short, lambda o, legal, rng: {"act": np.ones(o.shape[:2], int)}, 2, ("short",))
    assert games["over"].sum(1).tolist() == [1, 1] and pl.control.returns_of(games).tolist() == [6.0, 6.0]
    assert games["obs"][0, 0].argmax(-1).tolist() == [0, 1, 2]
    sim.close()


def test_what_cannot_be_a_simulator_is_said():
    with pytest.raises(UserError, match="needs a horizon"):
        pl.control.GymSimulator(Short)
    with pytest.raises(UserError, match="NoSuchThing"):
        pl.control.GymSimulator("NoSuchThing-v0")
    sim = pl.control.GymSimulator(Short, horizon=5)
    old = sim.reset(pl.rng_of(("old",)), 1)
    sim.step(old, np.zeros((1, 1), int), pl.rng_of(("old",)))
    with pytest.raises(UserError, match="older state"):
        sim.step(old, np.zeros((1, 1), int), pl.rng_of(("old",)))
    Short.action_space, before = gymnasium.spaces.MultiDiscrete([2, 2]), Short.action_space
    try:
        with pytest.raises(UserError, match="Box of real numbers"):
            pl.control.GymSimulator(Short, horizon=5)
    finally:
        Short.action_space = before


class Told(Short):
    """Observations with a part that is text and one that is a table, and a table of actions."""

    observation_space = gymnasium.spaces.Dict(
        {
            "at": gymnasium.spaces.Box(0, 9, (2, 2)),
            "mission": gymnasium.spaces.Text(9),
            "way": gymnasium.spaces.Discrete(3),
        }
    )
    action_space = gymnasium.spaces.Box(-1, 1, (2, 2))

    def reset(self, *, seed=None, options=None):
        return {"at": np.ones((2, 2), np.float32), "mission": "go", "way": 1}, {}

    def step(self, action):
        assert action.shape == (2, 2)
        return self.reset()[0], float(action.sum()), False, False, {}


def test_text_in_a_dictionary_is_left_out_and_tables_are_flattened():
    sim = pl.control.GymSimulator(Told, horizon=2)
    assert (sim.observation, sim.actions.size) == (7, 4)
    act = lambda o, legal, rng: {"act": np.full((len(o), 1, 4), 0.25)}
    games = pl.control.play_games(sim, act, 2, ("told",))
    assert games["obs"][0, 0, 0].tolist() == [1, 1, 1, 1, 0, 1, 0] and pl.control.returns_of(games).tolist() == [2, 2]
    Told.observation_space, before = gymnasium.spaces.Text(9), Told.observation_space
    try:
        with pytest.raises(UserError, match="are no numbers"):
            pl.control.GymSimulator(Told, horizon=2)
    finally:
        Told.observation_space = before


def test_a_name_has_a_module_a_horizon_and_keywords(tmp_path, monkeypatch):
    (tmp_path / "own_registrar.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import PendulumEnv\n"
        "gymnasium.register('Own-v0', lambda g=1.0: PendulumEnv(g=g))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    named = pl.control.simulator_by_name
    with pytest.raises(UserError, match=r"own_registrar:Own-v0 comes without a limit.*\(horizon=STEPS\)"):
        named("gymnasium:own_registrar:Own-v0")
    sim = named("gymnasium:own_registrar:Own-v0(horizon=7, g=5.0)")
    assert (sim.horizon, sim.environment.g) == (7, 5.0)
    assert (named("gym:Pendulum-v1(horizon=9)").horizon, named("vector:CartPole-v1(horizon=9)").horizon) == (9, 9)
    with pytest.raises(UserError, match="cannot be made"):
        named("gymnasium:Pendulum-v1(nonsense=1)")
    with pytest.raises(UserError, match="pip install no_such_module"):
        named("gymnasium:no_such_module:Own-v0")
    with pytest.raises(UserError, match="number of steps"):
        named("gymnasium:Pendulum-v1(horizon=-3)")


class Old:
    """The form of the library gym."""

    observation_space = gymnasium.spaces.Discrete(4)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self):
        return 0


class Halfway(Short):
    def step(self, action):
        return 0, 0.0, False, {}


def test_the_form_before_gymnasium_is_said():
    for kind in (Old, Halfway):
        sim = pl.control.GymSimulator(kind, horizon=5)
        with pytest.raises(UserError, match="GymV21CompatibilityV0"):
            pl.control.play_games(sim, lambda o, legal, rng: {"act": np.zeros(o.shape[:2], int)}, 1, ("old",))


def test_law_06_an_environment_learned_from_twice_gives_the_same_bits():
    learn = lambda: asyncio.run(pl.control.PPO(games=4).learn(pl.control.GymSimulator("CartPole-v1"), 200, ("gym",)))
    one, other = (learn().state_dict() for _ in "ab")
    assert all((one[k] == other[k]).all() for k in one)


def test_cartpole_is_learned_as_by_stable_baselines3():
    """Both policies balance: the mean length of a game after as many steps is in the same range."""
    sb3 = pytest.importorskip("stable_baselines3")
    steps, found = 30_000, {"ours": [], "theirs": []}
    for seed in range(2):
        sim = pl.control.GymSimulator("CartPole-v1")
        learner = pl.control.PPO(games=8, bootstrap=True, epochs=8)
        policy = asyncio.run(learner.learn(sim, steps, ("cartpole", seed)))
        found["ours"].append(pl.control.mean_return(sim, policy.act, 50, ("test", seed)))
        env = sb3.common.env_util.make_vec_env("CartPole-v1", n_envs=8, seed=seed)
        peer = sb3.PPO("MlpPolicy", env, n_steps=256, batch_size=256, learning_rate=1e-3, seed=seed, device="cpu")
        peer.learn(steps)
        from stable_baselines3.common.evaluation import evaluate_policy

        found["theirs"].append(evaluate_policy(peer, env, 50, deterministic=False)[0])
    assert min(found["ours"]) > 100, found
    assert np.mean(found["ours"]) > 0.6 * np.mean(found["theirs"]), found


@pytest.mark.parametrize("name, size", [("InvertedPendulum-v5", 4), ("Reacher-v5", 10)])
def test_bodies_of_mujoco_are_simulators_too(name, size):
    """Of the wheel, where it is installed: SAC and PPO learn from them, and a pole that falls ends the game."""
    pytest.importorskip("mujoco")
    pytest.importorskip("imageio")
    sim = pl.control.GymSimulator(name)
    assert sim.observation == size and isinstance(sim.actions, pl.control.Box)
    act = lambda o, legal, rng: {"act": rng.uniform(-1, 1, (*o.shape[:2], sim.actions.size))}
    games = pl.control.play_games(sim, act, 3, ("body",))
    assert games["over"].any() == (name == "InvertedPendulum-v5") and np.isfinite(games["obs"]).all()
    for learner in (pl.control.SAC(warm=20, width=8), pl.control.PPO(games=2, epochs=1, part_steps=64, bootstrap=True)):
        policy = asyncio.run(learner.learn(sim, 100, ("body",)))
        assert np.isfinite(pl.control.mean_return(sim, policy.act, 2, ("test",)))
    sim.close()
