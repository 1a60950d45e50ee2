"""RLBFF: a reward model is asked whether a response fulfils a principle, and answers yes or no. The
user names the principle, also one that it was not trained on.

    r = log p(Yes) - log p(No), within +-10        (arXiv:2509.21319)

Trained on (prompt, response, principle, verdict) as on text, by the likelihood of the one word. Here a
record has its principle. In the paper principles come from written feedback: one is kept if its quote is
in the feedback (partial ratio above 60) and every other annotator of the response says the like (cosine
above 0.8); `palaestra.judges.principles` has these checks, which no run calls. Then GRPO: every prompt has
a principle that the reward model sees and the policy does not; of several `principles` one is drawn.
`Entailed`, the mean over several, is a reward for recipes of your own. r is only compared within a group,
so among responses to one prompt and principle. There is one response in a question, hence no
bias of position. A judge that fails leaves the episode unscored; an empty response is asked about
like any other.

`build` is a pipeline: "reward" trains the reward model on the responses, principles and verdicts of
the data, "rl" the policy on it, by the principle in each record, or one of `principles`.
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
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("What is 2 + 2?", "Name a river in France.", "Why is the sky blue?"),
                "what the model is asked",
            ),
            pl.needs.NeededColumn(
                "response",
                "text",
                ("4, since 2 + 2 = 4.", "The Loire.", "It just is."),
                "a response that somebody judged",
            ),
            pl.needs.NeededColumn(
                "principle",
                "text",
                ("Is it right?", "Is it brief?", "Does it explain?"),
                "the principle that it was judged by, as a question",
            ),
            pl.needs.NeededColumn(
                "right",
                "true or false",
                (True, True, False),
                "the verdict: whether it fulfils the principle",
            ),
        ),
        shows="part/entailment",
        never_off="It is a difference of log-probabilities, yes less no, for a principle; without "
        "principles there is no reward.",
        own={
            "steps": 2,
            "reward.schedule.prompts": 2,
            "rl.schedule.prompts": 2,
            "rl.collect.links.0.n": 2,
            "max_tokens": 8,
        },
    ),
    use="It helps where people said in words what is good or bad of a response; with one overall "
    "label a Bradley-Terry model is simpler.",
    lacks=(
        "Principles are not extracted from written feedback: the data has one a record.",
        "The checks of extracted principles, by quotes and by other annotators, are functions of "
        "`palaestra.judges.principles` that no run calls.",
        "The generative reward model, which reasons before its verdict, is not trained.",
    ),
    grade="B",
)


def judge(template: str = pl.judges.ENTAILMENT_PROMPT) -> pl.Judge:
    return pl.Judge(
        client=pl.LocalModel("reward"),
        template=template,
        read=pl.judges.Odds(form="log-odds"),
        empty=None,
        name="entailment",
    )


def recorded_verdict(task: pl.Task, episode: pl.Episode) -> str:
    """The data's verdict on a recorded response."""
    return "Yes" if episode.solved else "No"


def rate(steps: int = 40, template: str = pl.judges.ENTAILMENT_PROMPT) -> pl.Recipe:
    """The reward model, on the verdicts of the data."""
    verdicts = pl.judges.Verdicts(judge(template), recorded_verdict)
    return pl.Recipe(
        draw=pl.Shuffled(),
        collect=pl.links(pl.Recorded(model="reward"), verdicts),
        learners={"reward": imitator()},
        schedule=pl.Schedule(prompts=16, steps=steps),
    )


def imitator() -> pl.Learner:
    return pl.Learner(
        credit=pl.credit.Imitate(), objective=pl.Imitation(), optimiser=pl.AdamW(lr=3e-4)
    )


def build(
    principles: tuple[str, ...] = (),
    steps: int = 40,
    template: str = pl.judges.ENTAILMENT_PROMPT,
) -> pl.Pipeline:
    """`principles` are questions in place of the data's; `steps` are those of the reward model."""
    asked = [pl.judges.Principled(tuple((p, p) for p in principles))] if principles else []
    collect = pl.links(pl.Sample(n=8), *asked, pl.Score(reward=judge(template)))
    rl = pl.vary(pl.recipe("grpo"), collect=collect)
    models = {"reward": pl.Output("reward", "reward")}
    return pl.Pipeline(
        parts={"reward": pl.Part(rate(steps, template)), "rl": pl.Part(rl, models=models)}
    )


def embedded(
    questions: tuple[pl.judges.PrincipleQuestion, ...] = pl.judges.PRINCIPLE_QUESTIONS,
    template: str = pl.judges.ENTAILMENT_PROMPT,
) -> pl.Recipe:
    """On the embedded problem: a program is the annotator, and the reward model learns beside the
    policy.
    """
    asked, parent = judge(template), pl.recipe("grpo")
    collect = pl.links(
        pl.Sample(n=8),
        pl.judges.Principled(questions),
        pl.Score(reward=asked, shadow=True),
        pl.Beside(pl.Labels(), "label"),
        pl.rewards.Also(pl.judges.Verdicts(asked, pl.judges.label_verdict)),
    )
    return pl.vary(parent, collect=collect, learners={**parent.learners, "reward": imitator()})


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
