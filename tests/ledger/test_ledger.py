"""The ledger: what a cell is addressed by, how a verdict is reached, which results still hold, what the pages say."""

import asyncio
import json
import math
import shutil
import textwrap
from contextlib import suppress
from dataclasses import asdict, make_dataclass, replace
from itertools import combinations, pairwise
from types import SimpleNamespace

import pytest
from palaestra import catalogue
from palaestra.claims.base import rloo as rloo_claim
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.ledger import cells, digests, files, pages, results
from palaestra.ledger.cells import CellOutcome, CellRequest, run_all
from palaestra.ledger.expectations import Greater, Same
from palaestra.ledger.experiment import Experiment
from palaestra.ledger.figure import curves_svg, spread, ticks
from palaestra.ledger.measures import Cell, Final, Logged
from palaestra.markdown import one_line_lists, table
from palaestra.recipes.base import grpo, rloo, sft
from palaestra.recipes.objectives import pav
from palaestra.run.headway import Headway
from palaestra.run.plan import Plan
from palaestra.run.settings import Settings
from palaestra.types import Result
from palaestra.values import override

TWO = Experiment(
    claim="b beats a.",
    arms={"a": grpo.build(), "b": rloo.build()},
    expect=Greater("b", "a"),
    falsified_if="it does not",
)


def request(recipe="rloo", **settings):
    return CellRequest(label="x", settings=Settings(recipe=recipe, **settings), tokens=100)


def test_steps_are_averaged_where_they_have_the_metric():
    steps = [{"x": 1.0}, {"y": 0.0}, {"x": 2.0}, {"x": float("nan")}, {"x": 3.0}, {"x": None}, {"x": 6.0}]
    mean = lambda **options: Logged("x", **options)(Cell(summary={}, steps=steps))
    assert (
        mean(last=2) == 4.5 and mean(last=0) == 3.0 and mean(last=0, skip=1) == 11 / 3 and mean(last=1, skip=3) == 6.0
    )
    assert math.isnan(mean(skip=4)) and math.isnan(Logged("z")(Cell(summary={}, steps=steps)))


# ---- addresses


def test_an_address_holds_all_that_numbers_depend_on():
    base = request(device="cpu")
    others = [
        request(seed=1),
        request(recipe="grpo"),
        request(task="sort"),
        request(evaluate=8),
        request(set={"optimiser.lr": 1e-5}),
        request(dtype="bfloat16"),
        request(lora=4),
        request(max_tokens=9),
        request(engine="vllm"),
        request(device="cuda"),
        replace(base, tokens=200),
        replace(base, samples=4),
    ]
    others = [replace(o, settings=replace(o.settings, device=o.settings.device or "cpu")) for o in others]
    assert base.digest() == request(device="cpu").digest()
    assert len({base.digest(), *(o.digest() for o in others)}) == 1 + len(others)


def test_the_configuration_has_no_seed_and_the_address_no_label():
    assert request(seed=1).configuration() == request().configuration()
    assert replace(request(), label="y").digest() == request().digest()


def test_the_code_is_part_of_the_address_and_not_of_the_configuration(monkeypatch):
    before = request().digest(), request().configuration()
    monkeypatch.setattr(cells, "code_sha256", lambda *_: "other")
    assert request().digest() != before[0] and request().configuration() == before[1]


def test_how_a_batch_is_split_is_no_other_configuration():
    base, same, other = (request(set=s).configuration() for s in ({}, {"update.budget": 7}, {"update.epochs": 2}))
    assert base == same != other


def test_a_model_is_what_lies_in_its_folder(tmp_path):
    """Weights, settings and tokenizer, under whatever name; what else lies there is no part of it."""
    digests.model_sha256.cache_clear()
    for name in ("same", "noted", "other"):
        shutil.copytree(digests.PACKAGE / "models" / "tiny", tmp_path / name)
    (tmp_path / "noted" / "notes.txt").write_text("")
    settings = tmp_path / "other" / "generation_config.json"
    settings.write_text(settings.read_text() + "\n")
    found = {n: request(model=str(tmp_path / n)).configuration()["model"] for n in ("same", "noted", "other")}
    assert found["same"] == found["noted"] == request().configuration()["model"] != found["other"]


def test_an_arm_is_the_same_cell_as_the_recipe_it_is():
    arm = replace(request(recipe=""), arm="rloo:rloo")
    assert arm.digest() == request().digest()


def test_an_option_that_is_off_is_no_other_configuration():
    plain = make_dataclass("Stage", [("a", float, 0.5)], frozen=True)
    more = make_dataclass("Stage", [("a", float, 0.5), ("extra", float, 0.0), ("kind", tuple, ())], frozen=True)
    plain.__module__ = more.__module__ = "somewhere"
    assert digests.canonical(plain()) == digests.canonical(more())
    assert digests.canonical(more(extra=0.1)) != digests.canonical(more())
    assert digests.canonical(plain(a=0.0)) != digests.canonical(plain())
    part, other = (make_dataclass(name, [("inner", plain, plain())], frozen=True) for name in ("Part", "Other"))
    part.__module__ = other.__module__ = "somewhere"
    told = digests.canonical(part())
    assert told == ["somewhere:Part", {"inner": digests.canonical(plain(a=0.5))}] and told[1]["inner"][1] == {
        "a": "0.5"
    }
    assert told != digests.canonical(other())


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of two modules, the first importing the second."""
    for cache in (digests._tree, digests._imports, digests._source):
        cache.cache_clear()
    monkeypatch.setattr(digests, "PACKAGE", tmp_path)
    (tmp_path / "a.py").write_text("from palaestra.b import f\n")
    (tmp_path / "b.py").write_text('def f(x):\n    """Text."""\n    return x + 1  # why\n')
    yield tmp_path
    for cache in (digests._tree, digests._imports, digests._source):
        cache.cache_clear()


def test_code_is_what_is_imported_without_comments(package):
    assert digests.reach({"a"}) == {"a", "b"}
    before = digests._source("b")
    for text, same in (("def f(x):\n  return x + 1", True), ("def f(x):\n    return x + 2", False)):
        (package / "b.py").write_text(text)
        digests._tree.cache_clear()
        digests._source.cache_clear()
        assert (digests._source("b") == before) == same


def test_the_users_files_are_read(tmp_path):
    data = tmp_path / "p.jsonl"
    found = []
    for answer in "12":
        data.write_text(json.dumps({"prompt": "1", "answer": answer}) + "\n")
        found.append(request(data=str(data)).configuration())
    assert found[0] != found[1]
    code = tmp_path / "r.py"
    code.write_text("f = g = None")
    more = [{"reward": f"{code}:f"}, {"reward": f"{code}:g"}, {"test_data": str(code)}, {"test_data": str(data)}]
    found = [request(data=str(data), **m).configuration() for m in ({}, *more)]
    assert all(a != b for a, b in combinations(found, 2))


def test_the_data_of_a_part_is_known_by_its_content(tmp_path):
    data, found = tmp_path / "d.jsonl", []
    for answer in ("1", "1", "2"):
        data.write_text(f'{{"prompt": "a", "answer": "{answer}"}}\n{{"prompt": "b", "answer": "1"}}\n')
        found.append(request(recipe="sft-grpo", set={"parts.sft.data": str(data)}).configuration())
    assert found[0] == found[1] != found[2]


# ---- running


def test_a_budget_ends_with_the_first_step_that_reaches_it(context, small):
    run = lambda **plan: asyncio.run(small(rloo.build()).run(context(**plan))).metrics
    found = run(steps=1, evaluate=4, samples=2)
    assert set(found["sampled_after"]) == {"pass@1", "pass@2", "maj@2"}
    assert found["sampled_after"]["pass@1"]["n"] == 4
    n = found["sampled_tokens"]
    assert [run(tokens=budget)["steps"] for budget in (n, n + 1)] == [1, 2]


def test_continuations_count_as_sampled(context, small):
    ctx = context(steps=1)
    found = asyncio.run(small(pav.build()).run(ctx)).metrics
    answers = sum(e.n_sampled for g in ctx.seen for e in g.episodes)
    assert found["sampled_tokens"] == ctx.sampled_tokens > answers > 0


def test_what_samples_nothing_ends_with_its_schedule(context, small):
    recipe = override(small(sft.build()), "schedule.steps", 2)
    found = asyncio.run(recipe.run(context(tokens=10))).metrics
    assert (found["steps"], found["sampled_tokens"]) == (2, 0)


SMALL = """
    from dataclasses import replace
    from palaestra.ledger.expectations import Greater
    from palaestra.ledger.experiment import Experiment
    from palaestra.recipes.base import reinforce, rloo
    from palaestra.values import override
    from palaestra.errors import Fault

    def small(recipe):
        return override(override(recipe, "schedule.prompts", 2), "collect.links.0.n", 2)

    class Broken:
        pass

    async def broken(ctx, key, group):
        raise Fault("endpoint", "nobody answers")

    EXPERIMENT = Experiment(
        claim="c", arms={"a": small(reinforce.build()), "b": small(rloo.build()),
        "broken": replace(small(rloo.build()), collect=broken)},
        expect=Greater("b", "a"), falsified_if="f", tokens=20, evaluate=2, seeds=1,
    )

    def build():
        return rloo.build()
"""


@pytest.mark.slow
def test_cells_run_fail_and_resume(tmp_path, monkeypatch):
    own = tmp_path / "small_experiment.py"
    own.write_text(textwrap.dedent(SMALL))
    monkeypatch.setenv("PYTHONPATH", str(files.PACKAGE.parent))
    said = []
    found = results.reproduce(str(own), out=tmp_path, headway=Headway("small", said.append))
    assert any("broken, seed 0: failed: " in line for line in said)
    assert found["verdict"] == "inconclusive" and found["reason"] == "1 seeds are too few"
    assert found["arms"]["broken"]["values"] == [None]
    assert "nobody answers" in found["arms"]["broken"]["failed"]["broken, seed 0"]
    assert (
        found["seconds"] > 0 and found["arms"]["a"]["sampled_tokens"][0] >= 20 and found["arms"]["b"]["curve"]["tokens"]
    )
    assert len(list((tmp_path / "cells").iterdir())) == 3
    assert not list((tmp_path / "cells").rglob("checkpoints"))
    said.clear()
    again = results.reproduce(str(own), out=tmp_path, headway=Headway("small", said.append), arms=("a", "b"))
    assert said == [] and again["arms"]["a"]["values"] == found["arms"]["a"]["values"]


def test_a_cell_refuses_other_code_than_it_was_asked_for(tmp_path):
    place = tmp_path / "00000000000000000000"
    place.mkdir()
    (place / cells.REQUEST).write_text(json.dumps(asdict(request())))
    with pytest.raises(Exception, match="the code has changed"):
        cells.run_requested(place)


def test_the_seconds_of_a_cell_are_those_of_all_parts_of_its_run(tmp_path, monkeypatch):
    """Parts of 2 s (interrupted) and 3 s make 5 s; of a part that was killed outright nobody knows."""
    monkeypatch.setattr(
        cells, "time", SimpleNamespace(perf_counter=iter([10.0, 12.0, 50.0, 53.0, 53.0, 90.0, 91.0]).__next__)
    )
    (tmp_path / cells.LOG).write_text("")
    with suppress(KeyboardInterrupt), cells.clock_cell(tmp_path):
        raise KeyboardInterrupt
    with cells.clock_cell(tmp_path) as wall:
        assert wall() == 5.0
    (tmp_path / cells.WALL).write_text("null")  # what a killed part leaves
    with cells.clock_cell(tmp_path) as wall:
        assert wall() is None
    assert (tmp_path / cells.WALL).read_text() == "null"


def test_the_seconds_of_a_cell_begun_without_a_clock_are_not_known(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    with cells.clock_cell(tmp_path) as wall:
        assert wall() is None
    told = {"arms": {}, "sampled_tokens": 0, "seconds": None, "machine": "m"}
    assert pages.sum_of(told) == "0 sampled tokens in 0 runs, core minutes not known (m),"


def test_a_cell_is_driven_as_it_was_asked_for(tmp_path, monkeypatch):
    plans = []

    class Probe:
        async def run(self, ctx):
            plans.append(ctx.plan)
            (tmp_path / "part" / "checkpoints" / "step-1").mkdir(parents=True)
            return Result(metrics={"steps": 3})

    monkeypatch.setattr(cells.CellRequest, "runnable", lambda _: Probe())
    cells.run_here(replace(request(evaluate=7, device="cpu"), samples=4), tmp_path)
    assert plans == [Plan(tokens=100, evaluate=7, samples=4, checkpoint_every=cells.CHECKPOINT)]
    assert cells.read_cell(tmp_path).summary["steps"] == 3 and not (tmp_path / "part" / "checkpoints").exists()


def test_nothing_runs_that_is_there(tmp_path):
    asked = request()
    place = tmp_path / "cells" / asked.digest()[: cells.ADDRESS]
    place.mkdir(parents=True)
    (place / cells.DONE).write_text('{"accuracy_after": {"mean": 0.5}}')
    (outcome,) = run_all([asked], tmp_path, Headway("cells"))
    assert Final()(outcome.cell) == 0.5 and not outcome.error


def test_a_cell_under_way_counts_by_its_tokens(tmp_path):
    """Of 100 tokens 30 are there, of a line that is torn nothing is known, and nobody has more than a whole cell."""
    lines = ['{"step": 0, "evaluation": {"mean": 1}}', '{"step": 1, "sampled_tokens": 30}', '{"step": 2, "samp']
    (tmp_path / cells.METRICS).write_text("\n".join(lines))
    (tmp_path / "other").mkdir()
    under_way = lambda *folders: cells._under_way({tmp_path / f: request() for f in folders})
    assert under_way("") == 0.3 and under_way("", "other") == 0.3
    (tmp_path / "other" / cells.METRICS).write_text('{"sampled_tokens": 120}\n')
    assert under_way("", "other") == 1.3


def test_the_pace_of_cells_is_known_from_those_that_are_there(tmp_path):
    for name, done in (("a", {"wall_seconds": 30}), ("b", {"wall_seconds": None}), ("c", {"wall_seconds": 50})):
        (tmp_path / name).mkdir()
        (tmp_path / name / cells.DONE).write_text(json.dumps(done))
    pace = lambda *names: cells._pace([tmp_path / n for n in names], 2)
    assert pace("a", "b", "c", "missing") == 20 and pace("b", "missing") is None


def test_steps_of_a_pipeline_follow_one_another(tmp_path):
    (tmp_path / cells.DONE).write_text('{"parts": {"one": {}, "two": {}}}')
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        lines = [{"step": 0, "evaluation": {}}, {"step": 1, "sampled_tokens": 10}, {"step": 2, "sampled_tokens": 20}]
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert [s["sampled_tokens"] for s in cells.read_cell(tmp_path).steps] == [10, 20, 30, 40]


# ---- judging


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ([0.1, 0.2, 0.3], [0.31, 0.4, 0.52], "reproduced"),
        ([0.3, 0.4, 0.5], [0.1, 0.2, 0.3], "not-reproduced"),
        ([0.1, 0.2, 0.3], [0.5, 0.1, 0.3], "inconclusive"),
        ([0.1, 0.2, 0.3], [0.11, 0.211, 0.312], "not-reproduced"),  # above 0, but surely below 0.02
        ([0.1, 0.2, 0.3], [0.115, 0.22, 0.318], "inconclusive"),  # above 0, and below 0.02 in the mean
        ([0.1, 0.2], [0.6, 0.7], "inconclusive"),
        ([0.1, 0.2, 0.3], [0.4, None, 0.6], "inconclusive"),
    ],
)
def test_verdict(a, b, verdict):
    found = results.judge_arms(TWO, {"a": {"chain": a}, "b": {"chain": b}})
    assert found["verdict"] == verdict
    assert bool(found["reason"]) == (verdict == "inconclusive")
    assert (found["effect"] is None) == (None in b)


def test_an_arm_that_was_not_run_leaves_the_claim_open():
    found = results.judge_arms(TWO, {"a": {"chain": [0.1, 0.2, 0.3]}})
    assert (found["verdict"], found["effect"]) == ("inconclusive", None)


def test_equivalence():
    same = replace(TWO, expect=Same("b", "a", within=0.1))
    values = [0.5, 0.51, 0.49, 0.5]
    assert results.judge_arms(same, {"a": {"t": values}, "b": {"t": values[::-1]}})["verdict"] == "reproduced"
    assert (
        results.judge_arms(same, {"a": {"t": values}, "b": {"t": [1 + x for x in values]}})["verdict"]
        == "not-reproduced"
    )


def test_several_tasks_give_the_interquartile_mean():
    """Differences .1 .1 .1 | .2 .2 .2 | .9: sorted quarters cut one off each end of eight."""
    a = {t: [0.0] * 4 for t in ("one", "two")}
    b = {"one": [0.1, 0.1, 0.1, 0.1], "two": [0.3, 0.3, 0.3, 0.9]}
    found = results.judge_arms(replace(TWO, task=("one", "two")), {"a": a, "b": b})
    assert found["effect"] == pytest.approx((0.1 * 2 + 0.3 * 2) / 4)
    assert found["arms"]["b"]["values"] == pytest.approx([0.2, 0.2, 0.2, 0.5])
    assert found["arms"]["b"]["by_task"] == b and found["verdict"] == "reproduced"


def test_what_was_not_measured_is_none():
    cell = lambda x: Cell(summary={"accuracy_after": {"mean": x}})
    outcome = lambda c: CellOutcome(request=request(task="sort"), folder=None, cell=c)
    found = results.values_by_task(Final(), [outcome(cell(0.5)), outcome(None), outcome(cell(float("nan")))])
    assert found == {"sort": [0.5, None, None]}


def test_a_curve_ends_where_the_shortest_run_does():
    runs = [[{"sampled_tokens": 10 * i, "reward": i / n} for i in range(1, n)] for n in (5, 9)]
    found = results.curve(runs)
    assert found["tokens"][0] == 10 and found["tokens"][-1] == 40 and len(found["deviation"]) == results.POINTS
    assert results.curve([[{"step": 1}]]) == {}
    flat = [[{"sampled_tokens": i, "reward": x} for i in range(1, 9)] for x in (0.2, 0.6)]
    found = results.curve(flat)  # the standard deviation of two seeds: .4 / sqrt(2)
    assert found["reward"] == pytest.approx([0.4] * 24) and found["deviation"] == pytest.approx([0.2828] * 24, abs=1e-4)


def test_an_arm_is_one_of_all_its_tasks():
    of = lambda *tasks: results.arm_sha256(replace(TWO, task=tasks), "a")
    assert len({of("chain"), of("count"), of("chain", "count"), of("chain", "hop")}) == 4


# ---- published results


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A result of the experiment of rloo, as `reproduce` writes it."""
    values = {"no baseline": [0.1, 0.2, 0.3], "rloo": [0.31, 0.4, 0.52], "batch mean": [0.3, 0.3, 0.3]}
    experiment = rloo_claim.EXPERIMENT
    result = results.judge_arms(experiment, {a: {"count": v} for a, v in values.items()})
    for name, arm in result["arms"].items():
        curve = {"tokens": [0.0, 100.0], "reward": [0.1, 0.5], "deviation": [0.01, 0.02]}
        arm |= {"config_sha256": results.arm_sha256(experiment, name), "failed": {}, "curve": curve}
        arm |= {"sampled_tokens": [60_000] * 3}
    result |= {
        "id": "rloo", "claim": experiment.claim, "metric": experiment.metric, "expected": str(experiment.expect),
        "falsified_if": experiment.falsified_if, "controls": {"entropy": {a: [0.5, None, 0.7] for a in values}},
        "task": ["count"], "model": "tiny", "budget_tokens": 60_000, "seeds": 3, "sampled_tokens": 540_000,
        "seconds": 120.0, "note": "", "commit": "abc", "machine": "m", "command": "palaestra reproduce rloo --seeds 3",
    }  # fmt: skip
    (tmp_path / "rloo.json").write_text(one_line_lists(result))
    monkeypatch.setattr(files, "folder", lambda: tmp_path)
    results.standing.cache_clear()
    yield tmp_path / "rloo.json"
    results.standing.cache_clear()


def entry(name="rloo"):
    return next(e for e in catalogue.all_entries() if e.id == name)


def test_a_result_is_the_status(published, capsys):
    assert results.standing(entry()).status == "reproduced" and results.standing(entry("grpo")).status == "built"
    assert results.standing(entry("agro")).status == "built"  # its published result does not lie here
    assert main(["list", "--family", "base", "--status", "reproduced", "--json"]) == 0
    assert [e["id"] for e in json.loads(capsys.readouterr().out)] == ["rloo"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: r["arms"]["rloo"].update(config_sha256="0"), "the configuration of rloo has changed"),
        (lambda r: r.update(expected="something else"), "something else"),
        (lambda r: r.update(metric="held-out luck"), "it measured held-out luck"),
        (lambda r: r["arms"].pop("no baseline"), "no baseline"),
    ],
)
def test_a_stale_result_is_no_verdict(published, change, says):
    result = json.loads(published.read_text())
    change(result)
    published.write_text(json.dumps(result))
    found = results.standing(entry())
    assert found.status == "built" and says in found.note
    assert "stale" in pages.status(entry())


def test_a_damaged_result_says_so(published):
    published.write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        results.standing(entry())


def test_a_page_shows_the_result(published):
    made = pages.files()
    page = made[pages.METHODS / "rloo.md"]
    for part in (
        "**Reproduced.**",
        "| rloo | 0.41 [",
        "rloo.svg",
        "palaestra reproduce rloo --seeds 3\n",
        "Difference from [reinforce]",
        "0.6",
    ):
        assert part in page, part
    assert made[pages.METHODS / "rloo.svg"].startswith("<svg")
    assert "No experiment" in made[pages.METHODS / "sft.md"] or "To be tested" in made[pages.METHODS / "sft.md"]


@pytest.mark.parametrize(
    ("mean", "half", "told"),
    [
        (0.03, 0.04, "about 7 seeds would"),
        (0.0195, 0.03, "200 seeds would not either"),
        (0.0, 0.025, "about 7 seeds would"),
    ],
)
def test_how_many_seeds_would_decide(mean, half, told):
    """Five seeds, margin 0.02. The half width goes with t / sqrt(n): 1.2417 at 5 seeds, 1.0494 at 6, 0.9248 at 7."""
    expect = Greater(better="rloo", than="no baseline", by=0.02)
    experiment = replace(rloo_claim.EXPERIMENT, expect=expect)
    result = {"effect": mean, "ci95": [mean - half, mean + half], "seeds": 5, "reason": "open"}
    assert pages.inconclusive_reason(experiment, result) == f"open; with this mean and spread {told}"
    assert pages.inconclusive_reason(experiment, result | {"seeds": 2}) == "open"


def test_check_finds_stale_pages(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["pages"])
    assert pages.main() == 0
    monkeypatch.setattr("sys.argv", ["pages", "--check"])
    assert pages.main() == 0
    (tmp_path / pages.METHODS / "gone.md").write_text("")
    (tmp_path / "CATALOGUE.md").write_text("")
    assert pages.main() == 1
    assert "gone.md" in (said := capsys.readouterr().err) and "CATALOGUE.md" in said


def test_a_smaller_run_does_not_replace_a_larger_result(published, tmp_path):
    from palaestra.cli.reproduce import keep

    result = json.loads(published.read_text())
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "rloo.json").write_text(json.dumps(result))
    assert "keeps" in keep(result | {"seeds": 2}, tmp_path)
    assert "keeps" in keep(result | {"seeds": 9, "budget_tokens": result["budget_tokens"] - 1}, tmp_path)
    assert "keeps" in keep(result | {"arms": dict(list(result["arms"].items())[1:])}, tmp_path)
    assert keep(result | {"seeds": 4}, tmp_path).endswith("rloo.json")
    assert json.loads((tmp_path / "results" / "rloo.json").read_text())["seeds"] == 4


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["reproduce", "sft"], "no experiment"),
        (["reproduce", "rloo", "--arms", "rlo"], "no arm 'rlo'"),
        (["reproduce", "rlo"], "did you mean rloo"),
    ],
)
def test_mistakes(argv, says, capsys):
    assert main(argv) == 2
    assert says in capsys.readouterr().err


# ---- text and pictures


def test_ticks_are_round():
    assert ticks(0.18, 0.93) == [0.2, 0.4, 0.6, 0.8]
    assert ticks(0, 60_000) == [0, 20_000, 40_000, 60_000]
    assert ticks(-0.01, 0.02) == [-0.01, 0, 0.01, 0.02]


def test_labels_do_not_cover_one_another():
    heights = sorted(spread({"a": 10.0, "b": 12.0, "c": 11.0}).values())
    assert all(b - a >= 14 for a, b in pairwise(heights))


def test_a_picture_is_the_same_bytes():
    arm = {"curve": {"tokens": [0, 10], "reward": [0.1, 0.2]}, "sampled_tokens": [10]}
    assert curves_svg({"<a>": arm}) == curves_svg({"<a>": arm}) and "&lt;a&gt;" in curves_svg({"<a>": arm})
    assert curves_svg({"a": {"curve": {}, "sampled_tokens": []}}) == ""


def test_text_for_people():
    assert table([("x|y",)], "a") == "| a |\n| --- |\n| x\\|y |"
    data = {"x": [1, 2.5, None], "y": [[1, 2], [3, 4]], "z": []}
    assert json.loads(one_line_lists(data)) == data and '"x": [1, 2.5, null]' in one_line_lists(data)
