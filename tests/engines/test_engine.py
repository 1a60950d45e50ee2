"""The engine gives what a plain loop gives, whatever it reuses, however it batches."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from palaestra.engines.own import OwnEngine
from palaestra.engines.prefix import BLOCK, Prefixes
from palaestra.models.load import load
from palaestra.types import Message, Sampling


@pytest.fixture(scope="module")
def model():
    return load("tiny")


def ask(engine, prompts, max_tokens=12, temperature=1.0, **more):
    async def run():
        sampling = Sampling(max_tokens=max_tokens, temperature=temperature, **more)
        return await asyncio.gather(*(engine.generate(p, sampling, ("draw", i)) for i, p in enumerate(prompts)))

    return asyncio.run(run())


@torch.no_grad()
def plain(model, prompt, ids):
    """Log-probs of a continuation, one forward pass without any cache."""
    logits = model.logits(model.hidden(torch.tensor([[*prompt, *ids]]))[0]).log_softmax(-1)
    return logits[len(prompt) - 1 : -1].gather(1, torch.tensor(ids)[:, None])[:, 0]


def prompts_of(rng, n, length):
    return [tuple(int(t) for t in rng.integers(1, 200, length)) for _ in range(n)]


def right(model, prompts, samples):
    for p, s in zip(prompts, samples, strict=True):
        np.testing.assert_allclose(s.logp, plain(model, p, s.ids), atol=1e-4)


@pytest.mark.parametrize("slots", [1, 3, 64])
def test_samples_are_those_of_a_plain_loop(model, slots):
    rng = np.random.default_rng(0)
    prompts = [p[: 5 + 3 * (i % 7)] for i, p in enumerate(prompts_of(rng, 12, 40))]
    prompts += prompts[:4]
    engine = OwnEngine(model, slots=slots)
    samples = ask(engine, prompts)
    right(model, prompts, samples)
    assert [s.ids for s in samples] == [s.ids for s in ask(OwnEngine(model, slots=64), prompts)]


def spelt(ids):
    """Three letters a token."""
    return "".join(f"{i:03d}" for i in ids)


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_a_stop_string_ends_the_sample_where_it_is_complete(model, n):
    """Of `n` letters, it may begin and end inside tokens: the tokens stay whole, the text is cut. The end token is no text."""
    rng = np.random.default_rng(9)
    prompts = prompts_of(rng, 8, 20)
    engine = OwnEngine(model)
    engine.dialect = SimpleNamespace(decode=spelt)
    whole = ask(engine, prompts, max_tokens=30)
    text = "".join(s.text for s in whole)
    at = len(text) // 9 * 3
    stop = text[at : at + n], text[at + 1 : at + 1 + n]  # two letters end twice in one token
    samples = ask(engine, prompts, max_tokens=30, stop=stop)
    assert {s.finish for s in samples} >= {"stop"} and {s.finish for s in whole} == {"eos", "length"}
    for sample, free in zip(samples, whole, strict=True):
        said = free.ids[:-1] if free.finish == "eos" else free.ids
        assert free.text == spelt(said) and free.cut == len(free.text)
        ended = next((k for k in range(1, len(said) + 1) if any(s in spelt(said[:k]) for s in stop)), None)
        if ended is None:
            assert (sample.ids, sample.text, sample.cut, sample.finish) == (free.ids, free.text, free.cut, free.finish)
            continue
        found = spelt(said[:ended])
        assert (sample.ids, sample.text, sample.finish) == (said[:ended], found, "stop")
        assert sample.cut == min(found.find(s) + n for s in stop if s in found)
    assert n > 2 or any(s.cut < len(s.text) for s in samples)


@pytest.mark.parametrize("options", [{"top_k": 3}, {"top_p": 0.6}, {"min_p": 0.2}, {}])
def test_a_distribution_of_its_own_beside_others(model, options):
    """What is drawn with other settings in the same batch changes nothing, and the log-prob is that of what was drawn from."""
    engine, options = OwnEngine(model), options | {"temperature": 2.0}
    asked = engine.dialect.extend((Message(role="user", content="3+4*2-1 mod 10"),), first=True, closed=False)
    prompt = tuple(i for piece in asked for i in piece.ids)

    async def run(*asked):
        return await asyncio.gather(
            *(engine.generate(prompt, Sampling(max_tokens=12 - 3 * i, **o), ("draw", i)) for i, o in asked)
        )

    asked = tuple(enumerate(({}, options, {"temperature": 0.0}, options)))
    mixed = asyncio.run(run(*asked))
    for i, o in asked:
        (alone,) = asyncio.run(run((i, o)))
        assert mixed[i].ids == alone.ids and mixed[i].logp == pytest.approx(alone.logp, abs=1e-4)
    greedy = mixed[2]
    for sample in (mixed[1], mixed[3]):
        with torch.no_grad():
            logits = model.logits(model.hidden(torch.tensor([[*prompt, *sample.ids]]))[0])[len(prompt) - 1 : -1]
        for i, lp, row in zip(sample.ids, sample.logp, (logits / 2).softmax(-1), strict=True):
            order = row.argsort(descending=True).tolist()
            above = [float(row[order[:k]].sum()) for k in range(len(order))]
            kept = [
                t
                for k, t in enumerate(order)
                if k < options.get("top_k", 1 << 30)
                and above[k] < options.get("top_p", 1.0)
                and row[t] >= options.get("min_p", 0.0) * row[order[0]]
            ]
            assert i in kept and lp == pytest.approx(float((row[i] / row[kept].sum()).log()), abs=1e-4)
    assert greedy.logp == (0.0,) * len(greedy.ids)


def test_next_turns_go_on_from_what_is_held(model):
    """Nothing of the history is read again but the last token, in any number of turns."""
    rng = np.random.default_rng(1)
    engine = OwnEngine(model)
    prompts = prompts_of(rng, 6, 30)
    for _ in range(4):
        before = engine.read_tokens
        samples = ask(engine, prompts)
        right(model, prompts, samples)
        heard = prompts_of(rng, 6, 5)
        prompts = [(*p, *s.ids, *h) for p, s, h in zip(prompts, samples, heard, strict=True)]
    assert engine.read_tokens - before == 6 * (5 + 1)


@pytest.mark.parametrize("slots", [4, 64])
def test_turns_that_begin_while_others_run_go_on_from_their_own(model, slots):
    """Whoever ends makes room among those who run; a next turn, or another one from the same start, comes back to it."""
    rng = np.random.default_rng(11)
    engine, asked, limits = OwnEngine(model, slots=slots), [], rng.integers(1, 25, (6, 5))
    starts, heard = prompts_of(rng, 6, 24), prompts_of(rng, 30, 3)

    async def talk(i):
        prompt = starts[i]
        for turn, limit in enumerate(limits[i]):
            sample = await engine.generate(prompt, Sampling(max_tokens=int(limit)), (i, turn))
            asked.append((prompt, sample))
            prompt = (*(starts[i] if turn == 2 else (*prompt, *sample.ids)), *heard[5 * i + turn])

    async def run():
        await asyncio.gather(*map(talk, range(6)))

    asyncio.run(run())
    right(model, *zip(*asked, strict=True))
    assert slots < 6 or engine.reused_tokens > 6 * 24


def test_returning_one_by_one_loses_nothing(model):
    rng = np.random.default_rng(2)
    engine = OwnEngine(model, slots=16)
    prompts = prompts_of(rng, 6, 30)
    samples = ask(engine, prompts)
    prompts = [(*p, *s.ids, 7) for p, s in zip(prompts, samples, strict=True)]
    ask(engine, prompts_of(rng, 3, 4))  # short ones, in whose place long ones are held
    before = engine.read_tokens
    for p in reversed(prompts):
        right(model, [p], ask(engine, [p]))
    assert engine.read_tokens - before == 6 * 2


def test_forks_share_their_prefix(model):
    """Branches of one sequence, at several tokens, together and with fresh prompts between them."""
    rng = np.random.default_rng(3)
    engine = OwnEngine(model)
    (root,) = prompts_of(rng, 1, 40)
    ask(engine, [root])
    before = engine.read_tokens
    forks = [(*root[:n], *p) for n, p in zip((20, 33, 39, 40, 25), prompts_of(rng, 5, 4), strict=True)]
    fresh = prompts_of(rng, 3, 10)
    mixed = [forks[0], fresh[0], forks[1], forks[2], fresh[1], forks[3], forks[4], fresh[2]]
    right(model, mixed, ask(engine, mixed))
    assert engine.read_tokens - before == 5 * 4 + 3 * 10


def test_a_full_cache_forgets_what_it_must(model):
    rng = np.random.default_rng(4)
    engine = OwnEngine(model, slots=4)
    prompts = prompts_of(rng, 9, 25)
    for _ in range(3):
        samples = ask(engine, prompts, max_tokens=20)
        right(model, prompts, samples)
        prompts = [(*p, *s.ids, 5) for p, s in zip(prompts, samples, strict=True)]
    assert engine.decoder.cache.slots <= 4


def test_moved_weights_make_the_cache_worthless():
    model = load("tiny")
    rng = np.random.default_rng(5)
    engine = OwnEngine(model)
    prompts = prompts_of(rng, 4, 30)
    ask(engine, prompts)
    with torch.no_grad():
        for p in model.module.parameters():
            p.mul_(1.05)
    engine.forget()
    assert engine.decoder.cache.slots == 0  # nor does it hold memory while the weights move
    right(model, prompts, ask(engine, prompts))


def test_prefixes_are_compared_not_only_hashed():
    index = Prefixes()
    ids = tuple(range(50))
    index.hold(3, ids)
    assert index.longest(ids) == (index.by_slot[3], 49)  # one is left to compute
    assert index.longest((*ids[:20], 99, 98)) == (index.by_slot[3], 20)
    assert index.longest((*ids[: BLOCK - 1], 99)) == (None, 0)
    index.exchange(3, 8)
    assert index.longest(ids)[0] is index.by_slot[8]
    index.hold(1, (*ids[:BLOCK], 99))
    assert index.longest(ids) == (index.by_slot[8], 49)  # the longest, not the last
    index.hold(8, (1, 2))
    assert index.longest(ids) == (index.by_slot[1], BLOCK)
    index.release(1)
    assert index.longest(ids) == (None, 0) and not index._by_hash


def test_memory_bounds_the_sequences_that_run(model):
    rng = np.random.default_rng(6)
    prompts = prompts_of(rng, 20, 40)
    engine = OwnEngine(model)
    size = engine.decoder.token_bytes * 64
    engine.cache_mb = 0
    assert engine._most(64) == 1
    engine = OwnEngine(model, cache_mb=1)
    samples = ask(engine, prompts, max_tokens=20)
    right(model, prompts, samples)
    held = sum(t.numel() * t.element_size() for t in (*engine.decoder.cache.keys, *engine.decoder.cache.values))
    assert held == engine.decoder.cache.slots * size <= 1 << 20
    long = prompts_of(rng, 5, 300)
    right(model, long, ask(engine, long, max_tokens=20))
    again = [
        (*p, *s.ids, 5) for p, s in zip(prompts[-9:], samples[-9:], strict=True)
    ]  # of slots there was no longer room for
    right(model, again, ask(engine, again, max_tokens=2))
    held = sum(t.numel() * t.element_size() for t in (*engine.decoder.cache.keys, *engine.decoder.cache.values))
    assert held <= 1 << 20


async def under_way(engine, prompt, key=("long",)):
    """A request that has sampled some tokens and has many to go."""
    asked = asyncio.create_task(engine.generate(prompt, Sampling(max_tokens=200), key))
    while not engine._running or len(engine._running[0].ids) < 30:
        await asyncio.sleep(0)
    return asked


def moves(model, engine):
    """A step of a fused optimiser, which torch's count of writes misses."""
    engine.forget()
    optimiser = torch.optim.SGD(model.trainable(), lr=1.0, fused=True)
    for p in model.trainable():
        p.grad = 0.05 * p.detach()
    optimiser.step()


@pytest.mark.parametrize("end", ["called off", "answered"])
def test_what_runs_while_weights_move_leaves_nothing_behind(end):
    model = load("tiny")
    engine = OwnEngine(model)
    engine.decoder.linears.linears = [m for m in model.module.modules() if type(m) is torch.nn.Linear]
    (prompt,) = prompts_of(np.random.default_rng(7), 1, 30)

    async def run():
        asked = await under_way(engine, prompt)
        if end == "called off":
            asked.cancel()
            moves(model, engine)
            assert engine.decoder.cache.slots == 0
        else:
            moves(model, engine)
        await asyncio.wait([asked])

    asyncio.run(run())
    right(model, [prompt], ask(engine, [prompt]))


def test_nobody_works_for_those_who_have_gone(model):
    """Neither on what runs nor on what waits."""
    engine = OwnEngine(model, slots=1)
    first, second, third = prompts_of(np.random.default_rng(8), 3, 30)

    async def run():
        asked = await under_way(engine, first), asyncio.create_task(engine.generate(second, Sampling(), ("b",)))
        await asyncio.sleep(0)
        for task in asked:
            task.cancel()
        before = engine.sampled_tokens
        sample = await engine.generate(third, Sampling(max_tokens=5), ("c",))
        assert engine.sampled_tokens - before <= len(sample.ids) + 1 and not engine.busy
        return sample

    right(model, [third], [asyncio.run(run())])
    assert engine.read_tokens == 60


@pytest.mark.parametrize("fails", ["extend", "copy", "step"])
def test_an_error_reaches_everybody_who_asks(model, fails, monkeypatch):
    """One runs, some are being read, one waits: nobody is left to wait for ever, and what was half written is held by nobody."""
    engine = OwnEngine(model, slots=4)
    first, second, third = prompts_of(np.random.default_rng(10), 3, 30)
    ask(engine, [second])

    def full(*args):
        raise RuntimeError("out of memory")

    async def run():
        asked = [await under_way(engine, first)]
        monkeypatch.setattr(engine.decoder.cache if fails == "copy" else engine.decoder, fails, full)
        later = (engine.generate(p, Sampling(), ("more", i)) for i, p in enumerate((second, second, third, third)))
        return await asyncio.wait_for(asyncio.gather(*asked, *later, return_exceptions=True), 20)

    assert {str(e) for e in asyncio.run(run())} == {"out of memory"} and not engine.busy
    monkeypatch.undo()
    right(model, [first, second, third], ask(engine, [first, second, third]))
