"""Replies in a file, transcript.jsonl, so that a run repeats without the model that answered.

    {"request": DIGEST, "question": "...", "text": "...", "finish": "stop"}

A line is one reply; the digest is that of the request whoever is asked, so a transcript of an endpoint
answers a run that names the transcript in its place.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.context import Client, Source
from palaestra.errors import Fault, UserError
from palaestra.services.chat.replies import stored_reply
from palaestra.types import ChatRequest, Meter, Reply, stage

if TYPE_CHECKING:
    from palaestra.context import Context

TRANSCRIPT = "transcript.jsonl"  # in a run folder


@stage
class ReplyTranscript:
    """Answers what a transcript holds, and nothing else: another request is a Fault "chat-transcript".

    Raises UserError for a file that cannot be read.
    """

    file: str

    def open(self, ctx: Context | None = None) -> ReplyTranscriptClient:
        path = Path(self.file)
        if not path.is_file():
            raise UserError(
                f"transcript:{self.file}: there is no such file; a run of a guided method writes "
                f"{TRANSCRIPT} into its folder"
            )
        return ReplyTranscriptClient(path)


class ReplyTranscriptClient:
    def __init__(self, path: Path):
        self.name, self.meter, self.replies = "transcript", Meter(), read_transcript(path)

    async def chat(self, request: ChatRequest) -> Reply:
        self.meter.calls += 1
        reply = self.replies.get(request.digest())
        if reply is None:
            self.meter.count_fault("chat-transcript")
            asked = request.messages[-1].content[:80].replace("\n", " ")
            raise Fault(
                "chat-transcript",
                f"the transcript has no reply to {asked!r}; it is that of a run with other settings",
            )
        return reply


@stage
class TranscribedSource:
    """A source whose replies are kept in the run folder. What a run that goes on has there already
    is not asked again, so it hears the same.
    """

    source: Source

    def open(self, ctx: Context | None = None) -> TranscribedClient:
        folder = None if ctx is None else ctx.out
        return TranscribedClient(
            self.source.open(ctx), None if folder is None else folder / TRANSCRIPT
        )


class TranscribedClient:
    """Counts calls as its client does, and replies from the file as cached."""

    def __init__(self, client: Client, path: Path | None):
        self.client, self.path, self.name, self.meter = client, path, client.name, client.meter
        self.replies = read_transcript(path) if path is not None and path.is_file() else {}

    async def chat(self, request: ChatRequest) -> Reply:
        digest = request.digest()
        if digest in self.replies:
            self.meter.cached += 1
            return self.replies[digest]
        reply = await self.client.chat(request)
        self.replies[digest] = reply
        if self.path is not None:
            append_line(
                self.path,
                {
                    "request": digest,
                    "question": request.messages[-1].content,
                    "text": reply.text,
                    "finish": reply.finish,
                    "prompt_tokens": reply.prompt_tokens,
                    "reply_tokens": reply.reply_tokens,
                },
            )
        return reply


def append_line(path: Path, record: dict[str, Any]) -> None:
    """Adds a line of JSON; half a line that a kill left at the end is dropped first.

    Raises Fault "disk" where it cannot be written.
    """
    line = json.dumps(record).encode() + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
            file.write(line)
    except OSError as error:
        raise Fault("disk", f"{path}: {error.strerror}") from None


def read_transcript(path: Path) -> dict[str, Reply]:
    """Replies by the digest of their request; of several the last. A line that was cut in writing,
    at the end, is left out. Raises UserError for another line that cannot be read.
    """
    replies: dict[str, Reply] = {}
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
            fields = ("text", "finish", "prompt_tokens", "reply_tokens")
            replies[str(given["request"])] = stored_reply(
                {k: given[k] for k in fields if k in given}
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if number < len(lines):
                raise UserError(f"{path}:{number} is no reply of a transcript: {error}") from None
    return replies
