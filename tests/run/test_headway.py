"""What a long work says while it goes on."""

import pytest
from palaestra.terminal.progress import Headway

from tests.run.test_progress import Clock, bare, terminal

__all__ = ["terminal"]  # a fixture


def lines_of(work, every=5.0, **expected):
    """What a headway says while `work(headway, clock)` goes on."""
    said, clock = [], Clock()
    with Headway("bench step", said.append, every=every, clock=clock) as headway:
        headway.expect(**expected)
        work(headway, clock)
    return said


def test_plain_lines_every_few_seconds():
    def work(headway, clock):
        for i in range(1, 13):
            clock.now += 2
            headway.advance(label=f"part {i}")

    assert lines_of(work, total=12) == [
        "bench step  0/12",
        "bench step  3/12  0:06 so far  0:18 left  part 3",
        "bench step  6/12  0:12 so far  0:12 left  part 6",
        "bench step  9/12  0:18 so far  0:06 left  part 9",
        "bench step  12/12  0:24 in all  part 12",
    ]


def test_the_last_state_is_said_where_it_was_not():
    def work(headway, clock):
        clock.now += 1
        headway.advance()

    assert lines_of(work, total=9)[-1] == "bench step  1/9  0:01 so far  0:08 left"


def test_what_was_done_before_counts_and_gives_the_pace():
    """Of 10 parts 4 are there, 3 s each: 18 s are left. From then on the pace is that of this process: 2 s a part."""

    def work(headway, clock):
        clock.now += 2
        headway.advance()
        assert headway.left() == pytest.approx(10)
        clock.now += 3
        assert headway.left() == pytest.approx(7)

    said = lines_of(work, total=10, done=4, pace=3.0)
    assert said[0] == "bench step  4/10  0:18 left  4 there already"


def test_parts_under_way_count_in_part():
    """A quarter of a part in 5 s: 20 s a part, and 2.5 parts are left."""

    def work(headway, clock):
        clock.now += 5
        headway.advance(0, under_way=0.5)
        assert headway.left() == pytest.approx(50)
        clock.now += 10
        headway.advance(0, under_way=0.5)  # no news
        assert headway.left() == pytest.approx(40)
        headway.advance(1, "first")

    assert lines_of(work, total=3, under_way=0.25) == [
        "bench step  0/3  8%",
        "bench step  0/3  17%  0:05 so far  0:50 left",
        "bench step  1/3  0:15 so far  0:40 left  first",
    ]


def test_where_nothing_moves_a_line_comes_every_thirty_seconds():
    """And without a name of what is under way, none."""

    def work(headway, clock):
        for i in range(35):
            clock.now += 2
            headway.advance(0, label=f"grpo: no step yet, look {i}" if i < 30 else "")
        headway.advance(0, "grpo: step 1", under_way=0.1)

    assert lines_of(work, total=2) == [
        "bench step  0/2",
        "bench step  0/2  0:30 so far  grpo: no step yet, look 14",
        "bench step  0/2  1:00 so far  grpo: no step yet, look 29",
        "bench step  0/2  5%  1:10 so far  22:10 left  grpo: step 1",
    ]


def test_where_all_is_there_nothing_is_said():
    assert lines_of(lambda *_: None, total=3, done=3, pace=1.0) == []


def test_a_note_is_said_at_once():
    assert lines_of(lambda headway, _: headway.note("a cell failed"), total=3)[1:] == ["a cell failed"]


def test_a_terminal_gets_a_bar(terminal, capsys):
    clock = Clock()
    with Headway("compare", stream=terminal, clock=clock) as headway:
        headway.expect(4)
        clock.now += 60
        headway.advance(label="grpo, seed 0")
        cursor = terminal.getvalue().rfind("\x1b[?25h"), terminal.getvalue().rfind("\x1b[?25l")
        headway.note("[one] failed")
        print("for the program that reads us")
    shown = bare(terminal.getvalue())
    assert "━" in shown and "1/4" in shown and "3:00 left" in shown and "grpo, seed 0" in shown
    assert "[one] failed" in shown  # and no markup
    assert cursor[0] > cursor[1] >= 0  # it is back while the work goes on, which may be killed
    assert capsys.readouterr().out == "for the program that reads us\n"


def test_plain_lines_go_to_standard_error(capsys):
    with Headway("atlas") as headway:
        headway.expect(2)
        headway.advance(2)
    told = capsys.readouterr()
    assert told.out == "" and told.err == "atlas  0/2\natlas  2/2  0:00 in all\n"


def test_a_log_of_hours_is_short():
    def work(headway, clock):
        for _ in range(7200):
            clock.now += 5
            headway.advance()

    assert 100 < len(lines_of(work, total=7200)) < 200
