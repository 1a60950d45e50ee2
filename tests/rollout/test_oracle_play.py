"""Demonstrations of whole games by a world's oracle."""

import asyncio

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.rollout.recorded import Demonstrate
from palaestra.types import Group


def shown(ctx, i=0):
    task = ctx.bench.tasks.task("train", i)
    return asyncio.run(Demonstrate()(ctx, ("d", i), Group(task=task))).episodes[0]


@pytest.mark.parametrize("world", ["grid", "hop", "lookup"])
def test_the_oracle_solves_and_its_words_alone_are_trained(context, world):
    ctx = context(world)
    try:
        episode = shown(ctx)
    finally:
        ctx.close()
    assert episode.status == "finished" and episode.reward.total == 1.0 and not episode.reward.judged
    said = [s for r in episode.rows for s in r.segments if s.trained]
    assert len(said) > 1 and {s.author for s in said} == {"demonstration"}
    assert all(s.logp is None and s.version is None and s.finish == "eos" for s in said)
    assert all(s.ids == (*ctx.engine().dialect.encode_text(s.text), ctx.engine().dialect.end) for s in said)
    assert episode.oldest() is None  # no age: it may be imitated at any step


def test_other_seats_keep_their_players(context):
    episode = shown(context("tictactoe"))
    authors = {s.author for r in episode.rows for s in r.segments}
    assert "demonstration" in authors
    assert all(s.policy in ("", "policy") for r in episode.rows for s in r.segments)


def test_sft_learns_a_game_from_its_oracle(context, small):
    recipe = small(pl.recipe("sft"), **{"schedule.prompts": 4})
    result = asyncio.run(recipe.run(context("grid", steps=2, evaluate=2)))
    assert result.metrics["loss_after"]["mean"] < result.metrics["loss_before"]["mean"]


def test_an_oracle_that_does_not_end_its_game_is_named(context):
    class Mute(type(context("grid").bench.world)):
        def oracle(self, state):
            return "nowhere"

    ctx = context(bench=pl.Bench(name="mute", tasks=context("grid").bench.tasks, world=Mute(), max_turns=2))
    with pytest.raises(UserError, match="its oracle's game is not over"):
        shown(ctx)
