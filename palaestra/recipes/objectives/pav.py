"""PAV, process advantage verifiers: a step is rewarded for the progress it makes under a prover.

With Q^mu(s_h, a_h) the chance of success after step h when a prover mu goes on, A^mu = Q^mu(s_h,
a_h) - Q^mu(s_{h-1}, a_{h-1}):

    grad = E[ sum_h grad log pi(a_h | s_h) * (Q^pi(s_h, a_h) + alpha A^mu(s_h, a_h)) ]       (arXiv:2410.08146, eq. 5)

The prover must be complementary: mu = pi only shifts the baseline, a very strong one succeeds from
everywhere. Here it is the best of `k` tries of the policy, or of another model, `prover`: Q = 1 - (1
- Q^pi)^k, with Q^pi from `n` continuations of every step's prefix (shared prefixes once) in place of
the paper's trained verifier. Q^pi of the sum is the outcome, an unbiased sample of it, less the group's mean. Steps are
lines. A prefix from which nothing succeeds has A^mu = 0; the progress of an answer telescopes to at
most 1. With `right` the chance is the share of continuations whose reward is `right` or more, for
rewards that are no chance of success by themselves; else it is their mean reward. Equal rewards
still carry progress; a group of one has an outcome advantage of 0. The continuations count as
sampled tokens.

Left out: the trained verifier, and beam search that ranks partial solutions by it.
"""

import palaestra as pl

PROVER = "prover"
CARD = pl.Card(
    title="Rewarding Progress: process advantage verifiers (PAV)",
    paper="arXiv:2410.08146",
    claim="Rewarding the progress of steps under a complementary prover learns from five times "
    "fewer samples.",
    source="equation from a public study of the paper; k, steps as lines and Monte-Carlo values "
    "are choices",
    size=pl.Size(
        setting="Gemma 2B and 9B on MATH, alpha 5 and 3, KL .001, lr 1e-7, batch 32, 512 tokens",
        model="gemma-2-9b",
        answers=32,
        tokens=512,
        lr=1e-7,
        arguments={"kl": 1e-3},
    ),
    needs=pl.needs.Requirements(
        models=(
            pl.needs.NeededModel(
                PROVER,
                "prover",
                "goes on from every step",
                otherwise="the policy's best of `k` tries goes on",
                reads_tokens=True,
            ),
        ),
        shows="progress",
        off={"alpha": 0.0},
        own={"schedule.prompts": 4, "collect.links.0.n": 4, "n": 2},
    ),
    use="It helps where answers have several steps and some lead nowhere; every step costs `n` more "
    "samples.",
    lacks=(
        "The process advantage verifier, a model that is trained to predict progress, is not "
        "there: progress is estimated by continuations of every step.",
        "Search against a verifier at test time is not there.",
        "A prover of another model must have the policy's tokenizer.",
        "Of any prover the best of `k` tries counts: a weak or strong one as such needs `k=1`.",
    ),
    grade="C",
)


def build(
    alpha: float = 3.0,
    k: int = 4,
    n: int = 4,
    kl: float = 0.0,
    prover: str = "policy",
    right: float | None = None,
) -> pl.Recipe:
    """`prover` is a model's folder or id; of "policy", and of any other, the best of `k` counts.
    `right`: the reward from which on a continuation succeeds; None = its reward is its success.
    """
    other = prover != "policy"
    values = pl.rollout.PrefixValues(n=n, model=PROVER if other else "policy", right=right)
    made = pl.vary(
        pl.recipe("grpo", kl=kl),
        collect=pl.links(pl.Sample(n=8), pl.Score(), values),
        credit=pl.chain(pl.Center("group"), pl.credit.StepProgress(alpha=alpha, k=k)),
        objective=pl.Reinforce() + kl * pl.KL("k3") if kl else pl.Reinforce(),
    )
    return pl.vary(made, references={**made.references, PROVER: prover}) if other else made
