"""Standard output and error outlive what other packages do with them while they are loaded."""

import subprocess
import sys

import pytest

DEEDS = [
    "import os; os.close(1); os.close(2)",
    "import sys; sys.stdout.close(); sys.stderr.close()",
    "import sys; sys.stdout = sys.stderr = None",
    "import os; os.dup2(os.open(os.devnull, os.O_WRONLY), 1); os.dup2(1, 2)",
    "import sys; sys.__stdout__.close(); raise ValueError",
    "pass",
]


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("clean", [True, False])
def test_streams_are_as_before(deed, clean):
    program = f"""
import contextlib, sys
from palaestra.plugins import kept_streams
from palaestra.terminal.streams import clean_streams
print("before")
with clean_streams() if {clean} else contextlib.nullcontext():
    with contextlib.suppress(ValueError), kept_streams():
        exec({deed!r})
    print("after", flush=True)
    print("error", file=sys.stderr, flush=True)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "before\nafter\n" and ended.stderr == "error\n"
