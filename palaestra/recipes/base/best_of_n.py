"""Best of n: sample n answers, keep the one a judge likes best. No weight moves.

`select`: "reward" takes the highest reward (an upper bound: pass@n where the reward is the gold
verifier), "likelihood" the highest mean log-prob, "majority" the commonest final answer
(self-consistency, arXiv:2203.11171).
"""

from collections import Counter
from dataclasses import replace
from typing import Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Best of n sampling",
    paper="arXiv:2112.09332",
    claim="Selecting among samples buys accuracy with inference tokens instead of training.",
    source="textbook",
    needs=pl.needs.Requirements(shows="gained", off={"n": 1}, own={"n": 4, "tasks": 4}),
    use="It helps where answers can be judged and inference is cheap; it changes no weight, so its gain "
    "is paid again for every question.",
    lacks=(
        "The selected answers are not written to a file of their own; the run reports their "
        "accuracy.",
        "The run trains no judge: `reward-model` trains one from comparisons, and `--reward` "
        "reads it.",
        "The browser of the paper, and its policy that imitates people who browse, are not there.",
    ),
    grade="B",
)


@pl.stage
class BestOfN:
    """A program: evaluates greedy answers, then the selected one of `n` samples on `tasks` held-out
    problems.
    """

    n: int = 8
    select: Literal["reward", "likelihood", "majority"] = "reward"
    temperature: float = 1.0
    tasks: int = 256

    async def run(self, ctx: pl.Context) -> pl.Result:
        before, _ = await pl.run.greedy_held_out(ctx, self.tasks)
        groups = await pl.run.attempt_tasks(
            ctx, self.tasks, pl.Sample(n=self.n, temperature=self.temperature), label="best of n"
        )
        known = [(g, self.choose(g)) for g in groups if g.valid]
        after = pl.run.judge_held_out([replace(g, episodes=(e,)) for g, e in known])
        above = [e.total - np.mean([x.total for x in g.valid]) for g, e in known]
        ctx.log({"gained": float(np.mean(above)) if above else 0.0})  # above the mean sample
        ends = pl.ends.at_ends(before.json(), after.json())
        return pl.Result(metrics={**ends, "sampled_tokens": ctx.sampled_tokens})

    def choose(self, group: pl.Group) -> pl.Episode:
        """The first of the best."""
        if self.select == "reward":
            return max(group.valid, key=lambda e: e.total)
        if self.select == "likelihood":
            return max(group.valid, key=likelihood)
        votes = Counter(pl.run.vote_key(e.text) for e in group.valid)
        return max(group.valid, key=lambda e: votes[pl.run.vote_key(e.text)])


def likelihood(episode: pl.Episode) -> float:
    """Mean log-prob of the sampled tokens, in nats."""
    return float(
        np.mean([x for r in episode.rows for s in r.segments if s.logp is not None for x in s.logp])
    )


def build() -> BestOfN:
    return BestOfN()
