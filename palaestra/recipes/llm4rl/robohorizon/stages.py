"""Stages of a task and their rewards, as a language model writes them: a plan of stages with conditions,
then rewards of them, which are checked before anybody learns from them.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import BaseModel, Field, model_validator

import palaestra as pl

MOST, DRAWS = 8, 65_536  # stages; states that conditions and rewards are checked on
FEWEST = 16  # states on each side, below which a comparison says nothing
ERRORS = 3.0  # standard errors by which a step reward must be lower to be refused


class PlannedStage(BaseModel):
    """A stage is done where `done` is above 0.5."""

    name: str
    done: pl.control.Expression


class StagePlan(BaseModel):
    stages: list[PlannedStage] = Field(min_length=1, max_length=MOST)


class StageReward(BaseModel):
    """A small reward of every step in a stage, and a large one for having done it."""

    step: pl.control.Expression
    bonus: float = Field(gt=0.0, le=100.0)


class StageRewards(BaseModel):
    rewards: list[StageReward] = Field(min_length=1, max_length=MOST)


@pl.value_class
class StagedTask:
    """Stages with their rewards over declared quantities.

    "staged" pays bonuses and steps, "steps" the steps alone.
    """

    plan: StagePlan
    rewards: StageRewards
    words: pl.control.SimulatorWords

    def reached(self, paths: pl.control.Paths) -> np.ndarray:
        """[n, A, T] how many stages are done after a step: one counts from the step on at which its
        condition holds while all before it are done.
        """
        columns = self.words.compute(paths)
        done = [s.done for s in self.plan.stages]
        holds = pl.control.columns_of(done, columns, self.words.declared) > 0.5
        reached, N = np.zeros(holds.shape[:-1], int), holds.shape[-1]
        before = np.zeros(holds.shape[:2], int)
        for t in range(holds.shape[2]):
            now = np.minimum(before, N - 1)
            held = np.take_along_axis(holds[:, :, t], now[..., None], -1)[..., 0]
            before = np.minimum(before + held, N)
            reached[:, :, t] = before
        return reached

    def reward(self, paths: pl.control.Paths, bonuses: bool = True) -> np.ndarray:
        """[n, A, T] (sum of the bonuses of stages that are done + the step reward of the stage that is
        not) / sum of all bonuses.
        """
        columns, reached = self.words.compute(paths), self.reached(paths)
        steps = [r.step for r in self.rewards.rewards]
        step = pl.control.columns_of(steps, columns, self.words.declared)
        step = np.concatenate([step, np.zeros((*step.shape[:-1], 1))], -1)
        bonus = np.array([r.bonus for r in self.rewards.rewards])
        total = np.concatenate([[0.0], np.cumsum(bonus)])
        own = np.take_along_axis(step, reached[..., None], -1)[..., 0]
        return (total[reached] * bonuses + own) / total[-1]


def draw_states(declared: pl.control.Quantities, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """[DRAWS] every quantity, uniform within its bounds, independent of the others."""
    return {name: rng.uniform(q.low, q.high, DRAWS) for name, q in declared.items()}


def plan_form(declared: pl.control.Quantities, states: Mapping[str, np.ndarray]) -> type[StagePlan]:
    """The model of plans whose conditions hold in some states and not in others."""

    class CheckedStagePlan(StagePlan):
        @model_validator(mode="after")
        def check(self) -> "CheckedStagePlan":
            for stage in self.stages:
                if wrong := pl.control.lint_expression(stage.done, declared):
                    raise ValueError(f"stage {stage.name!r}: {wrong[0]}")
                holds = values(stage.done, states, declared) > 0.5
                if holds.all() or not holds.any():
                    when = "always" if holds.all() else "never"
                    within = spell_bounds(stage.done, declared)
                    raise ValueError(f"stage {stage.name!r}: its condition {when} holds{within}")
            return self

    return CheckedStagePlan


def spell_bounds(expression: pl.control.Expression, declared: pl.control.Quantities) -> str:
    """The bounds of the quantities that an expression reads, in words; "" where it reads none."""
    bounds = [f"{n} from {declared[n].low:g} to {declared[n].high:g}" for n in reads(expression)]
    return f" with {', '.join(bounds)}" if bounds else ""


def reads(expression: pl.control.Expression) -> list[str]:
    """The quantities that an expression reads, each once."""
    if isinstance(expression, str):
        return [expression]
    parts = () if isinstance(expression, int | float) else expression.args
    return list(dict.fromkeys(name for part in parts for name in reads(part)))


def rewards_form(declared: pl.control.Quantities, stages: int) -> type[StageRewards]:
    """The model of rewards that can be computed, one for each stage."""

    class CheckedStageRewards(StageRewards):
        @model_validator(mode="after")
        def check(self) -> "CheckedStageRewards":
            if len(self.rewards) != stages:
                raise ValueError(f"{len(self.rewards)} rewards for {stages} stages")
            for i, reward in enumerate(self.rewards, start=1):
                if wrong := pl.control.lint_expression(reward.step, declared):
                    raise ValueError(f"stage {i}: {wrong[0]}")
            return self

    return CheckedStageRewards


def reward_faults(
    plan: StagePlan,
    rewards: StageRewards,
    declared: pl.control.Quantities,
    states: Mapping[str, np.ndarray],
) -> list[str]:
    """What a lint finds in rewards that can be computed: a step reward that is lower on average where its
    stage is done than where it is not, as by a wrong sign, by more than the draw explains; and a bonus
    that is no larger than the step reward varies, so that waiting pays more than going on.
    """
    wrong = list[str]()
    for stage, reward in zip(plan.stages, rewards.rewards, strict=True):
        step = values(reward.step, states, declared)
        done = values(stage.done, states, declared) > 0.5
        if min(done.sum(), (~done).sum()) >= FEWEST and is_lower(step[done], step[~done]):
            wrong.append(
                f"stage {stage.name!r}: the step reward is {step[done].mean():.3g} on average where the "
                f"stage is done and {step[~done].mean():.3g} where it is not; it should grow towards the "
                "end of the stage"
            )
        if reward.bonus <= np.ptp(step):
            wrong.append(
                f"stage {stage.name!r}: the bonus {reward.bonus:g} is not above {np.ptp(step):.3g}, by "
                "which the step reward varies"
            )
    return wrong


def is_lower(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether the mean of one sample is below that of another by more than three standard errors of
    their difference. Quantities are drawn independently, so those that a stage does not name differ by
    chance alone.
    """
    error = np.sqrt(one.var() / len(one) + other.var() / len(other))
    rounding = 1e-9 * max(1.0, float(np.abs(one).max()))
    return bool(other.mean() - one.mean() > ERRORS * error + rounding)


def values(
    expression: pl.control.Expression,
    columns: Mapping[str, np.ndarray],
    declared: pl.control.Quantities,
) -> np.ndarray:
    """[...] of one expression."""
    return pl.control.columns_of([expression], columns, declared)[..., 0]


def staged_shaping(
    task: StagedTask,
    horizon: int,
    gamma: float,
    paid: float,
    bonuses: bool = True,
    key: pl.Key | None = None,
) -> pl.control.Shaping:
    """r = paid * (what the simulator pays) + the staged reward, of a game that ends early as if its last
    state stayed until the horizon.

    Args:
        key: gives every step the staged reward of another step of the same games, of those that were
            played; None = its own.
    """
    rng = None if key is None else pl.rng_of((*key, "shuffled"))

    def shaping(paths: pl.control.Paths) -> np.ndarray:
        staged = task.reward(paths, bonuses)
        alive = np.broadcast_to(paths["alive"][:, None], staged.shape)
        if rng is not None and alive.sum() > 1:
            staged[alive] = pl.control.shuffle_rows(staged[alive][:, None], rng)[:, 0]
        stay = pl.control.stay_rewards(staged, paths, horizon, gamma)
        return (paid * paths["reward"] + stay) * paths["alive"][:, None]

    return shaping


def spell_stages(plan: StagePlan) -> Sequence[str]:
    """Each in a line."""
    return [
        f"{i}. {stage.name}: done where {stage.model_dump_json(include={'done'})} is above 0.5"
        for i, stage in enumerate(plan.stages, start=1)
    ]
