"""Written games in files: JSON lines with the columns `code`, `rules`, `moves`, `title` and `agent` (the
weights of an opponent, which a study keeps), or a folder as gg-bench's authors released theirs
(descriptions/N.txt, actions/N.txt, envs/env_N.py). Nothing of them is run here.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from palaestra.errors import UserError
from palaestra.worlds.written.grammar import WrittenRules

COLUMNS = "code (a class), rules, and perhaps moves and title"


def read_games(path: str) -> tuple[WrittenRules, ...]:
    """The games of a file or folder, at least one. Raises UserError."""
    place = Path(path).expanduser()
    if not place.exists():
        raise UserError(f"{path}: no such file or folder of written games")
    return _read(str(place.resolve()), place.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _read(path: str, changed: int) -> tuple[WrittenRules, ...]:
    place = Path(path)
    games = _folder(place) if place.is_dir() else _lines(place)
    if not games:
        what = (
            "envs/env_1.py, descriptions/1.txt, ..." if place.is_dir() else f"lines with {COLUMNS}"
        )
        raise UserError(f"{path} has no games; it should have {what}")
    titles = [g.title for g in games]
    if twice := next((t for t in titles if titles.count(t) > 1), ""):
        raise UserError(f"{path} has two games with the title {twice!r}; give each its own")
    return games


def _folder(place: Path) -> tuple[WrittenRules, ...]:
    numbers = sorted(
        int(p.stem.removeprefix("env_"))
        for p in place.glob("envs/env_*.py")
        if p.stem.removeprefix("env_").isdigit()
    )
    games = list[WrittenRules]()
    for n in numbers:
        rules = place / "descriptions" / f"{n}.txt"
        if not rules.is_file():
            raise UserError(
                f"{place}: game {n} has no descriptions/{n}.txt, which players are shown"
            )
        moves = place / "actions" / f"{n}.txt"
        games.append(
            WrittenRules(
                title=f"game {n}",
                rules=_text(rules),
                moves=_text(moves) if moves.is_file() else "",
                code=_text(place / "envs" / f"env_{n}.py"),
            )
        )
    return tuple(games)


def _lines(place: Path) -> tuple[WrittenRules, ...]:
    games = list[WrittenRules]()
    for number, line in enumerate(_text(place).splitlines(), 1):
        if not line.strip():
            continue
        where = f"{place}:{number}"
        try:
            row: Any = json.loads(line)
        except ValueError:
            raise UserError(f"{where}: no JSON; a line is a game with {COLUMNS}") from None
        good = isinstance(row, dict) and all(
            isinstance(row.get(k), str) and row[k].strip() for k in ("code", "rules")
        )
        if not good:
            raise UserError(f"{where}: a line is a game with the texts {COLUMNS}")
        title, moves, agent = (str(row.get(k) or "").strip() for k in ("title", "moves", "agent"))
        if agent and not _is_agent(agent):
            raise UserError(
                f"{where}: agent is no opponent that `palaestra study gg-bench` trained; leave it out"
            )
        games.append(
            WrittenRules(
                title=title or f"game {number}",
                rules=row["rules"],
                moves=moves,
                code=row["code"],
                agent=agent,
            )
        )
    return tuple(games)


def _is_agent(text: str) -> bool:
    """Whether a text has the fields of an agent's weights."""
    try:
        fields: Any = json.loads(text)
    except ValueError:
        return False
    return isinstance(fields, dict) and {"features", "moves", "rows", "heads", "value"} <= {*fields}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise UserError(f"{path} is no text in UTF-8") from None
