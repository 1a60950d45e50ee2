"""Estimated seconds and memory of calls, by hand."""

import pytest
from palaestra.planning.dataflows import DATAFLOWS, calls_of
from palaestra.planning.estimate import DecoderSize, Device, Workload, moves_of, option_of, options_of, pass_seconds
from palaestra.planning.plan import CallOption, Parallelism, check_graph

SMALL = DecoderSize(parameters=8e9, layers=4, hidden=1000, key_values=500)
DEVICE = Device(flops=1e14, memory=1e12, layer=0.0, latency=0.0, per_node=2)
WORK = Workload(sequences=8, prompt=100, answer=100, minibatches=1)
ONE, BOTH, ACROSS = (frozenset(range(n)) for n in (1, 2, 4))


def test_a_layer_takes_its_arithmetic_or_its_reading():
    assert pass_seconds(SMALL, DEVICE, 1, 1) == pytest.approx(2 * 2e9 / 1e12)  # 2e9 weights of 2 bytes
    assert pass_seconds(SMALL, DEVICE, 1, 10_000) == pytest.approx(2 * 2e9 * 1e4 / 1e14)
    assert pass_seconds(SMALL, DEVICE, 1, 1, context=1e6) == pytest.approx(2 * (2e9 + 5e8) / 1e12)
    # two ranks: half of each, and two sums of 2 (t - 1) / t x 2 bytes x 1000 x tokens at 1800 Gb/s
    sums = 2 * 2 * 0.5 * 2 * 1000 * 1e4 / (1800 * 2**30 / 8)
    assert pass_seconds(SMALL, DEVICE, 2, 10_000) == pytest.approx(2 * 2e9 * 1e4 / 2e14 + sums)


def test_calls_of_one_device():
    at = lambda kind: option_of(kind, SMALL, WORK, DEVICE, ONE, Parallelism())
    forward = 4 * 2 * 2e9 * 1600 / 1e14  # 8 sequences of 200 tokens
    assert at("inference").seconds == pytest.approx(forward)
    assert at("inference").static_gb == 16
    train = at("train")
    assert train.static_gb == 8 * 18 and train.seconds == pytest.approx(
        4 * 1.5 * 2 * forward / 2 / 1.5 + 8e9 * 18 / 1e12
    )
    generate = at("generate")
    decode = 4 * 2 * (2e9 + 500 * 8 * 150) / 1e12
    assert generate.seconds == pytest.approx(4 * 2 * 2e9 * 800 / 1e14 + 99 * decode)
    assert generate.active_gb == pytest.approx(2 * 8 * 200 * 500 * 4 / 1e9)


def test_options_fit_and_tensor_groups_stay_in_a_node():
    found = options_of("train", SMALL, WORK, DEVICE, 2)
    assert found and all(o.static_gb + o.active_gb <= 80 and o.layout.tensor <= 2 for o in found)
    assert {len(o.mesh) for o in found} == {2, 4}, "144 GB do not fit one device"


def test_moves_within_and_between_nodes():
    moves = moves_of({"actor": SMALL}, DEVICE)
    at = lambda mesh: CallOption(mesh=mesh, layout=Parallelism(), seconds=0.0)
    gigabits = 16 * 8e9 / 2**30
    assert moves("actor", at(BOTH), at(ONE)) == pytest.approx(gigabits / 1800 + 0.03)
    assert moves("actor", at(BOTH), at(ACROSS)) == pytest.approx(gigabits / 200 + 0.03)


def test_every_dataflow_is_a_graph():
    for name, graph in DATAFLOWS.items():
        check_graph(graph)
        calls = calls_of(name, dict.fromkeys(("actor", "reward", "reference", "critic"), SMALL), WORK, DEVICE, 2)
        assert [c.name for c in calls] == [c.name for c in graph] and all(c.options for c in calls)
    assert [len(g) for g in DATAFLOWS.values()] == [6, 4, 6]
