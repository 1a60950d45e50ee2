"""Going on where an answer stopped: partial rollouts, prefixes and their values, branches."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest
from palaestra.context import Bench
from palaestra.credit.steps import StepPairs
from palaestra.curriculum.partial import Whole
from palaestra.errors import Fault, UserError
from palaestra.rollout.branch import Finished, MarkSteps, Partial, PrefixValues, Rescue, prefix, sample_continuations
from palaestra.rollout.collect import Sample as Play
from palaestra.rollout.collect import Score, links
from palaestra.rollout.player import Continued, EnginePlayer
from palaestra.rollout.recorded import recorded_episode
from palaestra.rollout.steps import answer_steps
from palaestra.types import Ask, Completion, Episode, Frame, Group, Message, Reward, Row, Sampling, Segment, Task

from tests.rollout.helpers import answer


def test_partial_rollouts_go_on_where_they_stopped(context):
    """Capped at 6 tokens an iteration, a group ends as answers whose first tokens are those sampled first."""
    ctx = context()
    collect, pool = links(Partial(n=3, cap=6), Finished(Score())), Whole()
    group = Group(task=ctx.bench.tasks.task("train", 0))
    begun = asyncio.run(collect(ctx, (0, "x"), group))
    assert all(len(e.rows[0].segments[-1].ids) <= 6 for e in begun.episodes)
    running = [i for i, e in enumerate(begun.episodes) if e.status == "running"]
    assert running and all(begun.episodes[i].reward is None for i in running)
    ready, again, _ = asyncio.run(pool(ctx, [begun], {}))
    assert ready is None and again == [begun]
    ctx.at(None, 1)
    more = begun
    for n in range(20):
        more = asyncio.run(collect(ctx, (0, "y", n), more))
        if all(e.status != "running" for e in more.episodes):
            break
    for i in running:
        before, after = begun.episodes[i].rows[0].segments[-1], more.episodes[i].rows[0].segments[-1]
        assert after.ids[:6] == before.ids and after.logp[:6] == before.logp
        assert after.version == 0 and len(after.ids) <= ctx.bench.max_tokens
        assert after.versions == ((6, 0), (len(after.ids) - 6, 1)) or len(after.ids) == 6
        assert after.text == ctx.decode(after.ids[:-1] if after.finish == "eos" else after.ids)
    assert all(e.reward is not None for e in more.episodes)


class Short:
    """Two turns of at most `most` tokens, paid by their tokens."""

    seats = ("policy",)
    most = 4

    def reset(self, task, key):
        return Frame(state=(), asks=(Ask(seat="policy", say=task.prompt, max_tokens=self.most),))

    def step(self, state, acts, key):
        state = (*state, acts[0].n_tokens)
        asks = self.reset(Task(id="t"), key).asks if len(state) < 2 else ()
        return Frame(state=state, asks=asks, pay={} if asks else {("policy", ""): float(sum(state))})


def turns_of(e):
    return [s for s in e.rows[0].segments if s.trained]


@pytest.mark.parametrize("cap", [2, 4, 8])
def test_a_turn_is_whole_where_the_world_ends_it(cap, context):
    """The world allows four tokens of the bench's 64: a rollout waits for the cap alone, and no turn outgrows the world."""
    ctx = context(bench=Bench(name="short", tasks=None, world=Short(), max_tokens=64))
    group = Group(task=Task(id="t", prompt=(Message(role="user", content="1+2+3+4+5"),)))
    played = []
    for n in range(6):
        group = asyncio.run(Partial(n=2, cap=cap)(ctx, (n,), group))
        played.append(group.episodes)
        assert all((e.reward is None) == (e.status == "running") for e in group.episodes)
    for e in group.episodes:
        assert e.status != "running" and len(turns_of(e)) == 2 and max(len(s.ids) for s in turns_of(e)) <= 4
        assert e.total == sum(len(s.ids) for s in turns_of(e))
    assert any(e.status == "running" for e in played[0]) == (cap < 4)
    assert max(len(s.ids) for e in group.episodes for s in turns_of(e)) == 4


def test_a_begun_answer_that_fills_the_context_ends(context):
    ctx = context()
    collect, group = Partial(n=2, cap=3), Group(task=ctx.bench.tasks.task("train", 0))
    begun = asyncio.run(collect(ctx, (0,), group))
    vars(ctx.model("policy"))["context"] = len(begun.episodes[0].rows[0].context())
    ended = asyncio.run(collect(ctx, (1,), begun)).episodes[0]
    assert ended.status == "truncated:length"
    assert turns_of(ended)[0].ids == turns_of(begun.episodes[0])[0].ids


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_a_partial_run_has_the_right_behaviour_log_probs(temperature, context):
    """Law 11 for rollouts that were put together from parts, weights unchanged."""
    ctx = context()
    collect = links(*(Partial(n=4, cap=cap, temperature=temperature) for cap in (5, 5, 64)))
    group = asyncio.run(collect(ctx, (0,), Group(task=ctx.bench.tasks.task("train", 1))))
    signals = ctx.measure([group], (("policy", "logp"),))[0]
    for e, rows in zip(group.episodes, signals, strict=True):
        view = e.rows[0].view()
        assert rows[0]["policy_logp"][view.trained_T] == pytest.approx(view.logp_T[view.trained_T], abs=1e-5)


def test_continuations_begin_with_the_prefix(context):
    ctx = context()
    e = answer(ctx, "\n".join([*ctx.bench.tasks.steps(ctx.bench.tasks.task("train", 0)), "= 7"]))
    first = answer_steps(e, ctx.decode)[0]
    task = ctx.bench.tasks.task("train", 0)
    tried = asyncio.run(sample_continuations(ctx, (0,), Group(task=task), prefix(e, first.turn, first.kept), 3))
    logp = e.rows[0].segments[-1].logp[: first.kept]
    for t in tried:
        assert t.rows[0].segments[-1].logp[: first.kept] == logp and t.rows[0].segments[-1].logp[first.kept :] != logp
        assert t.text.startswith(first.text + "\n") and t.reward is not None
        assert (
            t.rows[0].context()[: len(e.rows[0].segments[0].ids) + first.kept] == e.rows[0].context()[: first.token + 1]
        )


def test_a_prefix_is_what_was_said_up_to_there():
    """Two rows of turns 0 and 2, 1 and 3: a prefix in turn 2 holds turns 0 and 1 and nothing of turn 3."""
    said = lambda turn: Segment(
        ids=tuple(10 * turn + k for k in range(3)), logp=(-turn, -turn - 0.25, -turn - 0.5), turn=turn, finish="eos"
    )
    heard = lambda turn: Segment(ids=(90 + turn,), turn=turn)
    first, second = (Row(segments=tuple(f(t) for t in turns for f in (heard, said))) for turns in ((0, 2), (1, 3)))
    found = prefix(Episode(rows=(first, second)), 2, 2)
    broken = replace(said(2), ids=(20, 21), logp=(-2, -2.25), finish="")
    assert sorted(found.said, key=lambda s: s.turn) == [said(0), said(1), broken]
    assert found.context == (90, 0, 1, 2, 92, 20, 21)


def test_a_continuation_from_the_end_of_a_turn_goes_on_in_the_next(context):
    """Nothing is sampled after an end token."""
    ctx = context(bench=Bench(name="short", tasks=None, world=Short(), max_tokens=64))
    ctx.bench.world.most = 12
    group = Group(task=Task(id="t", prompt=(Message(role="user", content="1+2 mod 10"),)))
    (e,) = asyncio.run(Play(n=1)(ctx, (0,), group)).episodes
    first, _ = turns_of(e)
    assert first.finish == "eos"
    for t in asyncio.run(sample_continuations(ctx, (0,), group, prefix(e, first.turn, len(first.ids)), 3)):
        assert turns_of(t)[0] == first and len(turns_of(t)) == 2


def test_a_stop_string_may_begin_in_what_was_said_before():
    """Two tokens were said, the engine looks only at the five after them; the first place where a stop string ends counts."""
    spelt = lambda ids: "".join(map(chr, ids))
    more, begun = tuple(map(ord, "= 7= ")), Segment(ids=tuple(map(ord, "x\n")), logp=(-6.0, -7.0), turn=3)

    def act(finish, *stop):
        async def generate(prompt, sampling, key):
            return Completion(ids=more, logp=(-1.0, -2.0, -3.0, -4.0, -5.0), text=spelt(more), cut=5, finish=finish)

        engine = SimpleNamespace(dialect=SimpleNamespace(decode=spelt), generate=generate)
        player = Continued(player=EnginePlayer(engine=engine, sampling=Sampling()), said=(begun,), cap=5)
        return asyncio.run(player.act(Row(), (), Ask(seat="policy", stop=stop), ("k", 3)))

    for finish in ("stop", "length", "eos"):
        found = act(finish, "\n= ", "7=")
        assert (found.text, found.cut, found.finish) == ("x\n= ", 4, "stop")
        assert (spelt(found.ids), found.logp) == ("x\n= ", (-6.0, -7.0, -1.0, -2.0))
    found = act("stop", "7= ")
    assert (found.text, found.cut, found.finish) == ("x\n= 7= ", 7, "stop")
    found = act("length", "8")
    assert (found.text, found.cut, found.finish, len(found.logp)) == ("x\n= 7= ", 7, "", 7)


def test_prefix_values_know_a_hopeless_prefix_from_a_sure_one(context):
    ctx = context()
    task = ctx.bench.tasks.task("train", 0)
    work = ctx.bench.tasks.steps(task)
    right, lost = answer(ctx, "\n".join([*work, f"= {task.answer}"])), answer(ctx, "\n".join([*work, "= 99"]))
    group = asyncio.run(PrefixValues(n=4)(ctx, (0,), Group(task=task, episodes=(right, lost))))
    a, b = (e.facts["prefix_values"] for e in group.episodes)
    assert len(a) == len(work) + 2 == len(b) and a[0] == b[0] == 0.5
    assert a[1:-1] == b[1:-1]  # shared prefixes are estimated once
    assert a[-1] == 1.0 and b[-1] == 0.0
    assert a[-2] > 0.5  # the working is done: the answer can be read off
    only = asyncio.run(PrefixValues(n=1, wrong_only=True)(ctx, (0,), Group(task=task, episodes=(right, lost))))
    assert ["prefix_values" in e.facts for e in only.episodes] == [False, True]
    assert only.episodes[1].facts["prefix_values"][0] == 0.5  # of the group, not of those that get values


def test_values_of_graded_rewards_count_what_is_right(context):
    """Rewards 0.9 and 0.2: their mean is .55; from 0.8 on one of two is right, and what ends at 0.9 is 1."""

    async def graded(ctx, group):
        return [Reward(total=0.9) for _ in group.episodes]

    ctx = context()
    ctx.bench = replace(ctx.bench, reward=graded)
    task = ctx.bench.tasks.task("train", 0)
    pair = [
        replace(answer(ctx, text), reward=Reward(total=x)) for text, x in (("1+2=3\n= 3", 0.9), ("1+2=3\n= 4", 0.2))
    ]
    for right, wanted in ((None, [(0.55, 0.9, 0.9), (0.55, 0.9, 0.2)]), (0.8, [(0.5, 1, 1), (0.5, 1, 0)])):
        group = asyncio.run(PrefixValues(n=2, right=right)(ctx, (0,), Group(task=task, episodes=tuple(pair))))
        assert [e.facts["prefix_values"] for e in group.episodes] == [pytest.approx(x) for x in wanted]


def test_a_failing_judge_makes_an_error_not_a_value(context):
    async def broken(ctx, group):
        raise Fault("judge", "gone")

    ctx = context()
    e = answer(ctx, "1+2=3\n= 2")
    ctx.bench = replace(ctx.bench, reward=broken)
    group = asyncio.run(PrefixValues(n=2)(ctx, (0,), Group(task=ctx.bench.tasks.task("train", 0), episodes=(e,))))
    assert group.episodes[0].status == "error:judge" and "prefix_values" not in group.episodes[0].facts


def test_a_world_that_does_not_repeat_itself_is_refused(context):
    from palaestra.types import Message

    ctx = context()
    e, other = answer(ctx, "1+2=3\n= 2"), ctx.bench.tasks.task("train", 0)
    strayed = replace(other, prompt=(Message(role="user", content="2+2 mod 10"),))
    with pytest.raises(UserError, match="does not repeat itself"):
        asyncio.run(sample_continuations(ctx, (0,), Group(task=strayed), prefix(e, 0, 4), 1))


async def nothing(ctx, group):
    return [Reward(total=0.0)] * len(group.episodes)


def test_branches_share_their_prefix_with_the_wrong_answer(context):
    """The chosen row is a right continuation from before the pit; gradients of what both rows share cancel."""
    ctx = context()
    task = ctx.bench.tasks.task("train", 0)
    work = ctx.bench.tasks.steps(task)
    lost = answer(ctx, "\n".join([*work, "= 99"]))
    collect = links(PrefixValues(n=3, wrong_only=True), Rescue(n=6))
    group = asyncio.run(collect(ctx, (0,), Group(task=task, episodes=(lost,))))
    assert len(group.episodes) == 2
    branch = group.episodes[1]
    at = branch.origin.turn
    assert branch.muted and branch.total == 1 and branch.origin.parent == 0
    ends = group.episodes[0].facts["step_ends"]
    shared = ends[at - 1][1] + 1
    assert branch.rows[0].context()[:shared] == lost.rows[0].context()[:shared]
    ctx.bench = replace(ctx.bench, reward=nothing)
    assert asyncio.run(Rescue(n=2)(ctx, (1,), replace(group, episodes=group.episodes[:1]))).episodes[1:] == ()
    pairs, _ = StepPairs("branch")([group], [[[{}], [{}]]], {})
    assert [e.columns["sign"] for e in pairs] == [1.0, -1.0] and len({e.unit for e in pairs}) == 1
    assert [e.columns["late"] for e in pairs] == [0.0, float(at + 1 < len(ends))]
    assert not StepPairs("root")([group], [[[{}], [{}]]], {})[0]  # a branch is no answer of its own


def test_values_under_another_model_begin_with_its_own_answers(context):
    """V(s_0) is what the prover makes of the question, not what the policy's group did."""
    ctx = context()
    task = ctx.bench.tasks.task("train", 0)
    ctx.models["prover"] = ctx.model("policy")
    lost = answer(ctx, f"{ctx.bench.tasks.steps(task)[0]}\n= 99")
    ctx.bench = replace(ctx.bench, reward=everything)
    group = Group(task=task, episodes=(replace(lost, reward=Reward(total=0.0)),))
    own = asyncio.run(PrefixValues(n=2)(ctx, (0,), group)).episodes[0].facts["prefix_values"]
    other = asyncio.run(PrefixValues(n=2, model="prover")(ctx, (0,), group)).episodes[0].facts["prefix_values"]
    assert own == (0.0, 1.0, 0.0) and other == (1.0, 1.0, 0.0)


async def everything(ctx, group):
    return [Reward(total=1.0)] * len(group.episodes)


def test_steps_of_recorded_answers_are_marked(context):
    """Nobody sampled them, so they have no log-probs; they cannot be continued."""
    ctx = context()
    made = recorded_episode(ctx, "policy", ctx.bench.tasks.task("train", 0).prompt, "1+2=3\n= 3", 1.0)
    (marked,) = asyncio.run(MarkSteps()(ctx, (0,), Group(task=Task(id="t"), episodes=(made,)))).episodes
    said = made.rows[0].segments[-1]
    start = len(made.rows[0].context()) - len(said.ids)
    assert [t - start for _, t in marked.facts["step_ends"]] == [len("1+2=3\n") - 1, len(said.ids) - 1]
    assert not answer_steps(made, ctx.decode)
