"""Replies that a run keeps, and that another one hears in the model's place."""

import asyncio
import json

import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.services.chat.transcript import ReplyTranscript, TranscribedSource
from palaestra.types import ChatRequest


def request(text, seed=0):
    return ChatRequest(messages=pl.services.question_messages(text), seed=seed)


def hear(source, ctx, *requests):
    client = source.open(ctx)
    return [asyncio.run(client.chat(r)).text for r in requests], client.meter


def test_what_was_answered_is_not_asked_again_and_can_be_played(context, tmp_path):
    asked = []

    def answer(r):
        asked.append(r.seed)
        return f"{r.messages[0].content}{len(asked)}"

    source, ctx = TranscribedSource(pl.Scripted(answer)), context(out=tmp_path)
    requests = request("a"), request("a", 1), request("b"), request("a")
    said, meter = hear(source, ctx, *requests)
    assert said == ["a1", "a2", "b3", "a1"] and (meter.calls, meter.cached) == (3, 1)
    assert hear(source, ctx, *requests)[0] == said and len(asked) == 3  # a run that goes on
    played, meter = hear(ReplyTranscript(str(tmp_path / "transcript.jsonl")), None, *requests)
    assert played == said and meter.calls == 4
    with pytest.raises(Fault, match="no reply to 'c'"):
        hear(ReplyTranscript(str(tmp_path / "transcript.jsonl")), None, request("c"))
    assert hear(source, None, request("a"))[0] == ["a4"]  # without a folder nothing is kept


def test_a_line_that_was_cut_is_asked_again_and_another_fault_is_said(context, tmp_path):
    file, source = tmp_path / "transcript.jsonl", TranscribedSource(pl.Scripted(lambda r: "x"))
    whole = json.dumps({"request": request("a").digest(), "text": "kept"})
    file.write_text(f'{whole}\n{{"request": "half')
    assert hear(source, context(out=tmp_path), request("a"), request("b"))[0] == ["kept", "x"]
    lines = file.read_text().splitlines()  # half a line does not swallow the next one
    assert len(lines) == 2 and json.loads(lines[1])["text"] == "x"
    file.write_text(f"{whole}\n[1]\n{whole}\n")
    with pytest.raises(UserError, match=r"transcript\.jsonl:2 is no reply"):
        hear(source, context(out=tmp_path), request("a"))
    with pytest.raises(UserError, match="no such file"):
        hear(ReplyTranscript("nowhere.jsonl"), None)
