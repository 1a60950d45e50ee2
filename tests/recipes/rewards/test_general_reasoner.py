"""General-Reasoner: scores by length, doors of the released code, faults and silence."""

from dataclasses import replace

import pytest
from palaestra.errors import Fault, UserError
from palaestra.explanation.method import explain
from palaestra.recipes.rewards import general_reasoner
from palaestra.rollout.recorded import recorded_episode
from palaestra.services.chat.scripted import Scripted
from palaestra.types import Group, Message, Task

from tests.recipes.rewards.helpers import attempts, run, verifier_says


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
