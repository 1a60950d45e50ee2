"""SalesRLAgent: after each message of a conversation a policy says how likely its outcome is, learned by
PPO from a proper score (arXiv:2503.23303).

    state   [embedding of the text so far, 5 metrics, turn / 20, its last 10 probabilities]
    action  p = sigmoid(log(b / (1 - b)) + 2 a / 3), a of a Gaussian head that starts near 0 with a
            deviation of 1; b is the share of training conversations that had the outcome
    reward  1 - (p - y)^2 - flip |p - p of the message before|, and at the last message bonus times
            1 - (p - y)^2 more; undiscounted; y = 1 where the conversation had the outcome
    advice  p >= 0.5 close, >= 0.4 build value, >= 0.3 discover needs, else qualify again

The authors' action is clipped, 1/2 + a / 6. Near a half ours is the same; but it starts at the base rate
also where outcomes are rare, and its noise shrinks with p (1 - p). The thresholds of the advice are
absolute: where three of a hundred conversations have the outcome, nearly all advice is "qualify again".

Without the flip term the best p is the probability itself: the score is strictly proper. "accuracy" as a
reward, 1 where p is on y's side of a half, is not, and is an arm. The policy does not change the
conversation: this is prediction, and supervised learners of the same states stand beside it.

    palaestra train salesrlagent --data talks.jsonl [--llm "endpoint(url='...',model='...')"] [--goal "..."]
    palaestra train salesrlagent --data talks.jsonl embed=FILE.py:NAME doubt=distance

A row of talks.jsonl is {"messages": [...], "converted": true}: messages of the user are the customer's, those
of the assistant the seller's. With `asked` a language model scores every conversation so far (the
customer's engagement, the seller's effectiveness; and how likely `goal` is, which the policy reads with
cue=true alone); it is shown neither what follows nor the outcome. Of a conversation that does not fit into
its context it is shown the last messages. Replies are kept in transcript.jsonl.
`embed` is your own embedding, from a list of texts to vectors; without it words are hashed.

What it does not know it does not say: a prediction is withheld where several policies disagree
(doubt=ensemble) or where the text is far from all training texts (doubt=distance), by a threshold that
would give the share `cover` of predictions for training conversations.

In the run folder are policy/; predictions.jsonl, each held-out conversation with probability, doubt and
advice at each message; turns/, scores by message; and arms.md, `return` the sum over a conversation of
1 - (p - y)^2:

    base rate  always the share of training conversations
    logistic   supervised, the same states       gru  supervised, reads states one after another
    none       PPO without a language model's scores
    guide      PPO with them                     shuffled  with those of other conversations
    zero-shot  the probability that the language model states
    oracle     PPO, told the hidden state (simulated conversations alone)
    accuracy   PPO, paid for accuracy

The saved policy is a function of a conversation under way, in Python:

    from palaestra.recipes.llm4rl.salesrlagent import load_predictor
    say = load_predictor("RUN/policy")
    say([{"role": "user", "content": "Is it new?"}])       {"probability": [...], "advice": "..."}

A policy that learned with a language model's scores is told them too: `say(messages, scores)`, for each
message the engagement and effectiveness of the conversation so far, and with cue=true the stated probability.

`palaestra train salesrlagent`, seed 0, has these scores on held-out conversations about other products:
Brier 0.241 (base rate), 0.217 (logistic), 0.216 (gru), 0.232 (none), 0.223 (guide), 0.232 (shuffled), 0.226
(zero-shot), 0.212 (oracle) and 0.218 (accuracy): supervised learners are better than PPO, and what is
gained by the scores is gone when they are exchanged. Calibration errors are 0.039 (none) and 0.027 (guide),
but 0.063 and 0.073 of the supervised ones, 0.101 (zero-shot) and 0.073 (accuracy). The 6%
of predictions that are withheld have 0.244, the given ones 0.221. One seed, no claim.
"""

from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.recipes.llm4rl.salesrlagent.judge import written_scores
from palaestra.recipes.llm4rl.salesrlagent.live import load_predictor as load_predictor
from palaestra.recipes.llm4rl.salesrlagent.program import Doubt, PredictConversion
from palaestra.recipes.llm4rl.salesrlagent.talks import SimulatedTalks

TALKS = (
    [
        {"role": "user", "content": "What is different about it?"},
        {"role": "assistant", "content": "The lamp lasts ten years."},
        {"role": "user", "content": "When can you deliver?"},
    ],
    [
        {"role": "user", "content": "I am only looking."},
        {"role": "assistant", "content": "Do you want the lamp this week?"},
        {"role": "user", "content": "Not today, thank you."},
    ],
    [
        {"role": "user", "content": "Is the lamp new?"},
        {"role": "assistant", "content": "It is. What do you need it for?"},
        {"role": "user", "content": "I would read by it. Where do I pay?"},
    ],
)

CARD = pl.Card(
    title="SalesRLAgent: conversion prediction",
    paper="arXiv:2503.23303",
    claim="A small policy that is trained by RL on synthetic conversations predicts whether they convert, "
    "turn by turn, far better and faster than a language model that is asked.",
    source="abstract; the authors' package deepmost for the state and the thresholds, and for the "
    "action but for its start; the reward is not published exactly and is ours, as are abstention and its threshold",
    size=pl.Size(
        setting="synthetic GPT-4o conversations, embeddings of 3072 numbers, PPO with layers of 512, 256 "
        "and 64; 96.7% accuracy, 85 ms a prediction"
    ),
    needs=pl.needs.Requirements(
        policy=False,
        flags={"goal": "goal", "llm": "asked"},
        columns=(
            pl.needs.NeededColumn(
                "messages",
                "messages",
                TALKS,
                "a conversation, of which the assistant's messages are the seller's",
            ),
            pl.needs.NeededColumn(
                "converted",
                "true or false",
                (True, False, True),
                "whether the conversation reached its goal",
            ),
        ),
        models=(
            pl.needs.chat_model(
                "language model",
                "asked",
                "scores conversations so far, and states a probability of its own",
                otherwise="the two scores are 0.5, and the arms that need them are left out",
            ),
        ),
        shows="moved",
        off={"learner.lr": 0.0},
        own={
            "endpoint": '{"customer_engagement": 0.8, "sales_effectiveness": 0.5, '
            '"conversion_probability": 0.6}',
            "learner.games": 8,
            "members": 2,
            "epochs": 2,
        },
    ),
    use="It helps where a probability at every message is wanted within milliseconds; where outcomes are "
    "recorded a supervised learner of the same states does as well or better, so look at both.",
    lacks=(
        "Conversations that GPT-4o wrote and embeddings of 3072 numbers are not shipped: words are hashed, "
        "unless embed= names a function of yours.",
        "The network has two layers of 64, not 512, 256 and 64.",
        "Meta-learning is not specified in the abstract, and nothing is meta-learned here: doubtful "
        "predictions are withheld in the report, which `load_predictor` does not do.",
        "The rise of conversions by sellers who follow the advice, and the latency against GPT-4, were not "
        "measured; nothing is claimed of real customers.",
        "By default the scores are those of a rule that a large model wrote, who knew the phrases of the "
        "simulator.",
    ),
    grade="B",
)


def build(
    asked: pl.Source | None = None,
    goal: str = "the customer buys",
    cue: bool = False,
    embed: str = "",
    width: int = 64,
    turns: int = 20,
    flip: float = 0.05,
    bonus: float = 1.0,
    steps: int = 20_000,
    doubt: Doubt = "ensemble",
    members: int = 3,
    cover: float = 0.9,
    calls: int = 0,
    epochs: int = 15,
) -> PredictConversion:
    """`asked` scores conversations so far, about `calls` at most; `steps` are messages that an arm learns
    from; see `PredictConversion`.
    """
    return PredictConversion(
        asked=asked,
        goal=goal,
        cue=cue,
        embed=embed,
        width=width,
        turns=turns,
        flip=flip,
        bonus=bonus,
        steps=steps,
        doubt=doubt,
        members=members,
        cover=cover,
        calls=calls,
        epochs=epochs,
    )


def embedded(
    asked: pl.Source | None = None,
    train: int = 500,
    test: int = 250,
    **settings: Any,
) -> PredictConversion:
    """On simulated conversations with a hidden buying state, scored by a rule that a large model wrote
    unless a model is `asked`.
    """
    made = build(asked or pl.Scripted(written_scores, name="written rule"), **settings)
    return replace(made, talks=SimulatedTalks(train, test))
