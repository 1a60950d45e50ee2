"""Ways to rank what BM25 finds, from one small model at as many calls in training: the cells of the study of rankings.

    python -m benchmarks.ranking.collections FOLDER
    python -m benchmarks.ranking.study FOLDER --out benchmarks/ranking/results.json
    python -m benchmarks.ranking.study FOLDER --out /tmp/pilot.json --seeds 3000 --arms iranker

A cell is a collection, an arm and a seed. It trains the arm with CALLS calls of the model, demonstrations and samples
alike, and ranks every test query; its numbers are those of each query. Cells that the file has are not run again, so the
command may be stopped and repeated. `declared.json` beside this file has what was settled before the first cell.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import palaestra as pl
from benchmarks.cells import CellFile, parser_of
from benchmarks.ranking.collections import K
from palaestra.store.checkpoint import write_atomic
from palaestra.verifiers.ranking import ndcg, reciprocal_rank

DECLARED: dict[str, Any] = json.loads((Path(__file__).parent / "declared.json").read_text())
FILE = CellFile(indent=None, separators=(",", ":"))
CALLS, BATCH = DECLARED["calls"], DECLARED["batch"]
SHOWN, LEARNED = DECLARED["rates"]["imitation"], DECLARED["rates"]["rl"]
HALF = CALLS // BATCH // 2  # steps of half the calls
MODEL = "tiny-agent"
YES, NO, ORDER = "yes", "no", 24  # answers, and tokens of a written order

Query = Mapping[str, Any]
Orders = dict[str, list[str]]  # ids of documents, best first, by the query's id


class Cell:
    """One arm in training: a folder, the queries of a collection, and a seed."""

    def __init__(self, folder: Path, collection: Mapping[str, Any], seed: int):
        self.folder, self.seed = folder, seed
        self.test: Sequence[Query] = collection["test"]
        # a query whose relevant document is no candidate teaches no reranker
        self.train = [q for q in collection["train"]
                      if any(i["id"] in q["gold"] for i in q["items"])]  # fmt: skip
        self.docs = folder / "docs.jsonl"
        lines = (json.dumps({"id": i, "text": text}) for i, text in collection["docs"].items())
        write_atomic(self.docs, "\n".join(lines) + "\n")
        self.notes: dict[str, float] = {}

    def learn(self, recipe: Any, rows: Sequence[Mapping[str, Any]], **more: Any) -> str:
        """Trains, and returns the folder of the model."""
        out = self.folder / "run"
        run = pl.train(
            recipe, data=list(rows), test_data=list(rows[:2]), model=MODEL, seed=self.seed, out=out,
            evaluate=0, rollouts="none", checkpoint_every=10**6, quiet=True, **more,
        )  # fmt: skip
        return str(run.summary["artifacts"]["policy"])

    def attempt(
        self, model: str, rows: Sequence[Mapping[str, Any]], **more: Any
    ) -> dict[str, Mapping[str, Any]]:
        """The facts of a greedy attempt at each query."""
        out = self.folder / "attempts"
        pl.evaluate(
            model, test_data=list(rows), data=list(rows[:2]), n=len(rows), k=1, out=out, **more
        )
        attempts = pl.open(out).attempts().to_pylist()
        assert len(attempts) == len(rows)
        return {a["task_id"]: json.loads(a["facts"] or "{}") for a in attempts}


def with_items(q: Query, items: Sequence[Any] = ()) -> dict[str, Any]:
    """A query with its candidates, as a row."""
    return {"id": q["id"], "prompt": q["prompt"], "gold": q["gold"], "items": items or q["items"]}


def plain(q: Query) -> dict[str, Any]:
    """A query alone, as a row."""
    return {"id": q["id"], "prompt": q["prompt"], "gold": q["gold"]}


def shifted(queries: Sequence[Query]) -> list[Query]:
    """A control: each candidate keeps its place and gets the words of another query's candidate. What is left
    of an order's quality comes from places alone.
    """
    words = [[i["text"].split(" ", 1)[1] for i in q["items"]] for q in queries]
    out = list[Query]()
    for n, q in enumerate(queries):
        donor = next(w for w in words[n + 1 :] + words if len(w) >= len(q["items"]))
        items = [{"id": i["id"], "text": f"#{p} {t}"}
                 for p, (i, t) in enumerate(zip(q["items"], donor, strict=False), 1)]  # fmt: skip
        out.append({**q, "items": items})
    return out


def behind(first: Sequence[str], q: Query) -> list[str]:
    """An order of the candidates, and what was found behind them."""
    return [*first, *(x for x in q["found"] if x not in first)]


def imitated(recipe: pl.Recipe, steps: int) -> pl.Recipe:
    """Every imitation of the study: one rate, one batch."""
    return pl.vary(
        recipe,
        schedule=pl.Schedule(prompts=BATCH, steps=steps),
        optimiser=pl.AdamW(lr=SHOWN, warmup=4),
    )


def reinforced(recipe: Any, prompts: int, steps: int) -> Any:
    """Every reinforcement of the study: one rate."""
    made = pl.override(recipe, "learners.policy.optimiser.lr", LEARNED)
    return pl.vary(made, schedule=replace(made.schedule, prompts=prompts, steps=steps))


# ---- arms: each returns what ranks queries


Ranker = Callable[[Sequence[Query]], Orders]


def bm25(cell: Cell) -> Ranker:
    """What is found, as it is."""
    return lambda queries: {q["id"]: list(q["found"]) for q in queries}


def pointwise(cell: Cell, times: int = 1) -> Ranker:
    """Every candidate alone, with its place: yes or no, by imitation, as many of either. The order is that of
    the log-odds of yes.
    """
    rng = np.random.default_rng(cell.seed)
    pairs = list[tuple[str, str]]()
    while len(pairs) < times * CALLS:
        q = cell.train[int(rng.integers(len(cell.train)))]
        for answer in (YES, NO):
            texts = [i["text"] for i in q["items"] if (i["id"] in q["gold"]) == (answer == YES)]
            if texts:
                pairs.append((asked(q, texts[int(rng.integers(len(texts)))]), answer))
    rows = [{"id": str(n), "prompt": p, "demonstration": a} for n, (p, a) in enumerate(pairs)]
    model = cell.learn(imitated(pl.recipe("sft"), times * 2 * HALF), rows, max_tokens=4)

    def rank(queries: Sequence[Query]) -> Orders:
        texts = [asked(q, i["text"]) for q in queries for i in q["items"]]
        odds = iter(log_odds(model, texts))
        scored = [(q, [(-next(odds), i["id"]) for i in q["items"]]) for q in queries]
        return {
            q["id"]: behind([name for _, name in sorted(s, key=lambda x: x[0])], q)
            for q, s in scored
        }

    return rank


def pointwise_tokens(cell: Cell) -> Ranker:
    """`pointwise` with about as many tokens as an arm that reads lists, and so with more calls."""
    return pointwise(cell, DECLARED["pointwise calls for as many tokens"])


def asked(q: Query, text: str) -> str:
    """What the pointwise baseline reads."""
    return f"{q['prompt']}\n\n{text}"


@torch.no_grad()
def log_odds(model: str, prompts: Sequence[str]) -> list[float]:
    """log p(yes) - log p(no) as the first token of the answer."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model).eval()
    yes, no = (tokenizer.encode(x, add_special_tokens=False)[0] for x in (YES, NO))
    out = list[float]()
    for prompt in prompts:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        logits = network(**tokenizer(text, add_special_tokens=False, return_tensors="pt")).logits
        out.append(float(logits[0, -1, yes] - logits[0, -1, no]))
    return out


def eliminate(cell: Cell, shown: int, learned: int) -> Ranker:
    """iranker: imitation of right drops in pools of 2 to K, then PPO."""
    made: Any = pl.recipe("iranker", pool=K, think=False, start="shown", exam=0)
    parts = {"shown": pl.warm(imitated(made.parts["shown"].runnable, shown))}
    if learned:
        rl = reinforced(made.parts["rl"].runnable, BATCH, learned)
        parts["rl"] = pl.Part(rl, model=pl.Output("shown"))
    world = {"env": f"eliminate(k={K},told=0,shuffle=0)", "max_tokens": 6}
    model = cell.learn(pl.Pipeline(parts=parts), [with_items(q) for q in cell.train], **world)

    def rank(queries: Sequence[Query]) -> Orders:
        facts = cell.attempt(
            model, [with_items(q) for q in queries if len(q["items"]) > 1], **world
        )
        cell.notes["unread"] = float(np.mean([f["malformed"] > 0 for f in facts.values()]))
        return {q["id"]: behind(facts.get(q["id"], {}).get("ranking", ()), q) for q in queries}

    return rank


def iranker(cell: Cell) -> Ranker:
    return eliminate(cell, HALF, HALF)


def drops_imitated(cell: Cell) -> Ranker:
    """iranker without PPO: all calls are demonstrations."""
    return eliminate(cell, 2 * HALF, 0)


def coranking(cell: Cell) -> Ranker:
    """A listwise reranker by imitation with half of the calls, which is small and large reranker in one; then its
    order adjuster: the small one's order, the adjuster's, and the large one's order of that.
    """
    made: Any = pl.recipe(
        "coranking", large=pl.LocalModel("large"), window=K, stride=2, samples=2, shuffles=2,
        small_steps=HALF, chosen_steps=1, distil=False, exam=0, tokens=ORDER,
    )  # fmt: skip
    given = DECLARED["coranking"]
    parts = {"small": pl.warm(imitated(made.parts["small"].runnable, HALF))}
    models = {"small": pl.Output("small"), "large": pl.Output("small")}
    for name, start in (("chosen", "small"), ("preferred", "chosen")):
        learned = reinforced(made.parts[name].runnable, given["prompts"], given[f"{name} steps"])
        part = pl.warm(learned) if name == "chosen" else pl.Part(learned)
        parts[name] = replace(part, model=pl.Output(start), models=models)
    world = {"env": f"listwise(k={K},deep={K},told=0)", "max_tokens": ORDER}
    adjuster = cell.learn(pl.Pipeline(parts=parts), [with_items(q) for q in cell.train], **world)
    reranker = str(pl.open(cell.folder / "run" / "small").summary["artifacts"]["policy"])

    def rank(queries: Sequence[Query]) -> Orders:
        items = {q["id"]: list(q["items"]) for q in queries}
        unread = list[bool]()
        for model in (reranker, adjuster, reranker):
            rows = [with_items(q, items[q["id"]]) for q in queries]
            for name, f in cell.attempt(model, rows, **world).items():
                items[name] = [items[name][n - 1] for n in f["order"]] or items[name]
                unread.append(not f["order"])
        cell.notes["unread"] = float(np.mean(unread))
        return {q["id"]: behind([i["id"] for i in items[q["id"]]], q) for q in queries}

    return rank


def rec_r1(cell: Cell) -> Ranker:
    """Imitation of the user's own words in the form of a query, then GRPO; BM25 searches with what is written. A
    message without a query searches with the user's words.
    """
    given = DECLARED["rec-r1"]
    made: Any = pl.recipe("rec-r1", think=False, start="shown", samples=8, temperature=1.0, exam=0)
    shown = imitated(made.parts["shown"].runnable, HALF)
    rl = reinforced(made.parts["rl"].runnable, given["prompts"], given["steps"])
    parts = {"shown": pl.warm(shown), "rl": pl.Part(rl, model=pl.Output("shown"))}
    world = {"env": "query(k=10,deep=100,told=0)", "docs": str(cell.docs), "max_tokens": 64}
    model = cell.learn(pl.Pipeline(parts=parts), [plain(q) for q in cell.train], **world)

    def rank(queries: Sequence[Query]) -> Orders:
        facts = cell.attempt(model, [plain(q) for q in queries], **world)
        cell.notes["unread"] = float(np.mean([not f["query"] for f in facts.values()]))
        cell.notes["copied"] = float(np.mean([bool(f["copied"]) for f in facts.values()]))
        kind = {q["id"]: q["id"][:1] if q["id"][:1] != "?" else "" for q in queries}
        return {
            q["id"]: [x for x in facts[q["id"]]["ranking"] if x.startswith(kind[q["id"]]) and x != q["id"]][:10]
            or ([] if facts[q["id"]]["query"] else list(q["found"]))
            for q in queries
        }  # fmt: skip

    return rank


ARMS: dict[str, Callable[[Cell], Ranker]] = {
    "bm25": bm25,
    "pointwise": pointwise,
    "pointwise, as many tokens": pointwise_tokens,
    "elimination by imitation": drops_imitated,
    "iranker": iranker,
    "coranking": coranking,
    "rec-r1": rec_r1,
}


# ---- cells


def measure(orders: Orders, queries: Sequence[Query]) -> dict[str, list[float]]:
    """NDCG@10 and the reciprocal rank of each query."""
    return {
        "ndcg": [round(ndcg(orders[q["id"]], q["gold"], 10), 4) for q in queries],
        "rr": [round(reciprocal_rank(orders[q["id"]], q["gold"], 10), 4) for q in queries],
    }


def run_cell(collection: Mapping[str, Any], arm: str, seed: int) -> dict[str, Any]:
    """Trains an arm and ranks the test queries, as they are and with shifted words."""
    began, wall = time.process_time(), time.time()
    with tempfile.TemporaryDirectory() as folder:
        cell = Cell(Path(folder), collection, seed)
        rank = ARMS[arm](cell)
        trained = time.process_time() - began
        numbers: dict[str, Any] = measure(rank(cell.test), cell.test)
        numbers |= {"notes": {k: round(x, 3) for k, x in cell.notes.items()}}
        if arm not in ("bm25", "rec-r1"):
            other = shifted(cell.test)
            numbers["shifted"] = measure(rank(other), other)
    took = {"training": trained, "all": time.process_time() - began, "wall": time.time() - wall}
    return {**numbers, "seconds": {k: round(x, 1) for k, x in took.items()}}


def main() -> None:
    names = {"arms": list(ARMS), "collections": ["graded", "known-item"]}
    parser = parser_of(__doc__, DECLARED["seeds"], **names)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    for seed in given.seeds:
        for name in given.collections:
            text = (given.folder / f"{name}.json").read_text()
            for arm in given.arms:
                at = f"{name}/{arm}/{seed if arm != 'bm25' else 0}"
                if FILE.has(given.out, at):
                    continue
                made = run_cell(json.loads(text), arm, seed)
                rows = {
                    "digest": hashlib.sha256(text.encode()).hexdigest()[:12],
                    **{k: len(json.loads(text)[k]) for k in ("docs", "train", "test")},
                }
                FILE.keep(given.out, cells=(at, made), collections=(name, rows))
                mean = {k: round(float(np.mean(made[k])), 3) for k in ("ndcg", "rr")}
                blind = (
                    round(float(np.mean(made["shifted"]["ndcg"])), 3) if "shifted" in made else ""
                )
                print(at, mean, blind, made["notes"], made["seconds"], flush=True)


if __name__ == "__main__":
    main()
