"""J1: judging as a verifiable task, with a reward for being right in both orders of a pair.

A pair with a known better response is judged twice in one batch, as (a, b) and as (b, a); a rollout
of one order belongs to the rollout of the other with its number (arXiv:2505.10320). Rule-based
rewards, then GRPO within each order:

    PaV   verdict A or B:            correct + consistent,  consistent = 1 for both if both orders are right, else 0
    PaVS  verdict and two scores:    as PaV; the scores are free
    PaS   two scores:                1 if the better response has the higher score; a tie 0 (the check `score_verdict`)
    PoS   one response, one score:   1 for both calls of a pair if the better response's score is the higher one; a tie 0

A constant verdict is right half the time and never consistent. A verdict that is missing, or names
both, is 0, and so is a score that cannot be read; where one order is an error, the pair is one. An
episode is a pair: its two judgements are rows of their own, turns 0 and 1, each paid by the world
(`compare-pairs`; `judge-pairs` for PoS, with mode="correctness"); what is paid above 0 is right. On
a bench of single questions this is GRPO. Texts under judgement are not to be trusted: take verdict
marks out of them before you build such tasks.
"""

import re
from typing import Literal

import numpy as np

import palaestra as pl

pass

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
)

Mode = Literal["sum", "correctness", "consistency"]
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
        found = {
            "correct": right_N,
            "consistent": (share_N == 1).astype(float),
            "flips": ((share_N > 0) & (share_N < 1)),
        }
        for name, x_N in found.items():
            table.add_column(name, pl.Values(level="turn", x_N=x_N.astype(float)))
        total = {
            "sum": right_N + found["consistent"],
            "correctness": right_N,
            "consistency": found["consistent"],
        }
        return pl.Values(level="turn", x_N=total[self.mode])


def score_verdict(text: str, task: pl.Task) -> float:
    """1 if the better response's score is the higher one (PaS); answers are 1 or A, 2 or B."""
    found = PAIR.findall(text)
    try:
        a, b = map(float, found[-1])
    except (IndexError, ValueError):
        return 0.0
    return float(a != b and (a > b) == (str(task.answer) in ("1", "A")))


def build(mode: Mode = "sum") -> pl.Recipe:
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(BothOrders(mode), pl.Center("position"), pl.Scale("position")),
        objective=pl.Clipped(reduce="sequences") + pl.Track(("correct", "consistent", "flips")),
    )
