"""The command that trains one arm of an experiment: the measured setting, to be tried on one's own."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_type_hints

from palaestra import catalogue, values
from palaestra.errors import UserError
from palaestra.ledger.experiment import START, Experiment
from palaestra.ledger.files import parted
from palaestra.pipeline import Pipeline
from palaestra.run.setup import arguments, build


def commands_of(name: str, experiment: Experiment, result: Mapping[str, Any]) -> list[str]:
    """Of each measured arm its name as a comment, and a command behind it.

    That is `palaestra train` with the words that make the arm's recipe of a method's default, where
    there are such words, on the first task and the model of the experiment. Of other arms it is a
    trial with one seed, which needs no such words.

    Args:
        name: the experiment, for instance "muldimif@small".
        result: its arms, with the setting that was chosen for each.
    """
    lines: list[str] = []
    for arm, measured in result["arms"].items():
        if arm == START or arm not in experiment.every_arm:
            continue
        setting = measured.get("setting", {})
        lines.append(f"# {arm}")
        lines.append(train_command(name, experiment, arm, setting) or trial_command(name, arm))
    return lines


def train_command(
    name: str, experiment: Experiment, arm: str, setting: Mapping[str, Any]
) -> str | None:
    """`palaestra train` of an arm; None where no words of a command line make its recipe."""
    try:
        recipe = experiment.arm_with(arm, setting)
    except UserError:
        return None  # it was measured with a field that the arm does not have any more
    method = parted(name)[0]
    if isinstance(recipe, Pipeline):
        return None  # its first part is what arms share, which a command would train anew
    bases = dict.fromkeys((method, catalogue.parent_of(method), "grpo"))
    tried = [(base, fields_for(base, {}, recipe)) for base in bases if base]
    fits = [(base, words) for base, words in tried if words is not None]
    fits = fits or [(method, words) for words in [words_for(method, recipe)] if words is not None]
    if not fits:
        return None
    base, words = min(fits, key=lambda fit: len(fit[1]))
    told = [f"{path}={shlex.quote(text)}" for path, text in words.items()]
    problem = ["--task", shlex.quote(experiment.tasks[0]), "--model", experiment.model]
    return " ".join(["palaestra train", base, *told, *problem])


def trial_command(name: str, arm: str) -> str:
    """One seed of an arm, as the experiment runs it."""
    method, tier = parted(name)
    parts = ["palaestra reproduce", method, *(["--tier", tier] if tier else [])]
    return " ".join([*parts, "--arms", shlex.quote(arm), "--seeds 1"])


def words_for(method: str, recipe: Any) -> dict[str, str] | None:
    """The arguments of a method's `build` and the values of fields that make a recipe of its
    default, as they are typed; None where the two differ in more than such words say.
    """
    given: dict[str, str] = {}
    fewest = _differences(method, given, recipe)
    while fewest:  # one argument more, as long as one brings the recipe nearer
        tried = [
            (len(found), {**given, name: text})
            for name, text in _arguments(method, fewest)
            if name not in given
            and (found := _differences(method, {**given, name: text}, recipe)) is not None
        ]
        best = min(tried, key=lambda t: t[0], default=(len(fewest), given))
        if best[0] >= len(fewest):
            break
        given = best[1]
        fewest = _differences(method, given, recipe)
    return fields_for(method, given, recipe)


def fields_for(method: str, given: Mapping[str, str], recipe: Any) -> dict[str, str] | None:
    """Arguments of a method's `build` with the values of fields that make the recipe of what they
    build; None where the two differ in more than single values.
    """
    lacks = _differences(method, given, recipe)
    if lacks is None or not all(path and values.is_scalar(after) for path, _, after in lacks):
        return None
    words = {path: str(after) for path, _, after in lacks} | dict(given)
    return words if _differences(method, words, recipe) == [] else None


def _differences(
    method: str, words: Mapping[str, str], recipe: Any
) -> list[tuple[str, Any, Any]] | None:
    """What a method with these words lacks to be the recipe; None where it does not take them."""
    try:
        return values.difference(build(method, words), recipe)
    except UserError:
        return None


def _arguments(method: str, lacks: Sequence[tuple[str, Any, Any]]) -> list[tuple[str, str]]:
    """Arguments of a method's `build`, each with values that stand in what the recipe has and the
    method lacks, or between which its annotation lets one choose, or 0.
    """
    there = dict.fromkeys(
        leaf
        for _, _, after in lacks
        for _, leaf in [("", after), *values.walk(after)]
        if isinstance(leaf, bool | int | float | str)
    )
    found: list[tuple[str, str]] = []
    try:
        hints = get_type_hints(catalogue.find(method).build)
    except NameError:  # an annotation that only type checkers import
        hints = {}
    for name, argument in arguments(method).items():
        hint = hints.get(name, argument.annotation)
        choices = [True, False] if hint is bool else get_args(hint)
        like = [x for x in there if type(x) is type(argument.default)]
        like += [0.0] if isinstance(argument.default, float) else []  # which turns a part off
        tried = dict.fromkeys([*like, *(c for c in choices if isinstance(c, str | bool))])
        found += [(name, str(x)) for x in tried if x != argument.default]
    return found
