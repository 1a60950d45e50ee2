"""The rules of docs/ledger.md as `reproduce` keeps them: which cells it asks for, and what it makes of their numbers.
No cell runs: each ends with the number that a test gives it."""

import asyncio
import json
from dataclasses import dataclass, replace
from itertools import combinations

import palaestra as pl
import pytest
from palaestra.claims.base import rloo as claim
from palaestra.cli import reproduce as command
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.ledger import cells, declared, results
from palaestra.ledger import rerun as once_more
from palaestra.ledger.cells import CellOutcome, CellRequest
from palaestra.ledger.experiment import BLOCKS, FRESH, TRIAL, TUNING
from palaestra.ledger.rerun import describe_code
from palaestra.settings.fields import Settings
from palaestra.terminal.progress import Headway
from palaestra.types import Result
from palaestra.values import override

RATES = (1e-4, 3e-4)
PLAIN = claim.EXPERIMENT
EXPERIMENT = replace(
    PLAIN,
    tuned={"optimiser.lr": RATES},
    reasons=(pl.ledger.Needs("batch mean", "the group"),),
    vetoes={"luck": pl.ledger.Veto(pl.ledger.Final("luck"), falls=0.03, against="start")},
    samples=4,
    evaluate=16,
)
ENDS = {"start": 0.1, "no baseline": 0.2, "rloo": 0.4, "batch mean": 0.3}


@dataclass(frozen=True)
class Ran:
    """A cell that was asked for."""

    arm: str
    seed: int
    rate: float
    task: str
    tokens: int = 0


def ends(cell):
    return ENDS[cell.arm] + 0.001 * (cell.seed % 3)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Reproduces an experiment; `number` says how accurate each cell is, None where it fails. `run.asked`: its cells."""

    def use(found, number=ends, luck=lambda cell: 0.5):
        def run_all(requests, folder, headway, jobs=0):
            return [outcome(r) for r in requests]

        def outcome(r):
            method, _, arm = r.arm.partition(":")
            cell = Ran(arm, r.settings.seed, r.settings.set.get("optimiser.lr", 0.0), r.settings.task, r.tokens)
            assert method == "rloo" and r.own_tasks and r.settings.evaluate == found.evaluate
            assert r.samples == found.samples
            run.asked.append(cell)
            run.budgets.add(r.tokens)
            x = number(cell)
            if x is None:
                return CellOutcome(request=r, folder=tmp_path, error="failed: x")
            sampled = {"sampled_after": {"pass@1": {"mean": x}}, "sampled_tokens": 100}
            sampled |= {"wall_seconds": 2.0, "processor_seconds": 1.5}
            told = {"accuracy_after": {"mean": x}, "luck": luck(cell), **sampled}
            return CellOutcome(request=r, folder=tmp_path, cell=pl.ledger.Cell(summary=told))

        run.asked, run.budgets = [], set()
        for module in (results, command, once_more):
            monkeypatch.setattr(module, "experiment_of", lambda method: found)
        monkeypatch.setattr(results, "run_all", run_all)
        for module in (results, once_more):
            monkeypatch.setattr(module, "arm_code", lambda *_: {"versions": {"loop": 2}})

    def run(found, number=ends, luck=lambda cell: 0.5, **scope):
        use(found, number, luck)
        return results.reproduce("rloo", out=tmp_path, headway=Headway("rloo", [].append), **scope)

    run.use, run.out = use, tmp_path
    return run


def measured(asked):
    return [c for c in asked if c.seed not in TUNING]


# ---- seeds


def test_no_seed_has_two_uses():
    """Those that decide, of a third block, of trials, of tuning."""
    every = [*BLOCKS, FRESH, *TRIAL, TUNING]
    assert all(set(a).isdisjoint(b) for a, b in combinations(every, 2))
    assert [list(b) for b in BLOCKS] == [[0, 1, 2, 3, 4], [100, 101, 102, 103, 104]]
    assert list(TUNING) == [1000, 1001] and list(FRESH) == [200, 201, 202, 203, 204] and TRIAL[0][0] == 2000


def test_every_declared_arm_runs_on_the_seeds_of_both_blocks(run):
    found = run(EXPERIMENT)
    seeds = [s for b in BLOCKS for s in b]
    for arm in ("start", "no baseline", "rloo", "batch mean"):
        assert [c.seed for c in measured(run.asked) if c.arm == arm] == seeds
        assert found["arms"][arm]["values"] == [ends(Ran(arm, s, 0.0, "count")) for s in seeds]
    assert found["blocks"] == [list(b) for b in BLOCKS] and found["seeds"] == 10
    assert run.budgets == {EXPERIMENT.tokens} and found["declaration"] == declared.digest(EXPERIMENT)
    assert (found["verdict"], found["reason"]) == ("reproduced", "")


def test_an_experiment_may_have_one_block_of_its_own(run):
    """As on a real model: the block decides, a trial has as many seeds, a third block too."""
    short = replace(EXPERIMENT, blocks=(range(3),), tuning_seeds=(1000,), model="smollm2")
    found = run(short)
    assert {c.seed for c in measured(run.asked)} == {0, 1, 2} and found["blocks"] == [[0, 1, 2]]
    assert {c.seed for c in run.asked if c.seed in TUNING} == {1000} and found["tuning"]["seeds"] == [1000]
    assert found["verdict"] == "reproduced" and len(found["by_block"]) == 1
    assert short.is_whole(ENDS, [range(3)], short.tokens) and not short.is_whole(ENDS, BLOCKS, short.tokens)
    assert run(short, arms=("rloo", "no baseline"))["blocks"] == [[2000, 2001, 2002]]
    assert run(short, seeds=1)["blocks"] == [[2000]]
    run.use(short)
    assert results.fresh("rloo", found, out=run.out, headway=Headway("rloo", [].append))["seeds"] == [200, 201, 202]


@pytest.mark.parametrize(
    "seeds", [{"blocks": (range(3), (2, 100))}, {"blocks": ((200, 201, 202),)}, {"tuning_seeds": (0,)}]
)
def test_a_seed_with_two_uses_is_refused(seeds):
    with pytest.raises(UserError, match=r"seed \d+ has two uses"):
        replace(EXPERIMENT, **seeds)


@pytest.mark.parametrize("less", [{"seeds": 1}, {"seeds": 5}, {"arms": ("rloo", "no baseline")}, {"tokens": 3000}])
def test_a_trial_looks_at_no_seed_that_decides(run, less):
    found = run(PLAIN, **less)
    known = {s for b in (*BLOCKS, FRESH, TUNING) for s in b}
    assert not known & {c.seed for c in run.asked} and found["blocks"][0][0] == 2000
    assert found["verdict"] == "inconclusive" and found["reason"].startswith("a trial")
    assert run.budgets == {less.get("tokens", PLAIN.tokens)} == {found["budget_tokens"]}
    assert set(found["arms"]) == set(less.get("arms", PLAIN.every_arm))


@pytest.mark.parametrize(
    ("arms", "blocks", "tokens", "whole"),
    [
        (ENDS, BLOCKS, 60_000, True),
        (["no baseline", "rloo", "batch mean"], BLOCKS, 60_000, False),
        (["start", "no baseline", "rloo"], BLOCKS, 60_000, False),
        (ENDS, BLOCKS, 59_999, False),
        (ENDS, [range(5), range(100, 104)], 60_000, False),
        (ENDS, TRIAL, 60_000, False),
    ],
)
def test_less_than_what_is_declared_is_a_trial(arms, blocks, tokens, whole):
    assert PLAIN.is_whole(arms, blocks, tokens) == whole


# ---- tuning


def test_each_arm_goes_on_with_the_setting_that_was_best_on_the_tuning_seeds(run):
    """rloo at the second rate, its rival at the first; on the seeds that decide it is the other way round."""

    def number(c):
        liked = RATES[1] if c.arm == "rloo" else RATES[0]
        return ends(c) + (0.05 if (c.rate == liked) == (c.seed in TUNING) else 0.0)

    found = run(EXPERIMENT, number)
    chosen = {a: r["setting"].get("optimiser.lr", 0.0) for a, r in found["arms"].items()}
    assert chosen == {"start": 0.0, "no baseline": 1e-4, "rloo": 3e-4, "batch mean": 1e-4}
    assert all(c.rate == chosen[c.arm] for c in measured(run.asked))
    swept = {(c.arm, c.seed, c.rate) for c in run.asked if c.seed in TUNING}
    assert swept == {(a, s, r) for a in EXPERIMENT.arms for s in (1000, 1001) for r in RATES}
    assert found["tuning"]["arms"]["rloo"][1] == {"setting": {"optimiser.lr": 3e-4}, "values": [0.451, 0.452]}
    assert found["arms"]["rloo"]["config_sha256"] != found["arms"]["batch mean"]["config_sha256"]


@pytest.mark.parametrize(
    ("fails", "level", "chosen"),
    [
        ((3e-4, (1001,)), 0.0, 1e-4),  # it was better where it did not fail
        ((1e-4, TUNING), -9.0, 3e-4),  # what is known, though below 0
        ((0.0, ()), 0.0, 3e-4),
        ((None, ()), 0.0, 1e-4),  # of equals the first
    ],
)
def test_a_setting_that_failed_anywhere_is_not_chosen(run, fails, level, chosen):
    rate, seeds = fails
    better = lambda c: 0.1 * (c.rate == 3e-4 and rate is not None)
    found = run(EXPERIMENT, lambda c: None if c.rate == rate and c.seed in seeds else level + better(c))
    assert found["arms"]["rloo"]["setting"] == {"optimiser.lr": chosen}


def test_what_is_chosen_by_is_what_was_declared_to_choose_by(run):
    """The second rate is luckier, the first more accurate."""
    by_luck = replace(EXPERIMENT, choose=pl.ledger.Final("luck"))
    number, luck = (lambda c: ends(c) - 0.1 * (c.rate == 3e-4)), lambda c: c.rate
    chosen = lambda e: run(e, number, luck)["arms"]["rloo"]
    assert chosen(EXPERIMENT)["setting"] == {"optimiser.lr": 1e-4}
    assert chosen(by_luck)["setting"] == {"optimiser.lr": 3e-4}
    assert chosen(by_luck)["values"][0] == pytest.approx(0.3)  # and it is judged by the measure


def test_settings_are_chosen_over_all_tasks(run):
    """The second rate is a little better on the first task, and much worse on the second."""
    several = replace(EXPERIMENT, task=("count", "chain"))
    worse = {"count": 0.01, "chain": -0.1}
    found = run(several, lambda c: ends(c) + worse[c.task] * (c.rate == 3e-4))
    assert found["arms"]["rloo"]["setting"] == {"optimiser.lr": 1e-4}
    assert len(found["tuning"]["arms"]["rloo"][0]["values"]) == 4
    assert set(found["arms"]["rloo"]["by_task"]) == {"count", "chain"} and len(found["arms"]["rloo"]["values"]) == 10


def test_a_sweep_may_have_a_smaller_budget(run):
    """A third of the tokens and no less; what decides has all of them. A trial of less sweeps with no more than it has."""
    short = replace(EXPERIMENT, tuning_tokens=EXPERIMENT.tokens // 3)
    found = run(short, ends)
    assert {(c.seed in TUNING, c.tokens) for c in run.asked} == {(True, 20_000), (False, 60_000)}
    assert found["tuning"]["tokens"] == 20_000 and "tokens" not in run(EXPERIMENT, ends)["tuning"]
    run(short, ends, tokens=9_000)
    assert {c.tokens for c in run.asked} == {9_000}
    assert declared.digest(short) != declared.digest(EXPERIMENT)
    for tokens in (EXPERIMENT.tokens // 3 - 1, EXPERIMENT.tokens + 1):
        with pytest.raises(UserError, match="between a third of"):
            replace(EXPERIMENT, tuning_tokens=tokens)


def test_constants_are_tuned_beside_what_all_arms_tune():
    more = replace(EXPERIMENT, constants={"rloo": {"schedule.prompts": (8, 16)}})
    assert len(more.settings_of("rloo")) == 4 and all("optimiser.lr" in s for s in more.settings_of("rloo"))
    assert more.settings_of("batch mean") == EXPERIMENT.settings_of("batch mean")


def test_a_cell_runs_its_arm_with_its_setting(monkeypatch):
    monkeypatch.setattr(cells, "experiment_of", lambda method: EXPERIMENT)
    asked = CellRequest(label="x", settings=Settings(set={"optimiser.lr": 3e-4}), tokens=1, arm="rloo:rloo")
    assert asked.runnable() == override(EXPERIMENT.arms["rloo"], "optimiser.lr", 3e-4) != EXPERIMENT.arms["rloo"]


def test_cells_are_given_back_in_the_order_of_their_requests(tmp_path, monkeypatch):
    monkeypatch.setattr(CellRequest, "digest", lambda self: f"{7 * self.settings.seed % 4:020}")
    asked = [CellRequest(label="x", settings=Settings(recipe="rloo", seed=s), tokens=100) for s in range(4)]
    for r in asked:
        place = tmp_path / "cells" / r.digest()[: cells.ADDRESS]
        place.mkdir(parents=True)
        (place / cells.DONE).write_text(json.dumps({"seed": r.settings.seed}))
    found = cells.run_all(asked, tmp_path, Headway("x", [].append))
    assert [o.cell.summary["seed"] for o in found] == [0, 1, 2, 3] == [o.request.settings.seed for o in found]


def test_the_untrained_start_makes_no_step():
    seen = []

    class Context:
        async def train(self, recipe):
            seen.append(recipe.schedule.steps)
            return Result()

    asyncio.run(pl.ledger.Untrained().run(Context()))
    assert seen == [0]


# ---- beside the start


@pl.stage
class Above:
    """The accuracy above that of the start of the same seed."""

    def __call__(self, cell):
        raise UserError("it needs the start")

    def beside(self, cell, start):
        return cell.summary["accuracy_after"]["mean"] - start.summary["accuracy_after"]["mean"]


def test_what_is_measured_beside_the_start_is_beside_that_of_its_seed(run):
    """Each start is as good as its seed says, and an arm is so much better: also where it is tuned."""
    beside = replace(EXPERIMENT, measure=Above(), vetoes={}, reasons=())
    more = lambda c: {"start": 0.0, "rloo": 0.5}.get(c.arm, 0.25) + (0.125 if c.rate == 3e-4 else 0.0)
    found = run(beside, lambda c: c.seed + more(c))
    assert found["arms"]["rloo"]["values"] == [0.625] * 10 and found["arms"]["start"]["values"] == [0.0] * 10
    assert found["tuning"]["arms"]["rloo"][1]["values"] == [0.625, 0.625] and "start" not in found["tuning"]["arms"]
    assert found["arms"]["rloo"]["setting"] == {"optimiser.lr": 3e-4}
    lost = run(beside, lambda c: None if (c.arm, c.seed) == ("start", 2) else c.seed + more(c))
    assert lost["arms"]["rloo"]["values"].count(None) == 1 and lost["verdict"] == "inconclusive"
    assert beside.deciding_arms == ["start", "no baseline", "rloo"]


# ---- what a result is made of


def test_what_failed_or_is_no_number_is_neither_dropped_nor_0(run):
    bad = {("rloo", 2): None, ("batch mean", 3): float("nan")}
    found = run(EXPERIMENT, lambda c: bad.get((c.arm, c.seed), ends(c)))
    assert found["arms"]["rloo"]["values"][2] is None and found["arms"]["batch mean"]["values"][3] is None
    assert list(found["arms"]["rloo"]["failed"]) == ["rloo, seed 2, optimiser.lr=0.0001"]
    assert found["arms"]["rloo"]["sampled_tokens"][2] is None and found["verdict"] == "inconclusive"


def test_a_result_has_what_reasons_and_vetoes_said_with_their_numbers(run):
    luck = lambda c: 0.5 - 0.1 * (c.arm == "rloo")
    found = run(EXPERIMENT, luck=luck)
    assert found["verdict"] == "not-reproduced" and found["reason"].startswith("vetoed: luck: -0.1")
    assert found["controls"]["luck"]["values"]["rloo"] == [0.4] * 10 and found["controls"]["luck"]["against"] == "start"
    assert found["controls"]["batch mean"]["said"] == "adds 0.1, and 0.1 stay without it: the group"
    assert found["controls"]["batch mean"]["effect"] == pytest.approx(0.1)
    assert found["lacks"] == ["the paper's quantity", "where the margin comes from"]


def test_the_cost_of_a_result_has_the_tuning_in_it(run):
    """Three arms of two rates on two seeds, and four arms on ten."""
    found = run(EXPERIMENT)
    assert (found["runs"], found["sampled_tokens"], found["seconds"]) == (52, 5200, 104.0)
    assert found["processor_seconds"] == 78.0


def test_only_the_start_may_lack_what_training_leaves_behind(run):
    """Else a path that is written wrongly would be a verdict."""
    lacking = replace(PLAIN, controls={"x": pl.ledger.Final("nobody.has.it")})
    with pytest.raises(UserError, match=r"no 'nobody\.has\.it'"):
        run(lacking)


def test_what_every_result_shows_beside_its_measure():
    shown = replace(
        PLAIN, samples=4, measure=pl.ledger.Logged("x"), controls={"more": pl.ledger.Logged("y")}
    ).every_control
    assert list(shown) == ["greedy", "sampled", "area", "more"]
    assert list(replace(PLAIN, samples=4).every_control) == ["sampled", "area"]  # greedy is the measure itself


def test_a_start_of_its_own_takes_the_place_of_the_untrained_one():
    own = replace(PLAIN, arms={**PLAIN.arms, "start": pl.recipe("grpo")})
    assert own.every_arm["start"] == pl.recipe("grpo") and len(own.every_arm) == 4
    assert own.settings_of("start") == [{}]


def test_an_experiment_names_only_arms_that_it_has():
    veto, rival = {"x": pl.ledger.Veto(against="c")}, pl.ledger.Greater("c", "rloo")
    for wrong in ({"vetoes": veto}, {"constants": {"c": {}}}, {"expect": rival}):
        with pytest.raises(UserError, match="an arm 'c' that does not exist"):
            replace(PLAIN, **wrong)


def test_no_two_controls_have_one_name():
    """A result keeps them by name: a veto would take the place of a reason."""
    for said in ({"vetoes": {"batch mean": pl.ledger.Veto()}}, {"controls": {"luck": pl.ledger.Final("luck")}}):
        with pytest.raises(UserError, match="two controls have the name"):
            replace(EXPERIMENT, **said)


# ---- the command


def test_an_experiment_is_declared_before_its_first_cell_and_a_trial_never(run, tmp_path):
    found_at_first = []

    def number(c):
        if not found_at_first:
            found_at_first.append(list((tmp_path / "declared").glob("rloo-*.json")))
        return ends(c)

    run.use(PLAIN, number)
    reproduce = lambda *flags: main(["reproduce", "rloo", "--out", str(tmp_path), *flags])
    for flags in (["--seeds", "1"], ["--tokens", "3000"], ["--arms", "rloo,no baseline"]):
        assert reproduce(*flags) == 0 and found_at_first == [[]]
        assert not list(tmp_path.rglob("*.json"))
        found_at_first.clear()
        assert {c.seed for c in run.asked} <= {s for b in TRIAL for s in b}
    assert reproduce() == 0 and len(found_at_first[0]) == 1
    written = json.loads((tmp_path / "results" / "rloo.json").read_text())
    (path,) = found_at_first[0]
    assert declared.is_whole(path) and written["declaration"] == json.loads(path.read_text())["digest"]
    assert written["verdict"] == "reproduced" and written["earlier"] == []


def test_a_third_block_runs_what_was_chosen_on_seeds_that_nothing_else_uses(run, tmp_path):
    best = lambda c: ends(c) + 0.05 * (c.rate == 3e-4)
    whole = run(EXPERIMENT, best)
    run.use(EXPERIMENT, best)
    found = results.fresh("rloo", whole, out=tmp_path, headway=Headway("rloo", [].append))
    assert {(c.arm, c.seed, c.rate) for c in run.asked} == {
        (a, s, 0.0 if a == "start" else 3e-4) for a in ("start", "no baseline", "rloo") for s in FRESH
    }
    assert found["repeats"] and found["verdict"] == "reproduced" and found["effect"] == pytest.approx(0.2)
    with pytest.raises(UserError, match="not of today's experiment"):
        results.fresh("rloo", {**whole, "rules": 1}, out=tmp_path, headway=Headway("rloo", [].append))


def test_again_runs_one_seed_of_what_has_other_versions(run, tmp_path):
    """With the setting that was chosen; and the page says whether the numbers are the same, until a version is raised."""
    whole = run(EXPERIMENT, ends)
    assert describe_code(whole, EXPERIMENT) == ""
    for arm in ("rloo", "no baseline"):
        whole["arms"][arm]["versions"] = {}
    look = lambda: once_more.rerun("rloo", whole, out=tmp_path, headway=Headway("rloo", [].append))
    run.use(EXPERIMENT, ends)
    whole["again"] = look() | {"commit": "c"}
    assert {(c.arm, c.seed, c.rate) for c in run.asked} == {("rloo", 0, 1e-4), ("no baseline", 0, 1e-4)}
    says = "measured before version 2 of loop; seed 0 was run again{} at commit c and gave "
    assert describe_code(whole, EXPERIMENT) == says.format("") + "the same numbers"
    whole["again"]["machine"] = "another"
    assert describe_code(whole, EXPERIMENT).startswith(says.format(" on another machine (another)"))
    run.use(EXPERIMENT, lambda c: None if c.arm == "rloo" else ends(c) + 0.01)
    whole["again"] = look() | {"commit": "c"}
    told = "other numbers (no baseline 0.21, it was 0.2); rloo failed (failed: x)"
    assert describe_code(whole, EXPERIMENT) == says.format("") + told
    whole["arms"]["no baseline"]["values"][0] = None
    whole["again"] = look()
    assert describe_code(whole, EXPERIMENT).endswith("gave no number to compare; rloo failed (failed: x)")
    whole["again"]["arms"]["rloo"]["versions"] = {}
    assert describe_code(whole, EXPERIMENT) == "measured before version 2 of loop"
    whole["declaration"] = "0"
    with pytest.raises(UserError, match="not of today's experiment"):
        look()


def test_again_looks_at_every_arm_where_no_version_is_newer(run, tmp_path):
    whole = run(EXPERIMENT, ends)
    run.use(EXPERIMENT, ends)
    found = once_more.rerun("rloo", whole, out=tmp_path, headway=Headway("rloo", [].append))
    assert found["arms"].keys() == whole["arms"].keys()
    assert describe_code(whole | {"again": found}, EXPERIMENT).endswith("and gave the same numbers")


def test_again_keeps_the_rest_of_a_result(run, tmp_path, capsys):
    whole = run(EXPERIMENT, ends)
    whole["arms"]["rloo"]["versions"] = {}
    path = tmp_path / "results" / "rloo.json"
    path.parent.mkdir()
    path.write_text(json.dumps(whole))
    run.use(EXPERIMENT, ends)
    assert main(["reproduce", "rloo", "--again", "--out", str(tmp_path)]) == 0
    assert "seed 0 of rloo with today's code: the same numbers" in capsys.readouterr().out
    kept = json.loads(path.read_text())
    assert kept.pop("again")["arms"].keys() == {"rloo"} and kept == json.loads(json.dumps(whole))


@pytest.fixture
def published(run, monkeypatch):
    """A result that is published, and the cells of a spot check that end with other numbers."""
    whole = run(EXPERIMENT, ends) | {"machine": "another"}
    monkeypatch.setattr(once_more, "read_result", {"rloo": whole}.get)

    def check(number, share=(1, 1), **flags):
        run.use(EXPERIMENT, number)
        return once_more.spot_check(["rloo", "grpo"], share, out=run.out, headway=Headway("spot", [].append))

    check.whole = whole
    return check


def test_a_spot_check_runs_the_first_seed_of_a_share_of_all_arms(run, published):
    """Each arm is in one share of all, with the setting that was chosen; a method without a result is none of them."""
    seen = []
    for k in (1, 2):
        report = published(ends, share=(k, 2))
        assert (report.ran, report.other, report.wrong, report.left_out) == (2, {}, [], {})
        seen += [(c.arm, c.seed) for c in run.asked]
    assert sorted(seen) == sorted((arm, 0) for arm in published.whole["arms"])
    assert published(ends, share=(0, 1)).ran == 0


def test_a_spot_check_fails_on_a_number_that_no_processor_explains(published, monkeypatch):
    """The seeds of an arm differ by .002 here: .202 is within that of their range, .21 is not, and .202 is wrong on the
    machine that measured."""
    near = published(lambda c: ends(c) + (0.002 if c.arm == "no baseline" else 0))
    assert near.other == {"rloo: no baseline": "0.202, it was 0.2"} and near.wrong == []
    assert "another processor may do this" in once_more.describe_spot_check(near)
    far = published(lambda c: ends(c) + (0.01 if c.arm == "no baseline" else 0))
    assert far.wrong == ["rloo: no baseline"]
    assert once_more.describe_spot_check(far) == "rloo: no baseline: 0.21, it was 0.2\n3 of 4 arms gave the same number"
    failed = published(lambda c: None if c.arm == "rloo" else ends(c))
    assert failed.wrong == ["rloo: rloo"] and failed.other == {"rloo: rloo": "failed: x"}
    monkeypatch.setitem(published.whole, "machine", once_more.machine_of("cpu"))
    assert published(lambda c: ends(c) + (0.002 if c.arm == "rloo" else 0)).wrong == ["rloo: rloo"]
    monkeypatch.setitem(published.whole, "rules", 1)
    assert published(ends).left_out.keys() == {"rloo"}


def test_a_spot_check_that_fails_ends_with_status_1_and_changes_no_result(run, published, monkeypatch, capsys):
    monkeypatch.setattr(command, "published", lambda: ["rloo", "rloo@small"])
    before = json.dumps(published.whole)
    ask = ["reproduce", "--again", "--share", "1/2", "--out", str(run.out)]
    run.use(EXPERIMENT, ends)
    assert main(ask) == 0 and capsys.readouterr().out == "2 of 2 arms gave the same number\n"
    run.use(EXPERIMENT, lambda c: 0.9)
    with pytest.raises(SystemExit, match="1"):
        main(ask)
    assert "0.9, it was" in capsys.readouterr().out and json.dumps(published.whole) == before


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--fresh", "--again"], "--fresh and --again are two runs"),
        (["--check", "--again"], "--check runs nothing"),
        (["--again", "--arms", "rloo"], "--again repeats what is published, so it takes no --arms"),
        (["--fresh", "--seeds", "1", "--tokens", "9"], "it takes no --seeds and no --tokens"),
        (["--seeds", "8"], "at most 5 seeds, not 8"),
    ],
)
def test_what_would_be_ignored_is_refused(flags, says, capsys, tmp_path):
    assert main(["reproduce", "rloo", "--out", str(tmp_path), *flags]) == 2
    assert says in capsys.readouterr().err
