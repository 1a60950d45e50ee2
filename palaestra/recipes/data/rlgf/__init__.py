"""RLGF: PPO on answers that a guide begins, or that a guide ends.

The guide is a frozen model with the policy's tokenizer. With probability `beta` an attempt is rolled
in: one of the two models writes an answer of L tokens, its first h tokens are kept, h uniform in
1..L-1, and the other one goes on to the end. The step draws who begins (arXiv:2306.11816;
Cornell-RL/tril, algorithms and logit_processors):

    ppo++       the guide rolls in, the policy rolls out and is trained on its own tokens
    aggrevate   the policy rolls in and is trained on its own tokens, the guide rolls out: how well
                the guide does from where the policy brought it
    lols        each step ppo++ with probability 0.8, else aggrevate
    d2lols      aggrevate for the first 20 steps, then ppo++

    palaestra train rlgf --data FILE.jsonl guide=DIR --model DIR

Credit and loss are those of PPO: GAE over the policy's own tokens (gamma 0.99, lambda 0.95), whitened
over these alone, clip 0.2, five epochs, 0.001 of KL to the start in the reward. The reward of the
whole answer sits at the last token of the policy.

Where both roles occur (lols, d2lols) there is a critic for each: the head "value" says what the
policy reaches, "value-of-guide" what the guide reaches from there. Each is read and trained on the
answers of its role alone.

Deviations: the critics are heads of the policy, where the paper's are models. A roll-in has two tokens
or more. Where the guide would roll out and nothing is rolled in there is no token of the policy, so
nothing is played; the released code trains on the guide's tokens there. In the released code the
values of the guide's tokens lie between the last trained token and the reward; here these are no
states of the policy, and an aggrevate attempt has its reward at the hand-over. What a roll-in throws
away was sampled, so it counts in the budget.
"""

from dataclasses import replace
from typing import Any, Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.data.rlgf.rollin import ENDS, MARK, RollIn

CARD = pl.Card(
    title="RLGF: learning to generate better than your LLM (guide policy roll-in/roll-out)",
    paper="arXiv:2306.11816",
    claim="A policy that starts from a guide's states, or hands over to the guide, learns faster "
    "than by PPO and comes to surpass its guide.",
    source="released code (Cornell-RL/tril: algorithms ppo_pp, aggrevated, lols, d2lols; "
    "logit_processors; cfgs) and the abstract",
    size=pl.Size(
        setting="GPT-2 on IMDB and T5 on CommonGen, 112 trajectories a step, 5 epochs, lr 1e-5, beta "
        "0.6 and 0.8; 48 tokens from memory",
        model="gpt2",
        prompts=112,
        samples=1,
        tokens=48,
        lr=1e-5,
        arguments={"samples": 1},
    ),
    needs=pl.needs.Requirements(
        models=(
            pl.needs.NeededModel(
                "guide",
                "guide",
                "begins the policy's answers, or ends them",
                reads_tokens=True,
            ),
        ),
        shows="is:rolled-in",
        off={"beta": 0.0},
        own={"kind": "ppo++", "samples": 2, "epochs": 1, "schedule.prompts": 4},
    ),
    use="It helps where a model that is somewhat better, or as good in another way, has the policy's "
    "tokenizer; a guide that is worse than the policy starts it from states that it would not reach.",
    lacks=(
        "A black-box guide behind an API cannot be used: the guide is a local model with the "
        "policy's tokenizer.",
        "The critics are heads of the policy, not models of their own.",
    ),
    grade="B",
)
GUIDE, GUIDE_VALUE = "guide", "value-of-guide"
Kind = Literal["ppo++", "aggrevate", "lols", "d2lols"]


@pl.stage
class ByRole:
    """Advantages and returns by the critic of who ends an answer.

    Args:
        policy: of the answers that the policy ends.
        guide: of those that the guide ends.
    """

    policy: pl.Link
    guide: pl.Link

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        ends_E = np.array([bool(e.facts.get(ENDS)) for e in table.episodes], bool)
        ends_N = ends_E[table.tokens.episode_N]
        own, own_return = self.policy(x, table), table.columns["return"]
        other, other_return = self.guide(x, table), table.columns["return"]
        return_N = np.where(ends_N, other_return.x_N, own_return.x_N)
        table.add_column("return", pl.Values(level="token", x_N=return_N))
        return pl.Values(level="token", x_N=np.where(ends_N, other.x_N, own.x_N))


def build(
    kind: Kind = "d2lols",
    beta: float = 0.8,
    tau: float | None = None,
    guide: str = "policy",
    samples: int = 8,
    gamma: float = 0.99,
    kl: float = 0.001,
    epochs: int = 5,
) -> pl.Recipe:
    """Args:
    beta: the probability of a roll-in; 0 in ppo++ is PPO.
    tau: the probability of lols (0.8), the steps of d2lols (20).
    guide: a model by name or folder; "policy" is a copy of the start.
    """
    student: Any = {
        "ppo++": 1.0,
        "aggrevate": 0.0,
        "lols": 0.8 if tau is None else tau,
        "d2lols": pl.Jump(0.0, 1.0, 20 if tau is None else int(tau)),
    }[kind]
    gae = pl.Gae(gamma=gamma, lam=0.95, kl=kl)
    critic: Any = 0.5 * pl.ValueLoss(clip=0.2)
    links: list[pl.Link] = [pl.Fact(MARK), gae]
    learner = pl.recipe("ppo", kl=kl).learners["policy"]
    needs, heads = learner.needs, learner.heads
    if kind in ("lols", "d2lols"):
        guides = replace(gae, head=GUIDE_VALUE)
        links = [pl.Fact(MARK), pl.Fact(ENDS), ByRole(gae, guides)]
        critic = 0.5 * pl.On(ENDS, pl.ValueLoss(clip=0.2), absent=True) + 0.5 * pl.On(
            ENDS, pl.ValueLoss(clip=0.2, head=GUIDE_VALUE)
        )
        needs, heads = (*needs, ("policy", GUIDE_VALUE)), (*heads, GUIDE_VALUE)
    return pl.vary(
        pl.recipe("ppo", kl=kl),
        collect=pl.links(RollIn(n=samples, beta=beta, student=student), pl.Score()),
        credit=pl.chain(*links, pl.Center("batch"), pl.Scale("batch")),
        objective=pl.Clipped(reduce="tokens") + critic + pl.Track((f"is:{MARK}",)),
        update=pl.Plain(epochs=epochs, minibatches=1),
        needs=needs,
        heads=heads,
        references={GUIDE: guide, **({"ref": "policy"} if kl else {})},
    )


def embedded(guide: str = "policy", samples: int = 4, **options: Any) -> pl.Runnable:
    """On the embedded problem: the guide imitates its answers for some steps, then it guides. A guide
    of the user takes its place.
    """
    built = build(guide=guide, samples=samples, **options)
    rl = pl.vary(built, schedule=pl.Schedule(prompts=8, steps=40))
    if guide != "policy":
        return rl
    imitates = pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=32, steps=12))
    return pl.Pipeline(
        parts={
            GUIDE: pl.Part(imitates),
            "rlgf": pl.Part(rl, models={GUIDE: pl.Output(GUIDE)}),
        }
    )
