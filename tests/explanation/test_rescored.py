"""Answers that a run keeps under another reward: what is read back, what differs, and what is said of it."""

import json
from pathlib import Path

import pytest
from palaestra import open as open_run
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.explanation.rescored import Rescored, change_of, with_text
from palaestra.rewards.verify import response_text
from palaestra.types import Episode, Row, Segment

OWN = """
from palaestra import Fault
def length(responses, answers, **fields):
    return [{"total": len(r), "solved": s == "odd"} for r, s in zip(responses, fields["kind"])]
def size(responses, answers):
    return [len(r) for r in responses]
def silent(responses, answers):
    raise Fault("reward", "no answer from the judge")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of two steps on four problems of its own, with a column that a reward reads."""
    place = tmp_path_factory.mktemp("rescored")
    (place / "own.py").write_text(OWN)
    rows = [{"prompt": f"{i}+1=", "answer": str(i + 1), "kind": "odd" if i % 2 else "even"} for i in range(4)]
    (place / "sums.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    small = ["schedule.prompts=4", "sample.n=4", "--max-tokens", "12", "--evaluate", "0", "--json"]
    asked = ["--data", str(place / "sums.jsonl"), "--steps", "2", "--out", str(place / "run")]
    assert main(["train", "grpo", *asked, *small]) == 0
    return place


def test_the_runs_own_reward_changes_nothing(folder):
    run = open_run(folder / "run")
    found = run.rescored("exact")
    assert len(found) == run.episodes().num_rows == 32 and not any(x.error for x in found)
    assert [(x.reward, x.solved) for x in found] == [(x.other, x.other_solved) for x in found]
    assert {x.step for x in run.rescored("exact", steps=1)} == {2}


def test_a_function_gets_the_text_and_the_columns_of_the_data(folder):
    found = open_run(folder / "run").rescored(f"{folder / 'own.py'}:length")
    assert all(x.other == len(x.text) for x in found) and len({x.other for x in found}) > 1
    odd = {x["task_id"]: int(x["prompt"][0]) % 2 == 1 for x in open_run(folder / "run").episodes().to_pylist()}
    assert {x.task_id: x.other_solved for x in found} == odd and len(set(odd.values())) == 2


def test_what_fails_is_counted_and_says_why(folder, capsys):
    assert main(["score", f"{folder / 'own.py'}:silent", "--run", str(folder / "run"), "--steps", "1"]) == 0
    said = capsys.readouterr().out
    assert "own.py:silent on 0 answers" in said and "16 more were scored by one of them alone: " in said
    assert "no answer from the judge" in said


def test_of_multi_turn_episodes_what_was_said_last_is_judged():
    """Tokens also tell the mark of the end, which text does not."""
    say = lambda text, turn, end="": Segment(
        ids=(1,), logp=(0.0,), trained=True, policy="policy", turn=turn, text=text + end
    )
    told = Segment(ids=(2,), text="found: 7", turn=1)
    episode = Episode(
        rows=(Row(segments=(say("search", 0, "<eos>"), told, say("it is 7", 2, "<eos>"))),), status="finished"
    )
    assert response_text(with_text(episode, "search\nit is 7")) == "it is 7"
    one = Episode(rows=(Row(segments=(say("7", 0, "<eos>"),)),), status="finished")
    assert response_text(with_text(one, "7")) == "7"
    assert response_text(with_text(one, "sept é")) == "sept é"  # of one turn the text is known whole
    cut = Episode(rows=(Row(segments=(told,)),), status="truncated")
    assert with_text(cut, "") == cut


def test_the_last_turn_is_found_in_a_file(folder):
    small = ["schedule.prompts=4", "sample.n=2", "--evaluate", "0", "--json", "--steps", "1"]
    assert main(["train", "grpo", "--task", "hop", "--out", str(folder / "hops"), *small]) == 0
    found = open_run(folder / "hops").rescored(f"{folder / 'own.py'}:size")
    turns = [x.text.split("\n") for x in found]
    assert {len(t) > 1 for t in turns} == {True, False}
    assert [x.other for x in found] == [len(t[-1]) for t in turns]


def answers(own, other, solved=None, group=0):
    solved = solved or [(None, None)] * len(own)
    return [
        Rescored(step=1, group=group, sample=i, task_id="t", text="", reward=a, solved=s[0], other=b, other_solved=s[1])
        for i, (a, b, s) in enumerate(zip(own, other, solved, strict=True))
    ]


def test_what_differs_by_hand():
    first = answers([1, 0, 0, None], [1, 1, 0, 1], [(True, True), (False, True), (False, False), (None, True)])
    second = answers([1, 1], [0, 1], [(True, False), (True, True)], group=1)
    found = change_of([*first, *second])
    assert (found.answers, found.unscored, found.judged) == (5, 1, 5)
    assert found.mean == (pytest.approx(3 / 5), pytest.approx(3 / 5)) and found.solved == (3, 3)
    assert (found.now_wrong, found.now_right) == (1, 1)
    assert (found.groups, found.mixed) == (2, (1, 2))
    # pairs: (1,0) -> (1,1), (1,0) -> (1,0), (0,0) -> (1,0), and (1,1) -> (0,1): one agrees; 2 and 3 are strict
    assert found.agreement == pytest.approx(1 / (2 * 3) ** 0.5)


def test_order_alone_counts_and_none_has_no_agreement():
    assert change_of(answers([0, 1, 2], [0, 10, 11])).agreement == pytest.approx(1)
    assert change_of(answers([0, 1, 2], [5, 4, 3])).agreement == pytest.approx(-1)
    assert change_of(answers([1, 1], [0, 1])).agreement is None
    nothing = change_of([])
    assert (nothing.answers, nothing.mean, nothing.agreement, nothing.mixed) == (0, (0.0, 0.0), None, (0, 0))


def test_what_cannot_be_done_is_said(folder, tmp_path, capsys):
    run = str(folder / "run")
    for words, said in (
        (["exact", "--run", run, "--cases", "x.jsonl"], "exclude each other"),
        (["exakt", "--run", run], "no verifier 'exakt'"),
        (["exact", "--run", str(tmp_path)], "not a run folder"),
        (["exact"], "--cases is missing"),
    ):
        assert main(["score", *words]) == 2 and said in capsys.readouterr().err
    for file in Path(run).rglob("rollouts/*.parquet"):
        file.rename(tmp_path / file.name)
    with pytest.raises(UserError, match="has kept no answers"):
        open_run(run).rescored("exact")
