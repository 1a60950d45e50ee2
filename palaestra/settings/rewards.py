"""Rewards by name: what `--reward`, a key `reward` of TOML and `pl.train(reward=...)` take.

    math                                    a verifier, see `palaestra score --list`
    tags*0.1+math                           verifiers: their weighted mean
    FOLDER                                  a saved reward model, see `RewardModel`
    FOLDER*0.5+exact                        one in a sum
    my.py:score                             a function, or a reward that is composed already
    my.py:score*0.5+math+judge(url='http://localhost:8000/v1',model='m',rubric='...')*2

With a function, a judge or a model among them it is the weighted sum, and weights may be negative. `judge`
takes the fields of `Judge`, of its `Endpoint`, and `low` and `high` of the rating; without `url` the
model of that name in the run judges.
"""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, cast

from palaestra import values
from palaestra.context import RewardFn
from palaestra.errors import UserError
from palaestra.judges.pointwise import Judge
from palaestra.judges.reading import Rating
from palaestra.rewards.learned import RewardModel
from palaestra.rewards.user import UserReward
from palaestra.rewards.verified import Verified
from palaestra.rewards.weighted import Weighted
from palaestra.services.chat.endpoint import Endpoint
from palaestra.services.chat.local import LocalModel
from palaestra.suggest import no_setting, suggestion_or_all
from palaestra.tasks.spec import FILE_PART, SpecPart, parse_spec, read_weight, split_outside
from palaestra.tasks.user_code import load, spec_of
from palaestra.verifiers.registry import VERIFIERS

JUDGE = "judge"
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]*(?<!\.py)")  # OWNER/NAME


def reward_text(given: Any) -> str:
    """One text for what a program gives as a reward.

    Args:
        given: a text, a function, a composed reward, a sequence of these, which are added, or a
            mapping of them to their weights.
    """
    if isinstance(given, Mapping):
        return "+".join(f"{reward_text(x)}*{float(w)!r}" for x, w in given.items())
    if isinstance(given, list | tuple):
        return "+".join(map(reward_text, given))
    return given if isinstance(given, str) else spec_of(given)


def reward_by_name(given: str, timeout: float = UserReward.timeout) -> RewardFn:
    """The reward that a text names.

    Args:
        timeout: seconds of one call of a function.

    Raises:
        UserError: it cannot be read, or what it names cannot be found.
    """
    if Path(given).expanduser().is_dir() and given not in VERIFIERS:
        return RewardModel(given)
    if HUB_ID.fullmatch(given) and not Path(f"{given}.py").is_file():
        try:
            return RewardModel(given)
        except UserError as error:
            raise UserError(f"reward {given!r}: {error}") from None
    refuse_commas(given)
    if not _has_more_than_verifiers(given):
        return _verifier_reward(given)
    file, _, name = given.rpartition(":")
    if FILE_PART.fullmatch(given) or (name.isidentifier() and Path(file).is_file()):
        return _from_file(given, timeout)
    parts = _parts(given)
    names = part_names(["" if _is_saved(p.name) else p.name for p in parts])
    models = (f"model{n or ''}" for n in itertools.chain([0], itertools.count(2)))
    names = [name or next(models) for name in names]
    made = [
        (name, _reward(p, timeout), 1.0 if p.weight is None else p.weight)
        for name, p in zip(names, parts, strict=True)
    ]
    if len(made) == 1 and parts[0].weight is None:
        return made[0][1]
    repeated = [n for n, k in Counter(names).items() if k > 1]
    if repeated:
        raise UserError(f"reward {given!r}: {repeated[0]!r} stands twice; give it one weight")
    return Weighted(tuple(made))


def refuse_commas(given: str) -> None:
    """Raises UserError for rewards that are listed with commas, as tools are."""
    pieces = [piece.strip() for piece in split_outside(given, ",")]
    named = (
        FILE_PART.match(p) or p.partition("(")[0].partition("*")[0] in VERIFIERS for p in pieces
    )
    if len(pieces) > 1 and all(named):
        raise UserError(
            f"--reward {given}: several rewards are added: {shlex.quote('+'.join(pieces))}"
        )


def _verifier_reward(given: str) -> RewardFn:
    try:
        return Verified(given)
    except UserError:
        if not Path(f"{given}.py").is_file():
            raise
        raise UserError(
            f"no verifier {given!r}; a function of {given}.py is named {given}.py:FUNCTION"
        ) from None


def _is_saved(name: str) -> bool:
    """Whether a name is that of a saved reward model's folder."""
    return bool(name) and name not in VERIFIERS and Path(name).expanduser().is_dir()


def _saved_model(piece: str) -> SpecPart | None:
    """A part of a sum that is a saved reward model, FOLDER or FOLDER*2."""
    name, _, weight = map(str.strip, piece.rpartition("*") if "*" in piece else (piece, "", ""))
    if not _is_saved(name):
        return None
    weighed = read_weight(weight or None, piece, -math.inf)
    return SpecPart(name=name, settings={}, weight=weighed, text=name)


def _parts(given: str) -> list[SpecPart]:
    """The parts of a sum, saved models among them."""
    pieces = [piece.strip() for piece in split_outside(given, "+")]
    saved = [_saved_model(piece) for piece in pieces]
    if not any(saved):
        return parse_spec(given, "reward", least=-math.inf, files=True)
    return [
        part or parse_spec(piece, "reward", least=-math.inf, files=True)[0]
        for part, piece in zip(saved, pieces, strict=True)
    ]


def files_of_spec(given: str) -> list[str]:
    """The Python files that a text names, each as FILE.py:NAME."""
    pieces = (FILE_PART.match(piece.strip()) for piece in split_outside(given, "+"))
    return [m.group() for m in pieces if m]


def _has_more_than_verifiers(spec: str) -> bool:
    pieces = [piece.strip() for piece in split_outside(spec, "+")]
    words = (re.match(r"[\w-]+", piece) for piece in pieces)
    return (
        ".py" in spec
        or ":" in spec
        or any(w and w.group() == JUDGE for w in words)
        or any(map(_saved_model, pieces))
    )


def _from_file(spec: str, timeout: float) -> RewardFn:
    function = load(spec, "function")
    composed = is_dataclass(function) and not isinstance(function, type) and callable(function)
    return cast(RewardFn, function) if composed else UserReward(spec, timeout)


def part_names(specs: Sequence[str]) -> list[str]:
    """What the parts of a sum are called: functions by their names alone; those of one name in
    several files as FILE.NAME, with as many folders before FILE as tell the files apart.
    """
    names = [spec.rpartition(":")[2] for spec in specs]
    files = [spec.rpartition(":")[0].removesuffix(".py") for spec in specs]
    steps = [Path(file).expanduser().resolve().parts if file else () for file in files]
    named = [*names]
    for i, name in enumerate(names):
        others = [steps[j] for j in range(len(names)) if names[j] == name and steps[j] != steps[i]]
        if others and steps[i]:
            depths = range(1, len(steps[i]) + 1)
            alone = (d for d in depths if all(o[-d:] != steps[i][-d:] for o in others))
            named[i] = f"{'.'.join(steps[i][-next(alone, len(steps[i])) :])}.{name}"
    return named


def _reward(part: SpecPart, timeout: float) -> RewardFn:
    if _is_saved(part.name):
        return RewardModel(part.name)
    if FILE_PART.fullmatch(part.name):
        if part.settings:
            raise UserError(f"{part.name} takes no settings in brackets; write them into the file")
        return _from_file(part.name, timeout)
    if part.name == JUDGE:
        return judge_of(part.settings)
    if part.name not in VERIFIERS and not part.settings:
        known = [*VERIFIERS, JUDGE]
        hint = suggestion_or_all(part.name, known)
        raise UserError(f"no reward {part.name!r}{hint}")
    return Verified(part.text, beside=True)


def judge_of(given: Mapping[str, Any]) -> Judge:
    """A judge from settings by their names. Raises UserError for one that is none of them."""
    client: Any = LocalModel()
    if "url" in given:
        client = Endpoint(url=str(given["url"]))
    elif "model" in given:
        client = LocalModel(str(given["model"]))
    judge = Judge(client=client, read=Rating())
    places = {f.name: f"client.{f.name}" for f in fields(client)}
    places |= {f.name: f"read.{f.name}" for f in fields(Rating)}
    places |= {f.name: f.name for f in fields(Judge) if values.is_scalar(getattr(judge, f.name))}
    for name, x in given.items():
        if name not in places:
            raise UserError(no_setting("judge", name, ["url", *places]))
        judge = values.override(judge, places[name], x)
    return judge
