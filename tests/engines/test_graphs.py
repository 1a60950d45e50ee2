"""Steps that are replayed at fixed addresses give what steps give. What a CUDA graph does is played on the processor: a replay
uses the addresses of its capture, and leaves its result in one place. Where a GPU is at hand, the graphs are real."""

import logging

import numpy as np
import pytest
import torch
from palaestra.engines.graphs import REACH, Graphs, rows
from palaestra.engines.own import OwnEngine
from palaestra.models.load import load

from tests.engines.test_engine import ask, prompts_of, right


@pytest.fixture(scope="module")
def model():
    return load("tiny")


class Played:
    """Stands in for `cuda_graphs`."""

    def __init__(self, engine):
        self.engine, self.captures, self.replays = engine, 0, 0

    def rooms(self):
        cache = self.engine.decoder.cache
        return [(room.data_ptr(), room.shape) for room in (*cache.keys, *cache.values)]

    def __call__(self, work):
        self.captures += 1
        work()
        captured = self.rooms()

        def replay():
            assert self.rooms() == captured, "a graph reads and writes where the cache no longer is"
            self.replays += 1
            work()

        return replay


def graphed(model, **options):
    engine = OwnEngine(model, **options)
    if model.device.type == "cuda":
        return engine, engine.decoder.graphs
    played = Played(engine)
    engine.decoder.graphs = Graphs(lambda: played)
    return engine, played


@pytest.mark.parametrize("slots", [3, 5, 64])
def test_replayed_steps_are_steps(model, slots):
    """Rounded rows fill up with slots that hold ended sequences, and harm none of these: next turns go on from them."""
    rng = np.random.default_rng(0)
    engine, _ = graphed(model, slots=slots)
    prompts = [p[: 20 + 3 * (i % 7)] for i, p in enumerate(prompts_of(rng, 9, 50))]
    for turn in range(3):
        samples = ask(engine, prompts, max_tokens=15)
        right(model, prompts, samples)
        assert [s.ids for s in samples] == [s.ids for s in ask(OwnEngine(model), prompts, max_tokens=15)]
        prompts = [
            (*p, *s.ids, *h) for p, s, h in zip(prompts, samples, prompts_of(rng, 9, 5 + 20 * turn), strict=True)
        ]
    assert engine.reused_tokens or slots < len(prompts)


def test_few_captures_serve_many_steps(model):
    engine, played = graphed(model)
    if not isinstance(played, Played):
        pytest.skip("counts captures of the stand-in")
    prompts = prompts_of(np.random.default_rng(1), 8, 30)
    ask(engine, prompts, max_tokens=60)
    assert played.captures <= 6 and played.replays > 40


def test_a_cache_that_is_dropped_takes_its_graphs_with_it():
    model = load("tiny")
    engine, _ = graphed(model)
    prompts = prompts_of(np.random.default_rng(2), 4, 30)
    ask(engine, prompts)
    with torch.no_grad():
        for p in model.module.parameters():
            p.mul_(1.05)
    engine.forget()
    assert not engine.decoder.graphs._made  # nor is their memory held while the weights move
    right(model, prompts, ask(engine, prompts))


@torch.no_grad()
def test_a_replay_harms_no_other_slot_and_sees_all_that_came_before(model):
    """Three rows in a graph of four, after four: what the fourth slot holds by now stays. Steps go past REACH columns."""
    decoder = graphed(model)[0].decoder
    ids = np.random.default_rng(4).integers(1, 200, (4, REACH + 8)).tolist()
    logits = model.logits(model.hidden(torch.tensor(ids)))
    decoder.cache.reserve(4, REACH + 8, 4)
    decoder.extend(0, [row[: REACH - 8] for row in ids], [0] * 4)
    for at in range(REACH - 8, REACH + 7):
        n = 4 if at < REACH - 4 else 3
        if at == REACH - 4:
            decoder.cache.copy([3], [0], at)
        before = [room[3, :, :-1].clone() for room in (*decoder.cache.keys, *decoder.cache.values)]
        found = decoder.step([row[at] for row in ids[:n]], [at] * n)
        torch.testing.assert_close(found, logits[:n, at], atol=1e-4, rtol=1e-4)
        after = [room[3, :, :-1] for room in (*decoder.cache.keys, *decoder.cache.values)]
        assert n == 4 or all(map(torch.equal, before, after))
    assert set(decoder.graphs._made) == {(4, REACH), (4, decoder.cache.length)}
    decoder.cache.reserve(8, 0, 4)  # for others that enter: keys and values lie elsewhere, at the same length
    found = decoder.step([row[-1] for row in ids[:3]], [REACH + 7] * 3)
    torch.testing.assert_close(found, logits[:3, -1], atol=1e-4, rtol=1e-4)


def test_a_model_that_cannot_be_captured_goes_on_step_by_step(model, caplog):
    def refuses(work):
        raise RuntimeError("operation not permitted when stream is capturing")

    engine = OwnEngine(model)
    engine.decoder.graphs = Graphs(lambda: refuses)
    prompts = prompts_of(np.random.default_rng(3), 4, 30)
    with caplog.at_level(logging.WARNING):
        right(model, prompts, ask(engine, prompts))
    assert len(caplog.records) == 1 and "tiny cannot be captured" in caplog.text


def test_rows_are_rounded_up():
    assert [rows(n) for n in (1, 2, 3, 9, 32, 33, 64, 65, 256)] == [1, 2, 4, 16, 32, 64, 64, 96, 256]
