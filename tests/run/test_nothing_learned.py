"""A run that cannot learn says why: no hint was shown, no answer was right, no group was mixed."""

import json

import pytest
from palaestra.cli.main import main
from safetensors.torch import load_file, save_file

SMALL = ["--steps", "1", "--evaluate", "4", "--out", "run", "schedule.prompts=2"]
STARVED = """import palaestra as pl


def build():
    few = pl.Schedule(prompts=2, rounds=1)
    return pl.vary(pl.recipe("grpo"), pool=pl.Mixed(2), schedule=few)
"""


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(solution):
    """Problems that the built-in model does not know, with this solution of each."""
    records = [
        {"prompt": f"{i} h in min?", "answer": 60 * i, "demonstration": solution.format(i, 60 * i)}
        for i in range(2, 40)
    ]
    with open("own.jsonl", "w") as file:
        file.writelines(json.dumps(r) + "\n" for r in records)


@pytest.mark.parametrize(("solution", "guided"), [("{0}*60={1}", False), ("an hour has 60\n{0}*60\n={1}", True)])
def test_hints_that_show_nothing_are_told(capsys, solution, guided):
    write(solution)
    assert main(["train", "ghpo", "unit=steps", "--data", "own.jsonl", *SMALL]) == 0
    said, told = capsys.readouterr()
    assert told.count("note: nothing that was learned from in the first step had a hint") == int(not guided)
    assert ("guided 0%" in told) == (not guided)
    assert "note     no held-out answer was right, before or after" in said


@pytest.mark.parametrize(("pays", "told"), [("1.0", True), ("float(i % 2)", False)])
def test_a_reward_that_pays_all_answers_alike_is_told(place, capsys, pays, told):
    write("={1}")
    (place / "own.py").write_text(
        f"def score(completions, **_):\n    return [{pays} for i, _ in enumerate(completions)]\n"
    )
    assert main(["train", "grpo", "--data", "own.jsonl", "--reward", "own.py:score", *SMALL]) == 0
    assert (
        "all answers to a problem had the same reward, whichever problem (on average 1)" in capsys.readouterr().err
    ) == told


def test_a_run_that_starves_says_what_helps(place, capsys):
    write("={1}")
    (place / "mixed.py").write_text(STARVED)
    assert main(["train", "mixed.py", "--data", "own.jsonl", *SMALL]) == 1
    assert "pool.size" in capsys.readouterr().err.splitlines()[-1]


def train(*words):
    return main(["train", *words, "--data", "own.jsonl", "--steps", "1", "--evaluate", "0", "--out", "run"])


@pytest.mark.parametrize(("method", "told"), [("grpo", 1), ("rloo", 1), ("reinforce", 0)])
def test_one_answer_to_a_prompt_is_told_before_the_first_step(capsys, method, told):
    write("={1}")
    assert train(method, "schedule.prompts=2", "sample.n=1", "--max-tokens", "8") == 0
    lines = capsys.readouterr().err.splitlines()
    at = [i for i, line in enumerate(lines) if "with sample.n=1 learner 'policy' learns nothing" in line]
    assert len(at) == told
    assert not told or at[0] < next(i for i, line in enumerate(lines) if "step 1/1" in line)


def test_answers_that_were_all_cut_are_told_instead_of_advice_about_rewards(capsys):
    write("={1}")
    assert train("grpo", "schedule.prompts=2", "--max-tokens", "2") == 0
    said = capsys.readouterr().err
    assert "note: all answers of the first step were cut at 2 tokens: raise --max-tokens" in said
    assert "easier or harder problems" not in said


def test_data_without_a_pair_is_told(place, capsys):
    rows = [{"prompt": "1+1", "completion": "2", "label": True}, {"prompt": "1+2", "completion": "4", "label": False}]
    (place / "own.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert train("dpo", "pairs=data", "schedule.prompts=2") == 2
    assert "labels without pairs" in capsys.readouterr().err.splitlines()[-1]


def test_a_weight_that_is_not_finite_ends_the_run_at_its_first_step(place, capsys, monkeypatch):
    """One that came after the model was loaded, where such weights are refused."""
    write("={1}")
    assert train("grpo", "schedule.prompts=2", "--max-tokens", "8") == 0
    weights = place / "run/checkpoints/step-1/model.safetensors"
    tensors = load_file(weights)
    name = next(n for n, w in tensors.items() if w.dim() == 1)
    tensors[name][0] = float("nan")
    model = weights.parent.rename(place / "broken")
    save_file(tensors, model / weights.name, {"format": "pt"})
    words = ["grpo", "--model", "broken", "--data", "own.jsonl", "--steps", "3", "--evaluate", "0", "--out", "next"]
    words += ["schedule.prompts=2", "sample.n=2", "--max-tokens", "8"]
    assert main(["train", *words]) == 2 and "NaN or infinite" in capsys.readouterr().err
    monkeypatch.setattr("palaestra.models.load.check_numbers", lambda *_: None)
    assert main(["train", *words]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert "not finite" in last and name.rpartition(".")[0].rpartition(".")[2] in last


def test_the_rate_of_a_step_is_a_metric_with_its_warm_up(place):
    write("={1}")
    words = ["schedule.prompts=2", "sample.n=2", "--max-tokens", "4", "optimiser.lr=1e-4", "optimiser.warmup=4"]
    assert train("reinforce", *words) == 0
    lines = (place / "run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(x)["lr"] for x in lines if "lr" in json.loads(x)] == [pytest.approx(1e-4 / 4)]
