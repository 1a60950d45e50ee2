"""The built-in games, by name, and the functions that play against the policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from palaestra.rollout.player import Script
from palaestra.types import Player
from palaestra.worlds.adapters.base import AdaptedTasks
from palaestra.worlds.bandit import BanditTasks, bandit_by_name
from palaestra.worlds.collab import CollabTasks, game_by_name
from palaestra.worlds.collab_capture import CollabCapture
from palaestra.worlds.collab_escape import CollabEscape
from palaestra.worlds.decrypto import Decrypto, DecryptoTasks, decrypto_by_name
from palaestra.worlds.kuhn import kuhn
from palaestra.worlds.mnk import Mnk, MnkTasks, board_by_name
from palaestra.worlds.tictactoe import TicTacToe, TicTacToeTasks, random_move
from palaestra.worlds.written.game import WrittenGame, WrittenGameTasks, written_by_name

# by name: its tasks, and its world
GAME_WORLDS: Mapping[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "tictactoe": (TicTacToeTasks, TicTacToe),
    "tictactoe-legal": (
        lambda: TicTacToeTasks(name="tictactoe-legal"),
        lambda: TicTacToe(illegal="never"),
    ),
    "mnk": (MnkTasks, Mnk),
    "decrypto": (DecryptoTasks, Decrypto),
    "written-games": (WrittenGameTasks, WrittenGame),
    "bandit": (BanditTasks, lambda: bandit_by_name("bandit")[1]),
    "kuhn": (lambda: AdaptedTasks(kuhn(), "kuhn"), kuhn),
    "collab-capture": (lambda: CollabTasks("collab-capture"), CollabCapture),
    "collab-escape": (lambda: CollabTasks("collab-escape"), CollabEscape),
}
# games that take settings, by what reads these
GAMES: Mapping[str, Callable[[str], Any]] = {
    "mnk": board_by_name,
    "decrypto": decrypto_by_name,
    "written-games": written_by_name,
    "bandit": bandit_by_name,
    "collab-capture": partial(game_by_name, kind=CollabCapture),
    "collab-escape": partial(game_by_name, kind=CollabEscape),
}
OPPONENTS: Mapping[str, Mapping[str, Player]] = {
    spec: {"o": Script(fn=random_move, name="random")} for spec in ("tictactoe", "tictactoe-legal")
}
