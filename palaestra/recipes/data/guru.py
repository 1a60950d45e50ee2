"""Guru: reinforcement learning in several domains, and what training in one does for the others.

A program (arXiv:2506.14965; LLM360/Reasoning360). From one start it trains on every domain of a
mixture alone and on all of them, and examines all after each:

    D[i, j] = score_j(trained on i) - score_j(start),   S = mean_i D[i, i] - mean_{i != j} D[i, j]

Problems come through filters. Of a file, what is there twice or held out is dropped, and so is what is
nearly so by its word 3-grams, where it has 8 words or more. Then two models attempt `candidates` problems of
each domain, `n` times each: a problem is dropped where the weak model solves `easy` or more of its attempts,
as there is nothing to learn, or the strong one `hard` or less, as its label may be wrong. What is too hard
for the strong model goes as well, so how many each rule drops, and how hard the candidates are, stands in
the notes of the run. Both models are the start unless others are given, which is then attempted once.

The domains are those of the column `domain` of a user's file, or the parts of a mixture, such as --task
'rg:chain_sum+rg:basic_arithmetic+rg:caesar_cipher' (extra gym). Rewards are 0 to 1 in every domain: else
the largest would rule. Of a mixture each part has its own verifier; a file has one reward, which may read
`domain`. Scores are greedy accuracies, with `samples` also pass@k.

GRPO without KL clips ratios to [0.8, 1.28] and draws domains alike.

Deviations: how the paper's six domains were gathered is not built; `released` reads the thresholds as
the README of the filter states them, a rate of the weak model at or below `hard` or one of the strong
model at or above `easy` is dropped; the paper's are those above. The prices of long workings by
domain are the bench's `max_tokens`. Each of the runs filters its own candidates.
What SmolLM2 makes of it stands in docs/runs.md.

Long because the paper is two things that need each other: a filter by two models whose kept problems are
state of the draw, and a program that trains on each domain and computes the transfer between them.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Guru: cross-domain RL corpus (six domains)",
    paper="arXiv:2506.14965",
    claim="Domains that were frequent in pre-training gain from RL in other domains, rare ones only "
    "from RL in their own.",
    source="released code (LLM360/Reasoning360, README and model_filtering/README) and the abstract; "
    "the RL setting from memory",
    size=pl.Size(
        setting="7B and 32B models, 92K problems of maths, code, science, logic, simulation and tables; "
        "3K a domain in the controlled study; 17 tasks, 7.9 and 6.7 points above the best open models",
        model="qwen2.5-7b",
    ),
    task="add(d=4)+bool(d=4)+sort(d=4)",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.ANSWER,
            pl.needs.NeededColumn(
                "domain",
                "text",
                ("maths", "tables"),
                "the domain of a record",
                otherwise="the file is one domain, and there is no transfer to measure",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "weak model",
                "weak",
                "solves what is too easy",
                otherwise="the model itself, as it is at the start",
            ),
            pl.needs.NeededModel(
                "strong model",
                "strong",
                "fails at what is too hard or has a wrong label",
                otherwise="the model itself, as it is at the start",
            ),
        ),
        shows="pass_rate",
        off={"candidates": 0},
        own={
            "candidates": 8,
            "n": 2,
            "recipe.schedule.prompts": 2,
            "recipe.collect.links.0.n": 2,
            "recipe.draw.sample.n": 4,
        },
    ),
    use="It helps to see which domains teach others before a long run on a mixture; it costs a run for each "
    "domain and one for all, and the attempts of the filter.",
    lacks=(
        "The corpus of 92K problems is not there, nor how it was gathered.",
        "A file has one reward for all its domains, which may read `domain`; only the parts "
        "of a mixture have verifiers of their own.",
        "There is no verifier by a model for free-form science, but for a --reward of the user's.",
    ),
    grade="B",
)
BUCKETS = (
    ("impossible", 0.0), ("very hard", 0.2), ("hard", 0.4), ("medium", 0.6), ("easy", 0.8),
)  # fmt: skip


PASS_RATE = "pass_rate"
LONG = 8  # words of a prompt that may be nearly another one
TESTED = 256  # held-out problems that no candidate may be


def bucket(rate: float) -> str:
    """What a pass rate is called: "impossible" at 0, "perfect" at 1; bounds belong to the easier
    side.
    """
    if rate <= 0:
        return "impossible"
    return "perfect" if rate >= 1 else next((n for n, b in BUCKETS if rate < b), "very easy")


def drop_reason(
    weak: float, strong: float, easy: float = 0.9, hard: float = 0.1, released: bool = False
) -> str:
    """Why a problem is dropped: "easy", "hard", or "" = it is kept."""
    for_easy, for_hard = (strong, weak) if released else (weak, strong)
    return "easy" if for_easy >= easy else "hard" if for_hard <= hard else ""


def transfer(
    before: Mapping[str, float], after: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """D[i][j], by what was trained on."""
    return {i: {j: row[j] - before[j] for j in before} for i, row in after.items()}


def specialisation(scores: Mapping[str, Mapping[str, float]], domains: Sequence[str]) -> float:
    """Mean gain in the own domain less that in others; NaN for a single domain."""
    own = [scores[i][i] for i in domains]
    others = [scores[i][j] for i in domains for j in domains if i != j]
    return float(np.mean(own) - np.mean(others)) if others else float("nan")


@pl.declare(
    columns=(
        (
            "pass_rate",
            float,
            "the stronger model's share of right answers, 0 where no filter asked it",
        ),
    )
)
@pl.stage
class FilteredDomain:
    """Draws from one domain, or from all alike, what the filters keep.

    Before the first draw `candidates` problems of each domain are cleaned of duplicates and attempted
    by both models; what is kept is drawn in turn. candidates=0 filters nothing,
    None all of a file (64 of a source without an end). A domain of which
    nothing is kept is not drawn; where nothing is kept at all, the run ends with a Fault.
    """

    domain: str = ""
    candidates: int | None = 0
    easy: float = 0.9
    hard: float = 0.1
    released: bool = False
    weak: str = "weak"
    strong: str = "strong"
    sample: pl.Sample = pl.Sample(n=16)
    near: float = 0.9

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        parts = pl.curriculum.arms_of(ctx.bench.tasks)
        chosen = [p for p in parts if self.domain in ("", p.name)]
        if not chosen:
            raise pl.UserError(
                f"no domain {self.domain!r} in {ctx.bench.name}; there are {', '.join(p.name for p in parts)}"
            )
        if self.candidates != 0 and "kept" not in state:
            state = {**state, **await self._filter(ctx, (*key, "filter"), chosen)}
        kept: Mapping[str, list[int]] = state.get("kept", {})
        able = [p for p in chosen if self.candidates == 0 or kept[p.name]]
        if not able:
            raise pl.Fault("starved", "the filter by two models keeps nothing; widen its bounds")
        given, tasks = dict(state.get("given", {})), list[pl.Task]()
        rng = pl.rng_of((*key, "domains"))
        for _ in range(n):
            part = able[int(rng.integers(len(able)))]
            at = given.get(part.name, 0)
            numbers = kept.get(part.name, ())
            number = numbers[at % len(numbers)] if numbers else at
            task = task_of(parts, part, pl.curriculum.first_number(ctx, part) + number)
            if rates := state.get("rates", {}).get(part.name):
                task = replace(task, meta={**task.meta, PASS_RATE: rates[at % len(numbers)]})
            tasks.append(task)
            given[part.name] = at + 1
        return tasks, {**state, "given": given}

    async def _filter(
        self, ctx: pl.Context, key: pl.Key, parts: Sequence[pl.Tasks]
    ) -> dict[str, Any]:
        """The numbers of the problems that are kept, by part, and how many each rule drops."""
        every = pl.curriculum.arms_of(ctx.bench.tasks)
        tested = [ctx.bench.tasks.task("test", i) for i in pl.run.chosen_tasks(ctx.bench, TESTED)]
        kept: dict[str, list[int]] = {}
        rates: dict[str, list[float]] = {}
        dropped: dict[str, dict[str, int]] = {}
        for part in parts:
            first = pl.curriculum.first_number(ctx, part)
            n = pl.curriculum.count_tasks(self.candidates, part.size, 64)
            tasks = [task_of(every, part, first + i) for i in range(n)]
            places = {t.id: i for i, t in enumerate(tasks)}
            if part.size is not None:  # an endless source may have few different problems
                tasks = without_repeats(tasks, tested, self.near)
            weak_N, strong_N = await self._rates(ctx, (*key, part.name), tasks)
            reasons = [
                drop_reason(float(w), float(s), self.easy, self.hard, self.released)
                for w, s in zip(weak_N, strong_N, strict=True)
            ]
            chosen = [i for i, reason in enumerate(reasons) if not reason]
            kept[part.name] = [places[tasks[i].id] for i in chosen]
            rates[part.name] = [float(strong_N[i]) for i in chosen]
            counts = {r: reasons.count(r) for r in ("easy", "hard")}
            dropped[part.name] = {**counts, "repeated": n - len(tasks)}
            ctx.say(
                f"{part.name}: {len(chosen)} of {n} problems kept, {n - len(tasks)} repeated or held "
                f"out, {counts['easy']} too easy, {counts['hard']} too hard or mislabelled; by the "
                f"strong model {difficulties(strong_N)}"
            )
        return {"kept": kept, "rates": rates, "dropped": dropped}

    async def _rates(
        self, ctx: pl.Context, key: pl.Key, tasks: Sequence[pl.Task]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The pass rates of the weak and of the strong model, which may be one."""
        models = dict.fromkeys((self.weak, self.strong))
        rates = await asyncio.gather(
            *(pl.pass_rates(ctx, (*key, m), tasks, replace(self.sample, model=m)) for m in models)
        )
        return rates[0], rates[-1]


def without_repeats(
    tasks: Sequence[pl.Task], held_out: Sequence[pl.Task], near: float
) -> list[pl.Task]:
    """The tasks whose prompt is no earlier one's and is not held out; of long prompts none that is
    as similar as `near`. Short ones may differ in a sign alone, which is no word.
    """
    is_long = lambda t: len(pl.curriculum.prompt_text(t).split()) >= LONG
    different = pl.curriculum.Deduplicate()(tasks, held_out).kept
    long = [[t for t in some if is_long(t)] for some in (different, held_out)]
    kept = {t.id for t in pl.curriculum.Deduplicate(most=near)(*long).kept}
    return [t for t in different if t.id in kept or not is_long(t)]


def difficulties(rate_N: np.ndarray) -> str:
    """How many problems of each difficulty there are, the hardest first."""
    counts = Counter(bucket(float(rate)) for rate in sorted(rate_N))
    return ", ".join(f"{n} {name}" for name, n in counts.items()) or "none"


def task_of(parts: Sequence[pl.Tasks], part: pl.Tasks, number: int) -> pl.Task:
    """A training problem of a part, as the mixture gives it."""
    return (
        pl.tasks.part_task(part, "train", number) if len(parts) > 1 else part.task("train", number)
    )


@pl.stage
class TransferStudy:
    """A program: trains on each domain of the run's mixture and on all, `n` held-out problems of each
    examined before and after.

    Its summary has `transfer`, D by what was trained on ("all" = the mixture), `start`, the scores
    before, and `specialisation`; with `samples` the same of pass@`samples` as `of_samples`.

    Args:
        recipe: what trains; its draw is limited to a domain.
        n: held-out problems of a domain.
        samples: answers drawn for each; 0 = greedy answers alone.
    """

    recipe: pl.Recipe
    n: int = 64
    samples: int = 0

    async def run(self, ctx: pl.Context) -> pl.Result:
        domains = [part.name for part in pl.curriculum.arms_of(ctx.bench.tasks)]
        exams = {
            d: pl.run.Exam(d if len(domains) > 1 else "", self.n, self.samples) for d in domains
        }
        recipe = pl.vary(self.recipe, evaluate={**self.recipe.evaluate, **exams})
        results: dict[str, pl.Result] = {}
        for i, domain in enumerate(domains if len(domains) > 1 else []):
            draw = pl.override(recipe, "draw.domain", domain)
            results[domain] = await ctx.once(f"domain-{i}", draw)
        results["all"] = last = await ctx.once("all", recipe)
        metrics = {**last.metrics, **self.study(results, domains, "greedy")}
        if self.samples:
            metrics["of_samples"] = self.study(results, domains, f"pass@{self.samples}")
        tokens = sum(r.metrics.get("sampled_tokens", 0) for r in results.values())
        return pl.Result(metrics={**metrics, "sampled_tokens": tokens}, artifacts=last.artifacts)

    def study(
        self, results: Mapping[str, pl.Result], domains: Sequence[str], score: str
    ) -> dict[str, Any]:
        """What training on each did to a score of all."""
        before = self.ends(results["all"], domains, "before", score)
        after = {i: self.ends(r, domains, "after", score) for i, r in results.items()}
        moved = transfer(before, after)
        several = domains if len(domains) > 1 else []
        return {
            "start": before,
            "transfer": moved,
            "specialisation": specialisation(moved, several) if several else None,
        }

    def ends(
        self, result: pl.Result, domains: Sequence[str], end: str, name: str
    ) -> dict[str, float]:
        """The scores of all domains at an end of a run."""
        exams = result.metrics["evaluations"]
        return {d: float(exams[d][end][name]["mean"]) for d in domains}


def build(
    n: int = 64,
    samples: int = 0,
    candidates: int | None = None,
    weak: str = "policy",
    strong: str = "policy",
    easy: float = 0.9,
    hard: float = 0.1,
    released: bool = False,
) -> TransferStudy:
    """`candidates` of each domain, None = all, are filtered by the models `weak` and `strong`, names
    or folders; "policy" is the start.
    """
    references = {"weak": weak} | ({"strong": strong} if strong != weak else {})
    draw = FilteredDomain(
        candidates=candidates, easy=easy, hard=hard, released=released, strong=[*references][-1]
    )
    recipe = pl.vary(
        pl.recipe("grpo"),
        draw=draw,
        credit=pl.chain(
            pl.credit.TaskColumn(PASS_RATE), pl.Center("group"), pl.Scale("group", ddof=1)
        ),
        objective=pl.Clipped(low=0.2, high=0.28, reduce="tokens") + pl.Track((PASS_RATE,)),
        references={} if candidates == 0 else references,
    )
    return TransferStudy(recipe, n, samples)


def embedded(n: int = 32, candidates: int = 16, **options: Any) -> TransferStudy:
    """On the embedded problem: runs of five steps of eight prompts, and a filter of 16 candidates."""
    made = build(n, candidates=candidates, **options)
    return replace(made, recipe=pl.vary(made.recipe, schedule=pl.Schedule(prompts=8, steps=5)))
