"""`play()`: questions, tools, games, summaries; rows only grow, observations are never trained, rewards sit at their turn."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from palaestra.context import Bench
from palaestra.errors import Fault, UserError
from palaestra.rollout.collect import MuteTruncated, Sample, Score, Until, When, links
from palaestra.rollout.play import play
from palaestra.rollout.player import Script
from palaestra.rollout.recorded import Demonstrate, Recorded
from palaestra.toys.hop import Hop, HopTasks
from palaestra.types import Act, Ask, Episode, Frame, Group, Message, Reward, Sampling, Segment, Task
from palaestra.types import Completion as Sampled
from palaestra.worlds.tictactoe import TicTacToe, TicTacToeTasks


def played(ctx, key=("k",), max_tokens=12):
    cast = ctx.cast("policy", Sampling(max_tokens=max_tokens))
    task = ctx.bench.tasks.task("train", 3)
    return asyncio.run(play(ctx.bench.world, cast, task, key, ("w",)))


@pytest.mark.parametrize("task", ["hop", "grid", "chain", "tictactoe"])
def test_only_sampled_tokens_are_trained_and_all_of_them(context, task):
    pytest.importorskip("pyspiel") if task == "tictactoe" else None
    ctx = context(task)
    episode = played(ctx)
    assert episode.rows and episode.ok
    for row in episode.rows:
        for s in row.segments:
            assert s.trained == (s.logp is not None) == (s.author == "policy")
            assert s.trained == (s.version is not None)
        view = row.view()
        assert view.trained_T.sum() == row.n_sampled
        assert np.isnan(view.logp_T).tolist() == (~view.trained_T).tolist()


def test_a_row_is_the_context_that_was_seen(context):
    """Every reply was sampled after exactly the tokens before it in its row."""
    ctx, seen = context("hop"), []
    engine = ctx.engine()
    generate = engine.generate

    async def watched(prompt, sampling, key):
        sample = await generate(prompt, sampling, key)
        seen.append((prompt, sample.ids))
        return sample

    engine.generate = watched
    for n in range(9):  # until the policy searches before it answers
        seen.clear()
        (row,) = played(ctx, ("k", n)).rows
        if len(seen) > 1:
            break
    before, found = (), []
    for s in row.segments:
        if s.logp is not None:
            found.append((before, s.ids))
        before += s.ids
    assert found == seen and len(found) > 1


def test_the_same_key_gives_the_same_episode(context):
    ctx = context("hop")
    first = played(ctx)
    ctx.engine().forget()  # a reused prefix may differ from a computed one by float32's last bits
    assert played(ctx) == first and first.seconds is not None and 0 < first.seconds < 60
    assert played(ctx, ("a",)) != played(ctx, ("b",))


def test_oracle_is_paid():
    world, task = Hop(), HopTasks().task("train", 0)
    state = {"frame": world.reset(task, ("w",))}

    def answer(messages, rng):
        reply = world.oracle(state["frame"].state)
        ask = state["frame"].asks[0]
        state["frame"] = world.step(
            state["frame"].state, (Act(ask=ask, text=reply, call=None, finish="eos", n_tokens=1),), ("w",)
        )
        return reply

    episode = asyncio.run(play(world, {"policy": Script(fn=answer)}, task, ("k",), ("w",)))
    assert episode.total == 1.0 and episode.status == "finished"


def test_two_seats_have_rows_and_parts_of_their_own(context):
    pytest.importorskip("pyspiel")
    ctx = context("tictactoe")
    cast = {"x": ctx.cast("policy", Sampling(max_tokens=2))["x"], "o": Script(fn=lambda messages, rng: "8")}
    episode = asyncio.run(play(TicTacToe(), cast, TicTacToeTasks(plies=(0, 0)).task("train", 0), ("k",), ("w",)))
    assert {r.seat for r in episode.rows} <= {"x", "o"}
    assert all(not any(s.trained for s in r.segments) for r in episode.rows if r.seat == "o")
    assert set(episode.reward.parts) == {"seat:x", "seat:o"} and episode.total == episode.reward.parts["seat:x"]


class Diary:
    """Two notes in one row, then a fresh row that starts from the last note: pays by turn."""

    seats = ("policy",)

    def reset(self, task, key):
        return self.ask(0, "write", False)

    def step(self, state, acts, key):
        pay = {("policy", ""): float(state)}
        if state == 2:
            return Frame(state=3, pay=pay)
        frame = self.ask(state + 1, acts[0].text, state == 1)
        return Frame(state=frame.state, asks=frame.asks, pay=pay)

    def ask(self, state, text, new):
        return Frame(
            state=state,
            asks=(Ask(seat="policy", say=(Message(role="user", content=text or "."),), new_row=new, max_tokens=3),),
        )


def test_new_rows_and_rewards_by_turn(context):
    ctx = context()
    cast = ctx.cast("policy", Sampling(max_tokens=3))
    episode = asyncio.run(play(Diary(), cast, Task(id="t"), ("k",), ("w",)))
    assert len(episode.rows) == 2 and episode.total == 3.0
    first, second = episode.rows
    assert second.segments[0].ids[0] == first.segments[0].ids[0], "a new row starts like a conversation"
    for event in episode.reward.events:
        view = episode.rows[event.row].view()
        assert view.trained_T[event.token], "paid at the last token the seat said"
    assert [e.value for e in episode.reward.events] == [0.0, 1.0, 2.0]
    assert [e.row for e in episode.reward.events] == [0, 0, 1]


def test_a_hidden_message_is_seen_and_not_trained_on(context):
    class Hinted(Diary):
        def reset(self, task, key):
            hint = Message(role="user", content="a hint", hidden=True)
            return Frame(
                state=2, asks=(Ask(seat="policy", say=(Message(role="user", content="q"), hint), max_tokens=3),)
            )

    ctx = context()
    episode = asyncio.run(play(Hinted(), ctx.cast("policy", Sampling(max_tokens=3)), Task(id="t"), ("k",), ("w",)))
    (row,) = episode.rows
    decode = ctx.engine().dialect.decode
    assert "a hint" in decode(row.context())
    assert "a hint" not in decode(row.view().ids_T.tolist())


def test_collect_links():
    bench = Bench(name="t", tasks=None, world=None)

    class Ctx:
        pass

    ctx = Ctx()
    ctx.bench = bench

    class Add:
        def __init__(self, rewards, status="finished"):
            self.rewards, self.status = rewards, status

        async def __call__(self, ctx, key, group):
            new = tuple(Episode(reward=Reward(total=r), status=self.status) for r in self.rewards)
            return Group(task=group.task, episodes=(*group.episodes, *new))

    empty = Group(task=Task(id="t"))
    run = lambda link, group=empty: asyncio.run(link(ctx, ("k",), group))
    assert len(run(Until(lambda r: len(r) >= 6, Add([0.0, 1.0]), rounds=9)).episodes) == 6
    assert len(run(links(Add([0.0]), When(lambda r: r.max() <= 0, Add([1.0])))).episodes) == 2
    assert [e.muted for e in run(links(Add([1.0]), Add([0.0], "truncated:length"), MuteTruncated())).episodes] == [
        False,
        True,
    ]
    assert run(Score(), Group(task=Task(id="t"), episodes=(Episode(reward=Reward(total=1.0), status="finished"),)))
    assert Sample(4) == Sample(n=4)


class Chatter:
    """Talks as long as it is let, and pays every turn."""

    seats = ("policy",)
    pays: bool = True
    says = "go on"

    def reset(self, task, key):
        return Frame(state=0, asks=(Ask(seat="policy", say=(Message(role="user", content=self.says),)),))

    def step(self, state, acts, key):
        return replace(self.reset(None, key), pay={("policy", ""): 1.0} if self.pays else {})


def test_a_context_that_the_policy_filled_is_an_outcome(context):
    """An episode is cut there and keeps its pay; a resampling of it would select short episodes."""
    bench = Bench(name="chatter", tasks=None, world=Chatter(), max_tokens=4)
    ctx = context(bench=bench)
    vars(ctx.model("policy"))["context"] = 40
    collect, empty = links(Sample(2, max_tokens=4), Score()), Group(task=Task(id="t"))
    for e in asyncio.run(collect(ctx, ("k",), empty)).episodes:
        turns = sum(s.trained for s in e.rows[0].segments)
        assert e.status == "truncated:context" and e.total == turns > 1
    bench.world.pays = False
    assert [e.total for e in asyncio.run(collect(ctx, ("k",), empty)).episodes] == [0.0, 0.0]
    bench.world.says = "go on " * 40
    first = asyncio.run(play(bench.world, ctx.cast("policy", Sampling()), empty.task, ("k",), ("w",)))
    assert first.status == "error:context" and first.reward is None, "the prompt alone does not fit: nobody's doing"


def test_a_world_that_ends_without_pay_is_a_fault(context):
    ctx = context(bench=Bench(name="mute", tasks=None, world=None))
    group = Group(task=Task(id="t"), episodes=(Episode(status="finished"),))
    with pytest.raises(Fault, match="'mute' paid nothing"):
        asyncio.run(Score()(ctx, ("k",), group))


class Two:
    """Two threads are asked at once; the question of one fits into no context."""

    seats = ("policy",)

    def reset(self, task, key):
        say = {"short": "2+2 mod 10", "long": "1+" * 2000}
        asks = (Ask(seat="policy", say=(Message(role="user", content=x),), thread=t) for t, x in say.items())
        return Frame(state=0, asks=tuple(asks))


def test_a_fault_calls_off_simultaneous_turns(context):
    """So nobody samples on when the weights move."""
    ctx = context()
    engine, cast = ctx.engine(), ctx.cast("policy", Sampling(max_tokens=400))

    async def run():
        begun = asyncio.all_tasks()
        episode = await play(Two(), cast, Task(id="t"), ("k",), ("w",))
        return episode, [r.done.done() for r in (*engine._running, *engine._waiting)], asyncio.all_tasks() - begun

    episode, gone, tasks = asyncio.run(run())
    assert episode.status == "error:context"
    assert all(gone) and tasks <= {engine._pump}


@pytest.mark.parametrize(("link", "column"), [(Demonstrate(), "demonstration"), (Recorded(), "rejected")])
def test_recorded_data_must_fit_into_the_context(context, link, column):
    ctx, meta = context(), {"demonstration": "= 2", "chosen": "= 2", "rejected": "= 3"}
    task = Task(id="t7", prompt=(Message(role="user", content="1+1 mod 10"),), meta=meta)
    run = lambda task: asyncio.run(link(ctx, ("k",), Group(task=task)))
    told = [("= 2", 1.0), ("= 3", 0.0)][: 1 + (column == "rejected")]
    assert [(e.rows[0].segments[-1].text, e.total) for e in run(task).episodes] == told
    with pytest.raises(UserError, match=rf"task 't7': .*{column}.* \d+ tokens .* context of tiny holds 512"):
        run(replace(task, meta=meta | {column: "1+" * 2000}))


def test_every_marked_turn_of_a_conversation_is_trained(context):
    """Its content and its end token, and nothing else; without marks the last reply alone."""
    talk = (("user", "1+1 mod 10"), ("assistant", "= 2"), ("user", "3+4"), ("assistant", "= 7"), ("user", "2+2"))
    prompt = tuple(Message(role=r, content=c) for r, c in talk)
    ctx = context()
    end, decode = ctx.engine().dialect.end, ctx.engine().dialect.decode

    def told(**meta):
        task = Task(id="t", prompt=prompt, meta={"demonstration": "= 4", **meta})
        (episode,) = asyncio.run(Demonstrate()(ctx, ("k",), Group(task=task))).episodes
        view, (row,) = episode.rows[0].view("policy"), episode.rows
        assert {s.author for s in row.segments if s.trained} == {"demonstration"}
        assert not row.view("another").trained_T.any()
        return view.ids_T, view.trained_T

    ids, alone = told()
    _, first = told(imitated=[1])
    _, both = told(imitated=[1, 3])
    assert decode(ids[alone]).startswith("= 4") and ids[alone][-1] == end
    spans = np.split(ids[both], np.flatnonzero(ids[both] == end) + 1)[:-1]
    assert [decode(s[:-1]) for s in spans] == ["= 2", "= 7", "= 4"]
    assert first.sum() - alone.sum() == len(spans[0]) and (first & ~both).sum() == 0


def test_data_without_pairs_is_recorded_as_it_was_judged(context):
    task = Task(id="t", prompt=(Message(role="user", content="1+1 mod 10"),), meta={"response": "= 2", "right": False})
    for right, total in ((True, 1.0), (False, 0.0)):
        group = Group(task=replace(task, meta=task.meta | {"right": right}))
        (episode,) = asyncio.run(Recorded()(context(), ("k",), group)).episodes
        assert (episode.rows[0].segments[-1].text, episode.total) == ("= 2", total)


def test_a_turn_is_what_was_forced_and_said_up_to_the_stop():
    """Ends by a stop string, by itself, and for want of room; paid at the last token that was said, hidden ones not counted."""
    told, acts = [], []

    class Speaker(Script):
        def hear(self, ask, *, first, closed, turn):
            told.append((first, closed))
            return Segment(ids=(1, 2), turn=turn, hidden=turn == 1), Segment(ids=(3,), turn=turn)

        async def act(self, row, messages, ask, key):
            finish = ("stop", "eos", "length", "eos")[key[-1]]
            return Sampled(ids=(7, 8), logp=(-1.0, -2.0), text="ab. c", cut=3 if finish == "stop" else 5, finish=finish)

    class Four:
        seats = ("policy",)

        def reset(self, task, key):
            return Frame(state=0, asks=(Ask(seat="policy", prefix="> "),))

        def step(self, state, new, key):
            acts.extend(a.text for a in new)
            ask = Ask(seat="policy", new_row=state == 2)
            return Frame(state=state + 1, asks=(ask,) if state < 3 else (), pay={("policy", ""): float(state)})

    cast = {"policy": Speaker(fn=lambda messages, rng: "", policy="policy")}
    episode = asyncio.run(play(Four(), cast, Task(id="t"), ("k",), ("w",)))
    assert told == [(True, False), (False, False), (False, True), (True, False)]
    assert acts == ["> ab.", "ab. c", "ab. c", "ab. c"]
    assert [(e.row, e.token, e.value) for e in episode.reward.events] == [
        (0, 4, 0.0), (0, 7, 1.0), (0, 12, 2.0), (1, 4, 3.0),
    ]  # fmt: skip
    assert episode.status == "truncated:length"  # of a row, though not of the last
