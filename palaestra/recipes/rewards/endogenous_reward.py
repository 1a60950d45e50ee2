"""Endogenous reward: a frozen next-token model is its own reward model (inverse reinforcement learning).

Its logits f are soft Q-values at temperature alpha, V(s) = alpha logsumexp(f(s, .) / alpha), so by the inverse soft Bellman
operator every token earns

    r(s_h, a_h) = f(s_h, a_h) - V(s_{h+1}) = alpha log pi(a_h | s_h) + V(s_h) - V(s_{h+1}),   V(terminal) = 0

and a reply alpha log pi(y | x) + V(s_1) (arXiv:2506.23235, section 4). V(s_1) is one constant a prompt: among replies to one
prompt the reward ranks as the likelihood does, and V only moves credit between tokens. As in the paper the learner is PPO with
0.01 times the KL to the start, the reward model that start, frozen: the optimal policy has its own reward again, so repeating
gains nothing. An empty reply is its end token, scored like any other; sums favour the short, `per_token` divides by the
number of tokens. It sharpens what the model believes: where its likeliest answer is wrong, accuracy falls. Compare with greedy
decoding of the start before calling it learning, and watch `length` and the part "tokens".
"""

from palaestra.card import Card, Size
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.recipes.base import ppo
from palaestra.rewards.intrinsic import Endogenous
from palaestra.rollout.collect import Sample, Score, links
from palaestra.step import Recipe
from palaestra.update import AdamW
from palaestra.values import vary

CARD = Card(
    id="endogenous-reward",
    family="rewards",
    title="Endogenous generalist reward from next-token prediction (inverse RL)",
    paper="arXiv:2506.23235",
    parent="ppo",
    claim="Reinforcement learning on a reward read from the model's own logits improves on the model that it was read from.",
    changes={
        "collect": "every token is paid by a frozen copy of the start: its logit less the next state's soft value",
        "credit": "0.01 of the KL to the start is taken off every token's reward",
    },
    source="two consistent restatements of the paper; dividing by the length is an addition",
    paper_scale="Qwen2.5-Math-7B on MATH-lighteval, PPO, KL 0.01, responses up to 1,024 tokens",
    size=Size(model="qwen2.5-7b", tokens=1024),
)


def build(alpha: float = 1.0, per_token: bool = False, kl: float = 0.01) -> Recipe:
    reward = Endogenous("ref", alpha=alpha, per_token=per_token)
    return vary(
        ppo.build(kl=kl), collect=links(Sample(n=8), Score(reward=reward, shadow=True)), references={"ref": "policy"}
    )


EXPERIMENT = Experiment(
    claim="On `rec`, answers sampled at temperature 1 are right more often after training on the endogenous reward.",
    arms={"start": vary(build(), optimiser=AdamW(lr=0.0)), "endogenous": build(), "per token": build(per_token=True)},
    expect=Greater("endogenous", "start", by=0.05),
    falsified_if="sampled answers are less than five points better than those of the untrained model",
    measure=Final("sampled_after.pass@1.mean"),
    metric="held-out accuracy (temperature 1)",
    task="rec",
    tokens=60_000,
    samples=8,
    seconds=40.0,
    controls={
        "greedy accuracy": Final(),
        "pass@8": Final("sampled_after.pass@8.mean"),
        "length": Logged("length"),
        "entropy": Logged("entropy_sampled"),
    },
    note="On `rec` greedy decoding is better than sampling before any training, so sharpening must help; the greedy accuracy "
    "of the start is the bound it is to be held against. Where the likeliest answer is wrong, as on `chain`, the same reward "
    "does harm.",
)
