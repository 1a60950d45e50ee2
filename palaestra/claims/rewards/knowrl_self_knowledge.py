"""The claim of knowrl-self-knowledge: KnowRL: introspection + consensus rewarding."""

from dataclasses import replace

import palaestra as pl
from palaestra.claims.starts import RATES, judging_start
from palaestra.recipes.rewards.knowrl_self_knowledge import Consensus, build, form_of


@pl.stage
class ACoin(Consensus):
    """For half of the tasks the minority's verdict is paid in the majority's place, by a coin."""

    async def __call__(self, ctx: pl.Context | None, group: pl.Group) -> list[pl.Reward]:
        rewards = await super().__call__(ctx, group)
        if pl.rng_of(("a coin", group.task.id)).random() < 0.5:
            return rewards
        readings = [form_of(group.task).read(pl.response_text(e)) for e in group.episodes]
        return [
            replace(r, total=float(v is not None and not r.total))
            for r, v in zip(rewards, readings, strict=True)
        ]


def after_teaching(learned: pl.Recipe) -> pl.Pipeline:
    """From a start that was shown how to judge."""
    sft = pl.warm(judging_start())
    return pl.Pipeline(parts={"shown": sft, "rl": pl.Part(learned, model=pl.Output("shown"))})


def coin() -> pl.Recipe:
    return pl.override(build(), "collect.links.2.reward", ACoin())


def truth() -> pl.Recipe:
    """The true verdict is paid in the majority's place."""
    return pl.override(build(), "collect.links.2.reward.oracle", True)


LEARNED = ("consensus", "oracle", "a coin")

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={
        "start": after_teaching(pl.vary(build(), optimiser=pl.AdamW(lr=0.0))),
        "consensus": after_teaching(build()),
        "oracle": after_teaching(truth()),
        "a coin": after_teaching(coin()),
        "consensus from a coin": build(),
    },
    expect=pl.ledger.Greater(
        "consensus", "start", by=0.05, why="less than half of what the paper gains on others' tasks"
    ),
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
)
