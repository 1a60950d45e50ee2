"""What settings of somebody else may execute, and which API keys they may use: nothing that this user
has not run before, unless the user says so.

A settings file or a run folder may name Python files (a recipe, a reward, an environment, tools) and
commands (servers of tools, agents). Whoever starts it need not have written it. So what it names is executed
only if this user ran it before: each file by its place or its content, with the files beside it that
it imports, and each command in the folder that it was run in. Otherwise a person at a terminal is
asked, and any other program gets a UserError that names `--trust`.

Settings may also name the environment variable of an API key and the address that it is sent to, as
those of a judge do. A key is read only if this user used it with the same addresses before.

What this user ran stands in `$XDG_STATE_HOME/palaestra/executed` (default: ~/.local/state), a line of
sha256 for each. A run writes its own code there when it begins, so that it goes on without a question.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import threading
import unicodedata
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from palaestra.errors import UserError
from palaestra.run.origin import code_of, imported
from palaestra.services.tools.names import command_of, program_of, split_names
from palaestra.settings.fields import Settings
from palaestra.types import value_class

RECORD = "executed"  # this user's list
PYTHON = re.compile(r"""[^\s"'`,()\[\]{}=+*:;]+\.py\b""")
KEY_FIELD = "key_env"  # see `palaestra.services.chat.endpoint.Endpoint`
KEY = re.compile(rf"""{KEY_FIELD}["']?\s*[=:]\s*["']?([^"',()\s]+)""")
URL = re.compile(r"""https?://[^\s"'`,()\[\]{}]+""", re.IGNORECASE)
SHOWN = 12  # names of a message

_everything = False  # see `trusting`


@value_class
class Executables:
    """Python files, commands and API keys that settings name."""

    files: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()  # commands behind `command:`, such as those that label pairs
    agent: str = ""  # the command of one
    keys: tuple[str, ...] = ()  # environment variables
    urls: tuple[str, ...] = ()  # addresses that a key may be sent to; empty without a key
    imports: Mapping[str, str] = field(default_factory=dict)  # a file that is imported: by which

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Executables:
        """Of settings by name. A file counts wherever a text names it: in a sum of rewards, in the
        settings of a verifier, in a field of the recipe.
        """
        named = [
            f
            for x in given.values()
            for f in (*code_of(x), *(f for _, text in _texts_in(x) for f in _files_in(text)))
        ]
        beside = {f: [str(x) for x in imported(Path(f).expanduser())] for f in named}
        tools = given.get("tools", ())
        names = split_names([tools] if isinstance(tools, str) else [str(t) for t in tools or ()])
        texts = list(_texts_in(given))
        keys = sorted({k for name, t in texts for k in ([t] if name == KEY_FIELD else _keys_in(t))})
        return cls(
            keys=tuple(keys),
            urls=tuple(sorted({u for name, t in texts for u in _urls_in(name, t)})) if keys else (),
            files=tuple(dict.fromkeys(x for f in named for x in (f, *beside[f]))),
            imports={x: f for f in reversed(named) for x in beside[f] if x not in named},
            commands=tuple(c for n in names if (c := command_of(n))),
            programs=tuple(sorted({c for _, t in texts if (c := program_of(t))})),
            agent=str(given.get("agent") or ""),
        )

    def marks(self) -> dict[str, set[str]]:
        """By name, what it may stand as in this user's list. What is imported is also known by the
        place of the file that imports it: this user goes on writing there.
        """
        files = {f: {_place(f), *_content(f)} for f in self.files}
        for f, by in self.imports.items():
            files[f].add(_place(by))
        here = str(Path.cwd())
        started = [*self.commands, *self.programs, *([self.agent] if self.agent else [])]
        commands = {c: {_mark("command", c, here)} for c in started}
        return files | commands | self.key_marks()

    def key_marks(self) -> dict[str, set[str]]:
        """Those of `marks` that stand for API keys."""
        return {f"the API key in {k}": {_mark("key", k, *self.urls)} for k in self.keys}


def _texts_in(given: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """All texts in settings, each with the name of the field that holds it."""
    if isinstance(given, Mapping):
        for path, x in given.items():
            yield from _texts_in(x, str(path).rpartition(".")[2])
    elif isinstance(given, tuple | list):
        for x in given:
            yield from _texts_in(x, name)
    elif isinstance(given, str) and given:
        yield name, given


def _files_in(text: str) -> list[str]:
    """The Python files that a text names."""
    return [f for f in PYTHON.findall(text) if Path(f).expanduser().is_file()]


def _keys_in(text: str) -> list[str]:
    """The environment variables of API keys that a text names which describes a part, as of a judge."""
    # Python reads names in this form, so no other spelling of the field goes unseen
    return KEY.findall(unicodedata.normalize("NFKC", text))


def _urls_in(name: str, text: str) -> list[str]:
    """Addresses, and all of a text that names a key: it may write its address in many ways."""
    return [text] if name == "url" or _keys_in(text) else URL.findall(text)


def _mark(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode("utf-8", "surrogateescape")).hexdigest()


def _place(file: str) -> str:
    return _mark("file", str(Path(file).expanduser().resolve()))


def _content(file: str) -> set[str]:
    try:
        return {hashlib.sha256(b"content\0" + Path(file).expanduser().read_bytes()).hexdigest()}
    except OSError:  # whoever loads it says what is wrong
        return set()


# ---- this user's list


def record_file() -> Path | None:
    """Where the list is; None = this user has no home."""
    state = os.environ.get("XDG_STATE_HOME")
    try:
        root = Path(state) if state else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return root / "palaestra" / RECORD


def known_marks() -> set[str]:
    file = record_file()
    try:
        return set(file.read_text(encoding="utf-8").split()) if file else set()
    except (OSError, ValueError):
        return set()


def remember(named: Executables) -> None:
    """Adds what is executed to this user's list. One that cannot be written is left as it is: the
    question comes again.
    """
    file = record_file()
    fresh = sorted({m for marks in named.marks().values() for m in marks} - known_marks())
    if file is None or not fresh:
        return
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(file, "a", encoding="utf-8") as out:
            out.write("".join(f"{m}\n" for m in fresh))


def remember_settings(settings: Settings) -> None:
    """A run begins that this user asked for: its code is known from here on."""
    remember(Executables.of(asdict(settings)))


# ---- what asks


@contextmanager
def trusting() -> Generator[None]:
    """In the block all code that settings name is executed without a question: `--trust`."""
    global _everything
    before, _everything = _everything, True
    try:
        yield
    finally:
        _everything = before


def trust(place: str | Path) -> None:
    """Lets a run folder or a settings file of somebody else execute the Python files and the
    commands, and use the API keys, that it names, from here on and as they are.

    Args:
        place: the run folder, or the TOML file.

    Raises:
        UserError: there are no settings, or they cannot be read.
    """
    from palaestra.settings.reading import from_file

    folder = Path(place)
    remember(Executables.of(from_file(folder / "config.toml" if folder.is_dir() else folder)))


def check_code(source: Path, given: Mapping[str, Any]) -> None:
    """Says on standard error what settings in a file execute and which API keys they use, and asks
    where this user did not run it before. Raises UserError where the answer is no, or nobody can be
    asked.
    """
    named = Executables.of(given)
    if named.files:
        names_text = ", ".join(named.files)
        print(
            f"note: {source} names Python files, which this executes: {names_text}", file=sys.stderr
        )
    if named.commands:
        names_text = ", ".join(named.commands)
        print(
            f"note: {source} names servers of tools, which this starts: {names_text}",
            file=sys.stderr,
        )
    if named.programs:
        names_text = ", ".join(named.programs)
        print(f"note: {source} names programs, which this starts: {names_text}", file=sys.stderr)
    if named.agent:
        print(f"note: {source} names an agent, which this starts: {named.agent}", file=sys.stderr)
    if named.keys:
        names_text, to = ", ".join(named.keys), ", ".join(named.urls) or "an address of its own"
        print(f"note: {source} sends the API key in {names_text} to {to}", file=sys.stderr)
    known = known_marks()
    unknown = [name for name, marks in named.marks().items() if not marks & known]
    keys = named.key_marks().keys() & {*unknown}
    verb = "use" if len(keys) == len(unknown) else "execute or use" if keys else "execute"
    if not unknown or _everything or _answers_yes(unknown, verb):
        return remember(named)
    names_text = ", ".join(map(repr, unknown[:SHOWN])) + (" ..." if unknown[SHOWN:] else "")
    raise UserError(
        f"{source} would {verb} what you have not run before: {names_text}; read it, then repeat this "
        f"with --trust (in Python: palaestra.trust({str(source)!r}))"
    )


def _answers_yes(unknown: list[str], verb: str) -> bool:
    """Whether a person at the terminal agrees to what `verb` says. Where nobody is, the answer is no:
    a program, a notebook, a request to the viewer.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    number = "it" if len(unknown) == 1 else f"these {len(unknown)}"
    question = f"You have not run {number} before. {verb.capitalize()} {number}? [y/N] "
    print(question, end="", file=sys.stderr)
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
