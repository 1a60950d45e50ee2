"""ROVER: the policy learns what choosing at random would earn from each token on, and samples by that.

In a tree with deterministic transitions and a reward at the leaves, Q of the policy that chooses
uniformly is positive exactly where a right leaf can be reached, so acting greedily on it is optimal
and sampling from its softmax is diverse (arXiv:2509.24981). Its backup has no max, only a mean:

    Q(s, a) = r(s, a) + 1/|V| sum_{a'} Q(s', a')

With no head for Q: Q_theta(s, a) = rho (log pi_theta(a|s) - log pi_old(a|s)). For the centred
reward rt = r - mean_group(r), paid at every token, the loss is the token mean of (Q_theta(s_t, a_t)
- y_t)^2 with the target, through which no gradient flows,

    y_t = rt + rho / |V| sum_v [log pi_theta(v|s_{t+1}) - log pi_old(v|s_{t+1})],   y_T = rt

pi_old is the policy before the first of the step's minibatches; its log-probs are those that the
sampler recorded (lag 0). There Q = 0 and the gradient is -2 rho rt grad log pi, REINFORCE with a
baseline. No clip, no KL, no reference. |V| counts every row of the vocabulary, padding included.
The state after a turn is the start of the next one. A lone sample or equal rewards: rt = 0, and Q
is pulled back to 0.
"""

import torch
from torch import Tensor

import palaestra as pl

CARD = pl.Card(
    title="Random Policy Valuation (ROVER)",
    paper="arXiv:2509.24981",
    claim="Evaluating the uniform policy suffices: accuracy rises while the answers stay diverse.",
    source="released code (tinnerhrhe/ROVER) and abstract",
    size=pl.Size(
        setting="Qwen3-8B/4B base on DeepScaleR, n = 8, temperature 0.6, 8,192 tokens; Qwen2.5-3B "
        "on countdown, 128 prompts x 5, minibatches of 32, lr 1e-6",
        model="qwen3-8b",
        samples=8,
        tokens=8192,
        arguments={"collect.sample.temperature": 0.6},
    ),
    needs=pl.needs.Requirements(shows="q_next", off={"rho": 0.0}, own={"schedule.prompts": 4}),
    use="It is for problems with many right answers, of which several are wanted; with a small "
    "vocabulary its mean weighs more against the reward than in the paper.",
    grade="A",
)


def successors(x_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """[B, T] x at the row's next trained token, 0 behind the last one."""
    T = x_BT.shape[1]
    at_BT = torch.where(mask_BT > 0, torch.arange(T, device=x_BT.device), T)
    first_BT = at_BT.flip(1).cummin(1).values.flip(1)  # the first trained position from t on
    ends = x_BT.new_zeros(len(x_BT), 1)
    next_BT = torch.cat([first_BT[:, 1:], torch.full_like(first_BT[:, :1], T)], 1)
    return torch.cat([x_BT, ends], 1).gather(1, next_BT)


@pl.stage
class UniformBellman(pl.Algebra):
    """The squared error above; the column "advantage" is the reward. Needs the signal ("policy",
    "vocab_mean_logp").

    `bootstrap=False` leaves the successor's value out.
    """

    rho: float = 1.0
    bootstrap: bool = True

    @property
    def needs(self) -> tuple[str, ...]:
        return ("logp", "vocab_mean_logp")

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        q_BT = self.rho * (out["logp"] - batch["behaviour_logp"]) * batch.mask
        mean_BT = self.rho * (out["vocab_mean_logp"] - batch["policy_vocab_mean_logp"]) * batch.mask
        # a target is not moved towards its estimate
        next_BT = successors(mean_BT, batch.mask).detach()
        y_BT = batch["advantage"] + (next_BT if self.bootstrap else 0.0)
        return pl.reduce_terms((q_BT - y_BT) ** 2, batch, "tokens"), {
            "q": pl.token_mean(q_BT, batch),
            "q_next": pl.token_mean(next_BT, batch),
        }


def build(rho: float = 1.0, bootstrap: bool = True, scale: bool = False) -> pl.Recipe:
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(pl.Center("group"), *((pl.Scale("group"),) if scale else ())),
        objective=UniformBellman(rho, bootstrap),
        update=pl.Plain(minibatches=4),
        needs=(("policy", "vocab_mean_logp"),),
    )
