"""The work of `palaestra bench trl` in TRL's GRPOTrainer, one step at a word: `python -m palaestra.bench.peer WORK FOLDER`.

Same prompts, group, lengths, temperature, optimiser, precision, no KL term, no gradient checkpointing unless asked: what a
user of TRL would run who had read its documentation.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from palaestra.bench.turns import Memory, Turns
from palaestra.bench.work import Work
from palaestra.models.load import find


def rewards(completions: list[Any], **columns: Any) -> list[float | None]:
    """The reward of `work.REWARD`."""
    said = [c if isinstance(c, str) else c[0]["content"] for c in completions]
    return [float(sum(map(ord, s)) % 2) for s in said]


def run(work: Work, folder: Path, turns: Turns) -> None:
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    rows = work.rows(512)
    data = Dataset.from_list([{"prompt": r["messages"]} for r in rows])
    arguments = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=work.prompts * work.group,
        gradient_accumulation_steps=1,
        num_generations=work.group,
        max_completion_length=work.max_tokens,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        learning_rate=1e-5,
        adam_beta2=0.95,
        max_grad_norm=1.0,
        bf16=False,
        gradient_checkpointing=work.recompute,
        generation_kwargs={"min_new_tokens": work.max_tokens} if work.full else None,
        max_steps=10**6,
        logging_steps=10**6,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        model_init_kwargs={"dtype": work.dtype},
        seed=0,
    )
    spent: dict[str, float] = {}
    tokens = {"n": 0}

    class Gate(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if not turns.wait():
                raise SystemExit(0)
            spent.clear()
            tokens["n"] = 0
            self.begin = time.perf_counter()
            self.memory = Memory().__enter__()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            seconds = time.perf_counter() - self.begin
            self.memory.__exit__()
            turns.report({"seconds": seconds, "tokens": tokens["n"], **spent, "memory": self.memory.peaks})

    def timed(name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            with Memory.phase(name):
                out = inner(*given, **named)
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - begin
            if name == "rollout":
                tokens["n"] += sum(len(c) for c in out[1])
            return out

        return call

    trainer = GRPOTrainer(model=str(find(work.model)), reward_funcs=rewards, args=arguments, train_dataset=data)
    trainer.add_callback(Gate())
    watched: Any = trainer
    watched._generate = timed("rollout", watched._generate)
    trainer.compute_loss = timed("forward", trainer.compute_loss)  # type: ignore[method-assign]
    trainer.accelerator.backward = timed("backward", trainer.accelerator.backward)  # type: ignore[method-assign]
    turns.ready()
    trainer.train()


if __name__ == "__main__":
    run(Work.read(sys.argv[1]), Path(sys.argv[2]), Turns())
