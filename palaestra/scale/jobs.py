"""A run that is handed to a Ray cluster as a job: what is sent there, and what comes back.

Sent are the words of a command line and the folder that they are said in. The job is a process on the
cluster's head, which is the learner; where the run asks for processes, they join that cluster.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import socket
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from palaestra.errors import Fault, UserError
from palaestra.scale.cluster import LISTENING, TOKEN
from palaestra.services.threads import run_in_thread
from palaestra.types import value_class

PORT = 8265  # of a head's job server, where the address names none
LEFT = ("runs", ".git", ".venv", "venv")  # folders that are not sent, beside what .gitignore names
PLACES = ("--out", "--resume")  # name a folder on the cluster, which this machine may have as well
ANSWERING = 30.0  # seconds that the job server may take to answer
TELLING = 10.0  # seconds of waiting after which it is said
SENDING = 300.0  # seconds that sending the folder may take
EXCERPT = 300  # characters of what the job server says
NAME = re.compile(r"[\w.-]{1,200}")  # of a job
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
            client: Any = answer_within(lambda: JobSubmissionClient(job.address), job)
        work = lambda: client.submit_job(entrypoint=job.command, runtime_env=sent)
        name = answer_within(work, job, SENDING)
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ValueError(f"it calls the job {str(name)[:EXCERPT]!r}, which is no name")
        return client, name
    except UserError:
        raise
    except AuthenticationError:
        raise UserError(f"{job.address} did not let this process in: {TOKEN}") from None
    except Exception as error:  # what its libraries make of an answer that is none
        reason = " ".join(str(error).split())[:EXCERPT] or type(error).__name__
        if "ray[default]" in reason:
            reason = "submit needs Ray's job client: pip install 'palaestra[submit]'"
        raise UserError(f"{job.address}: {reason}") from None


def answer_within(ask: Callable[[], Any], job: ClusterJob, seconds: float | None = None) -> Any:
    """What the job server answers. Raises UserError where it says nothing for so long (None =
    ANSWERING): Ray's client itself waits for ever.
    """
    seconds = ANSWERING if seconds is None else seconds
    answer, begin = run_in_thread(ask, "job server"), time.monotonic()
    while (left := begin + seconds - time.monotonic()) > 0:
        try:
            return answer.result(min(left, TELLING))
        except TimeoutError:
            if answer.done():  # the client's own
                raise
            waited = time.monotonic() - begin
            print(f"{job.address} has not answered for {waited:.0f} s", file=sys.stderr, flush=True)
    raise UserError(
        f"{job.address} takes the connection and did not answer in {seconds:g} s; is it the job "
        f"server of a Ray head (port {PORT})?"
    )


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


async def tail(client: Any, job: ClusterJob, name: str) -> None:
    """Writes what a job says. While it says nothing its state is looked at, so that a server that
    has gone silent is noticed, and a job that is over.
    """
    texts = client.tail_job_logs(name)
    while True:
        coming = asyncio.ensure_future(anext(texts, None))
        while not (await asyncio.wait({coming}, timeout=ANSWERING))[0]:
            if answer_within(partial(client.get_job_status, name), job).is_terminal():
                coming.cancel()
                return
        if (text := coming.result()) is None:
            return
        sys.stdout.write(str(text))
        sys.stdout.flush()


async def follow(client: Any, job: ClusterJob, name: str) -> None:
    """Writes what a job says until it is over. Raises Fault where it did not end well."""
    try:
        await tail(client, job, name)
        while not (
            status := answer_within(partial(client.get_job_status, name), job)
        ).is_terminal():
            time.sleep(LOOK)
        if status.value == "SUCCEEDED":
            return
        message = str(answer_within(partial(client.get_job_info, name), job).message or "")
    except Exception as error:  # what its libraries make of an answer that is none
        reason = " ".join(str(error).split())[:EXCERPT] or type(error).__name__
        raise Fault(
            "job",
            f"{name} can no longer be followed ({reason}); `{job.call('logs', name)}` goes on",
        ) from None
    reason = next(iter(message.strip().splitlines()), "")
    raise Fault("job", f"{name} is {status.value.lower()}: {reason}; `{job.call('logs', name)}`")
