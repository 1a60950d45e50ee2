"""PPO and double Q learning: their formulas by hand, their bits by key, and that they learn."""

import asyncio
import math

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.control.actor_critic import advantages, rows_of
from palaestra.control.networks import ActorCritic, log_softmax_of_legal
from palaestra.control.q import TransitionStore, follow_network, pessimism, q_targets
from palaestra.errors import UserError
from palaestra.types import Batch


@pl.stage
class Aim:
    """A continuous game of one step: an agent is paid -(act - obs)^2."""

    horizon: int = 1
    agents: int = 2
    observation: int = 1
    actions: pl.control.Box = pl.control.Box(low=(-1.0,), high=(1.0,))

    def reset(self, rng, n):
        return rng.uniform(-0.8, 0.8, (n, self.agents, 1))

    def observe(self, state):
        return state

    def legal(self, state):
        return None

    def step(self, state, act, rng):
        assert np.abs(act).max() <= 1  # clipped to the box
        return state, -np.square(act - state)[..., 0], np.ones(len(state), bool)


def same(one, other):
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_advantages_are_those_of_the_catalogue():
    """lambda return, r = (0, 0, 1), values .1, .2, .3 after each step, gamma 1, lambda .5: (.425, .75, 1.3)."""
    reward, alive = np.array([[[0.0, 0.0, 1.0]]]), np.ones((1, 3), bool)
    value = np.array([[[0.0, 0.1, 0.2]]])
    found = advantages(reward, value, np.array([[0.3]]), alive, 1.0, 0.5)
    assert (found + value)[0, 0] == pytest.approx([0.425, 0.75, 1.3])


def test_advantages_are_those_of_credit_and_stop_at_the_end():
    from palaestra.credit.advantages import gae

    rng = pl.rng_of(("gae",))
    reward, value = rng.normal(size=(2, 4, 3, 6))
    alive = np.arange(6) < np.array([6, 3, 1, 5])[:, None]
    found = advantages(reward, value, np.zeros((4, 3)), alive, 0.9, 0.8)
    for n in range(4):
        T = int(alive[n].sum())
        for a in range(3):
            assert found[n, a, :T] == pytest.approx(gae(reward[n, a, :T], value[n, a, :T], 0.9, 0.8))
            assert not found[n, a, T:].any()


def test_a_step_of_ppo_by_hand():
    """Ratios 1.5 and 0.5 with advantages 1 and -1 are clipped: the loss is (-1.2 + 0.8) / 2, and no gradient is left."""
    logp = torch.tensor([[math.log(0.6), math.log(0.2)]], requires_grad=True)
    columns = {
        "behaviour_logp": torch.tensor([[math.log(0.4), math.log(0.4)]]),
        "advantage": torch.tensor([[1.0, -1.0]]), "trained": torch.ones(1, 2),
        "policy_value": torch.zeros(1, 2), "return": torch.tensor([[1.0, 3.0]]),
    }  # fmt: skip
    batch = rows_of(Batch(columns=columns, unit_B=torch.arange(1), n_tokens=0, n_rows=0, n_units=0), torch.arange(1))
    assert (batch.n_tokens, batch.n_rows) == (2, 1)
    out = {"logp": logp, "value": torch.tensor([[0.0, 1.0]]), "entropy": torch.full((1, 2), 0.5)}
    loss, metrics = pl.control.PPO().objective(out, batch)
    # the value loss is half of the squares 1 and 4 on average, its weight one half
    assert loss.item() == pytest.approx((-1.2 + 0.8) / 2 + 0.5 * 1.25 - 0.01 * 0.5)
    assert float(metrics["clipped"]) == 1.0
    loss.backward()
    assert not logp.grad.any()


def test_actions_that_are_not_legal_have_no_probability_and_no_entropy():
    logp = log_softmax_of_legal(torch.zeros(4), torch.tensor([True, False, True, False]))
    assert logp.exp().tolist() == [0.5, 0.0, 0.5, 0.0]
    policy = pl.control.PPO().start(pl.control.Rooms(), ("legal",))
    obs = torch.zeros(1, 1, 57)
    legal = torch.tensor([[[True, False, True, False]]])
    out = policy({"obs": obs, "act": torch.tensor([[2.0]]), "legal": legal})
    assert 0.6 < out["entropy"].item() <= math.log(2) + 1e-6  # two actions
    assert np.isfinite(out["logp"].item())


@pytest.mark.parametrize("sim", [pl.control.SimpleSpread(), pl.control.Rooms(), Aim()], ids=lambda s: type(s).__name__)
def test_a_policy_that_plays_notes_the_log_probability_that_it_is_trained_with(sim):
    policy = pl.control.PPO().start(sim, ("logp",))
    batch = pl.control.PPO().batch_of(policy, pl.control.play_games(sim, policy.act, 8, ("logp",)))
    out = policy(batch.columns)
    off = (out["logp"] - batch["behaviour_logp"]) * batch.mask
    assert off.abs().max().item() < 1e-5
    assert ((out["value"] - batch["policy_value"]) * batch.mask).abs().max().item() < 1e-5
    trained = batch["advantage"][batch.mask > 0]
    assert float(trained.mean()) == pytest.approx(0, abs=1e-5)
    assert float(trained.std(correction=0)) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("sim", [pl.control.Rooms(), Aim()], ids=lambda s: type(s).__name__)
def test_single_steps_are_the_steps_of_the_trajectories(sim):
    """One part of everything moves the policy as much for equal advantages; a part has living steps alone, about `part_steps`."""
    whole, single = (pl.control.PPO(games=8, epochs=1, minibatches=1, part_steps=n) for n in (0, 10_000))
    policy = whole.start(sim, ("steps",))
    paths = pl.control.play_games(sim, policy.act, 8, ("steps",))
    rows, steps = whole.batch_of(policy, paths), single.batch_of(policy, paths)
    alive = int(rows["trained"].sum())
    assert steps["trained"].shape == (alive, 1) and steps.n_tokens == steps.n_rows == alive == rows.n_tokens
    assert steps["return"][:, 0].tolist() == rows["return"][rows.mask > 0].tolist()
    # the same advantages, which are centred otherwise
    rows.columns["advantage"][rows.mask > 0] = steps["advantage"][:, 0]
    moved = []
    for learner, batch in ((whole, rows), (single, steps)):
        one = whole.start(sim, ("steps",))
        learner.update(one, torch.optim.SGD(one.parameters(), 0.1), batch, ("steps",))
        moved.append(torch.cat([x.flatten() for x in one.parameters()]))
    assert moved[0].tolist() == pytest.approx(moved[1].tolist(), abs=1e-6)
    assert not torch.equal(moved[0], torch.cat([x.flatten() for x in policy.parameters()]))
    sizes = []

    def noted(out, batch):
        sizes.append(batch.n_rows)
        return whole.objective(out, batch)

    few = pl.control.PPO(objective=noted, epochs=2, part_steps=5)
    few.update(policy, torch.optim.SGD(policy.parameters(), 0.1), steps, ("steps",))
    assert sum(sizes) == 2 * alive and set(sizes) <= {4, 5, 6} and len(sizes) == 2 * round(alive / 5)


@pytest.mark.parametrize("games, part_steps", [(1, 0), (1, 64), (2, 64)])
def test_few_games_keep_what_their_steps_were_worth(games, part_steps):
    """The mean over games at a time step is, of one game, its own advantage: nothing would be learned from it."""
    sim = pl.control.Rooms()
    learner = pl.control.PPO(games=games, part_steps=part_steps)
    policy = learner.start(sim, ("few",))
    paths = pl.control.play_games(sim, policy.act, games, ("few",))
    batch = learner.batch_of(policy, paths)
    own = advantages(paths["reward"], paths["value"], np.zeros((games, 1)), paths["alive"], 0.99, 0.95)
    raw = own[np.broadcast_to(paths["alive"][:, None], own.shape)]
    told = batch["advantage"][batch.mask > 0]
    assert told.numpy() == pytest.approx((raw - raw.mean()) / raw.std(), abs=1e-4)
    assert float(told.std(correction=0)) == pytest.approx(1, abs=1e-4)


def test_a_game_that_the_horizon_cuts_is_worth_what_the_critic_says():
    sim = pl.control.SimpleSpread(horizon=1)
    policy = pl.control.PPO().start(sim, ("cut",))
    paths = pl.control.play_games(sim, policy.act, 4, ("cut",))
    plain, more = (pl.control.PPO(bootstrap=b, gamma=0.5).batch_of(policy, paths)["return"] for b in (False, True))
    with torch.no_grad():
        after = policy.critic(torch.from_numpy(paths["next_obs"][:, :, -1]).float())
    assert (more - plain).flatten().tolist() == pytest.approx((0.5 * after).flatten().tolist(), abs=1e-5)


@pytest.mark.parametrize(
    "learner", [pl.control.PPO(games=8), pl.control.DoubleQ(games=8, updates=4)], ids=lambda s: type(s).__name__
)
def test_law_06_the_same_key_learns_the_same_bits(learner):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    learn = lambda key: asyncio.run(learner.learn(pl.control.Rooms(), 400, key))
    one, other = learn(("bits", 0)), learn(("bits", 0))
    assert same(one, other) and not same(one, learn(("bits", 1)))
    assert torch.equal(before, torch.get_rng_state())  # the global stream stands where it stood


def test_ppo_learns_continuous_actions_for_two_agents():
    found = asyncio.run(pl.control.PPO(games=256, lr=3e-3, epochs=8).learn(Aim(), 256 * 40, ("aim",)))
    start = pl.control.mean_return(Aim(), pl.control.PPO().start(Aim(), ("aim",)).act, 500, ("test",))
    assert start < -1.0
    assert pl.control.mean_return(Aim(), found.act, 500, ("test",)) > 0.3 * start


def test_targets_of_double_q_by_hand():
    """The moving network chooses action 0, which the other says is worth 3, not its own best 5."""
    chooser, value = torch.tensor([[9.0, 1.0, 2.0]] * 3), torch.tensor([[3.0, 5.0, 4.0]] * 3)
    reward, over = torch.tensor([1.0, 1.0, 1.0]), torch.tensor([0.0, 1.0, 0.0])
    legal = torch.tensor([[True, True, True], [True, True, True], [False, True, True]])
    found = q_targets(reward, over, chooser, value, 0.9, legal)
    assert found.tolist() == pytest.approx([1 + 0.9 * 3, 1.0, 1 + 0.9 * 4])  # the third may not take 0
    assert q_targets(reward, over, chooser, value, 0.9)[2] == pytest.approx(3.7)


def test_pessimism_by_hand():
    q = torch.tensor([[0.0, math.log(3), 50.0]])
    assert float(pessimism(q, q[:, 1], torch.tensor([[True, True, False]]))) == pytest.approx(math.log(4 / 3))


def test_a_prior_decides_between_equal_actions_and_its_weight_counts():
    sim, told = pl.control.Rooms(), np.log([0.1, 0.2, 0.6, 0.1])
    prior = lambda obs: np.broadcast_to(told, (*obs.shape[:-1], 4))
    values = pl.control.DoubleQ().start(sim, ("prior",))
    for p in values.parameters():
        torch.nn.init.zeros_(p)
    obs, rng = np.zeros((1, 1, 57)), pl.rng_of(("prior",))
    act = pl.control.DoubleQ(prior=1.0).acting(values, 0.0, prior)
    assert act(obs, None, rng)["act"].item() == 2
    assert act(obs, np.array([[[True, True, False, False]]]), rng)["act"].item() == 1  # of the legal ones
    many = pl.control.DoubleQ().acting(values, 1.0, prior)(np.zeros((4000, 1, 57)), None, rng)["act"]
    assert (many == 2).mean() == pytest.approx(0.6, abs=0.04)  # exploring follows the prior


def test_the_weight_of_pessimism_lowers_what_was_not_tried():
    drawn = {
        "obs": np.ones((4, 57), np.float32), "next_obs": np.ones((4, 57), np.float32),
        "act": np.zeros(4, int), "reward": np.zeros(4), "over": np.ones(4, bool),
    }  # fmt: skip
    values, other = (pl.control.DoubleQ().start(pl.control.Rooms(), ("cql",)) for _ in "ab")
    plain = float(pl.control.DoubleQ().loss(values, other, drawn).detach())
    weighed = float(pl.control.DoubleQ(cql=0.5).loss(values, other, drawn).detach())
    q = values(torch.ones(1, 57))
    assert weighed - plain == pytest.approx(0.5 * float((torch.logsumexp(q, 1) - q[:, 0]).detach()), rel=1e-4)


def test_replay_keeps_the_last_transitions_of_living_games():
    reward = np.arange(6.0).reshape(2, 1, 3)
    paths = {
        "obs": np.zeros((2, 1, 3, 2)), "next_obs": np.zeros((2, 1, 3, 2)), "act": np.zeros((2, 1, 3), int),
        "alive": np.array([[True, True, True], [True, False, False]]), "over": np.zeros((2, 3), bool),
    }  # fmt: skip
    replay = TransitionStore(3)
    replay.add(paths, reward)
    assert sorted(replay.columns["reward"].tolist()) == [1.0, 2.0, 3.0] and replay.size == 3
    replay.add(paths, reward + 10)
    assert sorted(replay.columns["reward"].tolist()) == [11.0, 12.0, 13.0]


def test_batches_are_counted_by_an_iteration_or_by_its_steps():
    """Two games of 3 and 1 living steps, of two agents: 8 transitions."""
    paths = {"alive": np.array([[True, True, True], [True, False, False]]), "reward": np.zeros((2, 2, 3))}
    assert pl.control.DoubleQ(updates=7).batches(paths) == 7
    assert pl.control.DoubleQ(updates=7, per_step=0.5).batches(paths) == 4
    assert pl.control.DoubleQ(per_step=0.01).batches(paths) == 1


def test_a_network_follows_by_a_share():
    leading, following = (pl.control.DoubleQ().start(pl.control.Rooms(), ("follow", i)) for i in (0, 1))
    before, other = (next(n.parameters()).detach().clone() for n in (following, leading))
    follow_network(following, leading, 0.25)
    assert torch.allclose(next(following.parameters()), 0.75 * before + 0.25 * other)


def test_q_learning_has_no_continuous_actions():
    with pytest.raises(UserError, match="PPO takes continuous"):
        asyncio.run(pl.control.DoubleQ().learn(Aim(), 10, ("no",)))


@pytest.mark.parametrize(
    "learner", [pl.control.PPO(games=32), pl.control.DoubleQ(updates=24)], ids=lambda s: type(s).__name__
)
def test_both_find_the_way_through_two_rooms(learner):
    sim = pl.control.Rooms()
    found = asyncio.run(learner.learn(sim, 30_000, ("rooms", 0)))
    act = found.act if isinstance(found, ActorCritic) else learner.acting(found)
    assert pl.control.mean_return(sim, act, 200, ("test",)) > 0.85


@pytest.mark.parametrize("sim", [pl.control.Rooms(), Aim()], ids=lambda s: type(s).__name__)
def test_a_policy_is_kept_as_numbers(sim, tmp_path):
    policy = pl.control.PPO(width=16).start(sim, ("kept",))
    pl.control.save_policy(policy, tmp_path / "it")
    assert sorted(p.name for p in (tmp_path / "it").iterdir()) == ["policy.json", "policy.safetensors"]
    again = pl.control.load_policy(tmp_path / "it")
    assert type(again) is type(policy) and same(policy, again) and again.actions == policy.actions


def test_action_values_are_kept_too_and_damage_is_said(tmp_path):
    values = pl.control.DoubleQ(width=16).start(pl.control.Rooms(), ("kept",))
    pl.control.save_policy(values, tmp_path)
    assert same(values, pl.control.load_policy(tmp_path))
    (tmp_path / "policy.json").write_text('{"kind": "other"}')
    with pytest.raises(UserError, match="holds no policy"):
        pl.control.load_policy(tmp_path)
    with pytest.raises(UserError, match="holds no policy"):
        pl.control.load_policy(tmp_path / "nowhere")
