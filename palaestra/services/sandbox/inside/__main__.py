"""The interpreter inside the sandbox: supervises one run after another, each forked from here.

A fork begins with a copy of this memory, so nothing of a run may stay in it: code, input and tests
are read by the forks, and what they print is wiped here once it is sent on (see `supervise`).
Standard library only, and little of it: this folder is all of Palaestra that the sandbox can see,
and a cold start pays for each import. The channel is the file descriptor on the command line; when
its other end closes, everything here ends.
"""

from __future__ import annotations

import gc
import os
import sys

import isolate
import supervise
import wire

# for sessions and tests, then what model-written code imports most; loaded once, shared by every
# fork
PRELOAD = (
    *(
        "ast",
        "atexit",
        "linecache",
        "peer",
        "threading",
        "traceback",
        "bisect",
        "collections",
        "copy",
        "dataclasses",
    ),
    *(
        "functools",
        "heapq",
        "itertools",
        "json",
        "math",
        "operator",
        "random",
        "re",
        "string",
        "typing",
    ),
)

OPEN = ("shutil", "tempfile")  # for the folder of an unguarded run


def main():
    channel, guarded, warm = int(sys.argv[1]), sys.argv[2] == "guarded", sys.argv[3] == "warm"
    isolate.FILTER = bytes.fromhex(sys.argv[4])
    sys.path.append(sys.argv[5])
    for name in (*PRELOAD, *(() if guarded else OPEN)) if warm else ():
        __import__(name)
    del sys.path[0]
    gc.disable()
    gc.freeze()  # forks then share these objects' pages
    try:
        while supervise.serve(channel, guarded):
            pass
    except wire.Closed:
        os._exit(0)


main()
os._exit(0)
