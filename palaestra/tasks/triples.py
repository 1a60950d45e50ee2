"""The facts of a graph in a file: a line each, three names with tabs between them, or records.

Bako<TAB>boss<TAB>Tiru        {"head": "Bako", "relation": "boss", "tail": "Tiru"}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palaestra.errors import UserError
from palaestra.services.triples import Triple
from palaestra.tasks.records import BOM, decode_text
from palaestra.tasks.sources import open_records

TEXTS = (".tsv", ".txt")
COLUMNS = (("head", "subject"), ("relation", "predicate"), ("tail", "object"))
HEADERS = {tuple(names) for names in zip(*COLUMNS, strict=True)}


def read_triples(given: str) -> tuple[Triple, ...]:
    """The facts (head, relation, tail) of a file, each once, in its order.

    Args:
        given: a file of lines (.tsv, .txt), of which one that names the columns is no fact, or
            records as `--data` takes them, with the columns head, relation and tail, or subject,
            predicate and object.

    Raises:
        UserError: a line or record is no fact, or there is none.
    """
    path = Path(given).expanduser()
    if path.suffix.lower() in TEXTS and path.is_file():
        triples = _of_lines(decode_text(path.read_bytes().removeprefix(BOM), given), given)
    else:
        triples = [
            _of_record(record, records.where(i))
            for records in open_records(given).values()
            for i, record in enumerate(records)
        ]
    if not triples:
        raise UserError(f"{given}: no facts; write a line each, as head<TAB>relation<TAB>tail")
    return tuple(dict.fromkeys(triples))


def _of_lines(text: str, given: str) -> list[Triple]:
    triples = list[Triple]()
    for n, line in enumerate(text.splitlines(), 1):
        parts = tuple(part.strip() for part in line.split("\t"))
        if not line.strip() or (n == 1 and tuple(map(str.lower, parts)) in HEADERS):
            continue
        if len(parts) != 3 or not all(parts):
            raise UserError(
                f"{given}:{n}: {line.strip()[:60]!r} is no fact; write three names with tabs between "
                "them, as head<TAB>relation<TAB>tail"
            )
        triples.append((parts[0], parts[1], parts[2]))
    return triples


def _of_record(record: Mapping[str, Any], where: str) -> Triple:
    values = [next((record[n] for n in names if n in record), None) for names in COLUMNS]
    head, relation, tail = (str(x).strip() if isinstance(x, str | int) else "" for x in values)
    if not (head and relation and tail):
        raise UserError(
            f'{where}: no fact; write {{"head": "Bako", "relation": "boss", "tail": "Tiru"}}'
        )
    return head, relation, tail
