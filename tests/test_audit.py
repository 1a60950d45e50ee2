"""The audit finds what is wrong with a reward, and nothing where nothing is wrong."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from oracle import check_oracle

from palaestra import cli

REWARDS = """
import time

def strict(responses, answers, **fields):
    return [float(r.strip() == str(a)) for r, a in zip(responses, answers)]

def anywhere(responses, answers, **fields):
    return [float(str(a) in r) for r, a in zip(responses, answers)]

def rank(responses, answers, **fields):
    return [i / len(responses) for i in range(len(responses))]

def breaks(responses, answers, **fields):
    return [float(int(r) == int(a)) for r, a in zip(responses, answers)]

def refusing(responses, answers, **fields):
    return [0.5 if "know" in r else float(r.strip() == str(a)) for r, a in zip(responses, answers)]

def long(responses, answers, **fields):
    return [min(1.0, len(r) / 100) for r in responses]

def copying(responses, answers, prompts, **fields):
    return [float(r.strip() in (str(a), p)) for r, a, p in zip(responses, answers, prompts)]

def flat(responses, answers, **fields):
    return [1.0 for _ in responses]
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "r.py").write_text(REWARDS)
    lines = [{"prompt": f"{a} + {b}?", "answer": str(a + b)} for a in range(3, 8) for b in (9, 14)]
    lines += [
        {"prompt": "1 + 1?", "answer": "2", "response": "2", "right": True},
        {"prompt": "1 + 2?", "answer": "3", "response": "4", "right": False},
    ]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return tmp_path


def audited(place, capsys, reward):
    status = cli.main(
        ["audit", reward if ":" not in reward else f"{place}/{reward}", "--data", str(place / "d.jsonl"), "--json"]
    )
    assert status == 0
    return json.loads(capsys.readouterr().out)


def test_nothing_to_find(place, capsys):
    for reward in ("r.py:strict", "exact", "math"):
        found = audited(place, capsys, reward)
        assert found["findings"] == [] and found["gold"]["mean"] == 1.0 and found["problems"] == 12
        assert found["labels"]["right_above_wrong"] == 1.0 and found["latency"]["median"] >= 0


@pytest.mark.parametrize(
    "reward, probe",
    [
        ("r.py:anywhere", "all answers"),
        ("r.py:anywhere", "every number to 100"),
        ("r.py:anywhere", "the gold denied"),
        ("r.py:refusing", "refusal: I don't know."),
        ("r.py:long", "every number to 100"),
        ("r.py:copying", "copy of the prompt"),
        ("r.py:flat", "empty"),
    ],
)
def test_what_is_paid(place, capsys, reward, probe):
    found = audited(place, capsys, reward)
    assert probe in {h["probe"] for h in found["hackable"]}
    assert found["findings"]


def test_what_depends_on_the_batch(place, capsys):
    found = audited(place, capsys, "r.py:rank")
    assert found["dependence"]["in another order"] > 0 and found["dependence"]["asked again"] == 0


def test_what_breaks_and_what_never_differs(place, capsys):
    found = audited(place, capsys, "r.py:breaks")
    assert any("ValueError" in e["error"] for e in found["exceptions"]) and found["gold"]["mean"] == 1.0
    assert audited(place, capsys, "r.py:flat")["ties"]["problems_with_one_score"] == 12


def test_the_human_form_and_mistakes(place, capsys):
    assert cli.main(["audit", f"{place}/r.py:anywhere", "--data", str(place / "d.jsonl")]) == 0
    shown = capsys.readouterr().out
    assert "findings:" in shown and "every number to 100" in shown and "slowest" in shown
    for wrong in (["audit", "exact"], ["audit", "exact", "--data", str(place / "no.jsonl")], ["audit", "nothing", "--data", "x"],
                  ["audit", "keywords", "--data", str(place / "d.jsonl")]):  # fmt: skip
        assert cli.main(wrong) == 2


def test_data_are_read_as_training_reads_them(place, capsys):
    """A mark before the text, Parquet, and which columns a reward can ask for."""
    lines = (place / "d.jsonl").read_text().splitlines()
    records = [json.loads(line) | {"system": "Be brief.", "split": "train"} for line in lines]
    (place / "d.jsonl").write_text("\ufeff" + "\n".join(map(json.dumps, records)))
    assert audited(place, capsys, "exact")["problems"] == 12
    pq.write_table(pa.Table.from_pylist(records), place / "d.parquet")
    assert cli.main(["audit", "exact", "--data", str(place / "d.parquet"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == 12
    (place / "asks.py").write_text("def score(responses, answers, system): return [1.0 for _ in responses]")
    assert cli.main(["audit", f"{place}/asks.py:score", "--data", str(place / "d.jsonl")]) == 2
    assert "needs 'system', which the data has not" in capsys.readouterr().err


def test_training_takes_a_verifier_by_name(place):
    from palaestra.runtime.benches import from_data

    bench = from_data(str(place / "d.jsonl"), "", "math")
    assert check_oracle(bench.tasks, bench.reward, 4) == []
