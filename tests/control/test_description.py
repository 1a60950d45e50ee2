"""A description of a simulator: written blank or by a language model, corrected, and read as a simulator."""

import asyncio
import json

import numpy as np
import palaestra as pl
import pytest
from palaestra.api.describing import describe_simulator
from palaestra.cli.main import main
from palaestra.control.description import ask_for_description, blank_description, manual_of, sample_games
from palaestra.errors import Fault, UserError

from tests.chat_server import serving

OWN = """
import numpy as np

class Line:
    '''A point on a line; right is paid.'''
    agents, horizon, observation, actions = 1, 5, 2, 3
    def reset(self, rng, n): return np.zeros((n, 2))
    def observe(self, state): return state[:, None]
    def legal(self, state): return None
    def step(self, state, act, rng):
        state = state + np.stack([act[:, 0] - 1, np.ones(len(act))], -1)
        return state, state[:, :1], np.zeros(len(act), bool)
    def facts(self, state): return {"hidden": state[:, :1]}
"""
REPLY = {
    "about": "A point moves on a line.",
    "observations": [{"name": "x", "about": "to the right"}, {"name": "clock", "low": 0, "high": 5}],
    "actions": ["left", "stay", "right"],
}


@pytest.fixture
def line(tmp_path):
    (tmp_path / "line.py").write_text(OWN)
    return tmp_path


def test_a_blank_description_is_corrected_and_read(line, capsys):
    sub = line / "words"
    sub.mkdir()
    assert not main(["guide", "init", f"{line / 'line.py'}:Line", "--goal", "go right", "--out", str(sub / "l.toml")])
    file = sub / "l.toml"
    assert 'simulator = "../line.py:Line"' in file.read_text()  # seen from the description
    file.write_text(file.read_text().replace("number_0", "x").replace("action 2", "right"))
    sim = pl.control.simulator_by_name(str(file))
    assert sim.about == "What is wanted: go right." and sim.action_names == ("action 0", "action 1", "right")
    games = sample_games(sim, ("t",))
    words = pl.control.SimulatorWords.of(sim, games)
    assert list(words.declared) == ["x", "number_1", "change_of_x", "change_of_number_1"]
    columns = words.compute(games)
    assert np.allclose(columns["change_of_number_1"], 1)  # a step is a step of the clock
    assert np.allclose(columns["x"], games["obs"][..., 0] + games["act"] - 1)
    assert "hidden" in games, "what else the simulator tells is told"
    assert list(pl.control.ViewWords.of(sim, games).visible) == ["x", "number_1"]
    assert main(["guide", "init", f"{line / 'line.py'}:Line", "--out", str(file)]) == 2
    assert "is there already" in capsys.readouterr().err


def test_a_model_gives_the_names(line):
    with serving(lambda body: json.dumps(REPLY)) as (_, url):
        asked = f"endpoint(url='{url}',model='m')"
        said = describe_simulator(f"{line / 'line.py'}:Line", "go right", asked, line / "l.toml")
    assert [o.name for o in said.observations] == ["x", "clock"] and said.actions == ("left", "stay", "right")
    assert (said.observations[1].low, said.observations[1].high) == (0, 5)
    assert said.observations[0].low < -1  # no bound was told: that of games
    assert pl.control.read_description(line / "l.toml").about == REPLY["about"]


@pytest.mark.parametrize("wrong", [{"actions": ["left"]}, {"observations": [{"name": "x y"}, {"name": "b"}]}])
def test_a_reply_that_does_not_fit_is_asked_for_again(wrong, line):
    """Twice the wrong one, then the right one; without that it is a fault."""
    sim = pl.control.simulator_by_name(f"{line / 'line.py'}:Line")
    games = sample_games(sim, ("t",))
    blank = blank_description(sim, "line", "", games)
    replies = iter([REPLY | wrong, REPLY | wrong, REPLY])
    client = pl.Scripted(lambda request: next(replies)).open()
    said = asyncio.run(ask_for_description(client, blank, manual_of(sim), games))
    assert said.actions == ("left", "stay", "right")
    with pytest.raises(Fault, match="no fitting JSON"):
        client = pl.Scripted(lambda request: REPLY | wrong).open()
        asyncio.run(ask_for_description(client, blank, "", games))


def test_two_numbers_of_one_name_are_told_apart(line):
    sim = pl.control.simulator_by_name(f"{line / 'line.py'}:Line")
    games = sample_games(sim, ("t",))
    reply = REPLY | {"observations": [{"name": "x"}, {"name": "x"}]}
    client = pl.Scripted(lambda request: reply).open()
    said = asyncio.run(ask_for_description(client, blank_description(sim, "line", "", games), "", games))
    assert [o.name for o in said.observations] == ["x_0", "x_1"]


def test_an_environment_has_the_bounds_of_its_space_and_its_manual():
    sim = pl.control.simulator_by_name("gymnasium:CartPole-v1")
    blank = blank_description(sim, "CartPole", "", sample_games(sim, ("t",)))
    assert (blank.observations[0].low, blank.observations[0].high) == (-4.8, 4.8)
    assert abs(blank.observations[1].low) < 10  # infinite in its space
    assert "Cart Position" in manual_of(sim)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("simulator = ", "Invalid value"),
        ('about = "x"', "simulator: Field required"),
        ('simulator = "line.py:Line"\nactions = ["a"]', "names 1 actions, and the simulator has 3"),
        ('simulator = "line.py:Line"\nactions = ["a", "A", "b"]', "one of its own"),
        ('simulator = "line.py:Line"\n[[observations]]\nname = "x"\nlow = 1\nhigh = 1', "low has to be below high"),
        ('simulator = "line.py:Line"\nnames = 3', "names: Extra inputs"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(text, said, line):
    (line / "l.toml").write_text(text)
    with pytest.raises(UserError, match=said):
        pl.control.simulator_by_name(str(line / "l.toml"))
    with pytest.raises(UserError, match="No such file"):
        pl.control.simulator_by_name(str(line / "none.toml"))
