"""ReMax: REINFORCE whose baseline is the reward of the greedy answer to the same prompt.

A_i = r_i - r(greedy answer), loss = -A_i sum_t log pi(y_t) (arXiv:2310.10505, eq. 5 and algorithm 1):
no critic, no ratio, and one answer to a prompt is enough. The greedy answer costs one more answer a
prompt and trains nothing; it counts among the rewards of a step. The paper's KL to the start is taken
from the reward: `kl`.
"""

import palaestra as pl

CARD = pl.Card(
    title="ReMax: REINFORCE with the greedy answer as the baseline",
    paper="arXiv:2310.10505",
    claim="The greedy answer's reward replaces PPO's critic, at half the memory and equal quality.",
    source="paper",
    size=pl.Size(
        setting="Llama-2 7B and OPT-1.3B with reward models, one answer a prompt, lr 1e-6, KL 0.05",
        samples=1,
        lr=1e-6,
        arguments={"kl": 0.05},
    ),
    needs=pl.needs.Requirements(
        shows="greedy_reward",
        never_off="It is the baseline itself, the reward of the greedy answers, and 0 where all of these "
        "are wrong; without a baseline the method is `reinforce`.",
        own={"schedule.prompts": 8, "collect.links.0.n": 2},
    ),
    use="It helps where one sampled answer a prompt is affordable; with several, the mean of the others "
    "(`rloo`) is a baseline at no cost.",
    lacks=("The preference data and reward models of the paper are not there: bring a reward.",),
    grade="A",
)


def build(kl: float = 0.0) -> pl.Recipe:
    penalty = (pl.credit.LessKL(kl),) if kl else ()
    return pl.vary(
        pl.recipe("reinforce"),
        collect=pl.links(pl.Sample(n=1), pl.rollout.Greedy(), pl.Score()),
        credit=pl.chain(pl.credit.AgainstGreedy(), *penalty),
        needs=(("ref", "logp"),) if kl else (),
        references={"ref": "policy"} if kl else {},
    )
