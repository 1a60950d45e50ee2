"""Recorded replies of several messages: what of them is trained, in pairs and in labelled answers, and what is refused."""

import asyncio
import json
import math

import palaestra as pl
import pytest
import torch
from palaestra.tasks.files import FileTasks, first_tasks
from palaestra.tasks.tool_data import WRITTEN
from palaestra.types import Group
from palaestra.update import pack

say = lambda role, content, **more: {"role": role, "content": content, **more}
ASK, CALL, RESULT, ANSWER = (
    say("user", "2+3?"),
    say("assistant", "add(2,3)"),
    say("tool", "5"),
    say("assistant", "It is 5."),
)
WRONG, AGAIN = say("assistant", "It is 6."), say("user", "Sure?")


def task_of(tmp_path, row):
    path = tmp_path / "d.jsonl"
    path.write_text(json.dumps(row))
    (task,) = first_tasks(str(path), 1)
    return task


def group_of(ctx, tmp_path, row):
    task = task_of(tmp_path, row)
    return asyncio.run(pl.Recorded()(ctx, (0,), Group(task=task)))


def trained(ctx, episode):
    """The texts that are trained, by the runs of their tokens, without end tokens; and how many of these there are."""
    (row,), dialect = episode.rows, ctx.dialect("policy")
    view, texts, end = row.view(), [], dialect.end
    for i, on in zip(view.ids_T.tolist(), view.trained_T.tolist(), strict=True):
        if on and (not texts or texts[-1] is None):
            texts.append([])
        if not on and texts and texts[-1] is not None:
            texts.append(None)
        if on:
            texts[-1].append(i)
    runs = [x for x in texts if x]
    assert all(run[-1] == end and end not in run[:-1] for run in runs)  # each message ends
    return [dialect.decode(run[:-1]) for run in runs]


FORMS = {
    "replies to a prompt": {"prompt": "2+3?", "chosen": [CALL, RESULT, ANSWER], "rejected": [WRONG]},
    "whole conversations": {"chosen": [ASK, CALL, RESULT, ANSWER], "rejected": [ASK, WRONG]},
    "OpenAI": {
        "input": {"messages": [ASK]}, "preferred_output": [CALL, RESULT, ANSWER], "non_preferred_output": [WRONG],
    },
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_what_the_assistant_says_is_trained_and_what_tools_say_is_not(context, tmp_path, form):
    ctx = context("chain")
    group = group_of(ctx, tmp_path, FORMS[form])
    assert [m.content for m in group.task.prompt] == ["2+3?"]
    chosen, rejected = group.episodes
    assert trained(ctx, chosen) == ["add(2,3)", "It is 5."] and trained(ctx, rejected) == ["It is 6."]
    assert "5" in ctx.decode(chosen.rows[0].view().ids_T[~chosen.rows[0].view().trained_T].tolist())
    assert [e.total for e in group.episodes] == [1, 0]


def test_users_that_ask_further_are_not_trained(context, tmp_path):
    ctx = context("chain")
    row = {"prompt": "2+3?", "chosen": [WRONG, AGAIN, ANSWER], "rejected": [WRONG, AGAIN, WRONG]}
    chosen, rejected = group_of(ctx, tmp_path, row).episodes
    # both begin with the same message, which is context
    assert trained(ctx, chosen) == ["It is 5."] and trained(ctx, rejected) == ["It is 6."]


def test_what_both_conversations_say_is_context(context, tmp_path):
    ctx = context("chain")
    row = {"chosen": [ASK, CALL, RESULT, ANSWER], "rejected": [ASK, CALL, RESULT, WRONG]}
    group = group_of(ctx, tmp_path, row)
    assert [m.content for m in group.task.prompt] == ["2+3?"]
    assert [trained(ctx, e) for e in group.episodes] == [["It is 5."], ["It is 6."]]
    assert "add(2,3)" in ctx.decode(group.episodes[0].rows[0].view().ids_T.tolist())


def test_a_message_of_no_weight_is_context(context, tmp_path):
    ctx = context("chain")
    row = {"prompt": "2+3?", "chosen": [{**CALL, "weight": 0}, RESULT, ANSWER], "rejected": [WRONG]}
    assert trained(ctx, group_of(ctx, tmp_path, row).episodes[0]) == ["It is 5."]


def test_labelled_answers_of_several_messages(context, tmp_path):
    ctx = context("chain")
    group = group_of(ctx, tmp_path, {"prompt": "2+3?", "response": [CALL, RESULT, ANSWER], "right": True})
    assert trained(ctx, group.episodes[0]) == ["add(2,3)", "It is 5."] and group.episodes[0].total == 1


def test_the_loss_of_such_a_pair_is_that_of_the_assistants_tokens(context, tmp_path):
    """DPO: -log sigmoid(beta (sum of the assistant's log-ratios, chosen less rejected)), summed here over the logits."""
    ctx = context("chain")
    recipe = pl.recipe("dpo", pairs="data", beta=0.3)
    group = group_of(ctx, tmp_path, FORMS["replies to a prompt"])
    ctx.reference("ref", "policy")
    with torch.no_grad():
        for p in ctx.model("ref").module.parameters():
            p.mul_(1.01)
    learner, ratio = recipe.learners["policy"], []
    examples, _ = learner.credit([group], ctx.measure([group], learner.needs), {})
    batch = pack(examples, "policy")
    loss, _ = learner.objective(ctx.forward("policy", learner.objective.needs)(batch), batch)
    for episode in group.episodes:
        view, of = episode.rows[0].view(), {}
        for name in ("policy", "ref"):
            with torch.no_grad():
                logp = ctx.model(name).causal(torch.tensor(view.ids_T)[None]).logits[0].double().log_softmax(-1)
            places = [t for t in range(1, len(view.ids_T)) if view.trained_T[t]]
            of[name] = sum(float(logp[t - 1, view.ids_T[t]]) for t in places)
        ratio.append(of["policy"] - of["ref"])
    assert loss.item() == pytest.approx(math.log1p(math.exp(-0.3 * (ratio[0] - ratio[1]))), abs=1e-4)


@pytest.mark.parametrize("method", ["dpo pairs=data", "ipo", "reward-model", "kto"])
def test_methods_take_them(tmp_path, method):
    name, *words = method.split()
    rows = [
        {"prompt": f"{i}+1?", "response": [CALL, RESULT, ANSWER], "right": i % 2 == 0}
        if name == "kto"
        else {"prompt": f"{i}+1?", "chosen": [CALL, RESULT, ANSWER], "rejected": [WRONG]}
        for i in range(6)
    ]
    path = tmp_path / "d.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    given = dict(w.split("=") for w in words) | {"schedule.prompts": 2}
    pl.train(name, data=str(path), out=tmp_path / "run", quiet=True, steps=2, evaluate=1, set=given)
    lines = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [x["loss"] for x in lines if "loss" in x]
    assert len(losses) == 2 and all(map(math.isfinite, losses))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"chosen": [CALL, RESULT], "rejected": [WRONG]}, "chosen ends with 'tool'"),
        ({"chosen": [RESULT, ANSWER], "rejected": [WRONG]}, r"chosen\[0\] is from 'tool'; a reply begins with"),
        ({"chosen": [CALL, AGAIN, RESULT, ANSWER], "rejected": [WRONG]}, "is a tool's result"),
        ({"chosen": [CALL, say("system", "x"), ANSWER], "rejected": [WRONG]}, r"chosen\[1\] is from 'system'"),
        ({"chosen": [CALL, say("person", "x"), ANSWER], "rejected": [WRONG]}, r"chosen\[1\]\.role"),
        ({"chosen": [CALL, {**RESULT, "weight": 1}, ANSWER], "rejected": [WRONG]}, "marks a message of the tool"),
        ({"chosen": [CALL, ANSWER], "rejected": [WRONG]}, "are both from the assistant"),
        ({"chosen": [], "rejected": [WRONG]}, "write text, or messages after the prompt"),
        ({"chosen": [WRONG, say("user", "Sure?"), ANSWER], "rejected": [WRONG]}, "chosen goes on where rejected ends"),
        ({"chosen": [WRONG], "rejected": [WRONG, say("user", "Sure?"), ANSWER]}, "rejected goes on where chosen ends"),
    ],
)
def test_what_no_reply_is_is_refused_in_one_line(tmp_path, row, message):
    with pytest.raises(pl.UserError, match=message) as caught:
        task_of(tmp_path, {"prompt": "2+3?", **row})
    assert "\n" not in str(caught.value)


def test_methods_that_read_one_text_refuse_them(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text("".join(json.dumps({**FORMS["replies to a prompt"], "prompt": f"{i}?"}) + "\n" for i in range(4)))
    with pytest.raises(pl.UserError, match="reads the column 'chosen' as one text"):
        pl.train("j1-judge", data=str(path), out=tmp_path / "run", quiet=True)


def test_that_calls_are_written_as_text_is_said_of_replies_too(tmp_path):
    """Their form is that of one family of models, which whoever trains another has to know."""
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}
    wrote = {"role": "assistant", "content": None, "tool_calls": [call]}
    for name, row, said in (
        ("pair", {"chosen": [wrote, RESULT, ANSWER], "rejected": [WRONG]}, True),
        ("last", {"chosen": [ANSWER], "rejected": [wrote]}, True),
        ("labels", {"completion": [wrote, RESULT, ANSWER], "label": True}, True),
        ("none", {"chosen": [ANSWER], "rejected": [WRONG]}, False),
    ):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"prompt": f"{i}?", **row}) + "\n" for i in range(12)))
        assert (WRITTEN in FileTasks(str(path), answers=False).notes) is said, name


def test_what_the_data_has_are_its_own_columns(tmp_path):
    """The messages before the last one of a reply are no column that a user could name."""
    path = tmp_path / "d.jsonl"
    path.write_text("".join(json.dumps({**FORMS["replies to a prompt"], "prompt": f"{i}?"}) + "\n" for i in range(4)))
    with pytest.raises(pl.UserError, match=r"\(it has chosen, rejected\)"):
        pl.train("kto", data=str(path), out=tmp_path / "run", quiet=True)
