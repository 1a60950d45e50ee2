"""Forced thinking: it goes on, and then it ends; its cues carry no gradient."""

from palaestra.context import Bench
from palaestra.rollout.collect import Sample
from palaestra.toys.judging import CompareAnswers
from palaestra.types import Act, Ask, Group, Message, Task
from palaestra.worlds.forced import Forced

from tests.recipes.rewards.helpers import run


def act(text, finish="stop"):
    return (Act(ask=Ask(seat="policy"), text=text, call=None, finish=finish, n_tokens=len(text)),)


def test_forced_thinking_goes_on_and_then_ends():
    world, gold = Forced(rounds=2), Task(id="t", prompt=(Message(role="user", content="?"),), answer="1")
    frame = world.reset(gold, ())
    for _ in range(2):
        frame = world.step(frame.state, act("thoughts\n= "), ())
        assert frame.asks[0].prefix == "?\n" and frame.asks[0].stop == ("= ",)
    frame = world.step(frame.state, act("thoughts\n= "), ())
    assert frame.asks[0].prefix == "" and frame.asks[0].max_tokens == 8  # the mark is there: the answer is due
    end = world.step(frame.state, act("1", "eos"), ())
    assert not end.asks and end.pay == {("policy", ""): 1.0} and end.facts["answer"] == "1"
    frame = world.step(world.reset(gold, ()).state, act("endless", "length"), ())
    assert frame.asks[0].prefix == "\n= "  # out of budget: the mark is put in
    assert world.step(frame.state, act("\n= 2", "eos"), ()).pay == {("policy", ""): 0.0}
    assert world.step(frame.state, act("\n= 1", "eos"), ()).pay == {("policy", ""): 1.0}  # the mark is no part of it
    frame = world.reset(gold, ())
    for _ in range(2):
        frame = world.step(frame.state, act("thoughts\n= "), ())
    early = world.step(frame.state, act("1", "eos"), ())  # an end in the last round of thinking is no answer
    assert not early.asks and early.pay == {("policy", ""): 0.0} and early.facts["answer"] is None
    silent = world.step(world.reset(gold, ()).state, act("no verdict", "eos"), ())
    assert not silent.asks and silent.pay == {("policy", ""): 0.0} and silent.facts["answer"] is None


def test_cues_of_forced_thinking_carry_no_gradient(context):
    ctx = context(bench=Bench(name="forced", tasks=CompareAnswers(), world=Forced(rounds=2), max_tokens=24))
    group = run(Sample(n=2)(ctx, (0,), Group(task=ctx.bench.tasks.task("train", 0))))
    assert all(e.ok and len(e.rows) == 1 and e.reward is not None for e in group.episodes)
    forced = [s for e in group.episodes for s in e.rows[0].segments if s.author == "forced"]
    assert forced and not any(s.trained for s in forced) and all(s.logp is None for s in forced)
    spoken = [s for e in group.episodes for s in e.rows[0].segments if s.trained]
    assert all(s.logp is not None and len(s.logp) == len(s.ids) for s in spoken)
