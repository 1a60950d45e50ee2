"""Collab as a strategy: a mixture of agents within a budget of tokens."""

import json
import shutil

import palaestra as pl
import pytest
from palaestra.models.embedded import FOLDERS

REWARD = """
def more(responses, answers, **fields):
    return [len(x) / 64 for x in responses]
"""
GIVEN = {"task": "add(d=3)", "n": 3, "max_tokens": 24}


@pytest.fixture
def long(tmp_path):
    """A target that no agent was aligned with: the length of an answer."""
    (tmp_path / "long.py").write_text(REWARD)
    return f"{tmp_path}/long.py:more"


def search(budget, reward="", agents="policy,tiny", alpha=0.0, **given):
    strategy = f"collab(agents='{agents}',alpha={alpha})"
    return pl.search.run(strategy=strategy, budget=budget, reward_model=reward, **GIVEN, **given)


def test_a_mixture_meets_a_target_better_than_its_first_agent_within_the_budget(long):
    """One token less than an answer and a search at its first place need: the agent alone, greedily."""
    off, on = search(24 + 2, long), search(600, long)
    assert all(x["score"] == len(x["response"]) / 64 and x["tokens"] <= 24 for x in off["answers"])
    gains = [b["score"] - a["score"] for a, b in zip(off["answers"], on["answers"], strict=True)]
    assert min(gains) > 0.25
    assert not on["oracle"] and 27 < on["most_tokens"] <= 600


@pytest.mark.parametrize("budget", [1, 20, 27, 28, 60, 200])
def test_no_budget_is_exceeded(budget, long):
    assert 0 < search(budget, long)["most_tokens"] <= budget


def test_agents_that_are_the_reference_pay_no_kl(long):
    free, bound = search(300, long), search(300, long, alpha=100.0)
    assert [x["response"] for x in free["answers"]] == [x["response"] for x in bound["answers"]]


def test_a_stopped_search_goes_on_to_the_same_bytes(tmp_path):
    whole = search(200, out=tmp_path / "a")
    assert whole["oracle"] and whole["strategy"].endswith("(oracle)")
    lines = (tmp_path / "a/answers.jsonl").read_bytes()
    (tmp_path / "a/answers.jsonl").write_bytes(lines.splitlines(keepends=True)[0])
    again = search(200, out=tmp_path / "a")
    assert (tmp_path / "a/answers.jsonl").read_bytes() == lines and again["accuracy"] == whole["accuracy"]


def test_another_agent_in_the_folder_is_another_search(tmp_path):
    shutil.copytree(FOLDERS["tiny"], folder := tmp_path / "agent")
    agents = f"policy,{folder}"
    search(40, agents=agents, out=tmp_path / "a")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"note": 1}))
    with pytest.raises(pl.UserError, match="its files is"):
        search(40, agents=agents, out=tmp_path / "a")


def test_without_agents_and_in_several_turns_it_says_what_to_do():
    with pytest.raises(pl.UserError, match=r"agents='DIR,DIR'"):
        pl.search.run(strategy="collab", budget=30, **GIVEN)
    with pytest.raises(pl.UserError, match="mcts"):
        pl.search.run(strategy="collab(agents='tiny')", budget=30, task="grid", n=1)
    with pytest.raises(pl.UserError, match="another vocabulary"):
        search(60, agents="policy,tiny-agent")


def test_it_stands_in_a_curve(long):
    curve = pl.search.accuracy_curve(
        task="add(d=1)", strategies=["collab(agents='policy')"], budget=120, n=4, max_tokens=12
    )
    points = curve["curves"]["collab(agents='policy') (oracle)"]["points"]
    assert [p["budget"] for p in points] == [15, 30, 60, 120]
    assert all(p["tokens"] <= p["budget"] for p in points)
