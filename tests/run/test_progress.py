"""What a run says while it runs."""

import io
import os
import re
import threading
from itertools import pairwise
from types import SimpleNamespace

import pytest
from palaestra.terminal.display import BLOCKS, Progress, Pulse, clock_time, sparkline

STEP = {
    "reward": 0.5, "reward_low": 0.4, "reward_high": 0.6, "length": 12.34, "truncated": 0.02, "errors": 0.0,
    "tokens_per_second": 1234.5,
}  # fmt: skip


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return Terminal()


def bare(text):
    """Without escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_plain_lines_every_few_seconds(capsys):
    out, clock = io.StringIO(), Clock()
    with Progress(100, out, clock=clock, every=5) as progress:
        for i in range(1, 31):
            clock.now += 1
            progress.update(i, STEP)
    lines = out.getvalue().splitlines()
    steps = [int(re.match(r"step (\d+)/100", line)[1]) for line in lines]
    assert steps == [1, 6, 11, 16, 21, 26, 30]
    assert lines[1] == "step 6/100  reward 0.50 ± 0.10  length 12.3  truncated 2%  errors 0%  1:34 left  1,234 tokens/s"
    assert capsys.readouterr().out == ""


def test_a_log_of_hours_is_short_and_never_silent_for_long():
    """A step a second: the first lines every few seconds, ten hours in some hundred lines, and none of the pauses is
    over five minutes."""
    out, clock = io.StringIO(), Clock()
    progress = Progress(36_000, out, clock=clock)
    for i in range(1, 36_001):
        clock.now += 1
        progress.update(i, STEP)
    steps = [int(re.match(r"step (\d+)/", line)[1]) for line in out.getvalue().splitlines()]
    pauses = [b - a for a, b in pairwise(steps)]
    assert steps[:5] == [1, 6, 11, 16, 21] and steps[-1] == 36_000
    assert 100 < len(steps) < 200 and max(pauses) == 300 and pauses[:-1] == sorted(pauses[:-1])


def test_the_last_step_is_always_told():
    out, clock = io.StringIO(), Clock()
    progress = Progress(3, out, clock=clock)
    for i in range(1, 4):
        clock.now += 0.1
        progress.update(i, STEP)
    progress.close()
    progress.close()
    assert [line.split()[1] for line in out.getvalue().splitlines()] == ["1/3", "3/3"]
    assert "in all" in out.getvalue()


def test_steps_that_sample_nothing_tell_their_loss():
    stream = io.StringIO()
    progress = Progress(2, stream=stream)
    progress.update(2, {"loss": 1.25, "errors": 0.0, "seconds": 1.0})
    progress.close()
    assert stream.getvalue().startswith("step 2/2  loss 1.2500  errors 0%")
    assert progress.course == [1.25] and "tokens/s" not in stream.getvalue()


def test_the_pace_is_the_recent_one():
    clock = Clock()
    progress = Progress(100, io.StringIO(), clock=clock)
    assert progress.left() is None
    clock.now = 500  # loading and the first evaluation are no steps
    for i in range(1, 51):
        clock.now += 2
        progress.update(i, {})
    assert progress.left() == pytest.approx(100)
    clock.now += 30
    assert progress.left() == pytest.approx(70)


def test_a_resumed_run_knows_its_pace_from_the_start():
    progress = Progress(100, io.StringIO(), clock=Clock())
    progress.update(50, {"seconds": 100.0})
    assert progress.left() == pytest.approx(100)


def test_metrics_may_be_missing_or_not_finite():
    out = io.StringIO()
    progress = Progress(2, out)
    progress.update(1, {"reward": float("nan"), "length": None})
    assert out.getvalue() == "step 1/2\n"


def test_a_terminal_gets_a_live_display(terminal, capsys):
    with Progress(40, terminal, clock=Clock()) as progress:
        for i in range(1, 21):
            progress.update(i, STEP | {"reward": i / 20})
        cursor = terminal.getvalue().rfind("\x1b[?25h"), terminal.getvalue().rfind("\x1b[?25l")
    shown = bare(terminal.getvalue())
    assert (
        "step 20/40" in shown and "reward 1.00 ± 0.10" in shown and "errors 0%" in shown and "1,234 tokens/s" in shown
    )
    assert BLOCKS[0] in shown and BLOCKS[-1] in shown
    assert cursor[0] > cursor[1] >= 0  # it is back while the run goes on, which may be killed
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("columns", [20, 30, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(terminal, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    with Progress(12000, terminal) as progress:
        progress.update(11000, STEP)
    assert max(map(len, re.split(r"[\r\n]", bare(terminal.getvalue())))) <= columns
    last = bare(terminal.getvalue().rpartition("\x1b[2K")[2])
    assert [line.split()[0] for line in last.splitlines() if line.strip()] == ["step", "reward"]  # and none is broken


def test_a_dumb_terminal_gets_plain_lines(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    with Progress(2, terminal) as progress:
        progress.update(1, {"reward": 0.5})
    assert terminal.getvalue() == "step 1/2  reward 0.50\n"


def test_what_is_no_terminal_gets_plain_lines_whatever_the_colours(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    with Progress(2, stream) as progress:
        progress.update(1, {"reward": 0.5})
    assert stream.getvalue() == "step 1/2  reward 0.50\n"


def test_standard_output_is_never_redirected(terminal, capfd):
    with Progress(2, terminal):
        print("for the program that reads us")
    assert capfd.readouterr().out == "for the program that reads us" + os.linesep
    assert "for the program" not in terminal.getvalue()


def test_sparklines_and_times():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == BLOCKS
    assert sparkline([0, 0, 1, 1], 2) == BLOCKS[0] + BLOCKS[-1]
    assert sparkline([], 5) == "" and len(sparkline(list(range(1000)), 20)) == 20
    assert [clock_time(s) for s in (0.4, 61, 3725)] == ["0:00", "1:01", "1:02:05"]


def test_what_is_slow_says_that_it_goes_on():
    stream, clock, twice, asked = io.StringIO(), Clock(), threading.Event(), []

    def tell():
        asked.append(clock.now)
        clock.now += 61
        if len(asked) == 3:
            twice.set()
        return f"{len(asked)} done"

    with Pulse("step 3", stream, tell=tell, every=0.001, clock=clock):
        assert twice.wait(60)
    said = stream.getvalue().splitlines()
    assert said[:2] == ["step 3  0:00 so far  1 done", "step 3  1:01 so far  2 done"]
    assert len(asked) == len(said), "nothing is said once it is over"


def test_what_is_quick_says_nothing():
    stream = io.StringIO()
    with Pulse("step 3", stream, every=60):
        pass
    assert stream.getvalue() == "" and not [t for t in threading.enumerate() if t.name == "palaestra pulse"]


def test_a_pulse_waits_twice_as_long_each_time():
    """Up to five minutes, or longer where its first pause is."""
    for every, expected in ((5.0, [5, 10, 20, 40, 80, 160, 300, 300]), (400.0, [400, 400])):
        waits, pulse = [], Pulse("step 3", io.StringIO(), every=every)
        count = len(expected)
        pulse._over = SimpleNamespace(wait=lambda s, w=waits, n=count: (w.append(s), len(w) == n)[1])
        pulse._beat()
        assert waits == expected and len(pulse.stream.getvalue().splitlines()) == count - 1
