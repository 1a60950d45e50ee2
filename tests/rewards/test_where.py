"""One reward where a column is there, and another elsewhere."""

import pytest
from palaestra.errors import Fault, UserError
from palaestra.rewards.where import Where
from palaestra.types import Reward

from tests.rewards.texts import asked, exact_reward, paid, totals


def test_where_needs_some_reward():
    with pytest.raises(UserError, match="no column 'files'"):
        totals(Where("files", exact_reward()), asked(), "= 3")


def test_where_a_column_is_there_if_it_is_not_null():
    async def one(ctx, group):
        return [Reward(total=1.0)] * len(group.episodes)

    where = Where("files", one, exact_reward())
    assert [totals(where, asked(files=x), "= 4")[0] for x in ({}, 0, "", False, [1], None)] == [1, 1, 1, 1, 1, 0]
    assert totals(where, asked(), "= 3", "= 4") == [1, 0]


def test_where_gives_a_fault_of_its_reward_to_each_episode():
    async def dead(ctx, group):
        raise Fault("chat-500", "down")

    found = paid(Where("files", dead), asked(files={}), "a", "b")
    assert [f.cause for f in found] == ["chat-500"] * 2
