"""The claim of rlpr: RLPR: probability reward without verifiers."""

import palaestra as pl
from palaestra.recipes.rewards.rlpr import build

EXPERIMENT = pl.Experiment(
    claim="On `add` with references that nobody spells like that, RLPR ends with a higher accuracy "
    "than matching the text.",
    arms={
        "exact match": pl.vary(
            pl.recipe("grpo"),
            draw=pl.Respelled(),
            collect=pl.links(pl.Sample(n=8), pl.Score(reward=pl.Verify(pl.exact_match))),
        ),
        "rlpr": pl.vary(build(), draw=pl.Respelled()),
        "product": pl.vary(build(how="product"), draw=pl.Respelled()),
        "no baseline": pl.vary(build(baseline=""), draw=pl.Respelled()),
        "no filter": pl.vary(build(coefficient=0.0), draw=pl.Respelled()),
        "verifier": pl.vary(
            pl.recipe("grpo"),
            draw=pl.Respelled(),
            collect=pl.links(pl.Sample(n=8), pl.Score(reward=pl.Verify(pl.Exact()))),
        ),
    },
    expect=pl.Greater("rlpr", "exact match"),
    falsified_if="matching the text of the reference is as good or better",
    measure=pl.Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    task="add",
    tokens=16_000,
    evaluate=128,
    samples=4,
    seconds=25.0,
    controls={
        "reward": pl.Logged("reward"),
        "length": pl.Logged("length"),
        "groups kept": pl.Logged("groups_ready"),
    },
    note="The paper compares with VeriFree and with a verifier model on Qwen, Llama and Gemma. "
    "Here nine of ten references have decimals that no answer has (42.0), as free-form answers "
    "differ from theirs. The verifier arm compares values: the ceiling. The filter starts at step "
    "11 and hardly acts in so short a run.",
)
