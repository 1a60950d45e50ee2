"""Searches for the answers of many problems: side by side, written in the order of the problems, and
gone on with where they were stopped.

    answers.jsonl       a line for each problem
    search.json         what the search was: strategy, budget, model, problem
    summary.json        accuracy and tokens, when all problems are done
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from palaestra.abilities import split_size
from palaestra.api.loops import run_blocking
from palaestra.context import RewardFn
from palaestra.ends import HeldOut
from palaestra.errors import Fault, UserError
from palaestra.models.embedded import FOLDERS
from palaestra.rewards.verify import response_text
from palaestra.rollout.collect import Score
from palaestra.run import setup
from palaestra.run.context import RunContext
from palaestra.run.evaluation import bounds_of_pay, chosen_tasks, reward_interval
from palaestra.run.given_rows import settings_of_call
from palaestra.run.origin import record_settings
from palaestra.search.named import file_name, scorer_by_name, strategy_by_name
from palaestra.search.problem import (
    ReadsGold,
    SearchProblem,
    SearchResult,
    Strategy,
    vote_of_episode,
)
from palaestra.search.tokens import MeteredEngine, TokenBudget
from palaestra.settings.fields import TASK, Settings
from palaestra.settings.keywords import EvaluateKeywords, check_keywords
from palaestra.stats import proportion
from palaestra.store.checkpoint import jsonable, write_atomic
from palaestra.store.folder import SUMMARY
from palaestra.store.lines import add_line, kept_lines
from palaestra.tasks.files import FileTasks
from palaestra.types import Group, Reward
from palaestra.worlds.question import Question

ANSWERS, RECORD = "answers.jsonl", "search.json"
TOGETHER = 32  # problems that are searched at a time
PROBLEMS = 64  # of a task that has no last one, unless a number is given
ROUNDS = 8  # answers of the greatest length that the default budget pays for

Line = Mapping[str, Any]
Each = Callable[[Line], object]


def run(
    model: str | Path = "tiny",
    *,
    strategy: str | Strategy = "best-of-n",
    budget: int = 0,
    reward_model: str = "",
    n: int = 0,
    out: str | Path | None = None,
    each: Each | None = None,
    talk: bool = False,
    **settings: Unpack[EvaluateKeywords],
) -> dict[str, Any]:
    """Searches for the answer to each problem, as `palaestra search --json` says it.

    Args:
        model: a name, or a folder.
        strategy: a name of `STRATEGIES`, with settings in brackets, a FILE.py:NAME, or a strategy.
        budget: generated tokens for each problem; 0 = 8 answers of the greatest length.
        reward_model: what scores answers without the gold answer: a folder, or any reward as text;
            "" = the verifier of the problem, which has the answer: the search is then an oracle.
        n: problems; 0 = all rows of `data` (with `test_data` the rows of that), 64 of a task.
        out: a folder for the answers; what is there already is not searched again. None = they are
            only returned.
        each: takes the line of every problem as it comes, in order.
        talk: notes on standard error.
        settings: those of `evaluate`: task, data, reward, env, max_tokens, seed, ...

    Returns:
        {"accuracy": {"mean", "low", "high", "n"}, "tokens": generated a problem, "oracle",
        "answers": a line for each problem, ...}

    Raises:
        UserError: something that can be mended; Fault: infrastructure failed.
    """
    check_keywords(run, EvaluateKeywords, settings)
    with settings_of_call(model, settings, out) as chosen:
        return search_given(
            chosen, strategy, budget, reward_model, n, Path(out) if out else None, each, talk=talk
        )


def search_given(
    settings: Settings,
    given: str | Strategy,
    budget: int,
    reward_model: str,
    n: int,
    out: Path | None,
    each: Each | None = None,
    *,
    talk: bool = True,
) -> dict[str, Any]:
    """See `run`."""
    name, strategy = strategy_by_name(given)
    scorer = scorer_by_name(reward_model)
    settings = settings_of_search(settings)
    ctx = search_context(settings, talk=talk)
    try:
        engine = meter(ctx)
        places = problems_of(ctx, settings, n)
        total = budget or default_budget(ctx)
        about = record_of(settings, name, strategy, total, reward_model, places)
        kept = kept_answers(out, about) if out else []
        if kept and talk:
            ctx.say(f"{len(kept)} of {len(places)} problems are answered in {out}")
        work = search_all(ctx, engine, places, strategy, total, scorer, kept, out, each)
        lines = run_blocking(work)
        if engine.uncounted:
            ctx.say(
                f"note: {engine.uncounted} tokens were generated outside of the budgets, as a judge "
                "does, or a strategy that does not pass its key on"
            )
        summary = summarise(ctx, lines)
    finally:
        ctx.close()
    oracle = summary["oracle"]
    about = {k: about[k] for k in ("task", "model", "seed", "budget")}
    result = about | {"strategy": label_of(name, oracle)} | summary
    if out:
        write_atomic(out / SUMMARY, json.dumps(jsonable(result), indent=1) + "\n")
        result["folder"] = str(out)
    return jsonable(result | {"answers": lines})


def label_of(name: str, oracle: bool) -> str:
    """What a search is called: one that asked a verifier with the gold answer is an oracle."""
    return f"{name} (oracle)" if oracle else name


def settings_of_search(settings: Settings) -> Settings:
    """With the problem that is searched where none is named. Raises UserError for an endpoint."""
    if settings.engine.startswith("openai:"):
        raise UserError(
            f"--engine {settings.engine}: a search counts and limits generated tokens and goes on from "
            "the middle of answers, which an endpoint does not let it do; take the model's folder, "
            "with --engine own or vllm"
        )
    named = settings.task or settings.data or settings.env
    return settings if named else replace(settings, task=TASK)


def search_context(settings: Settings, *, talk: bool) -> RunContext:
    """A context whose data needs no answers."""
    return setup.context(settings, talk=talk, judged=True)


def meter(ctx: RunContext, *, keep: bool = False) -> MeteredEngine:
    """Puts the budgets of problems in front of the policy's engine; `keep` as of `MeteredEngine`."""
    engine = MeteredEngine(ctx.engine("policy"), keep=keep)
    ctx.engines["policy"] = engine
    return engine


def default_budget(ctx: RunContext) -> int:
    """Tokens of `ROUNDS` answers of the greatest length."""
    return ROUNDS * ctx.bench.max_tokens


def problems_of(ctx: RunContext, settings: Settings, n: int) -> list[tuple[str, int]]:
    """The problems of a search by split and index: the rows of a file in its order, else held-out
    tasks.
    """
    tasks = ctx.bench.tasks
    if isinstance(tasks, FileTasks) and not settings.test_data:
        places = rows_in_order(tasks)
        return places[:n] if n else places
    most = n or (split_size(tasks, "test") if settings.data else None) or PROBLEMS
    return [("test", i) for i in chosen_tasks(ctx.bench, most)]


def rows_in_order(tasks: FileTasks) -> list[tuple[str, int]]:
    """All records by split and index, as they stand in their file; those of a second file last."""
    rows = {split: tasks.rows(split) for split in ("train", "test")}
    one_file = not np.intersect1d(rows["train"], rows["test"]).size
    places = [
        ((int(row) if one_file else at), split, i)
        for at, split in enumerate(rows)
        for i, row in enumerate(rows[split])
    ]
    return [(split, i) for _, split, i in sorted(places, key=lambda p: p[0])]


def name_of_folder(settings: Settings, name: str) -> Path:
    """Where a search lies that is given no folder: runs/search-STRATEGY-TASK-MODEL-sSEED."""
    settings = settings_of_search(settings)
    model = settings.model if settings.model in FOLDERS else Path(settings.model).name
    words = ("search", name, Path(settings.problem).stem, model, f"s{settings.seed}")
    return Path("runs") / "-".join(file_name(w) for w in words)


def record_of(
    settings: Settings,
    name: str,
    strategy: Strategy,
    budget: int,
    reward_model: str,
    places: Sequence[tuple[str, int]],
) -> dict[str, Any]:
    """What the answers of a search depend on, as plain data."""
    return jsonable(
        {
            **record_settings(settings, (name, reward_model, *texts_of(strategy))),
            "strategy": name,
            "settings of the strategy": repr(strategy) if ".py" not in name else name,
            "budget": budget,
            "reward_model": reward_model,
            "problems": len(places),
        }
    )


def texts_of(strategy: Strategy) -> list[str]:
    """The settings of a strategy that are text, and the parts of a list: one may be a folder."""
    if not is_dataclass(strategy):
        return []
    texts = [v for f in fields(strategy) if isinstance(v := getattr(strategy, f.name), str)]
    return texts + [part.strip() for text in texts if "," in text for part in text.split(",")]


# ---- the folder


def kept_answers(folder: Path, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The lines that a folder holds of the same search, see `kept_lines`."""
    return kept_lines(folder, about, record=RECORD, lines=ANSWERS, what="search")


# ---- the work


async def search_all(
    ctx: RunContext,
    engine: MeteredEngine,
    places: Sequence[tuple[str, int]],
    strategy: Strategy,
    budget: int,
    scorer: RewardFn | None,
    kept: Sequence[Line] = (),
    folder: Path | None = None,
    each: Each | None = None,
) -> list[Line]:
    """A line for each problem, in order; those that are `kept` are not searched again.

    Args:
        places: of the problems: split and index.
        folder: where every line is written as soon as those before it are there.
        each: takes every new line then.
    """
    door = asyncio.Semaphore(TOGETHER)

    async def one(number: int) -> Line:
        async with door:
            return await solve(ctx, engine, number, places[number], strategy, budget, scorer)

    waiting = [asyncio.create_task(one(i)) for i in range(len(kept), len(places))]
    lines = list(kept)
    try:
        for task in waiting:
            line = await task
            if folder is not None:
                add_line(folder / ANSWERS, line)
            lines.append(line)
            if each is not None:
                each(line)
    finally:
        for task in waiting:
            task.cancel()
        with suppress(BaseException):
            await asyncio.gather(*waiting, return_exceptions=True)
    return lines


async def solve(
    ctx: RunContext,
    engine: MeteredEngine,
    number: int,
    place: tuple[str, int],
    strategy: Strategy,
    budget: int,
    scorer: RewardFn | None,
) -> Line:
    """What a strategy finds for one problem within a budget, and whether it is right."""
    key = (ctx.seed, "search", number)
    tokens = engine.budgets[key] = TokenBudget(budget)
    problem = SearchProblem(ctx, key, ctx.bench.tasks.task(*place), tokens, scorer)
    try:
        result: Any = await strategy(problem)
    finally:
        del engine.budgets[key]
    if not isinstance(result, SearchResult):
        raise UserError(
            f"the strategy {type(strategy).__name__} returned {type(result).__name__}; return "
            "problem.result(answer, answers)"
        )
    measured, e = await _measured(ctx, problem, result), result.episode
    reads_gold = isinstance(strategy, ReadsGold) and strategy.oracle
    return jsonable(
        {
            "problem": number,
            "id": problem.whole.id,
            "answer": vote_of_episode(e, problem.task) if e else "",
            "response": response_text(e) if e else "",
            "score": result.score if math.isfinite(result.score) else None,
            "candidates": result.candidates,
            "tokens": tokens.spent,
            "oracle": problem.oracle or reads_gold,
            **measured,
        }
    )


async def _measured(
    ctx: RunContext, problem: SearchProblem, result: SearchResult
) -> dict[str, Any]:
    """Reward of the chosen answer, and whether it is right; nothing where nobody knows."""
    if result.episode is None:
        failed = [e.status for e in problem.drawn.episodes if not e.ok]
        return {"error": failed[0] if failed else "nothing could be sampled"}
    if ctx.bench.reward is None and isinstance(ctx.bench.world, Question):
        return {}
    group = Group(task=problem.whole, episodes=(result.episode,))
    (scored,) = (await Score()(ctx, (*problem.key, "gold"), group)).episodes
    if not scored.ok or not isinstance(scored.reward, Reward):
        return {"error": scored.status}
    return {"reward": scored.total, "solved": scored.reward.solved}


def summarise(ctx: RunContext, lines: Sequence[Line]) -> dict[str, Any]:
    """Accuracy or mean reward with a 95% interval, where it could be measured, and the tokens."""
    errors = [x["error"] for x in lines if "error" in x]
    if len(errors) == len(lines):
        raise Fault(
            "search", f"no problem could be answered: {errors[0] if errors else 'none is there'}"
        )
    tokens = [int(x["tokens"]) for x in lines]
    measured = held_out_of(ctx, lines)
    return {
        "n": len(lines),
        **({measured.of: measured.json()} if measured else {}),
        "oracle": any(x["oracle"] for x in lines),
        "tokens": float(np.mean(tokens)),
        "least_tokens": min(tokens),
        "most_tokens": max(tokens),
        "candidates": float(np.mean([x["candidates"] for x in lines])),
        "errors": len(errors),
    }


def held_out_of(ctx: RunContext, lines: Sequence[Line]) -> HeldOut | None:
    """What was measured on the chosen answers, those with an error left out; None = nothing."""
    with_reward = [x for x in lines if x.get("reward") is not None]
    if not with_reward:
        return None
    if all(x["solved"] is not None for x in with_reward):
        right = sum(bool(x["solved"]) for x in with_reward)
        return HeldOut(of="accuracy", interval=proportion(right, len(with_reward)))
    totals = [float(x["reward"]) for x in with_reward]
    interval = reward_interval(totals, totals, bounds_of_pay(ctx.bench))
    return HeldOut(of="reward", interval=interval)
