"""How flags are read and explained: the parser, numbers, settings as flags, and the flags of several verbs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import Field, fields
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

from palaestra.errors import UserError
from palaestra.run.settings import Settings, flag_of
from palaestra.suggest import from_elsewhere, suggestion


class FlagParser(argparse.ArgumentParser):
    """Reports a mistake in one line, with the closest flag."""

    def error(self, message: str) -> NoReturn:
        if "unrecognized arguments:" in message:
            word = message.split("unrecognized arguments:")[1].split()[0]
            flags = [f for action in self._actions for f in action.option_strings]
            flag = word.split("=")[0]
            here = from_elsewhere(flag) if self.prog.endswith(" train") else ""
            near = here or suggestion(flag, flags, cutoff=0.5)
            message = f"unknown argument {word}{near or f'; see {self.prog} --help'}"
        raise UserError(message)


def whole_number(least: int) -> Callable[[str], int]:
    """Reads a whole number of at least `least`."""

    def read(text: str) -> int:
        try:
            n = int(text)
        except ValueError:
            n = least - 1
        if n < least:
            raise argparse.ArgumentTypeError(
                f"takes a whole number of at least {least}, not {text!r}"
            )
        return n

    return read


def whole_numbers(least: int) -> Callable[[str], list[int]]:
    """Reads whole numbers of at least `least`, with commas between them."""
    one = whole_number(least)
    return lambda text: list(dict.fromkeys(one(part) for part in text.split(",")))


def setting_flags(parser: FlagParser, which: str) -> None:
    """Adds the flags of the settings of every verb, or of `train` alone. The default is None."""
    hints = get_type_hints(Settings)
    for f in fields(Settings):
        if f.metadata.get("flag") == which:
            parser.add_argument(flag_of(f.name), help=help_of(f), **form_of(f, hints[f.name]))


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
    """What a setting is, and its default."""
    said = f.default not in ("", None, ()) and f.default is not False
    default = f"{f.default:g}" if isinstance(f.default, float) else f"{f.default}" if said else ""
    shown = " = ".join(filter(None, (default, f.metadata["means"])))
    return f.metadata["text"] + (f" (default: {shown})" if shown else "")


def run_flags(parser: FlagParser) -> None:
    """Flags that describe a run: task, model, device."""
    setting_flags(parser, "every")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the result as one JSON object on the last line of standard output",
    )
    trust_flag(parser)


def trust_flag(parser: FlagParser) -> None:
    parser.add_argument(
        "--trust",
        action="store_true",
        help="execute the Python files and tool servers that a settings file or run folder names, "
        "without asking first",
    )


def json_flag(parser: FlagParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print the result as one JSON object on the last line"
    )


def share(text: str) -> tuple[int, int]:
    """ "3/10" as (3, 10). Raises argparse.ArgumentTypeError for what is no share."""
    k, _, n = text.partition("/")
    if not (k.isdecimal() and n.isdecimal() and 0 <= int(k) <= int(n) and int(n)):
        raise argparse.ArgumentTypeError(f"{text!r} is no share; write the third tenth as 3/10")
    return int(k), int(n)


def jobs_flag(parser: FlagParser) -> None:
    parser.add_argument(
        "--jobs",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="number of parallel runs (default: one per core)",
    )
