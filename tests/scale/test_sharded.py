"""How the parts of a batch are dealt to ranks, and what a model that is cut into slices says of them."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from palaestra.models.forward import forward
from palaestra.models.inside import attention
from palaestra.models.load import frozen_copy, load
from palaestra.models.model import trainable_copy
from palaestra.recipes.base import grpo
from palaestra.scale import sharded as room
from palaestra.scale.local_ranks import run_ranks
from palaestra.scale.sharded import ShardedModel, Turn, deal
from palaestra.values import override
from torch.distributed.tensor import DTensor

from tests.shards import cases_of, model_of, store, stored

NEEDS = ("logp", "entropy", "waad:10", "fai:4:8")


def test_the_dearest_part_goes_to_the_rank_that_has_least():
    """5 | 4, then 3 to the second rank, 2 to the first (5 + 2 = 4 + 3), and 1 to the first; the second gets a ghost."""
    assert deal([1, 2, 3, 4, 5], 2) == [
        [Turn(4, False), Turn(1, False), Turn(0, False)],
        [Turn(3, False), Turn(2, False), Turn(0, True)],
    ]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(1, 6))
def test_every_part_is_dealt_once_and_hands_are_equally_long(cost, ranks):
    hands = deal(cost, ranks)
    assert len(hands) == ranks and len({len(h) for h in hands}) == 1
    assert sorted(t.part for hand in hands for t in hand if not t.ghost) == list(range(len(cost)))
    ghosts = {t.part for hand in hands for t in hand if t.ghost}
    assert all(cost[i] == min(cost) for i in ghosts)


def say(mesh, path):
    """What each part is said to be, by slices and in one process; parts of 1, 1 and 4 rows, so that a rank whose attention
    maps are made row by row has other numbers of them than the next."""
    attention.NUMBERS = 1
    (case,), plain = stored(path), model_of(())
    parts = [torch.tensor([0]), torch.tensor([1]), torch.arange(2, 6)]
    sharded = ShardedModel(frozen_copy(plain), mesh)
    mine = sharded.outputs(NEEDS, case.batch, parts)
    with torch.no_grad():
        theirs = [{k: v.numpy() for k, v in forward(plain, case.batch.part(p), NEEDS).items()} for p in parts]
    local = sum(p.to_local().numel() for p in sharded.model.module.parameters())
    return all(np.array_equal(a[k], b[k]) for a, b in zip(mine, theirs, strict=True) for k in NEEDS), local


def widened(mesh, _):
    """Of each module, when it is cut: whole weights of the model in float32, and the module's own that are whole."""
    model, seen, cut = trainable_copy(load("tiny", dtype="bfloat16")), [], room.fully_shard
    whole = lambda parameters: [p for p in parameters if not isinstance(p, DTensor)]

    def watch(module, **how):
        wide = [p for p in whole(model.module.parameters()) if p.dtype == torch.float32]
        seen.append((sum(p.numel() for p in wide), sum(p.numel() for p in whole(module.parameters()))))
        return cut(module, **how)

    room.fully_shard = watch
    room.shard(model, mesh)
    kept = {p.dtype for p in model.trainable()}
    return seen, kept == {torch.float32}


def test_no_more_than_the_module_that_is_cut_is_whole_in_float32(tmp_path):
    for seen, kept in run_ranks(2, widened, tmp_path):
        assert len(seen) > 3 and all(wide == own > 0 for wide, own in seen) and kept
        assert max(own for _, own in seen) < sum(own for _, own in seen) / 2


def test_slices_say_what_the_whole_says(tmp_path):
    cases = cases_of("grpo", override(override(grpo.build(), "schedule.prompts", 2), "collect.links.0.n", 4))
    said = run_ranks(2, say, store(tmp_path / "case", cases))
    assert all(same for same, _ in said)
    assert sum(held for _, held in said) == model_of(()).n_parameters
