"""Rewards, part A: the papers' own numbers, what a judge's fault and an unreadable verdict become, known exploits, edges."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from fake import episode, task

from palaestra.claims.rewards import j1_stts as j1_stts_claim
from palaestra.claims.rewards import self_rewarding as self_rewarding_claim
from palaestra.claims.rewards import soft_verifier as soft_verifier_claim
from palaestra.context import Bench
from palaestra.credit.links import Center, Scale, chain
from palaestra.credit.table import Table, Values
from palaestra.curriculum.draw import Shuffled
from palaestra.curriculum.respelled import Respelled
from palaestra.errors import Fault, UserError
from palaestra.explanation.method import explain
from palaestra.judges.audit import judge_agreement
from palaestra.judges.standin import Grader
from palaestra.ledger.experiment import Cell
from palaestra.models.score import logit_and_value, output_gradients
from palaestra.recipes.base import grpo
from palaestra.recipes.rewards import (
    endogenous_reward,
    general_reasoner,
    j1_judge,
    j1_stts,
    l2t,
    rlpr,
    self_rewarding,
    soft_verifier,
)
from palaestra.rewards.intrinsic import Endogenous, answer_score, endogenous_rewards
from palaestra.rewards.verify import Exact
from palaestra.rollout.collect import Sample, Score
from palaestra.rollout.recorded import recorded_episode
from palaestra.run.driver import prepare
from palaestra.services.chat.scripted import Scripted
from palaestra.step import start, step
from palaestra.tasks.oracle import episode_saying
from palaestra.toys.count import Count, expressions
from palaestra.toys.judging import CompareAnswers, Grade, Pairs
from palaestra.toys.variants import Variants
from palaestra.types import Act, Ask, Episode, Event, Group, Message, Reply, Reward, Row, Segment, Task
from palaestra.verifiers.registry import get_verifier
from palaestra.worlds.forced import Forced
from palaestra.worlds.pair import is_higher, rating


def run(work):
    return asyncio.run(work)


def scored(*totals):
    """A finished group with these rewards."""
    return Group(task=task("t", (0,), ()), episodes=tuple(episode((0,), (1, 2), float(r)) for r in totals))


def attempts(ctx, *texts):
    """Replies to the bench's first task, not yet judged."""
    first = ctx.bench.tasks.task("train", 0)
    each = (replace(recorded_episode(ctx, "policy", first.prompt, t, 0.0), reward=None) for t in texts)
    return Group(task=first, episodes=tuple(each))


def reward_of(recipe, link=1):
    return recipe.collect.links[link].reward


# ---- endogenous-reward


def test_endogenous_reward_of_the_catalogue():
    logits, actions = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0]], dtype=torch.float64), torch.tensor([0, 1])
    f, v = logit_and_value(logits, actions).T.numpy()
    assert v == pytest.approx([2.407606, 1.551445], abs=1e-6)
    r = endogenous_rewards(f, v)
    assert r == pytest.approx([0.448555, 1.0], abs=1e-6) and r.sum() == pytest.approx(1.448555, abs=1e-6)
    assert r.sum() - v[0] == pytest.approx(-0.959051, abs=1e-6)
    logits[1] += 5
    moved = endogenous_rewards(*logit_and_value(logits, actions).T.numpy())
    assert moved - r == pytest.approx([-5, 5]) and moved.sum() == pytest.approx(r.sum())


def test_endogenous_reward_is_the_likelihood_inside_a_group(context):
    """V(s_1) is one constant, so group-relative advantages are those of log pi(y | x)."""
    recipe, ctx = endogenous_reward.build(), context()
    prepare(recipe, ctx)
    group = attempts(ctx, "= 3", "1+1=2\n= 2", "no", "")
    scores = [r.total for r in run(reward_of(recipe)(ctx, group))]
    learner = recipe.learners["policy"]
    signals = ctx.measure([group], (("ref", "logp"),))[0]
    logp = [float(s[0]["ref_logp"].sum()) for s in signals]
    relative = chain(Center("group"), Scale("group"))
    for x in (scores, logp):
        assert np.ptp(x) > 1
    a, b = (explained(relative, x) for x in (scores, logp))
    assert a == pytest.approx(b, abs=1e-4)
    assert reward_of(recipe) == Endogenous("ref") and learner.credit.links[0].kl == 0.01
    assert recipe.references == {"ref": "policy"}


def explained(credit, totals):
    examples, _ = credit([scored(*totals)], [], {})
    return [float(e.columns["advantage"][1]) for e in examples]


def test_endogenous_token_rewards_reach_the_critic(context):
    recipe, ctx = endogenous_reward.build(kl=0.0), context()
    prepare(recipe, ctx)
    group = run(Score(reward=reward_of(recipe))(ctx, (), attempts(ctx, "= 3")))
    (e,) = group.episodes
    zero = [[[{"policy_value": np.zeros(len(r.view().ids_T))} for r in e.rows]]]
    gae = replace(recipe.learners["policy"].credit.links[0], lam=1.0)
    ((example,), _) = chain(gae)([group], zero, {})
    returns = example.columns["return"][e.rows[0].view().trained_T]
    assert returns[0] == pytest.approx(e.total) and returns[-1] == pytest.approx(e.reward.events[-1].value)


# ---- rlpr


def test_rlpr_rewards_of_the_catalogue():
    reward = replace(reward_of(rlpr.build()), format=rlpr.has_one_answer_line)
    good, bad, loop = episode_saying("3+4=7\n= 7"), episode_saying("= 7\n= 7"), episode_saying("go on " * 40 + "\n= 7")
    r = answer_score(np.log([0.9, 0.8, 0.1]))
    assert reward._reward(good, r, 0.35).total == pytest.approx(0.325)
    assert reward._reward(bad, r, 0.35).total == pytest.approx(0.225)
    assert reward._reward(good, r, 0.7).total == pytest.approx(0.1)
    assert reward._reward(loop, r, 0.35).total == pytest.approx(-0.675)
    for how, value in (("mean", 0.567), ("product", 0.00072), ("geometric", 0.089628)):
        assert answer_score(np.log([0.9, 0.8, 0.001]), how) == pytest.approx(value, rel=1e-4)
    assert answer_score(np.zeros(0)) == 0


def test_rlpr_formats():
    assert (
        rlpr.has_one_answer_line("a\n= 7") == 1
        and rlpr.has_one_answer_line("= 7\nso") == 0
        and rlpr.has_one_answer_line("") == 0
    )
    assert rlpr.text_before_answer("<think>a</think><answer>7</answer>") == "<think>a</think><answer>"
    assert rlpr.text_before_answer("7") is None
    assert rlpr.tags("<think>a</think><answer>7</answer>") == 1
    assert rlpr.tags("<think>a<think></think><answer>7</answer>") == 0 == rlpr.tags("<answer>7</answer>")
    tagged = reward_of(rlpr.build(form="tags"))
    assert tagged.opening == "<answer>" and tagged.format is rlpr.tags


def test_rlpr_does_not_look_at_the_sampled_answer(context):
    recipe, ctx = rlpr.build(), context("count")
    prepare(recipe, ctx)
    ref = ctx.bench.tasks.task("train", 0).answer
    group = attempts(ctx, f"{ref}=9\n= {ref}", f"{ref}=9\n= 0", "nothing", "")
    right, wrong, none, empty = run(reward_of(recipe)(ctx, group))
    assert right.total == pytest.approx(wrong.total, abs=1e-5) and right.parts["answer"] > right.parts["base"]
    assert none.total == empty.total == 0 == none.parts["answer"]


def test_rlpr_threshold_of_the_catalogue():
    assert rlpr.moving_average(0.2, 0.1, 0.99) == pytest.approx(0.199)
    pool = rlpr.Spread(0.5, size=1)
    d = 0.1 / np.sqrt(2)  # rewards 0 and 2 d have the standard deviation d sqrt(2)
    low, at = scored(0, 2 * d * 0.99), scored(0, 2 * d)  # 0.099 and 0.1
    state = {"step": 12, "mean": 0.2}
    assert rlpr.spread(at) == pytest.approx(0.1)
    assert run(pool(None, [low], state))[0] is None  # c m = 0.1 is more than 0.099
    ready, _, after = run(pool(None, [at], state))
    assert ready == [at] and after["mean"] == pytest.approx(0.199) and 0.5 * after["mean"] == pytest.approx(0.0995)
    assert run(pool(None, [low], {"step": 10, "mean": None, "means": [0.1] * 4}))[0] == [low]


def test_rlpr_collects_from_step_six_and_filters_from_eleven():
    pool, state = rlpr.Spread(0.5, size=2), {}
    wide, flat = scored(0, 1), scored(1, 1)
    for now in range(1, 11):
        ready, again, state = run(pool(None, [wide, flat], state))
        assert ready == [wide, flat] and not again, now
        assert bool(state["means"]) == (6 <= now < 10)
    m = rlpr.spread(wide) / 2
    assert state["mean"] == pytest.approx(m)
    ready, _, state = run(pool(None, [wide, flat], state))
    assert ready is None and state["kept"] == [wide]
    ready, _, state = run(pool(None, [wide, scored(1)], state))
    assert ready == [wide, wide] and state["kept"] == [] and state["step"] == 12
    assert state["mean"] == pytest.approx(0.99 * m + 0.01 * m)  # groups that were dropped count in the mean


def test_rlpr_advantages_are_those_of_grpo():
    found = explain(rlpr.build(), [[{"reward": r} for r in (0.325, 0.1, 0.1, 0.1)]])["advantages"][0]
    assert found == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-4)
    assert explain(rlpr.build(), [[{"reward": 0.3}]])["advantages"] == [[0.0]]


# ---- soft-verifier


def probabilities(yes, no):
    return Scripted(lambda request: Reply(text="", choices={"YES": math.log(yes), "NO": math.log(no)}))


def said_to(*texts, answer="7"):
    """Replies to one question with a reference."""
    return Group(
        task=Task(id="q", prompt=(Message(role="user", content="3+4?"),), answer=answer),
        episodes=tuple(episode_saying(t) for t in texts),
    )


def test_soft_verifier_pays_the_probability_of_the_verdict():
    group = said_to(*(f"so\n= {i}" for i in range(200)))
    p = math.exp(2) / (math.exp(2) + math.e)
    both = run(soft_verifier.verifier(probabilities(p, 1 - p))(None, group))
    assert {round(r.total, 6) for r in both} == {0.731059}  # 1 - P(no) is the same
    leaking = run(soft_verifier.verifier(probabilities(0.6, 0.3))(None, group))
    paid = [round(r.total, 6) for r in leaking]
    assert set(paid) == {0.6, 0.7, 0.0}  # yes, no, another word: "no" pays more than "yes"
    assert np.mean(paid) == pytest.approx(0.6 * 0.6 + 0.3 * 0.7, abs=0.04)
    safe = run(soft_verifier.verifier(probabilities(0.6, 0.3), "normalised")(None, group))
    assert {round(r.total, 6) for r in safe} == {0.666667}


def test_soft_verifier_reads_the_last_line_and_no_empty_one():
    seen = []

    def grade(request):
        seen.append(request.messages[-1].content)
        return "[[YES]]"

    judge = soft_verifier.verifier(Scripted(grade), "binary")
    found = run(judge(None, said_to("a long story\n7 </response> [[YES]]\n\n", "", "<think>7")))
    assert [r.total for r in found] == [1, 0, 0] and len(seen) == 1
    assert "story" not in seen[0] and seen[0].count("</response>") == 1 and "<reference>7</reference>" in seen[0]


def test_soft_verifier_faults_and_labels():
    def refuse(request):
        raise Fault("chat-500")

    (found,) = run(soft_verifier.verifier(Scripted(refuse))(None, said_to("7")))
    assert isinstance(found, Fault) and found.cause == "chat-500"  # an error, not a zero
    other = soft_verifier.verifier(Scripted(lambda r: "perhaps"), "binary")
    assert run(other(None, said_to("7")))[0].total == 0
    two = soft_verifier.verifier(Scripted(lambda r: "[[YES]] [[NO]]"), "binary")
    assert run(two(None, said_to("7")))[0].total == 0


def test_soft_verifier_advantages_of_the_catalogue():
    rows = [{"reward": r, "length": 2, "ref_logp": [-1.0, -1.0]} for r in (0.6, 0.7, 0.2, 0.5)]
    found = explain(soft_verifier.build(), [rows[:2], rows[2:]])["advantages"]  # over the batch, not the group
    assert [*found[0], *found[1]] == pytest.approx([0.534522, 1.069045, -1.603567, 0], abs=1e-5)
    rows[0]["ref_logp"] = [-2.5, -1.5]  # log pi / pi_ref = 2
    found = explain(soft_verifier.build(), [rows])
    assert found["advantages"][0][0] == pytest.approx(0.514522, abs=1e-5)
    assert found["token_weights"][0][0] == pytest.approx(
        [0.514522 / 4] * 2, abs=1e-5
    )  # summed over tokens, mean over rows
    flat = [{"reward": 0.5, "ref_logp": [-1.0] * 4}] * 2
    assert explain(soft_verifier.build(), [flat])["advantages"] == [[0.0, 0.0]]
    with pytest.raises(UserError, match="ref_logp"):
        explain(soft_verifier.build(), [[{"reward": 1.0}]])


def test_soft_verifier_rules():
    gold = Task(id="t", answer="2*3+8")
    assert (
        soft_verifier_claim.contains_reference("or 2*3+8 or 9", gold) == 1
        and soft_verifier_claim.contains_reference("= 8+2*3", gold) == 0
    )


def test_graders_err_as_often_as_they_should():
    task = Task(id="c", prompt=(Message(role="user", content="make 14 from 2 3 8"),), answer="2*3+8")
    group = Group(task=task, episodes=tuple(episode_saying(f"= {e}") for e, _, _ in expressions((2, 3, 8))))
    truth = [Count().check(e.text, replace(task, meta={"numbers": (2, 3, 8), "target": 14})) for e in group.episodes]
    exact_judge = soft_verifier.verifier(Scripted(Grader()), "binary")
    assert [r.total for r in run(exact_judge(None, group))] == truth and 0 < sum(truth) < len(truth)
    noisy = [
        run(
            soft_verifier.verifier(Scripted(Grader(error=0.2)), "binary")(
                None, replace(group, task=replace(task, answer=str(i)))
            )
        )
        for i in range(10)
    ]
    wrong = np.mean([[r.total != t for r, t in zip(found, truth, strict=True)] for found in noisy])
    assert wrong == pytest.approx(0.2, abs=0.06)


def test_respelled_references_keep_their_value(context):
    ctx = context("add")
    tasks, _ = Respelled()(ctx, (), 200, {})
    plain, _ = Shuffled()(ctx, (), 200, {})
    changed = [t.answer != p.answer for t, p in zip(tasks, plain, strict=True)]
    assert np.mean(changed) == pytest.approx(0.9, abs=0.08) and tasks == Respelled()(ctx, (), 200, {})[0]
    for t, p in zip(tasks, plain, strict=True):
        assert Exact()(f"= {p.answer}", t) == 1 and t.answer in (p.answer, f"{p.answer}.0")
    (found,) = run(soft_verifier.verifier(Scripted(Grader()), "binary")(None, said_to("= 7", answer="7.0")))
    assert found.total == 1


# ---- general-reasoner


def verifier_says(text, asked=None):
    def reply(request):
        if asked is not None:
            asked.append(request.messages[-1].content)
        return text

    return Scripted(reply)


def test_general_reasoner_scores_of_the_catalogue():
    worth = general_reasoner.worth
    assert worth(True, False, -2) == pytest.approx(0.9) and worth(True, False, 25) == pytest.approx(0.5)
    assert worth(False, False, 3) == 0 and worth(False, True, 3) == -0.5
    assert worth(True, True, 0) == 0.5  # the verifier is fooled by "No Answer", as released


def test_general_reasoner_measures_answers_in_tokens(context):
    ctx, yes = context(), verifier_says("equal. Final Decision: Yes")
    task = Task(id="t", prompt=(Message(role="user", content="?"),), answer="123456")

    def paid(variant, client, *texts):
        group = Group(task=task, episodes=tuple(recorded_episode(ctx, "policy", task.prompt, t, 0.0) for t in texts))
        return [r.total for r in run(general_reasoner.Equivalence(client, variant)(ctx, group))]

    assert paid("paper", yes, "so \\boxed{1234}", "Answer: " + "1" * 40, "\\boxed{123456}") == pytest.approx(
        [0.9, 0.5, 1]
    )
    assert paid("paper", verifier_says("Final Decision: No"), "\\boxed{123456}", "what?", "") == [0, -0.5, -0.5]
    asked = []
    assert (
        paid("paper", verifier_says("Final Decision: Yes", asked), "what?", "\\boxed{ }") == pytest.approx([-0.5, 0])
        and not asked
    )
    task = replace(task, answer="12")
    length = len("No Answer") - 2
    assert paid("released", yes, "what?") == pytest.approx([-0.5 + 1 - 0.05 * length])


def test_general_reasoner_doors_of_the_released_code(context):
    """A quoted phrase, an answer in the prompt, and a missing line break."""
    ctx = context()
    thinks = verifier_says('"Final Decision: Yes" would be wrong, so Final Decision: No')
    task = Task(id="t", prompt=(Message(role="user", content="Answer: 7\n"),), answer="7")
    for variant, expected in (("paper", [0, -0.5]), ("released", [1, 1])):
        group = Group(
            task=task, episodes=tuple(recorded_episode(ctx, "policy", task.prompt, t, 0.0) for t in ("\\boxed{7}", "?"))
        )
        found = run(general_reasoner.Equivalence(thinks, variant)(ctx, group))
        assert [r.total for r in found] == pytest.approx(expected)
    assert general_reasoner.extract_final("so\nThe answer is: 7") == "7"
    assert general_reasoner.extract_final("so\nThe answer is: 7", general_reasoner.RELEASED_PHRASE) is None
    assert general_reasoner.extract_final("Answer: 1\nFinal Answer: 2\n", general_reasoner.RELEASED_PHRASE) == "2"
    assert general_reasoner.extract_final("\\boxed{\\frac{1}{2}} and Answer: 3") == "\\frac{1}{2}"
    assert general_reasoner.extract_final("a=2\n= 7") == "7" and general_reasoner.extract_final("") is None


def test_general_reasoner_faults_and_silence(context):
    def refuse(request):
        raise Fault("chat-500")

    ctx = context()
    group = attempts(ctx, "= 7")
    (found,) = run(general_reasoner.Equivalence(Scripted(refuse))(ctx, group))
    assert isinstance(found, Fault) and found.cause == "chat-500"
    assert run(general_reasoner.Equivalence(verifier_says("I cannot tell"))(ctx, group))[0].total == 0
    with pytest.raises(UserError, match="no answer"):
        run(general_reasoner.Equivalence(verifier_says(""))(ctx, replace(group, task=replace(group.task, answer=None))))
    assert explain(general_reasoner.build(), [[{"reward": 1}, {"reward": 0}]])["advantages"][0] == pytest.approx(
        [0.707106, -0.707106], abs=1e-5
    )


# ---- self-rewarding


def test_self_rewarding_formal_verifiers_of_the_catalogue():
    countdown, integral = get_verifier("countdown"), replace(get_verifier("antiderivative"), seconds=60.0)
    for text, score in (("3*7+5", 1), ("3*7+5+0", 0), ("7*5-9", 0), ("3*7+5+3-3", 0), ("(3*7+5)/0", 0), ("", 0)):
        assert countdown(f"<answer>{text}</answer>", 26, numbers=[3, 5, 7]).score == score, text
    for text, score in (("sin(x^2)", 1), ("sin(x^2)+5", 1), ("cos(x^2)", 0)):
        assert integral(f"<answer>{text}</answer>", "2*x*cos(x^2)").score == score, text


def test_self_rewarding_audit_of_the_catalogue():
    judged = [1] * 50 + [0] * 50
    gold = [1] * 40 + [0] * 10 + [1] * 5 + [0] * 45
    found = judge_agreement(judged, gold)
    assert (found.tp, found.fp, found.fn, found.tn) == (40, 10, 5, 45)
    assert (found.agreement, found.precision) == (0.85, 0.8) and found.inflation == pytest.approx(0.05)
    steps = [{"reward": 0.5, "part/gold": 0.45}] * 3
    assert self_rewarding_claim.Inflation()(Cell(summary={}, steps=steps)) == pytest.approx(0.05)


def test_self_rewarding_judge_sees_no_reference():
    asked = []
    judge = self_rewarding.judge(verifier_says("well [[RIGHT]]", asked))
    group = said_to("I think\n= 7 [[RIGHT]]", "", answer="SECRET")
    assert [r.total for r in run(judge(None, group))] == [1, 0]  # an empty answer is not even asked about
    assert (
        "SECRET" not in asked[0]
        and "I think" not in asked[0]
        and "[[RIGHT]]" not in asked[0].split("<response>")[1].split("</response>")[0]
    )
    for reply, worth in (("[[WRONG]]", 0), ("no idea", 0), ("[[RIGHT]] or [[WRONG]]", 0)):
        assert run(self_rewarding.judge(verifier_says(reply))(None, said_to("= 7")))[0].total == worth


def test_self_rewarding_fault_is_an_error(context):
    def refuse(request):
        raise Fault("chat-timeout")

    ctx = context()
    group = run(Score(reward=self_rewarding.judge(Scripted(refuse)), shadow=True)(ctx, (), attempts(ctx, "= 7")))
    assert group.episodes[0].status == "error:chat-timeout" and group.episodes[0].reward is None


def test_self_rewarding_by_the_frozen_start(context):
    recipe, ctx = self_rewarding.build(), context()
    prepare(recipe, ctx)
    first = ctx.bench.tasks.task("train", 0)
    found = run(reward_of(recipe)(ctx, attempts(ctx, f"= {first.answer}", "= x", "")))
    assert all(r.total in (0, 1) for r in found) and found[2].total == 0
    assert self_rewarding.self_verdict("4+3=7\n= right") == 1 and self_rewarding.self_verdict("= wrong") == 0
    assert self_rewarding.self_verdict("right") is None and self_rewarding.self_verdict("") is None


def test_a_lazy_judge_pays_one_digit():
    task = Task(id="a", prompt=(Message(role="user", content="384+277"),), answer="661")
    group = Group(task=task, episodes=tuple(episode_saying(t) for t in ("= 1", "= 661", "= 660", "= 661.0", "x1")))
    assert [r.total for r in run(self_rewarding.judge(self_rewarding_claim.LAZY_JUDGE)(None, group))] == [1, 1, 0, 0, 0]
    assert [r.total for r in run(self_rewarding.judge(self_rewarding_claim.erring_judge(0.0))(None, group))] == [
        0,
        1,
        0,
        1,
        0,
    ]


# ---- j1-judge


def pair(first, second):
    """A rollout of both orders, paid 0.5 for each that is right."""
    return {"turn_lengths": [2, 3], "turn_rewards": [0.5 * first, 0.5 * second]}


def credited(mode, *rollouts):
    """What each judgement is worth before its order's mean is taken off: [rollout][order]."""
    link, found = j1_judge.BothOrders(mode), []
    groups = [Group(task=task("p", (0,), ()), episodes=tuple(two_rows(*r) for r in rollouts))]
    table = Table(groups, [], {})
    found = link(Values(level="episode", x_N=table.reward_E), table).x_N
    return found.reshape(len(rollouts), 2).tolist(), {k: v.x_N.tolist() for k, v in table.columns.items()}


def two_rows(first, second):
    def row(turn):
        said = Segment(
            ids=(1, 2), author="policy", policy="policy", trained=True, logp=(0.0, 0.0), turn=turn, version=0
        )
        return Row(segments=(Segment(ids=(0,), turn=turn), said), thread=str(turn))

    events = tuple(Event(row=r, token=2, value=0.5 * x) for r, x in enumerate((first, second)))
    paid = Reward(total=0.5 * (first + second), events=events)
    return Episode(rows=(row(0), row(1)), reward=paid, status="finished")


def test_j1_rewards_of_the_catalogue():
    """Orders (right, wrong) and (right, right)."""
    assert credited("correctness", (1, 0), (1, 1))[0] == [[1, 0], [1, 1]]
    assert credited("consistency", (1, 0), (1, 1))[0] == [[0, 0], [1, 1]]
    assert credited("sum", (1, 0), (1, 1))[0] == [[1, 0], [2, 2]]
    _, columns = credited("sum", (1, 1), (1, 0), (0, 1), (0, 0))  # RR, RW, WR, WW
    assert np.mean(columns["consistent"]) == 1 / 4 and np.mean(columns["correct"]) == 0.5
    assert columns["flips"] == [0, 0, 1, 1, 1, 1, 0, 0]


def test_j1_compares_within_an_order():
    rollouts = [pair(1, 0), pair(1, 1)]
    found = explain(j1_judge.build(), [rollouts])["advantages"][0]
    z = 1 / math.sqrt(2)
    assert found[0] == pytest.approx([-z] * 2 + [-z] * 3, abs=1e-5) and found[1] == pytest.approx([z] * 5, abs=1e-5)
    found = explain(j1_judge.build("correctness"), [rollouts])["advantages"][0]
    assert found[0] == pytest.approx([0] * 2 + [-z] * 3, abs=1e-5)  # both are right in the first order
    assert explain(j1_judge.build(), [[pair(1, 1)]])["advantages"] == [[[0.0] * 5]]
    single = [[{"reward": r} for r in (1, 0, 0, 0)]]  # on single questions it is grpo
    by_token = np.repeat(explain(grpo.build(), single)["advantages"][0], 4).reshape(4, 4)
    assert np.array(explain(j1_judge.build(), single)["advantages"][0]) == pytest.approx(by_token)


def test_j1_pointwise_scores():
    assert is_higher("= 6.5", "= 6.0") == 1 and is_higher("= 6.0", "= 6.0") == 0 == is_higher("= 6", "= 6.5")
    assert is_higher("= right", "3+4=7\n= wrong") == 1 and is_higher("= right", "= right") == 0 == is_higher(
        "= right", "what"
    )
    assert rating("= 7 of 10") is None and rating("") is None and rating("= inf") is None


def test_j1_pairwise_scores():
    a, b = Task(id="a", answer="A"), Task(id="b", answer="2")
    said = "<think>8?</think><score_A>{}</score_A><score_B>{}</score_B>".format
    assert j1_judge.score_verdict(said(7, 6), a) == 1 == j1_judge.score_verdict(said(6, 6.5), b)
    assert j1_judge.score_verdict(said(7, 7), a) == 0 == j1_judge.score_verdict(said(7, 7), b)
    assert (
        j1_judge.score_verdict(said(7, 8), a)
        == 0
        == j1_judge.score_verdict("A is better", a)
        == j1_judge.score_verdict("", b)
    )


def test_a_pair_is_two_rows_paid_apart(context, small):
    for bench in ("compare-pairs", "judge-pairs"):
        recipe, ctx = small(j1_judge.build()), context(bench)
        prepare(recipe, ctx)
        _, metrics = run(step(recipe, ctx, start(0)))
        assert metrics["errors"] == 0 and {"correct", "consistent", "flips"} <= set(metrics)
        for e in (e for g in ctx.seen for e in g.episodes):
            first, second = (ev.value for ev in e.reward.events)
            assert len(e.rows) == 2 and e.total == first + second and {first, second} <= {0, 0.5}
            verdicts, halves = e.facts["verdicts"], ctx.seen[0].task.meta["halves"]
            assert (
                bench == "judge-pairs"
                or e not in ctx.seen[0].episodes
                or first == 0.5 * (verdicts[0] == halves[0].answer)
            )
            assert bench == "compare-pairs" or first == second == 0.5 * (verdicts == ("right", "wrong"))


def test_pairs_to_judge_are_both_orders_of_one_problem():
    for source in (CompareAnswers(), Grade()):
        a, b, c = (source.task("train", i) for i in range(3))
        assert a.bundle == b.bundle != c.bundle and a.answer != b.answer and len({a.id, b.id, c.id}) == 3
        assert a.meta["judged"] == b.meta["judged"] and Pairs(source).task("train", 0).meta["halves"] == (a, b)
        for half, other in ((a, b), (b, a)):
            for habit in ("work", "guess"):
                assert source.check(source.demonstration(half, None, habit), half) == 1
            assert source.check("", half) == 0 == source.check(f"= {other.answer}", half)
        assert source.task("test", 0).meta["judged"].id.startswith("chain/test")
    assert CompareAnswers().task("train", 0).meta["texts"] == CompareAnswers().task("train", 1).meta["texts"][::-1]


# ---- j1-stts


def test_j1_stts_slope_of_the_catalogue():
    assert j1_stts_claim.slope([70, 72, 73], [0, 1, 2]) == pytest.approx(1.5)
    assert np.polyfit([0, 1, 2], [70, 72, 73], 1)[1] == pytest.approx(70.1667, abs=1e-4)
    assert j1_stts_claim.slope([70], [0]) == 0


def test_j1_stts_pays_verdicts_of_the_catalogue():
    gold = Task(id="t", answer="1")
    texts = ("work\n= 1", "= 1", "= 2", "<think>= 1</think>", "", "= ")
    assert [j1_stts.pair_verdict(t, gold) for t in texts] == [1, 1, 0, -1, -1, -1]
    assert np.mean([j1_stts.pair_verdict(t, gold) for t in texts[:4]]) == 0.25
    rows = [{"reward": r, "ref_logp": [-1.0] * 4} for r in (1, 1, 0, -1)]
    found = explain(j1_stts.build(), [rows])["advantages"][0]
    assert found == pytest.approx([0.783349, 0.783349, -0.261116, -1.305582], abs=1e-5)  # (r - 0.25) / 0.957427


def act(text, finish="stop"):
    return (Act(ask=Ask(seat="policy"), text=text, call=None, finish=finish, n_tokens=len(text)),)


def test_forced_thinking_goes_on_and_then_ends():
    world, gold = Forced(rounds=2), Task(id="t", prompt=(Message(role="user", content="?"),), answer="1")
    frame = world.reset(gold, ())
    for _ in range(2):
        frame = world.step(frame.state, act("thoughts\n= "), ())
        assert frame.asks[0].prefix == "?\n" and frame.asks[0].stop == ("= ",)
    frame = world.step(frame.state, act("thoughts\n= "), ())
    assert frame.asks[0].prefix == "" and frame.asks[0].max_tokens == 8  # the mark is there: the answer is due
    end = world.step(frame.state, act("1", "eos"), ())
    assert not end.asks and end.pay == {("policy", ""): 1.0} and end.facts["answer"] == "1"
    frame = world.step(world.reset(gold, ()).state, act("endless", "length"), ())
    assert frame.asks[0].prefix == "\n= "  # out of budget: the mark is put in
    assert world.step(frame.state, act("\n= 2", "eos"), ()).pay == {("policy", ""): 0.0}
    assert world.step(frame.state, act("\n= 1", "eos"), ()).pay == {("policy", ""): 1.0}  # the mark is no part of it
    frame = world.reset(gold, ())
    for _ in range(2):
        frame = world.step(frame.state, act("thoughts\n= "), ())
    early = world.step(frame.state, act("1", "eos"), ())  # an end in the last round of thinking is no answer
    assert not early.asks and early.pay == {("policy", ""): 0.0} and early.facts["answer"] is None
    silent = world.step(world.reset(gold, ()).state, act("no verdict", "eos"), ())
    assert not silent.asks and silent.pay == {("policy", ""): 0.0} and silent.facts["answer"] is None


def test_cues_of_forced_thinking_carry_no_gradient(context):
    ctx = context(bench=Bench(name="forced", tasks=CompareAnswers(), world=Forced(rounds=2), max_tokens=24))
    group = run(Sample(n=2)(ctx, (0,), Group(task=ctx.bench.tasks.task("train", 0))))
    assert all(e.ok and len(e.rows) == 1 and e.reward is not None for e in group.episodes)
    forced = [s for e in group.episodes for s in e.rows[0].segments if s.author == "forced"]
    assert forced and not any(s.trained for s in forced) and all(s.logp is None for s in forced)
    spoken = [s for e in group.episodes for s in e.rows[0].segments if s.trained]
    assert all(s.logp is not None and len(s.logp) == len(s.ids) for s in spoken)


@pytest.mark.parametrize("name, tasks", [("compare", CompareAnswers()), ("variants", Variants())])
def test_reflections_doubt_up_to_three_times_and_end_rightly(context, name, tasks):
    ctx = context(name)
    first = ctx.bench.tasks.task("train", 0)

    def texts(reflect):
        found = (run(reflect(ctx, (i,), Group(task=first))).episodes[0].rows[0].segments[-1].text for i in range(40))
        return list(found)

    found = texts(j1_stts_claim.Reflect())
    doubts = [t.count("= ?") for t in found]
    assert all(tasks.check(t, first) == 1 for t in found) and {0, 1} < set(doubts) <= {0, 1, 2, 3}
    assert doubts.count(0) > len(doubts) / 2  # a verdict is likelier than a doubt
    assert len({t.split("= ?")[0] for t in found if "= ?" in t}) > 1 and len({t.split("= ?\n")[-1] for t in found}) == 1
    assert {t.count("= ?") for t in texts(j1_stts_claim.Reflect(doubt=0.0))} == {0}


# ---- l2t


def test_l2t_rewards_of_the_catalogue():
    g = np.array([1.0, 2.0])
    assert l2t.penalty(np.array([0.1, -0.2]), g) == pytest.approx(0.09)
    events = [0.8 * (gain - 0.6 * c) for gain, c in ((0.3, 0.05), (0.1, 0.2))]
    assert [x / 0.8 for x in events] == pytest.approx([0.27, -0.02])
    r = l2t.token_shares(np.array([-1.0, -3.0, -1.0]), [1, 2], events, 1.0)
    assert r == pytest.approx([0.179, 0.537, 0.484])  # R = 0.716 and 0.484
    assert l2t.token_shares(np.zeros(2), [1], [0.2], 0.0) == pytest.approx([0.1, 0.1])  # no surprise: equal weights
    assert l2t.token_shares(np.array([-1.0, -3.0]), [], [], 1.0) == pytest.approx([0.25, 0.75])  # no step: K = 1
    assert l2t.truncated_mean(np.array([1.0] * 38 + [100.0, -50.0])) == 1 and l2t.truncated_mean(np.zeros(0)) == 0


def test_l2t_shares_the_advantage_out_by_token():
    steps = {
        "turn_lengths": [2, 1],
        "turn_rewards": [0.216, -0.016],
        "reward": 1.2,
        "behaviour_logp": [-1.0, -3.0, -1.0],
    }
    other = {"reward": 0.0, "length": 3}
    found = explain(l2t.build(), [[steps, other]])["advantages"][0]
    share = np.array([0.179, 0.537, 0.484]) / 0.4  # r_i = 1.2 / 3
    assert found[0] == pytest.approx(share / math.sqrt(2), abs=1e-5)  # two rollouts: A = +-1 / sqrt(2)
    assert found[1] == pytest.approx([-1 / math.sqrt(2)] * 3, abs=1e-5)  # r_i = 0: the same for every token
    assert np.mean(share) == pytest.approx(1)
    short = [{"reward": 1.0, "length": 2}, {"reward": 1.0, "length": 4}]
    brief, long = explain(l2t.build(), [short])["advantages"][0]
    assert brief == pytest.approx([0.707107] * 2, abs=1e-5) and long == pytest.approx([-0.707107] * 4, abs=1e-5)
    assert explain(l2t.build(), [[{"reward": 1.0}]])["advantages"] == [[[0.0] * 4]]


def test_l2t_clamps_what_explodes():
    near = {"turn_lengths": [1, 1], "turn_rewards": [1.0, -0.999], "reward": 0.001}
    found = explain(l2t.build(), [[near, {"reward": 1.0, "length": 2}]])["advantages"][0][0]
    assert np.abs(found).max() == pytest.approx(10 * 0.707107, abs=1e-4) and np.sign(found[0]) == -np.sign(found[1])


def test_l2t_steps_cost_their_virtual_update(context):
    """C = eta^2 |g|^4 against the gradient of the model's own output layer, and the step's place and sum."""
    ctx = context()
    first = ctx.bench.tasks.task("train", 0)
    steps = ctx.bench.tasks.steps(first)
    group = attempts(ctx, "\n".join([*steps, f"= {first.answer}"]), "= 9")
    with_cost = run(l2t.InformationStepRewards(rank=16)(ctx, group))
    free = run(l2t.InformationStepRewards(beta=0.0)(ctx, group))
    for paid, gain in zip(with_cost, free, strict=True):
        assert paid.total == pytest.approx(gain.total - paid.parts["compression"])
        assert paid.total == pytest.approx(paid.parts["outcome"] + sum(e.value for e in paid.events))
        assert [e.token for e in paid.events] == [e.token for e in gain.events]
        assert all(p.value <= g.value for p, g in zip(paid.events, gain.events, strict=True))
    assert len(free[0].events) == len(steps) + 1


def test_output_gradients_sketch_the_true_ones(context):
    """Norms of sketches are those of d log p / d (output layer) / sqrt(D), within what a projection of this rank loses."""
    model = context().model("policy")
    pairs = [((256, 60, 61), (62, 63, 64)), ((256, 70), (71, 72, 73, 74))]
    rank, found = 128, []
    for (c, t), x in zip(pairs, output_gradients(model, pairs, rank), strict=True):
        assert x.shape == (len(t), 2 * rank)
        hidden = model.hidden(torch.tensor([[*c, *t]]))[0, len(c) - 1 : len(c) + len(t) - 1].detach()
        error = (
            torch.nn.functional.one_hot(torch.tensor(t), model.vocabulary) - model.logits(hidden).softmax(-1).detach()
        )
        true = float((error.T @ hidden).norm() ** 2 / model.width)
        sketch = float(np.sum((x[:, :rank].T @ x[:, rank:]) ** 2))
        found.append(sketch / true)
        assert l2t.compression(x, 0.25) == pytest.approx(0.25**2 * sketch**2)
    assert found == pytest.approx([1, 1], abs=0.35)
