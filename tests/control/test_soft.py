"""Soft actor-critic: its densities and losses by hand, its bits by key, and that it learns."""

import asyncio
import math

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.control.networks import TwinCritics
from palaestra.errors import Fault, UserError

from tests.control.test_learners import Aim, same

BOX = pl.control.Box(low=(-2.0, 0.0), high=(2.0, 1.0))


def zero(module):
    for p in module.parameters():
        torch.nn.init.zeros_(p)
    return module


def test_the_density_is_that_of_torch_and_actions_keep_to_the_bounds():
    policy = pl.control.SquashedGaussian(3, BOX, 8)
    obs, noise = torch.randn(5, 3), 3 * torch.randn(5, 2)
    act, logp = policy(obs, noise)
    mean, log_std = policy.net(obs).chunk(2, -1)
    normal = torch.distributions.Normal(mean, log_std.exp())
    squashed = torch.distributions.TransformedDistribution(normal, [torch.distributions.TanhTransform(cache_size=1)])
    assert logp.tolist() == pytest.approx(squashed.log_prob(act).sum(-1).tolist(), rel=2e-3)
    done = policy.stretch(act)
    assert (done.abs() <= torch.tensor([2.0, 1.0])).all() and (done[:, 1] >= 0).all()
    assert torch.allclose(policy.squeeze(done), act, atol=1e-6)


def test_a_density_far_out_is_finite_and_right():
    """u = 20: tanh is 1 in float32, log(1 - tanh^2) = log 4 - 2 u to 17 digits."""
    policy = zero(pl.control.SquashedGaussian(1, pl.control.Box(low=(-1.0,), high=(1.0,)), 4))
    _, logp = policy(torch.zeros(1, 1), torch.full((1, 1), 20.0))
    assert logp.item() == pytest.approx(-200 - 0.5 * math.log(2 * math.pi) - (math.log(4) - 40), rel=1e-6)


def learner(**settings):
    made = pl.control.SAC(width=4, **settings).learner(Aim(), ("soft",))
    for module in (made.policy, made.critics, made.following):
        zero(module)
    return made


def drawn(**columns):
    rows = {
        "obs": [[0.0]] * 2,
        "next_obs": [[0.0]] * 2,
        "act": [[0.5]] * 2,
        "reward": [1.0, 2.0],
        "over": [True, False],
    }
    return {k: np.array(v) for k, v in (rows | columns).items()}


def test_the_loss_of_critics_by_hand():
    """All values are 0 but those of the following critics, 3 and 5. A standard normal draw of 0 has the log-density
    -log(2 pi) / 2 (tanh is flat there), so the second target is 2 + .9 (3 + .5 * .9189) and the first, whose game is over, 1.
    """
    made = learner(gamma=0.9)
    made.following.first[-1].bias.data.fill_(3.0)
    made.following.second[-1].bias.data.fill_(5.0)
    target = 2 + 0.9 * (3 + 0.5 * 0.5 * math.log(2 * math.pi))
    loss = made.critic_loss(drawn(), torch.zeros(2, 1), 0.5)
    # two critics, each half of the square, the mean of two transitions
    assert loss.item() == pytest.approx((1 + target**2) / 2, rel=1e-6)
    made.critics.first[-1].bias.data.fill_(1.0)
    moved = made.critic_loss(drawn(), torch.zeros(2, 1), 0.5).item()
    assert moved == pytest.approx(((0 + 1) / 2 + (target**2 + (target - 1) ** 2) / 2) / 2, rel=1e-6)


def test_critics_value_an_action_between_its_bounds_and_their_followers_follow():
    """1.5 of [-2, 2] is 0.75; a follower goes a quarter of the way to the bias that its critic has after the batch."""
    aim = Aim(actions=pl.control.Box(low=(-2.0,), high=(2.0,)))
    made = pl.control.SAC(width=4, follow=0.25, batch=2).learner(aim, ("wide",))
    for module in (made.policy, made.critics, made.following):
        zero(module)
    made.critics.first[0].weight.data[0, 1] = made.critics.first[2].weight.data[0, 0] = 1.0
    made.critics.first[4].weight.data[0, 0] = 1.0
    over = drawn(act=[[1.5]] * 2, reward=[0.0, 0.0], over=[True, True])
    assert made.critic_loss(over, torch.zeros(2, 1), 0.0).item() == pytest.approx(0.75**2 / 2)
    made.stored.columns, made.stored.size = over, 2
    made.update(1, ("one",))
    moved = made.critics.first[4].bias.item()
    assert moved != 0 and made.following.first[4].bias.item() == pytest.approx(0.25 * moved)


@pytest.mark.parametrize(("entropy", "way"), [(-5.0, -1), (5.0, 1)], ids=["enough", "too little"])
def test_alpha_moves_until_the_entropy_is_the_target(entropy, way):
    made = learner(entropy=entropy)
    made.learn_batch(drawn(), torch.zeros(2, 2, 1))
    assert made.log_alpha.item() * way > 0
    assert learner().target == -1.0  # minus the dimensions where none is given


def test_the_policy_moves_to_the_better_action_and_leaves_the_critics_alone():
    """Both critics value an action by itself; the entropy counts for nothing."""
    made = pl.control.SAC(width=8, alpha=1e-9, lr=1e-2).learner(Aim(), ("way",))
    before = made.critics.first[0].weight.clone()
    made.of_critics = torch.optim.SGD(made.critics.parameters(), 0.0)
    for critic in (made.critics.first, made.critics.second):
        zero(critic)
        critic[0].weight.data[0, 1] = critic[2].weight.data[0, 0] = critic[4].weight.data[0, 0] = 1.0
        critic[0].bias.data[0] = 2.0  # never cut by the rectifier
    kept = made.critics.first[0].weight.clone()
    for _ in range(5):
        made.learn_batch(drawn(), torch.zeros(2, 2, 1))
    act = made.policy.act(np.zeros((1, 1, 1)), None, pl.rng_of(("greedy",)), greedy=True)["act"]
    # the mean's bias alone sees an observation of 0, and each of Adam's five steps moves it by the rate
    assert act.item() == pytest.approx(math.tanh(5 * 1e-2), abs=1e-3)
    assert torch.equal(made.critics.first[0].weight, kept) and not torch.equal(kept, before)
    assert made.critics.first[0].weight.requires_grad


def test_it_learns_where_two_agents_aim_and_is_kept_whole(tmp_path):
    sac = pl.control.SAC(games=16, batch=64, per_step=0.25, warm=64, width=32, lr=3e-3, gamma=0.0)
    lines = []
    found = asyncio.run(sac.learn(Aim(), 600, ("aim",), log=lines.append))
    greedy = lambda obs, legal, rng: found.act(obs, legal, rng, greedy=True)
    assert pl.control.mean_return(Aim(), greedy, 200, ("test",)) > -0.05  # even draws: about -1.1
    assert "loss" not in lines[0] and {"loss", "alpha", "entropy"} <= lines[-1].keys()
    assert lines[0]["env_steps"] == 16
    pl.control.save_policy(found, tmp_path)
    assert same(found, pl.control.load_policy(tmp_path))
    assert pl.control.load_policy(tmp_path).actions == Aim().actions


def test_a_share_of_a_batch_is_due_with_later_steps():
    """A game of one step of two agents at 0.2 batches a step: every third iteration learns one, after 2 or 3."""
    lines = []
    sac = pl.control.SAC(games=1, batch=4, per_step=0.2, warm=0, width=4)
    asyncio.run(sac.learn(Aim(), 10, ("due",), log=lines.append))
    assert ["loss" in line for line in lines] == [False, False, True, False, True] * 2


def test_law_06_the_same_key_learns_the_same_bits():
    sac = pl.control.SAC(games=4, batch=16, per_step=0.5, warm=8, width=8)
    learn = lambda key: asyncio.run(sac.learn(Aim(), 40, key))
    assert same(learn(("bits", 0)), learn(("bits", 0))) and not same(learn(("bits", 0)), learn(("bits", 1)))


def test_what_it_cannot_learn_is_said():
    with pytest.raises(UserError, match="DoubleQ and PPO"):
        asyncio.run(pl.control.SAC(warm=0).learn(pl.control.Rooms(), 10, ("x",)))
    for settings, says in (
        ({"alpha": 0.0}, "no logarithm"),
        ({"gamma": 1.5}, "1 at most"),
        ({"per_step": 0.0}, "nothing"),
    ):
        with pytest.raises(UserError, match=says):
            pl.control.SAC(**settings)
    with pytest.raises(UserError, match="drawn evenly"):
        asyncio.run(pl.control.SAC(warm=10).learn(Aim(), 10, ("x",)))
    with pytest.raises(UserError, match="low below high"):
        pl.control.SquashedGaussian(1, pl.control.Box(low=(1.0,), high=(1.0,)))
    with pytest.raises(UserError, match="needs actions with bounds"):
        pl.control.SquashedGaussian(1, pl.control.Box(low=(-math.inf,), high=(1.0,)))
    made = learner()
    with pytest.raises(Fault, match="no finite number"):
        made.learn_batch(drawn(reward=[math.nan, 0.0]), torch.zeros(2, 2, 1))
    assert TwinCritics(1, Aim().actions, 4)(torch.zeros(3, 1), torch.zeros(3, 1))[0].shape == (3,)
