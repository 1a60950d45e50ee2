"""Demonstrated verdicts are true."""

import asyncio

from palaestra.claims.starts import DemonstrateVerdict
from palaestra.tasks.procedural import final_answer
from palaestra.types import Group


def test_demonstrated_verdicts_are_true(context):
    ctx = context("chain")
    task, found = ctx.bench.tasks.task("train", 0), []
    for i in range(16):
        (e,) = asyncio.run(DemonstrateVerdict()(ctx, (i,), Group(task=task))).episodes
        shown, said = "".join(s.text for s in e.rows[0].segments[:-1]), e.rows[0].segments[-1].text
        answers = final_answer(shown.removesuffix("<|assistant|>").removesuffix("<|end|>"))
        assert said.splitlines()[-1] == ("= right" if answers == task.answer else "= wrong"), (shown, said)
        found.append((said.splitlines()[-1], "\n" in said))
    assert len(set(found)) == 4  # right and wrong, worked and at once
