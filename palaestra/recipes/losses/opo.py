"""OPO: REINFORCE on policy, with the baseline of least variance for answers of different lengths.

    palaestra train opo --data FILE.jsonl --model DIR

A_i = r_i - b, b = sum_j L_j r_j / sum_j L_j over the answers to a prompt, L their tokens: the optimal baseline,
E[|g|^2 r] / E[|g|^2], where the squared gradient g of an answer grows with its length (arXiv:2505.23585). Loss
-A_i sum_t log pi(y_t), a mean over answers; one update a batch, no ratio, no KL and no bonus on entropy. Where all
answers are equally long it is a group's mean. A group of one gives 0, where verl's `opo` takes no baseline.
"""

import palaestra as pl

CARD = pl.Card(
    title="OPO: On-Policy RL with Optimal reward baseline",
    paper="arXiv:2505.23585",
    claim="Exact on-policy updates with a length-weighted baseline train more stably than GRPO, at a higher entropy.",
    source="paper; verl's estimator opo",
    size=pl.Size(
        setting="DeepSeek-R1-Distill-Qwen-7B on Skywork-OR1 mathematics, G = 8",
        model="qwen2.5-7b",
        samples=8,
    ),
    needs=pl.needs.Requirements(
        shows="groups_mixed",
        off={"collect.links.0.n": 1},
        own={"schedule.prompts": 6, "collect.links.0.n": 6},
    ),
    use="It helps where answers to a prompt differ much in length; where they do not, it is `rloo` but for a factor.",
    lacks=(
        "That squared gradients grow with the length is the paper's assumption, which nothing here measures.",
    ),
    grade="A",
)


def build() -> pl.Recipe:
    return pl.vary(pl.recipe("reinforce"), credit=pl.chain(pl.credit.CenterByLength()))
