"""However a run is ended from outside, it ends in order: whole checkpoints, one clear line, the right exit status."""

import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from palaestra.cli.main import main
from palaestra.errors import Stopped
from palaestra.run.driver import StopSignal
from palaestra.run.parts import Interrupt, stop_signals, stoppable
from palaestra.store.checkpoint import find_latest
from palaestra.terminal.streams import Voice

PALAESTRA = [sys.executable, "-m", "palaestra.cli.main"]
LONG = ["train", "--steps", "500", "--evaluate", "0", "--out", "run", "schedule.prompts=2", "collect.links.0.n=2"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def wait_for(pattern, process, place):
    deadline = time.monotonic() + 120
    while not list(place.glob(pattern)) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(place.glob(pattern))


def ended_in_order(place):
    """The checkpoint of the last step that the log has."""
    found, damaged = find_latest(place / "run")
    steps = (place / "run" / "metrics.jsonl").read_text().count('"loss"')
    return found is not None and not damaged and found.step == steps


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_ends_a_run_after_its_step(place, number):
    process = subprocess.Popen([*PALAESTRA, *LONG], stderr=subprocess.PIPE, text=True)
    wait_for("run/checkpoints/step-*", process, place)
    process.send_signal(number)
    told = process.communicate(timeout=120)[1]
    assert process.returncode == 128 + number and "Traceback" not in told
    assert told.splitlines()[-1].endswith("go on with: palaestra train --resume run") and ended_in_order(place)


def test_a_run_outlives_its_terminal_where_it_was_told_to(place):
    ignoring = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    process = subprocess.Popen([*PALAESTRA, *LONG], stderr=subprocess.DEVNULL, preexec_fn=ignoring)
    wait_for("run/checkpoints/step-*", process, place)
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(3)
    process.terminate()
    assert process.wait(120) == 128 + signal.SIGTERM


def test_a_run_that_nobody_reads_ends_after_its_step(place):
    """Both streams go into a pipe whose reader closes, as `2>&1 | head -1` does."""
    process = subprocess.Popen([*PALAESTRA, *LONG], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(120) == 128 + signal.SIGPIPE and ended_in_order(place)


def test_a_signal_before_the_first_step_leaves_no_empty_folder(place):
    process = subprocess.Popen([*PALAESTRA, *LONG], stderr=subprocess.PIPE, text=True)
    wait_for("run", process, place)
    process.send_signal(signal.SIGTERM)
    told = process.communicate(timeout=120)[1]
    assert process.returncode == 128 + signal.SIGTERM and "palaestra: stopped; " in told and "Traceback" not in told
    assert ("the run had not begun" in told) == (not (place / "run").exists())


def test_what_stops_a_run_includes_a_terminal_that_hangs_up(monkeypatch):
    before = signal.getsignal(signal.SIGHUP)
    try:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with pytest.raises(Stopped) as stopped, stoppable(lambda: "so"):
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(1)
        assert stopped.value.signal == signal.SIGHUP
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert signal.SIGHUP not in stop_signals()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_signal_is_the_one_that_ends_a_run_at_once():
    with StopSignal() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupt) as interrupt:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
    assert (stop.asked, interrupt.value.signal) == (signal.SIGINT, signal.SIGTERM)


def test_a_full_disk_below_the_output_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run([*PALAESTRA, "list"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "palaestra: disk: writing the output: no space left on device\n"


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_streams_that_are_closed_are_no_error(closed, place):
    redirects = " ".join(f"{n}>&-" if n else "0<&-" for n in closed)
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(PALAESTRA)} show grpo --json {redirects}"], capture_output=True, text=True
    )
    assert done.returncode == 0 and not done.stderr
    assert done.stdout == "" if 1 in closed else '"id": "grpo"' in done.stdout or "grpo" in done.stdout


@pytest.mark.parametrize("closed", [(0, 1), (0, 1, 2)])
def test_a_run_ends_where_nobody_listens(closed, place):
    redirects = " ".join(f"{n}>&-" if n else "0<&-" for n in closed)
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(PALAESTRA)} train --smoke --out run {redirects}"], capture_output=True, text=True
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert json.loads((place / "run" / "summary.json").read_text())["weights_sha256"]


def test_characters_that_the_terminal_lacks_are_written_as_numbers(place):
    (place / "größe.py").write_text(
        '"""Größe → ε."""\nimport palaestra as pl\n\n\ndef build():\n    return pl.recipe("grpo")\n'
    )
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*PALAESTRA, "show", "größe.py"], capture_output=True, env=env)
    assert done.returncode == 0, done.stderr
    assert rb"Gr\xf6\xdfe \u2192 \u03b5" in done.stdout


def test_a_run_is_made_where_only_ascii_is_written(place):
    lines = [f'{{"prompt": "α{i} – β", "answer": "{i % 10}"}}' for i in range(20)]
    (place / "θ.jsonl").write_text("\n".join(lines), encoding="utf-8")
    env = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    argv = [*PALAESTRA, "train", "--smoke", "--data", "θ.jsonl", "--out", "run"]
    done = subprocess.run(argv, capture_output=True, env=env)
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
    done = subprocess.run([*PALAESTRA, "train", "--resume", "run", "--steps", "3"], capture_output=True, env=env)
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("flag", ["--data", "--test-data", "--model", "--reward", "--out"])
def test_a_name_that_is_no_text_is_one_line_before_anything_is_made(place, flag, capsys):
    (place / "d.jsonl").write_text("\n".join(f'{{"prompt": "{i}", "answer": "{i % 10}"}}' for i in range(20)))
    argv = ["train", "--smoke", "--data", "d.jsonl", "--out", "run"]
    assert main([*argv, flag, os.fsdecode(b"\xce.jsonl")]) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1 and "the name '\\udcce.jsonl' is not UTF-8" in told[0], told
    assert told[0].startswith(f"palaestra: {'the run folder' if flag == '--out' else flag}: ")
    assert [p.name for p in place.iterdir() if p.suffix != ".jsonl"] == []


class Broken(io.StringIO):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def write(self, text):
        raise self.error


@pytest.mark.parametrize(("number", "lost"), [(32, True), (5, True), (28, False)])
def test_a_voice_does_not_fail_and_knows_when_nobody_listens(number, lost):
    voice = Voice(Broken(OSError(number, "x")))
    print("text", file=voice, flush=True)
    assert voice.lost == lost
    heard = io.StringIO()
    print("text", file=Voice(heard))
    assert heard.getvalue() == "text\n"


def test_the_last_line_is_said_where_nothing_can_be_said(place, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Voice(Broken(BrokenPipeError(32, "x"))))
    assert main(["train", "--stepz", "3"]) == 2


# ---- control characters

CONTROLS = "\x1b[2J\x1b]0;pwn\x07\x9b2J\r\x7f\x00"
DRAWN = "␛[2J␛]0;pwn␇\ufffd2J␍␡␀"


def test_what_is_printed_holds_no_control_characters(monkeypatch, capsys):
    """An error with what a server said, a note of a run, and what libraries print."""
    import palaestra.cli.list as verb
    from palaestra.errors import Fault, UserError

    def run(kind):
        def fails(arguments):
            print(f"said: {CONTROLS}\ttab")
            sys.stderr.writelines([f"warning: {CONTROLS}\n"])
            raise kind("chat-500", CONTROLS) if kind is Fault else kind(CONTROLS)

        return fails

    for kind, status in ((UserError, 2), (Fault, 1)):
        monkeypatch.setattr(verb, "run", run(kind))
        assert main(["list"]) == status
        said = capsys.readouterr()
        assert said.out == f"said: {DRAWN}\ttab\n"
        assert said.err.startswith(f"warning: {DRAWN}\npalaestra: ") and said.err.endswith(f"{DRAWN}\n")


def test_a_note_of_a_run_is_clean_beside_a_live_display(context, capsys):
    ctx = context()
    ctx.talk = True
    ctx.say(f"note: {CONTROLS}")
    assert capsys.readouterr().err == f"note: {DRAWN}\n"


def test_a_display_of_ours_still_draws():
    import io

    from palaestra.terminal.streams import CleanStream, drawing

    stream = io.StringIO()
    clean = CleanStream(stream)
    assert drawing(clean) is stream is drawing(stream) and not clean.isatty()
    print("\x1b[1mbold\x1b[0m", file=drawing(clean), end="")
    print("\x1b[1m", file=clean, end="")
    assert stream.getvalue() == "\x1b[1mbold\x1b[0m␛[1m"


def test_a_stream_that_was_closed_is_no_terminal():
    from palaestra.terminal.streams import CleanStream

    stream = io.StringIO()
    stream.close()
    assert not CleanStream(stream).isatty()
