"""CAPO: votes of critiques, advantages by hand, and what a bad step costs."""

import palaestra
import pytest
from palaestra.credit.steps import wrong_steps
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.recipes.objectives import capo
from palaestra.rewards.critic import ModelCritic, Oracle
from palaestra.services.chat.local import LocalModel
from palaestra.settings.overrides import build

CRITIQUES = [{1, 3}, {1, 2, 3}, {1, 3}, {2, 3}]


def test_votes_reference_values():
    assert wrong_steps(CRITIQUES, "union") == {1, 2, 3}
    assert wrong_steps(CRITIQUES, "intersection") == {3}
    assert wrong_steps(CRITIQUES, "majority") == {1, 3}
    assert wrong_steps(CRITIQUES, "half") == {1, 2, 3}
    assert wrong_steps([[0], [1], [0]], "half") == wrong_steps([[0], [1], [0]], "majority") == {0}
    assert (
        wrong_steps([], "union")
        == wrong_steps([], "intersection")
        == wrong_steps([[], []], "majority")
        == wrong_steps([], "half")
        == set()
    )


def test_capo_reference_values():
    """R = [2, 2, 1, 1] and [0, -1, -1]: mean .571429, std 1.178030 over all seven tokens."""
    one = {"reward": 1, "turn_rewards": [0, 1], "turn_lengths": [2, 2], "critiques": [[1]] * 4}
    two = {"reward": 0, "turn_rewards": [0, 0], "turn_lengths": [1, 2], "critiques": [[1]] * 4}
    found = explain(capo.build(), [[one, two]])["advantages"][0]
    assert found[0] == pytest.approx([1.212678, 1.212678, 0.363803, 0.363803], abs=2e-6)
    assert found[1] == pytest.approx([-0.485071, -1.333946, -1.333946], abs=2e-6)
    clean = [{"reward": 0, "length": 2, "critiques": []}] * 2
    assert explain(capo.build(), [clean])["advantages"] == [[[0.0] * 2, [0.0] * 2]]
    with pytest.raises(UserError, match="critiques"):
        explain(capo.build(), [[{"reward": 1}]])


def test_a_right_answer_with_a_bad_step_beats_a_clean_wrong_one():
    """C > P; with C < P it is the other way round."""
    group = [{"reward": 1, "length": 2, "critiques": [[0]]}, {"reward": 0, "length": 2, "critiques": [[]]}]
    good, bad = explain(capo.build(), [group])["advantages"][0]
    assert good > bad
    good, bad = explain(capo.build(right=1.0, wrong=2.0), [group])["advantages"][0]
    assert good < bad


def test_the_critic_is_a_model_that_the_user_names(tmp_path):
    """Without one a run on a user's file says how to give it; on the embedded problem its own checker judges."""
    assert capo.build().collect.links[2].critic == ModelCritic(LocalModel(), max_tokens=None)
    assert capo.embedded().collect.links[2].critic == Oracle()
    assert build("capo", {"critic": "policy"}, embedded=True) == capo.build(LocalModel())
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f'{{"prompt": "{i}+1", "answer": "{i + 1}"}}\n' for i in range(12)))
    with pytest.raises(UserError, match=r"capo needs a critic, which reads an answer .*: critic=endpoint"):
        palaestra.train("capo", data=str(rows), out=tmp_path / "run", quiet=True)
