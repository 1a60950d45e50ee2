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
    claim="On sums of six digits, half of whose references nobody spells like that, the probability "
    "that a verifier gives its verdict, one in ten of which is wrong, gives a held-out accuracy at "
    "least 3 points above finding the reference in the answer.",
    quantity="7.0 points on multi-subject questions with REINFORCE: 31.2 with the soft verdict of the "
    "distilled verifier, 24.2 with the rule; 27.3 with its binary verdict",
    arms={
        "string match": arm(recipe_with_reward(pl.Verify(contains_reference))),
        "binary": arm(build(NOISY, "binary")),
        "soft": arm(build(NOISY)),
        "literal": arm(build(LITERAL)),
    },
    expect=pl.ledger.Greater(
        "soft", "string match", by=0.03, why="a little less than half of the paper's gain"
    ),
    falsified_if="the soft verdict is less than 3 points above the string match",
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
    note="The older claim had nine of ten references in another spelling, so that its baseline was hardly "
    "ever paid and could not learn. Here it is half of them: the string match is paid on the others, and "
    "on the rest all of its answers are wrong alike. A stand-in with calibrated noise plays the verifier, where "
    "the paper distils one of 7B: `soft` pays the probability that it gives, `binary` whether that is above a "
    "half, which is also what "
    "a verifier that is too sure of itself would pay; `literal` has the same noise "
    "on whether the reference stands in the answer. Looked at before the declaration, on trial seeds, with "
    "14,000 tokens, about eight steps: `string match` .28 and .29 at 3e-5 on the two seeds that choose rates, .56 "
    "and .54 at 1e-4, .61 and .62 at 3e-4; `soft` .50 in one cell at 3e-4 on seed 2000. So the baseline can win, "
    "and was ahead. "
    "After that, before any seed that counts, the budget was doubled, for eight steps leave little time, and the errors "
    "halved to one in ten: the paper's verifier agrees with another at a kappa of .86, some 7% of balanced "
    "labels, and with 20% "
    "the string match carries more signal until half of the answers are right. The start solves .09, and what is "
    "learned is mostly to work instead "
    "of guessing, which rewards for half of the tasks teach too. Cannot show: a verifier that learns, or that a "
    "policy learns to deceive, since this one's errors belong to the text and are not to be found by "
    "search; other learners, with which the paper finds the soft verdict no better (REINFORCE++).",
)
