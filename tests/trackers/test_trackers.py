"""Trackers are told what the run folder holds, and whatever they do, the run is the same."""

import importlib
import json
import os
import re
import shlex
import sqlite3
import struct
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from palaestra.cli import main as cli
from palaestra.errors import Fault, UserError
from palaestra.ledger.digests import configuration
from palaestra.settings import commands, overrides, reading
from palaestra.settings.fields import Settings
from palaestra.store import columns
from palaestra.tasks import user_code
from palaestra.trackers import feed
from palaestra.trackers.base import describe_run, numbers_of
from palaestra.trackers.reading import SHOWN_EPISODES, messages, read_episodes
from palaestra.trackers.registry import makers

from tests.trackers.reading import tensorboard_numbers

PAGE = (Path(__file__).parents[2] / "docs" / "trackers.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line for kind, code in BLOCKS if not kind for line in code.splitlines()]
SMOKE = ["train", "grpo", "--smoke", "--evaluate", "4"]
CLOCK = ("seconds", "tokens_per_second")
PLUGIN = '''
"""Trackers of another package: one that notes what it is told, and some that misbehave."""
import threading
import time

CALLS = []
HANGING = threading.Event()


class Notes:
    def __init__(self, given=""):
        self.given = given

    def start(self, run):
        self.told("start", run)

    def log(self, step, numbers):
        self.told("log", step, numbers)

    def episodes(self, step, file):
        self.told("episodes", step, file, file.is_file())

    def finish(self, summary, files):
        self.told("finish", summary, [f.name for f in files if f.is_file()])

    def told(self, *call):
        CALLS.append((threading.current_thread().name, self.given, *call))


class Misbehaves(Notes):
    def told(self, *call):
        if call[0] == self.given:
            self.misbehave()


class Raises(Misbehaves):
    def misbehave(self):
        raise SystemExit("I give up\\nfor several reasons")


class Hangs(Misbehaves):
    def misbehave(self):
        HANGING.wait(60)


def stubborn(given):
    """Hangs, and does not let the interpreter end either."""
    import atexit
    atexit.register(time.sleep, 600)
    threading.Thread(target=time.sleep, args=(600,)).start()
    return Hangs("log")


def asleep(given):
    """Is never made."""
    HANGING.wait(60)
    return Notes()


class Slow(Notes):
    """Is made in no time when it is tried, and never again."""

    tried = False

    def __init__(self, given=""):
        super().__init__(given)
        if Slow.tried:
            HANGING.wait(60)
        Slow.tried = True
'''
NAMES = {
    "notes": "Notes",
    "raises": "Raises",
    "hangs": "Hangs",
    "stubborn": "stubborn",
    "lost": "Missing",
    "slow": "Slow",
    "asleep": "asleep",
}


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """An installed package that offers trackers under the entry point group."""
    site = tmp_path_factory.mktemp("site")
    (site / "notes_tracker.py").write_text(PLUGIN)
    info = site / "notes_tracker-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: notes-tracker\nVersion: 1.0\n")
    points = [f"{name} = notes_tracker:{target}" for name, target in NAMES.items()]
    (info / "entry_points.txt").write_text("\n".join(["[palaestra.trackers]", *points]))
    return site


@pytest.fixture
def plugin(package, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(package)
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module("notes_tracker")
    module.CALLS.clear()
    module.HANGING.clear()
    yield module
    module.HANGING.set()  # what hangs ends here, so that no later test finds it


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run without trackers."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    assert cli.main([*SMOKE, "--out", str(folder)]) == 0
    return folder


def lines(folder, clock=True):
    read = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return read if clock else [{k: v for k, v in line.items() if not k.startswith(CLOCK)} for line in read]


def weights(folder):
    return json.loads((folder / "summary.json").read_text())["weights_sha256"]


def calls(plugin):
    return [call[2:] for call in plugin.CALLS]


# ---- what they are told


def test_a_tracker_is_told_what_the_folder_holds_in_order(plugin, plain):
    assert cli.main([*SMOKE, "--out", "run", "--track", "notes:mine"]) == 0
    place, told = Path("run").resolve(), calls(plugin)
    assert {call[:2] for call in plugin.CALLS} == {(feed.THREAD, "mine")}
    assert [c[0] for c in told] == [
        "start",
        "log",
        "episodes",
        "log",
        "episodes",
        "log",
        "log",
        "finish",
    ]
    run = told[0][1]
    assert (run["name"], run["group"], run["folder"], run["step"]) == ("run", "", place, 0)
    assert run["config"]["recipe"] == "grpo" and run["config"]["track"] == ["notes:mine"]
    assert [(c[1], c[2]) for c in told if c[0] == "log"] == [(r["step"], numbers_of(r)) for r in lines(place)]
    files = [(step, columns.path(Path("run"), step), True) for step in (1, 2)]
    assert [c[1:] for c in told if c[0] == "episodes"] == files
    assert told[-1][1]["weights_sha256"] == weights(plain) and told[-1][2] == [
        "report.html",
        "curve.png",
    ]


def test_numbers_are_those_of_the_line():
    line = {
        "step": 3,
        "loss": 0.5,
        "n": 2,
        "bad": None,
        "flag": True,
        "word": "x",
        "evaluation": {"mean": 0.25, "low": None},
    }
    assert numbers_of(line) == {"loss": 0.5, "n": 2, "evaluation/mean": 0.25}


def test_a_run_that_is_over_is_sent_as_it_would_have_been(plugin):
    assert cli.main([*SMOKE, "--out", "run", "--track", "notes"]) == 0
    live = calls(plugin)
    plugin.CALLS.clear()
    assert cli.main(["track", "run", "--to", "notes"]) == 0
    assert calls(plugin) == live


def test_a_stopped_run_can_be_sent(plugin, plain, capsys):
    Path("cut").mkdir()
    for name in ("config.toml", "metrics.jsonl"):
        (Path("cut") / name).write_bytes((plain / name).read_bytes())
    with (Path("cut") / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "rew')
    assert cli.main(["track", "cut", "--to", "notes", "--json"]) == 0
    told = calls(plugin)
    assert [c[0] for c in told] == ["start", *["log"] * 4, "finish"] and told[-1][1:] == ({}, [])
    assert json.loads(capsys.readouterr().out)["sent"] == {"notes": {"cut": 4}}
    (Path("cut") / "metrics.jsonl").unlink()
    assert cli.main(["track", "cut", "--to", "notes"]) == 2
    assert "has not begun" in capsys.readouterr().err


def test_a_resumed_run_is_told_where_it_goes_on(plugin):
    assert cli.main([*SMOKE, "--out", "run", "--track", "notes"]) == 0
    plugin.CALLS.clear()
    assert cli.main(["train", "--resume", "run", "--steps", "3", "schedule.prompts=2"]) == 0
    told = calls(plugin)
    assert told[0][1]["step"] == 2 and told[0][1]["name"] == "run"
    assert [c[1] for c in told if c[0] == "log"] == [3, 3] and told[-1][0] == "finish"
    plugin.CALLS.clear()
    assert cli.main(["train", "--resume", "run", "--steps", "4", "schedule.prompts=2", "--track", "none"]) == 0
    assert not plugin.CALLS


def test_parts_of_a_pipeline_are_runs_of_their_own(plugin):
    assert cli.main(["train", "sft-grpo", "--smoke", "--evaluate", "4", "--out", "pipe", "--track", "notes"]) == 0
    live = calls(plugin)
    starts = [c[1] for c in live if c[0] == "start"]
    assert [(s["name"], s["group"]) for s in starts] == [("pipe-sft", "pipe"), ("pipe-rl", "pipe")]
    assert all(s["config"]["recipe"] == "sft-grpo" for s in starts)
    assert [c[1]["part"] for c in live if c[0] == "finish"] == ["sft", "rl"]
    plugin.CALLS.clear()
    assert cli.main(["track", "pipe", "--to", "notes"]) == 0
    again = calls(plugin)
    assert [c for c in again if c[0] != "finish"] == [c for c in live if c[0] != "finish"]
    assert [c[1] for c in again if c[0] == "finish"] == [c[1] for c in live if c[0] == "finish"]


def test_a_run_that_does_not_end_lets_trackers_finish(plugin, plain):
    with pytest.raises(KeyboardInterrupt), feed.Trackers(makers(["notes"])) as trackers:
        trackers.start(plain)
        raise KeyboardInterrupt
    assert [c[0] for c in calls(plugin)] == ["start", "finish"] and calls(plugin)[-1][1:] == (
        {},
        [],
    )


# ---- what they cannot do


@pytest.mark.parametrize("when", ["start", "log", "episodes", "finish"])
@pytest.mark.parametrize("name", ["raises", "hangs"])
def test_a_tracker_never_harms_the_run(plugin, plain, name, when, capsys):
    """The other tracker is fed all the same."""
    begin = time.monotonic()
    words = [
        "--track",
        f"{name}:{when}",
        "--track",
        "notes",
        "--track-seconds",
        "1",
        "--out",
        "run",
    ]
    assert cli.main([*SMOKE, *words]) == 0
    assert time.monotonic() - begin < 30
    assert weights(Path("run")) == weights(plain) and lines(Path("run"), False) == lines(plain, False)
    said = [line for line in capsys.readouterr().err.splitlines() if "tracker" in line]
    why = "SystemExit: I give up;" if name == "raises" else "1 seconds;"
    assert len(said) == 1 and f"the tracker {name}:{when} is left out" in said[0] and why in said[0]
    assert f"palaestra track run --to {name}:{when}" in said[0]
    assert [c[0] for c in calls(plugin)][-1] == "finish"


def test_a_tracker_that_is_never_made_is_left_out_in_its_time(plugin, plain, capsys):
    begin = time.monotonic()
    words = ["--track", "asleep", "--track", "notes", "--track-seconds", "1", "--out", "run"]
    assert cli.main([*SMOKE, *words]) == 0
    told = capsys.readouterr().err
    assert told.count("the tracker asleep was not made in 1 seconds and is left out; the run goes on") == 1
    assert "palaestra track RUN --to asleep" in told and lines(Path("run"), clock=False) == lines(plain, clock=False)
    assert any(call[2] == "finish" for call in plugin.CALLS) and time.monotonic() - begin < 30
    with pytest.raises(Fault, match=r"the tracker asleep was not made in 0.2 seconds; mend it"):
        makers(["asleep"], 0.2)


def test_a_tracker_that_falls_behind_is_left_out(plugin, plain, monkeypatch):
    monkeypatch.setattr(feed, "ROOM", 3)
    said = []
    trackers = feed.Trackers(makers(["hangs:start"]), said.append, seconds=60)
    trackers.start(plain)
    begin = time.monotonic()
    for step in range(50):
        trackers.log({"step": step, "loss": 1.0})
    trackers.finish()
    assert time.monotonic() - begin < 5
    assert len(said) == 1 and "3 calls behind" in said[0]


def test_a_tracker_that_does_not_answer_is_left_out_while_the_run_goes_on(plugin, plain):
    said = []
    trackers = feed.Trackers(makers(["hangs:log"]), said.append, seconds=0.2)
    trackers.start(plain)
    trackers.log({"step": 0, "loss": 1.0})
    time.sleep(0.5)
    assert not said
    trackers.log({"step": 1, "loss": 1.0})
    assert len(said) == 1 and "not answered for 0.2 seconds" in said[0]
    trackers.start(plain)  # the next part of a pipeline
    assert not trackers.lanes


def test_a_tracker_that_cannot_be_made_again_is_left_out(plugin, plain):
    said = []
    begin = time.monotonic()
    with feed.Trackers(makers(["slow"]), said.append, seconds=0.2) as trackers:
        trackers.start(plain)
    assert time.monotonic() - begin < 5 and len(said) == 1 and "0.2 seconds" in said[0]


def test_a_process_ends_although_a_tracker_hangs(package, plain, tmp_path):
    """Even where the tracker's library holds the interpreter at its end."""
    place = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    argv = [
        sys.executable,
        "-m",
        "palaestra",
        *SMOKE,
        "--out",
        "run",
        "--track",
        "stubborn",
        "--track-seconds",
        "1",
    ]
    given = {**os.environ, "PYTHONPATH": place}
    done = subprocess.run([*argv, "--json"], cwd=tmp_path, env=given, capture_output=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["weights_sha256"] == weights(plain)
    assert lines(tmp_path / "run", False) == lines(plain, False)


def test_a_tracker_that_fails_when_a_run_is_sent_is_an_error_of_one_line(plugin, plain, capsys):
    assert cli.main(["track", str(plain), "--to", "raises:log"]) == 1
    assert capsys.readouterr().err == "palaestra: tracker: raises:log: SystemExit: I give up\n"


# ---- names and settings


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("wanbd", "did you mean wandb"),
        ("mlflow:mine", "--track accelerate:mlflow:mine"),
        ("accelerate:mlfow", "accelerate:mlflow, accelerate:aim"),
        ("lost", "cannot be loaded from notes_tracker:Missing: AttributeError"),
    ],
)
def test_unknown_names(plugin, target, says, capsys):
    assert cli.main([*SMOKE, "--out", "run", "--track", target]) == 2
    told = capsys.readouterr().err
    assert says in told and told.count("\n") == 1 and not Path("run").exists()


def test_a_name_is_given_once(plugin):
    with pytest.raises(UserError, match="notes is given twice"):
        makers(["notes:a", "notes:b"])
    assert len(makers(["notes", "raises", "none"])) == 2


@pytest.mark.parametrize(
    ("target", "package", "extra"),
    [
        ("trackio", "trackio", "palaestra[trackio]"),
        ("wandb", "wandb", "palaestra[wandb]"),
        ("tensorboard", "tensorboardX", "palaestra[tensorboard]"),
        ("accelerate:mlflow", "accelerate", "palaestra[mlflow]"),
        ("accelerate:mlflow", "mlflow", "palaestra[mlflow]"),
        ("accelerate:comet", "comet_ml", "comet_ml"),
    ],
)
def test_a_missing_package_is_said_before_there_is_a_folder(target, package, extra, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    assert cli.main([*SMOKE, "--out", "run", "--track", target]) == 2
    told = capsys.readouterr().err
    assert f"the package {package} is missing: pip install '{extra}'" in told and told.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_settings_of_a_run_without_trackers_do_not_name_them(plain):
    assert "track" not in (plain / "config.toml").read_text()
    kept = Settings(track=("notes",), track_seconds=5)
    recipe = overrides.recipe_of(kept)
    assert configuration(recipe, kept, 0, 0) == configuration(recipe, Settings(), 0, 0)
    assert Settings(track="notes").track == Settings(track=["notes"]).track == ("notes",)


# ---- episodes


def test_episodes_are_conversations(plain):
    episodes = read_episodes(columns.path(plain, 1))
    assert len(episodes) == 4 and messages(episodes[0]) == [
        {"role": "user", "content": episodes[0]["prompt"]},
        {"role": "assistant", "content": episodes[0]["text"]},
    ]
    turns = {
        "author": ["environment", "policy", "policy", "environment", "policy"],
        "turn": [0, 0, 0, 1, 1],
    }
    row = {**turns, "tokens": ["guess", "4", "<end>", "higher", "6"]}
    assert [(m["role"], m["content"]) for m in messages({"rows": [row]})] == [
        ("user", "guess"), ("assistant", "4<end>"), ("user", "higher"), ("assistant", "6"),
    ]  # fmt: skip


def test_so_many_episodes_of_a_step_are_sent(plain, tmp_path):
    table = pq.read_table(columns.path(plain, 1))
    many = tmp_path / "many.parquet"
    pq.write_table(table.take([0] * 70), many)
    assert len(read_episodes(many)) == SHOWN_EPISODES == 64


# ---- the packages themselves

GUARD = """
import os, socket

real = socket.getaddrinfo


def getaddrinfo(host, *rest, **more):
    if host not in (None, "localhost", "127.0.0.1", "::1"):
        with open(os.environ["ASKED"], "a") as file:
            file.write(f"{host}\\n")
        raise socket.gaierror(f"this test asks for nothing outside: {host}")
    return real(host, *rest, **more)


socket.getaddrinfo = getaddrinfo
"""


@pytest.fixture(scope="module")
def sent(plain, tmp_path_factory):
    """The folder from which a run was sent to the packages that are installed with the tests."""
    for package in ("trackio", "wandb", "tensorboardX"):
        pytest.importorskip(package)
    place = tmp_path_factory.mktemp("sent")
    (place / "guard").mkdir()
    (place / "guard" / "sitecustomize.py").write_text(GUARD)
    given = {
        "PYTHONPATH": os.pathsep.join([str(place / "guard"), os.environ.get("PYTHONPATH", "")]),
        "TRACKIO_DIR": str(place / "trackio"),
        "ASKED": str(place / "asked"),
    }
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("WANDB", "TRACKIO", "HF_"))}
    to = [w for name in ("trackio:mine", "wandb:mine", f"tensorboard:{place}/tb") for w in ("--to", name)]
    argv = [sys.executable, "-m", "palaestra", "track", str(plain), *to, "--json"]
    done = subprocess.run(argv, cwd=place, env={**kept, **given}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["sent"].keys() == {
        "trackio:mine",
        "wandb:mine",
        f"tensorboard:{place}/tb",
    }
    return place


def test_nothing_is_asked_outside(sent):
    assert not (sent / "asked").exists(), (sent / "asked").read_text()


def wanted(folder):
    """Numbers by step and name, those of one step together."""
    found = {}
    for line in lines(folder):
        found.setdefault(line["step"], {}).update(numbers_of(line))
    return found


def test_trackio_has_the_numbers_and_the_traces(sent, plain):
    base = sqlite3.connect(sent / "trackio" / "mine.db")
    found = {}
    for name, step, told in base.execute("select run_name, step, metrics from metrics order by id"):
        assert name == "run"
        found.setdefault(step, {}).update({k: v for k, v in json.loads(told).items() if isinstance(v, int | float)})
    assert found == wanted(plain)
    traces = base.execute("select step, messages, metadata from traces order by step, trace_index").fetchall()
    episodes = [(step, e) for step in (1, 2) for e in read_episodes(columns.path(plain, step))]
    assert [(s, json.loads(m)[-1]["content"]) for s, m, _ in traces] == [(s, e["text"]) for s, e in episodes]
    assert [json.loads(m)["reward"] for *_, m in traces] == [e["reward"] for _, e in episodes]


def wandb_records(file):
    """Records of an offline run: a log in blocks of 32 kB, as LevelDB's."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, part = file.read_bytes(), 7, b""
    while at < len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        part += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last piece
            yield Record.FromString(part)
            part = b""


def test_wandb_has_the_numbers_and_the_table(sent, plain):
    (file,) = sent.glob("wandb/offline-run-*/run-run.wandb")
    records = list(wandb_records(file))
    (begun,) = (r.run for r in records if r.HasField("run"))
    assert (begun.project, begun.run_id, begun.display_name) == ("mine", "run", "run")
    found, tables = {}, {}
    for record in (r.history for r in records if r.HasField("history")):
        told = {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.item}
        step = told["_step"]
        own = ("_", "rollouts/", "report/")
        found[step] = {k: v for k, v in told.items() if not k.startswith(own)}
        tables |= {step: told["rollouts/nrows"]} if "rollouts/nrows" in told else {}
    assert found == wanted(plain)
    assert tables == {1: 4, 2: 8}
    whole = [json.loads(f.read_text())["data"] for f in sorted(sent.glob("wandb/offline-*/files/media/table/*.json"))]
    episodes = [[step, e["text"]] for step in (1, 2) for e in read_episodes(columns.path(plain, step))]
    assert [[row[0], row[2]] for data in whole for row in data] == episodes


def test_tensorboard_has_the_numbers(sent, plain):
    found = tensorboard_numbers(sent / "tb" / "run")
    told = {step: {k: pytest.approx(v, rel=1e-6, abs=1e-30) for k, v in told.items()} for step, told in found.items()}
    assert wanted(plain) == told


def test_tensorboard_hides_what_a_resumed_run_makes_again(plain, tmp_path):
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import SessionLog

    (tracker,) = (make() for make in makers([f"tensorboard:{tmp_path}"]).values())
    tracker.start(describe_run(plain, step=7))
    tracker.finish({}, ())
    data = next((tmp_path / "run").glob("events.*")).read_bytes()
    purge = bytes([0x10, 8]) + bytes([0x3A, 2, 0x08, SessionLog.START])  # step 8, and a session that starts
    assert purge in data


class FakeMLflow:
    """What accelerate's tracker calls of mlflow."""

    def __init__(self):
        self.runs, self.params, self.metrics, self.ended = [], {}, [], 0
        limits = SimpleNamespace(MAX_PARAM_VAL_LENGTH=6000, MAX_PARAMS_TAGS_PER_BATCH=100)
        self.utils = SimpleNamespace(validation=limits)

    def search_experiments(self, filter_string):
        self.asked = filter_string
        return []

    def create_experiment(self, name, **_):
        return name

    def start_run(self, run_id, experiment_id, run_name, **_):
        self.runs.append((run_id, experiment_id, run_name))

    def search_runs(self, experiment_names, filter_string, **_):
        assert experiment_names == ["mine"] and filter_string == 'attributes.run_name = "run"'
        return [SimpleNamespace(info=SimpleNamespace(run_id="abc"))]

    def log_params(self, params):
        self.params |= params

    def log_metrics(self, metrics, step):
        self.metrics.append((step, metrics))

    def end_run(self):
        self.ended += 1


def test_mlflow_through_accelerate(plain, monkeypatch):
    pytest.importorskip("accelerate")
    fake = FakeMLflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    assert cli.main(["track", str(plain), "--to", "accelerate:mlflow:mine"]) == 0
    assert fake.runs == [(None, "mine", "run")] and fake.ended == 1
    assert fake.params["recipe"] == "grpo" and fake.params["set.collect.links.0.n"] == 2
    assert fake.metrics == [(line["step"], numbers_of(line)) for line in lines(plain)]
    (tracker,) = (make() for make in makers(["accelerate:mlflow:mine"]).values())
    tracker.start(describe_run(plain, step=2))
    assert fake.runs[-1] == ("abc", "mine", "run") and fake.ended == 1


def test_accelerate_does_not_join_processes(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match="WORLD_SIZE"):
        makers(["accelerate:mlflow"])


# ---- the page


def test_commands_of_the_page(tmp_path, monkeypatch, capsys):
    """In their order, at smoke size; what would leave the machine is only made ready."""
    for package in ("trackio", "wandb", "tensorboardX"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read when it is imported
    for name in [m for m in sys.modules if m.partition(".")[0] == "trackio"]:
        monkeypatch.delitem(sys.modules, name)
    assert {c.split()[1] for c in COMMANDS} == {"train", "track", "push"}
    for command in COMMANDS:
        argv = shlex.split(command)[1:]
        argv += ["--smoke"] if argv[0] == "train" else ["--dry-run"] if argv[-1] == "--private" else []
        assert cli.main(argv) == 0, capsys.readouterr().err
    assert "is left out" not in capsys.readouterr().err
    second = tmp_path / "runs" / "grpo-chain-tiny-s0-2"
    assert list(tmp_path.glob("wandb/offline-run-*")) and list(second.glob("tensorboard/events.*"))
    assert list(tmp_path.glob("logs/grpo-chain-tiny-s0/events.*")) and list(tmp_path.glob("trackio/*.db"))


def test_the_tracker_of_the_page(plain, tmp_path, monkeypatch):
    (code,) = (code for kind, code in BLOCKS if kind == "python")
    (offer,) = (tomllib.loads(code) for kind, code in BLOCKS if kind == "toml")
    (tmp_path / "my_tracker.py").write_text(code)
    info = tmp_path / "my_tracker-1.0.dist-info"
    info.mkdir()
    points = offer["project"]["entry-points"]["palaestra.trackers"]
    told = ["[palaestra.trackers]", *(f"{name} = {target}" for name, target in points.items())]
    (info / "entry_points.txt").write_text("\n".join(told))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-tracker\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert cli.main(["track", str(plain), "--to", f"lines:{tmp_path}/out.jsonl"]) == 0
    read = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert read == [{"run": "run", "step": line["step"], **numbers_of(line)} for line in lines(plain)]


class Counter:
    """A tracker of a program."""

    def __init__(self):
        self.calls = []

    def start(self, run):
        self.calls.append(("start", run["step"]))

    def log(self, step, numbers):
        self.calls.append(("log", step, numbers))

    def episodes(self, step, file):
        self.calls.append(("episodes", step))

    def finish(self, summary, files):
        self.calls.append(("finish",))


def test_objects_of_a_program_are_trackers(tmp_path):
    """Each is fed, two of a class too, and named trackers beside them; another program must give them again."""
    first, second = Counter(), Counter()
    given = reading.check_types({"track": [first, "tensorboard", second, first]})["track"]
    assert given == ("given:Counter", "tensorboard", "given:Counter_1", "given:Counter")
    assert reading.check_types({"track": first})["track"] == given[:1]
    with feed.Trackers(makers(given[:1] + given[2:3])) as trackers:
        trackers.start(tmp_path, 3)
        trackers.log({"step": 4, "reward": 0.5})
    assert first.calls == second.calls == [("start", 3), ("log", 4, {"reward": 0.5}), ("finish",)]
    settings = overrides.merge(Settings(), {"track": given[:2]})
    assert "track=[Counter, 'tensorboard']" in commands.call(settings, resume="run")
    del user_code.VALUES["given:Counter_1"]
    with pytest.raises(UserError, match=r"give it again with track=\[Counter_1\], or go on without: --track none"):
        makers(given[2:3])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Counter, "not the class Counter; write it with ()"),
        ([SimpleNamespace(log=print)], "a SimpleNamespace has no start, episodes, finish"),
        (5, "a int has no start, log, episodes, finish"),
    ],
    ids=["class", "one method", "number"],
)
def test_what_is_no_tracker(given, said):
    with pytest.raises(UserError, match=re.escape(said)):
        reading.check_types({"track": given})
