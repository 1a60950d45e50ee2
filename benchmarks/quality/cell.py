"""One run of one system until its reward stands at the target:
`python -m benchmarks.quality.cell palaestra|trl ORDER FOLDER`.

Both draw the same problems in the same order, with the same verifier, one thread, no exam and no checkpoint. ORDER is
JSON with task, lr, prompts, group and seed. The last line printed is the run: for each step its reward, and seconds
since the process began, by the wall and by the processor.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BEGAN = time.time() - time.process_time()  # what was imported before is the processor's time so far

DECLARED: dict[str, Any] = json.loads((Path(__file__).parent / "declared.json").read_text())


class Course:
    """Rewards of steps so far, and when each ended."""

    def __init__(self, task: str):
        self.rules = DECLARED["tasks"][task]
        self.steps: list[dict[str, float]] = []

    def note(self, reward: float) -> bool:
        """Adds a step; whether the run is over."""
        wall, processor = time.time() - BEGAN, time.process_time()
        self.steps.append(
            {"reward": round(reward, 4), "wall": round(wall, 2), "processor": round(processor, 2)}
        )
        return self.reached or len(self.steps) >= self.rules["most"]

    @property
    def reached(self) -> bool:
        last = [s["reward"] for s in self.steps[-DECLARED["window"] :]]
        return len(last) == DECLARED["window"] and sum(last) / len(last) >= self.rules["target"]

    def show(self) -> str:
        return json.dumps({"reached": self.reached, "steps": self.steps})


def rows_of(order: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Problems enough for the most steps, other ones for each seed: messages, and their number."""
    from palaestra.run.benches import bench_by_name

    rules = DECLARED["tasks"][order["task"]]
    bench, _ = bench_by_name(order["task"])
    n = rules["most"] * order["prompts"]
    numbers = range(order["seed"] * 10_000, order["seed"] * 10_000 + n)
    tasks = [bench.tasks.task("train", i) for i in numbers]
    return [
        {"messages": [{"role": m.role, "content": m.content} for m in t.prompt], "item": i}
        for i, t in zip(numbers, tasks, strict=True)
    ]


class Judge:
    """The verifier of the built-in task, for answers to `rows_of`."""

    def __init__(self, task: str):
        from palaestra.run.benches import bench_by_name

        bench, _ = bench_by_name(task)
        self.tasks, self.check = bench.tasks, bench.reward.check  # type: ignore[attr-defined]

    def __call__(self, texts: Sequence[str], numbers: Sequence[int]) -> list[float]:
        found = [self.tasks.task("train", int(i)) for i in numbers]
        return [float(self.check(text, task)) for text, task in zip(texts, found, strict=True)]


def palaestra(order: Mapping[str, Any], folder: Path) -> Course:
    import palaestra as pl

    course, judge, rules = (
        Course(order["task"]),
        Judge(order["task"]),
        DECLARED["tasks"][order["task"]],
    )

    def reward(responses: list[str], item: list[int], **columns: Any) -> list[float]:
        return judge(responses, item)

    pl.train(
        "grpo", model=rules["model"], data=rows_of(order), reward=reward, seed=order["seed"], steps=rules["most"],
        max_tokens=rules["max_tokens"], evaluate=0, checkpoint_every=10**6, out=folder / "run", quiet=True,
        on_step=lambda _, metrics: course.note(metrics["reward"]),
        set={"optimiser.lr": order["lr"], "schedule.prompts": order["prompts"], "collect.links.0.n": order["group"]},
    )  # fmt: skip
    return course


def trl(order: Mapping[str, Any], folder: Path) -> Course:
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl.trainer.grpo_config import GRPOConfig  # type: ignore[import-not-found]  # an extra
    from trl.trainer.grpo_trainer import GRPOTrainer  # type: ignore[import-not-found]  # an extra

    from palaestra.models.load import find

    course, judge, rules = (
        Course(order["task"]),
        Judge(order["task"]),
        DECLARED["tasks"][order["task"]],
    )

    def reward(completions: list[Any], item: list[int], **columns: Any) -> list[float]:
        return judge([c if isinstance(c, str) else c[0]["content"] for c in completions], item)

    class Watch(TrainerCallback):
        def on_log(
            self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any
        ) -> None:
            if "reward" in (logs or {}) and course.note(float(logs["reward"])):
                control.should_training_stop = True

    answers = order["prompts"] * order["group"]
    arguments = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=answers,
        num_generations=order["group"],
        max_completion_length=rules["max_tokens"],
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        learning_rate=order["lr"],
        lr_scheduler_type="constant",
        adam_beta2=0.95,
        max_grad_norm=1.0,
        bf16=False,
        gradient_checkpointing=False,
        max_steps=rules["most"],
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        shuffle_dataset=False,
        model_init_kwargs={"dtype": "float32"},
        seed=order["seed"],
    )
    data = Dataset.from_list([{"prompt": r["messages"], "item": r["item"]} for r in rows_of(order)])
    trainer = GRPOTrainer(
        model=str(find(rules["model"])), reward_funcs=reward, args=arguments, train_dataset=data
    )
    trainer.add_callback(Watch())
    trainer.train()
    return course


if __name__ == "__main__":
    print(
        ({"palaestra": palaestra, "trl": trl}[sys.argv[1]])(
            json.loads(sys.argv[2]), Path(sys.argv[3])
        ).show()
    )
