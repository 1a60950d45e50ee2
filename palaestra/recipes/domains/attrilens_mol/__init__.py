"""AttriLens-Mol: the model names attributes of a molecule, each with whether its value speaks for the
property, before it answers; RDKit checks what it says of them (arXiv:2508.04748).

    <name>MolWt: improve, TPSA: not improve, MolLogP: improve</name> <answer>1</answer>

Four rewards are added, and GRPO learns from the sum, -3.5 to 4:

    format       +1 for a name block and an answer block behind it, else -2
    answer       +2 for the right answer, in whatever form it stands
    count        0 for 3 to 10 attributes, else -1, and -1.5 without a block
    rationality  the mean over attributes that RDKit knows of 1 where "improve" is said of a value inside
                 the favourable interval, or "not improve" of one outside, else 0

Favourable intervals of descriptors are drafted once by a language model (`guide`) or are a file
(`intervals=FILE.json`, {"MolWt": [100, 450]}); without both they are where nine tenths of the training
molecules with the favourable answer lie. `intervals=bbbp` are the authors' for the blood-brain barrier.

    palaestra train attrilens-mol --data molecules.csv --model DIR [guide="endpoint(url='http://HOST:PORT/v1',model='NAME')"]

The file is any table with a column of SMILES and one of the property: see "Your molecules" in
docs/environments.md. Rows of a prompt, an answer and `smiles` do too.

Deviations. The released status test looks for "improve", which "not improve" contains, so it pays every
attribute inside its interval; here the status counts. It matches almost every word to some descriptor
(fuzzy cut-off 0.1); here names are known ones or nearly so. An attribute named twice counts once. `whole`
divides by all attributes, so that names which RDKit does not know cost something: under the published mean
one easy attribute beside two made-up ones is worth as much as three right ones.

`warm` steps of imitation come first, of answers in the form whose attributes are drawn and whose
statuses are right for a share of 0.6, by the intervals of training molecules where a guide drafts those that
are rewarded: for a model that was never told of the form. After training the
evaluator "attributes" fits a decision tree on the attributes that are named most often.

`palaestra train attrilens-mol`, seed 0: in training the share of confirmed statuses rises from 0.57 to 0.86 and the fine
for the count falls from 0.38 to 0.08. On 56 held-out molecules accuracy stays (0.55 before RL, 0.54 after, of
balanced classes: chance), confirmed statuses are 0.92 before and 0.94 after, and the tree on the attributes has an
AUC of 0.997 both times. The small model learns which statuses are usual, not to read molecules, so the
claims about prediction and about the tree are not shown here. One seed, no claim.
"""

from dataclasses import replace
from typing import Any

import numpy as np

import palaestra as pl
from palaestra.recipes.domains.attrilens_mol.attributes import (
    AttributeIntervals,
    AttributeRewards,
    ShowAttributes,
    intervals_named,
)
from palaestra.recipes.domains.attrilens_mol.exam import AttributeExam

CARD = pl.Card(
    title="AttriLens-Mol: attribute-guided molecular property prediction",
    paper="arXiv:2508.04748",
    claim="Rewards for the form, the number and the rationality of named attributes improve property "
    "prediction, and the attributes make a better decision tree than prompted ones.",
    source="released code (szu-tera/AttriLens-Mol: AttriLens_train.py, Random Forest), with its status test "
    "and its matching of names mended; intervals from training molecules are ours",
    size=pl.Size(
        setting="DeepSeek-R1-Distill-Qwen-7B and Llama-8B, 4,000 molecules, groups of 8, batch 2 x 4, lr 5e-5 "
        "cosine, LoRA of rank 8, 2,000 tokens, one epoch",
        model="qwen2.5-7b",
        answers=8,
        samples=8,
        tokens=2000,
        lr=5e-5,
        lora=8,
    ),
    task="molecules",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                (
                    "Is CCO permeable, 0 or 1?",
                    "Is c1ccccc1 permeable, 0 or 1?",
                    "Is OCC(O)CO permeable, 0 or 1?",
                ),
                "the question; of a table of molecules it is written from the property's name",
            ),
            pl.needs.NeededColumn("answer", "any", ("1", "1", "0"), "the property's class"),
            pl.needs.NeededColumn(
                "smiles", "text", ("CCO", "c1ccccc1", "OCC(O)CO"), "the molecule"
            ),
        ),
        models=(
            pl.needs.chat_model(
                "guide",
                "guide",
                "drafts the favourable intervals of descriptors, once",
                otherwise="they are those of the training molecules with the favourable answer, or a file's",
            ),
        ),
        shows="guided",
        off={"count": False, "rationality": False},
        own={
            "taught_replies": (
                "<name>MolWt: improve, TPSA: not improve, MolLogP: improve</name> <answer>1</answer>",
                "<name>MolWt: improve</name> <answer>1</answer>",
            ),
            "exam": 0,
            "schedule.prompts": 4,
            "collect.links.0.n": 4,
            "max_tokens": 128,
        },
    ),
    use="It helps where a property follows from descriptors that a model can name, and an answer should say "
    "why; where only accuracy counts, a tree on RDKit's descriptors is cheaper and often better.",
    lacks=(
        "`guided`, how far what attributes earn differs within a group, is 0 until a model writes the form.",
        "Numbers are not predicted: a property of numbers becomes the question whether it is above its "
        "median.",
        "Nothing of the paper's measured data is there: without --data the property is computed, so the "
        "comparison with other models is not repeated.",
        "Attributes that a model is only prompted for are those of the start, measured before training.",
        "DAPO in place of GRPO is not an argument.",
    ),
    grade="B",
)
FORM = (
    "First name three to ten attributes of the molecule that matter, as RDKit's descriptors, each with whether "
    "its value speaks for the property or not, then answer: <name>MolWt: improve, TPSA: not improve, MolLogP: "
    "improve</name> <answer>...</answer>"
)


@pl.stage
class AttributeShare:
    """Leaves the column "guided": how far the rewards of an answer's attributes, count and rationality,
    lie from their mean over its group.
    """

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        parts = [{} if e.reward is None else e.reward.parts for e in table.episodes]
        own_E = np.array([p.get("count", 0.0) + p.get("rationality", 0.0) for p in parts])
        mean_E = pl.group_mean(own_E, pl.credit.scope_keys(table, "group"))
        table.track("guided", replace(x, x_N=np.abs(own_E - mean_E)))
        return x


def build(
    intervals: str = "",
    positive: str = "",
    guide: pl.Source | None = None,
    count: bool = True,
    rationality: bool = True,
    least: int = 3,
    most: int = 10,
    whole: bool = False,
    samples: int = 8,
    warm: int = 0,
    exam: int = 64,
) -> pl.Runnable:
    """Args:
    intervals: a JSON file of favourable values of descriptors, or "bbbp"; "" = see above.
    positive: the favourable answer; "" = 1, yes, true, high, active, positive or good, else the last one.
    guide: a language model that drafts the intervals.
    count, rationality: whether these rewards are paid.
    least, most: attributes that are not fined.
    whole: divides the rationality by all attributes, also those that RDKit does not know.
    warm: steps of imitation of the form; 0 = none.
    exam: held-out molecules that attributes are measured on; 0 = none.
    """
    if intervals and guide is not None:
        raise pl.UserError(
            "attrilens-mol: intervals are given, so a guide is not asked; leave out one of them"
        )
    given = intervals_named(intervals)
    draw: Any = AttributeIntervals(given, positive, guide)
    rewards = AttributeRewards(2.0, count, rationality, least, most, whole)
    measured = AttributeExam(given, positive, exam, drawn=guide is None)
    learned = pl.vary(
        pl.recipe("grpo"),
        draw=draw,
        collect=pl.links(pl.Sample(n=samples), pl.Score(), rewards),
        credit=pl.chain(AttributeShare(), pl.Center("group"), pl.Scale("group", ddof=0)),
        references=pl.curriculum.frozen_starts(guide),
        evaluate={"attributes": measured} if exam else {},
        instruction=FORM,
    )
    if not warm:
        return learned
    return pl.imitate_first(
        learned,
        warm,
        draw=AttributeIntervals(given, positive),
        collect=pl.links(ShowAttributes()),
        optimiser=pl.AdamW(lr=2e-3, warmup=5),
        instruction=FORM,
    )


def embedded(warm: int = 100, **options: Any) -> pl.Runnable:
    """On molecules of RDKit's package, whose property follows from three descriptors: the small model is
    shown the form first.
    """
    made: Any = build(warm=warm, **options)
    if not warm:
        return made
    learned = pl.vary(
        made.parts["rl"].runnable,
        optimiser=pl.AdamW(lr=2e-4),
        schedule=pl.Schedule(prompts=8, steps=30),
    )
    return replace(made, parts={**made.parts, "rl": replace(made.parts["rl"], runnable=learned)})
