"""Short creative texts by GRPO on one of two rewards: a judge with a refined list of rules, or a
reward model trained on what that judge prefers.

signal="judge": a language model with at most ten rules says Good (1) or Bad (0) of each text. The
rules are frozen during training. They are revised before it by an adversarial loop
(`pl.rewards.Refine`): a writer plants flaws, a judge that misses one learns the flaw, a writer that
is caught learns a harder one, and errors on replies that people labelled are reflected on
(arXiv:2508.21476). A verdict that cannot be read and an empty reply are worth 0, a judge that fails
leaves the reply unscored. A binary verdict on four samples is often the same for all: such a group
teaches nothing.
signal="reward model": -log sigmoid(s_chosen - s_rejected) on pairs of the policy's own texts that
the judge tells apart, learned beside the policy; the paper's panel of agents, which makes and
checks such pairs, is this one judge.
"""

from typing import Any, Literal

import palaestra as pl
from palaestra.recipes.rewards.creative_writing import toy

CARD = pl.Card(
    title="Creative writing in small models: refined reward model vs adversarial principle judge",
    paper="arXiv:2508.21476",
    claim="A judge whose rules an adversary has refined agrees with people better than fixed "
    "rules, and than a reward model.",
    source="released code for the loop and the settings, summary for the numbers; Good = 1 and Bad "
    "= 0 inferred",
    size=pl.Size(
        setting="Qwen2.5-7B-Instruct on Chinese greetings, 4,000 queries, 4 samples, batch 32, 512 "
        "tokens, lr 3e-7, KL 0.001, 7,896 preference pairs",
        model="qwen2.5-7b",
        prompts=32,
        samples=4,
        tokens=512,
        lr=3e-7,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("Write a new year's greeting to a teacher.", "Wish a friend a good journey."),
                "what is to be written",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "judge",
                "judge",
                "says of each text whether it keeps the rules",
                inert=None,
                example="endpoint(url='http://HOST:PORT/v1',model='NAME')",
            ),
        ),
        shows="part/detector",
        own={"schedule.prompts": 2, "endpoint": "It keeps them. [[Good]]"},
    ),
    use="It helps where nothing can be checked and a judge with written rules agrees with people; "
    "the policy learns what the rules leave out, so read samples.",
    lacks=(
        "The loop that refines the rules runs in a program; its list is given as `rules`.",
        "The panel of agents that makes preference pairs is one judge.",
    ),
)

RULES: pl.rewards.RuleList = (
    "It does what is asked, for this person and this occasion.",
    "It has a thought or an image of its own, and no worn phrase.",
    "Its language is right and flows.",
    "It says nothing twice.",
)


def build(
    signal: Literal["judge", "reward model"] = "judge",
    rules: pl.rewards.RuleList = RULES,
    judge: pl.Source | None = None,
) -> pl.Recipe:
    """`judge` is a language model, by default the policy itself."""
    asked = pl.Judge(
        client=judge or pl.LocalModel(),
        read=pl.judges.MarkedLabel((("Good", 1.0), ("Bad", 0.0))),
        rubric="\n".join(rules),
        empty=0.0,
        unparsed=0.0,
        name="detector",
    )
    parent = pl.recipe("grpo", kl=0.001)
    if signal == "judge":
        return pl.vary(parent, collect=pl.links(pl.Sample(n=4), pl.Score(reward=asked)))
    rm = pl.Learner(
        credit=pl.Labelled("detector", pl.Compare()),
        objective=pl.BradleyTerry(),
        heads=("score",),
        optimiser=pl.AdamW(lr=2e-4),
    )
    collect = pl.links(
        pl.Sample(n=4), pl.Score(reward=pl.Learned("reward")), pl.Beside(asked, "detector")
    )
    return pl.vary(parent, collect=collect, learners={**parent.learners, "reward": rm})


def embedded(rules: pl.rewards.RuleList = toy.RULES, **options: Any) -> pl.Recipe:
    """On the embedded problem, with a program as the judge of its sums."""
    own: dict[str, Any] = {"judge": pl.Scripted(toy.detector, "detector")}
    return build(rules=rules, **(own | options))
