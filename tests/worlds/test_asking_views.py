"""Places with pictures: what is shown on coming there, what is left out of the words, and rows that are refused."""

import pytest
from palaestra.errors import UserError
from palaestra.pictures import PICTURE_MARK, Picture
from palaestra.types import Message, Task
from palaestra.worlds.asking import read_record, room_instruction

from tests.worlds.test_asking import OBJECTS, play

SHELF, SINK = (Picture(shape=(2, 2, 3), data=bytes([shade] * 12)) for shade in (10, 200))


def seen_task(views=("shelf", "sink"), pictures=(SHELF, SINK), **meta):
    content = f"{PICTURE_MARK * len(pictures)}bring the cup to the door"
    meta = {"objects": OBJECTS, "wanted": "cup 2", "bring_to": "door", "views": views, **meta}
    return Task(id="t", prompt=(Message(role="user", content=content, pictures=pictures),), answer="cup 2", meta=meta)


def heard(actions, task):
    """What the agent hears last."""
    _, frame = play(actions, task)
    (message,) = frame.asks[0].say
    return message


def test_a_place_is_seen_where_the_agent_is_and_its_values_are_not_said():
    first = heard([], seen_task())
    assert first.pictures == (SHELF,) and first.content.startswith(PICTURE_MARK)
    assert "at shelf: cup 1, cup 4; places:" in first.content and "red" not in first.content
    there = heard(["go sink"], seen_task())
    assert (there.pictures, there.role) == ((SINK,), "user") and "at sink: cup 2, cup 3;" in there.content


def test_a_picture_is_shown_on_coming_alone_and_a_place_without_one_is_said():
    assert heard(["go sink", "take cup 2"], seen_task()).pictures == ()
    assert heard(["ask colour"], seen_task()) == Message(role="tool", content="the user says: red")
    rug = heard(["go rug"], seen_task())
    assert rug.pictures == () and "at rug: hat 5 blue small" in rug.content
    assert "at shelf: cup 1 red big" in heard([], seen_task((), (SHELF,))).content  # a picture of everything


def test_the_same_is_paid_and_asked_as_in_words():
    walk = ["ask size", "ask colour", "go sink", "take cup 2", "go door", "put"]
    plain = seen_task((), ())
    assert play(walk, plain)[0] == play(walk, seen_task())[0]
    assert room_instruction(seen_task()) == "bring the cup to the door" == room_instruction(plain)


@pytest.mark.parametrize(
    ("views", "message"),
    [
        (("shelf",), "names 1 places, and the row has 2 pictures"),
        (("shelf", "attic"), "names 'attic', and the places are shelf, sink, rug, door"),
        (("shelf", "shelf"), "names a place twice"),
        ("shelf", "is a list of places"),
    ],
)
def test_views_that_fit_no_picture_or_place(views, message):
    with pytest.raises(UserError, match=message):
        read_record(seen_task(views))
