"""Canaries: what they see, what they let pass, and that planted faults move the right ones."""

import math
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import palaestra as pl
import pytest
import torch
from palaestra import catalogue
from palaestra.engines import sampling
from palaestra.ledger import canaries, canary_numbers, versions
from palaestra.ledger.canaries import Canary, Movement, compare, pick, suspects
from palaestra.ledger.canary_numbers import numeric
from palaestra.ledger.versions import Version
from palaestra.run.context import RunContext
from palaestra.schedule import SCHEDULES, Jump, Linear, Sigmoid
from safetensors.torch import save_file

RECORDED = Canary(
    configuration="c", size=[2, 2], ids="a", numbers={"step 1/loss": 0.5, "step 1/reward": 0.25}, nearest=0.01
)


def with_numbers(**numbers):
    return replace(RECORDED, numbers={f"step 1/{n}": x for n, x in numbers.items()})


@pytest.mark.parametrize(
    "today",
    [
        RECORDED,
        with_numbers(loss=0.5004, reward=0.25),  # below the tolerance of 1e-3
        with_numbers(loss=0.5, reward=0.25, new=7.0),
        replace(RECORDED, nearest=0.5),
    ],
)
def test_what_is_no_change(today):
    assert compare(RECORDED, today) is None


@pytest.mark.parametrize(
    ("today", "says"),
    [
        (with_numbers(loss=0.501, reward=0.25), "step 1/loss 0.501, it was 0.5"),
        (with_numbers(loss=-0.5, reward=0.25), "step 1/loss -0.5, it was 0.5"),
        (with_numbers(reward=0.25), "no step 1/loss"),
        (replace(RECORDED, ids="b"), "other tokens in the first step"),
        (replace(RECORDED, ended="starved"), "its run is starved, it was whole"),
    ],
)
def test_what_is_a_change(today, says):
    assert compare(RECORDED, today) == Movement(what=says)


def test_a_draw_at_a_boundary_is_not_decided():
    other = replace(RECORDED, ids="b", nearest=canaries.BOUNDARY / 2)
    assert compare(RECORDED, other) == Movement(what="other tokens in the first step", undecided=True)
    assert compare(other, RECORDED).undecided


def test_other_numbers_from_the_same_tokens_are_decided():
    """Only another token is a matter of a boundary: loss .7 instead of .5 from equal tokens is none."""
    near = replace(RECORDED, nearest=canaries.BOUNDARY / 2)
    assert compare(near, with_numbers(loss=0.7, reward=0.25)).undecided is False
    late = replace(near, numbers={"step 2/loss": 0.5})
    assert compare(late, replace(late, numbers={"step 2/loss": 0.7})).undecided


@pytest.mark.parametrize(
    ("norm", "is_learning"),
    [(0.0, False), (8.2e-7, False), (0.02, True)],  # Adam makes whole steps of rounding, 8.2e-7
)
def test_a_gradient_that_is_rounding_is_none(norm, is_learning):
    assert canaries.learns(with_numbers(grad_norm=norm)) is is_learning
    assert not canaries.learns(replace(with_numbers(grad_norm=norm), ended="starved"))
    assert not canaries.learns(replace(with_numbers(grad_norm=norm), rounding=True))


def test_how_far_the_weights_went(tmp_path):
    """||(3, 0) - (0, 4)|| = 5; what only one of two checkpoints has, and the optimiser's state, count nothing."""
    for i, x in ((1, (3.0, 0.0)), (2, (0.0, 4.0))):
        place = tmp_path / f"step-{i}"
        place.mkdir()
        save_file({"w": torch.tensor(x)}, place / "model.safetensors")
        save_file({"w": torch.tensor(x)}, place / "state.safetensors")
        save_file({"w": torch.tensor(x)}, place / f"only-{i}.safetensors")
    assert dict(canary_numbers.distances(tmp_path)) == {"model": 5.0}
    assert dict(canary_numbers.distances(tmp_path / "none")) == {}


def test_rounding_near_zero_is_no_change():
    assert compare(with_numbers(loss=4e-8), with_numbers(loss=-3e-8)) is None


def test_numbers_of_a_record_by_their_path():
    record = {
        "step": 1,
        "loss": 0.5,
        "seconds/rollout": 3.0,
        "a": {"mean": 1, "low": 0.5},
        "b": [2, math.nan],
        "c": "x",
    }
    assert dict(numeric(record)) == {"loss": 0.5, "a.mean": 1.0, "b.0": 2.0}


def test_how_near_a_draw_is_to_another_token():
    """p = (.25, .25, .5) has edges at .25, .5 and 1; the greedy lead is .5 - .25."""
    logp = torch.tensor([[0.25, 0.25, 0.5]]).log()
    distance = lambda u, greedy=False: sampling.nearest_edge(logp.exp(), torch.tensor([u]), torch.tensor([greedy]))
    assert distance(0.3) == pytest.approx(0.05) and distance(0.9) == pytest.approx(0.1)
    assert distance(0.3, greedy=True) == pytest.approx(0.25)


def test_draws_are_observed_and_stay_what_they_are():
    settings = sampling.DrawSettings.of([pl.Sampling()] * 2, torch.device("cpu"))
    logits, uniform = torch.tensor([[0.0, 1.0, 2.0]] * 2), torch.tensor([0.2, 0.7])
    plain = sampling.draw(logits, uniform, settings)
    with canaries.observing() as nearest:
        watched = sampling.draw(logits, uniform, settings)
    assert all(map(torch.equal, plain, watched)) and 0 < nearest[0] < 0.5 and sampling.observers == []


# ---- versions


def test_versions_that_are_listed(monkeypatch):
    lines = (
        Version(part="Center", version=2, date="", why="x"),
        Version(part="Center", version=3, date="", why="y"),
        Version(part="loop", version=2, date="", why="z"),
    )
    monkeypatch.setattr(versions, "history", lambda: lines)
    assert versions.versions_of({"Center"}) == {"Center": 3, "loop": 2}
    assert versions.versions_of(set()) == {"loop": 2}
    assert versions.reasons({"Center": 2, "loop": 2}, {"Center": 3, "loop": 2}) == ["version 3 of Center (y)"]


def test_the_table_counts_up():
    assert all(v.version > 1 and v.date and v.why for v in versions.history())


# ---- planted faults


def test_shares_are_all_of_it_once():
    shares = [pick(["dr-grpo"], (k, 3)) for k in (1, 2, 3)]
    assert sorted(c for s in shares for c in s) == sorted(pick(["dr-grpo"], (1, 1))) and all(shares)


def test_the_part_is_named_that_all_have_that_moved():
    arms = [("dr-grpo", a) for a in ("grpo", "dr-grpo", "no std", "constant length")]
    scaled = [c for c in arms if "Scale" in canaries.cases_of(*c[:1])[c[1]].parts]
    assert scaled
    held = [c for c in arms if c not in scaled]
    assert suspects(scaled, held) == ["Scale"] and suspects([], arms) == []


def test_a_broken_measure_moves_what_has_a_reference_and_nothing_else(monkeypatch):
    """KL to a reference is measured with `RunContext.measure`; GRPO without KL has none."""
    kl = canaries.CanaryCase(
        runnable=catalogue.recipe("grpo", kl=0.04), settings=canaries.cases_of("rloo")[""].settings
    )
    plain = canaries.cases_of("rloo")[""]
    before = [canaries.watch(c, (2, 4)) for c in (kl, plain)]
    assert all(map(canaries.learns, before))
    real = RunContext.measure

    def zeros(self, groups, needs, privileged):
        signals = real(self, groups, needs, privileged)
        return [[[{k: 0 * x for k, x in row.items()} for row in rows] for rows in each] for each in signals]

    monkeypatch.setattr(RunContext, "measure", zeros)
    after = [canaries.watch(c, (2, 4)) for c in (kl, plain)]
    assert compare(before[0], after[0]) and compare(before[1], after[1]) is None


@pytest.mark.parametrize(
    ("name", "which"),
    [
        ("clip-delta", "embedded"),
        ("soft-verifier", "embedded"),
        ("muldimif", "embedded"),
        ("kdrl", "build"),
        ("sws", "embedded"),
        ("grpo", "build"),
    ],
)
def test_a_method_is_watched_on_its_embedded_problem_where_it_has_one(name, which):
    """As it runs where the user gives nothing; kdrl's is a pipeline, which is too much to watch."""
    assert canaries.default_of(name) == getattr(catalogue.find(name), which)()


def test_what_rounding_moves_as_far_has_not_moved():
    """Another processor's rounding is within three times what noise does; a changed formula is not."""
    one = canaries.Canary(configuration="", size=(2, 2), ids="", numbers={"step 1/loss": 1.0, "step 1/q": 2.0})
    other = canaries.Canary(configuration="", size=(2, 2), ids="", numbers={"step 1/loss": 1.02, "step 1/q": 2.0})
    assert compare(one, other) and compare(one, other, {"step 1/loss": 0.006})
    assert compare(one, other, {"step 1/loss": 0.007}) is None
    far = replace(other, numbers={"step 1/loss": 4.0, "step 1/q": 2.0})
    assert compare(one, far, {"step 1/loss": 0.3}) and compare(one, far, {"step 1/loss": 0.5}) is None
    assert compare(one, other, {"step 1/loss": 0.007}) is None and compare(one, other, {"step 1/q": 0.5})


@pytest.mark.parametrize(
    ("noise", "undecided"),
    [
        ({"step 1/loss": 0.01}, True),  # the first update is another one by rounding alone
        ({"step 2/loss": 0.01}, False),  # it is not, so the second step draws the same
    ],
)
def test_a_second_step_behind_a_magnified_update_is_not_decided(monkeypatch, noise, undecided):
    recorded = replace(RECORDED, numbers={"step 1/loss": 0.5, "step 2/loss": 1.0})
    today = replace(recorded, numbers={"step 1/loss": 0.51, "step 2/loss": 2.0})
    if not undecided:
        today = replace(today, numbers={"step 1/loss": 0.5, "step 2/loss": 2.0})
    monkeypatch.setattr(canaries, "spread", lambda case, canary: noise)
    assert canaries.judge(None, recorded, today).undecided is undecided
    far = replace(today, numbers={"step 1/loss": 0.6, "step 2/loss": 2.0})
    assert canaries.judge(None, recorded, far).undecided is False  # the first update itself moved


@pytest.mark.parametrize("today", [{"rounding": True}, {"updates": 4000}])
def test_neither_rounding_nor_a_long_run_is_an_excuse(monkeypatch, today):
    """Updates are not made of rounding (below), and learners of canaries make few."""
    recorded = replace(RECORDED, numbers={"step 2/loss": 0.5})
    monkeypatch.setattr(canaries, "spread", lambda case, canary: {})
    seen = replace(recorded, numbers={"step 2/loss": 0.51}, **today)
    assert canaries.judge(None, replace(recorded, **today), seen) == Movement(what="step 2/loss 0.51, it was 0.5")


@pytest.mark.parametrize(("gradient", "moves"), [(3e-4, False), (3e-3, True)])
def test_an_update_is_not_made_of_rounding(gradient, moves):
    """Adam's first step is the learning rate, however small the gradient is."""
    w = torch.nn.Parameter(torch.ones(1))
    optimiser = torch.optim.Adam([w], lr=0.25)
    with canary_numbers.observing_updates(0, 0.1) as norms:
        (gradient * w).sum().backward()
        optimiser.step()
    assert norms == pytest.approx([gradient]) and float(w.detach()) == pytest.approx(0.75 if moves else 1.0, abs=1e-5)


def test_updates_are_seen_and_shaken():
    """The gradient of 3 w is 3, and so is its root mean square, of which a tenth times a normal draw is added."""
    w = torch.nn.Parameter(torch.ones(1))
    optimiser = torch.optim.SGD([w], lr=1.0)

    def update(noise):
        optimiser.zero_grad()
        with canary_numbers.observing_updates(noise, 0.1) as norms:
            (3 * w).sum().backward()
            optimiser.step()
        return norms, float(w.grad)

    assert update(0) == ([3.0], 3.0)
    norms, shaken = update(1)
    assert norms == [3.0] and shaken == update(1)[1] != 3.0 and abs(shaken - 3) < 1.5


@pytest.mark.parametrize(("drawn", "undecided"), [("a", True), ("c", False)])
def test_other_tokens_at_a_boundary_are_excused_only_where_noise_draws_the_recorded_ones(monkeypatch, drawn, undecided):
    """The last of eight runs with noise draws "a", which is recorded, or another one, as a fault does."""
    seen = []

    def watch(case, size, out=None, noise=0, scale=canaries.NOISE):
        seen.append((noise, scale))
        return replace(RECORDED, ids=drawn if len(seen) == len(canaries.NEAR) else "b")

    monkeypatch.setattr(canaries, "watch", watch)
    today = replace(RECORDED, ids="b", nearest=canaries.BOUNDARY / 2)
    moved = canaries.judge(None, RECORDED, today)
    assert moved.undecided is undecided and tuple(seen) == canaries.NEAR and len({n for n, _ in seen}) == 8
    assert {scale for _, scale in seen} == {canaries.NOISE, 10 * canaries.NOISE}


@pytest.mark.parametrize(
    ("part", "hastened"),
    [
        (Jump(0.0, 1.0, 20), Jump(0.0, 1.0, 1)),
        (Jump(0.0, 1.0, 0), Jump(0.0, 1.0, 0)),  # from the start
        (Jump(0.0, 1.0, 1 << 30), Jump(0.0, 1.0, 1 << 30)),  # never
        (Linear(1.0, 0.0, 400), Linear(1.0, 0.0, 1)),
        (Sigmoid(1.0, 0.0, 69.8, 2.0), Sigmoid(1.0, 0.0, 1, 2.0)),
        (pl.rollout.Snapshots(every=10, keep=2), pl.rollout.Snapshots(every=1, keep=2)),
        (pl.Shuffled(), pl.Shuffled()),
    ],
)
def test_a_clock_strikes_at_the_second_step_of_a_canary(part, hastened):
    assert canaries.hasten(part) == hastened


def test_every_schedule_names_its_clock():
    assert {c.clock for c in SCHEDULES.values()} == {"steps", "step", "every", "middle"}
    assert all(c.clock in {f.name for f in fields(c)} for c in SCHEDULES.values())


def test_clocks_inside_of_a_recipe_are_found():
    """Kimi's reward for brevity begins at step 20, and in its canary at the second step."""
    recipe = catalogue.recipe("kimi-k1.5")
    assert recipe.learners["policy"].credit.links[0].weight == Jump(0.0, 0.5, 20)
    small = canaries.resize(recipe, (2, 4))
    assert small.learners["policy"].credit.links[0].weight == Jump(0.0, 0.5, 1) and small.schedule.steps == 2


def test_noise_as_small_as_rounding_is_magnified_by_no_update():
    """ROVER regresses on a difference of two policies that are equal at first: its first gradient is rounding, of which
    Adam would make a whole step, and a canary makes none. Plain RLOO learns from rewards.
    """
    far = {}
    for name in ("rover", "rloo"):
        case, recorded = canaries.cases_of(name)[""], canaries.read(name)[""]
        today = canaries.watch(case, recorded.size)
        moved = canaries.spread(case, today)
        far[name] = moved["step 1/loss"] / abs(today.numbers["step 1/loss"])
    assert all(far[name] < canaries.TOLERANCE for name in far), far


def test_every_canary_is_recorded_for_what_it_runs_today():
    """None is run here: a check of a share of them would find only the others of its own share."""
    other = [
        (name, arm)
        for name in canaries.names()
        for arm, case in canaries.cases_of(name).items()
        if (kept := canaries.read(name).get(arm)) is None
        or canaries.configuration_of(case, kept.size) != kept.configuration
    ]
    assert other == []  # palaestra reproduce --record METHOD


def test_workers_end_with_a_check_that_is_killed(tmp_path):
    script = tmp_path / "check.py"
    script.write_text(
        "import os, time\nfrom palaestra.ledger.watchers import pool\n"
        "if __name__ == '__main__':\n    with pool(1) as workers:\n"
        "        print(workers.submit(os.getpid).result(), flush=True)\n        time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as check:
        worker = int(check.stdout.readline())
        check.kill()
    assert Path(f"/proc/{worker}").exists()
    end = time.monotonic() + 60
    while Path(f"/proc/{worker}").exists():
        assert time.monotonic() < end
        time.sleep(0.1)
