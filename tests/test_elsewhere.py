"""The words of other trainers lead to what is written here, wherever they are typed."""

import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--epochs", "3"], "--steps"),
        (["--num_generations", "4"], "sample.n=4"),
        (["num_generations=4"], "sample.n=4"),
        (["beta=0.1"], "kl=0.04"),
        (["actor.kl_loss_coef=0.1"], "kl=0.04"),
    ],
)
def test_a_setting_of_another_trainer_is_translated(capsys, words, told):
    assert main(["train", "grpo", *words]) == 2
    assert f"; write {told}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("GSPO", "gspo"),
        ("dr_grpo", "dr-grpo"),
        ("reinforce++", "reinforce-plus-plus"),
        ("robust", "dpo pairs=data smoothing=0.1 robust=true"),
        ("apo_zero_unpaired", "kto objective.point=zero"),
    ],
)
def test_a_method_of_another_trainer_is_translated(capsys, method, told):
    assert main(["train", method]) == 2
    assert f"; write {told}" in capsys.readouterr().err


def test_a_keyword_of_another_trainer_is_translated():
    with pytest.raises(UserError, match=r"; write sample\.n=4"):
        pl.train("grpo", num_generations=4)
