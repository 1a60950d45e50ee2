"""ReST-RL: training that starts on the way of earlier good answers, then decoding by a tree search
that a value model leads.

Stage 1, ReST-GRPO. In each round every problem is answered 5 times. A problem stays if its rewards
differ, std r >= 0.05 (ddof 0). If its best answer has a reward of 0.9 or more, the lines of that answer
give further start states: s_k is its first k lines of L, and ceil(L / 2) states are drawn with
replacement:

    p(s_k) = 0.95^(k-1) / sum_j 0.95^(j-1),    k = 1..L

Each state is a group of GRPO: all its answers begin with s_k, which has no gradient, and are judged as
a whole. The next round uses the trained policy. As in the released code the loss is a mean over the
batch's tokens, without a KL, and an answer that ends by itself is paid 0.001 more.

Stage 2, VM-MCTS. Trees over lines (`pl.rollout.TreeSearch`) grow by true rewards. V(s) is the mean
reward of all answers from s and below it, and the search opens the node with the largest

    V + c sqrt((1 + ln N) / (eps + n)),    c = 0.2 to train, 0.1 to decode, eps = 0.1

A scalar head on a second copy of the policy learns V of all opened states, and the rewards of whole
answers, by squared error. To decode, the head leads the same tree: it values every child, and the
answer with the largest value is given (arXiv:2508.19576; THUDM/ReST-RL, process_gen_data.py, mcts.py,
task.py, grpo_utils.py).

s_L is the whole answer, after which only the end is left to say. If all problems of a round have equal
rewards the next problems are tried. In a world of several turns the states are those of the first turn.
An end of text ends an answer here, so the released code's fine of 1e-6 for each trailing character has
no use. The answers of a round are in the run's budget.
"""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.recipes.data.rest_rl.decoding import Method, RateStates, ValueDecoding
from palaestra.recipes.data.rest_rl.states import EndsByItself, FromState, Starts, StartStates

CARD = pl.Card(
    title="ReST-RL: ReST-GRPO + VM-MCTS",
    paper="arXiv:2508.19576",
    claim="GRPO from states on the way of good answers, then a search that a value model leads, beats "
    "GRPO and best-of-n by reward models on code.",
    source="released code (THUDM/ReST-RL: process_gen_data.py, sample_utils.py, grpo_utils.py, mcts.py, "
    "tasks/MCTS/task.py, reward_models.py) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-Coder-7B-Instruct, Qwen3-8B and others on BigCodeBench, DS-1000 and APPS; 5 "
        "answers a problem, G = 8 of 1,024 tokens, temperature 0.7, lr 1e-7, 1 epoch; trees of 100 "
        "openings to train, 15 to decode",
        model="qwen2.5-7b",
        samples=8,
        tokens=1024,
        lr=1e-7,
        arguments={"openings": 100},
    ),
    task="chain",
    needs=pl.needs.Requirements(
        shows="states",
        off={"of": "none"},
        own={
            "problems": 4,
            "openings": 2,
            "tokens": 40,
            "rl.schedule.prompts": 2,
            "rl.draw.sample.n": 4,
            "rl.collect.links.0.sample.n": 2,
            "values.schedule.prompts": 2,
            "values.collect.links.0.n": 2,
            "values.collect.links.0.children": 2,
            "decode.tasks": 4,
        },
    ),
    use="It helps where answers have several lines and a good beginning makes a right end likelier; answers "
    "of one line give no states, and a value model that ranks no better than chance makes decoding worse "
    "than one greedy answer.",
    lacks=(
        "No command decodes a file of new prompts with the policy and its value model: the "
        "tree search answers held-out problems alone.",
        "The benchmarks of code, APPS, BigCodeBench and HumanEval, are not run.",
        "There is no comparison with process reward models, with a search that outcome "
        "rewards lead, or with ReST-DPO.",
    ),
    grade="A",
)


def rest_grpo(
    of: Starts = "best",
    problems: int = 64,
    spread: float = 0.05,
    share: float = 0.5,
    decay: float = 0.95,
    bonus: float = 1e-3,
) -> pl.Recipe:
    """Stage 1: GRPO from start states."""
    return pl.vary(
        pl.recipe("grpo"),
        draw=StartStates(tasks=problems, spread=spread, share=share, decay=decay, of=of),
        collect=pl.links(FromState(), pl.Score(reward=EndsByItself(bonus) if bonus else None)),
        credit=pl.chain(pl.Center("group"), pl.Scale("group", ddof=1, eps=1e-4)),
        objective=pl.Clipped(reduce="tokens"),
    )


def value_model(openings: int = 20, n: int = 5, c: float = 0.2, lr: float = 1e-3) -> pl.Recipe:
    """The first half of stage 2: the model "value" learns from trees of the policy, which stays as it
    is.
    """
    search = pl.rollout.TreeSearch(
        openings=openings, n=n, children=n, select=pl.rollout.Uct(c, 0.1), temperature=0.7
    )
    return pl.Recipe(
        draw=pl.Shuffled(),
        collect=pl.links(search),
        learners={
            "value": pl.Learner(
                credit=RateStates(),
                objective=pl.Regression(heads=("value",)),
                heads=("value",),
                optimiser=pl.AdamW(lr=lr),
            )
        },
        schedule=pl.Schedule(prompts=8, steps=40),
    )


def build(
    of: Starts = "best",
    method: Method = "vm-mcts",
    problems: int = 64,
    openings: int = 20,
    tokens: int = 600,
) -> pl.Pipeline:
    """`of` says which answers give start states, `method` how held-out problems are answered. A round
    has `problems` problems, a tree for the value model `openings` openings, and a held-out problem
    `tokens` sampled tokens.
    """
    taught = pl.Output("rl")
    return pl.Pipeline(
        parts={
            "rl": pl.Part(rest_grpo(of, problems)),
            "values": pl.Part(value_model(openings), model=taught),
            "decode": pl.Part(
                ValueDecoding(method, tokens),
                model=taught,
                models={"value": pl.Output("values", "value")},
            ),
        }
    )


def embedded(
    problems: int = 16, openings: int = 4, tokens: int = 150, **options: Any
) -> pl.Pipeline:
    """On the embedded problem: the model first imitates worked answers, which have several lines;
    then a few steps of both stages, and 32 held-out problems.
    """
    parts = build(problems=problems, openings=openings, tokens=tokens, **options).parts
    few = pl.Schedule(prompts=8, steps=4)
    warm = pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=32, steps=12))
    decode: Any = parts["decode"].runnable
    changed: dict[str, Any] = {
        "rl": pl.vary(parts["rl"].runnable, schedule=few),
        "values": pl.vary(parts["values"].runnable, schedule=few),
        "decode": replace(decode, tasks=32),
    }
    small = {name: replace(parts[name], runnable=x) for name, x in changed.items()}
    small["rl"] = replace(small["rl"], model=pl.Output("sft"))
    return pl.Pipeline(parts={"sft": pl.Part(warm), **small})
