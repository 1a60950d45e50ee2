"""TEMPO: the answers of a group form a tree of shared beginnings, and a token at which answers part
earns by how much better its branch does.

V(s) = mean reward of the answers with prefix s (prefix-to-tree). With r~ = (r - mean r) / (std r +
eps), ddof 1,

    A_{i,t} = r~_i + V~(s_{t+1}) - V~(s_t)      (arXiv:2509.18314; V~ is V of the normalised rewards)

No critic and no further rollouts. The TD terms of an answer sum to r~_i, and are zero where nobody
parts from it. The clip is 0.2 / 0.28, without KL. Equal rewards, or a group of one: A = 0. A
truncated answer is a leaf like any other. In a conversation, observations are part of the prefix
and carry no credit. The number "branching" of a step is the share of tokens at which answers part.
"""

import palaestra as pl

CARD = pl.Card(
    title="TEMPO / Prefix-to-Tree credit assignment",
    paper="arXiv:2509.18314",
    claim="Values of shared prefixes, read off the group itself, give GRPO token-level credit and "
    "faster convergence.",
    source="released code (fatebreaker/tempo, compute_tempo_outcome_advantage)",
    size=pl.Size(
        setting="Qwen3-1.7B and 4B, MATH and MedQA, G = 7, 512 prompts, minibatches of 64, 8,192 "
        "tokens, lr 1e-6, no KL, 15 epochs",
        model="qwen3-4b",
        prompts=512,
        samples=7,
        tokens=8192,
        lr=1e-6,
        arguments={"update.minibatches": 8},
    ),
    needs=pl.needs.Requirements(
        shows="branching", off={"collect.links.0.n": 1}, own={"schedule.prompts": 4}
    ),
    use="It helps where answers of a group share their beginnings; long answers part within a few "
    "tokens, and after that it is GRPO.",
    grade="A",
)


def build(outcome: float = 1.0, std: bool = True, ddof: int = 1) -> pl.Recipe:
    """`outcome` 0 is the TD term alone; without `std` rewards are centred only."""
    scale = (pl.Scale("group", ddof=ddof),) if std else ()
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(pl.Center("group"), *scale, pl.credit.PrefixTree(outcome)),
        objective=pl.Clipped(low=0.2, high=0.28, reduce="tokens") + pl.Track(("branching",)),
    )
