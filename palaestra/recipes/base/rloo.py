"""RLOO: REINFORCE that compares an answer with the mean of the other answers to its prompt.

A_i = r_i - mean_{j != i} r_j = G/(G-1) (r_i - mean r) (arXiv:2402.14740v2, eq. 7); a group of one
gets advantage 0. With `kl` the reward is r_i - kl log(pi(y_i) / ref(y_i)), pi as it was when sampling:
the KL to the start on whole answers, as in the paper (section 2.1, 0.03 to 0.10 there).
"""

import palaestra as pl

CARD = pl.Card(
    title="REINFORCE Leave-One-Out",
    paper="arXiv:2402.14740",
    claim="A leave-one-out baseline makes plain REINFORCE match or beat PPO without a critic.",
    source="paper",
    size=pl.Size(
        setting="Pythia 6.9B and Llama 7B, TL;DR and HH preference data, G = 2 and 4, KL in the "
        "reward 0.03 to 0.10",
        model="pythia-6.9b",
        samples=4,
    ),
    needs=pl.needs.Requirements(
        shows="groups_mixed",
        off={"collect.links.0.n": 1},
        own={"schedule.prompts": 6, "collect.links.0.n": 6},
    ),
    use="It helps wherever several answers to a prompt are affordable and no critic is; groups of equal "
    "rewards teach nothing.",
    lacks=(
        "The preference data and reward models of the paper are not there: bring a reward.",
        "The KL to the start, which the paper takes from the reward, is off unless `kl` is given.",
    ),
    grade="A",
)


def build(kl: float = 0.0) -> pl.Recipe:
    """`kl` weighs the KL to the start in the reward, 0 = no reference."""
    pl.check_bounds("rloo: kl", kl, least=0)
    made = pl.vary(pl.recipe("reinforce"), credit=pl.chain(pl.Center("group", others=True)))
    if not kl:
        return made
    return pl.vary(
        made,
        credit=pl.chain(pl.credit.LessKL(kl), pl.Center("group", others=True)),
        needs=pl.credit.kl_needs("k1"),
        references={"ref": "policy"},
    )
