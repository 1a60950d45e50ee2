"""RAPO: a forward KL holds the policy to its start, which is flattened where rewards are low.

    J = E_{y ~ pi}[r] - alpha KL(pihat || pi) + beta H(pi),   pihat proportional to pi_ref^phi(r)        (arXiv:2510.03865)

phi in [0, 1] rises with the reward: a low one flattens the reference (explore), a high one leaves
it as it is (stay). The reverse KL forbids what the reference does not do; the forward KL only asks
that what it does stays possible. Per token of a sample of pi, with q = pihat / pi, E_pi[q log q - q
+ 1] = KL(pihat || pi), every term >= 0; log q is kept within +-10.

The paper's exponent is on whole answers with an intractable Z. Here it acts on every token's
distribution, renormalised over the vocabulary. Its phi, alpha and beta were not to be found: phi is
the reward scaled to [0, 1] within the group ("sample"; in a group of equal rewards, or of one, the
reward itself), the group's mean reward ("group"), or 1 ("none": a plain forward KL). With rewards
of 0 and 1, phi = r: a uniform reference on wrong answers, pi_ref on right ones.
"""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from torch import Tensor

import palaestra as pl

CARD = pl.Card(
    title="RAPO: forward KL + reference reweighting for exploration",
    paper="arXiv:2510.03865",
    claim="A forward KL to a reward-aware reference lets RL solve problems that the base model "
    "never solves.",
    source="secondary source for the equations; phi, alpha, beta and the token level are inferred",
    size=pl.Size(
        setting="Qwen2.5-3B/7B base, 8k SimpleRL-Zero questions, AIME 2024 and 2025; alpha, beta "
        "and phi are not known",
        model="qwen2.5-7b",
    ),
    needs=pl.needs.Requirements(
        shows="kl_forward", off={"alpha": 0.0}, own={"schedule.prompts": 4}
    ),
    use="It is for problems that the start hardly ever solves, where many samples are drawn; where the "
    "start is mostly right it pulls the policy back to it.",
    lacks=(
        "The paper's phi, alpha and beta are not known, and its exponent on whole answers acts on tokens.",
    ),
    grade="B",
)


def exponents(reward_G: np.ndarray, how: Literal["sample", "group", "none"]) -> np.ndarray:
    """[G] phi of each reward of a group."""
    if how == "none" or not len(reward_G):
        return np.ones_like(reward_G)
    if how == "group":
        return np.full_like(reward_G, np.clip(reward_G.mean(), 0, 1))
    spread = np.ptp(reward_G)
    return (reward_G - reward_G.min()) / spread if spread > 1e-9 else np.clip(reward_G, 0, 1)


@pl.declare(facts=(("exponent", float, 'the power of the signal "power_logp" of its rows'),))
@pl.stage
class Temper:
    """Gives every scored episode the fact "exponent", which tempers the signal "power_logp" of its
    rows.
    """

    how: Literal["sample", "group", "none"] = "sample"

    async def __call__(self, ctx: object, key: pl.Key, group: pl.Group) -> pl.Group:
        phi = iter(exponents(np.array([e.total for e in group.valid], float), self.how).tolist())
        episodes = (
            replace(e, facts={**e.facts, "exponent": next(phi)}) if e.ok else e
            for e in group.episodes
        )
        return replace(group, episodes=tuple(episodes))


@pl.stage
class ForwardKL(pl.Algebra):
    """KL(pihat || pi) on samples of pi, "forward" of `objective.kl`. The learner must need (model,
    "power_logp").
    """

    model: str = "ref"
    reduce: pl.objective.Reduction = "sequences"

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        kl_BT = pl.objective.kl_terms(out["logp"], batch[f"{self.model}_power_logp"], "forward")
        return pl.reduce_terms(kl_BT, batch, self.reduce), {
            "kl_forward": pl.token_mean(kl_BT, batch)
        }


def build(
    alpha: float = 0.01,
    beta: float = 1e-3,
    phi: Literal["sample", "group", "none"] = "sample",
    n: int = 8,
) -> pl.Recipe:
    loss: Any = pl.Clipped()
    loss = loss + alpha * ForwardKL() if alpha else loss
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n), pl.Score(), Temper(phi)),
        objective=loss + beta * pl.Entropy() if beta else loss,
        references={"ref": "policy"} if alpha else {},
        needs=(("ref", "power_logp"),) if alpha else (),
    )
