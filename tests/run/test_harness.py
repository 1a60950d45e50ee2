"""Tasks of lm-evaluation-harness: what is asked of it, and that its own model of transformers gets the same numbers."""

import json
import math

import palaestra as pl
import pytest
import torch
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.models.load import load, save
from palaestra.run.evaluators import exams_of
from palaestra.run.harness import harness_exam, logp_and_greedy, metrics_of
from palaestra.settings.fields import Settings

ROWS = [{"q": f"{a}+{b}", "a": str(a + b), "wrong": [str(a + b + 1), str(a + 9)]} for a in (3, 4, 6) for b in (2, 5)]
HEAD = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
"""
TASKS = {
    "own_sums": """output_type: generate_until
doc_to_text: "{{q}}\\n"
doc_to_target: "{{a}}"
generation_kwargs: {until: ["\\n+"], max_gen_toks: 24}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
""",
    "own_choice": """output_type: multiple_choice
doc_to_text: "{{q}}"
doc_to_choice: "{{[a]+wrong}}"
doc_to_target: 0
metric_list: [{metric: acc}, {metric: acc_norm}]
""",
    "own_text": """output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{q}} = {{a}}"
metric_list: [{metric: word_perplexity}, {metric: bits_per_byte}]
""",
}


def test_names():
    exam = harness_exam("lm-eval:gsm8k(shots=5,chat=True)", 7)
    assert (exam.task, exam.n, exam.shots, exam.chat, exam.folder) == ("gsm8k", 7, 5, True, "")
    assert exams_of(Settings(exams=("lm-eval:arc_easy",), evaluate=3)) == {
        "lm-eval:arc_easy": harness_exam("lm-eval:arc_easy", 3)
    }
    with pytest.raises(UserError, match="no setting 'shot'; there is folder, shots, chat"):
        harness_exam("lm-eval:gsm8k(shot=5)", 7)


def test_what_is_a_share_has_an_interval():
    """Two of four right; a mean of other numbers, and one that is no mean, stay numbers."""
    items = [{"filter": "none", "acc": x, "f1": x / 3} for x in (1.0, 0.0, 1.0, 0.0)]
    found = metrics_of({
        "results": {"t": {"acc,none": 0.5, "f1,none": 1 / 6, "acc,strict": 0.25, "acc_stderr,none": "N/A", "alias": "t"}},
        "samples": {"t": items},
    })  # fmt: skip
    assert found["acc"] == {"of": "accuracy", **pl.stats.proportion(2, 4).json()}
    assert (
        found["f1"] == pytest.approx(1 / 6)
        and found["acc/strict"] == 0.25
        and set(found) == {"acc", "f1", "acc/strict"}
    )


def test_groups_keep_their_names():
    found = metrics_of({"results": {"a": {"acc,none": 1.0}, "b": {"acc,none": 0.5}}, "samples": {}})
    assert found == {"a": {"acc": 1.0}, "b": {"acc": 0.5}}


def test_log_probabilities_and_whether_greedy_decoding_writes_them():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]))
    found = logp_and_greedy(logits, torch.tensor([1, 2]))
    assert found.tolist() == [[pytest.approx(math.log(0.25)), 0.0], [pytest.approx(math.log(0.7)), 1.0]]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    pytest.importorskip("lm_eval")
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in ROWS))
    for name, text in TASKS.items():
        (folder / f"{name}.yaml").write_text(HEAD.format(name=name, rows=folder / "rows.jsonl") + text)
    return folder


@pytest.mark.parametrize("name", TASKS)
def test_the_librarys_own_model_gets_the_same(tasks, tmp_path, name):
    """Each item: what is generated, and the log-probability of what is given."""
    from lm_eval.evaluator import evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    model, out = tmp_path / "model", tmp_path / "out"
    save(load("tiny"), model)
    found = pl.evaluate(str(model), task=f"lm-eval:{name}(folder='{tasks}')", n=5, out=out)
    ours = [json.loads(x) for x in (out / "lm-eval" / f"{name}-step-0.jsonl").read_text().splitlines()]
    loaded = TaskManager(include_path=str(tasks)).load([name])
    theirs = evaluate(HFLM(str(model), device="cpu", batch_size=2), loaded, limit=5, bootstrap_iters=0)
    for mine, other in zip(ours, theirs["samples"][name], strict=True):
        for x, y in zip(mine["filtered_resps"], other["filtered_resps"], strict=True):
            assert x == y if isinstance(y, str) else x == pytest.approx(y, abs=1e-4)
    for metric, value in theirs["results"][name].items():
        if isinstance(value, float):
            mine = found["metrics"][metric.removesuffix(",none")]
            assert (mine["mean"] if isinstance(mine, dict) else mine) == pytest.approx(value, rel=1e-5)


def test_as_an_exam_of_a_run_that_keeps_its_best(tasks, tmp_path, capsys):
    name, out = f"lm-eval:own_choice(folder='{tasks}')", tmp_path / "run"
    words = ["train", "sft", "--task", "add", "--smoke", "--evaluate", "4", "--out", str(out), "--exams", name]
    assert main([*words, "--keep-best", f"exam:{name}/acc", "--evaluate-every", "1"]) == 0
    assert f"{name}/acc" in capsys.readouterr().out
    assert json.loads((out / "best" / "best.json").read_text())["measure"] == f"exam:{name}/acc"
    assert sorted(p.name for p in (out / "lm-eval").iterdir()) == [f"own_choice-step-{n}.jsonl" for n in (0, 1, 2)]


def test_what_cannot_be_measured_says_why(tasks, capsys):
    assert main(["eval", "--model", "tiny", "--task", "lm-eval:no_such_task"]) == 2
    assert "lm_eval has no task 'no_such_task'" in capsys.readouterr().err
