"""Reasoning CPT: documents and their tokens, which thoughts are dropped, and the catalogue's values."""

import asyncio
import json
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.claims.data.reasoning_cpt import MatchTokens, tokens_of
from palaestra.recipes.data import reasoning_cpt as cpt
from palaestra.tasks.files import FileTasks
from palaestra.update import pack

OPEN, CLOSE = cpt.OPEN, cpt.CLOSE


def write(ctx, task=None, stage=None, **options):
    group = pl.Group(task=task or ctx.bench.tasks.task("train", 0))
    stage = stage or cpt.WriteDocument(**options)
    return asyncio.run(stage(ctx, ("k", 1), group))


def text_of(ctx, **options):
    group = write(ctx, **options)
    return ctx.decode(group.episodes[0].rows[0].context())


def test_a_document_of_14_tokens_has_13_predicted_positions_all_of_them_trained(context):
    """A beginning, two marks, six of thought, four of text and an end. The marks of this model are more tokens."""
    ctx = context("chain")
    task = pl.Task(id="t", prompt=(), meta={"text": "abcd", "thought": "uvwxyz"})
    row = write(ctx, task).episodes[0].rows[0]
    marks = len(f"{OPEN}{CLOSE}")
    assert len(row.context()) - marks + 2 == 14
    examples, _ = pl.credit.Imitate()([write(ctx, task)], [[[{}]]], {})
    batch = pack(examples, "policy")
    assert int(batch["trained"].sum()) - marks + 2 == 13
    assert batch["trained"][0].tolist() == [False] + [True] * (len(row.context()) - 1)


def test_the_thought_stands_before_the_text_or_between(context):
    ctx = context("chain")
    task = ctx.bench.tasks.task("train", 0)
    question, answer = task.prompt[0].content, f"= {task.answer}"
    thought = "\n".join(ctx.bench.tasks.steps(task))
    start, end = "<|begin|>", "<|end|>"
    assert text_of(ctx) == f"{start}{OPEN}{thought}{CLOSE}{question}\n{answer}{end}"
    assert text_of(ctx, place="between").startswith(f"{start}{question}\n{OPEN}{thought}{CLOSE}{answer}")
    assert text_of(ctx, thoughts=False) == f"{start}{question}\n{answer}{end}"
    chat = text_of(ctx, form="chat")
    assert chat == f"<|begin|><|user|>{question}<|end|><|assistant|>{thought}\n{answer}<|end|>"
    assert "=" not in text_of(ctx, form="chat", thoughts=False).split("<|assistant|>")[1][1:]


def test_a_chat_trains_what_is_said_and_not_the_marks(context):
    ctx = context("chain")
    row = write(ctx, form="chat").episodes[0].rows[0]
    view = row.view()
    trained = ctx.decode(view.ids_T[view.trained_T].tolist())
    assert (
        trained.startswith(ctx.bench.tasks.task("train", 0).prompt[0].content)
        and trained.endswith("<|end|>")
        and "<|user|>" not in trained
    )


def test_thoughts_of_another_text_are_a_control(context):
    ctx = context("chain")
    own = "\n".join(ctx.bench.tasks.steps(ctx.bench.tasks.task("train", 0)))
    assert own in text_of(ctx, form="chat") and own not in text_of(ctx, form="chat", shuffled=True)


@pytest.mark.parametrize(
    ("thought", "kept"),
    [
        ("first the sum then the rest", True),
        ("", False),
        (" \n", False),
        ("I cannot help with that", False),
        ("I'm sorry, no", False),
        ("one two three four five", False),  # a quotation
        ("one two three and now what", True),  # a quarter of its runs
        ("one two three four a b", True),  # half of them: two of four
    ],
)
def test_which_thoughts_are_dropped(thought, kept, context):
    text = "one two three four five six"
    assert cpt.is_thought(thought, text) is kept
    task = pl.Task(id="t", prompt=(), meta={"text": text, "thought": thought})
    ctx = context("chain")
    shown = ctx.decode(write(ctx, task).episodes[0].rows[0].context())
    assert (OPEN in shown) is kept and text in shown


def test_copies_are_counted_by_runs_of_three_words():
    assert cpt.copy_ratio("a b c d", "x a b c y") == 0.5
    assert cpt.copy_ratio("a b", "x a b") == 1.0 and cpt.copy_ratio("", "x") == 0.0


def test_a_model_writes_the_thought_of_a_text(context):
    asked = []
    client = pl.Scripted(lambda r: asked.append(r.messages[-1].content) or "let me see")
    task = pl.Task(id="t", prompt=(pl.Message(role="user", content="a text of its own"),))
    ctx = context("chain")
    shown = ctx.decode(write(ctx, task, writer=client).episodes[0].rows[0].context())
    assert f"{OPEN}let me see{CLOSE}a text of its own" in shown and "a text of its own" in asked[0]
    assert OPEN not in ctx.decode(write(ctx, task).episodes[0].rows[0].context())  # nobody thinks


def test_what_is_too_long_loses_its_thought_and_then_is_an_error(context):
    ctx = context("chain")
    task = pl.Task(id="t", prompt=(), meta={"text": "short", "thought": "long " * 200})
    assert OPEN not in ctx.decode(write(ctx, task).episodes[0].rows[0].context())
    with pytest.raises(pl.UserError, match="task 't' makes a document of 602 tokens, and the context of the model"):
        write(ctx, replace(task, meta={"text": "x" * 600}))


def test_as_many_tokens_of_texts_alone(context):
    ctx = context("chain")
    alone = cpt.WriteDocument(form="chat", thoughts=False)
    matched = write(ctx, stage=MatchTokens(alone))
    least, one = tokens_of(write(ctx, form="chat")), tokens_of(write(ctx, stage=alone))
    assert len(matched.episodes) > 1 and least <= tokens_of(matched) < least + 3 * one
    texts = [ctx.decode(e.rows[0].context()) for e in matched.episodes]
    assert len(set(texts)) == len(texts)


def of_file(ctx, path):
    """The context with the texts of a file in place of its problem."""
    return ctx.with_bench(replace(ctx.bench, tasks=FileTasks(str(path))))


@pytest.mark.parametrize("name", ["texts.txt", "texts.jsonl"])
def test_plain_texts_of_a_file_are_documents(context, tmp_path, name):
    texts = ("Water boils.\nIce melts.", "The court held it void.", "Three and four make seven.")
    lines = "\n\n".join(texts) if name.endswith(".txt") else "\n".join(json.dumps({"text": t}) for t in texts)
    (file := tmp_path / name).write_text(lines + "\n")
    ctx = of_file(context("chain"), file)
    n = ctx.bench.tasks.size + ctx.bench.tasks.test_size
    assert n == 3
    shown = text_of(ctx, writer=pl.Scripted(lambda r: "let me see"))
    assert shown in {f"<|begin|>{OPEN}let me see{CLOSE}{t}<|end|>" for t in texts}


def test_a_column_thought_beside_the_text_is_used(context, tmp_path):
    rows = [{"text": f"text number {i}", "thought": f"what comes to mind {i}"} for i in range(3)]
    (file := tmp_path / "t.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    shown = text_of(of_file(context("chain"), file))
    assert shown in {f"<|begin|>{OPEN}{r['thought']}{CLOSE}{r['text']}<|end|>" for r in rows}


def test_the_start_of_the_run_writes_the_thoughts_unless_somebody_else_does():
    assert cpt.build().references == {"writer": "policy"}
    assert cpt.build(writer=pl.Scripted(lambda r: "x")).references == {}
    assert cpt.build(thoughts=False).references == {}


def test_credit_says_which_documents_have_a_thought(context):
    ctx, credit = context("chain"), cpt.build(None).learners["policy"].credit
    groups = [write(ctx), write(ctx, thoughts=False)]
    examples, _ = credit(groups, [[[{}]], [[{}]]], {})
    assert [set(e.columns["thought"].tolist()) for e in examples] == [{1.0}, {0.0}]
