"""Other processors, as far as this one can show them: settings that hide instructions or choose other kernels of MKL and
oneDNN. They are read when torch is imported, so each test of them is a process of its own.
"""

import os
import subprocess
import sys

OTHERS = {
    "no vector instructions": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "MKL's compatible kernels": {"MKL_CBWR": "COMPATIBLE"},
    "MKL's strict kernels": {"MKL_CBWR": "AUTO,STRICT"},
    "two threads": {"OMP_NUM_THREADS": "2"},
}


def check_under(name, tests, folder, seconds=1700):
    """Runs tests, each as `FILE` or `FILE::TEST`, in a process that sees another processor; nothing that was measured here
    is known there, and none of them may be skipped.

    Args:
        folder: for the files of the process.
    """
    told = os.environ | OTHERS[name] | {"XDG_CACHE_HOME": str(folder), "HF_HUB_OFFLINE": "1"}
    options = ["-rs", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not smollm2", f"--basetemp={folder / 'tests'}"]
    command = [sys.executable, "-m", "pytest", *options, f"--timeout={seconds}", *tests]
    done = subprocess.run(command, env=told, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0 and "skipped" not in done.stdout, done.stdout[-3000:] + done.stderr[-1000:]
