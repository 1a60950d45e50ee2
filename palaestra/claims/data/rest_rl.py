"""The claim of rest-rl: start states on the way of good answers, then a search that values lead."""

import palaestra as pl
from palaestra.claims.starts import RATES, warm_chain
from palaestra.recipes.data.rest_rl import Method, ValueDecoding, rest_grpo, value_model

DECODED = 600  # tokens sampled for a held-out problem: about twelve whole answers
TASKS = 128
HEAT = 1.0  # of trees and of what is decoded


def trained(rl: pl.Recipe) -> pl.Recipe:
    """8 start states a step."""
    return pl.vary(rl, schedule=pl.Schedule(prompts=8, steps=200))


def rated() -> pl.Recipe:
    """Small trees of many problems, and twelve passes over what each sixteen of them give: with fewer
    the model learns which problems are hard, and nothing of their answers.
    """
    values = value_model(openings=4, n=4, lr=1e-3)
    learner = pl.vary(values.learners["value"], update=pl.Plain(epochs=12))
    values = pl.override(values, "collect.links.0.temperature", HEAT)
    return pl.vary(values, learners={"value": learner}, schedule=pl.Schedule(prompts=16, steps=200))


STATES = trained(rest_grpo("best", 32))
FILTER = trained(rest_grpo("none", 32))
WORST = trained(rest_grpo("worst", 32))
PLAIN = pl.vary(STATES, draw=pl.Shuffled())  # GRPO with all else as in the others


def arm(rl: pl.Recipe, method: Method) -> pl.Pipeline:
    """25 steps of imitation of shorter chains, a policy, what it is worth where, and the exam. What
    arms have in common is run once.
    """
    taught = pl.Output("rl")
    return pl.Pipeline(
        parts={
            "sft": warm_chain(),
            "rl": pl.Part(rl, model=pl.Output("sft"), shared=True),
            "values": pl.Part(rated(), model=taught, shared=True),
            "decode": pl.Part(
                ValueDecoding(method, DECODED, temperature=HEAT, tasks=TASKS),
                model=taught,
                models={"value": pl.Output("values", "value")},
            ),
        }
    )


def start() -> pl.Pipeline:
    """One greedy answer of the half-taught model."""
    exam = pl.Part(ValueDecoding("greedy", tasks=TASKS), model=pl.Output("sft"))
    return pl.Pipeline(parts={"sft": warm_chain(), "decode": exam})


ARMS = {
    "grpo with best of n": arm(PLAIN, "best of n"),
    "grpo with vm-mcts": arm(PLAIN, "vm-mcts"),
    "rest-grpo with best of n": arm(STATES, "best of n"),
    "rest-rl": arm(STATES, "vm-mcts"),
    "filter alone": arm(FILTER, "vm-mcts"),
    "states of the worst": arm(WORST, "vm-mcts"),
    "mixed values": arm(STATES, "mixed values"),
    "outcome search": arm(STATES, "outcome search"),
    "oracle": arm(STATES, "oracle"),
}

EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    start=start(),
    arms=ARMS,
    expect=pl.ledger.Greater(
        "rest-rl",
        "grpo with best of n",
        by=0.03,
        why="what a reader would call significant of some hundred problems a seed, half of it a stage",
    ),
    reasons=(
        pl.ledger.Needs("grpo with vm-mcts", "start states on the way of good answers"),
        pl.ledger.Needs("rest-grpo with best of n", "the search"),
        pl.ledger.Needs("filter alone", "start states beside the filter of rewards"),
        pl.ledger.Needs("states of the worst", "that the states lie on the way of a good answer"),
        pl.ledger.Needs("mixed values", "that a state is led to by its own value"),
        pl.ledger.Needs("outcome search", "values of states beside those of whole answers"),
    ),
    vetoes={
        "greedy answers": pl.ledger.Veto(
            pl.ledger.Final("parts.decode.accuracy_before.mean"),
            falls=0.03,
            against="grpo with best of n",
        )
    },
    measure=pl.ledger.Final("accuracy_after.mean"),
    metric="share of held-out problems whose chosen answer is right",
    constants={arm: {"rl.optimiser.lr": RATES[:2]} for arm in ARMS},
    task="chain(modulo=9,operands=(6,7),max_tokens=96)",
    tokens=60_000,
    evaluate=0,
    seconds=150.0,
    controls={
        "greedy": pl.ledger.Final("parts.decode.accuracy_before.mean"),
        "some answer right": pl.ledger.Final("parts.decode.found"),
        "majority": pl.ledger.Final("parts.decode.majority"),
        "right valued above wrong": pl.ledger.Final("parts.decode.ranked"),
        "tokens a problem": pl.ledger.Final("parts.decode.tokens"),
    },
)
