"""Fleming-R1: questions from a knowledge graph, a cold start on chains of thought, and GRPO in two stages, the
second on what the policy keeps failing at.

    1. Questions. Walks of 1 to `hops` facts in the graph; the last node is asked for. Entities of few facts
       are asked for most, with the weight degree ^ -rare. Wrong options are tails of the same relation that
       share most neighbours with the answer and do not lie at the end of that chain.
    2. Cold start. Chains of thought are imitated: those of `teacher`, which is shown question and answer and
       asked again until it ends in that answer; else the column `demonstration`, which for questions of the
       graph is its facts in order. `cold=False` leaves it out, for a model that reasons already.
    3. Stage 1. The policy tries its pool. Problems that it solves in at most 1 of 4 tries are hard. All easy ones
       are trained on, and at most as many hard ones, `k` answers each (figure and text of the paper differ).
    4. Stage 2. The pool is tried again, before every `every`-th step: all that fails, and half as many of the
       others, are trained on, `2 k` answers each. With `checker`, a strong model, what it fails at in 5 of 5
       answers as well is set aside, for a person to read whether its label is right.

    A_i = r_i - mean_j r_j,   loss = -mean_i sum_t min(rho A, clip(rho, 0.8, 1.2) A)

r is 1 for the right option in form, a chain of thought and then the line `Answer: ...`, and else 0. The form is
demanded where a teacher or the graph writes chains that end so, and with cold=False, where prompts ask for it;
`form` says otherwise, as for demonstrations of yours, whose form is theirs. Rewards (1, 0, 0, 1) have
A = (0.5, -0.5, -0.5, 0.5). (arXiv:2509.15279, whose loss has neither ratio nor clip, which are 1 on-policy;
numbers of tries and of answers, and the form, are ours.)

    palaestra train fleming-r1 graph=FACTS.tsv --model DIR teacher="endpoint(url='http://HOST:PORT/v1',model='NAME')"
    palaestra train fleming-r1 --data QUESTIONS.jsonl --model DIR [checker="endpoint(...)"]

A graph is a file of lines head<TAB>relation<TAB>tail; with `questions=QUESTIONS.jsonl` questions of people
join those made of it. `mine=False` draws the second stage at random, the control. Labels that are wrong
are failures for ever, and mining then trains on them, unless a `checker` finds them: read how many problems are
never solved, which is said each time. Without either file, the graph is made up, of six names and four relations,
and 64 of its questions of two or three relations are held out. `palaestra train fleming-r1 --seed 0`: of these the
cold start answers 86% (0% before it), stage 1 91% and stage 2, which mined 8 of 64 problems, 81%; with form=False it
is 88% and 92%. Intervals of 95% are 14 to 19 points wide, so neither rise nor fall by GRPO says anything, and no
run of `mine=False` stands beside it. The training reward falls in stage 1, .84 to .66, as problems that are solved
teach nothing more, and rises in stage 2, .61 to .86; 88% to 100% of a step's answers are in form. The graph has
nothing of medicine. This is a benchmark of a training method: its questions and answers are no medical advice.
"""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.recipes.domains.fleming_r1.form import ASK, RequireForm
from palaestra.recipes.domains.fleming_r1.mining import FailureMix
from palaestra.recipes.domains.fleming_r1.questions import WriteGraphQuestions

CARD = pl.Card(
    title="Fleming-R1: medical reasoning, adaptive hard-sample mining",
    paper="arXiv:2509.15279",
    claim="Questions from a knowledge graph, a cold start and two stages of GRPO, the second on persistent "
    "failures, reason better about medicine than larger models.",
    source="full text (UbiquantAI/Fleming-R1, paper/Fleming-R1.pdf); group sizes, tries and rates are ours",
    size=pl.Size(
        setting="Qwen2.5-7B and Qwen3-32B, teacher GPT-OSS-120B, medical question sets and more than 100,000 "
        "entities of a graph",
        model="qwen2.5-7b",
        samples=8,
        tokens=4096,
        lr=1e-6,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.ANSWER,
            replace(
                pl.needs.DEMONSTRATION,
                otherwise="the answer alone is imitated, or a teacher writes it",
            ),
        ),
        models=(
            pl.needs.chat_model(
                "teacher",
                "teacher",
                "writes the chains of thought that are imitated first; it is shown the answer",
                otherwise="the column `demonstration` is imitated, or the facts of the graph in order",
            ),
            pl.needs.chat_model(
                "checker",
                "checker",
                "answers problems that the policy fails at, so that wrong labels are not mined",
                otherwise="labels are believed",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "graph",
                "a file of lines head<TAB>relation<TAB>tail, of which questions are made; it takes the place "
                "of --data, and with questions=QUESTIONS.jsonl those of people join them",
                flag="graph=FACTS.tsv",
                otherwise="the questions of --data are trained on",
            ),
        ),
        shows="mined",
        off={"mine": False},
        own={
            "k": 2,
            "tries": 2,
            "problems": 4,
            "cold.schedule.prompts": 2,
            "stage1.schedule.prompts": 2,
            "stage2.schedule.prompts": 2,
        },
    ),
    use="It helps where some problems stay unsolved after GRPO and are solved now and then; what is never "
    "solved has no gradient, and where nothing fails the second stage is the first again.",
    lacks=(
        "The medical question sets and the graph of Wikipedia are not there: bring a graph or questions.",
        "Only the last node of a chain is masked, and walks are chains, not other subgraphs.",
        "Labels are checked of problems that the policy fails at alone, and only where a `checker` is named.",
        "Chains of hard questions are written again until they end in the answer; there is no prompt for "
        "backtracking or self-correction.",
        "The medical benchmarks are not run.",
    ),
    grade="B",
)
HELD_OUT = 64  # questions of the made-up graph
SOLVE = (
    "{prompt}\n\nThe right answer is {answer}. Write a short chain of thought that leads to it step by step, "
    "as if you had not been told. End with the line `Answer: {answer}`."
)


def cold_part(teacher: pl.Source | None) -> pl.Recipe:
    """Imitates chains of thought."""
    draw: Any = pl.Shuffled()
    if teacher is not None:
        draw = pl.curriculum.WrittenColumn(
            "demonstration", SOLVE, (teacher,), solved=True, tries=4, source=draw
        )
    return pl.vary(pl.recipe("sft"), draw=draw, references=pl.curriculum.frozen_starts(teacher))


def stage_part(draw: FailureMix, k: int, form: bool, *more: pl.Link) -> pl.Recipe:
    """GRPO without a deviation on what `draw` gives; `more` leaves the column "mined", which is logged."""
    loss: Any = pl.Clipped(reduce="constant")
    return pl.vary(
        pl.recipe("grpo"),
        draw=draw,
        collect=pl.links(pl.Sample(n=k), pl.Score(), *((RequireForm(),) if form else ())),
        credit=pl.chain(*more, pl.Center("group")),
        objective=loss + pl.Track(("mined",)) if more else loss,
    )


def build(
    graph: str = "",
    questions: str = "",
    teacher: pl.Source | None = None,
    n: int = 4096,
    hops: int = 3,
    choices: int = 4,
    rare: float = 1.0,
    cold: bool = True,
    k: int = 8,
    every: int = 25,
    tries: int = 4,
    problems: int | None = None,
    mine: bool = True,
    form: bool | None = None,
    checker: pl.Source | None = None,
) -> pl.Pipeline:
    """Args:
    n: questions made of the graph.
    choices: options of a question, at most.
    every: steps of the second stage after which the pool is tried again; 0 = never.
    tries: of each problem of the pool; a quarter of them right, rounded down, is a failure still.
    problems: of the pool, the first ones; None = all.
    mine: False = the second stage is drawn at random.
    form: whether an answer earns something in form alone; None = where chains end so, see above.
    checker: a strong model that is asked about failed problems; None = nobody.
    """
    pl.check_bounds("fleming-r1: n", n, least=2)
    pl.check_bounds("fleming-r1: hops", hops, least=1)
    pl.check_bounds("fleming-r1: choices", choices, least=2, most=26)
    pl.check_bounds("fleming-r1: k", k, least=2)
    pl.check_bounds("fleming-r1: tries", tries, least=1)
    if questions and not graph:
        raise pl.UserError(
            "fleming-r1: `questions` join those of a graph; give graph=FACTS.tsv, or --data QUESTIONS alone"
        )
    write = None
    if graph:
        write = WriteGraphQuestions(
            graph, n, hops, choices, rare, questions, bare=teacher is not None
        )
    return pipeline(write, teacher, cold, k, every, tries, problems, mine, form, checker)


def pipeline(
    write: WriteGraphQuestions | None,
    teacher: pl.Source | None = None,
    cold: bool = True,
    k: int = 8,
    every: int = 25,
    tries: int = 4,
    problems: int | None = None,
    mine: bool = True,
    form: bool | None = None,
    checker: pl.Source | None = None,
) -> pl.Pipeline:
    """The parts, on the questions of `write`; None = on those of the run."""
    parts, start = dict[str, pl.Part](), None
    data: Any = ""
    if write is not None:
        parts["questions"], data = pl.Part(write), pl.Output("questions", "questions")
    if cold:
        parts["cold"] = pl.Part(cold_part(teacher), data=data)
        start = pl.Output("cold")
    if form is None:
        form = teacher is not None or write is not None or not cold
    pool = FailureMix(samples=tries, failed=tries // 4, problems=problems, checker=checker)
    base = replace(pool, ratio=(1, 1), every=0, base=True)
    mined = replace(pool, every=every, mine=mine)
    first, second = (
        stage_part(draw, n, form, *more)
        for draw, n, more in ((base, k, ()), (mined, 2 * k, (pl.credit.TaskColumn("mined"),)))
    )
    if form and not cold:  # nobody has shown the form
        first, second = (pl.vary(stage, instruction=ASK) for stage in (first, second))
    parts["stage1"] = pl.Part(first, model=start, data=data)
    parts["stage2"] = pl.Part(second, model=pl.Output("stage1"), data=data)
    return pl.Pipeline(parts=parts)


def embedded(
    graph: str = "",
    n: int = 280,
    hops: int = 3,
    k: int = 4,
    every: int = 0,
    problems: int | None = 64,
    **options: Any,
) -> pl.Pipeline:
    """On a made-up graph, whose facts the built-in model first imitates; with `graph` on that one."""
    made = build(graph=graph, n=n, hops=hops, k=k, every=every, problems=problems, **options)
    if graph:
        return made
    shape = {name: options.pop(name) for name in ("choices", "rare") if name in options}
    held = min(HELD_OUT, n // 2) if hops > 1 else 0
    bare = options.get("teacher") is not None
    write = WriteGraphQuestions("", n, hops, **shape, held_out=held, bare=bare)
    made = pipeline(write, k=k, every=every, problems=problems, **options)
    return pl.Pipeline(parts={name: few_steps(name, part) for name, part in made.parts.items()})


def few_steps(name: str, part: pl.Part) -> pl.Part:
    """The part with a schedule for a model of a million parameters."""
    if name == "questions":
        return part
    if name == "cold":
        schedule, optimiser = pl.Schedule(prompts=16, steps=120), pl.AdamW(lr=1e-3, warmup=5)
        return replace(
            part, runnable=pl.vary(part.runnable, schedule=schedule, optimiser=optimiser)
        )
    return replace(part, runnable=pl.vary(part.runnable, schedule=pl.Schedule(prompts=8, steps=10)))
