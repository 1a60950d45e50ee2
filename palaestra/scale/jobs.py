"""A run that is handed to a Ray cluster as a job: what is sent there, and what comes back.

Sent are the words of a command line and the folder that they are said in. The job is a process on the
cluster's head, which is the learner; where the run asks for processes, they join that cluster.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from palaestra.errors import Fault, UserError
from palaestra.scale.cluster import LISTENING, TOKEN
from palaestra.types import value_class

PORT = 8265  # of a head's job server, where the address names none
LEFT = ("runs", ".git", ".venv", "venv")  # folders that are not sent, beside what .gitignore names
PLACES = ("--out", "--resume")  # name a folder on the cluster, which this machine may have as well
LOOK = 1.0  # seconds between two looks at a job whose output has ended
SERVER = "RAY_API_SERVER_ADDRESS"  # what Ray takes instead of the address that it is given


@value_class
class ClusterJob:
    """What is handed over, and where to."""

    address: str  # of the job server, http://HOST:PORT
    folder: Path  # is sent, and is where the job begins
    command: str

    @classmethod
    def of(cls, to: str, words: Sequence[str], folder: Path) -> ClusterJob:
        """Of the words of `palaestra train`. Raises UserError for files that would not be there."""
        for before, word in pairwise(("", *words)):
            if before not in PLACES and word.partition("=")[0] not in PLACES:
                check_sent(word, folder)
        return cls(
            address=server_address(to),
            folder=folder,
            command=shlex.join(["python", "-m", "palaestra", "train", *words]),
        )

    def call(self, verb: str, name: str) -> str:
        """A command of Ray's that is about the job."""
        return f"ray job {verb} {name} --address {self.address}"


def server_address(text: str) -> str:
    """http://HOST:PORT of HOST, HOST:PORT or a URL. Raises UserError."""
    url = urlsplit(text if "://" in text else f"http://{text}")
    try:
        host, port = url.hostname, url.port
    except ValueError:
        host, port = None, None
    if url.scheme not in ("http", "https") or not host or url.path.strip("/"):
        raise UserError(
            f"--to {text}: it takes the address of a Ray head's job server, such as "
            f"http://HOST:{PORT}"
        )
    return f"{url.scheme}://{f'[{host}]' if ':' in host else host}:{port or PORT}"


def check_sent(word: str, folder: Path) -> None:
    """Raises UserError for a word that names a file here which is not sent."""
    name = word.removeprefix("@").rpartition("=")[2].removeprefix("@")
    for text in (name, name.rpartition(":")[0]):
        path = folder / Path(text).expanduser()
        if not text or not (path.is_file() or (path.is_dir() and "/" in text)):
            continue
        whole = Path(os.path.abspath(path))
        inside = whole.is_relative_to(folder) and not Path(text).is_absolute()
        if not inside or whole.relative_to(folder).parts[0] in LEFT:
            raise UserError(
                f"{word}: {text} is not sent with the job; it sends this folder without "
                f"{', '.join(LEFT)}; copy it here, and name it by its way from here"
            )


def hand_over(job: ClusterJob) -> tuple[Any, str]:
    """The client of a job, and the name that the job has there. Raises UserError, Fault."""
    host, port = urlsplit(job.address).hostname, urlsplit(job.address).port
    try:
        socket.create_connection((host or "", port or PORT), LISTENING).close()
    except OSError as error:
        raise UserError(
            f"nobody listens at {job.address} ({error.strerror or error}); `ray status` there says "
            "whether a cluster is up, and its head needs `pip install 'ray[default]'`"
        ) from None
    try:
        from ray.job_submission import JobSubmissionClient
    except ImportError:
        raise UserError("submit needs Ray: pip install 'palaestra[submit]'") from None
    from ray.exceptions import AuthenticationError

    sent = {"working_dir": str(job.folder), "excludes": [f"/{name}/" for name in LEFT]}
    try:
        with as_server(job.address):
            client: Any = JobSubmissionClient(job.address)
        return client, client.submit_job(entrypoint=job.command, runtime_env=sent)
    except AuthenticationError:
        raise UserError(f"{job.address} did not let this process in: {TOKEN}") from None
    except (RuntimeError, ValueError, ConnectionError) as error:
        said = " ".join(str(error).split())
        if "ray[default]" in said:
            said = "submit needs Ray's job client: pip install 'palaestra[submit]'"
        raise UserError(f"{job.address}: {said}") from None


@contextmanager
def as_server(address: str) -> Generator[None]:
    """What the environment says of another cluster does not count for as long as the block takes."""
    before = os.environ.get(SERVER)
    os.environ[SERVER] = address
    try:
        yield
    finally:
        os.environ.pop(SERVER)
        if before is not None:
            os.environ[SERVER] = before


async def follow(client: Any, job: ClusterJob, name: str) -> None:
    """Writes what a job says until it is over. Raises Fault where it did not end well."""
    try:
        async for text in client.tail_job_logs(name):
            sys.stdout.write(text)
            sys.stdout.flush()
        while not (status := client.get_job_status(name)).is_terminal():
            time.sleep(LOOK)
        if status.value == "SUCCEEDED":
            return
        message = client.get_job_info(name).message or ""
    except (RuntimeError, OSError) as error:
        raise Fault(
            "job", f"{name} can no longer be followed ({error}); `{job.call('logs', name)}` goes on"
        ) from None
    said = next(iter(message.strip().splitlines()), "")
    raise Fault("job", f"{name} is {status.value.lower()}: {said}; `{job.call('logs', name)}`")
