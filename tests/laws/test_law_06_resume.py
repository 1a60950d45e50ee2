"""Law 6: killed at any point, a run resumes and ends bit-identical to one that was not."""

import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from palaestra.cli.main import main

ARGS = ["schedule.prompts=2", "collect.links.0.n=4", "--evaluate", "4", "--max-tokens", "24"]


FORK = multiprocessing.get_context("forkserver")  # whose server has imported what takes seconds
FORK.set_forkserver_preload(["palaestra.cli.train", "transformers.models.llama.modeling_llama"])


def child(argv, said):
    """`palaestra train` in a process of its own, what it says in the file `said`."""
    torch.set_num_threads(1)
    with said.open("w") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(main(["train", *argv]))


def started(*argv, said):
    process = FORK.Process(target=child, args=(argv, said))
    process.start()
    return process


def run(*argv, said):
    """Its exit status, and what it said."""
    process = started(*argv, said=said)
    process.join(240)
    return process.exitcode, said.read_text()


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def records(folder):
    """metrics.jsonl without the clock."""
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in r.items() if k != "tokens_per_second" and not k.startswith("seconds")} for r in lines]


def lines(folder):
    log = folder / "metrics.jsonl"
    return log.read_text().count("\n") if log.exists() else 0


@pytest.mark.parametrize(
    ("recipe", "more"), [("grpo", ["schedule.lag=1"]), ("ppo", []), ("dump", ["--task", "knights(d=1)+knights(d=2)"])]
)
def test_ten_kills_each(tmp_path, recipe, more):
    """SIGKILL at ten random moments of each run: at start-up, and 0 to 0.3 s after 1 or 2 further lines of its log, which
    is somewhere in a rollout, an update or a checkpoint. There are more steps than ten such pieces take."""
    whole, broken, said, steps = tmp_path / "whole", tmp_path / "broken", tmp_path / "said", "60"
    apart = [
        sys.executable,
        "-m",
        "palaestra.cli.main",
        "train",
        recipe,
        *ARGS,
        *more,
        "--steps",
        steps,
        "--out",
        str(whole),
    ]
    subprocess.run(apart, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})  # hashes strings with another seed
    rng, kills = random.Random(recipe), 0
    while kills < 10:
        resumed = (broken / "config.toml").exists()
        fresh = [recipe, *ARGS, *more, "--steps", steps, "--out", str(broken)]
        process = started(*(["--resume", str(broken)] if resumed else fresh), said=said)
        goal, deadline = lines(broken) + rng.choice([0, 1, 1, 2]), time.monotonic() + 60
        while lines(broken) < goal and process.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.3))
        assert process.is_alive(), f"the run ended after {kills} kills: {said.read_text()}"
        process.kill()
        process.join()
        kills += 1
    status, words = run("--resume", str(broken), said=said)
    assert status == 0, words
    a, b = summary(whole), summary(broken)
    assert a["weights_sha256"] == b["weights_sha256"]
    assert a["accuracy_after"] == b["accuracy_after"] and a["sampled_tokens"] == b["sampled_tokens"]
    assert records(whole) == records(broken)


def test_sigterm_ends_cleanly(tmp_path):
    out = tmp_path / "run"
    process = started("grpo", *ARGS, "--steps", "500", "--out", str(out), said=tmp_path / "said")
    deadline = time.monotonic() + 60
    while not list(out.glob("checkpoints/step-*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.terminate()
    process.join(60)
    words = (tmp_path / "said").read_text()
    assert process.exitcode == 128 + signal.SIGTERM
    assert f"palaestra train --resume {out}" in words and "Traceback" not in words
    last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert (out / "checkpoints" / f"step-{last}").is_dir()


def test_a_folder_without_a_checkpoint_starts_from_the_beginning_and_says_so(tmp_path):
    out, said = tmp_path / "run", tmp_path / "said"
    assert run("grpo", *ARGS, "--steps", "1", "--out", str(out), said=said)[0] == 0
    shutil.rmtree(out / "checkpoints")
    status, words = run("--resume", str(out), said=said)
    assert status == 0 and "no whole checkpoint; starting from the beginning" in words


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    out, said = tmp_path / "run", tmp_path / "said"
    assert run("grpo", *ARGS, "--steps", "3", "--checkpoint-every", "1", "--out", str(out), said=said)[0] == 0
    before = summary(out)
    weights = out / "checkpoints" / "step-3" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[len(data) // 2] ^= 1
    weights.write_bytes(bytes(data))
    status, words = run("--resume", str(out), said=said)
    assert status == 0, words
    assert "damaged" in words and "resuming after step 2" in words
    assert summary(out)["weights_sha256"] == before["weights_sha256"]
