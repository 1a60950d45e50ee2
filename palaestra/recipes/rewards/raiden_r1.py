"""RAIDEN-R1: a model plays a role, and its reply is rewarded if it names keys of the role that a
program can check.

A record is a profile, a dialogue and a question as its prompt or messages, and `keys` that the reply in
character must name, each a list of equivalent terms:

    r = acc + w form,      form = 1 if exactly one think block precedes the reply, else 0
    acc = 1 if the reply names a variant of every group of terms, else 0

(arXiv:2505.10218). The paper mines keys by models: one keyword on which several agree, then terms that
are equivalent; here they are brought. Only the text behind </think> is searched. w is unknown: 0.5 here. The validator
is data, not code, so nothing that a model wrote is run.

A keyword alone is blind: a negated mention counts, and so does a list of every key there is.
Samples may hold the columns `forbidden`, terms of a false premise, and `others`, keys of other
samples: one of them makes the reply worth 0. An unofficial re-implementation pays 0.7 for a
contained key and 0.5 for half of the keys: the arm "graded".

The claim trains nothing: it asks each reward to tell right replies from wrong ones.
"""

from dataclasses import replace

import palaestra as pl

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
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "prompt",
                "text",
                ("You are Ann, a doctor of London. What is your work, and where?",),
                "the profile, the dialogue and the question, or `messages`, a chat",
            ),
            pl.needs.NeededColumn(
                "keys",
                "any",
                ([["doctor", "physician"], ["London"]],),
                "what the reply must name: for each key the terms that will do",
            ),
            pl.needs.NeededColumn(
                "forbidden",
                "texts",
                (["not a doctor"],),
                "terms that make a reply worth 0",
                otherwise="a denied key counts as named",
            ),
            pl.needs.NeededColumn(
                "others",
                "texts",
                (["lawyer", "Paris"],),
                "keys of other records, one of which makes a reply worth 0",
                otherwise="a reply may list every key there is",
            ),
        ),
        shows="part/keys",
        own={"collect.links.0.n": 2, "schedule.prompts": 4},
    ),
    use="It helps where a role has facts that a reply either names or not; style and tone are not seen "
    "by it.",
    lacks=(
        "Mining of keys by several models, and validators that a model writes.",
        "The data set of thoughts in character, and fine-tuning on it before.",
    ),
)


@pl.stage
class Role:
    """acc + weight * form; with `gated` a broken form is worth 0."""

    weight: float = 0.5
    gated: bool = False

    def __call__(self, text: str, task: pl.Task) -> dict[str, float]:
        keys = task.meta.get("keys")
        keys = keys if isinstance(keys, list | tuple) else task.answer
        judged = pl.Verified("keywords").judge(text, replace(task, answer=keys))
        right, form = judged.total, has_form(text)
        total = 0.0 if self.gated and not form else right + self.weight * form
        return {"total": total, "right": right, "form": float(form), "keys": float(len(keys))}


def has_form(text: str) -> bool:
    """One think block, and then a reply."""
    once = text.count("<think>") == text.count("</think>") == 1
    return (
        once
        and text.lstrip().startswith("<think>")
        and bool(pl.verifiers.strip_thinking(text).strip())
    )


def build(weight: float = 0.5, gated: bool = False) -> pl.Recipe:
    reward = pl.Where("keys", pl.Verify(Role(weight, gated)))
    return pl.vary(pl.recipe("grpo"), collect=pl.links(pl.Sample(n=8), pl.Score(reward=reward)))


@pl.declare(columns=(("keys", list, "what a reply must name, each a list of equivalent terms"),))
@pl.stage
class AnswerAsKey:
    """The answer of a task is its only key."""

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        meta = {**group.task.meta, "keys": [[str(group.task.answer)]]}
        return replace(group, task=replace(group.task, meta=meta))


def embedded(weight: float = 0.5, gated: bool = False) -> pl.Recipe:
    """On the embedded problem, whose answer is the key of a reply."""
    reward = pl.Verify(Role(weight, gated))
    links = pl.links(AnswerAsKey(), pl.Sample(n=8), pl.Score(reward=reward))
    return pl.vary(pl.recipe("grpo"), collect=links)
