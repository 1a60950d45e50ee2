"""What a built method changes of its parent, in the words of a reader: problems, attempts, credit, ..."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from palaestra import catalogue
from palaestra.catalogue import Entry
from palaestra.values import difference, walk

CHANGES = (  # by the beginning of a field's path, the longer ones first
    ("collect.links.0", "attempts"), ("collect.", "attempts"), ("draw", "problems"),
    ("pool", "problems"), ("observe", "problems"), ("schedule", "schedule"),
    ("references", "reference model"), ("evaluate", "evaluation"),
)  # fmt: skip
CHANGES_OF_LEARNER = {
    "credit": "credit", "objective": "loss", "update": "update", "heads": "model", "needs": "",
}  # fmt: skip
JUDGING = ("rewards", "judges", "verifiers")
LEGEND = {
    "problems": "which problems are drawn, kept or written",
    "world": "what the model acts in",
    "attempts": "how answers are sampled, continued or replayed",
    "reward": "how an answer is paid",
    "credit": "how pay becomes the advantage of an answer or a token",
    "loss": "what is minimised",
    "update": "how often, and with which optimiser",
    "schedule": "how many, how old, in which order",
    "reference model": "a second, frozen model that the loss or the reward looks at",
    "model": "heads, adapters or several learners",
    "decoding": "how answers are chosen when training is over",
    "stages": "several runs one after another",
    "a program of its own": "no training loop of a language model, or more than one",
    "evaluation": "what is measured beside the reward",
    "analysis": "nothing: it measures what others do",
    "system": "where and when the work is done",
}


def changes_of(entry: Entry) -> tuple[str, ...]:
    """The stages in which a built method differs from its parent."""
    if entry.shape != "recipe":
        return ("stages",) if entry.shape == "pipeline" else ("a program of its own",)
    parent = catalogue.parent_of(entry.id)
    if not parent:
        return ()
    built = catalogue.find(entry.id).build()
    stages = [
        name
        for path, before, after in difference(catalogue.recipe(parent), built)
        for name in stages_of(path, before, after)
    ]
    return tuple(dict.fromkeys(n for n in stages if n))


def stages_of(path: str, before: Any, after: Any) -> Iterator[str]:
    """What a field that differs belongs to, by its path; of the links that collect, by their parts."""
    if path.startswith("learners."):
        parts = path.split(".")
        yield CHANGES_OF_LEARNER.get(parts[2], "model") if len(parts) > 2 else "model"
        return
    if path.startswith("collect"):
        fresh = parts_in(after) - parts_in(before)
        if any(name in JUDGING for name in fresh) or path.rpartition(".")[2] == "reward":
            yield "reward"
        if "reward" not in path and fresh - set(JUDGING):
            yield "attempts"
        return
    yield next((name for start, name in CHANGES if path.startswith(start)), "")


def parts_in(part: Any) -> set[str]:
    """The rooms and classes of the parts of a link: what lies in `rewards` is named by its room."""
    parts: set[str] = set()
    for path, inner in [("", part), *walk(part)]:
        module = type(inner).__module__
        if not module.startswith("palaestra."):
            continue
        room = module.split(".")[1]
        pays = room in JUDGING or path.rpartition(".")[2] == "reward"
        parts.add("rewards" if pays else type(inner).__name__)
    return parts
