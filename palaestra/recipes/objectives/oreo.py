"""OREO, offline reasoning optimisation: learns from recorded answers, right and wrong ones, without
pairs. A policy and a value of prefixes are made consistent with each other and with the outcome.

The optimum of max E[R] - beta KL(pi || pi_ref) makes V(s_t) - R + beta sum_{i>=t} log
pi(a_i)/pi_ref(a_i) zero at every prefix. Both parts minimise its square: V with the policy held
still, the policy with V and later log-ratios held still (arXiv:2412.16145; constants of jwhj/OREO,
examples/scripts/train_oreo.sh). alpha * KL(pi || pi_ref) keeps it near: the k2 estimate on the
data's tokens, or with `kl="full"` that of whole distributions, as in the release. The critic is a
learner of its own, with the policy's start; the release moves it first in a minibatch, here both
see the other as it was before the step. No pairs are needed: lone and equally rewarded answers
count.

Offline: with `answers="data"` answers are those of the data (columns prompt, response, right). With
`frozen=True` every answer is sampled by the start model, whatever the policy has become, so the data
are those of a fixed policy and no age limit holds. `frozen=False` is the paper's multi-iteration
form taken to its limit, step by step. `level="response"` is the variant with one
residual an answer, `level="step"` that with one a step: a line, or a turn.

Left out: search guided by the value at test time, which is not part of training.
"""

from dataclasses import replace
from typing import Literal

import palaestra as pl

CARD = pl.Card(
    title="OREO: offline RL for multi-step reasoning (soft Bellman)",
    paper="arXiv:2412.16145",
    claim="From the same offline answers, a soft Bellman loss with a learned value teaches more "
    "than preference pairs.",
    source="released code by the catalogue's account",
    size=pl.Size(
        setting="Qwen2.5-Math 1.5B, DeepSeekMath 7B, MiniCPM 2B; beta .03, alpha .01, lr 5e-6, "
        "batch 128, 2,048 tokens, one epoch",
        model="deepseekmath-7b",
        answers=128,
        tokens=2048,
        lr=5e-6,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            replace(pl.needs.ANSWER, when={"answers": ("sampled",)}),
            pl.needs.NeededColumn(
                "response",
                "text",
                ("17 + 25 = 42", "8 + 31 = 38", "49"),
                "a recorded answer, right or wrong",
                when={"answers": ("data",)},
            ),
            pl.needs.NeededColumn(
                "right",
                "true or false",
                (True, False, True),
                "whether it is right",
                when={"answers": ("data",)},
            ),
        ),
        shows="critic/value_error",
        never_off="It is the error of the critic's path consistency, and 0 only once that holds; "
        "without a critic there is no method.",
        own={"answers": "data", "schedule.prompts": 4},
    ),
    use="It helps where answers with a verdict are there and sampling is dear; a critic is held beside "
    "the policy, and with a verifier at hand methods that sample learn more.",
    lacks=(
        "Search guided by the value at test time is not there.",
        "Recorded episodes of several turns, as of the paper's embodied control, cannot be "
        "brought.",
    ),
    grade="B",
)


def make_offline(learned: pl.Recipe, *more: pl.Collect) -> pl.Recipe:
    """The same method on answers of the start model."""
    collect = pl.links(pl.Sample(n=8, model="ref"), pl.Score(), *more, pl.Offline())
    return pl.vary(learned, collect=collect, references={"ref": "policy"})


def build(
    beta: float = 0.03,
    alpha: float = 0.01,
    level: Literal["token", "step", "response"] = "token",
    frozen: bool = True,
    kl: pl.objective.KLKind = "k2",
    answers: Literal["sampled", "data"] = "sampled",
) -> pl.Recipe:
    """`answers`: sampled, or those of the data, where `frozen` does not matter."""
    by_step = level == "step"
    marks: tuple[pl.Collect, ...] = (pl.rollout.MarkSteps(),) if by_step else ()
    pairs = pl.vary(pl.recipe("dpo"), collect=pl.links(pl.Sample(n=8), pl.Score(), *marks))
    credit = pl.Chain((pl.Center("group"), *((pl.credit.StepNumbers(),) if by_step else ())))
    reference = ("ref", "logp")
    loss = pl.objective.PathConsistency(beta=beta, level=level)
    policy = replace(
        pairs.learners["policy"],
        credit=credit,
        objective=loss + alpha * pl.KL(kl, reduce="tokens") if alpha else loss,
        needs=(
            reference,
            ("critic", "value"),
            *((("ref", pl.objective.kl_quantity(kl)),) if alpha and kl == "full" else ()),
        ),
    )
    critic = pl.Learner(
        credit=pl.credit.Reader(credit),
        objective=pl.objective.ValueConsistency(beta=beta),
        needs=(reference, ("policy", "logp")),
        heads=("value",),
    )
    online = pl.vary(pairs, learners={"policy": policy, "critic": critic})
    if answers == "data":
        return pl.vary(online, collect=pl.links(pl.Recorded(), *marks))
    return make_offline(online, *marks) if frozen else online
