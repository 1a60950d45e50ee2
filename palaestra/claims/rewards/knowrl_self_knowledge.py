"""The claim of knowrl-self-knowledge: KnowRL: introspection + consensus rewarding."""

import palaestra as pl
from palaestra.claims.starts import judging_start
from palaestra.recipes.rewards.knowrl_self_knowledge import build


def after_teaching(learned: pl.Recipe) -> pl.Pipeline:
    """From a start that was shown how to judge."""
    return pl.Pipeline(
        parts={"shown": pl.Part(judging_start()), "rl": pl.Part(learned, model=pl.Output("shown"))}
    )


EXPERIMENT = pl.Experiment(
    claim="From a start whose verdicts on its own answers are mostly true, reward for consensus "
    "makes their balanced accuracy 5 points higher.",
    arms={
        "start": after_teaching(pl.vary(build(), optimiser=pl.AdamW(lr=0.0))),
        "consensus": after_teaching(build()),
        "oracle": after_teaching(build(oracle=True)),
        "consensus from a coin": build(),
    },
    expect=pl.Greater("consensus", "start", by=0.05),
    falsified_if="the balanced accuracy of verdicts trained on consensus is not 5 points above "
    "that of the same start untrained",
    measure=pl.Balanced("part/right"),
    metric="balanced accuracy of verdicts on own answers, last ten steps (unread ones are false)",
    task="chain(operands=(2,3))",
    tokens=70_000,
    evaluate=128,
    seconds=70.0,
    controls={
        "first ten steps": pl.Balanced("part/right", first=10),
        "consensus": pl.Logged("part/consensus"),
        "says right": pl.Logged("part/can"),
        "right answers": pl.Logged("part/right"),
    },
    note="The small model invents no tasks: it judges its own answers, worked out or guessed. 80 "
    "steps of imitated verdicts, half of them worked, come first in three arms, so that about "
    "three of four verdicts are true. The fourth begins at a coin, as the built-in model does; "
    "there consensus should not help, and its last ten steps are to be read beside its first ten.",
)
