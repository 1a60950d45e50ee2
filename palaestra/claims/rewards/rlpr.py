"""The claim of rlpr: RLPR: probability reward without verifiers."""

from palaestra.catalogue import recipe
from palaestra.curriculum.respelled import Respelled
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.recipes.rewards.rlpr import build
from palaestra.rewards.verify import Exact, Verify
from palaestra.rollout.collect import Sample, Score, links
from palaestra.toys.base import exact_match
from palaestra.values import vary

EXPERIMENT = Experiment(
    claim="On `add` with references that nobody spells like that, RLPR ends with a higher accuracy than matching the text.",
    arms={
        "exact match": vary(
            recipe("grpo"), draw=Respelled(), collect=links(Sample(n=8), Score(reward=Verify(exact_match)))
        ),
        "rlpr": vary(build(), draw=Respelled()),
        "product": vary(build(how="product"), draw=Respelled()),
        "no baseline": vary(build(baseline=""), draw=Respelled()),
        "no filter": vary(build(coefficient=0.0), draw=Respelled()),
        "verifier": vary(recipe("grpo"), draw=Respelled(), collect=links(Sample(n=8), Score(reward=Verify(Exact())))),
    },
    expect=Greater("rlpr", "exact match"),
    falsified_if="matching the text of the reference is as good or better",
    measure=Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    task="add",
    tokens=16_000,
    evaluate=128,
    samples=4,
    seconds=25.0,
    controls={"reward": Logged("reward"), "length": Logged("length"), "groups kept": Logged("groups_ready")},
    note="The paper compares with VeriFree and with a verifier model on Qwen, Llama and Gemma. Here nine of ten references have "
    "decimals that no answer has (42.0), as free-form answers differ from theirs. The verifier arm compares values: the ceiling. "
    "The filter starts at step 11 and hardly acts in so short a run.",
)
