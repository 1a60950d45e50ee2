"""Self-play against past selves, a fixed opponent and a mixed population: the cells of the study of self-play.

    python -m benchmarks.selfplay.study --out benchmarks/selfplay/results.json

Each seed makes a start that imitates a naive player of the game, from which each arm learns by SPIRAL's update with the same
tokens, rate and batch. What differs is who sits in the other seat. A policy is read exactly: the probability of each legal
move in each information state, from scored replies, so its exploitability has no noise of sampling. It is read before
training and every few steps. Cells that the file has are not run again.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl
from benchmarks.cells import CellFile, parser_of
from benchmarks.selfplay import games
from palaestra.claims.games.spiral import play_at_random
from palaestra.claims.starts import imitation
from palaestra.recipes.games.spiral import build
from palaestra.run.exploitability import policy_table

DECLARED: dict[str, Any] = json.loads((Path(__file__).parent / "declared.json").read_text())
FILE = CellFile(("references", "cells"))
LONGEST = 4  # tokens of a reply; a legal one has two
READ: list[dict[str, dict[int, float]]] = []  # policies of the run in progress, in order
ILLEGAL: list[float] = []  # and the mean share of replies that are no legal move

PAST, START = pl.rollout.Frozen("past"), pl.rollout.Frozen("start")


def coin_negotiates(messages: Sequence[pl.Message], rng: np.random.Generator) -> str:
    """A legal move of the negotiation by a coin: what was asked so far says whose turn it is."""
    _, player, *seen = messages[-1].content.split()
    able = "yn" if player == "p0" and len(seen) > 1 else "123" if player == "p0" else "12y"
    return able[int(rng.integers(len(able)))]


COINS = {"kuhn": play_at_random, "negotiation": coin_negotiates}


def coin(game: str) -> Any:
    return pl.rollout.Acted(pl.rollout.Script(fn=COINS[game], name="coin"))


def cast_of(arm: str, game: str) -> Any:
    """Who sits in the other seat; None = the policy itself."""
    if arm == "self":
        return None
    if arm == "mixed population":
        others = pl.rollout.Alternate(pl.rollout.Either((PAST, START, coin(game))))
        return pl.rollout.Sometimes(others, 0.75)  # each of the four a quarter of the games
    return pl.rollout.Alternate({"past selves": PAST, "fixed opponent": START}[arm])


ARMS = ("self", "past selves", "fixed opponent", "mixed population")


@pl.stage
class ReadPolicy:
    """Keeps the policy's table, and says how exploitable it is."""

    async def __call__(self, ctx: pl.Context) -> Mapping[str, Any]:
        world: Any = ctx.bench.world
        words = policy_table(ctx, world)
        ILLEGAL.append(float(np.mean([max(0.0, 1 - sum(p.values())) for p in words.values()])))
        READ.append({
            s: {a: x / sum(p.values()) for a, x in p.items()} for s, p in words.items()
        })  # fmt: skip
        return {"exploitability": world.exact_play(READ[-1])["exploitability"]}


def recipe_of(arm: str, game: str) -> pl.Recipe:
    """SPIRAL's update, the same for each arm but for who sits in the other seat."""
    made: Any = build(length=64, games=DECLARED["games a step"])
    needs = {
        "past": pl.rollout.Snapshots(DECLARED["snapshot every"], DECLARED["snapshots"]),
        "start": "policy",
    }
    used = {"past selves": ("past",), "fixed opponent": ("start",), "mixed population": ("past", "start")}  # fmt: skip
    made = pl.vary(
        made,
        references={name: needs[name] for name in used.get(arm, ())},
        evaluate={"play": ReadPolicy()},
        schedule=pl.Schedule(prompts=DECLARED["games a step"], steps=1000),
    )
    made = pl.override(made, "collect.links.0.cast", cast_of(arm, game))
    made = pl.override(made, "sample.max_tokens", LONGEST)
    return pl.override(made, "learners.policy.optimiser.lr", DECLARED["rate"])


def start(folder: Path, game: str, seed: int) -> str:
    """The model that the arms of a seed start from."""
    run = pl.train(
        imitation(DECLARED["start steps"], warmup=5), task=games.register(game, seed), model="tiny", seed=seed,
        evaluate=0, rollouts="none", checkpoint_every=10**6, max_tokens=LONGEST, quiet=True, out=folder / "start",
    )  # fmt: skip
    return str(run.summary["artifacts"]["policy"])


def run_cell(folder: Path, model: str, game: str, arm: str, seed: int) -> dict[str, Any]:
    """Trains an arm until its tokens are used up, and measures it on the way."""
    began, world, tokens = time.process_time(), games.WORLDS[game](), list[int]()
    READ.clear()
    ILLEGAL.clear()

    def spent(step: int, x: Mapping[str, float]) -> bool:
        tokens.append(int(x["sampled_tokens"]))
        return tokens[-1] >= DECLARED["tokens"][game]

    pl.train(
        recipe_of(arm, game), task=games.register(game, seed), model=model, seed=seed, evaluate=0,
        evaluate_every=DECLARED["read every"], rollouts="none", checkpoint_every=10**6, max_tokens=LONGEST,
        quiet=True, on_step=spent, out=folder / arm.replace(" ", "-"),
    )  # fmt: skip
    return {
        **course(world, READ),
        "illegal": round(ILLEGAL[-1], 4),
        "tokens": tokens[-1],
        "steps": len(tokens),
        "seconds": round(time.process_time() - began, 1),
    }


def course(world: Any, tables: Sequence[games.Table]) -> dict[str, Any]:
    """What is exact of the policies of a run, in order from the start."""
    each = [world.exact_play(t) for t in tables]
    late = list(tables[len(tables) // 2 :])
    return {
        "course": [round(x["exploitability"], 4) for x in each],
        "last": round(each[-1]["exploitability"], 4),
        "late": round(float(np.mean([x["exploitability"] for x in each[len(each) // 2 :]])), 4),
        "average": round(world.exact_play(games.average(world, late))["exploitability"], 4),
        "value": round(each[-1]["value"], 4),
        "against uniform": round(each[-1]["against_uniform"], 4),
    }


def reference(game: str) -> dict[str, dict[str, float]]:
    """What tables without a model reach."""
    world = games.WORLDS[game]()
    made = {
        "uniform play": games.uniform(world),
        **{f"tabular fictitious play, {n} rounds": games.fictitious(world, n) for n in (10, 100)},
        "counterfactual regret, 300 sweeps": games.counterfactual(world),
    }
    return {
        name: {k: round(x, 5) for k, x in world.exact_play(t).items()} for name, t in made.items()
    }


def main() -> None:
    names = {"games": list(games.WORLDS), "arms": ARMS}
    given = parser_of(__doc__, DECLARED["seeds"], **names).parse_args()
    for game in given.games:
        if not FILE.has(given.out, game, "references"):
            FILE.keep(given.out, references=(game, reference(game)))
    for seed, game in product(given.seeds, given.games):
        missing = [a for a in given.arms if not FILE.has(given.out, f"{game}/{a}/{seed}")]
        if not missing:
            continue
        with tempfile.TemporaryDirectory() as place:
            model = start(Path(place), game, seed)
            for arm in missing:
                made = run_cell(Path(place), model, game, arm, seed)
                FILE.keep(given.out, cells=(f"{game}/{arm}/{seed}", made))
                print(f"{game}/{arm}/{seed}", made, flush=True)


if __name__ == "__main__":
    main()
