"""Cost formulas against the numbers that their papers' examples come to."""

import pytest
from palaestra.errors import UserError
from palaestra.planning.costs import (
    Fetch,
    balanced_pools,
    best_split,
    broadcast_seconds,
    capacity,
    colocated_seconds,
    fetches,
    gather_all_traffic,
    gather_model_traffic,
    generation_seconds,
    grouped_traffic,
    pipeline_seconds,
    reallocation_seconds,
    separate_seconds,
)


def test_llamarl_splits_sixteen_devices():
    assert colocated_seconds(64, 48, 16) == 7.0
    assert colocated_seconds(40, 48, 16) == 5.5  # with less memory pressure, split at will
    found = best_split(40, 48, 16)
    assert (found.sampling, found.learning) == (7, 9)
    assert found.seconds == pytest.approx(5.714, abs=5e-4)
    assert separate_seconds(40, 48, 8, 8) == 6.0
    assert 7.0 / found.seconds == pytest.approx(1.225)
    with pytest.raises(UserError, match="at least 2 devices"):
        best_split(1, 1, 1)


@pytest.mark.parametrize("devices", [2, 3, 7, 16])
@pytest.mark.parametrize("sample, learn", [(1, 1), (64, 48), (3, 100)])
def test_mechanism_check_llamarl_separate_devices_gain_nothing_from_equal_work(sample, learn, devices):
    """Strictly faster needs work that is cheaper on devices of its own, which is the paper's assumption."""
    together = colocated_seconds(sample, learn, devices)
    assert best_split(sample, learn, devices).seconds >= together * (1 - 1e-12)
    assert best_split(0.4 * sample, 0.4 * sample, 2).seconds < colocated_seconds(sample, sample, 2)


@pytest.mark.parametrize(
    ("layout", "to", "fractions"),
    [((1, 4, 2), (1, 2), (7 / 8, 3 / 4, 1 / 4)), ((1, 8, 2), (1, 2), (0.9375, 0.875, 0.375))],
)
def test_hybridflow_traffic(layout, to, fractions):
    found = gather_all_traffic(*layout), gather_model_traffic(*layout[:2]), grouped_traffic(*layout[:2], *to)
    assert found == pytest.approx(fractions)


def test_hybridflow_gigabytes():
    found = [140 * f for f in (gather_all_traffic(1, 4, 2), gather_model_traffic(1, 4), grouped_traffic(1, 4, 1, 2))]
    assert found == pytest.approx([122.5, 105, 35])


def test_who_fetches_what_from_four_to_two():
    assert fetches(4, 2) == [
        Fetch(rank=0, shard=1, source=1),
        Fetch(rank=1, shard=0, source=0),
        Fetch(rank=2, shard=3, source=3),
        Fetch(rank=3, shard=2, source=2),
    ]


@pytest.mark.parametrize(("tensor", "to"), [(4, 1), (4, 2), (4, 4), (8, 2), (12, 3)])
def test_fetches_move_what_the_formula_says(tensor, to):
    found = fetches(tensor, to)
    for rank in range(tensor):
        assert sum(f.rank == rank for f in found) / tensor == pytest.approx(grouped_traffic(1, tensor, 1, to))
        mine = {f.shard for f in found if f.rank == rank} | {rank}
        assert len(mine) == tensor // to and rank in mine
        # the ranks of one generation group, at stride, hold the whole model between them
        group = range(rank % (tensor // to), tensor, tensor // to)
        whole = {f.shard for f in found if f.rank in group} | set(group)
        assert whole == set(range(tensor))
    with pytest.raises(UserError, match="does not divide"):
        fetches(4, 3)


def test_realhf_broadcast_and_pipeline():
    assert broadcast_seconds(6.87e9) == pytest.approx(0.0569, abs=5e-5)
    assert broadcast_seconds(6.87e9, nodes=2) == pytest.approx(1.0237, abs=5e-5)
    assert reallocation_seconds(6.87e9, interval_sets=2) == pytest.approx(0.0569 + 0.06, abs=5e-5)
    assert pipeline_seconds(2.0, stages=4, micro_batches=8) == 22.0
    assert generation_seconds(1.0, 0.5, tokens=11, micro_batches=2) == 11.0


@pytest.mark.parametrize(
    ("counts", "free"), [((0, 0, 0), 128), ((0, 600, 40), 0), ((1, 640, 0), 128), ((0, 650, 40), 0)]
)
def test_asearcher_admits(counts, free):
    assert capacity(*counts, batch=128, eta=4, concurrent=128) == free


def test_pools_have_equal_service_times():
    assert balanced_pools({"rollout": 60.0, "learner": 20.0, "judge": 10.0}, 9) == {
        "rollout": 6,
        "learner": 2,
        "judge": 1,
    }
    pools = balanced_pools({"rollout": 40.0, "learner": 48.0}, 16)
    assert (pools["rollout"], pools["learner"]) == (7, 9)  # as LlamaRL's split
    with pytest.raises(UserError, match="3 roles need"):
        balanced_pools({"a": 1.0, "b": 1.0, "c": 1.0}, 2)
