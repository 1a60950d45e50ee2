"""What the machine can do: its matrix rate, its memory bandwidth, and the time a model's own linear
layers need.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from torch import nn

from palaestra import __version__
from palaestra.cores import cores
from palaestra.errors import UserError
from palaestra.models.load import Model
from palaestra.processor import arithmetic, computes_bfloat16, processor
from palaestra.run.parts import package_sha256


def device_of(given: str | None) -> str:
    """The device that is meant: "cuda" where nothing is said and there is one. Raises UserError for
    one that is not there.
    """
    there = torch.cuda.is_available()
    if given == "cuda" and not there:
        raise UserError("no CUDA device here; leave --device out, or say --device cpu")
    return given or ("cuda" if there else "cpu")


def untested(device: str) -> str:
    """What of a machine nobody has tried, in a line; "" = all of it was. Nothing is refused for it.

    Args:
        device: as torch names it, "mps" of a Mac's GPU.
    """
    kind = device.partition(":")[0]
    system = "" if sys.platform.startswith("linux") else platform.system() or sys.platform
    system = "macOS" if system == "Darwin" else system
    parts = [f"--device {device}"] if kind not in ("cpu", "cuda") else []
    parts += [system] if system else []
    if not parts:
        return ""
    mps = (
        "; set PYTORCH_ENABLE_MPS_FALLBACK=1 if torch lacks an operator there"
        if kind == "mps"
        else ""
    )
    return (
        f"note: {' on '.join(parts)} is untested: Palaestra was tried on Linux with processors and "
        f"CUDA alone{mps}; compare a short run with --device cpu"
        + (", and sandboxed programs do not run here" if system else "")
    )


def describe_machine(device: str) -> dict[str, Any]:
    """Processor, versions and load: what a time measured on a device belongs to. Of a CUDA
    device also its memory, what of it nobody has, its driver and the CUDA version.
    """
    cuda = device == "cuda"
    about: dict[str, Any] = {
        "processor": torch.cuda.get_device_name() if cuda else processor(),
        "cores": cores(),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS", ""),
        "arithmetic": arithmetic(),
        "load": [round(x, 2) for x in os.getloadavg()],
        "bfloat16": cuda or computes_bfloat16(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": importlib.metadata.version("transformers"),
        "palaestra": __version__,
    }
    if cuda:
        free, whole = (n >> 20 for n in torch.cuda.mem_get_info())
        about |= {"memory_mb": whole, "memory_free_mb": free}
        about |= {"driver": driver(), "cuda": torch.version.cuda}
    return about


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Of packages that a time is measured beside; those that are not installed are left out."""
    installed: dict[str, str] = {}
    for name in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    return installed


def driver() -> str:
    """The version of the GPU's driver; "" where nvidia-smi does not say."""
    ask = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        output = subprocess.run(ask, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next(iter(output.split()), "")


def conditions(machine: dict[str, Any]) -> dict[str, Any]:
    """What parts of a measurement have in common so that they make one: the described machine,
    whatever its load, and the code.
    """
    lasting = {k: v for k, v in machine.items() if k != "load"}
    return lasting | {"code": package_sha256()}


def seconds(run: Callable[[], object], *, budget: float = 0.5, least: int = 5) -> float:
    """Median time of a call. The first, which warms caches, does not count."""
    run()
    wait_for_gpu()
    times: list[float] = []
    while len(times) < least or sum(times) < budget:
        begin = time.perf_counter()
        run()
        wait_for_gpu()
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def wait_for_gpu() -> None:
    """Lets a GPU finish what it was given, so that a clock may be read."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def spread(ratios: np.ndarray) -> dict[str, Any]:
    """Ratios of pairs: their median, the lowest, the highest, and each."""
    return {
        "median": float(np.median(ratios)),
        "low": float(ratios.min()),
        "high": float(ratios.max()),
        "each": [round(float(r), 3) for r in ratios],
    }


def format_spread(spread: dict[str, Any], digits: int = 2) -> str:
    """A spread as "median (lowest to highest)"."""
    return (
        f"{spread['median']:.{digits}f} ({spread['low']:.{digits}f} to {spread['high']:.{digits}f})"
    )


def gemm(dtype: torch.dtype, device: torch.device) -> float:
    """FLOP/s of an n^3 matrix product, with an n that keeps the device busy."""
    n = 8192 if device.type == "cuda" else 2048
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    return 2 * n**3 / seconds(lambda: a @ b)


def bandwidth(device: torch.device, mb: int = 256) -> float:
    """Bytes a second that a copy reads and writes."""
    a = torch.zeros(mb << 18, device=device)
    b = torch.empty_like(a)
    return 2 * a.nbytes / seconds(lambda: b.copy_(a))


class Linears:
    """All linear layers of a model, the vocabulary's among them: what no implementation can leave
    out.
    """

    def __init__(self, model: Model):
        self.model = model
        head = model.causal.get_output_embeddings()
        self.body = [
            m for m in model.module.modules() if isinstance(m, nn.Linear) and m is not head
        ]
        self.head = [head] if head is not None else []
        self._known: dict[tuple[bool, int], float] = {}

    def flops(self, tokens: float, predicted: float) -> float:
        """Of the forward pass of `tokens`, for some of which the next one is predicted."""
        body, head = (
            sum(2 * m.weight.numel() for m in layers) for layers in (self.body, self.head)
        )
        return body * tokens + head * predicted

    @torch.no_grad()
    def time(self, n: int, head: bool) -> float:
        """Seconds for `n` tokens through the body, or through the vocabulary's layer, by the
        measured weights.
        """
        if n == 0:
            return 0.0
        size = min(1 << (n - 1).bit_length(), 2048)
        if (head, size) not in self._known:
            layers = self.head if head else self.body
            given = [torch.randn(size, m.in_features).to(m.weight) for m in layers]
            self._known[head, size] = seconds(
                lambda: [m(x) for m, x in zip(layers, given, strict=True)], budget=0.3
            )
        return self._known[head, size] * n / size

    def decoding(self, n: int) -> float:
        """Seconds of one decode step of `n` sequences: small products run slower than
        large ones.
        """
        return self.time(n, head=False) + self.time(n, head=True)

    def training(self, tokens: int, predicted: int) -> float:
        """Seconds of forward and backward (twice the forward) of `tokens` distinct positions, of
        which some are predicted.
        """
        return 3 * (self.time(tokens, head=False) + self.time(predicted, head=True))
