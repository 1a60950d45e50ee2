"""Intrinsic rewards: the numbers of the papers, identities, and the stages against the model's own forward pass."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from palaestra.credit.gae import Gae
from palaestra.credit.links import chain
from palaestra.errors import Fault, UserError
from palaestra.models.load import load
from palaestra.models.score import logit_and_value, score_pairs
from palaestra.recipes.base import grpo
from palaestra.rewards.intrinsic import (
    AnswerProbability,
    Endogenous,
    InformationGain,
    Majority,
    answer_score,
    debias,
    endogenous_rewards,
    gains,
    last_turn_prompt,
    lines,
    majority_answer,
    reasoning_prefix,
    repeats,
    sequence_confidence,
    surprise_shares,
)
from palaestra.rollout.collect import Sample, Score, links
from palaestra.rollout.recorded import recorded_episode
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.tasks.oracle import episode_saying
from palaestra.types import Episode, Group, Row, Segment

# ---- endogenous reward


def catalogue_case():
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    return logits, torch.tensor([0, 1])


def test_endogenous_rewards_of_the_paper():
    logits, actions = catalogue_case()
    f, v = logit_and_value(logits, actions).T.numpy()
    assert v == pytest.approx([2.407606, 1.551445], abs=1e-6)
    r = endogenous_rewards(f, v)
    assert r == pytest.approx([0.448555, 1.0], abs=1e-6) and r.sum() == pytest.approx(1.448555, abs=1e-6)
    logp = torch.log_softmax(logits, -1).gather(1, actions[:, None]).sum().item()
    assert logp == pytest.approx(-0.959051, abs=1e-6) and r.sum() == pytest.approx(logp + v[0])


def test_a_shift_of_a_states_logits_moves_reward_between_its_neighbours():
    logits, actions = catalogue_case()
    before = endogenous_rewards(*logit_and_value(logits, actions).T.numpy())
    logits[1] += 5
    after = endogenous_rewards(*logit_and_value(logits, actions).T.numpy())
    assert after - before == pytest.approx([-5, 5]) and after.sum() == pytest.approx(before.sum())
    assert endogenous_rewards(np.zeros(0), np.zeros(0)).tolist() == []
    with pytest.raises(UserError, match="alpha"):
        endogenous_rewards(np.zeros(1), np.zeros(1), 0.0)


def attempts(ctx, *texts):
    task = ctx.bench.tasks.task("train", 0)
    return Group(
        task=task,
        episodes=tuple(replace(recorded_episode(ctx, "policy", task.prompt, t, 0.0), reward=None) for t in texts),
    )


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_the_stage_is_the_identity_of_the_paper(context, alpha):
    """Sum = alpha log pi + V(s_1), with pi at temperature alpha; events stand at the tokens and add up to the total."""
    ctx = context()
    ctx.reference("ref", "policy")
    group = attempts(ctx, "1+1=2\n= 2", "= 3")
    rewards = asyncio.run(Endogenous(alpha=alpha)(ctx, group))
    starts = []
    for e, r in zip(group.episodes, rewards, strict=True):
        prompt, said = e.rows[0].segments[:-1], e.rows[0].segments[-1]
        context_ids = [i for s in prompt for i in s.ids]
        tempered = lambda x, t: torch.log_softmax(x / alpha, -1).gather(1, t[:, None])
        logp = alpha * score_pairs(ctx.model("ref"), [(context_ids, said.ids)], tempered)[0].sum()
        starts.append(r.total - logp)
        assert sum(ev.value for ev in r.events) == pytest.approx(r.total)
        assert [ev.token for ev in r.events] == list(range(len(context_ids), len(context_ids) + len(said.ids)))
    assert starts[0] == pytest.approx(
        starts[1], abs=1e-4
    )  # V(s_1): one constant a prompt, so the group ranks as log pi does
    per_token = asyncio.run(Endogenous(alpha=alpha, per_token=True)(ctx, group))
    assert [p.total * len(r.events) for p, r in zip(per_token, rewards, strict=True)] == pytest.approx(
        [r.total for r in rewards]
    )


def test_an_episode_without_tokens_is_a_fault(context):
    ctx = context()
    ctx.reference("ref", "policy")
    found = asyncio.run(
        Endogenous()(ctx, Group(task=ctx.bench.tasks.task("train", 0), episodes=(episode_saying("= 4"), Episode())))
    )
    assert all(isinstance(f, Fault) for f in found)


def test_token_rewards_reach_gae(context):
    ctx = context()
    ctx.reference("ref", "policy")
    group = attempts(ctx, "= 3")
    group = asyncio.run(Score(reward=Endogenous())(ctx, (), group))
    (e,) = group.episodes
    zero = [[[{"policy_value": np.zeros(len(r.view().ids_T))} for r in e.rows]]]
    (example,), _ = chain(Gae(gamma=1.0, lam=1.0))([group], zero, {})
    returns = example.columns["return"][np.flatnonzero(e.rows[0].view().trained_T)]
    assert returns[0] == pytest.approx(e.total) and returns[-1] == pytest.approx(e.reward.events[-1].value)


# ---- RLPR


def test_answer_scores_of_the_paper():
    logp = np.log([0.9, 0.8, 0.1])
    assert answer_score(logp) == pytest.approx(0.6) and answer_score(logp, "product") == pytest.approx(0.072)
    assert answer_score(logp, "geometric") == pytest.approx(0.416017, abs=1e-6) and answer_score(np.zeros(0)) == 0
    synonym = np.log([0.9, 0.8, 0.001])
    assert answer_score(synonym) == pytest.approx(0.567) and answer_score(synonym, "geometric") == pytest.approx(
        0.089628, abs=1e-6
    )
    assert debias(0.6, 0.35) == pytest.approx(0.25) and debias(0.6, 0.7) == 0


@given(st.lists(st.floats(-30, 0), max_size=20), st.floats(0, 1))
def test_answer_scores_are_probabilities(logp, base):
    for how in ("mean", "product", "geometric"):
        x = answer_score(np.array(logp), how)
        assert 0 <= x <= 1 and 0 <= debias(x, base) <= x


def test_repetition():
    assert repeats("a " * 19) and not repeats("a " * 18)  # ten windows of ten words
    assert not repeats(" ".join(map(str, range(500)))) and not repeats("")


def test_reward_by_the_probability_of_the_reference(context):
    ctx = context()
    ctx.reference("ref", "policy")
    task = ctx.bench.tasks.task("train", 0)
    work = "\n".join(ctx.bench.tasks.steps(task))
    group = attempts(ctx, f"{work}\n= {task.answer}", f"{work}\n= nothing", "no answer")
    right, wrong, none = asyncio.run(AnswerProbability(baseline="ref")(ctx, group))
    assert right.total == pytest.approx(wrong.total, abs=1e-6)  # what the policy answered itself does not count
    assert right.parts["answer"] > 0.9 and none.parts["answer"] == 0 and none.total == 0
    assert right.total == pytest.approx(right.parts["answer"] - right.parts["base"], abs=1e-6)
    form = AnswerProbability(baseline="ref", format=lambda text: float("= " in text))
    found = asyncio.run(form(ctx, group))
    assert found[0].total == pytest.approx(0.9 * right.total + 0.1) and found[2].total == 0
    assert reasoning_prefix("a\n= 3\n= ") == "a\n= 3\n= " and reasoning_prefix("a = 3") is None


def test_only_the_last_turns_forced_start_is_no_prompt():
    def part(author, turn, *ids):
        return Segment(ids=ids, author=author, turn=turn, logp=(-1.0,) * len(ids) if author == "policy" else None)

    talk = (
        *(part("user", 0, 1, 2), part("forced", 0, 3), part("policy", 0, 4, 5)),
        *(part("tool", 1, 6), part("forced", 1, 7), part("policy", 1, 8)),
    )
    assert last_turn_prompt(Episode(rows=(Row(segments=talk),))) == (1, 2, 3, 4, 5, 6)


# ---- information gain


def test_gains_of_the_paper():
    assert gains([0.1, 0.4, 0.5]) == pytest.approx([0.3, 0.1])
    assert surprise_shares(np.array([-1.0, -3.0])) * 0.716 == pytest.approx([0.179, 0.537])
    assert surprise_shares(np.zeros(2)).tolist() == [0.5, 0.5]
    assert sequence_confidence(np.log([0.9, 0.8])) == pytest.approx(0.848528, abs=1e-6)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9), st.data())
def test_more_steps_earn_nothing(j, data):
    cut = data.draw(st.integers(1, len(j) - 1))
    assert gains(j).sum() == pytest.approx(j[-1] - j[0]) == pytest.approx(gains([j[0], j[cut], j[-1]]).sum())


def test_the_gain_of_each_step_stands_at_its_end(context):
    ctx = context()
    task = ctx.bench.tasks.task("train", 0)
    steps = ctx.bench.tasks.steps(task)
    text = "".join(f"{line}\n" for line in steps)
    group = attempts(ctx, text + f"= {task.answer}", "")
    (found, empty) = asyncio.run(InformationGain(weight=1.0, outcome=False)(ctx, group))
    assert len(found.events) == len(steps) + 1 and empty.total == 0
    decode, (row,) = ctx.decode, group.episodes[0].rows
    for event, end in zip(found.events, np.cumsum([len(line) + 1 for line in steps]), strict=False):
        assert decode(row.context()[: event.token + 1]).endswith(text[:end])
    spell, said = ctx.engine("policy").dialect.encode_text, row.segments[-1].ids
    prompt = row.context()[: -len(said)]

    def j(start):
        return np.exp(
            score_pairs(ctx.model("policy"), [((*prompt, *spell(start + "= ")), spell(task.answer))])[0]
        ).mean()

    assert found.total == pytest.approx(j(text + f"= {task.answer}") - j(""), abs=1e-5)
    coarse = InformationGain(weight=1.0, outcome=False, steps=lambda t: [t])
    assert asyncio.run(coarse(ctx, group))[0].total == pytest.approx(found.total, abs=1e-5)
    assert found.events[len(steps) - 1].value > 0.3  # the last line of the working says the answer
    paid = asyncio.run(InformationGain()(ctx, group))
    assert paid[0].total == pytest.approx(1 + 0.8 * found.total, abs=1e-5) and lines("a\nb") == ["a\n", "b"]


# ---- consensus


def test_majorities_of_the_catalogue():
    assert majority_answer(["F"] * 6 + ["I"] * 2) == ("F", 0.75)
    assert majority_answer(["F"] * 4 + ["I"] * 4) == (None, 0.5)
    assert majority_answer(["F"] * 5 + ["I"] + [None] * 2) == ("F", 5 / 8)
    assert majority_answer([None]) == (None, 0.0)


def test_agreement_is_paid():
    group = Group(task=None, episodes=tuple(episode_saying(t) for t in ("= 3", "= 3", "= 4", "what")))
    found = asyncio.run(Majority()(None, group))
    assert [r.total for r in found] == [1, 1, 0, 0] and found[0].parts == {"consensus": 0.5, "unread": 0.0}
    tie = asyncio.run(Majority()(None, replace(group, episodes=group.episodes[1:3])))
    assert [r.total for r in tie] == [0, 0]


# ---- in a run


@pytest.mark.parametrize(
    "reward",
    [Endogenous(), AnswerProbability(baseline="ref"), InformationGain(), Majority()],
    ids=lambda r: type(r).__name__,
)
def test_one_step_of_a_run(context, small, reward):
    recipe = replace(
        small(grpo.build()), collect=links(Sample(n=4), Score(reward=reward, shadow=True)), references={"ref": "policy"}
    )
    ctx = context()
    prepare(recipe, ctx)
    _, metrics = asyncio.run(step(recipe, ctx, start(0)))
    assert metrics["errors"] == 0 and np.isfinite(metrics["reward"]) and "part/gold" in metrics


def test_scores_are_those_of_the_training_pass():
    from palaestra.models.forward import forward
    from palaestra.models.score import _batch

    model = load("tiny")
    pairs = [((256, 60, 61), (62, 63)), ((256, 70), (71, 72, 73, 74))]
    with torch.no_grad():
        out = forward(model, _batch(pairs), ("logp",))["logp"]
    found = score_pairs(model, pairs)
    for b, (c, t) in enumerate(pairs):
        assert np.allclose(out[b, len(c) : len(c) + len(t)].numpy(), found[b], atol=1e-5)
    assert len(score_pairs(model, [((1,), ())])[0]) == 0
    with pytest.raises(ValueError, match="no token"):
        score_pairs(model, [((), (1,))])
