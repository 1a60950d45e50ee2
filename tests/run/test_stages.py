"""What a recipe's parts are checked for before anything is sampled."""

from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.run.stages import check_stages, describe_idle_clip
from palaestra.settings.fields import Settings
from palaestra.settings.overrides import recipe_of, without_fields


def test_parts_that_fit_are_left_alone():
    for method in ("grpo", "ppo", "dpo", "tempo"):
        check_stages(pl.recipe(method))


def test_a_stage_may_take_more_than_it_must():
    @pl.stage
    class Counting:
        def __call__(self, groups, signals, state, more=0):
            return [], state

    check_stages(pl.vary(pl.recipe("grpo"), credit=Counting()))


def test_a_run_stops_before_it_samples_and_leaves_no_folder(tmp_path, capsys):
    file = tmp_path / "bare.py"
    file.write_text(
        "import palaestra as pl\n\n\ndef build():\n    return pl.vary(pl.recipe('grpo'), credit=pl.Center('group'))\n"
    )
    out = tmp_path / "run"
    assert main(["train", str(file), "--steps", "1", "--evaluate", "4", "--out", str(out)]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "palaestra: learners.policy.credit: Center is a link of a chain and not a credit of its own; "
        "write pl.chain(Center(...)), with all links in their order"
    )
    assert not out.exists()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"credit": pl.Center}, "learners.policy.credit: Center is a class; write Center(...)"),
        ({"objective": pl.Clipped}, "learners.policy.objective: Clipped is a class"),
        ({"update": pl.Plain}, "learners.policy.update: Plain is a class"),
        ({"collect": pl.Sample}, "collect: Sample is a class"),
        ({"credit": lambda x, table: x}, "write pl.chain(<lambda>), with all links"),
        ({"pool": 3}, "pool: 3 cannot be called with (ctx, groups, state)"),
        ({"observe": lambda seen: seen}, "cannot be called with (seen, examples, state)"),
    ],
)
def test_what_does_not_fit_its_place(changes, told):
    with pytest.raises(UserError) as error:
        check_stages(pl.vary(pl.recipe("grpo"), **changes))
    assert told in str(error.value)


def test_a_pipeline_is_looked_at_as_a_whole():
    bare = pl.vary(pl.recipe("grpo"), credit=pl.Center())
    parts = {"sft": pl.Part(pl.recipe("grpo")), "rl": pl.Part(bare, model=pl.Output("sft"))}
    with pytest.raises(UserError, match=r"^parts\.rl\.runnable\.learners\.policy\.credit: Center is a link"):
        check_stages(pl.Pipeline(parts=parts))


def test_a_run_of_several_parts_stops_before_the_first(tmp_path, capsys):
    file = tmp_path / "two.py"
    file.write_text(
        "import palaestra as pl\n\n\ndef build():\n"
        "    bare = pl.vary(pl.recipe('grpo'), credit=pl.Center())\n"
        "    parts = {'sft': pl.Part(pl.recipe('grpo')), 'rl': pl.Part(bare, model=pl.Output('sft'))}\n"
        "    return pl.Pipeline(parts=parts)\n"
    )
    assert main(["train", str(file), "--out", str(tmp_path / "run")]) == 2
    assert "parts.rl.runnable.learners.policy.credit: Center is a link" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_what_has_no_signature_is_taken_as_it_is():
    check_stages(pl.vary(pl.recipe("grpo"), pool=max))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"objective.high": "0.28"}, "objective.high"),
        ({"high": "0.28"}, "objective.high"),
        ({"objective.low": "0.1"}, "objective.low"),
        ({"objective.low": "0.2"}, ""),
        ({"objective.high": "0.28", "update.epochs": "2"}, ""),
        ({"objective.high": "0.28", "update.minibatches": "2"}, ""),
        ({"objective.high": "0.28", "schedule.lag": "1"}, ""),
        ({"objective.high": "0.28", "sample.top_p": "0.6"}, ""),
        ({"objective.high": "0.28", "sample.top_k": "6"}, ""),
        ({"objective.high": "0.28", "sample.min_p": "0.1"}, ""),
        ({"objective.reduce": "tokens"}, ""),
        ({}, ""),
    ],
)
def test_a_clip_range_that_can_do_nothing(given, said):
    settings = Settings(recipe="grpo", set=given)
    before, recipe = without_fields(None, settings), recipe_of(settings)
    line = describe_idle_clip(settings, before, recipe)
    assert line.startswith(f"note: {said} does nothing") if said else not line
    assert not describe_idle_clip(settings, None, recipe)
    for other in ({"engine": "vllm"}, {"cluster": "2"}):
        assert not describe_idle_clip(replace(settings, **other), before, recipe)


def test_a_run_says_it_once(tmp_path, capsys):
    small = ["--steps", "1", "--evaluate", "0", "--max-tokens", "2", "--out", str(tmp_path / "run")]
    assert main(["train", "grpo", "objective.high=0.28", "schedule.prompts=1", "sample.n=2", *small]) == 0
    assert "note: objective.high does nothing" in capsys.readouterr().err
    for again in (
        ["--resume", str(tmp_path / "run"), "--steps", "2"],
        [f"@{tmp_path}/run/config.toml", *small[:-1], str(tmp_path / "x")],
    ):
        assert main(["train", *again]) == 0
        said = capsys.readouterr().err
        assert ("does nothing" in said) is again[0].startswith("@")
    assert main(["train", "grpo", "schedule.prompts=1", "sample.n=2", *small[:-1], str(tmp_path / "plain")]) == 0
    capsys.readouterr()
    assert main(["train", f"@{tmp_path}/plain/config.toml", *small[:-1], str(tmp_path / "y")]) == 0
    assert "does nothing" not in capsys.readouterr().err
