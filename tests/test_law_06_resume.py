"""Law 6: killed at any point, a run resumes and ends bit-identical to one that was not."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

ARGS = ["schedule.prompts=2", "collect.links.0.n=4", "--evaluate", "4", "--max-tokens", "24"]


def command(*more):
    return [sys.executable, "-m", "palaestra.cli", "train", *more]


def run(*more, **kw):
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command(*more), capture_output=True, text=True, env=env, timeout=240, **kw)


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def records(folder):
    """metrics.jsonl without the clock."""
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in r.items() if k not in {"seconds", "tokens_per_second"}} for r in lines]


def started(*more):
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command(*more), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=env, text=True)


def lines(folder):
    log = folder / "metrics.jsonl"
    return log.read_text().count("\n") if log.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "more"), [("grpo", ["schedule.lag=1"]), ("ppo", [])])
def test_ten_kills_each(tmp_path, recipe, more):
    """SIGKILL at ten random moments of each run: at start-up, and 0 to 0.3 s after 1 or 2 further lines of its log, which
    is somewhere in a rollout, an update or a checkpoint."""
    whole, broken, steps = tmp_path / "whole", tmp_path / "broken", "24"
    done = run(recipe, *ARGS, *more, "--steps", steps, "--out", str(whole))
    assert done.returncode == 0, done.stderr
    rng, kills = random.Random(recipe), 0
    while kills < 10:
        resumed = (broken / "config.toml").exists()
        process = started(*(["--resume", str(broken)] if resumed else [recipe, *ARGS, *more, "--steps", steps, "--out", str(broken)]))
        goal, deadline = lines(broken) + rng.choice([0, 1, 1, 2]), time.monotonic() + 60
        while lines(broken) < goal and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.3))
        assert process.poll() is None, f"the run ended after {kills} kills: {process.stderr.read()}"
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += 1
    done = run("--resume", str(broken))
    assert done.returncode == 0, done.stderr
    a, b = summary(whole), summary(broken)
    assert a["weights_sha256"] == b["weights_sha256"]
    assert a["accuracy_after"] == b["accuracy_after"] and a["sampled_tokens"] == b["sampled_tokens"]
    assert records(whole) == records(broken)


@pytest.mark.slow
def test_sigterm_ends_cleanly(tmp_path):
    out = tmp_path / "run"
    process = subprocess.Popen(
        command("grpo", *ARGS, "--steps", "500", "--out", str(out)), stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not list(out.glob("checkpoints/step-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert f"palaestra train --resume {out}" in err and "Traceback" not in err
    last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert (out / "checkpoints" / f"step-{last}").is_dir()


@pytest.mark.slow
def test_a_folder_without_a_checkpoint_starts_from_the_beginning_and_says_so(tmp_path):
    out = tmp_path / "run"
    assert run("grpo", *ARGS, "--steps", "1", "--out", str(out)).returncode == 0
    shutil.rmtree(out / "checkpoints")
    again = run("--resume", str(out))
    assert again.returncode == 0 and "no whole checkpoint; starting from the beginning" in again.stderr


@pytest.mark.slow
def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    out = tmp_path / "run"
    assert run("grpo", *ARGS, "--steps", "3", "--out", str(out)).returncode == 0
    before = summary(out)
    weights = out / "checkpoints" / "step-3" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(bytes(data))
    again = run("--resume", str(out))
    assert again.returncode == 0, again.stderr
    assert "damaged" in again.stderr and "resuming after step 2" in again.stderr
    assert summary(out)["weights_sha256"] == before["weights_sha256"]
