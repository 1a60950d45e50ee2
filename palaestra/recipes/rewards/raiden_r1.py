"""RAIDEN-R1: role-play with a checkable key, the verifiable role-awareness reward.

A sample is a profile, a dialogue, a question and keys that the reply in character must name:

    r = acc + w form,      form = 1 if exactly one think block precedes the reply, else 0
    acc = 1 if the reply names a variant of every group of terms, else 0

Single-term validation asks for one explicit keyword on which several reference models agree (`single_term`); multi-term
parsing expands it to groups of equivalent terms and keeps a validator whose verdicts agree with a judge's on more than 70%
of sampled replies (`kept`) (arXiv:2505.10218). Only the text behind </think> is searched. w is unknown: 0.5 here. The validator
is data, not code, so nothing that a model wrote is run.

A keyword alone is blind: a negated mention counts, and so does a list of every key there is. Samples may hold the columns
`forbidden`, terms of a false premise, and `others`, keys of other samples: one of them makes the reply worth 0. An
unofficial re-implementation pays 0.7 for a contained key and 0.5 for half of the keys: the arm "graded".

Samples have the column `keys`, their answer is the list of groups. Other tasks keep their own check. The experiment trains
nothing: it asks each reward to tell right replies from wrong ones.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from palaestra.card import Card, Size
from palaestra.ledger.experiment import Experiment, Final, Greater
from palaestra.recipes.base import grpo
from palaestra.rewards.verify import Verify
from palaestra.rewards.where import Where
from palaestra.rollout.collect import Sample, Score, links
from palaestra.step import Recipe
from palaestra.types import Message, Result, Task, rng_of, stage
from palaestra.values import vary
from palaestra.verifiers.answers.short import named, normal
from palaestra.verifiers.base import reply
from palaestra.verifiers.reward import Verified

if TYPE_CHECKING:
    from palaestra.context import Context

CARD = Card(
    id="raiden-r1",
    family="rewards",
    title="RAIDEN-R1: verifiable role-awareness reward",
    paper="arXiv:2505.10218",
    parent="grpo",
    claim="Keys that a program can check make role awareness trainable by GRPO.",
    changes={"reward": "the reply names a variant of every key, plus its form"},
    source="a review and a survey made from the paper, which agree; the weight of the form and the matching are choices",
    paper_scale="14B model, RAIDEN: 88.0% script knowledge, 88.7% conversation memory; the weight of the form is not known",
    size=Size(model="qwen2.5-14b"),
)


@stage
class Role:
    """acc + weight * form; with `gated` a broken form is worth 0."""

    weight: float = 0.5
    gated: bool = False

    def __call__(self, text: str, task: Task) -> dict[str, float]:
        right, form = Verified("keywords").judge(text, task).total, formed(text)
        total = 0.0 if self.gated and not form else right + self.weight * form
        return {"total": total, "right": right, "form": float(form)}


def formed(text: str) -> bool:
    """One think block, and then a reply."""
    once = text.count("<think>") == text.count("</think>") == 1
    return once and text.lstrip().startswith("<think>") and bool(reply(text).strip())


def single_term(answers: Sequence[str]) -> str | None:
    """The keyword on which all reference models agree; None = the sample is dropped."""
    found = {normal(a) for a in answers}
    return found.pop() if len(found) == 1 and "" not in found else None


def kept(validator: Sequence[bool], judge: Sequence[bool], least: float = 0.7) -> bool:
    """Whether a validator agrees with the judge on more than `least` of the replies."""
    agree = sum(a == b for a, b in zip(validator, judge, strict=True))
    return bool(judge) and agree > least * len(judge)


def build(weight: float = 0.5, gated: bool = False) -> Recipe:
    reward = Where("keys", Verify(Role(weight, gated)))
    return vary(grpo.build(), collect=links(Sample(n=8), Score(reward=reward)))


# ---- the experiment: personas and what may be said to their questions

FACTS: dict[str, tuple[tuple[str, ...], ...]] = {  # each key with its equivalents
    "job": (
        ("doctor", "physician"),
        ("cook", "chef"),
        ("lawyer", "attorney"),
        ("sailor", "seaman"),
        ("teacher", "tutor"),
    ),
    "city": (("New York", "NYC"), ("London",), ("Istanbul", "Constantinople"), ("Oslo",), ("Mumbai", "Bombay")),
    "pet": (("dog", "hound"), ("cat",), ("rabbit", "bunny"), ("horse", "pony"), ("parrot",)),
}
RIGHT = ("plain", "equivalent", "capitals")
WRONG = ("another", "unthought", "stuffed", "denied", "half", "silence")
Kind = Literal["single-term", "multi-term", "no guard", "graded"]


def persona(rng: np.random.Generator) -> Task:
    """Asks for two facts of a random profile."""
    own = {fact: keys[int(rng.integers(len(keys)))] for fact, keys in FACTS.items()}
    asked = [str(f) for f in rng.permutation(list(FACTS))[:2]]
    others = [term for f, keys in FACTS.items() for key in keys if key != own[f] for term in key]
    profile = ", ".join(f"{f}: {key[0]}" for f, key in own.items())
    prompt = (
        Message(role="system", content=f"You are this person. {profile}"),
        Message(role="user", content=f"What is your {asked[0]}, and your {asked[1]}?"),
    )
    meta = {"keys": True, "others": others, "forbidden": [f"not a {own[f][0]}" for f in asked]}
    return Task(id="persona", prompt=prompt, answer=[list(own[f]) for f in asked], meta=meta)


def response(kind: str, task: Task, rng: np.random.Generator) -> str:
    """What somebody who knows, or does not, would write."""
    (first, *_), (second, *_) = task.answer
    other, thought = str(rng.choice(task.meta["others"])), "<think>I stay in character.</think>"
    return {
        "plain": f"{thought}It is {first}, and {second}.",
        "equivalent": f"{thought}It is {task.answer[0][-1]}, and {task.answer[1][-1]}.",
        "capitals": f"{thought}{first.upper()} AND {second.upper()}.",
        "another": f"{thought}It is {other}.",
        "unthought": f"<think>It is {first}, and {second}.</think>I would rather not say.",
        "stuffed": f"{thought}{first}, {second}, {', '.join(task.meta['others'])}",
        "denied": f"{thought}I am not a {first}, not a {second}.",
        "half": f"{thought}It is {first}.",
        "silence": "",
    }[kind]


def paid(kind: Kind, text: str, task: Task) -> float:
    """What a reward pays for a reply."""
    if kind == "graded":
        said, keys = normal(reply(text)), [g[0] for g in task.answer]
        share = sum(named(k, said) for k in keys) / len(keys)
        return 1.0 if said in map(normal, keys) else 0.7 if share == 1 else 0.5 if share >= 0.5 else 0.0
    if kind != "multi-term":
        task = replace(task, meta={"keys": True})
    if kind == "single-term":
        task = replace(task, answer=[g[:1] for g in task.answer])
    return Role()(text, task)["right"]


@stage
class Separation:
    """A program: the chance that a reward pays a right reply more than a wrong one (ties half), and what stuffing earns."""

    kind: Kind = "multi-term"
    personas: int = 100

    async def run(self, ctx: "Context") -> Result:
        rng = rng_of(("personas", ctx.seed))
        wins, stuffed = list[float](), list[float]()
        for task in (persona(rng) for _ in range(self.personas)):
            right, wrong = str(rng.choice(RIGHT)), str(rng.choice(WRONG))
            a, b = (paid(self.kind, response(k, task, rng), task) for k in (right, wrong))
            wins.append(float(a > b) + float(a == b) / 2)
            stuffed.append(paid(self.kind, response("stuffed", task, rng), task))
        found = {"separation": float(np.mean(wins)), "stuffed": float(np.mean(stuffed))}
        return Result(metrics={**found, "sampled_tokens": 0})


EXPERIMENT = Experiment(
    claim="Groups of equivalent keys with forbidden terms tell right from wrong replies better than single keywords.",
    arms={kind: Separation(kind) for kind in ("single-term", "multi-term", "no guard", "graded")},
    expect=Greater("multi-term", "single-term"),
    falsified_if="a single keyword separates as well as groups of equivalents",
    measure=Final("separation"),
    metric="chance that a right reply is paid more than a wrong one (ties half)",
    tokens=1,
    seconds=5.0,
    controls={"what naming every key earns": Final("stuffed")},
    note="Replies are written by templates, three kinds right and six wrong, none of which the guarded reward misjudges: what is "
    "measured is the loss without its parts. Nothing is trained; the paper trains a 14B model.",
)
