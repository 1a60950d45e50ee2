"""Problems from files: what is read, who is held out, and every kind of broken input as one line that says where."""

# ruff: noqa: E501  one line a case

import builtins
import json
import os
import re
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from functools import partial

import palaestra
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra.errors import UserError
from palaestra.run.benches import splits_by_picture
from palaestra.store.codec import decode, encode
from palaestra.tasks import records
from palaestra.tasks.columns import LOOKED_AT
from palaestra.tasks.files import FileTasks, first_tasks, load
from palaestra.tasks.records import Rows
from palaestra.tasks.repeats import caveat
from PIL import Image

GOOD = [{"prompt": f"What is {i} + 1?", "answer": i + 1, "source": "made", "level": i % 3} for i in range(40)]
HELD = (15, 18, 22, 36)  # the answers of the prompts with the smallest hashes, on every machine


@pytest.fixture(autouse=True)
def fresh():
    load.cache_clear()


def write(folder, name, content):
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(content), path)
    elif isinstance(content, str):
        path.write_text(content)
    elif name.endswith(".json"):
        path.write_text(json.dumps(content))
    else:
        path.write_text("\n".join(map(json.dumps, content)))
    return str(path)


@pytest.mark.parametrize("name", ["d.jsonl", "d.ndjson", "d.json", "d.parquet"])
def test_every_format_gives_the_same_tasks(tmp_path, name):
    tasks = FileTasks(write(tmp_path, name, GOOD))
    assert (tasks.size, tasks.test_size, tasks.n_leaked) == (36, 4, 0)
    train = [tasks.task("train", i) for i in range(tasks.size)]
    test = [tasks.task("test", i) for i in range(tasks.test_size)]
    assert sorted(t.answer for t in train + test) == list(range(1, 41))
    assert len({t.id for t in train + test}) == 40 and train[0].id.startswith(name)
    assert all(t.prompt[0].content == GOOD[t.answer - 1]["prompt"] for t in train + test)
    assert all(t.meta == {"source": "made", "level": GOOD[t.answer - 1]["level"]} for t in train + test)
    assert sorted(t.answer for t in test) == sorted(HELD)
    with pytest.raises(IndexError):
        tasks.task("test", 4)
    with pytest.raises(UserError, match="no split 'valid'"):
        tasks.task("valid", 0)


def test_a_saved_dataset(tmp_path):
    datasets = pytest.importorskip("datasets")
    whole = datasets.Dataset.from_list(GOOD)
    whole.save_to_disk(tmp_path / "one")
    assert FileTasks(str(tmp_path / "one")).size == 36
    datasets.DatasetDict(train=whole, test=whole.select(range(3))).save_to_disk(tmp_path / "two")
    two = FileTasks(str(tmp_path / "two"))
    assert (two.size, two.test_size, two.n_leaked) == (40, 3, 3)
    datasets.DatasetDict(train=whole, validation=whole.select(range(3))).save_to_disk(tmp_path / "three")
    with pytest.raises(
        UserError, match="the splits are train, validation; name 'validation' 'test', or give --test-data"
    ):
        FileTasks(str(tmp_path / "three"))
    assert FileTasks(str(tmp_path / "three"), test=str(tmp_path / "one")).test_size == 40


def test_all_fields(tmp_path):
    chat = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "ho"},
        {"role": "user", "content": "2?"},
    ]
    record = {
        "id": 7,
        "system": "Be brief.",
        "messages": chat,
        "answer": "x",
        "domain": "talk",
        "split": "train",
        "n": [1, 2],
    }
    held = {
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}],
        "answer": 1.5,
        "split": "test",
    }
    tasks = FileTasks(write(tmp_path, "d.jsonl", [record, held]))
    task = tasks.task("train", 0)
    assert [m.role for m in task.prompt] == ["system", "user", "assistant", "user"]
    assert (task.id, task.answer, task.domain, task.meta) == ("7", "x", "talk", {"n": [1, 2]})
    assert tasks.task("test", 0).id == "d.jsonl:2" and (tasks.size, tasks.test_size) == (1, 1)
    assert hash(tasks) == hash(FileTasks(tasks.path)) and tasks.name == "d"


def test_parquet_messages_and_missing_keys(tmp_path):
    rows = [{"messages": [{"role": "user", "content": f"q{i}", "tool_calls": None}], "answer": "a"} for i in range(3)]
    assert FileTasks(write(tmp_path, "d.parquet", rows)).size == 2


def test_what_only_parquet_has_becomes_plain(tmp_path):
    """So that a checkpoint can hold the tasks: a decimal is a number, a time is text."""
    when = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    rows = [
        {"prompt": f"q{i}", "answer": Decimal(f"{i}.50"), "at": when, "on": when.date(), "took": timedelta(seconds=90),
         "deep": [{"price": Decimal("7.00"), "time": time(3, 4)}]}
        for i in range(3)
    ]  # fmt: skip
    path = write(tmp_path, "d.parquet", rows)
    for answers in (True, False):
        tasks = FileTasks(path, answers=answers)
        task = next(t for t in map(partial(tasks.task, "train"), range(2)) if t.prompt[0].content != "q0")
        assert task.answer == float(f"{task.prompt[0].content[1:]}.5") and type(task.answer) is float
        meta = {
            "at": "2026-01-02T03:04:00+00:00",
            "on": "2026-01-02",
            "took": 90.0,
            "deep": [{"price": 7, "time": "03:04:00"}],
        }
        assert task.meta == meta
        plain, tensors = encode(task)
        assert decode(json.loads(json.dumps(plain)), tensors) == task


def test_a_second_file_is_the_test_split(tmp_path):
    train, test = write(tmp_path, "a.jsonl", GOOD[:30]), write(tmp_path, "b.json", GOOD[28:])
    tasks = FileTasks(train, test=test)
    assert (tasks.size, tasks.test_size, tasks.n_leaked) == (30, 12, 2)
    known = "2 of the 12 held-out prompts are training prompts too: the accuracy is not one on new problems alone"
    assert caveat(tasks, 5) == tasks.caveat == known and caveat(FileTasks(train), 5) == ""
    assert FileTasks(write(tmp_path, "c.jsonl", GOOD[:1]), test=test).size == 1
    twice = FileTasks(write(tmp_path, "e.jsonl", [*GOOD[:30], GOOD[28]]), test=test)
    assert twice.n_leaked == 2  # held-out tasks, not the training tasks that they equal


def test_without_answers(tmp_path):
    path = write(
        tmp_path, "d.jsonl", [{"prompt": "a", "answer": [1]}, {"prompt": "b"}, {"prompt": "c", "answer": None}]
    )
    tasks = FileTasks(path, answers=False)
    found = [tasks.task("train", 0), tasks.task("train", 1), tasks.task("test", 0)]
    assert {t.prompt[0].content: t.answer for t in found} == {"a": [1], "b": None, "c": None}


def test_blank_lines_and_marks_are_no_matter(tmp_path):
    text = "\ufeff" + "\r\n\r\n".join(map(json.dumps, GOOD[:3])) + "\r\n\n"
    tasks = FileTasks(write(tmp_path, "d.jsonl", text.encode()))
    assert tasks.size + tasks.test_size == 3
    ids = {tasks.task(s, i).id for s, n in (("train", 2), ("test", 1)) for i in range(n)}
    assert ids == {"d.jsonl:1", "d.jsonl:3", "d.jsonl:5"}


@given(st.lists(st.integers(0, 8), min_size=2, max_size=60))
def test_equal_prompts_stay_together(tmp_path_factory, numbers):
    load.cache_clear()
    path = write(tmp_path_factory.mktemp("d"), "d.jsonl", [{"prompt": str(n), "answer": n} for n in numbers])
    if len(set(numbers)) < 2:
        with pytest.raises(UserError, match="nothing can be held out"):
            FileTasks(path)
        return
    tasks = FileTasks(path)
    assert (
        tasks.n_leaked == 0 and tasks.size > 0 and tasks.test_size > 0 and tasks.size + tasks.test_size == len(numbers)
    )


def test_a_tenth_of_the_different_prompts_is_held_out(tmp_path):
    path = write(tmp_path, "d.jsonl", [{"prompt": f"p{i % 20}", "answer": i} for i in range(100)])
    assert (FileTasks(path).size, FileTasks(path).test_size) == (90, 10)


def test_records_of_one_picture_are_held_out_together(tmp_path):
    """Ten pictures with six questions each: by prompt nearly every picture is in both splits, by picture none."""
    for i in range(10):
        Image.new("RGB", (4, 4), (i, 0, 0)).save(tmp_path / f"{i}.png")
    rows = [{"prompt": f"q{i}?", "image": f"{i % 10}.png", "chosen": "a", "rejected": "b"} for i in range(60)]
    path = write(tmp_path, "d.jsonl", rows)
    shown = lambda tasks, split, n: {tasks.task(split, i).prompt[0].pictures[0].digest for i in range(n)}
    for apart in (False, True):
        tasks = FileTasks(path, answers=False, by_picture=apart)
        train, test = shown(tasks, "train", tasks.size), shown(tasks, "test", tasks.test_size)
        assert (tasks.size, tasks.test_size) == (54, 6) and bool(train & test) != apart
    one = write(tmp_path, "e.jsonl", [{**r, "image": "0.png"} for r in rows])
    with pytest.raises(UserError, match="60 records with one and the same picture"):
        FileTasks(one, answers=False, by_picture=True)
    assert splits_by_picture(palaestra.recipe("pivot")) and not splits_by_picture(palaestra.recipe("dpo"))


def test_at_most_500_are_held_out(tmp_path):
    path = write(tmp_path, "d.jsonl", [{"prompt": f"p{i}", "answer": i} for i in range(6000)])
    assert (FileTasks(path).size, FileTasks(path).test_size) == (5500, 500)


def test_a_file_that_changes_is_noticed(tmp_path):
    path = write(tmp_path, "d.jsonl", GOOD)
    tasks = FileTasks(path)
    write(tmp_path, "d.jsonl", GOOD[::-1])
    os.utime(path, ns=(1, 1))
    with pytest.raises(UserError, match="was changed while it is in use; start again"):
        tasks.task("train", 0)


def user(content):
    return {"messages": [{"role": "user", "content": content}], "answer": "a"}


def second(record):
    """A good record, then this one: the message must name line 2."""
    return [GOOD[0], record]


BROKEN = {  # what is wrong: (file name, content, what the message says)
    "bad JSON": ("d.jsonl", json.dumps(GOOD[0]) + '\n\n{"prompt": "a",}\n', r"d\.jsonl:3: not JSON \(.*column 1[56]\); every line must be one object"),
    "no object": ("d.jsonl", second("text"), r"d\.jsonl:2: a string, not an object; write {\"prompt\""),
    "a number": ("d.jsonl", "5", r"d\.jsonl:1: a number, not an object"),
    "a list in JSONL": ("d.jsonl", json.dumps(GOOD), r"d\.jsonl:1: the file is one JSON list; name it d\.json"),
    "cut short": ("d.json", json.dumps(GOOD)[:-20], r"d\.json:1: not JSON \(.*\); mend the list there"),
    "a list of texts": ("d.json", ["a", "b"], r"d\.json, record 1: a string, not an object"),
    "deep nesting": ("d.jsonl", '{"prompt": ' + "[" * 100_000, r"d\.jsonl:1: not JSON"),
    "a huge number": ("d.jsonl", '{"prompt": "a", "answer": ' + "1" * 5000 + "}", r"d\.jsonl:1: not JSON \(Exceeds"),
    "empty file": ("d.jsonl", "", r"d\.jsonl: the file is empty; it needs one record a problem"),
    "blank file": ("d.jsonl", "\n \n", r"d\.jsonl: no records"),
    "empty list": ("d.json", [], r"d\.json: no records"),
    "not UTF-8": ("d.jsonl", b'{"prompt": "caf\xe9", "answer": "1"}\n', r"d\.jsonl:1: byte 16 is not UTF-8; save the text as UTF-8"),
    "UTF-16": ("d.json", json.dumps(GOOD).encode("utf-16"), r"d\.json: the text is UTF-16 or UTF-32; save it as UTF-8"),
    "unknown suffix": ("d.xls", "a,b", r"d\.xls: cannot read \.xls; write it as \.jsonl"),
    "packed Parquet": ("d.parquet.gz", b"x", r"d\.parquet\.gz: cannot read \.parquet\.gz; write it as"),
    "not packed": ("d.jsonl.gz", b"x", r"d\.jsonl\.gz: cannot be unpacked \(.*\); pack it again"),
    "not Arrow": ("d.arrow", b"x", r"d\.arrow: not an Arrow file \(.*\); write it again"),
    "no table": ("d.csv", "a,b\n1\n", r"d\.csv: not a table \(.*Expected 2 columns, got 1.*\); write it again"),
    "semicolons": ("d.csv", "prompt;answer\nq;1\n", r"d\.csv: one column, 'prompt;answer': its cells are parted by ';'; write commas"),
    "no suffix": ("data", "a,b", r"data: cannot read a file without suffix"),
    "not Parquet": ("d.parquet", b"PAR1 no", r"d\.parquet: not a Parquet file \(.*\); write it again"),
    "Parquet without prompt": ("d.parquet", [{"text": "a", "answer": "b"}], r"d\.parquet, row 1: no 'prompt' \(nor 'messages'\); the record has text, answer; say which column it is, --columns text=prompt"),
    "no prompt": ("d.jsonl", second({"promt": "a", "answer": 1}), r"d\.jsonl:2: no 'prompt'.*has promt, answer; say which column it is, --columns promt=prompt"),
    "null prompt": ("d.jsonl", second({"prompt": None, "answer": 1}), r"d\.jsonl:2: prompt is empty; write it or drop the record"),
    "empty record": ("d.jsonl", second({}), r"d\.jsonl:2: no 'prompt'.*the record has no columns"),
    "empty prompt": ("d.jsonl", second({"prompt": " \n", "answer": 1}), r"d\.jsonl:2: prompt is empty"),
    "prompt is a number": ("d.jsonl", second({"prompt": 5, "answer": 1}), r"d\.jsonl:2: prompt is a number; write text"),
    "prompt is a list": ("d.jsonl", second({"prompt": [], "answer": 1}), r"d\.jsonl:2: prompt is an empty list; write messages, \[{\"role\": \"user\""),
    "prompt and messages": ("d.jsonl", second({"prompt": "a", **user("b")}), r"d\.jsonl:2: both 'prompt' and 'messages'; keep one"),
    "messages is text": ("d.jsonl", second({"messages": "a", "answer": 1}), r"d\.jsonl:2: messages is a string \('a'\); write a list"),
    "no messages": ("d.jsonl", second({"messages": [], "answer": 1}), r"d\.jsonl:2: messages is an empty list"),
    "a message is text": ("d.jsonl", second({"messages": ["a"], "answer": 1}), r"d\.jsonl:2: messages\[0\] is a string"),
    "unknown role": ("d.jsonl", second({"messages": [{"role": "human", "content": "a"}], "answer": 1}), r"d\.jsonl:2: messages\[0\]\.role is a string \('human'\); use system, user, assistant"),
    "tool role": ("d.jsonl", second({"messages": [{"role": "tool", "content": "a"}], "answer": 1}), r"messages\[0\] is a tool's result; .* named by --tools"),
    "tool calls": ("d.jsonl", second({"messages": [{"role": "assistant", "content": "a", "tool_calls": [1]}], "answer": 1}), r"messages\[0\].tool_calls\[0\] is a number .*; write \{"),
    "content parts": ("d.jsonl", second(user([{"type": "text", "text": "a"}, {"type": "image"}])), r"d\.jsonl:2: a part of a message is a picture without a file, and there is no column 'image'"),
    "a part of a file": ("d.jsonl", second(user([{"type": "file"}])), r"d\.jsonl:2: messages\[0\]\.content has a part 'file'; only text and"),
    "a part of sound": ("d.jsonl", second(user([{"type": "audio"}])), r"d\.jsonl:2: a part of a message is a sound without a file"),
    "empty parts": ("d.jsonl", second(user([])), r"d\.jsonl:2: messages\[0\]\.content is empty"),
    "no content": ("d.jsonl", second(user(None)), r"d\.jsonl:2: messages\[0\]\.content is null; write text"),
    "empty content": ("d.jsonl", second(user("")), r"d\.jsonl:2: messages\[0\]\.content is empty"),
    "assistant alone": ("d.jsonl", second({"messages": [{"role": "assistant", "content": "b"}], "answer": 1}), r"d\.jsonl:2: the last message of messages is from 'assistant'; a prompt ends with a user message"),
    "system last": ("d.jsonl", second({"messages": [{"role": "system", "content": "a"}, {"role": "assistant", "content": "b"}], "answer": 1}), r"d\.jsonl:2: the last message of messages is from 'system'; a prompt ends with a user message"),
    "two demonstrations": ("d.jsonl", second({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "demonstration": "c"}), r"d\.jsonl:2: both 'demonstration' and a last message of the assistant; keep one"),
    "answers of some": ("d.jsonl", second({"prompt": "q", "demonstration": "d"}), r"d\.jsonl:2: no 'answer', but other records have one; give it to all or none"),
    "completion": ("d.jsonl", second({"prompt": "q", "completion": "d"}), r"d\.jsonl:2: no 'answer'; .*, and to imitate 'completion' give --columns completion=demonstration"),
    "half a pair": ("d.jsonl", second({"prompt": "q", "chosen": "d"}), r"d\.jsonl:2: a pair has chosen and rejected, and this no 'rejected'"),
    "late system": ("d.jsonl", second({"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}], "answer": 1}), r"d\.jsonl:2: messages\[1\] is a system message; only the first may be one"),
    "two systems": ("d.jsonl", second({"system": "a", "messages": [{"role": "system", "content": "b"}, {"role": "user", "content": "c"}], "answer": 1}), r"d\.jsonl:2: both 'system' and a system message"),
    "system is a number": ("d.jsonl", second({"prompt": "a", "system": 1, "answer": 1}), r"d\.jsonl:2: system is a number; write text"),
    "no answer": ("d.jsonl", second({"prompt": "a", "solution": "1"}), r"d\.jsonl:2: no 'answer'; the record has prompt, solution; say which column it is, --columns solution=answer; without answers give a --reward"),
    "null answer": ("d.jsonl", second({"prompt": "a", "answer": None}), r"d\.jsonl:2: answer is empty; write it or drop the record; without answers give a --reward"),
    "empty answer": ("d.jsonl", second({"prompt": "a", "answer": " "}), r"d\.jsonl:2: answer is empty"),
    "NaN answer": ("d.jsonl", second({"prompt": "a", "answer": float("nan")}), r"d\.jsonl:2: answer is nan, which nothing equals"),
    "infinite answer": ("d.jsonl", second({"prompt": "a", "answer": float("inf")}), r"d\.jsonl:2: answer is inf"),
    "answer is a list": ("d.jsonl", second({"prompt": "a", "answer": ["1"]}), r"d\.jsonl:2: answer is a list; write text or a number, or judge it with --reward"),
    "duplicate id": ("d.jsonl", [{**GOOD[0], "id": 3}, {**GOOD[1], "id": "4"}, {**GOOD[2], "id": "3"}], r"d\.jsonl:3: id '3' is taken by .*d\.jsonl:1; ids must differ"),
    "id is a list": ("d.jsonl", second({**GOOD[1], "id": [1]}), r"d\.jsonl:2: id is a list \('\[1\]'\); write text or a whole number"),
    "domain is a list": ("d.jsonl", second({**GOOD[1], "domain": [1]}), r"d\.jsonl:2: domain is a list \('\[1\]'\); write text or a whole number"),
    "domain is a truth value": ("d.jsonl", second({**GOOD[1], "domain": True}), r"d\.jsonl:2: domain is .*; write text or a whole number"),
    "unknown split": ("d.jsonl", second({**GOOD[1], "split": "valid"}), r"d\.jsonl:2: split is 'valid'; write 'train' or 'test'"),
    "split is a list": ("d.jsonl", second({**GOOD[1], "split": ["test"]}), r"d\.jsonl:2: split is \['test'\]; write 'train' or 'test'"),
    "split of some": ("d.jsonl", second({**GOOD[1], "split": "test"}), r"d\.jsonl:1: no 'split', but other records have one"),
    "no test": ("d.jsonl", [{**r, "split": "train"} for r in GOOD], r"d\.jsonl: no record has the split 'test'"),
    "no train": ("d.jsonl", [{**r, "split": "test"} for r in GOOD], r"d\.jsonl: no record has the split 'train'"),
    "one record": ("d.jsonl", GOOD[:1], r"d\.jsonl: 1 record, so nothing can be held out; add records, or give --test-data"),
    "one prompt": ("d.jsonl", [GOOD[0], GOOD[0]], r"d\.jsonl: 2 records with one and the same prompt, so nothing can be held out"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_input_is_one_clear_line(tmp_path, name):
    file, content, message = BROKEN[name]
    with pytest.raises(UserError, match=message) as error:
        FileTasks(write(tmp_path, file, content))
    assert "\n" not in str(error.value) and str(error.value).startswith(str(tmp_path))


MANY = [
    *GOOD[:3],
    {"prompt": "a", "answer": ""},
    {"prompt": "b", "answer": " "},
    "text",
    *({"prompt": f"{i}?", "answer": [i]} for i in range(1200)),
]
FIRST = (
    r"d\.{suffix}{at}4: answer is empty; write it or drop the record \(also .*d\.{suffix}{at}5\)\. "
    r".*d\.{suffix}{at}6: a string, not an object.*\. 1,200 more records are at fault$"
)


@pytest.mark.parametrize(("suffix", "at"), [("jsonl", ":"), ("json", ", record ")])
def test_several_mistakes_are_told_together_in_one_reading(tmp_path, suffix, at, monkeypatch):
    content = MANY if suffix == "json" else "\n".join(map(json.dumps, MANY))
    path = write(tmp_path, f"d.{suffix}", content)
    seen, check = [], records.object_of

    def count(found, where, *shape):
        seen.append(where)
        return check(found, where, *shape)

    monkeypatch.setattr(records, "object_of", count)
    with pytest.raises(UserError) as error:
        FileTasks(path)
    assert re.search(FIRST.format(suffix=suffix, at=at), str(error.value))
    assert "\n" not in str(error.value)
    again = {w: seen.count(w) for w in seen}
    assert len(again) == len(MANY) and max(list(again.values())[LOOKED_AT:]) == 1


def test_several_mistakes_in_files_that_are_joined(tmp_path):
    for name in ("a", "b"):
        rows = [GOOD[0], {"prompt": "q", "answer": ""}, GOOD[1]]
        write(tmp_path, f"{name}.jsonl", "\n".join(map(json.dumps, rows)))
    with pytest.raises(UserError, match=r"a\.jsonl:2: answer is empty.*\(also .*b\.jsonl:2\)$"):
        FileTasks(str(tmp_path / "*.jsonl"))


@pytest.mark.parametrize(
    ("n", "more"), [(3, "empty; write it or drop the record .*"), (4, "1 more record is at fault")]
)
def test_how_many_more(tmp_path, n, more):
    rows = [*GOOD[:3], *({"prompt": f"{i}", "answer": ""} for i in range(n))]
    with pytest.raises(UserError, match=more + "$"):
        FileTasks(write(tmp_path, "d.jsonl", rows))


def test_answers_that_some_lack_are_told_together(tmp_path):
    rows = [*GOOD[:3], *({"prompt": f"{i}", "demonstration": "d"} for i in range(5))]
    with pytest.raises(
        UserError,
        match=r"l:4: no 'answer', but.*\(also .*l:5 and .*l:6\)\. 2 more records are at fault$",
    ):
        FileTasks(write(tmp_path, "d.jsonl", rows))


def test_missing_files(tmp_path):
    write(tmp_path, "train.jsonl", GOOD)
    with pytest.raises(UserError, match=r"trian\.jsonl: no such file; did you mean train\.jsonl\?"):
        FileTasks(str(tmp_path / "trian.jsonl"))
    with pytest.raises(UserError, match=r"x\.jsonl: no such file \(looked in .*none\)"):
        FileTasks(str(tmp_path / "none" / "x.jsonl"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        UserError, match=r"a folder without a saved dataset; write one with save_to_disk, or name a file"
    ):
        FileTasks(str(tmp_path / "empty"))
    with pytest.raises(UserError, match=r"t\.jsonl: no such file"):
        FileTasks(str(tmp_path / "train.jsonl"), test=str(tmp_path / "t.jsonl"))


def test_a_dataset_folder_without_the_library(tmp_path, monkeypatch):
    (tmp_path / "state.json").write_text("{}")
    with monkeypatch.context() as patch:
        imported = builtins.__import__

        def without(name, *rest):
            if name == "datasets":
                raise ImportError(name)
            return imported(name, *rest)

        patch.setattr(builtins, "__import__", without)
        with pytest.raises(UserError, match=r"needs: pip install 'palaestra\[datasets\]'"):
            FileTasks(str(tmp_path))
    pytest.importorskip("datasets")
    with pytest.raises(UserError, match=r"cannot load this dataset \(.*\); save it again"):
        FileTasks(str(tmp_path))


def test_no_permission(tmp_path, monkeypatch):
    path = write(tmp_path, "d.jsonl", GOOD)

    def refuse(path):
        raise PermissionError(path)

    monkeypatch.setattr("palaestra.tasks.sources.read_file", refuse)
    with pytest.raises(UserError, match=r"d\.jsonl: no permission to read this file"):
        FileTasks(path)


def test_what_is_recorded_needs_no_answer(tmp_path):
    chat = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    pairs = [{"prompt": f"{i}+1?", "chosen": str(i + 1), "rejected": "0"} for i in range(3)]
    prefers = FileTasks(write(tmp_path, "pairs.jsonl", pairs))
    assert not prefers.has_answers and prefers.task("train", 0).meta["rejected"] == "0"
    shown = FileTasks(write(tmp_path, "demos.jsonl", [{"prompt": f"{i}?", "demonstration": "d"} for i in range(3)]))
    assert not shown.has_answers and shown.task("train", 0).answer is None
    talked = FileTasks(write(tmp_path, "chats.jsonl", [{"messages": chat}, {"prompt": "b", "demonstration": "c"}]))
    task = next(t for s in ("train", "test") if (t := talked.task(s, 0)).meta["demonstration"] == "2")
    assert [m.content for m in task.prompt] == ["1+1?"] and not talked.has_answers
    both = FileTasks(write(tmp_path, "both.jsonl", [{**r, "demonstration": "d"} for r in GOOD]))
    assert both.has_answers and FileTasks(str(tmp_path / "pairs.jsonl"), answers=False).has_answers


def test_a_level_may_be_a_number_and_is_a_domain_as_text(tmp_path):
    rows = [{**r, "level": i % 3} for i, r in enumerate(GOOD)]
    tasks = FileTasks(write(tmp_path, "d.jsonl", rows), columns="level=domain")
    assert {tasks.task("train", i).domain for i in range(tasks.size)} == {"0", "1", "2"}


TALKS = [{"role": "user", "content": "1 + 1?"}]


@pytest.mark.parametrize("blank", ["", " \n", None, float("nan")])
@pytest.mark.parametrize("place", ["column", "message", "both"])
def test_an_empty_system_prompt_is_none(tmp_path, blank, place):
    if isinstance(blank, float) and place != "column":
        pytest.skip("only tables have it")
    talk = [{"role": "system", "content": blank}, *TALKS] if place != "column" else TALKS
    row = {
        "messages": talk,
        "answer": 2,
        **({"system": blank if place == "column" else "Be brief."} if place != "message" else {}),
    }
    (task,) = first_tasks(write(tmp_path, "d.jsonl", [row]), 1)
    assert [m.content for m in task.prompt] == (["Be brief."] if place == "both" else []) + ["1 + 1?"]


def test_places_of_messages_are_those_of_the_data_behind_an_empty_system_prompt(tmp_path):
    talk = [{"role": "system", "content": ""}, *TALKS, {"role": "assistant", "content": ""}]
    with pytest.raises(UserError, match=r"messages\[2\]\.content is empty"):
        first_tasks(write(tmp_path, "d.jsonl", [{"messages": talk}]), 1)


@pytest.mark.parametrize("column", ["id", "domain", "split"])
def test_a_number_that_is_none_is_an_empty_cell(tmp_path, column):
    (task,) = first_tasks(write(tmp_path, "d.jsonl", [{"prompt": "a", "answer": "b", column: float("nan")}]), 1)
    assert (task.id, task.domain) == ("d.jsonl:1", "")


@pytest.mark.parametrize("messages", [False, True])
def test_a_prompt_that_no_context_holds_is_refused(tmp_path, messages):
    text = "x" * 4_000_001
    row = {"messages": [{"role": "user", "content": text}]} if messages else {"prompt": text}
    with pytest.raises(UserError, match=r"d\.jsonl:1: \w+ has 4,000,001 characters, and at most 4,000,000 are read"):
        first_tasks(write(tmp_path, "d.jsonl", [{**row, "answer": "1"}]), 1)


def test_reading_that_takes_long_says_how_far_it_is(tmp_path, monkeypatch, capsys):
    """Twenty million small records take minutes, and a file of them may have a few kilobytes."""
    path = write(tmp_path, "d.jsonl", [{"prompt": f"{i}?", "answer": i} for i in range(2000)])
    FileTasks(path)
    assert capsys.readouterr().err == ""
    load.cache_clear()
    clock = iter(range(0, 1000, 4))
    monkeypatch.setattr(records.time, "monotonic", lambda: next(clock))
    FileTasks(path)
    told = f"note: {path}: 512 of 2,000 records are read, the rest takes about 23 seconds\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize(
    ("columns", "equal"),
    [
        ({"prompt": ["1+1"] * 3, "answer": ["2"] * 3}, True),
        ({"prompt": ["1+1"] * 3, "answer": ["2", "2", "3"]}, False),
        ({"prompt": ["1+1"] * 3, "answer": [2, 2, 2], "note": pa.array([None] * 3, pa.string())}, True),
        ({"prompt": ["1+1"] * 3, "note": ["a", "a", None]}, False),
        ({"prompt": ["1+1"] * 3, "note": [None, "a", "a"]}, False),
        ({"prompt": ["1+1"] * 3, "x": [float("nan")] * 3}, False),
    ],
)
def test_a_table_of_equal_rows_is_seen_without_reading_it(columns, equal):
    table = pa.table(columns)
    assert Rows(pa.concat_tables([table.slice(0, 1), table.slice(1)])).are_equal() == equal


def test_millions_of_equal_rows_are_refused_at_once(tmp_path, monkeypatch):
    """No row is read: a small file may have tens of millions."""
    monkeypatch.setattr(Rows, "__iter__", None)
    table = pa.table({"prompt": ["1+1"] * 50_000, "answer": ["2"] * 50_000})
    pq.write_table(table, tmp_path / "d.parquet")
    with pytest.raises(UserError, match="50,000 records with one and the same prompt, so nothing can be held out"):
        load(str(tmp_path / "d.parquet"), "", True, "")
