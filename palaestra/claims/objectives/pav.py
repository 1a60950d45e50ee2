"""The claim of pav: Rewarding Progress: process advantage verifiers (PAV)."""

from palaestra.credit.links import Center, chain
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.recipes.objectives.pav import build
from palaestra.rollout.collect import Sample, Score, links
from palaestra.values import vary

EXPERIMENT = Experiment(
    claim="at equal sampled tokens, continuations included, progress under the best of 4 earns more than outcomes alone",
    arms={
        "outcome": vary(build(), collect=links(Sample(n=8), Score()), credit=chain(Center("group"))),
        "pav": build(),
        "prover-is-policy": build(k=1),
        "prover-too-strong": build(k=64),
    },
    expect=Greater("pav", than="outcome"),
    measure=Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="the tokens that continuations cost teach more when spent on answers",
    controls={"final accuracy": Final()},
    tokens=60_000,
    note="The paper counts samples of the policy, not the tokens that labelled its verifier.",
)
