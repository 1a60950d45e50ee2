"""Dense labels from events, and states as text."""

from palaestra.tasks.relabel import relabel_frames, state_text


def actions(labels):
    return [x and x.action for x in labels]


def test_the_example_of_the_catalogue():
    """Frames 0 to 9, "defend" at 4, "dragon" at 6, which is more important, window 4."""
    events = [()] * 10
    events[4], events[6] = ("defend",), ("dragon",)
    labels = relabel_frames(range(10), events, 4, ("dragon", "defend"))
    assert actions(labels) == ["defend"] * 2 + ["dragon"] * 5 + [None] * 3
    assert [x.ahead for x in labels[:7]] == [4, 3, 4, 3, 2, 1, 0]
    other = relabel_frames(range(10), events, 4, ("defend", "dragon"))
    assert actions(other) == ["defend"] * 5 + ["dragon"] * 2 + [None] * 3


def test_a_window_of_0_leaves_the_frames_of_events():
    assert actions(relabel_frames([0, 1, 2], [(), ("a",), ()], 0, ("a",))) == [None, "a", None]
    assert relabel_frames([], [], 4, ()) == []


def test_equal_labels_are_those_of_the_next_event_and_times_count_as_they_are():
    labels = relabel_frames([0, 10, 11.5], [(), ("a",), ("a",)], 2, ("a",))
    assert actions(labels) == [None, "a", "a"] and [x and x.ahead for x in labels] == [None, 0, 0]
    both = relabel_frames([0, 1], [(), ("b", "a")], 1, ("a", "b"))
    assert actions(both) == ["a", "a"]


def test_actions_without_a_priority_come_behind_in_the_order_of_their_events():
    events = [(), ("z",), ("y",), ("x",)]
    assert actions(relabel_frames(range(4), events, 3, ("x",))) == ["x"] * 4
    assert actions(relabel_frames(range(4), events, 3, ())) == ["z", "z", "y", "x"]


def test_a_state_as_text():
    state = {"time": 3.14159, "gold": 4.0, "enemy": {"gold": 5, "at": [{"x": 1, "id": 7}]}, "name": "Ö", "on": True}
    assert state_text(state) == '{"time":3.14,"gold":4,"enemy":{"gold":5,"at":[{"x":1,"id":7}]},"name":"Ö","on":true}'
    hidden = state_text(state, ("enemy.gold", "enemy.at.id", "name", "nothing.here"))
    assert hidden == '{"time":3.14,"gold":4,"enemy":{"at":[{"x":1}]},"on":true}'
    assert state_text("as it is") == "as it is" and state["enemy"]["gold"] == 5
    assert state_text([1.0, None, "x"]) == '[1,null,"x"]'
