"""Something is wrong: I mistyped, my data are broken, my reward fails, the disk is full. What am I told?"""

import json
import resource
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.errands.shell import palaestra, steps, summary, train, write_rows

SUMS = [{"prompt": f"{a}+{b} mod 10", "answer": str((a + b) % 10)} for a in range(5) for b in range(5)]
REWARDS = """
import time


def score(responses, answers, **fields):
    return [float(answer in response) for response, answer in zip(responses, answers)]


def first(responses, answers, **fields):
    return [float(response.split()[9] == answer) for response, answer in zip(responses, answers)]


def waits(responses, answers, **fields):
    time.sleep(2)
    return [0.0 for _ in responses]
"""
# what is typed behind `palaestra`, and what its one line says: where, what, and how it is mended
TYPED = {
    "trian": "no verb 'trian'; did you mean train",
    "train grop": "no method 'grop'; did you mean grpo",
    "train --stepz 3": "unknown argument --stepz; did you mean --steps",
    "train --lr 1e-4": "unknown argument --lr; write optimiser.lr=1e-4",
    "train --report_to wandb": "unknown argument --report_to; write --track wandb",
    "train objective.hgih=0.3": "no field 'objective.hgih' in this recipe; did you mean learners.policy.objective.high",
    "train --steps 0": "--steps must be at least 1, not 0",
    "train --data sum.jsonl": "sum.jsonl: no such file; did you mean sums.jsonl",
    "train --data sums.jsonl --columns gold=answer": "sums.jsonl: --columns names 'gold', and no record has it; they have prompt",
    "train --data broken.jsonl": "broken.jsonl:4: not JSON (Expecting value, column 29); every line must be one object",
    "train --data bare.jsonl": "bare.jsonl:1: no 'answer'; the record has prompt; say which column it is, --columns COLUMN=",
    "train --data long.jsonl": "task 'long.jsonl:1': its prompt has 804 tokens, and the context of tiny holds 512; shorten it",
    "train --data sums.jsonl --reward mine.py:scoer": "mine.py: no function 'scoer'; did you mean score",
    "train --data sums.jsonl --reward mine.py": "'mine.py' cannot be read; write FILE.py:NAME",
    "train --data sums.jsonl --reward mine": "no verifier 'mine'; a function of mine.py is named mine.py:FUNCTION",
    "train --data sums.jsonl --reward yours.py:score": "yours.py: no such file",
    "train --data sums.jsonl --reward mine.py:first": "mine.py:10: IndexError: list index out of range (in first)",
    "train --data sums.jsonl --reward mine.py:waits --reward-timeout 1": "mine.py:waits gave nothing in 1 s; a hung thread",
    "train --data sums.jsonl --model runs": "runs has no config.json, so it is not a saved model",
    "eval --model runs/none --data sums.jsonl": "no model directory 'runs/none'",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def files(folder):
    write_rows("sums.jsonl", SUMS)
    Path("broken.jsonl").write_text("\n".join([*map(json.dumps, SUMS[:3]), '{"prompt": "1+1", "answer": ']))
    write_rows("bare.jsonl", [{"prompt": "1+1"}, {"prompt": "1+2"}])
    write_rows("long.jsonl", [{"prompt": "1+" * 400, "answer": "1"}, *SUMS])
    Path("mine.py").write_text(REWARDS)
    Path("runs").mkdir()


@pytest.mark.parametrize("words", TYPED)
def test_one_line_says_what_is_wrong(words, files):
    """Exit status 2, no stack trace, and nothing is left behind that I had to clean up."""
    said = palaestra(f"{words} --out runs/wrong" if words.startswith("train") else words)
    *notes, last = said.err.strip().splitlines()
    assert said.status == 2 and said.out == "" and last.startswith("palaestra: ")
    assert TYPED[words] in last, last
    assert not any("Traceback" in x or x.startswith("palaestra: ") for x in notes)
    assert not Path("runs/wrong/checkpoints").exists()


def test_a_server_that_is_not_there(files):
    """Nothing is wrong with what I typed, so the exit status is another; the address is named."""
    judge = "judge(url='http://127.0.0.1:9/v1',model='m',rubric='10: right')"
    said = palaestra(f'train --data sums.jsonl --reward "{judge}" --smoke --out runs/dead')
    last = said.err.strip().splitlines()[-1]
    assert said.status == 1 and last.startswith("palaestra: chat-connection: http://127.0.0.1:9/v1 after ")
    assert last.count("chat-connection") == 1 and "Traceback" not in said.err


@contextmanager
def full_disk(megabytes):
    """No file may grow beyond that here: what is written then fails as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (megabytes << 20, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_no_space_left(files):
    """The run ends with one line, and goes on from its last checkpoint when there is room again."""
    small = "--evaluate 0 schedule.prompts=2 sample.n=2"
    train(f"--data sums.jsonl --steps 1 {small} --out runs/filling")
    with full_disk(1):
        said = palaestra("train --resume runs/filling --steps 3")
    last = said.err.strip().splitlines()[-1]
    assert said.status == 1 and last.startswith("palaestra: disk: ") and "runs/filling" in last
    assert "Traceback" not in said.err and [p.name for p in Path("runs/filling/checkpoints").glob("step-*")] == [
        "step-1"
    ]
    train("--resume runs/filling --steps 3")
    train(f"--data sums.jsonl --steps 3 {small} --out runs/roomy")
    assert summary("runs/filling")["weights_sha256"] == summary("runs/roomy")["weights_sha256"]
    assert [x["step"] for x in steps("runs/filling")] == [1, 2, 3]


# each of the ways in which data are silently wrong, as records beside the good ones, and the line about it
SILENT = {
    "another answer to a prompt": ([{"prompt": "0+0 mod 10", "answer": "7"}], "different answers: {file}:1 and another"),
    "a record twice": ([SUMS[3]], "1 of 26 records repeat an earlier one, e.g. {file}:26"),
    "an invisible character": ([{"prompt": "6+\u200b1", "answer": "7"}], "invisible characters in the prompt, e.g. {file}:26"),
}  # fmt: skip


@pytest.mark.parametrize("fault", SILENT)
def test_silent_faults_are_told_before_the_first_step(fault, files):
    """Nothing fails, and the numbers would be wrong. A run says so at its start, and `audit` does without a run."""
    (rows, line), name = SILENT[fault], fault.replace(" ", "-")
    write_rows(f"{name}.jsonl", [*SUMS, *rows])
    small = "--steps 1 --evaluate 0 schedule.prompts=2 sample.n=2"
    said = train(f"--data {name}.jsonl {small} --out runs/{name}")
    told = said.err.splitlines()
    (at,) = [i for i, x in enumerate(told) if x.startswith("data: ") and line.format(file=f"{name}.jsonl") in x]
    assert at < next(i for i, x in enumerate(told) if x.startswith("step 1/1"))
    assert not [x for x in told if x.startswith("data: ") and told.index(x) != at]


def test_audit_of_data_and_of_a_reward(files):
    """`answer in response` pays whoever writes all answers: better known before a run than after it."""
    write_rows("faulty.jsonl", [*SUMS, SUMS[3]])
    said = palaestra("audit mine.py:score --data faulty.jsonl --json")
    assert said.status == 0, said.err
    found = json.loads(said.out.splitlines()[-1])
    assert any("repeat an earlier one" in x for x in found["data"])
    assert any("every number to 100" in x for x in found["findings"])
    table = palaestra("audit exact --data faulty.jsonl")
    assert "repeat an earlier one" in table.out and "no findings" in table.out


LATE = """import palaestra as pl

class Late:
    def reset(self):
        raise pl.UserError("pip install it")
    def go(self, way: str) -> str:
        'Goes one place.'
        return way
    def get_reward(self):
        return 0.0
"""


def test_a_start_that_failed_leaves_its_folder_free(files):
    """What else lies in the folder may be mine, or cost something to make again: then all of it stays."""
    own = Path("kept")
    own.mkdir()
    (own / "notes.txt").write_text("mine")
    # a world that fails when the first episode begins, which is after the run has written its settings
    Path("late.py").write_text(LATE)
    for out in ("again", "kept"):
        said = palaestra(f"train --env late.py:Late --steps 1 --evaluate 2 --out {out}")
        assert said.status == 2 and "pip install it" in said.err
    assert not Path("again").exists()
    assert {"config.toml", "notes.txt"} <= {x.name for x in own.iterdir()}
    train("--data sums.jsonl --steps 1 --evaluate 2 --out again schedule.prompts=2 sample.n=2")
