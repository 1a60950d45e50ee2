"""Short creative texts by GRPO on one of two rewards: a judge with a refined list of rules, or a
reward model trained on what that judge prefers.

signal="judge": a language model with at most ten rules says Good (1) or Bad (0) of each text. The
rules are frozen during training. They are revised before it in `refine` rounds of an adversarial loop
(`pl.rewards.Refine`): a writer plants flaws, a judge that misses one learns the flaw, a writer that
is caught learns a harder one, and errors on replies that people labelled (`labelled`, a file with
prompt, response and right) are reflected on (arXiv:2508.21476). The rules lie in
RUN/written/rules.txt. Every role is the judge's model unless another one is given, and the judge is by
default a frozen copy of the start:

    palaestra train creative-writing --data F judge="endpoint(url='http://HOST:PORT/v1',model='A')" writer=DIR labelled=L

A verdict that cannot be read and an empty reply are worth 0, a judge that fails
leaves the reply unscored. A binary verdict on four samples is often the same for all: such a group
teaches nothing.
signal="reward model": -log sigmoid(s_chosen - s_rejected) on pairs of the policy's own texts that
the judge tells apart, learned beside the policy; the paper's panel of agents, which makes and
checks such pairs, is this one judge.
"""

from typing import Any, Literal

import palaestra as pl
from palaestra.recipes.rewards.creative_writing import refining, toy

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
                inert=pl.LocalModel(refining.JUDGE),
                example="endpoint(url='http://HOST:PORT/v1',model='NAME')",
                otherwise="a frozen copy of the start judges",
            ),
            *(
                pl.needs.chat_model(
                    role,
                    role,
                    meaning,
                    otherwise="the judge's model does",
                )
                for role, meaning in (
                    ("writer", "writes flawed texts that try to pass the rules"),
                    ("detector", "finds flaws by the rules before training"),
                    ("reflector", "explains errors of the detector and revises the rules"),
                )
            ),
        ),
        shows="part/detector",
        never_off="It is the verdict of the detector, on which the reward stands; one that approves "
        "of nothing makes it 0.",
        own={"refine": 1, "schedule.prompts": 2, "endpoint": "It keeps them. [[Good]]"},
    ),
    use="It helps where nothing can be checked and a judge with written rules agrees with people; "
    "the policy learns what the rules leave out, so read samples.",
    lacks=(
        "The panel of agents that makes preference pairs is one judge.",
        "The reward model learns beside the policy, and not before it on a fixed set of pairs.",
        "How often the judge agrees with people's labels is measured neither before the rules are "
        "refined nor after it.",
    ),
    grade="B",
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
    judge: pl.Source = pl.LocalModel(refining.JUDGE),
    refine: int = 10,
    writer: pl.Source | None = None,
    detector: pl.Source | None = None,
    reflector: pl.Source | None = None,
    labelled: str = "",
) -> pl.Recipe:
    """Args:
    rules: what the judge goes by, before the loop.
    refine: rounds of the loop; 0 = the rules stay.
    writer, detector, reflector: its roles; None = the judge's model.
    labelled: a file of replies that people have labelled, for the loop.
    """
    asked: Any = pl.Judge(
        client=judge,
        read=pl.judges.MarkedLabel((("Good", 1.0), ("Bad", 0.0))),
        rubric="\n".join(rules),
        empty=0.0,
        unparsed=0.0,
        name="detector",
    )
    more: dict[str, Any] = {}
    if refine:
        models = (writer or judge, detector or judge, reflector or judge)
        more = {"draw": refining.RefinedRules(rules, *models, refine, labelled)}
        asked = refining.JudgedByRules(asked)
    more["references"] = pl.curriculum.frozen_starts(judge, writer, detector, reflector)
    parent = pl.recipe("grpo", kl=0.001)
    if signal == "judge":
        collect = pl.links(pl.Sample(n=4), pl.Score(reward=asked))
        return pl.vary(parent, collect=collect, **_with_parents(parent, more))
    rm = pl.Learner(
        credit=pl.Labelled("detector", pl.Compare()),
        objective=pl.BradleyTerry(),
        heads=("score",),
        optimiser=pl.AdamW(lr=2e-4),
    )
    collect = pl.links(
        pl.Sample(n=4), pl.Score(reward=pl.Learned("reward")), pl.Beside(asked, "detector")
    )
    learners = {**parent.learners, "reward": rm}
    return pl.vary(parent, collect=collect, learners=learners, **_with_parents(parent, more))


def _with_parents(parent: pl.Recipe, more: dict[str, Any]) -> dict[str, Any]:
    """The references beside those of the parent, which holds the KL to its start."""
    return {**more, "references": {**parent.references, **more["references"]}}


def embedded(rules: pl.rewards.RuleList = toy.RULES, **options: Any) -> pl.Recipe:
    """On the embedded problem, with a program as the judge of its sums."""
    own: dict[str, Any] = {"judge": pl.Scripted(toy.detector, "detector"), "refine": 0}
    return build(rules=rules, **(own | options))
