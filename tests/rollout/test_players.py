"""What a player hears and says: a message, what is forced, its own words; of a branch, the words of before and then its own."""

import asyncio
from types import SimpleNamespace

import pytest
from palaestra.chat.dialect import Piece
from palaestra.rollout.play import play
from palaestra.rollout.player import Continued, EnginePlayer, Script
from palaestra.types import Ask, Completion, Frame, Message, Row, Sampling, Segment, Task


def spelt(ids):
    """Three letters a token."""
    return "".join(f"{i:03d}" for i in ids)


def engine(asked=None, **said):
    """Says the tokens 700, 800, whatever it is asked."""

    async def generate(prompt, sampling, key):
        if asked is not None:
            asked.append((prompt, sampling))
        return Completion(
            **{"ids": (700, 800), "logp": (-1.0, -2.0), "text": "700800", "cut": 6, "finish": "eos"} | said
        )

    def extend(say, *, first, closed, tools=()):
        return tuple(Piece(ids=(int(m.content),), author=m.author, hidden=m.hidden, text=m.content) for m in say)

    dialect = SimpleNamespace(decode=spelt, extend=extend, encode_text=lambda text: tuple(map(ord, text)))
    return SimpleNamespace(dialect=dialect, generate=generate)


def test_what_is_forced_comes_after_the_message_and_is_nobodys():
    say = Message(role="system", content="5", hidden=True), Message(role="user", content="6")
    player = EnginePlayer(engine=engine(), sampling=Sampling(max_tokens=9))
    told, asked, forced = player.hear(Ask(seat="policy", say=say, prefix="ab"), first=True, closed=False, turn=4)
    assert (told.ids, told.hidden, asked.ids, asked.hidden) == ((5,), True, (6,), False)
    assert forced == Segment(ids=(97, 98), author="forced", turn=4, text="ab")
    assert {s.turn for s in (told, asked)} == {4} and not any(s.trained or s.policy for s in (told, asked))


def test_a_turn_has_the_limits_of_the_world_else_its_own():
    asked, row, bench = [], Row(segments=(Segment(ids=(1,)),)), Sampling(temperature=0.5, max_tokens=9, stop=("z",))
    player = EnginePlayer(engine=engine(asked), sampling=bench)
    for ask in (Ask(seat="policy", max_tokens=3, stop=("x",)), Ask(seat="policy")):
        asyncio.run(player.act(row, (), ask, ("k", 0)))
    assert asked == [((1,), Sampling(temperature=0.5, max_tokens=3, stop=("x",))), ((1,), bench)]


@pytest.mark.parametrize(("drawn_at", "trained_at"), [(0.5, 0.5), (2.0, 2.0), (0.0, 1.0)])
def test_a_player_tells_the_temperature_to_train_at(drawn_at, trained_at):
    player = EnginePlayer(engine=engine(), sampling=Sampling(temperature=drawn_at))
    assert player.temperature == Continued(player=player).temperature == trained_at


def test_a_branch_says_again_what_was_said_in_each_turn():
    """Turn 0 ended by a stop string inside its last token, turn 2 breaks off; turn 1 is of another seat, turn 3 comes later."""
    asked = []
    whole = Segment(ids=(123, 456), logp=(-3.0, -4.0), text="123456", finish="stop", version=5)
    begun = Segment(ids=(124,), logp=(-5.0,), turn=2, version=4)
    player = EnginePlayer(engine=engine(asked, version=7), sampling=Sampling(max_tokens=9, stop=("4", "9")))
    branch = Continued(player=player, said=(begun, whole))

    def act(turn, **more):
        row = Row(segments=(Segment(ids=(turn,)),))
        return asyncio.run(branch.act(row, (), Ask(seat="policy", **more), ("k", "policy", "", turn)))

    assert act(0) == Completion(ids=(123, 456), logp=(-3.0, -4.0), text="123456", cut=4, finish="stop", version=5)
    assert act(0, stop=("5",)).cut == 5 and not asked
    own = act(1, stop=("x",))
    assert own == Completion(ids=(700, 800), logp=(-1.0, -2.0), text="700", cut=3, finish="eos", version=7)
    on = act(2, stop=("x",))
    assert on == Completion(
        ids=(124, 700, 800), logp=(-5.0, -1.0, -2.0), text="124700", cut=6, finish="eos", version=4, moved=((1, 7),)
    )
    assert act(3, stop=("x",)) == own
    assert [(p, s.max_tokens, s.stop) for p, s in asked] == [
        ((1,), 9, ("x",)), ((2, 124), 8, ("x",)), ((3,), 9, ("x",)),
    ]  # fmt: skip


def test_a_fresh_row_has_heard_nothing():
    """A player that reads text is told what its row holds: of the one before only what the world says again."""
    told = []

    class Two:
        seats = ("policy",)

        def reset(self, task, key):
            return self.ask(0)

        def ask(self, n):
            say = (Message(role="user", content=f"q{n}"),)
            return Frame(state=n, asks=(Ask(seat="policy", say=say, new_row=n == 2),) if n < 3 else ())

        def step(self, state, acts, key):
            return self.ask(state + 1)

    cast = {"policy": Script(fn=lambda messages, rng: told.append([m.content for m in messages]) or f"a{len(told)}")}
    episode = asyncio.run(play(Two(), cast, Task(id="t"), ("k",), ("w",)))
    assert told == [["q0"], ["q0", "a1", "q1"], ["q2"]] and len(episode.rows) == 2
