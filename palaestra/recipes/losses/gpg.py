"""GPG: the plain policy gradient on answers compared within their group, scaled up for groups that are silent.

    palaestra train gpg --data FILE.jsonl --model DIR

loss = -alpha A_i log pi(y_t), A_i = r_i - mean_group(r), a mean over all tokens of the batch: no ratio, no clip,
no KL, no standard deviation (arXiv:2504.02546). Groups whose answers are all right or all wrong have A = 0 and
count in the mean; alpha = N / M makes up for them, N all answers of the batch and M those of the other groups
("accurate gradient estimation"). verl's `gpg` counts answers whose reward is not 0 as M: count=rewards.
`scaled` divides by the group's standard deviation, as F_norm does in some of the paper's runs.
"""

from typing import Literal

import palaestra as pl

CARD = pl.Card(
    title="GPG: Group Policy Gradient",
    paper="arXiv:2504.02546",
    claim="The plain policy gradient with a group's mean, made unbiased for silent groups, is level with GRPO or better.",
    source="paper; verl's estimator and loss gpg",
    size=pl.Size(
        setting="Qwen2.5-Math 1.5B and 7B, DeepSeek-R1-Distill-Qwen-1.5B, on MATH and open-rs, G = 8, lr 1e-6",
        model="qwen2.5-1.5b",
        samples=8,
        lr=1e-6,
    ),
    needs=pl.needs.Requirements(
        shows="groups_mixed",
        off={"collect.links.0.n": 1},
        own={"schedule.prompts": 4, "collect.links.0.n": 4},
    ),
    use="It helps as the least that can be taken where each batch takes one update; with more of them nothing bounds "
    "how far the policy moves.",
    lacks=(
        "The paper's threshold, below which a batch waits for more groups that differ, is `dapo`'s sampling.",
        "The paper's multimodal runs are not there.",
    ),
    grade="A",
)


def build(count: Literal["groups", "rewards"] = "groups", scaled: bool = False) -> pl.Recipe:
    """`count`: what M counts."""
    links: list[pl.Link] = [pl.Center("group"), pl.credit.PerInformative(count)]
    if scaled:
        links.insert(1, pl.Scale("group"))
    return pl.vary(
        pl.recipe("grpo"), credit=pl.chain(*links), objective=pl.Reinforce(reduce="tokens")
    )
