"""What a recipe's parts are checked for before anything is sampled."""

from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.run.settings import Settings
from palaestra.run.setup import recipe_of
from palaestra.run.stages import check_stages, describe_idle_clip


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
    ("given", "said"),
    [
        ({"objective.high": "0.28"}, "objective.high"),
        ({"high": "0.28"}, "high"),
        ({"objective.low": "0.1"}, "objective.low"),
        ({"objective.high": "0.28", "update.epochs": "2"}, ""),
        ({"objective.high": "0.28", "update.minibatches": "2"}, ""),
        ({"objective.high": "0.28", "schedule.lag": "1"}, ""),
        ({"objective.reduce": "tokens"}, ""),
        ({}, ""),
    ],
)
def test_a_clip_range_that_can_do_nothing(given, said):
    settings = Settings(recipe="grpo", set=given)
    line = describe_idle_clip(settings, recipe_of(settings))
    assert line.startswith(f"note: {said} does nothing") if said else not line
    assert not describe_idle_clip(replace(settings, engine="vllm"), recipe_of(settings))
