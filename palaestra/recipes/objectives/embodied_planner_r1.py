"""Embodied Planner-R1: pure RL for agents that act and observe, from the completion of the task
alone (arXiv:2506.23127).

Interactive policy optimisation: G replicas of one start state; R = 1 if the world paid for success
at any turn and the transcript was not cut at its length limit, else 0 (no shaping, no format
reward). A_i = (R_i - mean R) / (std R + 1e-6), ddof 1, on all agent tokens;

    loss = - sum over agent tokens of min(ratio A, clip(ratio, 0.8, 1.2) A) / their number + 0.001 k3 - 0.001 H.

Observations are masked from loss, KL and entropy. An invalid action is answered by an error text
and costs a turn. All succeed, all fail, or a group of one: A = 0. `reduce="sequences"` is GRPO's
mean by trajectory.
"""

from dataclasses import replace
from typing import Any, ClassVar

import palaestra as pl

CARD = pl.Card(
    title="Embodied Planner-R1 (Interactive Policy Optimization, group rollout, completion reward)",
    paper="arXiv:2506.23127",
    claim="Group rollouts in the world with a reward for completion alone teach planning, without "
    "demonstrations or shaping.",
    source="released code (OpenMOSS/Embodied-Planner-R1)",
    size=pl.Size(
        setting="Qwen2.5-7B-Instruct, ALFWorld and ScienceWorld, G = 5, 128 or 64 tasks, "
        "minibatches of 32, 30 turns, 4,096 tokens, lr 1e-6, 15 epochs",
        model="qwen2.5-7b",
        prompts=128,
        samples=5,
        tokens=4096,
        lr=1e-6,
        arguments={"update.minibatches": 4},
    ),
    task="grid-4",
    needs=pl.needs.Requirements(
        columns=(),
        places=(
            pl.needs.NeededPlace(
                "environment",
                "which pays for a task that is completed",
                built_in=("grid-4", "grid", "lake", "hop"),
                also=("tools",),
            ),
        ),
        shows="part/paid",
        never_off="It is what the environment pays; without an environment nothing is played.",
        own={"schedule.prompts": 2, "collect.links.0.n": 4},
    ),
    use="It helps where a world says when a task is completed and some attempts complete it; where none "
    "does, there is nothing to learn from.",
    lacks=("ALFWorld and ScienceWorld do not come with it: bring them as an environment.",),
    grade="A",
)


@pl.stage
class TaskCompletion:
    """1 if a payment was `right` or more and the transcript is whole, else 0. What the world paid
    becomes the part "paid".
    """

    right: float | None = None  # None = 1
    reads_right: ClassVar[bool] = True

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(
            group,
            episodes=tuple(
                replace(e, reward=completion(e.reward, e.status, self.right))
                if e.ok and e.reward
                else e
                for e in group.episodes
            ),
        )


def completion(reward: pl.Reward, status: str, right: float | None = None) -> pl.Reward:
    """Success is sticky: a payment counts whatever came after it."""
    paid = [e.value for e in reward.events] or [reward.total]
    least = pl.SOLVED_TOTAL if right is None else right - 1e-9
    done = any(x >= least for x in paid) and status != "truncated:length"
    return pl.Reward(total=float(done), parts={"paid": reward.total})


@pl.stage
class Unobserved:
    """Runs `link` in the bench's world with all observations after the first hidden: an open-loop
    planner.
    """

    link: pl.Collect

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        blind = ctx.with_bench(replace(ctx.bench, world=pl.worlds.Blind(ctx.bench.world)))
        return await self.link(blind, key, group)


def build(
    kl: float = 0.001,
    entropy: float = 0.001,
    reduce: pl.objective.Reduction = "tokens",
    observe: bool = True,
    right: float | None = None,
) -> pl.Recipe:
    """Without `observe` the agent is not shown what its actions do. A payment of `right` (None: 1)
    or more is that of a completed task; smaller ones are those of steps on the way.
    """
    loss = pl.Clipped(reduce=reduce)
    loss = loss + kl * pl.KL("k3", reduce=reduce) if kl else loss
    sample = pl.Sample(n=8)
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(
            sample if observe else Unobserved(sample), pl.Score(), TaskCompletion(right)
        ),
        objective=loss + entropy * pl.Entropy(reduce=reduce) if entropy else loss,
        needs=(("ref", "logp"),) if kl else (),
        references={"ref": "policy"} if kl else {},
    )


def embedded(**options: Any) -> pl.Recipe:
    """On few rooms a step, whose attempts are long."""
    return pl.vary(build(**options), schedule=pl.Schedule(prompts=4, steps=8))
