"""Files that survive kills, full disks and flipped bits."""

import errno
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from palaestra.errors import Fault, UserError
from palaestra.store import checkpoint
from palaestra.store.checkpoint import AppendLog, Checkpoint, find_latest, save, write_atomic


def state(step):
    return {"step": step, "x": torch.full((50,), float(step)), "seen": {(step, "a")}, "nan": float("nan")}


def model(step, size=1000):
    return {".": lambda d: (d / "model.bin").write_bytes(bytes([step % 256]) * size)}


def steps(run):
    return sorted(int(p.name.removeprefix("step-")) for p in (run / "checkpoints").glob("step-*"))


def hidden(run):
    return [p.name for p in (run / "checkpoints").glob(".*") if p.name != ".lock"]


def whole(run, step):
    """Asserts that the newest checkpoint is that of `step`, in every part."""
    found, damaged = find_latest(run)
    assert found is not None and not damaged and found.step == step
    kept = found.state()
    assert kept["step"] == step and kept["seen"] == {(step, "a")} and kept["x"].tolist() == [step] * 50
    assert set((found.path / "model.bin").read_bytes()) == {step % 256}
    assert [Checkpoint(found.path.with_name(f"step-{n}"), n).damage() for n in steps(run)] == [None] * len(steps(run))
    return found


# ---- saving


def test_a_checkpoint_comes_back(tmp_path):
    folders = {"a": lambda d: (d / "w").write_text("a"), "b/c": lambda d: (d / "w").write_text("bc")}
    path = save(tmp_path, 3, state(3), model(3) | folders)
    assert path == tmp_path / "checkpoints" / "step-3" and whole(tmp_path, 3) == Checkpoint(path, 3)
    assert (path / "b" / "c" / "w").read_text() == "bc"
    files = json.loads((path / "manifest.json").read_text())["files"]
    assert set(files) == {"model.bin", "a/w", "b/c/w", "state.json", "state.safetensors"}
    assert hidden(tmp_path) == []


def test_nothing_saved_is_no_checkpoint(tmp_path):
    assert find_latest(tmp_path) == (None, []) and list(tmp_path.iterdir()) == []
    (tmp_path / "checkpoints" / "step-best").mkdir(parents=True)
    assert find_latest(tmp_path) == (None, [])


@pytest.mark.parametrize(("keep", "left"), [(1, [5]), (2, [4, 5]), (99, [1, 2, 3, 4, 5])])
def test_the_last_are_kept(tmp_path, keep, left):
    for n in range(1, 6):
        save(tmp_path, n, state(n), model(n), keep=keep)
    assert steps(tmp_path) == left and hidden(tmp_path) == []


def test_ten_follows_nine(tmp_path):
    for n in (9, 10):
        save(tmp_path, n, state(n), model(n))
    whole(tmp_path, 10)


def test_a_step_saved_again_is_replaced_and_later_ones_go(tmp_path):
    for n in (1, 2, 3):
        save(tmp_path, n, state(n), model(n), keep=9)
    save(tmp_path, 2, state(2) | {"again": True}, model(2), keep=1)
    assert whole(tmp_path, 2).state()["again"] is True
    assert steps(tmp_path) == [2] and hidden(tmp_path) == []


def test_a_damaged_newer_one_never_costs_the_one_just_saved(tmp_path):
    for n in (1, 2, 3):
        save(tmp_path, n, state(n), model(n))
    (tmp_path / "checkpoints" / "step-3" / "manifest.json").unlink()
    assert find_latest(tmp_path)[0].step == 2
    save(tmp_path, 2, state(2), model(2), keep=1)
    whole(tmp_path, 2)


def test_what_cannot_be_stored_leaves_nothing(tmp_path):
    save(tmp_path, 1, state(1), model(1))
    with pytest.raises(TypeError, match=r'state\["pool"\]'):
        save(tmp_path, 2, {"pool": object()}, model(2))
    with pytest.raises(ZeroDivisionError):
        save(tmp_path, 2, state(2), {".": lambda d: 1 / 0})
    with pytest.raises(ValueError, match=r"state.json, whose name"):
        save(tmp_path, 2, state(2), {".": lambda d: (d / "state.json").write_text("{}")})
    whole(tmp_path, 1)
    assert hidden(tmp_path) == []


# ---- damage


def files(path):
    return [p for p in sorted(path.rglob("*")) if p.is_file()]


@pytest.mark.parametrize("name", ["model.bin", "sub/w", "state.json", "state.safetensors", "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "missing", "folder"])
def test_damage_is_found_and_the_one_before_is_used(tmp_path, name, damage):
    for n in (1, 2):
        save(tmp_path, n, state(n), model(n) | {"sub": lambda d: (d / "w").write_text("w")})
    file = tmp_path / "checkpoints" / "step-2" / name
    data = file.read_bytes()
    file.unlink()
    if damage == "folder":
        file.mkdir()
    elif damage != "missing":
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        file.write_bytes({"flip": flipped, "cut": data[:-1], "grow": data + b"\0"}[damage])
    found, damaged = find_latest(tmp_path)
    assert found.step == 1 and found.state()["step"] == 1
    assert [path.name for path, _ in damaged] == ["step-2"] and Path(name).name in damaged[0][1]


def test_no_flipped_bit_of_a_manifest_does_harm(tmp_path):
    path = save(tmp_path, 1, state(1), model(1))
    manifest = path / "manifest.json"
    data, found = manifest.read_bytes(), 0
    for at in range(len(data)):
        manifest.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        reason = Checkpoint(path, 1).damage()
        found += reason is not None
        assert reason is None or "\n" not in reason
    assert found > len(data) * 0.8  # the others are spaces


def test_another_format_or_step_is_not_read(tmp_path):
    path = save(tmp_path, 1, state(1), model(1))
    path.rename(path.with_name("step-7"))
    assert find_latest(tmp_path)[1] == [
        (path.with_name("step-7"), "manifest.json speaks of format 1 and step 1, not 1 and 7")
    ]


def test_a_state_of_another_version_is_one_line(tmp_path):
    path = save(tmp_path, 1, state(1), model(1))
    (path / "state.json").write_text('{"classes": {"palaestra.types:Gone": []}, "tree": {"$palaestra.types:Gone": []}}')
    with pytest.raises(UserError, match=r"palaestra.types:Gone.*the version of palaestra that wrote it"):
        Checkpoint(path, 1).state()


# ---- kills

SCRIPT = """
import os, shutil, signal, sys, time
from pathlib import Path
from palaestra.store import checkpoint
from palaestra.types import rng_of
from tests.store.test_checkpoint import hidden, find_latest, model, save, state, steps, whole

run, step = Path(sys.argv[1]), 1
save(run, 1, state(1), model(1))

def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)
    return pid

def loop(start, done):
    for n in range(start, start + 10_000):
        save(run, n, state(n), model(n, 300_000), keep=2)
        os.write(done, n.to_bytes(8, "big"))

for kill in range(20):  # at random moments
    read, write = os.pipe()
    pid = child(lambda: loop(step + 1, write))
    os.close(write)
    time.sleep(rng_of(("kill", kill)).uniform(0.005, 0.06))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    told = os.read(read, 1 << 20)
    os.close(read)
    promised = int.from_bytes(told[-8:], "big") if told else step
    step = find_latest(run)[0].step
    assert step >= promised, (step, promised)
    whole(run, step)
    assert hidden(run) == []


def stop_at(n):  # and before the n-th change of the disk, when saving the next step or the same one again
    count = iter(range(10**6))
    def counted(real):
        def call(*args, **more):
            if next(count) == n:
                os._exit(9)
            return real(*args, **more)
        return call
    checkpoint._sync = counted(checkpoint._sync)
    Path.rename, Path.mkdir = counted(Path.rename), counted(Path.mkdir)
    shutil.rmtree, os.unlink = counted(shutil.rmtree), counted(os.unlink)
    save(run, target, state(target), model(target), keep=1)
    os._exit(0)

for again in (False, True):
    for n in range(10**6):
        before, target = find_latest(run)[0].step, find_latest(run)[0].step + (not again)
        pid = child(lambda: stop_at(n))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code in (0, 9), code
        whole(run, find_latest(run)[0].step)
        assert find_latest(run)[0].step in (before, target) and hidden(run) == []
        if code == 0:
            break
    assert n >= 10 and steps(run) == [target]
"""


def test_killed_at_any_moment_the_newest_checkpoint_is_whole(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    env = os.environ | {"PYTHONPATH": os.pathsep.join(["", *sys.path]), "OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "run")],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


def test_killed_between_the_two_renames_of_a_replacement(tmp_path):
    path = save(tmp_path, 1, state(1), model(1))
    path.rename(path.with_name(".replaced-1"))
    path.with_name(".writing-1").mkdir()
    whole(tmp_path, 1)
    assert hidden(tmp_path) == []


def test_a_look_at_a_run_does_not_disturb_a_save(tmp_path):
    save(tmp_path, 1, state(1), model(1))
    save(tmp_path, 2, state(2), model(2))
    seen = []
    looks = {"a": lambda d: seen.append(find_latest(tmp_path)[0].step), "b": lambda d: seen.append(d.exists())}
    save(tmp_path, 3, state(3), model(3) | looks)
    assert seen == [2, True]
    whole(tmp_path, 3)


# ---- full and refusing disks


@pytest.mark.parametrize(
    ("number", "error", "says"),
    [
        (errno.ENOSPC, Fault, "no space left on device; free some space"),
        (errno.EDQUOT, Fault, "disk quota exceeded"),
        (errno.EIO, Fault, "the disk itself fails"),
        (errno.EROFS, UserError, "read-only file system; mend it or choose another folder"),
        (errno.EACCES, UserError, "permission denied"),
        (errno.ECONNRESET, ConnectionResetError, "Connection reset"),
    ],
)
@pytest.mark.parametrize("where", ["writer", "fsync", "mkdir", "rust"])
def test_a_disk_that_refuses_is_one_line_and_costs_nothing(tmp_path, monkeypatch, number, error, says, where):
    save(tmp_path, 1, state(1), model(1))
    writers = model(2)
    with monkeypatch.context() as patch:

        def refuse(*_, **__):
            raise OSError(number, os.strerror(number))

        def rust(*_, **__):
            raise RuntimeError(f"I/O error: {os.strerror(number)} (os error {number})")

        if where == "writer":
            writers = {".": refuse}
        elif where == "fsync":
            patch.setattr(os, "fsync", refuse)
        elif where == "mkdir":
            patch.setattr(Path, "mkdir", refuse)
        else:
            patch.setattr(checkpoint, "save_file", rust)
            error = RuntimeError if number == errno.ECONNRESET else error
        with pytest.raises(error, match=f"(?i){says}") as caught:
            save(tmp_path, 2, state(2), writers)
    assert "\n" not in str(caught.value)
    if isinstance(caught.value, Fault):
        assert caught.value.cause == "disk"
    if error in (Fault, UserError):
        assert str(tmp_path / "checkpoints" / "step-2") in str(caught.value)
    whole(tmp_path, 1)
    assert hidden(tmp_path) == []


FULL = """
import resource, signal, sys
from pathlib import Path
import torch
from palaestra.store.checkpoint import AppendLog, save, write_atomic
from palaestra.errors import Fault
from tests.store.test_checkpoint import hidden, model, state, whole

run = Path(sys.argv[1])
save(run, 1, state(1), model(1))
log = AppendLog(run / "log.jsonl")
log.append({"step": 1})
write_atomic(run / "summary.json", "{}")
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
big = torch.zeros(100_000)
attempts = {
    "python writer": lambda: save(run, 2, state(2), model(2, 50_000)),
    "safetensors": lambda: save(run, 2, state(2) | {"big": big}, model(2)),
    "json": lambda: save(run, 2, state(2) | {"big": "x" * 50_000}, model(2)),
    "file": lambda: write_atomic(run / "summary.json", "x" * 50_000),
    "log": lambda: log.append({"step": 2, "big": "x" * 50_000}),
}
for name, attempt in attempts.items():
    try:
        attempt()
    except Fault as fault:
        assert fault.cause == "disk" and "\\n" not in str(fault), fault
    else:
        raise AssertionError(name)
    whole(run, 1)
    assert hidden(run) == [], name
assert (run / "summary.json").read_text() == "{}"
log.append({"step": 2})
assert log.path.read_text() == '{"step": 1}\\n{"step": 2}\\n'
assert sorted(p.name for p in run.iterdir()) == ["checkpoints", "log.jsonl", "summary.json"]
"""


def test_files_that_really_cannot_grow(tmp_path):
    env = os.environ | {"PYTHONPATH": os.pathsep.join(["", *sys.path]), "OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[2]
    argv = [sys.executable, "-c", FULL, str(tmp_path / "run")]
    done = subprocess.run(argv, cwd=root, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_file_where_the_folder_should_be(tmp_path):
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(UserError, match=r"checkpoints/step-1.*choose another folder"):
        save(tmp_path, 1, state(1), model(1))
    assert find_latest(tmp_path) == (None, [])


# ---- single files


def test_write_atomic_replaces_whole_or_not_at_all(tmp_path, monkeypatch):
    file = tmp_path / "summary.json"
    write_atomic(file, "é")
    write_atomic(file, b"two")
    assert file.read_bytes() == b"two"
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(Fault, match=r"disk: writing .*summary.json: no space left"):
        write_atomic(file, "three")
    assert file.read_bytes() == b"two" and list(tmp_path.iterdir()) == [file]


def test_a_log_drops_a_torn_line_wherever_it_was_torn(tmp_path):
    first, second = b'{"step": 1}\n', b'{"step": 2, "x": [1, 2]}\n'
    for cut in range(len(second)):
        file = tmp_path / f"{cut}.jsonl"
        file.write_bytes(first + second[:cut])
        AppendLog(file).append({"step": 2, "x": (1, 2)})
        assert file.read_bytes() == first + second


def test_a_resumed_log_is_that_of_an_uninterrupted_run(tmp_path):
    records = [{"step": 0, "evaluation": {"mean": 0.1}}]
    for n in range(1, 6):
        records += [{"step": n, "loss": np.float32(n) / 3, "at": torch.tensor(n)}, {"evaluation": n}]
    whole_run = AppendLog(tmp_path / "whole.jsonl")
    for record in records:
        whole_run.append(record)
    for stop in range(len(records) + 1):
        for step in range(-1, 6):
            file = tmp_path / "log.jsonl"
            file.unlink(missing_ok=True)
            log = AppendLog(file)
            for record in records[:stop]:
                log.append(record)
            log = AppendLog(file)
            log.truncate_after(step)
            known = [json.loads(line).get("step") for line in file.read_text().splitlines()]
            assert all(n is None or n <= step for n in known)
            for record in records[len(known) :]:
                log.append(record)
            assert file.read_bytes() == whole_run.path.read_bytes()


def test_a_log_keeps_its_step_and_what_followed_it(tmp_path):
    log = AppendLog(tmp_path / "log.jsonl")
    lines = [{"step": 1}, {"step": 2}, {"of": 2}, {"step": 3}, {"of": 3}]
    for line in lines:
        log.append(line)
    log.truncate_after(2)
    assert [json.loads(x) for x in log.path.read_text().splitlines()] == lines[:3]


def test_numbers_that_are_not_finite_are_null_in_a_log(tmp_path):
    log = AppendLog(tmp_path / "deep" / "log.jsonl")
    log.append({"a": float("nan"), "b": [np.float32("inf"), 1], "c": {"d": torch.tensor(float("nan"))}, "e": True})
    assert log.path.read_text() == '{"a": null, "b": [null, 1], "c": {"d": null}, "e": true}\n'


def test_a_spoiled_log_is_named_with_its_line(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step": 1}\nwhat\n')
    with pytest.raises(UserError, match=r"log.jsonl, line 2: not a JSON object"):
        AppendLog(tmp_path / "log.jsonl").truncate_after(1)
