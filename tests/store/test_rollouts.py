"""Rollouts on disk: what was sampled, token by token, with the credit that it got."""

import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from palaestra.store import columns, rollouts
from palaestra.types import Episode, Group, Message, Origin, Reward, Row, Segment, Task

PROMPT = Segment(ids=(1, 2), text="2+2=")
HINT = Segment(ids=(3,), hidden=True, trained=True, author="teacher:x", text="(4)")
ANSWER = Segment(
    ids=(7, 8), author="policy", policy="policy", turn=1, trained=True, logp=(-0.5, -0.25), version=4, text="4."
)
DEMONSTRATED = Segment(ids=(9,), author="demonstration", trained=True)


def decode(ids):
    return f"<{ids[0]}>"


def groups():
    row = Row(segments=(PROMPT, HINT, ANSWER), seat="policy", key=(0, "a"))
    other = Row(segments=(PROMPT, DEMONSTRATED), thread="t", key=(0, "b"))
    reward = Reward(total=0.5, parts={"right": 1.0, "odd": float("nan")})
    good = Episode(
        rows=(row, other), reward=reward, status="finished", facts={"at": (1, 2), "pay": {("a", "b"): np.float32(1)}},
        origin=Origin(parent=2, turn=1), seconds=1.5,
    )  # fmt: skip
    failed = Episode(rows=(Row(),), status="error:dead endpoint")
    task = Task(id="t0", prompt=(Message(role="user", content="2+2="),), answer="4", domain="sums")
    return [Group(task=task, episodes=(good, failed)), Group(task=Task(id="t1"))]


def test_answers_that_are_no_text_are_json(tmp_path):
    """Also in a file whose answers are of several kinds."""
    file = tmp_path / "rollouts.parquet"
    answers = [None, "7", 7, [1, 2], {"a": float("nan")}]
    given = [Group(task=Task(id=str(i), answer=a), episodes=(Episode(),)) for i, a in enumerate(answers)]
    rollouts.write(file, 1, given, rollouts.NOTHING, decode)
    assert pq.read_table(file)["answer"].to_pylist() == [None, "7", "7", "[1, 2]", '{"a": null}']


def test_a_trajectory_a_line(tmp_path):
    given = groups()
    file = columns.path(tmp_path, 12)
    advantages = {(0, "a"): np.array([0.0, 0.0, 1.5, 2.5]), (0, "b"): -1.0}
    rollouts.write(file, 12, given, rollouts.StepTrace(advantages=advantages), decode)
    assert file == tmp_path / "rollouts" / "step-000012.parquet"
    first, second = pq.read_table(file).to_pylist()
    rows = first.pop("rows")
    assert json.loads(first.pop("facts")) == {"at": [1, 2], "pay": {"('a', 'b')": 1.0}}
    assert json.loads(first.pop("reward_parts")) == {"right": 1.0, "odd": None}
    assert first == {
        "step": 12, "group": 0, "sample": 0, "task_id": "t0", "domain": "sums", "prompt": "2+2=", "answer": "4", "text": "4.",
        "status": "finished", "muted": False, "reward": 0.5, "solved": None, "advantage": 1.0, "policy_version": 4,
        "oldest_version": 4, "kept": None, "n_tokens": 2, "seconds": 1.5, "parent": 2, "forked_at": 1,
        "verdicts": [], "pictures": [], "sounds": [],
    }  # fmt: skip
    assert rows[0] == {
        "seat": "policy",
        "thread": "",
        "ids": [1, 2, 3, 7, 8],
        "tokens": ["<1>", "<2>", "<3>", "<7>", "<8>"],
        "trained": [False, False, False, True, True],
        "hidden": [False, False, True, False, False],
        "logp": [None, None, None, -0.5, -0.25],
        "advantage": [0.0, 0.0, None, 1.5, 2.5],
        "weight": [None] * 5,
        "ratio": [None] * 5,
        "author": ["environment", "environment", "teacher:x", "policy", "policy"],
        "turn": [0, 0, 0, 1, 1],
        "said": [],
    }
    assert rows[1]["advantage"] == [-1.0] * 3 and rows[1]["logp"] == [None] * 3 and rows[1]["thread"] == "t"
    absent = ("reward", "reward_parts", "advantage", "policy_version", "seconds", "parent", "forked_at")
    assert [second[name] for name in absent] == [None] * 7
    assert (second["sample"], second["status"], second["rows"][0]["ids"]) == (1, "error:dead endpoint", [])


def test_rows_without_credit(tmp_path):
    file = columns.path(tmp_path, 1)
    rollouts.write(file, 1, groups(), rollouts.NOTHING, decode)
    line = pq.read_table(file).to_pylist()[0]
    assert line["advantage"] is None and line["rows"][0]["advantage"] == [None] * 5


def test_the_version_is_that_of_the_newest_token(tmp_path):
    """An answer that was begun under earlier weights and gone on with under later ones."""
    said = [replace(ANSWER, version=v) for v in (3, 5, None)]
    moved = replace(ANSWER, moved=((1, 6),))  # version 4, and 6 from its second token on
    for answers, newest, oldest in ((said, 5, 3), ([moved], 6, 4)):
        episode = Episode(rows=(Row(segments=(PROMPT, *answers)),), reward=Reward(total=1.0), status="finished")
        rollouts.write(
            columns.path(tmp_path, 6), 6, [Group(task=Task(id="t"), episodes=(episode,))], rollouts.NOTHING, decode
        )
        assert pq.read_table(columns.path(tmp_path, 6)).to_pylist()[0]["policy_version"] == newest
        assert episode.oldest() == oldest


def test_credit_of_another_length_is_loud(tmp_path):
    given = groups()
    with pytest.raises(ValueError, match="broadcast"):
        rollouts.write(
            columns.path(tmp_path, 1), 1, given, rollouts.StepTrace(advantages={(0, "a"): np.zeros(5)}), decode
        )
    assert not list((tmp_path / "rollouts").iterdir())


def test_a_step_without_episodes_has_the_columns(tmp_path):
    file = columns.path(tmp_path, 2)
    rollouts.write(file, 2, [], rollouts.NOTHING, decode)
    assert pq.read_schema(file).names == columns.SCHEMA.names and pq.read_table(file).num_rows == 0


def test_what_a_step_made_of_each_token_is_kept(tmp_path):
    """Over the training view, null where the token was not trained or the number is none."""
    file, key = columns.path(tmp_path, 1), (0, "a")
    trace = rollouts.StepTrace(
        weights={key: np.array([9.0, 9.0, -1.5, 2.5])},
        ratios={key: np.array([1.0, 1.0, np.nan, 0.5])},
        kept={key: "trained"},
    )
    rollouts.write(file, 1, groups(), trace, decode)
    first, second = pq.read_table(file).to_pylist()
    assert first["rows"][0]["weight"] == [None, None, None, -1.5, 2.5]
    assert first["rows"][0]["ratio"] == [None, None, None, None, 0.5]
    assert first["rows"][1]["weight"] == [None] * 3 and (first["kept"], second["kept"]) == ("trained", None)
    assert columns.version_of(file) == columns.VERSION == 3


def test_characters_of_several_tokens_are_whole():
    """As a tokenizer of bytes decodes them: the last token of a character has it."""
    said = "aé∑!€"
    ids = list(said.encode())
    read = lambda some: bytes(some).decode("utf-8", "replace")
    rows = np.array([0, len(ids), len(ids) + 1])  # the second row begins with a byte that is none
    found = rollouts.token_texts(np.array([*ids, 0xC3]), rows, read).to_pylist()
    assert found == ["a", "", "é", "", "", "∑", "!", "", "", "€", "\ufffd"]
    assert "".join(found[:-1]) == said


def test_turns_stand_on_lines_of_their_own(tmp_path):
    said = [replace(ANSWER, text=t, turn=n) for t, n in (("0", 1), ("1", 1), ("3", 2))]
    row = Row(segments=(PROMPT, said[0], said[1], PROMPT, said[2]))
    episode = Episode(rows=(row, Row(segments=(said[2],))), status="finished")
    file = columns.path(tmp_path, 1)
    rollouts.write(file, 1, [Group(task=Task(id="t"), episodes=(episode,))], rollouts.NOTHING, decode)
    assert pq.read_table(file)["text"].to_pylist() == ["01\n3\n3"]


def test_what_was_said_without_tokens_stands_at_its_place(tmp_path):
    """Of a scripted seat, or of a model behind an endpoint: text is all that there is."""
    asked, said = Segment(ids=(), text="your move", turn=2), Segment(ids=(), text="b2", author="script", turn=2)
    rows = (Row(segments=(asked, said), seat="o"), Row(segments=(PROMPT, said, ANSWER), seat="x"))
    given = [Group(task=Task(id="t"), episodes=(Episode(rows=rows, reward=Reward(total=1.0), status="finished"),))]
    file = columns.path(tmp_path, 1)
    rollouts.write(file, 1, given, rollouts.NOTHING, decode)
    (line,) = pq.read_table(file).to_pylist()
    told = [[tuple(s.values()) for s in row["said"]] for row in line["rows"]]
    assert told == [[(0, "environment", 2, "your move"), (0, "script", 2, "b2")], [(2, "script", 2, "b2")]]
    assert [row["ids"] for row in line["rows"]] == [[], [1, 2, 7, 8]]
