"""The commands of docs/errands.md run as they stand there, on files that people of these systems have; what its second
table points to is there."""

import importlib.util
import json
import re
import shlex
import sys
import textwrap
from pathlib import Path

import palaestra as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from palaestra.cli.main import main
from palaestra.models.load import load

from tests.chat_server import serving
from tests.recipes.losses.test_teachers import vllm

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "errands.md").read_text()
BLOCK = re.findall(r"```\n(.*?)```", PAGE, re.DOTALL)[0]
ERRANDS = [
    (part.splitlines()[0].split(": ")[1], part.splitlines()[1:])
    for part in re.split(r"^# (?=\d)", BLOCK, flags=re.M)[1:]
]
NEEDS = {
    "Inspect": "inspect_ai",
    "lm-evaluation-harness": "lm_eval",
    "ART, agent-lightning": "openai",
    "Unsloth": "bitsandbytes",
}

FILES = {
    "rewards.py": """
        import re
        def correct(completions, ground_truth, **kwargs):
            last = lambda c: (re.findall(r"\\d+", c[0]["content"]) or [""])[-1]
            return [float(last(c) == g) for c, g in zip(completions, ground_truth)]
        def short(completions, **kwargs):
            return [1 - min(len(c[0]["content"]), 100) / 100 for c in completions]
        """,
    "score.py": """
        def compute_score(data_source, solution_str, ground_truth, extra_info=None):
            right = solution_str.strip().endswith(ground_truth)
            return {"score": float(right), "acc": right}
        """,
    "parts.py": """
        import re
        import palaestra as pl
        def answered(completion, answer, **kwargs):
            return float(re.findall(r"-?\\d+", completion[-1]["content"])[-1:] == [answer])
        async def brief(completion, state, **kwargs):
            return float(len(completion[-1]["content"]) < 40)
        async def stock(name: str) -> str:
            \"\"\"How many pieces of a part lie in store.\"\"\"
            return str({"bolt": 7, "nut": 3}.get(name, 0))
        class Guess:
            seats = ("policy",)
            def reset(self, task, key):
                return self.ask((1 + int(pl.rng_of(key).integers(8)), 0), "number 1 to 8?")
            def ask(self, state, text):
                say = (pl.Message(role="user", content=text),)
                return pl.Frame(state=state, asks=(pl.Ask(seat="policy", say=say, max_tokens=4),))
            def step(self, state, acts, key):
                n, turn = state
                said = re.findall(r"\\d", acts[0].text)[-1:]
                if said == [str(n)] or turn == 2:
                    return pl.Frame(state=state, pay={("policy", ""): float(said == [str(n)])})
                return self.ask((n, turn + 1), "higher" if said and int(said[0]) < n else "lower")
        """,
    "my_agent.py": """
        import json, sys
        from openai import OpenAI
        task = json.load(sys.stdin)
        reply = OpenAI().chat.completions.create(model="policy", messages=task["messages"])
        print(float(reply.choices[0].message.content.strip().endswith(task["answer"])))
        """,
    "exam.py": """
        from inspect_ai import Task, task
        from inspect_ai.dataset import Sample
        from inspect_ai.scorer import includes
        from inspect_ai.solver import generate
        @task
        def sums(n=8):
            samples = [Sample(input=f"{i}+{i + 1} mod 10", target=str((2 * i + 1) % 10)) for i in range(n)]
            return Task(dataset=samples, solver=generate(), scorer=includes())
        """,
    "tasks/sums.yaml": """
        task: sums
        dataset_path: json
        dataset_kwargs: {data_files: {test: tasks/sums.jsonl}}
        test_split: test
        output_type: generate_until
        doc_to_text: "{{prompt}}"
        doc_to_target: "{{answer}}"
        generation_kwargs: {until: ["\\n"], max_gen_toks: 16}
        metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true, regexes_to_ignore: ["= "]}]
        """,
}


def rows(form):
    return [form(f"{a}+{b} mod 10", str((a + b) % 10)) for a in range(8) for b in range(8)]


def chat(text):
    return [{"role": "user", "content": text}]


FILES["verl.yaml"] = """
    algorithm: {adv_estimator: grpo}
    data: {train_files: train.parquet, val_files: test.parquet, train_batch_size: 8, max_response_length: 32}
    actor_rollout_ref:
      actor: {ppo_mini_batch_size: 4, use_kl_loss: True, kl_loss_coef: 0.001, clip_ratio_high: 0.28, optim: {lr: 1e-6}}
      rollout: {n: 4}
    trainer: {total_training_steps: 2, test_freq: 1, save_freq: 1, logger: console}
    custom_reward_function: {path: score.py}
    """
RECORDS = {
    "train.jsonl": lambda q, a: {"prompt": chat(q), "ground_truth": a},
    "eval.jsonl": lambda q, a: {"prompt": chat(q), "ground_truth": a},
    "pairs.jsonl": lambda q, a: {"prompt": q, "chosen": a, "rejected": str((int(a) + 3) % 10)},
    "prompts.jsonl": lambda q, a: {"input": q, "label": a},
    "sums.jsonl": lambda q, a: {"prompt": q, "answer": a},
    "parts.jsonl": lambda q, a: {"question": f"How many bolts lie beside {q}?", "answer": "7"},
    "tasks/sums.jsonl": lambda q, a: {"prompt": q, "answer": a},
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "tasks").mkdir()
    for name, code in FILES.items():
        (tmp_path / name).write_text(textwrap.dedent(code).lstrip())
    for name, form in RECORDS.items():
        (tmp_path / name).write_text("\n".join(map(json.dumps, rows(form))))
    for split in ("train", "test"):
        made = rows(
            lambda q, a, split=split: {
                "data_source": "sums",
                "prompt": chat(q),
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": a},
                "extra_info": {"split": split},
            }
        )
        pq.write_table(pa.Table.from_pylist(made), tmp_path / f"{split}.parquet")
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_commands_run_one_after_the_other(place, capsys):
    assert len(ERRANDS) == 9
    with serving(vllm(load("tiny"))) as (server, url):
        for who, commands in ERRANDS:
            if who in NEEDS and importlib.util.find_spec(NEEDS[who]) is None:
                continue
            for command in commands:
                command = command.replace("http://127.0.0.1:8000/v1", url)
                if command.startswith("palaestra train") and "--evaluate " not in command:
                    command += " --evaluate 4"
                assert main(shlex.split(command)[1:]) == 0, (command, capsys.readouterr().err)
    assert server.seen  # the teacher that is served was asked
    step = json.loads(Path("ppo/metrics.jsonl").read_text().splitlines()[-2])
    assert {"part/model", "part/exact"} <= set(step)  # the reward model and the rule
    assert pl.open("trl").summary["reward_after"]["n"] == 4


def test_what_is_expected_has_a_test_that_exists():
    table = PAGE.split("## What is expected")[1]
    lines = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert len(lines) > 15
    for line in lines:
        tests = re.findall(r"`(tests/[^`]+)`", line)
        assert tests or "not here" in line, line
        assert all((ROOT / t).is_file() for t in tests), line
