"""Law 6: killed at any point, a run resumes and ends bit-identical to one that was not."""

import json
import os
import random
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


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "steps", "more"), [("grpo", 12, ["schedule.lag=1"]), ("ppo", 6, [])])
def test_twenty_kills(tmp_path, recipe, steps, more):
    """SIGKILL at random moments (start-up, rollout, update, checkpoint) until at least ten have hit each of two runs."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    done = run(recipe, *ARGS, *more, "--steps", str(steps), "--out", str(whole))
    assert done.returncode == 0, done.stderr
    rng, kills, begin = random.Random(recipe), 0, time.monotonic()
    first = [recipe, *ARGS, *more, "--steps", str(steps), "--out", str(broken)]
    while True:
        started = (broken / "config.toml").exists()
        argv = ["--resume", str(broken)] if started else first
        process = subprocess.Popen(
            command(*argv),
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            text=True,
        )
        try:
            limit = rng.uniform(1.5, 6.0) if kills < 10 else 240
            process.communicate(timeout=limit)
            assert process.returncode == 0
            if kills >= 10 or (broken / "summary.json").exists():
                break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
        assert time.monotonic() - begin < 240
    assert kills >= 3
    a, b = summary(whole), summary(broken)
    assert a["weights_sha256"] == b["weights_sha256"]
    assert a["accuracy_after"] == b["accuracy_after"] and a["sampled_tokens"] == b["sampled_tokens"]
    assert records(whole) == records(broken)


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


def test_a_folder_without_a_checkpoint_starts_from_the_beginning_and_says_so(tmp_path):
    out = tmp_path / "run"
    assert run("grpo", *ARGS, "--steps", "1", "--out", str(out)).returncode == 0
    import shutil

    shutil.rmtree(out / "checkpoints")
    again = run("--resume", str(out))
    assert again.returncode == 0 and "no whole checkpoint; starting from the beginning" in again.stderr


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
