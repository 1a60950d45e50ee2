"""Stratified GRPO: answers are compared with answers of the same structure.

Strata B_k = episodes of one prompt with the same number of searches. Stratified advantage normalisation
(arXiv:2510.06214)

    A_SAN,i = (R_i - mean_{B_k} R) / (std_{B_k} R + eps),   A = alpha A_SAN + (1 - alpha) A_GRPO,

because R_i - mean R = (R_i - mean_{B_k} R) + (mean_{B_k} R - mean R), and the last term is one offset for a whole
stratum. Within a stratum nothing is said for or against searching more: only the global term, 1 - alpha, says it. A
stratum of one or of equal rewards has A_SAN = 0; with one stratum the method is GRPO. ddof 0 makes the unit variances
of the paper exact.
"""

from palaestra.card import Card, Size
from palaestra.credit.links import Center, Scale, chain
from palaestra.credit.turns import Blend, Stratum
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.recipes.base import grpo
from palaestra.runtime.config import vary
from palaestra.step import Recipe

CARD = Card(
    id="stratified-grpo",
    family="objectives",
    title="Stratified GRPO (stratified advantage normalisation)",
    paper="arXiv:2510.06214",
    parent="grpo",
    claim="Normalising advantages among trajectories with the same number of searches teaches a search agent more than GRPO.",
    changes={"credit": "blend of advantages normalised within strata of equal search count and within the group"},
    source="secondary summaries of the paper and an independent implementation; alpha and strata of one are not known",
    paper_scale="search agents on seven single- and multi-hop QA sets, up to 11.3 points over GRPO (abstract, v1)",
    size=Size(model="qwen2.5-3b"),
)


def build(alpha: float = 0.8, ddof: int = 1, fact: str = "searches") -> Recipe:
    stratum = Stratum(fact)
    within = (Center(stratum), Scale(stratum, ddof=ddof))
    overall = (Center("group"), Scale("group", ddof=ddof))
    return vary(grpo.build(), credit=chain(Blend(((alpha, within), (1 - alpha, overall)))))


EXPERIMENT = Experiment(
    claim="On T-hop, the blend (alpha 0.8) earns more reward over the run than GRPO at equal sampled tokens.",
    arms={"grpo": grpo.build(), "blend": build(), "within-only": build(alpha=1.0)},
    expect=Greater("blend", "grpo"),
    measure=Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="GRPO earns the reward of the blend, or more",
    task="hop",
    tokens=60_000,
    controls={"final accuracy": Final(), "tokens an episode": Logged("length"), "truncated": Logged("truncated")},
    note="One to three hops in one pool; the paper reports multi-hop sets apart. Singletons act through the global term only.",
)
