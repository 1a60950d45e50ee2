"""DARS: more rollouts for hard prompts, so that they weigh as much in the gradient as others.

The absolute advantages of N answers with the accuracy a sum to N S(a), S(a) = 2 a (1 - a): little
for hard prompts. After N = 8 answers a prompt with a < 1/2 gets (arXiv:2508.13755)

    rule="equal"   dN = (N/2 - N S) / S        up to the peak: N / (4 a (1 - a)) in all, at most 32
    rule="hard"    dN = (N (1 - a) - N S) / S  up to (1 - a) N: N / (2 a) in all, at most 64

more, rounded up; a = 1 / (2 N) where none was right. Both stages are one group: A = r - mean, and a
mean over tokens, not over groups, which would undo the weights. Prompts whose answers are all right
or all wrong are dropped.

`breadth` (DARS-B) draws 3,072 prompts a step and takes two passes over the whole batch, each one update, in
place of minibatches. That hard prompts are chosen by their first answers makes the pooled accuracy a biased one.
"""

from dataclasses import replace
from typing import ClassVar, Literal

import palaestra as pl

CARD = pl.Card(
    title="DARS / DARS-B: difficulty-adaptive rollout sampling, depth and breadth",
    paper="arXiv:2508.13755",
    claim="More rollouts for hard prompts raise pass@k, larger batches pass@1, and both together "
    "are best.",
    source="released code (yangzhch6/DARS: schedule_ET, schedule_HW, scripts)",
    size=pl.Size(
        setting="Qwen2.5-Math-1.5B and 7B on OpenR1; N = 8, up to 32 or 64; breadth: 3,072 "
        "prompts, 2 epochs, lr 5e-6, 86 steps, 3,072 tokens",
        model="qwen2.5-1.5b",
        prompts=3072,
        tokens=3072,
        lr=5e-6,
        arguments={"breadth": True},
    ),
    needs=pl.needs.Requirements(
        shows="answers_spread",
        off={"collect.links.2.count.most": 1},
        own={"schedule.prompts": 6},
    ),
    use="It helps where a share of the prompts is solved in less than half of the tries, and pass@k counts; "
    "a step samples up to four times as many answers (eight with `rule=hard`), the more the harder the "
    "prompts are.",
    grade="A",
)
BREADTH = 3072  # prompts a step of DARS-B


@pl.stage
class MixedOnly:
    """Trains on the groups that have something to compare, which may be none."""

    drops_equal: ClassVar[bool] = True

    async def __call__(
        self, ctx: pl.Context, groups: list[pl.Group], state: pl.State
    ) -> tuple[list[pl.Group] | None, list[pl.Group], pl.State]:
        return [g for g in groups if pl.curriculum.is_mixed(g)], [], state


def build(rule: Literal["equal", "hard"] = "equal", n: int = 8, breadth: bool = False) -> pl.Recipe:
    """With `breadth` a step draws 3,072 prompts; `schedule.prompts` says otherwise."""
    parent = pl.recipe("grpo")
    more = pl.rollout.TopUp(rule, most=32 if rule == "equal" else 64)
    return pl.vary(
        parent,
        collect=pl.links(pl.Sample(n=n), pl.Score(), pl.rollout.Extra(more), pl.Score()),
        pool=MixedOnly(),
        credit=pl.chain(pl.Center("group")),
        objective=pl.Clipped(reduce="tokens"),
        update=pl.Plain(epochs=2) if breadth else pl.Plain(minibatches=4),
        schedule=replace(parent.schedule, prompts=BREADTH) if breadth else parent.schedule,
    )
