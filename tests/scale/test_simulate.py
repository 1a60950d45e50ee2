"""The simulator against values computed by hand (AsyncFlow's example), its rules, and its bounds."""

import math
from itertools import pairwise

import pytest
from palaestra.errors import UserError
from palaestra.types import rng_of

pytest.importorskip("simpy")

from palaestra.planning.simulate import Costs, LogNormal, simulate
from palaestra.planning.trace import trace_of

# AsyncFlow: rollout 4 s, training 3 s, weight transfer 1 s, four batches
BATCHES = {"costs": Costs(ticket=4.0, learn=3.0, publish=1.0), "workers": 1, "waves": 1, "steps": 4}
LAST = {0: 1.0, 1: 1.0, 2: 1.0, 3: 5.0}  # four samples that end at 1, 1, 1 and 5 s
SAMPLES = {"costs": Costs(ticket=lambda k, w: LAST[w], learn=4.0), "workers": 4, "waves": 4, "steps": 1}


def delays(*key):
    return float(math.exp(1.2 * rng_of(("delay", *key)).standard_normal()))


@pytest.mark.parametrize(
    ("lag", "seconds", "ages"), [(0, 31, [0, 0, 0, 0]), (1, 19, [0, 1, 1, 1]), (2, 19, [0, 1, 2, 2])]
)
def test_four_batches_of_asyncflow(lag, seconds, ages):
    found = simulate(**BATCHES, lag=lag)
    assert (found.makespan, found.ages) == (seconds, ages)
    assert sum(found.steps) == seconds
    assert (found.age_mean, found.age_max) == (sum(ages) / 4, max(ages))


def test_streaming_starts_on_what_has_landed():
    assert simulate(**SAMPLES).makespan == 9  # 5 + 4
    assert simulate(**SAMPLES, streaming=True).makespan == 6  # the last quarter from 5 to 6


def test_idle_shares_of_the_roles():
    found = simulate(**BATCHES)  # 16 s of sampling, 12 s of learning and 3 s of publishing in 31 s
    assert found.idle == {"rollout": pytest.approx(1 - 16 / 31), "learner": pytest.approx(1 - 15 / 31)}


def test_devices_shared_in_time_pay_for_the_switch():
    costs = Costs(ticket=4.0, learn=3.0, switch=0.5)
    found = simulate(costs, workers=2, waves=2, steps=2, share="time")
    assert found.makespan == 4 + 0.5 + 3 + 0.5 + 4 + 0.5 + 3
    assert found.idle == {"devices": pytest.approx(1.5 / 15.5)}
    assert simulate(costs, workers=2, waves=2, steps=2).makespan == 14  # in space nothing is switched


def test_versions_are_loaded_between_tickets_one_worker_after_another():
    costs = Costs(ticket=1.0, learn=1.0, load=0.5)
    one, all_ = (simulate(costs, workers=4, waves=4, steps=2, loads=n) for n in (1, 4))
    assert one.makespan == 2 + 4 * 0.5 + 1 + 1 and all_.makespan == 2 + 0.5 + 1 + 1
    loads = sorted((s.begin, s.end) for s in one.spans if s.name == "load")
    assert loads == [(2.0, 2.5), (2.5, 3.0), (3.0, 3.5), (3.5, 4.0)]


def test_a_second_ticket_at_the_worker_hides_the_way():
    costs = Costs(ticket=1.0, learn=0.0, send=0.25)
    seconds = {n: simulate(costs, workers=1, waves=4, steps=1, depth=n).makespan for n in (1, 2)}
    assert seconds == {1: 4 * (1 + 2 * 0.25), 2: 4 + 2 * 0.25}


def test_a_seed_decides_everything():
    costs = Costs(ticket=LogNormal(median=1.0, sigma=0.8), learn=LogNormal(median=2.0, sigma=0.1))
    first, again, other = (simulate(costs, workers=3, waves=6, steps=8, lag=1, seed=s) for s in (0, 0, 1))
    assert first == again and first.makespan != other.makespan


def test_the_log_normal_has_its_median_and_its_cap():
    drawn = [LogNormal(median=2.0, sigma=1.0, cap=5.0).draw(rng_of(("n", i))) for i in range(2_000)]
    assert max(drawn) == 5.0 and sorted(drawn)[1_000] == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize("lag", [0, 1, 2, 4])
@pytest.mark.parametrize("streaming", [False, True])
def test_no_age_is_above_its_bound(lag, streaming):
    """Law `age_bound`: admission alone bounds the age; nothing is dropped."""
    given = {"workers": 5, "waves": 6, "steps": 250, "lag": lag, "streaming": streaming}
    costs = Costs(ticket=delays, learn=1.0)
    issue = simulate(costs, **given)
    assert issue.age_max == lag and issue.dropped == 0
    for share in (0.1, 0.3, 1.0):
        size = max(1, math.floor(share * (lag + 1) * 6))
        found = simulate(costs, **given, order="window", window=share)
        assert found.age_max <= lag + math.ceil((size - 1) / 6) and found.dropped == 0
        # a stream in issue order takes the tickets of one attempt as they land, a window of one does not
        assert streaming or found.makespan <= issue.makespan * 1.0001
    dropping = simulate(costs, **given, order="drop")
    assert dropping.age_max <= lag


def test_overtaking_never_trains_a_ticket_twice():
    found = simulate(Costs(ticket=delays, learn=1.0), workers=4, waves=4, steps=50, lag=2, order="window")
    names = [s.name for s in found.spans if s.role == "rollout" and s.name != "load"]
    assert len(names) == len(set(names)) and len(found.ages) == 200


def test_work_never_overlaps_at_a_worker():
    found = simulate(Costs(ticket=delays, learn=1.0, load=0.1, publish=0.1), workers=3, waves=6, steps=10, lag=1)
    lanes = {}
    for s in found.spans:
        lanes.setdefault((s.role, s.worker), []).append((s.begin, s.end))
    assert lanes.keys() == {("rollout", 0), ("rollout", 1), ("rollout", 2), ("learner", 0)}
    for spans in lanes.values():
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(spans))
    assert max(s.end for s in found.spans) == pytest.approx(found.makespan)


def test_a_trace_for_perfetto():
    found = simulate(**BATCHES, lag=1)
    events = trace_of(found.spans)["traceEvents"]
    names = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    assert names == {"rollout", "learner"}
    work = [e for e in events if e["ph"] == "X"]
    assert [(e["ts"], e["dur"]) for e in work] == [(1e6 * s.begin, 1e6 * (s.end - s.begin)) for s in found.spans]
    assert work[0] == {
        "ph": "X", "name": "0.0", "cat": "rollout", "pid": 1, "tid": 0, "ts": 0.0, "dur": 4e6, "args": {"version": 0},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"workers": 0}, "workers must be at least 1"),
        ({"lag": -1}, "lag must be at least 0"),
        ({"order": "newest"}, "no order 'newest'; there are issue, window, drop"),
        ({"window": 0.0}, "window must be in"),
        ({"share": "time", "lag": 1}, 'share "time" has nothing to overlap'),
    ],
)
def test_what_cannot_be_simulated_is_said(wrong, said):
    with pytest.raises(UserError, match=said):
        simulate(**{**BATCHES, **wrong})


def most_under_way(found, waves):
    """The most tickets that were being worked on at a time, by their spans."""
    tickets = [s for s in found.spans if s.role == "rollout" and s.name != "load"]
    moments = [(s.begin, 1) for s in tickets] + [(s.end, -1) for s in tickets]
    running = most = 0
    for _, change in sorted(moments):
        running += change
        most = max(most, running)
    return most


@pytest.mark.parametrize("order", ["issue", "window", "drop"])
@pytest.mark.parametrize("concurrent", [1, 3, 6])
def test_no_more_tickets_are_under_way_than_may_be(order, concurrent):
    given = {"workers": 8, "waves": 4, "steps": 30, "lag": 4, "order": order}
    found = simulate(Costs(ticket=delays, learn=1.0), **given, concurrent=concurrent)
    assert most_under_way(found, 4) == concurrent and len(found.ages) == 4 * 30
    assert found.age_max <= 4 + (math.ceil((6 - 1) / 4) if order == "window" else 0)
    free = simulate(Costs(ticket=delays, learn=1.0), **given)
    assert most_under_way(free, 4) == 8  # a worker each
    assert found.age_mean < free.age_mean, "what is issued later is younger"


def test_a_limit_that_does_not_bind_changes_nothing():
    given = {"workers": 3, "waves": 4, "steps": 12, "lag": 2}
    free = simulate(Costs(ticket=delays, learn=1.0), **given)
    assert simulate(Costs(ticket=delays, learn=1.0), **given, concurrent=12) == free
    with pytest.raises(UserError, match="concurrent"):
        simulate(Costs(ticket=1.0, learn=1.0), **given, concurrent=-1)


def test_admission_by_hand():
    """One ticket under way at a time, 1 s each, two a step, a learner of 4 s, lag 1: a buffer of 4 under C = 1.

    Tickets end at 1, 2 (learnt from 2 to 6), 3, 4 (all of version 0: the buffer is full), so the second step is
    learnt from 6 to 10; versions 1 from 6 on.
    """
    found = simulate(Costs(ticket=1.0, learn=4.0), workers=4, waves=2, steps=3, lag=1, concurrent=1)
    assert (found.makespan, found.ages) == (14, [0, 0, 1, 1, 1, 1])
    ends = [s.end for s in found.spans if s.role == "rollout"]
    assert ends[:6] == [1, 2, 3, 4, 7, 8]
