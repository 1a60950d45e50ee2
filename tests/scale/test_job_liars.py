"""Job servers that answer 500, lie, are silent or send control characters: one line, in bounded time. Ray's client is faked."""

import asyncio
import json
import socket
import threading
import time
from types import SimpleNamespace

import pytest
from palaestra.cli.main import main
from palaestra.errors import Fault
from palaestra.scale import jobs
from palaestra.scale.jobs import ClusterJob, follow

submission = pytest.importorskip("ray.job_submission")
OVER = threading.Event()


def fails(error):
    def fail():
        raise error

    return fail


def silence():
    OVER.wait(20)


def version():
    pass


# what the client does when it is made, and with the job
KINDS = {
    "500": (fails(RuntimeError("Request failed with status code 500: \x1b[2Jboom\n" * 500)), version),
    "no JSON": (fails(json.JSONDecodeError("Expecting value", "\x1b]0;pwn\x07", 0)), version),
    "another object": (fails(TypeError("list indices must be integers")), version),
    "a field less": (fails(KeyError("ray_version")), version),
    "silence": (silence, version),
    "silence once it said its version": (version, silence),
    "500 once it said its version": (version, fails(RuntimeError("\x1b[2Jboom"))),
    "a name that is a number": (version, lambda: 5),
    "a name of control characters": (version, lambda: "\x1b[2J\n"),
    "an endless name": (version, lambda: "a" * 10**6),
}


@pytest.fixture
def liar(monkeypatch, tmp_path):
    """A port that somebody listens at, whose client does as a kind says."""
    server = socket.create_server(("127.0.0.1", 0))

    def start(kind):
        first, rest = KINDS[kind]

        class Client:
            def __init__(self, address):
                first()

            def submit_job(self, **given):
                return rest()

        monkeypatch.setattr(submission, "JobSubmissionClient", Client)
        return f"127.0.0.1:{server.getsockname()[1]}"

    monkeypatch.setattr(jobs, "ANSWERING", 1.0)
    monkeypatch.setattr(jobs, "SENDING", 1.0)
    monkeypatch.setattr(jobs, "TELLING", 0.4)
    monkeypatch.chdir(tmp_path)
    OVER.clear()
    with server:
        yield start
    OVER.set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_server_that_lies_is_one_line(liar, kind, capsys):
    begin = time.monotonic()
    assert main(["submit", "--to", liar(kind), "--out", "/shared/runs/a"]) == 2
    said = capsys.readouterr()
    last = said.err.splitlines()[-1]
    assert last.startswith("palaestra: http://127.0.0.1:") and len(last) < 500 and "\x1b" not in said.err + said.out
    assert ("did not answer in 1 s" in last) == ("silence" in kind) == ("has not answered for 0 s" in said.err)
    assert time.monotonic() - begin < 20


def job(tail=(), silent=False, status=lambda name: None, info=None):
    async def logs(name):
        for text in tail:
            yield text
        if silent:
            await asyncio.sleep(20)

    return SimpleNamespace(tail_job_logs=logs, get_job_status=status, get_job_info=info)


def state(value, over):
    return SimpleNamespace(value=value, is_terminal=lambda: over)


JOB = ClusterJob(address="http://127.0.0.1:1", folder=None, command="c")


def test_a_job_is_over_though_its_output_is_not(monkeypatch):
    monkeypatch.setattr(jobs, "ANSWERING", 0.2)
    asyncio.run(follow(job(silent=True, status=lambda name: state("SUCCEEDED", True)), JOB, "j"))


def test_a_server_that_goes_silent_is_noticed(monkeypatch):
    OVER.clear()
    monkeypatch.setattr(jobs, "ANSWERING", 0.2)
    with pytest.raises(Fault, match=r"j can no longer be followed .*did not answer in"):
        asyncio.run(follow(job(silent=True, status=lambda name: OVER.wait(5)), JOB, "j"))


@pytest.mark.parametrize("error", [KeyError("x"), TypeError("no"), RuntimeError("gone"), OSError("cut")])
def test_what_a_client_makes_of_a_lie_is_a_fault(error):
    def status(name):
        raise error

    with pytest.raises(Fault, match="j can no longer be followed"):
        asyncio.run(follow(job(["step 1\n"], status=status), JOB, "j"))


def test_what_a_job_says_reaches_the_terminal_without_control_characters(liar, monkeypatch, capsys):
    """Whatever the job server streams, and why it says that the job failed."""
    to = liar("500")
    told = job(["step \x1b[2J1\n"], status=lambda name: state("FAILED", True))
    told.get_job_info = lambda name: SimpleNamespace(message="\x1b]0;pwn\x07")
    told.submit_job = lambda **given: "j"
    monkeypatch.setattr(submission, "JobSubmissionClient", lambda address: told)
    assert main(["submit", "--to", to, "--out", "/shared/runs/a"]) == 1
    said = capsys.readouterr()
    assert "step ␛[2J1\n" in said.out and "␛]0;pwn␇" in said.err and "\x1b" not in said.out + said.err
