"""Contexts that are summed up before they are full: which rows an episode has, and what stands in them."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from palaestra.errors import UserError
from palaestra.rollout.play import play
from palaestra.types import Act, Ask, Completion, Frame, Message, Segment, Task
from palaestra.worlds.summaries import FULL, WithSummaries

TASK = Task(id="t", prompt=(Message(role="user", content="go"),))


class Count:
    """Says 1, 2, 3, ... in six characters, pays 0.5 a turn, and ends when it hears "stop"."""

    seats = ("policy",)
    left = 0

    def reset(self, task: Task, key: Any) -> Frame:
        return Frame(state=0, asks=(Ask(seat="policy", say=task.prompt),), state_key=0)

    def step(self, state: int, acts: tuple[Act, ...], key: Any) -> Frame:
        pay = {("policy", ""): 0.5}
        if acts[0].text == "stop":
            return Frame(state=state + 1, pay=pay)
        say = (Message(role="tool", content=f"saw {state + 1:02d}"),)
        return Frame(state=state + 1, asks=(Ask(seat="policy", say=say),), pay=pay, state_key=state + 1)

    def leave(self, state: int) -> None:
        self.left += 1


class Speaker:
    """A policy whose tokens are characters; it says `texts` in turn."""

    name, temperature = "policy", 1.0

    def __init__(self, *texts: str, policy: str = "policy", finish: str = "eos") -> None:
        self.texts, self.policy, self.finish = iter(texts), policy, finish

    def hear(self, ask: Ask, *, first: bool, closed: bool, turn: int) -> tuple[Segment, ...]:
        return tuple(Segment(ids=tuple(map(ord, m.content)), turn=turn, text=m.content) for m in ask.say)

    async def act(self, row: Any, messages: Any, ask: Ask, key: Any) -> Completion:
        text = next(self.texts)
        n = len(text)
        return Completion(ids=tuple(map(ord, text)), logp=(-1.0,) * n, text=text, cut=n, finish=self.finish, version=0)

    def parse(self, text: str, finish: str) -> None:
        return None


def played(*texts: str, world: Any = None, speaker: Any = None, **options: Any):
    speaker, world = speaker or Speaker(*texts), world or Count()
    given = {"limit": 16, "instruction": "sum", "lead_in": "so:", **options}
    wrapped = WithSummaries(world, {"policy": speaker}, **given)
    return asyncio.run(play(wrapped, {"policy": speaker}, TASK, ("k",), ("w",)))


def rows(episode: Any) -> list[list[tuple[str, bool]]]:
    """What stands in each row, and whether it is trained."""
    return [[(s.text, s.trained) for s in r.segments] for r in episode.rows]


def test_a_summary_is_trained_where_it_is_written_and_read_where_the_episode_goes_on():
    """2 + 4 + 6 tokens, and 4 + 6 more are 22 > 21: what was said last is left out, its pay is not."""
    episode = played("aaaa", "bbbb", "note", "stop", limit=21)
    assert rows(episode) == [
        [("go", False), ("aaaa", True), ("saw 01", False), ("bbbb", True), ("sum", False), ("note", True)],
        [("go\n\nso:\nnote", False), ("stop", True)],
    ]
    assert (episode.status, episode.reward.total, episode.facts["summaries"]) == ("finished", 1.5, ("note",))
    # each payment stands at the last token of the turn that earned it
    assert [(e.row, e.token) for e in episode.reward.events] == [(0, 5), (0, 15), (1, 15)]


def test_what_was_said_last_is_carried_over():
    episode = played("aaaa", "bbbb", "note", "stop", limit=21, carry=True)
    assert rows(episode)[1][0][0] == "go\n\nso:\nnote\n\nWhat was said last:\nsaw 02"


def test_a_limit_that_is_not_reached_changes_nothing():
    texts = ("aaaa", "bbbb", "stop")
    speaker = Speaker(*texts)
    bare = asyncio.run(play(Count(), {"policy": speaker}, TASK, ("k",), ("w",)))
    episode = played(*texts, limit=22)
    assert (episode.rows, episode.status, episode.reward) == (bare.rows, bare.status, bare.reward)
    assert {k: v for k, v in episode.facts.items() if k not in ("summaries", "unread")} == bare.facts


@pytest.mark.parametrize(("most", "n"), [(0, 1), (1, 2), (2, 3)])
def test_an_episode_is_cut_at_the_limit_after_its_last_summary(most, n):
    """Every second action is beyond the limit: each row but the last ends with a summary."""
    texts = ["aaaa", "bbbb", *["note", "cccc"] * 9]
    episode = played(*texts, limit=21, most=most)
    assert (episode.status, len(episode.rows), len(episode.facts["summaries"])) == (FULL, n, most)
    assert episode.reward.total == 0.5 * (2 + most)  # the action that goes beyond it counts


def test_thoughts_and_calls_in_a_summary_are_not_passed_on():
    episode = played("aaaa", "bbbb", "<think>hm</think>stop", "stop", limit=21)
    assert episode.facts["summaries"] == ("stop",) and episode.reward.total == 1.5


def test_a_summary_has_a_length_and_the_tools_of_its_row():
    world, state = Count(), None
    wrapped = WithSummaries(world, {"policy": Speaker()}, limit=9, tokens=7)
    frame = asyncio.run(wrapped.reset(TASK, ()))
    act = Act(ask=frame.asks[0], text="aaaa", call=None, finish="eos", n_tokens=4, n_context=2)
    after = asyncio.run(wrapped.step(frame.state, (act,), ()))
    assert after.asks[0].max_tokens == 7 and after.state_key is None
    assert after.asks[0].say[0].content.startswith("The conversation is about to be cut")
    note = replace(act, ask=after.asks[0], text="note")
    assert asyncio.run(wrapped.step(after.state, (note,), ())).state_key == 1
    state = after.state
    asyncio.run(wrapped.leave(state))
    assert world.left == 1


def test_a_context_that_the_environment_replaces_itself_is_left_alone():
    class Forgets(Count):
        def step(self, state, acts, key):
            frame = super().step(state, acts, key)
            return replace(frame, asks=tuple(replace(a, new_row=True) for a in frame.asks))

    episode = played("aaaa", "bbbb", "cccc", "dddd", "stop", limit=9, world=Forgets())
    assert len(episode.rows) == 5 and episode.facts["summaries"] == ()


def test_a_player_that_is_not_trained_writes_no_summaries():
    episode = played(speaker=Speaker("aaaa", "bbbb", "cccc", "stop", policy=""), limit=9)
    assert len(episode.rows) == 1 and episode.facts["summaries"] == ()


class Both(Count):
    seats = ("policy", "other")

    def reset(self, task, key):
        return Frame(state=0, asks=tuple(Ask(seat=s, say=task.prompt) for s in self.seats))


def test_what_cannot_be_summed_up_is_refused():
    with pytest.raises(UserError, match="several seats speak at once"):
        played("aaaa", world=Both())
    with pytest.raises(UserError, match="is 1 tokens, and what the environment says first has 2; raise the limit"):
        played("aaaa", limit=1)
    for wrong in ({"limit": 0}, {"most": -1}, {"tokens": -1}):
        with pytest.raises(UserError, match="must be at least"):
            played("aaaa", **wrong)


def test_a_result_that_no_context_has_room_for_is_counted():
    """2 + 4 + 6 tokens are 12 > 11 after the first action already, and more behind a summary."""
    episode = played("aaaa", "note", "bbbb", "note", limit=11, most=1)
    assert (episode.status, episode.facts["unread"]) == (FULL, 2)
    assert played("aaaa", "bbbb", "note", "stop", limit=21).facts["unread"] == 0
    carried = played("aaaa", "note", "stop", limit=11, most=1, carry=True)
    assert (carried.status, carried.facts["unread"]) == ("finished", 0)


def test_an_environment_that_begins_without_a_user_is_refused_at_once():
    """Before any summary: "go" is the system's here, and nothing stands behind which one could be shown."""

    class Silent(Count):
        def reset(self, task: Task, key: Any) -> Frame:
            say = (Message(role="system", content="go"),)
            return Frame(state=0, asks=(Ask(seat="policy", say=say),), state_key=0)

    with pytest.raises(UserError, match="summaries stand behind the user's first message"):
        played("stop", world=Silent())
    assert played("stop", world=Silent(), most=0).status == "finished"
