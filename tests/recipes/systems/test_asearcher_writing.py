"""The agent of asearcher that writes questions: each check by a scripted writer, its files, and training on them."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import palaestra
import pytest
from palaestra.context import Bench
from palaestra.curriculum.pool import Everything
from palaestra.errors import UserError
from palaestra.recipes.systems import asearcher
from palaestra.recipes.systems.asearcher import build, writing
from palaestra.services.chat.scripted import Scripted
from palaestra.services.index import BM25
from palaestra.tasks.documents import SeedDocuments
from palaestra.tasks.files import FileTasks
from palaestra.worlds.pages import PageSearch

from tests.chat_server import serving

PAGES = {
    "bako.md": "Bako is a baker who lives in Tiru. He was born in 1931.",
    "tiru.md": "Tiru is a town with a famous mill. Bako lives in Tiru.",
    "mema.md": "Mema is the deepest lake of the north.",
    "deci.md": "Deci lives alone in the hills.",
}
FIRST = {
    "bako.md": ("In which year was Bako born?", "1931"),
    "tiru.md": ("What does Tiru, where Bako lives, have?", "a famous mill"),
    "mema.md": ("Which is the deepest lake of the north?", "Mema"),
    "deci.md": ("Does Deci live in the hills?", "the hills"),
}
ANSWERS = {"year": "1931", "have": "A famous mill.", "lake": "mema"}
BORN, VAGUE = (
    "In which year was the man from the town with a famous mill born?",
    "When was the man from the mill town born?",
)

OTHER = "What does the town have where the baker of 1931 lives?"


def written(**script):
    """A writer that injects a fact about Bako, then writes it vaguer, then stops."""
    say = {
        "valid": True,
        "rival": False,
        "alone": lambda question: "Mema" if "lake" in question else "1902",
        "reached": lambda question: next((a for w, a in ANSWERS.items() if w in question), "1931"),
        "injected": "",
        "fuzzed": VAGUE,
        **script,
    }

    def reply(text):
        question = text.partition("question: ")[2].partition("\n")[0]
        if text.startswith("Write a question"):
            asked, answer = FIRST[next(name for name in PAGES if f"document {name}:" in text)]
            return json.dumps({"question": asked, "answer": answer, "statement": "a fact"})
        if text.startswith("A question is to become"):
            action = {"action": "inject", "entity": "Bako"} if "Bako" in question else {"action": "stop"}
            return json.dumps({"action": "fuzz", "question": say["fuzzed"]} if question == BORN else action)
        if text.startswith("Write this question anew"):
            other = BORN if "year" in question else OTHER
            return json.dumps({"question": say["injected"] or other, "statement": "Bako lives in Tiru"})
        if text.startswith("Is this a valid"):
            return json.dumps({"yes": say["valid"]})
        if text.startswith("The right answer"):
            return json.dumps({"yes": say["rival"]})
        known = say["reached" if "document " in text else "alone"](question)
        return f"<answer>{known}</answer>"

    return reply


def source(**script):
    reply = written(**script)
    return Scripted(lambda request: reply(request.messages[-1].content))


def program(ctx, pages=PAGES, writer=None, **settings):
    index = BM25(tuple(pages.items()))
    bench = Bench(name="docs", tasks=SeedDocuments(tuple(pages)), world=PageSearch(index))
    made = writing.WriteSearchQuestions(source() if writer is None else writer, **settings)
    return ctx.with_bench(bench), made


def record(context, seed="bako.md", script=None, **settings):
    """What becomes of one seed document."""
    ctx, how = program(context(), writer=source(**(script or {})), **{"tries": 2, **settings})
    agent = writing.QuestionAgent(ctx, how, ctx.bench.world, PAGES)
    return asyncio.run(agent.write(0, seed))


def test_a_question_is_rewritten_by_both_steps(context):
    made = record(context)
    assert made["dropped"] == "" and made["prompt"] == VAGUE and made["answer"] == "1931"
    assert made["steps"] == ["inject", "fuzz"] and made["history"] == [FIRST["bako.md"][0], BORN]
    assert made["gold"] == ["bako.md", "tiru.md"] and made["statements"] == ["a fact", "Bako lives in Tiru"]
    assert made["right_without"] == "0/2"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ({"valid": False}, "not valid"),
        ({"rival": True}, "another answer is right too"),
        ({"reached": lambda question: "1902"}, "not reached through documents"),
        ({"injected": "Was Bako, of the town with a mill, born early?"}, "not rewritten (entity still named)"),
        ({"injected": "In which year, 1931 or 1932, was the man of the mill born?"}, "not rewritten (answer in the question)"),
        ({"injected": "  "}, "not rewritten (empty)"),
        ({"alone": lambda question: "in 1931"}, "known without documents"),
        ({"alone": lambda question: "1931" if question == BORN else "1902"}, "not rewritten (easier than before)"),
    ],
)  # fmt: skip
def test_each_check_drops_what_it_is_for(context, script, why):
    made = record(context, script=script, steps=2)
    assert made["dropped"].startswith(why)


def test_a_rewriting_that_fails_leaves_the_question_as_it_was(context):
    made = record(context, script={"fuzzed": BORN}, steps=2)
    assert made["prompt"] == BORN and made["steps"] == ["inject"] and made["dropped"] == ""
    assert record(context, steps=0)["dropped"] == "not rewritten"
    assert record(context, steps=0, least=0)["prompt"] == FIRST["bako.md"][0]
    assert record(context, "tiru.md")["prompt"] == OTHER


def test_what_is_known_or_trivial_is_no_question(context):
    assert record(context, "deci.md")["dropped"] == "answer in the question"
    assert record(context, "mema.md")["dropped"].startswith("known without documents")
    assert record(context, "mema.md", known=2, least=0)["dropped"] == ""
    nothing = Scripted(lambda request: "I would rather not")
    ctx, how = program(context(), writer=nothing)
    made = asyncio.run(writing.QuestionAgent(ctx, how, ctx.bench.world, PAGES).write(0, "bako.md"))
    assert made["dropped"] == "chat-format"


def test_no_other_document_about_the_entity_is_taken_at_random(context):
    ctx, how = program(context())
    agent = writing.QuestionAgent(ctx, how, ctx.bench.world, PAGES)
    asked = "Where does Bako live, Tiru or not?"
    draft = writing.DraftQuestion(question=asked, answer="1931", documents=("bako.md",), statements=("a",))
    assert agent._other_document(draft, "Bako") == "tiru.md"
    assert agent._other_document(draft, "Tiru") == "tiru.md"
    assert agent._other_document(draft, "Zyx") == "" == agent._other_document(draft, "")
    assert agent._other_document(draft, "1931") == "", "the answer is not given away"


def test_its_files_and_numbers(context, tmp_path):
    few = {n: PAGES[n] for n in ("bako.md", "deci.md")}
    ctx, made = program(context(out=tmp_path), few, seeds=2, tries=2, steps=0, least=0)
    with pytest.raises(UserError, match=r"1 of 2 questions passed the checks \(.*answer in the question"):
        asyncio.run(made.run(ctx))
    ctx, made = program(context(out=tmp_path / "two"), seeds=4, tries=2, known=2, least=0)
    (tmp_path / "two").mkdir()
    result = asyncio.run(made.run(ctx))
    rows = {n: lines(f) for n, f in result.artifacts.items()}
    assert {r["answer"] for r in rows["questions"]} == {"1931", "a famous mill", "Mema"}
    assert [r["seed"] for r in rows["dropped"]] == ["deci.md"] and len(rows["documents"]) == 4
    assert result.metrics["questions"] == 3 and result.metrics["questions_kept"] == 0.75
    assert result.metrics["questions_inject"] == pytest.approx(2 / 3)


def test_two_alike_are_one():
    rows = [{"prompt": "Who?", "n": 1}, {"prompt": "who", "n": 2}, {"prompt": "Where?", "n": 3}]
    assert [r["n"] for r in writing.distinct(rows)] == [1, 3]


def lines(file):
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


def folder_of(tmp_path):
    place = tmp_path / "notes"
    place.mkdir()
    for name, text in PAGES.items():
        (place / name).write_text(text)
    return place


SMALL = {"lag": 0, "turns": 3, "tries": 2, "rl.schedule.prompts": 2, "rl.collect.links.0.n": 2}


def trained(tmp_path, url, **more):
    given = {**SMALL, "write": 4, "writer": f"endpoint(url='{url}',model='m')"}
    more = {"env": "search(told=0,k=1)", "docs": str(folder_of(tmp_path)), **more}
    return palaestra.train(
        "asearcher", set=given, model="tiny-agent", steps=1, evaluate=2, max_tokens=24, quiet=True,
        out=tmp_path / "run", **more,
    )  # fmt: skip


def test_documents_alone_are_enough(tmp_path, monkeypatch):
    """A folder without a question: they are written first, and then trained on in the same documents."""
    # the built-in model answers nothing of them, and groups with equal scores would be drawn for ever
    plain = asearcher.searcher
    monkeypatch.setattr(asearcher, "searcher", lambda *a: replace(plain(*a), pool=Everything()))
    with serving(lambda body: written()(body["messages"][-1]["content"])) as (_, url):
        run = trained(tmp_path, url)
    asked = lines(run.folder / "questions/questions.jsonl")
    assert len(asked) == 2 and {tuple(r["gold"]) for r in asked} >= {("bako.md", "tiru.md")}
    assert run.summary["parts"]["questions"]["questions_kept"] == 0.5
    steps = lines(run.folder / "rl/metrics.jsonl")
    assert any("part/opens" in step for step in steps), [sorted(s) for s in steps]


def test_questions_of_ones_own_join_them_and_hold_out_their_own(context, tmp_path):
    data = tmp_path / "own.jsonl"
    rows = [{"prompt": f"Question {i}?", "answer": str(i), "split": "test" if i < 2 else "train"} for i in range(5)]
    data.write_text("".join(json.dumps(r) + "\n" for r in rows))
    ctx, made = program(context(out=tmp_path), seeds=4, tries=2)
    ctx = ctx.with_bench(replace(ctx.bench, tasks=FileTasks(str(data), answers=False)))
    result = asyncio.run(made.run(ctx))
    asked = lines(result.artifacts["questions"])
    assert [r["prompt"] for r in asked if r["split"] == "test"] == ["Question 0?", "Question 1?"]
    assert len(asked) == 7 and result.metrics["questions"] == 2


def test_it_needs_documents_and_bounds():
    for wrong in ({"write": -1}, {"write": 1, "tries": 0}, {"write": 1, "known": -1}):
        with pytest.raises(UserError):
            build(**wrong)
    with pytest.raises(UserError, match=r"asearcher needs tools, .* or docs FOLDER"):
        palaestra.train("asearcher", task="add", set={"write": 2}, quiet=True)
