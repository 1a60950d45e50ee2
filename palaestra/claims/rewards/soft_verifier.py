"""The claim of soft-verifier: RLVR across diverse domains with soft generative reward."""

import palaestra as pl
from palaestra.recipes.rewards.soft_verifier import build, recipe_with_reward


def contains_reference(text: str, task: pl.Task) -> float:
    """The binary rule: the reference stands in the answer."""
    return float(str(task.answer) in pl.last_line(text))


NOISY_JUDGE, OVERSURE_JUDGE = (
    pl.Scripted(pl.Grader(error=0.2), name="noisy"),
    pl.Scripted(pl.Grader(error=0.2, sure=50.0), name="too sure"),
)


EXPERIMENT = pl.Experiment(
    claim="On `add` with references that nobody spells like that, a verifier that errs in one of "
    "five verdicts teaches more than finding the reference in the answer.",
    arms={
        "string match": pl.vary(
            recipe_with_reward(pl.Verify(contains_reference)), draw=pl.Respelled()
        ),
        "binary": pl.vary(build(NOISY_JUDGE, "binary"), draw=pl.Respelled()),
        "soft": pl.vary(build(NOISY_JUDGE), draw=pl.Respelled()),
        "normalised": pl.vary(build(NOISY_JUDGE, "normalised"), draw=pl.Respelled()),
        "too sure": pl.vary(build(OVERSURE_JUDGE), draw=pl.Respelled()),
    },
    expect=pl.Greater("soft", "string match"),
    falsified_if="the string match is as good or better",
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
        "entropy": pl.Logged("entropy_sampled"),
    },
    note="A stand-in with calibrated noise plays the verifier: the paper distils a 7B model. Nine "
    "of ten references have decimals that no answer has (42.0). Soft against binary, and a "
    "verifier that is too sure of itself (there soft is binary), are arms beside the claim: the "
    "paper finds soft better with REINFORCE and not with REINFORCE++.",
)
