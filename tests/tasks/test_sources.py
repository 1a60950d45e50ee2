"""Where records lie: tables of text, packed files, patterns, folders, the hub."""

import gzip
import json
from pathlib import Path

import palaestra as pl
import pyarrow as pa
import pytest
from palaestra.errors import UserError
from palaestra.tasks.files import FileTasks, load
from palaestra.tasks.sources import files_of, open_records, split_of_name

ROWS = [{"prompt": f"What is {i} + 1?", "answer": f"0{i + 1}"} for i in range(20)]


@pytest.fixture(autouse=True)
def fresh():
    load.cache_clear()


def lines(rows):
    return "\n".join(map(json.dumps, rows)).encode()


def table(sign, rows=ROWS):
    told = [sign.join(rows[0]), *(sign.join(f'"{v}"' for v in r.values()) for r in rows)]
    return ("\n".join(told) + "\n").encode()


def arrow(opened):
    sink, rows = pa.BufferOutputStream(), pa.Table.from_pylist(ROWS)
    with opened(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


FILES = {
    "d.csv": table(","),
    "d.tsv": table("\t"),
    "d.jsonl.gz": gzip.compress(lines(ROWS[:9]) + b"\n") + gzip.compress(lines(ROWS[9:])),
    "d.json.gz": gzip.compress(json.dumps(ROWS).encode()),
    "d.csv.gz": gzip.compress(table(",")),
    "d.jsonl.zst": pa.Codec("zstd").compress(lines(ROWS)).to_pybytes(),
    "D.JSONL.GZ": gzip.compress(lines(ROWS)),
    "marked.json": b"\xef\xbb\xbf" + json.dumps(ROWS).encode(),  # as Windows writes it
    "stream.arrow": arrow(pa.ipc.new_stream),
    "file.arrow": arrow(pa.ipc.new_file),
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_gives_the_same_tasks(tmp_path, name):
    (tmp_path / name).write_bytes(FILES[name])
    tasks = FileTasks(str(tmp_path / name))
    each = [tasks.task(s, i) for s, n in (("train", tasks.size), ("test", tasks.test_size)) for i in range(n)]
    assert sorted((t.prompt[0].content, t.answer) for t in each) == sorted(tuple(r.values()) for r in ROWS)
    assert len({t.id for t in each}) == 20 and all(t.id.startswith(f"{name}:") for t in each)


def test_cells_of_a_table(tmp_path):
    text = 'prompt,answer,split,system\n"a, ""b""\nc",7,train,\nd,8,test,Be brief.\n'
    (tmp_path / "d.csv").write_text("\ufeff" + text)
    tasks = FileTasks(str(tmp_path / "d.csv"))
    assert [m.content for m in tasks.task("train", 0).prompt] == ['a, "b"\nc']
    assert [m.content for m in tasks.task("test", 0).prompt] == ["Be brief.", "d"]


def test_a_pattern_names_several_files(tmp_path):
    for folder, rows in (("a", ROWS[:5]), ("b", ROWS[5:])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "d.jsonl").write_bytes(lines(rows))
    given = str(tmp_path / "*" / "d.jsonl")
    (records,) = open_records(given).values()
    assert (len(records), records[5], records[19]) == (20, ROWS[5], ROWS[19])
    assert [records.label(i) for i in (0, 5)] == ["a/d.jsonl:1", "b/d.jsonl:1"]
    assert list(records) == ROWS and records.where(6).endswith("/b/d.jsonl:2")
    assert FileTasks(given).size == 18 and [p.parent.name for p in files_of(given)] == ["a", "b"]
    (tmp_path / "b" / "c").mkdir()
    (tmp_path / "b" / "c" / "d.jsonl").write_bytes(lines(ROWS[:1]))
    assert len(files_of(str(tmp_path / "**" / "d.jsonl"))) == 3
    with pytest.raises(UserError, match=r"none\*\.jsonl: no file is named so; mend the pattern"):
        open_records(str(tmp_path / "none*.jsonl"))


def test_a_folder_of_files(tmp_path):
    (tmp_path / "README.md").write_text("about")
    (tmp_path / "dataset_infos.json").write_text("{}")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "x.jsonl").write_bytes(b"broken")
    (tmp_path / "x-00.jsonl").write_bytes(lines(ROWS[:5]))
    (tmp_path / "x-01.jsonl").write_bytes(lines(ROWS[5:]))
    assert FileTasks(str(tmp_path)).size == 18
    load.cache_clear()
    (tmp_path / "x-00.jsonl").rename(tmp_path / "test-00.jsonl")
    with pytest.raises(UserError, match=r"test-00\.jsonl says its split and x-01\.jsonl does not"):
        FileTasks(str(tmp_path))
    load.cache_clear()
    (tmp_path / "train").mkdir()
    (tmp_path / "x-01.jsonl").rename(tmp_path / "train" / "01.jsonl")
    tasks = FileTasks(str(tmp_path))
    assert (tasks.size, tasks.test_size) == (15, 5)


def test_splits_of_names():
    names = ("train.jsonl", "data/train-00000-of-2.parquet", "my_dev.csv", "trainer.json", "x/testing/1.json")
    assert [split_of_name(n) for n in names] == ["train", "train", "validation", "", "test"]


@pytest.fixture
def hub(monkeypatch):
    """Stands in for the hub, which tests do not reach: what is asked of `datasets` is kept."""
    datasets = pytest.importorskip("datasets")
    asked = []

    def load_dataset(name, config, *, split, revision):
        asked.append((name, config, split, revision))
        if name == "none/such":
            raise ConnectionError(f"Couldn't reach {name!r} on the Hub\nmore")
        whole = datasets.Dataset.from_list(
            [{"question": r["prompt"], "answer": f"So\n#### {r['answer']}"} for r in ROWS]
        )
        return whole if split else datasets.DatasetDict(train=whole, test=whole.select(range(4)))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return asked


def test_a_data_set_of_the_hub(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = FileTasks("openai/gsm8k:main", columns="answer=####")
    assert (whole.size, whole.test_size, whole.name) == (20, 4, "gsm8k")
    assert whole.task("test", 0).answer == "01"
    part = FileTasks("openai/gsm8k@v1:main:train", test="openai/gsm8k:main:test", columns="answer=####")
    assert (part.size, part.test_size) == (20, 20)
    assert FileTasks("owner/plain", columns="answer=####").size == 20
    assert FileTasks("owner/plain::train", columns="answer=####").size == 18
    assert hub == [
        ("openai/gsm8k", "main", None, None),
        ("openai/gsm8k", "main", "train", "v1"),
        ("openai/gsm8k", "main", "test", None),
        ("owner/plain", None, None, None),
        ("owner/plain", None, "train", None),
    ]
    with pytest.raises(
        UserError, match=r"^none/such: no such file, and no data set of the hub \(Couldn't reach 'none/"
    ):
        FileTasks("none/such")
    with pytest.raises(UserError, match=r"data/train\.jsonl: no such file"):  # is not looked for elsewhere
        FileTasks("data/train.jsonl")
    Path("none").mkdir()
    (Path("none") / "such").mkdir()
    (Path("none") / "such" / "d.jsonl").write_bytes(lines(ROWS))
    assert FileTasks("none/such").size == 18  # what is there comes first
    assert files_of("openai/gsm8k:main") == []


def test_the_hub_asks_for_no_remote_code():
    """The library that loads a data set of the hub knows no such switch any more."""
    import inspect

    datasets = pytest.importorskip("datasets")
    assert "trust_remote_code" not in inspect.signature(datasets.load_dataset).parameters


NARROW = [
    (pa.float32(), 0.1, 0.1),
    (pa.float32(), 1e-30, 1e-30),
    (pa.float16(), 0.1, 0.1),
    (pa.float64(), 0.30000000000000004, 0.30000000000000004),
    (pa.list_(pa.float32()), [0.1, None, 2.5], [0.1, None, 2.5]),
    (pa.struct([("x", pa.list_(pa.float32())), ("n", pa.string())]), {"x": [0.7], "n": "a"}, {"x": [0.7], "n": "a"}),
    (pa.map_(pa.string(), pa.float32()), [("a", 0.3)], [("a", 0.3)]),
]


@pytest.mark.parametrize(("kind", "given", "read"), NARROW, ids=[str(k) for k, *_ in NARROW])
def test_a_narrow_float_has_the_digits_of_its_column(tmp_path, kind, given, read):
    """A double made of a float32 has a tail that nobody wrote: 0.1 becomes 0.10000000149011612."""
    import numpy as np
    from pyarrow.parquet import write_table

    value = np.float16(given) if kind == pa.float16() else given
    rows = pa.table({"prompt": ["a", "b"], "answer": pa.array([value, None], kind)})
    write_table(rows, tmp_path / "d.parquet")
    with pa.OSFile(str(tmp_path / "d.arrow"), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    for name in ("d.parquet", "d.arrow"):
        records = open_records(str(tmp_path / name))
        found = next(iter(records.values())) if isinstance(records, dict) else records
        assert found[0]["answer"] == next(iter(found))["answer"] == read, name
        assert found[1]["answer"] is None


@pytest.mark.parametrize("name", ["d.csv", "d.tsv", "d.parquet", "d.arrow"])
def test_two_columns_of_one_name_are_refused(tmp_path, name):
    import pyarrow as pa
    from pyarrow.parquet import write_table

    path, table = tmp_path / name, pa.table([["a"], ["b"], ["c"]], names=["prompt", "answer", "answer"])
    if name.endswith("sv"):
        path.write_text("prompt,answer,answer\na,b,c\n".replace(",", "\t" if name == "d.tsv" else ","))
    elif name == "d.parquet":
        write_table(table, path)
    else:
        with pa.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table)
    with pytest.raises(UserError, match=r"d\.\w+: several columns are named 'answer'; rename all but one"):
        open_records(str(path))


@pytest.mark.parametrize("name", ["d.jsonl", "d.json", "d.csv", "d.parquet"])
@pytest.mark.parametrize("what", ["a pipe", "a device"])
def test_what_is_no_file_is_refused_at_once(tmp_path, name, what):
    import os

    path = tmp_path / name
    os.mkfifo(path) if what == "a pipe" else path.symlink_to("/dev/zero")
    with pytest.raises(UserError, match="not a regular file; write the records into one"):
        open_records(str(path))


@pytest.mark.parametrize("code", ["utf-16", "utf-32"])
@pytest.mark.parametrize("name", ["d.csv", "d.jsonl", "d.json"])
def test_text_in_another_encoding_is_named(tmp_path, name, code):
    (tmp_path / name).write_bytes("prompt,answer\na,b\n".encode(code))
    with pytest.raises(UserError, match=r"the text is UTF-16 or UTF-32; save it as UTF-8$"):
        open_records(str(tmp_path / name))


@pytest.mark.parametrize("indent", [None, 1])
def test_a_list_inside_one_object_is_named(tmp_path, indent):
    import json

    path = tmp_path / "d.json"
    path.write_text(json.dumps({"version": 1, "data": [{"prompt": "a", "answer": "b"}]}, indent=indent))
    with pytest.raises(
        UserError, match=r"d\.json: the file is one object, and its 'data' holds a list; write that list"
    ):
        open_records(str(path))
    path.write_text(json.dumps({"messages": [{"role": "user", "content": "a"}], "answer": "b"}))
    assert len(open_records(str(path))[""]) == 1


def test_records_that_are_written_are_read_again(tmp_path):
    """In a folder that is made, as UTF-8 whatever the machine's encoding is, with letters as they are."""
    records = [{"prompt": "né — 日本", "n": 1}, {"prompt": "a\nb", "n": None}]
    file = pl.tasks.write_records(tmp_path / "deep" / "made.jsonl", iter(records))
    text = (tmp_path / "deep" / "made.jsonl").read_bytes().decode("utf-8")
    assert "né — 日本" in text and text.count("\n") == 2
    assert [dict(x) for x in pl.tasks.open_records(file)[""]] == records
    assert pl.tasks.write_records(tmp_path / "none.jsonl", []) and (tmp_path / "none.jsonl").read_bytes() == b""
