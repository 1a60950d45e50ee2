"""A checkpoint that turns out to be damaged while ranks take it over: every rank ends with an error that names the file,
and none waits for another.
"""

import os
import re
import shutil
import time

import pytest
import torch
import torch.distributed as dist
from palaestra.models.load import load, save
from palaestra.models.optimiser_files import read_state, without_tensors, write_state
from palaestra.models.weight_files import ShardWriter
from palaestra.recipes.base import sft
from palaestra.run.driver import prepare
from palaestra.scale import learning
from palaestra.scale.learning import Follower, follow, sharded_context
from palaestra.scale.local_ranks import MEETING, run_ranks

from tests.scale.test_learning import context

CASES = {  # what rank 0 says
    "weights": (
        "UserError",
        r"FOLDER/model-000.*: the tensor .* cannot be read \(SafetensorError: .* take another checkpoint",
    ),
    "moments": ("UserError", r"FOLDER/moments/optimiser.safetensors: the tensor state.0.exp_avg cannot be read"),
    "shape": ("UserError", r"a tensor is \(3, 7\), and was to be \("),
    "unread": ("OSError", r".*Input/output error: 'model-00004-of-00009"),
}


def restore(mesh, case, folder):
    """What a rank says when rank 0 finds the damage, and after how many seconds."""

    def order_of(order=None):
        box = [order]
        dist.broadcast_object_list(box, group=mesh.get_group(), group_src=0)
        return box[0]

    begin = time.monotonic()
    try:
        if mesh.get_rank():
            return follow(Follower(sft.build(), context("sft", 1), mesh), order_of)
        ctx = sharded_context(context("sft", 1), mesh, order_of)
        prepare(sft.build(), ctx)
        DAMAGE[case](folder)
        ctx.sharded("policy")
        begin = time.monotonic()
        ctx.restore("policy", sft.build().learners["policy"], folder, state_of(ctx, folder))
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - begin


def state_of(ctx, place):
    """Of an optimiser that has made a step, in files beside the weights."""
    zeros = lambda p: {"step": torch.tensor(1.0), "exp_avg": torch.zeros(p.shape), "exp_avg_sq": torch.zeros(p.shape)}
    moments = {i: zeros(p) for i, p in enumerate(ctx.models["policy"].trainable())}
    groups = ctx.optimiser("policy", sft.build().learners["policy"]).state_dict()["param_groups"]
    whole = {"state": moments, "param_groups": groups}
    (place / "moments").mkdir()
    write_state(whole, place / "moments")
    return read_state(without_tensors(whole), place / "moments")


def during(act):
    """Runs `act` once three weights have been handed out; what it gives takes the place of the fourth."""
    read = learning.read_weights

    def reads(*given):
        for n, (name, value) in enumerate(read(*given)):
            other = act() if n == 3 else None
            yield name, value if other is None else other

    learning.read_weights = reads


def fail():
    raise OSError(5, "Input/output error", "model-00004-of-00009.safetensors")


def cut(files):
    """Files end early, after they were opened: a disk that fails, or someone who writes over them."""
    for file in files:
        os.truncate(file, 4000)


DAMAGE = {
    "weights": lambda folder: during(lambda: cut(sorted(folder.glob("model-*"))[-3:])),
    "moments": lambda folder: during(lambda: cut(folder.glob("moments/*.safetensors"))),
    "shape": lambda folder: during(lambda: torch.zeros(3, 7)),
    "unread": lambda folder: during(fail),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model in several files."""
    place, model = tmp_path_factory.mktemp("model"), load("tiny")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ShardWriter.__init__, "__defaults__", (400_000,))
        save(model, place, model.named_trainable().items())
    assert len(list(place.glob("model-*"))) > 5
    return place


@pytest.mark.parametrize("case", CASES)
def test_every_rank_ends_with_the_files_name(case, folder, tmp_path):
    place = tmp_path / "model"
    shutil.copytree(folder, place)
    leader, follower = run_ranks(2, restore, case, place)
    kind, says = CASES[case]
    assert leader[0] == kind and re.match(says.replace("FOLDER", re.escape(str(place))), leader[1]), leader
    assert leader[2] < MEETING / 4, "they waited for each other"
    assert follower[:2] == ("UserError", f"rank 0 hands out no more tensors: {leader[1]}")
