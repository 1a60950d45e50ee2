"""The work that is timed: prompts, group, lengths, model, precision. The reward costs nothing and
needs no answers.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from palaestra.method import Recipe
from palaestra.models.embedded import FOLDERS
from palaestra.models.load import find, load
from palaestra.models.lora import LoRA
from palaestra.run.benches import bench_by_name, from_data
from palaestra.run.context import RunContext
from palaestra.run.driver import train
from palaestra.settings import overrides
from palaestra.settings.fields import Settings

REWARD = """def score(responses, answers, **fields):
    return [float(sum(map(ord, r)) % 2) for r in responses]
"""


@dataclass(frozen=True, kw_only=True)
class Work:
    """One GRPO step: `prompts` x `group` answers of at most `max_tokens`. `full`: no answer may end
    before its last token.
    """

    model: str = "tiny"
    dtype: str = "float32"
    device: str = "cpu"
    prompts: int = 16
    group: int = 8
    max_tokens: int = 64
    full: bool = False
    recompute: bool = False
    prompt_tokens: int = 0  # prompts are lengthened to about this many characters; 0 = as they are
    cache_mb: int = 4096
    budget: int = 4096  # padded tokens of a training forward pass
    # answers in a training forward pass of TRL, the rest accumulated; 0 = all at once
    peer_batch: int = 0
    peer_vllm: bool = False  # TRL samples with vLLM, in its own process
    positions: int = 0  # places for tokens that the model gets; 0 = as many as it has
    lora: int = 0  # rank of the adapters that are trained in place of all weights; 0 = none
    load_in_4bit: bool = False  # the frozen weights below them
    optim: str = ""  # as --optim; "" = moments in float32

    def json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Work:
        return cls(**json.loads(text))

    @property
    def task(self) -> str:
        return "chain" if self.model in FOLDERS else "constraints"

    def source(self, folder: Path) -> str:
        """Where the model lies: in `folder`, with the weights that it has, if it gets `positions`."""
        where = str(find(self.model))
        if not self.positions:
            return where
        made = folder / "model"
        if not made.exists():
            shutil.copytree(where, made)
            config = json.loads((made / "config.json").read_text())
            config["max_position_embeddings"] = self.positions
            (made / "config.json").write_text(json.dumps(config))
        return str(made)

    def rows(self, n: int) -> list[dict[str, Any]]:
        """`n` prompts as chat messages, the same in every process."""
        bench, _ = bench_by_name(self.task)
        tasks = [bench.tasks.task("train", i) for i in range(n)]
        rows: list[dict[str, Any]] = [
            {"messages": [{"role": m.role, "content": m.content} for m in t.prompt], "answer": "0"}
            for t in tasks
        ]
        for row in rows:
            last = row["messages"][-1]
            last["content"] = last["content"].ljust(self.prompt_tokens, "7")
        return rows


def prepare_work(work: Work, folder: Path, n: int = 2048) -> tuple[Recipe, RunContext]:
    """GRPO on the work, its files written into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prompts.jsonl").write_text("".join(json.dumps(r) + "\n" for r in work.rows(n)))
    (folder / "reward.py").write_text(REWARD)
    bench = from_data(str(folder / "prompts.jsonl"), "", f"{folder / 'reward.py'}:score")
    source = work.source(folder) if work.positions else work.model
    settings = Settings(
        model=source,
        dtype=work.dtype,
        lora=work.lora,
        load_in_4bit=work.load_in_4bit,
        optim=work.optim,
        set={
            "schedule.prompts": work.prompts,
            "collect.sample.n": work.group,
            "collect.sample.max_tokens": work.max_tokens,
            "update.budget": work.budget,
        },
    )
    lora = LoRA(rank=work.lora, load_in_4bit=work.load_in_4bit) if work.lora else None
    model = load(source, dtype=work.dtype, device=work.device, lora=lora)
    model.recompute = work.recompute
    if work.full:
        model.eos = frozenset()
    recipe = overrides.recipe_of(settings)
    assert isinstance(recipe, Recipe)
    return recipe, RunContext(
        bench=bench,
        seed=0,
        models={"policy": model},
        drive=train,
        out=folder,
        cache_mb=work.cache_mb,
        lora=lora,
    )
