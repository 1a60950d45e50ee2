"""Lite PPO: two tricks on PPO's surrogate without a critic, and nothing else.

A_k = (R_k - mean_group(R)) / (std_batch(R) + eps): the std is that of the raw rewards of the whole batch (ddof 1), which is
why it is taken before the group's mean. Every token of the batch weighs the same in the loss (arXiv:2508.08221). No KL, no
entropy bonus, no overlong filter, symmetric clip 0.2. A group of equal rewards has A = 0 and, unlike with its own std, a
nearly equal one is not blown up; a batch of equal rewards has A = 0. `ddof=0` and `centred=True` (the std of the rewards
minus their group's mean) are what other implementations take.
"""

from palaestra.card import Card, Size
from palaestra.credit.links import Center, Scale, chain
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.objective.policy import Clipped
from palaestra.recipes.base import grpo
from palaestra.step import Recipe
from palaestra.values import vary

CARD = Card(
    id="lite-ppo",
    family="objectives",
    title="Tricks or Traps? / Lite PPO (group mean, batch std, token-level loss)",
    paper="arXiv:2508.08221",
    parent="grpo",
    claim="Group mean with batch std and a token-level loss alone beat GRPO and DAPO on base models.",
    changes={
        "credit": "the scale is the standard deviation of all raw rewards of the batch",
        "objective": "every token of the batch weighs the same",
    },
    source="released code (alibaba/ROLL, huggingface/trl) and abstract",
    paper_scale="Qwen3-4B and 8B, 128 prompts x 8, 8 optimiser steps a batch, temperature 0.99, top-p 0.99, top-k 100, no KL",
    size=Size(
        model="qwen3-8b",
        prompts=128,
        samples=8,
        arguments={
            "update.minibatches": 8,
            "collect.links.0.temperature": 0.99,
            "collect.links.0.top_p": 0.99,
            "collect.links.0.top_k": 100,
        },
    ),
)


def build(ddof: int = 1, centred: bool = False) -> Recipe:
    center, scale = Center("group"), Scale("batch", ddof=ddof)
    return vary(
        grpo.build(),
        credit=chain(center, scale) if centred else chain(scale, center),
        objective=Clipped(reduce="tokens"),
    )


EXPERIMENT = Experiment(
    claim="Lite PPO earns more reward over the run than GRPO from a base model at equal sampled tokens.",
    arms={
        "grpo": grpo.build(),
        "group std and tokens and clip-higher": vary(grpo.build(), objective=Clipped(high=0.28, reduce="tokens")),
        "batch std only": vary(build(), objective=Clipped(reduce="sequences")),
        "lite-ppo": build(),
    },
    expect=Greater("lite-ppo", "grpo"),
    measure=Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="Lite PPO is less than two points better than GRPO over five seeds",
    task="add",
    tokens=40_000,
    controls={"final accuracy": Final(), "entropy": Logged("entropy_sampled"), "gradient norm": Logged("grad_norm")},
    note="The embedded model knows the answer format, as an aligned model does; the paper's gain is largest on base models.",
)
