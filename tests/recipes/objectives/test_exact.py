"""Published results that can be computed exactly: tabular problems solved by descent on a recipe's own loss (docs/exact.md).

Every sample of the behaviour is one episode of one token, so that a batch is the expectation itself and nothing is random.
"""

import numpy as np
import pytest
import torch
from palaestra.credit.links import chain
from palaestra.credit.turns import Blend
from palaestra.explanation.method import explain
from palaestra.objective.policy import Reinforce
from palaestra.objective.terms import KL
from palaestra.recipes.objectives import agro, asymre, rec, rover, stratified_grpo, tba
from palaestra.recipes.objectives import incorrect_synthetic_data as isd
from palaestra.schedule import resolve
from palaestra.types import Episode, Example, Group, Reward, Row, Segment, Task
from palaestra.update import pack
from palaestra.values import vary


def bandit(recipe, arms, r, ref=None):
    """The loss that a built recipe has on one group, the samples `arms` of any behaviour, as a function of logp by arm."""
    learner, ref = resolve(recipe.learners["policy"], 0), np.zeros(len(r)) if ref is None else ref
    said = {"author": "policy", "policy": "policy", "trained": True, "logp": (0.0,)}
    rows = [Row(segments=(Segment(ids=(0,)), Segment(ids=(1 + a,), **said))) for a in arms]
    episodes = [
        Episode(rows=(w,), reward=Reward(total=float(r[a])), status="finished") for w, a in zip(rows, arms, strict=True)
    ]
    signals = [[{f"{m}_{q}": np.array([0.0, ref[a]]) for m, q in learner.needs}] for a in arms]
    examples, _ = learner.credit([Group(task=Task(id="t"), episodes=tuple(episodes))], [signals], {})
    batch = pack(examples, dtype=torch.float64)

    def loss(logp_A):
        logp_N = logp_A[torch.tensor(arms)]
        return learner.objective({"logp": torch.stack([torch.zeros_like(logp_N), logp_N], 1)}, batch)[0]

    return loss  # fmt: skip


def descended(loss, logits, rate, steps):
    """Logits of the softmax table after gradient descent, and how fast they moved at the end."""
    l = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    for _ in range(steps):
        (slope,) = torch.autograd.grad(loss(torch.log_softmax(l, 0)), l)
        l.data -= rate * slope
    return l.detach(), -slope


def slope_of(loss, logp):
    x = torch.tensor(logp, dtype=torch.float64, requires_grad=True)
    found = loss(x)
    return float(found.detach()), torch.autograd.grad(found, x)[0].tolist()


# ---- asymre: the stationary policies, and the phase transition at V = V^mu

THREE, FOUR, PAID = (
    [0, 1, 2],
    [0, 0, 0, 0, 1, 1, 1, 2, 2, 3],
    [1, 0.5, 0, 0],
)  # mu = (1/3, 1/3, 1/3) and (.4, .3, .2, .1)


def flowed(arms, r, V, logits):
    """AsymRE with the baseline V, which is the shift V - V^mu from the mean reward of the samples."""
    recipe = asymre.build(shift=V - np.mean([r[a] for a in arms]))
    l, speed = descended(bandit(recipe, arms, r), logits, rate=10, steps=600)
    return torch.softmax(l, 0).tolist(), float(speed.max())


@pytest.mark.parametrize(
    ("arms", "r", "V", "policy", "tau"),
    [
        (THREE, [1, 0, 0], -0.1, [0.846154, 0.076923, 0.076923], 0),
        (THREE, [1, 0, 0], 0.2, [1, 0, 0], 0.133333),
        (FOUR, PAID, 0.3, [0.94, 0.06, 0, 0], 0.045),
    ],
)
@pytest.mark.parametrize("start", [0.0, 1.0], ids=["uniform", "biased to the worst arm"])
def test_asymre_below_the_value(arms, r, V, policy, tau, start):
    """One limit from anywhere, never worse than the behaviour; the logits of its arms go on growing by tau."""
    found, speed = flowed(arms, r, V, [start * k for k in range(len(r))])
    assert found == pytest.approx(policy, abs=1e-6) and speed == pytest.approx(tau, abs=1e-6)
    assert np.dot(found, r) > np.mean([r[a] for a in arms])


@pytest.mark.parametrize(("logits", "arm"), [([0.0, 0, 0, 0], 0), ([-3.0, 0, 0, 3], 3)])
def test_asymre_above_the_value(logits, arm):
    """V = .9 > V^mu = .55: the start decides which arm is left, and it may be the one that pays nothing. Below, it does not."""
    found, _ = flowed(FOUR, PAID, 0.9, logits)
    assert found[arm] == pytest.approx(1, abs=1e-6)
    assert flowed(FOUR, PAID, 0.3, logits)[0] == pytest.approx([0.94, 0.06, 0, 0], abs=1e-6)


# ---- agro, tba: one optimum off-policy, where a policy gradient has another

TWO = ([0, 1], [1, 0], [0.0, 0.0])


def test_agro_and_tba_on_one_batch():
    """r = [1, 0], log-ratios [.2, -.1], beta = .5: L = .0903125 and .7225 = 8 L, and so are their slopes."""
    one, two = (
        slope_of(bandit(f, *TWO), [0.2, -0.1]) for f in (agro.build(beta=0.5), tba.build(beta=0.5, beta_end=0.5))
    )
    assert one[0] == pytest.approx(0.0903125) and two[0] == pytest.approx(0.7225)
    assert one[1] == pytest.approx([-0.10625, 0.10625]) and two[1] == pytest.approx([-0.85, 0.85])
    extra = slope_of(bandit(agro.build(beta=0.5, on_policy=True), *TWO), [0.2, -0.1])
    assert extra[0] == pytest.approx(one[0])
    assert np.subtract(extra[1], one[1]) == pytest.approx([0.045156] * 2, abs=1e-6)
    assert slope_of(bandit(agro.build(beta=0.5), *TWO), [1.0, -1.0]) == (pytest.approx(0), pytest.approx([0, 0]))


@pytest.mark.parametrize("beta", [0.1, 0.5, 2.0])
def test_tba_is_agro_times_two_over_beta_squared(beta):
    """On any batch: 30 samples of 12 outputs, and log-probs far from the reference."""
    rng = np.random.default_rng(0)
    given = (rng.integers(0, 12, 30).tolist(), rng.random(12), rng.normal(size=12))
    logp = rng.normal(size=12).tolist()
    one, two = (slope_of(bandit(f, *given), logp) for f in (agro.build(beta=beta), tba.build(beta=beta, beta_end=beta)))
    assert two[0] == pytest.approx(one[0] * 2 / beta**2)
    assert two[1] == pytest.approx(np.multiply(one[1], 2 / beta**2))


def policy_gradient(beta):
    """REINFORCE with the group's mean, and a KL loss to the reference whose gradient is beta h grad log pi."""
    loss = Reinforce(reduce="tokens") + beta * KL("k2", reduce="tokens")
    return vary(rec.build("all"), objective=loss, needs=(("ref", "logp"),), references={"ref": "policy"})


def plateau(r, beta):
    """Where h = log pi / pi_ref has A - beta h = c pi / pi_ref: the uniform pi_ref is not left for pi*, which has c = 0."""

    def shares(c):
        low, high = np.full(len(r), 1e-12), np.full(len(r), 100.0)
        for _ in range(100):
            middle = (low + high) / 2
            above = beta * np.log(middle) + c * middle > r - r.mean()
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return low

    low, high = 0.0, 10.0
    for _ in range(100):
        c = (low + high) / 2
        low, high = (c, high) if shares(c).mean() > 1 else (low, c)
    return shares(low) / len(r)


def test_policy_gradient_plateaus_off_policy_where_agro_and_tba_arrive():
    """50 outputs, always the samples of a uniform pi_ref, beta = .2: KL(pi, pi*), pi* ~ pi_ref exp(r / beta)."""
    arms, beta, ref = list(range(50)), 0.2, np.full(50, -np.log(50))
    r = np.arange(50) % 5 / 4
    best = torch.log_softmax(torch.tensor(ref + r / beta), 0).numpy()
    away = lambda p: float((p * (np.log(p) - best)).sum())

    def reached(recipe, rate):
        l, speed = descended(bandit(recipe, arms, r, ref), ref.tolist(), rate, steps=300)
        assert speed.abs().max() < 1e-9  # it stands still
        return away(torch.softmax(l, 0).numpy())

    assert away(np.exp(ref)) == pytest.approx(1.226209, abs=1e-6)
    assert reached(agro.build(beta=beta), rate=250) == pytest.approx(0, abs=1e-9)
    assert reached(tba.build(beta=beta, beta_end=beta), rate=5) == pytest.approx(0, abs=1e-9)
    assert reached(policy_gradient(beta), rate=50) == pytest.approx(0.110240, abs=1e-6)
    assert away(plateau(r, beta)) == pytest.approx(0.110240, abs=1e-6)


# ---- rover: the uniform policy's Q on a tree


def test_rover_learns_the_uniform_policys_value_of_a_tree():
    """Depth 2, only leaf LR pays: descent on the recipe's loss gives Q(L) = .5, Q(R) = 0, Q(LR) = 1; greedy finds LR."""
    paths = ("LL", "LR", "RL", "RR")
    objective, at = rover.build().learners["policy"].objective, {"L": 0, "R": 1, "LL": 2, "LR": 3, "RL": 4, "RR": 5}
    said = Segment(ids=(1, 2), trained=True, policy="policy", logp=(0.0, 0.0))
    row = Row(segments=(Segment(ids=(0,)), said))
    paid = [{"advantage": np.array([0, 0, float(p == "LR")]), "policy_vocab_mean_logp": np.zeros(3)} for p in paths]
    batch = pack([Example(row=row, columns=c) for c in paid], dtype=torch.float64)
    q = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    zero = torch.zeros((), dtype=torch.float64)
    for _ in range(400):
        value = lambda s: (q[at[s + "L"]] + q[at[s + "R"]]) / 2  # what the uniform policy expects of a state
        logp = torch.stack([torch.stack([zero, q[at[p[0]]], q[at[p]]]) for p in paths])
        means = torch.stack([torch.stack([zero, value(""), value(p[0])]) for p in paths])
        (slope,) = torch.autograd.grad(objective({"logp": logp, "vocab_mean_logp": means}, batch)[0], q)
        q.data -= slope
    found = {s: float(q[i].detach()) for s, i in at.items()}
    assert found == pytest.approx({"L": 0.5, "R": 0, "LL": 0, "LR": 1, "RL": 0, "RR": 0}, abs=1e-6)
    first = max("LR", key=found.__getitem__)
    assert max((p for p in paths if p[0] == first), key=found.__getitem__) == "LR"


# ---- numbers of a single evaluation


def test_cross_stratum_bias():
    """R = 1 0 0 | 1 1 0: a stratum's mean less the group's is -1/6 and +1/6; variances differ by 1/36."""
    (blend,) = stratified_grpo.build().learners["policy"].credit.links
    (_, (within, _)), (_, (overall, _)) = blend.parts
    group = [{"reward": r, "stratum": s} for r, s in zip((1, 0, 0, 1, 1, 0), (1, 1, 1, 2, 2, 2), strict=True)]
    A = [explain(vary(stratified_grpo.build(), credit=chain(c)), [group])["advantages"][0] for c in (overall, within)]
    assert np.subtract(*A) == pytest.approx([-1 / 6] * 3 + [1 / 6] * 3)
    assert np.var(A[0]) - np.var(A[1]) == pytest.approx(1 / 36)
    both = vary(stratified_grpo.build(), credit=chain(Blend(((1.0, (overall,)), (-1.0, (within,))))))
    assert explain(both, [group])["advantages"][0] == pytest.approx([-1 / 6] * 3 + [1 / 6] * 3)


def test_per_step_preference_loss():
    """Log-ratios +.5 of the right answer, -.3 of the wrong one up to its pit, beta .1: -log sigmoid(.08) = .653947."""
    learner, rows = isd.build().learners["policy"], []
    said = {"author": "policy", "policy": "policy", "trained": True, "logp": (0.0,)}
    rows = [
        Row(segments=(Segment(ids=(0,)), *(Segment(ids=(1 + k,), turn=k, **said) for k in range(n)))) for n in (1, 3)
    ]
    values = {"prefix_values": (0.5, 0.75, 0.25, 0.25)}
    both = tuple(
        Episode(rows=(w,), reward=Reward(total=x), facts=values) for w, x in zip(rows, (1.0, 0.0), strict=True)
    )
    signals = [[[{"ref_logp": np.zeros(1 + n)}] for n in (1, 3)]]
    examples, _ = learner.credit([Group(task=Task(id="t"), episodes=both)], signals, {})
    batch = pack(examples, dtype=torch.float64)
    logp = torch.tensor(
        [[0, 0.5, 0, 0], [0, -0.15, -0.15, 9]], dtype=torch.float64
    )  # what follows the pit does not count
    assert [e.columns["sign"] for e in examples] == [1.0, -1.0]
    assert learner.objective({"logp": logp}, batch)[0].item() == pytest.approx(0.653947, abs=1e-6)  # fmt: skip
