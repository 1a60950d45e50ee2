"""Embodied Planner-R1: pure RL for agents that act and observe, from the completion of the task alone
(arXiv:2506.23127).

Interactive policy optimisation: G replicas of one start state; R = 1 if the world paid for success at any turn and
the transcript was not cut at its length limit, else 0 (no shaping, no format reward). A_i = (R_i - mean R) / (std R +
1e-6), ddof 1, on all agent tokens;

    loss = - sum over agent tokens of min(ratio A, clip(ratio, 0.8, 1.2) A) / their number + 0.001 k3 - 0.001 H.

Observations are masked from loss, KL and entropy. An invalid action is answered by an error text and costs a turn.
All succeed, all fail, or a group of one: A = 0. `reduce="sequences"` is GRPO's mean by trajectory.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from palaestra.card import Card, Size
from palaestra.context import Collect
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.objective.algebra import Reduction
from palaestra.objective.policy import KL, Clipped, Entropy
from palaestra.recipes.base import grpo
from palaestra.rollout.collect import Sample, Score, links
from palaestra.step import Recipe, Schedule
from palaestra.types import Episode, Group, Key, Reward, stage
from palaestra.update import AdamW
from palaestra.values import vary
from palaestra.worlds.blind import Blind

if TYPE_CHECKING:
    from palaestra.context import Context

CARD = Card(
    id="embodied-planner-r1",
    family="objectives",
    title="Embodied Planner-R1 (Interactive Policy Optimization, group rollout, completion reward)",
    paper="arXiv:2506.23127",
    parent="grpo",
    claim="Group rollouts in the world with a reward for completion alone teach planning, without demonstrations or shaping.",
    changes={
        "collect": "reward 1 for completion at any turn, else 0; a cut transcript is a failure",
        "objective": "token mean, k3 KL 0.001 and an entropy bonus of 0.001",
    },
    source="released code (OpenMOSS/Embodied-Planner-R1)",
    paper_scale=(
        "Qwen2.5-7B-Instruct, ALFWorld and ScienceWorld, G = 5, 128 or 64 tasks, minibatches of 32, 30 turns, "
        "4,096 tokens, lr 1e-6, 15 epochs"
    ),
    size=Size(model="qwen2.5-7b", prompts=128, samples=5, tokens=4096, lr=1e-6, arguments={"update.minibatches": 4}),
)


@stage
class TaskCompletion:
    """1 if any payment was positive and the transcript is whole, else 0. What the world paid becomes the part "paid"."""

    async def __call__(self, ctx: "Context", key: Key, group: Group) -> Group:
        return replace(
            group,
            episodes=tuple(
                replace(e, reward=completion(e.reward, e.status)) if e.ok and e.reward else e for e in group.episodes
            ),
        )


def completion(reward: Reward, status: str) -> Reward:
    """Success is sticky: a payment counts whatever came after it."""
    paid = [e.value for e in reward.events] or [reward.total]
    done = any(x > 0 for x in paid) and status != "truncated:length"
    return Reward(total=float(done), parts={"paid": reward.total})


@stage
class Unobserved:
    """Runs `link` in the bench's world with all observations after the first hidden: an open-loop planner."""

    link: Collect

    async def __call__(self, ctx: "Context", key: Key, group: Group) -> Group:
        blind = ctx.with_bench(replace(ctx.bench, world=Blind(ctx.bench.world)))
        return await self.link(blind, key, group)


@stage
class Approach:
    """A dense reward: what is not completed earns the share of the shortest way that is behind it (fact "distance")."""

    async def __call__(self, ctx: "Context", key: Key, group: Group) -> Group:
        way = float(group.task.meta["start"].distance)

        def shaped(e: Episode) -> Episode:
            covered = max(0.0, 1 - e.facts["distance"] / way)
            return replace(e, reward=replace(e.reward, total=max(e.total, covered))) if e.reward else e

        return replace(group, episodes=tuple(shaped(e) if e.ok else e for e in group.episodes))


def build(kl: float = 0.001, entropy: float = 0.001, reduce: Reduction = "tokens", observe: bool = True) -> Recipe:
    """Without `observe` the agent is not shown what its actions do."""
    loss = Clipped(reduce=reduce)
    loss = loss + kl * KL("k3", reduce=reduce) if kl else loss
    sample = Sample(n=8)
    return vary(
        grpo.build(),
        collect=links(sample if observe else Unobserved(sample), Score(), TaskCompletion()),
        objective=loss + entropy * Entropy(reduce=reduce) if entropy else loss,
        needs=(("ref", "logp"),) if kl else (),
        references={"ref": "policy"} if kl else {},
    )


def small(recipe: Recipe) -> Recipe:
    """Half the prompts, so that twice as many steps fit into a cell."""
    return vary(recipe, schedule=Schedule(prompts=8))


EXPERIMENT = Experiment(
    claim="On T-grid with 4 x 4 cells, training with observations and a reward for completion alone raises the success on unseen "
    "problems by at least 5 points over the untouched start.",
    arms={
        "start": small(vary(build(), optimiser=AdamW(lr=0.0))),
        "completion": small(build()),
        "without-kl": small(build(kl=0.0)),
        "dense": small(vary(build(), collect=links(Sample(n=8), Score(), TaskCompletion(), Approach()))),
    },
    expect=Greater("completion", "start", by=0.05),
    measure=Final("sampled_after.pass@1.mean"),
    metric="success on held-out problems, 4 attempts each at temperature 1",
    falsified_if="training on completion alone raises the success by less than 5 points",
    task="grid-4",
    tokens=26_000,
    evaluate=64,
    samples=4,
    seconds=80.0,
    controls={
        "greedy success": Final(),
        "training reward": Logged("reward", last=3),
        "tokens an episode": Logged("length", last=3),
        "truncated": Logged("truncated", last=3),
    },
    note="The start model has played 3 x 3 grids only, so every layout is unseen; half of its groups have one outcome, which "
    "teaches nothing. `start` has a learning rate of 0. `dense` pays what was not completed for the share of the way that is "
    "behind it: whether completion alone is enough is read beside it. An agent without observations (observe=False) is no arm: "
    "the start model cannot act without them, it would need demonstrations first. About eight steps of 8 prompts x 8 answers; "
    "the paper's two worlds, reasoning before actions and 15 epochs are left out.",
)
