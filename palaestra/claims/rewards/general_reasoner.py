"""The claim of general-reasoner: General-Reasoner: generative answer verifier."""

from palaestra.curriculum.respelled import Respelled
from palaestra.judges.standin import Grader
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.recipes.rewards.general_reasoner import build
from palaestra.rewards.verify import Verify
from palaestra.rollout.collect import Sample, Score, links
from palaestra.services.chat.scripted import Scripted
from palaestra.toys.base import exact_match
from palaestra.values import vary

FOOLED_VERIFIER = Scripted(
    Grader(error=0.05, long_error=0.1, long=4, yes="Final Decision: Yes", no="Final Decision: No"),
    name="fooled verifier",
)


EXPERIMENT = Experiment(
    claim="On `add` with references that nobody spells like that, a verifier that errs in 5% of its decisions (10% for long "
    "answers) teaches more than an exact match.",
    arms={
        "exact match": vary(build(), draw=Respelled(), collect=links(Sample(n=8), Score(reward=Verify(exact_match)))),
        "general-reasoner": vary(build(FOOLED_VERIFIER), draw=Respelled()),
        "no length term": vary(build(FOOLED_VERIFIER, penalty=0.0), draw=Respelled()),
        "true verifier": vary(build(), draw=Respelled()),
    },
    expect=Greater("general-reasoner", "exact match"),
    falsified_if="an exact match with the reference is as good or better",
    measure=Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    task="add",
    tokens=16_000,
    evaluate=128,
    samples=4,
    seconds=25.0,
    controls={"passed": Logged("part/pass"), "missing": Logged("part/missing"), "length": Logged("length")},
    note="A stand-in plays the verifier of 1.5B, and references with decimals that no answer has (42.0, nine of ten) the free "
    "form. The length term charges the two characters' difference to every right answer alike.",
)
