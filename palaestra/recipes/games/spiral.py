"""SPIRAL: one policy plays both roles of zero-sum games against itself, and what a role earns is
compared with the running mean of that role.

    A = R - b[game][role],    b <- 0.95 b + 0.05 R        (RAE, role-conditioned advantage estimation)

R is what the seat was paid for the game, gamma 1, so all turns of a seat get the same A; every turn
is a row of its own. No division by a standard deviation and none by a length: token sums over the
constant longest reply, as in Dr. GRPO. PPO's clipping, two passes over a batch, no KL. A seat with A
= 0 is left out. A reply that is no action ends the game (arXiv:2506.24119).

The paper pays +1 and -1 for a won and a lost game, also in poker, where one hand so scored makes
folding pointless; here the game's own pay counts, in Kuhn poker chips. It takes a fixed number of
turns out of whole games; here all turns of `games` games are a batch. `read_first` False updates b
before it is read, as the paper's listing is remembered to; the released code reads first, and the
two differ by the factor 0.95 alone. `past` is the share of games in which one seat, drawn, is one of
the last `keep` snapshots, taken every `every` steps: not in the paper, which plays against itself.
"""

from dataclasses import replace
from typing import Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="SPIRAL: self-play zero-sum games, role-conditioned advantage",
    paper="arXiv:2506.24119",
    claim="Self-play on zero-sum games with a baseline for each role trains a policy that fixed "
    "opponents and a common baseline do not.",
    source="abstract and released code (spiral-rl/spiral: train_spiral.py, run.sh, utils.py, envs); "
    "that the listing updates first is from memory",
    size=pl.Size(
        setting="Qwen3-4B-Base on Kuhn poker, 128 turns a step, 400 steps, 4,096 tokens, "
        "temperature 1, lr 1e-6 constant; 8 H100",
        model="qwen3-4b",
        prompts=128,
        samples=1,
        tokens=4096,
        lr=1e-6,
        arguments={"length": 4096},
    ),
    task="kuhn",
    needs=pl.needs.Requirements(
        columns=(),
        places=(
            pl.needs.NeededPlace(
                "game",
                "of two seats with zero sum, both of which the policy plays",
                built_in=("kuhn", "tictactoe"),
            ),
        ),
        shows="part/self_play",
        off={"past": 1.0},  # every game is played against a copy from before
        own={"games": 4},
    ),
    use="It helps where a game has no teacher and no data; policies may go round an equilibrium "
    "instead of nearing it.",
    lacks=(
        "Several games cannot be trained in one run: an environment stands alone, so it is no "
        "part of a mixture.",
        "Simple Negotiation, the third game of the paper, is not built in.",
        "That reasoning outside the game improves was not measured.",
    ),
    grade="B",
)


@pl.stage
class Decided:
    """Mutes who has no credit, as after a draw that was expected."""

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        for e in np.flatnonzero(x.x_N == 0).tolist():
            table.mute(e)
        return x


@pl.stage
class TellSelfPlay:
    """Tells of every game, as the part "self_play" of its reward, whether the policy learns from
    both sides of it.
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._with_part, group.episodes)))

    def _with_part(self, e: pl.Episode) -> pl.Episode:
        if e.reward is None:
            return e
        seats = {row.seat for row in e.rows if any(s.trained for s in row.segments)}
        parts = {**e.reward.parts, "self_play": float(len(seats) > 1)}
        return replace(e, reward=replace(e.reward, parts=parts))


def build(
    baseline: Literal["seat", "batch", "none"] = "seat",
    decay: float = 0.95,
    read_first: bool = True,
    past: float = 0.0,
    every: int = 20,
    keep: int = 4,
    games: int = 64,
    length: float | None = None,
) -> pl.Recipe:
    """`baseline`: of each role, one of all ("batch"), or none. `length` is the longest reply in
    tokens, None = the run's; another value only rescales the loss.
    """
    earlier = (
        pl.rollout.Sometimes(pl.rollout.Alternate(pl.rollout.Frozen("past")), past)
        if past
        else None
    )
    mean = () if baseline == "none" else (pl.credit.Ema(decay, baseline, read_first),)
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=1, cast=earlier), pl.Score(), TellSelfPlay()),
        credit=pl.chain(*mean, Decided()),
        objective=pl.Clipped(reduce="constant", length=length),
        update=pl.Plain(epochs=2),
        references={"past": pl.rollout.Snapshots(every, keep)} if past else {},
        schedule=pl.Schedule(prompts=games, steps=100),
    )
