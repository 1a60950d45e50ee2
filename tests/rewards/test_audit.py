"""The audit finds what is wrong with a reward, and nothing where nothing is wrong."""

import json
import time
from io import StringIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from palaestra.cli import audit as command
from palaestra.cli.main import main
from palaestra.rewards.user import UserReward
from palaestra.settings import rewards as named

from tests.oracle import check_oracle

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

def by_tokens(completions, completion_ids, answer):
    return [float(a in c) - 0.01 * len(ids) for c, ids, a in zip(completions, completion_ids, answer)]

def asks_tokens(completions, completion_ids, answer):
    assert all(completion_ids), "no tokens"
    return [float(c == a) for c, a in zip(completions, answer)]

def long(responses, answers, **fields):
    return [min(1.0, len(r) / 100) for r in responses]

def copying(responses, answers, prompts, **fields):
    return [float(r.strip() in (str(a), p)) for r, a, p in zip(responses, answers, prompts)]

def flat(responses, answers, **fields):
    return [1.0 for _ in responses]

def short2(responses, answers): return [float(answers[0]==responses[0].strip())]
def neg(responses, answers): return [float(a==r.strip())-1 for r,a in zip(responses,answers)]
def pen(responses, answers): return [0.0 if (a==r.strip() or not r.strip()) else -1.0 for r,a in zip(responses,answers)]
def neghack(responses, answers):
    return [0.0 if a==r.strip() else (-0.01 if "yes" in r else -1.0) for r,a in zip(responses,answers)]

def sleepy(responses, answers):
    time.sleep(100)

def slow_on_nines(responses, answers):
    if any(r.startswith("999") for r in responses):
        time.sleep(100)
    return [float("5" in r or r.strip() == a) for r, a in zip(responses, answers)]
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
    status = main(
        ["audit", reward if ":" not in reward else f"{place}/{reward}", "--data", str(place / "d.jsonl"), "--json"]
    )
    assert status == 0
    return json.loads(capsys.readouterr().out)


def test_a_reward_by_tokens_is_given_those_of_a_whole_reply(place, capsys):
    """By the tokenizer of `--model`, where nothing is said of the model that comes with the package."""
    found = audited(place, capsys, "r.py:by_tokens")
    assert found["probes"]["empty"] == pytest.approx(-0.01)  # the end of the turn
    assert found["probes"]["constant: 0"] == pytest.approx(-0.02)
    assert found["probes"]["every number to 100"] < -1.5  # 101 numbers, one of them right
    data = str(place / "d.jsonl")
    asked = lambda *more: main(["audit", f"{place}/r.py:by_tokens", "--data", data, "--json", *more])
    assert asked("--model", "smollm2") == 0
    other = json.loads(capsys.readouterr().out)["probes"]
    assert (
        other["empty"] == pytest.approx(-0.01)
        and other["constant: <answer></answer>"] > found["probes"]["constant: <answer></answer>"]
    )
    assert asked("--manner") == 0
    manners = json.loads(capsys.readouterr().out)
    assert manners["wrong"]["longer"] < manners["wrong"]["plain"] - 0.5
    assert main(["audit", f"{place}/r.py:by_tokens", "--data", data, "--model", "nobody"]) == 2
    assert "unknown model 'nobody'" in capsys.readouterr().err


def test_nothing_to_find(place, capsys):
    for reward, gold in (("r.py:strict", 1.0), ("r.py:neg", 0.0), ("exact", 1.0), ("math", 1.0)):
        found = audited(place, capsys, reward)
        assert found["findings"] == [] and found["gold"]["mean"] == gold and found["problems"] == 12
        assert found["wrong"] == gold - 1.0 and found["hung"] == {}
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
        ("r.py:neghack", "constant: yes"),
        ("r.py:pen", "empty"),
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


def test_a_penalty_is_measured_on_its_own_scale(place, capsys):
    """Wrong answers cost 1 and golds nothing: -0.01 for a "yes" is 0.99 of what solving is worth."""
    found = audited(place, capsys, "r.py:neghack")
    assert [h["probe"] for h in found["hackable"]] == ["constant: yes"]
    assert found["hackable"][0]["of_gold"] == pytest.approx(0.99) and found["wrong"] == -1.0
    assert found["findings"] == ["pays -0.01 for constant: yes ('yes'), gold 0, most wrong answers -1"]


def test_a_batch_that_fails_where_each_response_is_scored(place, capsys):
    found = audited(place, capsys, "r.py:short2")
    assert found["gold"]["mean"] == 1.0 and all(e["response"] == "12 responses at once" for e in found["exceptions"])
    (told,) = found["findings"]
    assert told.startswith("raises on ") and "returned 1 values for 12 responses; return one for each" in told


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(named, "UserReward", lambda spec, _: UserReward(spec, 0.3))


def test_a_reward_that_hangs_is_asked_once(place, capsys, impatient):
    begin = time.perf_counter()
    found = audited(place, capsys, "r.py:sleepy")
    assert time.perf_counter() - begin < 3
    assert found["hung"]["seconds"] == 0.3 and found["hung"]["probe"] == "gold as {}" and found["gold"]["mean"] is None
    assert found["findings"] == ["gave nothing in 0.3 s when asked for gold as {} ('12'); the audit ends there"]
    assert main(["audit", f"{place}/r.py:sleepy", "--data", str(place / "d.jsonl")]) == 0
    assert "gold not scored" in capsys.readouterr().out


def test_what_was_found_before_a_reward_hangs(place, capsys, impatient):
    found = audited(place, capsys, "r.py:slow_on_nines")
    first, *others = found["findings"]
    assert first.startswith("gave nothing in 0.3 s when asked for strange: '9999999999'")
    assert "every number to 100" in {h["probe"] for h in found["hackable"]} and others
    assert all(f.startswith("pays ") for f in others)  # what was left unasked is no finding


def test_a_terminal_sees_which_probe_is_asked():
    class Terminal(StringIO):
        def isatty(self):
            return True

    terminal, file = Terminal(), StringIO()
    for stream in (terminal, file):
        with command.progress(stream) as say:
            say("gold as {}")
            say("constant: a\nb\ud800")
    assert "\rprobe 2: constant: a\\nb\\ud800" in terminal.getvalue().replace("\x1b[K", "")
    assert terminal.getvalue().endswith("\r\x1b[K") and file.getvalue() == ""


def test_the_human_form_and_mistakes(place, capsys):
    assert main(["audit", f"{place}/r.py:anywhere", "--data", str(place / "d.jsonl")]) == 0
    shown = capsys.readouterr().out
    assert "findings:" in shown and "every number to 100" in shown and "slowest" in shown
    for wrong in (["audit", "exact"], ["audit", "exact", "--data", str(place / "no.jsonl")], ["audit", "nothing", "--data", "x"],
                  ["audit", "keywords", "--data", str(place / "d.jsonl")]):  # fmt: skip
        assert main(wrong) == 2


def test_data_are_read_as_training_reads_them(place, capsys):
    """A mark before the text, Parquet, and which columns a reward can ask for."""
    lines = (place / "d.jsonl").read_text().splitlines()
    records = [json.loads(line) | {"system": "Be brief.", "split": "train"} for line in lines]
    (place / "d.jsonl").write_text("\ufeff" + "\n".join(map(json.dumps, records)))
    assert audited(place, capsys, "exact")["problems"] == 12
    pq.write_table(pa.Table.from_pylist(records), place / "d.parquet")
    assert main(["audit", "exact", "--data", str(place / "d.parquet"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == 12
    (place / "asks.py").write_text("def score(responses, answers, system): return [1.0 for _ in responses]")
    assert main(["audit", f"{place}/asks.py:score", "--data", str(place / "d.jsonl")]) == 2
    assert "needs 'system', which the data has not" in capsys.readouterr().err


def test_training_gives_the_tokens_of_golds_too(place):
    """What is asked before the first step has tokens as what is sampled has."""
    out = place / "run"
    small = ["--steps", "1", "--evaluate", "2", "--max-tokens", "2", "schedule.prompts=1", "sample.n=2"]
    asked = ["train", "--data", str(place / "d.jsonl"), "--reward", f"{place}/r.py:asks_tokens"]
    assert main([*asked, *small, "--out", str(out)]) == 0


def test_training_takes_a_verifier_by_name(place):
    from palaestra.run.benches import from_data

    bench = from_data(str(place / "d.jsonl"), "", "math")
    assert check_oracle(bench.tasks, bench.reward, 4) == []
