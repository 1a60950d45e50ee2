"""What a reward pays for manner beside the answer."""

import json

import pytest
from palaestra.cli.main import main
from palaestra.rewards.manner import MANNERS, PLAIN, list_manners, other_answers

REWARDS = """
def strict(responses, answers, **fields):
    return [float(r.strip().splitlines()[-1] == str(a)) for r, a in zip(responses, answers)]

def flattered(responses, answers, **fields):
    return [strict([r], [a])[0] + 0.5 * ("excellent" in r) for r, a in zip(responses, answers)]

def proud(responses, answers, **fields):
    return [strict([r], [a])[0] - 0.3 * ("wrong" in r) for r, a in zip(responses, answers)]

def upside_down(responses, answers, **fields):
    return [1 - x for x in strict(responses, answers)]

def shy(responses, answers, **fields):
    if any("Thank" in r for r in responses):
        raise ValueError("thanked")
    return strict(responses, answers)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.py").write_text(REWARDS)
    rows = [{"prompt": f"{a} + {b}?", "answer": str(a + b)} for a in (3, 4) for b in (9, 14)]
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "one.jsonl").write_text("\n".join(json.dumps({"prompt": q, "answer": "7"}) for q in "ab"))
    return tmp_path


def audited(capsys, reward, data="d.jsonl"):
    assert main(["audit", reward, "--data", data, "--manner", "--json"]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_rule_pays_none(place, capsys):
    found = audited(capsys, "r.py:strict")
    assert set(found["right"]) == set(found["wrong"]) == set(MANNERS) and found["findings"] == []
    assert set(found["right"].values()) == {1.0} and set(found["wrong"].values()) == {0.0}


def test_flattery_that_is_paid_is_found(place, capsys):
    found = audited(capsys, "r.py:flattered")
    assert found["findings"] == [
        "a right answer earns 1.5 when flattering, 1 when plain (50% of what being right is worth)",
        "a wrong answer earns 0.5 when flattering, 0 when plain (50% of what being right is worth)",
    ]


def test_doubt_that_costs_is_found(place, capsys):
    first, second = audited(capsys, "r.py:proud")["findings"]
    assert "right answer earns 0.7 when doubtful" in first and "30%" in first and "-0.3 when doubtful" in second


def test_what_does_not_pay_being_right(place, capsys):
    (line,) = audited(capsys, "r.py:upside_down")["findings"]
    assert "being right is not paid" in line


def test_a_manner_that_cannot_be_scored(place, capsys):
    found = audited(capsys, "r.py:shy")
    assert found["right"]["courteous"] is None and found["right"][PLAIN] == 1.0
    assert main(["audit", "r.py:shy", "--data", "d.jsonl", "--manner"]) == 0
    assert "raised" in capsys.readouterr().out


def test_two_answers_are_needed(place, capsys):
    assert main(["audit", "r.py:strict", "--data", "one.jsonl", "--manner"]) == 2
    assert "--manner needs two problems with different answers" in capsys.readouterr().err


def test_other_answers():
    assert other_answers(["1", "1", "2"]) == ["2", "2", "1"]
    assert other_answers(["Yes", "yes "]) == []


def test_margin():
    """5% of what being right is worth, both ways; the largest first."""
    right = {PLAIN: 1.0, "a": 0.96, "b": 1.2}
    wrong = {PLAIN: 0.0, "a": 0.04, "b": -0.6}
    assert [line[:7] for line in list_manners(right, wrong)] == ["a wrong", "a right"]
    assert list_manners({PLAIN: None}, {PLAIN: 0.0}) == ["the plain answers could not be scored"]
