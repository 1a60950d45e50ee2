"""Which preference loss when: the cells of the study of losses.

    python -m benchmarks.losses.study --out benchmarks/losses/results.json
    python -m benchmarks.losses.study --out benchmarks/losses/smollm2.json --model smollm2

A problem is a chain of + - * modulo 9, worked line by line: of three numbers (short answers) or of six (long ones). Each
seed makes its own start by imitation, samples answers from it, and keeps pairs of a right and a wrong answer to the same
problem that have equally many tokens, both with an answer line, and whose answers are as often chosen as rejected. So
neither length nor the answer line alone tells which is the better one. Then a share of the pairs is turned round, and every
loss learns from the same pairs, in the same order, for as many updates. A cell is measured by the verifier: the share of
held-out problems that the greedy answer solves, and that a sampled one does. Each loss has one learning rate, chosen from
one grid on a seed that is not reported. Cells that the file has are not run again.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl
from benchmarks.cells import CellFile, parser_of
from palaestra.engines.own import OwnEngine
from palaestra.models.load import load
from palaestra.run import built_in
from palaestra.tasks.procedural import final_answer
from palaestra.types import Message, Sampling

DECLARED: dict[str, Any] = json.loads((Path(__file__).parent / "declared.json").read_text())
FILE = CellFile(("starts", "tuning", "cells"))
LENGTHS: Mapping[str, int] = DECLARED["lengths"]  # numbers in a chain
MODULO = 9
PROMPTS, SAMPLES, HELD_OUT = 480, 4, 192  # from which pairs are made; held-out problems
ROBUST = 0.2  # the share of flipped labels that the two smoothed losses assume, in every cell

LOSSES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "dpo": ("dpo", {"pairs": "data"}),
    "conservative dpo": ("dpo", {"pairs": "data", "smoothing": ROBUST}),
    "robust dpo": ("dpo", {"pairs": "data", "smoothing": ROBUST, "robust": True}),
    "rpo": ("dpo", {"pairs": "data", "sft": 1.0}),
    "ipo": ("ipo", {}),
    "kto": ("kto", {}),
    "orpo": ("orpo", {}),
    "simpo": ("simpo", {}),
    "cpo": ("cpo", {}),
    "aot": ("aot", {}),
    "imitation": ("sft", {}),  # of the chosen answers: no member of the family
}
LABELLED = ("kto",)  # reads answers one by one


def source(length: str) -> Any:
    n = LENGTHS[length]
    return pl.toys.ArithmeticChain(operands=(n, n), modulo=MODULO)


def problems(length: str, split: str, seed: int, n: int) -> list[tuple[str, str]]:
    """Prompts and answers, each prompt once."""
    tasks, found, at = source(length), dict[str, str](), 100_000 * seed
    while len(found) < n:
        task = tasks.task(split, at)
        found[task.prompt[0].content] = str(task.answer)
        at += 1
    return list(found.items())


def max_tokens(length: str) -> int:
    return 8 * LENGTHS[length] + 8


def start_task(length: str, seed: int) -> str:
    """The task that a start is shown, for runs of this process: problems of its seed's own stream. That of the tuning
    seed has the package's name.
    """
    n = LENGTHS[length]
    if seed == DECLARED["tuning seed"]:
        return f"chain(operands=({n},{n}),modulo={MODULO})"
    questions: Any = built_in.QUESTIONS
    name = f"start-{length}-{seed}"
    questions[name] = partial(pl.toys.ArithmeticChain, operands=(n, n), modulo=MODULO, name=name)
    return name


def start(folder: Path, length: str, seed: int, model: str) -> str:
    """The model that all losses of a seed start from."""
    recipe = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(pl.Demonstrate()),
        optimiser=pl.AdamW(lr=DECLARED["start rate"][model], warmup=5),
        schedule=pl.Schedule(prompts=32, steps=DECLARED["start steps"][model][length]),
    )
    run = pl.train(
        recipe, task=start_task(length, seed), model=model, seed=seed, evaluate=0, rollouts="none",
        checkpoint_every=10**6, max_tokens=max_tokens(length), quiet=True, out=folder / "start",
    )  # fmt: skip
    return str(run.summary["artifacts"]["policy"])


def answers(
    model: str, prompts: Sequence[str], tokens: int, temperature: float, n: int, key: pl.Key
) -> list[list[str]]:
    """`n` answers to each prompt."""
    engine = OwnEngine(load(model), slots=64)
    sampling = Sampling(max_tokens=tokens, temperature=temperature)

    async def ask() -> list[Any]:
        each = list[Any]()
        for i, text in enumerate(prompts):
            pieces = engine.dialect.extend((Message(role="user", content=text),), first=True, closed=False)  # fmt: skip
            ids = tuple(x for p in pieces for x in p.ids)
            each += [engine.generate(ids, sampling, (*key, i, j)) for j in range(n)]
        return await asyncio.gather(*each)

    made = asyncio.run(ask())
    engine.close()
    return [[c.text for c in made[i * n : (i + 1) * n]] for i in range(len(prompts))]


def rate_right(texts: Sequence[Sequence[str]], right: Sequence[str]) -> float:
    return float(np.mean([final_answer(t) == a for each, a in zip(texts, right, strict=True) for t in each]))  # fmt: skip


def readable(text: str) -> bool:
    said = final_answer(text)
    return said is not None and said.isdigit() and int(said) < MODULO


def candidates(problems_N: Sequence[tuple[str, str]], texts: Sequence[Sequence[str]]) -> list[list[dict[str, str]]]:  # fmt: skip
    """By problem: pairs of a right and a wrong answer that are equally long and name a number."""
    found = list[list[dict[str, str]]]()
    for (prompt, answer), each in zip(problems_N, texts, strict=True):
        able = [t for t in each if readable(t)]
        right = [t for t in able if final_answer(t) == answer]
        wrong = [t for t in able if final_answer(t) != answer]
        pairs = [
            {"prompt": prompt, "answer": answer, "chosen": a, "rejected": b}
            for a, b in product(right, wrong)
            if len(a) == len(b)
        ]
        if pairs:
            found.append(pairs)
    return found


def balanced(found: Sequence[Sequence[dict[str, str]]], n: int, rng: np.random.Generator) -> list[dict[str, str]]:  # fmt: skip
    """At most `n` pairs, one of a problem, such that each answer is chosen about as often as rejected."""
    left, more, kept = [list(x) for x in found], Counter[str](), list[dict[str, str]]()

    def worse(pair: Mapping[str, str]) -> int:
        return more[str(final_answer(pair["chosen"]))] - more[str(final_answer(pair["rejected"]))]

    while left and len(kept) < n:
        order = rng.permutation(len(left))
        best = min(order, key=lambda i: min(map(worse, left[i])))
        pair = min(left.pop(best), key=worse)
        more[str(final_answer(pair["chosen"]))] += 1
        more[str(final_answer(pair["rejected"]))] -= 1
        kept.append(pair)
    return [kept[i] for i in rng.permutation(len(kept))]


def blind_accuracy(pairs: Sequence[Mapping[str, str]]) -> dict[str, float]:
    """What rules that read no problem get right of the pairs; a tie is half a hit. "length" prefers the longer answer,
    "answer line" the answer that is chosen more often than rejected in these very pairs, so it is an upper bound.
    """
    more = Counter[str]()
    for p in pairs:
        more[str(final_answer(p["chosen"]))] += 1
        more[str(final_answer(p["rejected"]))] -= 1
    length, line = list[float](), list[float]()
    for p in pairs:
        a, b = (str(final_answer(p[x])) for x in ("chosen", "rejected"))
        length.append(0.5 + 0.5 * np.sign(len(p["chosen"]) - len(p["rejected"])))
        line.append(0.5 + 0.5 * np.sign(more[a] - more[b]))
    return {"length": round(float(np.mean(length)), 4), "answer line": round(float(np.mean(line)), 4)}  # fmt: skip


def flipped(pairs: Sequence[dict[str, str]], share: float, seed: int) -> list[dict[str, str]]:
    """The pairs with exactly this share turned round; who is turned at a small share is so at a larger one."""
    order = np.random.default_rng(50_000 + seed).permutation(len(pairs))
    turned = set(order[: round(share * len(pairs))].tolist())
    return [
        {**p, "chosen": p["rejected"], "rejected": p["chosen"]} if i in turned else dict(p)
        for i, p in enumerate(pairs)
    ]


def rows_for(arm: str, pairs: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """The data of an arm: pairs, answers with labels, or the chosen answers."""
    rows = list[dict[str, Any]]()
    for i, p in enumerate(pairs):
        shared = {"prompt": p["prompt"], "answer": p["answer"]}
        if arm == "imitation":
            rows.append({**shared, "id": f"{i}", "demonstration": p["chosen"]})
        elif arm in LABELLED:
            rows += [
                {**shared, "id": f"{i}-{side}", "response": p[side], "right": side == "chosen"}
                for side in ("chosen", "rejected")
            ]
        else:
            rows.append({**shared, "id": f"{i}", "chosen": p["chosen"], "rejected": p["rejected"]})
    return rows


def recipe_of(arm: str, rate: float, pairs: int) -> pl.Recipe:
    """An arm: as many updates, on the answers to as many problems."""
    name, options = LOSSES[arm]
    steps = pairs // DECLARED["pairs a step"]
    each = 2 if arm in LABELLED else 1
    made: Any = pl.vary(
        pl.recipe(name, **options),
        schedule=pl.Schedule(
            prompts=each * DECLARED["pairs a step"], steps=steps * DECLARED["passes"]
        ),
    )
    return pl.override(made, "learners.policy.optimiser", pl.AdamW(lr=rate, warmup=3))


def exactly(response: str, answer: str) -> float:
    return float(final_answer(response) == answer)


def measure(model: str, length: str, seed: int, sets: Sequence[tuple[str, str]]) -> dict[str, float]:  # fmt: skip
    """Rates of right answers to held-out problems."""
    prompts, right = zip(*sets, strict=True)
    rates = {
        name: rate_right(
            answers(model, prompts, max_tokens(length), t, 1, ("held out", seed, name)), right
        )
        for name, t in (("greedy", 0.0), ("sampled", 1.0))
    }
    return {name: round(x, 4) for name, x in rates.items()}


class Block:
    """A seed at a length: its start, its pairs, and its held-out problems."""

    def __init__(self, folder: Path, length: str, seed: int, model: str) -> None:
        self.folder, self.length, self.seed = folder, length, seed
        self.model = start(folder, length, seed, model)
        train = problems(length, "train", 1 + seed, PROMPTS)
        texts = answers(self.model, [p for p, _ in train], max_tokens(length), 1.0, SAMPLES, ("pairs", seed))  # fmt: skip
        rng = np.random.default_rng(40_000 + seed)
        self.pairs = balanced(candidates(train, texts), DECLARED["pairs"], rng)
        self.sets = problems(length, "test", 1 + seed, HELD_OUT)
        self.facts = {
            **measure(self.model, length, seed, self.sets),
            "pairs": len(self.pairs),
            "blind": blind_accuracy(self.pairs),
        }

    def run(self, arm: str, flips: float, rate: float) -> dict[str, Any]:
        """Trains an arm, and measures it."""
        began, pairs = time.process_time(), flipped(self.pairs, flips, self.seed)
        out = self.folder / f"{arm}-{flips}-{rate}".replace(" ", "-")
        run = pl.train(
            recipe_of(arm, rate, len(pairs)), data=(rows := rows_for(arm, pairs)), test_data=rows[:2], reward=exactly,
            model=self.model, seed=self.seed, evaluate=0, rollouts="none", checkpoint_every=10**6,
            max_tokens=max_tokens(self.length), quiet=True, out=out,
        )  # fmt: skip
        made = measure(str(run.summary["artifacts"]["policy"]), self.length, self.seed, self.sets)
        return {**made, "rate": rate, "seconds": round(time.process_time() - began, 1)}


def best_rates(results: Mapping[str, Any]) -> dict[str, float]:
    """Of each loss the rate with the best greedy answers, the mean over lengths of the tuning seed; of equal ones the
    smaller.
    """
    sums = dict[str, Counter[float]]()
    for at, cell in results["tuning"].items():
        sums.setdefault(at.split("/")[1], Counter())[cell["rate"]] += cell["greedy"]
    return {arm: min(x, key=lambda r: (-x[r], r)) for arm, x in sums.items()}


def cells_of(
    seed: int, length: str, tuning: bool, rates: Mapping[str, float]
) -> list[tuple[str, str, float, float]]:
    """Name, arm, flips and rate of each cell of a block."""
    if tuning:
        grid: list[float] = DECLARED["rates"]
        return [
            (f"{length}/{arm}/{rate:g}/{seed}", arm, float(DECLARED["tuning flips"]), rate)
            for arm in LOSSES
            for rate in grid
        ]
    shares: list[float] = DECLARED["flips"]
    return [
        (f"{length}/{arm}/{flips:g}/{seed}", arm, flips, rates[arm])
        for flips in shares
        for arm in LOSSES
    ]


def run_block(file: Path, length: str, seed: int, model: str, tuning: bool) -> None:
    place = "tuning" if tuning else "cells"
    results = FILE.read(file)
    rates = best_rates(results)
    missing = [c for c in cells_of(seed, length, tuning, rates) if c[0] not in results[place]]
    if not missing:
        return
    with tempfile.TemporaryDirectory() as folder:
        block = Block(Path(folder), length, seed, model)
        print(length, seed, block.facts, flush=True)
        for name, arm, flips, rate in missing:
            made = block.run(arm, flips, rate)
            FILE.keep(file, starts=(f"{length}/{seed}", block.facts), **{place: (name, made)})
            print(name, made, flush=True)


def main() -> None:
    parser = parser_of(__doc__, DECLARED["seeds"])
    parser.add_argument("--model", default="tiny", choices=list(DECLARED["start steps"]))
    given = parser.parse_args()
    for length in LENGTHS:
        run_block(given.out, length, DECLARED["tuning seed"], given.model, tuning=True)
    for seed, length in product(given.seeds, LENGTHS):
        run_block(given.out, length, seed, given.model, tuning=False)


if __name__ == "__main__":
    main()
