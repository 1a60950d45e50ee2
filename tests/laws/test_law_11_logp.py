"""Law 11: log-probs of the engine and of the trainer agree to 1e-5 (float32, CPU), also right after an update, for plain and
tempered sampling; truncated sampling records the truncated distribution.

The mean over tokens agrees to 1e-5. Single tokens of small probability may differ by more: that is the error of float32 itself
against a float64 pass over the same tokens (4e-5 for SmolLM2).
"""

import asyncio
from dataclasses import replace

import pytest
import torch
from palaestra.engines.own import OwnEngine
from palaestra.engines.sampling import DrawSettings, draw, truncate
from palaestra.models.forward import forward
from palaestra.models.load import load
from palaestra.recipes.base import grpo
from palaestra.run.benches import bench_by_name
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.types import Example, Message, Reward, Row, Sampling, Segment
from palaestra.update import pack

from tests.models.test_models import build
from tests.rounding import MEAN, agree


def sampled(engine, sampling, n=12, seed=0):
    """A batch of n samples of three prompts with their recorded log-probs."""
    prompts = [("3+4*2-1 mod 10", "user"), ("hello", "user"), ("9*9 mod 10", "user")]
    heard = [engine.dialect.extend((Message(role=r, content=c),), first=True, closed=False) for c, r in prompts]
    return continued(engine, sampling, [tuple(i for p in pieces for i in p.ids) for pieces in heard], n, seed)


def continued(engine, sampling, ids, n, seed=0):
    """A batch of n samples that go on from these contexts in turn."""

    async def all_samples():
        return await asyncio.gather(*(engine.generate(ids[k % len(ids)], sampling, (seed, k)) for k in range(n)))

    rows = []
    for k, s in enumerate(asyncio.run(all_samples())):
        said = Segment(
            ids=s.ids, logp=s.logp, policy="policy", trained=True, temperature=sampling.temperature, version=0
        )
        rows.append(Row(segments=(Segment(ids=ids[k % len(ids)]), said)))
    return pack([Example(row=r, columns={}) for r in rows])


@torch.no_grad()
def gaps(model, batch):
    """Differences of recorded and recomputed log-probs at every sampled token."""
    out = forward(model, batch, ("logp",))["logp"]
    return (out - batch["behaviour_logp"]).abs()[batch.mask > 0]


def check_agreement(model, batch):
    """Within rounding (`tests/rounding.py`); the worst token of a few hundred below 1e-4 for SmolLM2."""
    found = gaps(model, batch)
    if model.name == "smollm2":
        assert float(found.mean()) < MEAN and float(found.max()) < 1e-4
    else:
        assert agree(found)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("name", ["tiny", "tiny-agent", pytest.param("smollm2", marks=[pytest.mark.smollm2])])
def test_engine_and_trainer_agree(name, temperature):
    engine = OwnEngine(load(name))
    check_agreement(engine.model, sampled(engine, Sampling(temperature=temperature, max_tokens=24)))


@pytest.mark.parametrize("kind", ["mistral", "gemma3_text"])
def test_a_window_bounds_the_context(kind):
    """Training has the window and sampling sees the whole past, so a sequence ends where the two would part."""
    model = build(kind, torch.float32, sliding_window=32)
    assert (model.context, model.positions, model.packs) == (32, 128, False)
    batch = sampled(OwnEngine(model), Sampling(max_tokens=60))
    assert int(batch["length"].max()) == 32
    check_agreement(model, batch)


def test_a_window_that_no_layer_has_binds_nothing():
    model = build("qwen3", sliding_window=32, layer_types=["full_attention"] * 2)
    assert model.context == 128


def test_also_right_after_an_update(context, small):
    recipe, ctx, state = small(grpo.build(), **{"optimiser.lr": 0.001}), context(), start(0)
    prepare(recipe, ctx)
    for n in range(3):
        state, _ = asyncio.run(step(recipe, ctx, state))
        check_agreement(ctx.model("policy"), sampled(ctx.engine(), Sampling(max_tokens=24), seed=n))


def test_what_was_sampled_from_before_an_update_is_read_anew(context, small):
    """The engine holds keys and values of the contexts of the step, which belong to the weights before it."""
    recipe, ctx = (
        small(grpo.build(), **{"optimiser.lr": 0.01}),
        context(bench=replace(bench_by_name("chain")[0], reward=by_length)),
    )
    prepare(recipe, ctx)
    _, metrics = asyncio.run(step(recipe, ctx, start(0)))
    assert metrics["updates"] == 1
    contexts = [e.rows[0].context()[:-1] for g in ctx.seen for e in g.episodes]
    check_agreement(ctx.model("policy"), continued(ctx.engine(), Sampling(max_tokens=8), contexts, len(contexts)))


async def by_length(ctx, group):
    return [Reward(total=float(e.n_sampled)) for e in group.episodes]


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_ratio_is_one_before_the_first_update(temperature, context, small):
    """A segment holds the temperature that training divides by."""
    recipe, ctx = small(grpo.build(), **{"collect.links.0.temperature": temperature}), context()
    prepare(recipe, ctx)
    _, metrics = asyncio.run(step(recipe, ctx, start(0)))
    assert metrics["ratio"] == pytest.approx(1.0, abs=1e-5)


def test_a_draw_belongs_to_its_sequence():
    """The same key gives the same tokens whatever else is in the batch."""
    engine = OwnEngine(load("tiny"))
    ids = tuple(engine.dialect.extend((Message(role="user", content="2+2 mod 10"),), first=True, closed=False)[0].ids)

    async def samples(keys):
        return await asyncio.gather(*(engine.generate(ids, Sampling(max_tokens=20), k) for k in keys))

    alone = asyncio.run(samples([("a", 1)]))[0]
    together = asyncio.run(samples([("b", i) for i in range(9)] + [("a", 1)]))[-1]
    assert (alone.ids, alone.logp) == (together.ids, together.logp)
    assert len({s.ids for s in asyncio.run(samples([("c", i) for i in range(16)]))}) > 1


def settings(n, **options):
    return DrawSettings.of([Sampling(max_tokens=1, **options)] * n, torch.device("cpu"))


def test_inverse_transform_draws_the_distribution():
    logits = torch.log(torch.tensor([[0.1, 0.2, 0.3, 0.4]]))
    n = 20_000
    uniform = (torch.arange(n) + 0.5) / n
    token, logp = draw(logits.expand(n, 4), uniform, settings(n))
    share = torch.bincount(token, minlength=4) / n
    assert torch.allclose(share, torch.tensor([0.1, 0.2, 0.3, 0.4]), atol=1e-3)
    assert torch.allclose(logp.exp(), logits[0].exp()[token], atol=1e-6)


@pytest.mark.parametrize("V", [3, 256, 257, 5000])
def test_a_draw_is_where_the_running_sum_passes_the_number(V):
    logits = 3 * torch.randn(1, V, generator=torch.Generator().manual_seed(V), dtype=torch.float64)
    logits[0, V // 2 :] = float("-inf")  # as after truncation: the last blocks hold nothing
    n = 4000
    uniform = torch.cat([(torch.arange(n) + 0.5) / n, torch.tensor([0.0, 1 - 1e-16, 1.0])]).double()
    token, _ = draw(logits.expand(len(uniform), V), uniform, settings(len(uniform)))
    expected = torch.searchsorted(torch.softmax(logits[0], -1).cumsum(-1), uniform[:n], right=True)
    assert float((token[:n] == expected).double().mean()) > 0.999  # but for ends of blocks, where the sums are rounded
    assert int(token.max()) < V // 2


def test_greedy_has_log_prob_zero():
    logits = torch.tensor([[1.0, 3.0, 2.0]])
    token, logp = draw(logits, torch.tensor([0.99]), settings(1, temperature=0.0))
    assert token.item() == 1 and logp.item() == 0


def test_truncation():
    """p = .5 .3 .15 .05: top-k 2 and top-p .8 keep two tokens, min-p .4 of the largest keeps two."""
    logp = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]]).repeat(3, 1))
    kept = truncate(logp, torch.tensor([2.0, 0, 0]), torch.tensor([1.0, 0.8, 1]), torch.tensor([0.0, 0, 0.4])).exp()
    assert torch.allclose(kept, torch.tensor([[0.625, 0.375, 0, 0]]).repeat(3, 1), atol=1e-6)
