"""Learning to Think (L2T): every step of a reply is rewarded for what it adds to the probability of
the right answer, less a penalty on how much the model would have to learn from it.

A rollout has K steps z_k: its lines, or what `mark` separates (the paper cuts at <think> marks).
The reference is read behind what opens the answers of the group, \\boxed{ or <answer>, or behind
`opening`. With J the policy's own
probability of the reference answer behind a prefix (arXiv:2505.10425, eqs. 3 to 5 and section 4.3),

    r_k  = J(s_k, z_k) - J(s_k) - beta C_k,      R_k = r_out / K + alpha r_k
    C_k  = (dtheta . g_k)^2,                     g_k = grad log pi(z_k | s_k): the Fisher matrix of rank one

    r_t  = w_t R_k,  w_t = -log pi_old(y_t) / sum over the step;    r_i = mean of r_t without the outer 5%
    A_i  = (r_i - mean) / std over the group,    A_t = A_i r_t / r_i

then GRPO. The mean over tokens makes a long rollout of the same worth a worse one. Theta does not
move inside a rollout, so C_k is read as a virtual step dtheta = eta g_k, C_k = eta^2 |g_k|^4, on
the output layer in rank x rank random directions (the paper takes an SVD): no backward pass. No
step: K = 1. No surprise in a step: equal weights. r_i = 0: A_i for all tokens. r_t / r_i is kept
within +-`limit`, for it explodes near r_i = 0 (the metric `clamped` is the share). Gains sum to
J(end) - J(start), so cutting finer earns nothing. The paper adds a KL penalty of unknown weight,
which is left out.
"""

import re
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Learning to Think: information-gain dense process reward (PAC-Bayes, Fisher)",
    paper="arXiv:2505.10425",
    claim="Paying every step for its information gain, less a compression penalty, gives equal "
    "accuracy in fewer tokens.",
    source="full text (sections 4.1 to 4.3); the virtual step, its size and its block are inferred",
    size=pl.Size(
        setting="DeepScaleR-1.5B and R1-Distill-Qwen-1.5B, 16,384 tokens, batch 256 (prompts or "
        "answers, not known), lr 1e-6, weight decay 0.01, alpha 0.8, beta 0.6",
        model="qwen2.5-1.5b",
        tokens=16384,
        lr=1e-6,
        arguments={"optimiser.weight_decay": 0.01},
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "answer",
                "any",
                ("42", "39", "49"),
                "the right answer, whose probability is measured behind every step",
            ),
        ),
        shows="part/gain",
        off={"alpha": 0.0},
        own={"collect.links.0.n": 2, "schedule.prompts": 4},
    ),
    use="It helps where answers are long, with many steps that add little; on short workings there is "
    "nothing to save. It costs a forward pass of every prefix.",
    lacks=(
        "The KL penalty, whose weight is not known.",
        "The gradient is that of the output layer in random directions, not of an SVD of the "
        "weights.",
        "The size `eta` of the virtual step fits the built-in model and is not chosen by the run; "
        "on another model the penalty may be far too small or too large.",
    ),
    grade="B",
)


def compression(sketch_NR2: np.ndarray, eta: float) -> float:
    """(dtheta . g)^2 for dtheta = eta g, g the sum over tokens of the outer product of the sketch's
    two halves.
    """
    error, hidden = np.split(sketch_NR2, 2, axis=1)
    return penalty(eta * error.T @ hidden, error.T @ hidden)


def penalty(step: np.ndarray, gradient: np.ndarray) -> float:
    """dtheta^T g g^T dtheta (eq. 4)."""
    return float(np.sum(step * gradient) ** 2)


@pl.stage
class CutAt:
    """The steps of a reply: what begins with `mark`, or without one each line."""

    mark: str = ""

    def __call__(self, text: str) -> list[str]:
        if not self.mark:
            return text.splitlines(keepends=True)
        return [part for part in re.split(f"(?={re.escape(self.mark)})", text) if part]


@pl.stage
class InformationStepRewards:
    """The outcome, and at every step's last token alpha (dI - beta C): events that come on top of
    the outcome.
    """

    alpha: float = 0.8
    beta: float = 0.6
    eta: float = 0.25  # puts C at the scale of the gains of the built-in model
    rank: int = 16
    model: str = "policy"
    mark: str = ""
    opening: str = ""

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        gain = pl.rewards.InformationGain(
            self.model, CutAt(self.mark), self.opening, weight=self.alpha
        )
        rewards = await gain(ctx, group)
        if not self.beta:
            return rewards

        async def penalties(groups: list[pl.Group]) -> list[np.ndarray]:
            rows = [
                pl.rewards.row_tokens(e.rows[pl.rewards.last_policy_row(e)])
                for g in groups
                for e in g.episodes
            ]
            pairs = [(ids[: own[0]], ids[own[0] :]) for ids, own in rows]
            with ctx.phase("forward"):
                return pl.models.output_gradients(ctx.model(self.model), pairs, self.rank)

        sketches = await pl.rewards.judge_together(ctx, self, group, penalties)
        return [
            r
            if isinstance(r, pl.Fault)
            else self._less(
                r, x, int(pl.rewards.row_tokens(e.rows[pl.rewards.last_policy_row(e)])[1][0])
            )
            for r, x, e in zip(rewards, sketches, group.episodes, strict=True)
        ]

    def _less(self, reward: pl.Reward, sketch_NR2: np.ndarray, start: int) -> pl.Reward:
        ends = [e.token - start + 1 for e in reward.events]
        parts = np.split(sketch_NR2, ends[:-1]) if ends else []
        cost = [self.alpha * self.beta * compression(x, self.eta) for x in parts]
        events = tuple(
            pl.Event(row=e.row, token=e.token, value=e.value - c, part=e.part)
            for e, c in zip(reward.events, cost, strict=True)
        )
        total = reward.total - sum(cost)
        return replace(
            reward, total=total, parts={**reward.parts, "compression": sum(cost)}, events=events
        )


def token_shares(
    logp_T: np.ndarray, ends: list[int], step_K: list[float], outcome: float
) -> np.ndarray:
    """[T] w_t R_k: R_k = outcome / K + step_k, by surprise inside each step; what follows the last
    end belongs to it.
    """
    K, r_T = max(len(ends), 1), np.zeros(len(logp_T))
    bounds = [0, *(end + 1 for end in ends[:-1]), len(logp_T)]
    for k, (a, b) in enumerate(pairwise(bounds)):
        r_T[a:b] = pl.rewards.surprise_shares(logp_T[a:b]) * (
            outcome / K + (step_K[k] if step_K else 0.0)
        )
    return r_T


def truncated_mean(x_T: np.ndarray, keep: float = 0.95) -> float:
    """The mean without the lowest and highest (1 - keep) / 2; 0 of nothing."""
    cut = int((1 - keep) / 2 * len(x_T) + 1e-9)
    return float(np.sort(x_T)[cut : len(x_T) - cut].mean()) if len(x_T) else 0.0


@pl.stage
class Surprised:
    """r_i of every episode; the token's share r_t / r_i becomes the column "share", and where it
    was cut "clamped".
    """

    keep: float = 0.95
    limit: float = 10.0
    spreads: ClassVar[bool] = True

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        at, score_E = table.tokens, np.zeros(len(table.episodes))
        share_N, clamped_N = np.ones(len(at.episode_N)), np.zeros(len(at.episode_N))
        for e, episode in enumerate(table.episodes):
            mine = np.flatnonzero(at.episode_N == e)
            events = sorted(
                episode.reward.events if episode.reward else (), key=lambda v: (v.row, v.token)
            )
            place = list(zip(at.row_N[mine], at.position_N[mine], strict=True))
            ends = [max(sum(p <= (v.row, v.token) for p in place) - 1, 0) for v in events]
            logp_T = np.array([table.views[e][r].logp_T[p] for r, p in place])
            r_T = token_shares(
                logp_T,
                ends,
                [v.value for v in events],
                episode.total - sum(v.value for v in events),
            )
            score_E[e] = truncated_mean(r_T, self.keep)
            if abs(score_E[e]) > 1e-9:
                ratio_T = r_T / score_E[e]
                share_N[mine] = ratio_T.clip(-self.limit, self.limit)
                clamped_N[mine] = np.abs(ratio_T) > self.limit
        table.add_column("share", pl.Values(level="token", x_N=share_N))
        table.add_column("clamped", pl.Values(level="token", x_N=clamped_N))
        return pl.Values(level="episode", x_N=score_E)


@pl.stage
class ByShare:
    """A_i times the token's share."""

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        return pl.Values(level="token", x_N=table.lift(x, "token").x_N * table.columns["share"].x_N)


def build(alpha: float = 0.8, beta: float = 0.6, mark: str = "", opening: str = "") -> pl.Recipe:
    reward = InformationStepRewards(alpha, beta, mark=mark, opening=opening)
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward)),
        credit=pl.chain(Surprised(), pl.Center("group"), pl.Scale("group", eps=1e-9), ByShare()),
        objective=pl.Clipped(reduce="sequences") + pl.Track(("clamped",)),
    )
