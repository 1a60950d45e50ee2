"""examples/cluster: scripts that run with programs that stand for Slurm, Ray and Palaestra, and manifests by rules; and by
the published schemas where the packages are installed that carry them.
"""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from palaestra.cli.main import parser_of
from palaestra.scale.cluster import Cluster

FOLDER = Path(__file__).parents[2] / "examples/cluster"
SCRIPTS = ("slurm.sbatch", "start.sh")
# long options of `sbatch` and `srun` as slurm.schedmd.com documents them, as far as anything like this needs them
SBATCH = {
    "account", "array", "comment", "constraint", "cpus-per-gpu", "cpus-per-task", "dependency", "error", "exclude",
    "exclusive", "export", "gpus", "gpus-per-node", "gpus-per-task", "gres", "job-name", "mail-type", "mail-user", "mem",
    "mem-per-cpu", "mem-per-gpu", "nodelist", "nodes", "ntasks", "ntasks-per-node", "open-mode", "output", "partition",
    "qos", "requeue", "no-requeue", "reservation", "signal", "time", "chdir", "wait-all-nodes",
}  # fmt: skip
SRUN = SBATCH | {"overlap", "kill-on-bad-exit", "label", "unbuffered"}
SKY = {  # docs.skypilot.co/en/latest/reference/yaml-spec.html
    "": {"name", "workdir", "num_nodes", "resources", "envs", "secrets", "volumes", "file_mounts", "setup", "run", "config",
         "service"},
    "resources": {"infra", "accelerators", "accelerator_args", "cpus", "memory", "instance_type", "use_spot", "disk_size",
                  "disk_tier", "network_tier", "max_hourly_cost", "image_id", "ports", "labels", "autostop", "any_of", "ordered",
                  "job_recovery"},
}  # fmt: skip


def options(text):
    return {w.removeprefix("--").partition("=")[0] for w in shlex.split(text, comments=True) if w.startswith("--")}


def manifests():
    return {x["kind"]: x for x in yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())}


def sky():
    return yaml.safe_load((FOLDER / "skypilot.yaml").read_text())


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    """Programs on the path that write down what they are called with."""
    log = tmp_path / "log"
    answers = {
        "scontrol": "echo n1; sleep 0.2; echo n2",  # who reads the first line alone ends it with SIGPIPE
        "ray": f"""case "$1" in
status) grep -q "^ray start --head" {log} ;;
list) echo "$ELSEWHERE"; grep "^ray start" {log} | sed 's/.*/"ALIVE"/' ;;
esac""",
        "srun": 'while [[ "$1" == --* ]]; do shift; done; "$@"',
        "palaestra": 'case "$1" in train) mkdir -p "$OUT"; touch "$OUT/config.toml";; esac',
    }
    (tmp_path / "bin").mkdir()
    for name, does in answers.items():
        file = tmp_path / "bin" / name
        file.write_text(f'#!/bin/bash\necho {name} "$@" >> {log}\n{does}\n')
        file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    for name, given in {"OUT": str(tmp_path / "run"), "MODEL": "m", "SLURM_JOB_NODELIST": "n[1-2]",
                        "SLURM_JOB_NUM_NODES": "2", "CLUSTER": "c.toml", "ELSEWHERE": ""}.items():  # fmt: skip
        monkeypatch.setenv(name, given)

    def run(*command):
        log.write_text("")
        done = subprocess.run(["bash", *command], capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return log.read_text().splitlines()

    return run


@pytest.mark.parametrize("name", SCRIPTS)
def test_bash_can_read_it(name):
    subprocess.run(["bash", "-n", FOLDER / name], check=True)


def test_options_of_slurm_are_its_own():
    text = (FOLDER / "slurm.sbatch").read_text()
    head = "\n".join(x.removeprefix("#SBATCH") for x in text.splitlines() if x.startswith("#SBATCH"))
    assert options(head) and options(head) <= SBATCH
    steps = [x.partition(" ray ")[0] for x in text.splitlines() if x.strip().startswith("srun")]
    assert len(steps) == 2 and all(options(x) <= SRUN for x in steps)


def test_a_slurm_job_starts_ray_trains_and_goes_on(fakes, tmp_path):
    calls = fakes(FOLDER / "slurm.sbatch")
    assert "ray start --head --port=6379 --block" in calls and "ray start --address=n1:6379 --block" in calls
    assert any(x.startswith("srun --overlap --nodes=1 --ntasks=1 --exclude=n1 ray") for x in calls)
    (train,) = [x for x in calls if x.startswith("palaestra train")]
    assert (
        train == f"palaestra train grpo --data problems.jsonl --model m --lora 16 --out {tmp_path}/run --cluster c.toml"
    )
    (again,) = [x for x in fakes(FOLDER / "slurm.sbatch") if x.startswith("palaestra train")]
    assert again == f"palaestra train --resume {tmp_path}/run --cluster c.toml"
    assert calls[-1] == "ray stop"


def test_each_node_does_its_part(fakes, tmp_path, monkeypatch):
    script = FOLDER / "start.sh"
    monkeypatch.setenv("ELSEWHERE", '"ALIVE"')
    assert fakes(script, "1", "2", "h") == ["ray start --address=h:6379 --block"]
    calls = fakes(script, "0", "2", "h")
    assert calls[0] == "ray start --head --port=6379" and calls[-1] == "ray stop"
    assert any(x.startswith("palaestra train grpo --data problems.jsonl") for x in calls)
    assert any(x.startswith(f"palaestra train --resume {tmp_path}/run") for x in fakes(script, "0", "2", "h"))


def test_flags_of_the_runs_are_palaestras():
    for name in SCRIPTS:
        for line in (FOLDER / name).read_text().splitlines():
            if "set -- " in line:
                words = shlex.split(line.strip().removeprefix("set -- ").replace("$", ""))
                parser_of("train").parse_intermixed_args(words)


def test_the_processes_take_the_gpus_of_both_nodes():
    cluster = Cluster.read(str(FOLDER / "cluster.toml"))
    job = manifests()["Job"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    gpus = job["completions"] * container["resources"]["limits"]["nvidia.com/gpu"]
    each = int(sky()["resources"]["accelerators"].partition(":")[2])
    assert (
        sum(n * g for n, g in ((cluster.learners, cluster.learner_gpus or 1), (cluster.workers, cluster.gpus))) == gpus
    )
    assert sky()["num_nodes"] * each == gpus and cluster.address == "auto"
    assert (
        "--nodes=2" in (FOLDER / "slurm.sbatch").read_text()
        and "--gpus-per-node=4" in (FOLDER / "slurm.sbatch").read_text()
    )


def test_kubernetes_objects_name_each_other():
    """By hand: Kubernetes' own schema does not say this."""
    kinds = manifests()
    job, name = kinds["Job"], kinds["Service"]["metadata"]["name"]
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["subdomain"] == name and kinds["Service"]["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert (
        container["args"][-1] == f"{job['metadata']['name']}-0.{name}"
        and kinds["Service"]["spec"]["clusterIP"] == "None"
    )
    assert int(container["args"][1]) == job["spec"]["completions"] == job["spec"]["parallelism"]
    assert job["spec"]["completionMode"] == "Indexed"  # without which there is no successPolicy
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    claim = next(v["persistentVolumeClaim"] for v in pod["volumes"] if "persistentVolumeClaim" in v)
    assert claim["claimName"] == kinds["PersistentVolumeClaim"]["metadata"]["name"]
    given = {e["name"]: e.get("value", "") for e in container["env"]}
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    assert given["OUT"].startswith(mounts["shared"]) and given["CLUSTER"] == f"{mounts['config']}/cluster.toml"


def test_kubernetes_takes_it_by_its_published_schema():
    validate = pytest.importorskip("kubernetes_validate")
    for kind in manifests().values():
        validate.validate(kind, "1.31", strict=True)


def test_fields_of_skypilot_are_its_own():
    task = sky()
    assert task.keys() <= SKY[""] and task["resources"].keys() <= SKY["resources"]
    for part in ("setup", "run"):
        subprocess.run(["bash", "-n"], input=task[part], text=True, check=True)
    assert set(task["envs"]) <= {"MODEL", "OUT", "CLUSTER", "DATA"} and task["envs"]["OUT"].startswith(
        *task["file_mounts"]
    )


def test_skypilot_takes_it_by_its_schema():
    schemas = pytest.importorskip("sky.utils.schemas")
    import jsonschema

    jsonschema.validate(sky(), schemas.get_task_schema())
    jsonschema.validate(sky()["resources"], schemas.get_resources_schema())
