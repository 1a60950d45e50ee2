"""EFRame: further attempts at what nobody solved, whose rare success alone trains, and replay.

A prompt whose G = 5 answers are all wrong gets 20 more at temperature 1.2, in a group of their own:
the first failures are in no statistic of theirs. Of that group only |A| > 1 trains: one success
among 20 has A = 4.25, its 19 failures A = -0.22 (std with ddof 1). Of first groups |A| > 0.05
trains, which drops those with equal rewards. An answer that was cut off trains only if A <= 0. What trains
with |A| > 1 is kept with its advantage and log-probs, and added to the batch of every fifth step
(arXiv:2506.22200). Clipped surrogate, mean over tokens, with 0.01 KL to the start.

The paper speaks of positive samples, the code replays |A| > 1, so a rare failure as well: `sign`.
Replayed advantages are stale; `age` bounds, in steps, how old. The code updates only when a full
batch of survivors is there, and replays in an update of its own: here each step is one batch.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="EFRame: exploration, filtering, replay",
    paper="arXiv:2506.22200",
    claim="Further exploration of hard prompts, with filtering and replay, makes deeper problems "
    "reachable than GRPO.",
    source="released code (597358816/EFRame: ray_trainer.py, buffer.py) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-Math-7B and Qwen2.5-VL-7B; 512 prompts, G = 5 and 20, lr 1e-6, 2,048 "
        "tokens",
        model="qwen2.5-7b",
        prompts=512,
        tokens=2048,
        lr=1e-6,
    ),
)


def attempt(table: pl.Table, episode: int) -> tuple[int, int]:
    """The scope of the first answers of a prompt, and that of the further ones."""
    return int(table.group_E[episode]), table.episodes[episode].facts.get("stratum", 0)


@pl.stage
class Survivors:
    """Mutes episodes whose |A| is not above `first`, of further answers `further`; and those that
    were cut off and are better than expected.
    """

    first: float = 0.05
    further: float = 1.0

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        for e, a in enumerate(x.x_N.tolist()):
            episode = table.episodes[e]
            least = self.further if attempt(table, e)[1] else self.first
            lucky = episode.status.startswith("truncated") and a > 0
            if abs(a) <= least or lucky:
                table.mute(e)
        return pl.Values(level="episode", x_N=np.array(x.x_N))


def build(
    n: int = 5,
    further: int = 20,
    temperature: float = 1.2,
    replay: bool = True,
    sign: Literal["both", "positive"] = "both",
    age: int = 10,
    kl: float = 0.01,
) -> pl.Recipe:
    """`further` answers, at `temperature`, for prompts that `n` did not solve."""
    again = pl.links(pl.Sample(n=further, temperature=temperature), pl.Score())
    credit = pl.chain(pl.Center(attempt), pl.Scale(attempt), Survivors())
    parent = pl.recipe("grpo", kl=kl)
    loss = pl.Clipped(reduce="tokens")
    return pl.vary(
        parent,
        collect=pl.links(pl.Sample(n=n), pl.Score(), pl.When(pl.none_right, pl.Instead(again))),
        credit=pl.credit.Rehearse(credit, capacity=2 * n * 16, every=5, sign=sign)
        if replay
        else credit,
        objective=loss + kl * pl.KL("k3", reduce="tokens") if kl else loss,
        schedule=replace(parent.schedule, max_age=age if replay else None),
    )
