"""A bench that was stopped goes on with the numbers it has, of the same machine and code, and leaves nothing behind."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import ClassVar

import pytest
from benchmarks import ablation, busy, company, drafts, engine, formats, memory, sandbox, scaling, step, trl, turns
from benchmarks.work import Work
from palaestra.attempts import DraftCounts
from palaestra.cli.main import main
from palaestra.run import machine
from palaestra.run.parts import Parts
from palaestra.terminal.progress import Headway

SMALL = ["bench", "step", "--prompts", "2", "--group", "2", "--max-tokens", "4", "--repeats", "3"]
NAME = "step-tiny-float32-2x2x4"


@pytest.fixture
def bench(tmp_path, monkeypatch, capsys):
    """`palaestra bench step` in one process after the other; each says its status, its output and the steps it took."""
    monkeypatch.setattr(machine, "seconds", lambda *_, **__: 1e-3)  # the machine's own limits
    inner, taken, stop = step.step, [], []

    async def one(recipe, ctx, state):
        taken.append(state["seed"])
        if stop and len(taken) == stop[0]:
            os.kill(os.getpid(), signal.SIGTERM)
        return await inner(recipe, ctx, state)

    monkeypatch.setattr(step, "step", one)

    def call(*more, stop_at=0):
        taken.clear()
        stop[:] = [stop_at] if stop_at else []
        status = main([*SMALL, *more])
        told = capsys.readouterr()
        return SimpleNamespace(status=status, out=told.out, err=told.err.splitlines(), taken=list(taken))

    return call


def test_a_stopped_bench_goes_on(bench, tmp_path):
    out = tmp_path / "o"
    first = bench("--out", str(out), "--json", stop_at=4)
    again = f"palaestra: stopped; what is finished is kept; go on with: palaestra {' '.join(SMALL)} --out {out} --json"
    assert first.status == 143 and first.out == "" and first.err[-1] == again
    (folder,) = (out / ".parts" / NAME).iterdir()
    kept = {p.stem: json.loads(p.read_text())["value"] for p in folder.iterdir()}
    assert set(kept) == {"step, 1", "step, 2"}
    second = bench("--out", str(out), "--json")
    assert second.status == 0 and second.taken == [2, 2]  # a round that warms up, and the third; other problems
    assert second.err[0].startswith("bench step  2/3") and second.err[-1].startswith("bench step  3/3")
    found = json.loads(second.out)
    assert found["each"][:2] == [round(kept[n]["seconds"], 4) for n in ("step, 1", "step, 2")]
    assert len(found["each"]) == 3 and json.loads((out / f"{NAME}.json").read_text()) == found
    assert [p.name for p in out.iterdir()] == [f"{NAME}.json"]


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setattr(machine, "processor", lambda: "another"),
        lambda patch: patch.setattr(machine, "__version__", "another"),
        lambda patch: patch.setattr(machine, "package_sha256", lambda: "another"),
        lambda patch: patch.setattr("benchmarks.command.folder_sha256", lambda folder: "another"),
        lambda patch: patch.setattr("benchmarks.command.model_sha256", lambda name: "another"),
    ],
    ids=["machine", "version", "code", "bench", "model"],
)
def test_parts_of_another_machine_or_version_are_not_used(bench, tmp_path, monkeypatch, change):
    assert bench("--out", str(tmp_path), stop_at=4).status == 143
    change(monkeypatch)
    second = bench("--out", str(tmp_path))
    assert second.status == 0 and len(second.taken) == 4 and "are not used" in second.err[0]


def test_the_load_is_no_condition():
    here = {"processor": "P", "load": [0.1]}
    assert machine.conditions(here) == machine.conditions(here | {"load": [9.0]}) != machine.conditions({})


def test_a_bench_without_a_folder_says_that_nothing_is_kept(bench, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stopped = bench(stop_at=3)
    assert stopped.err[-1] == "palaestra: stopped; without --out DIR nothing is kept"
    assert stopped.status == 143 and list(tmp_path.iterdir()) == []


# ---- each bench


@pytest.fixture
def quick(monkeypatch):
    """All benches with nothing to measure."""

    async def steps(recipe, ctx, rounds):
        for i in rounds:
            rounds.put({"tokens": i, "seconds": i})
        return rounds.found

    async def ablations(recipe, ctx, rounds):
        for _ in rounds:
            rounds.put(dict.fromkeys(("", *ablation.TECHNIQUES), 1.0))

    ctx = SimpleNamespace(model=lambda name: SimpleNamespace(n_parameters=7))
    model = SimpleNamespace(eos=frozenset(), vocabulary=99)
    loading = {"load": lambda *_, **__: model, "prepare_work": lambda *_: (None, ctx)}
    for module, names in {
        engine: {"load": loading["load"], "sample_seconds": lambda *_: 1.0, "_generate": lambda *_: 2.0}
        | {"OwnEngine": lambda *_, **__: SimpleNamespace(forget=lambda: None)},
        drafts: {"load": loading["load"]}
        | {"sample": lambda *_: (1.0, 2.0, [((7,), (0.0,))], DraftCounts(passes=2, tokens=3, drafted=2, accepted=1))},
        formats: {"load": loading["load"], "sample": lambda *_: (1.0, 0.5, []), "copy_seconds": lambda e: 1.5}
        | {"OwnEngine": lambda *_, **__: None, "gaps": lambda *_: {"gap": 0.1, "max": 0.2, "kl": 0.3, "capped": 0.4}},
        company: {"load": loading["load"], "sample": lambda *_: (1.0, 0.5, []), "OwnEngine": lambda *_, **__: None},
        scaling: loading | {"time_steps": steps, "histories": lambda *_: (1.0, 2.0), "make_model": lambda *_: "m"},
        ablation: {"prepare_work": loading["prepare_work"], "time_rounds": ablations},
        memory: {"peaks": lambda *_: {"base": 1.0, "rollout": 2.0, "update": 3.0}},
        sandbox: {"sandbox": SimpleNamespace(sandbox_kind=lambda: SimpleNamespace(name="k", refusal=lambda: ""))}
        | {"time_runs": lambda *_: 1.0, "leave_orphans": lambda *_: {"seconds": 1.0, "left": 1}}
        | {"time_busy_loop": lambda: {"busy_loop": {"limit": 1, "status": "timeout", "seconds": 1.1}}},
        busy: {"loads": lambda: [0, 2], "default_run": lambda n: {"seconds": n + 1.0, "processor_seconds": n + 2.0}},
        turns: {"TurnWorker": Worker},
    }.items():
        for name, stand_in in names.items():
            monkeypatch.setattr(module, name, stand_in)
    monkeypatch.setattr(sandbox.sandbox, "run_program", lambda *_, **__: SimpleNamespace(stdout="45\n"), raising=False)


class Worker:
    """A process of `bench trl` that takes no time."""

    log: ClassVar[list[tuple]] = []
    breaks_at = 0  # steps of the peer, at which it is broken off

    def __init__(self, module, work, folder, seed):
        self.name = module.rpartition(".")[2]
        self.log.append(("start", self.name, seed))

    def go(self):
        self.log.append(("step", self.name))
        n = self.log.count(("step", self.name))
        if self.name == "peer" and n == self.breaks_at:
            raise KeyboardInterrupt
        memory = {"base": 1.0, "update": 2.0}
        return dict.fromkeys((*trl.PHASES, "processor"), float(n)) | {"tokens": 10, "memory": memory}

    def close(self):
        self.log.append(("end", self.name))


MEASURES = {
    "engine": lambda parts: engine.measure(Work(), 2, parts),
    "drafts": lambda parts: drafts.measure(Work(), 2, parts),
    "formats": lambda parts: formats.measure(Work(), 2, parts),
    "company": lambda parts: company.measure(Work(), 2, parts),
    "scaling": lambda parts: scaling.measure(2, "cpu", parts),
    "ablation": lambda parts: ablation.measure(Work(), 2, parts),
    "memory": lambda parts: memory.measure(Work(), 2, parts),
    "busy": lambda parts: busy.measure(2, parts),
    "sandbox": lambda parts: sandbox.measure(10, 2500, parts),
}


@pytest.mark.parametrize("what", MEASURES)
def test_a_bench_has_as_many_parts_as_it_says_and_takes_none_twice(what, quick, tmp_path):
    parts = Parts(Headway(what, lambda text: None), tmp_path / "p", {})
    found = MEASURES[what](parts)
    assert parts.headway.done == parts.headway.total == len(list((tmp_path / "p").rglob("*.json"))) > 1
    again = Parts(Headway(what, lambda text: None), tmp_path / "p", {})
    assert MEASURES[what](again) == found and again.headway.done == again.headway.total
    assert importlib.import_module(f"benchmarks.{what}").show(found)


def test_pairs_stay_pairs(quick, tmp_path, monkeypatch):
    """The second pair is broken off between the two: both of its steps are taken again, after a pair that warms up."""
    log = Worker.log
    log.clear()
    monkeypatch.setattr(Worker, "breaks_at", 3)
    parts = lambda: Parts(Headway("trl", lambda text: None), tmp_path / "p", {})
    with pytest.raises(KeyboardInterrupt):
        trl.measure(Work(), 2, parts())
    pair = [("step", "own"), ("step", "peer")]
    assert log == [("start", "own", 0), ("start", "peer", 0), *pair * 3, ("end", "own"), ("end", "peer")]
    log.clear()
    found = trl.measure(Work(), 2, parts())
    assert log == [("start", "own", 1), ("start", "peer", 1), *pair * 2, ("end", "own"), ("end", "peer")]
    assert [s["seconds"] for s in found["steps"]["trl"]] == [2.0, 2.0]
    log.clear()
    assert trl.measure(Work(), 2, parts()) == found and log == []


# ---- children


def test_a_worker_ends_where_its_start_is_broken_off(monkeypatch, tmp_path):
    ended = []

    class Lines:
        def __init__(self, *_, **__):
            pass

        def receive(self):
            raise KeyboardInterrupt

        def stop(self):
            ended.append(True)

    monkeypatch.setattr(turns, "LineProcess", Lines)
    with pytest.raises(KeyboardInterrupt):
        turns.TurnWorker("module", "{}", tmp_path)
    assert ended == [True]


CHILD = """
import os, time
from benchmarks.turns import Turns
turns = Turns()
turns.ready()
turns.wait()
open("pid", "w").write(str(os.getpid()))
time.sleep(600)
"""
PARENT = """
import sys
from pathlib import Path
from benchmarks.turns import TurnWorker
from palaestra.run.parts import stoppable
with stoppable(lambda: ""):
    worker = TurnWorker("a_child", "{}", Path("folder"))
    try:
        worker.go()
    finally:
        worker.close()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_child_ends_with_its_parent_in_the_middle_of_a_step(number, tmp_path, monkeypatch):
    (tmp_path / "a_child.py").write_text(CHILD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stderr=subprocess.DEVNULL)
    pid = int(wait_for(lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text()))
    parent.send_signal(number)
    parent.wait(30)
    assert wait_for(lambda: not alive(pid))


def wait_for(what, seconds=60.0):
    """The first true value within that time, or the last false one."""
    end = time.monotonic() + seconds
    while not (found := what()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def alive(pid):
    try:
        return "Z" not in open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]
    except OSError:
        return False
