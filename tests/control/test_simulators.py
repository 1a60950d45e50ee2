"""Simulators in arrays: what they pay, that a state is a value, and their library twins."""

import numpy as np
import palaestra as pl
import pytest
from palaestra.control.simulators import play_games
from palaestra.control.spread import CONTACT_FORCE, SIZE, SpreadState, contact_forces


def at_random(actions):
    return lambda obs, legal, rng: {"act": rng.integers(actions, size=obs.shape[:-1])}


def test_a_step_of_spread_by_hand():
    """Two agents 1 apart, each on a landmark; the first one pushes right with speed 1 before it."""
    sim = pl.control.SimpleSpread(agents=2, local=0.5)
    at = np.array([[[0.0, 0.0], [1.0, 0.0]]])
    state = SpreadState(at_nAd=at, speed_nAd=np.array([[[1.0, 0.0], [0.0, 0.0]]]), goal_nLd=at)
    after, reward, over = sim.step(state, np.array([[2, 0]]), pl.rng_of(("unused",)))
    assert after.at_nAd[0, 0] == pytest.approx([0.1, 0.0])  # by the old speed
    assert after.speed_nAd[0, 0] == pytest.approx([0.75 + 0.5, 0.0])
    assert reward[0] == pytest.approx([-0.05, -0.05]) and not over.any()  # half of the distance 0.1
    assert (state.at_nAd == at).all()  # a state is a value


def test_agents_that_touch_are_pushed_apart_and_pay():
    close = np.array([[[0.0, 0.0], [0.2, 0.0]]])
    force = contact_forces(close)
    assert force[0, 0] == pytest.approx([-CONTACT_FORCE * (2 * SIZE - 0.2), 0.0])  # 0.1 deep
    assert force[0, 1] == pytest.approx(-force[0, 0])
    state = SpreadState(at_nAd=close, speed_nAd=0 * close, goal_nLd=close)
    _, reward, _ = pl.control.SimpleSpread(agents=2).step(state, np.array([[0, 0]]), pl.rng_of(("unused",)))
    assert reward[0] == pytest.approx([-0.5, -0.5])


def test_an_observation_of_spread_says_where_others_are_from_here():
    at = np.array([[[0.0, 0.0], [1.0, 0.5]]])
    state = SpreadState(at_nAd=at, speed_nAd=0 * at, goal_nLd=at + 0.25)
    seen = pl.control.SimpleSpread(agents=2).observe(state)[0]
    assert seen[1] == pytest.approx([0, 0, 1, 0.5, -0.75, -0.25, 0.25, 0.25, -1, -0.5])
    assert seen.shape[1] == pl.control.SimpleSpread(agents=2).observation


def test_quantities_of_spread():
    sim = pl.control.SimpleSpread()
    games = play_games(sim, at_random(5), 4, ("quantities",))
    found = sim.quantities(games)
    assert {v.shape for v in found.values()} == {(4, 3, 25)}
    before = np.linalg.norm(games["obs"][..., 4:10].reshape(4, 3, 25, 3, 2), axis=-1).min(-1)
    assert found["approach"] == pytest.approx(before - found["nearest_landmark"])
    assert (found["touching"] == np.round(found["touching"])).all()


@pytest.mark.parametrize("sim", [pl.control.SimpleSpread(), pl.control.Rooms()], ids=lambda s: type(s).__name__)
def test_law_06_the_same_key_plays_the_same_bits(sim):
    np.random.seed(3)  # is not read
    one = play_games(sim, at_random(4), 8, ("bits", 1))
    before = np.random.get_state()[1].copy()
    other = play_games(sim, at_random(4), 8, ("bits", 1))
    assert (np.random.get_state()[1] == before).all()
    assert all((one[k] == other[k]).all() for k in one)
    assert not (play_games(sim, at_random(4), 8, ("bits", 2))["obs"][..., :1, :] == one["obs"][..., :1, :]).all()


def test_rooms_lock_doors_until_their_key_is_taken():
    sim = pl.control.Rooms(rooms=2, size=2)
    door = int(np.flatnonzero(sim._door_C >= 0)[0])
    begin, key, goal = 3, 0, len(sim._places) - 1  # right below the door's place; cells go down a column
    from palaestra.control.rooms import RoomsState

    state = RoomsState(cell_n=np.array([begin]), key_nR=np.array([[key]]), goal_n=np.array([goal]))
    assert sim.legal(state)[0, 0].tolist() == [True, False, True, False]  # left, up
    after, reward, over = sim.step(state, np.array([[1]]), pl.rng_of(("unused",)))
    assert after.cell_n[0] == begin and reward[0, 0] == pytest.approx(-0.01) and not over[0]
    free = RoomsState(cell_n=np.array([begin]), key_nR=np.array([[-1]]), goal_n=np.array([goal]))
    after, _, _ = sim.step(free, np.array([[1]]), pl.rng_of(("unused",)))
    assert after.cell_n[0] == door
    at_key, _, _ = sim.step(
        RoomsState(cell_n=np.array([1]), key_nR=np.array([[key]]), goal_n=np.array([goal])),
        np.array([[2]]), pl.rng_of(("unused",)),
    )  # fmt: skip
    assert at_key.key_nR[0, 0] == -1


def test_the_best_ways_through_rooms_lead_to_the_goal():
    sim = pl.control.Rooms(rooms=3, size=3, horizon=60)
    act = lambda obs, legal, rng: {"act": (sim.best_ways(obs) & legal).argmax(-1)}
    games = play_games(sim, act, 100, ("best",))
    assert games["over"].any(1).all()
    lengths = games["alive"].sum(1)
    assert pl.control.returns_of(games) == pytest.approx(1 - 0.01 * lengths)
    assert games["reward"][~games["alive"][:, None]].sum() == 0  # who is over is paid nothing


def test_what_follows_the_end_counts_for_nothing():
    games = play_games(pl.control.Rooms(), at_random(4), 50, ("over",))
    ended = games["over"].any(1)
    first = games["over"].argmax(1)
    assert ended.any() and (games["over"].sum(1) <= 1).all()
    assert (games["alive"].sum(1)[ended] == first[ended] + 1).all()


def test_spread_is_that_of_mpe2():
    """The library's simple_spread_v3 from the same state by the same actions, contacts among them."""
    simple_spread = pytest.importorskip("mpe2.simple_spread_v3")
    sim, rng, worst, touched = pl.control.SimpleSpread(), pl.rng_of(("mpe2",)), 0.0, 0
    for game in range(20):
        env = simple_spread.parallel_env(N=3, max_cycles=25, local_ratio=0.5, dynamic_rescaling=False)
        env.reset(seed=game)
        world = env.unwrapped.world
        if game % 2:  # close to one another, so that they touch
            for a in world.agents:
                a.state.p_pos = rng.uniform(-0.2, 0.2, 2)
        state = SpreadState(
            at_nAd=np.array([[a.state.p_pos for a in world.agents]]),
            speed_nAd=np.zeros((1, 3, 2)),
            goal_nLd=np.array([[x.state.p_pos for x in world.landmarks]]),
        )
        for _ in range(25):
            act = rng.integers(5, size=(1, 3))
            names = list(env.agents)
            obs, reward, *_ = env.step(dict(zip(names, act[0].tolist(), strict=True)))
            state, mine, _ = sim.step(state, act, rng)
            theirs = np.stack([obs[n] for n in names])
            worst = max(worst, np.abs(sim.observe(state)[0] - theirs[:, :14]).max())
            worst = max(worst, np.abs(mine[0] - [reward[n] for n in names]).max())
            assert not theirs[:, 14:].any()  # silent agents
            touched += int((contact_forces(state.at_nAd) ** 2).sum() > 1e-6)
    assert worst < 1e-6 and touched > 20


def test_bounds_may_be_arrays_as_those_of_gymnasium():
    box = pl.control.Box(low=np.array([-1, -2], np.float32), high=[1, 2])
    assert box == pl.control.Box(low=(-1.0, -2.0), high=(1.0, 2.0)) and hash(box)
    for low, high in (((0.0,), (1.0, 2.0)), ((1.0,), (0.0,))):
        with pytest.raises(ValueError, match="as long as"):
            pl.control.Box(low=low, high=high)
