"""What `palaestra doctor --cluster` says of nodes, each trouble with the command that mends it."""

from dataclasses import replace

import pytest
from palaestra.cli import doctor
from palaestra.scale.cluster import Cluster
from palaestra.scale.nodes import ClusterNode, node_here, troubles

HERE = ClusterNode(
    name="a",
    versions={"python": "3.11.7", "palaestra": "0.1", "torch": "2.13.0+cpu", "transformers": "5.23.0"},
    extras=("math", "ray"), cores=4, memory_mb=8000, gpus=(), arithmetic=("avx2",), cpus_free=4.0,
)  # fmt: skip
THERE = Cluster(workers=2, address="a:6379")


def said(node, cluster=THERE):
    return [(t.what, t.command) for t in troubles(HERE, [HERE, node], cluster)]


def test_nodes_that_are_alike_have_no_trouble():
    assert said(replace(HERE, name="b")) == []


@pytest.mark.parametrize(
    ("changed", "what", "command"),
    [
        ({"versions": {**HERE.versions, "torch": "2.12.0"}}, "torch is 2.12.0, here 2.13.0+cpu", "pip install 'torch==2.13.0'"),
        ({"versions": {**HERE.versions, "python": "3.12.1"}}, "python is 3.12.1, here 3.11.7", "python3.11 -m venv ENV"),
        ({"extras": ("ray",)}, "extras are missing that are here: math", "pip install 'palaestra[math]'"),
        ({"arithmetic": ("avx512",)}, "its processor is another (avx512)", "none is needed"),
        ({"error": "No module named 'palaestra'"}, "Palaestra is not installed", "pip install 'palaestra[ray]==0.1'"),
        ({"error": "timed out"}, "it could not be looked at: timed out", "ray status"),
    ],
)  # fmt: skip
def test_each_trouble_has_its_command(changed, what, command):
    ((told, mends),) = said(replace(HERE, name="b", **changed))
    assert told.startswith(what) and mends.startswith(command)


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        (Cluster(workers=4, cpus=2, address="a:6379"), None),
        (Cluster(workers=5, cpus=2, address="a:6379"), "no room for 1 of workers (8 CPUs, 2 GPUs)"),
        (Cluster(workers=2, cpus=3, address="a:6379"), None),
        (Cluster(workers=3, cpus=3, address="a:6379"), "no room for 1 of workers"),  # 9 of 8, and each on one node
        (Cluster(workers=4, gpus=0.5, judges=1, judge_gpus=1, address="a:6379"), "no room for 2 of workers"),
        (Cluster(workers=1, judges=2, judge_gpus=1, address="a:6379"), None),
        (Cluster(workers=8), "9 processors are asked for, this process's among them, and 8 are there"),
    ],
)
def test_room(cluster, told):
    b = replace(HERE, name="b", gpus=("H100", "H100"), gpus_free=2.0)
    found = [t.what for t in troubles(HERE, [HERE, b], cluster)]
    assert found == [] if told is None else len(found) == 1 and found[0].startswith(told)


def test_what_a_person_reads():
    node = node_here({"torch": ("torch",), "none": ("no_such_module",)})
    assert node.extras == ("torch",) and node.versions["torch"] and node.cores > 0
    lines = list(doctor.show_nodes({
        "nodes": [{"name": "b", "cores": 4, "memory_mb": 8, "gpus": (), "error": ""}],
        "troubles": [{"node": "b", "what": "torch is 1", "command": "pip install 'torch==2'"}],
    }))  # fmt: skip
    assert lines[1:] == [
        "  b              4 cores, 8 MB, no GPU",
        "  b              torch is 1\n                   pip install 'torch==2'",
    ]
    assert list(doctor.show_nodes({})) == []
