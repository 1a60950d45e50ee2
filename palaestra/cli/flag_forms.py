"""Flags that several verbs share, and how numbers among them are read."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from palaestra.settings.flags import FlagParser, setting_flags


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


def search_flags(parser: FlagParser, *, several: bool = False) -> None:
    """Flags that say how a search is made; `several` strategies, or one."""
    add = parser.add_argument
    names = (
        "best-of-n, majority, weighted, beam, mcts, multi-round, rlot, kid, collab, nl-fl-hybrid, with "
        "settings in brackets: beam(width=2)"
    )
    kind: dict[str, Any] = (
        {"action": "append", "default": []} if several else {"default": "best-of-n"}
    )
    more = "also draw accuracy against generated tokens with this search; may be repeated: "
    add(
        "--with",
        dest="strategy",
        metavar="NAME | FILE.py:NAME",
        help=(more if several else "the strategy: ")
        + names
        + ("" if several else " (default: best-of-n)"),
        **kind,
    )
    add(
        "--budget",
        type=whole_number(1),
        default=0,
        metavar="TOKENS",
        help="generated tokens for each problem (default: 8 answers of the greatest length)",
    )
    add(
        "--reward-model",
        default="",
        metavar="DIR | REWARD",
        help="what scores answers without the gold answer: a reward model, or any reward (default: the "
        "problem's verifier, which has the answer: the search is then named an oracle)",
    )


def gpu_flags(parser: FlagParser) -> None:
    """Flags that choose slices of the GPU programme."""
    add = parser.add_argument
    names: dict[str, Any] = {"nargs": "+", "action": "extend", "default": [], "metavar": "NAME"}
    add("--only", help="gpu: run these slices, kinds or sizes, unless they are done", **names)
    add("--again", help="gpu: run these again; without --only, nothing else", **names)
    add("--list", action="store_true", help="gpu: list the slices with their state")
    add(
        "--limit",
        type=whole_number(10),
        default=480,
        metavar="S",
        help="gpu: time limit of a slice in seconds (default: 480)",
    )
    add(
        "--models",
        metavar="DIR",
        help="gpu: store its models with random weights in this folder; your own model with the same "
        "name is used instead (default: a temporary folder)",
    )
