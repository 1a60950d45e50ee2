"""Imagined dialogue: ILQL's terms by hand, how it acts, and what becomes a dialogue to learn from."""

import asyncio
import json

import numpy as np
import palaestra as pl
import pytest
import torch
from palaestra.models.load import load
from palaestra.recipes.preference.imagined_dialogue import ilql, imagine, talks
from palaestra.types import Act, Ask, Example, Row, Segment, Task
from palaestra.update import pack

from tests.chat_server import serving

near = lambda x: pytest.approx(x, abs=1e-6)
NAMES = ("logp", *ilql.HEADS, "q_logsumexp", "q_logsumexp:2")
# a turn of two tokens, what the user says, a turn of one token: by token, rewards .5 and 1 at the ends
ON, REWARD = [0, 1, 1, 0, 1], [0.0, 0.0, 0.5, 0.0, 1.0]
SAID = {
    "logp": [-1.0, -2.0, -0.5], "q": [0.2, 0.4, 0.6], "q2": [0.1, 0.5, 0.9], "slow_q": [0.3, 0.2, 1.0],
    "slow_q2": [0.5, 0.1, 0.8], "value": [0.1, 0.4, 0.7], "q_logsumexp": [2.0, 2.1, 2.2], "q_logsumexp:2": [2.0] * 3,
}  # fmt: skip


def batch():
    segments = (
        Segment(ids=(0,)),
        Segment(ids=(1, 2), trained=True),
        Segment(ids=(3,)),
        Segment(ids=(4,), trained=True),
    )
    row = Example(row=Row(segments=segments), columns={"reward": np.array(REWARD)})
    return pack([row], dtype=torch.float64)


def outputs(**changed):
    """Of the five tokens, with a gradient."""
    full = {}
    for name, three in (SAID | changed).items():
        a, b, c = three
        full[name] = torch.tensor([[9.0, a, b, 9.0, c]], dtype=torch.float64).requires_grad_()
    return full


def loss_of(objective, out):
    loss, metrics = objective(out, batch())
    return loss, {k: float(v) for k, v in metrics.items()}


def test_every_term_by_hand():
    """gamma .5: targets .5 * .4 = .2, .5 + .5 * .7 = .85 and 1; u = .3 - .1, .1 - .4 and .8 - .7."""
    loss, terms = loss_of(ilql.ILQL(gamma=0.5, tau=0.7, cql=0.25, lm=2.0), outputs())
    first = 0.0**2 + 0.45**2 + 0.4**2
    twin = 0.1**2 + 0.35**2 + 0.1**2
    assert terms["q_loss"] == near((first + twin) / 3)
    assert terms["v_loss"] == near((0.7 * 0.04 + 0.3 * 0.09 + 0.7 * 0.01) / 3)
    assert terms["cql_loss"] == near((1.8 + 1.7 + 1.6 + 1.9 + 1.5 + 1.1) / 3)
    assert terms["nll"] == near(3.5 / 3) and terms["advantage"] == near(0.2)
    whole = terms["q_loss"] + terms["v_loss"] + 0.25 * terms["cql_loss"] + 2.0 * terms["nll"]
    assert loss.item() == near(whole)


@pytest.mark.parametrize("name", [n for n in NAMES if not n.startswith("slow")])
def test_the_gradient_by_finite_differences(name):
    """At gamma 0, where no target has a gradient to lose."""
    objective, step = ilql.ILQL(gamma=0.0, cql=0.2), 1e-6
    out = outputs()
    (grad,) = torch.autograd.grad(loss_of(objective, out)[0], out[name])
    for i, at in enumerate((1, 2, 4)):
        low, high = ([x + s * step * (j == i) for j, x in enumerate(SAID[name])] for s in (-1, 1))
        slope = [loss_of(objective, outputs(**{name: x}))[0].item() for x in (low, high)]
        assert grad[0, at].item() == pytest.approx((slope[1] - slope[0]) / (2 * step), abs=1e-6)
    assert grad[0, 0] == 0 == grad[0, 3]


def test_targets_are_held_still():
    """V learns nothing from being the target of Q, and the slow copies nothing at all."""
    slopes = []
    for gamma in (0.0, 0.9):
        out = outputs()
        loss = loss_of(ilql.ILQL(gamma=gamma), out)[0]
        slopes.append(torch.autograd.grad(loss, out["value"], retain_graph=True)[0])
        assert torch.autograd.grad(loss, out["slow_q"], allow_unused=True)[0] is None
    assert torch.equal(*slopes) and slopes[0].abs().sum() > 0


def test_expectile_reference_values():
    """The .7-expectile of 0 and 1 is .7: there the gradient of L_V is 0."""
    assert ilql.expectile_weight(torch.tensor([1.0, -1.0]), 0.7).tolist() == near([0.7, 0.3])
    m = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    u = torch.tensor([0.0, 1.0], dtype=torch.float64) - m
    (slope,) = torch.autograd.grad((ilql.expectile_weight(u, 0.7) * u**2).sum(), m)
    assert slope.item() == near(0.0)


def test_acting_reference_values():
    """pi_beta (.5, .5), Q - V = (1, 0), w 1: e / (e + 1)."""
    model = load("tiny")
    for name in ilql.HEADS:
        model.add_head(name)
    for name in ("slow_q", "slow_q2"):
        model.heads[name].out.bias.data[:2] = torch.tensor([3.0, 2.0])
    model.heads["q"].strength = 1.0
    hidden = torch.zeros(1, model.width)
    plain = torch.zeros(1, model.vocabulary)
    acting = model.heads["q"].act(model.action_values(hidden), plain)[0, :2].softmax(0)
    assert acting.tolist() == pytest.approx([0.731059, 0.268941], abs=1e-6)


def test_the_next_action_passes_what_the_user_says():
    x, on = torch.tensor([[5.0, 1.0, 2.0, 6.0, 3.0, 7.0]] * 2), torch.tensor([[0, 1, 1, 0, 1, 0], [0, 0, 0, 0, 0, 1]])
    assert ilql.next_action(x, on).tolist() == [[1, 2, 3, 3, 0, 0], [7, 7, 7, 7, 7, 0]]


def test_polyak():
    model = load("tiny")
    slow, own = model.add_head("slow_q"), model.add_head("q")
    own.out.bias.data.fill_(2.0)
    ilql.follow(slow, own, 0.005)
    assert slow.out.bias[0].item() == near(0.01)
    ilql.follow(slow, own, 0.5)
    assert slow.out.bias[0].item() == near(1.005)


def said(*texts, reward=1.0, profile="", split=""):
    """A talk in which the user begins."""
    messages = tuple((("user", "assistant")[i % 2], t) for i, t in enumerate(texts))
    return imagine.RecordedTalk(messages=messages, reward=reward, profile=profile, split=split)


def test_leaks():
    profile = "A rower who wants company, and gets up early."
    assert not imagine.leak(said("hi", "Do you row in company?", profile=profile))
    leaked = said("hi", "As a rower who wants company and gets up, come at six", profile=profile)
    assert imagine.leak(leaked) == "a rower who wants company and"
    told = said(
        "I am a rower who wants company and gets up early", "A rower who wants company and gets up!", profile=profile
    )
    assert not imagine.leak(told)
    early = said(
        "hi", "A rower who wants company, and?", "I am a rower who wants company and rise", "ok", profile=profile
    )
    assert imagine.leak(early)  # told too late
    assert imagine.leak(said("hi", "You like old films", profile="like old films")) and not imagine.leak(
        said("hi", "x")
    )
    assert not imagine.leak(said("hi", "a runner", profile="runner"))


def test_profiles_are_held_out_whole():
    talks_ = [said("hi", str(i), profile=f"p{i % 5}") for i in range(20)]
    split = imagine.split_by_profile(talks_, 0.2, 0)
    held = {t.profile for t in split if t.split == "test"}
    assert len(held) == 1 and not held & {t.profile for t in split if t.split == "train"}
    own = [said("hi", "x", profile=f"p{i}", split="test" if i == 3 else "train") for i in range(5)]
    assert [t.split for t in imagine.split_by_profile(own, 0.5, 0)] == [t.split for t in own]
    assert [t.split for t in imagine.split_by_profile([said("a", "b")], 0.5, 0)] == ["train"]


def test_what_is_read_of_an_author():
    assert imagine.read_profiles("Here they are:\n1. **A cook.**\n 2) A poet\n\nend") == ["A cook.", "A poet"]
    script = "User: hi\n**Agent:** What do\nyou like?\nAgent: Say.\nUser: tea\nAgent: Take tea.\nUser: bye"
    want = (("user", "hi"), ("assistant", "What do\nyou like?\nSay."), ("user", "tea"), ("assistant", "Take tea."))
    read = imagine.read_talk(script)
    assert [(r, t.replace("** ", "")) for r, t in read] == list(want)
    assert not imagine.read_talk("Agent: hi\nUser: x") and not imagine.read_talk("OK") and not imagine.read_talk("")
    labels = {"0.7": 0.7, "Reward: 1": 1.0, "It is 0": 0.0, ".25.": 0.25, "7": None, "100%": None, "": None, "-1": None}
    assert {text: imagine.read_label(text) for text in labels} == labels


def test_rewards_of_turns():
    prompt = tuple(pl.Message(role=r, content="x") for r in ("user", "assistant", "user"))
    of = lambda reward: ilql.turn_rewards(Task(id="t", prompt=prompt, meta={"reward": reward}))
    assert of(0.5) == (0.0, 0.5) and of([1, -1]) == (1.0, -1.0)
    for bad in ([1.0], [1, 2, 3], "good", None, True, float("nan")):
        with pytest.raises(pl.UserError, match="a list of 2, one for each turn"):
            of(bad)


def rows(n=12, **more):
    return [
        {
            "messages": [
                {"role": "user", "content": "hi"}, {"role": "assistant", "content": f"ask {i % 3}"},
                {"role": "user", "content": "yes"}, {"role": "assistant", "content": "take 1"},
            ],
            "reward": [0.1, i / n], "profile": f"likes number {i % 4}", **more,
        }
        for i in range(n)
    ]  # fmt: skip


def trained(folder, records, **given):
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in records))
    data = {"data": str(file)} if records else {}
    words = {"agent.schedule.prompts": 4, "agent.schedule.steps": 2, **given}
    return pl.train("imagined-dialogue", **data, set=words, evaluate=4, quiet=True, out=folder / "run")


def test_a_users_dialogues(tmp_path):
    """A dialogue that leaks is left out, profiles are apart, and the checkpoint acts as strongly as it was told."""
    bad = rows(1)[0]
    bad["messages"][1]["content"] = "You, who likes number 0?"
    run = trained(tmp_path, [*rows(), bad], strength=3.0)
    kept = [json.loads(x) for x in (tmp_path / "run/dialogues/dialogues.jsonl").read_text().splitlines()]
    apart = [{r["profile"] for r in kept if r["split"] == s} for s in ("train", "test")]
    assert len(kept) == 12 and apart[1] and not apart[0] & apart[1]
    model = load(str(next((run.folder / "agent/checkpoints").glob("step-2"))))
    assert model.heads["q"].strength == 3.0 and model.heads["slow_q"].out.weight.abs().sum() > 0
    step = json.loads((run.folder / "agent/metrics.jsonl").read_text().splitlines()[-2])
    assert step["tilt"] == near(3.0 * step["advantage"])


def author(body):
    """A language model that imagines, criticises, labels and plays users."""
    text = body["messages"][-1]["content"]
    if "different as can be" in text:
        return "\n".join(f"{i + 1}. A user with the taste {'abcdefgh'[i]} and no other" for i in range(8))
    if "Write their whole conversation" in text:
        return "User: hi\nAgent: " + ("What?" if "terse" in text else "Tea?") + "\nUser: a\nAgent: Take a."
    if "Is it realistic?" in text:
        return "OK"
    if "what you say next" in text:
        return "I see. DONE" if "a:" in text else "tell me more"
    return "0.75" if "Tea?" in text else "0.25"


def test_imagined_by_an_endpoint(tmp_path):
    """4 users of one task, two talks each; the trained agent talks with held-out ones."""
    with serving(author) as (server, url):
        who = f"endpoint(url='{url}',model='m')"
        given = {"imagine": who, "profiles": 4, "dialogues": 2, "user": who, "turns": 2}
        run = trained(tmp_path, [], goal="Find out what the user likes.", **given)
        asked = len(server.seen)
    kept = [json.loads(x) for x in (tmp_path / "run/dialogues/dialogues.jsonl").read_text().splitlines()]
    assert len(kept) == 8 and {r["reward"] for r in kept} == {0.75, 0.25} and asked > 1 + 3 * 8
    assert len({r["profile"] for r in kept}) == 4 and kept[0]["messages"][1]["role"] == "assistant"
    last = json.loads((run.folder / "agent/metrics.jsonl").read_text().splitlines()[-1])
    assert last["evaluations"]["talks"]["acting"]["mean"] == near(0.25)


def test_an_author_that_cannot_write_is_refused(tmp_path):
    with serving(lambda body: "no") as (_, url), pytest.raises(pl.UserError, match="take a larger model"):
        rows_ = [{"prompt": f"Sell tea {i}."} for i in range(3)]
        trained(tmp_path, rows_, imagine=f"endpoint(url='{url}',model='m')", profiles=2)


def test_data_that_are_no_dialogues_are_refused(tmp_path):
    with pytest.raises(pl.UserError, match=r"reward is \[1.0\]; .*a list of 2"):
        trained(tmp_path, [r | {"reward": [1.0]} for r in rows()])
    with pytest.raises(pl.UserError, match="at most 16"):
        pl.recipe("imagined-dialogue", strength=17.0)


def test_a_user_without_a_verdict_is_a_fault(context):
    class Silent:
        def ask(self, *_, **__):
            return asyncio.sleep(0, "I do not know")

    world = talks.SimulatedUser(Silent(), None, 1)
    task = Task(id="t", prompt=(pl.Message(role="user", content="hi"),), meta={"profile": "p"})
    act = (Act(ask=Ask(seat="policy"), text="x", call=None, finish="eos", n_tokens=1),)
    with pytest.raises(pl.Fault, match="no number"):
        asyncio.run(world.step(world.reset(task, ()).state, act, ()))
