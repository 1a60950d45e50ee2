"""Work on several ranks that are processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from palaestra.errors import Fault
from palaestra.scale.learning import free_address, join, leave
from palaestra.services.children import empty_main

MEETING = 60.0  # seconds that a rank waits for another
# whose server imports once what takes a process seconds
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__, "transformers.models.llama.modeling_llama"])


def run_ranks(
    ranks: int, work: Callable[..., Any], *given: Any, seconds: float = 300.0
) -> list[Any]:
    """`work(mesh, *given)` on so many ranks of gloo, each a process of one thread: what each
    returns. Where one fails or is late, all are ended.

    Args:
        ranks: how many.
        work: a function of a module, called with the mesh of all ranks and what is given, all of
            which must be picklable.
        given: further arguments.
        seconds: that all ranks may take.

    Raises:
        Fault: a rank failed, with what it said, or was late.
    """
    address, pipes, processes = free_address(), list[Connection](), list[Any]()
    try:
        for rank in range(ranks):
            mine, theirs = FORKS.Pipe()
            arguments = (theirs, work, rank, ranks, address, given, MEETING)
            process = FORKS.Process(target=run_rank, args=arguments, daemon=True)
            with empty_main():
                process.start()
            theirs.close()
            pipes.append(mine)
            processes.append(process)
        results = [_receive(pipe, rank, seconds) for rank, pipe in enumerate(pipes)]
        if wrong := [f"rank {i}: {result}" for i, (fine, result) in enumerate(results) if not fine]:
            raise Fault("ranks", "\n".join(wrong))
        return [result for _, result in results]
    finally:
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()


def run_rank(
    pipe: Connection,
    work: Callable[..., Any],
    rank: int,
    ranks: int,
    address: str,
    given: Any,
    meeting: float,
) -> None:
    """What a process of `run_ranks` does: it sends (True, result) or (False, what went wrong)."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    try:
        pipe.send((True, work(join(rank, ranks, address, seconds=meeting), *given)))
        leave()
    except BaseException:
        pipe.send((False, traceback.format_exc()))
        raise


def _receive(pipe: Connection, rank: int, seconds: float) -> tuple[bool, Any]:
    try:
        if pipe.poll(seconds):
            return pipe.recv()
    except EOFError:
        raise Fault("ranks", f"rank {rank} ended without a word") from None
    raise Fault("ranks", f"rank {rank} said nothing for {seconds:g} s")
