"""Other processors, as far as this one can show them: settings that hide instructions or choose other kernels of MKL and
oneDNN. They are read when torch is imported, so each test of them is a process of its own.
"""

import os
import subprocess
import sys

import pytest
import torch

OTHERS = {
    "no vector instructions": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "MKL's compatible kernels": {"MKL_CBWR": "COMPATIBLE"},
    "MKL's strict kernels": {"MKL_CBWR": "AUTO,STRICT"},
    "two threads": {"OMP_NUM_THREADS": "2"},
}
ROWS = "batched products of this processor depend on the number of rows: docs/engines.md"


def check_under(name, tests, folder, seconds=1700):
    """Runs tests, each as `FILE` or `FILE::TEST`, in a process that sees another processor; nothing that was measured here
    is known there, and none of them may be skipped but by `need_rows_of_eight`.

    Args:
        folder: for the files of the process.
    """
    told = os.environ | OTHERS[name] | {"XDG_CACHE_HOME": str(folder), "HF_HUB_OFFLINE": "1"}
    options = ["-rs", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not smollm2", f"--basetemp={folder / 'tests'}"]
    command = [sys.executable, "-m", "pytest", *options, f"--timeout={seconds}", *tests]
    done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=seconds)
    skips = [x for x in done.stdout.splitlines() if x.startswith("SKIPPED")]
    known = all(ROWS in x for x in skips) and (skips or "skipped" not in done.stdout)
    assert done.returncode == 0 and known, done.stdout[-3000:] + done.stderr[-1000:]


def need_rows_of_eight():
    """Skips a law that builds on batched products whose first eight rows have the same bits with more rows behind them.

    MKL's kernels for AVX2 on Intel do not give that (seen on a Xeon that is told to have no more): docs/engines.md.
    """
    a, b = (torch.randn(2, *shape, generator=torch.Generator().manual_seed(0)) for shape in ((272, 16), (16, 64)))
    whole = torch.bmm(a, b)
    if not all(torch.equal(torch.bmm(a[:, :m], b), whole[:, :m]) for m in (8, 136)):
        pytest.skip(ROWS)
