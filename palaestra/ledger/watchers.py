"""Processes that watch canaries side by side."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import torch

from palaestra.cores import cores

PRELOADED = ["palaestra.ledger.canaries", "transformers.models.llama.modeling_llama"]


@contextmanager
def pool(jobs: int) -> Generator[ProcessPoolExecutor]:
    """Processes of one thread each, which end with this one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with ProcessPoolExecutor(jobs or cores(), context, begin_worker) as workers:
        yield workers


def begin_worker() -> None:
    torch.set_num_threads(1)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Ends this worker when the process that made the pool has ended, however that was."""
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)
