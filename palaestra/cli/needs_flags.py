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


def config(parser: FlagParser) -> None:
    add = parser.add_argument
    add(
        "words",
        nargs="+",
        metavar="FILE.yaml | KEY=VALUE",
        help="the file, and keys that stand over it",
    )
    add("--from", dest="of", choices=("verl",), required=True, help="whose configuration it is")
    add("--toml", action="store_true", help="print a file of settings for `palaestra train @FILE`")
    json_flag(parser)


def guide(parser: FlagParser) -> None:
    add = parser.add_argument
    add("action", choices=("init",), help="init: write a description of a simulator to correct")
    add("simulator", metavar="SIM", help="gymnasium:ID or FILE.py:NAME, as --env of a method")
    add("--goal", default="", metavar="TEXT", help="what is wanted, in words")
    add(
        "--llm",
        default="",
        metavar="MODEL",
        help="who gives the names: endpoint(url='...',model='...'), a model's folder or "
        "transcript:FILE; without it they are numbered",
    )
    add("--out", metavar="FILE.toml", default="simulator.toml", help="a new file")
    json_flag(parser)
