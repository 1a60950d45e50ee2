"""Files that survive a kill at any moment: checkpoints, files replaced whole, logs that only grow.

    checkpoints/step-N/    what the writers put there (models, and the tensors of optimisers in
                           optimisers/NAME/), state.json, state.safetensors,
                           and manifest.json, written last: format, step, size and sha256 of every file
    checkpoints/.writing-N/    a save under way; without its process, rubbish
    checkpoints/.draft-N/      models of a checkpoint whose state is not whole yet
    checkpoints/.replaced-N/   the checkpoint that a second save of the same step is about to replace

A checkpoint is written beside its place, fsynced and renamed, so its name exists only when it is
whole. The lock on `checkpoints/.lock` ends with its process, however that ends: whoever gets it may
remove what others left behind.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from safetensors.torch import load_file, save_file

from palaestra.errors import FULL_ERRORS, Fault, UserError
from palaestra.store.codec import decode, encode

FORMAT = 1
STATE = ("state.json", "state.safetensors")
STEP, WRITING, REPLACEMENT, DRAFT = "step-", ".writing-", ".replaced-", ".draft-"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk. `find_latest` gives only whole ones."""

    path: Path
    step: int

    def state(self) -> Any:
        """The saved state. Raises UserError if another version of the package wrote what this one
        cannot make.
        """
        plain, tensors = (self.path / name for name in STATE)
        try:
            return decode(json.loads(plain.read_text()), load_file(tensors))
        except (TypeError, ValueError, KeyError) as error:
            raise UserError(
                f"{self.path}: {error}; go on with the version of palaestra that wrote it"
            ) from error

    def damage(self) -> str | None:
        """What is wrong with it; None = it is whole."""
        try:
            manifest = json.loads((self.path / "manifest.json").read_bytes())
            stored_format, step, files = (
                manifest["format"],
                manifest["step"],
                dict(manifest["files"]),
            )
        except OSError as error:
            return f"no manifest.json ({os.strerror(error.errno or 0).lower()})"
        except (ValueError, TypeError, KeyError):
            return "manifest.json cannot be read"
        if (stored_format, step) != (FORMAT, self.step):
            return (
                f"manifest.json speaks of format {stored_format} and step {step}, not {FORMAT} and "
                f"{self.step}"
            )
        missing = [name for name in STATE if name not in files]
        if missing:
            return f"manifest.json does not name {missing[0]}"
        return next(
            (why for name in files if (why := _find_damage(self.path / name, name, files[name]))),
            None,
        )


def save(
    run: Path,
    step: int,
    state: Any,
    writers: Mapping[str, Callable[[Path], object]],
    keep: int = 2,
) -> Path:
    """Writes `checkpoints/step-N` whole or not at all; then only the newest `keep` remain.

    `writers` map subfolders ("." = the checkpoint itself) to what writes into them. Checkpoints of
    later steps go: they belong to a future that was left. Raises Fault where the disk is full,
    UserError where it refuses, TypeError for a state that `encode` does not take; earlier
    checkpoints are untouched by all of them.
    """
    folder = Path(run) / "checkpoints"
    final, aside = folder / f"{STEP}{step}", folder / f"{WRITING}{step}"
    with disk_errors(f"writing {final}"):
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder, wait=True):
            _clean(folder)
            try:
                _write(aside, step, state, writers)
                if final.exists():
                    final.rename(folder / f"{REPLACEMENT}{step}")
                aside.rename(final)
                _sync(folder)
            except BaseException:
                with suppress(OSError):
                    _clean(folder)
                raise
            known = sorted(_steps(folder))
            keeping = [n for n in known if n <= step][-max(keep, 1) :]
            for old in [n for n in known if n not in keeping]:
                # no half of it may ever be seen
                (folder / f"{STEP}{old}").rename(folder / f"{WRITING}{old}")
            _clean(folder)
    return final


def write_draft(run: Path, step: int, writers: Mapping[str, Callable[[Path], object]]) -> Path:
    """What `writers` write of a checkpoint that is not whole yet, in a folder beside the others."""
    place = Path(run) / "checkpoints" / f"{DRAFT}{step}"
    with disk_errors(f"writing {place}"):
        remove_drafts(run)
        for name, write in writers.items():
            (place / name).mkdir(parents=True, exist_ok=True)
            write(place / name)
    return place


def move_draft(draft: Path, to: Path) -> None:
    """Puts what lies in a draft into the folder of its checkpoint."""
    for path in draft.iterdir():
        path.rename(to / path.name)
    draft.rmdir()


def remove_drafts(run: Path) -> None:
    """Removes what a process that is no more did not make whole. For the run's own process."""
    for path in (Path(run) / "checkpoints").glob(f"{DRAFT}*"):
        shutil.rmtree(path)


def checkpoint_of(place: Path) -> Path | None:
    """The checkpoint of a run that a whole path leads to, itself or a learner's model in it; None =
    it leads elsewhere.
    """
    return next((p for p in (place, place.parent) if p.parent.name == "checkpoints"), None)


def find_latest(run: Path) -> tuple[Checkpoint | None, list[tuple[Path, str]]]:
    """The newest whole checkpoint, and the damaged ones that are newer, each with the reason."""
    folder = Path(run) / "checkpoints"
    # somebody else is saving, or we may only read
    with suppress(OSError), _lock(folder, wait=False):
        _clean(folder)
    damaged: list[tuple[Path, str]] = []
    for step in sorted(_steps(folder), reverse=True):
        checkpoint = Checkpoint(folder / f"{STEP}{step}", step)
        reason = checkpoint.damage()
        if reason is None:
            return checkpoint, damaged
        if checkpoint.path.exists():  # else a save has just removed it, for its age
            damaged.append((checkpoint.path, reason))
    return None, damaged


def _write(
    aside: Path, step: int, state: Any, writers: Mapping[str, Callable[[Path], object]]
) -> None:
    """A whole checkpoint under another name, on the disk to its last byte."""
    plain, tensors = encode(state)
    aside.mkdir()
    for name, write in writers.items():
        (aside / name).mkdir(parents=True, exist_ok=True)
        write(aside / name)
    taken = [name for name in (*STATE, "manifest.json") if (aside / name).exists()]
    if taken:
        raise ValueError(
            f"a writer wrote {taken[0]}, whose name is the checkpoint's own; give it a subfolder"
        )
    (aside / STATE[0]).write_text(json.dumps(plain, separators=(",", ":"), allow_nan=False))
    save_file(tensors, aside / STATE[1])
    files = {
        p.relative_to(aside).as_posix(): _describe(p)
        for p in sorted(aside.rglob("*"))
        if p.is_file()
    }
    (aside / "manifest.json").write_text(
        json.dumps({"format": FORMAT, "step": step, "files": files}, indent=1)
    )
    for path in [*aside.rglob("*"), aside]:
        _sync(path)


def _steps(folder: Path) -> list[int]:
    names = (re.fullmatch(rf"{STEP}(0|[1-9]\d*)", p.name) for p in folder.glob(f"{STEP}*"))
    return [int(match[1]) for match in names if match]


def _clean(folder: Path) -> None:
    """Removes what a killed save left; a checkpoint that it had set aside and not yet replaced
    comes back.
    """
    for path in folder.glob(f"{REPLACEMENT}*"):
        final = folder / path.name.replace(REPLACEMENT, STEP, 1)
        shutil.rmtree(path) if final.exists() else path.rename(final)
    for path in folder.glob(f"{WRITING}*"):
        shutil.rmtree(path)


@contextmanager
def _lock(folder: Path, *, wait: bool) -> Generator[None]:
    with (folder / ".lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            if not wait:
                # and where a file system has no locks, one run's folder has one writer anyway
                raise
        yield


def _find_damage(file: Path, name: str, expected: Any) -> str | None:
    try:
        damage = _describe(file)
    except OSError as error:
        return f"{name}: {os.strerror(error.errno or 0).lower()}"
    if not isinstance(expected, dict) or damage["size"] != expected.get("size"):
        return f"{name} has {damage['size']} bytes, not what manifest.json says"
    return None if damage == expected else f"{name} has another sha256 than manifest.json says"


def _describe(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {
            "size": path.stat().st_size,
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
        }


def _sync(path: Path) -> None:
    """To the disk: the bytes of a file, the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---- single files


def make_folder(folder: Path) -> Path:
    """The folder, there and writable: to be asked for before the work whose result it
    is to hold.
    """
    with disk_errors(f"writing into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    return folder


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replaces a file whole: a reader sees the old content or the new."""
    path = Path(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    with disk_errors(f"writing {path}"):
        try:
            with aside.open("wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
            _sync(path.parent)
        except BaseException:
            with suppress(OSError):
                aside.unlink()
            raise


class AppendLog:
    """A file of JSON lines that only grows. A line torn by a kill is dropped when the log is opened
    again.
    """

    def __init__(self, path: Path):
        self.path = Path(path)
        with disk_errors(f"writing {self.path}"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab+") as file:
                file.seek(0)
                whole = sum(len(line) for line in file if line.endswith(b"\n"))
                file.truncate(whole)

    def append(self, record: Mapping[str, Any]) -> None:
        """Adds one line of `jsonable` data."""
        line = (json.dumps(jsonable(record), allow_nan=False) + "\n").encode()
        with disk_errors(f"writing {self.path}"), self.path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                _write_all(file, line)
            except OSError:
                file.truncate(before)  # half a line would swallow the next one
                raise

    def last(self) -> Any:
        """The newest record; None = there is none."""
        lines = self.path.read_bytes().splitlines()
        return json.loads(lines[-1]) if lines else None

    def truncate_after(self, step: int) -> None:
        """Forgets records of later steps: a resumed run writes them again. One without a step is of
        the last before.
        """
        kept, at = [], -math.inf
        lines = self.path.read_bytes().splitlines(keepends=True)
        for n, line in enumerate(lines, start=1):
            try:
                at = json.loads(line).get("step", at)
            except (ValueError, AttributeError):
                raise UserError(
                    f"{self.path}, line {n}: not a JSON object; remove that line"
                ) from None
            if at <= step:
                kept.append(line)
        if len(kept) < len(lines):
            write_atomic(self.path, b"".join(kept))


def _write_all(file: IO[bytes], data: bytes) -> None:
    """An unbuffered write may take a part only."""
    while data:
        data = data[file.write(data) :]


def jsonable(x: Any) -> Any:
    """Plain data for JSON: arrays and tensors as lists, keys as text, a number that is not finite
    as null.
    """
    if isinstance(x, Mapping):
        return {str(k): jsonable(v) for k, v in x.items()}
    x = x.tolist() if hasattr(x, "tolist") else x
    if isinstance(x, list | tuple):
        return [jsonable(v) for v in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x


# ---- what a disk refuses

REFUSAL_ERRORS = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.EISDIR,
    errno.ENAMETOOLONG,
}  # fmt: skip


@contextmanager
def disk_errors(doing: str) -> Generator[None]:
    """Turns what a disk refuses into one line: a Fault where it fails, a UserError where another
    folder would do.
    """
    try:
        yield
    except Exception as error:
        number = _errno(error)
        what = f"{doing}: {os.strerror(number).lower()}" if number else ""
        if number in FULL_ERRORS:
            raise Fault("disk", f"{what}; free some space and go on with --resume") from error
        if number == errno.EIO:
            raise Fault("disk", f"{what}; the disk itself fails") from error
        if number in REFUSAL_ERRORS:
            raise UserError(f"{what}; mend it or choose another folder with --out") from error
        raise


def _errno(error: Exception) -> int | None:
    """The number of a failed system call. Libraries in Rust (safetensors, tokenizers) have it in
    their text only.
    """
    if isinstance(error, OSError) and error.errno:
        return error.errno
    match = re.search(r"\(os error (\d+)\)", str(error))
    return int(match[1]) if match else None
