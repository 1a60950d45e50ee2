"""A column that models write: once for each record, kept in a file that a person can correct."""

import asyncio
import json
from dataclasses import replace

import pytest
from palaestra.context import Bench
from palaestra.curriculum.columns import WrittenColumn, fill_template, frozen_starts
from palaestra.curriculum.pool import Shuffled
from palaestra.errors import Fault, UserError
from palaestra.rewards.verify import Verify
from palaestra.run.describe import describe_written
from palaestra.services.chat.local import LocalModel
from palaestra.services.chat.scripted import Scripted
from palaestra.tasks.files import FileTasks
from palaestra.tasks.procedural import exact_match
from palaestra.types import Group, Message, Task, stage
from palaestra.worlds.question import Question

ASK = "{prompt} The answer is {answer}. Write a hint."


@stage
class Numbered:
    """Draws the next `n` of six sums; the last has its hint already."""

    def __call__(self, ctx, key, n, state):
        at = state.get("at", 0)
        numbers = [(at + i) % 6 for i in range(n)]
        return [sum_task(i) for i in numbers], {"at": at + n}


def sum_task(i):
    meta = {"hint": "mine"} if i == 5 else {}
    return Task(id=f"t{i}", prompt=(Message(role="user", content=f"What is {i} + 1?"),), answer=str(i + 1), meta=meta)


class Writer:
    """Writes "hint N: ..." the N-th time that it is asked, or what `say` gives for the question."""

    def __init__(self, say=None):
        self.say, self.asked = say, []

    def __call__(self, request):
        self.asked.append(request.messages[-1].content)
        return self.say(self.asked[-1]) if self.say else f"hint {len(self.asked)}"


def column(*writers, ask=ASK, **options):
    clients = tuple(Scripted(w, f"writer {i}") for i, w in enumerate(writers))
    return WrittenColumn("hint", ask, clients, **{"source": Numbered(), **options})


def draw(part, ctx, n=4, state=None):
    return asyncio.run(part(ctx, ("k",), n, state or {}))


def test_a_record_is_asked_of_once_and_one_that_has_the_column_never(context):
    writer = Writer()
    part, ctx = column(writer), context()
    tasks, state = draw(part, ctx, 6)
    assert [t.meta["hint"] for t in tasks] == ["hint 1", "hint 2", "hint 3", "hint 4", "hint 5", "mine"]
    assert writer.asked[0] == "What is 0 + 1? The answer is 1. Write a hint."
    again, state = draw(part, ctx, 6, state)
    assert again == tasks and len(writer.asked) == 5 == state["asked"]


def test_what_is_written_is_a_data_file_that_a_person_can_correct(context, tmp_path):
    first = Writer()
    _, state = draw(column(first), context(out=tmp_path), 6)
    file = tmp_path / "written" / "hint.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert [r["hint"] for r in records] == [f"hint {i}" for i in range(1, 6)] and "values" not in state
    records[2]["hint"] = "corrected"
    file.write_text("".join(json.dumps(r) + "\n" for r in records))
    second = Writer()
    tasks, _ = draw(column(second), context(out=tmp_path), 6)
    assert not second.asked and [t.meta["hint"] for t in tasks][2] == "corrected"
    data = FileTasks(str(file))
    trained = [data.task("train", i) for i in range(data.size)]
    assert {t.meta["hint"] for t in trained} < {r["hint"] for r in records} and all(t.answer for t in trained)
    third, bench = Writer(), Bench(name="own", tasks=data, world=Question(), reward=None)
    draw(column(third, source=Shuffled()), context(bench=bench), 4)
    assert not third.asked
    file.write_text("hint: corrected\n")
    with pytest.raises(UserError, match=r"hint.jsonl:1: not a JSON object with an id; mend the line"):
        draw(column(second), context(out=tmp_path))


def test_records_that_nobody_can_write_are_counted_and_not_drawn(context, tmp_path):
    writer = Writer(lambda asked: "" if asked.startswith("What is 1") else "a hint")
    ctx = context(out=tmp_path)
    tasks, state = draw(column(writer, tries=3), ctx, 4)
    assert [t.id for t in tasks] == ["t0", "t2", "t3", "t4"] and (state["asked"], state["failed"]) == (5, 1)
    assert sum(a.startswith("What is 1") for a in writer.asked) == 3
    failed = (tmp_path / "written" / "hint.failed.jsonl").read_text()
    assert json.loads(failed)["prompt"] == "What is 1 + 1?" and "hint" not in json.loads(failed)
    more, state = draw(column(writer, tries=3), ctx, 4, state)
    assert "t1" not in {t.id for t in more} and sum(a.startswith("What is 1") for a in writer.asked) == 3
    numbers = describe_written([Group(task=t) for t in more])
    assert numbers == {"written/hint": 0.75, "unwritten/hint": 0.2}
    kept, _ = draw(column(writer, keep=True), context(), 4)
    assert [t.id for t in kept] == ["t0", "t1", "t2", "t3"] and "hint" not in kept[1].meta
    with pytest.raises(Fault, match="no writer could write 'hint' of"):
        draw(column(Writer(lambda asked: "")), context(), 4)


def refuse(asked):
    raise Fault("chat-http", "no server")


def test_a_writer_that_fails_is_no_record_that_cannot_be_written(context, tmp_path):
    with pytest.raises(Fault, match="no server"):
        draw(column(Writer(refuse)), context(out=tmp_path))
    assert not (tmp_path / "written").exists()
    half = Writer(lambda asked: refuse(asked) if asked.startswith("What is 1") else "a hint")
    tasks, state = draw(column(half), context(out=tmp_path), 4)
    assert "t1" not in {t.id for t in tasks} and state["failed"] == 1
    assert not (tmp_path / "written" / "hint.failed.jsonl").exists()


def both(values):
    return values[0] if None not in values and len(set(values)) == 1 else None


def test_writers_have_to_agree_where_the_column_says_so(context):
    one, other = Writer(lambda a: "x"), Writer(lambda a: "x" if "2 + 1" in a else "y")
    tasks, _ = draw(column(one, other, join=both, keep=True), context(), 4)
    assert [t.meta.get("hint") for t in tasks] == [None, None, "x", None]


def test_a_solution_stays_if_the_problem_calls_it_right(context):
    bench = Bench(name="sums", tasks=context().bench.tasks, world=Question(), reward=Verify(exact_match))
    replies = {"0": iter(["= 9", "= 1"]), "1": iter(["= 2"]), "2": iter(["= 9", "= 9", "= 3"])}
    writer = Writer(lambda asked: next(replies[asked[len("What is ")]]))
    one = column(writer, tries=2, solved=True, keep=True)
    tasks, state = draw(one, context(bench=bench), 1)
    assert tasks[0].meta["hint"] == "= 1"
    more, _ = draw(one, context(bench=bench), 2, state)
    assert [t.meta.get("hint") for t in more] == ["= 2", None]
    with pytest.raises(UserError, match="nothing says which hint is right"):
        unjudged = column(Writer(), solved=True)
        draw(unjudged, context(bench=replace(bench, reward=None)), 1)


def test_the_next_records_are_written_ahead_and_drawn_alike(context):
    writer = Writer()
    part = column(writer, ahead=5)
    tasks, state = draw(part, context(), 1)
    assert [t.id for t in tasks] == ["t0"] and len(writer.asked) == 5
    assert [t.id for t in draw(part, context(), 2, state)[0]] == ["t1", "t2"] and len(writer.asked) == 5


def test_only_names_of_columns_are_filled_in():
    task = replace(sum_task(1), meta={"text": "{answer}"})
    assert fill_template('{text}: {"a": 1} {prompt}', task) == '{answer}: {"a": 1} What is 1 + 1?'
    with pytest.raises(UserError, match="task 't1' has no 'criteria', which a model is asked about"):
        fill_template("{criteria}", task)
    chat = replace(task, prompt=(Message(role="system", content="Be Ann."), *task.prompt))
    assert fill_template("{prompt}", chat) == "system: Be Ann.\nuser: What is 1 + 1?"


def test_models_of_the_run_by_a_name_of_their_own_are_frozen_starts():
    assert frozen_starts(LocalModel("writer"), None, LocalModel(), Scripted(str)) == {"writer": "policy"}
