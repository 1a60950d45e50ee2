"""The claim of soft-verifier: RLVR across diverse domains with soft generative reward."""

import palaestra as pl
from palaestra.claims.short import instead, short
from palaestra.recipes.rewards.soft_verifier import build, recipe_with_reward

ERROR = 0.1


def contains_reference(text: str, task: pl.Task) -> float:
    """The binary rule: the reference stands in the answer."""
    return float(str(task.answer) in pl.judges.last_line(text))


def is_same_text(request: pl.ChatRequest) -> bool:
    """Whether the response that a judge is shown contains the reference, letter by letter."""
    text = request.messages[-1].content
    reference, response = (
        text.rpartition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        for tag in ("reference", "response")
    )
    return reference in response


NOISY, LITERAL = (
    pl.Scripted(pl.judges.Grader(error=ERROR), name="noisy"),
    pl.Scripted(pl.judges.Grader(check=is_same_text, error=ERROR), name="literal"),
)


def arm(recipe: pl.Recipe) -> pl.Recipe:
    """16 prompts a step with 4 answers, half of the references spelt as no answer is."""
    return short(
        recipe, schedule=pl.Schedule(prompts=16, steps=400), draw=pl.curriculum.Respelled(0.5)
    )


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "string match": arm(recipe_with_reward(pl.Verify(contains_reference))),
        "binary": arm(build(NOISY, "binary")),
        "soft": arm(build(NOISY)),
        "literal": arm(build(LITERAL)),
    },
    expect=pl.ledger.Greater(
        "soft", "string match", by=0.03, why="a little less than half of the paper's gain"
    ),
    reasons=(
        pl.ledger.Needs("binary", "the probability of the verdict, beside the verdict"),
        pl.ledger.Needs("literal", "that another spelling is recognised"),
    ),
    vetoes={"pass@8": pl.ledger.Veto(pl.ledger.Final("sampled_after.pass@8.mean"), falls=0.03)},
    **instead(task="add(d=6)", tokens=30_000, tuning_tokens=14_000, seconds=15.0),
    controls={
        "reward": pl.ledger.Logged("reward"),
        "length": pl.ledger.Logged("length"),
        "entropy": pl.ledger.Logged("entropy_sampled"),
    },
)
