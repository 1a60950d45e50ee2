"""`palaestra bench drafts`: sampling with drafts beside sampling without, in regimes where they should
help and where they should not. The samples of each pair are compared, and must be the same to the bit.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from benchmarks.work import Work
from palaestra.attempts import DraftCounts
from palaestra.engines.own import OwnEngine
from palaestra.errors import Fatal
from palaestra.models.embedded import FOLDERS
from palaestra.models.load import Model, load
from palaestra.run.machine import spread
from palaestra.run.parts import Parts
from palaestra.types import Completion, Message, Sampling

TEXT = (
    "The old lighthouse stood on a cliff above the grey sea. Every evening the keeper climbed the "
    "narrow stairs, lit the lamp, and wrote the weather of the day into a thick book."
)
COPY = (f"Repeat this text word by word, and write nothing else: {TEXT}",)
FREE = (
    "Write a short story about a river.",
    "What would you take along on a long journey, and why?",
    "Describe a city that does not exist.",
    "Explain why people like music.",
    "Tell me about a strange dream.",
    "Write a letter to somebody who has moved away.",
    "What makes a good teacher?",
    "Describe the taste of an unknown fruit.",
)


@dataclass(frozen=True, kw_only=True)
class Regime:
    """What is sampled: `n` answers to each prompt, `slots` at a time. `again`: the same prompts were
    answered before, under the same weights, and that is not timed. `endless`: no answer ends before
    its last token.
    """

    name: str
    drafts: str
    prompts: Sequence[str]
    n: int = 1
    slots: int = 1
    temperature: float = 1.0
    again: bool = False
    endless: bool = False


def regimes(work: Work) -> list[Regime]:
    tasks = tuple(row["messages"][-1]["content"] for row in work.rows(16))
    task, own = f"task {work.task}", work.model in FOLDERS
    greedy = Regime(
        name=f"{task}, greedy, never ends", drafts="ngram", prompts=tasks[:1], temperature=0.0,
        endless=True,
    )  # fmt: skip
    once = Regime(name=task, drafts="all", prompts=tasks[:1])
    groups = "4 groups of 8" if own else "a group of 8"
    some = tasks[:4] if own else tasks[:1]
    group = Regime(name=f"{task}, {groups}", drafts="siblings", prompts=some, n=8)
    every = [
        greedy,
        replace(greedy, prompts=tasks[:8], slots=8),
        replace(group, slots=8),
        replace(once, name=f"{task}, second visit", drafts="last", again=True),
        replace(group, name=f"{task}, {groups}, second visit", drafts="last", slots=8, again=True),
        replace(group, name=f"{task}, {groups}, second visit", drafts="all", slots=8, again=True),
    ]
    if own:
        step = replace(
            group, name=f"{task}, 16 groups of 8, second visit", prompts=tasks, again=True
        )
        return [*every, replace(step, drafts="all", slots=128)]
    copy = Regime(name="a text to be copied", drafts="ngram", prompts=COPY, temperature=0.3)
    free = Regime(name="free text", drafts="ngram", prompts=FREE[:1])
    return [
        copy, replace(copy, n=8, slots=8), free, *every[:1], every[3], every[5],
        replace(free, prompts=FREE, slots=8), every[2],
    ]  # fmt: skip


def measure(work: Work, pairs: int, parts: Parts) -> dict[str, Any]:
    """Ratios of interleaved pairs."""
    every = regimes(work)
    parts.expect(len(every) * pairs)
    policy = load(work.model, dtype=work.dtype, device=work.device)
    sample(policy, every[0], "ngram", 4, 0)  # what is measured once of a model is measured here
    return {"regimes": [compare(policy, r, work.max_tokens, pairs, parts) for r in every]}


def compare(model: Model, regime: Regime, tokens: int, pairs: int, parts: Parts) -> dict[str, Any]:
    """One regime. Raises Fatal where a pair's samples differ."""
    label = f"{regime.name}, {regime.slots} at a time, {regime.drafts}"
    rounds, eos = parts.rounds(label, pairs, warm=False), model.eos
    if regime.endless:
        model.eos = frozenset()
    for i in rounds:
        kinds = ("off", regime.drafts) if i % 2 else (regime.drafts, "off")
        found = {drafts: sample(model, regime, drafts, tokens, i) for drafts in kinds}
        plain, drafted = found["off"], found[regime.drafts]
        if plain[2] != drafted[2]:
            raise Fatal(f"{label}: samples with drafts are not those without")
        counts = asdict(drafted[3])
        sampled = sum(len(ids) for ids, _ in plain[2])
        rounds.put(
            {"wall": plain[0], "wall_drafts": drafted[0], "processor": plain[1]}
            | {"processor_drafts": drafted[1], "sampled": sampled, **counts}
        )
    model.eos = eos
    x = {name: np.array([r[name] for r in rounds.found], dtype=float) for name in rounds.found[0]}
    return {
        "name": regime.name,
        "drafts": regime.drafts,
        "slots": regime.slots,
        "temperature": regime.temperature,
        "tokens_per_second": float(np.median(x["sampled"] / x["wall"])),
        "tokens_per_pass": float(x["tokens"].sum() / max(x["passes"].sum(), 1)),
        "drafted": float(x["drafted"].sum() / x["sampled"].sum()),
        "accepted": float(x["accepted"].sum() / max(x["drafted"].sum(), 1)),
        "wall": spread(x["wall"] / x["wall_drafts"]),
        "processor": spread(x["processor"] / x["processor_drafts"]),
    }


def sample(
    model: Model, regime: Regime, drafts: str, tokens: int, number: int
) -> tuple[float, float, list[tuple[Any, Any]], DraftCounts]:
    """Seconds, processor seconds, samples and counts of one round."""
    engine = OwnEngine(model, slots=regime.slots, drafts=drafts)
    prompts = [
        tuple(
            i
            for piece in engine.dialect.extend(
                (Message(role="user", content=text),), first=True, closed=False
            )
            for i in piece.ids
        )
        for text in regime.prompts
        for _ in range(regime.n)
    ]
    sampling = Sampling(max_tokens=tokens, temperature=regime.temperature)

    async def visit(*key: int | str) -> list[Completion]:
        return await asyncio.gather(
            *(engine.generate(p, sampling, (*key, i)) for i, p in enumerate(prompts))
        )

    if regime.again:
        asyncio.run(visit("bench", number, "before"))
        engine.forget()
    before = replace(engine.draft_counts)
    begin, cpu = time.perf_counter(), time.process_time()
    answers = asyncio.run(visit("bench", number))
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    counts = engine.draft_counts.since(before)
    engine.close()
    return wall, cpu, [(x.ids, x.logp) for x in answers], counts


def show(result: dict[str, Any]) -> str:
    lines = ["seconds without drafts over those with them: processor, wall"]
    for r in result["regimes"]:
        cpu, wall = r["processor"], r["wall"]
        lines.append(
            f"  {r['name']}, {r['slots']} at a time, {r['drafts']}: {cpu['median']:.2f}x "
            f"({cpu['low']:.2f} to {cpu['high']:.2f}), {wall['median']:.2f}x; "
            f"{r['tokens_per_pass']:.2f} tokens a pass, {r['accepted']:.0%} of "
            f"{r['drafted']:.2f} drafted a token accepted"
        )
    return "\n".join(lines)
