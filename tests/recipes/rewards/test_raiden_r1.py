"""RAIDEN-R1: keys of a role, words of the reply only, and rewards of stand-ins."""

import asyncio

import numpy as np
import pytest
from palaestra.claims.rewards import raiden_r1 as raiden_r1_claim
from palaestra.errors import UserError
from palaestra.recipes.rewards import raiden_r1
from palaestra.services.chat.scripted import Scripted
from palaestra.types import Message, Task
from palaestra.values import vary

from tests.rewards.texts import asked, totals

KEYS = [["london"], ["doctor", "physician"]]
THOUGHT = "<think>In character.</think>"


def roles(*texts, **settings):
    reward = raiden_r1.build(**settings).collect.links[1].reward
    return totals(reward, asked("Who are you, and where?", KEYS, keys=True), *texts)


def test_raiden_reference_values():
    assert roles("I am a physician in London", "I am a doctor", "<think>London, doctor</think>I will not say") == [
        1,
        0,
        0.5,
    ]
    assert roles(f"{THOUGHT}I am a physician in London.") == [1.5]
    broken = f"{THOUGHT}{THOUGHT}A doctor, of London"
    assert roles(broken) == [1] and roles(broken, gated=True) == [0] and roles(broken, weight=0.2) == [1]


def test_raiden_reads_its_keys_from_their_own_column():
    reward = raiden_r1.build().collect.links[1].reward
    assert totals(reward, asked("q", None, keys=KEYS), "a doctor in London", "a doctor") == [1, 0]


def test_raiden_matches_words_of_the_reply_only():
    assert roles("", THOUGHT, "Londoners, doctoral", "<think>London doctor") == [0, 0, 0, 0]
    assert roles("ＬＯＮＤＯＮ, Doctor") == [1]
    stuffed = asked("q", KEYS, keys=True, others=["Oslo"], forbidden=["not a doctor"])
    reward = raiden_r1.build().collect.links[1].reward
    assert totals(reward, stuffed, "London, Oslo: doctor", "I am not a doctor in London", "doctor, London") == [0, 0, 1]
    assert totals(reward, asked("q", [["北京"]], keys=True), "我住在北京市") == [1]


@pytest.mark.parametrize("kind", ["single-term", "multi-term", "no guard", "graded"])
def test_raiden_rewards_of_stand_ins(kind):
    rng = np.random.default_rng(0)
    for _ in range(20):
        task = raiden_r1_claim.persona(rng)
        worth = {
            k: raiden_r1_claim.pay_reply(kind, raiden_r1_claim.response(k, task, rng), task)
            for k in raiden_r1_claim.RIGHT + raiden_r1_claim.WRONG
        }
        assert worth["plain"] >= 0.7 and worth["unthought"] == worth["silence"] == 0
        if kind == "multi-term":
            assert [worth[k] for k in raiden_r1_claim.RIGHT] == [1, 1, 1] and sum(
                worth[k] for k in raiden_r1_claim.WRONG
            ) == 0
        else:
            assert worth["stuffed"] >= 0.7  # the exploit: naming every key there is


def test_raiden_separation_is_a_program(context):
    run = lambda kind, seed: asyncio.run(raiden_r1_claim.Separation(kind, 40).run(context(seed=seed))).metrics
    assert run("multi-term", 0)["separation"] == 1 and run("multi-term", 0)["stuffed"] == 0
    assert run("single-term", 0) == run("single-term", 0) != run("single-term", 1)
    assert run("single-term", 0)["separation"] < 1


PROFILES = ("You are Ann, a doctor of London. Where do you work?", "You are Bo, a cook. What is your work?")


def profiles(ctx, key, n, state):
    at = state.get("at", 0)
    asked = lambda i: (Message(role="user", content=PROFILES[i % 2]),)
    return [Task(id=f"p{i % 2}", prompt=asked(i)) for i in range(at, at + n)], {"at": at + n}


def miner(ann, bo):
    return Scripted(lambda r: ann if "Ann" in r.messages[-1].content else bo, f"{ann}/{bo}")


def test_keys_are_those_that_all_miners_name(context, tmp_path):
    """On the cook's keys they do not agree, so his record is not trained on."""
    first = miner("1. doctor | physician\n- London | the capital", "cook")
    other = miner("<think>Hm.</think>London\nAnn", "NONE")
    recipe = raiden_r1.build(miner=first, second=other)
    ctx = context(out=tmp_path)
    tasks, state = asyncio.run(vary(recipe.draw, source=profiles)(ctx, ("k",), 2, {}))
    assert [t.id for t in tasks] == ["p0", "p0"] and tasks[0].meta["keys"] == [["London", "the capital"]]
    assert (state["asked"], state["failed"]) == (2, 1)
    assert totals(recipe.collect.links[1].reward, tasks[0], "In the capital.", "In Paris.") == [1, 0]
    assert {f.name for f in (tmp_path / "written").iterdir()} == {"keys.jsonl", "keys.failed.jsonl"}
    alone = vary(raiden_r1.build(miner=first).draw, source=profiles)
    tasks, _ = asyncio.run(alone(context(), ("k",), 2, {}))
    assert [len(t.meta["keys"]) for t in tasks] == [2, 1]
    with pytest.raises(UserError, match="give miner"):
        raiden_r1.build(second=other)


@pytest.mark.parametrize("reply", ["NONE", "", "a\nb\nc\nd", "Paris", "<think>doctor</think>"])
def test_a_miners_reply_without_keys_of_the_profile_is_none(reply):
    assert raiden_r1.read_keys(reply, profiles(None, (), 1, {})[0][0]) is None
