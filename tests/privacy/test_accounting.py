"""The privacy accountant against closed forms and Google's accountant, and steps of different rates."""

import math
import sys

import pytest
from palaestra.errors import UserError
from palaestra.privacy import accounting
from palaestra.privacy.accounting import composed_epsilon, composed_noise, noise_for, spent_epsilon
from palaestra.privacy.update import PrivacyTerms
from scipy import stats


def rdp_at(order, rate, noise):
    """The subsampled Gaussian at an integer order, arXiv:1908.10530 section 3.3, as a sum of logs."""
    terms = [
        math.log(math.comb(order, k)) + (order - k) * math.log(1 - rate) + k * math.log(rate)
        + (k * k - k) / (2 * noise**2)
        for k in range(order + 1)
    ]  # fmt: skip
    top = max(terms)
    return (top + math.log(sum(math.exp(t - top) for t in terms))) / (order - 1)


def to_epsilon(rdp, order, delta):
    return rdp - (math.log(delta) + math.log(order)) / (order - 1) + math.log((order - 1) / order)


@pytest.mark.parametrize(("rate", "noise", "steps", "delta"), [(0.1, 1.0, 100, 1e-5), (0.01, 0.8, 1000, 1e-6)])
def test_the_accountant_at_integer_orders(rate, noise, steps, delta):
    """Fractional orders may only lower the least of the integer ones, and hardly."""
    whole = min(to_epsilon(steps * rdp_at(a, rate, noise), a, delta) for a in range(2, 65))
    assert whole * 0.97 < spent_epsilon(rate, noise, steps, delta) <= whole * (1 + 1e-9)


def test_without_subsampling_it_is_the_gaussian_mechanism():
    """Never below the exact epsilon of the Gaussian mechanism (arXiv:1805.06530, theorem 8), and near it."""
    epsilon, noise = (
        spent_epsilon(1.0, 4.0, 16, 1e-5),
        4.0 / math.sqrt(16),
    )  # 16 steps are one of a quarter of the noise
    cdf = stats.norm.cdf
    delta = cdf(0.5 / noise - epsilon * noise) - math.exp(epsilon) * cdf(-0.5 / noise - epsilon * noise)
    assert 0 < delta < 1e-5
    less = 0.9 * epsilon
    assert cdf(0.5 / noise - less * noise) - math.exp(less) * cdf(-0.5 / noise - less * noise) > 1e-5


def test_the_noise_is_the_least_that_keeps_the_budget():
    noise = noise_for(3.0, 1e-5, 0.05, 200)
    assert spent_epsilon(0.05, noise, 200, 1e-5) <= 3.0 < spent_epsilon(0.05, noise * 0.997, 200, 1e-5)
    assert spent_epsilon(0.05, noise, 0, 1e-5) == 0 and spent_epsilon(0.05, 0.0, 1, 1e-5) == math.inf
    with pytest.raises(UserError, match="out of reach in 1000000 steps"):
        noise_for(1e-6, 1e-9, 1.0, 1_000_000)


def test_composition_of_the_paper():
    assert composed_noise(2, 1e-5, 1) == pytest.approx(4.844805, abs=1e-6)
    assert composed_noise(3, 3e-5, 3) == pytest.approx(9.689611, abs=1e-6)


def test_without_opacus_the_remedy_is_said(monkeypatch):
    accounting._rdp_of_step.cache_clear()
    monkeypatch.setitem(sys.modules, "opacus.accountants.analysis", None)
    with pytest.raises(UserError, match=r"pip install 'palaestra\[privacy\]'"):
        spent_epsilon(0.123, 1.0, 1, 1e-5)


@pytest.mark.parametrize(
    ("rate", "noise", "steps", "delta"),
    [(0.01, 1.1, 1000, 1e-5), (0.1, 2.0, 100, 1e-4), (0.03125, 0.9, 300, 1e-3), (1.0, 8.0, 20, 1e-5)],
)
def test_google_counts_the_same(rate, noise, steps, delta):
    """dp-accounting's Renyi accountant at our orders; its privacy loss distributions, which are nearly
    exact, are below both.
    """
    dp = pytest.importorskip("dp_accounting", reason="needs Google's accountant: pip install dp-accounting")
    from dp_accounting import pld, rdp

    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise)), steps)
    ours = spent_epsilon(rate, noise, steps, delta)
    theirs = rdp.RdpAccountant(list(accounting.ORDERS)).compose(event).get_epsilon(delta)
    exact = pld.PLDAccountant().compose(event).get_epsilon(delta)
    print(f"epsilon of rate={rate} noise={noise} steps={steps}: {ours:.6f}, Google's {theirs:.6f}, exact {exact:.6f}")
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert 0.6 * ours < exact <= ours


# ---- steps that differ


def test_steps_of_different_rates_add_up():
    """At one order: divergences of both add up; 3 + 2 steps of one rate are 5."""
    assert composed_epsilon([(0.1, 1.0, 3), (0.1, 1.0, 2)], 1e-5) == pytest.approx(spent_epsilon(0.1, 1.0, 5, 1e-5))
    both = composed_epsilon([(0.1, 1.0, 40), (0.3, 1.5, 25)], 1e-5)
    whole = min(to_epsilon(40 * rdp_at(a, 0.1, 1.0) + 25 * rdp_at(a, 0.3, 1.5), a, 1e-5) for a in range(2, 65))
    assert whole * 0.97 < both <= whole * (1 + 1e-9)
    assert max(spent_epsilon(0.1, 1.0, 40, 1e-5), spent_epsilon(0.3, 1.5, 25, 1e-5)) < both
    assert composed_epsilon([], 1e-5) == 0 and composed_epsilon([(0.1, 1.0, 1), (0.1, 0.0, 1)], 1e-5) == math.inf


def test_terms_count_each_step_at_its_own_rate():
    terms = PrivacyTerms(lines=10, rate=0.1, noise=1.0, delta=1e-5)
    for rate in (0.1, 0.1, 0.5, 0.1):
        terms = PrivacyTerms(lines=10, rate=rate, noise=1.0, delta=1e-5, spends=terms.spends).after_step()
    assert terms.spends == ((0.1, 1.0, 2), (0.5, 1.0, 1), (0.1, 1.0, 1))
    assert terms.spent == composed_epsilon([(0.1, 1.0, 3), (0.5, 1.0, 1)], 1e-5)
