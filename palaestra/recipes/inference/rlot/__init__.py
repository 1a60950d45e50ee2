"""RL of Thoughts: a navigator of under 3,000 parameters chooses prompt blocks for a frozen model, and
learns on the questions that the model fails (arXiv:2505.14140).

    state     seven grades 1..3 that the model gives its own partial solution: modelling, clarity,
              calculation; complexity, alternatives; completeness, consistency
    action    reason | decompose | debate | refine | terminate, see `pl.worlds.BlockRunner`
    Q(s, a) = V(s) + A(s, a) - mean_a A(s, a)
    y       = r + gamma Q'(s', argmax_a Q(s', a)),   Huber loss, replay, epsilon-greedy

r is the score of a process reward model, `prm`, for the text after each block. Without one the
checker of the problem pays the final answer, and the blocks before it nothing. Refine and debate are
not legal before the first step, and at `limit` blocks the answer is forced. Grades that cannot be
read count as 2, and are counted.

    palaestra train rlot --data questions.jsonl --model DIR --out RUN
    palaestra search --data F --model DIR --with "rlot(navigator='RUN/navigator')"
    palaestra eval   --data F --model OTHER --with "rlot(navigator='RUN/navigator')"

Training sees the answers of the training questions; no answer of a held-out problem is seen before it
is measured. The run compares the navigator with a direct answer, with `reason` alone, with random
blocks, and with itself reading random grades; each with its requests, grades included. Accuracy at
equal tokens beside the majority vote is what `palaestra eval --with` draws.

Deviations: texts of the blocks and constants are ours. Grades are greedy; requests that were made
in one of the `streams` of a question are not made again.
"""

import palaestra as pl
from palaestra.recipes.inference.rlot.program import TrainNavigator
from palaestra.recipes.inference.rlot.toy import PROMPTS, imitate_blocks

CARD = pl.Card(
    title="RL of Thoughts: RL navigator over logic blocks",
    paper="arXiv:2505.14140",
    grade="B",
    claim="A navigator of under 3,000 parameters that chooses logic blocks by the state of the reasoning "
    "beats predefined structures, and transfers to other models and tasks.",
    source="abstract, and public reviews for blocks, grades, reward and learner; texts and constants "
    "inferred",
    size=pl.Size(
        setting="GPT, Llama, Qwen and DeepSeek models on AIME, MATH, GPQA, MMLU-STEM and StrategyQA; up to "
        "+13.4% over inference-time baselines",
    ),
    needs=pl.needs.Requirements(
        columns=(pl.needs.PROMPT, pl.needs.ANSWER),
        models=(
            pl.needs.NeededModel(
                "process reward model",
                "prm",
                "scores the text after each block, without the right answer",
                inert=None,
                otherwise="the checker pays the final answer, and no block before it",
            ),
        ),
        shows="navigator_updates",
        off={"iterations": 0},
        own={
            "iterations": 2,
            "learner.games": 2,
            "learner.updates": 2,
            "questions": 4,
            "limit": 3,
            "tasks": 1,
        },
    ),
    use="It helps where questions differ in the structure that they need and the model grades itself "
    "with some truth; look at `shuffled grades` in the summary. It costs several requests a block.",
    lacks=(
        "The paper's benchmarks, models and baselines (Tree and Graph of Thoughts) were not run.",
        "On the built-in problem the blocks and the grades are imitated from computed ones, so it shows "
        "the mechanism and decides nothing about models that grade themselves.",
        "On the built-in problem the navigator ends worse than `reason` alone: seed 0 has 12.5% and 53.1% on 32 "
        "problems, so its default shows that it learns, and not the claim.",
        "There is no best choice of blocks in hindsight to compare with.",
        "Only questions are answered in blocks; environments of several turns are refused.",
    ),
)


def build(
    prm: pl.RewardFn | None = None,
    iterations: int = 16,
    questions: int = 64,
    tries: int = 1,
    limit: int = 6,
    plans: int = 2,
    gamma: float = 0.9,
    lr: float = 3e-3,
    width: int = 32,
    cost: float = 0.0,
    temperature: float = 1.0,
    tasks: int = 32,
    prompts: pl.worlds.BlockPrompts = pl.worlds.BlockPrompts(),
) -> TrainNavigator:
    """`iterations` of 16 solutions; `prm` scores intermediate results; see `TrainNavigator`."""
    if min(questions, tries, limit, plans, tasks) < 1 or iterations < 0:
        raise pl.UserError(
            "questions, tries, limit, plans and tasks are 1 or more, and iterations 0 or more"
        )
    learner = pl.control.DoubleQ(
        lr=lr,
        gamma=gamma,
        games=16,
        updates=32,
        batch=64,
        keep=4000,
        follow=0.05,
        width=width,
        dueling=True,
    )
    return TrainNavigator(
        learner,
        iterations,
        prm,
        cost,
        questions,
        tries,
        limit,
        plans,
        temperature=temperature,
        tasks=tasks,
        prompts=prompts,
    )


def embedded(
    steps: int = 120, iterations: int = 16, questions: int = 64, limit: int = 7, tasks: int = 32
) -> pl.Pipeline:
    """The built-in model learns the blocks of arithmetic chains in `steps` steps, and is navigated."""
    navigator = build(
        iterations=iterations,
        questions=questions,
        limit=limit,
        temperature=0.5,
        tasks=tasks,
        prompts=PROMPTS,
    )
    return pl.Pipeline(
        parts={
            "blocks": pl.warm(imitate_blocks(steps)),
            "navigator": pl.Part(navigator, model=pl.Output("blocks")),
        }
    )
