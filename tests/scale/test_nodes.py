"""What `palaestra doctor --cluster` says of nodes, each trouble with the command that mends it."""

from dataclasses import replace

import pytest
from palaestra.cli import doctor
from palaestra.scale.cluster import Cluster
from palaestra.scale.nodes import (
    MARK,
    ClusterNode,
    clock_ahead,
    marked,
    nearest,
    node_here,
    report,
    troubles,
)

HERE = ClusterNode(
    name="a",
    versions={"python": "3.11.7", "palaestra": "0.1", "torch": "2.13.0+cpu", "transformers": "5.23.0"},
    extras=("math", "ray"), cores=4, memory_mb=8000, gpus=(), arithmetic=("avx2",), cpus_free=4.0,
    mark="f00d",
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
        ({"ahead": (0.6, 0.9)}, "its clock is 0.6 s or more ahead of that of a: ", "sudo chronyc makestep"),
        ({"ahead": (-70.0, -61.5)}, "its clock is 61.5 s or more behind that of a: ", "sudo chronyc makestep"),
        ({"mark": None}, "the folder of runs, . of a, is not there: ", "sudo mkdir -p . && sudo mount -t nfs a:. ."),
        ({"mark": "beef"}, "the folder of runs, . of a, is another there: ", "sudo mkdir"),
        ({"error": "timed out"}, "it could not be looked at: timed out", "ray status"),
    ],
)  # fmt: skip
def test_each_trouble_has_its_command(changed, what, command):
    ((told, mends),) = said(replace(HERE, name="b", **changed))
    assert told.startswith(what) and mends.startswith(command)


@pytest.mark.parametrize("ahead", [(-0.1, 0.2), (0.4, 0.5), (-0.5, -0.4), (-3.0, 4.0)])
def test_a_clock_that_may_be_right_is_no_trouble(ahead):
    """Of a slow answer nobody can say when the clock was read."""
    assert said(replace(HERE, name="b", ahead=ahead)) == []


def test_how_far_a_clock_is_ahead():
    """told - heard <= ahead <= told - asked, for every reading. Here the clock is 5 s ahead, and was read 0.25 s after
    the first question, 0.125 s before the second answer.
    """
    first, second = (10.0, 15.25, 11.0), (20.0, 25.875, 21.0)
    assert clock_ahead([first]) == (4.25, 5.25)
    assert clock_ahead([first, second]) == (4.875, 5.25)
    least, most = clock_ahead([(10.0, 3.5, 11.0)])
    assert (least, most) == (-7.5, -6.5), "behind"


def test_a_file_tells_whether_a_folder_is_shared(tmp_path):
    """It is there for as long as nodes look, each time with another text, and leaves nothing behind."""
    with marked(tmp_path) as path:
        here = node_here({}, path)
        assert here.mark and path.startswith(f"{tmp_path}/{MARK}")
        with marked(tmp_path) as other:
            assert node_here({}, other).mark != here.mark
    assert list(tmp_path.iterdir()) == [] and node_here({}, path).mark is None
    with marked(tmp_path / "none") as path:
        assert path == "" and node_here({}, path).mark == ""
    assert nearest(tmp_path / "runs" / "a") == tmp_path


def test_a_report_looks_while_the_file_is_there(tmp_path, monkeypatch):
    """Another machine, and this one: what each reads at the same path."""
    nodes = lambda cluster, extras, mark: [
        node_here(extras, mark),
        replace(node_here(extras, mark), name="b", mark=None),
    ]
    monkeypatch.setattr("palaestra.scale.nodes.survey", nodes)
    (trouble,) = report("1", {}, tmp_path / "runs")["troubles"]
    assert trouble["node"] == "b" and trouble["what"].startswith(f"the folder of runs, {tmp_path} of ")
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize(
    ("cluster", "told"),
    [
        (Cluster(workers=2, gpus=0.5), []),  # one GPU for the learner, one for the two
        (Cluster(workers=3, gpus=0.5, learner_gpus=0.5), []),
        (Cluster(workers=3, gpus=0.5), ["no room for 1 of workers (4 CPUs, 2 GPUs)"]),
        (Cluster(workers=2, gpus=1, address="b:6379"), ["no room for 1 of the learner (4 CPUs, 2 GPUs)"]),
        (Cluster(workers=1, gpus=1, learners=2), ["no room for 1 of the learner (4 CPUs, 2 GPUs)"]),
        (Cluster(workers=2), ["models are on b's GPU, and workers have none"]),
        (Cluster(workers=1, gpus=1, judges=1), ["models are on b's GPU, and judges have none"]),
        (Cluster(workers=0, learners=2), []),
    ],
)
def test_a_learner_on_a_machine_with_gpus_takes_some(cluster, told):
    b = replace(HERE, name="b", gpus=("H100", "H100"), gpus_free=2.0)
    assert [t.what for t in troubles(b, [b], cluster)] == told


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
