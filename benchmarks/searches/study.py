"""Which search at equal tokens: the cells of the study of searches.

    python -m benchmarks.searches.study --out benchmarks/searches/results.json

A block is a task, a model and a seed, with problems of its own. Its model is a built-in one as it is, or taught by a short
imitation. Its reward model is the block's model with a head, trained on pairs of a right and a wrong answer that the model
itself sampled to training problems; each pair also gives a pair of beginnings with equally many lines. Every strategy then
gets the same tokens for each held-out problem: 320, and an eighth, a quarter and half of them. All strategies have the
settings that `palaestra search` gives them, and those that ask for scores ask the same reward model. Blocks that the file has
are not run again. `declared.json` beside this file has what was settled before the first block.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl
from benchmarks.cells import CellFile, parser_of
from benchmarks.losses.study import answers
from palaestra.run import built_in
from palaestra.tasks.spec import parse_spec

DECLARED: dict[str, Any] = json.loads((Path(__file__).parent / "declared.json").read_text())
FILE = CellFile(("blocks",))
TASKS: Mapping[str, Mapping[str, Any]] = DECLARED["tasks"]
TAUGHT = " taught"  # how models with a short imitation are called
STRATEGIES = ("best-of-n", "majority", "weighted", "beam", "mcts", "multi-round")
ORACLE = "best-of-n (oracle)"
SINGLE = {"Greedy": "one greedy answer", "Sampled": "one sampled answer"}


@dataclass(frozen=True)
class Greedy:
    """One answer, the likeliest token each time: what the model does without a search."""

    temperature: float = 0.0

    async def __call__(self, problem: pl.search.SearchProblem) -> pl.search.SearchResult:
        (answer,) = await problem.sample(1, self.temperature) or [None]
        return problem.result(answer, [answer] if answer else [])


@dataclass(frozen=True)
class Sampled(Greedy):
    """One answer at temperature 1."""

    temperature: float = 1.0


def source(task: str, stream: str) -> Any:
    """The problems of a task in a stream of its own, and known by its name for runs of this process."""
    (part,) = parse_spec(TASKS[task]["task"], "task")
    questions: Any = built_in.QUESTIONS
    made = partial(questions[part.name], **part.settings, name=stream)
    questions[stream] = made
    return made()


def unlike(tasks: Any, split: str, n: int) -> list[pl.Task]:
    """The first `n` problems of a split with different prompts."""
    found, at = dict[str, pl.Task](), 0
    while len(found) < n:
        task = tasks.task(split, at)
        found.setdefault(task.prompt[0].content, task)
        at += 1
    return list(found.values())


def start(folder: Path, task: str, model: str, stream: str, seed: int) -> str:
    """A built-in model, or one that imitated right workings for a few steps."""
    if not model.endswith(TAUGHT):
        return model
    recipe = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(pl.Demonstrate()),
        optimiser=pl.AdamW(lr=DECLARED["start rate"], warmup=5),
        schedule=pl.Schedule(prompts=32, steps=TASKS[task]["start steps"]),
    )
    run = pl.train(
        recipe, task=stream, model=model.removesuffix(TAUGHT), seed=seed, evaluate=0, rollouts="none",
        checkpoint_every=10**6, max_tokens=TASKS[task]["max tokens"], quiet=True, out=folder / "start",
    )  # fmt: skip
    return str(run.summary["artifacts"]["policy"])


# ---- the reward model


def pairs_of(
    tasks_N: Sequence[pl.Task], texts: Sequence[Sequence[str]], check: Any, n: int, rng: np.random.Generator
) -> list[dict[str, str]]:  # fmt: skip
    """Pairs of a right and a wrong answer to a problem, at most `n` and one of a problem."""
    made = list[dict[str, str]]()
    for task, each in zip(tasks_N, texts, strict=True):
        right = [t for t in each if check(t, task)]
        wrong = [t for t in each if t.strip() and not check(t, task)]
        if right and wrong:
            a, b = (x[int(rng.integers(len(x)))] for x in (right, wrong))
            made.append({"prompt": task.prompt[0].content, "chosen": a, "rejected": b})
    return [made[i] for i in rng.permutation(len(made))[:n]]


def beginnings(pairs: Sequence[Mapping[str, str]], rng: np.random.Generator) -> list[dict[str, str]]:  # fmt: skip
    """The first lines of both answers of each pair, equally many, where they differ and neither is empty."""
    made = list[dict[str, str]]()
    for pair in pairs:
        a, b = (pair[side].splitlines() for side in ("chosen", "rejected"))
        able = [
            k for k in range(1, min(len(a), len(b))) if a[:k] != b[:k] and "".join(a[:k]).strip() and "".join(b[:k]).strip()
        ]  # fmt: skip
        if able:
            k = able[int(rng.integers(len(able)))]
            made.append({**pair, "chosen": "\n".join(a[:k]), "rejected": "\n".join(b[:k])})
    return made


def reward_model(
    folder: Path,
    model: str,
    pairs: Sequence[Mapping[str, str]],
    seed: int,
    given: Mapping[str, Any],
    tokens: int,
) -> tuple[str, float]:
    """A folder of a reward model that learned from these pairs, and the share that it ranks right of others: every
    eighth pair is held out.
    """
    held = [dict(p, id=str(i)) for i, p in enumerate(pairs) if i % 8 == 0]
    train = [dict(p, id=str(i)) for i, p in enumerate(pairs) if i % 8]
    steps = max(1, given["passes"] * len(train) // given["batch"])
    recipe: Any = pl.vary(
        pl.recipe("reward-model"), schedule=pl.Schedule(prompts=given["batch"], steps=steps)
    )
    recipe = pl.override(recipe, "learners.reward.optimiser", pl.AdamW(lr=given["rate"], warmup=5))
    run = pl.train(
        recipe, data=train, test_data=held, model=model, seed=seed, evaluate=len(held), rollouts="none",
        checkpoint_every=10**6, max_tokens=tokens, quiet=True, out=folder / "scorer",
    )  # fmt: skip
    return str(run.summary["artifacts"]["reward"]), ranked_right(run)


def ranked_right(run: Any) -> float:
    """The share of held-out pairs whose right answer scores more."""
    return float(run.summary["ranking_after"]["mean"])


# ---- blocks


def run_block(folder: Path, task: str, model: str, seed: int) -> dict[str, Any]:
    """All strategies on the held-out problems of a block."""
    began = time.process_time()
    given, tokens = DECLARED["scorer"], TASKS[task]["max tokens"]
    stream = f"search-{task}-{seed}"
    tasks, rng = source(task, stream), np.random.default_rng(seed)
    policy = start(folder, task, model, stream, seed)
    train = unlike(tasks, "train", given["prompts"])
    texts = answers(policy, [t.prompt[0].content for t in train], tokens, 1.0, given["samples"], ("pairs", seed))  # fmt: skip
    pairs = pairs_of(train, texts, tasks.check, given["pairs"], rng)
    more = [*pairs, *beginnings(pairs, rng)]
    more = [more[i] for i in rng.permutation(len(more))]
    scorer, ranked = reward_model(folder, policy, more, seed, given, tokens)
    ready = time.process_time()
    made = pl.search.accuracy_curve(
        policy, task=stream, strategies=[*STRATEGIES, Greedy(), Sampled()], reward_model=scorer, budget=DECLARED["budget"],
        n=DECLARED["problems"], max_tokens=tokens, seed=seed, out=folder / "curve",
    )  # fmt: skip
    spent = spent_by(folder / "curve")
    cells = {
        SINGLE.get(name, name): {
            "accuracy": [round(p["mean"], 4) for p in curve["points"]],
            "tokens": [round(p["tokens"], 1) for p in curve["points"]],
        }
        for name, curve in made["curves"].items()
    }
    took = {"before": ready - began, "search": time.process_time() - ready}
    return {
        "budgets": made["budgets"],
        "pairs": len(pairs),
        "beginnings": len(more) - len(pairs),
        "ranked right": round(ranked, 4),
        "least and most tokens over the budget": spent,
        "strategies": cells,
        "seconds": {k: round(x, 1) for k, x in took.items()},
    }


def spent_by(folder: Path) -> list[float]:
    """The least and the most tokens of a problem, as a share of the budget, over all strategies but single answers."""
    shares = list[float]()
    for file in folder.glob("search/*/answers.jsonl"):
        if not any(name in file.parent.name for name in SINGLE):
            budget = int(file.parent.name.rsplit("-", 1)[1])
            shares += [json.loads(x)["tokens"] / budget for x in file.read_text().splitlines()]
    return [round(min(shares), 4), round(max(shares), 4)]


def main() -> None:
    names = {"models": DECLARED["models"], "tasks": list(TASKS)}
    given = parser_of(__doc__, DECLARED["seeds"], **names).parse_args()
    for model, task, seed in product(given.models, given.tasks, given.seeds):
        at = f"{task}/{model}/{seed}"
        if FILE.has(given.out, at, "blocks"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            made = run_block(Path(folder), task, model, seed)
        FILE.keep(given.out, blocks=(at, made))
        print(at, {k: c["accuracy"] for k, c in made["strategies"].items()}, made, flush=True)


if __name__ == "__main__":
    main()
