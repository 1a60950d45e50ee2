"""The flags of the verbs in which players meet."""

from __future__ import annotations

from palaestra.cli.flag_forms import run_flags, whole_number
from palaestra.settings.flags import FlagParser

PLAYERS = (
    "policy (the model of --model), model:DIR, endpoint:URL, endpoint(url='URL', model='NAME'), "
    "random, FILE.py:NAME"
)


def play(parser: FlagParser) -> None:
    _world(parser)
    add = parser.add_argument
    add("--seats", default="policy,random", metavar="PLAYER,...",
        help=f"who plays each seat, in the world's order: {PLAYERS}, human (default: policy,random)")  # fmt: skip
    add("--n", type=whole_number(1), default=1, help="number of games (default: 1)")
    run_flags(parser)


def tournament(parser: FlagParser) -> None:
    _world(parser)
    add = parser.add_argument
    add("players", nargs="+", metavar="PLAYER", help=f"at least two: {PLAYERS}")
    add("--n", type=whole_number(1), default=32,
        help="deals of each pair; each is played twice, with the seats swapped (default: 32)")  # fmt: skip
    add("--out", metavar="DIR", help="folder of the games; the same command goes on there "
        "(default: runs/tournament-WORLD-sSEED)")  # fmt: skip
    add(
        "--exact",
        action="store_true",
        help="exploitability of models in tic-tac-toe too, which takes minutes",
    )
    run_flags(parser)


def _world(parser: FlagParser) -> None:
    add = parser.add_argument
    add("world", metavar="WORLD", help="kuhn, tictactoe, mnk, decrypto, collab-capture, collab-escape, "
        "written-games, another library's such as spiel:connect_four, or FILE.py:CLASS")  # fmt: skip
    text = "sampling temperature of models (default: 1)"
    add("--temperature", type=float, default=1.0, help=text)


def serve(parser: FlagParser) -> None:
    add = parser.add_argument
    add("world", nargs="?", default="", metavar="WORLD", help="a built-in environment, another "
        "library's, or FILE.py:CLASS (default: that of --task or --env)")  # fmt: skip
    add("--port", type=whole_number(0), default=8766, help="0 = any free one (default: 8766)")
    text = "address to listen on (default: 127.0.0.1, this machine only)"
    add("--host", default="127.0.0.1", help=text)
    run_flags(parser)
