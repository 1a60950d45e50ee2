"""Logics-STEM: who is looked up, and what is written of whose failures."""

import asyncio
import json
import math
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.recipes.data import logics_stem as stem
from palaestra.tasks.files import FileTasks

from tests.recipes.objectives.helpers import near

TASK = "add(d=2)+knights(d=3)"


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
    assert stem.read_documents(str(file)) == [stem.Document(text="x", domain="")]
    (plain := tmp_path / "documents.txt").write_text("One.\n\nTwo\nlines.\n")
    assert [d.text for d in stem.read_documents(str(plain))] == ["One.", "Two\nlines."]
    file.write_text('{"texts": "x"}\n')
    with pytest.raises(pl.UserError, match=r"documents\.jsonl:1: a document is"):
        stem.read_documents(str(file))
    file.write_text("")
    with pytest.raises(pl.UserError, match="the file is empty"):
        stem.read_documents(str(file))


@pytest.fixture
def own_file(context, monkeypatch, tmp_path):
    """A context with a user's file of two domains; the policy fails at all of `b`."""

    async def rates(ctx, key, tasks, sample):
        return np.array([float(t.domain == "a") for t in tasks])

    monkeypatch.setattr(pl, "pass_rates", rates)
    rows = [{"prompt": f"{'ab'[i % 2]} question {i}", "answer": str(i), "domain": "ab"[i % 2]} for i in range(24)]
    (file := tmp_path / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    ctx = context("chain")
    return ctx.with_bench(replace(ctx.bench, tasks=FileTasks(str(file))))


def test_a_users_file_has_an_end(own_file):
    """Queries, documents and what stands in for written problems are its training problems."""
    found, state = draw(own_file, replace(SMALL, queries=64, written=12), 30)
    n = sum(own_file.bench.tasks.task("train", i).domain == "b" for i in range(own_file.bench.tasks.size))
    assert state["found"]["failures"] == n and {t.domain for t in found if "looked_up" not in t.meta} <= {"b"}
    marked = [t for t in state["written"] if "looked_up" in t.meta]
    assert marked and len(state["written"]) == len({pl.curriculum.prompt_text(t) for t in found})


def test_problems_of_own_documents_are_written_in_the_domain_of_the_failure(own_file, tmp_path):
    """A document without a domain belongs to the failure that it is looked up for."""
    orders = []

    class Notes:
        async def __call__(self, ctx, key, order):
            orders.append(order)
            prompt = (pl.Message(role="user", content=f"written {len(orders)}"),)
            return [pl.Task(id=f"w{len(orders)}", prompt=prompt, answer="1", domain=order.domain)]

    (file := tmp_path / "corpus.txt").write_text("b question of all kinds\n\nnothing of the sort\n")
    draw(own_file, replace(SMALL, documents=str(file), top=1, written=5, writer=Notes()))
    assert len(orders) == 5 and {o.domain for o in orders} == {"b"}
    assert {o.document for o in orders} == {"b question of all kinds"}


def test_models_are_taken_by_their_arguments():
    client = pl.Scripted(lambda r: "x")
    made = stem.build(writer=client, referee=client, documents="x.txt").parts["rl"].runnable.draw
    assert (made.writer.client, made.referee, made.documents) == (client, client, "x.txt")
    own = stem.build().parts["rl"].runnable
    assert own.draw.writer.client == pl.LocalModel("writer") and own.references["writer"] == "policy"
    assert stem.build(writer=None).parts["rl"].runnable.draw.writer == pl.curriculum.ProblemsFromSource()


@pytest.mark.parametrize("stage2", ["rl", "sft"])
def test_a_teacher_solves_what_is_imitated_and_its_wrong_solutions_are_left_out(context, own_file, stage2):
    """Every second try is wrong."""
    n = iter(range(1000))
    right = lambda text: next(t.answer for t in train if t.prompt[0].text in text)
    tasks = own_file.bench.tasks
    train = [tasks.task("train", i) for i in range(tasks.size)]
    say = lambda r: f"= {right(r.messages[-1].content) if next(n) % 2 else 'x'}"
    built = stem.build(writer=None, teacher=pl.Scripted(say, "teacher"), tries=2, stage2=stage2)
    solved = asyncio.run(built.parts["sft"].runnable.draw(own_file, ("k",), 4, {}))[0]
    assert [t.meta["demonstration"] for t in solved] == [f"= {t.answer}" for t in solved]
    second = list(built.parts)[-1]
    draws = built.parts[second].runnable.draw
    assert (second, isinstance(draws, pl.curriculum.WrittenColumn)) == (
        ("rl", False) if stage2 == "rl" else ("sft2", True)
    )


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
