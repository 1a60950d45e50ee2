"""RLCF: notes that people who usually disagree find helpful, rewarded by a predicted bridging score.

    r = i_n + 0.1 * novelty,   i_n from  rating(u, n) ~ mu + i_u + i_n + f_u * f_n

(arXiv:2506.24118; the factorisation is that of Community Notes, see `palaestra.rewards.bridging`). A reward model predicts how
clusters of raters would rate a note; the intercept of these ratings is the reward, and the novelty (1 - similarity to the
group's other notes) works against a style that offends nobody. People's ratings train the reward model only, and decide what
is shown. The factors are those of one fit: a new fit changes all scores and needs a new reward. Known ways to be fooled: a
false claim that both camps like, and colluding raters. `build` trains the predictor beside the policy on the tastes of
`Camps`, which stand for people: both like right answers, one likes workings, the other brevity.
"""

from palaestra.card import Card, Size
from palaestra.catalogue import recipe
from palaestra.context import Context
from palaestra.credit.preferences import Rate
from palaestra.errors import Fault
from palaestra.objective.reward_model import Regression
from palaestra.rewards.bridging import Bridged
from palaestra.rewards.labels import Beside, Labels
from palaestra.rollout.collect import Sample, Score, links
from palaestra.step import Learner, Recipe
from palaestra.types import Group, Reward, stage
from palaestra.update import AdamW
from palaestra.values import vary

CARD = Card(
    title="RLCF: reinforcement learning from community feedback (Community Notes)",
    paper="arXiv:2506.24118",
    claim="Rewarding what opposed raters agree on gives notes that every camp approves; the mean rating serves the majority.",
    source="released code of Community Notes for the factorisation; the use of the intercept second-hand, novelty inferred",
    size=Size(
        setting="a position paper: no training results",
    ),
)
CLUSTERS = ("plus", "minus")


@stage
class Camps:
    """What two camps say of an answer: half for being right, half for its working (plus) or its brevity (minus)."""

    async def __call__(self, ctx: Context, group: Group) -> list[Reward | Fault]:
        found = await Labels()(ctx, group)
        return [
            r if isinstance(r, Fault) else self._said(r.parts["right"], r.parts["worked"], r.parts["brief"])
            for r in found
        ]

    def _said(self, right: float, worked: float, brief: float) -> Reward:
        plus, minus = (right + worked) / 2, (right + brief) / 2
        return Reward(total=(plus + minus) / 2, parts={"plus": plus, "minus": minus})


def build(new: float = 0.1, sizes: tuple[int, int] = (10, 10)) -> Recipe:
    parent, targets = recipe("grpo"), tuple(f"rated/{c}" for c in CLUSTERS)
    predictor = Learner(
        credit=Rate(targets=targets),
        objective=Regression(CLUSTERS, targets, squash=True),
        heads=CLUSTERS,
        optimiser=AdamW(lr=1e-3),
    )
    reward = Bridged(CLUSTERS, sizes=sizes, new=new)
    collect = links(Sample(n=8), Score(reward=reward, shadow=True), Beside(Camps(), "rated"))
    return vary(parent, collect=collect, learners={**parent.learners, "reward": predictor})


# ---- the experiment: notes of six words, two camps of raters
