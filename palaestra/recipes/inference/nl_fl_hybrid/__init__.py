"""NL-FL HybridReasoning: a question in natural language (NL) is also answered in formal language (FL),
as the witness of an existence problem that z3 decides. Nothing is trained.

    align       `formaliser` rewrites "find a such that C(a)" as "there is a such that C(a)", in words
    formalise   it writes that in SMT-LIB; what z3 cannot read, or what several numbers or none
                satisfy, is written again, at most `tries` times
    reason      `prover` sees the question and the statement together (mixed problem input)
    prove       z3 looks for a number that satisfies the statement, else it checks the prover's
    extract     the model states the final answer from the question, the thoughts and the proof

An answer is verified where z3 proves that one number satisfies the statement, and that is it. Of
`plain` answers in words and `proofs` by this way the verified ones come first, the commonest of them,
and without any the majority of all (arXiv:2505.23703). The run compares this with the majority of
answers in words that have cost at least as many generated tokens.

    pip install 'palaestra[z3]'
    palaestra search --data F --model DIR --with nl-fl-hybrid
    palaestra eval   --data F --model DIR --with nl-fl-hybrid
    palaestra train nl-fl-hybrid --data F --model DIR [formaliser=DIR] [prover=DIR]

Text of a model is never run: SMT-LIB is read by a parser that knows declarations and assertions alone,
and z3 works in a process with limits of time and memory. A statement that gives the number itself is a
guess and is refused: once z3 has found the number, it may not stand in the statement as a literal unless
the question has it too (0 and 1 as bounds of a sign are let pass). This guard sees no number that is
spelled as a sum, and refuses a statement that has its answer by accident. The least or
greatest number is asked for by (minimize answer) or (maximize
answer), so that no degenerate witness passes. A verified answer is still wrong where the statement
does not say what the question asks: `verified_right` in the summary is how often it is right.

Deviations: the paper proves in Lean; z3 decides and finds witnesses itself. How answers are combined,
and the guard against degenerate witnesses, are ours.
"""

from typing import Any

import palaestra as pl
from palaestra.recipes.inference.nl_fl_hybrid.program import ProveAnswers
from palaestra.recipes.inference.nl_fl_hybrid.toy import PROMPTS, imitate_stages

CARD = pl.Card(
    title="NL-FL HybridReasoning",
    paper="arXiv:2505.23703",
    claim="Questions that are turned into existence theorems and reasoned on in formal language raise "
    "accuracy over reasoning in words, also on problems that more tries in words do not solve.",
    source="abstract for alignment, mixed input and extraction; a public review for the stages; the "
    "combination, the guard and z3 in place of Lean are ours",
    size=pl.Size(
        setting="Kimina-Autoformalizer and Kimina-Prover of 7B; 89.80% of MATH-500 and 84.34% of AMC, 4.60 "
        "and 4.82 points above answers in words",
    ),
    needs=pl.needs.Requirements(
        columns=(pl.needs.PROMPT, pl.needs.ANSWER),
        models=(
            pl.needs.chat_model(
                "formaliser",
                "formaliser",
                "rewrites the question as an existence problem and writes that in SMT-LIB",
                otherwise="the run's own model writes it",
            ),
            pl.needs.chat_model(
                "prover",
                "prover",
                "reasons on the question and its statement",
                otherwise="the run's own model reasons",
            ),
        ),
        shows="answers_changed",
        off={"proofs": 0},
        own={
            "endpoint": "(assert (= (* 3 answer) 369))",
            "tasks": 1,
            "plain": 1,
            "proofs": 1,
            "tries": 1,
        },
    ),
    use="It helps where questions ask for a number that arithmetic conditions determine and a model writes "
    "these conditions more surely than it solves them; it does not help with proofs, geometry or words.",
    lacks=(
        "There is no Lean, no Kimina model, and neither MATH-500 nor AMC was run.",
        "Answers are integers and fractions: a root, a set, a formula or a name is never verified.",
        "Nothing but the model checks that a statement says what the question asks; the paper's reasoner "
        "has the same gap.",
        "In `palaestra search` the searched model runs all stages; another formaliser or prover is an "
        "argument of `palaestra train` alone.",
        "On the built-in problem the stages are imitated from computed ones, and answers in words without "
        "any working, so it shows the mechanism and decides nothing about models that reason or formalise by "
        "themselves.",
    ),
    grade="B",
)


def build(
    formaliser: pl.Source | None = None,
    prover: pl.Source | None = None,
    plain: int = 4,
    proofs: int = 2,
    tries: int = 2,
    attempts: int = 1,
    verified_first: bool = True,
    seconds: float = 2.0,
    temperature: float = 1.0,
    tasks: int = 32,
    prompts: pl.worlds.FormalPrompts = pl.worlds.FormalPrompts(),
) -> ProveAnswers:
    """`plain` answers in words and `proofs` statements, of `tries` tries and `attempts` of the prover
    each, for `tasks` held-out problems; `proofs` 0 = words alone.
    """
    if min(plain, tries, attempts, tasks) < 1 or proofs < 0:
        raise pl.UserError("plain, tries, attempts and tasks are 1 or more, and proofs 0 or more")
    if seconds <= 0:
        raise pl.UserError("seconds is the time of a question to z3; give more than 0")
    return ProveAnswers(
        formaliser=formaliser,
        prover=prover,
        plain=plain,
        proofs=proofs,
        tries=tries,
        attempts=attempts,
        verified_first=verified_first,
        seconds=seconds,
        temperature=temperature,
        tasks=tasks,
        prompts=prompts,
    )


def embedded(steps: int = 100, tasks: int = 32, **options: Any) -> pl.Pipeline:
    """The built-in model learns the stages on arithmetic chains in `steps` steps, and answers so."""
    exam = build(tasks=tasks, prompts=PROMPTS, **options)
    return pl.Pipeline(
        parts={
            "stages": pl.warm(imitate_stages(steps)),
            "answers": pl.Part(exam, model=pl.Output("stages")),
        }
    )
