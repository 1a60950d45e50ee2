"""RLCF: notes that people who usually disagree find helpful, rewarded by a predicted bridging
score.

    r = i_n + 0.1 * novelty,   i_n from  rating(u, n) ~ mu + i_u + i_n + f_u * f_n

(arXiv:2506.24118; the factorisation is that of Community Notes, see `palaestra.rewards.bridging`).
A reward model predicts how clusters of raters would rate a note; the intercept of these ratings is
the reward, and the novelty (1 - similarity to the group's other notes) works against a style that
offends nobody. People's ratings train the reward model only, and decide what is shown. The factors
are those of one fit: a new fit changes all scores and needs a new reward. Known ways to be fooled:
a false claim that both camps like, and colluding raters. `build` trains the predictor beside the
policy on the tastes of `Camps`, which stand for people: both like right answers, one likes
workings, the other brevity.
"""

import palaestra as pl

CARD = pl.Card(
    title="RLCF: reinforcement learning from community feedback (Community Notes)",
    paper="arXiv:2506.24118",
    claim="Rewarding what opposed raters agree on gives notes that every camp approves; the mean "
    "rating serves the majority.",
    source="released code of Community Notes for the factorisation; the use of the intercept "
    "second-hand, novelty inferred",
    size=pl.Size(
        setting="a position paper: no training results",
    ),
)
CLUSTERS = ("plus", "minus")


@pl.stage
class Camps:
    """What two camps say of an answer: half for being right, half for its working (plus) or its
    brevity (minus).
    """

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        found = await pl.Labels()(ctx, group)
        return [
            r
            if isinstance(r, pl.Fault)
            else self._said(r.parts["right"], r.parts["worked"], r.parts["brief"])
            for r in found
        ]

    def _said(self, right: float, worked: float, brief: float) -> pl.Reward:
        plus, minus = (right + worked) / 2, (right + brief) / 2
        return pl.Reward(total=(plus + minus) / 2, parts={"plus": plus, "minus": minus})


def build(new: float = 0.1, sizes: tuple[int, int] = (10, 10)) -> pl.Recipe:
    parent, targets = pl.recipe("grpo"), tuple(f"rated/{c}" for c in CLUSTERS)
    predictor = pl.Learner(
        credit=pl.Rate(targets=targets),
        objective=pl.Regression(CLUSTERS, targets, squash=True),
        heads=CLUSTERS,
        optimiser=pl.AdamW(lr=1e-3),
    )
    reward = pl.rewards.Bridged(CLUSTERS, sizes=sizes, new=new)
    collect = pl.links(
        pl.Sample(n=8), pl.Score(reward=reward, shadow=True), pl.Beside(Camps(), "rated")
    )
    return pl.vary(parent, collect=collect, learners={**parent.learners, "reward": predictor})


# ---- the experiment: notes of six words, two camps of raters
