"""Transitions that somebody logged: rows of a file, the rollouts of a run in any world of several turns, or
the record of `palaestra play --json`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import palaestra as pl
from palaestra.recipes.inference.wall_e_2.rules import (
    LoggedAction,
    failure_pieces,
    read_log,
    said_action,
    scene_facts,
)

ROLLOUTS = "rollouts/step-*.parquet"
CONTENT = "zq7"  # stands where a message does

Turn = tuple[str, str]  # what the world showed, and what was said to it


def read_transitions(ctx: pl.Context, given: str, failure: str) -> list[LoggedAction]:
    """The transitions of a file of rows (`read_log`), of a run's folder, or of a record of games.

    Args:
        failure: as of `ImaginedFirst`; a row says itself whether its action worked.

    Raises:
        UserError: there are none, or the run's chat template is not that of the policy.
    """
    path = Path(given).expanduser()
    if path.is_dir() and any(path.glob(ROLLOUTS)):
        games = games_of_run(ctx, path)
    elif path.suffix == ".json" and path.is_file():
        games = games_of_record(path)
    else:
        return read_log(given)
    log = [t for turns, solved in games for t in logged_actions(turns, solved, failure)]
    if not log:
        raise pl.UserError(
            f"{given} holds no action whose outcome is known; give what was played in an environment "
            "of several turns and one seat"
        )
    return log


def logged_actions(turns: Sequence[Turn], solved: bool, failure: str) -> Iterator[LoggedAction]:
    """The actions of one game whose outcome is known, by the rules of `ImaginedFirst` for a world that
    shows texts alone.

    Args:
        solved: whether the game ended as solved, which the last action then worked in.
    """
    scene, blamed = dict[str, str](), ()
    for i, (state, reply) in enumerate(turns):
        scene = {**scene, **scene_facts(state)}
        after = turns[i + 1][0] if i + 1 < len(turns) else None
        failed = failure_pieces(after or "", state, blamed, failure)
        worked = (True if solved else None) if after is None else not failed and after != state
        if worked is not None and said_action(reply):
            yield LoggedAction(
                state=state, action=said_action(reply), success=worked, scene=dict(scene)
            )
        blamed = failed


# ---- a run


def games_of_run(ctx: pl.Context, folder: Path) -> Iterator[tuple[list[Turn], bool]]:
    """The turns of each training episode that a run kept, and whether it was solved."""
    heads, tails = template_frames(ctx)
    for file in sorted(folder.glob(ROLLOUTS)):
        for records in pl.tasks.open_records(str(file)).values():
            for episode in records:
                for row in episode["rows"] or ():
                    parts = split_by_author(row, ctx.model("policy").eos)
                    turns = [
                        (message_of(heard, heads, tails, folder), reply) for heard, reply in parts
                    ]
                    yield turns, episode["solved"] is True


def template_frames(ctx: pl.Context) -> tuple[set[str], set[str]]:
    """What the policy's chat template writes before and behind a message of the world."""
    dialect, heads, tails = ctx.engine("policy").dialect, set[str](), set[str]()
    for role in ("user", "tool", "system"):
        try:
            message = pl.Message(role=role, content=CONTENT)
            pieces = dialect.extend((message,), first=False, closed=True)
        except pl.UserError:  # the template has no such role
            continue
        head, _, tail = dialect.decode([i for p in pieces for i in p.ids]).partition(CONTENT)
        heads.add(head.strip())
        tails.add(tail)
    return heads, tails


def split_by_author(row: Mapping[str, Any], eos: Sequence[int] | frozenset[int]) -> Iterator[Turn]:
    """What a recorded context heard and said, in turn; tokens that end a text are left out of what was said."""
    tokens = list(zip(row["ids"], row["tokens"], row["logp"], strict=True))
    heard = ""
    for spoken, part in groupby(tokens, lambda t: t[2] is not None):
        text = "".join(token for i, token, _ in part if not (spoken and i in eos))
        if spoken:
            yield heard, text
        heard = "" if spoken else text
    if heard:
        yield heard, ""


def message_of(text: str, heads: set[str], tails: set[str], given: Path) -> str:
    """The last message of what was heard between two replies, without the chat template."""
    inner = next((text.removesuffix(t) for t in tails if t and text.endswith(t)), text)
    starts = [inner.rfind(h) + len(h) for h in heads if h and h in inner]
    if not starts and any(heads):
        raise pl.UserError(
            f"{given}: its texts are not in this model's chat template, so what the environment said "
            "cannot be read; give --model the model of that run, or transitions as rows of a file"
        )
    return inner[max(starts, default=0) :].strip()


# ---- a record of games


def games_of_record(path: Path) -> Iterator[tuple[list[Turn], bool]]:
    """The turns of each game of `palaestra play --json`, whose record is the last line that it printed, and
    whether the game was solved.
    """
    try:
        *_, last = path.read_text().strip().splitlines() or [""]
        games = json.loads(last)["games"]
        played = [([(str(x["shown"]), str(x["said"])) for x in g["transcript"]], g) for g in games]
    except (ValueError, KeyError, TypeError):
        raise pl.UserError(
            f"{path} is no record of games: write it with `palaestra play --json ... > {path.name}`"
        ) from None
    for turns, game in played:
        yield turns, game.get("solved") is True
