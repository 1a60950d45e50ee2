"""The learner's GPU is nobody else's, on a machine that only says that it has GPUs."""

import pytest
import torch
from palaestra.errors import UserError
from palaestra.models.model import Model
from palaestra.recipes.base import grpo
from palaestra.scale import own_gpu
from palaestra.scale.cluster import Cluster
from palaestra.scale.own_gpu import Holder, gpu_here, hold
from palaestra.scale.placement import place

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def two_gpus():
    ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    yield
    ray.shutdown()


def given(share):
    """A process that asks for a share, and the GPU that it gets."""
    holder = ray.remote(num_cpus=0, num_gpus=share)(Holder).remote()
    (gpu,) = ray.get(holder.gpus.remote(), timeout=60)
    return holder, gpu


@pytest.mark.parametrize(("mine", "others"), [("0", "1"), ("1", "0")])
def test_who_asks_later_gets_another(two_gpus, mine, others):
    learner = hold(1, mine)
    worker, there = given(1)
    assert there == others
    with pytest.raises(UserError, match=f"the learner's GPU is {others}, of which Ray has no 1 to give"):
        hold(1, others, seconds=3)
    del learner, worker


def test_a_share_leaves_the_rest(two_gpus):
    learner = hold(0.5, "1")
    assert {given(1)[1]} == {"0"}  # the only whole one
    one, two = given(0.5), given(0.5)
    assert "1" in {one[1], two[1]} or given(0.5)[1] == "1"
    del learner


def test_a_gpu_that_is_given_back_is_anybodys(two_gpus):
    learner = hold(1, "0")
    del learner
    assert ray.get(hold(1, "0").gpus.remote()) == ["0"]


def test_an_engine_over_several_has_those_that_it_takes(two_gpus, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    learner = hold(2, "1")
    assert set(ray.get(learner.gpus.remote())) == {"0", "1"}
    with pytest.raises(UserError, match="the learner's GPU is 0, 1, of which Ray has no 2 to give"):
        hold(2, "1", seconds=3)


@pytest.mark.parametrize("told", [0, 1])
def test_a_run_on_a_gpu_keeps_it(two_gpus, context, monkeypatch, told):
    monkeypatch.setattr(Model, "device", property(lambda self: torch.device("cuda")))
    monkeypatch.setattr(own_gpu, "gpu_here", lambda: "0")
    ctx = place(Cluster(workers=1, gpus=1, learner_gpus=told), grpo.build(), context(seed=3))
    assert given(1)[1] == str(told)
    del ctx


def test_a_gpu_has_the_name_that_ray_gives_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpu_here() == "1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 6")
    assert gpu_here() == "6"
