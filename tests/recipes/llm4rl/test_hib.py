"""HIB: the two terms of the bottleneck, histories, hidden pendulums, and simulators of a user."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.errors import UserError
from palaestra.recipes.llm4rl import hib
from palaestra.recipes.llm4rl.hib.network import HistoryPlayer, HistoryPolicy, windows
from palaestra.recipes.llm4rl.hib.pendulums import HiddenPendulums, PendulumState
from palaestra.recipes.llm4rl.hib.privileged import PrivilegedView, parse_columns
from palaestra.recipes.llm4rl.hib.program import (
    HistoryBottleneck,
    HistoryTraining,
    LearnHistory,
    StartSample,
    gaussian_kl,
    info_nce,
    parse_arms,
    probe_r2,
)

KEY = ("test",)
START = StartSample(seen=np.eye(5)[:2], e=np.array([[1.0, 1.0, 0.2], [1.2, 0.8, 0.1]]), unit=1.0)
THREE = ("none", "history", "hib")
SMALL = {
    "arms": THREE,
    "steps": 300,
    "games": 8,
    "width": 16,
    "learner": pl.control.PPO(games=8, epochs=1, minibatches=2, bootstrap=True),
}


def run(ctx, **settings):
    return asyncio.run(LearnHistory(**{**SMALL, **settings}).run(ctx))


def test_the_contrastive_term_of_three():
    """Scores 2 on the diagonal and 0 elsewhere: -log(e^2 / (e^2 + 2)) = 0.239545, the bound log 3 less that."""
    loss, sizes = info_nce(torch.eye(3) * 2, torch.eye(3), torch.arange(3.0)[:, None])
    assert loss.tolist() == pytest.approx([0.239545] * 3, abs=1e-6) and sizes.tolist() == [3, 3, 3]
    assert float(np.log(3) - loss.mean()) == pytest.approx(0.859068, abs=1e-6)


def test_games_with_equal_privileged_numbers_are_no_negatives():
    """Of three games two are alike: each of these has one negative, log(1 + e^-2) = 0.126928, the other two."""
    loss, sizes = info_nce(torch.eye(3) * 2, torch.eye(3), torch.tensor([[1.0], [1.0], [5.0]]))
    assert loss.tolist() == pytest.approx([0.126928, 0.126928, 0.239545], abs=1e-6)
    assert sizes.tolist() == [2, 2, 3]


def test_the_divergence_from_a_standard_normal():
    """mean (0.5, -0.5), deviations (1, 0.5): 0.125 and 0.443147."""
    kl = gaussian_kl(torch.tensor([[0.5], [-0.5]]), torch.tensor([[1.0], [0.5]]).log())
    assert kl.tolist() == pytest.approx([0.125, 0.443147], abs=1e-6)
    assert gaussian_kl(torch.zeros(2, 3), torch.zeros(2, 3)).tolist() == [0, 0]


def outputs(B, T):
    """Three numbers of z that tell e without error, in games whose e differ."""
    eye = torch.eye(3)[:, None].expand(B, T, 3)
    e = torch.arange(float(B))[:, None, None].expand(B, T, 1)
    zero = torch.zeros(B, T, 3)
    return {"z": 2 * eye, "compared": eye, "privileged": e, "z_mean": zero + 1, "z_log_sd": zero}


def batch_of(trained):
    rows = len(trained)
    return pl.Batch(
        columns={"trained": trained}, unit_B=torch.arange(rows), n_tokens=int(trained.sum()), n_rows=rows, n_units=rows
    )


def test_the_terms_are_weighed_and_leave_out_what_is_over():
    """The third game is over after one of two steps: (3 * 0.239545 + 2 * 0.126928) / 5; KL = 3 / 2 a step."""
    trained = torch.tensor([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    loss, metrics = HistoryBottleneck(nce=2.0, kl=0.1)(outputs(3, 2), batch_of(trained))
    nce = (3 * 0.239545 + 2 * 0.126928) / 5
    assert float(metrics["nce"]) == pytest.approx(nce, abs=1e-6) and float(metrics["kl"]) == pytest.approx(1.5)
    assert float(loss) == pytest.approx(2 * nce + 0.15, abs=1e-6)
    assert float(metrics["bound"]) == pytest.approx((3 * np.log(3) + 2 * np.log(2)) / 5 - nce, abs=1e-6)
    alone, metrics = HistoryBottleneck()({k: v[:1] for k, v in outputs(3, 2).items()}, batch_of(torch.ones(1, 2)))
    assert float(metrics["nce"]) == 0 and float(alone) == pytest.approx(1.5e-3)


def test_a_history_has_the_steps_before_and_zeros_where_there_were_none():
    steps = torch.arange(1.0, 5.0)[None, :, None]  # 1, 2, 3, 4
    made = windows(steps, 3)[0, :, 0]
    assert made.tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3]]


@pytest.mark.parametrize("actions", [pl.control.Box(low=(-1.0, -1.0), high=(1.0, 1.0)), 3], ids=["box", "count"])
def test_what_was_played_has_the_probability_that_it_is_learned_with(actions):
    """The player keeps a history step by step, learning cuts it out of whole games; k is odd and longer than them."""
    policy = pl.control.draw_network(lambda: HistoryPolicy(2, 1, actions, k=7, size=3, width=8), KEY)
    rng, player, kept = pl.rng_of(KEY), HistoryPlayer(policy), list[dict[str, np.ndarray]]()
    for _ in range(5):
        obs = rng.normal(size=(4, 1, 3)).astype(np.float32)
        kept.append({"obs": obs, **player.act(obs, None, rng)})
    columns = {k: torch.from_numpy(np.stack([x[k][:, 0] for x in kept], 1)).float() for k in kept[0]}
    with torch.no_grad():
        out = policy(columns)
    assert torch.allclose(out["logp"], columns["logp"], atol=1e-5)
    assert torch.allclose(out["value"], columns["value"], atol=1e-5)


def test_the_deployed_policy_reads_nothing_that_is_privileged():
    policy = pl.control.draw_network(
        lambda: HistoryPolicy(2, 2, pl.control.Box(low=(-1.0,), high=(1.0,)), k=4, size=3, width=8), KEY
    )
    obs = pl.rng_of(KEY).normal(size=(6, 3, 1, 4)).astype(np.float32)
    changed = obs + np.array([0, 0, 5, -5], np.float32)
    play = lambda rows: [HistoryPlayer.act(player, x, None, pl.rng_of(KEY))["act"] for x in rows]
    player = HistoryPlayer(policy, greedy=True)
    first = play(obs)
    player = HistoryPlayer(policy, greedy=True)
    assert np.array_equal(first, play(changed))
    policy.latent = "privileged"
    player = HistoryPlayer(policy, greedy=True)
    one = play(obs)
    player = HistoryPlayer(policy, greedy=True)
    assert not np.array_equal(one, play(changed))  # the oracle does


def test_a_pendulum_in_balance_stays():
    """m g l sin(0.5) = 2 * 9.81 * 0.9 * 0.479426 = 8.465696 N m, of 20 that a command of 1 gives."""
    one = lambda x: np.array([x])
    state = PendulumState(
        angle=one(0.5), speed=one(0.0), target=one(0.5), mass=one(2.0), length=one(0.9), friction=one(0.1)
    )
    u = 8.465696 / 20
    after, paid, over = HiddenPendulums().step(state, np.array([[[u]]]), pl.rng_of(KEY))
    assert after.angle[0] == pytest.approx(0.5, abs=1e-6) and not over.any()
    assert paid[0, 0] == pytest.approx(-0.01 * u**2, abs=1e-6)
    # one part of 0.025 s without a command: speed -8.465696 / (2 * 0.81) * 0.025 = -0.130643
    falls, _, _ = HiddenPendulums().step(state, np.zeros((1, 1, 1)), pl.rng_of(KEY))
    assert falls.speed[0] < -0.130643 and falls.angle[0] < 0.5 - 0.025 * 0.130643
    _, paid, _ = HiddenPendulums().step(replace(state, angle=one(0.5 + 2 * np.pi)), np.array([[[u]]]), pl.rng_of(KEY))
    assert paid[0, 0] == pytest.approx(-0.01 * u**2, abs=1e-6)  # a turn further is the same angle


def test_masses_outside_are_on_both_sides_of_the_range():
    """0.5 to 1.5 and 1.5 times as wide: 0.25 to 0.5, and 1.5 to 1.75."""
    inside = HiddenPendulums().reset(pl.rng_of(KEY), 400).mass
    outside = HiddenPendulums(outside=True).reset(pl.rng_of(KEY), 400).mass
    assert inside.min() >= 0.5 and inside.max() <= 1.5
    low, high = outside[outside < 1], outside[outside > 1]
    assert low.min() > 0.25 and low.max() <= 0.5 and high.min() >= 1.5 and high.max() < 1.75
    assert 150 < len(low) < 250 and np.ptp(low) > 0.2


def test_the_probe_is_fitted_to_other_rows_than_it_is_measured_on():
    z = pl.rng_of(KEY).normal(size=(200, 2))
    e = np.stack([z[:, 0] - 2 * z[:, 1], np.ones(200)], 1)
    assert probe_r2(z, e) == pytest.approx(1, abs=1e-3)  # a number that never varies is left out
    assert probe_r2(z, pl.rng_of(("other",)).normal(size=(200, 1))) < 0.1
    assert probe_r2(z, np.ones((200, 1))) == 0 and np.isfinite(probe_r2(z[:2], e[:2]))


def test_arms_start_alike_and_differ_where_a_term_acts(context):
    made = run(context()).metrics
    off = run(context(), nce=0.0, kl=0.0).metrics
    assert made["probe_gain"] != 0 and off["probe_gain"] == 0 == off["outside_gain"]
    arms = made["arms"]
    assert len({arm["env_steps"] for arm in arms.values()}) == 1
    assert made["return_history"] == off["return"]
    assert "probe" not in arms["none"] and {"probe_first", "probe_outside", "kl"} <= arms["hib"].keys()


def test_each_arm_has_its_terms_and_the_second_one_grows():
    program = LearnHistory(**SMALL)
    training = HistoryTraining(
        program=program, ctx=None, view=program.views()[0], outside=None, steps=100, key=KEY, sample=START
    )
    weights = lambda arm: (training.weights(arm, 0.1).nce, training.weights(arm, 0.1).kl)
    half = 0.5 * 1e-3  # after 0.1 of the steps, of which it grows for 0.2
    assert weights("hib") == (0.3, half) and weights("no nce") == (0, half) and weights("no kl") == (0.3, 0)
    assert weights("history") == weights("none") == weights("oracle") == weights("two stage") == (0, 0)
    assert training.weights("hib", 0.7).kl == 1e-3


def test_two_stages_imitate_what_the_teacher_made_of_what_is_hidden(context):
    """The encoder's error falls, nothing else moves, and both stages together take the steps of an arm."""
    program = LearnHistory(**SMALL)
    view = program.views()[0]
    training = HistoryTraining(
        program=program, ctx=context(), view=view, outside=None, steps=3_200, key=KEY, sample=START
    )
    policy, lines = training.start("two stage"), list[dict[str, float]]()
    before = {k: v.clone() for k, v in policy.state_dict().items()}
    assert policy.latent == "privileged"
    assert training.imitate(policy, 0, lines) == 3_200 and policy.latent == "history"
    assert lines[-1]["loss"] < 0.8 * lines[0]["loss"]
    moved = {k.split(".")[0] for k, v in policy.state_dict().items() if not torch.equal(v, before[k])}
    assert moved == {"encoder"}


def test_a_policy_is_saved_and_a_killed_run_goes_on_with_the_next_arm(context, tmp_path):
    result = run(context(out=tmp_path), arms=hib.program.ARMS).metrics
    assert (tmp_path / "arms.md").read_text().count("\n") == 9
    controller = hib.load_controller(tmp_path / "policy")
    observed = pl.rng_of(KEY).normal(size=(4, 5))
    first = controller(observed)
    assert first.shape == (4, 1) and np.abs(first).max() <= 1
    assert not np.allclose(controller(observed), first)  # a step later the history has changed
    controller.reset()
    assert np.allclose(controller(observed), first)
    controller.reset()
    assert controller(observed[0]) == pytest.approx(first[0], abs=1e-6)
    with pytest.raises(UserError, match="reads 5 observed numbers, not 8"):
        controller(np.zeros(8))
    with pytest.raises(UserError, match="holds no policy"):
        hib.load_controller(tmp_path)
    next(tmp_path.rglob("arm-two-stage.json")).unlink()
    assert json.dumps(run(context(out=tmp_path), arms=hib.program.ARMS).metrics) == json.dumps(result)


OWN = '''
import numpy as np
from palaestra.control import Box


class Carts:
    """Two carts a game, each with a hidden weight; what is seen: place, weight and a constant."""

    agents, horizon, observation, legal = 2, 6, 3, staticmethod(lambda state: None)
    actions, heavy = Box(low=(0.0, -10.0), high=(4.0, 10.0)), 1.0

    def reset(self, rng, n):
        return rng.normal(size=(n, 2)), self.heavy * rng.uniform(1, 2, (n, 2))

    def observe(self, state):
        return np.stack([*state, np.ones_like(state[0])], -1)

    def step(self, state, act, rng):
        assert act[..., 0].min() >= 0 and act.shape[-1] == 2
        place = state[0] + act.sum(-1) / state[1]
        return (place, state[1]), -np.abs(place), (np.abs(place) > 30).any(1)

    def facts(self, state):
        return {"weight": state[1]}


class Heavy(Carts):
    heavy = 3.0


class Counted(Carts):
    actions = 3

    def step(self, state, act, rng):
        return (state[0] + act - 1, state[1]), -np.abs(state[0]), np.zeros(len(act), bool)
'''


@pytest.mark.parametrize(("name", "hidden"), [("Carts", "weight"), ("Carts", "1,2"), ("Counted", "1")])
def test_a_simulator_of_ones_own(context, tmp_path, name, hidden):
    """Several agents, games that end, bounds other than -1 and 1, actions that are counted."""
    (tmp_path / "own.py").write_text(OWN)
    said = list[str]()
    ctx = context(out=tmp_path / "run")
    ctx.say = said.append
    spec = f"{tmp_path}/own.py:"
    test = f"{spec}Heavy" if name == "Carts" else ""
    program = hib.build(sim=spec + name, test=test, privileged=hidden, arms=THREE, steps=60, batch=4, games=4)
    metrics = asyncio.run(program.run(ctx)).metrics
    assert np.isfinite(metrics["return"]) and ("outside" in metrics) == (name == "Carts")
    assert any("names no simulator" in x for x in said) == (name == "Counted")
    assert any("number 2 is the same" in x for x in said) == (hidden == "1,2")
    controller = hib.load_controller(tmp_path / "run" / "policy")
    command = controller(np.zeros((5, controller.policy.seen)))
    assert command.shape == ((5, 2) if name == "Carts" else (5,))


def test_commands_are_in_the_units_of_the_simulator():
    view = PrivilegedView(HiddenPendulums(), "mass")
    assert view.observation == 6 and view.columns == ("mass",)
    box = pl.control.Box(low=(0.0, -10.0), high=(4.0, 10.0))
    assert hib.network.scale_actions(np.array([-1.0, 0.5]), box).tolist() == [0, 5]
    assert hib.network.scale_actions(np.array([3.0, -3.0]), box).tolist() == [4, -10]


@pytest.mark.parametrize(
    ("hidden", "observed", "says"),
    [
        ("", "", "hib needs privileged=NAME"),
        ("colour", "", "tells no colour; its facts are mass, length, friction"),
        ("7", "", "privileged=7 names no columns: an observation has 5 numbers"),
        ("0-4", "", "leaves nothing of 5"),
        ("1,1", "", "each once"),
        ("3,4", "2,3", "column 3 is in privileged and in observed"),
    ],
)
def test_columns_that_are_not_there_are_refused(hidden, observed, says):
    with pytest.raises(UserError, match=says):
        PrivilegedView(HiddenPendulums(), hidden, observed)


class Told(HiddenPendulums):
    """Pendulums that tell what is given as the fact `mass`."""

    fact = staticmethod(lambda n: np.ones((n, 1)))

    def facts(self, state):
        return {"mass": self.fact(len(state.angle))}


@pytest.mark.parametrize(
    ("fact", "says"),
    [
        (lambda n: np.ones(n), r"fact mass .* has the form \[1\] .* here \[1, 1\]"),
        (lambda n: np.ones((n, 1, 3)), r"fact mass .* has the form \[1, 1, 3\]"),
        (lambda n: np.full((n, 1), "heavy"), "fact mass .* is no array of numbers"),
        (lambda n: np.full((n, 1), np.nan), "fact mass .* is not finite"),
    ],
)
def test_facts_of_another_form_are_refused_by_name(fact, says):
    sim = Told()
    object.__setattr__(sim, "fact", fact)
    with pytest.raises(UserError, match=says):
        PrivilegedView(sim, "mass")
    with pytest.raises(UserError, match=r"tells no 2; .* do not mix"):
        PrivilegedView(HiddenPendulums(), "mass,2")


def test_a_number_that_is_not_finite_later_is_named(context):
    sim = Told()
    object.__setattr__(sim, "fact", lambda n: np.where(np.arange(n) == 3, np.nan, 1.0)[:, None])
    with pytest.raises(UserError, match="mass is not a finite number"):
        run(context(), sim=sim, test=None, privileged="mass")


def test_units_of_what_is_observed_change_nothing():
    """1 and 3 are -1 and 1; in thousandths, from another zero, the same. 40 is cut at 10 deviations."""

    def shown(seen, factor=1.0, zero=0.0):
        box = pl.control.Box(low=(-1.0,), high=(1.0,))
        policy = pl.control.draw_network(lambda: HistoryPolicy(1, 1, box, k=4, size=3, width=8), KEY)
        policy.scale(zero + factor * np.array([[1.0], [3.0]]), np.array([[0.0], [2.0]]))
        obs = torch.tensor(np.stack([zero + factor * np.array(seen), np.ones(3)], -1)[None]).float()
        columns = {"obs": obs, "act": torch.zeros(1, 3, 1), "noise": torch.zeros(1, 3, 3)}
        player = HistoryPlayer(policy, greedy=True)
        acts = [player.act(obs[:, None, t].numpy(), None, pl.rng_of(KEY))["act"] for t in range(3)]
        return policy.observed(obs).flatten().tolist(), policy(columns)["z_mean"].detach().numpy(), np.array(acts)

    first, z, acts = shown([1.0, 3.0, 40.0])
    assert first == pytest.approx([-1, 1, 10])
    other, z_other, acts_other = shown([1.0, 3.0, 40.0], 1000.0, 5000.0)
    assert other == pytest.approx(first, abs=1e-4) and z_other == pytest.approx(z, abs=1e-4)
    assert acts_other == pytest.approx(acts, abs=1e-5)
    assert np.abs(shown([1.0, 3.0, 4.0])[2] - acts).max() > 1e-4  # what is read counts


def test_what_does_not_fit_is_refused(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(UserError, match="hib has no arm 'best'"):
        hib.build(arms="best")
    with pytest.raises(UserError, match="a minibatch needs two games"):
        hib.build(batch=3)
    with pytest.raises(UserError, match="of a simulator of yours"):
        hib.build(test="x.py:make")
    with pytest.raises(UserError, match="differ in their observations or actions"):
        spec = f"{tmp_path}/own.py:"
        hib.build(sim=f"{spec}Carts", test=f"{spec}Counted", privileged="1").views()
    assert parse_arms("oracle, two stage") == ("none", "history", "hib", "two stage", "oracle")
    assert parse_columns("0, 2-4", 5, "x") == (0, 2, 3, 4)


def test_parts_of_single_steps_have_no_history():
    with pytest.raises(pl.UserError, match="not part_steps"):
        LearnHistory(learner=pl.control.PPO(part_steps=64))
