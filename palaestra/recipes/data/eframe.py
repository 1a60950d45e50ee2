"""EFRame: prompts without a right answer get more attempts, only their rare success trains, and such
answers are replayed later.

- Exploration: if all G = 5 answers to a prompt are wrong, 20 more are sampled at temperature 1.2. They
  are a group of their own, A = (r - mean) / std (ddof 1); the first failures do not count in it.
- Filter: an answer of a further group trains only if |A| > 1, one of a first group if |A| > 0.05. So one
  success among 20 trains (A = 4.25), its 19 failures do not (A = -0.22), and groups of equal rewards do
  not either. An answer that was cut off trains only if A <= 0.
- Replay: answers that train with |A| > 1 are kept with their advantage and log-probs, and added to the
  batch of every fifth step.

The loss is the clipped surrogate, a mean over tokens, with 0.01 KL to the start (arXiv:2506.22200).

The paper replays positive samples, its code all with |A| > 1, so rare failures too: `sign` chooses.
Replayed advantages are stale; `age` is their largest age in steps. The code updates only once a full
batch of answers survives, and replays in an update of its own; here each step is one batch.
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
    needs=pl.needs.Requirements(
        shows="answers_spread",
        off={"further": 0},
        own={"schedule.prompts": 6, "n": 2, "further": 4},
    ),
    use="It helps where a prompt that five answers do not solve is solved once in some twenty; where such "
    "prompts stay unsolved, the further answers only cost tokens.",
    lacks=(
        "The analysis of kinds of training samples is not there.",
        "Problems with pictures, on which the paper trains too, were not tried with this method.",
        "No update waits for a full batch of surviving answers: each step is one batch.",
        "Replayed answers join the batch of a step; they have no update of their own.",
    ),
    grade="B",
)


def attempt(table: pl.Table, episode: int) -> tuple[int, int]:
    """The group that an answer is compared in: the first answers of its prompt, or the further ones."""
    return int(table.group_E[episode]), table.episodes[episode].facts.get("stratum", 0)


@pl.stage
class Survivors:
    """Mutes episodes whose |A| is not above `first`, or `further` for further answers, and episodes
    that were cut off with A > 0.
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
    """Samples `further` answers at `temperature` for prompts that the first `n` did not solve; 0
    samples no further ones.
    """
    explore: list[pl.Collect] = []
    if further:
        again = pl.links(pl.Sample(n=further, temperature=temperature), pl.Score())
        explore.append(pl.When(pl.none_right, pl.Instead(again)))
    credit = pl.chain(pl.Center(attempt), pl.Scale(attempt), Survivors())
    parent = pl.recipe("grpo", kl=kl)
    loss = pl.Clipped(reduce="tokens")
    return pl.vary(
        parent,
        collect=pl.links(pl.Sample(n=n), pl.Score(), *explore),
        credit=pl.credit.Rehearse(credit, each=2 * n, every=5, sign=sign) if replay else credit,
        objective=loss + kl * pl.KL("k3", reduce="tokens") if kl else loss,
        schedule=replace(parent.schedule, max_age=age if replay else None),
    )
