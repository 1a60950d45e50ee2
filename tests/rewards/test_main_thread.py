"""Rewards that need the main thread, and calls that hang. Expected values by hand."""

import asyncio
import functools
import os
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from palaestra.errors import Fault, TimedOut, UserError
from palaestra.rewards import calls
from palaestra.rewards.forked import COPIES, end_copies
from palaestra.rewards.user import UserReward
from palaestra.tasks.oracle import episode_saying, score_of
from palaestra.types import Group, Task

CTX = SimpleNamespace(sampling=False, say=print)


@pytest.fixture(autouse=True)
def no_copies():
    yield
    end_copies()
    calls.NEED_MAIN_THREAD.clear()


def judge(function, *texts, ctx=None, **settings):
    group = Group(task=Task(id="t", answer="7", meta={"held": [1]}), episodes=tuple(map(episode_saying, texts)))
    return asyncio.run(UserReward(function, **settings)(ctx, group))


def totals(function, *texts):
    return [r.total for r in judge(function, *texts, timeout=10.0)]


class Late(Exception):
    pass


def ring(*_):
    raise Late


def limited(function):
    """As the decorators of timeout packages are."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            return function(*args, **kwargs)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    return call


@limited
def right(text, gold):
    if text == "slow":
        time.sleep(5)
    return float(text == gold)


def plain(completions, labels=None, **kwargs):
    return [right(text, "7") for text in completions]


def careful(responses, answers):
    """Catches what comes, as many rewards do: in a thread every answer would be 0."""
    found = []
    for text, gold in zip(responses, answers, strict=True):
        try:
            found.append(right(text, gold))
        except Exception:
            found.append(0.0)
    return found


def single(response, answer):
    return right(response, answer)


async def waits(responses, answers):
    await asyncio.sleep(0)
    return careful(responses, answers)


def own_loop(responses, answers):
    loop = asyncio.get_event_loop()
    return loop.run_until_complete(waits(responses, answers))


def handler_of_a_loop(response, answer):
    try:
        asyncio.new_event_loop().add_signal_handler(signal.SIGUSR1, print)
    except (ValueError, RuntimeError):
        return 0.0
    return right(response, answer)


def refuses_threads(response, answer):
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("objects of this kind live in the main thread only")
    return float(response == answer)


def arrays(responses, answers):
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    return np.array([[float(r == a)] for r, a in zip(responses, answers, strict=True)])


FORMS = [plain, careful, single, waits, own_loop, handler_of_a_loop, refuses_threads, arrays]


@pytest.mark.parametrize("function", FORMS, ids=lambda f: f.__name__)
def test_they_work_as_on_a_main_thread(function):
    handler = signal.getsignal(signal.SIGALRM)
    for _ in range(2):
        assert totals(function, "7", "8") == [1.0, 0.0]
    assert signal.getsignal(signal.SIGALRM) is handler  # this process keeps its own


def test_their_own_time_limit_acts():
    started = time.monotonic()
    assert totals(careful, "7", "slow") == [1.0, 0.0] and time.monotonic() - started < 4


def test_closures_and_what_the_process_knows_go_along():
    gain = [2.0]

    def score(responses, answers):
        return [gain[0] * x for x in careful(responses, answers)]

    assert totals(score, "7", "8") == [2.0, 0.0]


def test_one_copy_serves_the_calls_of_a_function_one_after_the_other():
    def score(responses, answers):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        return [float(os.getpid())] * len(responses)

    (first,), (second,) = totals(score, "a"), totals(score, "a")
    assert first == second != os.getpid() and len(COPIES) == 1


def test_other_functions_stay_in_this_process():
    assert totals(lambda responses, answers: [float(os.getpid())], "a") == [os.getpid()]
    assert totals(lambda response, answer: asyncio.get_event_loop().run_until_complete(asyncio.sleep(0, 3.0)), "a") == [
        3
    ]
    assert not COPIES


def test_the_second_try_gets_the_data_as_it_was():
    def score(response, answer, held):
        found = float(held.pop())
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        return found

    assert totals(score, "a", "b") == [1.0, 1.0]


def test_errors_have_their_line_and_faults_stay_faults():
    def broken(responses, answers):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        return [1 / 0]

    def down(responses, answers):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        raise Fault("judge", "down")

    line = broken.__code__.co_firstlineno + 2
    for _ in range(2):
        with pytest.raises(UserError, match=rf"test_main_thread\.py:{line}: ZeroDivisionError: .* \(in broken\)$"):
            judge(broken, "a")
        with pytest.raises(Fault, match="judge: down"):
            judge(down, "a")


def test_a_copy_that_hangs_is_ended_and_one_that_ends_is_no_traceback():
    def hangs(response, answer):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        if response == "hangs":
            time.sleep(60)
        if response == "ends":
            os._exit(3)
        return 1.0

    found = judge(hangs, "a", "hangs", "ends", "b", ctx=CTX, timeout=3)
    assert [getattr(r, "total", None) for r in found] == [1.0, None, None, 1.0]
    assert "gave nothing in 3 s" in str(found[1]) and "ended the process" in str(found[2])
    assert len(COPIES) <= calls.cores()


# ---- calls that hang


def hang(response, answer):
    if response == "hang":
        time.sleep(3)
    return 1.0


async def async_hang(response, answer):
    await asyncio.sleep(3 if response == "hang" else 0)
    return 1.0


@pytest.mark.parametrize("function", [hang, async_hang], ids=lambda f: f.__name__)
def test_a_call_that_hangs_is_an_error_of_its_answer(function):
    first, hung, last = judge(function, "a", "hang", "b", ctx=CTX, timeout=0.2)
    assert first.total == last.total == 1 and isinstance(hung, TimedOut)
    assert str(hung).startswith("reward-timeout: ") and "gave nothing in 0.2 s" in str(hung) and score_of(hung) is None


def test_too_many_that_hang_end_the_run(monkeypatch):
    monkeypatch.setattr(calls, "MOST_HUNG", 2)
    assert len(judge(hang, *["hang"] * 2, "a", ctx=CTX, timeout=0.1)) == 3
    with pytest.raises(UserError, match="a hung thread cannot be ended, so the run is"):
        judge(hang, *["hang"] * 3, *"abcdefgh", ctx=CTX, timeout=0.1)
    assert len(judge(async_hang, *["hang"] * 3, *"abc", ctx=CTX, timeout=0.1)) == 6  # these can be ended: up to half
    with pytest.raises(UserError, match=r"gave nothing in 0\.1 s; bound its work"):
        judge(async_hang, *["hang"] * 4, *"abc", ctx=CTX, timeout=0.1)


def test_a_batch_that_hangs_leaves_nothing_to_go_on_with():
    with pytest.raises(UserError, match=r"gave nothing in 0\.1 s"):
        judge(lambda responses, answers: time.sleep(3), "a", "b", ctx=CTX, timeout=0.1)
