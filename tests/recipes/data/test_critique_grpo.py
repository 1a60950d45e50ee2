"""Critique-GRPO: the catalogue's values, which answers are refined and which refinement joins."""

import math
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.claims.data.critique_grpo import EXPERIMENT
from palaestra.recipes.data import critique_grpo
from palaestra.values import flatten

from tests.objective.helpers import token_batch, token_gradient
from tests.recipes.data.guided import Pays, bare_ids, collected, credited, prompt_seen, steps_of, trained


def paid(context, bare, guided, **options):
    """Without a kind an answer hears only that it is wrong, which asks no critic."""
    options = {"kind": "verdict", **options}
    ctx = context("chain")
    ctx = ctx.with_bench(replace(ctx.bench, reward=Pays("refined", bare=bare, guided=guided)))
    return ctx, collected(ctx, critique_grpo.build(**options))


def test_advantages_of_the_catalogue(context):
    """One of seven is right, and the refinement: .75 for both, -.25 for the failures; refinements that were not chosen
    count in no mean."""
    _, group = paid(context, [1, *[0] * 6], [0, 0, 1, 1, 0, 0])
    assert len(group.episodes) == 13 and len(trained(group)) == 8
    assert credited(critique_grpo.build(), [group]) == pytest.approx([0.75, *[-0.25] * 6, 0.75])
    _, group = paid(context, [0] * 7, [0] * 7)
    assert credited(critique_grpo.build(), [group]) == [0] * 8


def test_the_first_right_refinement_joins_else_the_first(context):
    for guided, place in (([0, 0, 1, 1, 0, 0, 0], 2), ([0] * 7, 0), ([1] * 7, 0)):
        _, group = paid(context, [0] * 7, guided)
        refined = [e for e in group.episodes if e.facts.get("refined")]
        assert [not e.muted for e in refined].index(True) == place and sum(not e.muted for e in refined) == 1


def test_right_answers_are_not_refined(context):
    _, group = paid(context, [1] * 7, [])
    assert len(group.episodes) == len(trained(group)) == 7
    assert credited(critique_grpo.build(), [group]) == [0] * 7


@pytest.mark.parametrize("kind", ["verdict", "answer"])
def test_every_wrong_answer_has_a_refinement_of_its_own(context, kind):
    ctx, group = paid(context, [0, 1, *[0] * 5], [0, 1, 0, 0, 0, 0], kind=kind)
    wrong = [e for i, e in enumerate(group.episodes[:7]) if i != 1]
    refined = group.episodes[7:]
    said = {"verdict": "wrong, try again", "answer": f"wrong, it is {group.task.answer}", "critique": "is wrong, try"}
    for before, after in zip(wrong, refined, strict=True):
        seen = prompt_seen(ctx, after)
        assert before.text.strip() in seen and said[kind] in seen
        own = after.rows[0].segments[-1].ids
        assert tuple(after.rows[0].view().ids_T) == (*bare_ids(ctx, group.task), *own)


def lost(request):
    """A critic that fails."""
    raise pl.Fault("timeout", "no reply")


@pytest.mark.parametrize(("critic", "refinements"), [(lambda r: "carry the one", 6), (lambda r: " ", 0), (lost, 0)])
def test_a_model_says_in_words_what_is_wrong(context, critic, refinements):
    """It sees question, answer and attempt of each wrong answer; without its words nothing is refined."""
    asked = []

    def listen(request):
        asked.append(request.messages[-1].text)
        return critic(request)

    ctx, group = paid(context, [0, 1, *[0] * 5], [0] * refinements, kind="critique", critic=pl.Scripted(listen))
    wrong = [e for i, e in enumerate(group.episodes[:7]) if i != 1]
    assert len(asked) == 6 and len(group.episodes) == 7 + refinements
    for text, e in zip(sorted(asked), sorted(wrong, key=lambda e: e.text.strip()), strict=True):
        assert group.task.prompt[-1].content in text and str(group.task.answer) in text and e.text.strip() in text
    for before, after in zip(wrong, group.episodes[7:], strict=False):
        seen = prompt_seen(ctx, after)
        assert before.text.strip() in seen and "carry the one" in seen
        own = after.rows[0].segments[-1].ids
        assert tuple(after.rows[0].view().ids_T) == (*bare_ids(ctx, group.task), *own)


def test_the_critic_is_the_policy_unless_another_is_named():
    """On the embedded problem, whose model cannot write critiques, none is asked unless one is named."""
    other = pl.LocalModel("critic")
    client = lambda recipe: [x.critic for x in recipe.collect.links if hasattr(x, "critic")]
    assert client(critique_grpo.build()) == [pl.LocalModel()]
    assert client(critique_grpo.build(critic=other)) == client(critique_grpo.embedded(critic=other)) == [other]
    assert not client(critique_grpo.embedded()) and not client(critique_grpo.build("answer"))


def loss_of(p, A, marked, behaviour=0.0, **options):
    batch = token_batch([A], behaviour, **{"is:refined": [np.array([0.0, float(marked)])]})
    built = critique_grpo.build(entropy=0.0, length=1, **options)
    loss, grads, _ = token_gradient(built.learners["policy"].objective, batch, logp=[math.log(p)])
    return loss, *grads["logp"]


@pytest.mark.parametrize(("p", "shaped", "weight"), [(0.05, 0.333333, 0.222222), (0.3, 0.75, 0.1875)])
def test_tokens_of_a_refinement(p, shaped, weight):
    """The catalogue's, and a wrong one is pushed down; the ratio to the critique's prompt is not read."""
    assert loss_of(p, 1.0, 1, behaviour=float("nan")) == pytest.approx((-shaped, -weight), abs=1e-6)
    assert loss_of(p, -0.25, 1)[1] == pytest.approx(0.25 * weight, abs=1e-6)


def test_own_tokens_have_no_clip():
    behaviour = math.log(0.1)
    assert loss_of(0.15, 1.0, 0, behaviour) == pytest.approx((-1.5, -1.5))
    assert loss_of(0.15, 1.0, 0, behaviour, clip=True) == pytest.approx((-1.2, 0.0))
    of_refinements = [arm for arm, built in EXPERIMENT.arms.items() if "saturating" in flatten(built).values()]
    assert set(EXPERIMENT.arms) - set(of_refinements) == {"grpo", "not learned"}


def test_settings_of_the_released_code():
    found = flatten(critique_grpo.build())
    ends = {
        "collect.links.0.n": 7,
        "objective.constant": 0.1,
        ".reduce": "constant",
        "2.weight": 0.001,
        "minibatches": 2,
    }
    for end, value in ends.items():
        values = {v for k, v in found.items() if k.endswith(end)}
        assert value in values, (end, values)
    assert not any(k.endswith((".low", ".ddof")) for k in found)  # no clip and no division by a deviation


@pytest.mark.parametrize("arm", EXPERIMENT.arms)
def test_steps_of_every_arm(arm, context):
    seen = steps_of(EXPERIMENT.arms[arm], context("chain"))
    assert all(m["skipped"] == 0 and math.isfinite(m["loss"]) for m in seen)


def test_placebos_of_a_critique(context):
    """Another line, or nothing, of an answer that is wrong; nothing is asked of a right one."""
    ctx, group = paid(context, [0] * 7, [0] * 7)
    wrong, right = group.episodes[0], replace(group.episodes[0], reward=pl.Reward(total=1.0, solved=True))
    rng = np.random.default_rng(0)

    def shown(arm, episode):
        rewrite = EXPERIMENT.arms[arm].collect.links[2].link.rewrite
        return rewrite(ctx, replace(group, episodes=(episode,)), rng)

    assert all(shown(arm, right) is None for arm in ("asked again", "any line", "think instead"))
    assert shown("asked again", wrong) == group.task
    assert shown("think instead", wrong).prompt[0].content == "think step by step"
    said = {shown("any line", wrong).prompt[-1].content for _ in range(30)}
    assert len(said) > 3 and shown("critique", wrong).prompt[-1].content.endswith("is wrong, try again")
    assert not EXPERIMENT.lacks()
