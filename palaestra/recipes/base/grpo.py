"""GRPO: makes answers that scored above their group's mean likelier; the group is the baseline.

A_i = (r_i - mean(r)) / (std(r) + eps) on every token, PPO's clipped surrogate, mean over each
answer's tokens and then over answers (arXiv:2402.03300v3, eq. 3 and section 4.1.2; std with ddof 1
as in the common implementations). The paper adds beta = 0.04 times the k3 estimate of KL(pi || ref)
as a loss; most later work trains without, which is the default here. `kind` chooses among the
estimators of `objective.kl`, which says what the gradient of each is. Zero-variance groups get
advantage 0.
"""

import palaestra as pl

CARD = pl.Card(
    title="Group Relative Policy Optimization",
    paper="arXiv:2402.03300",
    claim="A group's mean reward replaces the critic: PPO without a value model, at equal or "
    "better accuracy.",
    source="paper",
    size=pl.Size(
        setting="DeepSeekMath-Instruct 7B, 144k GSM8K and MATH questions, G = 64, 1,024 tokens, lr "
        "1e-6, beta 0.04",
        model="deepseekmath-7b",
        prompts=16,
        samples=64,
        tokens=1024,
        lr=1e-6,
        arguments={"kl": 0.04},
    ),
    needs=pl.needs.Requirements(
        shows="groups_mixed",
        off={"collect.links.0.n": 1},
        own={"schedule.prompts": 6, "collect.links.0.n": 6},
    ),
    use="It helps wherever a reward tells answers to one prompt apart and the policy is right at times; "
    "prompts that are always or never solved teach nothing.",
    lacks=(
        "The mathematical corpus and its pre-training are not there.",
        "The paper's KL of 0.04 is off by default: `kl=0.04`.",
        "The process-supervised and the iterative form of the paper are not there.",
    ),
    grade="A",
)


def build(kl: float = 0.0, kind: pl.objective.KLKind = "k3") -> pl.Recipe:
    objective = pl.Clipped(reduce="sequences")
    return pl.Recipe(
        draw=pl.Shuffled(),
        collect=pl.links(pl.Sample(n=8), pl.Score()),
        learners={
            "policy": pl.Learner(
                credit=pl.chain(pl.Center("group"), pl.Scale("group", ddof=1)),
                objective=objective + kl * pl.KL(kind) if kl else objective,
                needs=(("ref", pl.objective.kl_quantity(kind)),) if kl else (),
            )
        },
        references={"ref": "policy"} if kl else {},
        schedule=pl.Schedule(prompts=16, steps=50),
    )
