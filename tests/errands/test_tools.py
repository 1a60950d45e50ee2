"""The model should call a function of mine."""

import json
import re
from pathlib import Path

import pytest

from tests.errands.shell import episodes, palaestra, steps, train, write_rows

FUNCTION = '''
def square(n: int) -> int:
    """The last digit of n times n."""
    return n * n % 10
'''
CALLED = re.compile(
    r'<tool_call>{"name": "square", "arguments": {"n": (\d+)}}</tool_call><\|end\|><\|tool\|>(.*?)<\|end\|>'
)
QUESTIONS = {f"{n}{asked}": n for n in range(10) for asked in (f"*{n} mod 10", "^2")}


@pytest.fixture(scope="module", autouse=True)
def files(folder):
    Path("my_tools.py").write_text(FUNCTION)
    write_rows("squares.jsonl", [{"prompt": q, "answer": n * n % 10} for q, n in QUESTIONS.items()])
    call = '<tool_call>{"name": "square", "arguments": {"n": %d}}</tool_call>'
    write_rows(
        "calls.jsonl",
        [
            {
                "messages": [
                    {"role": "user", "content": q},
                    {"role": "assistant", "content": call % n},
                    {"role": "tool", "content": str(n * n % 10)},
                    {"role": "assistant", "content": f"= {n * n % 10}"},
                ]
            }
            for q, n in QUESTIONS.items()
        ],
    )


def test_a_tool_in_five_lines(files):
    """A typed function is a tool. My model does not know how to call one, so it imitates conversations first, and is
    reinforced then.
    """
    imitate = "schedule.prompts=2 optimiser.lr=2e-3"
    train(f"sft --data calls.jsonl --tools my_tools.py:square --steps 80 --evaluate 0 {imitate} --out runs/shown")
    caller = "runs/shown/checkpoints/step-80"
    train(
        f"--data squares.jsonl --tools my_tools.py:square --model {caller} --steps 1 --evaluate 0 "
        "schedule.prompts=4 sample.n=2 sample.temperature=0.5 --out runs/called"
    )
    (step,) = steps("runs/called")
    assert step["tools/calls"] >= 0.5 and step["tools/malformed"] <= 0.5
    # a call that was read was made: what stands behind it is what the function returns, and is not trained
    made = 0
    for episode in episodes("runs/called"):
        (row,) = episode["rows"]
        said = "".join(row["tokens"])
        assert "square(n: integer): The last digit of n times n." in said
        results = [(int(n), result) for n, result in CALLED.findall(said)]
        assert all(result == str(n * n % 10) for n, result in results), said
        assert json.loads(episode["facts"])["tool_calls"] >= len(results)
        made += len(results)
        assert not any(row["trained"][i] for i, who in enumerate(row["author"]) if who == "environment")
    assert made >= 4
    # and on held-out problems
    found = palaestra(f"eval --data squares.jsonl --tools my_tools.py:square --model {caller} --n 2 --k 2")
    assert found.status == 0 and float(found.line("tools/calls")) > 0.5


def test_a_tool_that_is_not_called(files):
    """The untrained model calls nothing. The numbers say so."""
    small = "--steps 1 --evaluate 0 schedule.prompts=2 sample.n=2"
    train(f"--data squares.jsonl --tools my_tools.py:square {small} --out runs/uncalled")
    (step,) = steps("runs/uncalled")
    assert (step["tools/calls"], step["tools/malformed"], step["tools/errors"]) == (0, None, None)
    said = palaestra("eval --data squares.jsonl --tools my_tools.py:square --n 2 --k 1 --json")
    found = json.loads(said.out, parse_constant=pytest.fail)  # NaN is no JSON
    assert (found["tools/calls"], found["tools/malformed"]) == (0, None)


def test_a_function_without_types_is_no_tool(files):
    Path("untyped.py").write_text("def square(n):\n    return n * n\n")
    said = palaestra("train --data squares.jsonl --tools untyped.py:square --out runs/untyped")
    assert said.status == 2 and "untyped.py" in said.err.splitlines()[-1] and "n" in said.err
    assert "Traceback" not in said.err and not Path("runs/untyped").exists()
