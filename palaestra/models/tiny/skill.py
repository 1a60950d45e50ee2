"""What the tiny model can do before any reinforcement learning: `python -m palaestra.models.tiny.skill [DIR]`.

Greedy, sampled (temperature 1) and pass@k accuracy on test splits, written to `skill.json` beside the weights. pass@k is
the unbiased estimate 1 - C(n-c, k) / C(n, k) from n samples of which c are right (arXiv:2107.03374, equation 1).
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM

from palaestra.models.tiny import tokenizer as tokens
from palaestra.models.tiny.build import encode
from palaestra.tasks.chain import Chain
from palaestra.types import Message, Task, seed_of

Check = Callable[[str, Task], float]
HERE = Path(__file__).parent
CHUNK = 256  # rows decoded together


@torch.inference_mode()
def replies(
    model: LlamaForCausalLM, prompts: Sequence[Sequence[Message]], temperature: float, seed: int, max_new: int = 96
) -> list[str]:
    """One reply a conversation, decoded in chunks of similar length."""
    torch.manual_seed(seed)
    rows = [[*encode(tuple(p))[0], tokens.ASSISTANT] for p in prompts]
    order, found = sorted(range(len(rows)), key=lambda i: len(rows[i])), [""] * len(rows)
    for at in range(0, len(order), CHUNK):
        chunk = order[at : at + CHUNK]
        longest = len(rows[chunk[-1]])
        ids_BT = torch.tensor([[tokens.PAD] * (longest - len(rows[i])) + rows[i] for i in chunk])
        how: dict[str, Any] = {"do_sample": temperature > 0, "max_new_tokens": max_new}
        how |= {"temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature > 0 else {}
        said_BT = model.generate(input_ids=ids_BT, attention_mask=(ids_BT != tokens.PAD).long(), **how)[:, longest:]
        for i, ids in zip(chunk, said_BT.tolist(), strict=True):
            body = ids[: ids.index(tokens.END)] if tokens.END in ids else ids
            found[i] = bytes(b for b in body if b < 256).decode(errors="replace")
    return found


def pass_at(k: int, right: int, n: int) -> float:
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)


def measured(model: LlamaForCausalLM, tasks: Sequence[Task], check: Check, n: int = 16) -> dict[str, float]:
    """Accuracies over `tasks`, `n` samples each."""
    prompts = [t.prompt for t in tasks]
    greedy = replies(model, prompts, 0.0, 0)
    sampled = replies(model, [p for p in prompts for _ in range(n)], 1.0, seed_of(("skill", len(tasks), n)) % 2**31)
    scores = [[check(sampled[i * n + j], t) for j in range(n)] for i, t in enumerate(tasks)]
    right = [round(sum(s)) for s in scores]
    return {
        "tasks": len(tasks),
        "samples": n,
        "greedy": round(sum(check(g, t) for g, t in zip(greedy, tasks, strict=True)) / len(tasks), 3),
        "sampled": round(sum(right) / n / len(tasks), 3),
        **{f"pass@{k}": round(sum(pass_at(k, c, n) for c in right) / len(tasks), 3) for k in (4, 8) if k <= n},
        "bytes": round(sum(map(len, sampled)) / len(sampled), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the tiny model.")
    parser.add_argument("dir", nargs="?", type=Path, default=HERE)
    parser.add_argument("--tasks", type=int, default=100)
    args = parser.parse_args()
    model = LlamaForCausalLM.from_pretrained(args.dir).eval()
    skill = {"chain": measured(model, [Chain().task("test", i) for i in range(args.tasks)], Chain().check)}
    (args.dir / "skill.json").write_text(json.dumps(skill, indent=1) + "\n")
    print(json.dumps(skill, indent=1))


if __name__ == "__main__":
    main()
