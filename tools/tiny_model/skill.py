"""What the tiny model can do before any reinforcement learning:
`python -m tools.tiny_model.skill [DIR]`.

Greedy, sampled (temperature 1) and pass@k accuracy on test splits, written to `skill.json` beside
the weights. pass@k is the unbiased estimate 1 - C(n-c, k) / C(n, k) from n samples of which c are
right (arXiv:2107.03374, equation 1).
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

import palaestra
from palaestra.tasks import phrasing as formats
from palaestra.toys.chain import ArithmeticChain
from palaestra.toys.count import Count
from palaestra.toys.grid import Grid, GridTasks
from palaestra.toys.hop import Hop, HopTasks
from palaestra.toys.knights import Knights
from palaestra.toys.ladder import Add, Bool, Sort
from palaestra.toys.mistakes import wrong_answer
from palaestra.toys.rec import Rec
from palaestra.toys.words import Words
from palaestra.types import Act, Message, Task, rng_of, seed_of
from palaestra.worlds.tictactoe import TicTacToeTasks
from tools.tiny_model.sample import replies

HERE = Path(palaestra.__file__).parent / "models" / "tiny"
Talk = tuple[Message, ...]
Numbers = dict[str, float]


def pass_at(k: int, right: int, n: int) -> float:
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)


def table(greedy: Sequence[float], sampled: Sequence[Sequence[float]]) -> Numbers:
    """Greedy score by task, sampled scores by task and sample."""
    n = len(sampled[0])
    return {
        "tasks": len(sampled),
        "samples": n,
        "greedy": round(sum(greedy) / len(greedy), 3),
        "sampled": round(sum(map(sum, sampled)) / n / len(sampled), 3),
        **{
            f"pass@{k}": round(sum(pass_at(k, round(sum(s)), n) for s in sampled) / len(sampled), 3)
            for k in (4, 8)
        },
    }


def answering(
    model: LlamaForCausalLM, talks: Sequence[Talk], check: Callable[[str, int], float], n: int
) -> Numbers:
    """Single replies; `check(reply, i)` scores a reply to conversation i."""
    greedy = replies(model, talks, 0.0, 0)
    sampled = replies(
        model, [t for t in talks for _ in range(n)], 1.0, seed_of(("skill", len(talks), n))
    )
    scores = [[check(sampled[i * n + j], i) for j in range(n)] for i in range(len(talks))]
    return table([check(g, i) for i, g in enumerate(greedy)], scores) | {
        "bytes": round(sum(map(len, sampled)) / len(sampled), 1)
    }


def solving(model: LlamaForCausalLM, tasks: Any, count: int, n: int) -> Numbers:
    chosen = [tasks.task("test", i) for i in range(count)]
    return answering(
        model, [t.prompt for t in chosen], lambda text, i: tasks.check(text, chosen[i]), n
    )


def playing(model: LlamaForCausalLM, world: Any, tasks: Any, count: int, n: int) -> Numbers:
    """Whole episodes of a one-seat world, all side by side."""
    chosen = [tasks.task("test", i) for i in range(count)]
    greedy = episodes(model, world, chosen, 0.0)
    sampled = episodes(model, world, [t for t in chosen for _ in range(n)], 1.0)
    return table(greedy, [sampled[i * n : i * n + n] for i in range(count)])


def episodes(
    model: LlamaForCausalLM, world: Any, tasks: Sequence[Task], temperature: float
) -> list[float]:
    frames, turn = [world.reset(t, ()) for t in tasks], 0
    talks: list[Talk] = [()] * len(tasks)
    while running := [i for i, f in enumerate(frames) if f.asks]:
        for i in running:
            talks[i] = (*talks[i], *frames[i].asks[0].say)
        said = replies(
            model, [talks[i] for i in running], temperature, seed_of(("episodes", turn)), max_new=24
        )
        for i, text in zip(running, said, strict=True):
            talks[i] = (*talks[i], Message(role="assistant", content=text))
            act = Act(ask=frames[i].asks[0], text=text, call=None, finish="eos", n_tokens=len(text))
            frames[i] = world.step(frames[i].state, (act,), ())
        turn += 1
    return [f.pay[("policy", "")] for f in frames]


def guided(model: LlamaForCausalLM, count: int, n: int) -> dict[str, Numbers]:
    """T-chain under each format: what a hint, an example, an instruction and each kind of feedback
    are worth.
    """
    chain, rng = ArithmeticChain(), rng_of(("guided",))
    tasks = [chain.task("test", i) for i in range(count)]
    worked = [chain.demonstration(t, rng, "work") for t in tasks]
    shots = [(t, w) for t, w in zip(tasks[1:] + tasks[:1], worked[1:] + worked[:1], strict=True)]
    wrong = [wrong_answer(chain, t, rng, "work") for t in tasks]
    after = [
        (*t.prompt, Message(role="assistant", content=w)) for t, w in zip(tasks, wrong, strict=True)
    ]
    at = [chain.first_wrong(w, t) or 0 for t, w in zip(tasks, wrong, strict=True)]
    talks: dict[str, list[Talk]] = {
        "hint, one step": [formats.add_hint(t, chain.steps(t)[:1]).prompt for t in tasks],
        "worked example": [
            formats.add_examples(t, [s]).prompt for t, s in zip(tasks, shots, strict=True)
        ],
        "think step by step": [
            formats.add_instruction(t, formats.THINK_STEPWISE).prompt for t in tasks
        ],
        "answer at once": [
            formats.add_instruction(t, formats.ANSWER_AT_ONCE).prompt for t in tasks
        ],
        "after: wrong": [(*a, formats.retry()) for a in after],
        "after: which line": [(*a, formats.critique(i)) for a, i in zip(after, at, strict=True)],
        "after: the answer": [
            (*a, formats.reveal_answer(t.answer)) for a, t in zip(after, tasks, strict=True)
        ],
    }
    found = {
        f"chain, {k}": answering(model, v, lambda x, i: chain.check(x, tasks[i]), n)
        for k, v in talks.items()
    }
    right = [i % 2 == 0 for i in range(count)]
    judged = [
        formats.judging_task(t, g if r else b, r)
        for t, g, b, r in zip(tasks, worked, wrong, right, strict=True)
    ]
    verdicts = answering(
        model, [j.prompt for j in judged], lambda x, i: chain.check(x, judged[i]), n
    )
    return found | {"judge of a worked chain": verdicts}


def moving(model: LlamaForCausalLM, count: int, n: int) -> Numbers:
    """Share of legal moves in tic-tac-toe openings."""
    tasks = [TicTacToeTasks().task("test", i) for i in range(count)]
    free = [{str(s) for s in range(9) if s not in t.meta["moves"]} for t in tasks]
    return answering(model, [t.prompt for t in tasks], lambda text, i: float(text in free[i]), n)


def skills(model: LlamaForCausalLM, count: int, n: int) -> dict[str, Numbers]:
    sources: dict[str, Any] = {
        "chain": ArithmeticChain(),
        "chain, 8 operands": ArithmeticChain(operands=(8, 8)),
    }
    sources |= {"count": Count(), "rec": Rec(), "words": Words()}
    sources |= {
        f"{s(d).name} d={d}": s(d) for s in (Add, Bool, Sort, Knights) for d in (1, 2, 3, 4, 6)
    }
    found = {name: solving(model, s, count, n) for name, s in sources.items()}
    found["hop"] = playing(model, Hop(), HopTasks(), count, n)
    found["grid"] = playing(model, Grid(), GridTasks(), count, n)
    found["tictactoe, legal"] = moving(model, count, n)
    return found | guided(model, count, n)


def line(name: str, numbers: Numbers) -> str:
    """A row of the data card's table."""
    return " | ".join(
        [name, *(f"{numbers[k]:.2f}" for k in ("greedy", "sampled", "pass@4", "pass@8"))]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the tiny model.")
    parser.add_argument("dir", nargs="?", type=Path, default=HERE)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--samples", type=int, default=16)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = LlamaForCausalLM.from_pretrained(args.dir).eval()
    found = skills(model, args.tasks, args.samples)
    (args.dir / "skill.json").write_text(json.dumps(found, indent=1) + "\n")
    print("\n".join(f"| {line(name, numbers)} |" for name, numbers in found.items()))


if __name__ == "__main__":
    main()
