"""The verifier that a recipe trains on, by which answers to held-out problems are judged too."""

from __future__ import annotations

from typing import Any

from palaestra import values
from palaestra.context import RewardFn, Runnable
from palaestra.method import Recipe
from palaestra.pipeline import Pipeline
from palaestra.rewards.verified import Verified
from palaestra.rewards.verify import Exact, Verify
from palaestra.rewards.where import Where
from palaestra.rollout.collect import Score
from palaestra.schedule import Scheduled
from palaestra.verifiers.registry import known_entry


def own_verifier(recipe: Runnable | None, *, without_answers: bool) -> RewardFn | None:
    """The one reward of a recipe that checks answers by a verifier; None = it has none.

    A reward of a model, or of votes, is a proxy of what is wanted, so it judges no held-out answer;
    neither does one whose numbers change on the way. A `Where` that leaves some problems to the
    reward of the data does so only for data `without_answers`, which have no other. Of a pipeline it
    is that of its parts, see `_verifier_of_parts`.
    """
    if isinstance(recipe, Pipeline):
        return _verifier_of_parts(recipe, without_answers)
    if not isinstance(recipe, Recipe):
        return None
    rewards = [part.reward for _, part in values.walk(recipe) if isinstance(part, Score)]
    if not rewards or any(x is None or x != rewards[0] for x in rewards):
        return None
    reward = rewards[0]
    parts = [reward, *(x for _, x in values.walk(reward))]
    if not any(isinstance(x, Verified) and not reads_form(x) for x in parts):
        return None
    if any(isinstance(x, Scheduled) for x in parts):
        return None
    if any(isinstance(x, Where) and x.other is None for x in parts):
        return close(reward) if without_answers else None
    return reward


def _verifier_of_parts(pipeline: Pipeline, without_answers: bool) -> RewardFn | None:
    """The one verifier of the parts of a pipeline that train on the problem of the run; None = they have
    none, or several. A part with models of its own pays by these, which others do not have.
    """
    alike = [p.runnable for p in pipeline.parts.values() if not p.models and not p.problem]
    each = [own_verifier(x, without_answers=without_answers) for x in alike]
    verifiers = [x for x in each if x is not None]
    return verifiers[0] if verifiers and all(x == verifiers[0] for x in verifiers) else None


def reads_form(verified: Verified) -> bool:
    """Whether a verifier reads no answer, so that it judges none."""
    entry = known_entry(verified.name)
    return entry is not None and entry.form


def trains_on(recipe: Recipe, reward: RewardFn | None) -> bool:
    """Whether a recipe names this reward itself, so that it is not that of the problem."""
    rewards = [x.reward for _, x in values.walk(recipe.collect) if isinstance(x, Score)]
    return reward is not None and reward in rewards


def close(reward: Any) -> RewardFn:
    """The same reward, by exact answers where it leaves a problem to the reward of the data."""
    if not isinstance(reward, Where):
        return reward
    other = Verify(Exact()) if reward.other is None else close(reward.other)
    return Where(reward.field, close(reward.reward), other)


def names_of(reward: RewardFn) -> str:
    """The verifiers of a reward, as `--reward` names them."""
    parts = [reward, *(x for _, x in values.walk(reward))]
    return " and ".join(dict.fromkeys(x.name for x in parts if isinstance(x, Verified)))
