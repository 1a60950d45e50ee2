"""The command that stands on a method's page for an arm trains that arm."""

import shlex

import palaestra as pl
import pytest
from palaestra.ledger.experiment import experiment_of
from palaestra.ledger.files import read_result
from palaestra.run.setup import build
from palaestra.values import difference, overrides
from tools.pages.arm_commands import commands_of, fields_for, words_for

SOME = ("kimi-k1.5", "dr-grpo", "capo", "agro", "muldimif@small")


@pytest.mark.parametrize("name", SOME)
def test_each_measured_arm_has_its_command(name):
    """Words of a command line make the recipe that was measured; an arm without such words has a trial of itself."""
    experiment, result = experiment_of(name), read_result(name)
    lines = commands_of(name, experiment, result)
    arms = [arm for arm in result["arms"] if arm != "start"]
    assert [line.removeprefix("# ") for line in lines[::2]] == arms
    for arm, command in zip(arms, lines[1::2], strict=True):
        verb, method, *words = shlex.split(command)[1:]
        if verb == "reproduce":
            assert words[words.index("--arms") + 1] == arm and method == name.partition("@")[0]
            continue
        settings, (task, problem, model, called) = words[:-4], words[-4:]
        assert (task, problem, model, called) == ("--task", experiment.tasks[0], "--model", experiment.model)
        recipe = experiment.arm_with(arm, result["arms"][arm].get("setting", {}))
        assert difference(build(method, overrides(settings)), recipe) == [], command


def test_the_measured_length_reward_of_kimi_is_the_default_and_a_word_turns_it_off():
    lines = commands_of("kimi-k1.5", experiment_of("kimi-k1.5"), read_result("kimi-k1.5"))
    assert "palaestra train kimi-k1.5" in lines[3] and " length=" not in lines[3] and lines[2] == "# length-late"
    assert "palaestra train kimi-k1.5" in lines[1] and " length=0" in lines[1] and lines[0] == "# mirror-descent"


def test_what_words_cannot_say_has_none():
    """A part of another class, and a recipe that only another method's default is near to."""
    other = pl.vary(pl.recipe("grpo"), objective=pl.Imitation())
    assert fields_for("grpo", {}, other) is None and words_for("grpo", other) is None
    assert words_for("grpo", pl.recipe("grpo", kl=0.25)) == {"kl": "0.25"}
    assert words_for("grpo", pl.recipe("grpo")) == {}
