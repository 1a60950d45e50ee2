"""A search in prompt blocks that a navigator chooses."""

import asyncio

import palaestra as pl
import pytest
from palaestra.worlds.blocks import BlockSpaces

from tests.search.fake import problem_of

PROMPTS = pl.worlds.BlockPrompts(so_far="|", reason="|reason", terminate="|answer", grade="|grade")


def navigator(folder, *heads):
    """A navigator that chooses by its biases alone."""
    values = pl.control.DoubleQ(dueling=True, width=4).start(BlockSpaces(), ("n",))
    last = values.net[-1]
    last.weight.data.zero_()
    last.bias.data = last.bias.data.new_tensor([0.0, *heads])
    pl.control.save_policy(values, folder)
    return str(folder)


def says(begun, key):
    """By the name of the random stream: `blocks CHAIN PATH NAME`."""
    chain, name = int(key[3].split()[1]), key[3].split()[-1]
    return {"grade": "2222222", "step": "so", "end": f"= {(5, 4, 5)[chain % 3]}"}[name]


def test_the_answers_of_all_chains_vote(context, tmp_path):
    """A chain: grade 8, step 3, grade 8, step 3 and grade 8 again, then the forced end 4 tokens."""
    folder = navigator(tmp_path, 1.0, 0.0, 0.0, 0.0, 0.5)
    problem, engine = problem_of(context(), says, 150, max_tokens=12)
    result = asyncio.run(pl.search.NavigatedBlocks(folder, limit=3, prompts=PROMPTS)(problem))
    assert (pl.response_text(result.episode), result.score, result.candidates) == ("= 5", 3, 5)
    assert not problem.oracle and problem.tokens.spent <= 150
    paths = [key[3] for key in engine.calls][:6]
    assert [p.removeprefix("blocks 0 ") for p in paths] == [
        " grade", "reason step", "reason grade", "reason reason step", "reason reason grade", "reason reason terminate end",
    ]  # fmt: skip


def test_a_chain_ends_where_little_is_left(context, tmp_path):
    folder = navigator(tmp_path, 1.0, 0.0, 0.0, 0.0, 0.5)
    problem, engine = problem_of(context(), says, 30, max_tokens=12)
    result = asyncio.run(pl.search.NavigatedBlocks(folder, limit=9, prompts=PROMPTS)(problem))
    assert [k[3] for k in engine.calls][:2] == ["blocks 0  grade", "blocks 0 terminate end"]
    assert pl.response_text(result.episode) == "= 5"


def test_without_a_navigator_it_says_how_to_train_one(context):
    problem, _ = problem_of(context(), says, 30)
    with pytest.raises(pl.UserError, match="palaestra train rlot"):
        asyncio.run(pl.search.NavigatedBlocks()(problem))


def test_another_navigator_in_the_folder_is_another_search(tmp_path):
    """A search is not gone on with where the folder was trained again."""
    folder = navigator(tmp_path / "n", 1.0, 0.0, 0.0, 0.0, 0.5)
    given = {"task": "chain", "n": 1, "budget": 40, "max_tokens": 12, "out": tmp_path / "s"}
    pl.search.run(strategy=f"rlot(navigator='{folder}')", **given)
    navigator(tmp_path / "n", 0.0, 0.0, 0.0, 0.0, 0.5)
    with pytest.raises(pl.UserError, match="its files is"):
        pl.search.run(strategy=f"rlot(navigator='{folder}')", **given)
