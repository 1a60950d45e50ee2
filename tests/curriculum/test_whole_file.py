"""No draw cuts a user's file by default."""

import asyncio
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra import values
from palaestra.curriculum.arms import count_tasks
from palaestra.curriculum.difficulty import EasyToHard
from palaestra.curriculum.prioritised import Prioritised
from palaestra.types import Message, Task

OPEN = {  # the field that says how many tasks a method looks at
    "adcl-egsr": ({}, "draw.tasks"),
    "guru": ({}, "recipe.draw.candidates"),
    "kimi-k1.5": ({"sampling": "prioritised"}, "draw.problems"),
    "sws": ({}, "draw.seeds"),
}


class Rows:
    """700 records, as of a file."""

    name, size, test_size = "rows", 700, 0

    def task(self, split, index):
        return Task(id=str(index), prompt=(Message(role="user", content=f"{index}"),), answer="1")


@pytest.mark.parametrize("method", OPEN)
def test_a_method_looks_at_the_whole_file_unless_told_otherwise(method):
    options, path = OPEN[method]
    assert dict(values.walk(pl.recipe(method, **options)))[path] is None


def test_how_many():
    assert [count_tasks(None, size, 512) for size in (7, 700, None)] == [7, 700, 512]
    assert [count_tasks(64, size, 512) for size in (7, 700, None)] == [7, 64, 64]


@pytest.mark.parametrize(("asked", "seen"), [(None, 700), (512, 512)])
def test_every_record_is_drawn_in_one_pass(context, asked, seen):
    ctx = context()
    ctx.bench = replace(ctx.bench, tasks=Rows())
    ordered, _ = asyncio.run(EasyToHard(asked, 1)(ctx, (0,), seen, {}))
    assert len({t.id for t in ordered}) == seen
    weighted, _ = Prioritised(asked)(ctx, (0,), seen, {})
    assert len({t.id for t in weighted}) == seen
