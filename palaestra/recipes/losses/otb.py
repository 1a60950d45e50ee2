"""OTB: REINFORCE with a baseline for each token, weighted by how much gradient an answer has had so far.

    palaestra train otb --data FILE.jsonl --model DIR

At the t-th token A_it = r_i - b_t, b_t = sum_j W_jt r_j / sum_j W_jt over the answers to a prompt that have a t-th
token, W_it = sum_{s <= t} (1 - 2 pi_s + sum_v pi(v)^2): the squared norm of the gradient on the logits so far, from
the forward pass alone (arXiv:2602.07078; verl's `optimal_token_baseline`). A loss by the sum over tokens, a mean
over answers.

Where one answer is longer than all others its last tokens are compared with itself and train nothing; alone=zero
gives them no baseline instead, as verl's form for tools does (`tir_optimal_token_baseline`). The metric
`lonely_tokens` is their share.
"""

from typing import Literal

import palaestra as pl

CARD = pl.Card(
    title="OTB: the Optimal Token Baseline",
    paper="arXiv:2602.07078",
    claim="Weighting a group's rewards by each answer's gradient so far trains as stably with 4 answers as with 32.",
    source="abstract; verl's estimators optimal_token_baseline and tir_optimal_token_baseline",
    needs=pl.needs.Requirements(
        shows="groups_mixed",
        off={"collect.links.0.n": 1},
        own={"schedule.prompts": 4, "collect.links.0.n": 4},
    ),
    use="It helps where answers are long and few to a prompt; where all are alike in length and certainty, it is a "
    "group's mean.",
    lacks=(
        "Weights of a correction for the sampler's mismatch do not enter W, as verl's do with rollout_is.",
        "Turns of a world are one answer: tokens are numbered through.",
    ),
    grade="B",
)


def build(alone: Literal["own", "zero"] = "own") -> pl.Recipe:
    """`alone`: the baseline of tokens that no other answer has."""
    return pl.vary(
        pl.recipe("reinforce"),
        credit=pl.chain(pl.credit.CenterByToken(alone)),
        needs=(("policy", "logp"), ("policy", "collision")),
    )
