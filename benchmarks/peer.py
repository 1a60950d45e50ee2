"""The work of `palaestra bench trl` in TRL's GRPOTrainer, one step at a word:
`python -m benchmarks.peer WORK FOLDER SEED`.

Same prompts, group, lengths, temperature, optimiser, precision, no KL term, no gradient
checkpointing unless asked: what a user of TRL would run who had read its documentation.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from benchmarks.turns import Memory, Turns
from benchmarks.work import Work
from palaestra.models.lora import LINEAR, LoRA
from palaestra.run.machine import wait_for_gpu


def rewards(completions: list[Any], **columns: Any) -> list[float | None]:
    """The reward of `work.REWARD`."""
    texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
    return [float(sum(map(ord, s)) % 2) for s in texts]


def run(work: Work, folder: Path, seed: int, turns: Turns) -> None:
    from datasets import Dataset
    from trl.trainer.grpo_trainer import GRPOTrainer  # type: ignore[import-not-found]  # an extra

    data = Dataset.from_list([{"prompt": r["messages"]} for r in work.rows(512)])
    trainer = GRPOTrainer(
        model=str(work.source(folder)),
        reward_funcs=rewards,
        args=arguments(work, folder, seed),
        train_dataset=data,
        peft_config=adapters(work.lora) if work.lora else None,
    )
    gate = StepGate(turns)
    trainer.add_callback(gate)
    watched: Any = trainer
    watched._generate = gate.time_call("rollout", watched._generate)
    watched.compute_loss = gate.time_call("forward", watched.compute_loss)
    watched.accelerator.backward = gate.time_call("backward", watched.accelerator.backward)
    turns.ready()
    trainer.train()


def adapters(rank: int) -> Any:
    """What `LoRA` asks of peft."""
    from peft import LoraConfig

    like = LoRA(rank=rank)
    return LoraConfig(
        r=like.rank,
        lora_alpha=like.alpha,
        target_modules=list(like.targets or LINEAR),
        task_type="CAUSAL_LM",
    )


def sampling(work: Work) -> dict[str, Any]:
    """What samples, and how short an answer may be: vLLM and transformers have a name each."""
    least = "min_tokens" if work.peer_vllm else "min_new_tokens"
    lengths = {least: work.max_tokens} if work.full else None
    vllm = {"use_vllm": True, "vllm_mode": "colocate"} if work.peer_vllm else {}
    return {"generation_kwargs": lengths, **vllm}


def arguments(work: Work, folder: Path, seed: int) -> Any:
    from trl.trainer.grpo_config import GRPOConfig  # type: ignore[import-not-found]  # an extra

    answers = work.prompts * work.group
    batch = work.peer_batch or answers
    return GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=answers // batch,
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
        max_steps=10**6,
        logging_steps=10**6,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=work.device == "cpu",
        model_init_kwargs={"dtype": work.dtype},
        seed=seed,
        **sampling(work),
    )


class StepGate(TrainerCallback):
    """Holds every step until it is asked for, and reports it."""

    def __init__(self, turns: Turns):
        self.turns, self.spent, self.tokens = turns, dict[str, float](), 0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.turns.wait()
        self.spent, self.tokens = {}, 0
        self.memory = Memory().__enter__()
        self.begin, self.busy = time.perf_counter(), time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        wait_for_gpu()
        seconds = time.perf_counter() - self.begin
        processor = time.process_time() - self.busy
        self.memory.__exit__()
        self.turns.report(
            {
                "seconds": seconds,
                "processor": processor,
                "tokens": self.tokens,
                **self.spent,
                "memory": self.memory.peaks,
            }
        )

    def time_call(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        """`inner`, with its time and memory under `name`; what "rollout" gives is counted."""

        def call(*given: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            with Memory.phase(name):
                out = inner(*given, **named)
                wait_for_gpu()
            self.spent[name] = self.spent.get(name, 0.0) + time.perf_counter() - begin
            if name == "rollout":
                self.tokens += sum(len(c) for c in out[1])
            return out

        return call


if __name__ == "__main__":
    run(Work.read(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Turns())
