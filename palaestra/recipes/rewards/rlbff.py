"""RLBFF: binary flexible feedback. A reward model is asked whether a response fulfils a principle, and says yes or no.

    r = log p(Yes) - log p(No), within +-10        (arXiv:2509.21319)

Trained on (prompt, response, principle, verdict) as on text, by the likelihood of the one word; the principles come from
written feedback: one is kept if its quote is in the feedback (partial ratio above 60) and every other annotator of the
response says the like (cosine above 0.8), see `palaestra.judges.principles`. Then GRPO: every prompt has a principle that
the reward model sees and the policy does not. Several principles are averaged (`Entailed`). r is only compared within a group,
so among responses to one prompt and principle. There is one response in a question, hence no bias of position.
`build` trains the reward model beside the policy, with the labels of `Labels` as the annotators. A judge that fails leaves
the episode unscored; an empty response is asked about like any other.
"""

from palaestra.card import Card, Size
from palaestra.catalogue import recipe
from palaestra.context import Collect, Credit
from palaestra.credit.rows import Imitate
from palaestra.judges.pointwise import Judge
from palaestra.judges.principles import PRINCIPLE_QUESTIONS, Entailed, Principled, PrincipleQuestion, label_verdict
from palaestra.judges.reading import Odds
from palaestra.judges.train import ENTAILMENT_PROMPT, Verdicts
from palaestra.objective.policy import Imitation
from palaestra.rewards.labels import QUALITY_LABELS, Also, Beside, Labels, Noisy
from palaestra.rewards.probe import RankingProbe
from palaestra.rollout.collect import Sample, Score, links
from palaestra.services.chat.local import LocalModel
from palaestra.step import Learner, Recipe, Schedule
from palaestra.types import Objective
from palaestra.update import AdamW
from palaestra.values import vary

CARD = Card(
    title="RLBFF: binary flexible feedback, principle entailment",
    paper="arXiv:2509.21319",
    claim="A reward model asked about one principle at a time ranks better than one trained on overall preferences.",
    source="second-hand for formula, thresholds and tables, released model card; same verdict of neighbours and mean inferred",
    size=Size(
        setting="Llama-3.3-70B and Qwen3-32B reward models, about 100k principles of HelpSteer3; policy Qwen3-32B",
        model="qwen3-32b",
    ),
)


def judge(template: str = ENTAILMENT_PROMPT) -> Judge:
    return Judge(
        client=LocalModel("reward"), template=template, read=Odds(form="log-odds"), empty=None, name="entailment"
    )


def build(questions: tuple[PrincipleQuestion, ...] = PRINCIPLE_QUESTIONS, template: str = ENTAILMENT_PROMPT) -> Recipe:
    asked = judge(template)
    parent = recipe("grpo")
    collect = links(
        Sample(n=8),
        Principled(questions),
        Score(reward=asked, shadow=True),
        Beside(Labels(), "label"),
        Also(Verdicts(asked, label_verdict)),
    )
    reward = Learner(credit=Imitate(), objective=Imitation(), optimiser=AdamW(lr=3e-4))
    return vary(parent, collect=collect, learners={**parent.learners, "reward": reward})


SHORT = "{response}|{principle}"  # for a model that reads bytes


def reward_model_recipe(credit: Credit, objective: Objective, *more: Collect, heads: tuple[str, ...] = ()) -> Recipe:
    """A reward model alone, on answers of the start policy with noisy labels; brevity counts most in the overall one."""
    labels = Noisy(Labels(weights=(0.2, 0.2, 0.5, 0.1)), share=0.1)
    return vary(
        recipe("grpo"),
        collect=links(Sample(n=4), Score(reward=labels), *more),
        learners={"reward": Learner(credit=credit, objective=objective, heads=heads, optimiser=AdamW(lr=1e-3))},
        schedule=Schedule(prompts=8, steps=25),
    )


def entailment(questions: tuple[PrincipleQuestion, ...]) -> RankingProbe:
    asked = judge(SHORT)
    train = reward_model_recipe(Imitate(), Imitation(), Principled(questions), Verdicts(asked, label_verdict))
    return RankingProbe(train, Entailed(asked, PRINCIPLE_QUESTIONS), tuple((name, name) for name in QUALITY_LABELS))
