"""T-tastes: what questions cost and items are worth, and that the recorded talks are poor ones."""

import numpy as np
import pytest
from palaestra.toys.tastes import TasteTalks, TasteUser, worth
from palaestra.types import Act, Ask, Message, Task

near = lambda x: pytest.approx(x, abs=1e-9)


def say(text):
    return (Act(ask=Ask(seat="policy"), text=text, call=None, finish="eos", n_tokens=1),)


def test_a_talk():
    """A question costs .05; the item for the user's taste pays 1."""
    world = TasteUser()
    frame = world.reset(Task(id="t", prompt=(Message(role="user", content="hi"),), answer="010000"), ())
    assert world.step(frame.state, say(world.oracle(frame.state)), ()).pay == {("policy", ""): 1.0}
    heard = []
    for text in ("ask b", "ask a", "nonsense"):
        frame = world.step(frame.state, say(text), ())
        heard.append(frame.asks[0].say[0].content)
    assert heard == ["yes", "no", "what?"]
    paid = {t: world.step(frame.state, say(t), ()).pay[("policy", "")] for t in ("take b1", "take b0", "take", "ask c")}
    assert paid == {"take b1": near(0.85), "take b0": near(-0.15), "take": near(-0.15), "ask c": near(-0.2)}


def test_recorded_talks():
    """Their rewards are those of the user, and their mean is that of poor agents: between .4 and .7."""
    tasks = [TasteTalks().task("train", i) for i in range(300)]
    for t in tasks[:50]:
        questions = [m.content for m in t.prompt if m.role == "assistant"]
        assert t.meta["imitated"] == tuple(i for i, m in enumerate(t.prompt) if m.role == "assistant")
        item = t.meta["demonstration"].removeprefix("take ")
        assert t.meta["reward"] == [-0.05] * len(questions) + [worth(t.answer, item)]
    assert 0.4 < np.mean([sum(t.meta["reward"]) for t in tasks]) < 0.7
    users = [{TasteTalks().task(split, i).answer for i in range(600)} for split in ("train", "test")]
    assert len(users[0]) == 56 and len(users[1]) == 8 and not users[0] & users[1]
