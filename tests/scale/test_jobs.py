"""Runs that are handed to a Ray cluster, with Ray's client for it faked."""

import json
import os
import socket
from types import SimpleNamespace

import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.scale.cluster import Cluster
from palaestra.scale.jobs import ClusterJob, server_address

submission = pytest.importorskip("ray.job_submission")
PLACE = ["--out", "/shared/runs/a"]


class Status:
    def __init__(self, value):
        self.value = value

    def is_terminal(self):
        return self.value not in ("PENDING", "RUNNING")


@pytest.fixture
def head(monkeypatch, tmp_path):
    """A port that somebody listens at, and what Ray's client is asked there; each job ends as `ends` says."""
    server = socket.create_server(("127.0.0.1", 0))
    at = SimpleNamespace(to=f"127.0.0.1:{server.getsockname()[1]}", asked=[], ends=["SUCCEEDED"], fails=None)

    class Client:
        def __init__(self, address):
            if at.fails:
                raise at.fails
            at.asked.append((address, os.environ.get("RAY_API_SERVER_ADDRESS")))

        def submit_job(self, **given):
            at.asked.append(given)
            return "raysubmit_1"

        async def tail_job_logs(self, name):
            for text in ("step 1\n", "step 2\n"):
                yield text

        def get_job_status(self, name):
            return Status(at.ends.pop(0))

        def get_job_info(self, name):
            return SimpleNamespace(message="it ended\nfor a reason")

    monkeypatch.setattr(submission, "JobSubmissionClient", Client)
    monkeypatch.setattr("palaestra.scale.jobs.LOOK", 0.0)
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://elsewhere:1")
    monkeypatch.chdir(tmp_path)
    with server:
        yield at


def test_a_run_is_handed_over_and_followed(head, tmp_path, capsys):
    """Its words, its folder without runs, to the address that is given whatever the environment says."""
    (tmp_path / "mine.toml").write_text("steps = 3\n")
    head.ends = ["RUNNING", "SUCCEEDED"]
    argv = ["submit", "grpo", "@mine.toml", "--to", head.to, "optimiser.lr=1e-4", "--cluster", "2", *PLACE, "--json"]
    assert main(argv) == 0
    client, job = head.asked
    assert client == (f"http://{head.to}", f"http://{head.to}")
    assert job["entrypoint"] == "python -m palaestra train grpo @mine.toml optimiser.lr=1e-4 --cluster 2 " + " ".join(
        PLACE
    )
    assert job["runtime_env"]["working_dir"] == str(tmp_path) and "/runs/" in job["runtime_env"]["excludes"]
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("job raysubmit_1: ") and said[1:3] == ["step 1", "step 2"]
    assert json.loads(said[3])["job"] == "raysubmit_1"
    assert os.environ["RAY_API_SERVER_ADDRESS"] == "http://elsewhere:1"


def test_a_job_that_fails_is_a_fault(head, capsys):
    head.ends = ["FAILED"]
    assert main(["submit", f"--to={head.to}", *PLACE]) == 1
    assert "raysubmit_1 is failed: it ended; `ray job logs raysubmit_1 --address http" in capsys.readouterr().err


def test_a_job_may_be_left(head, capsys):
    head.ends = []
    assert main(["submit", "--to", head.to, "--detach", "--resume", "/shared/runs/a", "--steps", "9"]) == 0
    assert head.asked[1]["entrypoint"] == "python -m palaestra train --resume /shared/runs/a --steps 9"
    assert "step 1" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "submit: --out is missing; the run folder lies on the cluster"),
        (["--out", "runs/a"], "submit: --out runs/a; the run folder lies on the cluster"),
        (["--resume", "runs/a"], "submit: --resume runs/a; the run folder"),
        (["no-such-method", *PLACE], "no-such-method"),
        (["no.such=1", *PLACE], "no"),
        (["--cluster", "bad.toml", *PLACE], "workers"),
        (["--data", "{outside}", *PLACE], "is not sent with the job"),
        (["@runs/mine.toml", *PLACE], "@runs/mine.toml: runs/mine.toml is not sent with the job"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_sent(words, told, head, tmp_path, tmp_path_factory, capsys):
    outside = tmp_path_factory.mktemp("outside") / "data.jsonl"
    outside.write_text('{"prompt": "1+1", "answer": "2"}\n')
    (tmp_path / "bad.toml").write_text("workers = -1\n")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine.toml").write_text("steps = 3\n")
    assert main(["submit", "--to", head.to, *(w.format(outside=outside) for w in words)]) == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1 and head.asked == []


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        (
            RuntimeError("The Ray jobs CLI & SDK require the ray[default] installation"),
            "pip install 'palaestra[submit]'",
        ),
        (RuntimeError("Ray version 1.8\nis running on the cluster."), "Ray version 1.8 is running on the cluster."),
        (ConnectionError("Failed to connect"), "Failed to connect"),
    ],
)
def test_what_ray_refuses_is_one_line(fails, told, head, capsys):
    head.fails = fails
    assert main(["submit", "--to", head.to, *PLACE]) == 2
    assert told in (error := capsys.readouterr().err) and error.count("\n") == 1


def test_a_head_that_asks_for_its_token(head, capsys):
    from ray.exceptions import AuthenticationError

    head.fails = AuthenticationError("Unauthorized: Missing authentication token")
    assert main(["submit", "--to", head.to, *PLACE]) == 2
    error = capsys.readouterr().err
    assert "RAY_AUTH_MODE=token" in error and "~/.ray/auth_token" in error and error.count("\n") == 1


@pytest.mark.parametrize("words", [["--resume", "{}"], ["--resume={}"], ["--out", "{}"], ["--out={}"]])
def test_the_run_folder_may_be_here_as_well(words, head, tmp_path_factory):
    """A disk that the head and this machine share."""
    folder = tmp_path_factory.mktemp("shared") / "a"
    folder.mkdir()
    assert main(["submit", "--to", head.to, *(w.format(folder) for w in words)]) == 0
    assert str(folder) in head.asked[1]["entrypoint"]


def test_nobody_listens(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert main(["submit", "--to", f"127.0.0.1:{port}", *PLACE]) == 2
    assert f"nobody listens at http://127.0.0.1:{port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("head", "http://head:8265"),
        ("10.0.0.5:9000", "http://10.0.0.5:9000"),
        ("https://head/", "https://head:8265"),
        ("[::1]:9000", "http://[::1]:9000"),
        ("ray://head:10001", None),
        ("http://head:x", None),
        ("", None),
        ("head/a", None),
    ],
)
def test_addresses(text, address):
    if address is not None:
        assert server_address(text) == address
        return
    with pytest.raises(UserError, match="takes the address of a Ray head's job server"):
        server_address(text)


def test_words_are_quoted(tmp_path):
    job = ClusterJob.of("head", ["a b", "x;y"], tmp_path)
    assert job.command == "python -m palaestra train 'a b' 'x;y'"


def test_in_a_job_processes_are_on_its_cluster(monkeypatch, tmp_path):
    """Ray tells a job which cluster it is of; a file that names another one is taken at its word."""
    file = tmp_path / "c.toml"
    file.write_text('address = "b:1"\n')
    assert Cluster.read("2") == Cluster(workers=2)
    monkeypatch.setenv("RAY_ADDRESS", "a:6379")
    assert Cluster.read("2") == Cluster(workers=2, address="a:6379")
    assert Cluster.read(str(file)).address == "b:1"
