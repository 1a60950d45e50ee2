"""Names of tools in settings. Nothing heavy is imported here."""

from __future__ import annotations

import re
from collections.abc import Iterable

SANDBOX = "python"
SERVER = "mcp:"
PROGRAM = "command:"  # before a command of the user that an argument names
GIVEN = "given:"  # before what only the process knows to which a program gave it
FORMS = f'FILE.py:NAME, {SANDBOX}, {SERVER}"COMMAND" or {SERVER}http://HOST:PORT/PATH'
SERVER_PART = re.compile(rf"(?:^|,)\s*({SERVER}.*)$", re.DOTALL)


def split_names(given: Iterable[str]) -> tuple[str, ...]:
    """Names of which several may stand in one text, with commas; a server's goes to the text's
    end.
    """
    names: list[str] = []
    for text in given:
        server = SERVER_PART.search(text)
        others = text[: server.start()] if server else text
        names += [x.strip() for x in others.split(",") if x.strip()]
        names += [server[1].strip()] if server else []
    return tuple(dict.fromkeys(names))


def command_of(name: str) -> str:
    """The command that starts a server of tools; "" = it names none."""
    where = name.removeprefix(SERVER)
    return "" if where == name or where.startswith(("http://", "https://")) else where


def program_of(text: str) -> str:
    """The command behind `command:`; "" = the text names none."""
    return text.removeprefix(PROGRAM) if text.startswith(PROGRAM) else ""


def is_function(name: str) -> bool:
    """Whether it names a function of a file."""
    return name != SANDBOX and not name.startswith((SERVER, GIVEN))
