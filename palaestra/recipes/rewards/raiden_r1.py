"""RAIDEN-R1: role-play with a checkable key, the verifiable role-awareness reward.

A sample is a profile, a dialogue, a question and keys that the reply in character must name:

    r = acc + w form,      form = 1 if exactly one think block precedes the reply, else 0
    acc = 1 if the reply names a variant of every group of terms, else 0

Single-term validation asks for one explicit keyword on which several reference models agree
(`single_term`); multi-term parsing expands it to groups of equivalent terms and keeps a validator
whose verdicts agree with a judge's on more than 70% of sampled replies (`is_kept`)
(arXiv:2505.10218). Only the text behind </think> is searched. w is unknown: 0.5 here. The validator
is data, not code, so nothing that a model wrote is run.

A keyword alone is blind: a negated mention counts, and so does a list of every key there is.
Samples may hold the columns `forbidden`, terms of a false premise, and `others`, keys of other
samples: one of them makes the reply worth 0. An unofficial re-implementation pays 0.7 for a
contained key and 0.5 for half of the keys: the arm "graded".

Samples have the column `keys`, their answer is the list of groups. Other tasks keep their own
check. The experiment trains nothing: it asks each reward to tell right replies from wrong ones.
"""

from collections.abc import Sequence

import palaestra as pl

pass

CARD = pl.Card(
    title="RAIDEN-R1: verifiable role-awareness reward",
    paper="arXiv:2505.10218",
    claim="Keys that a program can check make role awareness trainable by GRPO.",
    source="a review and a survey made from the paper, which agree; the weight of the form and the "
    "matching are choices",
    size=pl.Size(
        setting="14B model, RAIDEN: 88.0% script knowledge, 88.7% conversation memory; the weight "
        "of the form is not known",
        model="qwen2.5-14b",
    ),
)


@pl.stage
class Role:
    """acc + weight * form; with `gated` a broken form is worth 0."""

    weight: float = 0.5
    gated: bool = False

    def __call__(self, text: str, task: pl.Task) -> dict[str, float]:
        right, form = pl.Verified("keywords").judge(text, task).total, has_form(text)
        total = 0.0 if self.gated and not form else right + self.weight * form
        return {"total": total, "right": right, "form": float(form)}


def has_form(text: str) -> bool:
    """One think block, and then a reply."""
    once = text.count("<think>") == text.count("</think>") == 1
    return (
        once
        and text.lstrip().startswith("<think>")
        and bool(pl.verifiers.strip_thinking(text).strip())
    )


def single_term(answers: Sequence[str]) -> str | None:
    """The keyword on which all reference models agree; None = the sample is dropped."""
    found = {pl.verifiers.normalise_text(a) for a in answers}
    return found.pop() if len(found) == 1 and "" not in found else None


def is_kept(validator: Sequence[bool], judge: Sequence[bool], least: float = 0.7) -> bool:
    """Whether a validator agrees with the judge on more than `least` of the replies."""
    agree = sum(a == b for a, b in zip(validator, judge, strict=True))
    return bool(judge) and agree > least * len(judge)


def build(weight: float = 0.5, gated: bool = False) -> pl.Recipe:
    reward = pl.Where("keys", pl.Verify(Role(weight, gated)))
    return pl.vary(pl.recipe("grpo"), collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward)))


# ---- the experiment: personas and what may be said to their questions
