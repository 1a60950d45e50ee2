"""A folder of work that goes on after a kill: a record of what the work is, and a line of JSON for
each finished part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palaestra.errors import UserError
from palaestra.store.checkpoint import disk_errors, make_folder, write_atomic


def kept_lines(
    folder: Path, about: Mapping[str, Any], *, record: str, lines: str, what: str
) -> list[dict[str, Any]]:
    """The lines that a folder holds of the same work; a line that was cut off is removed.

    Args:
        about: what the lines depend on, as plain data.
        record: the file of that.
        lines: the file of the lines.
        what: what the work is called in messages.

    Raises:
        UserError: it holds another work, or something else.
    """
    make_folder(folder)
    about_file, file = folder / record, folder / lines
    if not about_file.is_file() and (file.exists() or (folder / "config.toml").exists()):
        raise UserError(f"--out {folder} holds something else; name another folder")
    if not about_file.is_file() or not file.is_file():
        write_atomic(about_file, json.dumps(about, indent=1) + "\n")
        return []
    with disk_errors(f"reading {about_file}"):
        before = json.loads(about_file.read_text(encoding="utf-8"))
    if changed := [k for k in about if before.get(k) != about[k]]:
        raise UserError(
            f"--out {folder} holds another {what}: its {changed[0]} is {before.get(changed[0])!r}, not "
            f"{about[changed[0]]!r}; name another folder"
        )
    with disk_errors(f"reading {file}"):
        data = file.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            with file.open("r+b") as opened:
                opened.truncate(len(whole))
    return [json.loads(line) for line in whole.decode("utf-8").splitlines()]


def add_line(file: Path, line: Mapping[str, Any]) -> None:
    """Writes a finished part behind the others."""
    with disk_errors(f"writing {file}"), file.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(line) + "\n")
