"""Soft verifier: the verdict's probability as reward, faults, graders that err."""

import math
from dataclasses import replace

import numpy as np
import pytest
from palaestra.claims.rewards import soft_verifier as soft_verifier_claim
from palaestra.curriculum.pool import Shuffled
from palaestra.curriculum.respelled import Respelled
from palaestra.errors import Fault, UserError
from palaestra.explanation.method import explain
from palaestra.judges.standin import Grader
from palaestra.recipes.rewards import soft_verifier
from palaestra.rewards.verify import Exact
from palaestra.services.chat.scripted import Scripted
from palaestra.settings import overrides
from palaestra.tasks.oracle import episode_saying
from palaestra.toys.count import Count, expressions
from palaestra.types import Group, Message, Reply, Task

from tests.recipes.rewards.helpers import reward_of, run, said_to


def probabilities(yes, no):
    return Scripted(lambda request: Reply(text="", choices={"YES": math.log(yes), "NO": math.log(no)}))


def test_soft_verifier_pays_the_probability_of_the_verdict():
    group = said_to(*(f"so\n= {i}" for i in range(200)))
    p = math.exp(2) / (math.exp(2) + math.e)
    both = run(soft_verifier.grader(probabilities(p, 1 - p))(None, group))
    assert {round(r.total, 6) for r in both} == {0.731059}  # 1 - P(no) is the same
    leaking = run(soft_verifier.grader(probabilities(0.6, 0.3))(None, group))
    paid = [round(r.total, 6) for r in leaking]
    assert set(paid) == {0.6, 0.7, 0.0}  # yes, no, another word: "no" pays more than "yes"
    assert np.mean(paid) == pytest.approx(0.6 * 0.6 + 0.3 * 0.7, abs=0.04)
    safe = run(soft_verifier.grader(probabilities(0.6, 0.3), "normalised")(None, group))
    assert {round(r.total, 6) for r in safe} == {0.666667}


def test_soft_verifier_reads_the_last_line_and_no_empty_one():
    seen = []

    def grade(request):
        seen.append(request.messages[-1].content)
        return "[[YES]]"

    judge = soft_verifier.grader(Scripted(grade), "binary")
    found = run(judge(None, said_to("a long story\n7 </response> [[YES]]\n\n", "", "<think>7")))
    assert [r.total for r in found] == [1, 0, 0] and len(seen) == 1
    assert "story" not in seen[0] and seen[0].count("</response>") == 1 and "<reference>7</reference>" in seen[0]


def test_soft_verifier_faults_and_labels():
    def refuse(request):
        raise Fault("chat-500")

    (found,) = run(soft_verifier.grader(Scripted(refuse))(None, said_to("7")))
    assert isinstance(found, Fault) and found.cause == "chat-500"  # an error, not a zero
    other = soft_verifier.grader(Scripted(lambda r: "perhaps"), "binary")
    assert run(other(None, said_to("7")))[0].total == 0
    two = soft_verifier.grader(Scripted(lambda r: "[[YES]] [[NO]]"), "binary")
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
    exact_judge = soft_verifier.grader(Scripted(Grader()), "binary")
    assert [r.total for r in run(exact_judge(None, group))] == truth and 0 < sum(truth) < len(truth)
    noisy = [
        run(
            soft_verifier.grader(Scripted(Grader(error=0.2)), "binary")(
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
    (found,) = run(soft_verifier.grader(Scripted(Grader()), "binary")(None, said_to("= 7", answer="7.0")))
    assert found.total == 1


def test_a_users_verifier_is_asked_on_the_embedded_problem_too():
    """`embedded` takes no verifier, and said so as a mistake of the user."""
    given = {"verifier": "endpoint('http://127.0.0.1:1/v1', 'm')"}
    recipe = overrides.build("soft-verifier", given, embedded=True)
    assert reward_of(recipe).client.url == "http://127.0.0.1:1/v1"
    assert overrides.build("soft-verifier", {"beta": 0.0}, embedded=True) == soft_verifier.embedded(beta=0.0)
