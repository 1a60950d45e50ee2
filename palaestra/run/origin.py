"""What a run was made from, kept in its folder as `origin.json`: a run that goes on says what has
changed.

    files    by setting, the files that it names with the sha256 of their content
    fields   what the recipe was before single fields of it were set
    parts    the classes of its parts by path
"""

from __future__ import annotations

import ast
import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from palaestra import values
from palaestra.context import Runnable
from palaestra.errors import UserError
from palaestra.schedule import Scheduled
from palaestra.settings.fields import Settings, Use, setting_names
from palaestra.settings.rewards import files_of_spec
from palaestra.store.checkpoint import write_atomic
from palaestra.tasks.sources import files_of
from palaestra.types import value_class
from palaestra.verifiers.registry import VERIFIERS

RECORD = "origin.json"
ACCEPT = "--accept-changes"


@value_class
class Provenance:
    """What `origin.json` holds."""

    files: Mapping[str, Mapping[str, str]]
    fields: Mapping[str, Any]
    parts: Mapping[str, str]

    @classmethod
    def of(cls, settings: Settings, recipe: Runnable, folder: Path) -> Provenance:
        """Of the settings of a run in a folder, and of their recipe before its fields were set."""
        return cls(
            files=files_of_settings(settings, folder),
            fields={k: values.file_form(x) for k, x in values.flatten(recipe).items()},
            parts=classes(recipe),
        )

    @classmethod
    def read(cls, folder: Path) -> Provenance | None:
        """Of a run folder; None where it has none, as those of earlier versions."""
        try:
            record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
            return cls(files=record["files"], fields=record["fields"], parts=record["parts"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            raise UserError(
                f"{folder / RECORD} cannot be read; remove it, and the run goes on without knowing "
                "what has changed"
            ) from None

    def write(self, folder: Path) -> None:
        whole = {"files": self.files, "fields": self.fields, "parts": self.parts}
        write_atomic(folder / RECORD, json.dumps(whole, indent=1))


def classes(recipe: Runnable) -> dict[str, str]:
    """The classes of a recipe's parts by path. A schedule stands for a number, and is none."""
    return {
        path: type(x).__name__
        for path, x in [("", recipe), *values.walk(recipe)]
        if is_dataclass(x) and not isinstance(x, Scheduled)
    }


# ---- files


def named_files(settings: Settings) -> list[str]:
    """The settings that may name files: the recipe, what is learned, tools, and an agent."""
    return ["recipe", *setting_names(Use.PROBLEM), "tools", "agent"]


def code_of(given: Any) -> list[str]:
    """The Python files in the value of a setting: of FILE.py:NAME the file."""
    if isinstance(given, Mapping):
        return [f for x in given.values() for f in code_of(x)]
    if isinstance(given, tuple | list):
        return [f for x in given for f in code_of(x)]
    if not isinstance(given, str):
        return []
    if given.endswith(".py") or Path(given.rpartition(":")[0]).suffix == ".py":
        whole = given if given.endswith(".py") else given.rpartition(":")[0]
        if Path(whole).expanduser().is_file():
            return [whole]
    return [each.rpartition(":")[0] for each in files_of_spec(given)]


def digests(given: Any) -> dict[str, str]:
    """The files that the value of a setting names, and of Python the files beside them that they
    import, each with the digest of its content. Of a pattern all files that it fits. What is no
    file has none.
    """
    digest_of: dict[str, str] = {}
    for name in code_of(given):
        path = Path(name).expanduser()
        for each in (path, *imported(path)) if path.is_file() else ():
            digest_of[str(each)] = _sha256(each)
    data = [given] if isinstance(given, str) and given else []
    for name in data if not digest_of else ():
        path = Path(name).expanduser()
        named = {name: path} if path.exists() else {str(p): p for p in files_of(name)}
        digest_of |= {n: _sha256(p) for n, p in named.items()}
    return digest_of


def record_settings(settings: Settings, others: Sequence[str] = ()) -> dict[str, Any]:
    """What the answers of models depend on, as plain data: the problem, the model, the seed, settings
    that are not empty, and the digests of the files that they and `others` name.
    """
    names = [*setting_names(Use.MEASURED), "model", "engine"]
    plain = {k: v for k in names if (v := getattr(settings, k)) not in (None, "", (), 0, False)}
    files = {
        path: digest
        for given in (*plain.values(), *others)
        for path, digest in digests(given).items()
    }
    return {
        "task": settings.problem,
        "model": settings.model,
        "seed": settings.seed,
        "settings": {k: str(v) for k, v in plain.items()},
        "files": files,
    }


def files_of_settings(settings: Settings, folder: Path) -> dict[str, dict[str, str]]:
    """By setting, the files that it names as a run in a folder sees them, with their digests."""
    return {n: seen_from(folder, digests(_files_named(settings, n))) for n in named_files(settings)}


def _files_named(settings: Settings, name: str) -> Any:
    """The value of a setting, and of a command the words that are files. A name such as `sft` is none,
    also where a folder is called so, as that of the run may be.
    """
    given = getattr(settings, name)
    if name in ("recipe", "task", "env") or (name == "reward" and given in VERIFIERS):
        return code_of(given)
    if name != "agent":
        return given
    with suppress(ValueError):  # whoever starts it says that it cannot be read
        return [w for w in shlex.split(given) if Path(w).expanduser().is_file()]
    return []


def seen_from(folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Files by path; of those in the folder itself, which may move, by their path in it."""
    home, digest_of = folder.resolve(), dict[str, str]()
    for path, digest in files.items():
        whole = Path(path).resolve()
        inside = whole.is_relative_to(home)
        digest_of[f"./{whole.relative_to(home)}" if inside else path] = digest
    return digest_of


def imported(file: Path) -> list[Path]:
    """The Python files in the folder of a file, and below, that it imports by name, and those that
    they import in turn. What is imported in other ways is not seen.
    """
    files: dict[Path, None] = {}
    left = [file]
    while left:
        for path in _beside(left.pop(), file.parent):
            if path not in files and path != file:
                files[path] = None
                left.append(path)
    return sorted(files)


def _beside(file: Path, root: Path) -> Iterator[Path]:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):  # whoever loads it says what is wrong
        return
    for node in ast.walk(tree):
        names: list[str] = []
        base = root
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = file.parents[node.level - 1] if node.level else root
            head = [node.module] if node.module else []
            names = [*head, *(".".join([*head, alias.name]) for alias in node.names)]
        for name in names:
            words = name.split(".")
            for n in range(1, len(words) + 1):
                place = base.joinpath(*words[:n])
                for path in (place.with_suffix(".py"), place / "__init__.py"):
                    if path.is_file():
                        yield path


def _sha256(path: Path) -> str:
    """Of a file's content; of a folder of all files in it, with their names."""
    try:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.is_file())
            entries = [[str(p.relative_to(path)), _sha256(p)] for p in inside]
            return hashlib.sha256(json.dumps(entries).encode()).hexdigest()
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


Files = Mapping[str, Mapping[str, str]]  # as `files_of_settings` finds them: reading takes time


def conditions(settings: Settings, recipe: Runnable, files: Files) -> dict[str, dict[str, str]]:
    """What the numbers of a run depend on and may change on its way, as texts by name.

    "problem": what is learned and measured, with the digests of the files that it names; "method":
    the fields of the recipe, and the file that it is written in.
    """
    method = {k: str(values.file_form(x)) for k, x in values.flatten(recipe).items()}
    return {
        "problem": problem_conditions(settings, files),
        "method": method | _digests_told(files, ["recipe"]),
    }


def problem_conditions(settings: Settings, files: Files) -> dict[str, str]:
    """The part of `conditions` that says what is learned."""
    names = [*setting_names(Use.PROBLEM), "tools", "tool_turns", "tool_seconds", "tool_chars"]
    names += ["agent"] if settings.agent else []
    names += ["break_tool"] if settings.break_tool else []
    plain = {n: str(getattr(settings, n)) for n in (*names, "max_tokens")}
    return plain | _digests_told(files, names)


def _digests_told(files: Files, names: Sequence[str]) -> dict[str, str]:
    return {
        f"{path} ({name.replace('_', ' ')})": digest
        for name in names
        for path, digest in files.get(name, {}).items()
    }


# ---- what has changed


def changed_files(folder: Path, stored: Settings, kept: list[str]) -> list[str]:
    """The files that are not what they were when the run in the folder last began, of the settings
    that are `kept`; nothing where the folder does not know.
    """
    before = Provenance.read(folder)
    changed: list[str] = []
    if before is None:
        return changed
    for name in kept:
        old = before.files.get(name, {})
        new = seen_from(folder, digests(_files_named(stored, name)))
        for path in sorted({**old, **new}):
            if old.get(path) != new.get(path):
                how = (
                    "" if path in old and path in new else " is new" if path in new else " is gone"
                )
                changed.append(f"{path}{how} ({name.replace('_', ' ')})")
    return changed


def check_files(folder: Path, stored: Settings, given: Mapping[str, Any], *, accept: bool) -> None:
    """That a run goes on with the files that it was made with, but for those that are `given`
    anew, or all changes are accepted.
    """
    kept = [
        n for n in named_files(stored) if given.get(n, getattr(stored, n)) == getattr(stored, n)
    ]
    if not accept and (changed := changed_files(folder, stored, kept)):
        raise UserError(
            f"--resume {folder}: changed since the run was there: {', '.join(changed)}; put back what "
            f"it was, or go on with what it is now: {ACCEPT}"
        )


OFF = (None, "none", False, 0, "", (), [])  # None as files say it, too


def describe_changes(
    folder: Path, stored: Settings, settings: Settings, recipe: Runnable, takes: Mapping[str, Any]
) -> list[str]:
    """A line for each thing that is not what it was when the run in the folder last began.

    Args:
        stored, settings: before, and from here on.
        recipe: from here on, with all its fields.
        takes: arguments of its `build`.
    """
    lines: list[str] = []
    for f in fields(Settings):
        old, new = stored.meant(f.name), settings.meant(f.name)
        if f.name != "set" and old != new:
            lines.append(f"changed: {f.name} {_told(old)} -> {_told(new)}")
    before = {_full(recipe, k): x for k, x in stored.set.items() if k not in takes}
    origin = Provenance.read(folder)
    lines += changed_fields(before, recipe, origin) if before else []
    same = [n for n in named_files(stored) if getattr(stored, n) == getattr(settings, n)]
    lines += [f"changed: {what}" for what in changed_files(folder, stored, same)]
    if origin is None and any(digests(getattr(stored, n)) for n in same):
        lines.append(
            f"note: {folder} does not know what its files were, so nobody can say whether they have "
            "changed"
        )
    return lines


def changed_fields(
    before: Mapping[str, Any], recipe: Runnable, origin: Provenance | None = None
) -> list[str]:
    """A line for each field of a recipe that is another than before. A part or a schedule that took
    the place of another one, or of a number, is one line.

    Args:
        before: leaves by path, as a file of settings holds them, and schedules as texts.
        origin: has the classes that the parts were of; None = the same.
    """
    parts, before = dict(values.walk(recipe)), values.current_leaves(recipe, before)
    now = {k: values.file_form(x) for k, x in values.flatten(recipe).items()}
    replaced = {k for k in before if k not in now and k in parts}  # a number, or a schedule as text
    replaced |= {k for k in now if _is_inside(k, before)}
    here = classes(recipe)
    kinds = here if origin is None else origin.parts
    replaced |= {k for k in {*kinds, *here} if k and kinds.get(k) != here.get(k)}
    outermost = {k for k in replaced if not any(k.startswith(f"{p}.") for p in replaced)}
    lines: list[str] = []
    for path in sorted({*now, *before, *outermost}):
        if path in outermost:
            old, new = _old_part(path, before, kinds), _new_part(parts.get(path, "nothing"))
        elif any(path.startswith(f"{p}.") for p in outermost):
            continue
        else:
            old, new = before.get(path, "nothing"), now.get(path, "nothing")
            if path not in before and new in OFF:  # a part has a new option, which is off
                continue
        if old != new:
            lines.append(f"changed: {path} {_told(old)} -> {_told(new)}")
    return lines


def _old_part(path: str, before: Mapping[str, Any], kinds: Mapping[str, str]) -> Any:
    """What stood at a path: a number or a text, else the class of a part with its numbers."""
    if path in before:
        schedule = values.read_schedule(x) if isinstance(x := before[path], str) else None
        return x if schedule is None else values.brief(schedule)
    inside = {k.removeprefix(f"{path}."): x for k, x in before.items() if k.startswith(f"{path}.")}
    if path in kinds or not inside:
        return kinds.get(path, "nothing")
    return f"a schedule ({', '.join(f'{k}={x}' for k, x in inside.items())})"


def _new_part(part: Any) -> Any:
    return values.file_form(part) if values.is_scalar(part) else values.brief(part)


def _full(recipe: Runnable, path: str) -> str:
    """The whole path of a field, as given where the recipe does not have it any more."""
    try:
        return values.find(recipe, path)
    except UserError:
        return path


def _is_inside(path: str, leaves: Mapping[str, Any]) -> bool:
    """Whether a path stands for parts, not for a number."""
    return any(k.startswith(f"{path}.") for k in leaves)


def _told(x: Any) -> str:
    return "the default" if x in (None, "", ()) else str(x)


def check_parts(folder: Path, recipe: Runnable, *, accept: bool) -> None:
    """That a recipe which is a value has the parts of the run in the folder; numbers may differ."""
    before, now = Provenance.read(folder), classes(recipe)
    if accept or before is None or before.parts == now:
        return
    path = next(p for p in {**before.parts, **now} if before.parts.get(p) != now.get(p))
    old, new = before.parts.get(path, "nothing"), now.get(path, "nothing")
    raise UserError(
        f"--resume {folder}: the recipe of this run has {old} as {path or 'its kind'}, and the one "
        f"that is given has {new}; give one that differs in numbers only, start a new run from a "
        f"checkpoint of this one (model=...), or go on so: {ACCEPT}"
    )


def lasting_fields(
    folder: Path, stored: Mapping[str, Any], takes: Mapping[str, Any]
) -> dict[str, Any]:
    """Which stored overrides say more than the recipe of the run said by itself: those that last
    where the recipe is given anew, or its file has changed.
    """
    before = Provenance.read(folder)
    base = {} if before is None else before.fields
    return {k: x for k, x in stored.items() if k in takes or k not in base or base[k] != x}
