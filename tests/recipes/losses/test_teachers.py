"""Teachers that are no model with the student's tokenizer: one with another tokenizer, and one behind an endpoint."""

import asyncio
import copy
import json
import math
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.models.load import frozen_copy
from palaestra.models.model import Model
from palaestra.recipes.losses import distil
from palaestra.run.driver import prepare
from palaestra.services.chat.scoring import read_echo, read_prompt_logprobs
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Example, Group, Row, Segment
from palaestra.update import pack

from tests.chat_server import serving

SMALL = {"samples": 2, "divergence": "reverse"}


def other_tokenizer(own):
    """A vocabulary with tokens of two characters over the same bytes, with the same template."""
    pairs = [a + b for a in "0123456789 +-=" for b in "0123456789 +-="]
    return own.tokenizer.train_new_from_iterator(pairs * 9, 500)


def foreign(ctx, monkeypatch):
    """The run's model as a folder `elsewhere` with another tokenizer would be."""
    own = ctx.model("policy")
    copied, theirs = copy.deepcopy(own.module), other_tokenizer(own)
    copied.resize_token_embeddings(len(theirs))
    made = Model("other", copied.requires_grad_(False), theirs, "elsewhere")
    monkeypatch.setattr(ctx, "load", lambda name, lora=None: made)
    return made


def group_of(ctx, n=2, max_tokens=12):
    task = ctx.bench.tasks.task("train", 3)
    return asyncio.run(pl.links(pl.Sample(n=n, max_tokens=max_tokens), pl.Score())(ctx, (0, 0), Group(task=task)))


def logp_of(model, ids):
    with torch.no_grad():
        return model.causal(torch.tensor([ids])).logits[0].double().log_softmax(-1)


# ---- the loss of spans


def loss_of(objective, logp, span, span_logp, weight=None):
    """On one row of three tokens behind a prompt of one; the loss, and its gradient on their log-probs."""
    said = Segment(ids=(1, 2, 3), trained=True, logp=(0.0,) * 3)
    columns = {"teacher_span": np.array([0.0, *span]), "teacher_span_logp": np.array([0.0, *span_logp])}
    columns["teacher_logp"] = columns["teacher_span_logp"]
    if weight:
        columns["taught"] = np.array([0.0, *weight])
    batch = pack([Example(row=Row(segments=(Segment(ids=(0,)), said)), columns=columns)], dtype=torch.float64)
    leaf = torch.tensor([[0.0, *logp]], dtype=torch.float64, requires_grad=True)
    loss, metrics = objective({"logp": leaf}, batch)
    (grad,) = torch.autograd.grad(loss, leaf)
    return loss.item(), grad[0, 1:].tolist(), metrics


def test_the_loss_of_spans_by_hand():
    """Two spans, ab and c: -1 - 2 = -3 against -2.5, u = -.5; -1 against -1.2, u = .2. k2: (.125 + .02) / 3 tokens."""
    value, grad, metrics = loss_of(pl.objective.SpanKL("k2"), (-1, -2, -1), (1, 1, 2), (-2.5, -2.5, -1.2))
    assert value == pytest.approx(0.145 / 3) == float(metrics["kl_teacher"])
    assert grad == pytest.approx([-0.5 / 3, -0.5 / 3, 0.2 / 3])
    value, grad, _ = loss_of(pl.objective.SpanKL("k3"), (-1, -2, -1), (1, 1, 2), (-2.5, -2.5, -1.2))
    assert value == pytest.approx((math.exp(0.5) - 1 - 0.5 + math.exp(-0.2) - 1 + 0.2) / 3)
    assert grad == pytest.approx([(1 - math.exp(0.5)) / 3] * 2 + [(1 - math.exp(-0.2)) / 3])


def test_lost_tokens_have_no_gradient_and_count_in_the_mean():
    value, grad, _ = loss_of(pl.objective.SpanKL("k2"), (-1, -2, -1), (0, 1, 0), (0, -1, 0))
    assert value == pytest.approx(0.5 / 3) and grad == pytest.approx([0, -1 / 3, 0])
    weighted, _, metrics = loss_of(
        pl.objective.SpanKL("k2", weight="taught"), (-1, -2, -1), (0, 1, 0), (0, -1, 0), (2, 2, 2)
    )
    assert weighted == pytest.approx(1 / 3) and float(metrics["kl_teacher"]) == pytest.approx(0.5 / 3)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_spans_of_one_token_are_tokens(kind):
    said = ((-1, -2, -0.3), (1, 2, 3), (-0.5, -2.5, -0.1))
    tokens = loss_of(pl.KL(kind, model="teacher", reduce="tokens"), *said)
    assert loss_of(pl.objective.SpanKL(kind), *said) == tokens


def test_the_gradient_of_spans_by_differences():
    e, objective = 1e-6, pl.objective.SpanKL("k3")
    at = lambda x: loss_of(objective, (-1, -2 + x, -1), (1, 1, 2), (-2.5, -2.5, -1.2))[0]
    grad = loss_of(objective, (-1, -2, -1), (1, 1, 2), (-2.5, -2.5, -1.2))[1]
    assert grad[1] == pytest.approx((at(e) - at(-e)) / (2 * e), abs=1e-7)


# ---- a teacher with another tokenizer


def test_a_teacher_with_another_tokenizer_reads_the_text_in_its_own_tokens(context, monkeypatch):
    """What it says of a span is the sum over its own tokens of that text, behind its own prompt, as written out here."""
    ctx = context("chain")
    theirs = foreign(ctx, monkeypatch)
    recipe = distil.build(over="spans", teacher="elsewhere", **SMALL)
    prepare(recipe, ctx)
    group = group_of(ctx)
    learner = recipe.learners["policy"]
    for episode, measured in zip(group.episodes, ctx.measure([group], learner.needs)[0], strict=True):
        (row,), found = episode.rows, measured[0]
        said = [i for s in row.segments if s.trained for i in s.ids]
        own, dialect = ctx.dialect("policy"), ctx.dialect("teacher")
        ended = said[-1] == own.end
        text = own.decode(said[: len(said) - ended])
        spelled = [*dialect.encode_text(text), *[dialect.end] * ended]
        assert spelled != said  # it does have another tokenizer
        prompt = [i for p in dialect.extend(group.task.prompt, first=True, closed=False) for i in p.ids]
        logp = logp_of(theirs, prompt + spelled)
        spans, last = found["teacher_span"][-len(said) :], 0
        ends = np.cumsum([len(own.decode([i])) for i in said])  # all of these tokens are whole characters
        for at, number in enumerate(spans):
            if number and (at + 1 == len(spans) or spans[at + 1] != number):
                is_end = ended and at + 1 == len(spans)
                first = dialect.encode_text(text[: ends[at]])
                n = (
                    len(spelled)
                    if is_end
                    else next(
                        k for k in range(last + 1, len(spelled) + 1) if dialect.decode(spelled[:k]) == text[: ends[at]]
                    )
                )
                expected = sum(logp[len(prompt) + k - 1, spelled[k]] for k in range(last, n))
                assert found["teacher_span_logp"][-len(said) :][at] == pytest.approx(float(expected), abs=2e-4), first
                last = n
        assert last == len(spelled)
        shares = [found[f"track:{k}"][-len(said) :] for k in ("aligned", "coarse", "lost")]
        assert (sum(shares) == 1).all() and not any(
            found[f"track:{k}"][: -len(said)].any() for k in ("aligned", "lost")
        )


def test_spans_of_the_own_tokenizer_are_its_tokens(context):
    """One step over tokens and one over spans, of a teacher that is not the student: the same numbers."""
    losses = []
    for over in ("tokens", "spans"):
        recipe, ctx, state = make_smallest(distil.build(over=over, samples=2)), context("chain"), start(0)
        prepare(recipe, ctx)
        with torch.no_grad():
            for p in ctx.model("teacher").module.parameters():
                p.mul_(1.01)
        state, metrics = asyncio.run(step(recipe, ctx, state))
        losses.append((metrics["loss"], metrics["kl_teacher"], metrics["grad_norm"]))
    assert losses[0][0] > 1e-4 and losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert metrics["aligned"] == 1 and metrics["coarse"] == metrics["lost"] == 0


def test_the_log_says_what_was_aligned(context, monkeypatch):
    recipe, ctx, state = (
        make_smallest(distil.build(over="spans", teacher="elsewhere", samples=2)),
        context("chain"),
        start(0),
    )
    foreign(ctx, monkeypatch)
    prepare(recipe, ctx)
    state, metrics = asyncio.run(step(recipe, ctx, state))
    assert math.isfinite(metrics["loss"]) and metrics["skipped"] == 0
    assert metrics["aligned"] + metrics["coarse"] + metrics["lost"] == pytest.approx(1) and metrics["coarse"] > 0


def test_privileged_context_of_a_teacher_with_another_tokenizer(context, monkeypatch):
    """It reads the answer in its own tokens, and says something else than without."""
    said = []
    for privileged in ("", "answer"):
        ctx = context("chain")
        foreign(ctx, monkeypatch)
        recipe = distil.build(over="spans", teacher="elsewhere", privileged=privileged, samples=2)
        prepare(recipe, ctx)
        learner = recipe.learners["policy"]
        measured = ctx.measure([group_of(ctx)], learner.needs, learner.privileged)[0][0][0]
        said.append(measured["teacher_span_logp"])
    assert measured["track:privileged"].all() and abs(said[0] - said[1]).max() > 1e-3


def test_who_speaks_between_replies_is_refused(context, monkeypatch):
    ctx = context("chain")
    foreign(ctx, monkeypatch)
    recipe = distil.build(over="spans", teacher="elsewhere", samples=2)
    prepare(recipe, ctx)
    group = group_of(ctx, n=1)
    row = group.episodes[0].rows[0]
    more = Row(segments=(*row.segments, Segment(ids=(5, 6)), row.segments[-1]))
    talk = replace(group, episodes=(replace(group.episodes[0], rows=(more,)),))
    with pytest.raises(pl.UserError, match="somebody else speaks between its replies"):
        ctx.measure([talk], recipe.learners["policy"].needs)


def test_a_row_that_is_too_long_for_the_teacher_is_lost(context, monkeypatch):
    ctx = context("chain")
    made = foreign(ctx, monkeypatch)
    recipe = distil.build(over="spans", teacher="elsewhere", samples=2)
    prepare(recipe, ctx)
    group = group_of(ctx, n=1)
    monkeypatch.setattr(type(made), "context", 4)
    found = ctx.measure([group], recipe.learners["policy"].needs)[0][0][0]
    assert (
        not found["teacher_span"].any()
        and found["track:lost"].sum() == group.episodes[0].rows[0].view().trained_T.sum()
    )


# ---- a teacher behind an endpoint


def vllm(model, most=20, spell=None):
    """Answers completions as vLLM does: with `prompt_logprobs` of the ids that are its prompt."""

    def answer(body):
        ids, k = body["prompt"], body.get("prompt_logprobs")
        if k is None:
            return {"choices": [{"text": "x", "prompt_logprobs": None}]}
        logp, entries = logp_of(model, ids), [None]
        for t in range(1, len(ids)):
            top = logp[t - 1].topk(k).indices.tolist() if k else []
            name = spell or (lambda i: model.tokenizer.decode([i]))
            entries.append(
                {
                    str(i): {"logprob": float(logp[t - 1, i]), "rank": 1, "decoded_token": name(i)}
                    for i in {*top, ids[t]}
                }
            )
        return {"choices": [{"text": "x", "prompt_logprobs": entries}], "usage": {"prompt_tokens": len(ids)}}

    return answer


def echoes(model):
    """As older servers do, which know no `prompt_logprobs` and ignore it."""

    def answer(body):
        ids = body["prompt"]
        if not body.get("echo"):
            return {"choices": [{"text": "x", "logprobs": None}]}
        logp = logp_of(model, ids)
        said = [None, *(float(logp[t - 1, ids[t]]) for t in range(1, len(ids))), -0.1]
        names = [model.tokenizer.decode([i]) for i in ids]
        return {"choices": [{"text": "x", "logprobs": {"token_logprobs": said, "tokens": [*names, "x"]}}]}

    return answer


def at(url, more=""):
    return f"endpoint(url='{url}', model='teacher', retries=1, backoff=0.01{more})"


def moved(ctx):
    """A teacher that is not the policy."""
    model = frozen_copy(ctx.model("policy"))
    with torch.no_grad():
        for p in model.module.parameters():
            p.mul_(1.01)
    return model


@pytest.mark.parametrize(("form", "top"), [(vllm, 0), (vllm, 3), (echoes, 0)])
def test_an_endpoint_says_what_the_model_behind_it_says(context, form, top):
    ctx = context("chain")
    teacher = moved(ctx)
    options = {"top": top} if top else {"over": "tokens"}
    with serving(form(teacher)) as (server, url):
        recipe = distil.build(teacher=at(url), samples=2, **options)
        prepare(recipe, ctx)
        group, learner = group_of(ctx), recipe.learners["policy"]
        said = ctx.measure([group], learner.needs)[0]
    asked = [body["prompt"] for body in server.seen if body["max_tokens"] == 1]
    assert all(list(e.rows[0].view().ids_T) in asked for e in group.episodes)  # its ids, as they are
    ctx.scorers.clear()
    ctx.models["teacher"] = teacher
    expected = ctx.measure([group], learner.needs)[0]
    for a, b in zip(said, expected, strict=True):
        assert a[0].keys() == b[0].keys()
        for k in a[0]:
            assert a[0][k] == pytest.approx(b[0][k], abs=1e-4)


def test_two_steps_with_an_endpoint_as_the_teacher(context):
    recipe, ctx, state = None, context("chain"), start(0)
    with serving(vllm(moved(ctx))) as (server, url):
        recipe = make_smallest(distil.build(teacher=at(url), divergence="forward", top=5, samples=2))
        prepare(recipe, ctx)
        for _ in range(2):
            state, metrics = asyncio.run(step(recipe, ctx, state))
            assert metrics["skipped"] == 0 and metrics["divergence_teacher"] > 0
        assert len(server.seen) == 8  # one call for each row


def test_an_endpoint_with_another_tokenizer(context, monkeypatch, tmp_path):
    """Its folder is named; it is asked for its own ids, and says what the same model says here."""
    ctx = context("chain")
    theirs = foreign(ctx, monkeypatch)
    theirs.tokenizer.save_pretrained(tmp_path / "tokenizer")
    said = []
    with serving(vllm(theirs)) as (_, url):
        for teacher in (at(url, f", tokenizer='{tmp_path}/tokenizer'"), "elsewhere"):
            recipe = distil.build(over="spans", teacher=teacher, samples=2)
            ctx = context("chain")
            monkeypatch.setattr(ctx, "load", lambda name, lora=None: theirs)
            prepare(recipe, ctx)
            said.append(ctx.measure([group_of(ctx)], recipe.learners["policy"].needs)[0][0][0])
    for k in said[0]:
        assert said[0][k] == pytest.approx(said[1][k], abs=1e-4)
    assert said[0]["track:coarse"].any()


def first_words(run):
    with pytest.raises(pl.UserError) as caught:
        run()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("answer", "options", "words"),
    [
        (lambda body: {"choices": [{"text": "x"}]}, {"over": "tokens"}, "neither as prompt_logprobs nor by echo"),
        (lambda body: {"choices": [{"text": "x"}]}, {"top": 3}, "gives no prompt_logprobs"),
        (lambda body: {"choices": [{"prompt_logprobs": [None, {}]}]}, {"over": "tokens"}, "did not say how likely"),
    ],
)
def test_what_an_endpoint_cannot_say_is_one_line(context, answer, options, words):
    ctx = context("chain")
    with serving(answer) as (_, url):
        recipe = distil.build(teacher=at(url), samples=2, **options)
        prepare(recipe, ctx)
        group = group_of(ctx, n=1)
        assert words in first_words(lambda: ctx.measure([group], recipe.learners["policy"].needs))


def test_the_whole_vocabulary_is_refused_before_anything_is_sampled(context):
    ctx = context("chain")
    recipe = distil.build(teacher=at("http://127.0.0.1:9/v1"), samples=2)
    assert "an endpoint cannot say vocab_logp" in first_words(lambda: prepare(recipe, ctx))


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_a_tokenizer_that_is_not_there_is_one_line(context, tmp_path, folder):
    ctx, where = context("chain"), tmp_path / folder
    teacher = at("http://127.0.0.1:9/v1", f", tokenizer='{where}'")
    recipe = distil.build(teacher=teacher, over="spans", samples=2)
    assert str(where) in first_words(lambda: prepare(recipe, ctx))


NAN = float("nan")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"7": {"logprob": None}}, "a log-prob is None"),
        ({"7": {"logprob": NAN}}, "a log-prob is nan"),
        ({"7": {"logprob": 0.7}}, "a log-prob is 0.7"),  # a probability
        ({"7": {"logprob": "-1.0"}}, "a log-prob is '-1.0'"),
        ({"8": {"logprob": -1.0}}, "nothing of token 7"),
        ({" seven": {"logprob": -1.0}}, "named ' seven', not by its id"),
    ],
)
def test_what_is_no_log_prob_is_not_learned_from(entry, words):
    """NaN would leave every step out, and a probability would be learned from without a word."""
    with pytest.raises(ValueError, match=words):
        read_prompt_logprobs([None, entry], [3, 7], 0)


@pytest.mark.parametrize("said", [None, NAN, 0.7])
def test_nor_is_that_of_an_echo(said):
    with pytest.raises(ValueError, match="a log-prob is"):
        read_echo({"token_logprobs": [None, -1.0, said, -2.0]}, [3, 7, 9])


def test_what_is_never_said_and_what_is_always_said_are_log_probs():
    said = read_echo({"token_logprobs": [None, -9999.0, 1e-6, -math.inf, 0]}, [3, 7, 9, 11, 2])
    assert said.logp_T.tolist() == [0, -100, 0, -100, 0]


def test_an_endpoint_that_spells_otherwise_has_another_tokenizer(context):
    ctx = context("chain")
    with serving(vllm(moved(ctx), spell=lambda i: f"w{i}")) as (_, url):
        recipe = distil.build(teacher=at(url), samples=2, over="tokens")
        prepare(recipe, ctx)
        group = group_of(ctx, n=1)
        assert "over=spans" in first_words(lambda: ctx.measure([group], recipe.learners["policy"].needs))


def test_an_endpoint_is_no_model_and_has_one_temperature(context):
    ctx = context("chain")
    with serving(vllm(moved(ctx))) as (_, url):
        prepare(distil.build(teacher=at(url), samples=2, over="tokens"), ctx)
        assert "a model of a folder is needed" in first_words(lambda: ctx.engine("teacher"))
        link = pl.links(pl.Sample(n=1, max_tokens=4, temperature=0.7))
        group = asyncio.run(link(ctx, (0, 0), Group(task=ctx.bench.tasks.task("train", 3))))
        assert "sample.temperature=1" in first_words(lambda: ctx.measure([group], (("teacher", "logp"),)))


def test_a_temperature_that_an_endpoint_cannot_score_stops_the_run_before_it_samples(context):
    ctx = context("chain")
    with serving(vllm(moved(ctx))) as (server, url):
        recipe = pl.override(distil.build(teacher=at(url), samples=2, over="tokens"), "temperature", 0.7)
        assert "has 0.7; take sample.temperature=1" in first_words(lambda: asyncio.run(recipe.run(ctx)))
        assert not ctx.sampled_tokens and not server.seen


def test_a_server_that_is_down_stops_the_run_before_it_samples(context):
    """Or one that has fewer likeliest tokens than are asked for."""
    ctx = context("chain", evaluate=4)
    recipe = distil.build(teacher=at("http://127.0.0.1:9/v1"), samples=2, over="tokens")
    assert "see that the server runs" in first_words(lambda: asyncio.run(recipe.run(ctx)))
    assert not ctx.sampled_tokens
    with serving(vllm(moved(ctx))) as (server, url):
        ctx = context("chain", evaluate=0, steps=1)
        recipe = make_smallest(distil.build(teacher=at(url), top=3, samples=2))
        asyncio.run(recipe.run(ctx))
        assert len(server.seen) == 4 + 1 and server.seen[0]["prompt_logprobs"] == 3  # a row each, and once before


def test_an_endpoint_is_not_sent_the_ids_of_a_picture(context):
    """Those ids are made of pixels, and are no tokens of its vocabulary."""
    ctx = context("screen(widgets=1,asks=find)")
    ctx.model("policy").add_eyes()
    with serving(vllm(ctx.model("policy"))) as (server, url):
        recipe = distil.build(teacher=at(url), samples=2, over="tokens")
        assert "holds a picture" in first_words(lambda: asyncio.run(recipe.run(ctx)))
        prepare(recipe, ctx)
        group = group_of(ctx, n=1, max_tokens=4)
        assert "holds a picture" in first_words(lambda: ctx.measure([group], (("teacher", "logp"),)))
        assert not server.seen


def write(tmp_path, **more):
    file = tmp_path / "sums.jsonl"
    rows = [{"prompt": f"What is 1{i} + 2{i}?", "answer": str(30 + 2 * i), **more} for i in range(4)]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(file)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"teacher": "endpoint(model='m')"}, "has no url"),
        ({"teacher": "endpoint(url='http://h/v1', modle='m')"}, "modle"),
        ({"teacher": "self", "context": "tool"}, "needs the column 'tool'"),
        ({"teacher": "self", "context": "answer", "privileged": "hint"}, "are two things to show"),
        ({"teacher": "policy", "ema": 0.1}, "give teacher=self"),
        ({"teacher": "self"}, "context=COLUMN"),
    ],
)
def test_a_teacher_that_cannot_be_is_one_line(tmp_path, words, message):
    run = lambda: pl.train("distil", data=write(tmp_path), out=tmp_path / "run", quiet=True, set=words)
    assert message in first_words(run)


def test_a_student_that_reads_a_column_of_the_data(tmp_path):
    """The teacher is the student's average and reads what a tool returned, a record, behind the question."""
    data, out = write(tmp_path, tool={"sum": 42}), tmp_path / "run"
    words = {"teacher": "self", "context": "tool", "ema": 0.5, "samples": 2, "schedule.prompts": 2}
    pl.train("distil", data=data, out=out, quiet=True, max_tokens=8, evaluate=1, steps=2, set=words)
    lines = [json.loads(x) for x in (out / "metrics.jsonl").read_text().splitlines()]
    seen = [(x["privileged"], x["divergence_teacher"]) for x in lines if "loss" in x]
    assert len(seen) == 2 and all(share == 1 and divergence > 1e-4 for share, divergence in seen)


def test_questions_alone_are_enough(tmp_path):
    """The teacher judges: data need no answers, and held-out ones are not judged."""
    file, out = tmp_path / "questions.jsonl", tmp_path / "run"
    file.write_text("".join(json.dumps({"question": f"What is {i} + 2?", "page": f"{i + 2}"}) + "\n" for i in range(6)))
    words = {"teacher": "self", "context": "page", "samples": 2, "schedule.prompts": 2}
    pl.train("distil", data=str(file), out=out, quiet=True, max_tokens=4, evaluate=1, steps=1, set=words)
    (line,) = [json.loads(x) for x in (out / "metrics.jsonl").read_text().splitlines() if '"loss"' in x]
    assert line["privileged"] == 1 and line["divergence_teacher"] > 1e-4
