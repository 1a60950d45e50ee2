"""Runs on recorded answers claim nothing of what nobody sampled or judged: in metrics, trackers, curve, report and in
the line that says how to see more."""

import ast
import asyncio
import json
import re
import shlex
import subprocess
import sys

import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.ledger.measures import Cell, Moving
from palaestra.run import setup
from palaestra.run.describe import describe
from palaestra.settings.fields import Settings
from palaestra.store.folder import read_run
from palaestra.trackers.base import numbers_of
from palaestra.types import Episode, Group, Reward, Row, Segment, Task
from palaestra.view.report import page

SUMS = [(f"{a}+{b} mod 10", str((a + b) % 10)) for a in range(4) for b in range(5)]
ROWS = {
    "demos": [{"prompt": q, "demonstration": f"= {a}"} for q, a in SUMS],
    "pairs": [{"prompt": q, "chosen": f"= {a}", "rejected": "= x"} for q, a in SUMS],
    "labels": [{"prompt": q, "response": f"= {a}", "right": i % 4 == 0} for i, (q, a) in enumerate(SUMS)],
}
INVENTED = re.compile(r"reward.*|length.*|truncated|entropy_sampled|groups_mixed.*|tokens_per_second|part/.*")
REWARD_MODEL = """import palaestra as pl


def build():
    head = pl.Learner(credit=pl.Compare(), objective=pl.BradleyTerry(), heads=("score",))
    return pl.vary(pl.recipe("grpo"), collect=pl.links(pl.Recorded()), learners={"reward": head})
"""
RUNS = {"sft": ("sft", "demos"), "dpo": ("dpo", "pairs", "pairs=data"), "rm": ("rm.py", "pairs")}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, rows in ROWS.items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "rm.py").write_text(REWARD_MODEL)
    return tmp_path


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_on_recorded_answers_invents_no_numbers(place, kind, capsys):
    recipe, data, *words = RUNS[kind]
    asked = ["train", recipe, *words, "--data", f"{data}.jsonl", "--steps", "2", "--evaluate", "4"]
    assert main([*asked, "schedule.prompts=4", "--out", "run"]) == 0
    told = capsys.readouterr()
    run = read_run(place / "run")
    assert len(run.steps) == 2 and all("loss" in numbers_of(r) for r in run.steps)
    assert not [k for r in run.steps for k in numbers_of(r) if INVENTED.fullmatch(k)]
    assert re.search(r"step 2/2  loss \d", told.err) and "reward 0" not in told.err
    shown = page(run)
    assert shown["sampling"] == "Training answers are recorded, held-out ones too."
    assert [c["label"] for c in shown["changes"]] == ["Loss of the training batch"]
    assert "differing reward" not in " ".join(shown["remarks"]) and "tokens a second" not in " ".join(shown["speed"])
    assert "loss of the training batch" in shown["curves"][0] and "reward" not in shown["curves"][0]
    text = (place / "run" / "report.html").read_text().partition("</style>")[2]
    assert 'title="reward"' not in text and "0 tokens<" not in text and "are sampled" not in text
    assert "palaestra eval" not in text and "palaestra eval" not in told.out
    inspect = re.search(r"^inspect  python (.*)$", told.out, re.MULTILINE)
    found = subprocess.run([sys.executable, *shlex.split(inspect[1])], capture_output=True, text=True, check=True)
    kinds = {"loss"} if kind == "sft" else {"ranking", "margin"}
    assert {r["of"] for r in ast.literal_eval(found.stdout)} == kinds
    if kind != "sft":
        unit = "nats times beta" if kind == "dpo" else "units of the reward"
        assert re.search(rf"held-out margin after +[\d.-]+ {unit}  \(95%", told.out) and f" {unit}." in text
        assert re.search(r"ranked right before   50\.0%", told.out)


def test_imitation_with_answers_is_inspected_by_them(place, capsys):
    (place / "answers.jsonl").write_text("\n".join(json.dumps({"prompt": q, "answer": a}) for q, a in SUMS))
    asked = ["train", "sft", "--data", "answers.jsonl", "--steps", "1", "--evaluate", "2", "--max-tokens", "4"]
    assert main([*asked, "schedule.prompts=2", "--out", "run"]) == 0
    inspect = re.search(r"^inspect  palaestra (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert main(shlex.split(inspect[1])) == 0
    assert page(read_run(place / "run"))["sampling"] == "Training answers are recorded, held-out ones greedy."


def collected(link, data):
    ctx = setup.context(Settings(data=f"{data}.jsonl"), talk=False)
    tasks = [ctx.bench.tasks.task("train", i) for i in range(8)]
    return [asyncio.run(link(ctx, (0, i), Group(task=t))) for i, t in enumerate(tasks)]


def test_answers_that_the_data_call_right_or_wrong_have_a_reward(place):
    groups = collected(pl.Recorded(), "labels")
    found = describe(groups, groups)
    assert found["reward"] == sum(e.total for g in groups for e in g.episodes) / 8 and 0 < found["reward"] < 1
    assert "length" not in found and "truncated" not in found


def test_rewards_of_recorded_answers_that_somebody_judged_are_real(place):
    """An offline method of one's own: what is replayed has been paid for."""

    async def replay(ctx, key, group):
        made = pl.recorded_episode(ctx, "policy", group.task.prompt, "= 1", 0.25)
        return Group(task=group.task, episodes=(made,))

    groups = collected(replay, "labels")
    found = describe(groups, groups)
    assert (found["reward"], found["episodes"]) == (0.25, 8) and "length" not in found


def sampled(total, n, **reward):
    segment = Segment(ids=tuple(range(n)), policy="policy", trained=True, logp=(-1.0,) * n, version=0)
    return Episode(rows=(Row(segments=(segment,)),), reward=Reward(total=total, **reward), status="finished")


def test_lengths_of_right_and_wrong_answers_need_a_check():
    """By hand: of 2 and 4 tokens. A learned reward of 3 says nothing of right and wrong."""
    learned = [Group(task=Task(id="a"), episodes=(sampled(3.0, 2), sampled(-1.0, 4)))]
    found = describe(learned, learned)
    assert found["length"] == 3.0 and not {"length_right", "length_wrong"} & found.keys()
    checked = [Group(task=Task(id="a"), episodes=(sampled(3.0, 2, solved=False), sampled(-1.0, 4, solved=True)))]
    found = describe(checked, checked)
    assert (found["length_right"], found["length_wrong"], found["entropy_sampled"]) == (4.0, 2.0, 1.0)


def test_recorded_answers_beside_sampled_ones_do_not_count_as_judged():
    recorded = Segment(ids=(1, 2, 3), author="demonstration", policy="policy", trained=True)
    given = Episode(rows=(Row(segments=(recorded,)),), reward=Reward(total=1.0, judged=False), status="finished")
    groups = [Group(task=Task(id="a"), episodes=(sampled(0.0, 2), sampled(0.5, 4), given))]
    found = describe(groups, groups)
    assert (found["reward"], found["length"], found["episodes"]) == (0.25, 3.0, 3)


def test_steps_without_a_reward_are_no_part_of_the_mean_training_reward():
    steps = [{"sampled_tokens": 9, "updates": 1, "reward": 0.5}, {"sampled_tokens": 9, "updates": 1}]
    assert Moving()(Cell(summary={}, steps=steps)) == 0.5
