"""SwS: problems that the policy fails to learn say of what further ones are written.

One run in three phases (arXiv:2506.08989; MasterVito/SwS, src):

    1. `epochs` epochs of GRPO over `seeds` seed problems, with the pass rate a_{i,e} of each kept
    2. weak(i) = max_e a_{i,e} < 0.5 and slope_e a_{i,e} < 0         (a line by least squares)
       budget_c = `written` * F_c / sum_c F_c,   F_c the share of weak problems of domain c
       each problem written is given concepts: the first by frequency, the others by
       softmax((co-occurrences with the list + cosine to its mean) / 0.2), none twice
    3. GRPO over seed and written problems, without the groups that are all right or all wrong

Between 2 and 3 written problems are cleaned of what is a seed, a held-out problem or there twice,
and kept where the policy's pass rate lies in `band`. A domain without weak problems gets none; where
nothing is weak, nothing is written and the seeds go on. With one epoch no slope is known and nothing
is weak. Budgets are rounded so that their sum holds; the released code cuts off, and loses up to a
problem a domain.

`writer` is a language model that writes the problems, with the answer on which most of 8 solutions of
`solver` agree (the same model by default), and `judge` may rate them:

    palaestra train sws --data FILE writer="endpoint(url='http://HOST:PORT/v1',model='NAME')"

Without one further problems of the weak domains stand in: those that the task's source writes, or records of
the file behind the first `seeds`. Concepts are the column `concepts`, a list or texts parted by semicolons, else
the domain alone; `namer`, a model, is asked for them instead. Several judges are given in Python,
pl.curriculum.ProblemsByModel(..., judges=(...)) as `draw.writer`.

Deviations: the run goes on from the policy of phase 1, where the paper trains from the base again,
so that arms have the same start and budget; `mixed` filters in phase 1 too, where groups of equal
rewards move nothing anyway. The released sampler adds similarities in sorted order, not in the order
of the concepts; here each concept has its own. The rule of weakness is that of the paper as public
reviews quote it.

Long because its draw works in phases: it follows the pass rates of seed problems, finds those that are weak,
shares a budget among domains, samples lists of concepts, and filters the problems that are written of them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

import numpy as np
from pydantic import BaseModel

import palaestra as pl

CARD = pl.Card(
    title="Self-aware Weakness-driven problem Synthesis",
    paper="arXiv:2506.08989",
    claim="Problems synthesised for what a model failed to learn in a first RL run raise a second one "
    "more than others do.",
    source="released code (MasterVito/SwS: data_synthesis.py, concept_sampling.py, "
    "get_answer_consistency.py, scripts); the rule of weakness from public reviews of the paper",
    size=pl.Size(
        setting="Qwen2.5-3B, 7B and 32B, MATH-12k as seeds, Llama-3.3-70B writes and QwQ-32B answers; "
        "1,024 prompts, G = 8, lr 1e-6, no KL; average of 8 benchmarks at 7B 46.7 to 56.7",
        model="qwen2.5-7b",
        prompts=1024,
        samples=8,
        lr=1e-6,
    ),
    task="add(d=2)+bool(d=4)+knights(d=2)",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.ANSWER,
            pl.needs.NeededColumn(
                "domain",
                "text",
                ("algebra", "geometry"),
                "the category of a problem, which gets new ones in the share of its weak ones",
                otherwise="all records are one category",
            ),
            pl.needs.NeededColumn(
                "concepts",
                "texts",
                (["carrying", "place value"], ["angles", "triangles"]),
                "what a problem tests",
                otherwise="`namer` names them, or the domain alone is the concept",
            ),
        ),
        models=(
            pl.needs.chat_model(
                "writer",
                "writer",
                "writes problems of given concepts",
                otherwise="further problems of the weak domains stand in, from the task's source or the file",
            ),
            pl.needs.NeededModel(
                "solver",
                "solver",
                "solves what was written, several times",
                inert=None,
                otherwise="the writer does",
            ),
            pl.needs.NeededModel(
                "judge",
                "judge",
                "rates what was written",
                inert=None,
                otherwise="nothing is rated",
            ),
            pl.needs.NeededModel(
                "namer of concepts",
                "namer",
                "names the concepts of weak problems",
                inert=None,
                otherwise="the column `concepts`, else the domain",
            ),
        ),
        shows="written",
        off={"weigh": "none"},
        own={
            "seeds": 8,
            "epochs": 2,
            "written": 14,
            "steps": 3,
            "schedule.prompts": 8,
            "collect.links.0.n": 8,
        },
    ),
    use="It helps where a first run of RL leaves some categories behind and a good model writes problems of "
    "them; with one category, or none left behind, it is GRPO on more problems.",
    lacks=(
        "Without `writer` no problem is synthesised: problems of the task's source, or "
        "further records of the file, stand in.",
        "Concepts are taken from failed problems by a model only with `namer`; else they are "
        "a column, or the domain alone.",
        "The second run starts from the policy of the first, not from the base.",
        "Concepts are alike by their letters, not by embeddings.",
    ),
    grade="B",
)
LEAST, CONCEPTS, TEMPERATURE = 0.5, 5, 0.2
WRITTEN = "written"
TESTED = 256  # held-out problems that no written one may be


def is_weak(rates: Sequence[float], least: float = LEAST) -> bool:
    """Whether a problem was never solved in `least` of its attempts, and ever less."""
    if len(rates) < 2 or max(rates) >= least:
        return False
    epochs = np.arange(len(rates)) - (len(rates) - 1) / 2
    return float(epochs @ np.asarray(rates)) < -1e-12


def fail_ratios(
    rates: Mapping[str, Sequence[float]], domains: Mapping[str, str]
) -> dict[str, float]:
    """The share of weak problems, by domain."""
    weak_by_domain: dict[str, list[bool]] = {}
    for identity, seen in rates.items():
        weak_by_domain.setdefault(domains[identity], []).append(is_weak(seen))
    return {domain: float(np.mean(weak)) for domain, weak in weak_by_domain.items()}


def budgets(ratios: Mapping[str, float], total: int) -> dict[str, int]:
    """Whole shares of `total` in the proportion of the ratios; the largest remainders get what
    rounding leaves. Nothing where all ratios are 0.
    """
    whole = sum(ratios.values())
    if whole <= 0:
        return dict.fromkeys(ratios, 0)
    exact = {name: total * ratio / whole for name, ratio in ratios.items()}
    counts = {name: int(x + 1e-9) for name, x in exact.items()}
    by_rest = sorted(exact, key=lambda name: counts[name] - exact[name])
    for name in by_rest[: total - sum(counts.values())]:
        counts[name] += 1
    return counts


def next_concept_odds(
    names: Sequence[str], lists: Sequence[Sequence[str]], chosen: Sequence[str], temperature: float
) -> np.ndarray:
    """[N] how likely each concept is the next of a list: softmax((c + s) / temperature), c its
    co-occurrences with those of the list, s its cosine to their mean in character 3-grams; 0 for
    those that are there.
    """
    counts = [pl.verifiers.count_character_ngrams(name, 3) for name in names]
    keys = sorted({k for c in counts for k in c})
    vector_NK = np.array([[c[k] for k in keys] for c in counts], np.float64)
    vector_NK /= np.linalg.norm(vector_NK, axis=1, keepdims=True)
    mean_K = vector_NK[[names.index(c) for c in chosen]].mean(0)
    score_N = vector_NK @ (mean_K / np.linalg.norm(mean_K))
    for each in lists:
        for i, name in enumerate(names):
            score_N[i] += sum(c in each and name in each and c != name for c in chosen)
    score_N[[names.index(c) for c in chosen]] = -np.inf
    odds_N = np.exp((score_N - score_N.max()) / temperature)
    return odds_N / odds_N.sum()


def sample_concepts(
    lists: Sequence[Sequence[str]],
    rng: np.random.Generator,
    size: int = CONCEPTS,
    temperature: float = TEMPERATURE,
) -> tuple[str, ...]:
    """Up to `size` different concepts out of those of the weak problems, which the lists are."""
    flat = [c for each in lists for c in each if c]
    names = sorted(set(flat))
    if not names:
        return ()
    chosen = [str(rng.choice(flat))]
    while len(chosen) < min(size, len(names)):
        odds_N = next_concept_odds(names, lists, chosen, temperature)
        chosen.append(names[int(rng.choice(len(names), p=odds_N))])
    return tuple(chosen)


class Concepts(Protocol):
    """What a problem is about. Called with (ctx, task)."""

    async def __call__(self, ctx: pl.Context, task: pl.Task) -> tuple[str, ...]: ...


@pl.stage
class NamedConcepts:
    """The task's column `concepts`, a list or texts parted by semicolons, else its domain."""

    async def __call__(self, ctx: pl.Context, task: pl.Task) -> tuple[str, ...]:
        named = task.meta.get("concepts")
        if isinstance(named, str):
            named = [part.strip() for part in named.split(";") if part.strip()]
        known = tuple(map(str, named)) if isinstance(named, list | tuple) else ()
        return known or (task.domain,)


class ConceptList(BaseModel):
    """What a model is asked for."""

    concepts: list[str]


@pl.stage
class ConceptsByModel:
    """A language model names them; where its reply has no form, there are none."""

    client: pl.Source

    async def __call__(self, ctx: pl.Context, task: pl.Task) -> tuple[str, ...]:
        question = f"Name the concepts that this problem tests, in few words each.\n\n{pl.tasks.question_text(task)}"
        none = ConceptList(concepts=[])
        reply = await ctx.ask_for(self.client, question, ConceptList, fallback=none)
        return tuple(reply.concepts)


@pl.stage
class PassRates:
    """Keeps the share of solved attempts of each task, a number each time that it is seen."""

    def __call__(self, seen: pl.Groups, examples: Mapping[str, Any], state: pl.State) -> pl.State:
        rates = {k: list(v) for k, v in state.get("rates", {}).items()}
        for group in seen:
            solved = [float(bool(e.solved)) for e in group.valid if e.reward is not None]
            if solved:
                rates.setdefault(group.task.id, []).append(float(np.mean(solved)))
        return {**state, "rates": rates}


@pl.declare(columns=(("written", bool, "made by a model, of the concepts of problems it fails"),))
@pl.stage
class WeaknessDriven:
    """Draws the seed problems for `epochs` epochs, then these and the ones that were written.

    `weigh` says of what: "weak" by the shares of weak problems, "even" of all domains alike (a
    control), "none" nothing. The state's `found` says what was weak, asked for, written and kept.
    """

    seeds: int | None = None
    epochs: int = 3
    written: int = 128
    weigh: Literal["weak", "even", "none"] = "weak"
    writer: pl.curriculum.ProblemWriter = pl.curriculum.ProblemsFromSource()
    concepts: Concepts = NamedConcepts()
    clean: pl.curriculum.Deduplicate = pl.curriculum.Deduplicate()
    band: tuple[float, float] = (0.125, 0.875)
    probe: pl.Sample | None = None

    async def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        state = dict(state)
        tasks = ctx.bench.tasks
        size = pl.curriculum.count_tasks(self.seeds, tasks.size, 128)
        at = state.get("cursor", 0)
        if at >= self.epochs * size and "written" not in state:
            state |= await self._write(ctx, (*key, "write"), state.get("rates", {}), size)
            state["begun"] = at  # here the epochs of the larger pool begin
        written, begun = state.get("written", ()), state.get("begun", 0)
        pool, drawn, first = size + len(written), list[pl.Task](), pl.curriculum.first_number(ctx)
        for i in range(at, at + n):
            epoch, place = divmod(i - begun, pool)
            order = pl.rng_of((ctx.seed, "sws", begun, epoch)).permutation(pool)
            chosen = int(order[place])
            seed = chosen < size
            drawn.append(tasks.task("train", first + chosen) if seed else written[chosen - size])
        return drawn, {**state, "cursor": at + n}

    async def _write(
        self, ctx: pl.Context, key: pl.Key, rates: Mapping[str, Sequence[float]], size: int
    ) -> dict[str, Any]:
        """The problems written, and what was found on the way."""
        first = pl.curriculum.first_number(ctx)
        seeds = [ctx.bench.tasks.task("train", first + i) for i in range(size)]
        known = {t.id: rates[t.id] for t in seeds if t.id in rates}
        weak = [t for t in seeds if is_weak(known.get(t.id, ()))]
        ratios = fail_ratios(known, {t.id: t.domain for t in seeds})
        if self.weigh == "even":
            ratios = dict.fromkeys(ratios, 1.0)
        asked = budgets(ratios, self.written if self.weigh != "none" else 0)
        made: list[pl.Task] = []
        for domain in sorted(d for d, number in asked.items() if number):
            made += await self._of_domain(ctx, (*key, domain), domain, asked[domain], weak)
        tested = [ctx.bench.tasks.task("test", i) for i in pl.run.chosen_tasks(ctx.bench, TESTED)]
        cleaned = self.clean(made, [*tested, *seeds])
        kept = list(cleaned.kept)
        if self.probe is not None and kept:
            rate_N = await pl.pass_rates(ctx, (*key, "band"), kept, self.probe)
            low, high = self.band
            kept = [t for t, p in zip(kept, rate_N, strict=True) if low <= p <= high]
        counts = {
            "weak": len(weak),
            "asked": asked,
            "made": len(made),
            "cleaned": cleaned.duplicates + cleaned.near + cleaned.held_out,
            "kept": len(kept),
        }
        kept = [replace(t, meta={**t.meta, WRITTEN: True}) for t in kept]
        ctx.say(f"{len(weak)} of {size} seed problems are weak; {len(kept)} problems are written")
        return {"written": kept, "found": counts}

    async def _of_domain(
        self, ctx: pl.Context, key: pl.Key, domain: str, n: int, weak: Sequence[pl.Task]
    ) -> list[pl.Task]:
        """`n` problems of a domain, an order for each list of concepts that is drawn."""
        mine = [t for t in weak if t.domain == domain]
        lists = [await self.concepts(ctx, t) for t in mine]
        rng = pl.rng_of((*key, "concepts"))
        drawn = Counter(sample_concepts(lists, rng) for _ in range(n))
        made: list[pl.Task] = []
        for i, (concepts, times) in enumerate(drawn.items()):
            style = tuple(mine[i % len(mine)] for _ in mine[:1])
            order = pl.curriculum.ProblemOrder(
                domain=domain, n=times, concepts=concepts, examples=style
            )
            made += await self.writer(ctx, (*key, i), order)
        return made


def in_phases(
    seeds: int | None = None,
    epochs: int = 3,
    written: int = 128,
    weigh: Literal["weak", "even", "none"] = "weak",
    band: tuple[float, float] = (0.125, 0.875),
    gate: bool = True,
    mixed: bool = False,
) -> pl.Recipe:
    """The three phases, with problems by the sources of the task; see `build`."""
    draw = WeaknessDriven(
        seeds=seeds,
        epochs=epochs,
        written=written,
        weigh=weigh,
        band=band,
        probe=pl.Sample(n=8) if gate else None,
    )
    changed: dict[str, Any] = {"pool": pl.Mixed(size=0)} if mixed else {}
    return pl.vary(pl.recipe("grpo"), draw=draw, observe=PassRates(), **changed)


def build(
    writer: pl.Source | None = None,
    solver: pl.Source | None = None,
    judge: pl.Source | None = None,
    namer: pl.Source | None = None,
    seeds: int | None = None,
    epochs: int = 3,
    written: int = 128,
    weigh: Literal["weak", "even", "none"] = "weak",
    band: tuple[float, float] = (0.125, 0.875),
    gate: bool = True,
    mixed: bool = False,
) -> pl.Recipe:
    """The first `seeds` problems are those of the first phase, None = all of a file. `gate` asks the
    policy whether a written problem lies in `band`; `mixed` trains on groups with both right and
    wrong answers alone, and draws until there are as many as a step asks for.
    """
    recipe = in_phases(seeds, epochs, written, weigh, band, gate, mixed)
    parts: dict[str, Any] = {}
    if writer is not None:
        judges = (judge,) if judge is not None else ()
        parts["writer"] = pl.curriculum.ProblemsByModel(writer, solver=solver, judges=judges)
    if namer is not None:
        parts["concepts"] = ConceptsByModel(namer)
    for name, part in parts.items():
        recipe = pl.override(recipe, f"draw.{name}", part)
    return pl.vary(
        recipe,
        credit=pl.chain(
            pl.credit.TaskColumn(WRITTEN), pl.Center("group"), pl.Scale("group", ddof=1)
        ),
        objective=pl.Clipped(reduce="sequences") + pl.Track((WRITTEN,)),
    )


def embedded(seeds: int = 32, epochs: int = 2, written: int = 32, **options: Any) -> pl.Recipe:
    """On the embedded problem: fifteen steps of eight prompts, of which eight are of the seeds alone."""
    made = build(seeds=seeds, epochs=epochs, written=written, **options)
    return pl.vary(made, schedule=pl.Schedule(prompts=8, steps=15))
