"""What was read of a run folder, kept as Arrow files that are mapped into memory: a second look
costs nothing. They lie in the user's cache folder and may be deleted; a run folder is not written
to.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

COLUMNS_VERSION = 3  # of what is kept; what another version kept is read anew

Stamp = list[list[object]]


class TableCache:
    """Tables of a folder by name, each with the files that it was made of."""

    def __init__(self, folder: Path, home: Path | None = None):
        xdg = os.environ.get("XDG_CACHE_HOME")
        root = home or (Path(xdg) if xdg else Path.home() / ".cache") / "palaestra" / "view"
        name = hashlib.sha256(str(folder.resolve()).encode("utf-8", "replace")).hexdigest()
        self.place = root / name[:16]

    def table(
        self, name: str, files: Sequence[Path], read: Callable[[Sequence[Path]], pa.Table]
    ) -> pa.Table:
        """`read(files)`, of which only those are read that are not known, or have changed since.
        That a run appended some files leaves what was known of the others.
        """
        stamp: Stamp = [[f.name, (s := f.stat()).st_size, s.st_mtime_ns] for f in files]
        known, table = self._load(name)
        n = len(known)
        if table is None or known != stamp[:n]:
            table, n = None, 0
        if table is not None and n == len(files):
            return table
        more = read(files[n:])
        parts = [more] if table is None else [table, more]
        whole = pa.concat_tables(parts, promote_options="default")
        whole = whole.unify_dictionaries().combine_chunks()
        self._save(name, stamp, whole)
        return whole

    def _load(self, name: str) -> tuple[Stamp, pa.Table | None]:
        try:
            header = json.loads((self.place / f"{name}.json").read_text())
            if header["version"] != COLUMNS_VERSION:
                return [], None
            kept = pa.memory_map(str(self.place / Path(header["table"]).name))
            return header["files"], pa.ipc.open_file(kept).read_all()
        except (OSError, ValueError, KeyError, TypeError):  # pyarrow's own errors are among these
            return [], None

    def _save(self, name: str, stamp: Stamp, table: pa.Table) -> None:
        """A new file beside the old one, which may be mapped. A cache that cannot be written is
        none.
        """
        with suppress(OSError):
            self.place.mkdir(parents=True, exist_ok=True)
            old = set(self.place.glob(f"{name}-*.arrow"))
            new = self.place / f"{name}-{os.getpid()}-{os.urandom(4).hex()}.arrow"
            with pa.OSFile(str(new), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
                out.write_table(table)
            draft = self.place / f"{name}.{os.getpid()}.draft"
            header = {"version": COLUMNS_VERSION, "files": stamp, "table": new.name}
            draft.write_text(json.dumps(header))
            draft.replace(self.place / f"{name}.json")
            for file in old:
                file.unlink(missing_ok=True)
