"""Strategies by name: what `--with` and `pl.search.run(strategy=...)` take.

best-of-n                       one of `STRATEGIES`
beam(width=2,branch=8)          with settings: the fields of its class
my.py:Shortest                  a strategy of the user's own: an object, or a class of one
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from palaestra.context import RewardFn
from palaestra.errors import UserError
from palaestra.search.blocks import NavigatedBlocks
from palaestra.search.hybrid import HybridReasoning
from palaestra.search.infused import InfusedDecoding
from palaestra.search.mixture import MixtureDecoding
from palaestra.search.problem import Strategy
from palaestra.search.rounds import AnswerRounds
from palaestra.search.sampling import BestAnswer, MajorityVote, WeightedVote
from palaestra.search.trees import BeamSearch, MonteCarloSearch
from palaestra.settings.rewards import reward_by_name
from palaestra.suggest import no_setting, suggestion_or_all
from palaestra.tasks.spec import FILE_PART, parse_spec
from palaestra.tasks.user_code import load

STRATEGIES: Mapping[str, Strategy] = {
    "best-of-n": BestAnswer(),
    "majority": MajorityVote(),
    "weighted": WeightedVote(),
    "beam": BeamSearch(),
    "mcts": MonteCarloSearch(),
    "multi-round": AnswerRounds(),
    "rlot": NavigatedBlocks(),
    "kid": InfusedDecoding(),
    "collab": MixtureDecoding(),
    "nl-fl-hybrid": HybridReasoning(),
}


def strategy_by_name(given: str | Strategy) -> tuple[str, Strategy]:
    """What a strategy is called, and the strategy.

    Args:
        given: a text as above, or a strategy, which is called as its class.

    Raises:
        UserError: it cannot be read, or what it names is no strategy.
    """
    if not isinstance(given, str):
        return type(given).__name__, _checked(given, type(given).__name__)
    parts = parse_spec(given, "strategy", files=True)
    if len(parts) > 1 or parts[0].weight is not None:
        raise UserError(f"--with takes one strategy, not {given!r}; several: --with A --with B")
    (part,) = parts
    if FILE_PART.fullmatch(part.name):
        loaded = load(part.name, "strategy")
        if isinstance(loaded, type):
            return part.text, _checked(_made(loaded, part.settings, part.name), part.name)
        own = _checked(loaded, part.name)
        return part.text, _changed(own, part.settings, part.name) if part.settings else own
    if part.name not in STRATEGIES:
        hint = suggestion_or_all(part.name, STRATEGIES)
        raise UserError(f"no strategy {part.name!r}{hint}; or FILE.py:NAME")
    return part.text, _changed(STRATEGIES[part.name], part.settings, part.name)


def scorer_by_name(given: str) -> RewardFn | None:
    """What scores answers without the gold answer: a folder, or any reward as text; "" = none.

    Raises:
        UserError: it cannot be found.
    """
    if not given:
        return None
    path = Path(given).expanduser()
    if "/" in given and ".py" not in given and "(" not in given and not path.is_dir():
        near = path.parent if path.parent.is_dir() else None
        there = (
            f"; there are {', '.join(sorted(p.name for p in near.iterdir())[:8])}" if near else ""
        )
        if near or given.count("/") > 1:  # else it may be OWNER/NAME of the hub
            raise UserError(f"--reward-model {given}: no such folder{there}")
    return reward_by_name(given)


def file_name(name: str) -> str:
    """A strategy's name as a part of a file name."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-")


def _checked(strategy: Any, name: str) -> Strategy:
    if not isinstance(strategy, Strategy) or isinstance(strategy, type):
        raise UserError(
            f"{name} is no strategy; write a frozen dataclass with `async def __call__(self, problem)`"
            ", which returns problem.result(answer, answers)"
        )
    return strategy


def _made(kind: type, settings: Mapping[str, Any], name: str) -> Any:
    known = [f.name for f in fields(kind)] if is_dataclass(kind) else []
    if unknown := [n for n in settings if n not in known]:
        raise UserError(no_setting(name, unknown[0], known))
    try:
        return kind(**settings)
    except TypeError as error:
        raise UserError(f"{name}: {error}") from None


def _changed(strategy: Strategy, settings: Mapping[str, Any], name: str) -> Strategy:
    if not settings:
        return strategy
    if not is_dataclass(strategy) or isinstance(strategy, type):
        raise UserError(f"{name} is no dataclass, so it takes no settings")
    known = [f.name for f in fields(strategy)]
    if unknown := [n for n in settings if n not in known]:
        raise UserError(no_setting(name, unknown[0], known))
    try:
        return replace(strategy, **settings)
    except TypeError as error:
        raise UserError(f"{name}: {error}") from None
