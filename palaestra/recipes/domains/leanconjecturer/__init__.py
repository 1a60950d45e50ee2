"""LeanConjecturer: a language model proposes theorems around seed files, a proof checker drops what is known, easy or
false, and a prover learns from the rest by GRPO with the checker's verdict as its reward (arXiv:2506.22005).

1. Conjectures. For each seed file, up to `rounds` times and until a round adds nothing:

       propose    the model sees the context and all statements of the file and writes similar ones, without proofs
       normalise  names, attributes, modifiers and proofs are cut off; one spelling for all of a statement
       invalid    the checker does not read it           duplicate, held out   it is known, or held out
       false      an enumeration refutes it              vacuous               its hypotheses never hold
       exists     `novelty` steps prove it, or it is an instance of a statement of its file, seed or kept, hypotheses
                  being given ones (the paper: exact? closes it by one lemma)
       trivial    `triviality` steps prove it (the paper: aesop closes it)
       keep       the rest; it joins the context of the next round

   A checker that cannot run, or runs out of time, makes an "error" and never a conjecture. `conjectures.jsonl` has
   every proposal with its status and the limits it was judged by, `problems.jsonl` what is trained on.
2. Imitation of the seeds' proofs, column `demonstration`, with `proofs=True`; off by default.
3. GRPO: a whole proof, a tactic a line, earns 1 where the kernel accepts it from the statement alone, with no hole and
   no axiom but those allowed, else 0. `all_zero` is the share of groups without a proof, of which nothing is learned.

    palaestra train leanconjecturer --data seeds.jsonl --model DIR guide="endpoint(url='http://HOST:PORT/v1',model='NAME')"
    palaestra train leanconjecturer --data seeds.jsonl kernel=coq imports=Arith,Lia --model DIR
    palaestra train leanconjecturer --data seeds.jsonl kernel=lean server=http://127.0.0.1:8000 imports=Mathlib,Aesop \\
        preamble=topology.lean --model DIR

`seeds.jsonl` has a statement in `prompt` (of a file with `theorem` alone: --columns theorem=prompt), and where there
are several files `file` and `context`, the definitions that the model should see. A proposal is one line. Without a
guide the policy itself proposes. `kernel=closure` is the theory of closure, interior and complement of sets, where
the paper's topology lives (semi-open: A <= cl int A, pre-open: A <= int cl A, alpha-open: A <= int cl int A); all
spaces of up to `points` points refute what is false there. kernel=logic is propositional, kernel=coq Debian's Coq in
the sandbox, with `trivial`, `easy` and `reflexivity` for exact? and `auto`, `firstorder`, `intuition` and `tauto` for
aesop, and nothing that refutes. kernel=lean is the paper's: Lean 4 behind a Kimina Lean Server of yours, where `exact?`
says what exists and `aesop` what is trivial; `preamble` has what the file opens and defines. A statement there may
begin with binders: `(A : Set X) : closure A = A`.

Deviations. The paper has no falsifier, so a false conjecture counts as non-trivial there; `points=0` leaves it out.
Steps count in place of time limits. Base prover, group size and rate of the paper's GRPO are not known to us.
Controls: `filters=False` trains on all that can be read, `rounds=0` on the seeds.

`palaestra train leanconjecturer --seed 0`, on theorems of up to three operators a side, with a program that proposes:
of 144 proposals 34 are kept, 52 are false, 40 known, 13 in the library and 5 held out, so the filters drop 66% of
what is new and can be read. Of 16 held-out theorems of two or three steps, eight proofs each, imitation for 600 steps
proves 26% at the first try, and 24 steps of RL bring 32% (pass@1); within eight tries it is 38% before and after. One
seed, 16 theorems: no claim. In RL 77% of the groups have no proof (`all_zero`, by step 62% to 88%), and rewards go
from 0.11 to 0.18, means of eight steps: most of what is kept has more operators or steps than what was imitated, and
4 of the 34 have no chain of four steps. With 250 steps of imitation, other proposals and 15 steps of RL it was 17% to
19%, `all_zero` 83%. The run took 109 seconds of a processor. Seeds alone and unfiltered conjectures, at equal
samples, were not run beside it.
"""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.recipes.domains.leanconjecturer.checks import (
    ConjectureChecks,
    KernelName,
    ProofVerdict,
    open_kernel,
)
from palaestra.recipes.domains.leanconjecturer.conjectures import MakeConjectures, MutateStatements
from palaestra.recipes.domains.leanconjecturer.exam import ProofExam, ZeroGroups
from palaestra.recipes.domains.leanconjecturer.examples import CONTEXT, PROPOSALS, SEEDS

CARD = pl.Card(
    title="LeanConjecturer: conjecture generation + GRPO",
    paper="arXiv:2506.22005",
    claim="Conjectures that a language model writes around seed files, filtered by a proof checker, are training data "
    "on which GRPO makes a prover better in their domain.",
    source="abstract, and copies of the pipeline's code (auto-res/LeanConjecturer) in an index of code; its settings of "
    "GRPO are ours",
    size=pl.Size(
        setting="o3 proposes from 40 Mathlib files, 12,289 conjectures of which 3,776 are valid and non-trivial; the "
        "prover and its settings are not known to us",
        model="qwen2.5-7b",
        samples=8,
        lr=1e-6,
    ),
    task="closures(d=3,most=3,held=[2,3])",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt", "text", SEEDS, "a statement of a seed file, as the kernel reads it"
            ),
            pl.needs.NeededColumn(
                "file",
                "text",
                ("closure",),
                "the seed file that it stands in",
                otherwise="all are one file",
            ),
            pl.needs.NeededColumn(
                "context",
                "text",
                (CONTEXT,),
                "the definitions of its file, which the model sees",
                otherwise="statements are shown alone",
            ),
            pl.needs.NeededColumn(
                "demonstration",
                "text",
                ("cl A",),
                "a proof, a tactic a line",
                when={"proofs": (True,)},
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "guide",
                "guide",
                "proposes statements from the seeds",
                inert=None,
                example="endpoint(url='http://HOST:PORT/v1',model='NAME')",
                otherwise="the policy proposes itself",
            ),
        ),
        shows="filtered",
        off={"filters": False},
        own={"endpoint": PROPOSALS, "exam": 0, "rl.schedule.prompts": 2, "rl.collect.links.0.n": 2},
    ),
    use="It helps where a checker decides proofs, seeds of the domain are few, and the prover finds a proof of some "
    "conjectures; where it finds none `all_zero` is 1 and nothing is learned.",
    lacks=(
        "Lean has never run here: kernel=lean is tested with a server that gives the answers which Lean's REPL has on record, "
        "and Mathlib, exact? and aesop are those of your server.",
        "Context is not cut out of source files by rules: seeds are rows, and `context` is a column of theirs.",
        "Conjectures of the closure theory are proven by chains of inclusions alone, not by cases.",
        "A preamble stands before the theorems of all files; column `context` is what the model sees, not Lean.",
        "With kernel=coq an instance of a seed counts as new where no tactic of exact?'s closes it.",
        "With kernel=coq and kernel=lean nothing refutes, so false conjectures stay; `all_zero` shows how much they cost.",
        "New theorems are not collected after training: answers that the kernel accepts are in the rollouts.",
    ),
    grade="B",
)


def build(
    kernel: KernelName = "closure",
    imports: str = "",
    axioms: tuple[str, ...] = (),
    server: str = "",
    preamble: str = "",
    guide: pl.Source | None = None,
    rounds: int = 1,
    replies: int = 1,
    novelty: int = 1,
    triviality: int = 2,
    points: int = 3,
    filters: bool = True,
    proofs: bool = False,
    rules: bool = True,
    samples: int = 8,
    exam: int = 64,
) -> pl.Pipeline:
    """Args:
    imports, axioms: modules of Coq's library or Lean's, and axioms of them that a proof may rest on.
    server: the address of a Kimina Lean Server, for kernel=lean.
    preamble: a file of Lean that stands before each theorem.
    guide: a language model that proposes; without one the policy does.
    rounds: of proposals at most, 15 in the paper for one file; 0 = the seeds are trained on.
    replies: of the model in a round.
    novelty, triviality: a conjecture that so many steps prove is dropped; 0 = none is.
    points: of the spaces that refute; 0 = none do.
    filters: False keeps all that can be read.
    proofs: whether the seeds' proofs are imitated first.
    rules: whether a prompt says how a proof is written.
    exam: held-out theorems that are measured; 0 = none.
    """
    pl.check_bounds("leanconjecturer: samples", samples, least=2)
    opened = open_kernel(kernel, imports, axioms, server, preamble)
    checks = ConjectureChecks(opened, novelty, triviality, points)
    make = MakeConjectures(checks, guide, rounds, replies, filters, rules)
    return pipeline(make, proofs, samples, exam)


def pipeline(make: MakeConjectures, proofs: bool, samples: int, exam: int) -> pl.Pipeline:
    """Conjectures, imitation of seeds where there are proofs, and RL."""
    parts, start = {"conjectures": pl.Part(make)}, None
    if proofs:
        rules = make.checks.kernel.rules if make.rules else ""
        parts["imitation"] = pl.Part(pl.vary(pl.recipe("sft"), instruction=rules))
        start = pl.Output("imitation")
    reward = ProofVerdict(make.checks.kernel)
    learned = pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=samples), pl.Score(reward=reward)),
        credit=pl.chain(ZeroGroups(), pl.Center("group"), pl.Scale("group", ddof=1)),
        references=pl.curriculum.frozen_starts(make.guide),
        evaluate={"proofs": ProofExam(reward, exam)} if exam else {},
    )
    parts["rl"] = pl.Part(learned, model=start, data=pl.Output("conjectures", "problems"))
    return pl.Pipeline(parts=parts)


def embedded(
    guide: pl.Source | None = None,
    rounds: int = 3,
    novelty: int = 1,
    triviality: int = 1,
    points: int = 3,
    filters: bool = True,
    proofs: bool = True,
    samples: int = 8,
    exam: int = 24,
) -> pl.Pipeline:
    """On a small theory of closure: a program proposes, the model imitates proofs of the task's theorems, of which the
    first 30 are the seeds, then learns from what is kept. Conjectures of two steps are kept, so that some are within
    its reach.
    """
    checks = ConjectureChecks(open_kernel("closure"), novelty, triviality, points)
    author = MutateStatements(lines=48, most=2) if guide is None else None
    make = MakeConjectures(checks, guide, rounds, 1, filters, rules=False, author=author)
    made = pipeline(make, proofs, samples, exam)
    few: dict[str, Any] = {
        "imitation": {
            "schedule": pl.Schedule(prompts=16, steps=600),
            "optimiser": pl.AdamW(lr=2e-3, warmup=10),
        },
        "rl": {"schedule": pl.Schedule(prompts=8, steps=24), "optimiser": pl.AdamW(lr=2e-4)},
    }
    return pl.Pipeline(
        parts={
            name: replace(part, runnable=pl.vary(part.runnable, **few[name]))
            if name in few
            else part
            for name, part in made.parts.items()
        }
    )
