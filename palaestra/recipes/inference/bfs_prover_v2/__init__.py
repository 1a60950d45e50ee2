"""BFS-Prover-V2: a model that says one tactic at a time proves theorems by best-first search, learns from
the proofs that it finds, and splits hard theorems by a plan.

A proof kernel runs the tactics; what it takes from the statement alone is a proof, nothing else. The
state is the first open goal, and an answer is one tactic. A search opens the state with the largest

    sum_i log p(a_i | s_i) / L^alpha,    L the tactics that led there, alpha = 1/2

Training, in `rounds`. Expert iteration: theorems are searched, and the policy imitates the tactics on
the paths of proofs, but for those whose perplexity under the policy that said them lies outside the
quantiles `band` of the batch: what is below is known already, what is above is noise. Between two
rounds the best policy proves all training theorems again, and the shortest proofs, filtered alike, train
the run's own model from its start, which then is the policy of the next round.

Proving, at the end: a planner writes subgoals, each becomes a hypothesis once it is proven; several
provers search each subgoal at a time, and all of them share a cache of closed goals, by goal and
hypotheses. A subgoal without a proof is planned again (arXiv:2509.06493; the score is that of
arXiv:2502.03438, which the second builds on).

`kernel=own` is propositional logic (`palaestra/services/proof/natural.py`), kernel=coq Debian's Coq, in
the sandbox, kernel=lean Lean 4 behind a Kimina Lean Server of yours. Where a kernel knows all tactics of a goal
the model draws from these, unless `free`.

    palaestra train bfs-prover-v2 --data theorems.jsonl [kernel=coq] [imports=Arith,Lia] --model DIR
    palaestra train bfs-prover-v2 --data theorems.jsonl kernel=lean server=http://127.0.0.1:8000 imports=Mathlib --model DIR

The held-out accuracy between steps asks for a whole proof in one answer; the part `exam` searches.

Quantiles, alpha and the number of tactics are ours; rounds are of a fixed length, where the paper waits for a
plateau. Provers of a subgoal divide its budget and do not stop one another.
"""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.recipes.inference.bfs_prover_v2.examples import PROOFS, THEOREMS
from palaestra.recipes.inference.bfs_prover_v2.planning import (
    PlanByModel,
    PlanByRule,
    PlannedProofs,
    Planner,
    Undivided,
)
from palaestra.recipes.inference.bfs_prover_v2.search import (
    KernelName,
    TacticSearch,
    open_kernel,
)
from palaestra.recipes.inference.bfs_prover_v2.training import (
    CollectProofs,
    OnProofPath,
    PerplexityBand,
    ProveTheorem,
    check_band,
)

CARD = pl.Card(
    title="BFS-Prover-V2: multi-turn off-policy RL, planner + parallel tree search",
    paper="arXiv:2509.06493",
    grade="B",
    claim="Expert iteration that filters tactics by their perplexity and trains from the base again and "
    "again goes beyond the plateau, and a planner with parallel provers proves more theorems.",
    source="abstract, and reviews of the paper that agree; the score of V1; quantiles, alpha, and how "
    "provers share a budget are ours",
    size=pl.Size(
        setting="7B and 32B step-provers in Lean 4, about 3 million autoformalised theorems; 95.08% of "
        "MiniF2F test and 41.4% of ProofNet test",
        model="qwen2.5-7b",
    ),
    task="theorems",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                THEOREMS,
                "a theorem, as the kernel reads it",
            ),
            pl.needs.NeededColumn(
                "demonstration",
                "text",
                PROOFS,
                "a proof of it, a tactic a line",
                when={"proofs": (True,)},
            ),
        ),
        models=(
            pl.needs.chat_model(
                "planner",
                "planner",
                "splits a theorem into subgoals, in words that the kernel reads",
                otherwise="with kernel=own a rule splits conjunctions and cases; with coq and lean a theorem is "
                "searched whole",
            ),
        ),
        shows="filtered",
        off={"band": (0.0, 1.0)},
        own={
            "rounds": 1,
            "openings": 8,
            "band": (0.4, 0.6),
            "tasks": 4,
            "theorems": 8,
            "proofs": True,
            "rules": False,
            "expert1.schedule.prompts": 6,
            "start.schedule.prompts": 4,
        },
    ),
    use="It helps where a kernel decides every step and the model proves some theorems already; it learns "
    "nothing from theorems of which it finds no proof.",
    lacks=(
        "Lean has never run here: kernel=lean is tested with a server that gives the answers which Lean's REPL has on record.",
        "MiniF2F and ProofNet are not here; their theorems are rows of your file.",
        "Retraining comes after a fixed number of steps, not where the solve rate stops rising.",
        "The built-in kernel has no quantifiers.",
        "No corpus of autoformalised theorems comes with it; a user brings theorems.",
        "Provers share a cache of whole subgoals, not of states inside a search.",
    ),
)


def build(
    kernel: KernelName = "own",
    imports: str = "",
    axioms: tuple[str, ...] = (),
    server: str = "",
    preamble: str = "",
    planner: pl.Source | None = None,
    rounds: int = 2,
    band: tuple[float, float] = (0.2, 0.8),
    alpha: float = 0.5,
    tactics: int = 4,
    openings: int = 16,
    provers: int = 2,
    replans: int = 2,
    tasks: int = 64,
    theorems: int = 512,
    proofs: bool = False,
    free: bool = False,
    rules: bool = True,
) -> pl.Pipeline:
    """`imports` are modules of Coq's library or Lean's, and proofs may rest on `axioms` of them; `server` is the address
    of a Kimina Lean Server, and `preamble` a file of Lean that stands before each theorem. A search opens
    `openings` states and asks for `tactics` tactics in each; a held-out theorem has twice as many, of
    `provers` searches. At most `theorems` are proven again between rounds; `tasks` are held-out
    theorems. With `proofs` the base imitates the proofs in the column demonstration first.
    `free` lets the model write any tactic, `rules` tells it how they are written.
    """
    check_band(band)
    if rounds < 1:
        raise pl.UserError("rounds is the number of rounds of expert iteration; give 1 or more")
    search = TacticSearch(
        open_kernel(kernel, imports, axioms, server, preamble),
        tactics=tactics,
        alpha=alpha,
        free=free,
        rules=rules,
    )
    parts, start = training_parts(search, rounds, band, openings, theorems, proofs)
    by_rule: Planner = PlanByRule() if kernel == "own" else Undivided()
    exam = PlannedProofs(
        search,
        PlanByModel(planner) if planner is not None else by_rule,
        openings=2 * openings,
        provers=provers,
        replans=replans,
        tasks=tasks,
    )
    parts["exam"] = pl.Part(exam, model=start)
    return pl.Pipeline(parts=parts)


def training_parts(
    search: TacticSearch,
    rounds: int,
    band: tuple[float, float],
    openings: int,
    theorems: int,
    proofs: bool,
) -> tuple[dict[str, pl.Part], pl.Output | None]:
    """The rounds of expert iteration with retraining between them, and where the last model lies."""
    parts: dict[str, pl.Part] = {}
    start: pl.Output | None = None
    if proofs:
        written = CollectProofs(search, searches=0, band=band, tasks=theorems, written=True)
        parts["written"] = pl.Part(written)
        parts["start"] = pl.Part(imitation(), data=pl.Output("written", "tactics"))
        start = pl.Output("start")
    for i in range(1, rounds + 1):
        expert = expert_iteration(ProveTheorem(search, openings), band)
        parts[f"expert{i}"] = pl.Part(expert, model=start)
        start = pl.Output(f"expert{i}")
        if i < rounds:
            again = CollectProofs(search, openings, band=band, tasks=theorems, written=proofs)
            parts[f"proofs{i}"] = pl.Part(again, model=start)
            parts[f"retrained{i}"] = pl.Part(imitation(), data=pl.Output(f"proofs{i}", "tactics"))
            start = pl.Output(f"retrained{i}")
    return parts, start


def expert_iteration(prove: ProveTheorem, band: tuple[float, float]) -> pl.Recipe:
    """Theorems are searched, and the tactics of their proofs imitated."""
    return pl.vary(
        pl.recipe("sft"),
        collect=pl.links(prove, pl.Score(reward=OnProofPath())),
        credit=pl.chain(PerplexityBand(*band)),
        objective=pl.Imitation(),
        schedule=pl.Schedule(prompts=32, steps=50),
    )


def imitation() -> pl.Recipe:
    """The tactics of a file are imitated."""
    return pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=32, steps=50))


def embedded(
    openings: int = 12,
    theorems: int = 32,
    tasks: int = 16,
    rules: bool = False,
    proofs: bool = True,
    **options: Any,
) -> pl.Pipeline:
    """On the embedded problem: the model imitates the kernel's own proofs of 32 theorems first, then a few
    steps of each part.
    """
    parts = build(
        openings=openings, theorems=theorems, tasks=tasks, rules=rules, proofs=proofs, **options
    ).parts
    few: dict[str, Any] = {}
    for name, part in parts.items():
        if isinstance(part.runnable, pl.Recipe):
            steps = 3 if name.startswith("expert") else 20
            schedule = pl.Schedule(prompts=8 if name.startswith("expert") else 32, steps=steps)
            part = replace(part, runnable=pl.vary(part.runnable, schedule=schedule))
        few[name] = part
    return pl.Pipeline(parts=few)
