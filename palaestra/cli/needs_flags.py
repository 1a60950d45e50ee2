"""The flags of the verbs that say, or write, what a method needs of its user."""

from __future__ import annotations

from palaestra.cli.flag_forms import json_flag
from palaestra.settings.flags import FlagParser


def needs(parser: FlagParser) -> None:
    add = parser.add_argument
    add("method", help="a method of `palaestra list`, or FILE.py")
    add("words", nargs="*", metavar="ARGUMENT=VALUE", help="arguments that change what is needed")
    add("--template", metavar="FILE.jsonl", help="write three example rows into this file")
    json_flag(parser)


def init(parser: FlagParser) -> None:
    add = parser.add_argument
    add("method", help="a method of `palaestra list`")
    add("folder", metavar="DIR", help="a new folder")
    add("words", nargs="*", metavar="ARGUMENT=VALUE", help="arguments of the method")
    json_flag(parser)
