"""Over thirty kinds of broken data and configuration: one clear line, exit status 2, no stack trace, nothing lost."""

import json
import os
import subprocess
import sys
import time

import palaestra
import pytest
from palaestra import catalogue
from palaestra.cli.main import VERBS, main
from palaestra.tasks import files

GOOD = "\n".join(
    json.dumps({"prompt": f"{a}+{b} mod 10", "answer": str((a + b) % 10)}) for a in range(4) for b in range(5)
)
SMALL = ["--smoke"]
PLANNED = next(e.id for e in catalogue.rows() if not e.built)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with good and broken files; the working directory of the test."""
    monkeypatch.chdir(tmp_path)
    files.load.cache_clear()  # every test has a good.jsonl of its own
    lines = GOOD.splitlines()
    write = lambda name, text: (tmp_path / name).write_text(text)
    write("good.jsonl", GOOD)
    write("broken.jsonl", "\n".join([*lines[:16], '{"prompt": "1+1", "answer": ', *lines[16:]]))
    write("no_answer.jsonl", "\n".join([*lines[:3], '{"prompt": "1+1"}', *lines[3:]]))
    write("empty_prompt.jsonl", "\n".join([*lines[:3], '{"prompt": " ", "answer": "1"}']))
    write("half.jsonl", "\n".join([*lines[:3], '{"prompt": "1+1 \\ud83d", "answer": "1"}']))
    write("wrong_type.jsonl", "\n".join([*lines[:3], '{"prompt": 5, "answer": "1"}']))
    write("role.jsonl", "\n".join([*lines[:3], '{"messages": [{"role": "teacher", "content": "x"}], "answer": "1"}']))
    record = '{"id": "a", "prompt": "1+%d", "answer": "1"}'
    write("twice.jsonl", "\n".join([*lines[:3], record % 1, record % 2]))
    write("empty.jsonl", "")
    write("latin.jsonl", GOOD)
    (tmp_path / "latin.jsonl").write_bytes(GOOD.encode() + b'\n{"prompt": "\xe9", "answer": "1"}')
    write("long.jsonl", "\n".join([*lines, json.dumps({"prompt": "x" * 600, "answer": "1"})]))
    write("data.csv", "prompt,answer\n1,1\n")
    write("array.json", '{"prompt": "not a list"}')
    write("reward.py", REWARDS)
    write("env.py", ENVIRONMENTS)
    write("syntax.py", "def score(:\n")
    write("bad.toml", "recipe = 'grpo'\nsteps = = 3\n")
    write("often.toml", "checkpoint_every = 0\n")
    write("unknown.toml", "recipee = 'grpo'\n")
    (tmp_path / "notmodel").mkdir()
    (tmp_path / "notok").mkdir()
    for name in ("config.json", "model.safetensors"):
        os.link(os.path.join(os.path.dirname(palaestra.__file__), "models", "tiny", name), tmp_path / "notok" / name)
    return tmp_path


REWARDS = """
import os, time
def raises(responses, answers, **fields):
    return [1 / 0 for _ in responses]
def nan(responses, answers, **fields):
    return [float("nan")] * len(responses)
def few(responses, answers, **fields):
    return [1.0]
def text(responses, answers, **fields):
    return ["good"] * len(responses)
def number(responses, answers, **fields):
    return 1.0
def late(responses, answers, ids, **fields):
    if os.path.exists("run/checkpoints/step-1"):
        raise ConnectionError(503)
    return [float(r == a) for r, a in zip(responses, answers)]
def same(responses, answers, **fields):
    return [1.0] * len(responses)
"""
ENVIRONMENTS = """
from palaestra.types import Ask, Frame, Message, Task
class NoSeats:
    def task(self, split, index): return Task(id=str(index))
    def reset(self, task, key): return None
    def step(self, state, acts, key): return None
class NoStep:
    seats = ("policy",)
    def task(self, split, index): return Task(id=str(index))
    def reset(self, task, key): return Frame(state=0)
class Raises:
    seats = ("policy",)
    def task(self, split, index): return Task(id=str(index))
    def reset(self, task, key): return Frame(state=0, asks=(Ask(seat="policy", say=(Message(role="user", content="x"),)),))
    def step(self, state, acts, key): return state["x"]
"""

CASES = {
    "bad json": (["--data", "broken.jsonl"], ["broken.jsonl", "17"]),
    "missing answer": (["--data", "no_answer.jsonl"], ["no_answer.jsonl", "4", "answer"]),
    "empty prompt": (["--data", "empty_prompt.jsonl"], ["empty_prompt.jsonl", "4", "prompt"]),
    "half of a character": (["--data", "half.jsonl"], ["half.jsonl", "4", "prompt", "\\ud83d"]),
    "wrong type": (["--data", "wrong_type.jsonl"], ["wrong_type.jsonl", "4", "prompt"]),
    "unknown role": (["--data", "role.jsonl"], ["role.jsonl", "4", "teacher"]),
    "duplicate id": (["--data", "twice.jsonl"], ["twice.jsonl", "'a'"]),
    "empty file": (["--data", "empty.jsonl"], ["empty.jsonl"]),
    "not utf-8": (["--data", "latin.jsonl"], ["latin.jsonl", "UTF-8"]),
    "missing file": (["--data", "god.jsonl"], ["god.jsonl", "good.jsonl"]),
    "unknown format": (["--data", "data.csv"], ["data.csv"]),
    "no list": (["--data", "array.json"], ["array.json"]),
    "prompt longer than the context": (["--data", "long.jsonl"], ["512"]),
    "reward raises": (["--data", "good.jsonl", "--reward", "reward.py:raises"], ["reward.py:4", "ZeroDivisionError"]),
    "reward nan": (["--data", "good.jsonl", "--reward", "reward.py:nan"], ["nan"]),
    "reward too few": (["--data", "good.jsonl", "--reward", "reward.py:few"], ["1"]),
    "reward text": (["--data", "good.jsonl", "--reward", "reward.py:text"], ["good"]),
    "reward no list": (["--data", "good.jsonl", "--reward", "reward.py:number"], ["list"]),
    "reward function unknown": (["--data", "good.jsonl", "--reward", "reward.py:rases"], ["rases", "raises"]),
    "reward file unknown": (["--data", "good.jsonl", "--reward", "rewards.py:raises"], ["rewards.py"]),
    "reward file broken": (["--data", "good.jsonl", "--reward", "syntax.py:score"], ["syntax.py", "1"]),
    "reward without data": (["--task", "chain", "--reward", "reward.py:nan"], ["--reward needs --data"]),
    "test data without data": (["--task", "chain", "--test-data", "good.jsonl"], ["--test-data needs --data"]),
    "two problems": (["--task", "chain", "--data", "good.jsonl"], ["exclude"]),
    "environment without seats": (["--env", "env.py:NoSeats"], ["seats"]),
    "environment without step": (["--env", "env.py:NoStep"], ["step"]),
    "environment raises": (["--env", "env.py:Raises"], ["env.py", "TypeError"]),
    "environment unknown": (["--env", "env.py:Rises"], ["Raises"]),
    "unknown task": (["--task", "chian"], ["chain"]),
    "unknown generator": (["--task", "rg:chain_sm"], ["chain_sum"]),
    "unknown model": (["--model", "tinny"], ["tiny"]),
    "model folder without config": (["--model", "notmodel"], ["config.json"]),
    "model folder without tokenizer": (["--model", "notok"], ["tokenizer"]),
    "unknown recipe": (["grpp"], ["grpo"]),
    "planned recipe": ([PLANNED], ["not built yet"]),
    "two recipes": (["grpo", "rloo"], ["one recipe"]),
    "unknown field": (["objective.hgih=0.3"], ["objective.high"]),
    "ambiguous field": (["max_tokens=3", "links.0.scope=batch", "scope=batch"], ["ambiguous"]),
    "wrong value": (["objective.high=much"], ["objective.high", "float", "much"]),
    "a part is no value": (["learners.policy.credit=center"], ["credit"]),
    "a part is no text": (["objective=foo"], ["learners.policy.objective is a part", "low, high"]),
    "a part is no number": (["objective=3"], ["learners.policy.objective is a part", "low, high"]),
    "parts are no number": (["learners=1"], ["learners is a part", "policy"]),
    "links are no number": (["collect.links=3"], ["collect.links is a part"]),
    "a number for a list": (["ghpo", "shares=-0.5"], ["shares takes a list, e.g. '[1, 2]', not '-0.5'"]),
    "a list for a number": (["optimiser.lr=[1, 2]"], ["learners.policy.optimiser.lr takes float, not '[1, 2]'"]),
    "unknown field of a part": (["objective.foo.bar=1"], ["learners.policy.objective has low, high"]),
    "unknown field by class": (["sample.m=3"], ["collect.links.0 has n, temperature"]),
    "unknown link": (["collect.links.7.n=3"], ["collect.links has 0, 1"]),
    "a flag as a field": (["lora=8"], ["no field of the recipe; write --lora 8"]),
    "a flag as a field, with a dash": (["evaluate-every=2"], ["write --evaluate-every 2"]),
    "unknown flag": (["--stepz", "3"], ["--steps"]),
    "broken toml": (["@bad.toml"], ["bad.toml", "line 2"]),
    "unknown setting": (["@unknown.toml"], ["recipee", "recipe"]),
    "missing toml": (["@nowhere.toml"], ["nowhere.toml"]),
    "resume nothing": (["--resume", "nowhere"], ["nowhere"]),
    "resume no run": (["--resume", "notmodel"], ["config.toml"]),
    "no such device": (["--device", "cuda:7"], ["cuda:7"]),
    "no checkpoints": (["--checkpoint-every", "0"], ["--checkpoint-every", "at least 1"]),
    "no checkpoints, in a file": (["@often.toml"], ["--checkpoint-every", "at least 1"]),
    "no steps": (["--steps", "0"], ["--steps", "at least 1"]),
    "negative tokens": (["--max-tokens", "-1"], ["--max-tokens", "at least 0"]),
    "negative rank": (["--lora", "-1"], ["--lora", "at least 0"]),
    "a task's setting of another type": (["--task", "chain(operands=5)"], ["chain", "settings"]),
    "a task's setting out of range": (["--task", "knights(d=10)"], ["knights", "settings"]),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.gym] * ("generator" in n)) for n in CASES])
def test_mistake(name, place, capsys):
    argv, words = CASES[name]
    assert main(["train", *argv, *SMALL, "--out", "run"]) == 2
    err = capsys.readouterr().err
    last = err.strip().splitlines()[-1]
    assert last.startswith("palaestra: ") and "Traceback" not in err
    for word in words:
        assert word in last, last


@pytest.mark.parametrize(
    ("argv", "flag"),
    [
        (["compare", "grpo", "rloo", "--evaluate", "0"], "--evaluate"),
        (["compare", "grpo", "rloo", "--seeds", "0"], "--seeds"),
        (["compare", "grpo", "rloo", "--max-tokens", "-1"], "--max-tokens"),
        (["reproduce", "grpo", "--seeds", "-1"], "--seeds"),
        (["eval", "--k", "0"], "--k"),
        (["eval", "--n", "many"], "--n"),
    ],
)
def test_a_number_out_of_range(argv, flag, place, capsys):
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert flag in err and "at least" in err


def test_a_reward_that_pays_no_gold_best_is_told_and_goes_on(place, capsys):
    assert main(["train", "--data", "good.jsonl", "--reward", "reward.py:same", *SMALL, "--out", "run"]) == 0
    first, second = [x for x in capsys.readouterr().err.splitlines() if x.startswith("oracle check: ")]
    assert first == "oracle check: each gold, wrong or empty answer to 16 tasks scores 1"
    assert r"\boxed{N}" in second and "the run goes on" in second and "`palaestra audit`" in second


def test_what_breaks_after_a_checkpoint_says_how_it_goes_on(place, capsys):
    run = ["train", "--data", "good.jsonl", "--reward", "reward.py:late", *SMALL, "--out", "run"]
    assert main([*run, "--steps", "3", "--checkpoint-every", "1", "--evaluate", "0"]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    said = "ConnectionError: 503 (in late); mend it, then go on with: palaestra train --resume run --accept-changes"
    assert last.startswith("palaestra: ") and last.endswith(said), last


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_folder(place, capsys):
    (place / "locked").mkdir(mode=0o500)
    assert main(["train", *SMALL, "--out", "locked/run"]) == 2
    assert "locked" in capsys.readouterr().err


def test_a_file_where_the_folder_should_be(place, capsys):
    (place / "taken").write_text("")
    assert main(["train", *SMALL, "--out", "taken/run"]) == 2
    assert "taken" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ["atlas", "--methods", "grpo,rloo", "--out", "taken/x"],
        ["bench", "step", "--repeats", "1", "--out", "taken/x"],
        ["compare", "grpo", "rloo", "--seeds", "1", "--tokens", "100", "--out", "taken/x"],
        ["reproduce", "dr-grpo", "--seeds", "1", "--tokens", "100", "--out", "taken/x"],
        ["explain", "grpo", "--rewards", "[[1, 0]]", "--picture", "taken/x/y.png"],
    ],
)
def test_a_place_for_the_result_is_made_before_the_work(argv, place, capsys):
    (place / "taken").write_text("")
    started = time.monotonic()
    assert main(argv) == 2
    told = capsys.readouterr()
    assert told.err.startswith("palaestra: writing into taken/x: ") and told.err.count("\n") == 1 and told.out == ""
    assert time.monotonic() - started < 10


def test_a_picture_is_of_a_known_kind(place, capsys):
    for name in ("x.html", "x.gif", "x"):
        assert main(["explain", "grpo", "--rewards", "[[1, 0]]", "--picture", name]) == 2
        assert "use .png, .svg, .pdf" in capsys.readouterr().err


def test_a_full_disk_keeps_the_last_checkpoint(place):
    """A limit on file sizes stands in for a full disk: model files no longer fit after the first run."""
    run = [sys.executable, "-m", "palaestra.cli.main", "train", "--smoke", "--out", "run"]
    assert subprocess.run(run, capture_output=True, timeout=120).returncode == 0
    before = sorted(p.name for p in (place / "run" / "checkpoints").iterdir())
    limited = f"ulimit -f 2000; exec {sys.executable} -m palaestra.cli.main train --resume run --steps 4"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "palaestra: disk" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert sorted(p.name for p in (place / "run" / "checkpoints").iterdir()) == before


def test_held_out_problems_that_are_trained_on_are_said(place, capsys):

    (place / "copy.jsonl").write_text(GOOD)
    data = ["--data", "good.jsonl", "--test-data", "copy.jsonl"]
    assert main(["train", *data, *SMALL, "--out", "run"]) == 0
    known = "20 of the 20 held-out prompts are training prompts too"
    told = capsys.readouterr()
    assert known in told.err and known in told.out and known in (place / "run" / "report.html").read_text()


def test_an_existing_run_is_not_overwritten(place, capsys):
    assert main(["train", *SMALL, "--out", "run", "--evaluate", "2"]) == 0
    assert main(["train", *SMALL, "--out", "run"]) == 2
    assert "--resume run" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb, capsys):
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0 and f"palaestra {verb}" in capsys.readouterr().out
