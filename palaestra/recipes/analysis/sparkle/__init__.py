"""Beyond accuracy: what did reinforcement learning change of how a model reasons (arXiv:2506.04723)? Every
problem has a plan, the knowledge that it needs, and its sub-problems in order, each with its answer:

    plan         d_plan = acc(problem + plan) - acc(problem), beside the plan of another problem
    knowledge    d_know = acc(problem + knowledge) - acc(problem), likewise
    chain        each sub-problem is asked with the right answers of those before it. With p_k the share of
                 right answers to sub-problem k and s that to the whole: mean p_k;  a = prod p_k;
                 solved although a sub-problem fails, s (1 - a);  not solved although none does, (1 - s) a
    difficulty   the column, or how often the start is right in further answers
    change       the model's number less the start's, on the same problems and random numbers

    palaestra study sparkle --model AFTER --base BEFORE --data annotated.jsonl
    palaestra study sparkle --model AFTER --data plain.jsonl annotator=DIR

Rows have `plan`, `knowledge`, `subproblems` and perhaps `difficulty`; those that an `annotator` wrote leave out what
tells the answer. Files that name them otherwise: --columns planning=plan,difficulty_level=difficulty.

The training part (partial step scaffolding) is run by naming `arms`. Hard problems, of which the start solves none
in `tries` answers, give no signal; so each is trained on in 1 + `segments` versions, whose replies begin with the
first 0, 1, ... segments of its solution. The rest of the reply is sampled, judged and trained.

    palaestra study sparkle --model M --data solved.jsonl arms=hard,mixed,all

    hard         the hard problems alone
    mixed        as many other problems beside them
    all, half    all beginnings, or those of the first half of the segments
    shuffled     beginnings of the solutions of other problems, a control

All arms have the same number of prompts and answers, and are compared with the arm hard on held-out problems without
a scaffold. A solution is shown without the statement of its answer, which the policy has to give itself.
"""

from dataclasses import replace

import palaestra as pl
from palaestra.recipes.analysis.sparkle.axes import ReasoningAxes
from palaestra.recipes.analysis.sparkle.scaffold import Scaffolding, stage_two

CARD = pl.Card(
    title="Beyond accuracy: dissecting reasoning under RL (SPARKLE)",
    paper="arXiv:2506.04723",
    claim="After RL a model is hurt less by plans of others on hard problems and gains more from knowledge that is "
    "given; hard problems are worth training on when replies begin with a part of their solution.",
    source="abstracts of both versions; splitter, reward and settings of the released code (sparkle-reasoning/sparkle); "
    "the formulas of the chain are ours",
    size=pl.Size(
        setting="Qwen2.5-Math-7B; 40.3k problems, then 6.5k hard ones that 20 answers did not solve; AIME24, AMC23, "
        "MATH500, GSM8K and OlympiadBench, annotated by a model; 32 answers of up to 3,000 tokens, batches of 128, "
        "lr 1e-6, KL .01, temperature .6",
    ),
    task="plans",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.ANSWER,
            pl.needs.NeededColumn(
                "plan",
                "text",
                ("Add the tens, then the rest.", "Add, carry.", "Add to forty."),
                "an outline of the steps, without results",
                otherwise="the annotator writes it, or there is no plan axis",
            ),
            pl.needs.NeededColumn(
                "knowledge",
                "text",
                ("7 + 5 = 12", "8 + 1 = 9", "40 is four tens"),
                "facts that the problem needs",
                otherwise="the annotator writes it, or there is no knowledge axis",
            ),
            pl.needs.NeededColumn(
                "subproblems",
                "any",
                (
                    [{"question": "What is 7 + 5?", "answer": "12"}],
                    [{"question": "What is 8 + 1?", "answer": "9"}],
                    [{"question": "What is 0 + 9?", "answer": "9"}],
                ),
                "its parts in order, each with question and answer",
                otherwise="the annotator writes them, or there is no chain axis",
            ),
            pl.needs.NeededColumn(
                "difficulty",
                "any",
                (1, 2, 1),
                "how hard it is, a number or a word",
                otherwise="how often the start is right says so",
            ),
            replace(
                pl.needs.DEMONSTRATION,
                otherwise="the training part has the bare version of the problem alone",
            ),
        ),
        models=(
            replace(pl.studies.BASE, otherwise="the model is measured alone"),
            pl.needs.chat_model(
                "annotator",
                "annotator",
                "writes plans, knowledge and sub-problems that rows do not have",
                otherwise="the columns of the data alone count",
            ),
        ),
        shows="moved",
        off={"base": "policy"},
        own={"base": "tiny-agent", "problems": 2, "samples": 1},
    ),
    use="It tells what training changed where problems have several steps; where a plan or the knowledge holds the "
    "answer, an axis measures copying, and the page says how often it does.",
    lacks=(
        "The annotated benchmark is on a hub, with a row for each sub-problem: gather these in one row as `subproblems`.",
        "Annotations that a model wrote are checked for the answer alone; a second model and experts are not asked.",
        "There is no stage one: --model is what it made (palaestra train grpo); the paper's models and benchmarks are "
        "not shipped.",
        "The reward is the run's: the paper's also pays for a form with tags.",
        "The released code's 'first_half' cuts a solution in two and shows both; here it is the first half of the "
        "segments (segments=2 with the arm all is theirs), and the 100% version leaves out the statement of the answer.",
    ),
    grade="B",
)  # fmt: skip


def build(
    base: str = "",
    annotator: pl.Source | None = None,
    problems: int = 64,
    samples: int = 8,
    temperature: float = 1.0,
    arms: str = "",
    segments: int = 4,
    tries: int = 20,
    pool: int = 256,
    rl_steps: int = 50,
    prompts: int = 16,
    group: int = 8,
    kl: float = 0.0,
) -> ReasoningAxes | Scaffolding:
    """`base` is the model before training, "" = what the run of the model began with, if that is known; the
    `annotator` writes what rows do not have. `samples` answers to `problems` held-out problems in each form.
    With `arms`, names with commas between them, the training part instead: of `pool` training problems those that
    `tries` answers do not solve, in
    `segments`; `rl_steps` steps of `prompts` with `group` answers each, and a `kl` to the start."""
    if not arms:
        return ReasoningAxes(base, annotator, problems, samples, temperature)
    return Scaffolding(
        train=stage_two(rl_steps, prompts, group, kl),
        compared=tuple(pl.studies.listed(arms)),
        segments=segments,
        tries=tries,
        pool=pool,
        tasks=problems,
        n=samples,
        temperature=temperature,
    )


def embedded(
    steps: int = 100,
    problems: int = 64,
    samples: int = 4,
    arms: str = "",
    rl_steps: int = 20,
) -> pl.Pipeline:
    """The built-in model imitates worked problems for `steps` steps, and its knowledge of the constants is part
    of that; then comes reinforcement learning for `rl_steps`, and the study of what that changed. With `arms`, these
    are trained from there on longer problems, for as many steps."""
    taught = pl.vary(
        pl.recipe("sft"),
        optimiser=pl.AdamW(lr=2e-3, warmup=5),
        schedule=pl.Schedule(prompts=48, steps=steps),
    )
    trained = pl.vary(pl.recipe("grpo"), schedule=pl.Schedule(prompts=8, steps=rl_steps))
    study = build(problems=problems, samples=samples)
    if arms:
        study = build(
            problems=problems,
            samples=samples,
            arms=arms,
            pool=48,
            tries=4,
            rl_steps=rl_steps,
            prompts=8,
        )
    return pl.Pipeline(
        parts={
            "taught": pl.warm(taught, task="plans(beside=0.5)"),
            "trained": pl.Part(trained, model=pl.Output("taught"), task="plans"),
            "study": pl.Part(
                study,
                model=pl.Output("trained"),
                models={} if arms else {"base": pl.Output("taught")},
                task="plans(d=(5, 8))" if arms else "plans",
            ),
        }
    )
