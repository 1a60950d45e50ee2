"""Records at fault: all are counted, the first are told, and as many as the user allows are left out."""

import json

import pytest
from palaestra.errors import UserError
from palaestra.tasks.files import FileTasks, first_tasks, load
from palaestra.tasks.omissions import RecordFaults, most_omissions

SUMS = [{"prompt": f"{i} + 1?", "answer": str(i + 1)} for i in range(40)]
BROKEN = {
    "an empty answer": {"prompt": "a", "answer": ""},
    "no prompt": {"answer": "1"},
    "an empty reply of a pair": {"prompt": "a", "chosen": "b", "rejected": ""},
    "no reply of a pair": {"prompt": "a", "chosen": "b", "rejected": None},
    "a blank demonstration": {"prompt": "a", "demonstration": " "},
    "a late system message": {
        "messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}],
        "answer": 1,
    },
    "no JSON": "{",
}


@pytest.fixture(autouse=True)
def fresh():
    load.cache_clear()


def write(folder, rows, name="d.jsonl"):
    path = folder / name
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    return str(path)


@pytest.mark.parametrize(
    ("limit", "n", "most"),
    [("", 100, 0), ("0", 100, 0), ("7", 3, 7), ("1%", 250, 2), ("100%", 5, 5), ("0.29", 100, 29), (".5", 3, 1)],
)
def test_a_limit_is_a_number_or_a_share(limit, n, most):
    assert most_omissions(limit, n) == most


@pytest.mark.parametrize("limit", ["-1", "1.5", "101%", "all", "1 %", "nan", "1e3"])
def test_what_is_no_limit_is_refused(limit, tmp_path):
    with pytest.raises(UserError, match=r"--skip-bad .*: write how many records may be left out, e\.g\. 20, or a"):
        most_omissions(limit, 10)
    with pytest.raises(UserError, match="--skip-bad"):
        FileTasks(write(tmp_path, [*SUMS, BROKEN["no prompt"]]), skip=limit)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_record_is_refused_or_left_out(name, tmp_path):
    path = write(tmp_path, [*SUMS[:5], BROKEN[name], *SUMS[5:]])
    with pytest.raises(UserError, match=r"d\.jsonl:6: .*\. --skip-bad 1 leaves it out$"):
        FileTasks(path)
    tasks = FileTasks(path, skip="1")
    made = [tasks.task(s, i) for s, n in (("train", tasks.size), ("test", tasks.test_size)) for i in range(n)]
    assert sorted(t.prompt[0].content for t in made) == sorted(r["prompt"] for r in SUMS)
    assert all(int(t.answer) == int(t.prompt[0].content.split()[0]) + 1 for t in made)
    (note,) = [n for n in tasks.notes if "left out" in n]
    assert note.startswith("1 of 41 records is left out (--skip-bad 1): ") and "d.jsonl:6: " in note


def test_all_are_counted_and_the_first_are_told(tmp_path):
    path = write(tmp_path, [*SUMS, *[{"prompt": f"{i}?", "answer": ""} for i in range(5)]])
    said = r"d\.jsonl:41: answer is empty.* \(also .*:42 and .*:43\)\. 2 more records are at fault"
    with pytest.raises(UserError, match=said):
        FileTasks(path)
    with pytest.raises(UserError, match=r"\. 5 of 45 are, and --skip-bad 4 leaves out 4 at most here$"):
        FileTasks(path, skip="4")
    note = FileTasks(path, skip="12%").notes[0]
    assert "5 of 45 records are left out" in note and note.endswith(f"Also {path}:44, {path}:45")


def test_a_split_is_the_same_whatever_is_left_out(tmp_path):
    whole = FileTasks(write(tmp_path, SUMS))
    some = FileTasks(write(tmp_path, [BROKEN["no prompt"], *SUMS], "e.jsonl"), skip="1")
    held = [{t.task("test", i).answer for i in range(t.test_size)} for t in (whole, some)]
    assert held[0] == held[1] and some.size == whole.size
    without = whole.without([("train", 0), ("train", 2), ("test", 1)])
    assert (without.size, without.test_size) == (whole.size - 2, whole.test_size - 1)
    assert [without.task("train", i).id for i in range(2)] == [whole.task("train", i).id for i in (1, 3)]
    assert without.without([("train", 0)]).task("train", 0) == whole.task("train", 3)
    with pytest.raises(UserError, match=r"\(test\): every record is left out"):
        whole.without([("test", i) for i in range(whole.test_size)]).task("test", 0)


def test_places_of_faults_stay_right_behind_a_gap(tmp_path):
    rows = [BROKEN["no prompt"], *SUMS, {**SUMS[3], "id": "x"}, {**SUMS[4], "id": "x"}]
    with pytest.raises(UserError, match=r"d\.jsonl:43: id 'x' is taken by .*d\.jsonl:42;"):
        FileTasks(write(tmp_path, rows), skip="1")
    rows = [BROKEN["no prompt"], *SUMS, {"prompt": "3 + 1?", "answer": "9"}]
    (note,) = [n for n in FileTasks(write(tmp_path, rows, "e.jsonl"), skip="1").notes if "different" in n]
    assert "e.jsonl:5 and another" in note and "e.jsonl:42 ('9')" in note


def test_the_first_tasks_are_the_first_that_can_be_read(tmp_path):
    path = write(tmp_path, [BROKEN["no prompt"], *SUMS])
    assert [t.answer for t in first_tasks(path, 2, skip="1")] == ["1", "2"]
    with pytest.raises(UserError, match=r"d\.jsonl:1: no 'prompt'"):
        first_tasks(path, 2)


def test_many_places_are_counted():
    faults = RecordFaults()
    for i in range(30):
        faults.add(f"line {i}", UserError(f"line {i}: is bad"))
    line = faults.settle("30", 100)
    assert line.startswith("30 of 100 records are left out (--skip-bad 30): line 0: is bad (also line 1 and line 2)")
    assert line.endswith("line 18, line 19 and 10 others")


@pytest.mark.parametrize("value", [7, 2.5])
def test_numbers_are_replies_too(value, tmp_path):
    (task,) = first_tasks(write(tmp_path, [{"prompt": "a", "chosen": value, "rejected": 1, "response": 3}]), 1)
    assert task.meta == {"chosen": str(value), "rejected": "1", "response": 3}
