"""Logics-STEM: risks of two regions, who is looked up, and what is written of whose failures."""

import asyncio
import json
import math
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.recipes.data import logics_stem as stem

from tests.recipes.objectives.helpers import near

TASK = "add(d=2)+knights(d=3)"


def test_the_target_risk_is_a_weighted_mean_over_the_data():
    """P0 = (.9, .1), P* = (.5, .5), losses (.2, 1): .28 on the data, .60 on the target, weights .555556 and 5."""
    assert stem.density_weights((0.9, 0.1), (0.5, 0.5)).tolist() == near([0.555556, 5.0], 1e-6)
    found = stem.risks((0.9, 0.1), (0.5, 0.5), (0.2, 1.0))
    assert [found[k] for k in ("data", "target", "weighted")] == near([0.28, 0.60, 0.60], 1e-9)


def test_documents_are_looked_up_by_their_similarity():
    odds = stem.retrieval_odds([0.1, 0.3, 0.2, 0.3], 0.1, 3).tolist()
    e = math.exp(-1)
    assert odds == near([0.0, 1 / (2 + e), e / (2 + e), 1 / (2 + e)], 1e-9)
    assert stem.retrieval_odds([0.3, 0.3], 1.0, 1).tolist() == [1.0, 0.0]


@pytest.fixture
def failing(context, monkeypatch):
    """A context in which the policy fails at all knights, and at nothing else."""

    async def rates(ctx, key, tasks, sample):
        return np.array([0.0 if t.domain == "knights(d=3)" else 1.0 for t in tasks])

    monkeypatch.setattr(pl, "pass_rates", rates)
    return context(TASK)


def draw(ctx, stage, n=4):
    return asyncio.run(stage(ctx, ("k",), n, {}))


SMALL = stem.FailureDriven(queries=8, written=12, corpus=16, cap=100)


def test_problems_are_written_of_what_fails(failing):
    found, state = draw(failing, SMALL, 40)
    domains = state["found"]["by_domain"]
    assert set(domains) == {"knights(d=3)"} and state["found"]["failures"] == 4
    assert len(state["written"]) == 16  # with the failures themselves
    assert {t.id for t in found} == {t.id for t in state["written"]}
    ids = {failing.bench.tasks.task("train", i).id for i in range(300)}
    assert not ids & {t.id for t in found}


def test_the_control_writes_of_any_documents(failing):
    _, state = draw(failing, replace(SMALL, of="anything", written=24))
    assert set(state["found"]["by_domain"]) == {"add(d=2)", "knights(d=3)"}
    failed = {t.id for t in state["written"]} & {
        failing.bench.tasks.task("train", SMALL.first + i).id for i in range(8)
    }
    assert len(failed) == 4 and len(state["written"]) == 24 + 4  # with the failures too: the lookup alone differs


def test_any_documents_are_drawn_evenly():
    task = pl.Task(id="t", prompt=(pl.Message(role="user", content="abc"),))
    counts = [pl.verifiers.count_character_ngrams(text, 3) for text in ("abc", "xyz")]
    assert replace(SMALL, of="anything")._odds(task, counts).tolist() == [0.5, 0.5]
    assert replace(SMALL, top=1)._odds(task, counts).tolist() == [1.0, 0.0]


def test_a_query_fails_that_is_solved_in_a_quarter_of_its_attempts(context, monkeypatch):
    async def rates(ctx, key, tasks, sample):
        return np.array([0.25, 0.5] * (len(tasks) // 2))

    monkeypatch.setattr(pl, "pass_rates", rates)
    assert draw(context(TASK), SMALL)[1]["found"]["failures"] == 4


def test_a_document_gives_so_many_problems_at_most(failing):
    _, state = draw(failing, replace(SMALL, top=1, cap=1, written=50))
    assert len(state["written"]) <= 4 + 4  # each failure has one nearest document


def test_a_label_that_the_referee_denies_is_no_failure(failing):
    denied = replace(SMALL, referee=pl.Scripted(lambda r: "\\boxed{no}"))
    _, state = draw(failing, denied)
    assert state["found"]["labels"] == 4
    right = {t.prompt: str(t.answer) for i in range(8) for t in [failing.bench.tasks.task("train", SMALL.first + i)]}
    agreed = replace(SMALL, referee=pl.Scripted(lambda r: f"\\boxed{{{right[r.messages]}}}"))
    assert draw(failing, agreed)[1]["found"]["labels"] == 0


def test_where_nothing_fails_any_query_will_do(context, monkeypatch):
    async def rates(ctx, key, tasks, sample):
        return np.ones(len(tasks))

    monkeypatch.setattr(pl, "pass_rates", rates)
    _, state = draw(context(TASK), SMALL)
    assert state["found"]["failures"] == 0 and len(state["written"]) == 12


def test_documents_of_a_file(failing, tmp_path):
    file = tmp_path / "documents.jsonl"
    file.write_text(json.dumps({"text": "A: B lies, B: A and B", "domain": "add(d=2)"}) + "\n")
    _, state = draw(failing, replace(SMALL, documents=str(file)))
    assert state["found"]["by_domain"]["add(d=2)"] == 12  # what the file says it belongs to
    file.write_text('{"text": "x"}\n')
    with pytest.raises(pl.UserError, match="line 1: a document is"):
        stem.read_documents(str(file))
    file.write_text("")
    with pytest.raises(pl.UserError, match="no documents"):
        stem.read_documents(str(file))


def test_held_out_problems_are_not_written(context, monkeypatch):
    """A writer that copies the exam has nothing left, where no query fails either."""

    async def rates(ctx, key, tasks, sample):
        return np.ones(len(tasks))

    monkeypatch.setattr(pl, "pass_rates", rates)

    class Copies:
        async def __call__(self, ctx, key, order):
            return [ctx.bench.tasks.task("test", 0)]

    with pytest.raises(pl.Fault, match="no written problem was left"):
        draw(context(TASK), replace(SMALL, writer=Copies(), of="anything"))


def test_two_stages(context, tmp_path):
    built = stem.build(steps=1)
    assert list(built.parts) == ["sft", "rl"] and built.parts["rl"].model == pl.Output("sft")
    assert stem.build(data="x.jsonl").parts["sft"].problem["data"] == "x.jsonl"
