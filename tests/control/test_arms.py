"""The arms of a comparison: their numbers, their table, and that each runs once."""

import asyncio

import numpy as np
import palaestra as pl
import pytest
from palaestra.control.arms import arm_table, asked_lines, guide_verdict
from palaestra.types import Meter

from tests.chat_server import serving


class Coin:
    """One step pays the action times a number that is seen; two agents."""

    agents, horizon, observation, actions = 2, 1, 1, 2

    def reset(self, rng, n):
        return np.arange(1.0, n + 1)

    def observe(self, state):
        return np.repeat(state[:, None, None], 2, 1)

    def legal(self, state):
        return None

    def step(self, state, act_nA, rng):
        return state, state[:, None] * act_nA, np.ones(len(state), bool)


def heads(obs, legal, rng):
    return {"act": np.ones(obs.shape[:2], int)}


def test_an_arm_has_its_true_return_beside_what_it_was_rewarded_for():
    """Games pay 2, 4, 6 and 8: 5 on average, with the standard error sqrt(20/3) / 2; the arm's reward is the negative."""
    numbers, paths = pl.control.measure_arm(Coin(), heads, lambda p: -p["reward"], 4, ("a",))
    assert numbers == {
        "return": 5.0,
        "error": pytest.approx((20 / 3) ** 0.5 / 2),
        "learned_from": -5.0,
        "agreement": pytest.approx(-1.0),
    }
    assert pl.control.returns_of(paths).tolist() == [2, 4, 6, 8]
    same, _ = pl.control.measure_arm(Coin(), heads, lambda p: 0 * p["reward"], 4, ("a",))
    assert same["agreement"] == 0.0
    one, _ = pl.control.measure_arm(Coin(), heads, pl.control.as_paid, 1, ("a",))
    assert one["error"] == 0.0 and one["return"] == 2.0


def test_each_arm_runs_once_and_an_exploited_reward_is_said(context, tmp_path):
    runs, said = [], []

    def arm(name, agreement):
        async def run():
            runs.append(name)
            return {"return": 1.5, "agreement": agreement, "env_steps": 8, "curve": [{"reward": 1.0}]}

        return run

    ctx = context(out=tmp_path)
    ctx.say = said.append
    for _ in range(2):
        found = asyncio.run(pl.control.compare_arms(ctx, {"none": arm("none", 1.0), "a guide": arm("guide", -0.5)}))
    assert runs == ["none", "guide"] and "curve" not in found["none"]
    assert sum("may exploit" in s for s in said) == 2 and "a guide" in said[2]
    table = (tmp_path / "arms.md").read_text()
    assert table.startswith("| arm | return | agreement | env_steps |") and "| a guide | 1.5 | -0.5 | 8 |" in table
    assert arm_table({"x": {"return": 1.0}, "y": {"hits": 2}})[2:] == ["| x | 1 |  |", "| y |  | 2 |"]


@pytest.mark.parametrize(
    ("none", "guide", "shuffled", "said"),
    [
        (-200.0, -150.0, None, "The guide helped (-150 a test game against -200)."),
        (-200.0, -150.0, -190.0, "The guide helped"),
        (-200.0, -150.0, -149.0, "what the guide says is not shown to be the reason"),
        (-200.0, -199.0, None, "neither helped nor harmed"),  # the half width is 1.96 * sqrt(2)
        (-200.0, -197.0, None, "The guide helped"),
        (-150.0, -200.0, -200.0, "The guide harmed"),
    ],
)
def test_a_report_begins_with_whether_the_guide_helped(context, tmp_path, none, guide, shuffled, said):
    paid = {"none": none, "guide": guide, "shuffled": shuffled}
    arms = {k: {"return": x, "error": 1.0} for k, x in paid.items() if x is not None}

    def arm(result):
        async def run():
            return result

        return run

    lines = []
    ctx = context(out=tmp_path)
    ctx.say = lines.append
    asyncio.run(pl.control.compare_arms(ctx, {k: arm(x) for k, x in arms.items()}))
    first, blank, table, *_ = (tmp_path / "arms.md").read_text().splitlines()
    assert said in first and "one seed" in first and not blank and table.startswith("| arm |")
    assert first == guide_verdict(arms) == lines[-1]


def test_unequal_training_is_said():
    arms = {
        "none": {"return": 1.0, "error": 0.1, "env_steps": 8_000},
        "guide": {"return": 2.0, "error": 0.1, "env_steps": 3_000},
    }
    assert "trained for 3,000 environment steps and the other for 8,000" in guide_verdict(arms)
    assert "environment steps" not in guide_verdict({k: {**x, "env_steps": 5} for k, x in arms.items()})


def test_games_that_are_all_paid_alike_say_nothing():
    floor = {"return": -200.0, "error": 0.0}
    assert "says nothing of the guide" in guide_verdict({"none": floor, "guide": floor})
    assert "neither helped nor harmed" in guide_verdict({"none": {**floor, "error": 1.0}, "guide": floor})


def test_nothing_is_said_without_a_guide_or_its_comparison():
    assert (
        guide_verdict({"guide": {"return": 1.0}})
        == guide_verdict({"none": {"return": 1.0}, "mra": {"return": 2.0}})
        == ""
    )
    assert guide_verdict({"none": {"return": 1.0}, "guide": {"hits": 2}}) == ""


def test_a_summary_begins_with_the_true_returns():
    found = {"none": {"return": 1.0}, "guide": {"return": 3.0}, "no words": {"return": 2.0}}
    summary = pl.control.arm_summary(found)
    assert list(summary) == ["return", "gain", "return_none", "return_no_words", "arms"]
    assert (summary["return"], summary["gain"], summary["return_no_words"]) == (3.0, 2.0, 2.0)


def test_the_report_counts_the_calls_and_the_money(context, tmp_path):
    """A guide's reply of 5 tokens at 2 a million and its prompt of 10 at 1 cost 20e-6; a second question was answered
    before. A budget that has room for one call ends the run of the arm before the next is sent.
    """
    run = context(out=tmp_path)
    words = lambda text: pl.ChatRequest(messages=pl.services.question_messages(text), max_tokens=20)
    with serving(lambda body: body["messages"][-1]["content"]) as (server, url):
        paid = pl.Endpoint(url=url, model="dear", cache="", max_cost=100e-6, prices=(1.0, 2.0))
        source = pl.services.TranscribedSource(paid)

        async def arm():
            client = run.client(source)
            for text in ("q0", "q0"):
                await client.chat(words(text))
            return {"return": 1.0, "env_steps": 8}

        async def too_dear():
            await run.client(source).chat(words("q" * 40))
            return {"return": 1.0}

        asyncio.run(pl.control.compare_arms(run, {"none": arm}))
        assert (
            "dear: 1 calls (15 tokens, which cost 2e-05 by its prices); replies that were there already: 1."
            in (tmp_path / "arms.md").read_text()
        )
        with pytest.raises(pl.Fault, match="chat-budget"):
            asyncio.run(pl.control.compare_arms(run, {"guide": too_dear}))
        assert len(server.seen) == 1
    assert asked_lines({"idle": Meter()}) == []
