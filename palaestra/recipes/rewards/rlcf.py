"""RLCF: notes that people who usually disagree both find helpful. The reward of a note is its
predicted bridging score.

    r = i_n + 0.1 * novelty,   i_n from  rating(u, n) ~ mu + i_u + i_n + f_u * f_n

(arXiv:2506.24118; the factorisation is that of Community Notes, see `palaestra.rewards.bridging`).
A reward model predicts how clusters of raters would rate a note; the intercept of these ratings is
the reward, and the novelty (1 - similarity to the group's other notes) works against a style that
offends nobody. People's ratings train the reward model only, and decide what is shown. The factors
are those of one fit: a new fit changes all scores and needs a new reward. Known ways to be fooled:
a false claim that both camps like, and colluding raters.

`build` is a pipeline: "reward" trains the predictor on the notes of the data and their mean rating
by each cluster, "rl" the writer of notes on it. Two clusters have the factors +1 and -1. On the
embedded problem a program has the tastes of two camps, `Camps`: both like right answers, one likes
workings, the other brevity.
"""

from typing import Any

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
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("Write a note on the post: the bridge is closed.", "Write a note on: it is flat."),
                "what a note is asked for",
            ),
            pl.needs.NeededColumn(
                "reply",
                "text",
                ("The city opened it again in May.", "Photographs show a curve."),
                "a note that people rated",
            ),
            pl.needs.NeededColumn(
                "ratings",
                "record",
                ({"plus": 0.9, "minus": 0.7}, {"plus": 0.2, "minus": 1.0}),
                "its mean rating from 0 to 1 by each of two clusters of raters that usually "
                "disagree (palaestra.rewards.fit_twice finds them)",
            ),
        ),
        shows="part/intercept",
        never_off="It is a parameter of the reward model that is learned from ratings, and moves with "
        "its first update.",
        own={
            "steps": 2,
            "reward.schedule.prompts": 4,
            "rl.schedule.prompts": 2,
            "rl.collect.links.0.n": 2,
            "max_tokens": 8,
        },
    ),
    use="It helps where raters fall into camps and many notes have ratings of both; where they "
    "agree anyway it is a mean rating.",
    lacks=(
        "Raters are not clustered by the run: the data has mean ratings by cluster.",
        "The factors of the two clusters, their leniency and the mean are fixed; those of a fit "
        "of your own are no arguments.",
        "Sources that a note names are not checked.",
    ),
    grade="B",
)
CLUSTERS = ("plus", "minus")


@pl.stage
class Camps:
    """What two camps say of an answer: half for being right, half for its working (plus) or its
    brevity (minus).
    """

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        labels = await pl.Labels()(ctx, group)
        return [
            r
            if isinstance(r, pl.Fault)
            else self._said(r.parts["right"], r.parts["worked"], r.parts["brief"])
            for r in labels
        ]

    def _said(self, right: float, worked: float, brief: float) -> pl.Reward:
        plus, minus = (right + worked) / 2, (right + brief) / 2
        return pl.Reward(total=(plus + minus) / 2, parts={"plus": plus, "minus": minus})


def build(
    new: float = 0.1,
    sizes: tuple[int, int] = (10, 10),
    steps: int = 40,
    rated: pl.Collect | None = None,
) -> pl.Pipeline:
    """`new` is the weight of novelty, `sizes` are how many raters the clusters have, `steps` those
    of the predictor. `rated` collects notes with parts label/CLUSTER for it; None = those of the data.
    """
    targets = tuple(f"label/{c}" for c in CLUSTERS)
    predictor = pl.Learner(
        credit=pl.Rate(targets=targets),
        objective=pl.Regression(CLUSTERS, targets, squash=True),
        heads=CLUSTERS,
        optimiser=pl.AdamW(lr=1e-3),
    )
    rate = pl.Recipe(
        draw=pl.Shuffled(),
        collect=rated or pl.rewards.RecordedRatings(CLUSTERS),
        learners={"reward": predictor},
        schedule=pl.Schedule(prompts=16, steps=steps),
    )
    reward = pl.rewards.Bridged(CLUSTERS, sizes=sizes, new=new)
    rl = pl.vary(pl.recipe("grpo"), collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward)))
    models = {"reward": pl.Output("reward", "reward")}
    return pl.Pipeline(parts={"reward": pl.Part(rate), "rl": pl.Part(rl, models=models)})


def embedded(**options: Any) -> pl.Pipeline:
    """On the embedded problem, whose answers a program rates for both camps."""
    rated = pl.links(pl.Sample(n=4), pl.Offline("reward"), pl.Score(), pl.Beside(Camps(), "label"))
    own: dict[str, Any] = {"steps": 10, "rated": rated}
    return build(**(own | options))
