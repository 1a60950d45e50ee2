"""The claim of knowrl-self-knowledge: KnowRL: introspection + consensus rewarding."""

from dataclasses import replace

import palaestra as pl
from palaestra.claims.starts import RATES, judging_start
from palaestra.recipes.rewards.knowrl_self_knowledge import Consensus, build, form_of


@pl.stage
class ACoin(Consensus):
    """For half of the tasks the minority's verdict is paid in the majority's place, by a coin."""

    async def __call__(self, ctx: pl.Context | None, group: pl.Group) -> list[pl.Reward]:
        found = await super().__call__(ctx, group)
        if pl.rng_of(("a coin", group.task.id)).random() < 0.5:
            return found
        said = [form_of(group.task).read(pl.response_text(e)) for e in group.episodes]
        return [
            replace(r, total=float(v is not None and not r.total))
            for r, v in zip(found, said, strict=True)
        ]


def after_teaching(learned: pl.Recipe) -> pl.Pipeline:
    """From a start that was shown how to judge."""
    shown = pl.warm(judging_start())
    return pl.Pipeline(parts={"shown": shown, "rl": pl.Part(learned, model=pl.Output("shown"))})


def coin() -> pl.Recipe:
    return pl.override(build(), "collect.links.2.reward", ACoin())


LEARNED = ("consensus", "oracle", "a coin")

EXPERIMENT = pl.ledger.Experiment(
    claim="From a start whose verdicts on its own answers are mostly true, reward for consensus "
    "makes their balanced accuracy 5 points higher, and right answers no more than 10 points rarer.",
    quantity="up to 28% of accuracy (own tasks) and 12% of F1 (others') in a few iterations",
    arms={
        "start": after_teaching(pl.vary(build(), optimiser=pl.AdamW(lr=0.0))),
        "consensus": after_teaching(build()),
        "oracle": after_teaching(build(oracle=True)),
        "a coin": after_teaching(coin()),
        "consensus from a coin": build(),
    },
    expect=pl.ledger.Greater(
        "consensus", "start", by=0.05, why="less than half of what the paper gains on others' tasks"
    ),
    falsified_if="the balanced accuracy of verdicts trained on consensus is not 5 points above "
    "that of the same start untrained",
    reasons=(pl.ledger.Needs("a coin", "the majority's verdict, and not any that is paid"),),
    vetoes={"right answers": pl.ledger.Veto(pl.ledger.Logged("part/right"), falls=0.10)},
    measure=pl.ledger.Balanced("part/right"),
    metric="balanced accuracy of verdicts on own answers, last ten steps (unread ones are false)",
    task="chain(operands=(2,3))",
    constants={arm: {"rl.optimiser.lr": RATES[:2]} for arm in LEARNED},
    tokens=40_000,
    evaluate=128,
    seconds=70.0,
    controls={
        "first five steps": pl.ledger.Balanced("part/right", first=5),
        "consensus": pl.ledger.Logged("part/consensus"),
        "says right": pl.ledger.Logged("part/can"),
    },
    note="The small model invents no tasks: it judges its own answers, worked out or guessed. 80 "
    "steps of imitated verdicts, half of them worked, come first in four arms, so that about "
    "three of four verdicts are true. The last begins at a coin, as the built-in model does; "
    "there consensus should not help; its first five steps tell how it begins, and hold updates. A run has 14 to 20 "
    "steps. "
    "In the older test, with 70,000 tokens at 1e-4, five seeds had "
    ".90, .63, .49, .93 and .74: where it failed the answers that are judged had become wrong nearly all (.04 and "
    ".12 right), on which a constant verdict agrees, so right answers are a veto, and a smaller rate is tried.",
)
