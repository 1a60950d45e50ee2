"""CAPO: a language model reads each answer and names its wrong steps; their tokens are penalised, and
all tokens earn the outcome.

The critic reads question, reference answer and the whole numbered answer, and names the wrong steps
in one reply. N = 4 such critiques are combined by a vote. For token t

    R_t = C * 1[answer right] - P * 1[t in a wrong step],    A_t = (R_t - mean) / std  over ALL tokens of the group's answers

with C = 2 > P = 1, so that a right answer with a flawed step (1) beats a wrong one without (0); then
GRPO's clipped loss (arXiv:2508.02298; the normaliser is read from a review). A step is a line of the
answer. Votes: "union", "intersection", "majority" (more than half), "half" (half or more).

`critic` is a language model: an endpoint, the folder of a frozen model, or `policy`, the model that
is trained. A reply that cannot be read names no step; a critic that fails makes an error of the
episode. Truncated answers are wrong and judged as usual. A group whose tokens all earn the same gets
0; a group of one is normalised over its own tokens.

The number "penalty" of a step is the mean of P * 1[t in a wrong step] over its tokens.
"""

from typing import Any

import palaestra as pl

CARD = pl.Card(
    title="CAPO: verifiable generative credit assignment",
    paper="arXiv:2508.02298",
    claim="Penalising the steps that a critic finds wrong assigns credit better than one reward "
    "for the whole answer.",
    source="figure and review of the paper, a re-implementation's constants; no official code",
    size=pl.Size(
        setting="Llama-3 and Qwen2.5, 1B to 7B, with a judge of about 70B, C = 2, P = 1, four "
        "critiques",
        model="qwen2.5-7b",
        beside={"judge": 70.0},
    ),
    needs=pl.needs.Requirements(
        models=(
            pl.needs.NeededModel(
                "critic",
                "critic",
                "reads an answer and names its wrong steps",
                inert=None,
                example="endpoint(url='http://localhost:8000/v1',model='m')",
            ),
        ),
        shows="penalty",
        off={"wrong": 0.0},
        own={
            "endpoint": "The second line is not needed.\nwrong steps: 1",
            "critiques": 1,
            "schedule.prompts": 2,
            "collect.links.0.n": 4,
        },
    ),
    use="It helps where answers have steps that a critic can tell right from wrong, and the critic is a "
    "better model than the policy; each answer costs four critiques.",
    lacks=(
        "A critique that was cut names no wrong step.",
        "Steps are lines: an answer without line breaks is one step.",
    ),
    grade="A",
)


def build(
    critic: pl.Source | None = None,
    right: float = 2.0,
    wrong: float = 1.0,
    vote: pl.credit.Vote = "majority",
    critiques: int = 4,
    critique_tokens: int | None = None,
) -> pl.Recipe:
    """`critic` None is the policy. `critique_tokens` of a critique; None = as many as an answer of the run
    may have, and at least 256.
    """
    names_steps = pl.rewards.ModelCritic(critic or pl.LocalModel(), max_tokens=critique_tokens)
    return penalise_steps(names_steps, right, wrong, vote, critiques)


def penalise_steps(
    critic: pl.rewards.Critic,
    right: float = 2.0,
    wrong: float = 1.0,
    vote: pl.credit.Vote = "majority",
    critiques: int = 4,
) -> pl.Recipe:
    """The method with any critic."""
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=8), pl.Score(), pl.rewards.Critique(critic, n=critiques)),
        credit=pl.chain(
            pl.credit.StepPenalty(right, wrong, vote), pl.Center("group"), pl.Scale("group", ddof=0)
        ),
    )


def embedded(critic: pl.Source | None = None, **options: Any) -> pl.Recipe:
    """On the embedded problem. Unless a critic is given, it is the problem's own step checker, as the
    tiny model cannot judge.
    """
    if critic:
        return build(critic, **options)
    options.pop("critique_tokens", None)  # the checker writes nothing
    return penalise_steps(pl.rewards.Oracle(), **options)
