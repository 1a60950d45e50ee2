"""`palaestra config`: the command for a configuration of another trainer."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from palaestra import values
from palaestra.cli.train import read_settings
from palaestra.errors import UserError
from palaestra.settings import overrides
from palaestra.settings.verl import VerlTranslation, translate

MOST = 40  # keys of where and how fast that are named


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    made = translate(read_config(arguments.words))
    command = shlex.join(["palaestra", "train", *made.argv])
    settings = settings_of(made)
    if arguments.toml:
        print(values.to_toml(settings), end="")
    elif not arguments.json:
        print(command)
    if not arguments.json:
        print("\n".join(f"# {line}" for line in remarks(made)))
    return {"command": command, "settings": settings, "left": made.left, "places": made.places}


def settings_of(made: VerlTranslation) -> dict[str, Any]:
    """As a file of settings. Raises UserError for what `train` would refuse."""
    from palaestra.cli.main import parser_of

    settings = read_settings(parser_of("train").parse_intermixed_args(made.argv))
    overrides.recipe_of(settings)
    given = {w[2:].replace("-", "_") for w in made.argv if w.startswith("--")}
    named = {k: getattr(settings, k) for k in sorted(given)}
    return {"recipe": settings.recipe, **named, "set": dict(settings.set)}


def remarks(made: VerlTranslation) -> list[str]:
    """What the command does not hold."""
    lines = [f"not translated: {len(made.left)}"] + [
        f"  {key}: {why}" for key, why in made.left.items()
    ]
    if made.places:
        places = ", ".join(made.places[:MOST])
        more = f" and {len(made.places) - MOST} more" if len(made.places) > MOST else ""
        lines.append(f"where and how fast, left out: {places}{more}")
    return [*lines, "what the file does not say is as verl's defaults have it"]


def read_config(words: list[str]) -> dict[str, Any]:
    """The configuration of a YAML file and of words key=value, which stand over it."""
    import yaml

    whole: dict[str, Any] = {}
    for word in words:
        name, sign, given = word.partition("=")
        try:
            if sign:
                _put(whole, name.lstrip("+~"), yaml.safe_load(given))
                continue
            read = yaml.safe_load(Path(word).read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"cannot read {word}: {error.strerror}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise UserError(f"{word} is not YAML: {str(error).splitlines()[0]}") from None
        if not isinstance(read, dict):
            raise UserError(f"{word}: a configuration of verl is a mapping of keys")
        _merge(whole, _floats(read))
    return _floats(whole)


def _merge(whole: dict[str, Any], more: dict[str, Any]) -> None:
    for key, given in more.items():
        if isinstance(given, dict) and isinstance(whole.get(key), dict):
            _merge(whole[key], given)
        else:
            whole[key] = given


def _put(whole: dict[str, Any], path: str, given: Any) -> None:
    *places, name = path.split(".")
    for place in places:
        inner = whole.setdefault(place, {})
        whole = inner if isinstance(inner, dict) else {}
    whole[name] = given


def _floats(part: Any) -> Any:
    """Numbers such as 1e-6, which YAML 1.1 reads as text without a point, as numbers."""
    if isinstance(part, dict):
        return {str(k): _floats(x) for k, x in part.items()}
    if isinstance(part, list):
        return [_floats(x) for x in part]
    if isinstance(part, str) and part[:1] in "+-.0123456789" and "e" in part.lower():
        try:
            return float(part)
        except ValueError:
            return part
    return part
