"""REC: masks, regularisers, data shaping, and their edges."""

import math

import pytest
from palaestra.credit.links import Center, chain
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.objective.policy import Clipped, Imitation, Reinforce
from palaestra.objective.terms import KL
from palaestra.recipes.objectives import asymre, rec
from palaestra.values import vary

from tests.objective.helpers import token_batch, token_gradient
from tests.recipes.objectives.helpers import advantages, group, near, scored, weights


@pytest.mark.parametrize(
    ("A", "rho", "one", "two", "ring"),
    [(1, 1.3, 0, 0, 0), (1, 0.3, 1, 0, 1), (-1, 0.7, 0, 0, 0), (-1, 3.5, 1, 0, 1), (1, 1.1, 1, 1, 1)],
)
def test_rec_masks(A, rho, one, two, ring):
    for trust, kept in (("one-side", one), ("two-side", two), ("ring", ring), ("all", 1)):
        for weighted in (False, True):
            objective = Reinforce(trust=trust, weighted=weighted)
            _, grad, _ = token_gradient(objective, token_batch([A], behaviour=-1.0), logp=[-1.0 + math.log(rho)])
            assert grad["logp"] == pytest.approx([-A * kept * (rho if weighted else 1)]), (trust, weighted)


def test_rec_one_side_with_ratio_has_the_gradient_of_ppo():
    A, logp = [1.0, 1.0, -1.0, -1.0, 0.5], [-0.5, -1.6, -0.5, -1.6, -1.05]
    ours = token_gradient(Reinforce(trust="one-side", weighted=True), token_batch(A, -1.0), logp=logp)[1]
    ppo = token_gradient(Clipped(), token_batch(A, -1.0), logp=logp)[1]
    assert ours["logp"] == pytest.approx(ppo["logp"])


def test_rec_regularisers():
    """OPMD halves at tau 1; tau * Imitation is a baseline lowered by tau; Kimi's term is tau (log rho)^2."""
    groups = group([1, 0, 0], [1, 2, 3])
    plain, half = (weights(rec.build("all", tau=t), groups) for t in (0.0, 1.0))
    assert half[0] == pytest.approx([w / 2 for w in plain[0]])
    forward_kl = vary(rec.build("all"), objective=Reinforce(reduce="tokens") + 0.1 * Imitation())
    shifted = weights(asymre.build(shift=-0.1), groups)
    for found, expected in zip(weights(forward_kl, groups), shifted, strict=True):
        assert found == pytest.approx(expected)
    kimi = 2 * 0.5 * KL("k2", model="behaviour", reduce="tokens")
    loss, grad, _ = token_gradient(kimi, token_batch([0.0], behaviour=-1.0), logp=[-0.9])
    assert loss == pytest.approx(0.5 * 0.01) and grad["logp"] == pytest.approx([2 * 0.5 * 0.1])


def test_rec_data_shaping():
    dropped = vary(rec.build("all"), credit=chain(rec.DropSurplus()))
    assert advantages(dropped, group([1, 0, 0, 0])) == [0.5, -0.5, 0, 0]
    assert advantages(dropped, group([1, 1, 0])) == pytest.approx([1 / 3, 1 / 3, -2 / 3])  # nothing to drop
    assert advantages(dropped, group([0, 0]), group([1.0])) == [[0, 0], [0]]
    weighted = vary(rec.build("all"), credit=chain(Center("group"), rec.Reweight()))
    found = advantages(weighted, group([1, 0, 0, 0]))
    assert found == pytest.approx([1.587750] + [-0.194700] * 3, abs=1e-6)


def test_rec_edges():
    assert advantages(rec.build(), group([1.0])) == [0.0]
    unknown = token_batch([1.0], behaviour=float("nan"))
    plain = token_gradient(Reinforce(), unknown, logp=[-1.0])
    assert plain[0] == 1.0 and plain[1]["logp"] == [-1.0]  # offline data: no ratio is read
    with pytest.raises(UserError, match="one-side, two-side, ring"):
        token_gradient(Reinforce(trust="two sides"), token_batch([1.0]), logp=[0.0])


def test_rec_regularisers_by_name():
    """tau log^2 rho at log rho = -1 has the slope 2 tau log rho; imitation the slope -tau; over N = 8 tokens."""
    group = scored(1, 0, logp=[[-2.0] * 4] * 2, behaviour_logp=[[-1.0] * 4] * 2)
    weight = lambda **given: [w[0] for w in explain(rec.build("all", **given), [group])["token_weights"][0]]
    plain = weight()
    assert plain == near([0.5 / 8, -0.5 / 8])
    assert weight(tau=0.3, regulariser="opmd") == near([w / 1.3 for w in plain])
    assert weight(tau=0.3, regulariser="kimi") == near([w + 2 * 0.3 / 8 for w in plain])
    assert weight(tau=0.3, regulariser="asymre") == near([w + 0.3 / 8 for w in plain])
    assert weight(tau=0.0, regulariser="kimi") == plain


def test_rec_data_and_deviation():
    """[1, 0, 0, 0]: ddof 0, s = .433013. Dropped: +-.5 / s; weighted: A exp(A) of A = .75 / s and -.25 / s."""
    four, s = scored(1, 0, 0, 0), 0.433013
    assert advantages(rec.build(data="drop"), *four) == near([0.5, -0.5, 0, 0])
    assert advantages(rec.build(data="weight"), *four) == near([1.587750] + [-0.194700] * 3)
    assert advantages(rec.build(std=True), *four) == near([0.75 / s] + [-0.25 / s] * 3)
    assert advantages(rec.build(data="drop", std=True), *four) == near([0.5 / s, -0.5 / s, 0, 0])
    high, low = 0.75 / s, -0.25 / s
    found = advantages(rec.build(data="weight", std=True), *four)
    assert found == pytest.approx([high * math.exp(high)] + [low * math.exp(low)] * 3, abs=1e-4)
