"""What keeps a run from learning, as its first step shows it, and how to mend it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch

from palaestra import values
from palaestra.abilities import ReadsRight, WeighsFact
from palaestra.errors import UserError
from palaestra.method import Recipe
from palaestra.types import Group, Metrics
from palaestra.worlds.tool_log import LOG, OFFERED

# why an answer was cut, and what gives it more room
CUT: Mapping[str, str] = {
    "truncated:length": "raise --max-tokens",
    "truncated:turns": "raise --tool-turns, or sample.turns",
    "truncated:context": "shorten the prompts, or take a model with a longer context",
    "truncated:summaries": "raise limit, or summaries",
}

SEARCH = "search"  # the tool's name
EPISODES = 8  # fewer say nothing of a share
DECIDED = (0.3, 0.7)  # the share of episodes that search in which both ways are tried often


@runtime_checkable
class MapsRewards(Protocol):
    """A part that maps rewards between two numbers to a scale of its own. Without it, they may be
    any.
    """

    @property
    def reward_bounds(self) -> tuple[float, float]:
        """The lowest and the highest that it takes them to be."""
        ...


@runtime_checkable
class NamesTurns(Protocol):
    """A part that ends episodes after turns of its own, and says which setting that is. Without it,
    it is the bench's, or that of `Sample`.
    """

    @property
    def turns_setting(self) -> str: ...


@runtime_checkable
class NotesFirstStep(Protocol):
    """A part that sees in the first step whether what it rewards happens at all."""

    def first_step_note(self, groups: Sequence[Group]) -> str:
        """One line for the user, with a remedy; "" = nothing is wrong."""
        ...


def first_step_notes(
    metrics: Metrics, seen: Sequence[Group], recipe: Recipe | None = None
) -> list[str]:
    """One line, with its remedy, for each reason that the first step learned nothing.

    Args:
        metrics: of the step.
        seen: the groups that the step sampled or read.
        recipe: that was run; None = any.
    """
    noted = [*_noted(seen, recipe)]
    lines = [
        *_untried(metrics),
        *_undecided_search(metrics, seen),
        *_nothing_right(seen, recipe),
        *_out_of_bounds(seen, recipe),
        *_lacking(seen, recipe),
        *_unprivileged(metrics),
        *noted,
    ]
    reason = _why_nothing(metrics, seen, recipe, noted=bool(noted))
    return [*lines, reason] if reason else lines


def _untried(metrics: Metrics) -> Iterator[str]:
    """No tool was called or none worked, or no answer had a hint, although the recipe offers them."""
    if metrics.get("tools/calls") == 0:
        yield (
            "no tool was called in the first step; what is never tried is not learned, so "
            "the model must know how to call tools: see docs/howto.md"
        )
    if metrics.get("tools/errors") == 1:
        yield (
            "every tool call of the first step gave an error, so the run learns to do without its "
            "tools, or nothing; read the errors with palaestra view: mend the tool where it fails, and "
            "where calls are empty, one too many, or ask for what is not there, take a model that knows "
            "how to call it"
        )
    if metrics.get("is:guided") == 0:
        yield (
            "nothing that was learned from in the first step had a hint: none was asked for, "
            "or the groups with one were left out; or the problems have no written working (in data "
            "a column `demonstration`, e.g. --columns solution=demonstration), or one too short (of "
            "one line a share of its steps is nothing; see `unit` of pl.Working)"
        )


def _undecided_search(metrics: Metrics, seen: Sequence[Group]) -> Iterator[str]:
    """Almost all first episodes search, or almost none does, so nothing decides when to."""
    logs = [
        e.facts[LOG]
        for g in seen
        for e in g.valid
        if e.n_sampled and SEARCH in e.facts.get(OFFERED, ())
    ]
    if len(logs) < EPISODES or metrics.get("tools/calls") == 0:  # which has a line of its own
        return
    share = sum(any(tool == SEARCH for _, tool, _ in log) for log in logs) / len(logs)
    low, high = DECIDED
    if not low <= share <= high:
        mend = (
            "show it searches first, with sft, or take a model that searches more often"
            if share < low
            else "show it answers from memory too, or take questions of which it knows some"
        )
        yield (
            f"{share:.0%} of the episodes of the first step search, and from {low:.0%} to {high:.0%} are "
            f"needed to compare those that do with those that do not; to learn when to search, {mend}; "
            "where every question needs a search, go on"
        )


def _nothing_right(seen: Sequence[Group], recipe: Recipe | None) -> Iterator[str]:
    """The method tells right from wrong, and rewards differ, but none is that of a right answer."""
    parts = [x for _, x in values.walk(recipe) if isinstance(x, ReadsRight) and x.reads_right]
    episodes = [e for g in seen for e in g.valid if e.reward is not None and e.reward.judged]
    totals = [e.total for e in episodes]
    if not parts or len(set(totals)) < 2:
        return
    least = getattr(parts[0], "right", None)
    if not any(e.is_right(least) for e in episodes):
        yield (
            f"no answer of the first step counts as right: the best reward was {max(totals):.3g}, and "
            f"this method takes an answer for right {describe_right(least)}; right=... sets another "
            "reward from which on it is"
        )


def _out_of_bounds(seen: Sequence[Group], recipe: Recipe | None) -> Iterator[str]:
    """The method maps rewards between two numbers to a scale of its own, and some lie outside."""
    parts = [x for _, x in values.walk(recipe) if isinstance(x, MapsRewards)]
    totals = [e.total for g in seen for e in g.valid if e.reward is not None]
    for low, high in {x.reward_bounds for x in parts} if totals else ():
        if min(totals) < low or max(totals) > high:
            yield (
                f"the rewards of the first step lie between {min(totals):g} and {max(totals):g}, and "
                f"this method takes them to lie between {low:g} and {high:g}; bounds=(LOWEST,HIGHEST) "
                "says which"
            )


def _lacking(seen: Sequence[Group], recipe: Recipe | None) -> Iterator[str]:
    """No episode has a fact that a part weighs, so the part is inert."""
    weighed = {x.weighs_fact for _, x in values.walk(recipe) if isinstance(x, WeighsFact)} - {""}
    episodes = [e for g in seen for e in g.valid]
    for name in sorted(weighed) if episodes else ():
        if not any(name in e.facts for e in episodes):
            yield (
                f"no episode of the first step has the fact {name!r}, which the method weighs, so that "
                "part of it does nothing; an environment writes it with its frames, one truth value a "
                f"turn so far: Frame(..., facts={{{name!r}: (True, False)}})"
            )


def _unprivileged(metrics: Metrics) -> Iterator[str]:
    """A model that should read more than the policy, and read the same."""
    shares = values_of(metrics, "privileged")
    if shares and not any(shares):
        yield (
            "the teacher read no more than the student in the first step: no row had anything to be "
            "shown (a right answer beside it, a column), or it did not fit into the context"
        )


def _noted(seen: Sequence[Group], recipe: Recipe | None) -> Iterator[str]:
    """What parts of the method say of the step themselves."""
    parts = [x for _, x in values.walk(recipe) if isinstance(x, NotesFirstStep)]
    yield from dict.fromkeys(filter(None, (x.first_step_note(seen) for x in parts)))


def describe_right(least: float | None) -> str:
    if least is None:
        return "where its reward says so (`solved`), or is 1 or more"
    return f"from a reward of {least:g} on"


def _why_nothing(
    metrics: Metrics, seen: Sequence[Group], recipe: Recipe | None = None, *, noted: bool = False
) -> str:
    """The first reason that applies, so that a cause is not hidden by its consequences. Where a part
    of the method `noted` one, nothing is guessed of a step without anything to train on.
    """
    if any(values_of(metrics, "skipped")):
        return (
            "the loss or the gradient of the first step was not finite, so the weights did not "
            "move; look at rewards that are very large, and try --dtype float32 or a lower "
            "optimiser.lr"
        )
    if cut := _all_cut(seen, recipe):
        return cut
    norms = values_of(metrics, "grad_norm")
    answers = [e for g in seen for e in g.valid]
    if not norms and answers and all(e.muted for e in answers):
        return f"nothing was trained on in the first step: the method left out all {len(answers)} answers"
    if not norms and noted:
        return ""
    if not norms:
        return (
            "nothing was trained on in the first step: no answer, or pair of answers, had "
            "anything to learn from; pairs need a better and a worse answer to the same prompt (in "
            "data the columns `chosen` and `rejected`)"
        )
    if metrics["episodes"] > metrics["groups"]:
        return _all_alike(metrics)
    if not any(norms):
        return (
            "the gradient of the first step was 0: each problem had one answer, and nothing to "
            "compare it with; set sample.n to 2 or more"
        )
    return ""


def _all_cut(seen: Sequence[Group], recipe: Recipe | None) -> str:
    """All answers ended for the same lack of room."""
    # answers that were read from data have no sampled token
    episodes = [e for g in seen for e in g.episodes if e.ok and e.n_sampled]
    statuses = {e.status for e in episodes}
    if len(statuses) != 1 or (status := statuses.pop()) not in CUT:
        return ""
    most, cure = max(e.n_sampled for e in episodes), CUT[status]
    own = [x.turns_setting for _, x in values.walk(recipe) if isinstance(x, NamesTurns)]
    if status == "truncated:turns" and own:
        cure = f"raise {own[0]}"
    return f"all answers of the first step were cut at {most} tokens: {cure}"


def _all_alike(metrics: Metrics) -> str:
    if metrics.get("groups_mixed") != 0 or math.isnan(metrics["reward"]):  # nobody judged
        return ""
    return (
        "in the first step all answers to a problem had the same reward, whichever problem "
        f"(on average {metrics['reward']:.3g}), so group-relative methods such as GRPO learned "
        "nothing; where this goes on, try easier or harder problems, more answers each, or another "
        "reward"
    )


def values_of(metrics: Metrics, name: str) -> list[float]:
    """The metric of each learner; several learners prefix it."""
    return [v for k, v in metrics.items() if k.rpartition("/")[2] == name]


def check_weights(ctx: Any, metrics: Metrics) -> None:
    """Raises UserError that names the tensor if an update was not finite because a weight is not."""
    if not any(values_of(metrics, "skipped")):
        return
    for name in ctx.optimisers:
        for tensor, weight in ctx.model(name).module.named_parameters():
            if not torch.isfinite(weight).all():
                bad = int((~torch.isfinite(weight)).sum())
                raise UserError(
                    f"the model of learner {name!r} has {bad} weights that are not finite in "
                    f"{tensor}, so it cannot learn; start from a model or checkpoint without them"
                )
