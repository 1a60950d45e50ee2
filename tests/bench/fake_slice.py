"""Stands in for the process of a slice: says what its request's slice and FAKE_SLICE tell it to. Standard library only."""

import json
import os
import signal
import subprocess
import sys
import time

request = json.loads(sys.argv[1])
how = json.loads(os.environ["FAKE_SLICE"]).get(request["slice"], "done")


def tell(**message):
    print(json.dumps(message), flush=True)


with open(os.environ["FAKE_SLICE_LOG"], "a") as log:
    log.write(json.dumps({**request, "gpu": os.environ.get("CUDA_VISIBLE_DEVICES")}) + "\n")
tell(machine={"processor": "P", "cores": 2, "load": [0.5, 0, 0]})
tell(at="the middle")
if how == "hangs":
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    tell(worker=worker.pid)
    time.sleep(600)
if how == "dies":
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.DEVNULL)
    tell(worker=worker.pid)
    os.kill(os.getpid(), signal.SIGKILL)
if how == "fails":
    print("Traceback, says the log", file=sys.stderr, flush=True)
    tell(why="OutOfMemoryError: CUDA out of memory")
    sys.exit(1)
tell(work={"model": "m"}, result={"how": how})
