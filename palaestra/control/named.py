"""Simulators as text, as `--env` takes them on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from palaestra.control.description import describe, read_description
from palaestra.control.gym import GymSimulator
from palaestra.control.parallel import ParallelSimulator
from palaestra.control.simulators import Simulator
from palaestra.control.vector import VectorSimulator
from palaestra.errors import UserError
from palaestra.tasks.spec import parse_alone, split_outside
from palaestra.tasks.user_code import load


def simulator_by_name(spec: str) -> Simulator:
    """A simulator from text.

    - gymnasium:ID (or gym:ID) is an environment of Gymnasium, vector:ID all its copies by one call. An id
      of another package has its module in front, gymnasium:MODULE:ID. Its keywords follow in brackets,
      with the `horizon` that an id without a limit of steps needs:
      gymnasium:highway_env:highway-fast-v0(horizon=30).
    - FILE.py:NAME has a simulator in arrays, a class or function without arguments that makes one, or
      one that makes an environment of Gymnasium or a parallel one of PettingZoo.
    - FILE.toml is one of these with what is said of it there, see `SimulatorDescription`.

    Raises UserError for anything else.
    """
    if spec.endswith(".toml"):
        description = read_description(Path(spec).expanduser())
        return describe(simulator_by_name(description.simulator), description, spec)
    for prefix in ("gymnasium:", "gym:"):
        if spec.startswith(prefix):
            name, horizon, settings = read_id(spec)
            return GymSimulator(name, horizon, settings)
    if spec.startswith("vector:"):
        name, horizon, settings = read_id(spec)
        return VectorSimulator(name, horizon, settings)
    return simulator_from(load(spec, "simulator"), spec)


def simulators_by_name(spec: str) -> tuple[Simulator, ...]:
    """Several simulators with commas between them, in their order; a comma in brackets or quotes is one of
    an id's settings. See `simulator_by_name`.
    """
    names = (name.strip() for name in split_outside(spec, ","))
    return tuple(simulator_by_name(name) for name in names if name)


def read_id(spec: str) -> tuple[str, int, dict[str, Any]]:
    """The id, the horizon (0 = open) and the keywords of PREFIX:ID(horizon=30, setting=value)."""
    prefix, _, rest = spec.partition(":")
    part = parse_alone(rest, f"{prefix}:ID or {prefix}:ID(horizon=STEPS, setting=value)")
    settings = dict(part.settings)
    horizon = settings.pop("horizon", 0)
    if not isinstance(horizon, int) or horizon < 0:
        raise UserError(f"{spec}: a horizon is a number of steps, not {horizon!r}")
    return part.name, horizon, settings


def simulator_from(own: Any, spec: str) -> Simulator:
    """A simulator from what a file names: one in arrays, or what makes one or an environment when it is
    called without arguments; `spec` is its name in errors.

    Raises UserError for anything else.
    """
    made: Any = (
        own() if isinstance(own, type) or (callable(own) and not hasattr(own, "reset")) else own
    )
    is_env = hasattr(made, "possible_agents") or hasattr(made, "action_space")
    if is_env and made is own:
        raise UserError(
            f"{spec} is one environment, and many copies are needed: name a function that makes one, or its class"
        )
    if hasattr(made, "single_action_space"):
        raise UserError(
            f"{spec} makes a vectorised environment of a number of copies that it chooses: write a function that makes "
            "palaestra.control.VectorSimulator(make, horizon), where make(n) makes one of n copies"
        )
    if hasattr(made, "possible_agents"):
        return ParallelSimulator(own)
    if hasattr(made, "action_space") and hasattr(made, "observation_space"):
        if (limit := time_limit(made)) is None:
            raise UserError(
                f"{spec} makes an environment without a time limit; wrap it, "
                "gymnasium.wrappers.TimeLimit(env, STEPS)"
            )
        return GymSimulator(own, limit)
    lacks = [n for n in ("agents", "horizon", "observation", "actions") if not hasattr(made, n)]
    lacks += [n for n in ("reset", "observe", "legal", "step") if not hasattr(made, n)]
    if lacks:
        raise UserError(
            f"{spec} is no simulator: it has no {' and no '.join(lacks)}; see "
            "palaestra.control.Simulator"
        )
    return made


def time_limit(env: Any) -> int | None:
    """Steps after which a wrapper of an environment cuts its games; None = none does."""
    while env is not None:
        limit = getattr(env, "_max_episode_steps", None)
        if isinstance(limit, int) and limit > 0:
            return limit
        inner = getattr(env, "env", None)
        env = None if inner is env else inner
    return None
