"""ASearcher: agents that search for many turns, episodes that wait for nobody, and a loss for samples
of several versions of the weights.

    A = score - mean of the group,    score = F1 where the form was kept, else 0,
    r = pi / prox,    w = prox / mu, 0 where above 5,
    L = mean over the policy's tokens of w max(-A r, -A clip(r, 1 - e, 1 + e)),    e = 0.4,

mu samples, prox is the policy before the update (arXiv:2508.07976, with the decoupled loss of AReaL,
arXiv:2505.24298). Groups with equal scores are drawn again. An episode that needs more than `turns`
is cut and scores 0. New episodes start as long as

    min(C - running, (eta + version + 1) B - (accepted + running)) > 0,

the formula `capacity` of `palaestra/planning/costs.py`. Here eta is `lag`: so many steps are sampled
ahead, so the bound on samples is the same; C is tickets, not episodes: a cluster's workers times
their depth (docs/cluster.md). There a step takes its own samples, in the order of issue. What a C
of its own brings, or the order of landing in a window anchored at the oldest, is simulated by
`palaestra plan --concurrent N --order window`. New weights reach samples under way where
`schedule.in_flight` is set.

Left out: pages that are opened by address, the agent that makes questions harder, a model as the
judge, and the 0.5 that an agent loses which calls a valid question invalid.
"""

import palaestra as pl

CARD = pl.Card(
    title="ASearcher: large-scale asynchronous agentic search RL",
    paper="arXiv:2508.07976",
    claim="Fully asynchronous training makes long turn limits affordable, and long turn limits are "
    "what hard search questions need.",
    source="released code (inclusionAI/ASearcher: workflow_api.py, functional.py, actor.py, "
    "train/asearcher.py, asearcher_web_16nodes.yaml)",
    size=pl.Size(
        setting="Qwen2.5-7B, 128 prompts x 16, at most 32 turns, eta 4, e 0.4, lr 5e-6, no KL; 16 "
        "nodes of 8 GPUs; QwQ-32B with up to 128 turns",
        model="qwen2.5-7b",
        prompts=128,
        samples=16,
        tokens=32768,
        lr=5e-6,
        arguments={"turns": 32},
    ),
    task="wiki-far",
    needs=pl.needs.Requirements(
        places=(
            pl.needs.NeededPlace(
                "tools",
                "which search your documents",
                also=("documents",),
                built_in=("wiki-far",),
            ),
        ),
        shows="age_mean",
        off={"lag": 0},
        own={"model": "tiny-agent", "lag": 1, "schedule.prompts": 4, "pool.size": 1},
    ),
    use="It helps where questions need many searches and episodes differ much in length; short "
    "questions gain nothing from a long limit.",
    lacks=(
        "The agent that synthesises questions and makes them harder is not there.",
        "Pages are not opened by address, unless a tool of yours does.",
        "No model judges answers.",
    ),
    grade="B",
)


def build(
    lag: int = 4, turns: int = 16, decoupled: bool = True, clip: float = 0.4, cap: float = 5.0
) -> pl.Recipe:
    """`lag` is eta. Not `decoupled`: PPO's ratio against the sampler, pi / mu, and no w."""
    ppo = pl.Clipped(low=clip, high=clip, reduce="tokens")
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=8, turns=turns), pl.Score(), pl.rewards.AnswerF1()),
        pool=pl.Mixed(size=8),
        credit=pl.chain(pl.Center("group")),
        objective=pl.objective.TIS(ppo, cap=cap, drop=True) if decoupled else ppo,
        needs=(("policy", "logp"),) if decoupled else (),
        schedule=pl.Schedule(prompts=16, steps=50, lag=lag),
    )
