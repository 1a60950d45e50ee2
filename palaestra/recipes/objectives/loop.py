"""LOOP: trains agents with several passes of PPO over each batch, and compares an attempt with the
other attempts at its task: no critic, no reference model, no KL term.

    A_k = R_k - mean_{i != k} R_i,     L = mean over agent tokens of min(ratio A, clip(ratio, 1 / (1 + eps), 1 + eps) A),

eps = 0.1 (arXiv:2502.01600). The ratio is of a token, or the product over a turn or the whole
trajectory (a bandit); the mean is over tokens in all three. Two epochs of minibatches on the same
rollouts; with one epoch and one minibatch it is RLOO. Rollouts with |A| < 0.01 are dropped; a group
of one, or of equal returns, is dropped whole. The sum is divided by the rollouts of the minibatch
(the released code: by its nominal size). Observations are masked.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="LOOP: leave-one-out PPO for interactive agents (AppWorld)",
    paper="arXiv:2502.01600",
    claim="Leave-one-out PPO with token ratios trains long-horizon agents better than RLOO, GRPO "
    "and coarser ratios.",
    source="released code (apple/ml-loop), which has token and trajectory ratios; turn ratios from "
    "notes on the paper",
    size=pl.Size(
        setting="Qwen2.5-32B-Instruct, LoRA 16, AppWorld, K = 6, 40 tasks an iteration, "
        "minibatches of 32 rollouts, 32,000 tokens, 1,500 a turn, lr 5e-5, 200 iterations",
        model="qwen2.5-32b",
        prompts=40,
        samples=6,
        tokens=32000,
        lr=5e-5,
        lora=16,
        arguments={
            "minibatches": 8,
            "collect.sample.max_tokens": 1500,
            "optimiser.weight_decay": 0.01,
            "optimiser.clip_norm": 0.1,
        },
    ),
    task="hop",
    needs=pl.needs.Requirements(
        columns=(),
        places=(
            pl.needs.NeededPlace(
                "environment",
                "which is acted in over several turns",
                built_in=("hop", "grid", "lake"),
                also=("tools",),
            ),
        ),
        shows="tools/calls",
        never_off="It is how often an answer calls the environment's tools; without an environment nothing "
        "is called.",
        own={"model": "tiny-agent", "schedule.prompts": 2, "collect.links.0.n": 2},
    ),
    use="It helps where attempts are dear, so that each batch is learned from several times; with one "
    "pass it is RLOO.",
    lacks=("AppWorld does not come with it: bring it as an environment.",),
    grade="A",
)


@pl.stage
class MuteSmall:
    """Mutes episodes whose leave-one-out advantage is below `least`: they stay in the baselines of
    the others.
    """

    least: float = 0.01

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        totals = np.array([e.total for e in group.valid])
        advantages = iter(pl.credit.leave_one_out(totals, np.zeros(len(totals), np.int64)))
        episodes = (
            replace(e, muted=e.muted or abs(next(advantages)) < self.least) if e.ok else e
            for e in group.episodes
        )
        return replace(group, episodes=tuple(episodes))


def build(
    ratio: Literal["token", "turn", "sequence"] = "token",
    eps: float = 0.1,
    epochs: int = 2,
    minibatches: int = 4,
    baseline: Literal["others", "mean", "std"] = "others",
) -> pl.Recipe:
    """`baseline`: the mean of the others, of all, or of all with a division by the deviation (ddof
    1; GRPO's advantage).
    """
    pl.check_bounds("loop: eps", eps, least=0)
    scale = (pl.Scale("group"),) if baseline == "std" else ()
    return pl.vary(
        pl.recipe("rloo"),
        credit=pl.chain(pl.Center("group", others=baseline == "others"), *scale),
        collect=pl.links(pl.Sample(n=8), pl.Score(), MuteSmall()),
        objective=pl.Clipped(low=eps / (1 + eps), high=eps, ratio=ratio, reduce="sequences"),
        update=pl.Plain(epochs=epochs, minibatches=minibatches),
    )
