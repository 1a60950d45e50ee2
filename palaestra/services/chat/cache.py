"""Replies on disk, one JSON file a request: what was asked once is not asked again, and a resumed
run hears the same.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

from palaestra.errors import Fault
from palaestra.services.chat.replies import stored_reply
from palaestra.types import Reply


class Cache:
    """A folder of replies by digest. Without a folder it holds nothing."""

    def __init__(self, folder: Path | None):
        self.folder = folder

    def get(self, digest: str) -> Reply | None:
        """The reply; None where there is none, or what is there cannot be read, or be paid."""
        if self.folder is None:
            return None
        try:
            return stored_reply(json.loads(self._path(digest).read_bytes()))
        except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            return None

    def put(self, digest: str, reply: Reply) -> None:
        """Whole or not at all: written beside its place and renamed."""
        if self.folder is None:
            return
        path = self._path(digest)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, aside = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(asdict(reply), file)
            os.replace(aside, path)
        except OSError as error:
            raise Fault("disk", f"{path}: {error.strerror}") from None

    def _path(self, digest: str) -> Path:
        assert self.folder is not None
        return self.folder / digest[:2] / f"{digest}.json"
