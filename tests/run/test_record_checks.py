"""Before the first step: every record must fit and have an answer that the reward reads, or is left out."""

import json

import palaestra as pl
import pytest
from palaestra.api.training import advice, remove_failed_start
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.rewards.verified import Verified
from palaestra.rewards.verify import Exact, Verify
from palaestra.rewards.weighted import Weighted
from palaestra.rewards.where import Where
from palaestra.run import record_checks, setup
from palaestra.run.origin import Provenance
from palaestra.run.record_checks import check_records, write_omissions
from palaestra.settings.fields import Settings
from palaestra.tasks.files import load
from palaestra.types import Message, Task
from palaestra.verifiers.base import Judgement

LONG = " ".join(["no"] * 1200)
SUMS = [{"prompt": f"{i} + 1?", "answer": str(i + 1)} for i in range(40)]
UNREADABLE = {
    "math": {"answer": "\\frac{1"},
    "number": {"answer": "red"},
    "choice": {"answer": "5", "options": ["a", "b"]},
    "label": {"answer": "X"},
    "set": {"answer": "a"},
}
READABLE = {
    "math": {"answer": "\\frac{1}{2}"},
    "number": {"answer": "5"},
    "choice": {"answer": "b", "options": ["a", "b"]},
    "label": {"answer": "T"},
    "set": {"answer": ["a"]},
}


@pytest.fixture(autouse=True)
def fresh():
    load.cache_clear()


def write(folder, rows, name="d.jsonl"):
    (folder / name).write_text("\n".join(map(json.dumps, rows)))
    return str(folder / name)


def task_of(row):
    meta = {k: v for k, v in row.items() if k != "answer"}
    return Task(id="t", prompt=(Message(role="user", content="q"),), answer=row["answer"], meta=meta)


def context(path, said, **settings):
    ctx = setup.context(Settings(data=path, max_tokens=16, **settings), talk=False)
    ctx.say = said.append
    return ctx


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("around", ["", "sum", "where"])
def test_a_reward_says_which_answers_it_cannot_read(name, around):
    judge = Verified(name)
    if around == "sum":
        judge = Weighted((("exact", Verify(Exact()), 1.0), ("it", judge, 0.5)))
    if around == "where":
        judge = Where("answered", judge, Verify(Exact()))
    here = {"answered": 1}
    judge.check_gold(task_of({**READABLE[name], **here}))
    with pytest.raises(UserError):
        judge.check_gold(task_of({**UNREADABLE[name], **here}))
    if around == "where":
        judge.check_gold(task_of(UNREADABLE[name]))


PROGRAMS = {  # a response that is judged by running something, and the columns
    "code": ("```python\nx = 1\n```", {"answer": "x", "tests": ["assert True"]}),
    "sql": ("SELECT 1", {"answer": "SELECT 1", "schema": "CREATE TABLE t (a INT)"}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_program_is_run_to_check_an_answer(name, monkeypatch):
    response, row = PROGRAMS[name]
    begun = []

    def judge(verifier, text, *_):
        begun.append(text)
        return Judgement(score=1.0)

    monkeypatch.setattr("palaestra.rewards.verified.judge_response", judge)
    Verified(name).check_gold(task_of(row))
    assert begun == [""]  # a blank response is refused before anything runs
    Verified(name).judge(response, task_of(row))
    assert begun == ["", response]


@pytest.mark.parametrize("place", [3, 39])
def test_all_unreadable_answers_are_told_before_the_first_step(place, tmp_path):
    rows = [*SUMS]
    for i in (place, place - 1, place - 2, place - 3):
        rows[i] = {**rows[i], "answer": "\\frac{1"}
    said = []
    ctx = context(write(tmp_path, rows), said, reward="math")
    told = r"^task 'd\.jsonl:\d+': the reference .* cannot be read as mathematics; .* \(also .*\)\. 1 more record is"
    with pytest.raises(UserError, match=told + r" at fault\. --skip-bad 4 leaves them out$"):
        check_records(ctx, (), golds=True)
    check_records(ctx, (), golds=False)
    ctx = context(write(tmp_path, rows), said, reward="math", skip_bad="10%")
    check_records(ctx, (), golds=True)
    tasks = ctx.bench.tasks
    assert (tasks.size + tasks.test_size, tasks.omissions_left) == (36, 0)
    assert [s for s in said if s.startswith("data: 4 of 40 records are left out (--skip-bad 10%)")]
    assert not {"\\frac{1"} & {tasks.task(s, i).answer for s, n in SPLITS(tasks) for i in range(n)}


def SPLITS(tasks):
    return (("train", tasks.size), ("test", tasks.test_size))


def test_all_long_prompts_are_told(tmp_path):
    rows = [{**r, "prompt": f"{LONG} {i}"} if i in (1, 7) else r for i, r in enumerate(SUMS)]
    said = []
    path = write(tmp_path, rows)
    told = r"task 'd\.jsonl:\d': its prompt has \d+ tokens, and the context of tiny holds 512; .*--skip-bad 2 leaves"
    with pytest.raises(UserError, match=told):
        check_records(context(path, said), (), golds=True)
    with pytest.raises(UserError, match=r"2 of 40 are, and --skip-bad 1 leaves out 1 at most"):
        check_records(context(path, said, skip_bad="1"), (), golds=True)
    ctx = context(path, said, max_prompt_tokens=30)
    check_records(ctx, (), golds=True)
    assert ctx.bench.tasks.size + ctx.bench.tasks.test_size == 38
    assert said == ["data: 2 of 40 prompts have more than 30 tokens and are left out (--max-prompt-tokens)"]


def test_special_tokens_of_the_model_in_prompts_are_told(tmp_path):
    rows = [{**r, "prompt": f"{r['prompt']} <|pad|>"} if i in (2, 5) else r for i, r in enumerate(SUMS)]
    rows[7] = {**rows[7], "prompt": "<|user|>1?<|end|>"}  # which the data itself tells
    said = []
    ctx = context(write(tmp_path, rows), said)
    check_records(ctx, (), golds=True)
    (line,) = said
    assert line.startswith("data: 2 prompts hold special tokens of tiny as text, e.g. '<|pad|>' of task 'd.jsonl:")
    assert [n for n in ctx.bench.tasks.notes if "1 of 40 records have marks of a chat template" in n]


def test_records_at_fault_at_different_stages_count_together(tmp_path):
    rows = [{"answer": "1"}, {**SUMS[0], "prompt": LONG}, {**SUMS[1], "answer": "1/0/"}, *SUMS]
    said = []
    with pytest.raises(UserError, match="2 of 42 are, and --skip-bad 2 leaves out 1 at most"):
        check_records(context(write(tmp_path, rows), said, skip_bad="2", reward="number+math"), (), golds=True)
    check_records(context(write(tmp_path, rows), said, skip_bad="3", reward="number+math"), (), golds=True)


def test_answers_are_read_for_some_seconds(tmp_path, monkeypatch):
    monkeypatch.setattr(record_checks, "GOLD_SECONDS", 0.0)
    said = []
    check_records(context(write(tmp_path, SUMS), said, reward="math"), (), golds=True)
    (line,) = said
    assert line.startswith("note: the reward read 1 answers in 0 s and 39 more are not checked;")


PAIRS = [{"prompt": f"{i} + 1?", "chosen": str(i + 1), "rejected": "no"} for i in range(40)]
SHOWN = [{"prompt": f"{i} + 1?", "demonstration": str(i + 1)} for i in range(40)]
RIGHT = [{"prompt": f"{i} + 1?", "response": str(i + 1), "right": i % 2} for i in range(40)]
RECORDED = {  # rows, the column that is too long, the recipe that reads it, one that does not
    "a pair": (PAIRS, "rejected", pl.recipe("dpo", pairs="data"), pl.recipe("grpo")),
    "a demonstration": (SHOWN, "demonstration", pl.recipe("sft"), pl.recipe("grpo")),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_texts_must_fit(name, tmp_path):
    rows, column, reads, other = RECORDED[name]
    rows = [{**r, column: LONG} if i in (4, 30) else r for i, r in enumerate(rows)]
    said = []
    ctx = context(write(tmp_path, rows), said)
    told = (
        rf"its '?{column}'?.* has \d+ tokens with its prompt, and the context of tiny holds 512;.*--skip-bad 2 leaves"
    )
    run = pl.api.loops.run_blocking
    with pytest.raises(UserError, match=told):
        run(record_checks.check_recorded(reads, ctx))
    run(record_checks.check_recorded(other, ctx))
    ctx = context(write(tmp_path, rows), said, skip_bad="2")
    run(record_checks.check_recorded(reads, ctx))
    assert ctx.bench.tasks.size + ctx.bench.tasks.test_size == 38 and "2 of 40 records are left out" in said[-1]


def test_each_record_that_is_left_out_is_listed_with_its_place_and_reason(tmp_path):
    rows = [{**r, "id": f"sum-{i}"} for i, r in enumerate(SUMS)]
    rows[2] = {"id": "sum-2", "answer": "3"}
    rows[5] = {**rows[5], "answer": "\\frac{1"}
    rows[9] = {**rows[9], "prompt": " ".join(["no"] * 60)}
    path, said, out = write(tmp_path, rows), [], tmp_path / "run"
    out.mkdir()
    ctx = context(path, said, reward="math", skip_bad="2", max_prompt_tokens=40)
    ctx.out = out
    check_records(ctx, (), golds=True)
    write_omissions(ctx)
    lines = [json.loads(x) for x in (out / "omissions.jsonl").read_text().splitlines()]
    places = {x["place"].rpartition("/")[2]: x["reason"] for x in lines}
    assert len(lines) == 3 and places.keys() == {"d.jsonl:3", "d.jsonl:6", "d.jsonl:10"}
    assert places["d.jsonl:3"].startswith("no 'prompt'")
    assert "cannot be read as mathematics" in places["d.jsonl:6"] and "sum-5" not in places["d.jsonl:6"]
    assert places["d.jsonl:10"] == "its prompt has more than 40 tokens"
    assert said[-1] == f"data: {out / 'omissions.jsonl'} lists the 3 records that are left out"
    write_omissions(ctx)
    assert sum("lists the" in s for s in said) == 1
    mended = context(write(tmp_path, SUMS, "e.jsonl"), said, reward="math", skip_bad="2")
    mended.out = out
    check_records(mended, (), golds=True)
    write_omissions(mended)
    assert not (out / "omissions.jsonl").exists()


def test_many_records_are_all_listed(tmp_path):
    rows = [*SUMS, *({"answer": str(i)} for i in range(30))]
    ctx = context(write(tmp_path, rows), [], skip_bad="30", reward="math")
    ctx.out = tmp_path
    write_omissions(ctx)
    lines = (tmp_path / "omissions.jsonl").read_text().splitlines()
    assert [json.loads(x)["place"].rpartition(":")[2] for x in lines] == [str(41 + i) for i in range(30)]


def test_a_run_writes_the_list_into_its_folder(tmp_path, capsys):
    path = write(tmp_path, [{"answer": "1"}, *SUMS])
    out = tmp_path / "run"
    few = ["--steps", "1", "--evaluate", "0", "--max-tokens", "4", "--out", str(out)]
    assert main(["train", "--data", path, "--reward", "exact", "--skip-bad", "1", *few]) == 0
    (line,) = (out / "omissions.jsonl").read_text().splitlines()
    assert json.loads(line)["place"] == f"{path}:1"
    assert "omissions.jsonl lists the 1 record that is left out" in capsys.readouterr().err


def test_the_list_of_a_run_that_failed_at_its_start_goes_with_it(tmp_path):
    for name in ("config.toml", "omissions.jsonl"):
        (tmp_path / name).write_text("")
    assert remove_failed_start(tmp_path) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("flags", [["--skip-bad", "1"], ["--max-prompt-tokens", "9"], ["--overlong", "cut"]])
def test_flags_of_records_need_data(flags, capsys):
    assert main(["train", *flags]) == 2
    assert f"{flags[0]} needs --data: it " in capsys.readouterr().err


def test_what_is_mended_is_accepted_where_the_run_goes_on(tmp_path):
    settings = Settings(data="d.jsonl")
    read_files = Provenance(files={"data": {"d.jsonl": "0"}}, fields={}, parts={})
    nothing = Provenance(files={"data": {}}, fields={}, parts={})
    assert advice(settings, tmp_path, nothing) == advice(settings, tmp_path)
    assert advice(settings, tmp_path) == f"go on with: palaestra train --resume {tmp_path}"
    mended = advice(settings, tmp_path, read_files)
    assert mended == f"go on with: palaestra train --resume {tmp_path} --accept-changes"
    given = advice(Settings(recipe="python", data="d.jsonl"), tmp_path, read_files)
    assert f"resume={str(tmp_path)!r}, accept_changes=True)" in given


def overlong_sums(tmp_path, **settings):
    """Two prompts above the context of 512 tokens, and what was said of them."""
    long = [{**r, "prompt": f"{'no ' * 1200}say {i}"} if i in (1, 7) else r for i, r in enumerate(SUMS)]
    said = []
    ctx = context(write(tmp_path, long), said, **settings)
    check_records(ctx, (), golds=True)
    tasks = ctx.bench.tasks
    prompts = [tasks.task(s, i).prompt[-1].content for s, n in SPLITS(tasks) for i in range(n)]
    return ctx, said, prompts


def test_too_long_prompts_are_dropped_and_counted(tmp_path):
    ctx, said, prompts = overlong_sums(tmp_path, overlong="drop")
    assert len(prompts) == 38 and said == ["data: 2 of 40 records are too long and left out (--overlong drop)"]
    assert [reason.split(", and")[0][:15] for _, reason in ctx.omissions] == ["its prompt has "] * 2


@pytest.mark.parametrize("limit", [0, 30])
def test_too_long_prompts_lose_their_beginning(tmp_path, limit):
    """An answer fits behind them; a character more would not."""
    ctx, said, prompts = overlong_sums(tmp_path, overlong="cut", max_prompt_tokens=limit)
    cut = [p for p in prompts if "say" in p]
    assert said == ["data: 2 of 40 records are too long and cut, prompts at their beginning (--overlong cut)"]
    assert len(prompts) == 40 and {p[-5:] for p in cut} == {"say 1", "say 7"} and not ctx.omissions
    dialect, most = ctx.engine().dialect, limit or 512 - 16
    size = lambda text: sum(
        len(p.ids) for p in dialect.extend((Message(role="user", content=text),), first=True, closed=False)
    )
    assert all(size(p) <= most < size(f"no no {p}") for p in cut)


def test_the_users_limit_may_stop_the_run(tmp_path):
    rows = [{**r, "prompt": "no " * 60} if i == 1 else r for i, r in enumerate(SUMS)]
    ctx = context(write(tmp_path, rows), [], overlong="refuse", max_prompt_tokens=30)
    with pytest.raises(UserError, match="its prompt has more than 30 tokens"):
        check_records(ctx, (), golds=True)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_texts_lose_their_end_and_have_no_end_token(name, tmp_path):
    rows, column, reads, _ = RECORDED[name]
    rows = [{**r, column: LONG} if i in (4, 30) else r for i, r in enumerate(rows)]
    said, run = [], pl.api.loops.run_blocking
    ctx = context(write(tmp_path, rows), said, overlong="cut")
    run(record_checks.check_recorded(reads, ctx))
    assert said == [f"data: 2 of 40 records are too long and cut, {column} at the end (--overlong cut)"]
    tasks = ctx.bench.tasks
    every = [tasks.task(s, i) for s, n in SPLITS(tasks) for i in range(n)]
    texts = [t.meta[column] for t in every]
    assert len(texts) == 40 and sum(LONG.startswith(t) and len(t) > 100 for t in texts) == 2
    (part,) = [p for p in reads.collect.links if hasattr(p, "texts")]
    for task in every:
        (row,) = part.episode(ctx, task, task.meta[column], (), column=column).rows
        ids, cut = row.context(), len(task.meta[column]) > 100
        assert (ids[-1] == ctx.engine().dialect.end) is not cut and (len(ids) > 500) is cut and len(ids) <= 512
    ctx = context(write(tmp_path, rows, "e.jsonl"), said, overlong="drop")
    run(record_checks.check_recorded(reads, ctx))
    assert said[-1] == "data: 2 of 40 records are too long and left out (--overlong drop)"
    assert ctx.bench.tasks.size + ctx.bench.tasks.test_size == 38


def test_a_text_alone_loses_its_end(tmp_path):
    rows = [{"text": f"{i} {LONG}" if i == 3 else f"{i} yes"} for i in range(20)]
    said, run = [], pl.api.loops.run_blocking
    ctx = context(write(tmp_path, rows), said, overlong="cut")
    check_records(ctx, (), golds=False)
    run(record_checks.check_recorded(pl.recipe("sft"), ctx))
    assert said == ["data: 1 of 20 records are too long and cut, demonstration at the end (--overlong cut)"]
    tasks = ctx.bench.tasks
    (long,) = [t for s, n in SPLITS(tasks) for i in range(n) if len((t := tasks.task(s, i)).meta["document"]) > 20]
    assert (
        long.prompt[0].content == long.meta["document"] == long.meta["demonstration"]
        and "3 no" in long.meta["document"]
    )


def test_a_run_trains_on_what_was_cut(tmp_path):
    rows = [{**r, "demonstration": LONG} if i in (4, 30) else r for i, r in enumerate(SHOWN)]
    path = write(tmp_path, rows)
    small = ["--steps", "1", "--evaluate", "0", "--out", str(tmp_path / "run"), "prompts=2"]
    assert main(["train", "sft", "--data", path, "--overlong", "cut", *small]) == 0
    assert 'overlong = "cut"' in (tmp_path / "run" / "config.toml").read_text()
