"""The settings of a run as flags of the command line."""

from __future__ import annotations

import argparse
from dataclasses import Field, fields
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

from palaestra.errors import UserError
from palaestra.settings.fields import Settings, flag_of
from palaestra.suggest import from_elsewhere, suggestion


class FlagParser(argparse.ArgumentParser):
    """Says what is wrong in one line, with the closest flag."""

    def error(self, message: str) -> NoReturn:
        if "unrecognized arguments:" in message:
            word, *more = message.split("unrecognized arguments:")[1].split()
            flags = [f for action in self._actions for f in action.option_strings]
            flag = word.split("=")[0]
            value = more[0] if more and not more[0].startswith("-") else ""
            here = from_elsewhere(word, value=value) if self.prog.endswith(" train") else ""
            near = here or suggestion(flag, flags, cutoff=0.5)
            message = f"unknown argument {word}{near or f'; see {self.prog} --help'}"
        raise UserError(message)


def setting_flags(parser: FlagParser, which: str) -> None:
    """The flags of the settings that are every verb's, or `train`'s alone. One that is not given is
    None.
    """
    for f in fields(Settings):
        if f.metadata.get("flag") == which:
            setting_flag(parser, f.name)


def setting_flag(parser: FlagParser, name: str) -> None:
    """The flag of one setting."""
    (f,) = (f for f in fields(Settings) if f.name == name)
    hint = get_type_hints(Settings)[name]
    parser.add_argument(flag_of(name), help=help_of(f), **form_of(f, hint))


def form_of(f: Field[Any], hint: Any) -> dict[str, Any]:
    """How argparse reads a setting of this type."""
    if hint is bool:
        return {"action": "store_const", "const": True}
    about = {k: v for k in ("metavar", "choices") if (v := f.metadata[k])}
    if get_origin(hint) is tuple:
        return {"action": "append", **about}
    numbers = [t for t in (hint, *get_args(hint)) if t in (int, float)]
    return {"type": numbers[0], **about} if numbers else about


def help_of(f: Field[Any]) -> str:
    """What a setting is, and what stands where it is not given."""
    has_default = f.default not in ("", None, ()) and f.default is not False
    default = (
        f"{f.default:g}" if isinstance(f.default, float) else f"{f.default}" if has_default else ""
    )
    default_text = " = ".join(filter(None, (default, f.metadata["means"])))
    return f.metadata["text"] + (f" (default: {default_text})" if default_text else "")
