"""Several runs as one: which model each starts from, what is counted, and that no part runs twice."""

import asyncio
import json
import re
import shlex
from dataclasses import dataclass, field

import palaestra as pl
import pytest
import torch
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.models.load import save
from palaestra.pipeline import Output, Part, Pipeline
from palaestra.store.folder import read_run
from palaestra.types import Result
from palaestra.view.drawing import short_number
from palaestra.view.report import page, parts, parts_below


@dataclass(frozen=True)
class Add:
    """Adds to the first weight, samples `tokens`, and notes the first weight of every model that it finds."""

    by: float
    tokens: int = 0
    ran: list = field(default_factory=list, compare=False)

    async def run(self, ctx):
        first = lambda name: next(ctx.models[name].module.parameters()).flatten()[0]
        before = {name: first(name).item() for name in ctx.models}
        self.ran.append((before, [name for name in ctx.models if not ctx.models[name].trainable()]))
        with torch.no_grad():
            first("policy").add_(self.by)
        save(ctx.model("policy"), ctx.folder / "model")
        metrics = {"accuracy_before": {"mean": self.by}, "sampled_tokens": self.tokens, "added": self.by}
        return Result(metrics=metrics, artifacts={"policy": str(ctx.folder / "model")})


def test_parts_start_where_they_say(context, tmp_path):
    parts = {"a": Add(1.0, 10), "b": Add(10.0, 20), "c": Add(100.0, 30), "d": Add(0.0, 40)}
    pipeline = Pipeline(
        parts={
            "a": Part(parts["a"]),
            "b": Part(parts["b"], model=Output("a")),
            "c": Part(parts["c"]),
            "d": Part(parts["d"], model=Output("b"), models={"teacher": Output("a"), "other": Output("c")}),
        }
    )
    ctx = context(out=tmp_path)
    x = next(ctx.model("policy").module.parameters()).flatten()[0].item()
    for _ in range(2):  # the second time everything is there already
        found = asyncio.run(pipeline.run(ctx))
        assert found.metrics["sampled_tokens"] == 100 and found.metrics["added"] == 0.0
        assert found.metrics["accuracy_before"] == {"mean": 1.0}
        assert {n: m["added"] for n, m in found.metrics["parts"].items()} == {"a": 1.0, "b": 10.0, "c": 100.0, "d": 0.0}
    seen = {name: [values for values, _ in part.ran] for name, part in parts.items()}
    near = lambda **models: [pytest.approx({name: x + more for name, more in models.items()}, abs=1e-4)]
    assert seen["a"] == near(policy=0) and seen["b"] == near(policy=1) and seen["c"] == near(policy=0)
    assert seen["d"] == near(policy=11, teacher=1, other=100) and parts["d"].ran[0][1] == ["teacher", "other"]
    assert next(ctx.model("policy").module.parameters()).flatten()[0].item() == x


@dataclass(frozen=True)
class Look:
    """Says what the bench and the plan are that it runs with."""

    async def run(self, ctx):
        prompt = ctx.bench.tasks.task("train", 0).prompt[0].content
        found = {"answers": ctx.plan.answers, "size": ctx.bench.tasks.size, "prompt": prompt}
        size = float(ctx.bench.tasks.size or 0)
        before = {"mean": size, "low": size, "high": size, "n": 4}
        return Result(metrics={"accuracy_before": before, "found": found})


def write_parts(folder):
    sums = [{"prompt": f"{i}+1 mod 10", "answer": str((i + 1) % 10)} for i in range(10)]
    pairs = [{"question": f"p{i}", "chosen": f"= {i}", "rejected": "= x"} for i in range(30)]
    for name, rows in (("problems", sums), ("pairs", pairs)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "two.py").write_text(
        "import palaestra as pl\nfrom tests.test_pipeline import Look\n\n"
        "def build():\n    return pl.Pipeline(parts={'rm': pl.Part(Look()), 'rl': pl.Part(Look())})\n"
    )


@pytest.mark.parametrize("run_data", ["", "pairs.jsonl", "problems.jsonl"])
def test_each_part_has_data_of_its_own(tmp_path, monkeypatch, capsys, run_data):
    """Whatever the run's own data is; what one part cannot measure another can."""
    monkeypatch.chdir(tmp_path)
    write_parts(tmp_path)
    own = ["rm.data=pairs.jsonl", "rl.data=problems.jsonl"]
    asked = ["train", "two.py", *own, "--evaluate", "4", "--out", "run", *(["--data", run_data] if run_data else [])]
    assert main(asked) == 0, capsys.readouterr().err
    err = capsys.readouterr().err
    assert "data: read question as prompt; --columns changes it" in err and "chain" not in err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    found = {name: part["found"] for name, part in summary["parts"].items()}
    assert (found["rm"]["answers"], found["rm"]["size"], found["rm"]["prompt"][0]) == (False, 27, "p")
    assert (found["rl"]["answers"], found["rl"]["size"]) == (True, 9)
    assert summary["accuracy_before"]["mean"] == 9.0, "the part's that has the problem of the end"
    names = [json.loads((tmp_path / "run" / n / "summary.json").read_text())["task"] for n in ("rm", "rl")]
    assert names == ["pairs.jsonl", "problems.jsonl"]
    assert '"parts.rm.data" = "pairs.jsonl"' in (tmp_path / "run" / "config.toml").read_text()


REWARD_AND_POLICY = """import palaestra as pl


def build():
    head = pl.Learner(credit=pl.Compare(), objective=pl.BradleyTerry(), heads=("score",))
    rm = pl.vary(pl.recipe("grpo"), collect=pl.links(pl.Recorded()), learners={"reward": head})
    rl = pl.vary(pl.recipe("grpo"), collect=pl.links(pl.Sample(n=2), pl.Score()))
    return pl.Pipeline(parts={"rm": pl.Part(rm), "rl": pl.Part(rl)})
"""


def test_each_part_is_named_with_what_was_measured_of_it(tmp_path, monkeypatch, capsys):
    """On the screen and in the report: pairs ranked right are no accuracy, and no data file stands for both parts."""
    monkeypatch.chdir(tmp_path)
    write_parts(tmp_path)
    (tmp_path / "both.py").write_text(REWARD_AND_POLICY)
    fields = [f"parts.{n}.runnable.schedule.prompts=2" for n in ("rm", "rl")]
    asked = ["train", "both.py", "rm.data=pairs.jsonl", "--data", "problems.jsonl", *fields, "--steps", "2"]
    assert main([*asked, "--evaluate", "3", "--max-tokens", "4", "--out", "run"]) == 0
    told = capsys.readouterr()
    lines = told.err.splitlines()
    assert lines[0].startswith("both.py on pairs.jsonl (rm), problems.jsonl (rl) with tiny")
    rm, rl, first, second = (
        lines.index("part rm on pairs.jsonl"),
        lines.index("part rl"),
        *(i for i, line in enumerate(lines) if line.startswith("step 2/2")),
    )
    assert rm < first < rl < second
    said = [line for line in told.out.splitlines() if line.startswith("part ")]
    cost = [line for line in said if " steps, " in line]
    assert [re.sub(r"[\d.,]+", "#", line) for line in cost] == [
        "part rm: # steps# # sampled tokens# # s# loss # → # (first step → last)",
        "part rl: # steps# # sampled tokens# # s# reward # → # (first step → last)",
    ]
    measured = [line for line in said if line not in cost]
    assert measured[0].startswith("part rm: held-out pairs ranked right before   50.0%")
    assert measured[-1].startswith("part rl: held-out accuracy after") and len(measured) == 6
    assert "\nheld-out" not in told.out, "the whole says nothing that its last part has not said"
    whole = read_run(tmp_path / "run")
    logged = read_run(tmp_path / "run" / "rl").steps
    told_course = [r["course"] for r in parts(whole)][1]
    assert told_course == f"reward {short_number(logged[0]['reward'])} → {short_number(logged[-1]['reward'])}"
    rows = [(r["name"], r["problem"], r["what"]) for r in parts(whole)]
    assert rows == [("rm", "pairs.jsonl", "pairs ranked right"), ("rl", "problems.jsonl", "accuracy")]
    assert page(whole)["task"] == "" and page(read_run(tmp_path / "run" / "rm"))["task"] == "pairs.jsonl"
    measure = dict(page(whole)["commands"])["Measure the trained model, with pass@k"]
    assert "--data problems.jsonl" in measure and main(shlex.split(measure)[1:]) == 0


def test_parts_that_measure_different_things_begin_and_end_each_with_its_own(context):
    """A reward model before a policy on the same problem: no number before without one after."""

    @dataclass(frozen=True)
    class Measures:
        of: str
        value: float

        async def run(self, ctx):
            ends = {"before": self.value, "after": 2 * self.value}
            found = {f"{self.of}_{end}": {"of": self.of, "mean": x, "n": 4} for end, x in ends.items()}
            return Result(metrics=found)

    rm, sft, rl = Measures("ranking", 0.1), Measures("accuracy", 0.2), Measures("accuracy", 0.4)
    found = asyncio.run(Pipeline(parts={"rm": Part(rm), "rl": Part(rl)}).run(context()))
    ends = {k: x["mean"] for k, x in found.metrics.items() if k.endswith(("_before", "_after"))}
    assert ends == {"accuracy_before": 0.4, "accuracy_after": 0.8}
    found = asyncio.run(Pipeline(parts={"rm": Part(rm), "sft": Part(sft), "rl": Part(rl)}).run(context()))
    assert found.metrics["accuracy_before"]["mean"] == 0.2 and "ranking_before" not in found.metrics


def test_parts_of_a_part_stand_behind_it(tmp_path):
    """With the path of each, and the course of its own training."""
    inner = {"a": {"steps": 3, "sampled_tokens": 0}}
    (tmp_path / "warm" / "a").mkdir(parents=True)
    lines = [{"step": i, "loss": x} for i, x in enumerate((0.75, 9.0, 0.5), 1)]
    (tmp_path / "warm" / "a" / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    rows = parts_below(tmp_path, {"warm": {"parts": inner}, "rl": {"steps": 1}})
    assert [r["name"] for r in rows] == ["warm", "warm/a", "rl"]
    assert [r["course"] for r in rows] == ["", "loss 0.75 → 0.5", ""]


def test_columns_of_a_part_need_its_data():
    with pytest.raises(UserError, match="has test_data or columns and no data"):
        asyncio.run(Pipeline(parts={"a": Part(Look(), columns="q=prompt")}).run(None))


def test_a_part_starts_from_an_earlier_one():
    with pytest.raises(UserError, match="'b' starts from 'c', which does not come before it"):
        Pipeline(parts={"b": Part(Add(1.0), model=Output("c")), "c": Part(Add(1.0))})
    with pytest.raises(UserError, match="at least one part"):
        Pipeline(parts={})


def test_a_model_that_no_part_made_is_named(context, tmp_path):
    wrong = Pipeline(parts={"a": Part(Add(1.0)), "b": Part(Add(1.0), model=Output("a", "critic"))})
    with pytest.raises(UserError, match="'a' has made no 'critic'; there are policy"):
        asyncio.run(wrong.run(context(out=tmp_path)))


@pl.stage
class Writes:
    """A program that makes problems for the part after it."""

    async def run(self, ctx):
        file = ctx.folder / "made.jsonl"
        file.write_text("".join(f'{{"prompt": "{n}+1=", "answer": "{n + 1}"}}\n' for n in range(20)))
        return pl.Result(metrics={"made": 20, "sampled_tokens": 0}, artifacts={"data": str(file)})


def test_a_part_learns_from_the_file_of_an_earlier_one(tmp_path):
    sft = pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=4, steps=1))
    recipe = pl.Pipeline(parts={"make": pl.Part(Writes()), "learn": pl.Part(sft, data=pl.Output("make", "data"))})
    run = pl.train(recipe, out=tmp_path / "run", evaluate=2, quiet=True)
    learned = run.summary["parts"]["learn"]
    assert learned["task"].endswith("make/made.jsonl") and learned["steps"] == 1
    prompts = {e["prompt"] for e in pl.open(tmp_path / "run" / "learn").episodes().to_pylist()}
    assert all(p.strip().endswith("+1=") for p in prompts)
    with pytest.raises(UserError, match="starts from 'make', which does not come before it"):
        pl.Pipeline(parts={"learn": pl.Part(sft, data=pl.Output("make", "data"))})


def test_a_part_has_a_task_of_its_own(tmp_path):
    sft = pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=4, steps=1))
    recipe = pl.Pipeline(parts={"warm": pl.warm(sft, "grid"), "rl": pl.Part(sft, model=pl.Output("warm"))})
    run = pl.train(recipe, task="hop", out=tmp_path / "run", evaluate=2, quiet=True)
    assert [p["task"] for p in run.summary["parts"].values()] == ["grid", "hop"]
    with pytest.raises(UserError, match="both data and a task"):
        _ = pl.Part(sft, data="x.jsonl", task="grid").problem


def test_a_form_is_imitated_before_it_is_learned():
    show, adam = pl.Demonstrate(), pl.AdamW(lr=1e-3)
    made = pl.imitate_first(pl.recipe("grpo"), 7, prompts=4, optimiser=adam, collect=show, instruction="be short")
    shown, learned = made.parts["shown"], made.parts["rl"]
    assert shown.shared and shown.model is None and learned.model == pl.Output("shown")
    assert (shown.runnable.schedule.steps, shown.runnable.schedule.prompts) == (7, 4)
    assert shown.runnable.collect == show and shown.runnable.instruction == "be short"
    assert shown.runnable.learners["policy"].optimiser == adam and learned.runnable == pl.recipe("grpo")
    plain = pl.imitate_first(pl.recipe("grpo"), 7).parts["shown"].runnable
    assert plain == pl.vary(
        pl.recipe("sft"), schedule=pl.Schedule(prompts=16, steps=7), optimiser=pl.AdamW(lr=2e-3, warmup=10)
    )
