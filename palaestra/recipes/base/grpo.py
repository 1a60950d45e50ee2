"""GRPO: the group is the baseline.

A_i = (r_i - mean(r)) / (std(r) + eps) on every token, PPO's clipped surrogate, mean over each answer's tokens and then over
answers (arXiv:2402.03300v3, eq. 3 and section 4.1.2; std with ddof 1 as in the common implementations). The paper adds
beta = 0.04 times the k3 estimate of KL(pi || ref) as a loss; most later work trains without, which is the default here. `kind`
chooses among the estimators of `objective.kl`, which says what the gradient of each is.
Zero-variance groups get advantage 0.
"""

from palaestra.card import Card, Size
from palaestra.credit.links import Center, Scale, chain
from palaestra.curriculum.draw import Shuffled
from palaestra.objective.kl import KLKind, kl_quantity
from palaestra.objective.policy import KL, Clipped
from palaestra.rollout.collect import Sample, Score, links
from palaestra.step import Learner, Recipe, Schedule

CARD = Card(
    title="Group Relative Policy Optimization",
    paper="arXiv:2402.03300",
    claim="A group's mean reward replaces the critic: PPO without a value model, at equal or better accuracy.",
    source="paper",
    size=Size(
        setting="DeepSeekMath-Instruct 7B, 144k GSM8K and MATH questions, G = 64, 1,024 tokens, lr 1e-6, beta 0.04",
        model="deepseekmath-7b",
        prompts=16,
        samples=64,
        tokens=1024,
        lr=1e-6,
        arguments={"kl": 0.04},
    ),
)


def build(kl: float = 0.0, kind: KLKind = "k3") -> Recipe:
    objective = Clipped(reduce="sequences")
    return Recipe(
        draw=Shuffled(),
        collect=links(Sample(n=8), Score()),
        learners={
            "policy": Learner(
                credit=chain(Center("group"), Scale("group", ddof=1)),
                objective=objective + kl * KL(kind) if kl else objective,
                needs=(("ref", kl_quantity(kind)),) if kl else (),
            )
        },
        references={"ref": "policy"} if kl else {},
        schedule=Schedule(prompts=16, steps=50),
    )
