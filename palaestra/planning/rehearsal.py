"""An execution plan on real workers that wait: how long it takes beside how long it was predicted
to take.

Each device is a thread with a queue. A driver sends a call to the queues of its mesh once all that
it waits for has ended; the threads meet and sleep for the call's seconds together. What is real are
the driver, the queues and the clock. What a call takes is what it was measured to take before.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch

from palaestra.planning.plan import CallKind, Choice, ModelCall, check_graph, edges_of
from palaestra.rollout.collect import Sample
from palaestra.run.evaluation import attempt_tasks

if TYPE_CHECKING:
    from palaestra.context import Context

CallSeconds: TypeAlias = Mapping[CallKind, Sequence[float]]


class Sleep(NamedTuple):
    """One run of a call, as its devices get it."""

    run: tuple[int, int]  # iteration, number of the call
    seconds: float
    meeting: threading.Barrier


def rehearse(
    calls: Sequence[ModelCall],
    choice: Choice,
    seconds: Mapping[str, Sequence[float]],
    iterations: int,
) -> float:
    """Seconds that a plan takes on threads that wait.

    Args:
        calls: one iteration, as for `plan.plan_of`.
        choice: an option for each; only its mesh counts.
        seconds: of each run of each call, by name, at least as many as `iterations`.
        iterations: how many are unrolled.
    """
    check_graph(calls)
    trains = {c.model: c.name for c in calls if c.kind == "train"}
    followers, waits = edges_of(calls, trains)
    runs = list(itertools.product(range(iterations), range(len(calls))))
    missing = {(k, i): waits[i] + (k > 0 and calls[i].model in trains) for k, i in runs}
    done: queue.Queue[tuple[int, int]] = queue.Queue()
    devices = {d: queue.Queue[Sleep | None]() for o in choice.values() for d in o.mesh}
    threads = [threading.Thread(target=work, args=(q, done)) for q in devices.values()]

    def send(k: int, i: int) -> None:
        mesh = choice[calls[i].name].mesh
        sleep = Sleep((k, i), seconds[calls[i].name][k], threading.Barrier(len(mesh)))
        for d in mesh:
            devices[d].put(sleep)

    for thread in threads:
        thread.start()
    begin = time.perf_counter()
    for run in runs:
        if not missing[run]:
            send(*run)
    for _ in runs:
        k, i = done.get()
        for later, j in followers[i]:
            if (then := (k + later, j)) in missing:
                missing[then] -= 1
                if not missing[then]:
                    send(*then)
    took = time.perf_counter() - begin
    for waiting, thread in zip(devices.values(), threads, strict=True):
        waiting.put(None)
        thread.join()
    return took


def work(orders: queue.Queue[Sleep | None], done: queue.Queue[tuple[int, int]]) -> None:
    """What a device does until it is sent None."""
    while (sleep := orders.get()) is not None:
        sleep.meeting.wait()
        time.sleep(sleep.seconds)
        if sleep.meeting.wait() == 0:
            done.put(sleep.run)


async def measure_calls(ctx: Context, rows: int, repeats: int) -> dict[CallKind, list[float]]:
    """Processor seconds of a run's model: of sampling answers to `rows` tasks, and of a forward pass
    over as many rows without and with a backward pass, in turn, as often as `repeats` says. The
    weights do not move.
    """
    model = ctx.model("policy")
    shape = (rows, 2 * ctx.bench.max_tokens)
    ids_BT = torch.zeros(shape, dtype=torch.long, device=model.device)
    times: dict[CallKind, list[float]] = {"generate": [], "inference": [], "train": []}
    for i in range(repeats):
        begin = time.process_time()
        await attempt_tasks(ctx, rows, Sample(n=1), split="train", label=f"measure {rows}/{i}")
        times["generate"].append(time.process_time() - begin)
        begin = time.process_time()
        with torch.no_grad():
            model.module(ids_BT)
        times["inference"].append(time.process_time() - begin)
        begin = time.process_time()
        loss = model.module(ids_BT).logits.float().logsumexp(-1).mean()
        torch.autograd.grad(loss, model.trainable())
        times["train"].append(time.process_time() - begin)
    return times
