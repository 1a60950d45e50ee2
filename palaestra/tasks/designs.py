"""A folder of hardware designs as records: specifications beside their designs in Verilog.

    designs/adder.txt  designs/adder.v                      one name
    Prob001_prompt.txt Prob001_ref.sv Prob001_test.sv       one name before _prompt and _ref
    adder/design_description.txt adder/verified_adder.v     a folder for each

Test benches are left out. A record has the specification as `prompt`, the design as `answer`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from palaestra.errors import UserError

DESIGNS, SPECIFICATIONS = (".v", ".sv"), (".txt", ".md")
BENCH = re.compile(r"(?:^|_)(?:testbench|test|tb|bench)(?:_|$)", re.IGNORECASE)
ROLE = re.compile(r"^verified_|_(?:prompt|spec|description|ref|reference|design)$", re.IGNORECASE)


def design_items(folder: Path) -> list[Mapping[str, str]]:
    """The records of a folder; none where it has no design.

    Raises:
        UserError: a design has no specification, or two have one.
    """
    files = sorted(
        p
        for p in folder.rglob("*")
        if p.is_file() and not any(x.startswith(".") for x in p.relative_to(folder).parts)
    )
    designs = [p for p in files if p.suffix in DESIGNS and not BENCH.search(p.stem)]
    texts = [p for p in files if p.suffix in SPECIFICATIONS and p.stem.lower() != "readme"]
    items = list[Mapping[str, str]]()
    for design in designs:
        beside = [t for t in texts if t.parent == design.parent]
        alone = sum(d.parent == design.parent for d in designs) == 1
        named = [t for t in beside if item_name(t) == item_name(design)]
        specifications = named or (beside if alone else [])
        if len(specifications) != 1:
            raise UserError(
                f"{design}: {len(specifications)} specifications belong to this design; put one text "
                f"beside it, {item_name(design)}.txt"
            )
        items.append(
            {
                "id": item_name(design)
                if not alone or design.parent == folder
                else design.parent.name,
                "prompt": read(specifications[0]),
                "answer": read(design),
            }
        )
    return items


def item_name(path: Path) -> str:
    """The name that a design and its specification share."""
    return ROLE.sub("", path.stem)


def read(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise UserError(f"{path}: not text in UTF-8; write it again") from None
    if not text:
        raise UserError(f"{path}: the file is empty; write the specification or the design into it")
    return text
