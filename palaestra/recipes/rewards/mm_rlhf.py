"""MM-RLHF: a reward model that writes a critique before its score, and DPO that trusts clear pairs
more.

    reward model   L = -log p(critique) - log sigmoid(s_w - s_l) + 0.01 * (s_w + s_l)^2
    policy         L = -log sigmoid(beta(d) * m) + 0.25 * NLL(y_w),  m = (log pi / pi_ref)(y_w) - (log pi / pi_ref)(y_l)
                   beta(d) = beta_0 * (1 + w * (1 - exp(-k d))),  beta_0 = 0.1, w = 0.5, k = 0.5

(arXiv:2502.10391; d = s_w - s_l is the reward model's margin on a pair that people ranked, beta
stays within [beta_0, 1.5 beta_0] and has no gradient). Every two answers of a prompt that people
rank apart are a pair. A reward model that disagrees (d < 0) leaves beta_0; `d_negative` counts it.
d is in units of its spread over the batch, for k * d to mean the same for every model.
variant="released" is what the trainer of Kwai-YuanQi/MM-RLHF does for text: beta = beta_0 * (1 +
0.1 * (m_sel - mean m)), at least 1e-3, one number a batch, m_sel the mean over a random 80% drawn
by a Gaussian weight around the mean. `build` trains the reward model beside the policy, on the
labels and critiques of a program; scores are read behind its own critiques, as in the paper.
"""

from itertools import combinations
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

import palaestra as pl

CARD = pl.Card(
    title="MM-RLHF: critique-based reward model, dynamic reward scaling",
    paper="arXiv:2502.10391",
    claim="A larger beta for pairs that a critique-based reward model finds clear uses good pairs "
    "better than one beta.",
    source="released code for the reward model and the released variant; beta(d) from three "
    "second-hand accounts",
    size=pl.Size(
        setting="LLaVA-OV-7B, 120k ranked pairs of 30k queries, lr 1e-6, SFT weight 0.25, 32 H800",
        model="qwen2.5-7b",
        lr=1e-6,
    ),
)


def beta(d: Tensor, base: float = 0.1, w: float = 0.5, k: float = 0.5) -> Tensor:
    """beta(d), within [base, (1 + w) * base]."""
    return (base * (1 + w * (1 - torch.exp(-k * d.clamp(min=0))))).clamp(min=max(base, 1e-3))


def batch_beta(m_U: Tensor, base: float = 0.1, w: float = 0.1, kept: float = 0.8) -> Tensor:
    """One beta for a batch of margins, by its inner part: the released variant.

    The draw without replacement takes the largest log-weights plus Gumbel noise of a fixed stream.
    """
    gumbel = torch.from_numpy(pl.rng_of(("mm-rlhf", len(m_U))).gumbel(size=len(m_U))).to(m_U)
    spread = m_U.std() if len(m_U) > 1 else m_U.new_zeros(())
    weight_U = -0.5 * ((m_U - m_U.mean()) / (spread + 1e-7)) ** 2
    chosen = (weight_U + gumbel).topk(max(1, int(len(m_U) * kept))).indices
    return (base * (1 + w * (m_U[chosen].mean() - m_U.mean()))).clamp(min=1e-3)


@pl.stage
class DynamicDPO(pl.Algebra):
    """-log sigmoid(beta * m) + sft * NLL(y_w), beta from the column `margin` or from the batch's
    own m (w is then 0.1).
    """

    beta: float = 0.1
    w: float = 0.5
    k: float = 0.5
    sft: float = 0.25
    source: Literal["reward_model", "implicit"] = "reward_model"

    @property
    def couples(self) -> pl.objective.Couples:
        return "unit" if self.source == "reward_model" else "batch"

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        m_U = pl.objective.preference_margins(out, batch)
        d_U = pl.objective.pair_column(batch, "margin")
        if self.source == "reward_model":
            beta_U = beta(d_U, self.beta, self.w, self.k)
        else:
            # detached: a temperature, not a target
            beta_U = batch_beta(m_U.detach(), self.beta, self.w).expand_as(m_U)
        n = batch.n_units
        loss = (softplus(-beta_U * m_U) + self.sft * pl.objective.chosen_nll(out, batch)).sum() / n
        metrics = {"margin": m_U.detach(), "beta": beta_U, "d_negative": (d_U < 0).to(m_U.dtype)}
        return loss, {name: x.sum() / n for name, x in metrics.items()}


@pl.stage
class RankedPairs:
    """Every two episodes of a group that the part `label` ranks apart, on the policy's rows;
    `margin` from the reward.

    Margins are divided by their standard deviation over the batch (`standardise`).
    """

    label: str = "gold"
    gap: float = 1e-9
    standardise: bool = True

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        found: list[pl.Example] = []
        pairs = [(g, *p) for g, group in enumerate(groups) for p in self._ranked(group.episodes)]
        d = np.array(
            [groups[g].episodes[a].total - groups[g].episodes[b].total for g, a, b in pairs]
        )
        spread = float(d.std()) if self.standardise and len(d) and d.std() > 0 else 1.0
        for n, (g, better, worse) in enumerate(pairs):
            for e, sign in ((better, 1.0), (worse, -1.0)):
                columns: dict[str, Any] = {
                    **signals[g][e][0],
                    "sign": sign,
                    "margin": float(d[n]) / spread,
                }
                found.append(
                    pl.Example(row=groups[g].episodes[e].rows[0], columns=columns, unit=f"pair {n}")
                )
        return found, state

    def _ranked(self, episodes: tuple[pl.Episode, ...]) -> list[tuple[int, int]]:
        scored = {i: e.reward.parts for i, e in enumerate(episodes) if e.ok and e.reward and e.rows}
        labels = {i: parts[self.label] for i, parts in scored.items() if self.label in parts}
        if scored and not labels:
            raise pl.UserError(
                f"no reward has the part {self.label!r}, the label that ranks the pairs"
            )
        return [
            (a, b) if labels[a] > labels[b] else (b, a)
            for a, b in combinations(labels, 2)
            if abs(labels[a] - labels[b]) >= self.gap
        ]


def critique(task: pl.Task, episode: pl.Episode) -> str:
    """What a person would write: whether the answer is right, and how it came about."""
    right = (episode.reward.parts.get("gold", episode.total) if episode.reward else 0.0) >= 1
    return ("right" if right else "wrong") + (
        ", worked" if pl.rewards.text_properties(episode.text)["worked"] else ", guessed"
    )


def build(variant: Literal["paper", "released"] = "paper", sft: float = 0.25) -> pl.Recipe:
    parent = pl.recipe("dpo")
    objective = (
        DynamicDPO(sft=sft) if variant == "paper" else DynamicDPO(w=0.1, sft=sft, source="implicit")
    )
    policy = pl.vary(parent, credit=RankedPairs(), objective=objective).learners
    rater = pl.Learner(
        credit=pl.Labelled("gold", pl.Compare(pairs="all", keep=("critique",))),
        objective=pl.objective.CritiqueNLL() + pl.BradleyTerry(center=0.01),
        heads=("score",),
        optimiser=pl.AdamW(lr=1e-3),
    )
    collect = pl.links(
        pl.Sample(n=8),
        pl.Score(reward=pl.rewards.CritiqueThenScore(max_tokens=16), shadow=True),
        pl.rewards.Also(pl.rewards.Critiqued(critique)),
    )
    return pl.vary(parent, collect=collect, learners={**policy, "reward": rater})


# ---- the experiment: a good reward model, and people who err where answers are nearly as good
