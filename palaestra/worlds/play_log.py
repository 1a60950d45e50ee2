"""Logged games as questions of one step: what should be done in this state?

    {"game": "g7", "frame": 12, "state": {"time": 300, "team": {...}}, "event": ""}
    {"game": "g7", "frame": 13, "state": {...}, "event": "secure the dragon", "player": "mid", "won": true}

A row is a key frame as one player saw it. `event` names the macro action that a frame reveals, or a list
of these; most frames reveal none, and have the label of an event that follows (`palaestra.tasks.relabel`).
Frames without a label are left out. `player` tells the players of a game apart; `won`, if all rows have it,
lets as many won as lost games teach; `legal` lists the actions that were possible.

Whole games are held out: those of a second file, with the split "test", or a tenth.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.needs.declared import truth_of
from palaestra.tasks.logs import finite, read_log_rows, split_of_row
from palaestra.tasks.records import Record, describe_value
from palaestra.tasks.relabel import relabel_frames, state_text
from palaestra.types import Message, Task, need_at_least, seed_of, stage, value_class
from palaestra.worlds.explore import read_arm

ASK = (
    "You play a game, and see this state of it:\n{state}\n\nWhat is to be done next? Think about it, then choose one of "
    "these actions: {actions}. End with the action alone on the last line."
)
HELD_OUT_SHARE = 0.1
SHAPE = '{"game": "g1", "frame": 1, "state": {...}, "event": "..."}'


@value_class
class LoggedFrame:
    """A key frame as one player saw it."""

    game: str
    player: str
    frame: float
    state: Any
    events: tuple[str, ...]
    won: bool | None
    legal: tuple[str, ...]
    split: str


def read_frame(record: Record, where: str, split: str = "") -> LoggedFrame:
    """A row of a log of games. Raises UserError where something is missing."""
    game, state, won = record.get("game"), record.get("state"), record.get("won")
    if isinstance(game, bool) or not isinstance(game, str | int) or game == "":
        raise UserError(f"{where}: game is {describe_value(game)}; write the name of the game")
    if state is None or state in ("", {}, []):
        raise UserError(f"{where}: state is {describe_value(state)}; write an object, or text")
    if won is not None and truth_of(won) is None:
        raise UserError(f"{where}: won is {describe_value(won)}; write true or false")
    player = record.get("player")
    return LoggedFrame(
        game=str(game),
        player="" if player is None else str(player),
        frame=finite(record.get("frame"), f"{where}: frame"),
        state=state,
        events=_names(record.get("event"), f"{where}: event"),
        won=None if won is None else truth_of(won),
        legal=_names(record.get("legal"), f"{where}: legal"),
        split=split_of_row(record, where, split),
    )


def _names(value: Any, what: str) -> tuple[str, ...]:
    empty = value is None or value == "" or value != value  # NaN is an empty cell of a table
    given = value if isinstance(value, list | tuple) else [] if empty else [value]
    if not all(isinstance(x, str) and x.strip() for x in given):
        raise UserError(
            f"{what} is {describe_value(value)}; write the name of an action, or a list"
        )
    return tuple(" ".join(str(x).split()) for x in given)


@value_class
class LabelledPlay:
    """The frames of both splits with their labels, as (frame, action, ahead), and what is to be said of
    them. `actions` are all that events reveal, the most important one first.
    """

    frames: Mapping[str, tuple[tuple[LoggedFrame, str, float], ...]]
    actions: tuple[str, ...]
    notes: tuple[str, ...]


@lru_cache(maxsize=16)
def load_play(
    path: str, test: str, columns: str, skip: str, window: float, priority: str, balance: bool,
    folder: str,
) -> LabelledPlay:  # fmt: skip
    """Reads and labels a log. `folder` is where relative paths start.

    Raises:
        UserError: nothing is labelled in a split, fewer than two actions or games are there, or the
            priority names an action that no event has.
    """
    files = [path, test] if test else [path]
    read = [read_log_rows(f, read_frame, columns, skip, SHAPE) for f in files]
    parts = split_games(path, read[0][0], read[1][0] if test else [])
    counts = Counter(e for f in parts["train"] for e in f.events)
    known = {e for frames in parts.values() for f in frames for e in f.events}
    given = tuple(filter(None, map(str.strip, priority.split(","))))
    if unknown := [x for x in given if x not in known]:
        raise UserError(f"{path}: priority names {unknown[0]!r}, and no event is called so")
    if len(known) < 2:
        raise UserError(
            f"{path}: events reveal {len(known)} actions, and a choice needs two or more"
        )
    rest = sorted(known - {*given}, key=lambda x: (counts[x], x))
    actions, notes = (*given, *rest), [note for _, note in read if note]
    if rest and len(actions) > 1:
        notes.append(f"where labels compete, the first of these counts: {', '.join(actions)}")
    if balance:
        parts["train"], note = balanced(parts["train"])
        notes += [note] if note else []
    labelled = {split: _label(frames, window, actions) for split, frames in parts.items()}
    for split, frames in labelled.items():
        if not frames:
            raise UserError(f"{path}: no frame of the {split} games has a label; log more events")
    own = sum(ahead == 0 for _, _, ahead in labelled["train"])
    notes.append(
        f"{len(labelled['train'])} of {len(parts['train'])} training frames have a label, {own} of them by an event of "
        f"their own, the others by one within {window:g} frames"
    )
    return LabelledPlay(
        frames={k: tuple(v) for k, v in labelled.items()}, actions=actions, notes=tuple(notes)
    )


def split_games(
    path: str, frames: list[LoggedFrame], test: list[LoggedFrame]
) -> dict[str, list[LoggedFrame]]:
    """The frames by split, whole games each, `test` where it has some. Raises UserError where nothing can
    be held out.
    """
    if test:
        return {"train": frames, "test": test}
    if any(f.split for f in frames):
        held_out = {f.game for f in frames if f.split == "test"}
    else:
        games = sorted({f.game for f in frames}, key=lambda g: seed_of(("game", g)))
        held_out = {*games[: max(1, round(HELD_OUT_SHARE * len(games)))]}
    parts = {
        "train": [f for f in frames if f.game not in held_out],
        "test": [f for f in frames if f.game in held_out],
    }
    if not all(parts.values()):
        raise UserError(
            f"{path}: whole games are held out, and it has {len({f.game for f in frames})}; give more games, or "
            "--test-data"
        )
    return parts


def balanced(frames: list[LoggedFrame]) -> tuple[list[LoggedFrame], str]:
    """Frames of as many won as lost games, a player's game each, where all say which they are; and what
    was left out.
    """
    won = {(f.game, f.player): f.won for f in frames}
    sides = {side: sorted(k for k, x in won.items() if x is side) for side in (True, False)}
    least = min(map(len, sides.values()))
    if None in won.values() or not least:
        return frames, ""
    drawn = {
        side: sorted(keys, key=lambda k: seed_of(("balance", *k)))[:least]
        for side, keys in sides.items()
    }
    kept = {k for keys in drawn.values() for k in keys}
    left = len(won) - len(kept)
    side = "won" if len(sides[True]) > least else "lost"
    note = f"{left} {side} games are left out, so that as many won as lost ones teach; balance=0 keeps them"
    return [f for f in frames if (f.game, f.player) in kept], note if left else ""


def _label(
    frames: Sequence[LoggedFrame], window: float, actions: Sequence[str]
) -> list[tuple[LoggedFrame, str, float]]:
    games = dict[tuple[str, str], list[LoggedFrame]]()
    for f in frames:
        games.setdefault((f.game, f.player), []).append(f)
    labelled = list[tuple[LoggedFrame, str, float]]()
    for own in games.values():
        own.sort(key=lambda f: f.frame)
        labels = relabel_frames([f.frame for f in own], [f.events for f in own], window, actions)
        labelled += [
            (f, x.action, x.ahead) for f, x in zip(own, labels, strict=True) if x is not None
        ]
    return labelled


@declare(
    columns=(
        ("macro_actions", tuple, "the macro actions to choose from"),
        ("legal", tuple, "those that were possible; () = nobody says"),
        ("ahead", float, "how long after the frame the event comes that labels it"),
        ("game", str, "the game that a frame is of"),
    )
)
@stage
class PlayLog:
    """The labelled frames of a log as questions, whose answer is a macro action.

    Args:
        window: how many frames before an event have its label; 0 = its own alone.
        priority: the actions, most important first, with commas; those that are not named follow, rare ones
            first.
        hide: keys of the state that the player does not see, with commas: "enemy.gold,seed".
        balance: as many won as lost games are taken for training, where rows say which they are.
        ask: the question, with {state} and {actions}.
    """

    path: str
    test: str = ""
    columns: str = ""
    skip: str = ""
    window: float = 4
    priority: str = ""
    hide: str = ""
    balance: bool = True
    ask: str = ASK
    name: str = "frames"

    def __post_init__(self) -> None:
        need_at_least(self, window=0)
        if "{state}" not in self.ask:
            raise UserError("frames: ask needs {state}, where the state is shown")

    @property
    def play(self) -> LabelledPlay:
        return load_play(
            self.path, self.test, self.columns, self.skip, self.window, self.priority, self.balance,
            os.getcwd(),
        )  # fmt: skip

    @property
    def size(self) -> int:
        return len(self.play.frames["train"])

    @property
    def test_size(self) -> int:
        return len(self.play.frames["test"])

    @property
    def notes(self) -> tuple[str, ...]:
        return self.play.notes

    def task(self, split: str, index: int) -> Task:
        if split not in self.play.frames:
            raise UserError(f"{self.path} has no split {split!r}; use 'train' or 'test'")
        frame, action, ahead = self.play.frames[split][index]
        names = sorted(self.play.actions)
        hide = tuple(filter(None, map(str.strip, self.hide.split(","))))
        fields = {"state": state_text(frame.state, hide), "actions": ", ".join(names)}
        text = re.sub(r"\{(state|actions)\}", lambda m: fields[m[1]], self.ask)
        return Task(
            id=f"{self.name}/{split}/{index}",
            prompt=(Message(role="user", content=text),),
            answer=action,
            meta={
                "macro_actions": tuple(names),
                "legal": frame.legal,
                "ahead": ahead,
                "game": frame.game,
            },
        )

    def check(self, text: str, task: Task) -> float:
        """1 where the action that a reply names is the label's, else 0."""
        return float(read_arm(text, task.meta["macro_actions"]) == task.answer)
