"""Where records lie: files, globs, folders, what `datasets` saved, data sets of the Hugging Face hub.

    problems.jsonl  train.csv  "parts/*.jsonl.gz"  data/  openai/gsm8k:main:train

What a name of the hub stands for, `OWNER/NAME[@REVISION][:CONFIG[:SPLIT]]`, is loaded by
`datasets`, which runs no code of a data set. A folder's files belong to splits by the words "train",
"test" or "validation" in their names, as `datasets` reads folders
(huggingface.co/docs/datasets/repository_structure).
"""

from __future__ import annotations

import glob
import json
import re
import shutil
import tempfile
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from palaestra.errors import UserError
from palaestra.suggest import suggestion
from palaestra.tasks.designs import design_items
from palaestra.tasks.formats import is_message
from palaestra.tasks.records import (
    BOM,
    SHAPE,
    Joined,
    Lines,
    Listed,
    Records,
    Rows,
    SplitRows,
    decode_text,
    fault,
    first_line,
)

SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet", ".csv", ".tsv", ".arrow", ".txt")
PACKED = (".gz", ".zst")  # around files of text
TEXT = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".txt")
SAVED_FILES = ("dataset_info.json", "dataset_dict.json", "state.json")  # what `save_to_disk` leaves
ABOUT = (*SAVED_FILES, "dataset_infos.json")  # describes data and is none
HUB = re.compile(
    r"(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?(:(?P<config>[\w.-]*)(:(?P<split>[^:/]+))?)?"
)
SPLIT_WORDS = {
    "train": "train", "training": "train",
    "test": "test", "testing": "test", "eval": "test", "evaluation": "test",
    "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
}  # fmt: skip


def open_records(given: str) -> dict[str, Records]:
    """The records that a user names, under "", or by split where there are several."""
    path = Path(given).expanduser()
    try:
        if path.is_dir():
            return open_folder(path)
        if path.exists():
            return {"": read_file(path)}
        if glob.has_magic(given):
            return {"": join_files(given, files_of(given))}
    except PermissionError as error:
        denied = error.filename or path
        raise UserError(
            f"{denied}: no permission to read this file; change its mode or copy it"
        ) from None
    if (match := HUB.fullmatch(given)) and suffixes_of(path)[0] not in SUFFIXES:
        return hub_dataset(given, match)
    folder = path.parent
    near = suggestion(path.name, [p.name for p in folder.iterdir()] if folder.is_dir() else [])
    raise UserError(f"{path}: no such file{near or f' (looked in {folder.resolve()})'}")


def write_records(file: Path, records: Iterable[Mapping[str, Any]]) -> str:
    """Writes records as JSON Lines in UTF-8, in a folder that is made where it is missing; the path as text."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    file.write_text("".join(lines), encoding="utf-8")
    return str(file)


def files_of(given: str) -> list[Path]:
    """The files that hold the records; none where they are the hub's."""
    path = Path(given).expanduser()
    if path.is_dir():
        return sorted(p for p in path.rglob("*") if p.is_file())
    if path.exists():
        return [path]
    paths = glob.glob(str(path), recursive=True) if glob.has_magic(given) else []
    return sorted(p for p in map(Path, paths) if p.is_file())


def name_of(given: str) -> str:
    """A short name for the records."""
    asked = None if Path(given).expanduser().exists() else HUB.fullmatch(given)
    return Path(given if asked is None else asked["name"]).stem


def join_files(given: str | Path, files: list[Path]) -> Records:
    """The records of files in the order of their names."""
    if not files:
        raise UserError(f"{given}: no file is named so; mend the pattern")
    parts = [read_file(p) for p in files]
    return parts[0] if len(parts) == 1 else Joined(given, parts)


def suffixes_of(path: Path) -> tuple[str, str]:
    """The suffix that says what a file holds, and that of what it is packed in."""
    packed = path.suffix.lower() if path.suffix.lower() in PACKED else ""
    return Path(path.stem if packed else path.name).suffix.lower(), packed


def read_file(path: Path) -> Records:
    """The records of one file."""
    suffix, packed = suffixes_of(path)
    if suffix not in (TEXT if packed else SUFFIXES):
        raise UserError(
            f"{path}: cannot read {''.join((suffix, packed)) or 'a file without suffix'}; write it "
            f"as {', '.join(SUFFIXES)}; text may be packed as {' or '.join(PACKED)}"
        )
    if not path.is_file():  # reading a pipe or a device may never end
        raise UserError(f"{path}: not a regular file; write the records into one and name it")
    if path.stat().st_size == 0:
        raise UserError(f"{path}: the file is empty; it needs one record a problem, {SHAPE}")
    if suffix not in TEXT:
        return TABLES[suffix](path, path)
    unpacked = unpack(path, packed) if packed else None
    source = path if unpacked is None else Path(unpacked.name)
    check_encoding(path, source)
    if suffix in TABLES:
        return TABLES[suffix](path, source)
    if suffix == ".json":
        check_wrapped(path, source)
    if suffix == ".json" and first_character(source) == b"[":
        return json_list(path, source)
    return Lines(path, unpacked=unpacked)


def unpack(path: Path, packed: str) -> IO[bytes]:
    """What a compressed file holds, in a file that goes away with this object."""
    import pyarrow as pa

    unpacked = tempfile.NamedTemporaryFile(suffix=path.stem)  # noqa: SIM115  the caller holds it
    codec = {".gz": "gzip", ".zst": "zstd"}[packed]
    try:
        with pa.input_stream(str(path), compression=codec) as stream:
            shutil.copyfileobj(stream, unpacked, 1 << 20)
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, PermissionError):
            raise
        raise UserError(
            f"{path}: cannot be unpacked ({first_line(error)}); pack it again"
        ) from None
    unpacked.flush()
    return unpacked


def first_character(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4096).removeprefix(BOM).lstrip()[:1]


def check_encoding(path: Path, source: Path) -> None:
    """Refuses text in UTF-16 or UTF-32, which spreadsheets and PowerShell write."""
    with source.open("rb") as file:
        start = file.read(2)
    if start in (BOM_UTF16_LE, BOM_UTF16_BE):
        raise UserError(f"{path}: the text is UTF-16 or UTF-32; save it as UTF-8")


def check_wrapped(path: Path, source: Path) -> None:
    """Refuses a file that is one JSON object around a list of records."""
    if first_character(source) != b"{":
        return
    try:
        whole = json.loads(source.read_bytes().removeprefix(BOM))
    except (ValueError, RecursionError):
        return  # one object a line
    for name, rows in whole.items():
        listed = isinstance(rows, list) and rows and all(isinstance(r, Mapping) for r in rows)
        if listed and not any(map(is_message, rows)):
            raise UserError(
                f"{path}: the file is one object, and its {name!r} holds a list; write that list "
                "alone"
            )


def check_names(path: Path, names: Sequence[str]) -> None:
    """Refuses a table in which two columns have one name: only one of them could be read."""
    if twice := [n for n, times in Counter(names).items() if times > 1]:
        raise UserError(f"{path}: several columns are named {twice[0]!r}; rename all but one")


def json_list(path: Path, source: Path) -> Records:
    text = decode_text(source.read_bytes().removeprefix(BOM), str(path))
    try:
        return Listed(path, json.loads(text), "record")
    except json.JSONDecodeError as error:
        raise UserError(
            f"{path}:{error.lineno}: not JSON ({fault(error)}); mend the list there"
        ) from None
    except (RecursionError, ValueError) as error:
        raise UserError(
            f"{path}: not JSON ({fault(error)}); write one object a line into a .jsonl file"
        ) from None


def parquet(path: Path, source: Path) -> Records:
    import pyarrow as pa
    from pyarrow.parquet import read_schema, read_table

    try:
        check_names(path, read_schema(source).names)
        table = read_table(source, memory_map=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(
            f"{path}: not a Parquet file ({first_line(error)}); write it again"
        ) from None
    return Listed(path, Rows(table), "row")


def arrow(path: Path, source: Path) -> Records:
    """Arrow's file or stream format; `datasets` writes the second."""
    import pyarrow as pa

    try:
        mapped = pa.memory_map(str(source))
        try:
            table = pa.ipc.open_file(mapped).read_all()
        except pa.ArrowInvalid:
            mapped.seek(0)
            table = pa.ipc.open_stream(mapped).read_all()
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(
            f"{path}: not an Arrow file ({first_line(error)}); write it again"
        ) from None
    check_names(path, table.column_names)
    return Listed(path, Rows(table), "row")


def csv(path: Path, source: Path) -> Records:
    """A table of text under a line of names. Nothing is read as a number, so "007" stays; an empty
    cell is nothing.
    """
    import pyarrow as pa
    from pyarrow.csv import ConvertOptions, ParseOptions, open_csv, read_csv

    tabs = suffixes_of(path)[0] == ".tsv"
    parse = ParseOptions(delimiter="\t" if tabs else ",", newlines_in_values=True)
    try:
        names = open_csv(source, parse_options=parse).schema.names
        check_names(path, names)
        text = ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            null_values=[""],
        )
        table = read_csv(source, parse_options=parse, convert_options=text)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path}: not a table ({first_line(error)}); write it again") from None
    if len(names) == 1 and (other := re.search("[;\t|,]", names[0])):
        raise UserError(
            f"{path}: one column, {names[0]!r}: its cells are parted by {other[0]!r}; write commas "
            "into .csv, tabs into .tsv"
        )
    return Listed(path, Rows(table), "row")


def paragraphs(path: Path, source: Path) -> Records:
    """Plain text: a record {"text": ...} for each paragraph, or for each line where no blank line
    parts paragraphs.
    """
    text = decode_text(source.read_bytes().removeprefix(BOM), str(path))
    parts = [p.strip() for p in re.split(r"\r?\n[ \t]*(?:\r?\n[ \t]*)+", text) if p.strip()]
    if len(parts) == 1:
        parts = [line.strip() for line in text.splitlines() if line.strip()]
    return Listed(path, [{"text": p} for p in parts], "paragraph")


TABLES: Mapping[str, Callable[[Path, Path], Records]] = {
    ".parquet": parquet, ".arrow": arrow, ".csv": csv, ".tsv": csv, ".txt": paragraphs,
}  # fmt: skip


def open_folder(path: Path) -> dict[str, Records]:
    """A saved data set, or the files of a folder by the splits that their names say."""
    if any((path / name).exists() for name in SAVED_FILES):
        return saved_dataset(path)
    if items := design_items(path):
        return {"": Listed(path, items, "design")}
    files = [
        p
        for p in files_of(str(path))
        if suffixes_of(p)[0] in SUFFIXES
        and p.name not in ABOUT
        and not any(x.startswith(".") for x in p.relative_to(path).parts)
    ]
    if not files:
        raise UserError(
            f"{path}: a folder without a saved dataset; write one with save_to_disk, or name a file"
        )
    splits = {p: split_of_name(str(p.relative_to(path))) for p in files}
    with_split = [p for p in files if splits[p]]
    if with_split and (silent := [p for p in files if not splits[p]]):
        raise UserError(
            f"{path}: {with_split[0].name} says its split and {silent[0].name} does not; name the files "
            "that are meant, with * for several"
        )
    return {s: join_files(path, [p for p in files if splits[p] == s]) for s in splits.values()}


def split_of_name(name: str) -> str:
    """The split that a file's name, or its folder's, says; "" where it says none."""
    words = re.split(r"[\W_\d]+", name.lower())
    return next((SPLIT_WORDS[w] for w in words if w in SPLIT_WORDS), "")


def saved_dataset(path: Path) -> dict[str, Records]:
    """What `Dataset.save_to_disk` or `DatasetDict.save_to_disk` wrote."""
    try:
        from datasets import load_from_disk
    except ImportError:
        raise UserError(
            f"{path}: reading a saved dataset needs: pip install 'palaestra[datasets]'"
        ) from None
    try:
        loaded = load_from_disk(str(path))
    except Exception as error:  # the library raises many kinds for a damaged folder
        raise UserError(
            f"{path}: cannot load this dataset ({first_line(error)}); save it again"
        ) from None
    return by_split(str(path), loaded)


def hub_dataset(given: str, asked: re.Match[str]) -> dict[str, Records]:
    """A data set of the hub; only of the split that is asked for, where one is."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise UserError(
            f"{given}: no such file; a data set of the hub needs: pip install 'palaestra[datasets]'"
        ) from None
    try:
        loaded = load_dataset(
            asked["name"],
            asked["config"] or None,
            split=asked["split"],
            revision=asked["revision"],
        )
    except Exception as error:  # the library raises many kinds, its clients others
        raise UserError(
            f"{given}: no such file, and no data set of the hub ({first_line(error)}); write "
            "OWNER/NAME:CONFIG:SPLIT, or the path of a file"
        ) from None
    return by_split(given, loaded)


def by_split(given: str, loaded: Any) -> dict[str, Records]:
    from datasets import DatasetDict

    if isinstance(loaded, DatasetDict):
        return {str(k): Listed(f"{given}/{k}", SplitRows(v), "row") for k, v in loaded.items()}
    return {"": Listed(given, SplitRows(loaded), "row")}
