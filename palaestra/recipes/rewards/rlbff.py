"""RLBFF: binary flexible feedback. A reward model is asked whether a response fulfils a principle,
and says yes or no.

    r = log p(Yes) - log p(No), within +-10        (arXiv:2509.21319)

Trained on (prompt, response, principle, verdict) as on text, by the likelihood of the one word; the
principles come from written feedback: one is kept if its quote is in the feedback (partial ratio
above 60) and every other annotator of the response says the like (cosine above 0.8), see
`palaestra.judges.principles`. Then GRPO: every prompt has a principle that the reward model sees
and the policy does not. Several principles are averaged (`Entailed`). r is only compared within a
group, so among responses to one prompt and principle. There is one response in a question, hence no
bias of position. `build` trains the reward model beside the policy, with the labels of `Labels` as
the annotators. A judge that fails leaves the episode unscored; an empty response is asked about
like any other.
"""

import palaestra as pl

CARD = pl.Card(
    title="RLBFF: binary flexible feedback, principle entailment",
    paper="arXiv:2509.21319",
    claim="A reward model asked about one principle at a time ranks better than one trained on "
    "overall preferences.",
    source="second-hand for formula, thresholds and tables, released model card; same verdict of "
    "neighbours and mean inferred",
    size=pl.Size(
        setting="Llama-3.3-70B and Qwen3-32B reward models, about 100k principles of HelpSteer3; "
        "policy Qwen3-32B",
        model="qwen3-32b",
    ),
)


def judge(template: str = pl.judges.ENTAILMENT_PROMPT) -> pl.Judge:
    return pl.Judge(
        client=pl.LocalModel("reward"),
        template=template,
        read=pl.judges.Odds(form="log-odds"),
        empty=None,
        name="entailment",
    )


def build(
    questions: tuple[pl.judges.PrincipleQuestion, ...] = pl.judges.PRINCIPLE_QUESTIONS,
    template: str = pl.judges.ENTAILMENT_PROMPT,
) -> pl.Recipe:
    asked = judge(template)
    parent = pl.recipe("grpo")
    collect = pl.links(
        pl.Sample(n=8),
        pl.judges.Principled(questions),
        pl.Score(reward=asked, shadow=True),
        pl.Beside(pl.Labels(), "label"),
        pl.rewards.Also(pl.judges.Verdicts(asked, pl.judges.label_verdict)),
    )
    reward = pl.Learner(
        credit=pl.credit.Imitate(), objective=pl.Imitation(), optimiser=pl.AdamW(lr=3e-4)
    )
    return pl.vary(parent, collect=collect, learners={**parent.learners, "reward": reward})


SHORT = "{response}|{principle}"  # for a model that reads bytes


def reward_model_recipe(
    credit: pl.Credit, objective: pl.Objective, *more: pl.Collect, heads: tuple[str, ...] = ()
) -> pl.Recipe:
    """A reward model alone, on answers of the start policy with noisy labels; brevity counts most
    in the overall one.
    """
    labels = pl.rewards.Noisy(pl.Labels(weights=(0.2, 0.2, 0.5, 0.1)), share=0.1)
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=4), pl.Score(reward=labels), *more),
        learners={
            "reward": pl.Learner(
                credit=credit, objective=objective, heads=heads, optimiser=pl.AdamW(lr=1e-3)
            )
        },
        schedule=pl.Schedule(prompts=8, steps=25),
    )


def entailment(questions: tuple[pl.judges.PrincipleQuestion, ...]) -> pl.rewards.RankingProbe:
    asked = judge(SHORT)
    train = reward_model_recipe(
        pl.credit.Imitate(),
        pl.Imitation(),
        pl.judges.Principled(questions),
        pl.judges.Verdicts(asked, pl.judges.label_verdict),
    )
    return pl.rewards.RankingProbe(
        train,
        pl.judges.Entailed(asked, pl.judges.PRINCIPLE_QUESTIONS),
        tuple((name, name) for name in pl.rewards.QUALITY_LABELS),
    )
