"""`explain`: hand-computed advantages and token weights, and what it says where it cannot give them."""

import json

import pytest
from palaestra.cli.main import main
from palaestra.credit.gae import Gae
from palaestra.credit.links import Center, Shift, chain
from palaestra.curriculum.pool import Mixed
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.explanation.reading import other_links_remark
from palaestra.explanation.recorded import other_run
from palaestra.recipes.base import dpo, grpo, ppo, reward_model, rloo, sft
from palaestra.recipes.data import reinforce_ada
from palaestra.recipes.objectives import (
    agro,
    embodied_planner_r1,
    gigpo,
    high_entropy_tokens,
    kimi_k1_5,
    oreo,
    pav,
    rapo,
    rover,
    steer,
    tba,
    tempo,
)
from palaestra.rollout.collect import Sample, Score, links
from palaestra.rollout.queue import Schedule
from palaestra.schedule import Linear
from palaestra.values import vary

from tests.recipes.helpers import FOUR


def test_turn_rewards_reach_their_turn():
    found = explain(
        ppo.build(),
        [
            [
                {"turn_rewards": [1, 0], "turn_lengths": [1, 1], "value": [0, 0]},
                {"reward": 0, "length": 2, "value": [0, 0]},
            ]
        ],
    )
    a = found["advantages"][0][0]
    assert a[0] > a[1]


def test_answers_that_the_method_leaves_out_train_nothing():
    """Reinforce-Ada with 4 right answers of 16: two of each kind train, with the mean of all 16."""
    rewards = [1] + [0] * 7 + [1, 1, 1] + [0] * 5
    found = explain(reinforce_ada.build(), [[{"reward": r, "length": 1} for r in rewards]])
    kept = {0: 0.75, 1: -0.25, 2: -0.25, 8: 0.75}
    assert found["advantages"] == [[kept.get(i, 0.0) for i in range(16)]]
    weights = [w for (w,) in found["token_weights"][0]]
    assert weights == pytest.approx([kept.get(i, 0.0) / 4 for i in range(16)])
    assert "12 of 16 answers do not train" in found["notes"][0]


def test_what_changes_with_the_step_stands_where_it_ends():
    recipe = vary(grpo.build(), credit=chain(Shift(Linear(0, 3, 100))), schedule=Schedule(steps=50))
    assert explain(recipe, [[{"reward": 1}]])["advantages"] == [[2.5]]


def test_the_pay_of_a_turn_stands_at_its_last_token():
    recipe = vary(ppo.build(), credit=chain(Gae(gamma=1.0, lam=0.0)))
    paid = {"turn_lengths": [2, 1, 3], "turn_rewards": [1, 2, 4], "value": [0.0] * 6}
    assert explain(recipe, [[paid]])["advantages"] == [[[0, 1, 2, 0, 0, 4]]]


def test_rows_that_a_credit_makes_have_no_advantages():
    """`explain reward-model` ended in a KeyError."""
    with pytest.raises(UserError, match="rows that its credit makes"):
        explain(reward_model.build(), [[{"reward": 1.0, "length": 2}, {"reward": 0.0, "length": 2}]])


def test_command_line(capsys, tmp_path):
    assert main(["explain", "grpo", "--rewards", "[[1,0,0,0]]", "--lengths", "[[2,4,4,4]]", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["token_weights"][0][0] == pytest.approx([0.1875, 0.1875], abs=1e-6)
    group = tmp_path / "g.json"
    group.write_text(json.dumps([[{"reward": 1}, {"reward": 0}]]))
    assert main(["explain", "rloo", "--group", str(group), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["advantages"] == [[1.0, -1.0]]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["explain", "grpo"], "--rewards"),
        (["explain", "grpo", "--rewards", "[[1,0"], "not JSON"),
        (["explain", "grpo", "--rewards", "[1,0]"], "list of groups"),
        (["explain", "grpo", "--rewards", "[[1,0]]", "--lengths", "[[1]]"], "shape"),
        (["explain", "grpoo", "--rewards", "[[1,0]]"], "did you mean grpo"),
        (["explain", "best-of-n", "--rewards", "[[1,0]]"], "no advantages"),
        (["explain", "grpo", "--group", "nowhere.json"], "No such file"),
        (["explain", "grpo", "--rewrds", "[[1,0]]"], "did you mean --rewards"),
    ],
)
def test_mistakes(argv, says, capsys):
    assert main(argv) == 2
    assert says in capsys.readouterr().err


# ---- what only the loss needs

CENTRED, SCALED = [0.75, -0.25, -0.25, -0.25], [1.5, -0.5, -0.5, -0.5]


@pytest.mark.parametrize(
    ("module", "advantages", "missing"),
    [
        (embodied_planner_r1, SCALED, "'ref_logp' and 'entropy'"),
        (agro, CENTRED, "'ref_logp'"),
        (tba, CENTRED, "'ref_logp'"),
        (oreo, CENTRED, "'ref_logp' and 'critic_value'"),
        (rapo, SCALED, "'ref_power_logp' and 'entropy'"),
        (high_entropy_tokens, SCALED, "'entropy'"),
        (steer, SCALED, "'entropy'"),
        (rover, CENTRED, "'vocab_mean_logp'"),
        (dpo, [1, -1, 0, 0], "'ref_logp'"),
    ],
    ids=lambda x: getattr(x, "__name__", "").rpartition(".")[2],
)
def test_advantages_need_only_what_the_credit_reads(module, advantages, missing):
    found = explain(module.build(), FOUR)
    assert found["advantages"][0] == pytest.approx(advantages, abs=1e-5) and found["token_weights"] is None
    assert f"the loss reads {missing};" in found["notes"][-1]
    fields = missing.replace("'", "").split(" and ")
    whole = [[{**t, **{f: [-1.0] * t["length"] for f in fields}} for t in FOUR[0]]]
    weights = explain(module.build(), whole)
    assert weights["advantages"] == found["advantages"] and len(weights["token_weights"][0][3]) == 4
    less = [[whole[0][0], *FOUR[0][1:]]]  # all or nothing
    assert explain(module.build(), less)["token_weights"] is None


def test_what_the_credit_reads_is_asked_for_by_trajectory():
    with pytest.raises(UserError, match="trajectory 1 of group 0 has no 'value', which the credit"):
        explain(ppo.build(), [[{"reward": 1, "value": [0.5] * 4}, {"reward": 0}]])


def test_log_probs_that_are_not_given_are_those_of_the_behaviour():
    """A ratio of 1 for the second trajectory: its weight is A / (G |o|)."""
    group = [{"reward": 1.0, "behaviour_logp": [-1.0], "logp": [-0.7]}, {"reward": 0.0, "behaviour_logp": [-2.0]}]
    assert explain(grpo.build(), [group])["token_weights"][0][1] == pytest.approx([-0.7071057 / 2], abs=1e-5)


def test_weights_of_a_row_in_several_pairs_add_up():
    """The shortest right answer is chosen twice, at margin 0: beta / 2 for each of two pairs, and their mean."""
    group = [{"reward": r, "length": n, "ref_logp": [-1.0] * n} for r, n in ((1, 2), (0, 3), (0, 4))]
    found = explain(kimi_k1_5.build(long2short="dpo"), [group])["token_weights"][0]
    assert found == [pytest.approx([0.05] * 2), pytest.approx([-0.025] * 3), pytest.approx([-0.025] * 4)]


def test_missing_weights_on_the_command_line(capsys, tmp_path):
    argv = ["explain", "apo", "--rewards", "[[1,0]]"]
    assert main(argv) == 0
    said = capsys.readouterr().out
    assert "weights not known" in said and "\nlegend: advantage = " in said
    assert "note: no token_weights: the loss reads 'ref_logp'" in said
    assert main([*argv, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["token_weights"] is None
    assert main([*argv, "--picture", str(tmp_path / "w.png")]) == 2
    assert "no token_weights" in capsys.readouterr().err


# ---- one form of advantages for a method


def test_credit_by_token_is_a_list_for_every_trajectory():
    """TEMPO: A = +-.5, and +-.5 more where the two part; a lone answer has 0 everywhere. GiGPO: the first turns compare
    .95 with 0 in state a, so +-.475. PAV: no step makes progress."""
    tokens = [{"reward": r, "tokens": ids} for r, ids in zip([1, 0], [[7, 8], [7, 9]], strict=True)]
    found = explain(tempo.build(std=False), [tokens, [{"reward": 1}]])["advantages"]
    assert found == [[pytest.approx([0.5, 1.0]), pytest.approx([-0.5, -1.0])], [[0.0] * 4]]
    won = {"turn_rewards": [0, 1], "turn_lengths": [1, 2], "states": ["a", "b"]}
    found = explain(gigpo.build(), [[won, {"reward": 0, "length": 3, "states": ["a"]}]])["advantages"][0]
    assert found == [pytest.approx([0.975, 0.5, 0.5]), pytest.approx([-0.975] * 3)]
    group = [{"reward": 1, "prefix_values": [0.5, 0.5]}, {"reward": 0, "prefix_values": [0.5, 0.5]}]
    assert explain(pav.build(), [group])["advantages"] == [[[0.5] * 4, [-0.5] * 4]]


def test_credit_by_trajectory_is_a_number():
    for recipe in (grpo.build(), rloo.build(), sft.build(), vary(grpo.build(), credit=chain(Center("group")))):
        found = explain(recipe, FOUR)["advantages"][0]
        assert all(isinstance(a, float) for a in found)


# ---- notes


def test_a_pool_that_would_drop_a_group_is_told():
    one = {"length": 1}
    groups = [[one | {"reward": r} for r in rewards] for rewards in ((1, 0), (1, 1), (0, 0))]
    recipe = vary(grpo.build(), pool=Mixed(2))
    assert explain(recipe, groups[:2])["notes"] == ["the pool Mixed would drop group 1: all its answers earn the same"]
    assert explain(recipe, groups)["notes"] == [
        "the pool Mixed would drop groups 1, 2: all answers of each earn the same"
    ]
    assert explain(recipe, groups[:1])["notes"] == explain(grpo.build(), groups)["notes"] == []


def test_a_loss_that_does_not_use_the_advantages_is_told():
    """OREO's is on rewards and values; AGRO's, alike in form, does use them."""
    row = {"ref_logp": [-1.0], "critic_value": [0.5], "logp": [-1.0]}
    group = [{"reward": r, **row} for r in (1, 0)]
    assert explain(oreo.build(), [group])["notes"] == [
        "the loss of this method does not use the advantages; token_weights show what it does"
    ]
    for module, more in ((grpo, {}), (sft, {}), (agro, {"ref_logp": [-1.0]}), (steer, {"entropy": [1.0]})):
        assert explain(module.build(), [[{"reward": r, "length": 1, **more} for r in (1, 0)]])["notes"] == []


def test_rollouts_of_a_run_that_collected_otherwise_are_told():
    run = links(Sample(8), Score())
    assert other_links_remark(links(Sample(4), Score()), run, "grpo") == []
    assert other_links_remark(rapo.build().collect, run, "grpo") == [
        "these are rollouts of grpo: what this method collects by Temper() is not in them"
    ]
    assert "Sample(model='ref')" in other_links_remark(oreo.build().collect, run, "grpo")[0]
    assert other_links_remark(grpo.build().collect, rapo.build().collect, "rapo") == []


def test_the_recipe_of_a_run_stands_in_its_folder(tmp_path):
    """Of the folder, or of a file in its `rollouts`; without one, or with one that is no more, nothing is said."""
    file = tmp_path / "rollouts" / "step-000001.parquet"
    assert other_run(rapo.build(), tmp_path) == other_run(rapo.build(), file) == []
    (tmp_path / "config.toml").write_text('recipe = "rloo"\n[set]\n"collect.links.0.n" = 4\n')
    assert "rollouts of rloo" in other_run(rapo.build(), tmp_path)[0]
    assert other_run(rapo.build(), file) == other_run(rapo.build(), tmp_path)
    assert other_run(grpo.build(), tmp_path) == []
    (tmp_path / "config.toml").write_text('recipe = "gone"\n')
    assert other_run(rapo.build(), tmp_path) == []
