"""Nothing can check my answers but a model that I reach at an address."""

import json
from pathlib import Path

import pytest

from tests.chat_server import serving
from tests.errands.shell import episodes, palaestra, steps, summary, train, write_rows

KEY = "sk-errand-4711"
RUBRIC = "10: every step is shown. 1: an answer alone."


def verdict(body):
    """A judge that likes to see the steps: 10 where the response has more than a line, else 4."""
    response = body["messages"][-1]["content"].rpartition("<response>")[2].partition("</response>")[0]
    return "It shows its steps. [[10]]" if "\n" in response.strip() else "That is brief. [[4]]"


def test_an_endpoint_as_judge(folder, monkeypatch):
    """My questions have no answers. A judge behind an OpenAI-compatible address rates each response by my rubric; its
    key is in my environment and must stay there.
    """
    monkeypatch.setenv("JUDGE_KEY", KEY)
    write_rows(
        "questions.jsonl", [{"prompt": f"{a}+{b}*{c} mod 10"} for a in range(4) for b in range(3) for c in range(2)]
    )
    with serving(verdict) as (server, url):
        judge = f"judge(url='{url}', model='strict', key_env='JUDGE_KEY', rubric='{RUBRIC}')"
        small = "--steps 2 --evaluate 4 --max-tokens 48 schedule.prompts=2 sample.n=8"
        said = train(f'--data questions.jsonl --reward "{judge}" {small} --out runs/judged')
        told = palaestra(f'eval --data questions.jsonl --reward "{judge}" --max-tokens 48 --n 2 --k 2')
    assert {body["model"] for body in server.seen} == {"strict"} and RUBRIC in str(server.seen[0]["messages"])
    assert {h["Authorization"] for h in server.headers} == {f"Bearer {KEY}"}
    # each verdict arrived at its response
    paid = {("\n" in e["text"].strip(), round(e["reward"], 6)) for e in episodes("runs/judged")}
    assert paid == {(False, round(1 / 3, 6)), (True, 1.0)}
    assert all(json.loads(e["reward_parts"])["judge"] == e["reward"] for e in episodes("runs/judged"))
    assert [s["part/judge"] for s in steps("runs/judged")] == [pytest.approx(s["reward"]) for s in steps("runs/judged")]
    # a rating is no share of right answers, and is not called so
    result = summary("runs/judged")
    assert 1 / 3 <= result["reward_after"]["mean"] <= 1 and result["reward_after"]["n"] == 2
    assert not [k for k in result if k.startswith("accuracy")]
    assert said.line("mean held-out reward after") and "accuracy" not in said.out
    assert "greedy, mean reward" in told.out and "best@2" in told.out and "pass@" not in told.out
    assert not [p for p in Path("runs").rglob("*") if p.is_file() and KEY.encode() in p.read_bytes()]
    assert KEY not in said.out + said.err
