"""What a test script calls, and what is repeated in it.

    F1 = 2 |calls(y) & calls(y*)| / (|calls(y)| + |calls(y*)|), over multisets
    repeated = sum over lines of max(0, times in y - max(1, times in y*)) / lines of y

A right script in Python is read by its syntax tree; any other one is a list of commands, of which each
line is a call that its first word names.
"""

import ast
import builtins
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

import palaestra as pl

Language: TypeAlias = Literal["auto", "python", "commands"]
FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```|\Z)", re.MULTILINE | re.DOTALL)
TAGGED = re.compile(r"<(script|answer)>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
COMMENT = ("#", "//", "--", ";", "!")  # begins a line that is no command
UNREADABLE, PER_INVENTED, MOST_INVENTED = -0.5, 0.1, 5


def script_of(reply: str) -> str:
    """The script in a reply, behind its thoughts: the last fenced block, else the last <script> or
    <answer>, else all of it.
    """
    text = pl.verifiers.strip_thinking(reply)
    if blocks := [b for b in FENCE.findall(text) if b.strip()]:
        return blocks[-1].strip()
    if tagged := [body for _, body in TAGGED.findall(text) if body.strip()]:
        return tagged[-1].strip()
    return text.strip()


@lru_cache(1 << 12)
def python_calls(script: str) -> list[ast.Call] | None:
    """The calls of a script in Python, in the order of its lines; None where it does not parse."""
    try:
        tree = ast.parse(script)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    return sorted(calls, key=lambda n: (n.lineno, n.col_offset))


def defined_in(script: str) -> list[str]:
    """The functions and classes that a script in Python defines."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [n.name for n in ast.walk(ast.parse(script)) if isinstance(n, kinds)]


def name_of_call(call: ast.Call) -> str:
    """a.b.c of a.b.c(...); c of a call on what another call gave."""
    names, at = list[str](), call.func
    while isinstance(at, ast.Attribute):
        names.append(at.attr)
        at = at.value
    if isinstance(at, ast.Name):
        names.append(at.id)
    return ".".join(reversed(names))


def language_of(script: str, language: Language) -> Literal["python", "commands"]:
    """How a right script is read: as Python where it parses and calls something, unless said."""
    if language == "auto":
        return "python" if python_calls(script) else "commands"
    return language


def calls_of(
    script: str, language: Literal["python", "commands"], whole: bool = False
) -> list[str] | None:
    """The names of what a script calls; with `whole` the calls with their arguments. None where it
    cannot be read: Python that does not parse, or a list without a command.
    """
    if language == "python":
        calls = python_calls(script) if script.strip() else None
        if calls is None:
            return None
        return [ast.unparse(c) if whole else name_of_call(c) for c in calls]
    lines = [" ".join(x.split()) for x in script.splitlines()]
    lines = [x for x in lines if x and not x.startswith(COMMENT)]
    return (lines if whole else [x.split()[0] for x in lines]) or None


def call_f1(calls: Sequence[str], right: Sequence[str]) -> float:
    """The F1 of two multisets; 1 of two empty ones."""
    if not calls and not right:
        return 1.0
    shared = sum((Counter(calls) & Counter(right)).values())
    return 2 * shared / (len(calls) + len(right))


def repeated_share(script: str, right: str) -> float:
    """The share of a script's lines that are there once too often."""
    lines, wanted = (
        Counter(x.strip() for x in s.splitlines() if x.strip()) for s in (script, right)
    )
    surplus = sum(max(0, n - max(1, wanted[line])) for line, n in lines.items())
    return surplus / max(1, lines.total())


@lru_cache(1 << 14)
def script_similarity(a: str, b: str, language: Language = "auto") -> float:
    """The F1 of the names of the calls of two scripts, the second read as it must be; 0 where one of
    them cannot be read.
    """
    kind = language_of(b, language)
    mine, theirs = calls_of(a, kind), calls_of(b, kind)
    return 0.0 if mine is None or theirs is None else call_f1(mine, theirs)


def judge_script(
    reply: str,
    right: str,
    case_scripts: Sequence[str],
    known: Iterable[str],
    language: Language = "auto",
    whole: bool = False,
    repeat: float = 0.5,
) -> dict[str, float]:
    """The reward of a reply and what it is made of.

        r = F1 - repeat * repeated - 0.1 min(5, invented),    -0.5 where the script cannot be read

    Args:
        right: the reference.
        shown: the scripts of the cases that were shown.
        known: names of calls that exist. What is neither among them nor in a case or the reference,
            nor Python's own or defined by the script itself, is invented.
        whole: F1 compares calls with their arguments.

    Returns:
        "total"; "calls", F1; "repeated"; "invented", a number; "case", the F1 of the calls of the
        best case that was shown, by name; "reused", the share of the right calls that are in a
        case and were written.
    """
    kind = language_of(right, language)
    wanted, names = calls_of(right, kind, whole) or [], Counter(calls_of(right, kind) or [])
    of_cases = [Counter(calls_of(s, kind) or []) for s in case_scripts]
    case = max((call_f1([*c.elements()], [*names.elements()]) for c in of_cases), default=0.0)
    script = script_of(reply)
    calls, said_names = calls_of(script, kind, whole), calls_of(script, kind)
    numbers = {"calls": 0.0, "repeated": 0.0, "invented": 0.0, "case": case, "reused": 0.0}
    if calls is None or said_names is None:
        return {"total": UNREADABLE, **numbers}
    exists = {*known, *names, *(n for c in of_cases for n in c)}
    if kind == "python":
        exists |= {*dir(builtins), *defined_in(script)}
    invented = float(sum(n not in exists for n in said_names))
    either = Counter[str]()
    for c in of_cases:
        either |= c
    reused = (Counter(said_names) & names & either).total() / max(1, names.total())
    f1, extra = call_f1(calls, wanted), repeated_share(script, right)
    total = f1 - repeat * extra - PER_INVENTED * min(MOST_INVENTED, invented)
    return {
        "total": total,
        **numbers,
        "calls": f1,
        "repeated": extra,
        "invented": invented,
        "reused": reused,
    }
