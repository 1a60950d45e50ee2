"""What moves between two layouts: the least, from whom, and that nothing else arrives."""

from collections import Counter

import pytest
from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.planning.costs import gather_all_traffic, gather_model_traffic, grouped_traffic
from palaestra.planning.plan import Parallelism
from palaestra.planning.reallocation import (
    ModelSlot,
    bounds,
    cuts_of,
    fetches_of,
    generation_slots,
    passing_slots,
    pieces_of,
    reallocate,
    slots_of,
    strided_slots,
    transition,
)
from palaestra.scale.local_ranks import run_ranks

MODULE = load("tiny").module
SHARED = sum(weight.nbytes for _, weight, dim, _ in cuts_of(MODULE) if dim is not None)


def test_pieces_of_all_slots_are_the_model():
    """Each weight once, with sizes that no number of shards divides."""
    for stages, shards, cut in ((1, 3, 3), (2, 2, 4), (3, 1, 5)):
        parts = [pieces_of(MODULE, ModelSlot(s, stages, t, shards), cut) for s in range(stages) for t in range(shards)]
        assert sum(p.size for part in parts for p in part if p.shared) == SHARED
        assert set().union(*parts) == pieces_of(MODULE, ModelSlot(), cut)
    assert [bounds(7, i, 3) for i in range(3)] == [(0, 2), (2, 4), (4, 7)]


@pytest.mark.parametrize(
    ("train", "to"), [((1, 4, 2), (1, 2)), ((2, 2, 1), (1, 2)), ((2, 4, 1), (1, 2)), ((4, 2, 1), (2, 1))]
)
def test_ranks_at_stride_receive_what_the_paper_says(train, to):
    """(tp - t_g p_g) / (t_g p_g t p) on average, twice nothing; a replica and all ranks gather by their formulas."""
    p, t, d = train
    layout, cut = Parallelism(pipeline=p, tensor=t, data=d), p * t * d
    expected = {
        "grouped": grouped_traffic(p, t, *to), "model group": gather_model_traffic(p, t),
        "all ranks": gather_all_traffic(p, t, d),
    }  # fmt: skip
    for way, share in expected.items():
        before, gather = passing_slots(way, layout)
        held = {r: pieces_of(MODULE, slot, cut) for r, slot in before.items()}
        after = {r: pieces_of(MODULE, slot, cut) for r, slot in generation_slots(way, layout, *to).items()}
        wanted = dict.fromkeys(held, pieces_of(MODULE, ModelSlot(), cut)) if gather else after
        received = sum(f.piece.size for f in fetches_of(held, wanted, 8) if f.piece.shared)
        assert received / len(held) / SHARED == pytest.approx(share)
        twice = sum(p.size for r in held for p in held[r] - after[r] if p.shared)
        assert twice == 0 or way != "grouped"


def test_a_group_at_stride_generates_with_its_own_shards():
    """t = 4, t_g = 2: pairs {0, 2} and {1, 3}; neighbours are {0, 1} and {2, 3}."""
    slots = strided_slots(Parallelism(tensor=4), 1, 2)
    assert [slots[r].shard for r in range(4)] == [0, 0, 1, 1]
    beside = generation_slots("model group", Parallelism(tensor=4), 1, 2)
    assert [beside[r].shard for r in range(4)] == [0, 1, 0, 1]
    with pytest.raises(UserError, match="divides the training layout"):
        strided_slots(Parallelism(tensor=4), 1, 3)
    with pytest.raises(UserError, match="takes 4 ranks, not 3"):
        slots_of(Parallelism(data=2, tensor=2), range(3))


def test_pieces_come_from_the_own_node_and_from_all_who_have_them():
    """Ranks 0 to 3 on one node, 4 to 7 on the other: 0, 1, 4 and 5 hold the model, and half of the rest each is sent
    by those of the own node.
    """
    whole = pieces_of(MODULE, ModelSlot(), 2)
    fetches = fetches_of(dict.fromkeys((0, 1, 4, 5), whole), dict.fromkeys((2, 3, 6, 7), whole), 4)
    assert all(f.source // 4 == f.rank // 4 for f in fetches)
    sent = Counter({r: sum(f.piece.size for f in fetches if f.source == r) for r in (0, 1, 4, 5)})
    assert sent.total() == 4 * sum(p.size for p in whole) and max(sent.values()) < 1.1 * min(sent.values())
    with pytest.raises(UserError, match="no rank holds"):
        fetches_of({0: set()}, {1: whole}, 4)


def reallocate_spoilt(world, *given):
    """As `reallocate`, but rank 0 sends what is not the model's."""
    from palaestra.planning import reallocation

    real, spoil = reallocation.exchange, world.get_rank() == 0
    reallocation.exchange = lambda rank, fetches, own, like: real(
        rank, fetches, {k: v + 1 if spoil else v for k, v in own.items()}, like
    )
    return reallocation.reallocate(world, *given)


@pytest.mark.slow
@pytest.mark.parametrize(("work", "differs"), [(reallocate, False), (reallocate_spoilt, True)])
def test_processes_move_a_model_and_compare_every_tensor(work, differs):
    """Two stages on ranks 0 and 1, both weights in two shards on ranks 1 and 2."""
    before = slots_of(Parallelism(pipeline=2), [0, 1])
    after = slots_of(Parallelism(tensor=2), [1, 2])
    moved = [each for (each,) in run_ranks(3, work, "tiny", [(before, after, False)], 8)]
    found = transition(moved)
    assert (found["different"] > 0) == differs
    assert found["tensors"] == 2 * len(list(MODULE.parameters())) and moved[0].received == 0
    assert moved[2].received == pytest.approx(SHARED / 2, rel=0.01) and moved[2].arrived != 0
