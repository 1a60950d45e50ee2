"""Checkpoints that survive a kill at any moment: written aside, fsynced, renamed; verified when read.

checkpoints/step-N/   what the writers put there (models), state.json, state.safetensors, manifest.json (sizes and sha256)
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from palaestra.runtime.codec import decode, encode
from palaestra.types import Fault, UserError

FORMAT = 1
PREFIX = "step-"
ASIDE = ".writing-"


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint on disk."""

    path: Path
    step: int

    def state(self) -> Any:
        """The saved state."""
        tensors = load_file(str(self.path / "state.safetensors"))
        return decode(json.loads((self.path / "state.json").read_text()), tensors)


def save(run: Path, step: int, state: Any, writers: Mapping[str, Callable[[Path], None]], keep: int = 2) -> Path:
    """Writes `checkpoints/step-N` whole or not at all; then only the newest `keep` remain.

    `writers` map subfolders ("." = the checkpoint itself) to what writes into them. A full or read-only disk is a Fault or a
    UserError, and leaves earlier checkpoints alone.
    """
    folder = run / "checkpoints"
    aside, final = folder / f"{ASIDE}{step}", folder / f"{PREFIX}{step}"
    with disk(f"writing {final}"):
        folder.mkdir(parents=True, exist_ok=True)
        clean(folder)
        try:
            aside.mkdir()
            for name, write in writers.items():
                target = aside / name
                target.mkdir(parents=True, exist_ok=True)
                write(target)
            plain, tensors = encode(state)
            (aside / "state.json").write_text(json.dumps(plain))
            save_file(tensors, str(aside / "state.safetensors"))
            files = {str(p.relative_to(aside)): _describe(p) for p in sorted(aside.rglob("*")) if p.is_file()}
            (aside / "manifest.json").write_text(json.dumps({"format": FORMAT, "step": step, "files": files}, indent=1))
            for path in [*aside.rglob("*"), aside]:
                _sync(path)
            if final.exists():  # written by an earlier run of the same step
                shutil.rmtree(final)
            aside.rename(final)
            _sync(folder)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        for old in sorted(folder.glob(f"{PREFIX}*"), key=_step)[:-keep]:
            shutil.rmtree(old)
    return final


def latest(run: Path) -> tuple[Checkpoint | None, list[tuple[Path, str]]]:
    """The newest checkpoint that is whole, and the damaged ones that are newer, each with the reason."""
    folder, damaged = run / "checkpoints", []
    for path in sorted(folder.glob(f"{PREFIX}*"), key=_step, reverse=True):
        why = damage(path)
        if why is None:
            return Checkpoint(path, _step(path)), damaged
        damaged.append((path, why))
    return None, damaged


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint; None = it is whole."""
    try:
        manifest = json.loads((path / "manifest.json").read_text())
        files = manifest["files"]
    except OSError:
        return "it has no manifest"
    except (ValueError, KeyError, TypeError):
        return "its manifest cannot be read"
    if manifest.get("format") != FORMAT:
        return f"it has format {manifest.get('format')}, not {FORMAT}"
    for name, expected in files.items():
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        if file.stat().st_size != expected["size"]:
            return f"{name} has {file.stat().st_size} bytes instead of {expected['size']}"
        if _describe(file) != expected:
            return f"{name} is not what was written"
    return None


def clean(folder: Path) -> None:
    """Removes what a killed save left behind."""
    for path in folder.glob(f"{ASIDE}*"):
        shutil.rmtree(path)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replaces a file whole."""
    aside = path.with_name(f".{path.name}.writing")
    with disk(f"writing {path}"):
        aside.write_bytes(content.encode() if isinstance(content, str) else content)
        _sync(aside)
        aside.replace(path)


class AppendLog:
    """A file of JSON lines that is only appended to. A line torn by a kill is dropped at the next opening."""

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._keep(lambda record: True)

    def append(self, record: Mapping[str, Any]) -> None:
        with disk(f"writing {self.path}"), self.path.open("a") as f:
            f.write(json.dumps(record) + "\n")

    def truncate_after(self, step: int) -> None:
        """Forgets records of later steps: a resumed run writes them again."""
        if self.path.exists():
            self._keep(lambda record: record["step"] <= step)

    def _keep(self, wanted: Callable[[dict[str, Any]], bool]) -> None:
        lines = self.path.read_text().splitlines(keepends=True)
        kept = [x for x in lines if x.endswith("\n") and wanted(json.loads(x))]
        if kept != lines:
            write_atomic(self.path, "".join(kept))


@contextmanager
def disk(doing: str) -> Generator[None]:
    """Turns what a disk refuses into one line."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise UserError(f"{doing}: {error.strerror}; choose another folder with --out") from None
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise Fault("disk", f"{doing}: {error.strerror}; free some space and go on with --resume") from None
        raise
    except Exception as error:  # safetensors reports input and output errors in a class of its own
        text = str(error)
        if "os error 28" in text or "No space left" in text or "os error 27" in text:
            raise Fault("disk", f"{doing}: no space left; free some and go on with --resume") from None
        raise


def _step(path: Path) -> int:
    digits = path.name.removeprefix(PREFIX)
    return int(digits) if digits.isdecimal() else -1


def _describe(path: Path) -> dict[str, Any]:
    with path.open("rb") as f:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(f, "sha256").hexdigest()}


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
