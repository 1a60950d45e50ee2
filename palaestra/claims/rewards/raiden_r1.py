"""The claim of raiden-r1: RAIDEN-R1: verifiable role-awareness reward."""

from dataclasses import replace
from typing import Literal

import numpy as np

import palaestra as pl
from palaestra.recipes.rewards.raiden_r1 import Role

FACTS: dict[str, tuple[tuple[str, ...], ...]] = {  # each key with its equivalents
    "job": (
        ("doctor", "physician"),
        ("cook", "chef"),
        ("lawyer", "attorney"),
        ("sailor", "seaman"),
        ("teacher", "tutor"),
    ),
    "city": (
        ("New York", "NYC"),
        ("London",),
        ("Istanbul", "Constantinople"),
        ("Oslo",),
        ("Mumbai", "Bombay"),
    ),
    "pet": (("dog", "hound"), ("cat",), ("rabbit", "bunny"), ("horse", "pony"), ("parrot",)),
}


RIGHT = ("plain", "equivalent", "capitals")


WRONG = ("another", "unthought", "stuffed", "denied", "half", "silence")


Kind = Literal["single-term", "multi-term", "no guard", "graded"]


@pl.declare(
    columns=(
        ("keys", list, "what a reply must name, each a list of equivalent terms"),
        ("others", list, "keywords of other personas"),
        ("forbidden", list, "what must not be said"),
    )
)
def persona(rng: np.random.Generator) -> pl.Task:
    """Asks for two facts of a random profile."""
    own = {fact: keys[int(rng.integers(len(keys)))] for fact, keys in FACTS.items()}
    asked = [str(f) for f in rng.permutation(list(FACTS))[:2]]
    others = [term for f, keys in FACTS.items() for key in keys if key != own[f] for term in key]
    profile = ", ".join(f"{f}: {key[0]}" for f, key in own.items())
    prompt = (
        pl.Message(role="system", content=f"You are this person. {profile}"),
        pl.Message(role="user", content=f"What is your {asked[0]}, and your {asked[1]}?"),
    )
    keys = [list(own[f]) for f in asked]
    meta = {"keys": keys, "others": others, "forbidden": [f"not a {own[f][0]}" for f in asked]}
    return pl.Task(id="persona", prompt=prompt, answer=keys, meta=meta)


def response(kind: str, task: pl.Task, rng: np.random.Generator) -> str:
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


def pay_reply(kind: Kind, text: str, task: pl.Task) -> float:
    """What a reward pays for a reply."""
    if kind == "graded":
        reply, keys = (
            pl.verifiers.normalise_text(pl.verifiers.strip_thinking(text)),
            [g[0] for g in task.answer],
        )
        share = sum(pl.verifiers.contains_term(k, reply) for k in keys) / len(keys)
        return (
            1.0
            if reply in map(pl.verifiers.normalise_text, keys)
            else 0.7
            if share == 1
            else 0.5
            if share >= 0.5
            else 0.0
        )
    if kind != "multi-term":  # no guards: neither `others` nor `forbidden`
        keys = [g[:1] for g in task.answer] if kind == "single-term" else task.answer
        task = replace(task, meta={"keys": keys})
    return Role()(text, task)["right"]


@pl.stage
class Separation:
    """A program: the chance that a reward pays a right reply more than a wrong one (ties half), and
    what stuffing earns.
    """

    kind: Kind = "multi-term"
    personas: int = 100

    async def run(self, ctx: pl.Context) -> pl.Result:
        rng = pl.rng_of(("personas", ctx.seed))
        wins, stuffed = list[float](), list[float]()
        for task in (persona(rng) for _ in range(self.personas)):
            right, wrong = str(rng.choice(RIGHT)), str(rng.choice(WRONG))
            a, b = (pay_reply(self.kind, response(k, task, rng), task) for k in (right, wrong))
            wins.append(float(a > b) + float(a == b) / 2)
            stuffed.append(pay_reply(self.kind, response("stuffed", task, rng), task))
        shares = {"separation": float(np.mean(wins)), "stuffed": float(np.mean(stuffed))}
        return pl.Result(metrics={**shares, "sampled_tokens": 0})


EXPERIMENT = pl.ledger.Experiment(
    words=__file__,
    arms={kind: Separation(kind) for kind in ("single-term", "multi-term", "no guard", "graded")},
    start=None,
    illustration=True,
    expect=pl.ledger.Greater("multi-term", "single-term", by=0.05, why="ours: one pair in twenty"),
    measure=pl.ledger.Final("separation"),
    metric="chance that a right reply is paid more than a wrong one (ties half)",
    tokens=1,
    evaluate=0,
    seconds=5.0,
    controls={"what naming every key earns": pl.ledger.Final("stuffed")},
)
