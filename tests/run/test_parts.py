"""Long work in parts: nothing is made twice, nothing is mixed, and what was stopped says how to go on."""

import asyncio
import gc
import logging
import os
import signal

import pytest
from palaestra.errors import Stopped
from palaestra.run.parts import Interrupt, Parts, package_sha256, stoppable
from palaestra.terminal.progress import Headway


@pytest.fixture
def parts_of(tmp_path):
    """Parts in one folder, as each process opens them; `said` are the lines of all."""

    def make(conditions="here", home=tmp_path / "out" / ".parts" / "step"):
        return Parts(Headway("work", make.said.append, every=0), home, {"machine": conditions})

    make.said = []
    return make


def take(parts, n, stop=0, warm=True):
    """The numbers of the rounds that are taken, of `n`; after round `stop` the process ends."""
    rounds, taken = parts.rounds("a", n, warm=warm), []
    for i in rounds:
        taken.append(i)
        rounds.put({"round": i, "seconds": i / 3})
        if stop and i == stop:
            break
    return taken, rounds


def test_rounds_go_on_where_they_stopped(parts_of):
    first = parts_of()
    first.expect(4)
    assert take(first, 4, stop=2)[0] == [0, 1, 2]
    second = parts_of()
    second.expect(4)
    taken, rounds = take(second, 4)
    assert taken == [0, 3, 4] and rounds.before == 2  # round 0 warms up again
    assert rounds.found == [{"round": i, "seconds": i / 3} for i in (1, 2, 3, 4)]  # to the last digit
    assert [line.split()[1] for line in parts_of.said] == ["0/4", "1/4", "2/4", "2/4", "3/4", "4/4"]
    assert take(parts_of(), 4)[0] == []


def test_a_process_that_goes_on_warms_up_where_the_first_was_warm(parts_of):
    assert take(parts_of(), 3, stop=1, warm=False)[0] == [1]
    assert take(parts_of(), 3, warm=False)[0] == [0, 2, 3]


def test_a_part_is_made_once(parts_of):
    made = []
    keep = lambda: parts_of().keep("one", lambda: made.append(1) or {"x": (1, 0.1)})
    assert keep() == keep() == {"x": [1, 0.1]} and made == [1]


def test_parts_inside_a_part_are_not_counted_twice(parts_of):
    parts = parts_of()
    parts.expect(8)

    def make():
        parts.headway.advance(3)

    parts.keep("of five", make, 5)
    assert parts.headway.done == 5
    again = parts_of()
    again.expect(8)
    assert again.headway.done == 5


def test_parts_of_other_conditions_are_not_used(parts_of):
    take(parts_of("one machine"), 2)
    other = parts_of("another machine")
    other.expect(2)
    assert "are not used" in parts_of.said[-2] and parts_of.said[-1] == "work  0/2"
    assert take(other, 2)[0] == [0, 1, 2]
    other.remove()
    assert take(parts_of("one machine"), 2)[0] == []  # those of the other stay


def test_parts_go_when_the_whole_is_there(parts_of, tmp_path):
    parts = parts_of()
    take(parts, 2)
    (tmp_path / "out" / "step.json").write_text("{}")
    parts.remove()
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["step.json"]


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parts = Parts(Headway("work", lambda text: None))
    assert take(parts, 2)[0] == [0, 1, 2] and parts.rounds("a", 2).found
    parts.remove()
    assert list(tmp_path.iterdir()) == []


def test_rounds_end_where_time_does():
    for left, n, taken in ((9e9, 5, 5), (0.0, 5, 2), (0.0, 1, 1)):
        parts = Parts(Headway("work", lambda text: None), left=lambda left=left: left)
        rounds = parts.rounds("a", n)
        for i in rounds:
            rounds.put(i)
        assert rounds.found == [*range(1, taken + 1)]


def test_a_torn_part_is_not_read(parts_of, tmp_path):
    """A kill while a part is written leaves the file beside, under another name."""
    take(parts_of(), 2, stop=1)
    (folder,) = (tmp_path / "out" / ".parts" / "step").iterdir()
    (folder / ".a, 2.json.7-7").write_text('{"value": 1, "sec')
    assert take(parts_of(), 2)[0] == [0, 2]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_both_signals_say_how_to_go_on(number):
    before = signal.getsignal(number)
    with pytest.raises(Stopped, match=r"^stopped; go on so$") as stopped, stoppable(lambda: "go on so"):
        os.kill(os.getpid(), number)
        signal.pause()
    assert stopped.value.signal == number and signal.getsignal(number) is before


def test_a_task_that_was_broken_off_keeps_its_traceback(caplog):
    async def work():
        task = asyncio.get_running_loop().create_task(inner())
        await asyncio.wait([task])

    async def inner():
        raise Interrupt(signal.SIGINT)

    with caplog.at_level(logging.ERROR), pytest.raises(Stopped), stoppable(lambda: ""):
        asyncio.run(work())
    gc.collect()
    assert caplog.text == ""


def test_the_code_has_a_digest(tmp_path, monkeypatch):
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "a.py").write_text("x = 1")
    monkeypatch.setattr("palaestra.__file__", str(tmp_path / "__init__.py"))
    digest = package_sha256.__wrapped__
    before = digest()
    (tmp_path / "room" / "notes.md").write_text("no code")
    assert digest() == before
    (tmp_path / "room" / "a.py").write_text("x = 2")
    assert digest() != before
