"""A part that reads a fact or a column which nobody writes is refused before the first step."""

from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.context import Bench
from palaestra.run.names_read import check_names_read
from palaestra.tasks.mixture import Mixture
from palaestra.worlds.question import Question

CHAIN = Bench("chain", pl.toys.ArithmeticChain(), Question())
GUIDED = pl.rollout.Mark(pl.Sample(2), "helped")


def recipe(collect=None, reads="helped", **changes):
    base = pl.vary(pl.recipe("grpo"), credit=pl.chain(pl.Fact(reads), pl.Center("group")), **changes)
    return base if collect is None else replace(base, collect=collect)


@pl.stage
class Own:
    """A user's stage, which declares nothing."""

    async def __call__(self, ctx, key, group):
        return group


def test_a_fact_that_a_link_writes_is_known():
    check_names_read(recipe(pl.links(GUIDED, pl.Score())), CHAIN)


def test_a_fact_that_nobody_writes_is_refused_with_the_nearest_name():
    where = r"learners\.policy\.credit\.links\.0: Fact reads the fact 'helpd'"
    with pytest.raises(pl.UserError, match=rf"^{where}, which no part of this run writes; did you mean helped\?$"):
        check_names_read(recipe(pl.links(GUIDED, pl.Score()), reads="helpd"), CHAIN)


def test_a_fact_that_is_named_may_be_one_of_other_runs_and_one_that_is_needed_may_not():
    """`Fact` has 0 where an episode has none, so the arm of a claim without guidance names it all the same."""
    check_names_read(recipe(reads="guided"), CHAIN)
    with pytest.raises(pl.UserError, match=r"StepProgress reads the fact 'prefix_values', which no part of this run"):
        check_names_read(pl.vary(pl.recipe("grpo"), credit=pl.chain(pl.credit.StepProgress())), CHAIN)


@pytest.mark.parametrize("world", [pl.toys.Grid(), pl.toys.Hop()])
def test_facts_of_the_world_are_known(world):
    bench = replace(
        CHAIN, world=world, tasks=pl.toys.GridTasks() if isinstance(world, pl.toys.Grid) else pl.toys.HopTasks()
    )
    check_names_read(recipe(reads="executed"), bench)
    with pytest.raises(pl.UserError, match=r"'execute'.*executed"):
        check_names_read(recipe(reads="execute"), bench)


@pytest.mark.parametrize("where", ["stage", "function", "world", "reward"])
def test_what_declares_nothing_and_is_not_of_the_package_may_write_anything(where):
    async def link(ctx, key, group):
        return group

    class World:
        seats = ("policy",)

        def reset(self, task, key): ...
        def step(self, state, acts, key): ...

    async def reward(ctx, group):
        return []

    collect = {"stage": pl.links(pl.Sample(2), Own()), "function": pl.links(pl.Sample(2), link)}.get(where)
    bench = {"world": replace(CHAIN, world=World()), "reward": replace(CHAIN, reward=reward)}.get(where, CHAIN)
    check_names_read(recipe(collect, reads="anything"), bench)


def test_an_own_stage_that_declares_is_checked():
    stage = pl.declare(facts=(("mine", bool, "whether it is mine"),))(type("Declares", (Own,), {}))
    check_names_read(recipe(pl.links(pl.Sample(2), stage()), reads="mine"), CHAIN)
    with pytest.raises(pl.UserError, match=r"'mime'.*did you mean mine"):
        check_names_read(recipe(pl.links(pl.Sample(2), stage()), reads="mime"), CHAIN)


def test_an_adapted_world_may_say_anything():
    from palaestra.worlds.adapters.base import AdaptedWorld

    assert "*" in {each.name for each in AdaptedWorld.writes_facts}


def test_columns_are_those_of_the_first_task_and_of_what_links_write():
    needs = pl.declare(reads_columns=("numbers",))(pl.stage(type("Needs", (), {"__call__": lambda *_: 0.0})))
    collect = pl.links(pl.Sample(2), pl.Score())
    check_names_read(replace(pl.recipe("grpo"), collect=collect), replace(CHAIN, reward=None))
    check_names_read(pl.recipe("grpo"), replace(CHAIN, world=pl.toys.Grid(), tasks=pl.toys.GridTasks()))
    with pytest.raises(pl.UserError, match=r"^world: Grid reads the column 'start', which no part of this run writes"):
        check_names_read(pl.recipe("grpo"), replace(CHAIN, world=pl.toys.Grid()))
    both = Mixture(((pl.toys.ArithmeticChain(), 1.0), (pl.toys.GridTasks(), 1.0)))
    check_names_read(pl.recipe("grpo"), replace(CHAIN, world=pl.toys.Grid(), tasks=both))
    assert needs.reads_columns == ("numbers",)
