"""Law `no_hang` for the ranks of a learner: each stopped or killed in each phase, and the other knows it in time."""

import asyncio
import json
import os
import pickle
import shutil
import signal
import time

import pytest
from palaestra.errors import Fault
from palaestra.run.driver import train
from palaestra.scale import sharded
from palaestra.scale.learning import Follower, ShardedContext, follow, free_address, losses, sharded_context
from palaestra.scale.local_ranks import FORKS, run_rank
from palaestra.scale.sharded import ShardedModel
from palaestra.services.children import empty_main

from tests.scale.test_learning import context, recipe_of

WAITS = 4.0  # seconds that a rank waits for another
# where a rank is stopped: inside of what it takes part in, after the other has begun to wait for it
PHASES = {
    "scatter": (ShardedModel, "set_optimiser_state"),
    "learn": (ShardedContext, "learning"),
    "forward": (ShardedModel, "__call__"),
    "backward": (sharded, "add_metrics"),
    "gather": (ShardedModel, "full_weights"),
    "gather_state": (ShardedContext, "gather_state"),
}
DOING = {
    "scatter": "handing out the weights of 'policy'",
    "gather": "gathering the weights of 'policy'",
    "gather_state": "gathering the optimiser of 'policy'",
}


def stop_in(phase, how, folder):
    """This process stops when it comes to a phase."""
    place, name = PHASES[phase]
    plain = getattr(place, name)

    def stops(*given, **more):
        (folder / "stopped").write_text(str(time.time()))
        os.kill(os.getpid(), how)
        return plain(*given, **more)

    setattr(place, name, stops)


def send(folder, sent, order):
    """By files, for which nobody waits: a pipe is full at some point, and ranks have deadlines."""
    sent.append(order)
    (folder / "draft").write_bytes(pickle.dumps(order))
    (folder / "draft").rename(folder / f"order-{len(sent)}")


def receive(folder, taken):
    at = folder / f"order-{len(taken) + 1}"
    while not at.exists():
        time.sleep(0.01)
    taken.append(at)
    return pickle.loads(at.read_bytes())


def survive(mesh, folder, lost, phase, how):
    """A run on two ranks, from a checkpoint on; what the one that stays says at its end."""
    rank, told = mesh.get_rank(), []
    if rank == lost:
        stop_in(phase, how, folder)
    try:
        if rank:
            follow(Follower(recipe_of("sft"), context("sft", 2), mesh), lambda: receive(folder, told))
        else:
            ctx = context("sft", 2, folder / "run")
            asyncio.run(train(recipe_of("sft"), sharded_context(ctx, mesh, lambda o: send(folder, told, o))))
        said = "nothing was amiss"
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    (folder / "said").write_text(json.dumps([said, time.time()]))


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """The folder of a run that has made its first step, in one process."""
    folder = tmp_path_factory.mktemp("begun")
    asyncio.run(train(recipe_of("sft"), context("sft", 1, folder / "run")))
    return folder / "run"


def ends(begun, folder, lost, phase, how):
    """What the rank that stays says, and after how many seconds."""
    shutil.copytree(begun, folder / "run")
    address, processes = free_address(), []
    for rank in range(2):
        given = (FORKS.Pipe()[1], survive, rank, 2, address, (folder, lost, phase, how), WAITS)
        processes.append(FORKS.Process(target=run_rank, args=given, daemon=True))
        with empty_main():
            processes[-1].start()
    try:
        until = time.monotonic() + 120
        while not (folder / "said").exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert (folder / "said").exists(), "the rank that stays says nothing: it hangs"
        time.sleep(0.1)
        said, at = json.loads((folder / "said").read_text())
        assert (folder / "stopped").exists(), said
        return said, at - float((folder / "stopped").read_text())
    finally:
        for process in processes:
            process.kill()
            process.join()


@pytest.mark.parametrize(
    ("phase", "how"),
    [*((p, signal.SIGSTOP) for p in PHASES), ("forward", signal.SIGKILL), ("gather", signal.SIGKILL)],
)
def test_a_rank_that_follows_is_missed_in_time(begun, tmp_path, phase, how):
    said, seconds = ends(begun, tmp_path, 1, phase, how)
    assert said.startswith(f"Fault: learner: a rank is lost while {DOING.get(phase, 'learning from step 1')}: "), said
    assert seconds < WAITS + 10


@pytest.mark.parametrize(("phase", "how"), [("forward", signal.SIGSTOP), ("gather", signal.SIGKILL)])
def test_the_rank_that_drives_is_missed_in_time(begun, tmp_path, phase, how):
    """A follower ends with an error; under Ray it ends its part of the group, and all end with the driver."""
    said, seconds = ends(begun, tmp_path, 0, phase, how)
    assert "RuntimeError" in said or "learner: a rank is lost" in said, said
    assert seconds < WAITS + 10


def test_what_is_no_loss_is_told_as_it_is():
    with pytest.raises(RuntimeError, match=r"^a shape of yours$"), losses("learning from step 3"):
        raise RuntimeError("a shape of yours")
    with (
        pytest.raises(Fault, match="lost while learning from step 3: rank 1 on b, process 7 does not answer: a shape"),
        losses("learning from step 3", lambda: "rank 1 on b, process 7"),
    ):
        raise RuntimeError("a shape of yours")
    told = "learner: a rank is lost while learning from step 3: [/gloo/pair.cc] Connection closed by peer"
    with pytest.raises(Fault) as found, losses("learning from step 3"):
        raise RuntimeError("[/gloo/pair.cc] Connection closed by peer\nand more")
    assert str(found.value) == told
