"""Short creative texts by GRPO on one of two rewards: a judge with a refined list of rules, or a
refined reward model.

signal="judge": a detector with at most ten rules says Good (1) or Bad (0). The rules are revised
before training by an adversarial loop (`Refine`): a writer plants flaws, a detector that is fooled
learns the flaw, a writer that is caught learns a harder one, and errors on replies that people
labelled are reflected on (arXiv:2508.21476). During training the list is frozen. A verdict that
cannot be read and an empty reply are worth 0, a judge that fails leaves the reply unscored.
signal="reward model": -log sigmoid(s_chosen - s_rejected) on pairs that a panel of agents has made
and checked; here pairs by the bench's verdict. A binary verdict on four samples is often the same
for all: such a group teaches nothing. The default judge is a stand-in that needs no model: it reads
the rules it knows from its prompt and applies them.
"""

import re
from typing import Literal

import palaestra as pl

pass

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
)
RULES: pl.rewards.RuleList = ("Ends with its answer.", "Shows a step.", "Says no line twice.")
# language, creativity, resonance, cultural fit, richness; each 1 to 3
WEIGHTS = (0.30, 0.30, 0.15, 0.15, 0.10)


def rating(scores: tuple[float, ...]) -> float:
    """The human rating of a greeting; above 2 it is excellent."""
    return sum(w * s for w, s in zip(WEIGHTS, scores, strict=True))


def detector(request: pl.ChatRequest) -> str:
    """The stand-in judge: Bad if a rule of its prompt is broken, by what it knows of the three in
    RULES.
    """
    prompt = request.messages[-1].content
    rules, reply = (
        re.findall(rf"<{tag}>(.*?)</{tag}>", prompt, re.DOTALL)[-1]
        for tag in ("rubric", "response")
    )
    seen, lines = pl.rewards.text_properties(reply), reply.splitlines()
    kept = (
        bool(lines) and lines[-1].startswith("= "),
        seen["worked"] > 0,
        len(set(lines)) == len(lines),
    )
    broken = [rule for rule, held in zip(RULES, kept, strict=True) if rule in rules and not held]
    return f"{' '.join(broken)} [[{'Bad' if broken else 'Good'}]]"


def build(
    signal: Literal["judge", "reward model"] = "judge",
    rules: pl.rewards.RuleList = RULES,
    client: pl.Source = pl.Scripted(detector, "detector"),
) -> pl.Recipe:
    judge = pl.Judge(
        client=client,
        read=pl.judges.MarkedLabel((("Good", 1.0), ("Bad", 0.0))),
        rubric="\n".join(rules),
        empty=0.0,
        unparsed=0.0,
        name="detector",
    )
    parent = pl.recipe("grpo", kl=0.001)
    if signal == "judge":
        return pl.vary(
            parent, collect=pl.links(pl.Sample(n=4), pl.Score(reward=judge, shadow=True))
        )
    rm = pl.Learner(
        credit=pl.Labelled("gold", pl.Compare()),
        objective=pl.BradleyTerry(),
        heads=("score",),
        optimiser=pl.AdamW(lr=2e-4),
    )
    collect = pl.links(pl.Sample(n=4), pl.Score(reward=pl.Learned("reward"), shadow=True))
    return pl.vary(parent, collect=collect, learners={**parent.learners, "reward": rm})


# ---- the experiment: greetings that a program writes, and flaws that a program knows
