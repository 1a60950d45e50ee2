"""J1: a judge is trained by reinforcement on pairs whose better response is known, and is rewarded
for being right, and for being right in both orders of the pair.

A pair with a known better response is judged twice in one batch, as (a, b) and as (b, a); a rollout
of one order belongs to the rollout of the other with its number (arXiv:2505.10320). Rule-based
rewards, then GRPO within each order:

    PaV   verdict A or B:            correct + consistent,  consistent = 1 for both if both orders are right, else 0
    PaVS  verdict and two scores:    as PaV; the scores are free
    PaS   two scores:                1 if the better response has the higher score; a tie 0
    PoS   one response, one score:   1 for both calls of a pair if the better response's score is the higher one; a tie 0

A constant verdict is right half the time and never consistent. A verdict that is missing, or names
both, is 0, and so is a score that cannot be read; where one order is an error, the pair is one. An
episode is a pair: its two judgements are rows of their own, turns 0 and 1, each paid by the world;
what is paid above 0 is right. A record that is no pair is a single question with its answer.

Pairs are the user's, a file with prompt, chosen and rejected as for dpo. `form` is what the judge
writes: a "verdict" (PaV), "verdict and scores" (PaVS), "scores" (PaS), or "points", a score of each
response alone (PoS); the last two go with mode="correctness". Marks of prompts and verdicts in the
responses are made harmless.

    palaestra train j1-judge --data pairs.jsonl [form=scores mode=correctness]
"""

import re
from dataclasses import replace
from typing import Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="J1: incentivising thinking in LLM-as-a-judge",
    paper="arXiv:2505.10320",
    claim="Rewards for verdicts that are right in both orders teach a judge to think, and to care "
    "less about the order.",
    source="two consistent restatements of the paper and a quotation of its table 8; the pairing "
    "by number is inferred",
    size=pl.Size(
        setting="Llama 3.1 8B and 3.3 70B, Qwen3 32B; 22k synthetic pairs (17k WildChat, 5k MATH), "
        "GRPO",
        model="llama-3.1-8b",
    ),
    task="compare-pairs",
    needs=pl.needs.Requirements(
        columns=(pl.needs.PROMPT, pl.needs.CHOSEN, pl.needs.REJECTED),
        shows="correct",
        never_off="Verdicts are the whole reward; without one that is right it is 0.",
        own={
            "taught_replies": ("Both name it.\n= A",),
            "collect.links.0.n": 2,
            "schedule.prompts": 4,
        },
    ),
    use="It helps where pairs with a known better response are there and a judge is wanted that does not "
    "mind their order.",
    lacks=(
        "Pairs are brought: none are made of answers that a verifier tells apart, or of prompts "
        "that are corrupted.",
        "Verdicts on held-out pairs of a file are not measured.",
        "Offline training of the judge by DPO, which the paper compares with, is not built.",
    ),
    grade="B",
)

Mode = Literal["sum", "correctness", "consistency"]
Form = Literal["verdict", "verdict and scores", "scores", "points"]
SCORES = "Score both from 0 to 10: <score_A>x</score_A><score_B>y</score_B>."
VERDICT = "End with a line `= A` or `= B`, the better one."
INSTRUCTIONS = {
    "verdict": f"Think first. {VERDICT}",
    "verdict and scores": f"Think first. {SCORES} {VERDICT}",
    "scores": f"Think first. {SCORES}",
    "points": "Think first. End with a line `= x`, its score from 0 to 10.",
}
PAIR = re.compile(
    r"<score_A>\s*([\d.]{1,8})\s*</score_A>.*?<score_B>\s*([\d.]{1,8})\s*</score_B>", re.DOTALL
)


@pl.stage
class BothOrders:
    """correct + consistent of each turn (or one of the two): right where it was paid, consistent
    where all its episode's are.

    Columns `correct`, `consistent`, and `flips`: right in one order and wrong in the other.
    """

    mode: Mode = "sum"

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        episode_N = table.turns.episode_N
        right_N = (pl.credit.turn_rewards(table) > 0).astype(float)
        n_E = np.bincount(episode_N, minlength=len(table.episodes))
        share_N = (np.bincount(episode_N, right_N, len(table.episodes)) / np.maximum(n_E, 1))[
            episode_N
        ]
        columns = {
            "correct": right_N,
            "consistent": (share_N == 1).astype(float),
            "flips": ((share_N > 0) & (share_N < 1)),
        }
        for name, x_N in columns.items():
            table.add_column(name, pl.Values(level="turn", x_N=x_N.astype(float)))
        total = {
            "sum": right_N + columns["consistent"],
            "correctness": right_N,
            "consistency": columns["consistent"],
        }
        return pl.Values(level="turn", x_N=total[self.mode])


def score_verdict(text: str, task: pl.Task) -> float:
    """1 if the better response's score is the higher one (PaS); answers are 1 or A, 2 or B."""
    pairs = PAIR.findall(text)
    try:
        a, b = map(float, pairs[-1])
    except (IndexError, ValueError):
        return 0.0
    return float(a != b and (a > b) == (str(task.answer) in ("1", "A")))


@pl.stage
class ScoredPair(pl.worlds.Pair):
    """A pair whose judgements are two scores."""

    def is_right(self, text: str, task: pl.Task) -> float:
        return score_verdict(text, task)


def ask_judge(task: pl.Task, a: str, b: str, better: str, form: Form) -> pl.Task:
    """The question which response is better, or of the form "points" how good the first one is."""
    template = pl.Judge().template if form == "points" else pl.Pairwise().template
    question = template.format(
        question=pl.judges.defuse(pl.tasks.question_text(task)),
        response=pl.judges.defuse(a),
        a=pl.judges.defuse(a),
        b=pl.judges.defuse(b),
        rubric=pl.Judge().rubric,
        instruction=INSTRUCTIONS[form],
    )
    return replace(task, prompt=(pl.Message(role="user", content=question),), answer=better)


def both_orders(task: pl.Task, form: Form) -> tuple[pl.Task, pl.Task]:
    """The two judgements of a pair: both orders, or of the form "points" both responses alone."""
    good, bad = str(task.meta["chosen"]), str(task.meta["rejected"])
    first, second = ask_judge(task, good, bad, "A", form), ask_judge(task, bad, good, "B", form)
    return first, second


@pl.stage
class JudgePairs:
    """Plays `n` episodes of a pair, its two judgements each; a task that is no pair is played as it
    is.
    """

    n: int = 8
    form: Form = "verdict"

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        task, sample = group.task, pl.Sample(n=self.n)
        if "chosen" not in task.meta or "rejected" not in task.meta:
            return await sample(ctx, key, group)
        pair = replace(task, meta={**task.meta, "halves": both_orders(task, self.form)})
        world = ScoredPair() if self.form == "scores" else pl.worlds.Pair(self.form == "points")
        paired = ctx.with_bench(replace(ctx.bench, world=world, reward=None))
        return await sample(paired, key, replace(group, task=pair))


def build(mode: Mode = "sum", form: Form = "verdict") -> pl.Recipe:
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(JudgePairs(form=form), pl.Score(reward=pl.Verify(pl.tasks.exact_match))),
        credit=pl.chain(BothOrders(mode), pl.Center("position"), pl.Scale("position")),
        objective=pl.Clipped(reduce="sequences") + pl.Track(("correct", "consistent", "flips")),
    )
