"""The claim of soft-verifier: RLVR across diverse domains with soft generative reward."""

from palaestra.curriculum.respelled import Respelled
from palaestra.judges.prompt import last_line
from palaestra.judges.standin import Grader
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.recipes.rewards.soft_verifier import build, recipe_with_reward
from palaestra.rewards.verify import Verify
from palaestra.services.chat.scripted import Scripted
from palaestra.types import Task
from palaestra.values import vary


def contains_reference(text: str, task: Task) -> float:
    """The binary rule: the reference stands in the answer."""
    return float(str(task.answer) in last_line(text))


NOISY_JUDGE, OVERSURE_JUDGE = (
    Scripted(Grader(error=0.2), name="noisy"),
    Scripted(Grader(error=0.2, sure=50.0), name="too sure"),
)


EXPERIMENT = Experiment(
    claim="On `add` with references that nobody spells like that, a verifier that errs in one of five verdicts teaches more than "
    "finding the reference in the answer.",
    arms={
        "string match": vary(recipe_with_reward(Verify(contains_reference)), draw=Respelled()),
        "binary": vary(build(NOISY_JUDGE, "binary"), draw=Respelled()),
        "soft": vary(build(NOISY_JUDGE), draw=Respelled()),
        "normalised": vary(build(NOISY_JUDGE, "normalised"), draw=Respelled()),
        "too sure": vary(build(OVERSURE_JUDGE), draw=Respelled()),
    },
    expect=Greater("soft", "string match"),
    falsified_if="the string match is as good or better",
    measure=Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    task="add",
    tokens=16_000,
    evaluate=128,
    samples=4,
    seconds=25.0,
    controls={"reward": Logged("reward"), "length": Logged("length"), "entropy": Logged("entropy_sampled")},
    note="A stand-in with calibrated noise plays the verifier: the paper distils a 7B model. Nine of ten references have "
    "decimals that no answer has (42.0). Soft against binary, and a verifier that is too sure of itself (there soft is binary), "
    "are arms beside the claim: the paper finds soft better with REINFORCE and not with REINFORCE++.",
)
