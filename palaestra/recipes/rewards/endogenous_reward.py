"""Endogenous reward: a frozen language model is used as the reward model, by reading a reward from its
own logits (inverse reinforcement learning).

Its logits f are soft Q-values at temperature alpha, V(s) = alpha logsumexp(f(s, .) / alpha), so by
the inverse soft Bellman operator every token earns

    r(s_h, a_h) = f(s_h, a_h) - V(s_{h+1}) = alpha log pi(a_h | s_h) + V(s_h) - V(s_{h+1}),   V(terminal) = 0

and a reply alpha log pi(y | x) + V(s_1) (arXiv:2506.23235, section 4). V(s_1) is one constant a
prompt: among replies to one prompt the reward ranks as the likelihood does, and V only moves credit
between tokens. As in the paper the learner is PPO with 0.01 times the KL to the start, the reward
model that start, frozen: the optimal policy has its own reward again, so repeating gains nothing.
An empty reply is its end token, scored like any other; sums favour the short, `per_token` divides
by the number of tokens. It sharpens what the model believes: where its likeliest answer is wrong,
accuracy falls. Compare with greedy decoding of the start before calling it learning, and watch
`length` and the part "tokens".
"""

import palaestra as pl

CARD = pl.Card(
    title="Endogenous generalist reward from next-token prediction (inverse RL)",
    paper="arXiv:2506.23235",
    claim="Reinforcement learning on a reward read from the model's own logits improves on the "
    "model that it was read from.",
    source="two consistent restatements of the paper; dividing by the length is an addition",
    size=pl.Size(
        setting="Qwen2.5-Math-7B on MATH-lighteval, PPO, KL 0.01, responses up to 1,024 tokens",
        model="qwen2.5-7b",
        tokens=1024,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "answer",
                "any",
                ("42", "39", "49"),
                "the right answer, which trains nothing and is measured beside (part/gold)",
                otherwise="nothing is measured beside",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "reward model",
                "reward_model",
                "is the language model whose logits are read",
                otherwise="the start of the policy, frozen, as in the paper",
                reads_tokens=True,
            ),
        ),
        shows="part/tokens",
        never_off="It is the number of tokens that were scored by the language model; without them "
        "there is no reward.",
        own={"collect.links.0.n": 2, "schedule.prompts": 4},
    ),
    use="It helps where no verifier and no preferences are there and the model's likeliest answer is "
    "mostly right; where it is mostly wrong, accuracy falls.",
    lacks=(
        "A principle or rubric in front of the prompt, which steers the reward model.",
        "The benchmark of reward models.",
    ),
    grade="A",
)


def build(
    alpha: float = 1.0, per_token: bool = False, kl: float = 0.01, reward_model: str = "policy"
) -> pl.Recipe:
    """`reward_model` is a folder or an id of the hub; the KL stays one to the policy's start."""
    own = reward_model != "policy"
    name = "reward_model" if own else "ref"
    reward = pl.rewards.Endogenous(name, alpha=alpha, per_token=per_token)
    return pl.vary(
        pl.recipe("ppo", kl=kl),
        collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward, shadow=True)),
        references={"ref": "policy", **({name: reward_model} if own else {})},
    )
