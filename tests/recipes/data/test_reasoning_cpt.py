"""Reasoning CPT: documents and their tokens, which thoughts are dropped, and the catalogue's values."""

import asyncio
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.recipes.data import reasoning_cpt as cpt
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


def test_documents_of_equal_tokens():
    """100 documents of 13 predicted tokens are 260 of 4 tokens of text and an end."""
    assert cpt.matched_documents(100, 13, 5) == 260


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
    matched = write(ctx, stage=cpt.MatchTokens(alone))
    least, one = cpt.tokens_of(write(ctx, form="chat")), cpt.tokens_of(write(ctx, stage=alone))
    assert len(matched.episodes) > 1 and least <= cpt.tokens_of(matched) < least + 3 * one
    texts = [ctx.decode(e.rows[0].context()) for e in matched.episodes]
    assert len(set(texts)) == len(texts)


def test_pre_training_and_then_rl():
    parts = cpt.build(matched=True, data="texts.jsonl").parts
    assert list(parts) == ["cpt", "rl"] and parts["rl"].model == pl.Output("cpt")
    assert parts["cpt"].problem["data"] == "texts.jsonl" and not parts["rl"].problem
