"""Evaluators and exams: what they find, what they leave alone, and the tables of their attempts."""

import asyncio
import json
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.api.run import Run
from palaestra.cli.main import main
from palaestra.cli.train import measured_beside
from palaestra.ends import beside_ends, found_beside, with_before
from palaestra.errors import UserError
from palaestra.store import columns
from palaestra.types import Key

from tests.fake import episode

SMALL = {"schedule.prompts": 2, "collect.links.0.n": 2}


def grpo(**more):
    recipe = pl.vary(pl.recipe("grpo"), **more)
    for path, given in SMALL.items():
        recipe = pl.override(recipe, path, given)
    return recipe


def losses(folder):
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    return [x["loss"] for x in lines if "loss" in x]


def test_an_exam_moves_nothing_of_the_training(context, tmp_path):
    plain, asked = tmp_path / "plain", tmp_path / "asked"
    one = asyncio.run(grpo().run(context(out=plain, steps=3, evaluate=4)))
    exams = {"hard": pl.run.Exam("add(d=3)", n=4, samples=2), "world": pl.run.Exam("tictactoe", n=2)}
    recipe = grpo(evaluate=exams)
    two = asyncio.run(recipe.run(context(out=asked, steps=3, evaluate=4, evaluate_every=1)))
    assert one.metrics["weights_sha256"] == two.metrics["weights_sha256"]
    assert losses(plain) == losses(asked)
    found = two.metrics["evaluations"]
    assert set(found) == {"hard", "world"} and set(found["hard"]) == {"before", "after"}
    assert found["hard"]["after"]["greedy"]["n"] == 4
    assert {"pass@1", "pass@2", "maj@2"} <= found["hard"]["after"].keys()


def test_every_attempt_is_kept_as_a_table(context, tmp_path):
    recipe = grpo(evaluate={"hard": pl.run.Exam("add(d=3)", n=4, samples=2)})
    asyncio.run(recipe.run(context(out=tmp_path, steps=2, evaluate=3, evaluate_every=1)))
    run = Run(tmp_path)
    own, exam, samples = run.attempts(), run.attempts("hard"), run.attempts("hard samples")
    assert own.schema.names == [n for n in columns.SCHEMA.names if n not in ("rows", "pictures", "sounds")]
    assert sorted(set(own["step"].to_pylist())) == [0, 1, 2]
    assert (own.num_rows, exam.num_rows, samples.num_rows) == (9, 12, 24)
    # the same problems before and after, so that they can be paired
    by_step = {s: [r["task_id"] for r in exam.to_pylist() if r["step"] == s] for s in (0, 1, 2)}
    assert by_step[0] == by_step[1] == by_step[2] and len(set(by_step[0])) == 4
    solved = [r["solved"] for r in own.to_pylist() if r["step"] == 2]
    assert sum(solved) / 3 == pytest.approx(
        [e["mean"] for e in run.evaluations.to_pylist() if e["name"] == "held-out"][-1]
    )
    assert "rows" in run.attempts("hard", tokens=True).schema.names


def test_a_run_that_keeps_no_episodes_keeps_no_attempts(context, tmp_path):
    asyncio.run(grpo().run(context(out=tmp_path, steps=1, evaluate=2, rollouts="none")))
    assert not (tmp_path / "evaluations").exists()


def test_a_resumed_run_forgets_attempts_after_its_checkpoint(context, tmp_path):
    recipe, plan = grpo(), {"evaluate": 2, "evaluate_every": 1, "checkpoint_every": 1}
    asyncio.run(recipe.run(context(out=tmp_path, steps=2, **plan)))
    late = columns.evaluation_path(tmp_path, "held-out", 7)
    late.write_bytes(columns.evaluation_path(tmp_path, "held-out", 2).read_bytes())
    asyncio.run(recipe.run(context(out=tmp_path, steps=3, **plan)))
    steps = sorted(p.stem for p in late.parent.glob("*.parquet"))
    assert steps == [f"step-{s:06d}" for s in (0, 1, 2, 3)]


@pl.stage
class Counts:
    """An evaluator that is no exam: how many problems there are, and their keys' sum."""

    async def __call__(self, ctx):
        key: Key = ctx.key("counts")
        return {"tasks": 3, "nested": {"share": 0.25}, "said": "text is no number", "key": str(key)}


def test_any_function_of_the_context_is_an_evaluator(context, tmp_path):
    recipe = grpo(evaluate={"counts": Counts()})
    result = asyncio.run(recipe.run(context(out=tmp_path, steps=1)))
    assert found_beside(result.metrics) == {
        "counts/tasks": [3.0, 3.0],
        "counts/nested/share": [0.25, 0.25],
    }
    assert measured_beside(result.metrics) == ["counts/tasks  3 -> 3", "counts/nested/share  0.25 -> 0.25"]


def test_two_evaluations_of_one_name_are_refused(context):
    recipe = grpo(evaluate={"hard": Counts()})
    with pytest.raises(UserError, match="two evaluations are called 'hard'"):
        asyncio.run(recipe.run(context(steps=1, exams={"hard": Counts()})))
    with pytest.raises(UserError, match="the run's own evaluation"):
        asyncio.run(grpo(evaluate={"held-out": Counts()}).run(context(steps=1)))


def test_evaluations_of_both_ends_and_of_a_pipeline():
    first = {"evaluations": beside_ends({"a": {"x": 1}}, {"a": {"x": 2}})}
    last = {"evaluations": beside_ends({"a": {"x": 2}}, {"a": {"x": 5}, "new": {"x": 7}})}
    assert with_before(last, first)["evaluations"] == {
        "a": {"before": {"x": 1}, "after": {"x": 5}},
        "new": {"after": {"x": 7}},
    }


def test_exams_on_the_command_line_and_in_the_report(tmp_path, capsys):
    out = tmp_path / "run"
    words = ["train", "grpo", "--smoke", "--exams", "add(d=3)", "--exams", "knights", "--out", str(out)]
    assert main(words) == 0
    said, page = capsys.readouterr().out, (out / "report.html").read_text()
    assert "add(d=3)/greedy" in said and "knights/greedy" in said
    assert "Also measured" in page and "knights/greedy" in page
    assert main(["train", "--resume", str(out), "--steps", "3", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert set(again["evaluations"]) == {"add(d=3)", "knights"}


def test_a_memory_exam_remembers_from_round_to_round_and_leaves_the_run_alone(context):
    put = lambda task, notes: replace(task, meta={**task.meta, "notes": len(notes)})
    seen = []

    async def collect(ctx, key, group):
        seen.append((group.task.id, group.task.meta["notes"]))
        right = float(group.task.meta["notes"] > 0)
        e = episode((0,), (1,), right)
        return replace(group, episodes=(replace(e, reward=pl.Reward(total=right, parts={"half": right / 2})),))

    observe = pl.curriculum.Memorise(lambda g: [pl.curriculum.Note(text=g.task.id)])
    draw = pl.curriculum.Recalled(put, draw=pl.curriculum.Series(3, split="test", staggered=False))
    ctx = context()
    found = asyncio.run(pl.run.MemoryExam(draw, collect, observe, rounds=3, n=2)(ctx))
    first = ctx.bench.first_held_out * 3
    ids = [ctx.bench.tasks.task("test", first + i).id for i in (0, 3, 1, 4, 2, 5)]
    assert seen == list(zip(ids, (0, 0, 2, 2, 4, 4), strict=True))
    assert [found[f"round {k}"]["mean"] for k in (1, 2, 3)] == [0, 1, 1]
    assert [found[f"round {k}"]["part/half"] for k in (1, 2, 3)] == [0, 0.5, 0.5]
    with pytest.raises(UserError, match="rounds"):
        pl.run.MemoryExam(draw, collect, observe, rounds=0)
