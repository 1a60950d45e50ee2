"""VERL: answers whose hidden states take more dimensions, or ever more of them, earn a bonus.

The effective rank of an answer's last-layer states Z [T, D], centred, is ER = exp(-sum p_j log p_j)
with p_j the share of the j-th singular value. On prefixes of stride, 2 stride, ... tokens it is m_1
.. m_K, and (arXiv:2509.23808)

    ERV = mean over k >= 2 of v_k,  v_k = m_k - mean(m_1 .. m_{k-1})     how fast the rank grows: exploitation
    ERA = mean over k >= 3 of v_k - v_{k-1}                              whether it grows faster and faster

Each is compared with its running mean over batches, dev = clip((x - mu) / (|mu| + 1e-8), -5, 5),
and

    beta = sigmoid(2 dev_ERA),   Phi = beta tanh(dev_ER) + (1 - beta) tanh(dev_ERV)
    A' = A + min(relu(Phi), |A| / 2)

So an answer whose rank accelerates is paid for its rank, another one for its growth; the bonus is
never negative, never flips a sign, and is 0 where A is. The first batch has no running mean: A' =
A. The mean takes in 0.3 of each batch after its use. ERV and ERA are 0 below two (three) prefixes.
A stride is 40 tokens, for answers of a thousand. The released code centres by an identity that mixes
rows; states are centred plainly here. The state that chose a token stands for it.

The number "rank_bonus" of a step is the mean of A' - A over its tokens.
"""

from dataclasses import replace
from typing import Any, Literal

import numpy as np

import palaestra as pl

NAMES = ("rank", "velocity", "acceleration")
CARD = pl.Card(
    title="Hidden-state exploration: Effective Rank, ERV, ERA (VERL)",
    paper="arXiv:2509.23808",
    claim="Paying for the rank of hidden states and for its growth raises exploration and "
    "exploitation together.",
    source="released code (hf618/VERL) and abstract",
    size=pl.Size(
        setting="several models, e.g. Mathstral-7B, 48 prompts x 4, minibatches of 24, stride 40, "
        "KL and entropy bonus 1e-3, 1,536 tokens, 161 steps",
        model="mistral-7b",
        prompts=48,
        samples=4,
        tokens=1536,
        arguments={"kl": 1e-3, "entropy": 1e-3, "update.minibatches": 2},
    ),
    needs=pl.needs.Requirements(
        shows="rank_bonus",
        off={"credit.links.2.kappa": float("inf")},
        own={"stride": 2, "schedule.prompts": 4},
    ),
    use="It is for answers of hundreds of tokens, with at least three prefixes of `stride`; in short "
    "answers a rank is nearly a count of tokens, so it pays for length.",
    grade="A",
)


def growth(prefix_K: np.ndarray) -> tuple[float, float]:
    """(ERV, ERA) of the ranks of growing prefixes."""
    before_K = np.cumsum(prefix_K)[:-1] / np.arange(1, len(prefix_K))
    v_K = prefix_K[1:] - before_K
    return (float(v_K.mean()) if len(v_K) else 0.0), (
        float(np.diff(v_K).mean()) if len(v_K) > 1 else 0.0
    )


def potential(now_E3: np.ndarray, mean_3: np.ndarray, gain: float = 2.0) -> np.ndarray:
    """[E] Phi, from rank, velocity and acceleration against their running means."""
    dev_E3 = np.clip((now_E3 - mean_3) / (np.abs(mean_3) + 1e-8), -5, 5)
    beta_E = 1 / (1 + np.exp(-gain * dev_E3[:, 2]))
    return beta_E * np.tanh(dev_E3[:, 0]) + (1 - beta_E) * np.tanh(dev_E3[:, 1])


@pl.stage
class RankBonus:
    """A + min(relu(Phi), |A| / kappa), Phi of the episode, A of any level. The running means live
    in the credit's state.

    `placebo` gives the bonuses to other episodes of the batch. Several rows of an episode count by
    their mean.
    """

    stride: int = 40
    kappa: float = 2.0
    gain: float = 2.0
    keep: float = 0.7  # of the running mean, batch by batch
    placebo: bool = False

    def __post_init__(self) -> None:
        pl.check_bounds("RankBonus.stride", self.stride, least=1)

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        now_E3 = np.array([self._measured(table, e) for e in range(len(table.episodes))]).reshape(
            -1, 3
        )
        before, n = table.state.get("effective_rank"), table.state.get("batches", 0)
        if not len(now_E3):
            return x
        mean_3 = now_E3.mean(0)
        old_3 = mean_3 if before is None else np.array([before[k] for k in NAMES])
        after_3 = self.keep * old_3 + (1 - self.keep) * mean_3
        table.remember("effective_rank", dict(zip(NAMES, after_3.tolist(), strict=True)))
        table.remember("batches", n + 1)
        if before is None:
            return x
        phi_E = np.maximum(potential(now_E3, old_3, self.gain), 0)
        if self.placebo:
            phi_E = pl.rng_of(("placebo", n)).permutation(phi_E)
        phi_N = table.lift(pl.Values(level="episode", x_N=phi_E), x.level).x_N
        bonus_N = np.minimum(phi_N, np.abs(x.x_N) / self.kappa)
        table.track("rank_bonus", replace(x, x_N=bonus_N))
        return replace(x, x_N=x.x_N + bonus_N)

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says so where no answer is long enough for a growth of its rank, and rewards differ, so that the
        bonus acts.
        """
        rows = [row for g in groups for e in g.valid for row in e.rows]
        longest = max(
            (sum(len(s.ids) for s in row.segments if s.trained) for row in rows), default=0
        )
        totals = ({e.total for e in g.valid if e.reward is not None} for g in groups)
        if not longest or longest >= 3 * self.stride or not any(len(x) > 1 for x in totals):
            return ""
        return (
            f"the longest answer of the first step has {longest} tokens, and the growth of a rank needs three prefixes of "
            f"{self.stride}: below that the bonus pays for the rank alone, which in short answers is nearly a count of "
            f"tokens; take stride={max(1, longest // 6)}, or grpo"
        )

    def _measured(self, table: pl.Table, episode: int) -> np.ndarray:
        """[3] ER, ERV, ERA."""
        name, growths = f"policy_prefix_rank:{self.stride}", []
        for view, signals in zip(table.views[episode], table.signals[episode], strict=True):
            on_T = view.trained_T & (np.arange(len(view.ids_T)) > 0)
            rank_N = signals[name][on_T]
            if len(rank_N):
                growths.append((rank_N[-1], *growth(rank_N[self.stride - 1 :: self.stride])))
        return np.mean(growths, axis=0) if growths else np.zeros(3)


def build(
    stride: int = 40,
    placebo: bool = False,
    kl: float = 0.0,
    entropy: float = 0.0,
    base: Literal["grpo", "gae"] = "grpo",
) -> pl.Recipe:
    """`kl` and `entropy`: the released script uses 0.001 for both. `base` is where A comes from:
    the group, or a value head (PPO's advantages by token and its value loss).
    """
    parent, gae = pl.recipe("grpo", kl=kl), base == "gae"
    (learner,) = parent.learners.values()
    loss: Any = learner.objective
    loss = loss + 0.5 * pl.ValueLoss() if gae else loss
    links = (
        (pl.Gae(), pl.Center("batch"), pl.Scale("batch"))
        if gae
        else (pl.Center("group"), pl.Scale("group"))
    )
    return pl.vary(
        parent,
        credit=pl.chain(*links, RankBonus(stride, placebo=placebo)),
        objective=loss + entropy * pl.Entropy() if entropy else loss,
        needs=(
            *learner.needs,
            *((("policy", "value"),) if gae else ()),
            ("policy", f"prefix_rank:{stride}"),
        ),
        heads=("value",) if gae else (),
    )


def embedded(stride: int = 2, **options: Any) -> pl.Recipe:
    """On the embedded problem, whose answers have 10 to 50 tokens."""
    return build(stride, **options)
