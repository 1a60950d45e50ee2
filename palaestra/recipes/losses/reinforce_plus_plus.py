"""REINFORCE++: PPO's clipped loss without a critic, its advantages normalised over the whole batch.

A_t = R - beta sum_{i >= t} k1_i, the outcome less the KL to the start over the rest of the answer, minus
the mean and divided by the deviation of all tokens of the batch (arXiv:2501.03262). One answer to a
prompt is enough, as nothing is compared within a group: `sample.n=1`.

`baseline=True` is REINFORCE++-baseline: the group's mean is taken from the outcome first, then the
batch normalises, and the KL is a loss (k2) instead of a part of the return.
"""

import palaestra as pl

CARD = pl.Card(
    title="REINFORCE++ (batch-normalised advantages, no critic)",
    paper="arXiv:2501.03262",
    claim="Normalising over the batch instead of the group is unbiased and overfits prompts less.",
    source="abstract, documentation of OpenRLHF and verl",
    size=pl.Size(
        setting="Llama-3 8B and Qwen2.5 7B, preference data and mathematics; KL 0.01 or less"
    ),
    needs=pl.needs.Requirements(
        shows="grad_norm",
        off={
            "schedule.prompts": 1,
            "collect.links.0.n": 1,
            "kl": 0.0,
        },  # one answer is its own baseline
        own={"schedule.prompts": 4, "collect.links.0.n": 4},
    ),
    use="It helps where prompts are many and answers to each are few; where one prompt is much harder "
    "than another, a baseline for each prompt is less noisy.",
    lacks=("The comparisons with reward models are not there: bring a reward.",),
    grade="A",
)


def build(kl: float = 0.01, baseline: bool = False) -> pl.Recipe:
    """`kl` is beta, 0 = no reference."""
    loss = pl.Clipped(reduce="tokens")
    whiten = (pl.Center("batch", level="token"), pl.Scale("batch"))
    if baseline:
        first: tuple[pl.Link, ...] = (pl.Center("group"),)
        objective = loss + kl * pl.KL("k2", reduce="tokens") if kl else loss
    else:
        first, objective = ((pl.credit.KLToGo(kl),) if kl else ()), loss
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(*first, *whiten),
        objective=objective,
        needs=(("ref", "logp"),) if kl else (),
        references={"ref": "policy"} if kl else {},
    )
