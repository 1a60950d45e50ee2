"""Environments with a seat `user`: what a turn is paid, what counts as a question, and who hears what."""

import asyncio

import pytest
from palaestra.errors import UserError
from palaestra.types import Act, Ask, Frame, Message, Task
from palaestra.worlds.asked_user import AskedUser

from tests.recipes.objectives.helpers import near


class Door:
    """Two doors, of which the user means one. `open N` ends the episode; what begins with "ask" goes to the user."""

    seats = ("agent", "user")
    left = ()

    def __init__(self, greets=False):
        self.greets = greets

    def reset(self, task, key):
        wish = Message(role="system", content=f"You mean door {task.answer}.")
        if self.greets:
            hello = Message(role="user", content="Say hello.")
            return Frame(state=("greet", task.answer), asks=(Ask(seat="user", say=(wish, hello)),))
        return Frame(
            state=("go", task.answer), asks=(Ask(seat="agent", say=(Message(role="user", content="open it"),)),)
        )

    def step(self, state, acts, key):
        phase, answer = state
        text = acts[0].text
        if phase == "go" and text.startswith("ask"):
            wish = Message(role="system", content=f"You mean door {answer}.")
            ask = Ask(seat="user", say=(wish, Message(role="user", content=text)))
            return Frame(state=("asked", answer), asks=(ask,), pay={("agent", ""): -0.5})
        if phase in ("asked", "greet"):
            return Frame(state=("go", answer), asks=(Ask(seat="agent", say=(Message(role="tool", content=text),)),))
        return Frame(state=("end", answer), pay={("agent", ""): float(text == f"open {answer}")})

    def leave(self, state):
        self.left = (*self.left, state[0])


def play(world, *texts):
    frame = asyncio.run(world.reset(Task(id="t", answer="2"), ("k",)))
    frames = [frame]
    for text in texts:
        act = Act(ask=frame.asks[0], text=text, call=None, finish="eos", n_tokens=0)
        frame = asyncio.run(world.step(frame.state, (act,), ("k",)))
        frames.append(frame)
    return frames


def answers(heard, key):
    return f"heard {len(heard)}"


def judge(known, talk, question, answer, key):
    assert known == "You mean door 2." and question not in dict(talk)
    return "which" in question


def paid(frames):
    return [sum(f.pay.values()) for f in frames[1:]]


def test_a_turn_is_paid_by_the_environment_and_by_its_question():
    """-.5 of the environment + .2 - .01; an idle question -.5 - .01; a repeated one too; behind the budget of 2 also -.1."""
    frames = play(AskedUser(world=Door(), user=answers, judge=judge), "ask which", "ask why", "ask which", "open 2")
    assert paid(frames) == near([-0.31, -0.51, -0.61, 0.99])
    facts = frames[-1].facts
    assert [facts[k] for k in ("turns", "asked_useful", "asked_idle", "over_budget")] == [4, 1, 2, 1]
    assert facts["earned"] == near(-0.5) and not frames[-1].asks


def test_the_user_hears_its_wish_once_and_all_questions_and_the_agent_the_answer_alone():
    heard = []
    world = AskedUser(world=Door(), user=lambda m, key: heard.append([x.content for x in m]) or "the second")
    frames = play(world, "ask which", "open 2")
    assert heard == [["You mean door 2.", "ask which"]]
    assert [m.content for m in frames[1].asks[0].say] == ["the second"] and world.seats == ("agent",)
    assert paid(frames) == near([-0.51, 0.99]) and frames[-1].facts["asked_idle"] == 1  # nobody judges


def test_a_user_who_speaks_first_was_not_asked():
    frames = play(AskedUser(world=Door(greets=True), user=answers, judge=judge), "open 1")
    assert frames[0].asks[0].say[0].content == "heard 2" and not frames[0].pay
    assert frames[-1].facts["asked_idle"] == frames[-1].facts["asked_useful"] == 0 and paid(frames) == near([-0.01])


def test_an_environment_without_that_seat_and_one_that_is_held():
    class Alone(Door):
        seats = ("agent",)

    with pytest.raises(UserError, match="one of them 'user'"):
        AskedUser(world=Alone(), user=answers)
    door = Door()
    world = AskedUser(world=door, user=answers)
    asyncio.run(world.leave(play(world, "ask which")[-1].state))
    assert door.left == ("go",)
