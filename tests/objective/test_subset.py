"""An objective on some tokens: it adds up over a batch, has denominators of its own, and reads nothing else."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from palaestra.credit.links import Center, Fact, chain
from palaestra.errors import UserError
from palaestra.objective.policy import Clipped, Imitation
from palaestra.objective.shaped import Shaped
from palaestra.objective.subset import On
from palaestra.objective.terms import KL, Entropy
from palaestra.types import Episode, Example, Group, Reward, Row, Segment, Task
from palaestra.update import backward, pack, recount, tracked_means

REDUCTIONS = ["tokens", "sequences", "constant"]


def mixed(lengths, marked, seed=0, unknown=False):
    """Rows of so many tokens, some of them marked; those may have no behaviour log-prob."""
    rng, examples = np.random.default_rng(seed), []
    for b, (n, m) in enumerate(zip(lengths, marked, strict=True)):
        logp = None if m and unknown else tuple(rng.normal(-1, 0.3, n).tolist())
        said = Segment(ids=(b, *range(1, n)), trained=True, logp=logp)
        row = Row(segments=(Segment(ids=(0,)), said))
        columns = {
            "advantage": np.array([0.0, *rng.normal(size=n)]),
            "ref_logp": np.array([0.0, *rng.normal(-1, 0.3, n)]),
            "is:shown": np.array([0.0, *[float(m)] * n]),
        }
        examples.append(Example(row=row, columns=columns))
    return pack(examples, dtype=torch.float64)


def forward_of(theta):
    """A leaf's row for each row of the batch, found by its first id."""
    return lambda part: {
        "logp": theta[part["ids"][:, 1], : part["ids"].shape[1]] * part.mask,
        "entropy": theta[part["ids"][:, 1], : part["ids"].shape[1]].sin() * part.mask,
    }


def gradient(objective, batch, budget=10**6):
    theta = (
        torch.randn(5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) / 4 - 1
    ).requires_grad_()
    metrics = backward(forward_of(theta), objective, batch, budget)
    return theta.grad, float(metrics["loss"]), metrics


ROWS = st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=5)


@settings(max_examples=30)
@given(ROWS, st.sampled_from(REDUCTIONS), st.integers(0, 9))
def test_marked_and_unmarked_add_up(rows, reduce, seed):
    batch = mixed(*zip(*rows, strict=True), seed=seed)
    for f in (
        Clipped(reduce=reduce, length=7.0),
        Entropy(),
        KL("k3", reduce="tokens"),
        Shaped(reduce=reduce, length=7.0),
    ):
        whole, loss, metrics = gradient(f, batch)
        both, sum_, found = gradient(On("shown", f) + On("shown", f, absent=True), batch)
        assert sum_ == pytest.approx(loss, abs=1e-12)
        torch.testing.assert_close(both, whole)
        for k in set(metrics) - {"loss"}:  # shares of the whole's mean
            assert float(found[f"shown/{k}"] + found[f"not-shown/{k}"]) == pytest.approx(float(metrics[k]), abs=1e-9)


@settings(max_examples=30)
@given(ROWS, st.sampled_from(REDUCTIONS), st.booleans(), st.integers(1, 40))
def test_own_denominators_do_not_depend_on_the_split(rows, reduce, absent, budget):
    """Law 2, and by hand: the objective on those rows alone has the same gradient."""
    batch = mixed(*zip(*rows, strict=True))
    f = Clipped(reduce=reduce, length=7.0)
    on = On("shown", f, over="own", absent=absent)
    whole, loss, _ = gradient(on, batch)
    split, again, _ = gradient(on, batch, budget)
    torch.testing.assert_close(split, whole)
    assert again == pytest.approx(loss, abs=1e-12)
    kept = torch.tensor([b for b, (_, m) in enumerate(rows) if m != absent], dtype=torch.long)
    if not len(kept):
        assert loss == 0 and not whole.any()
        return
    alone, expected, _ = gradient(f, recount(batch.part(kept)))
    assert loss == pytest.approx(expected, abs=1e-12)
    torch.testing.assert_close(whole, alone)


def test_minibatches_have_totals_of_their_own():
    batch = mixed([2, 3, 4], [True, False, True])
    assert batch.totals == {"is:shown": (6, 2, 2), "not:shown": (3, 1, 1)}
    part = batch.part(torch.tensor([0, 1]))
    assert part.totals == batch.totals and recount(part).totals == {"is:shown": (2, 1, 1), "not:shown": (3, 1, 1)}


def test_tokens_of_a_row_may_be_marked():
    """Three tokens, the first marked: the losses of both parts add up over the batch, each over its own is its mean."""
    batch = mixed([3], [False])
    batch.columns["is:shown"][0, 1] = 1.0
    batch = recount(batch)
    assert batch.totals == {"is:shown": (1, 1, 1), "not:shown": (2, 1, 1)}
    out = {"logp": torch.tensor([[0.0, -1.0, -2.0, -4.0]], dtype=torch.float64)}
    nll = lambda **kw: float(On("shown", Imitation(), **kw)(out, batch)[0])
    assert [nll(), nll(absent=True)] == pytest.approx([1 / 3, 2.0])
    assert [nll(over="own"), nll(over="own", absent=True)] == pytest.approx([1.0, 3.0])


def test_samples_beside_demonstrations_have_a_finite_loss():
    """What is not acted on is not read: behaviour log-probs of demonstrations are unknown."""
    batch = mixed([2, 3, 2], [True, False, False], unknown=True)
    assert torch.isnan(gradient(Clipped(), batch)[0]).any()
    loss = On("shown", Shaped()) + On("shown", Clipped(), absent=True)
    grad, value, metrics = gradient(loss, batch)
    assert math.isfinite(value) and torch.isfinite(grad).all() and grad[:3].abs().sum(1).min() > 0
    assert set(metrics) == {"shown/shaped", "shown/probability", "not-shown/ratio", "not-shown/clipped",
                            "not-shown/kl_behaviour", "loss"}  # fmt: skip
    assert math.isfinite(gradient(loss, batch, budget=1)[1])


def test_a_far_away_reference_of_other_tokens_is_no_infinity():
    """k3 at log-probs of -800 is infinite, and infinity * 0 no number."""
    batch = mixed([1, 1], [True, False])
    theta = torch.tensor([[0.0, -800.0], [0.0, -1.0]], dtype=torch.float64, requires_grad=True)
    loss, _ = On("shown", KL("k3"), absent=True)(forward_of(theta)(batch), batch)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(theta.grad).all()


def test_a_fact_becomes_a_column():
    def episode(total, **facts):
        said = Segment(ids=(1, 2), trained=True, policy="policy", logp=(-1.0, -1.0))
        row = Row(segments=(Segment(ids=(0,)), said))
        return Episode(rows=(row,), reward=Reward(total=total), status="finished", facts=facts)

    group = Group(task=Task(id="t"), episodes=(episode(1.0, guided=0.5), episode(0.0), episode(0.0, guided=True)))
    found, _ = chain(Fact("guided"), Center("group"))([group], [], {})
    assert [e.columns["is:guided"].tolist() for e in found] == [[0, 0.5, 0.5], [0, 0, 0], [0, 1, 1]]
    assert found[0].columns["advantage"][1:] == pytest.approx([2 / 3] * 2)
    batch = pack(found)
    assert batch.totals["is:guided"] == (4, 2, 2)
    assert tracked_means(batch) == {"is:guided": pytest.approx((0.5 + 0.5 + 1 + 1) / 6)}
    with pytest.raises(UserError, match=r"Fact\('hinted'\)"):
        On("hinted", Clipped())({"logp": batch.mask}, batch)
    assert replace(batch, totals={}).n_tokens == 6
