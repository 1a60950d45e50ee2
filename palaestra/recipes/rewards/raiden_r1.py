"""RAIDEN-R1: a model plays a role, and its reply is rewarded if it names keys of the role that a
program can check.

A record is a profile, a dialogue and a question as its prompt or messages, and `keys` that the reply in
character must name, each a list of equivalent terms:

    r = acc + w form,      form = 1 if exactly one think block precedes the reply, else 0
    acc = 1 if the reply names a variant of every group of terms, else 0

(arXiv:2505.10218). Records without `keys` get them from models, as in the paper: each of `miner`,
`second` and `third` names up to three keywords that a reply in character must have, with equivalent
terms; it sees the prompt alone, and a keyword must stand there. The first model's keys stay that all
others name. A record on whose keys they do not agree is not trained on. The keys lie in
RUN/written/keys.jsonl to be read and corrected, and train as --data of another run:

    palaestra train raiden-r1 --data FILE miner="endpoint(url='http://HOST:PORT/v1',model='A')" second=DIR

Only the text behind </think> is searched. w is unknown: 0.5 here. The validator
is data, not code, so nothing that a model wrote is run.

A keyword alone is blind: a negated mention counts, and so does a list of every key there is.
Samples may hold the columns `forbidden`, terms of a false premise, and `others`, keys of other
samples: one of them makes the reply worth 0. An unofficial re-implementation pays 0.7 for a
contained key and 0.5 for half of the keys: the arm "graded" of the claim.

The claim trains nothing: it asks each reward to tell right replies from wrong ones.
"""

from collections.abc import Sequence
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
                when={"miner": (None,)},
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
        models=tuple(
            pl.needs.chat_model(
                "miner of keys",
                argument,
                "names the keys of records without `keys`",
                otherwise=otherwise,
            )
            for argument, otherwise in (
                ("miner", "the column `keys` has them"),
                ("second", "the miner alone says what the keys are"),
                ("third", "one or two miners say what the keys are"),
            )
        ),
        shows="part/keys",
        never_off="It is the number of keys that a reply is checked for; without keys it has no "
        "reward.",
        own={"collect.links.0.n": 2, "schedule.prompts": 4},
    ),
    use="It helps where a role has facts that a reply either names or not; style and tone are not seen "
    "by it.",
    lacks=(
        "The data set of thoughts in character, and fine-tuning on it before.",
        "Validators that a model writes, and their comparison with a judge on sampled replies: "
        "keys are data, which one program matches.",
    ),
    grade="B",
)


@pl.stage
class Role:
    """acc + weight * form; with `gated` a broken form is worth 0."""

    weight: float = 0.5
    gated: bool = False

    def __call__(self, text: str, task: pl.Task) -> dict[str, float]:
        keys = task.meta.get("keys")
        keys = keys if isinstance(keys, list | tuple) else task.answer
        keywords = pl.Verified("keywords").judge(text, replace(task, answer=keys))
        right, form = keywords.total, has_form(text)
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


MINED = """{prompt}

Which facts of the profile must a reply in character name? Write one line for each, at most three lines: \
the keyword as the profile has it, then terms that mean the same, all separated by " | ". If no single \
keyword decides whether a reply is right, write NONE."""
MOST_KEYS = 3


def read_keys(reply: str, task: pl.Task) -> list[list[str]] | None:
    """The keys of a miner's reply, each with its equivalent terms. None where it names none, or more
    than three, or a keyword that the prompt does not have.
    """
    text = pl.verifiers.strip_thinking(reply)
    lines = [line.strip().lstrip("-*0123456789. ") for line in text.splitlines() if line.strip()]
    keys = [[t.strip() for t in line.split("|") if t.strip()] for line in lines]
    keys = [key for key in keys if key]
    known = pl.verifiers.normalise_text(pl.curriculum.dialogue_text(task))
    if not 0 < len(keys) <= MOST_KEYS:
        return None
    return keys if all(pl.verifiers.contains_term(key[0], known) for key in keys) else None


def agreed_keys(values: Sequence[list[list[str]] | None]) -> list[list[str]] | None:
    """The first miner's keys that all others name too, by any of their terms; None where a miner has
    none, or there is no such key.
    """
    first, *others = values
    if first is None or any(keys is None for keys in others):
        return None

    def terms(key: Sequence[str]) -> set[str]:
        return {pl.verifiers.normalise_text(term) for term in key}

    def is_named(key: Sequence[str], keys: Sequence[Sequence[str]]) -> bool:
        return any(terms(key) & terms(other) for other in keys)

    agreed = [key for key in first if all(is_named(key, keys or ()) for keys in others)]
    return agreed or None


def build(
    weight: float = 0.5,
    gated: bool = False,
    miner: pl.Source | None = None,
    second: pl.Source | None = None,
    third: pl.Source | None = None,
) -> pl.Recipe:
    """`miner`, with `second` and `third` to agree, names the keys of records without any."""
    reward = pl.Where("keys", pl.Verify(Role(weight, gated)))
    collect = pl.links(pl.Sample(n=8), pl.Score(reward=reward))
    recipe = pl.vary(pl.recipe("grpo"), collect=collect)
    miners = tuple(x for x in (miner, second, third) if x is not None)
    if not miners:
        return recipe
    if miner is None:
        raise pl.UserError("raiden-r1: second and third agree with a miner; give miner=... too")
    draw = pl.curriculum.WrittenColumn("keys", MINED, miners, read=read_keys, join=agreed_keys)
    starts = pl.curriculum.frozen_starts(*miners)
    return pl.vary(recipe, draw=draw, references={**recipe.references, **starts})


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
