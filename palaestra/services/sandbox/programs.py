"""Programs in other languages than Python, run by their interpreter in the same sandbox.

A run starts as a Python program that becomes the interpreter, so walls and limits are the same:
each process may address no more than `memory_mb` (node reserves more than that before it starts).
The sandbox has these interpreters, the text tools that a shell script is made of, the proof assistant
Coq, and Icarus Verilog's simulator (`icarus`), read-only, and nothing else of the machine's programs.
"""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

from palaestra.errors import Fault

# interpreter, name of the program's file
LANGUAGES = {"bash": ("bash", "main.sh"), "perl": ("perl", "main.pl")}
TOOLS = (
    *("awk", "basename", "bc", "cat", "cut", "date", "dirname", "expr", "factor", "fold", "grep", "head", "mkdir", "mktemp"),
    *("nl", "paste", "printf", "rev", "rm", "sed", "seq", "sleep", "sort", "tac", "tail", "tee", "tr", "uniq", "wc", "xargs"),
)  # fmt: skip
PROVERS = ("coqtop", "coqc")  # Debian's package coq; their libraries lie under /usr/lib


def interpreter_path(language: str) -> str:
    """The path of a language's interpreter. Raises Fault where the machine has none."""
    name = LANGUAGES[language][0]
    path = shutil.which(name)
    if path is None:
        raise Fault(
            "sandbox",
            f"{name} is not installed on this machine, which programs in {language} need; install "
            "it",
        )
    return os.path.realpath(path)


def visible_programs() -> dict[str, str]:
    """Where the sandbox has a program, or a folder of them: its path inside, and here."""
    names = [*(name for name, _ in LANGUAGES.values()), *TOOLS, *PROVERS]
    paths = {name: shutil.which(name) for name in names}
    visible = {f"/usr/bin/{name}": os.path.realpath(path) for name, path in paths.items() if path}
    if simulator := icarus():
        visible |= {"/usr/bin/vvp": simulator[0], "/ivl": simulator[1]}
    return visible


@cache
def icarus() -> tuple[str, str] | None:
    """Icarus Verilog's simulator and the folder of its compiler; None = it is not installed."""
    simulator, compiler = shutil.which("vvp"), shutil.which("iverilog")
    if simulator is None or compiler is None:
        return None
    prefix = Path(os.path.realpath(compiler)).parent.parent
    places = (*prefix.glob("lib*/ivl/ivlpp"), *prefix.glob("lib/*/ivl/ivlpp"))
    folders = sorted(str(p.parent) for p in places)
    return (os.path.realpath(simulator), folders[0]) if folders else None


def launcher(language: str, code: str) -> tuple[str, dict[str, str]]:
    """A Python program that becomes the interpreter, and the files that it needs."""
    name, file = LANGUAGES[language]
    return f"import os\nos.execvp({name!r}, [{name!r}, {file!r}])", {file: code}
