"""The ledger: what a cell is addressed by, how a verdict is reached, which results still hold, what the pages say."""

import asyncio
import json
import math
import shutil
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from dataclasses import asdict, make_dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from palaestra.cli.main import main
from palaestra.curriculum.pool import Shuffled
from palaestra.ledger import cells, digests, files, results, versions
from palaestra.ledger.cells import CellRequest, run_all
from palaestra.ledger.expectations import Greater
from palaestra.ledger.experiment import Experiment
from palaestra.ledger.measures import Cell, Final, Logged
from palaestra.ledger.versions import Version
from palaestra.markdown import line_by_name, table
from palaestra.recipes.base import grpo, rloo, sft
from palaestra.recipes.objectives import pav
from palaestra.run.evaluation import chosen_tasks
from palaestra.run.plan import Plan
from palaestra.settings.fields import Settings
from palaestra.terminal.progress import Headway
from palaestra.types import Result
from palaestra.values import override
from tools.pages import build as pages
from tools.pages.figure import curves_svg, spread, ticks

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


def test_versions_of_parts_belong_to_the_address_and_not_to_the_configuration(monkeypatch):
    before = request().digest(), request().configuration()
    monkeypatch.setattr(versions, "history", lambda: (Version(part="loop", version=2, date="", why=""),))
    assert request().digest() != before[0] and request().configuration() == before[1]
    monkeypatch.setattr(versions, "history", lambda: (Version(part="BradleyTerry", version=2, date="", why=""),))
    assert request().digest() == before[0], "a part that it does not have"


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
        expect=Greater("b", "a"), falsified_if="f", tokens=20, evaluate=2,
        tuned={"optimiser.lr": (1e-4, 2e-4)}, tuning_seeds=(1000,), task="count",
    )

    def build():
        return rloo.build()
"""


def test_an_installed_package_finds_the_ledger_of_the_checkout_it_is_called_in(tmp_path, monkeypatch):
    """And has none elsewhere, in a folder that only looks like one."""
    root = files.PACKAGE.parent
    assert files.checkout() == root
    monkeypatch.setattr(files, "PACKAGE", tmp_path / "installed" / "palaestra")
    monkeypatch.chdir(root)
    assert files.folder() == root / "ledger" / "results"
    (tmp_path / "ledger").mkdir()
    monkeypatch.chdir(tmp_path)
    assert files.folder() == tmp_path / "installed" / "ledger" / "results"


def test_arms_are_tuned_measured_fail_and_resume(tmp_path, monkeypatch):
    """Three arms of two rates on a tuning seed, then these and the start on a seed of each block of a trial."""
    own = tmp_path / "small_experiment.py"
    own.write_text(textwrap.dedent(SMALL))
    monkeypatch.setenv("PYTHONPATH", str(files.PACKAGE.parent))
    said = []
    work = {"out": tmp_path, "headway": Headway("small", said.append), "seeds": 1}
    found = results.reproduce(str(own), **work)
    assert any("broken, seed 2000, optimiser.lr=0.0001: failed: " in line for line in said)
    assert found["blocks"] == [[2000], [2100]] and found["seeds"] == 2
    assert found["verdict"] == "inconclusive" and found["reason"] == "a trial: less was run than is declared"
    assert list(found["arms"]) == ["start", "a", "b", "broken"]
    assert found["arms"]["broken"]["values"] == [None, None]
    assert "nobody answers" in found["arms"]["broken"]["failed"]["broken, seed 2000, optimiser.lr=0.0001"]
    tried = found["tuning"]["arms"]
    assert list(tried) == ["a", "b", "broken"] and "start" not in tried
    assert [row["setting"] for row in tried["a"]] == [{"optimiser.lr": 1e-4}, {"optimiser.lr": 2e-4}]
    best = max(tried["a"], key=lambda row: row["values"][0])
    assert found["arms"]["a"]["setting"] == best["setting"] and tried["broken"][0]["values"] == [None]
    assert found["arms"]["start"]["sampled_tokens"] == [0, 0] and found["arms"]["a"]["sampled_tokens"][0] >= 20
    assert found["seconds"] > 0 and found["controls"]["area"]["kind"] == "number"
    # six to tune and eight to measure
    assert len(list((tmp_path / "cells").iterdir())) == 14
    assert not list((tmp_path / "cells").rglob("checkpoints"))
    said.clear()
    again = results.reproduce(str(own), **work, arms=("a", "b"))
    assert said == [] and again["arms"]["a"]["values"] == found["arms"]["a"]["values"]


def test_seeds_have_tasks_of_their_own(tmp_path, monkeypatch):
    """Seed 3 with four held-out tasks begins at the twelfth, and learns from others than seeds before it; another cell
    begins at the first."""
    assert replace(request(), own_tasks=True).configuration() != request().configuration()
    seen = []

    async def run(ctx):
        drawn, _ = Shuffled()(ctx, ("draw",), 2, {"cursor": 5})
        seen.append(
            (ctx.bench.first_held_out, list(chosen_tasks(ctx.bench, 4)), [int(t.id.split("/")[-1]) for t in drawn])
        )
        return Result()

    monkeypatch.setattr(CellRequest, "runnable", lambda self: SimpleNamespace(run=run))
    for own in (True, False):
        asked = replace(request(seed=3, evaluate=4), own_tasks=own)
        cells.run_here(asked, tmp_path)
    asked = replace(request(seed=3, evaluate=0), own_tasks=True)
    cells.run_here(asked, tmp_path)
    assert seen.pop()[0] == 3 * cells.MOST_MEASURED  # of a program with a number of its own
    first = 3 * cells.MOST_DRAWN
    assert seen == [(12, [12, 13, 14, 15], [first + 5, first + 6]), (0, [0, 1, 2, 3], [5, 6])]


def test_seeds_imitate_demonstrations_of_their_own(tmp_path):
    """Nothing in imitation is drawn but its tasks: with the same ones all seeds would end in the same weights."""
    ends = []
    for seed in (0, 1):
        (place := tmp_path / f"{seed:020}").mkdir()
        asked = request(seed=seed, recipe="sft", set={"schedule.prompts": 2}, evaluate=2)
        cells.run_here(replace(asked, own_tasks=True, tokens=1), place)
        ends.append(json.loads((place / cells.DONE).read_text())["weights_sha256"])
    assert ends[0] != ends[1]


def test_a_cell_refuses_another_configuration_than_it_was_asked_for(tmp_path):
    place = tmp_path / "00000000000000000000"
    place.mkdir()
    (place / cells.REQUEST).write_text(json.dumps(asdict(request())))
    with pytest.raises(Exception, match="its configuration has changed"):
        cells.run_requested(place)


@pytest.mark.parametrize(("wrote", "exitcode"), [(True, None), (True, 1), (False, 0), (False, 1), (False, None)])
def test_a_cell_with_its_numbers_is_done_however_its_process_ended(wrote, exitcode, tmp_path):
    def start(place, request):
        if wrote:
            (place / cells.DONE).write_text("{}")
        (place / cells.LOG).write_text("out of luck\n")
        return SimpleNamespace(join=lambda: None, exitcode=exitcode)

    request = CellRequest(label="x", settings=Settings(recipe="sft"), tokens=1)
    found = cells._run(tmp_path / "cell", request, start)
    if wrote or exitcode == 0:
        assert found == ""
    else:
        assert found.startswith("failed: out of luck (see ")


def test_the_seconds_of_a_cell_are_those_of_all_parts_of_its_run(tmp_path, monkeypatch):
    """Parts of 2 s (interrupted) and 3 s make 5 s; of a part that was killed outright nobody knows."""
    wall, used = iter([10.0, 12.0, 50.0, 53.0, 53.0, 90.0, 91.0, 92.0]), iter([4.0, 5.0, 7.0, 7.5, 7.5, 9.0, 9.5, 9.6])
    clocks = lambda: {"wall_seconds": next(wall), "processor_seconds": next(used)}
    monkeypatch.setattr(cells, "clocks", clocks)
    (tmp_path / cells.LOG).write_text("")
    with suppress(KeyboardInterrupt), cells.clock_cell(tmp_path):
        raise KeyboardInterrupt
    with cells.clock_cell(tmp_path) as seconds:
        assert seconds() == {"wall_seconds": 5.0, "processor_seconds": 1.5}
    (tmp_path / cells.CLOCK).write_text("null")  # what a killed part leaves
    with cells.clock_cell(tmp_path) as seconds:
        assert seconds() == {"wall_seconds": None, "processor_seconds": None}
    assert (tmp_path / cells.CLOCK).read_text() == "null"


def test_the_processor_seconds_of_a_cell_have_those_of_its_programs(tmp_path):
    """A process of half a second of work, waited for; sleeping costs wall time only."""
    with cells.clock_cell(tmp_path) as seconds:
        work = "import time; e = time.process_time() + 0.5\nwhile time.process_time() < e: pass"
        subprocess.run([sys.executable, "-c", work], check=True)
        used = seconds()["processor_seconds"]
        time.sleep(0.3)
        found = seconds()
    assert 0.4 < used <= found["processor_seconds"] < used + 0.25 and found["wall_seconds"] >= 0.8


def test_the_seconds_of_a_cell_begun_without_a_clock_are_not_known(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    with cells.clock_cell(tmp_path) as seconds:
        assert set(seconds().values()) == {None}
    told = {"arms": {}, "sampled_tokens": 0, "seconds": None, "machine": "m"}
    assert pages.sum_of(told) == "0 sampled tokens in 0 runs, time not known (m),"
    assert pages.time_of({"seconds": 120.0}) == "2 wall-clock minutes"
    assert pages.time_of({"seconds": 120.0, "processor_seconds": 60.0}) == "1 processor minutes"


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
    (tmp_path / "other" / cells.METRICS).write_text('{"step": 1, "sampled_tokens": 120}\n')
    assert under_way("", "other") == 1.3


def test_cells_under_way_are_told_by_their_steps(tmp_path):
    """Those of a pipeline's part count, an evaluation does not, and of many cells the first are named."""
    for name, lines in (("a", 1), ("b/part", 2)):
        (tmp_path / name).mkdir(parents=True)
        text = '{"step": 0, "evaluation": {"mean": 1}}\n' + '{"step": 1, "sampled_tokens": 30}\n' * lines
        (tmp_path / name / cells.METRICS).write_text(text)
    told = lambda names: cells._describe({tmp_path / n: replace(request(), label=n) for n in names})
    assert told("ab") == "a: step 1; b: step 2" and told("") == ""
    assert told("cabde") == "c: no step yet; a: step 1; b: step 2; 2 more"


@pytest.mark.parametrize(
    ("jobs", "order"),
    [(1, "a0 b0 c0 a1 b1 a2 b2 c2"), (2, "a0 a1 b0 b1 c0 a2 b2 c2"), (9, "a0 a1 a2 b0 b1 b2 c0 c2")],
)
def test_seeds_are_run_side_by_side(jobs, order):
    """The cells of a seed have a warm start in common, which one of them makes."""
    asked = [(n, s) for s in (0, 1, 2) for n in "abc" if (n, s) != ("c", 1)]
    waiting = {
        Path(f"{n}{s}"): CellRequest(label=n, settings=Settings(seed=s, model="tiny"), tokens=1) for n, s in asked
    }
    assert " ".join(map(str, cells._in_turn(waiting, jobs))) == order


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


# ---- results


def test_a_curve_ends_where_the_shortest_run_does():
    runs = [[{"sampled_tokens": 10 * i, "reward": i / n} for i in range(1, n)] for n in (5, 9)]
    found = results.curve(runs)
    assert found["tokens"][0] == 10 and found["tokens"][-1] == 40 and len(found["deviation"]) == results.POINTS
    assert results.curve([[{"step": 1}]]) == {}
    flat = [[{"sampled_tokens": i, "reward": x} for i in range(1, 9)] for x in (0.2, 0.6)]
    found = results.curve(flat)  # the standard deviation of two seeds: .4 / sqrt(2)
    assert found["reward"] == pytest.approx([0.4] * 24) and found["deviation"] == pytest.approx([0.2828] * 24, abs=1e-4)


def test_a_curve_may_be_over_another_meter():
    """A program that samples no token spends steps of its environment."""
    runs = [[{"sampled_tokens": 0, "env_steps": 100 * i, "reward": 1.0} for i in range(1, 5)]]
    found = results.curve(runs, "env_steps")
    assert found["over"] == "env_steps" and (found["tokens"][0], found["tokens"][-1]) == (100, 400)
    assert ">env steps<" in curves_svg({"a": {"curve": found, "sampled_tokens": [0]}})
    assert curves_svg({"a": {"curve": results.curve(runs), "sampled_tokens": [0]}}) == ""
    assert "over" not in results.curve([[{"sampled_tokens": 5 * i, "reward": 1.0} for i in range(1, 5)]])


def test_an_arm_is_one_of_all_its_tasks():
    of = lambda *tasks: results.arm_sha256(replace(TWO, task=tasks), "a")
    assert len({of("chain"), of("count"), of("chain", "count"), of("chain", "hop")}) == 4


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["reproduce", "sft"], "no experiment"),
        (["reproduce", "rloo", "--arms", "rlo"], "no arm 'rlo'"),
        (["reproduce", "rlo"], "did you mean rlot or rloo"),
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
    assert json.loads(line_by_name(data)) == data and line_by_name(data).splitlines()[1] == '"x":[1,2.5,null],'
