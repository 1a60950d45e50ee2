"""MM-RLHF: a reward model that writes a critique before its score, and DPO in which pairs that this
model finds clear weigh more.

    reward model   L = -log p(critique) - log sigmoid(s_w - s_l) + 0.01 * (s_w + s_l)^2
    policy         L = -log sigmoid(beta(d) * m) + 0.25 * NLL(y_w),  m = (log pi / pi_ref)(y_w) - (log pi / pi_ref)(y_l)
                   beta(d) = beta_0 * (1 + w * (1 - exp(-k d))),  beta_0 = 0.1, w = 0.5, k = 0.5

(arXiv:2502.10391; d = s_w - s_l is the reward model's margin on a pair that people ranked, beta
stays within [beta_0, 1.5 beta_0] and has no gradient). Every two answers of a prompt that people
rank apart are a pair. A reward model that disagrees (d < 0) leaves beta_0; `d_negative` counts it.
d is in units of its spread over the batch, for k * d to mean the same for every model.
variant="released" is what the trainer of Kwai-YuanQi/MM-RLHF does for text: beta = beta_0 * (1 +
0.1 * (m_sel - mean m)), at least 1e-3, one number a batch, m_sel the mean over a random 80% drawn
by a Gaussian weight around the mean.

`build` is a pipeline on the pairs of the data: "reward" trains the reward model on them and on the
critiques that people wrote of both answers, "dpo" the policy, with margins that the reward model
reads behind critiques of its own. Where a record has no critique the reward model learns an empty
one. Pairs may be about pictures, where the model sees: give the column `image`, and both parts see it
(docs/pictures.md). On the embedded problem both learn together, from the labels and critiques of a program.
"""

from dataclasses import replace
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
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.CHOSEN,
            pl.needs.REJECTED,
            pl.needs.NeededColumn(
                "chosen_critique",
                "text",
                ("It carries the one.", "It is right.", "Clear and right."),
                "what people wrote of the better answer",
                otherwise="the reward model learns to write nothing of it",
            ),
            pl.needs.NeededColumn(
                "rejected_critique",
                "text",
                ("It forgets the carry.", "The sum is wrong.", "It guesses."),
                "what people wrote of the other answer",
                otherwise="the reward model learns to write nothing of it",
            ),
        ),
        shows="beta_gain",
        off={"dpo.objective.w": 0.0},
        own={
            "steps": 2,
            "critique_tokens": 4,
            "reward.schedule.prompts": 4,
            "dpo.schedule.prompts": 4,
        },
    ),
    use="It helps where pairs differ in how clear they are and people wrote why; with a reward "
    "model that is wrong about the order of many pairs (`d_negative`) it is DPO with a beta of 0.1.",
    lacks=(
        "Pictures were tried with small random vision-language models alone; videos are not read.",
        "Critiques are not made longer by a language model; tied pairs are left out.",
        "The 120,000 pairs of the paper, and its benchmarks of reward models and of safety, are not here.",
    ),
    grade="B",
)
Variant = Literal["paper", "released"]


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
        metrics = {
            "margin": m_U.detach(),
            "beta": beta_U,
            "beta_gain": beta_U / self.beta - 1,
            "d_negative": (d_U < 0).to(m_U.dtype),
        }
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
        examples: list[pl.Example] = []
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
                examples.append(
                    pl.Example(row=groups[g].episodes[e].rows[0], columns=columns, unit=f"pair {n}")
                )
        return examples, state

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


@pl.stage
class ScoredPairs:
    """Scores recorded answers by `reward`; which one people preferred stays as the part "gold"."""

    reward: pl.RewardFn

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        episodes = list[pl.Episode]()
        scores = await pl.judge_group(ctx, self.reward, group)
        for episode, score in zip(group.episodes, scores, strict=True):
            if isinstance(score, pl.Reward):
                score = replace(score, parts={**score.parts, "gold": episode.total})
            episodes.append(pl.rollout.apply_reward(episode, score))
        return replace(group, episodes=tuple(episodes))


def written_critique(task: pl.Task, episode: pl.Episode) -> str:
    """What people wrote of a recorded answer; "" = nothing."""
    column = "chosen_critique" if episode.solved else "rejected_critique"
    return str(task.meta.get(column) or "")


def program_critique(task: pl.Task, episode: pl.Episode) -> str:
    """What a person would write of a sum: whether the answer is right, and how it came about."""
    right = (episode.reward.parts.get("gold", episode.total) if episode.reward else 0.0) >= 1
    return ("right" if right else "wrong") + (
        ", worked" if pl.rewards.text_properties(episode.text)["worked"] else ", guessed"
    )


def objective_of(variant: Variant, sft: float) -> DynamicDPO:
    return (
        DynamicDPO(sft=sft) if variant == "paper" else DynamicDPO(w=0.1, sft=sft, source="implicit")
    )


def rater(credit: pl.Credit) -> pl.Learner:
    """The reward model."""
    return pl.Learner(
        credit=credit,
        objective=pl.objective.CritiqueNLL() + pl.BradleyTerry(center=0.01),
        heads=("score",),
        optimiser=pl.AdamW(lr=1e-3),
    )


def build(
    variant: Variant = "paper", sft: float = 0.25, steps: int = 40, critique_tokens: int = 256
) -> pl.Pipeline:
    """`steps` are those of the reward model, whose critiques have up to `critique_tokens` tokens."""
    reward = pl.Recipe(
        draw=pl.Shuffled(),
        collect=pl.links(pl.Recorded(model="reward"), pl.rewards.Critiqued(written_critique)),
        learners={"reward": rater(pl.Compare(pairs="all", keep=("critique",)))},
        schedule=pl.Schedule(prompts=16, steps=steps),
    )
    score = pl.rewards.CritiqueThenScore(max_tokens=critique_tokens)
    dpo = pl.vary(
        pl.recipe("dpo", pairs="data"),
        collect=pl.links(pl.Recorded(), ScoredPairs(score)),
        credit=RankedPairs(),
        objective=objective_of(variant, sft),
    )
    models = {"reward": pl.Output("reward", "reward")}
    return pl.Pipeline(parts={"reward": pl.Part(reward), "dpo": pl.Part(dpo, models=models)})


def embedded(variant: Variant = "paper", sft: float = 0.25, critique_tokens: int = 16) -> pl.Recipe:
    """On the embedded problem: both learn from the policy's own answers, which a program labels."""
    parent = pl.recipe("dpo")
    policy = pl.vary(parent, credit=RankedPairs(), objective=objective_of(variant, sft)).learners
    learned = rater(pl.Labelled("gold", pl.Compare(pairs="all", keep=("critique",))))
    score = pl.rewards.CritiqueThenScore(max_tokens=critique_tokens)
    collect = pl.links(
        pl.Sample(n=8),
        pl.Score(reward=score, shadow=True),
        pl.rewards.Also(pl.rewards.Critiqued(program_critique)),
    )
    return pl.vary(parent, collect=collect, learners={**policy, "reward": learned})
