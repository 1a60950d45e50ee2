"""The bias of age rules, and extrapolation held to the simulator."""

import pytest
from palaestra.errors import UserError

pytest.importorskip("simpy")

from palaestra.planning.age_rules import compare_age_rules
from palaestra.planning.extrapolate import ARMS, DeviceSpeeds, ScaleArm, extrapolate, makespan, scale_table
from palaestra.planning.simulate import Costs, simulate

SMALL = DeviceSpeeds(slots=8, decode=312.5, sequences=12)


@pytest.mark.parametrize("load", [0.7, 1.5])
def test_drawn_is_trained_unless_the_late_are_dropped(load):
    """Law `drawn_is_trained`: the slowest tenth of the groups drawn is a tenth of those trained."""
    rows = compare_age_rules((1, 2), load=load, steps=200)
    for row in rows:
        kept = row.order != "drop"
        assert (abs(row.slowest_tenth - 0.1) <= 0.01) == kept, row
        assert (abs(row.cost_ratio - 1) < 0.02) == kept, row
        assert (row.dropped == 0) == kept, row
    by = {(r.order, r.lag): r for r in rows}
    for lag in (1, 2):
        drop, window, issue = (by[order, lag] for order in ("drop", "window", "issue"))
        assert drop.slowest_tenth < 0.03 and drop.cost_ratio < 0.8
        assert drop.seconds < window.seconds < issue.seconds  # fast because it throws the slow away
        assert issue.age_max == lag


@pytest.mark.parametrize("lag", [0, 1, 2])
def test_the_heap_is_the_simulator(lag):
    steps, sequences, sampling = 4, 24, 1
    length = SMALL.lengths(steps + lag, sequences, seed=3)
    arm = ScaleArm(name="barrier", lag=lag)
    found = makespan(SMALL, length, steps, 2, sampling, arm)
    costs = Costs(
        ticket=lambda k, w: float(length[k, w]) / (SMALL.decode / SMALL.slots),
        learn=lambda s: float(length[s].sum()) / SMALL.learn,
        publish=0.0 if lag else SMALL.publish(sampling),
    )
    real = simulate(costs, workers=SMALL.slots, waves=sequences, steps=steps, lag=lag, depth=1)
    last = 0.0 if lag else SMALL.publish(sampling)  # the simulator's last step publishes nothing
    assert found - last == pytest.approx(real.makespan, rel=1e-9)


def test_sizes_and_arms():
    rows = extrapolate((8, 16), SMALL, steps=6)
    assert [r.arm for r in rows] == [a.name for a in ARMS] * 2
    for devices in (8, 16):
        speed = {r.arm: r.tokens_per_second for r in rows if r.devices == devices}
        assert speed["separate, barrier"] < speed["colocated"] < speed["lag 1"] < speed["lag 2"]
        assert speed["separate, barrier"] < speed["streaming, lag 0"] < speed["lag 1"]
    for row in rows:
        assert row.sampling == row.devices if row.arm == "colocated" else row.sampling < row.devices
    table = scale_table(rows, SMALL).splitlines()
    assert table[0].startswith("| devices | colocated | separate, barrier |") and table[3].startswith("| 16 | ")
    assert table[2] == "| 8 | " + " | ".join(f"{r.tokens_per_second:,.0f}" for r in rows[:6]) + " |"
    assert [line.removeprefix("- ") for line in table[5:]] == SMALL.assumptions()
    with pytest.raises(UserError, match="at least 2 devices"):
        extrapolate((1,))
