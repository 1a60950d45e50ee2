"""What a wheel and a source distribution hold, and what takes the space:
python -m tools.package.contents [--sdist] [--page docs/package.md]

Builds them in a temporary folder, without reaching an index. With --page the table between the
marks of that page is written anew.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from palaestra.markdown import code, fill_marks, table

ROOT = Path(__file__).parents[2]
SHARE = 0.01  # of the whole; what takes less is added up in the last row


@dataclass(frozen=True)
class Content:
    """A file of a distribution: bytes in the archive, and bytes on the disk."""

    name: str
    packed: int
    unpacked: int


def build(out: Path, root: Path = ROOT, target: str = "wheel") -> Path:
    """Builds one distribution of the tree at `root` into the folder `out`, and returns its file."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(out.resolve())]
    subprocess.run(words, cwd=root, check=True, capture_output=True)
    (made,) = out.glob({"wheel": "*.whl", "sdist": "*.tar.gz"}[target])
    return made


def wheel_contents(path: Path) -> list[Content]:
    """The files of a wheel, each with its size in the archive."""
    with zipfile.ZipFile(path) as archive:
        return [Content(x.filename, x.compress_size, x.file_size) for x in archive.infolist()]


def sdist_names(path: Path) -> list[str]:
    """The files of a source distribution, from its own folder on."""
    with tarfile.open(path) as archive:
        return [x.name.split("/", 1)[1] for x in archive.getmembers() if x.isfile()]


def room_of(name: str) -> str:
    """The folder whose size is told: two levels deep, three where the weights of models lie."""
    parts = name.split("/")[:-1]
    depth = 3 if parts[:2] == ["palaestra", "models"] else 2
    return "/".join(parts[:depth])


def room_sizes(contents: Iterable[Content]) -> dict[str, tuple[int, int]]:
    """Packed and unpacked bytes of each folder, the largest first; small ones are one row."""
    sizes: dict[str, tuple[int, int]] = {}
    for x in contents:
        packed, unpacked = sizes.get(room_of(x.name), (0, 0))
        sizes[room_of(x.name)] = (packed + x.packed, unpacked + x.unpacked)
    whole = sum(packed for packed, _ in sizes.values())
    large = {room: x for room, x in sizes.items() if x[0] >= SHARE * whole}
    small = [x for room, x in sizes.items() if room not in large]
    rows = dict(sorted(large.items(), key=lambda x: -x[1][0]))
    return rows | {f"{len(small)} smaller folders": tuple(map(sum, zip(*small, strict=True)))}


def contents_table(sizes: Mapping[str, tuple[int, int]]) -> str:
    """The sizes as a table, in thousands of bytes, with their sums."""
    rows = [
        (code(room) if "/" in room else room, f"{packed / 1e3:,.0f}", f"{unpacked / 1e3:,.0f}")
        for room, (packed, unpacked) in sizes.items()
    ]
    sums = (f"{sum(x) / 1e3:,.0f}" for x in zip(*sizes.values(), strict=True))
    return table([*rows, ("all", *sums)], "folder", "kB in the wheel", "kB installed")


def main() -> None:
    parser = argparse.ArgumentParser(description="what takes the space in a wheel")
    parser.add_argument("--sdist", action="store_true", help="the source distribution as well")
    parser.add_argument("--page", metavar="FILE.md", help="write the table into this page")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = build(Path(folder))
        contents = contents_table(room_sizes(wheel_contents(wheel)))
        whole = f"The wheel is a file of {wheel.stat().st_size / 1e6:.1f} MB.\n\n{contents}"
        print(f"{wheel.name}\n\n{whole}")
        if arguments.sdist:
            sdist = build(Path(folder), target="sdist")
            n, size = len(sdist_names(sdist)), sdist.stat().st_size / 1e6
            print(f"\n{sdist.name}: {size:.1f} MB, {n} files")
    if arguments.page:
        page = Path(arguments.page)
        page.write_text(fill_marks(page.read_text(), {"contents": whole}))


if __name__ == "__main__":
    main()
