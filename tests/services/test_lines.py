"""Child processes that are asked and answer in lines of JSON."""

import asyncio
import os
import signal
import sys
import textwrap

import pytest
from benchmarks.turns import TurnWorker
from palaestra.errors import Fatal, Fault
from palaestra.services.lines import Child, Died, Expired, LineProcess

ECHO = """
    import os, sys, time
    print("a library says hello")
    sys.stdout.flush()
    from palaestra.services.lines import answer_sender, questions
    answer = answer_sender()
    for question in questions():
        print("and something else", flush=True)
        if "end" in question:
            print("no more", file=sys.stderr)
            os._exit(3)
        time.sleep(question.get("sleep", 0))
        answer(question)
"""


def command(body):
    return [sys.executable, "-c", textwrap.dedent(body)]


@pytest.fixture
def process(tmp_path):
    started = LineProcess(command(ECHO), log=tmp_path / "log")
    yield started
    started.stop()


def test_answers_come_alone_and_in_their_order(process):
    long = "x" * 300_000  # more than a pipe holds
    for i in range(2):
        process.send({"i": i, "text": "two\nlines"})
    assert [process.receive(30)["i"], process.receive(30)["text"]] == [0, "two\nlines"]
    process.send({"text": long})
    assert process.receive(30) == {"text": long}


def test_a_limit_passes_and_a_late_answer_is_kept_whole(process):
    process.send({"sleep": 0.3})
    with pytest.raises(Expired):
        process.receive(0.0)
    assert process.receive(30) == {"sleep": 0.3}


def test_death_is_told_with_the_last_words(process):
    process.send({"end": True})
    with pytest.raises(Died):
        process.receive(30)
    assert process.process.wait(30) == 3
    assert process.last_words() == "and something else | no more"
    with pytest.raises(Died):
        for _ in range(2):
            process.send({})


def test_one_that_ends_by_itself_is_not_killed_and_one_that_does_not_is(tmp_path):
    kind = LineProcess(command("import sys; sys.stdin.read(); sys.exit(5)"))
    kind.end(30)
    assert kind.process.returncode == 5
    deaf = LineProcess(command("import time; time.sleep(60)"), apart=True)
    deaf.end(0.1)
    assert deaf.process.returncode == -signal.SIGKILL


def test_many_questions_in_flight_find_their_answers_or_the_death(tmp_path):
    async def ask():
        child = Child("the echo", command(ECHO), os.environ, tmp_path / "log")
        loop = asyncio.get_running_loop()
        waiting = [loop.create_future() for _ in range(3)]
        numbers = [child.expect(f) for f in waiting]
        for n in reversed(numbers):
            child.send({"id": n})
        answers = [f.result()["id"] for f in (await asyncio.wait(waiting, timeout=30))[0]]
        assert sorted(answers) == numbers
        open_one = loop.create_future()
        child.send({"id": child.expect(open_one), "end": True})
        with pytest.raises(Fatal, match=r"the echo ended with status 3: .*no more"):
            await asyncio.wait_for(open_one, 30)
        with pytest.raises(Fatal, match="status 3"):
            child.expect(loop.create_future())
        child.close()

    asyncio.run(ask())


def test_a_worker_in_turns_that_ends_early_says_why(tmp_path, monkeypatch):
    (tmp_path / "worker.py").write_text(
        "import sys\nfrom benchmarks.turns import Turns\nturns = Turns()\nturns.ready()\n"
        "turns.wait()\nturns.report({'took': 1})\nturns.wait()\nsys.exit('out of paper')\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    worker = TurnWorker("worker", "{}", tmp_path / "out")
    assert worker.started["ready"] and worker.go() == {"took": 1}
    with pytest.raises(Fault, match="a worker ended early: out of paper"):
        worker.go()
    worker.close()
