"""The best model of a run is kept by what the user names, and a run ends where nothing better comes."""

import asyncio
import json

import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.models.load import load, weights_sha256
from palaestra.run.best import follow_best, measured_numbers

SMALL = {"schedule.prompts": 2, "collect.links.0.n": 2}


@pl.stage
class Scripted:
    """An evaluator that finds given numbers, one after the other, and which weights they were of."""

    values: tuple[float, ...]
    seen: list

    async def __call__(self, ctx):
        self.seen.append(weights_sha256(ctx.model("policy")))
        return {"greedy": self.values[len(self.seen) - 1]}


def run(context, out, values, *, seen=None, **plan):
    recipe = pl.vary(pl.recipe("grpo"), evaluate={"x": Scripted(values, [] if seen is None else seen)})
    for path, given in SMALL.items():
        recipe = pl.override(recipe, path, given)
    plan = {"steps": 4, "evaluate": 0, "evaluate_every": 1, "keep_best": "exam:x", **plan}
    return asyncio.run(recipe.run(context(out=out, **plan)))


def test_the_folder_holds_the_weights_that_were_measured_best(context, tmp_path):
    seen = []
    result = run(context, tmp_path, (0.1, 0.3, 0.8, 0.8, 0.2), seen=seen)
    assert result.metrics["best"] == {"measure": "exam:x", "value": 0.8, "step": 2}  # of equals the first
    assert json.loads((tmp_path / "best" / "best.json").read_text()) == result.metrics["best"]
    assert weights_sha256(load(tmp_path / "best")) == seen[2] != seen[3]
    assert sorted(p.name for p in tmp_path.iterdir() if "best" in p.name) == ["best"]


def test_the_start_is_kept_where_training_only_harms(context, tmp_path):
    seen = []
    assert run(context, tmp_path, (0.5, 0.4, 0.3, 0.2, 0.1), seen=seen).metrics["best"]["step"] == 0
    assert weights_sha256(load(tmp_path / "best")) == seen[0]


def test_an_exam_with_one_number_beside_its_error_is_named_alone():
    """As Inspect and lm-evaluation-harness report one metric."""
    of_library = {"inspect:a.py@t": {"accuracy": 0.5, "stderr": 0.1}, "two": {"f1": 0.2, "acc": 0.3}}
    numbers = measured_numbers({}, of_library)
    assert numbers["exam:inspect:a.py@t"] == 0.5 and "exam:two" not in numbers


def test_of_a_loss_less_is_better(context):
    ctx, state = context(keep_best="loss"), {"step": 1, "run": {}}
    for step, loss in enumerate((2.0, 1.5, 1.7)):
        state["step"] = step
        follow_best(ctx, state, {"of": "loss", "mean": loss, "low": 0, "high": 3}, {})
    assert state["run"]["best"] == {"measure": "loss", "value": 1.5, "step": 1, "since": 1}


def test_a_run_ends_when_its_patience_does(context, tmp_path):
    """Worse at steps 2 and 3: two evaluations in a row, so that step 4 is not taken; step 1 broke the row."""
    result = run(context, tmp_path, (0.2, 0.6, 0.5, 0.5, 0.5), patience=2, steps=9)
    assert result.metrics["steps"] == 3 and result.metrics["best"]["step"] == 1
    again = tmp_path / "again"
    assert run(context, again, (0.2, 0.1, 0.5, 0.4, 0.6), patience=2).metrics["steps"] == 4


def test_a_resumed_run_knows_what_was_best_before(context, tmp_path):
    run(context, tmp_path, (0.1, 0.9, 0.2), steps=2)
    assert run(context, tmp_path, (0.3, 0.5, 0.6), steps=4).metrics["best"] == {
        "measure": "exam:x",
        "value": 0.9,
        "step": 1,
    }


def test_the_names_of_what_is_measured():
    held = {"of": "ranking", "mean": 0.7, "low": 0.6, "high": 0.8, "beside": [{"of": "margin", "mean": 2.0}]}
    exam = {"hop": {"greedy": {"of": "accuracy", "mean": 0.25, "low": 0.1, "high": 0.4, "n": 4}, "errors": 1}}
    assert measured_numbers(held, exam) == {
        "ranking": 0.7,
        "margin": 2.0,
        "exam:hop": 0.25,
        "exam:hop/greedy": 0.25,
        "exam:hop/errors": 1.0,
    }


def test_a_measure_that_is_not_there_ends_the_run_before_it_trains(context):
    ctx, state = context(keep_best="acuracy"), {"step": 0, "run": {}}
    with pytest.raises(UserError, match="acuracy is not measured in this run; what is: accuracy"):
        follow_best(ctx, state, {"of": "accuracy", "mean": 0.5, "low": 0, "high": 1}, {})
    with pytest.raises(UserError, match="nothing is; give --evaluate N"):
        follow_best(ctx, state, {}, {})


def test_patience_says_what_it_needs(capsys):
    assert main(["train", "grpo", "--patience", "2", "--evaluate-every", "1"]) == 2
    assert "say by what with --keep-best" in capsys.readouterr().err


def test_the_command_line_keeps_the_best(tmp_path, capsys):
    flags = ["--steps", "2", "--evaluate", "4", "--evaluate-every", "1", "--keep-best", "accuracy", "--patience", "1"]
    words = [f"{k}={v}" for k, v in SMALL.items()]
    main(["train", "grpo", *flags, *words, "--out", str(tmp_path / "run")])
    assert f"best     {tmp_path / 'run' / 'best'} (accuracy" in capsys.readouterr().out
    assert main(["eval", "--model", str(tmp_path / "run" / "best"), "--n", "4"]) in (None, 0)
