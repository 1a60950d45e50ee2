"""Labelled answers: what users and models write, with a person's judgement of each.

`labelled.tsv` was written before the verifiers were changed for it; ↵ stands for a line break. A wrong answer that is
paid is a fault. A right one may be refused where it can be read in two ways: those are `REFUSED`, with the reason.
"""

import json
from pathlib import Path

import pytest
from palaestra.verifiers.registry import get_verifier

TABLE = Path(__file__).with_name("labelled.tsv").read_text(encoding="utf-8").split("\n")[1:-1]
ROWS = [tuple(line.split("\t")) for line in TABLE]
REFUSED = {  # verifier, answer, response
    ("number", "20", "The answer is 20%."): "20% is not 20",
    ("math", "4", "\\boxed{\\sqrt 16}"): "an operation is left to be done",
    ("math", "2", "\\boxed{\\log_{10} 100}"): "an operation is left to be done",
    ("math", "1024", "\\boxed{2^{10}}"): "an operation is left to be done",
}


def score(verifier, answer, response, options):
    fields = {"options": options.split("|")} if options else {}
    gold = json.loads(answer) if verifier in ("set", "list") else answer
    return get_verifier(verifier)(response.replace("↵", "\n"), gold, **fields).score


@pytest.mark.parametrize("verifier", ["exact", "number", "math", "choice", "set", "list"])
def test_labelled_answers(verifier):
    if verifier == "math":
        pytest.importorskip("math_verify")
    paid, refused = [], []
    for name, right, _, answer, response, options in ROWS:
        if name != verifier:
            continue
        found = score(name, answer, response, options)
        if right == "0" and found:
            paid.append((answer, response))
        if right == "1" and not found and (name, answer, response) not in REFUSED:
            refused.append((answer, response))
    assert paid == [] and refused == []


def test_the_table_is_balanced():
    right = sum(row[1] == "1" for row in ROWS)
    assert len(ROWS) >= 300 and 0.45 < right / len(ROWS) < 0.55
    assert REFUSED.keys() <= {(row[0], row[3], row[4]) for row in ROWS}
