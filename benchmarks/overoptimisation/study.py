"""KL against gold reward: the cells of the study of over-optimisation.

    python -m benchmarks.overoptimisation.study --out benchmarks/overoptimisation/results.json

Each seed makes its own start by imitation, and its own reward model (the proxy) from few pairs of a right and a wrong answer
of the start, of which a tenth are turned round. Then the proxy is optimised in three ways from the same start: best of n,
DPO on pairs of the policy's own answers that the proxy ranks, and PPO with the proxy as its reward. Each point of a curve has
the KL to the start in nats an answer, the proxy's mean score, and the gold reward: the share of right answers at temperature
1 to held-out problems, by the verifier, which nothing was trained with. Cells that the file has are not run again.
`declared.json` beside this file has what was settled before the first cell.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl
from benchmarks.cells import CellFile, parser_of
from benchmarks.losses.study import flipped
from benchmarks.searches.study import pairs_of, reward_model, unlike
from palaestra.engines.own import OwnEngine
from palaestra.models.load import load
from palaestra.models.score import score_pairs
from palaestra.rewards.learned import RewardModel
from palaestra.run import built_in
from palaestra.tasks.spec import parse_spec
from palaestra.types import Completion, Message, Sampling

DECLARED: dict[str, Any] = json.loads((Path(__file__).parent / "declared.json").read_text())
Ids = tuple[int, ...]
LEARNED = ("dpo", "ppo")
FILE = CellFile(("starts", "cells"))
WAYS = ("best of n", *LEARNED)


def source(stream: str) -> Any:
    """The problems of a stream, known by its name for runs of this process."""
    (part,) = parse_spec(DECLARED["task"], "task")
    questions: Any = built_in.QUESTIONS
    questions[stream] = partial(questions[part.name], **part.settings, name=stream)
    return questions[stream]()


def train(recipe: Any, model: str, seed: int, out: Path, **more: Any) -> Any:
    return pl.train(
        recipe, model=model, seed=seed, evaluate=0, rollouts="none", max_tokens=DECLARED["max tokens"], quiet=True, out=out,
        **more,
    )  # fmt: skip


def start(folder: Path, stream: str, seed: int) -> str:
    """The model that everything of a seed starts from."""
    given = DECLARED["start"]
    recipe = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(pl.Demonstrate()),
        optimiser=pl.AdamW(lr=given["rate"], warmup=5),
        schedule=pl.Schedule(prompts=32, steps=given["steps"]),
    )
    run = train(recipe, "tiny", seed, folder / "start", task=stream, checkpoint_every=10**6)
    return str(run.summary["artifacts"]["policy"])


# ---- answers and what they are worth


def sample(model: str, tasks_P: Sequence[pl.Task], n: int, key: pl.Key) -> tuple[list[Ids], list[list[Completion]]]:  # fmt: skip
    """The prompts' tokens, and `n` answers to each at temperature 1."""
    engine = OwnEngine(load(model), slots=64)
    sampling = Sampling(max_tokens=DECLARED["max tokens"], temperature=1.0)
    prompts = list[Ids]()
    for task in tasks_P:
        pieces = engine.dialect.extend(task.prompt, first=True, closed=False)
        prompts.append(tuple(x for p in pieces for x in p.ids))

    async def ask() -> list[Completion]:
        return await asyncio.gather(
            *(engine.generate(ids, sampling, (*key, i, j)) for i, ids in enumerate(prompts) for j in range(n))
        )  # fmt: skip

    made = asyncio.run(ask())
    engine.close()
    return prompts, [made[i * n : (i + 1) * n] for i in range(len(prompts))]


def proxy_scores(scorer: str, tasks_P: Sequence[pl.Task], texts: Sequence[Sequence[str]]) -> np.ndarray:  # fmt: skip
    """[P, n] the reward model's scores."""
    pairs = [(t, x) for t, each in zip(tasks_P, texts, strict=True) for x in each]
    return RewardModel(scorer).scores(load(scorer), pairs).reshape(len(tasks_P), -1)


def gold_rewards(tasks: Any, tasks_P: Sequence[pl.Task], texts: Sequence[Sequence[str]]) -> np.ndarray:  # fmt: skip
    """[P, n] 1 where the verifier calls an answer right."""
    return np.array([[float(tasks.check(x, t)) for x in each] for t, each in zip(tasks_P, texts, strict=True)])  # fmt: skip


def rises(start_model: str, prompts: Sequence[Ids], answers: Sequence[Sequence[Completion]]) -> list[float]:  # fmt: skip
    """log p(policy) - log p(start) of each answer, in nats: their mean estimates KL(policy || start)."""
    flat = [(ids, c) for ids, each in zip(prompts, answers, strict=True) for c in each if c.ids]
    of_start = score_pairs(load(start_model), [(ids, c.ids) for ids, c in flat])
    return [float(sum(c.logp) - x.sum()) for (_, c), x in zip(flat, of_start, strict=True)]


# ---- best of n


def closed_form(n: int) -> float:
    """An upper bound of the KL of best of n to what it samples from, in nats; exact without ties."""
    return float(np.log(n) - (n - 1) / n)


def chances_of_best(scores_N: np.ndarray, n: int) -> np.ndarray:
    """[N] the chance that each of N answers is the best of `n` that are drawn from them with replacement; equal scores
    share theirs.
    """
    order = np.sort(scores_N)
    below = np.searchsorted(order, scores_N, side="left") / len(order)
    upto = np.searchsorted(order, scores_N, side="right") / len(order)
    return (upto**n - below**n) / ((upto - below) * len(order))


def kl_of_best(scores_N: np.ndarray, texts_N: Sequence[str], n: int) -> float:
    """KL of best of n to the samples' own distribution over texts, in nats: what is measured."""
    chance, own = dict[str, float](), dict[str, float]()
    for text, p in zip(texts_N, chances_of_best(scores_N, n), strict=True):
        chance[text] = chance.get(text, 0.0) + float(p)
        own[text] = own.get(text, 0.0) + 1 / len(texts_N)
    return sum(p * float(np.log(p / own[t])) for t, p in chance.items() if p > 0)


def best_curve(scores_PN: np.ndarray, gold_PN: np.ndarray, texts: Sequence[Sequence[str]]) -> list[dict[str, float]]:  # fmt: skip
    """A point for each n, the mean over problems."""
    points = list[dict[str, float]]()
    for n in DECLARED["best of"]:
        w_PN = np.array([chances_of_best(s, n) for s in scores_PN])
        kl = np.mean([kl_of_best(s, t, n) for s, t in zip(scores_PN, texts, strict=True)])
        points.append({
            "at": n, "kl": float(kl), "closed form": closed_form(n),
            "gold": float((w_PN * gold_PN).sum(1).mean()), "proxy": float((w_PN * scores_PN).sum(1).mean()),
        })  # fmt: skip
    return points


# ---- cells


def recipe_of(way: str) -> Any:
    """Both learn from as many answers in as many steps, with one rate; all else is the recipe's default."""
    given = DECLARED["learned"]
    made: Any = pl.vary(
        pl.recipe(way),
        collect=pl.links(pl.Sample(n=given["samples"]), pl.Score()),
        schedule=pl.Schedule(prompts=given["prompts"], steps=given["steps"]),
    )
    return pl.override(made, "learners.policy.optimiser", pl.AdamW(lr=given["rate"], warmup=3))


class Block:
    """A seed: its start, its reward model, its held-out problems, and what best of n makes of them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed, self.stream = folder, seed, f"gold-{seed}"
        self.tasks = source(self.stream)
        self.model = start(folder, self.stream, seed)
        self.held_out = unlike(self.tasks, "test", DECLARED["problems"])
        given = DECLARED["pairs"]
        train_tasks = unlike(self.tasks, "train", given["prompts"])
        _, made = sample(self.model, train_tasks, given["samples"], ("pairs", seed))
        texts = [[c.text for c in each] for each in made]
        rng = np.random.default_rng(seed)
        every = pairs_of(train_tasks, texts, self.tasks.check, given["prompts"], rng)
        pairs = flipped(every[: given["kept"]], given["flipped"], seed)
        self.scorer, _ = reward_model(
            folder, self.model, pairs, seed, given, DECLARED["max tokens"]
        )
        self.facts = {"pairs": len(pairs), "ranked right": self.ranked_right(every[given["kept"] :])}  # fmt: skip

    def ranked_right(self, pairs: Sequence[Mapping[str, str]]) -> float:
        """The share of unseen, true pairs whose right answer the proxy scores more; a tie is half a hit."""
        asked = [pl.Task(id="", prompt=(Message(role="user", content=p["prompt"]),)) for p in pairs]
        s_P2 = proxy_scores(self.scorer, asked, [[p["chosen"], p["rejected"]] for p in pairs])
        return round(float(np.mean((1 + np.sign(s_P2[:, 0] - s_P2[:, 1])) / 2)), 4)

    def point(self, model: str, at: int) -> dict[str, float]:
        """A policy on the held-out problems."""
        n = DECLARED["learned"]["answers"]
        prompts, made = sample(model, self.held_out, n, ("held out", self.seed, at))
        texts = [[c.text for c in each] for each in made]
        return {
            "at": at, "kl": float(np.mean(rises(self.model, prompts, made))),
            "gold": float(gold_rewards(self.tasks, self.held_out, texts).mean()),
            "proxy": float(proxy_scores(self.scorer, self.held_out, texts).mean()),
            "tokens": float(np.mean([len(c.ids) for each in made for c in each])),
        }  # fmt: skip

    def run(self, way: str) -> list[dict[str, float]]:
        """The curve of a way to optimise the proxy, from the start on."""
        if way == "best of n":
            _, made = sample(self.model, self.held_out, DECLARED["pool"], ("pool", self.seed))
            texts = [[c.text for c in each] for each in made]
            scores_PN = proxy_scores(self.scorer, self.held_out, texts)
            return best_curve(scores_PN, gold_rewards(self.tasks, self.held_out, texts), texts)
        given = DECLARED["learned"]
        rows = [
            {"id": str(i), "prompt": t.prompt[0].content}
            for i, t in enumerate(unlike(self.tasks, "train", given["prompts"] * given["steps"]))
        ]
        run = train(
            recipe_of(way), self.model, self.seed, self.folder / way, data=rows, test_data=rows[:2], reward=self.scorer,
            checkpoint_every=1, keep=given["steps"],
        )  # fmt: skip
        last = Path(run.summary["artifacts"]["policy"])
        points = [self.point(self.model, 0)]
        for step in given["measured"]:
            points.append(self.point(str(last.with_name(f"step-{step}")), step))
        return points


def run_seed(file: Path, seed: int, ways: Sequence[str] = WAYS) -> None:
    missing = [way for way in ways if not FILE.has(file, f"{way}/{seed}")]
    if not missing:
        return
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        block = Block(Path(folder), seed)
        facts = {**block.facts, "seconds": round(time.process_time() - began, 1)}
        for way in missing:
            began = time.process_time()
            points = [{k: round(x, 4) for k, x in p.items()} for p in block.run(way)]
            took = round(time.process_time() - began, 1)
            cell = {"points": points, "seconds": took}
            FILE.keep(file, starts=(f"{seed}", facts), cells=(f"{way}/{seed}", cell))
            print(seed, facts, way, points, took, flush=True)


def main() -> None:
    parser = parser_of(__doc__, DECLARED["seeds"])
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    given = parser.parse_args()
    for seed in given.seeds:
        run_seed(given.out, seed, given.ways)


if __name__ == "__main__":
    main()
