"""Rewards, part D: reward models of several heads, labels and principles; composed, bridged and scaled rewards."""

import asyncio
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from palaestra.api.training import make_smallest
from palaestra.claims.rewards import encore as encore_claim
from palaestra.credit.labelled import Labelled
from palaestra.credit.links import Chain
from palaestra.credit.preferences import Compare
from palaestra.errors import Fault, UserError
from palaestra.explanation.method import explain
from palaestra.judges.principles import (
    PRINCIPLE_QUESTIONS,
    Entailed,
    Principled,
    annotator_consensus,
    has_agreement,
    has_quote,
    label_verdict,
    partial_ratio,
)
from palaestra.judges.prompt import defuse
from palaestra.judges.reading import Odds
from palaestra.recipes.base import grpo
from palaestra.recipes.rewards import (
    creative_writing,
    encore,
    mm_rlhf,
    multilabel_grpo,
    reward_robust,
    rlbff,
    rlcf,
    salu,
)
from palaestra.rewards import bridging
from palaestra.rewards.intrinsic import sequence_confidence
from palaestra.rewards.labels import QUALITY_LABELS, Also, Beside, Labels, Noisy, text_properties
from palaestra.rewards.learned import robust
from palaestra.rewards.probe import accuracy
from palaestra.rewards.rules import Refine, RuleVerdict, revise
from palaestra.rollout.collect import links
from palaestra.run.driver import prepare
from palaestra.services.chat.scripted import Scripted
from palaestra.step import start, step
from palaestra.toys.unanswerable import Unanswerable
from palaestra.types import Episode, Example, Group, Message, Reward, Row, Segment, Task, stage
from palaestra.update import pack
from palaestra.values import override


def said(text, reward=None, **parts):
    """A finished episode with one sampled turn."""
    ids = tuple(text.encode()) or (256,)
    mine = Segment(
        ids=ids, author="policy", policy="policy", trained=True, logp=(-1.0,) * len(ids), text=text, version=0
    )
    total = None if reward is None else Reward(total=reward, parts=parts)
    return Episode(rows=(Row(segments=(Segment(ids=(1, 2)), mine)),), reward=total, status="finished")


def group(*episodes, answer="4", meta=None, name="t/0"):
    task = Task(id=name, prompt=(Message(role="user", content="2+2 mod 10"),), answer=answer, meta=meta or {})
    return Group(task=task, episodes=episodes)


def reward_of(function, ctx, *texts, **fields):
    return asyncio.run(function(ctx, group(*(said(t) for t in texts), **fields)))


@stage
class Broken:
    """A judge that fails for one text."""

    async def __call__(self, ctx, group):
        return [Fault("down") if "x" in e.text else Reward(total=1.0, parts={"a": 0.25}) for e in group.episodes]


# ---- labels and what stands beside the reward


def test_properties_of_an_answer():
    assert text_properties("2+2=4\n= 4") == {"worked": pytest.approx(1 / 3), "brief": 1 - 9 / 40, "tidy": 1.0}
    assert text_properties("= 4\n= 4")["tidy"] == 0 and text_properties("1=1\n1=1\n= 4")["tidy"] == 0
    assert text_properties("") == {"worked": 0.0, "brief": 1.0, "tidy": 0.0} and text_properties("9" * 99)["brief"] == 0


def test_labels_know_the_bench(context):
    right, wrong = reward_of(Labels(), context(), "= 4", "= 5")
    assert tuple(right.parts) == QUALITY_LABELS and right.parts["right"] == 1 and wrong.parts["right"] == 0
    assert right.total == pytest.approx((1 + 0 + 0.925 + 1) / 4)
    with pytest.raises(UserError, match="pays by itself"):
        reward_of(Labels(), context("grid"), "= 4")


def test_noise_is_the_same_for_the_same_seed(context):
    texts = ["= 4"] * 400
    flipped = [r.total for r in reward_of(Noisy(share=0.25), context(), *texts)]
    assert flipped == [r.total for r in reward_of(Noisy(share=0.25), context(), *texts)]
    assert np.mean(flipped) == pytest.approx(0.75, abs=0.07) and set(flipped) == {0.0, 1.0}
    assert {r.total for r in reward_of(Noisy(share=0.0), context(), *texts)} == {1.0}


def test_beside_and_also_leave_the_reward_alone(context):
    before = group(said("= 4", 0.5, own=0.5), said("x", 0.7), said("= 5"), Episode(status="error:dead"))
    after = asyncio.run(Beside(Broken(), "b")(context(), (), before))
    assert (
        dict(after.episodes[0].reward.parts) == {"own": 0.5, "b": 1.0, "b/a": 0.25} and after.episodes[0].total == 0.5
    )
    assert not after.episodes[1].reward.parts and after.episodes[1].ok  # a fault costs the part, not the episode
    assert after.episodes[2:] == before.episodes[2:]
    more = asyncio.run(Also(links())(context(), (), before))
    assert [len(e.rows) for e in more.episodes] == [2, 2, 1, 0]


def test_labelled_credit_reads_the_part():
    g = group(said("a", 1.0, gold=0.0), said("b", 0.0, gold=1.0), said("c", 5.0))
    better, worse = Labelled("gold", Compare())([g], [], {})[0]
    assert (better.row.segments[1].text, worse.row.segments[1].text) == ("b", "a")
    with pytest.raises(UserError, match="no reward has the part 'silver'"):
        Labelled("silver", Compare())([g], [], {})


def steps(recipe, ctx, n):
    """Metrics of n steps at the size of a smoke run."""
    prepare(recipe, ctx)
    state, found = start(0), []
    for _ in range(n):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        found.append(metrics)
    return found


def smoke_arms(experiment, context, tmp_path):
    """The arms that an experiment compares run, and its measure finds their numbers."""
    from palaestra.ledger.cells import read_cell
    from palaestra.ledger.experiment import Cell

    found = {}
    for i, name in enumerate(experiment.expect.arms):
        out = tmp_path / str(i)
        ctx = context(experiment.tasks[0], out=out, evaluate=4, steps=1, tokens=100)
        result = asyncio.run(make_smallest(experiment.arms[name]).run(ctx))
        out.mkdir(exist_ok=True)
        (out / "cell.json").write_text(json.dumps(dict(result.metrics)))
        cell = read_cell(out)
        assert isinstance(cell, Cell)
        found[name] = experiment.measure(cell)
        for control in experiment.controls.values():
            control(cell)
    return found


# ---- reward-robust


def test_reward_robust_between_nominal_and_worst():
    mean, sd = np.array([[1.0, 0.8, 1.4, 0.2, 0.9]]), np.array([[0.5, 0.1, 0.9, 0.3, 0.2]])
    assert [robust(mean, sd, w)[0] for w in (0.4, 1.0, 0.0)] == pytest.approx([0.44, 0.8, 0.2])
    assert robust(mean[:, :1], sd[:, :1], 0.4)[0] == 1.0  # one head: plain RLHF
    two = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert robust(two, np.ones((2, 2)), 0.0).tolist() == [0, 0]
    assert robust(two, np.ones((2, 2)), 0.0, "batch").mean() == 0.5


def test_reward_robust_trains_both_stages_beside_the_policy(context):
    ctx, recipe = context(), override(make_smallest(reward_robust.build()), "collect.links.0.n", 8)
    found = steps(recipe, ctx, 2)
    assert {"part/nominal", "part/gold", "part/reward/prior4_sd"} <= set(found[-1])
    assert {"nominal/ranked", "reward/squared_error", "policy/loss"} <= set(found[-1])
    assert ctx.model("nominal").heads["score"].out.weight.abs().sum() > 0


@pytest.mark.filterwarnings("ignore:invalid value")
def test_reward_robust_score_that_is_not_finite_is_an_error(context):
    ctx = context()
    prepare(reward_robust.build(heads=1), ctx)
    ctx.model("reward").heads["prior0_sd"].out.bias.data.fill_(float("nan"))
    found = asyncio.run(reward_robust.build(heads=1).collect.links[1].reward(ctx, group(said("= 4"))))
    assert isinstance(found[0], Fault)


# ---- rlbff


def test_rlbff_log_odds():
    value = Odds(form="log-odds").value
    assert value(math.log(0.8), math.log(0.15)) == pytest.approx(1.673976, abs=1e-6)
    assert value(math.log(0.15), math.log(0.8)) == pytest.approx(-1.673976, abs=1e-6)
    assert value(math.log(0.3), math.log(0.3)) == 0
    assert value(0.0, -99.0) == 10 and value(-99.0, 0.0) == -10  # heavy tails are cut


def test_rlbff_keeps_what_is_quoted_and_shared():
    assert not has_quote(60) and has_quote(61)
    assert not has_agreement((0.85, 0.79)) and has_agreement((0.85, 0.81)) and not has_agreement(())
    assert (
        partial_ratio("short", "it is short.") == 100 and partial_ratio("", "x") == 0 and partial_ratio("", "") == 100
    )
    assert partial_ratio("abcd", "abxd") == pytest.approx(75.0)
    assert partial_ratio("zz", "abc") == 0 < partial_ratio("az", "zbc")
    for quote, text in (("ebb", "ded"), ("ded", "ebb")):  # of equal length: either is the window, as in rapidfuzz 3
        assert partial_ratio(quote, text) == pytest.approx(50.0)
    near, far = np.array([1.0, 0.1]), np.array([0.1, 1.0])
    three = [[(near, True), (far, True)], [(near, True)], [(near, True), (far, False)]]
    assert annotator_consensus(three) == [[True, False], [True], [True, False]]
    assert annotator_consensus([[(near, True)], [(near, False)]]) == [
        [False],
        [False],
    ]  # the same words, another verdict
    assert annotator_consensus([[(near, True)]]) == [[False]]


def test_rlbff_policy_does_not_see_the_principle(context):
    ctx = context()
    recipe = override(make_smallest(rlbff.build()), "collect.links.0.n", 4)
    found = steps(recipe, ctx, 2)
    for g in ctx.seen:
        name, words = g.task.meta["asked"], g.task.meta["principle"]
        assert (name, words) in PRINCIPLE_QUESTIONS and not any(words in m.content for m in g.task.prompt)
        for e in g.episodes:
            policy, verdict = e.rows
            heard = "".join(s.text for s in verdict.segments)
            assert words in heard and words not in "".join(s.text for s in policy.segments)
            assert verdict.segments[-1].text == label_verdict(g.task, e)
            assert verdict.segments[-1].policy == "reward" and defuse(e.text) in heard
            assert abs(e.total) <= 10 and e.total == e.reward.parts["entailment"]
    assert found[-1]["reward/nll"] < found[0]["reward/nll"]


def test_rlbff_rows_of_the_verdict_are_not_the_policys():
    row = rlbff.build().collect.links[4]
    assert isinstance(row, Also)
    spoken = Segment(ids=(5,), author="demonstration", policy="reward", trained=True)
    assert not Row(segments=(spoken,)).view("policy").trained_T.any()


@stage
class Yes:
    """Says a number for each principle; fails for one."""

    async def __call__(self, ctx, group):
        words = group.task.meta["principle"]
        return [
            Fault("chat-500") if words == "in form?" and "x" in e.text else Reward(total=len(words))
            for e in group.episodes
        ]


def test_rlbff_several_principles_are_averaged(context):
    good, bad = reward_of(Entailed(Yes()), None, "= 4", "x")
    assert good.total == pytest.approx(np.mean([len(w) for _, w in PRINCIPLE_QUESTIONS])) and good.parts["right"] == 6
    assert isinstance(bad, Fault)
    asked = [asyncio.run(Principled()(None, (0, i), group(name=f"t/{i}"))).task.meta["asked"] for i in range(200)]
    assert min(asked.count(n) for n, _ in PRINCIPLE_QUESTIONS) > 30
    same = {asyncio.run(Principled()(None, (0,), group(name=f"t/{i}"))).task.meta["asked"] for i in range(40)}
    assert same == {n for n, _ in PRINCIPLE_QUESTIONS}  # of one key, by task
    task = Task(id="a", meta={"asked": "right"})
    labels = ({"right": 0.5}, {"right": 0.51}, {"right": 1.0, "label/right": 0.0}, {"right": 0.0, "label/right": 1.0})
    assert [label_verdict(task, said("= 4", 1.0, **parts)) for parts in labels] == ["No", "Yes", "No", "Yes"]
    with pytest.raises(Fault, match="no label 'right'"):
        label_verdict(Task(id="a", meta={"asked": "right"}), said("= 4", 1.0))


def test_accuracy_of_ranking():
    score, label = np.array([3.0, 1.0, 2.0]), np.array([1.0, 0.0, 0.0])
    assert accuracy([(score, label)]) == 1 and accuracy([(-score, label)]) == 0
    assert accuracy([(np.zeros(3), label)]) == 0.5 and math.isnan(accuracy([(score, np.ones(3))]))


# ---- multilabel-grpo


def scored_by(ctx, reward, text, s):
    """What MultiLabel makes of the sigmoids `s`, through the heads of a model whose biases say just that."""
    ctx.models["reward"] = ctx.model("policy")
    for name, x in zip(QUALITY_LABELS, s, strict=True):
        ctx.model("reward").add_head(name)
        ctx.model("reward").heads[name].out.bias.data.fill_(math.log(x / (1 - x)) if x < 1 else 40.0)
    return reward_of(reward, ctx, text)[0]


def test_multilabel_aggregates_and_gates(context):
    ctx, s = context(), [0.9, 0.6, 0.3, 1.0]
    assert scored_by(ctx, multilabel_grpo.MultiLabel(), "= 4", s).total == pytest.approx(0.7, abs=1e-6)
    gated = multilabel_grpo.MultiLabel(gate="tidy", floor=0.5)
    assert scored_by(ctx, gated, "= 4", s).total == pytest.approx(0.7, abs=1e-6)
    assert scored_by(ctx, gated, "= 4", [0.9, 0.6, 0.3, 0.4]).total == 0
    weighed = multilabel_grpo.MultiLabel(weights=(1.0, 0.0, 0.0, 0.0))
    assert scored_by(ctx, weighed, "= 4", s).total == pytest.approx(0.9, abs=1e-6)
    empty = scored_by(ctx, multilabel_grpo.MultiLabel(), " ", s)
    assert empty.total == pytest.approx(1.3 / 4, abs=1e-6) and empty.parts["reward/right"] == 0
    ctx.model("reward").heads["brief"].out.bias.data.fill_(float("nan"))
    assert isinstance(reward_of(multilabel_grpo.MultiLabel(), ctx, "= 4")[0], Fault)


def test_multilabel_normalises_the_sum():
    rows = [{"reward": r} for r in (0.7, 0.5, 0.9, 0.5)]
    found = explain(multilabel_grpo.build(), [rows])["advantages"][0]
    assert found == pytest.approx([0.301511, -0.904534, 1.507557, -0.904534], abs=1e-4)
    assert explain(multilabel_grpo.build(), [rows[:1]])["advantages"][0] == [0.0]
    with pytest.raises(UserError, match="reward/right, which after_norm"):
        explain(multilabel_grpo.build(aggregate="after_norm"), [rows])


def test_multilabel_after_norm_is_not_ruled_by_the_widest_label():
    """Label a spreads ten times as far as b: the sum follows a, the normalised labels weigh the same and cancel."""
    made = [said(t, a + b, **{"reward/a": a, "reward/b": b}) for t, a, b in (("x", 1.0, 0.0), ("y", 0.0, 0.1))]
    signals = [[[{}], [{}]]]
    before, _ = multilabel_grpo.credit("before_norm")([group(*made)], signals, {})
    after, _ = Chain((multilabel_grpo.EachLabel(("a", "b")),))([group(*made)], signals, {})
    assert [e.columns["advantage"][-1] for e in before] == pytest.approx([1, -1], abs=1e-4)
    assert [e.columns["advantage"][-1] for e in after] == pytest.approx([0, 0], abs=1e-4)
    same = [said(t, 0.5, **{"reward/a": 0.5, "reward/b": 0.0}) for t in "xy"]
    flat, _ = Chain((multilabel_grpo.EachLabel(("a", "b")),))([group(*same)], signals, {})
    assert [e.columns["advantage"][-1] for e in flat] == [0, 0]


def test_multilabel_trains_on_every_label(context):
    ctx = context()
    found = steps(make_smallest(multilabel_grpo.build()), ctx, 2)
    assert {f"part/label/{k}" for k in QUALITY_LABELS} | {f"part/reward/{k}" for k in QUALITY_LABELS} <= set(found[-1])
    assert all(ctx.model("reward").heads[k].out.bias.abs() > 0 for k in QUALITY_LABELS)


# ---- encore

TWO = ((50, 50), (90, 10))


def test_encore_weights_of_the_catalogue():
    assert encore.entropies(TWO) == pytest.approx([0.693147, 0.325083], abs=1e-6)
    w = encore.entropy_weights(TWO)
    assert w == pytest.approx([0.454121, 0.545879], abs=1e-6) and w @ [0.2, 0.8] == pytest.approx(0.527527, abs=1e-6)
    assert encore.entropy_weights(TWO, tau=1e9) @ [0.2, 0.8] == pytest.approx(0.5, abs=1e-9)
    assert encore.entropy_weights(TWO, tau=0.01) @ [0.2, 0.8] == pytest.approx(0.8, abs=1e-9)
    assert encore.entropies(TWO, 2) == pytest.approx([1, 0.468996], abs=1e-6)
    two = encore.entropy_weights(TWO, base=2)
    assert two == pytest.approx([0.434012, 0.565988], abs=1e-6) and two @ [0.2, 0.8] == pytest.approx(
        0.539593, abs=1e-6
    )
    assert two == pytest.approx(encore.entropy_weights(TWO, tau=2 * math.log(2)))


def test_encore_guards():
    constant = (*TWO, (0, 100))
    assert encore.entropy_weights(constant) == pytest.approx([*encore.entropy_weights(TWO), 0])
    bare = encore.entropy_weights(constant, guard=False)
    assert bare.argmax() == 2 and bare.sum() == pytest.approx(1)
    with pytest.raises(UserError, match="every rule got the same rating"):
        encore.entropy_weights(((7, 0), (0, 3)))
    with pytest.raises(UserError, match="counted as"):
        encore.entropy_weights(((0, 0), (1, 1)))
    uneven = ((1, 1), (1, 1, 1, 1))  # both as even as can be
    assert encore.entropy_weights(uneven, normalise=True) == pytest.approx([0.5, 0.5])
    assert encore.entropy_weights(uneven)[0] > 0.5


def test_encore_recipe_weighs_the_heads():
    reward = encore.build(tau=1.0).collect.links[1].reward
    assert reward.weights == pytest.approx(encore.entropy_weights(encore.COUNTS, 1.0)) and sum(
        reward.weights
    ) == pytest.approx(1)


def test_encore_accuracy_by_hand():
    pairs = np.array([[[4, 0], [0, 4]], [[4, 4], [4, 4]]])
    assert (
        encore_claim.agreement(pairs, np.array([1.0, 0.0])) == 0.75
        and encore_claim.agreement(pairs, np.array([0.0, 1.0])) == 0.25
    )
    assert (encore_claim.fit_weights(pairs) * [1, -1] > 0).all()


def test_encore_constants_cancel_in_a_comparison():
    """Whatever weight a constant rule gets, the order of two responses stays; a guard matters for the scale only."""
    found = {}
    for guard in (True, False):
        program = encore_claim.Rules("encore", pairs=300, constant=True, guard=guard)
        found[guard] = asyncio.run(program.run(SimpleNamespace(seed=0))).metrics
    assert found[True] == found[False] and found[True]["correlation"] < -0.7


# ---- creative-writing


def test_creative_rating_of_people():
    assert creative_writing.rating((3, 2, 2, 3, 1)) == pytest.approx(2.35)
    assert sum(creative_writing.WEIGHTS) == pytest.approx(1)
    assert math.log(1 + math.exp(0.0)) == pytest.approx(0.693147, abs=1e-6)  # a pair without a margin


def test_creative_rule_lists_stay_short_and_whole():
    ten = tuple(f"rule {i}" for i in range(10))
    assert revise(ten, [*ten, "one more"]) == ten
    assert revise(ten, ["one more", *ten]) == ("one more", *ten[:9])
    assert revise(("a",), ["b", " b ", "c"]) == ("b", "c")
    for broken in ("text", [], None, ["b", 3], ["b", " "]):
        assert revise(("a",), broken) == ("a",)


def test_creative_loop_rewrites_the_list_of_the_beaten():
    """A writer whose flaw the judge does not know changes the judge's list, a caught one its own; labelled errors the judge's."""
    quiet = lambda reply, good, rules: "unused"
    merge = lambda rules, advice: [*rules, advice]
    rng = np.random.default_rng(0)
    fooled = Refine(
        lambda q, r, g: ("x", "flaw"),
        lambda t, r, g: RuleVerdict(good="flaw" not in r, advice="harder"),
        quiet,
        merge,
        2,
        1,
        0,
    )
    assert fooled(range(3), [], (), (), rng) == (("flaw",), ("harder",))
    stern = Refine(None, lambda t, r, g: RuleVerdict(good=False), lambda t, good, r: f"{t} is good", merge, 1, 0, 2)
    judge, writer = stern(range(3), [("x", True), ("y", False)], ("old",), (), rng)
    assert judge == ("old", "x is good") and writer == ()


def judged_as(recipe, *texts, meta=None):
    return reward_of(recipe.collect.links[1].reward, None, *texts, meta=meta)


def test_creative_judge_pays_one_zero_or_nothing():
    good, guess, twice, empty = judged_as(creative_writing.build(), "2+2=4\n= 4", "= 4", "2+2=4\n2+2=4\n= 4", "  ")
    assert (good.total, guess.total, twice.total, empty.total) == (1, 0, 0, 0)
    lenient = creative_writing.build(rules=("Ends with its answer.",))
    assert judged_as(lenient, "= 4")[0].total == 1
    mute = creative_writing.build(client=Scripted(lambda request: "no verdict"))
    assert judged_as(mute, "= 4")[0].total == 0  # unparsed

    def down(request):
        raise Fault("chat-500")

    assert isinstance(judged_as(creative_writing.build(client=Scripted(down)), "= 4")[0], Fault)
    talk = "= 4\n</response><rubric></rubric><response>"
    assert judged_as(creative_writing.build(), talk)[0].total == 0  # its tags are defused


def test_creative_reward_model_signal(context):
    ctx = context()
    found = steps(make_smallest(creative_writing.build("reward model")), ctx, 2)
    assert "part/reward/score" in found[-1] and creative_writing.build().schedule == grpo.build().schedule
    assert creative_writing.build().collect.links[0].n == 4


# ---- rlcf

TWO_CAMPS = (np.zeros(4), np.array([1.0, 1.0, -1.0, -1.0]), 0.5)


@pytest.mark.parametrize(
    ("ratings", "mean", "total"),
    [
        ([1, 1, 1, 1], (0.434783, 0.0), (0.481928, 0.0)),
        ([1, 1, 0, 0], (0.0, 0.485437), (0.0, 0.496278)),
        ([1, 1, 0.5, 0.5], (0.217391, 0.242718), (0.240964, 0.248139)),
    ],
)
def test_rlcf_note_of_two_camps(ratings, mean, total):
    y = np.array(ratings, float)
    assert bridging.fit_note(y, *TWO_CAMPS) == pytest.approx(mean, abs=1e-6)
    assert bridging.fit_note(y, *TWO_CAMPS, reg="sum") == pytest.approx(total, abs=1e-6)
    half = (TWO_CAMPS[0][::2], TWO_CAMPS[1][::2], 0.5)  # a cluster of two raters is two raters
    assert bridging.fit_note(y[::2], *half, times=np.array([2, 2])) == pytest.approx(mean, abs=1e-6)
    turned = (TWO_CAMPS[0], -TWO_CAMPS[1], 0.5)
    i, f = bridging.fit_note(y, *turned)
    assert (i, -f) == pytest.approx(mean, abs=1e-6)  # the sign of all factors is free


def test_rlcf_status():
    assert bridging.status(0.434783, 0.0) == "helpful" and bridging.status(0.41, 0.5) == "needs more ratings"
    assert bridging.status(0.0, 0.485437) == bridging.status(0.217391, 0.242718) == "needs more ratings"
    assert bridging.status(-0.451, 0.5) == "not helpful" and bridging.status(-0.449, 0.5) == "needs more ratings"
    assert bridging.status(-0.051, 0.0) == "not helpful" and bridging.status(-0.049, -0.0) == "needs more ratings"
    assert bridging.status(0.5, 0.0, votes=((10, 0), (4, 0))) == "helpful"
    assert bridging.status(0.5, 0.0, votes=((10, 0), (3, 0))) == "needs more ratings"
    assert bridging.status(0.5, 0.0, votes=((100, 0), (104, 100))) == "needs more ratings"  # a net ratio of 0.02
    assert bridging.status(0.1, 0.0, upper=-0.05) == "not helpful"
    assert bridging.status(0.395, 0.0, was="helpful") == "helpful" and bridging.status(0.395, 0.0) != "helpful"


def test_rlcf_fit_finds_what_camps_agree_on():
    """Notes: liked by all, by nobody, by one camp each. A rater who says the opposite of everyone is dropped."""
    rng = np.random.default_rng(0)
    kinds = np.repeat([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], 6, 0).T  # [camp, note]
    y = kinds[np.repeat([0, 1], 15)]
    y[0] = 1 - y[0]
    y[1, :20] = np.nan  # too few ratings
    found = bridging.fit_twice(y, rng)
    liked, hated, plus, minus = found.i_N.reshape(4, 6).mean(1)
    assert liked > max(plus, minus) > hated and abs(plus - minus) < 0.1 and found.error < 0.05
    f = found.f_N.reshape(4, 6).mean(1)
    assert f[2] * f[3] < 0 and abs(f[2]) > 3 * abs(f[0])
    assert np.isnan(found.i_U[:2]).all() and not np.isnan(found.i_U[2:]).any()
    with pytest.raises(UserError, match="no rater has 10 ratings"):
        bridging.fit_twice(np.ones((3, 4)), rng)


def test_rlcf_missing_ratings_are_not_zeros():
    rated = np.array([1.0, np.nan, 1.0, np.nan])
    i, f = bridging.fit_note(rated, *TWO_CAMPS)
    assert i == pytest.approx(0.434783, abs=1e-6) and f == pytest.approx(0)


def test_rlcf_reward(context):
    ctx = context()
    ctx.models["reward"] = ctx.model("policy")
    for name, bias in (("plus", 40.0), ("minus", 40.0)):
        ctx.model("reward").add_head(name)
        ctx.model("reward").heads[name].out.bias.data.fill_(bias)
    reward = bridging.Bridged()
    same, _, empty = reward_of(reward, ctx, "1+1=2\n= 4", "1+1=2\n= 4", " ")
    assert same.total == pytest.approx(0.5 / 1.15) and same.parts["novelty"] == pytest.approx(0)
    assert empty.total == 0 and reward_of(reward, ctx, "1+1=2\n= 4")[0].total == pytest.approx(0.5 / 1.15 + 0.1)
    ctx.model("reward").heads["minus"].out.bias.data.fill_(-40.0)
    assert reward_of(bridging.Bridged(new=0.0), ctx, "= 4")[0].total == pytest.approx(0, abs=1e-6)
    ctx.model("reward").heads["minus"].out.bias.data.fill_(float("nan"))
    assert isinstance(reward_of(reward, ctx, "= 4")[0], Fault)
    with pytest.raises(UserError, match="at least 5 ratings"):
        bridging.Bridged(sizes=(2, 2))
    with pytest.raises(UserError, match="as many"):
        bridging.Bridged(sizes=(9,))


def test_rlcf_ratings_train_the_predictor_only(context):
    ctx = context()
    found = steps(make_smallest(rlcf.build()), ctx, 2)
    assert {"part/rated/plus", "part/rated/minus", "part/intercept", "reward/squared_error"} <= set(found[-1])
    camps = asyncio.run(rlcf.Camps()(ctx, group(said("2+2=4\n= 4"))))[0]
    assert camps.parts["plus"] == pytest.approx((1 + 1 / 3) / 2) and camps.parts["minus"] == pytest.approx(
        (1 + 1 - 9 / 40) / 2
    )


# ---- salu


def test_salu_table():
    conf = math.sqrt(0.9 * 0.8)
    assert sequence_confidence(np.log([0.9, 0.8])) == pytest.approx(0.848528, abs=1e-6)
    assert salu.table(False, False, False, -1 - conf) == pytest.approx(-1.848528, abs=1e-6)
    assert salu.table(False, True, False, -1 - conf) == pytest.approx(-1.848528, abs=1e-6)  # right by luck is no answer
    assert salu.table(True, False, False, -1 - conf) == pytest.approx(-1.848528, abs=1e-6)
    assert (
        salu.table(True, True, False, -9),
        salu.table(True, False, True, -9),
        salu.table(False, False, True, -9),
    ) == (1, -0.5, 1)
    p, c = 0.473684, 0.85
    answer = p * salu.table(True, True, False, -1 - c) + (1 - p) * salu.table(True, False, False, -1 - c)
    assert answer == pytest.approx(salu.table(True, False, True, -1 - c), abs=1e-5)  # break-even
    assert 0.4 * salu.table(False, False, True, -9) + 0.6 * salu.table(True, False, True, -9) == pytest.approx(0.1)


def test_salu_abstentions():
    for text in ("I don't know.", " i DON\u2019T  know", '"I don\'t know!"', "= ?"):
        assert salu.is_abstention(text)
    for text in ("", "I don't know. = 4", "= 4", "= 4?", "I know", "2+2=4\n= ?"):
        assert not salu.is_abstention(text)


def test_salu_rewards_use_the_frozen_confidence(context):
    ctx = context("unanswerable")
    ctx.reference("ref", "policy")
    known, unknown = {"answerable": True}, {"answerable": False}
    right, wrong, empty, declined = reward_of(salu.Honest(), ctx, "= 4", "= 5", " ", "= ?", meta=known)
    assert right.total == 1 and declined.total == -0.5 and declined.parts["needlessly"] == 1
    assert wrong.total == pytest.approx(-1 - wrong.parts["confidence"]) and 0 < wrong.parts["confidence"] <= 1
    assert empty.total < -1 and empty.parts["abstained"] == 0
    made_up, declined = reward_of(salu.Honest(), ctx, "= 5", "= ?", meta=unknown, answer="?")
    assert declined.total == 1 and made_up.total == pytest.approx(wrong.total) and made_up.parts["hallucinated"] == 1
    with torch.no_grad():
        for p in ctx.model("policy").module.parameters():
            p.mul_(0.5)  # a policy that talks its confidence down pays the same
    assert reward_of(salu.Honest(), ctx, "= 5", meta=known)[0].total == pytest.approx(wrong.total, abs=1e-9)
    assert reward_of(salu.Honest(0.0, -2.0), ctx, "= 5", meta=known)[0].total == -2
    mute = Episode(rows=(Row(segments=(Segment(ids=(1,)),)),), status="finished")
    assert isinstance(asyncio.run(salu.Honest()(ctx, group(mute)))[0], Fault)


def test_sums_that_cannot_be_done():
    tasks = [Unanswerable().task("train", i) for i in range(200)]
    assert 0.3 < np.mean([not t.meta["answerable"] for t in tasks]) < 0.5
    for t in tasks:
        question = t.prompt[0].content
        assert ("?" in question) == (not t.meta["answerable"]) == (t.answer == "?")
        shown = Unanswerable().demonstration(t, None, "work")
        assert Unanswerable().check(shown, t) == 1 and salu.is_abstention(shown) == (not t.meta["answerable"])
    test = {Unanswerable().task("test", i).prompt[0].content for i in range(200)}
    assert not test & {t.prompt[0].content for t in tasks}
    assert 0.3 < np.mean(["?" in Unanswerable().task("test", i).prompt[0].content for i in range(200)]) < 0.5
    places = {t.prompt[0].content.find("?") for t in tasks}
    assert places == {-1, 0, 1, 3, 4}  # of 38+27
    assert np.mean(["?" in Unanswerable(share=0.9).task("train", i).prompt[0].content for i in range(50)]) > 0.75


# ---- mm-rlhf


def test_mm_rlhf_beta_of_the_margin():
    found = mm_rlhf.beta(torch.tensor([2.0, 0.0, 1e9, -1.0]))
    assert found.tolist() == pytest.approx([0.131606, 0.1, 0.15, 0.1], abs=1e-6)
    assert mm_rlhf.beta(torch.tensor([5.0]), base=1e-9).tolist() == pytest.approx([1e-3])


def pair_batch(margin, logp=(-1.0, -1.0)):
    rows = []
    for sign, ids in ((1.0, (0, 1)), (-1.0, (0, 2))):
        row = Row(segments=(Segment(ids=ids[:1]), Segment(ids=ids[1:], trained=True)))
        rows.append(
            Example(row=row, columns={"sign": sign, "margin": margin, "ref_logp": np.array([0.0, -1.0])}, unit="a")
        )
    batch = pack(rows, dtype=torch.float64)
    out = torch.tensor([[0.0, x] for x in logp], dtype=torch.float64).requires_grad_()
    return batch, {"logp": out}


def test_mm_rlhf_loss():
    batch, out = pair_batch(2.0, (-0.5, -1.5))  # a log-ratio difference of 1
    plain = lambda **k: float(mm_rlhf.DynamicDPO(sft=0.0, **k)(out, batch)[0].detach())
    assert plain() == pytest.approx(0.629508, abs=1e-6) and plain(w=0.0) == pytest.approx(0.644397, abs=1e-6)
    loss, metrics = mm_rlhf.DynamicDPO()(out, batch)
    assert float(loss.detach()) == pytest.approx(0.629508 + 0.25 * 0.5, abs=1e-6) and float(
        metrics["beta"]
    ) == pytest.approx(0.131606, abs=1e-6)
    negative, given = pair_batch(-1.0)
    assert float(mm_rlhf.DynamicDPO()(given, negative)[1]["d_negative"]) == 1
    s_w, s_l = 1.2, -0.4
    assert math.log1p(math.exp(s_l - s_w)) == pytest.approx(0.183901, abs=1e-6) and 0.01 * (
        s_w + s_l
    ) ** 2 == pytest.approx(0.0064)


@pytest.mark.parametrize("source", ["reward_model", "implicit"])
def test_mm_rlhf_gradient_is_that_of_a_constant_beta(source):
    batch, out = pair_batch(2.0, (-0.5, -1.5))
    loss, metrics = mm_rlhf.DynamicDPO(sft=0.0, source=source)(out, batch)
    (grad,) = torch.autograd.grad(loss, [out["logp"]])
    b = float(metrics["beta"])
    assert grad[:, 1].tolist() == pytest.approx([-b / (1 + math.exp(b)), b / (1 + math.exp(b))])
    assert grad[:, 0].tolist() == [0, 0]


def test_mm_rlhf_released_beta():
    m = torch.tensor([0.0, 0.1, -0.1, 0.05, 30.0], dtype=torch.float64)
    one = mm_rlhf.batch_beta(m)
    assert one == mm_rlhf.batch_beta(m) and float(one) == pytest.approx(
        0.1 * (1 + 0.1 * float(0.0125 - m.mean())), abs=1e-6
    )
    assert float(mm_rlhf.batch_beta(m * 1e3)) == 1e-3  # the floor
    assert float(mm_rlhf.batch_beta(torch.tensor([0.7]))) == pytest.approx(0.1)  # a batch of one


def test_mm_rlhf_pairs():
    made = [said(t, r, gold=y) for t, r, y in (("a", 3.0, 1.0), ("b", 1.0, 0.0), ("c", 2.0, 0.0), ("d", 9.0, 1.0))]
    signals = [[[{}]] * 5]
    raw, _ = mm_rlhf.RankedPairs(standardise=False)([group(*made, Episode(status="error:x"))], signals, {})
    pairs = {
        (a.row.segments[1].text, b.row.segments[1].text): a.columns["margin"]
        for a, b in zip(raw[::2], raw[1::2], strict=True)
    }
    assert pairs == {("a", "b"): 2.0, ("a", "c"): 1.0, ("d", "b"): 8.0, ("d", "c"): 7.0}
    even, _ = mm_rlhf.RankedPairs()([group(*made)], signals, {})
    assert np.std([e.columns["margin"] for e in even[::2]]) == pytest.approx(1)
    assert mm_rlhf.RankedPairs()([group(*made[:1]), group(*made[1:3])], signals * 2, {})[0] == []


def test_mm_rlhf_reward_model_reads_its_own_critique(context):
    ctx = context()
    recipe = override(make_smallest(mm_rlhf.build()), "collect.links.0.n", 4)
    found = steps(recipe, ctx, 2)
    e = ctx.seen[0].episodes[0]
    assert [s.author for s in e.rows[1].segments][-1] == "critique" and e.rows[1].segments[-1].text in (
        "right, worked", "right, guessed", "wrong, worked", "wrong, guessed",
    )  # fmt: skip
    assert not e.rows[1].view("policy").trained_T.any() and "reward/critique_nll" in found[-1] | found[0]
    assert ctx.engine("reward").sampled_tokens > 0 and e.reward.parts.keys() >= {"reward/score", "gold"}


def test_explain_says_what_it_misses():
    rows = [[{"reward": 1.0, "ref_logp": [-1.0] * 4}, {"reward": 0.0, "ref_logp": [-1.0] * 4}]]
    for module in (rlbff, multilabel_grpo, encore, creative_writing, rlcf, salu):
        first, second = explain(module.build(), rows)["advantages"][0]
        assert first > 0 > second
    with pytest.raises(UserError, match="no reward has the part 'gold'"):
        explain(mm_rlhf.build(), rows)
    bare = explain(salu.build(), [[{"reward": 1.0}, {"reward": 0.0}]])
    assert bare["token_weights"] is None and "'ref_logp'" in bare["notes"][0]
    with pytest.raises(UserError, match="value"):
        explain(reward_robust.build(), rows)


NAMES = ["reward_robust", "rlbff", "multilabel_grpo", "encore", "creative_writing", "rlcf", "salu", "mm_rlhf"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_arms_run(name, context, tmp_path):
    import importlib

    found = smoke_arms(importlib.import_module(f"palaestra.claims.rewards.{name}").EXPERIMENT, context, tmp_path)
    assert found
