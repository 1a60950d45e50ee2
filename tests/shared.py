"""What the workers of a run of tests build once for all of them."""

import fcntl
import os
import shutil


def built_once(tmp_path_factory, name, build):
    """The folder that `build(folder)` made, in this worker or in the one that came first.

    The folder is for reading only. A build that fails is tried again by the next worker.

    Args:
        tmp_path_factory: pytest's; under xdist, the folder above its own is that of all workers.
        name: of the folder, one for what is built.
        build: called with a path that is not there.
    """
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, done = root / name, root / f"{name}.done"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back when the file is closed
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            build(folder)
            done.touch()
    return folder
