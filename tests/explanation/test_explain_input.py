"""`explain`: what it refuses, in one line that says where."""

import math

import numpy as np
import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.recipes.base import grpo
from palaestra.recipes.objectives import apo, rec
from palaestra.schedule import Linear, check_bounds, resolve
from palaestra.settings.overrides import build

from tests.rows import every

# ---- mistakes in what is given


@every(
    ("field", "says"),
    [
        ({"reward": math.nan}, "reward must be a finite number, not NaN"),
        ({"reward": -math.inf}, "reward must be a finite number, not -Infinity"),
        ({"reward": 10**400}, "reward must be a finite number"),
        ({"reward": None}, "reward must be a finite number, not null"),
        ({"reward": "a"}, 'reward must be a finite number, not "a"'),
        ({"turn_rewards": [1, math.nan], "turn_lengths": [1, 1]}, "turn_rewards must be a list of finite numbers"),
        ({"turn_rewards": 1}, "turn_rewards must be a list"),
        ({"turn_rewards": np.array(1.0)}, "turn_rewards must be a list of finite numbers, one a turn, not "),
        ({"turn_rewards": [1, 0]}, "2 turn_rewards for 1 turns"),
        ({"length": 1.5}, "length must be a whole number of at least 1, not 1.5"),
        ({"length": 0}, "length must be a whole number of at least 1, not 0"),
        ({"length": True}, "length must be a whole number"),
        ({"length": 3, "logp": [-1.0]}, "length says 3 tokens, its other fields 1"),
        ({"turn_lengths": 3}, "turn_lengths must be a list"),
        ({"turn_lengths": [2, -1]}, "turn_lengths must be a list"),
        ({"tokens": "abc"}, "tokens must be a list of token ids"),
        ({"tokens": ["a", "b"]}, "tokens must be a list of token ids"),
        ({"tokens": []}, "tokens must be a list of token ids"),
        ({"logp": -1.0}, "logp must be a list of finite numbers, not -1.0"),
        ({"logp": ["a"] * 4, "tokens": [1] * 4}, "logp must be a list of finite numbers"),
        ({"tokens": [1, 2], "logp": [-1.0]}, "logp has 1 values for 2 tokens"),
        ({"critiques": 3}, "critiques must be a list of lists of step numbers, not 3"),
        ({"critiques": [3]}, "critiques must be a list of lists of step numbers"),
        ({"prefix_values": "abc"}, "prefix_values must be a list of two or more finite numbers"),
        ({"stratum": [1]}, "stratum must be a number or a text, not [1]"),
        ({"states": "start"}, "states must be a list of states, one a turn"),
        ({"executed": "yes"}, "executed must be a list of truth values"),
        ({"gold_prob": 0.5}, "gold_prob must be a list of probabilities"),
        ({"actor": "a"}, "unknown field 'actor'"),
    ],
)
def test_a_field_of_another_kind_is_a_line_that_says_where(field, says):
    with pytest.raises(UserError) as error:
        explain(grpo.build(), [[{"reward": 1}, {"reward": 0}], [{"reward": 1}, {"reward": 0, **field}]])
    said = str(error.value)
    assert said.startswith("trajectory 1 of group 1") and says in said and "\n" not in said and len(said) < 300


def test_values_that_fit_are_taken():
    """Truth values as rewards, and whole numbers written as floats."""
    found = explain(grpo.build(), [[{"reward": True, "length": 2.0}, {"reward": False, "length": 1}]])
    assert found["advantages"][0] == pytest.approx([0.707106, -0.707106], abs=1e-5)
    assert [len(w) for w in found["token_weights"][0]] == [2, 1]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--rewards", "[]"], "--rewards must be a list of groups, none of them empty"),
        (["--rewards", "[[]]"], "--rewards must be a list of groups, none of them empty"),
        (["--rewards", "[[1, null]]"], "trajectory 1 of group 0: reward must be a finite number, not null"),
        (["--rewards", "[[NaN, 0]]"], "trajectory 0 of group 0: reward must be a finite number, not NaN"),
        (["--rewards", "[[1, 0]]", "--lengths", "[3, 3]"], "--lengths must be a list of groups"),
        (["--rewards", "[[1, 0]]", "--lengths", "[[1.5, 3]]"], "trajectory 0 of group 0: length must be a whole"),
        (["--rewards", "[[1, 0]]", "--group", "g.json"], "--rewards and --group exclude each other"),
        (["--group", "g.json", "--rollouts", "run"], "--group and --rollouts exclude each other"),
        (["--group", "g.json", "--lengths", "[[1, 2]]"], "--lengths are those of --rewards"),
    ],
    ids=str,
)
def test_mistakes_on_the_command_line(argv, says, capsys):
    assert main(["explain", "grpo", *argv]) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


# ---- settings out of range


@every(
    ("method", "word", "says"),
    [
        ("srpo-gream", "k=0", "PassAtK.k is 0; it must be at least 1"),
        ("dr-grpo", "length=0", "Clipped.length is 0.0; it must be above 0"),
        ("dr-grpo", "length=-3", "Clipped.length is -3.0; it must be above 0"),
        ("kimi-k1.5", "tau=0", "Balance.beta is 0.0; it must be above 0"),
        ("rec", "tau=-1", "rec: tau is -1.0; it must be at least 0"),
        ("lite-ppo", "ddof=-1", "Scale.ddof is -1; it must be at least 0"),
        ("grpo", "credit.links.1.ddof=-1", "Scale.ddof is -1; it must be at least 0"),
        ("egsw", "temperature=0", "EntropySoftmax.temperature is 0.0; it must be above 0"),
        ("loop", "eps=-1", "loop: eps is -1.0; it must be at least 0"),
        ("dpo", "beta=-1", "DPO.beta is -1.0; it must be above 0"),
        ("apo", "base=0", "Stcr.base is 0.0; it must be at least 1"),
        ("effective-rank", "stride=0", "RankBonus.stride is 0; it must be at least 1"),
        ("grpo", "kl=nan", "kl takes a number, not nan"),
        ("grpo", "objective.low=nan", "low takes a number, not nan"),
    ],
)
def test_a_setting_out_of_range_is_refused_where_the_part_is_built(method, word, says):
    name, _, given = word.partition("=")
    with pytest.raises(UserError) as error:
        build(method, {name: given})
    assert says in str(error.value)


def test_a_scheduled_setting_is_checked_at_its_step():
    recipe = build("agro", {"objective.beta": "linear(0.1, 0, 10)"})
    assert resolve(recipe, 5).learners["policy"].objective.beta == pytest.approx(0.05)
    with pytest.raises(UserError, match=r"Balance\.beta is 0"):
        resolve(recipe, 10)
    check_bounds("x", Linear(-1, -1, 1), least=0)
    with pytest.raises(UserError, match="x is 2; it must be at least 0 and at most 1"):
        check_bounds("x", 2, least=0, most=1)


def test_what_is_switched_off_is_not_needed():
    assert explain(apo.build(kl=0), [[{"reward": 1}, {"reward": 0}]])["token_weights"] is not None
    assert rec.build(tau=1.0).learners["policy"].objective.weight == 0.5
