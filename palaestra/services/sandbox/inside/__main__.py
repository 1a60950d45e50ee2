"""The warm interpreter inside the sandbox: forks a supervisor for every request, and so never learns what one said.

Standard library only: this folder is all of Palaestra that the sandbox can see. The channel is the file descriptor named on
the command line; when its other end closes, everything here ends.
"""

import contextlib
import gc
import importlib
import os
import socket
import sys

import isolate
import supervise

PRELOADED = (  # what model-written code imports most; loaded once, then shared by every fork
    "ast bisect cmath collections copy dataclasses datetime decimal enum fractions functools heapq itertools json linecache "
    "math operator random re statistics string threading time traceback types typing"
).split()


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    guarded, warm = sys.argv[2] == "guarded", sys.argv[3] == "warm"
    isolate.FILTER = bytes.fromhex(sys.argv[4])
    if warm:
        for name in PRELOADED:
            importlib.import_module(name)
    sys.path[0] = "/tmp"  # what a candidate sees first, in place of this folder
    gc.collect()
    gc.freeze()  # forks then share these objects' pages
    while channel.recv(1, socket.MSG_PEEK):
        pid = os.fork()
        if not pid:
            supervise.serve(channel, guarded)
            os._exit(0)
        if os.waitpid(pid, 0)[1]:
            break  # the supervisor failed and said so on stderr: the other end sees the channel close


with contextlib.suppress(ConnectionError):
    main()
os._exit(0)
