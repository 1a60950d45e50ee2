"""A world whose answers are hidden."""

import asyncio

from palaestra.toys.hop import Hop, HopTasks
from palaestra.worlds.blind import Blind


def test_a_blind_world_hides_its_answers():
    from palaestra.types import Act

    world, task = Blind(Hop()), HopTasks().task("train", 0)
    frame = asyncio.run(world.reset(task, ()))
    act = Act(ask=frame.asks[0], text=f"SEARCH({task.meta['path'][0]})", call=None, finish="eos", n_tokens=1)
    after = asyncio.run(world.step(frame.state, (act,), ()))
    assert frame.asks[0].say == task.prompt and [m.content for m in after.asks[0].say] == ["ok"]
    assert after.state_key == Hop().step(frame.state, (act,), ()).state_key
