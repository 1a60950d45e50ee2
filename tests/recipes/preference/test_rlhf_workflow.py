"""RLHF Workflow: which two of k answers are a pair, the smoothed loss, both references, and who ranks."""

import asyncio
import json
from dataclasses import replace

import palaestra as pl
import pytest
import torch
from palaestra.objective.preference import smooth_logistic
from palaestra.recipes.preference import rlhf_workflow

from tests.fake import episode

SMALL = {"steps": 2, "evaluate": 0, "quiet": True, "max_tokens": 16}
WORDS = {"schedule.prompts": 4, "k": 3, "minibatches": 1, "epochs": 1}


def write(file, rows):
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(file)


def steps_of(run, part=""):
    lines = (run.folder / part / "metrics.jsonl").read_text().splitlines()
    return [x for x in map(json.loads, lines) if "loss" in x]


def pair_of(**options):
    """The lengths of the better and of the worse of four answers; each has its own."""
    totals, lengths = (0.2, 1.1, -0.4, 0.7), (120, 400, 80, 150)
    four = tuple(episode((0,), (1,) * n, r) for r, n in zip(totals, lengths, strict=True))
    credit = rlhf_workflow.build(**options).learners["policy"].credit
    rows, _ = credit([pl.Group(task=pl.Task(id="t"), episodes=four)], [[[{}]] * 4], {})
    signs = {row.columns["sign"]: len(row.row.segments[-1].ids) for row in rows}
    return signs[1.0], signs[-1.0]


def test_the_best_meets_the_worst_less_the_cost_of_length():
    assert pair_of() == (400, 80)
    assert pair_of(length_penalty=0.002) == (150, 80)  # -0.04, 0.30, -0.56, 0.40
    assert pair_of(rule="max_max") == (400, 150)
    assert pair_of(rule="max_random")[0] == 400


def test_the_loss_has_smoothed_labels():
    z = torch.tensor([0.3])
    loss = rlhf_workflow.build().learners["policy"].objective
    assert (loss.beta, loss.smoothing) == (0.1, 0.1)
    assert smooth_logistic(z, loss.smoothing).item() == pytest.approx(0.584355, abs=1e-6)
    assert smooth_logistic(z, 0.0).item() == pytest.approx(0.554355, abs=1e-6)


def test_equal_scores_and_cut_answers_make_no_pair(context):
    recipe = rlhf_workflow.build()
    two = (episode((0,), (1, 2), 1.0), episode((0,), (1,), 1.0))
    credit = recipe.learners["policy"].credit
    assert credit([pl.Group(task=pl.Task(id="t"), episodes=two)], [[[{}]] * 2], {}) == ([], {})
    cut = (replace(two[0], status="truncated:length"), two[1])
    group = asyncio.run(recipe.collect.links[-1](context(), (), pl.Group(task=pl.Task(id="t"), episodes=cut)))
    assert [e.muted for e in group.episodes] == [True, False]


@pytest.mark.parametrize("reference", ["moving", "start"])
def test_an_iteration_is_measured_against_its_reference(tmp_path, reference):
    """With one update an iteration the margin is 0 where the reference is the policy that sampled."""
    run = pl.train(
        "rlhf-workflow",
        out=tmp_path / "r",
        set={**WORDS, "reference": reference, "k": 4},
        **{**SMALL, "max_tokens": 48},
    )
    first, second = steps_of(run)
    assert first["margin"] == 0 and first["updates"] == second["updates"] == 1
    assert (second["margin"] == 0) == (reference == "moving")


def test_a_saved_reward_model_and_prompts_alone(tmp_path):
    """The models and the file of a user: a reward model from pairs, then prompts without answers."""
    rows = [{"prompt": f"{i}+{i}=", "chosen": f"= {2 * i}", "rejected": f"= {2 * i + 3}"} for i in range(10)]
    pairs = write(tmp_path / "pairs.jsonl", rows)
    words = {"schedule.prompts": 4}
    model = pl.train("reward-model", data=pairs, out=tmp_path / "m", set=words, **{**SMALL, "steps": 1})
    folder = model.folder / "checkpoints" / "step-1"
    prompts = write(tmp_path / "prompts.jsonl", [{"prompt": r["prompt"]} for r in rows])
    run = pl.train("rlhf-workflow", data=prompts, out=tmp_path / "r", set={**WORDS, "reward": str(folder)}, **SMALL)
    assert steps_of(run)[0]["groups_mixed"] == 1 and steps_of(run)[0]["preferred"] == 0.5


def test_a_reward_model_is_trained_on_pairs_first(tmp_path):
    rows = [{"prompt": f"{i}+{i}=", "chosen": f"= {2 * i}", "rejected": f"= {2 * i + 3}"} for i in range(10)]
    pairs = write(tmp_path / "pairs.jsonl", rows)
    prompts = write(tmp_path / "prompts.jsonl", [{"prompt": r["prompt"]} for r in rows])
    words = {"k": 3, "pairs": pairs, "reward.schedule.prompts": 4, "policy.schedule.prompts": 4}
    run = pl.train("rlhf-workflow", data=prompts, out=tmp_path / "r", set=words, **{**SMALL, "steps": 1})
    logs = {p.parent.name: p for p in run.folder.rglob("metrics.jsonl")}
    read = {n: [x for x in map(json.loads, p.read_text().splitlines()) if "loss" in x] for n, p in logs.items()}
    assert "ranked" in read["reward"][0] and abs(read["policy"][0]["part/reward/score"]) > 0


def test_a_judge_holds_a_tournament(context):
    """Each answer meets each other in both orders; the shares of wins rank them."""

    def longer(request):
        text = request.messages[-1].content
        a, b = (text.rpartition(f"\n<{x}>")[2].partition("<")[0] for x in "ab")
        return "[[A]]" if len(a) > len(b) else "[[B]]"

    recipe = rlhf_workflow.build(judge=pl.Scripted(longer))
    judge = recipe.collect.links[1].reward
    answers = tuple(
        pl.recorded_episode(context(), "policy", (pl.Message(role="user", content="q"),), "9" * n, 0.0)
        for n in (2, 1, 3)
    )
    task = pl.Task(id="t", prompt=(pl.Message(role="user", content="q"),))
    rewards = asyncio.run(judge(None, pl.Group(task=task, episodes=answers)))
    assert [r.total for r in rewards] == [0.5, 0.0, 1.0]


def test_one_of_three_ranks():
    with pytest.raises(pl.UserError, match="one of reward, judge and pairs"):
        rlhf_workflow.build(pairs="p.jsonl", judge=pl.Scripted(str))
    with pytest.raises(pl.UserError, match="k"):
        rlhf_workflow.build(k=1)
