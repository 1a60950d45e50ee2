"""RL on incorrect synthetic data: per-step negatives, which is advantage-weighted RL in the form of preference pairs.

For a wrong answer with steps a_1..a_H, Q(s_h, a_h) is the chance that the best of K = 5 continuations from there succeeds, and
A_h = Q(s_h, a_h) - Q(s_{h-1}, a_{h-1}). Its pit is the first step that attains the lowest Q. Pairs and loss
(arXiv:2406.14532, section 4):

    y- = the wrong answer up to its pit,  y+ = a right answer ("root") or a right continuation from before the pit ("branch")
    loss = -log sigmoid(beta [log pi(y+)/pi_ref(y+) - log pi(y-)/pi_ref(y-)])

For suitable pairs this gives pi ~ pi_ref exp(A / beta): bad steps are unlearnt, also where they stand in right answers.
`form="whole"` rejects all of the wrong answer: the control, with arbitrary pairs. The order of Q is that of the policy's own
chances, so K changes values and not the pit. Groups without a right or without a wrong answer make no pair; both pair forms
come from accounts of the paper, as does beta. Answers come from the policy as it is, not once from the start model.
"""

from typing import Literal

from palaestra.card import Card, Size
from palaestra.credit.steps import StepPairs
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.recipes.base import dpo
from palaestra.rollout.branch import PrefixValues, Rescue
from palaestra.rollout.collect import Sample, Score, links
from palaestra.runtime.config import vary
from palaestra.step import Recipe

CARD = Card(
    id="incorrect-synthetic-data",
    family="objectives",
    title="RL on incorrect synthetic data: per-step negatives, advantage-weighted",
    paper="arXiv:2406.14532",
    parent="dpo",
    claim="Negatives cut at their worst step are worth eight times the data; whole wrong answers as negatives are not.",
    changes={
        "collect": "continuations from every step's prefix of wrong answers",
        "credit": "a right answer against a wrong one up to its first worst step",
    },
    source="accounts of the paper; beta and the branch form inferred",
    paper_scale="DeepSeekMath 7B and Llama-2 7B on GSM8K and MATH, 8 samples a question, K = 5",
    size=Size(model="deepseekmath-7b", samples=8),
)


def build(form: Literal["root", "branch", "whole"] = "root", n: int = 5, beta: float = 0.1) -> Recipe:
    rescue = (Rescue(n=n),) if form == "branch" else ()
    return vary(
        dpo.build(beta=beta),
        collect=links(Sample(n=8), Score(), PrefixValues(n=n, wrong_only=True), *rescue),
        credit=StepPairs(form=form),
    )


EXPERIMENT = Experiment(
    claim="at equal sampled tokens, per-step negatives earn more reward over the run than whole wrong answers",
    arms={
        "whole": build(form="whole"),
        "per-step": build(),
        "per-step-branch": build(form="branch"),
        "dpo": dpo.build(),
    },
    expect=Greater("per-step", than="whole"),
    measure=Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="cutting negatives at the pit makes no difference",
    controls={"final accuracy": Final()},
    tokens=60_000,
    note="The paper's data are sampled once and trained on offline; its spurious steps need a teacher that makes them.",
)
