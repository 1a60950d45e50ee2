"""Law `refused_early`: what can never work is refused with one line, before any process is started."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from palaestra.catalogue import find
from palaestra.errors import UserError
from palaestra.models.model import Model
from palaestra.recipes.base import grpo
from palaestra.rollout.cast import Snapshots
from palaestra.scale import placement
from palaestra.scale.cluster import Cluster
from palaestra.scale.placement import OnCluster, open_carrier, place
from palaestra.scale.refusals import refuse
from palaestra.values import override


def with_fields(recipe, **fields):
    for path, value in fields.items():
        recipe = override(recipe, path.replace("__", "."), value)
    return recipe


GRPO = grpo.build()
MOVING = replace(GRPO, references={"rival": Snapshots()})
NARROW = with_fields(GRPO, optimiser__narrow_moments=True)
PIPELINE = SimpleNamespace(run=None)
FLYING = with_fields(GRPO, schedule__in_flight=True)
WINDOW = with_fields(GRPO, schedule__window=0.5, schedule__prompts=4)
WIDE = lambda: with_fields(GRPO, schedule__window=1.5)
CUDA, EYES = "a GPU", "eyes"
ONE_GPU = "a GPU of which there is one"

CASES = {
    # settings of the file
    "an unknown key": (b"workers = 2\ntp = 2\n", GRPO, "", "line 2: unknown setting 'tp'"),
    "no file": ("nowhere.toml", GRPO, "", "cannot read nowhere.toml: No such file"),
    "less than none": (b"workers = -1\n", GRPO, "", "workers"),
    "another spread": (b'nodes = "some"\n', GRPO, "", "nodes"),
    "nodes of nothing": ({"nodes": "one", "cpus": 0}, GRPO, "", "nodes needs processes that ask for CPUs or GPUs"),
    "nodes of nobody": ({"workers": 0, "nodes": "one"}, GRPO, "", "nodes says where rollout processes are; give workers too"),
    "judges of nobody": ({"workers": 0, "judges": 1}, GRPO, "", "judges reward what rollout processes collect"),
    # where it is
    "from outside": ({"address": "ray://head:10001"}, GRPO, "", "start the run there with `ray job submit"),
    "nobody there": ({"address": "127.0.0.1:1"}, GRPO, "", "nobody listens at address = '127.0.0.1:1' (Connection refused)"),
    "a GPU for one alone": ({"workers": 2}, GRPO, CUDA, "and rollout processes have none; give them gpus = 1"),
    "a GPU without judges": ({"gpus": 0.5, "judges": 1}, GRPO, CUDA, "and judges have none; give them judge_gpus = 1"),
    "none for the learner": ({"workers": 1, "gpus": 0.5}, GRPO, ONE_GPU, "1 of workers on 1 nodes (8 CPUs, 1 GPUs, or"),
    "no such GPU": ({"workers": 2, "gpus": 1}, GRPO, "", r"no room for 2 of workers on 1 nodes (8 CPUs, 0 GPUs)"),
    "too large for a node": ({"workers": 1, "cpus": 9}, GRPO, "", "no room for 1 of workers"),
    "ranks on GPUs": ({"workers": 0, "learners": 3}, GRPO, CUDA, "for 2 of further ranks, 1 of the learner on 1 nodes"),
    # what learns
    "ranks of a pipeline": ({"learners": 2}, PIPELINE, "", "run the parts of a pipeline one by one"),
    "ranks and rivals": ({"learners": 2}, MOVING, "", "reference 'rival' is copied from a learner as it goes"),
    "ranks and narrow moments": ({"learners": 2}, NARROW, "", "'policy' keeps its moments in bfloat16"),
    "ranks with eyes": ({"learners": 2}, GRPO, EYES, "model 'policy' has eyes"),
    "ranks of an arm": ("arm", GRPO, "", "OnCluster places rollouts; for several learners use --cluster FILE"),
    # when
    "weights under nothing": ({"workers": 2}, FLYING, "", "without a lag nothing is under way"),
    "half a ticket": ({"workers": 3}, WINDOW, "", "prompts = 4 is not a multiple of the 3"),
    "more than all": ({"workers": 2}, WIDE, "", "schedule.window is a share from 0 to 1, not 1.5"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_refused_early(case, context, tmp_path, monkeypatch):
    given, recipe, model, told = CASES[case]
    ray = pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    started = []
    nodes: list[Any] = [
        {"Alive": True, "Resources": {"CPU": 8.0}},
        {"Alive": False, "Resources": {"CPU": 99.0, "GPU": 9.0}},
    ]
    monkeypatch.setattr(Cluster, "actor", lambda self, *given, **more: started.append(given))
    if given != {"address": "127.0.0.1:1"}:
        monkeypatch.setattr(Cluster, "connect", lambda self: False)
        monkeypatch.setattr(ray, "nodes", lambda: nodes)
    if model == ONE_GPU:
        nodes[0]["Resources"]["GPU"] = 1.0
    if model in (CUDA, ONE_GPU):
        monkeypatch.setattr(Model, "device", property(lambda self: torch.device("cuda")))
    ctx = context(seed=3)
    if model == EYES:
        monkeypatch.setattr(Model, "eyes", property(lambda self: object()))

    def start():
        if given == "arm":
            OnCluster(runnable=recipe, cluster=Cluster(learners=2))
        if isinstance(given, bytes):
            (tmp_path / "cluster.toml").write_bytes(given)
        text = given if isinstance(given, str) else "cluster.toml"
        cluster = Cluster(**given) if isinstance(given, dict) else Cluster.read(text)
        method = recipe() if callable(recipe) else recipe
        place(cluster, method, ctx).open_carrier(method, ctx)

    with pytest.raises(UserError) as found:
        start()
    assert told in str(found.value) and "\n" not in str(found.value)
    assert started == [] and not ray.is_initialized()


ENOUGH = {"workers": 1, "gpus": 2, "judges": 1, "judge_gpus": 2, "learner_gpus": 2}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, None),
        ({"judges": 0, "judge_gpus": 0}, None),
        ({"workers": 0, "judges": 0, "gpus": 0}, None),
        ({"gpus": 1}, "rollout processes with gpus = 1 would have fewer; set gpus = 2"),
        ({"judge_gpus": 0.5}, "judges with judge_gpus = 0.5 would have fewer; set judge_gpus = 2"),
        ({"learner_gpus": 1}, "with learner_gpus = 1 would have fewer; set learner_gpus = 2"),
    ],
)
def test_an_engine_over_several_gpus_has_them_in_each_process(given, told, context, monkeypatch):
    cluster, ctx = Cluster(**ENOUGH | given), context(seed=3)
    ctx.engine_name = "vllm(tp=2)"
    refuse(cluster, GRPO, ctx)  # on a processor there are none to count
    monkeypatch.setattr(Model, "device", property(lambda self: torch.device("cuda")))
    if told is None:
        refuse(cluster, GRPO, ctx)
    else:
        with pytest.raises(UserError) as refused:
            refuse(cluster, GRPO, ctx)
        assert told in str(refused.value)
    ctx.engine_name = "vllm"
    refuse(cluster, GRPO, ctx)


@pytest.mark.parametrize("given", [{"workers": 0}, {"workers": 0, "waves": 3}])
def test_what_can_work_is_not_refused(given, context):
    """Also what needs no Ray at all."""
    for recipe in (GRPO, MOVING, PIPELINE, with_fields(GRPO, schedule__window=0.5), find("ppo").build()):
        ctx = place(Cluster(**given), recipe, context(seed=3))
        assert open_carrier(Cluster(**given), recipe, ctx).waves == given.get("waves", 1)
    assert placement.refuse(Cluster(workers=2, gpus=0.5), GRPO, context(seed=3)) is None
