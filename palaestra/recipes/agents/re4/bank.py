"""A bank of cases, pairs of a test intent and its script, in a folder of the user.

    cases/login.py            \"\"\"Checks that a user can log in.\"\"\"  ...      the docstring, or
    cases/ping.tcl            # checks that a host answers                   the comment at its top
    cases/vlan.cli + vlan.md  the intent in a file of its own beside it
    cases/old.jsonl           {"intent": ..., "script": ...} a line

A case is one file, so a script that an engineer has revised is retained by saving it there, and a bad
one forgotten by deleting its file; the name of a case says where it came from.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import palaestra as pl

RECORDS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow")
WORDS = (".md", ".txt")
INTENTS = ("intent", "prompt", "question", "description")
SCRIPTS = ("script", "answer", "response", "code")
TOP_COMMENT = re.compile(r"\A(?:#![^\n]*\n)?((?:[ \t]*(?:#|//|--|;|!)[^\n]*\n)+)")


@pl.value_class
class Case:
    """A pair, and where it came from."""

    name: str
    intent: str
    script: str


def read_cases(folder: str) -> tuple[list[Case], list[str]]:
    """The cases of a folder in the order of their names, and the files that are none.

    Raises:
        UserError: there is no such folder, or no case in it.
    """
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise pl.UserError(f"cases={folder}: no such folder; name one with a script in each file")
    cases, skipped = list[Case](), list[str]()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        name = str(file.relative_to(path))
        if any(part.startswith(".") for part in file.relative_to(path).parts):
            continue
        if file.suffix.lower() in RECORDS:
            cases += cases_of_records(file, name)
        elif file.suffix.lower() not in WORDS:
            case = case_of_script(file, name)
            cases += [case] if case else []
            skipped += [] if case else [name]
        elif not has_script(file):
            skipped.append(name)
    if not cases:
        raise pl.UserError(
            f"cases={folder}: no case in this folder; a case is a script whose docstring or first comment says "
            'what it tests, or a line {"intent": ..., "script": ...} of a .jsonl file'
        )
    return cases, skipped


def has_script(words: Path) -> bool:
    """Whether a file of words stands beside a script of its name."""
    others = (p for p in words.parent.glob(f"{words.stem}.*") if p.is_file())
    return any(p.suffix.lower() not in (*WORDS, *RECORDS) for p in others)


def cases_of_records(file: Path, name: str) -> Iterator[Case]:
    for records in pl.tasks.open_records(str(file)).values():
        for i, record in enumerate(records):
            intent, script = (
                next((record[c] for c in columns if isinstance(record.get(c), str)), "")
                for columns in (INTENTS, SCRIPTS)
            )
            if not intent.strip() or not script.strip():
                raise pl.UserError(
                    f"{records.where(i)}: a case has the columns 'intent' and 'script', both texts"
                )
            yield Case(name=f"{name}:{i + 1}", intent=intent.strip(), script=script.strip())


def case_of_script(file: Path, name: str) -> Case | None:
    """The case of one file; None where nothing says what it tests, or it is no text."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return None
    beside = next((p for s in WORDS if (p := file.with_suffix(s)).is_file()), None)
    if beside is not None:
        intent, script = beside.read_text(encoding="utf-8-sig"), text
    else:
        intent, script = split_intent(text, file.suffix.lower() == ".py")
    if not intent.strip() or not script.strip():
        return None
    return Case(name=name, intent=" ".join(intent.split()), script=script.strip())


def split_intent(text: str, python: bool) -> tuple[str, str]:
    """What a script says of itself at its top, and the script without that."""
    if python:
        try:
            first = next(iter(ast.parse(text).body), None)
        except (SyntaxError, ValueError):
            first = None
        held = first.value if isinstance(first, ast.Expr) else None
        if isinstance(held, ast.Constant) and isinstance(held.value, str):
            return held.value, "\n".join(text.splitlines()[held.end_lineno :])
    match = TOP_COMMENT.match(text)
    if match is None:
        return "", text
    lines = (line.strip().lstrip("#/-;!").strip() for line in match[1].splitlines())
    return " ".join(lines), text[match.end() :]
