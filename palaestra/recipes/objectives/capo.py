"""CAPO, credit assignment by a generative critic: tokens of a wrong step are penalised, others earn
the outcome.

A judge reads the whole answer and names its wrong steps in one pass; N = 4 critiques are combined
by a vote. For token t

    R_t = C * 1[answer right] - P * 1[t in a wrong step],    A_t = (R_t - mean) / std  over ALL tokens of the group's answers

with C = 2 > P = 1, so that a right answer with a flawed step (1) beats a wrong one without (0);
then GRPO's clipped loss (arXiv:2508.02298; the normaliser is read from a review). Votes: "union",
"intersection", "majority" (more than half), "half" (half or more). `critic="oracle"` is the task's
own step checker, `noise` turns its verdicts round; "model" asks the policy itself. An unreadable
critique names no step; a critic that fails makes an error of the episode. Truncated answers are
wrong and judged as usual. A group whose tokens all earn the same gets 0; a group of one is
normalised over its own tokens.
"""

from typing import Literal

import palaestra as pl

CARD = pl.Card(
    title="CAPO: verifiable generative credit assignment",
    paper="arXiv:2508.02298",
    claim="Penalising the steps that a critic finds wrong assigns credit better than one reward "
    "for the whole answer.",
    source="figure and review of the paper, a re-implementation's constants; no official code",
    size=pl.Size(
        setting="Llama-3 and Qwen2.5, 1B to 7B, with a judge of about 70B, C = 2, P = 1, four "
        "critiques",
        model="qwen2.5-7b",
        beside={"judge": 70.0},
    ),
)


def build(
    right: float = 2.0,
    wrong: float = 1.0,
    vote: pl.credit.Vote = "majority",
    critiques: int = 4,
    critic: Literal["oracle", "model"] = "oracle",
    noise: float = 0.0,
) -> pl.Recipe:
    judge = pl.rewards.Oracle(noise) if critic == "oracle" else pl.rewards.ModelCritic()
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=8), pl.Score(), pl.rewards.Critique(judge, n=critiques)),
        credit=pl.chain(
            pl.credit.StepPenalty(right, wrong, vote), pl.Center("group"), pl.Scale("group", ddof=0)
        ),
    )
